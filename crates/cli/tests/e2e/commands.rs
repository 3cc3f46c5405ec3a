//! What needs no pool: help, usage, exit codes, colours.

use std::process::{Command, Output};

use crate::pool::{Pool, echo_app, text};

fn weal(args: &[&str], envs: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weal"));
    command.args(args).env_remove("WEAL_STATE").env_remove("WEAL_FILE").env_remove("NO_COLOR");
    command.envs(envs.iter().copied()).output().unwrap()
}

#[test]
fn the_commands_documented_in_tests_cmd_do_what_they_say() {
    trycmd::TestCases::new().case("tests/cmd/*.toml").case("tests/cmd/*.trycmd");
}

#[test]
fn color_beats_no_color_and_pipes_get_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weal.toml");
    std::fs::write(&file, "[app.x]\nrun = [\"./x\"]\n").unwrap();
    let validate = |more: &[&str], envs: &[(&str, &str)]| {
        let args = [&["validate", "--file", file.to_str().unwrap()], more].concat();
        weal(&args, envs)
    };
    let colored = |output: &Output| text(&output.stdout).contains('\x1b') || text(&output.stderr).contains('\x1b');
    assert!(!colored(&validate(&[], &[])), "no terminal, no colours");
    assert!(colored(&validate(&["--color", "always"], &[])));
    assert!(colored(&validate(&["--color", "always"], &[("NO_COLOR", "1")])), "what is asked for expressly wins");
    assert!(!colored(&validate(&["--color", "never"], &[])));
}

#[test]
fn every_shell_gets_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = weal(&["completion", shell], &[]);
        let script = text(&output.stdout);
        assert!(output.status.success() && script.contains("weal") && script.contains("_WEAL_COMPLETE"), "{shell}: {script}");
    }
}

/// What bash is told when it asks what may stand at the end of `words`.
fn completed(pool: &Pool, words: &[&str]) -> Vec<String> {
    let mut command = pool.command(&["--"]);
    command.args(words).env("_WEAL_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_the_names_of_the_pool() {
    let nodes = "[[node]]\nname = \"left\"\ncpu = 0.5\nmemory = \"200MiB\"\n\n";
    let mut pool = Pool::unwatched(&(nodes.to_owned() + &echo_app("echo", "") + &echo_app("other", "")));
    assert_eq!(completed(&pool, &["weal", "logs", ""])[..2], ["echo", "other"], "of the file, since no pool runs");
    assert_eq!(completed(&pool, &["weal", "why", "echo", "--node", ""]), ["left"]);
    pool.up();
    let submitted = pool.run(&["submit", "--done-by", "10m", "--memory", "16MiB", "--name", "render", "--", "/bin/true"]);
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    for (words, expected) in [
        (&["weal", "restart", "o"][..], &["other"][..]),
        (&["weal", "why", "echo", "--node", ""], &["left"]),
        (&["weal", "logs", "echo", "--instance", "other"], &["other-1"]),
        (&["weal", "job", "show", "ren"], &["render-1"]),
        (&["weal", "job", "req"], &["requeue"]),
    ] {
        assert_eq!(completed(&pool, words), expected, "{words:?}");
    }
    assert_eq!(completed(&pool, &["weal", "logs", "--state", "/nowhere", "--file", "/nowhere/weal.toml", "e"]), [] as [&str; 0]);
}

#[test]
fn errors_are_json_when_answers_are() {
    let output = weal(&["status", "--state", "/nowhere", "-o", "json"], &[]);
    assert_eq!(output.status.code(), Some(4));
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["exit"], 4);
    assert!(error["error"].as_str().unwrap().contains("no pool runs here"));
}

#[test]
fn the_schema_is_json_and_knows_the_tables() {
    let output = weal(&["schema"], &[]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["properties"]["app"].is_object(), "{schema}");
}

#[test]
fn doctor_answers_in_both_forms() {
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weal"));
        command.arg("doctor").args(more).current_dir(folder.path()).env_remove("WEAL_FILE").env_remove("WEAL_STATE");
        command.output().unwrap()
    };
    assert!(run(&[]).status.success());
    let checks: serde_json::Value = serde_json::from_slice(&run(&["-o", "json"]).stdout).unwrap();
    let names: Vec<_> = checks.as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names[..5], ["privileges", "cgroups", "sleep", "pressure", "open files"]);
    for check in checks.as_array().unwrap().iter().filter(|check| check["verdict"] != "ok") {
        assert!(!check["lost"].as_str().unwrap().is_empty() && !check["remedy"].as_str().unwrap().is_empty(), "{check}");
    }
}

#[test]
fn every_command_gets_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = weal(&["man", folder.path().to_str().unwrap()], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("weal.1").contains("weal\\-up"), "{}", page("weal.1"));
    assert!(page("weal-up.1").contains("detach") && page("weal-service-install.1").contains("root"));
}
