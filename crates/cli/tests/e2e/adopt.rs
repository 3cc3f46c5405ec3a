//! Nothing is lost with weal's own death: the next `weal up` takes everything over.

use crate::load::{Load, get};
use crate::pool::{Pool, is_alive, kill, text};

#[test]
fn after_the_supervisor_is_killed_the_next_one_takes_over_without_losing_a_request() {
    let mut pool = Pool::echo();
    pool.up();
    let (instances, gateway) = (pool.instance_pids(), pool.pid("gateway"));
    let load = Load::start(pool.listen, "echo.localhost", "/", 8);
    load.wait_for(500);
    pool.kill_supervisor();
    load.wait_for(500);
    pool.up();
    load.wait_for(500);
    assert_eq!(pool.pid("gateway"), gateway, "{}", pool.printed());
    // What was taken over is looked after like what was started.
    pool.kill_role("controller");
    pool.wait_ready();
    load.wait_for(500);
    let tally = load.finish();
    assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
    pool.kill_role("gateway");
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
    assert_eq!(pool.instance_pids(), instances);
}

#[test]
fn after_everything_of_weal_is_killed_the_instances_are_adopted() {
    let mut pool = Pool::echo();
    pool.up();
    let instances = pool.instance_pids();
    let roles = ["gateway", "controller", "node"].map(|role| pool.pid(role));
    pool.kill_supervisor();
    roles.into_iter().for_each(kill);
    assert!(instances.iter().all(|pid| is_alive(*pid)), "instances live without weal");
    pool.up();
    assert_eq!(pool.instance_pids(), instances, "{}", pool.printed());
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
}

#[test]
fn down_ends_what_a_killed_supervisor_left() {
    let mut pool = Pool::echo();
    pool.up();
    pool.kill_supervisor();
    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    pool.assert_gone();
}

#[test]
fn down_ends_the_instances_even_without_an_agent() {
    let mut pool = Pool::echo();
    pool.up();
    let roles = ["gateway", "controller", "node"].map(|role| pool.pid(role));
    pool.kill_supervisor();
    roles.into_iter().for_each(kill);
    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    pool.assert_gone();
}
