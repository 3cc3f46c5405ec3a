//! Batch jobs on a real pool: handed in, run, ordered about; never lost and never done twice, whatever of weal is killed.

use std::process::Output;

use serde_json::Value;

use crate::pool::{Pool, kill, text};

/// What a job does that writes a line to `marks` in its own folder when it begins and when it ends.
const MARKED: &str = "echo begun >> marks; sleep 3; echo ended >> marks; cat marks";

fn submit(pool: &Pool, options: &[&str], command: &[&str]) -> Output {
    let head = ["submit", "--done-by", "10m", "--memory", "50MiB", "-o", "json"];
    pool.run(&[&head, options, &["--"], command].concat())
}

/// The id of a job that was taken.
fn taken(pool: &Pool, options: &[&str], command: &[&str]) -> String {
    let output = submit(pool, options, command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let taken: Value = serde_json::from_slice(&output.stdout).unwrap();
    taken["job"]["id"].as_str().unwrap().to_owned()
}

fn job(pool: &Pool, id: &str) -> Option<Value> {
    let output = pool.run(&["job", "show", id, "-o", "json"]);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

fn until(pool: &Pool, id: &str, state: &str) -> Value {
    pool.eventually(&format!("{id} is {state}"), || job(pool, id).filter(|job| job["state"] == state))
}

fn logs(pool: &Pool, id: &str) -> Vec<u8> {
    pool.run(&["job", "logs", id]).stdout
}

#[test]
fn a_job_runs_in_a_folder_of_its_own_and_its_output_comes_back_to_the_last_byte() {
    let mut pool = Pool::echo();
    pool.up();
    let script = "pwd; env; ls -l /proc/self/fd | wc -l; printf 'a\\000\\377b'";
    let id = taken(&pool, &["--name", "probe", "--env", "MODE=a $b"], &["sh", "-c", script]);
    let done = until(&pool, &id, "done");
    assert_eq!((done["end"]["code"].as_i64(), done["attempt"].as_i64()), (Some(0), Some(1)));
    let output = logs(&pool, &id);
    assert!(output.ends_with(b"a\0\xffb"), "{:?}", text(&output));
    let output = text(&output);
    assert!(output.starts_with(&pool.state().join("data/job.probe-1").display().to_string()), "{output}");
    assert!(output.contains("MODE=a $b\n") && output.contains("JOB=probe-1\n") && !output.contains("PORT="), "{output}");
    // stdin, stdout, stderr, the folder that ls reads; a line for the total.
    assert!(output.contains("\n5\n"), "{output}");
    let waited = pool.run(&["submit", "--done-by", "10m", "--wait", "--", "sh", "-c", "exit 3"]);
    assert!(!waited.status.success() && text(&waited.stderr).contains("ended by itself with status 3"));
}

#[test]
fn bad_input_is_refused_or_fails_with_a_reason() {
    let mut pool = Pool::echo();
    pool.up();
    for (options, part) in [
        (["--done-by", "5m", "--memory", "900TiB"].as_slice(), "the largest node has"),
        (&["--done-by", "0s"], "must lie in the future"),
        (&["--class", "gold"], "it has no goal: nobody knows its work yet"),
    ] {
        let refused = pool.run(&[&["submit"], options, &["--", "true"]].concat());
        let why = text(&refused.stderr);
        assert!(!refused.status.success() && why.contains(part), "{why}");
    }
    let missing = taken(&pool, &[], &["/no/such/program"]);
    assert_eq!(until(&pool, &missing, "failed")["detail"], "cannot run /no/such/program: there is no such file");
    // It keeps a line that never ends.
    let greedy = taken(&pool, &[], &["tail", "/dev/zero"]);
    let failed = until(&pool, &greedy, "failed");
    assert_eq!(failed["end"]["how"], "out-of-memory", "{failed}");
    // It detaches a child that would live on, and ends: the child is ended with it.
    let detaches = taken(&pool, &[], &["sh", "-c", "setsid sleep 1234 & echo left"]);
    let done = until(&pool, &detaches, "done");
    assert!(done["detail"].as_str().unwrap().contains("which were killed"), "{done}");
    let deaf = taken(&pool, &[], &["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]);
    until(&pool, &deaf, "running");
    assert!(pool.run(&["job", "cancel", &deaf]).status.success());
    until(&pool, &deaf, "cancelled");
    let key = ["--idempotency-key", "once"];
    assert_eq!(taken(&pool, &key, &["true"]), taken(&pool, &key, &["true"]));
    assert!(!submit(&pool, &key, &["false"]).status.success(), "the key belongs to another command");
}

#[test]
fn a_job_is_paused_goes_on_and_is_run_again_as_asked() {
    let mut pool = Pool::echo();
    pool.up();
    let id = taken(&pool, &["--name", "count"], &["sh", "-c", "while :; do date +%s%N; sleep 0.05; done"]);
    until(&pool, &id, "running");
    assert!(pool.run(&["job", "pause", &id]).status.success());
    until(&pool, &id, "paused");
    let still = logs(&pool, &id);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(logs(&pool, &id), still, "it stands still");
    assert!(pool.run(&["job", "resume", &id]).status.success());
    until(&pool, &id, "running");
    pool.eventually("it writes again", || (logs(&pool, &id).len() > still.len()).then_some(()));
    assert!(pool.run(&["job", "requeue", &id]).status.success());
    pool.eventually("its second run", || job(&pool, &id).filter(|job| job["attempt"] == 2 && job["state"] == "running"));
    assert!(pool.run(&["job", "cancel", &id]).status.success());
    until(&pool, &id, "cancelled");
    let weak = taken(&pool, &["--retries", "1"], &["sh", "-c", "exit 4"]);
    assert_eq!(until(&pool, &weak, "failed")["attempt"], 2);
}

#[test]
fn no_job_is_lost_or_done_twice_whatever_is_killed() {
    let mut pool = Pool::echo();
    pool.up();
    let id = taken(&pool, &["--name", "first"], &["sh", "-c", MARKED]);
    // As soon as it is acknowledged; it may or may not have begun.
    pool.kill_role("controller");
    until(&pool, &id, "running");
    pool.kill_role("node");
    until(&pool, &id, "running");
    pool.kill_role("controller");
    pool.kill_role("node");
    until(&pool, &id, "done");
    assert_eq!(text(&logs(&pool, &id)), "begun\nended\n");

    let id = taken(&pool, &["--name", "second"], &["sh", "-c", MARKED]);
    until(&pool, &id, "running");
    let roles = ["gateway", "controller", "node"].map(|role| pool.pid(role));
    pool.kill_supervisor();
    roles.into_iter().for_each(kill);
    // It ends while nothing of weal is there but its shim.
    std::thread::sleep(std::time::Duration::from_secs(4));
    pool.up();
    let done = until(&pool, &id, "done");
    assert_eq!((text(&logs(&pool, &id)), done["attempt"].as_i64()), ("begun\nended\n".to_owned(), Some(1)));
}

#[test]
fn a_job_that_weal_ends_with_itself_is_run_again() {
    let mut pool = Pool::echo();
    pool.up();
    let id = taken(&pool, &[], &["sh", "-c", "echo run $ATTEMPT; sleep 2"]);
    until(&pool, &id, "running");
    assert!(pool.run(&["down"]).status.success());
    pool.wait_end();
    pool.up();
    assert_eq!(until(&pool, &id, "done")["attempt"], 2);
    assert_eq!(text(&logs(&pool, &id)), "run 2\n");
}
