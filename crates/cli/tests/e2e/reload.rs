//! Another config while it runs: as a whole or not at all, and nobody notices but those who asked.

use rustix::process::Signal;

use crate::load::{Load, get};
use crate::pool::{Pool, echo_app, text};

#[test]
fn apply_says_what_would_change_changes_it_and_refuses_what_is_wrong() {
    let mut pool = Pool::echo();
    pool.up();
    let generation = pool.json(&["status"])["config_generation"].as_u64().unwrap();
    let pids = pool.instance_pids();

    let dry = pool.json(&["apply", "--dry-run"]);
    assert_eq!(dry["changes"].as_array().unwrap().len(), 0, "{dry}");

    let broken = "[app.echo]\nrun = 7\n";
    let file = pool.state().join("broken.toml");
    std::fs::write(&file, broken).unwrap();
    let refused = pool.run(&["apply", "--file", file.to_str().unwrap(), "-o", "json"]);
    assert_eq!(refused.status.code(), Some(3));
    let error: serde_json::Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert_eq!(error["exit"], 3);
    assert_eq!(error["diagnostics"][0]["line"], 2);
    assert_eq!(pool.json(&["status"])["config_generation"], generation);

    let moved = std::fs::read_to_string(pool.config()).unwrap().replace(&pool.listen.to_string(), "1");
    std::fs::write(&file, moved).unwrap();
    let refused = pool.run(&["apply", "--file", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("takes a restart"), "{}", text(&refused.stderr));
    assert_eq!(pool.instance_pids(), pids, "nothing was touched");
}

#[test]
fn a_changed_file_is_taken_and_a_bad_one_leaves_the_old_one_in_force() {
    let mut pool = Pool::echo();
    pool.up();
    let pids = pool.instance_pids();

    pool.write(&(echo_app("echo", "") + &echo_app("second", "")));
    pool.eventually("the second application", || pool.status()?["apps"].as_array()?.get(1).cloned());
    pool.wait_ready();
    assert_eq!(get(pool.listen, "second.localhost", "/").unwrap().0, 200);
    assert!(pids.iter().all(|pid| pool.instance_pids().contains(pid)), "what did not change was not touched");

    pool.write("[app.echo]\nrnu = []\n");
    pool.eventually("the refusal in the status", || pool.status()?["config_error"].as_str().map(str::to_owned));
    assert_eq!(get(pool.listen, "second.localhost", "/").unwrap().0, 200);
    assert!(pool.printed().contains("did you mean `run`"), "{}", pool.printed());

    pool.write(&echo_app("echo", ""));
    pool.signal_supervisor(Signal::HUP);
    pool.eventually("one application", || (pool.status()?["apps"].as_array()?.len() == 1).then_some(()));
    pool.eventually("no refusal any more", || pool.status()?["config_error"].is_null().then_some(()));
    assert!(pids.iter().all(|pid| pool.instance_pids().contains(pid)));
}

#[test]
fn a_refused_config_is_forgotten_when_the_file_is_good_again() {
    let mut pool = Pool::echo();
    pool.up();
    let good = std::fs::read_to_string(pool.config()).unwrap();
    pool.write("[app.echo]\nrnu = []\n");
    pool.eventually("the refusal", || pool.status()?["config_error"].as_str().map(str::to_owned));
    pool.write_text(&good);
    pool.eventually("no refusal any more", || pool.status()?["config_error"].is_null().then_some(()));
}

#[test]
fn a_change_that_takes_a_restart_is_shown_in_status_and_events() {
    let mut pool = Pool::echo();
    pool.up();
    let before = std::fs::read_to_string(pool.config()).unwrap();
    pool.write_text(&before.replace(&pool.listen.to_string(), "1"));
    let refused = pool.eventually("the refusal", || pool.status()?["config_error"].as_str().map(str::to_owned));
    assert!(refused.contains("takes a restart: weal down, then weal up"), "{refused}");
    let events = text(&pool.run(&["events"]).stdout);
    assert!(events.contains("takes a restart"), "{events}");
    pool.write_text(&before);
    pool.eventually("no refusal any more", || pool.status()?["config_error"].is_null().then_some(()));
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
}

#[test]
fn a_hundred_thousand_requests_see_no_reload() {
    let mut pool = Pool::echo();
    pool.up();
    let load = Load::start(pool.listen, "echo.localhost", "/", 16);
    for round in 0..10 {
        load.wait_for(10_000);
        // Every other time with another application, so that routes come and go.
        let other = if round % 2 == 0 { echo_app("other", "") } else { String::new() };
        pool.write(&(echo_app("echo", &format!("queue-limit = {}", 500 + round)) + &other));
        let applied = pool.run(&["apply"]);
        assert!(applied.status.success(), "{}", text(&applied.stderr));
    }
    let tally = load.finish();
    assert!(tally.answered >= 100_000, "{tally:?}");
    assert!(
        tally.lost.is_empty(),
        "{} lost of {}: {:?}",
        tally.lost.len(),
        tally.answered,
        &tally.lost[..tally.lost.len().min(5)]
    );
}
