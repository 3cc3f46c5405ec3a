//! Roles that die together, hang, or are left by a supervisor that had no time to write them down.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::load::{Load, get};
use crate::pool::{BACK_WITHIN, Pool, echo_app, is_alive, kill, slowness, text};

const ROLES: [&str; 3] = ["gateway", "controller", "node"];

#[test]
fn whatever_dies_is_back_within_two_seconds_alone_and_in_pairs() {
    let mut pool = Pool::echo();
    pool.up();
    let sets = [&ROLES[..1], &ROLES[1..2], &ROLES[2..], &ROLES[..2], &ROLES[1..], &["gateway", "node"]];
    for set in sets {
        let old: Vec<i32> = set.iter().map(|role| pool.pid(role)).collect();
        old.iter().for_each(|pid| kill(*pid));
        let died = Instant::now();
        pool.eventually("an answer", || (get(pool.listen, "echo.localhost", "/").ok()?.0 == 200).then_some(()));
        pool.eventually("a status", || pool.status());
        for (role, old) in set.iter().zip(&old) {
            pool.eventually(&format!("another {role}"), || (pool.pid(role) != *old).then_some(()));
        }
        assert!(died.elapsed() < *BACK_WITHIN, "{set:?}: {:?}", died.elapsed());
        pool.wait_ready();
        // One that lives shorter is taken for one that cannot come up, and waits longer.
        std::thread::sleep(Duration::from_secs(5));
    }
    for role in ROLES {
        assert_eq!(pool.role_pids(role), [pool.pid(role)], "one {role}");
    }
}

#[test]
fn a_role_that_hangs_is_replaced_and_everybody_is_told() {
    let mut pool = Pool::echo();
    pool.up();
    for role in ROLES {
        let old = pool.pid(role);
        pool.pause(role);
        pool.eventually(&format!("another {role}"), || (pool.pid(role) != old).then_some(()));
        assert!(!is_alive(old.into()));
        pool.wait_ready();
        pool.eventually("an answer", || (get(pool.listen, "echo.localhost", "/").ok()?.0 == 200).then_some(()));
        let said = format!("the {role} answered nothing for 10 s and is replaced");
        pool.eventually("an event", || text(&pool.run(&["events"]).stdout).contains(&said).then_some(()));
        assert!(pool.printed().contains(&said), "{}", pool.printed());
    }
}

#[test]
fn down_is_quick_also_when_every_role_was_stopped() {
    let mut pool = Pool::echo();
    pool.up();
    ROLES.into_iter().for_each(|role| pool.pause(role));
    let began = Instant::now();
    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert!(began.elapsed() < Duration::from_secs(10) * slowness(), "{:?}", began.elapsed());
    pool.assert_gone();
}

#[test]
fn a_state_folder_that_is_removed_is_made_anew_and_no_instance_is_lost() {
    let mut pool = Pool::echo();
    pool.up();
    let instances = pool.instance_pids();
    pool.remove_state();
    pool.eventually("a status", || pool.status().filter(|status| status["apps"][0]["state"] == "ready"));
    assert_eq!(pool.instance_pids(), instances, "the same processes still serve: {}", pool.printed());
    pool.eventually("the record", || pool.recorded("gateway"));
    pool.kill_role("gateway");
    pool.eventually("the next gateway serves", || (get(pool.listen, "echo.localhost", "/").ok()?.0 == 200).then_some(()));
    let second = pool.run(&["up"]);
    assert!(text(&second.stderr).contains("already runs"), "{}", text(&second.stderr));
    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    pool.assert_gone();
}

/// The supervisor looks at its folder by itself. Without that its watchdog would find the roles stuck, since nobody reaches them any more.
#[test]
fn a_removed_state_folder_is_noticed_before_the_watchdog_misses_the_roles_in_it() {
    const NOTICE: &str = "something of the state directory was removed and is made anew";
    let mut pool = Pool::echo();
    pool.up();
    let load = Load::start(pool.listen, "echo.localhost", "/", 4);
    let notices = |printed: &str| printed.matches(NOTICE).count();
    // Each has its time, so that those of the first removal are no others by the second.
    let events = || -> Vec<Value> {
        let told: Value = serde_json::from_slice(&pool.run(&["events", "-o", "json"]).stdout).unwrap_or_default();
        told.as_array().into_iter().flatten().filter(|event| event.to_string().contains(NOTICE)).cloned().collect()
    };
    for _ in 0..2 {
        load.wait_for(100);
        // Files go one by one: it may be noticed when a part is gone, and again.
        let (before, told) = (notices(&pool.printed()), events());
        pool.remove_state();
        pool.eventually("the supervisor notices it", || (notices(&pool.printed()) > before).then_some(()));
        pool.eventually("an event of this removal", || events().iter().any(|event| !told.contains(event)).then_some(()));
        for role in ROLES {
            let is_whole = || (pool.role_pids(role) == [pool.recorded(role)?] && pool.socket(role).exists()).then_some(());
            pool.eventually("the record names the one process of each role, and its socket is there", is_whole);
        }
        pool.wait_ready();
    }
    load.wait_for(100);
    let (printed, tally) = (pool.printed(), load.finish());
    let before_the_watchdog = printed.split("answered nothing for").next().unwrap_or_default();
    assert!(notices(before_the_watchdog) > 0, "{printed}");
    assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
}

/// The supervisor dies at any moment of its start. Whatever it had started by then is found.
#[test]
fn what_a_supervisor_started_just_before_its_death_is_found_by_down_and_by_the_next_up() {
    let mut pool = Pool::echo();
    for round in 0..12_u64 {
        pool.start();
        pool.eventually("a role", || (!pool.role_pids("node").is_empty()).then_some(()));
        std::thread::sleep(Duration::from_millis(round * 3 / 2));
        pool.kill_started();
        if round % 2 == 0 {
            let down = pool.run(&["down"]);
            assert!(down.status.success(), "round {round}: {}", text(&down.stderr));
            pool.assert_gone();
        } else {
            pool.up();
            for role in ROLES {
                pool.eventually("one of each", || (pool.role_pids(role) == [pool.recorded(role)?]).then_some(()));
            }
            assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
            assert!(pool.run(&["down"]).status.success());
            assert_eq!(pool.wait_end(), Some(0));
            pool.assert_gone();
        }
    }
}

#[test]
fn up_in_the_background_tells_the_process_that_runs_the_pool() {
    let mut pool = Pool::echo();
    pool.up();
    let load = Load::start(pool.listen, "echo.localhost", "/", 4);
    load.wait_for(100);
    let gateway = pool.pid("gateway");
    // Its record is gone with it, as if it had had no time to write one.
    pool.kill_started();
    std::fs::remove_file(pool.state().join("supervisor.json")).unwrap();
    let up = pool.run(&["up", "-d"]);
    assert!(up.status.success(), "{}", text(&up.stderr));
    let said = text(&up.stdout);
    let pid = pool.pid("supervisor");
    assert!(is_alive(pid.into()) && said.contains(&format!("as pid {pid};")), "{said}");
    assert_eq!(pool.pid("gateway"), gateway, "the same gateway serves");
    load.wait_for(100);
    let tally = load.finish();
    assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
    assert!(pool.run(&["down"]).status.success());
    pool.assert_gone();
}

/// An old controller, which nobody looks after, must not answer for a supervisor that did not come up.
#[test]
fn up_in_the_background_fails_when_its_own_supervisor_ends() {
    let mut pool = Pool::echo();
    pool.up();
    pool.kill_started();
    pool.role_pids("gateway").into_iter().for_each(kill);
    let taken = std::net::TcpListener::bind(("127.0.0.1", pool.listen));
    let Ok(taken) = taken else { return weal_testing::skip("the port is still held") };
    let up = pool.run(&["up", "-d"]);
    assert!(!up.status.success(), "{}", text(&up.stdout));
    assert!(text(&up.stderr).contains("is in use"), "{}", text(&up.stderr));
    drop(taken);
    assert!(pool.run(&["down"]).status.success());
    pool.assert_gone();
}

/// A gateway whose socket is gone gets another one in its place, which takes over the clients' sockets.
#[test]
fn no_request_is_cut_while_the_gateway_is_replaced() {
    let mut pool = Pool::echo();
    pool.up();
    let kept = Load::start(pool.listen, "echo.localhost", "/", 8);
    let anew = Load::start_anew(pool.listen, "echo.localhost", "/", 8);
    for _ in 0..4 {
        let old = pool.pid("gateway");
        std::fs::remove_file(pool.socket("gateway")).unwrap();
        pool.eventually("another gateway", || (pool.recorded("gateway")? != old).then_some(()));
        kept.wait_for(200);
        anew.wait_for(200);
        pool.eventually("the old one has ended", || (pool.role_pids("gateway").len() == 1).then_some(()));
    }
    for load in [kept, anew] {
        let tally = load.finish();
        assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
    }
}

/// The seats by which the gateway works; `None` while it knows of none.
fn seats(pool: &Pool) -> Option<u64> {
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(pool.state().join("gateway/gateway.json")).ok()?).ok()?;
    kept["config"]["clusters"][0]["seats"].as_u64()
}

/// Both have more requests than seats: those that the first one has let go end while the second one begins.
#[test]
fn a_gateway_and_its_successor_have_no_more_requests_under_way_than_the_application_has_seats() {
    let mut pool = Pool::new(&echo_app("echo", ""));
    pool.up();
    let load = Load::start(pool.listen, "echo.localhost", "/", 2);
    let planned = pool.eventually("seats", || seats(&pool));
    assert!(load.finish().lost.is_empty());
    // Nobody plans anew meanwhile.
    pool.pause("controller");
    let before = seats(&pool).unwrap_or(planned);
    let crowd = |count| Load::start(pool.listen, "echo.localhost", "/slow/400", count);
    let first = crowd(2 * before as usize + 2);
    first.wait_for(before);
    let old = pool.pid("gateway");
    std::fs::remove_file(pool.socket("gateway")).unwrap();
    pool.eventually("another gateway", || (pool.recorded("gateway")? != old).then_some(()));
    let second = crowd(2 * before as usize + 2);
    second.wait_for(2 * before);
    pool.eventually("the old one has ended", || (pool.role_pids("gateway").len() == 1).then_some(()));
    for load in [first, second] {
        let tally = load.finish();
        assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
    }
    let answer = get(pool.listen, "echo.localhost", "/most").unwrap().1;
    let most: u64 = answer.lines().last().and_then(|body| body.parse().ok()).unwrap_or_else(|| panic!("{answer}"));
    // Where this took so long that the controller was replaced, the next one may have planned more.
    let after = seats(&pool).unwrap();
    pool.resume("controller");
    assert!(most >= before && most <= before.max(after), "{most} under way, {before} and then {after} seats");
}

#[test]
fn requests_wait_while_the_state_folder_is_made_anew() {
    let mut pool = Pool::echo();
    pool.up();
    let kept = Load::start(pool.listen, "echo.localhost", "/", 4);
    let anew = Load::start_anew(pool.listen, "echo.localhost", "/", 4);
    for _ in 0..2 {
        kept.wait_for(100);
        let old = pool.pid("gateway");
        pool.remove_state();
        pool.eventually("another gateway", || (pool.recorded("gateway")? != old).then_some(()));
        anew.wait_for(100);
        pool.wait_ready();
    }
    for load in [kept, anew] {
        let tally = load.finish();
        assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
    }
}
