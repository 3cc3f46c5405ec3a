//! Whole configs, good and bad. The bad ones' messages are snapshots: read them as a user would.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weal_config::{Effect, Level, MachineSize, diff, effective, parse, render_all, restarts};
use weal_model::{Bytes, HealthProbe, PoolSpec};

/// Where the configs pretend to be, so that no message holds a path of the machine that runs the test.
const FOLDER: &str = "/srv/pool";
const MACHINE: MachineSize = MachineSize { cpus: 4.0, memory: Bytes::gib(8) };

fn files(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(kind);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn good(text: &str) -> PoolSpec {
    match parse(text, &format!("{FOLDER}/weal.toml"), &MACHINE) {
        Ok(parsed) => parsed.spec,
        Err(found) => panic!("{}", render_all(&found, text, false)),
    }
}

#[test]
fn every_bad_config_says_what_is_wrong_where_and_what_would_be_right() {
    let files = files("bad");
    let mut messages = BTreeSet::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        // A file `*-warning` is taken, with warnings; all others are refused.
        let found = match parse(&text, &format!("{name}.toml"), &MACHINE) {
            Ok(parsed) => {
                assert!(name.ends_with("-warning"), "{name} was taken");
                parsed.warnings
            }
            Err(found) => {
                assert!(!name.ends_with("-warning"), "{name} was refused: {}", render_all(&found, &text, false));
                assert!(found.iter().any(|found| found.level == Level::Error));
                found
            }
        };
        assert!(!found.is_empty(), "{name}: nothing found");
        messages.extend(found.iter().map(|found| found.message.clone()));
        insta::assert_snapshot!(name, render_all(&found, &text, false));
    }
    assert!(files.len() >= 35, "{} bad configs", files.len());
    assert!(messages.len() >= 60, "{} different messages", messages.len());
}

#[test]
fn every_good_config_is_taken_without_a_warning() {
    for file in files("good") {
        let text = fs::read_to_string(&file).unwrap();
        let parsed = parse(&text, &format!("{FOLDER}/weal.toml"), &MACHINE);
        let parsed = parsed.unwrap_or_else(|found| panic!("{}", render_all(&found, &text, false)));
        assert!(parsed.warnings.is_empty(), "{}", render_all(&parsed.warnings, &text, false));
    }
}

#[test]
fn every_example_is_taken() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut taken = 0;
    for folder in fs::read_dir(examples).unwrap() {
        let Ok(text) = fs::read_to_string(folder.unwrap().path().join("weal.toml")) else { continue };
        taken += usize::from(!good(&text).apps.is_empty());
    }
    assert!(taken >= 3, "{taken} examples");
}

#[test]
fn what_a_config_does_not_say_is_filled_in() {
    let spec = good("[app.web]\nrun = [\"./web\"]\nroutes = [{ host = \"Web.Localhost\" }]");
    assert_eq!(spec.name, "pool");
    assert_eq!(spec.nodes.len(), 1);
    assert_eq!((spec.nodes[0].cpu.0, spec.nodes[0].memory), (4.0, Bytes::mib(7372)));
    assert_eq!(spec.classes["default"].goal, None);
    let web = &spec.apps["web"];
    assert_eq!((web.cwd.as_str(), web.per_node, web.instances.max), (FOLDER, 1, 1));
    assert_eq!(web.health.probe, HealthProbe::Tcp);
    assert_eq!(web.routes[0].host.as_deref(), Some("web.localhost"));
}

#[test]
fn the_effective_config_reads_back_as_itself() {
    for file in files("good") {
        let spec = good(&fs::read_to_string(&file).unwrap());
        let shown = effective(&spec);
        assert_eq!(good(&shown), spec, "{shown}");
        assert_eq!(effective(&good(&shown)), shown);
        insta::assert_snapshot!(format!("effective-{}", file.file_stem().unwrap().to_string_lossy()), shown);
    }
}

#[test]
fn a_difference_says_what_restarts_and_what_does_not() {
    let before = fs::read_to_string(files("good").iter().find(|file| file.ends_with("issue.toml")).unwrap()).unwrap();
    let after = before
        .replace("p95 < 250ms", "p95 < 200ms")
        .replace("max = 4", "max = 5")
        .replace("/report/*", "/reports/*")
        .replace("\"-p\", \"$PORT\"]", "\"-p\", \"$PORT\", \"-N\", \"50\"]\nenv = { SECRET = \"hunter2\" }")
        .replace("127.0.0.1:8081", "127.0.0.1:9091")
        .replace("cpu = 1.0", "cpu = 2")
        + "\n[app.worker]\nrun = [\"./worker\"]\n";
    let (before, after) = (good(&before), good(&after));
    let lines = |changes: Vec<weal_config::ConfigChange>| {
        changes
            .iter()
            .map(|change| format!("{:?} [{}] {}", change.effect, change.subject, change.text))
            .collect::<Vec<_>>()
            .join("\n")
    };
    insta::assert_snapshot!("diff-forth", lines(diff(&before, &after)));
    insta::assert_snapshot!("diff-back", lines(diff(&after, &before)));
    assert_eq!(diff(&before, &before), vec![]);
    assert!(restarts(&before.apps["db"], &after.apps["db"]));
    assert!(!restarts(&before.apps["shop"], &after.apps["shop"]));
    assert!(!diff(&before, &after).iter().any(|change| change.text.contains("hunter2")));
    insta::assert_snapshot!(
        "diff-outline",
        diff(&before, &after).iter().map(weal_config::ConfigChange::outline).collect::<Vec<_>>().join("\n")
    );
    assert!(diff(&before, &after).iter().any(|change| change.effect == Effect::NextStart));
}

#[test]
fn the_outline_of_a_change_names_keys_and_quotes_no_command_no_address_and_no_header() {
    let config = |secret: &str| {
        good(&format!(
            "[app.shop]\nrun = [\"./shop\", \"--password={secret}\"]\non-resume = [\"./again\", \"{secret}\"]\nenv = {{ TOKEN = \"{secret}\" }}\n\
             health = {{ http = \"/health?key={secret}\" }}\n\
             routes = [{{ host = \"shop.localhost\", header = {{ name = \"x-key\", value = \"{secret}\" }} }}]\n\
             [job.nightly]\nschedule = \"0 3 * * *\"\nrun = [\"./backup\", \"{secret}\"]\nwork = \"20s\"\nmemory = \"64MiB\"\n\
             checkpoint = [\"./save\", \"{secret}\"]\n[[notify]]\nurl = \"https://example.org/{secret}\"\n\
             [pool]\nlogs-to = \"https://otlp.example/{secret}\"\nmetrics-to = \"https://otlp.example/m?key={secret}\"\n\
             traces-to = \"https://otlp.example/t/{secret}\"\n"
        ))
    };
    let changes = diff(&config("oldsecret"), &config("newsecret"));
    assert!(changes.iter().any(|change| change.text.contains("newsecret")), "whoever orders it is told: {changes:?}");
    let outline: Vec<String> = changes.iter().map(weal_config::ConfigChange::outline).collect();
    assert!(!outline.iter().any(|text| text.contains("secret")), "{outline:?}");
    for key in ["logs-to", "metrics-to", "traces-to"] {
        let change = changes.iter().find(|change| change.keys == [key]).unwrap();
        assert_eq!(change.text, format!("the address of {key} at https://otlp.example/… changes"));
    }
    for key in ["run", "variable TOKEN", "on-resume", "health", "routes", "checkpoint", "notify"] {
        assert!(outline.iter().any(|text| text.contains(key)), "{key}: {outline:?}");
    }
}

#[test]
fn places_count_characters_and_lines_from_one() {
    let text = "# größer\n[app.web]\nrun = [\"ü\"]\nrestart = \"maybe\"\n";
    let found = parse(text, "x.toml", &MACHINE).unwrap_err();
    assert_eq!((found[0].line, found[0].column, found[0].length), (4, 11, 7));
    assert_eq!(found[0].to_string().split(": ").next(), Some("x.toml:4:11"));
}

#[test]
fn every_example_is_confined_and_none_of_it_runs_as_root() {
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")).unwrap();
    let files = folders.map(|entry| entry.unwrap().path().join("weal.toml")).filter(|file| file.exists());
    let mut seen = 0;
    for file in files {
        let (text, shown) = (fs::read_to_string(&file).unwrap(), file.display().to_string());
        let spec = parse(&text, &shown, &MACHINE).unwrap_or_else(|found| panic!("{shown}: {found:?}")).spec;
        for app in spec.apps.values() {
            assert_eq!(app.sandbox.mode, weal_model::SandboxMode::Strict, "{shown}: {}", app.name);
            assert!(!matches!(app.user.as_deref(), Some("root" | "0")), "{shown}: {} runs as root", app.name);
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen}");
}
