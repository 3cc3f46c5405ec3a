//! Commands about what is not there: no pool, no such name, no rights. Each says so, what to do, and leaves nothing behind.

use std::os::unix::process::CommandExt;
use std::process::Output;

use crate::pool::{Pool, echo_app, open_to_all, text};

/// Every command that asks a running pool, with what it needs besides. `FILE` stands for a file that is not there.
const ASKING: [&[&str]; 32] = [
    &["status"],
    &["instances"],
    &["events"],
    &["audit"],
    &["history"],
    &["jobs"],
    &["apply"],
    &["down"],
    &["upgrade"],
    &["logs", "echo"],
    &["why", "echo"],
    &["why", "--request", "x"],
    &["restart", "echo"],
    &["reload", "echo"],
    &["stop", "echo"],
    &["start", "echo"],
    &["scale", "echo", "2"],
    &["sleep", "echo"],
    &["wake", "echo"],
    &["keep-awake", "echo"],
    &["exec", "echo", "--", "true"],
    &["deploy", "--yes"],
    &["rollback", "--yes"],
    &["submit", "--done-by", "10m", "--", "true"],
    &["job", "show", "render"],
    &["job", "logs", "render"],
    &["job", "cancel", "render"],
    &["load", "echo"],
    &["token", "list"],
    &["token", "create", "ci"],
    &["token", "revoke", "ci"],
    &["record", "FILE"],
];

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn each_command_says_that_no_pool_runs_and_leaves_nothing_behind() {
    let pool = Pool::unwatched(&echo_app("echo", ""));
    let recording = pool.config().with_file_name("recording");
    for words in ASKING {
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "FILE" { recording.to_str().unwrap() } else { word }).collect();
        let output = pool.run(&words);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(4), "{words:?}: {said}");
        assert!(said.starts_with("error: no ") && said.contains(" runs here"), "{words:?}: {said}");
        assert!(!recording.exists() && !pool.state().exists(), "{words:?} made something");
    }
    std::fs::write(&recording, "what was recorded before").unwrap();
    assert_eq!(pool.run(&["record", recording.to_str().unwrap()]).status.code(), Some(4));
    assert_eq!(std::fs::read_to_string(&recording).unwrap(), "what was recorded before");
}

#[test]
fn each_command_says_what_there_is_in_place_of_an_unknown_name() {
    let mut pool = Pool::unwatched(&echo_app("echo", ""));
    pool.up();
    for (words, part) in [
        (&["logs", "shop"][..], "`shop`"),
        (&["logs", "echo", "--instance", "echo-9"], "echo-1"),
        (&["exec", "echo", "--instance", "echo-9", "--", "true"], "echo has no awake instance echo-9"),
        (&["events", "shop"], "there is no application `shop`: there are echo"),
        (&["load", "shop"], "`shop`"),
        (&["why", "--request", "nonsense"], "nonsense"),
        (&["rollback", "--yes", "99"], "there is no version 99"),
        (&["job", "show", "render"], "render"),
        (&["job", "logs", "render"], "render"),
        (&["job", "cancel", "render"], "render"),
        (&["job", "requeue", "render"], "render"),
        (&["submit", "--done-by", "10m", "--after", "render", "--", "/bin/true"], "render"),
        (&["token", "rotate", "ci"], "`ci`"),
        (&["token", "revoke", "ci"], "`ci`"),
    ] {
        let output = pool.run(words);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(part) && said.lines().count() <= 2, "{words:?}: {said}");
    }
    // A node that is none is an answer to the question.
    let why = text(&pool.run(&["why", "echo", "--node", "n9"]).stdout);
    assert!(why.contains("The pool has no node n9"), "{why}");
}

#[test]
fn each_command_says_whose_pool_it_is_to_who_may_not_ask_it() {
    if !rustix::process::geteuid().is_root() {
        return weal_testing::skip("only root can be somebody else");
    }
    let mut pool = Pool::unwatched(&echo_app("echo", ""));
    pool.up();
    let program = open_to_all(env!("CARGO_BIN_EXE_weal").into());
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_534), Some(65_534)).unwrap();
    let recording = folder.path().join("recording");
    for words in ASKING {
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "FILE" { recording.to_str().unwrap() } else { word }).collect();
        let mut command = std::process::Command::new(&program);
        command.args(&words).env("WEAL_STATE", pool.state()).env("WEAL_FILE", pool.config()).env("NO_COLOR", "1");
        let output = command.current_dir(folder.path()).uid(65_534).gid(65_534).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("belongs to user root: only that user and root may ask it"), "{words:?}: {said}");
        assert!(!recording.exists(), "{words:?} made something");
    }
    assert_eq!(pool.instance_pids().len(), 1);
}
