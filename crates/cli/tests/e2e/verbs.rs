//! Orders about one application: restart, stop, start, scale, exec.

use std::io::Write;
use std::process::Stdio;

use crate::load::{Load, get};
use crate::pool::{Pool, echo_app, echo_program, text};

fn done(pool: &Pool, args: &[&str]) -> String {
    let output = pool.run(args);
    assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_restart_replaces_the_instance_without_losing_a_request() {
    let mut pool = Pool::unwatched(&echo_app("echo", ""));
    pool.up();
    let before = pool.instance_pids();
    let load = Load::start(pool.listen, "echo.localhost", "/", 4);
    load.wait_for(50);
    done(&pool, &["restart", "echo"]);
    load.wait_for(50);
    assert_eq!(load.finish().lost, Vec::<String>::new());
    pool.eventually("only the new one is left", || (pool.instance_pids().len() == 1).then_some(()));
    assert!(!before.contains(&pool.instance_pids()[0]));
}

#[test]
fn a_stopped_application_says_so_and_stays_stopped_until_it_is_started() {
    let mut pool = Pool::unwatched(&(echo_app("echo", "") + &echo_app("other", "")));
    pool.up();
    done(&pool, &["stop", "echo"]);
    assert!(pool.instance_of("echo").is_none());
    let (status, answer) = get(pool.listen, "echo.localhost", "/").unwrap();
    assert!(status == 503 && answer.contains("stopped by an order"), "{answer}");
    assert_eq!(get(pool.listen, "other.localhost", "/").unwrap().0, 200);
    let refused = pool.run(&["restart", "echo"]);
    assert!(text(&refused.stderr).contains("weal start echo"), "{}", text(&refused.stderr));
    pool.kill_role("controller");
    pool.eventually("the controller is back", || pool.status());
    let shown = text(&pool.run(&["status"]).stdout);
    assert!(shown.contains("stopped by an order"), "{shown}");
    assert!(pool.instance_of("echo").is_none(), "it outlives the controller");
    done(&pool, &["start", "echo"]);
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
}

#[test]
fn an_application_is_scaled_up_and_back_to_what_the_config_says() {
    let mut pool = Pool::unwatched(&echo_app("echo", ""));
    pool.up();
    done(&pool, &["scale", "echo", "3"]);
    let ready = || {
        pool.status().map_or(0, |status| {
            status["apps"][0]["instances"].as_array().unwrap().iter().filter(|one| one["state"] == "ready").count()
        })
    };
    assert_eq!(ready(), 3);
    let refused = pool.run(&["scale", "echo", "9999"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("the pool has memory for") && said.contains("64MiB"), "{said}");
    done(&pool, &["scale", "echo", "config"]);
    pool.eventually("one is awake", || (ready() == 1).then_some(()));
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
}

#[test]
fn a_command_runs_beside_an_instance_with_its_environment() {
    let mut pool = Pool::unwatched(&echo_app("echo", "env = { COLOUR = \"red\" }"));
    pool.up();
    let script = "echo $INSTANCE $COLOUR; cat; touch /etc/weal-was-here 2>/dev/null && echo free; exit 5";
    let mut command = pool.command(&["exec", "echo", "--", "/bin/sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from outside\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "echo-1 red\nfrom outside\n", "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(5));
    let missing = pool.run(&["exec", "echo", "--", "/no/such/program"]);
    assert!(text(&missing.stderr).contains("cannot run /no/such/program beside echo-1"), "{}", text(&missing.stderr));
    let noted = |audit: &str| audit.matches("POST /v1/apps/echo/exec").count();
    let audit = pool.eventually("the audit log has both", || {
        let audit = text(&pool.run(&["audit"]).stdout);
        (noted(&audit) == 2).then_some(audit)
    });
    assert!(!audit.contains("COLOUR") && !audit.contains("program"), "nothing of a command is written down: {audit}");
}

#[test]
fn each_order_says_what_is_wrong_with_a_name_and_that_nothing_runs() {
    let mut pool = Pool::unwatched(&echo_app("echo", ""));
    let orders: [&[&str]; 11] = [
        &["restart", "shop"],
        &["stop", "shop"],
        &["start", "shop"],
        &["scale", "shop", "2"],
        &["exec", "shop", "--", "true"],
        &["reload", "shop"],
        &["sleep", "shop"],
        &["wake", "shop"],
        &["keep-awake", "shop"],
        &["why", "shop"],
        &["instances", "shop"],
    ];
    for order in orders {
        let output = pool.run(order);
        assert_eq!(output.status.code(), Some(4), "{order:?}: {}", text(&output.stderr));
    }
    for order in [&["deploy", "--yes"][..], &["rollback", "--yes"], &["history"]] {
        assert_eq!(pool.run(order).status.code(), Some(4), "{order:?}");
    }
    pool.up();
    for order in orders {
        let output = pool.run(order);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{order:?}: {said}");
        assert!(said.contains("there is no application `shop`: there are echo"), "{order:?}: {said}");
    }
    for order in [["job", "show", "9"], ["job", "cancel", "9"], ["job", "logs", "9"]] {
        let output = pool.run(&order);
        assert_eq!(output.status.code(), Some(1), "{order:?}");
        assert!(
            text(&output.stderr).contains("there is no job `9`: weal jobs lists them"),
            "{order:?}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_reload_reaches_the_program_of_each_instance_and_starts_nothing_anew() {
    let script = "trap 'echo it reads its config' HUP; \"$0\" --port \"$1\" & while :; do wait; [ $? -gt 128 ] || exit; done";
    let program = echo_program();
    let of = |reload: &str| {
        echo_app("echo", reload).replace(
            &format!("run = [\"{}\", \"--port\", \"$PORT\"]", program.display()),
            &format!("run = [\"/bin/sh\", \"-c\", {script:?}, \"{}\", \"$PORT\"]", program.display()),
        )
    };
    let mut pool = Pool::unwatched(&of(""));
    pool.up();
    let pids = pool.instance_pids();
    let refused = pool.run(&["reload", "echo"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("echo has no `reload-signal`"), "{said}");
    pool.write_unwatched(&of("reload-signal = \"SIGHUP\""));
    let deployed = done(&pool, &["deploy", "--yes"]);
    assert_eq!(pool.instance_pids(), pids, "the key is no reason to start it anew: {deployed}");
    assert_eq!(done(&pool, &["reload", "echo"]), "echo: SIGHUP sent to echo-1\n");
    pool.eventually("the program has seen it", || {
        text(&pool.run(&["logs", "echo"]).stdout).contains("it reads its config").then_some(())
    });
    assert_eq!(pool.instance_pids(), pids);
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
    let events = text(&pool.run(&["events"]).stdout);
    assert!(events.contains("the instances of echo are told to read their config anew, by an order"), "{events}");
    assert!(text(&pool.run(&["audit"]).stdout).contains("POST /v1/apps/echo/reload"));
    let other = pool.run(&["reload", "echo", "--instance", "echo-9"]);
    assert!(text(&other.stderr).contains("echo has no instance echo-9 that runs"), "{}", text(&other.stderr));
}
