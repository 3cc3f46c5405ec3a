//! The ordinary day: up, look, change, down.

use rustix::process::Signal;

use crate::load::get;
use crate::pool::{Pool, echo_app, text};

#[test]
fn a_pool_comes_up_serves_answers_questions_and_goes_down_without_a_trace() {
    let mut pool = Pool::echo();
    pool.up();
    let (status, answer) = get(pool.listen, "echo.localhost", "/").unwrap();
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("pid "), "{answer}");

    let status = pool.json(&["status"]);
    assert_eq!(status["apps"][0]["name"], "echo");
    assert_eq!(status["apps"][0]["instances"][0]["state"], "ready");
    assert_eq!(pool.json(&["why", "echo"])["app"], "echo");
    assert!(!pool.json(&["events"]).as_array().unwrap().is_empty());
    assert_eq!(pool.json(&["config", "show"])["listen"], format!("127.0.0.1:{}", pool.listen));

    for args in [&["status"][..], &["why", "echo"], &["events"], &["logs", "echo"], &["config", "show", "--effective"]] {
        let output = pool.run(args);
        assert!(output.status.success(), "weal {args:?}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("echo"), "weal {args:?}: {}", text(&output.stdout));
    }
    assert!(text(&pool.run(&["logs", "echo"]).stdout).contains("echo: listening on"), "the application's own words");
    assert!(pool.run(&["logs", "controller"]).status.success());

    let process = std::fs::read_to_string(format!("/proc/{}/status", pool.instance_pids()[0])).unwrap();
    assert!(process.contains("SigBlk:\t0000000000000000"), "an instance gets its SIGTERM: {process}");

    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert_eq!(pool.wait_end(), Some(0), "{}", pool.printed());
    pool.assert_gone();
    assert_eq!(pool.run(&["status"]).status.code(), Some(4));
    assert_eq!(pool.run(&["down"]).status.code(), Some(4));
}

#[test]
fn an_interrupt_ends_everything_in_order() {
    let mut pool = Pool::new(&(echo_app("db", "") + &echo_app("shop", "needs = [\"db\"]")));
    pool.up();
    pool.signal_supervisor(Signal::INT);
    assert_eq!(pool.wait_end(), Some(0), "{}", pool.printed());
    pool.assert_gone();
    let printed = pool.printed();
    let stopped = |app: &str| printed.lines().position(|line| line.contains(app) && line.contains("stopped in"));
    let (shop, db) = (stopped("shop-").expect("shop stopped"), stopped("db-").expect("db stopped"));
    assert!(shop < db, "who needs is stopped before what is needed:\n{printed}");
}

#[test]
fn in_the_background_it_returns_when_everything_is_ready() {
    let pool = Pool::echo();
    let up = pool.run(&["up", "-d"]);
    assert!(up.status.success(), "{}{}", text(&up.stdout), text(&up.stderr));
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
    let again = pool.run(&["up", "-d"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("already runs as pid"), "{}", text(&again.stderr));
    assert!(pool.run(&["down"]).status.success());
    pool.assert_gone();
}

#[test]
fn in_the_background_an_application_that_fails_is_named_with_its_reason() {
    let app = echo_app("bad", "env = { ECHO_MODE = \"exit\" }\nrestart = \"never\"");
    let pool = Pool::new(&app);
    let up = pool.run(&["up", "-d", "--timeout", "60"]);
    assert_eq!(up.status.code(), Some(1), "{}{}", text(&up.stdout), text(&up.stderr));
    assert!(text(&up.stderr).contains("bad"), "{}", text(&up.stderr));
    assert!(pool.run(&["down"]).status.success());
    pool.assert_gone();
}

#[test]
fn a_port_in_use_is_named_with_its_holder_and_nothing_is_left_behind() {
    let pool = Pool::echo();
    let held = std::net::TcpListener::bind(("127.0.0.1", pool.listen)).unwrap();
    for args in [&["up"][..], &["up", "-d"]] {
        let up = pool.run(args);
        assert_eq!(up.status.code(), Some(1));
        let said = text(&up.stderr);
        assert!(said.contains(&format!("port {} is in use", pool.listen)), "{said}");
        assert!(said.contains(&format!("(pid {})", std::process::id())), "{said}");
        assert!(said.contains("change `listen ="), "{said}");
        pool.assert_gone();
    }
    drop(held);
}

#[test]
fn a_config_with_a_mistake_starts_nothing() {
    let pool = Pool::new("[app.x]\nrnu = [\"./x\"]\n");
    let up = pool.run(&["up"]);
    assert_eq!(up.status.code(), Some(3));
    assert!(text(&up.stderr).contains("did you mean `run`"), "{}", text(&up.stderr));
    assert!(!pool.state().exists());
}
