//! Deploying: the new version is ready before the old one stops, a broken one changes nothing, and there is a way back.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Output;

use crate::load::{Load, get};
use crate::pool::{Pool, echo_app, text};

fn with_env(value: &str) -> String {
    echo_app("echo", &format!("env = {{ ECHO_MODE = \"{value}\" }}"))
}

fn deploy(pool: &Pool) -> Output {
    pool.run(&["deploy", "--yes", "--timeout", "60"])
}

fn deployed(pool: &Pool) -> String {
    let output = deploy(pool);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Which instance answers.
fn answers(pool: &Pool) -> String {
    let (status, answer) = get(pool.listen, "echo.localhost", "/").unwrap();
    assert_eq!(status, 200, "{answer}");
    answer.rsplit("\r\n\r\n").next().unwrap().split(' ').next().unwrap().to_owned()
}

fn app<'a>(status: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    status["apps"].as_array().unwrap().iter().find(|app| app["name"] == name).unwrap()
}

#[test]
fn a_broken_program_costs_no_request_and_the_mended_one_takes_over() {
    let mut pool = Pool::unwatched(&with_env("first"));
    pool.up();
    let load = Load::start(pool.listen, "echo.localhost", "/", 4);
    load.wait_for(100);
    pool.write_unwatched(&with_env("exit"));
    let failed = deploy(&pool);
    let said = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("ended by itself with status 7") && said.contains("echo: told to exit"), "{said}");
    assert!(said.contains("the version before still serves"), "{said}");
    let status = pool.status().unwrap();
    let echo = app(&status, "echo");
    assert_eq!((echo["state"].as_str(), echo["rollout"]["phase"].as_str()), (Some("degraded"), Some("stuck")), "{echo}");
    assert!(echo["detail"].as_str().unwrap().contains("echo-1 of the version before still serves"), "{echo}");
    load.wait_for(100);
    assert_eq!(answers(&pool), "echo-1");
    pool.write_unwatched(&with_env("second"));
    let said = deployed(&pool);
    assert!(said.contains("ECHO_MODE"), "the diff: {said}");
    load.wait_for(100);
    let tally = load.finish();
    assert_eq!(tally.lost, Vec::<String>::new(), "of {} requests", tally.answered);
    assert_ne!(answers(&pool), "echo-1");
}

#[test]
fn a_needed_application_is_replaced_without_an_error_at_its_user() {
    let front = echo_app("front", "needs = [\"api\"]");
    let api = |value: &str| front.clone() + &echo_app("api", &format!("env = {{ MODE = \"{value}\" }}"));
    let mut pool = Pool::unwatched(&api("first"));
    pool.up();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut answers, mut bad) = (0, Vec::new());
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || answers < 50 {
                match get(pool.listen, "front.localhost", "/call/api/x") {
                    Ok((200, answer)) if answer.contains("\napi-") => answers += 1,
                    other => bad.push(format!("{other:?}")),
                }
            }
            (answers, bad)
        });
        pool.write_unwatched(&api("second"));
        deployed(&pool);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let (answers, bad) = asking.join().unwrap();
        assert_eq!(bad, Vec::<String>::new(), "beside {answers} good answers");
    });
    let status = pool.status().unwrap();
    assert!(app(&status, "front")["instances"][0]["id"] == "front-1", "its user is not touched: {status}");
}

#[test]
fn an_open_stream_does_not_hold_up_the_new_version_and_ends_at_its_deadline() {
    let with = |drain: &str, mode: &str| echo_app("echo", &format!("drain-timeout = \"{drain}\"\nenv = {{ MODE = \"{mode}\" }}"));
    let mut pool = Pool::unwatched(&with("1h", "first"));
    pool.up();
    let mut stream = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
    stream.write_all(b"GET /stream HTTP/1.1\r\nhost: echo.localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.starts_with("echo-"));
    assert_eq!(lines.next().unwrap(), "echo-1");
    pool.write_unwatched(&with("1h", "second"));
    deployed(&pool);
    assert_ne!(answers(&pool), "echo-1", "the new one serves");
    assert_eq!(lines.next().unwrap(), "echo-1", "the old one finishes its stream beside it");
    let status = pool.status().unwrap();
    assert_eq!(app(&status, "echo")["rollout"]["phase"], "draining", "{status}");
    // What was begun keeps its deadline; the next one has another.
    drop(lines);
    pool.eventually("the old one is gone", || app(&pool.status()?, "echo")["rollout"].is_null().then_some(()));
    let mut stream = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
    stream.write_all(b"GET /stream HTTP/1.1\r\nhost: echo.localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.starts_with("echo-"));
    let old = lines.next().unwrap();
    pool.write_unwatched(&with("500ms", "third"));
    deployed(&pool);
    assert!(lines.all(|line| line == old), "it ends when its time is up");
    pool.eventually("the old one is gone", || app(&pool.status()?, "echo")["rollout"].is_null().then_some(()));
}

#[test]
fn a_singleton_never_has_two_instances_and_its_requests_wait() {
    let with = |mode: &str| echo_app("echo", &format!("singleton = true\nenv = {{ MODE = \"{mode}\" }}"));
    let mut pool = Pool::unwatched(&with("first"));
    pool.up();
    let load = Load::start(pool.listen, "echo.localhost", "/", 2);
    load.wait_for(20);
    pool.write_unwatched(&with("second"));
    deployed(&pool);
    load.wait_for(20);
    assert_eq!(load.finish().lost, Vec::<String>::new());
    let events = text(&pool.run(&["events", "-n", "200"]).stdout);
    let at = |what: &str| events.lines().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {events}"));
    assert!(at("stop echo-1") < at("start echo-2"), "{events}");
}

#[test]
fn saving_the_file_deploys_nothing_and_the_history_leads_back() {
    let mut pool = Pool::unwatched(&with_env("first"));
    pool.up();
    let first = pool.json(&["status"])["config_generation"].as_u64().unwrap();
    pool.write_unwatched(&with_env("second"));
    let dry = pool.json(&["apply", "--dry-run"]);
    assert!(!dry["changes"].as_array().unwrap().is_empty(), "what is saved is not deployed: {dry}");
    assert_eq!(dry["changes"], pool.json(&["deploy", "--dry-run"])["changes"]);
    let unasked = pool.run(&["deploy"]);
    assert_eq!(unasked.status.code(), Some(2), "there is no terminal: {}", text(&unasked.stderr));
    assert_eq!(pool.json(&["status"])["config_generation"], first);
    deployed(&pool);
    assert!(!pool.json(&["deploy", "--yes"])["changes"].as_array().unwrap().iter().any(|change| change.as_str().unwrap() != ""));

    let history = pool.json(&["history"]);
    let versions = history.as_array().unwrap();
    assert_eq!((&versions[0]["generation"], &versions[0]["origin"]), (&(first + 1).into(), &"weal deploy".into()), "{history}");
    assert_eq!(versions[0]["who"]["uid"], rustix::process::getuid().as_raw(), "{history}");
    let back = pool.run(&["rollback", "--yes"]);
    assert!(back.status.success(), "{}{}", text(&back.stdout), text(&back.stderr));
    assert!(text(&back.stderr).contains("is not changed by this"), "{}", text(&back.stderr));
    let shown = text(&pool.run(&["config", "show"]).stdout);
    assert!(shown.contains("first") && !shown.contains("second"), "{shown}");
    assert!(text(&pool.run(&["history"]).stdout).contains(&format!("rollback to {first}")));
    let none = pool.run(&["rollback", "--yes", "4711"]);
    assert!(text(&none.stderr).contains("there is no version 4711"), "{}", text(&none.stderr));
}

#[test]
fn the_config_of_a_holder_of_a_token_is_not_taken_for_the_owners_word() {
    let mut pool = Pool::unwatched(&echo_app("echo", ""));
    pool.up();
    let own = std::fs::read_to_string(pool.config()).unwrap();
    let secret = text(&pool.run(&["token", "create", "ci"]).stdout).trim().to_owned();
    let put = |config: &str| {
        let path = pool.config();
        let order = serde_json::json!({ "text": config, "path": path, "dry_run": false, "refused": "", "origin": "" });
        let (status, answer) = crate::load::put_json(pool.api, "/v1/config", &secret, &order.to_string()).unwrap();
        assert_eq!(status, 200, "{answer}");
    };
    // Nobody has to look at what never starts, but root's name is in it.
    let rooted = echo_app("pwn", "user = \"root\"\nsandbox = \"off\"").replace("min = 1", "min = 0");
    let told = "[[notify]]\nrun = [\"/bin/sh\", \"-c\", \"exit 0\"]\n";
    put(&format!("{own}\n{rooted}\n{told}"));
    pool.eventually("the supervisor to say what it does not do", || {
        let said = text(&pool.run(&["events"]).stdout);
        said.contains("except its certificates, [[notify]], logs-to, metrics-to and traces-to").then_some(())
    });
    put(&own);
    let refused = pool.run(&["rollback", "--yes"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("nobody may have checked its users"), "{said}");
    let permits = std::fs::read_to_string(pool.state().join("permits.json")).unwrap_or_default();
    assert!(!permits.contains("pwn"), "{permits}");
    let back = pool.run(&["rollback", "--yes", "1"]);
    assert!(back.status.success(), "{}{}", text(&back.stdout), text(&back.stderr));
}

#[test]
fn a_rollback_to_a_version_whose_program_is_gone_says_so_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("release-1");
    crate::pool::copy_program(&crate::pool::echo_program(), &program);
    let copy = crate::pool::open_to_all(program.clone());
    let of = |program: &std::path::Path| {
        echo_app("echo", "").replace(crate::pool::echo_program().to_str().unwrap(), program.to_str().unwrap())
    };
    let mut pool = Pool::unwatched(&of(&copy));
    pool.up();
    pool.write_unwatched(&echo_app("echo", ""));
    deployed(&pool);
    std::fs::remove_file(&copy).unwrap();
    let generation = pool.json(&["status"])["config_generation"].clone();
    let refused = pool.run(&["rollback", "--yes"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("files are gone: the program of echo"), "{said}");
    assert_eq!(pool.json(&["status"])["config_generation"], generation);
}

#[test]
fn a_deploy_during_a_deploy_takes_its_place_and_says_so() {
    let mut pool = Pool::unwatched(&with_env("first"));
    pool.up();
    pool.write_unwatched(&with_env("sick"));
    let mut first = pool.command(&["deploy", "--yes"]);
    let first = first.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    pool.eventually("the first is under way", || {
        let status = pool.status()?;
        (app(&status, "echo")["rollout"]["phase"] == "starting" && status["config_generation"] == 2).then_some(())
    });
    pool.write_unwatched(&with_env("third"));
    let second = deploy(&pool);
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("is still being brought out (echo)"), "{}", text(&second.stderr));
    let first = first.wait_with_output().unwrap();
    assert!(!first.status.success() && text(&first.stderr).contains("took the place of version 2"), "{}", text(&first.stderr));
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
}

#[test]
fn a_deploy_opens_the_ports_that_its_config_names() {
    let mut pool = Pool::unwatched(&echo_app("echo", ""));
    pool.up();
    let [port] = crate::pool::free_ports();
    let routed = echo_app("echo", "").replace("routes = [", &format!("routes = [{{ tcp = {port} }}, "));
    pool.write_unwatched(&routed);
    deployed(&pool);
    let asked = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20)))?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: echo\r\n\r\n")?;
        BufReader::new(stream).lines().next().unwrap_or_else(|| Err(std::io::ErrorKind::UnexpectedEof.into()))
    };
    pool.eventually("the port answers", || asked().ok().filter(|line| line.contains("200 OK")));
}

/// A task that runs `script`, and an application that waits for it.
fn with_task(script: &str) -> String {
    format!("[app.migrate]\nkind = \"task\"\nrun = [\"/bin/sh\", \"-c\", \"{script}\"]\nmemory = \"32MiB\"\n\n")
        + &echo_app("echo", &format!("needs = {{ migrate = \"done\" }}\nenv = {{ FOR = \"{script}\" }}"))
}

#[test]
fn a_task_runs_once_per_deploy_before_what_needs_it_and_holds_it_up_when_it_fails() {
    let mut pool = Pool::unwatched(&with_task("echo ran; sleep 1"));
    pool.start();
    pool.eventually("the application serves", || pool.instance_of("echo"));
    let status = pool.status().unwrap();
    assert_eq!(
        (app(&status, "migrate")["state"].as_str(), app(&status, "echo")["state"].as_str()),
        (Some("done"), Some("ready"))
    );
    assert_eq!(app(&status, "migrate")["instances"][0]["restarts"], 0);
    pool.write_unwatched(&with_task("echo broken >&2; exit 9"));
    let failed = deploy(&pool);
    let said = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("migrate") && said.contains("status 9") && said.contains("broken"), "{said}");
    assert_eq!(answers(&pool), "echo-1", "the version before serves");
    pool.write_unwatched(&with_task("echo mended"));
    deployed(&pool);
    assert_ne!(answers(&pool), "echo-1");
    assert!(text(&pool.run(&["logs", "migrate"]).stdout).contains("mended"));
}

#[test]
fn a_release_step_has_the_folder_of_its_application() {
    let step = "release = [\"/bin/sh\", \"-c\", \"echo $MODE > $DATA/release\"]\nenv = { MODE = \"first\" }";
    let mut pool = Pool::unwatched(&echo_app("echo", step));
    pool.start();
    pool.eventually("the application serves", || pool.instance_of("echo"));
    let output = pool.run(&["exec", "echo", "--", "/bin/sh", "-c", "cat $DATA/release"]);
    assert_eq!(text(&output.stdout), "first\n", "{}", text(&output.stderr));
}
