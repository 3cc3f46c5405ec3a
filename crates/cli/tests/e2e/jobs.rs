//! Batch jobs on a real pool: submitted, run, ordered about; never lost and never done twice, whatever of weal is killed.

use std::process::Output;

use serde_json::Value;

use crate::pool::{Pool, echo_app, kill, text};

/// What a job does that writes a line to `marks` in its own folder when it begins and when it ends.
const MARKED: &str = "echo begun >> marks; sleep 3; echo ended >> marks; cat marks";

pub fn submit(pool: &Pool, options: &[&str], command: &[&str]) -> Output {
    let head = ["submit", "--done-by", "10m", "-o", "json"];
    let memory: &[&str] = if options.contains(&"--memory") { &[] } else { &["--memory", "50MiB"] };
    pool.run(&[&head, memory, options, &["--"], command].concat())
}

/// The id of a job that was taken.
pub fn taken(pool: &Pool, options: &[&str], command: &[&str]) -> String {
    let output = submit(pool, options, command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let taken: Value = serde_json::from_slice(&output.stdout).unwrap();
    taken["job"]["id"].as_str().unwrap().to_owned()
}

pub fn job(pool: &Pool, id: &str) -> Option<Value> {
    let output = pool.run(&["job", "show", id, "-o", "json"]);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

pub fn until(pool: &Pool, id: &str, state: &str) -> Value {
    pool.eventually(&format!("{id} is {state}"), || job(pool, id).filter(|job| job["state"] == state))
}

pub fn logs(pool: &Pool, id: &str) -> Vec<u8> {
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
        (&["--class", "gold"], "the job has no goal: its work is not known yet"),
    ] {
        let refused = pool.run(&[&["submit"], options, &["--", "true"]].concat());
        let why = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && why.contains(part), "{why}");
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

#[test]
fn a_script_says_its_own_options_and_an_array_is_cancelled_with_what_waits_for_it() {
    let mut pool = Pool::echo();
    pool.up();
    // Not in /tmp: jobs have one of their own.
    let script = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("greet.sh");
    std::fs::write(
        &script,
        "#!/bin/sh\n#weal --done-by 10m --name greet\n#weal --memory 50MiB --env WHO=world\necho hello $WHO $1 $ARRAY_INDEX\n",
    )
    .unwrap();
    let output = pool.run(&["submit", "--array", "1-3", "--wait", "-o", "json", &script.display().to_string(), "and"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap().as_array().map(Vec::len), Some(3));
    for index in 1..=3 {
        let id = format!("greet-1.{index}");
        let done = job(&pool, &id).unwrap();
        assert_eq!(done["state"], "done", "the whole array was waited for");
        assert_eq!(
            (done["array"]["array"].as_str(), text(&logs(&pool, &id))),
            (Some("greet-1"), format!("hello world and {index}\n"))
        );
    }
    let sleeps = taken(&pool, &["--name", "nap", "--array", "1-2"], &["sleep", "1000"]);
    let then = taken(&pool, &["--after", "nap-4"], &["true"]);
    let last = taken(&pool, &["--after", &then], &["true"]);
    until(&pool, &sleeps, "running");
    assert!(pool.run(&["job", "cancel", "nap-4"]).status.success());
    for id in ["nap-4.1", "nap-4.2", &then, &last] {
        until(&pool, id, "cancelled");
    }
    assert!(pool.run(&["job", "requeue", "greet-1"]).status.success());
    for index in 1..=3 {
        let id = format!("greet-1.{index}");
        pool.eventually("its second run", || job(&pool, &id).filter(|job| job["attempt"] == 2 && job["state"] == "done"));
    }
    let bad = pool.run(&["submit", "--done-by", "yesterday", "--", "true"]);
    let why = text(&bad.stderr);
    assert!(!bad.status.success() && why.contains("a duration (`30m`") && why.contains("a time (`18:00`"), "{why}");
    assert!(pool.run(&["submit", "--done-by", "tomorrow 06:00", "--", "true"]).status.success());
}

#[test]
fn a_dry_run_foretells_and_runs_nothing() {
    let mut pool = Pool::echo();
    pool.up();
    let options = ["--done-by", "10m", "--memory", "50MiB", "--work", "60s"];
    // The first answers come before anything was measured.
    let said = pool.eventually("a forecast", || {
        let output = pool.run(&[&["submit", "--dry-run"], options.as_slice(), &["--", "sh", "-c", "exit 1"]].concat());
        output.status.success().then(|| text(&output.stdout))
    });
    assert!(said.starts_with("the job would begin at once on ") && said.contains("would be done in 5"), "{said}");
    assert!(said.contains("its work is taken for 60.0 s of CPU, as submitted"), "{said}");
    assert_eq!(pool.json(&["jobs"]), serde_json::json!([]));
}

#[test]
fn a_schedule_runs_once_a_minute_whatever_is_killed() {
    let mut pool = Pool::echo();
    let job = "\n[job.tick]\nschedule = \"* * * * *\"\nrun = [\"date\", \"+%s\"]\nmemory = \"50MiB\"\n";
    pool.write(&(echo_app("echo", "") + job));
    pool.up();
    let shown = text(&pool.run(&["jobs"]).stdout);
    assert!(shown.contains("no jobs") && shown.contains("tick") && shown.contains("* * * * *"), "{shown}");
    let next = pool.json(&["jobs", "--schedules"])[0]["next"].as_u64().unwrap();
    let until_then = std::time::Duration::from_nanos(next).saturating_sub(std::time::UNIX_EPOCH.elapsed().unwrap());
    // Nobody is there at its date.
    std::thread::sleep(until_then.saturating_sub(std::time::Duration::from_secs(1)));
    pool.kill_supervisor();
    for role in ["gateway", "controller", "node"] {
        pool.recorded(role).into_iter().for_each(kill);
    }
    std::thread::sleep(std::time::Duration::from_secs(3));
    pool.up();
    let done = pool.eventually("its job", || job_of(&pool).filter(|job| job["state"] == "done"));
    assert_eq!(done["scheduled"]["date"].as_u64(), Some(next));
    let id = done["id"].as_str().unwrap().to_owned();
    let wrote: u64 = text(&logs(&pool, &id)).trim().parse().unwrap();
    assert!(wrote >= next / 1_000_000_000, "{wrote}");
    pool.kill_role("controller");
    pool.eventually("the controller", || pool.status());
    let dates: Vec<u64> =
        pool.json(&["jobs"]).as_array().unwrap().iter().filter_map(|job| job["scheduled"]["date"].as_u64()).collect();
    assert_eq!(dates.iter().filter(|date| **date == next).count(), 1, "{dates:?}");
}

#[test]
fn progress_that_a_job_writes_replaces_a_wrong_estimate() {
    let mut pool = Pool::echo();
    pool.up();
    // An hour of work is said, and it is at a fifth within seconds.
    let script = "i=0; while :; do i=$((i+1)); [ $((i % 20000)) = 0 ] && echo 0.2 > $WEAL_PROGRESS; done";
    let id = taken(&pool, &["--work", "1h"], &["sh", "-c", script]);
    let told = pool.eventually("its own progress", || job(&pool, &id).filter(|job| job["progress"] == 0.2));
    let (used, work) = (told["cpu_used"].as_f64().unwrap(), told["work"].as_f64().unwrap());
    assert!((work - used / 0.2).abs() < 1e-6 && work < 1800.0, "{told}");
    assert_eq!(told["work_source"], "from the progress that it writes");
    assert!(pool.run(&["job", "cancel", &id]).status.success());
}

#[test]
fn a_job_that_is_more_work_than_was_said_says_so_and_tells_no_progress() {
    let mut pool = Pool::echo();
    pool.up();
    let id = taken(&pool, &["--work", "2s"], &["sh", "-c", "while :; do :; done"]);
    let is_known = |job: &Value| job["is_guess"] == true && !job["expected_latest"].is_null();
    let told = pool.eventually("more than it said", || job(&pool, &id).filter(is_known));
    assert_eq!((told["raised"]["from"].as_f64(), told["progress"].as_f64()), (Some(2.0), Some(0.0)), "{told}");
    assert!(told["expected_latest"].as_u64() > told["expected_end"].as_u64(), "{told}");
    let shown = text(&pool.run(&["jobs"]).stdout);
    assert!(shown.contains("?, raised"), "{shown}");
    let events = text(&pool.run(&["events"]).stdout);
    assert!(events.contains("has used the 2.0 s of CPU that it was expected to take, and runs on"), "{events}");
    assert!(pool.run(&["job", "cancel", &id]).status.success());
}

/// The last job in the list.
fn job_of(pool: &Pool) -> Option<Value> {
    let output = pool.run(&["jobs", "-o", "json"]);
    let jobs: Value = serde_json::from_slice(&output.stdout).ok()?;
    jobs.as_array()?.last().cloned()
}

#[test]
fn a_job_that_is_killed_while_it_stands_still_fails_and_is_not_lost() {
    let mut pool = Pool::echo();
    pool.up();
    let script = "echo $$; while :; do sleep 0.1; done";
    let id = taken(&pool, &["--name", "still"], &["sh", "-c", script]);
    until(&pool, &id, "running");
    let pid = pool.eventually("its process number", || text(&logs(&pool, &id)).trim().parse().ok());
    assert!(pool.run(&["job", "pause", &id]).status.success());
    until(&pool, &id, "paused");
    kill(pid);
    let failed = until(&pool, &id, "failed");
    assert_eq!((failed["end"]["how"].as_str(), failed["end"]["signal"].as_i64()), (Some("signal"), Some(9)), "{failed}");
}

/// Its second stage takes more memory than its first may have: it lives because the limit has grown by then.
#[test]
fn a_job_with_stages_has_the_memory_of_each_when_it_comes_to_it() {
    let mut pool = Pool::echo();
    pool.up();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stages.toml");
    std::fs::write(&file, "[[stage]]\nwork = \"8s\"\nmemory = \"50MiB\"\n[[stage]]\nwork = \"4s\"\nmemory = \"180MiB\"\n")
        .unwrap();
    let program = env!("CARGO_BIN_EXE_weal");
    let phases =
        ["stand-in", "--work", "8", "--cpus", "1", "--memory", "40MiB", "--work", "4", "--cpus", "1", "--memory", "150MiB"];
    let stages = file.display().to_string();
    let options = ["submit", "--done-by", "10m", "-o", "json", "--stages", &stages, "--", program];
    let output = pool.run(&[options.as_slice(), &phases].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let staged = serde_json::from_slice::<Value>(&output.stdout).unwrap()["job"]["id"].as_str().unwrap().to_owned();
    let mib = |job: &Value| job["memory_limit"].as_u64().unwrap() >> 20;
    let waiting = job(&pool, &staged).unwrap();
    assert_eq!((waiting["stage"].as_u64(), waiting["stages"].as_u64(), mib(&waiting)), (Some(1), Some(2), 50));
    let later = pool.eventually("its second stage", || job(&pool, &staged).filter(|job| job["stage"] == 2));
    assert_eq!(mib(&later), 180);
    assert_eq!(until(&pool, &staged, "done")["stage"], 2);
    let refused = pool.run(&["submit", "--stages", &stages, "--memory", "1GiB", "--", "true"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("cannot be used with"), "{}", text(&refused.stderr));
}

#[test]
fn a_token_has_no_more_jobs_than_its_quota() {
    let mut pool = Pool::echo();
    pool.up();
    let made = pool.run(&["token", "create", "ci", "--max-jobs", "2", "--max-work", "1h", "--max-memory", "300MiB"]);
    let secret = text(&made.stdout).trim().to_owned();
    assert!(text(&made.stderr).contains("lets its holder read, and submit and order its own jobs"), "{}", text(&made.stderr));
    let list = text(&pool.run(&["token", "list"]).stdout);
    let row = list.lines().find(|line| line.starts_with("ci ")).unwrap_or_else(|| panic!("{list}"));
    assert!(row.contains(" jobs ") && row.contains("2 jobs, 3600s of CPU, 300MiB"), "{row}");
    let (status, answer) = crate::load::post_json(pool.api, "/v1/apps/echo/stop", &secret, "").unwrap();
    assert!(status == 403 && answer.contains("submit jobs and order these, and nothing else"), "{answer}");
    let submit_job = |more: &str| {
        let body = format!("{{\"run\":[\"sleep\",\"1000\"],\"done_within_s\":9000{more}}}");
        crate::load::post_json(pool.api, "/v1/jobs", &secret, &body).unwrap()
    };
    let mib = |mib: u64| format!(",\"memory\":{}", mib << 20);
    for (more, said) in [
        (mib(301), "max-memory = 300MiB`: its open jobs take 0B, and this asks for 301MiB"),
        (mib(9) + ",\"work_s\":3601", "max-work = 3600s`: "),
        (mib(9) + ",\"array\":{\"first\":1,\"last\":3}", "max-jobs = 2`: its open jobs take 0, and this asks for 3"),
    ] {
        let (status, answer) = submit_job(&more);
        assert!(status == 429 && answer.contains("the token `ci` may have `max-") && answer.contains(said), "{answer}");
    }
    for _ in 0..2 {
        let (status, answer) = submit_job(&mib(50));
        assert_eq!(status, 200, "{answer}");
    }
    let (status, answer) = submit_job(&mib(50));
    assert!(status == 429 && answer.contains("max-jobs = 2`: its open jobs take 2, and this asks for 1"), "{answer}");
    // The quota is the token's alone, and a new controller counts on.
    taken(&pool, &[], &["sleep", "1000"]);
    pool.kill_role("controller");
    pool.eventually("the controller", || pool.status());
    assert_eq!(pool.eventually("the refusal", || Some(submit_job(&mib(50)).0).filter(|status| *status != 409)), 429);
    let id = pool.json(&["jobs"]).as_array().unwrap().iter().find(|job| job["submitter"] == "ci").unwrap()["id"].clone();
    let id = id.as_str().unwrap();
    assert!(text(&pool.run(&["job", "show", id]).stdout).contains(", by the token ci"));
    assert!(pool.run(&["job", "cancel", id]).status.success());
    until(&pool, id, "cancelled");
    assert_eq!(submit_job(&mib(50)).0, 200, "there is a place again");
}

/// Two nodes for gangs, beside the application that every pool here has.
pub fn two_nodes() -> Pool {
    let node = |name: &str| format!("[[node]]\nname = \"{name}\"\ncpu = 0.7\nmemory = \"300MiB\"\n\n");
    Pool::new(&(node("n1") + &node("n2") + &echo_app("echo", "")))
}

/// A folder that the jobs' users can reach, with one into which they can write.
pub fn open_folder(name: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    for (path, mode) in [(folder.join("tree/deep"), 0o755), (folder.join("results"), 0o777)] {
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    folder
}

#[test]
fn a_job_finds_its_inputs_and_is_done_when_its_results_are_in_place() {
    let mut pool = Pool::echo();
    pool.up();
    let folder = open_folder("inputs-and-results");
    std::fs::write(folder.join("data.txt"), "3\n").unwrap();
    std::fs::write(folder.join("tree/deep/more.txt"), "4\n").unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let (data, tree, to) = (path("data.txt"), path("tree"), path("results"));
    let inputs = ["--input", &data, "--input", &tree, "--to", &to];
    let run = |name: &str, output: &str, script: &str| {
        taken(&pool, &[inputs.as_slice(), &["--name", name, "--result", output]].concat(), &["sh", "-c", script])
    };
    let sum = run("sum", "out/*.txt", "mkdir out; cat data.txt tree/deep/more.txt > out/all.txt; echo x > out/rest");
    until(&pool, &sum, "done");
    assert_eq!(std::fs::read_to_string(folder.join("results/out/all.txt")).unwrap(), "3\n4\n");
    assert!(!folder.join("results/out/rest").exists(), "only what is named");
    let own = |id: &str| pool.state().join(format!("data/job.{id}"));
    pool.eventually("its folder is scrubbed", || (!own(&sum).exists()).then_some(()));
    for (script, part) in [
        ("true", "its results are not in place: it has left nothing that `out/*.txt` names"),
        ("mkdir out; ln -s /etc/passwd out/all.txt", "out/all.txt is a symbolic link, which is not followed"),
    ] {
        let id = run("bad", "out/*.txt", script);
        let failed = until(&pool, &id, "failed");
        assert!(failed["detail"].as_str().unwrap().contains(part) && failed["end"]["how"] == "no-results", "{failed}");
        assert!(own(&id).exists(), "somebody may want to see what it did");
    }
    let missing = taken(&pool, &["--input", &path("none")], &["true"]);
    let why = until(&pool, &missing, "failed")["detail"].as_str().unwrap().to_owned();
    assert!(why.contains("its inputs cannot be copied: ") && why.contains("none: No such file"), "{why}");
    let outside = submit(&pool, &["--result", "../x", "--to", &to], &["true"]);
    assert!(!outside.status.success() && text(&outside.stderr).contains("does not lie in the job's own folder"));
}

#[test]
fn results_are_in_place_though_nothing_of_weal_lives_when_the_job_ends() {
    let mut pool = Pool::echo();
    pool.up();
    let folder = open_folder("results-alone");
    let to = folder.join("results").display().to_string();
    let script = "until [ -e go ]; do sleep 0.1; done; echo all > answer";
    let id = taken(&pool, &["--name", "late", "--result", "answer", "--to", &to], &["sh", "-c", script]);
    until(&pool, &id, "running");
    pool.kill_supervisor();
    for role in ["gateway", "controller", "node"] {
        pool.recorded(role).into_iter().for_each(kill);
    }
    std::fs::write(pool.state().join(format!("data/job.{id}/go")), "").unwrap();
    let answer = folder.join("results/answer");
    pool.eventually("its result", || std::fs::read_to_string(&answer).ok().filter(|text| text == "all\n"));
    pool.up();
    assert_eq!(until(&pool, &id, "done")["attempt"], 1);
}

/// No swap is needed for it, and nothing of the first node.
#[test]
fn a_job_that_saves_its_state_leaves_memory_and_goes_on_on_another_node() {
    let mut pool = two_nodes();
    pool.up();
    let script = "n=$(cat state || echo 0); echo begins at $n on $NODE; while :; do n=$((n + 1)); echo $n > new; mv new now; sleep 0.05; done";
    let options = ["--name", "saver", "--memory", "100MiB", "--checkpoint", "cp now state"];
    let id = taken(&pool, &options, &["sh", "-c", script]);
    let first = until(&pool, &id, "running")["node"].as_str().unwrap().to_owned();
    assert!(text(&logs(&pool, &id)).contains(&format!("begins at 0 on {first}")));
    let folder = pool.state().join("data").join(format!("job.{id}"));
    pool.eventually("some work", || folder.join("now").exists().then_some(()));
    assert!(pool.run(&["job", "suspend", &id]).status.success());
    let suspended = until(&pool, &id, "suspended");
    assert!(suspended["node"].is_null() && suspended["attempt"] == 2, "{suspended}");
    let saved = std::fs::read_to_string(folder.join("state")).unwrap().trim().to_owned();
    let other = if first == "n1" { "n2" } else { "n1" };
    let node = format!("[[node]]\nname = \"{other}\"\ncpu = 0.7\nmemory = \"300MiB\"\n\n");
    pool.write(&(node + &echo_app("echo", "")));
    let nodes = || pool.json(&["status"])["nodes"].as_array().map(Vec::len);
    pool.eventually("one node is left", || nodes().filter(|nodes| *nodes == 1));
    assert!(pool.run(&["job", "resume", &id]).status.success());
    let running = until(&pool, &id, "running");
    assert_eq!(running["node"], other, "{running}");
    let begins = format!("begins at {saved} on {other}");
    pool.eventually(&begins, || text(&logs(&pool, &id)).contains(&begins).then_some(()));
    let moved = format!("job {id} has moved from {first} to {other}");
    pool.eventually(&moved, || pool.json(&["events"]).to_string().contains(&moved).then_some(()));
    let fails = taken(&pool, &["--name", "fails", "--memory", "50MiB", "--checkpoint", "false"], &["sleep", "1000"]);
    until(&pool, &fails, "running");
    assert!(pool.run(&["job", "suspend", &fails]).status.success());
    pool.eventually("the reason", || pool.json(&["events"]).to_string().contains("its state could not be saved").then_some(()));
    assert_eq!(job(&pool, &fails).unwrap()["state"], "running", "it runs on");
}

#[test]
fn a_job_that_would_fill_the_disk_with_output_keeps_the_end_of_it() {
    let mut pool = Pool::echo();
    pool.up();
    // 80 MiB of lines, and one more.
    let script = "yes 'a line of a job that writes much more than anybody reads' | head -c 83886080; echo; echo the last line";
    let id = taken(&pool, &["--name", "chatter"], &["sh", "-c", script]);
    until(&pool, &id, "done");
    let kept = logs(&pool, &id);
    assert!((30 << 20..=50 << 20).contains(&kept.len()), "{} bytes", kept.len());
    assert!(kept.ends_with(b"\nthe last line\n"), "{:?}", text(&kept[kept.len() - 100..]));
}
