//! `weal rehearse`, `weal record` and `weal replay` as their users meet them: with real processes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::pool::{Pool, echo_app, text};

const SCENARIO: &str = r#"
intent = "An echo answers at once."
duration = "4s"
warm-up = "1s"
config = "weal.toml"

[[load]]
app = "echo"
class = "gold"
rate = "20/s"

[[expect]]
what = "mean-response"
app = "echo"
at-most = 5.0
"#;

const GOLD: &str = "[class.gold]\ngoal = \"mean < 2s\"\n\n";

fn gold_echo() -> String {
    GOLD.to_owned() + &echo_app("echo", "").replace("host = \"echo.localhost\"", "host = \"echo.localhost\", class = \"gold\"")
}

/// A folder with a scenario and its config.
fn scenario(text: &str) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("weal-e2e-").tempdir().unwrap();
    // The unprivileged user of gateway and controller passes through it.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    std::fs::write(folder.path().join("steady.toml"), text).unwrap();
    std::fs::write(folder.path().join("weal.toml"), gold_echo()).unwrap();
    folder
}

fn weal(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weal"));
    command.args(args).current_dir(folder).env_remove("WEAL_STATE").env_remove("WEAL_FILE").env("NO_COLOR", "1");
    command.env("TMPDIR", folder).output().unwrap()
}

fn leftovers(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("weal-rehearsal-")).collect();
    names.sort();
    names
}

#[test]
fn a_rehearsal_starts_a_pool_measures_it_judges_it_and_leaves_nothing() {
    let folder = scenario(SCENARIO);
    let output = weal(folder.path(), &["rehearse", "steady.toml", "--check", "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((run["kind"].as_str(), run["control"].as_str()), (Some("real processes"), Some("weal")));
    assert_eq!(run["checks"][0]["met"], true, "{}", run["checks"]);
    let summary = &run["flows"][0]["summary"];
    assert!(summary["answered"].as_u64().unwrap() > 20 && summary["answered"] == summary["sent"], "{summary}");
    let report = std::fs::read_to_string(folder.path().join("steady.html")).unwrap();
    assert!(report.contains("An echo answers at once.") && !report.contains("<script"));
    assert_eq!(leftovers(folder.path()), [""; 0]);
}

const WITH_JOBS: &str = r#"
[[job]]
name = "report"
at = "1s"
work = "0.5s"
memory = "64MiB"
goal = "60s"
importance = "high"

[[job]]
name = "fails"
run = ["/bin/false"]
work = "1s"
memory = "64MiB"
goal = "60s"

[[expect]]
what = "jobs-done"
from = "0s"
at-least = 1
at-most = 1
"#;

#[test]
fn jobs_of_a_scenario_are_submitted_and_what_became_of_them_is_told() {
    let folder = scenario(&SCENARIO.replace("4s", "12s"));
    std::fs::write(folder.path().join("jobs.toml"), SCENARIO.replace("4s", "12s") + WITH_JOBS).unwrap();
    let output = weal(folder.path(), &["rehearse", "jobs.toml", "--check", "-o", "json"]);
    assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ends = run["jobs"]["ends"].as_array().unwrap();
    let names: Vec<&str> = ends.iter().map(|end| end["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fails", "report"]);
    assert!(ends[0]["finished_s"].is_null() && ends[0]["utility"].is_null(), "{}", ends[0]);
    let done = |what: &str| ends[1][what].as_f64().unwrap();
    assert!(done("submitted_s") >= 0.9 && done("finished_s") > done("submitted_s") + 0.4, "{}", ends[1]);
    assert!((0.5..1.0).contains(&done("utility")), "{}", ends[1]);
    assert!(run["jobs"]["points"].as_array().unwrap().iter().any(|point| point["done"] == 1), "{}", run["jobs"]);
    let report = std::fs::read_to_string(folder.path().join("jobs.html")).unwrap();
    assert!(report.contains("Utility of jobs at completion"));
    assert_eq!(leftovers(folder.path()), [""; 0]);
}

#[test]
fn variants_and_seeds_make_one_joint_report_and_a_missed_expectation_fails_the_check() {
    let impossible =
        SCENARIO.replace("at-most = 5.0", "at-most = 0.0000001").replace("4s", "2s").replace("1s\"\nconfig", "0s\"\nconfig");
    let folder = scenario(&impossible);
    let args =
        ["rehearse", "steady.toml", "--compare", "control=off", "--compare", "placement=static", "--seed", "3", "--seeds", "2"];
    let output = weal(folder.path(), &[&args[..], &["--check", "--report", "joint.html", "-o", "json"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("missed"), "{}", text(&output.stderr));
    let joint: Value = serde_json::from_slice(&output.stdout).unwrap();
    let variants: Vec<&str> = joint["variants"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(variants, ["weal", "control off", "static"]);
    for (variant, control) in joint["variants"].as_array().unwrap().iter().zip(["weal", "off", "static"]) {
        let runs = variant["runs"].as_array().unwrap();
        let seeds: Vec<u64> = runs.iter().map(|run| run["seed"].as_u64().unwrap()).collect();
        assert_eq!((seeds, runs[0]["control"].as_str()), (vec![3, 4], Some(control)));
    }
    let page = std::fs::read_to_string(folder.path().join("joint.html")).unwrap();
    assert!(page.contains("control off") && page.contains("static"));
    assert_eq!(leftovers(folder.path()), [""; 0]);
}

#[test]
fn a_rehearsal_whose_pool_does_not_come_up_says_why() {
    let folder = scenario(SCENARIO);
    std::fs::write(folder.path().join("weal.toml"), "[app.echo]\nrun = [\"./nowhere\"]\nmemroy = \"1GiB\"\n").unwrap();
    let output = weal(folder.path(), &["rehearse", "steady.toml"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("memroy"), "{}", text(&output.stderr));
    assert_eq!(leftovers(folder.path()), [""; 0]);
}

#[test]
fn a_recorded_load_is_driven_again_with_as_many_requests() {
    let mut pool = Pool::new(&gold_echo());
    pool.up();
    let file = pool.config().with_file_name("pool.recording");
    let file = file.to_str().unwrap();
    let load = crate::load::Load::start(pool.listen, "echo.localhost", "/slow/50", 4);
    let output = pool.run(&["record", file, "--duration", "5s"]);
    load.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let recorded = std::fs::read_to_string(file).unwrap();
    assert!(recorded.contains("echo/gold"), "{recorded}");

    let outcome = pool.json(&["replay", file]);
    let flow = &outcome["flows"][0];
    let (sent, answered) = (flow["sent"].as_u64().unwrap(), flow["answered"].as_u64().unwrap());
    // Four clients of 50 ms make at most 80 requests a second.
    assert!((40..=500).contains(&sent) && answered == sent, "{outcome}");

    // What the simulation of the recording says of it as it was, and of it changed.
    let compared = |change: &[&str]| {
        let output = pool.run(&[&["what-if", file, "-o", "json"], change].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
        let flow = &compared["flows"][0];
        assert_eq!(flow["name"], "echo/gold", "{compared}");
        let side = |when: &str| ["answered_per_s", "mean_ms", "utility"].map(|what| flow[when][what].as_f64().unwrap());
        (side("before"), side("after"))
    };
    let ([recorded_per_s, recorded_ms, _], same) = compared(&[]);
    assert_eq!((recorded_per_s, recorded_ms), (same[0], same[1]));
    // A request takes 50 ms and hardly any CPU.
    assert!(
        (8.0..=100.0).contains(&recorded_per_s) && (45.0..80.0).contains(&recorded_ms),
        "{recorded_per_s}/s, {recorded_ms} ms"
    );
    let half = compared(&["--load", "0.5"]).1[0] / recorded_per_s;
    assert!((0.3..0.7).contains(&half), "{half}");
    let (before, stricter) = compared(&["--goal", "gold=mean < 60ms"]);
    assert!(stricter[2] < before[2] && (stricter[1] - before[1]).abs() < 0.2 * before[1], "{before:?} {stricter:?}");
    let refused = pool.run(&["what-if", file, "--cost", "nobody=2"]);
    assert!(
        refused.status.code() == Some(2) && text(&refused.stderr).contains("no application `nobody`"),
        "{}",
        text(&refused.stderr)
    );

    std::fs::write(file, "nonsense\n").unwrap();
    let refused = pool.run(&["replay", file]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("cannot use"), "{}", text(&refused.stderr));
}

#[test]
fn an_access_log_with_garbage_is_replayed_without_it_and_one_of_nothing_else_is_refused() {
    let mut pool = Pool::new(&gold_echo());
    pool.up();
    let log = pool.config().with_file_name("access.log");
    let line = |second: u32, request: &str| format!("1.2.3.4 - - [30/Jun/1998:22:00:{second:02} +0000] \"{request}\" 200 1\n");
    let good: String = (0..5).map(|second| line(second, &format!("GET /page{second} HTTP/1.0"))).collect();
    let garbage = "\u{1b}[31mnot a request\n".to_owned() + &line(1, "GET");
    std::fs::write(&log, format!("{garbage}{good}")).unwrap();
    let (log, url) = (log.to_str().unwrap(), format!("http://echo.localhost:{}/", pool.listen));
    let output = pool.run(&["load", &url, "--log", log, "--speed", "5", "--duration", "3s", "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("left out 2 lines") && said.contains("line 1") && !said.contains('\u{1b}'), "{said}");
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((outcome["flows"][0]["sent"].as_u64(), outcome["flows"][0]["answered"].as_u64()), (Some(5), Some(5)), "{outcome}");

    std::fs::write(log, garbage).unwrap();
    let refused = pool.run(&["load", &url, "--log", log]);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("no line in Common or Combined"),
        "{}",
        text(&refused.stderr)
    );
}
