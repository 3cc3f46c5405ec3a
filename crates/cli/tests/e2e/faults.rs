//! `kill -9` of each role under load, and clients that only sit there.

use std::net::TcpStream;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::load::{Load, get};
use crate::pool::{BACK_WITHIN, Pool, echo_app, is_alive, text};

#[test]
fn no_request_is_lost_when_the_controller_or_the_agent_dies() {
    let mut pool = Pool::echo();
    pool.up();
    let instances = pool.instance_pids();
    let load = Load::start(pool.listen, "echo.localhost", "/", 8);
    load.wait_for(500);
    for role in ["controller", "node"] {
        pool.kill_role(role);
        load.wait_for(500);
        pool.wait_ready();
        load.wait_for(500);
    }
    let tally = load.finish();
    assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
    assert_eq!(pool.instance_pids(), instances, "the same processes still serve");
}

#[test]
fn only_requests_in_flight_are_lost_when_the_gateway_dies_and_it_is_back_soon() {
    const CONNECTIONS: usize = 8;
    let mut pool = Pool::echo();
    pool.up();
    let load = Load::start(pool.listen, "echo.localhost", "/", CONNECTIONS);
    load.wait_for(500);
    pool.kill_role("gateway");
    load.wait_for(1000);
    let tally = load.finish();
    assert!(tally.lost.len() <= CONNECTIONS, "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
    assert!(tally.longest_gap < *BACK_WITHIN, "{tally:?}");
}

#[test]
fn every_role_comes_before_instances_also_when_it_was_started_again() {
    let mut pool = Pool::echo();
    pool.up();
    let comes_first = |pid: i64| {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        groups.lines().any(|line| line.ends_with("/.roles"))
    };
    if !comes_first(pool.pid("node").into()) {
        return weal_testing::skip("there are no control groups here");
    }
    let all_come_first =
        |pool: &Pool| ["node", "gateway", "controller"].into_iter().all(|role| comes_first(pool.pid(role).into()));
    pool.eventually("all before instances", || all_come_first(&pool).then_some(()));
    for role in ["gateway", "controller", "node"] {
        pool.kill_role(role);
        pool.eventually(&format!("all before instances after the {role}'s death"), || all_come_first(&pool).then_some(()));
    }
    pool.wait_ready();
    assert!(pool.instance_pids().into_iter().all(|pid| !comes_first(pid)));
}

#[test]
fn the_api_is_back_soon_after_the_controller_dies() {
    let mut pool = Pool::echo();
    pool.up();
    let before = pool.json(&["status"])["config_generation"].clone();
    pool.kill_role("controller");
    let died = Instant::now();
    let status = pool.eventually("a status", || pool.status());
    assert!(died.elapsed() < *BACK_WITHIN, "{:?}", died.elapsed());
    assert_eq!(status["config_generation"], before, "the desired state survived");
}

#[test]
fn an_instance_that_dies_is_started_again() {
    let mut pool = Pool::echo();
    pool.up();
    let old = pool.instance_pids();
    crate::pool::kill(i32::try_from(old[0]).unwrap());
    pool.eventually("another process", || {
        pool.instance_pids().iter().any(|pid| !old.contains(pid) && is_alive(*pid)).then_some(())
    });
    pool.wait_ready();
    pool.eventually("an answer", || (get(pool.listen, "echo.localhost", "/").ok()?.0 == 200).then_some(()));
}

#[test]
fn ten_thousand_idle_connections_do_not_keep_others_out() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    // Where the system allows fewer, as many as it allows, with some left for the test itself.
    let count = usize::try_from(most.saturating_sub(500)).unwrap().min(10_000);
    println!("{count} idle connections");
    let mut pool = Pool::echo();
    pool.up();
    let mut idle = Vec::with_capacity(count);
    for _ in 0..count {
        idle.push(TcpStream::connect(("127.0.0.1", pool.listen)).unwrap());
    }
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
    drop(idle);
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
}

#[test]
fn with_a_stopped_node_agent_the_pool_is_shown_takes_a_config_and_says_why_it_takes_no_sleep_order() {
    let mut pool = Pool::echo();
    pool.up();
    pool.pause("node");
    pool.eventually("the node is shown as away", || (pool.status()?["nodes"][0]["up"] == false).then_some(()));
    let text_before = std::fs::read_to_string(pool.config()).unwrap();
    pool.write_text(&(text_before + "\n# another config\n"));
    pool.eventually("the config is taken", || (pool.status()?["config_generation"] == 2).then_some(()));
    // A hanging node agent is replaced after ten seconds, which a slow machine may have taken until here. Then the next one hangs.
    let refused = pool.eventually("a refused order", || {
        pool.pause("node");
        (pool.status()?["nodes"][0]["up"] == false).then_some(())?;
        let order = pool.run(&["sleep", "echo"]);
        if order.status.success() {
            pool.run(&["wake", "echo"]);
            return None;
        }
        Some(order)
    });
    let said = text(&refused.stderr);
    assert!(said.contains("the node agent does not answer"), "{said}");
    pool.resume("node");
    pool.eventually("the node is back", || (pool.status()?["nodes"][0]["up"] == true).then_some(()));
    assert!(pool.run(&["down"]).status.success());
    pool.assert_gone();
}

#[test]
fn a_damaged_store_costs_the_past_and_not_the_pool() {
    use std::os::unix::fs::FileExt;
    let mut pool = Pool::echo();
    pool.up();
    assert!(pool.run(&["down"]).status.success());
    let store = pool.state().join("controller/store.db");
    let file = std::fs::OpenOptions::new().write(true).open(&store).unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    assert!(pages > 2, "it has pages to damage");
    for page in 1..pages {
        file.write_all_at(&[0x5a; 4096], page * 4096).unwrap();
    }
    pool.up();
    let events = text(&pool.run(&["events"]).stdout);
    assert!(events.contains("the store is damaged"), "{events}");
    assert!(store.with_extension("db.broken").exists());
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200, "the config file is in force again");
}

/// The client learns that waiting is in vain, and nothing about the machine; the operator learns why.
#[test]
fn a_request_for_an_application_that_cannot_start_is_refused_at_once_with_the_reason() {
    let mut pool = Pool::new(
        "[app.missing]\nrun = [\"./no-such-program\"]\nroutes = [{ host = \"missing.localhost\" }]\n\
         [app.ends]\nrun = [\"sh\", \"-c\", \"exit 3\"]\nroutes = [{ host = \"ends.localhost\" }]\n",
    );
    pool.start();
    for (app, reason) in
        [("missing", "the application cannot be started"), ("ends", "the application ends each time it is started")]
    {
        let answer = pool.eventually("it is refused", || {
            let (status, answer) = get(pool.listen, &format!("{app}.localhost"), "/").ok()?;
            (status == 503).then_some(answer)
        });
        assert!(answer.contains(reason) && answer.contains("x-weal-reason: unavailable"), "{answer}");
        assert!(!answer.contains("no-such-program"), "{answer}");
    }
    let detail = |app: &str| {
        let status = pool.status()?;
        let apps = status["apps"].as_array()?.iter().find(|entry| entry["name"] == app)?;
        Some(apps["detail"].as_str()?.to_owned())
    };
    assert!(detail("missing").unwrap().contains("no-such-program"), "{:?}", detail("missing"));
    pool.write("[app.missing]\nrun = [\"sh\", \"-c\", \"exit 3\"]\nroutes = [{ host = \"missing.localhost\" }]\n");
    assert_eq!(get(pool.listen, "missing.localhost", "/").unwrap().0, 503);
}

/// What such a program leaves behind by the thousand must not outlive the pool.
#[test]
fn two_thousand_children_that_ignore_sigterm_are_gone_after_down() {
    const CHILDREN: usize = 2000;
    let echo = crate::pool::echo_program();
    // A signal that is ignored stays ignored in children.
    let forks = format!("trap '' TERM; for n in $(seq {CHILDREN}); do sleep 1000 & done; exec {} --port $PORT", echo.display());
    let run = format!("run = [\"/bin/sh\", \"-c\", \"{forks}\"]\nsandbox = {{ processes = 3000 }}\nstop-timeout = \"1s\"");
    let plain = format!("run = [\"{}\", \"--port\", \"$PORT\"]", echo.display());
    let mut pool = Pool::new(&echo_app("echo", "").replace(&plain, &run).replace("memory = \"64MiB\"", "memory = \"1GiB\""));
    pool.up();
    let state = pool.state().display().to_string();
    let children = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let environments = entries.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
        environments.filter(|variables| String::from_utf8_lossy(variables).contains(&state)).count()
    };
    assert!(children() > CHILDREN, "{}", children());
    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    pool.assert_gone();
    assert_eq!(children(), 0);
}
