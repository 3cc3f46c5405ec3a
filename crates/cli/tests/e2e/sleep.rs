//! Applications that sleep, and what becomes of the requests that come then: real processes, real requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::load::{Load, get};
use crate::pool::{Pool, echo_app, is_alive, kill, text};

/// An application that may sleep after a second without requests.
fn sleepy(name: &str, more: &str) -> String {
    echo_app(name, &format!("sleep-after = \"1s\"\n{more}")).replace("min = 1, max = 1", "min = 0, max = 1")
}

fn state_of(pool: &Pool, app: &str) -> Option<String> {
    let status = pool.status()?;
    let found = status["apps"].as_array()?.iter().find(|one| one["name"] == app)?.clone();
    found["state"].as_str().map(str::to_owned)
}

fn until_asleep(pool: &Pool, app: &str) {
    pool.eventually(&format!("{app} asleep"), || (state_of(pool, app)? == "asleep").then_some(()));
}

/// Starts `apps` and waits until all of them have been put to sleep.
fn asleep(apps: &[&str], config: &str) -> Pool {
    let mut pool = Pool::new(config);
    pool.start();
    for app in apps {
        until_asleep(&pool, app);
    }
    pool
}

fn answered(pool: &Pool, app: &str) -> String {
    let (status, body) = get(pool.listen, &format!("{app}.localhost"), "/").unwrap();
    assert_eq!(status, 200, "{body}");
    body
}

/// How often instances of `app` have become ready since weal runs.
fn wakes(pool: &Pool, app: &str) -> u64 {
    let events = pool.json(&["events", "-n", "1000"]);
    let woken = |event: &&serde_json::Value| {
        let text = event["text"].as_str().unwrap_or_default();
        event["app"] == app && text.contains("woken from")
    };
    events.as_array().unwrap().iter().filter(woken).count() as u64
}

#[test]
fn an_application_that_works_without_requests_keeps_itself_awake_until_it_is_done() {
    let mut pool = Pool::new(&(sleepy("shop", "") + &echo_app("never", "sleep = false").replace("min = 1", "min = 0")));
    pool.up();
    let touched = pool.run(&["exec", "shop", "--", "/bin/sh", "-c", "touch $WEAL_KEEP_AWAKE"]);
    assert!(touched.status.success(), "{}", text(&touched.stderr));
    let refused = pool.run(&["sleep", "never"]);
    assert!(text(&refused.stderr).contains("says `sleep = false`"), "{}", text(&refused.stderr));
    // A neighbour that sleeps shows that time enough has passed.
    pool.write(&(sleepy("shop", "") + &sleepy("quiet", "") + &echo_app("never", "sleep = false").replace("min = 1", "min = 0")));
    until_asleep(&pool, "quiet");
    assert_eq!(state_of(&pool, "shop").as_deref(), Some("ready"));
    let done = pool.run(&["exec", "shop", "--", "/bin/sh", "-c", "rm $WEAL_KEEP_AWAKE"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    until_asleep(&pool, "shop");
    assert_eq!(state_of(&pool, "never").as_deref(), Some("ready"));
}

#[test]
fn an_order_keeps_an_application_awake_for_a_while_and_a_new_controller_too() {
    let pool = asleep(&["shop", "quiet"], &(sleepy("shop", "") + &sleepy("quiet", "")));
    let ordered = pool.run(&["keep-awake", "shop", "--for", "10m"]);
    let said = text(&ordered.stdout);
    assert!(
        ordered.status.success() && said.contains("kept awake by an order for another 10 min"),
        "{said}{}",
        text(&ordered.stderr)
    );
    let refused = text(&pool.run(&["sleep", "shop"]).stderr);
    assert!(refused.contains("`shop` is kept awake by an order for another"), "{refused}");
    assert!(text(&pool.run(&["why", "shop"]).stdout).contains("kept awake by an order"));
    pool.kill_role("controller");
    pool.eventually("the controller is back", || pool.status());
    // A neighbour that is woken and sleeps again shows that time enough has passed.
    answered(&pool, "quiet");
    until_asleep(&pool, "quiet");
    assert_eq!(state_of(&pool, "shop").as_deref(), Some("ready"));
    let ended = pool.run(&["keep-awake", "shop", "--end"]);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    until_asleep(&pool, "shop");
    let audit = text(&pool.run(&["audit"]).stdout);
    assert_eq!(audit.matches("POST /v1/apps/shop/keep-awake").count(), 2, "{audit}");
    let refused = pool.run(&["keep-awake", "shop", "--for", "8d"]);
    assert!(text(&refused.stderr).contains("at most 604800 s"), "{}", text(&refused.stderr));
}

#[test]
fn an_order_to_stay_awake_ends_by_itself_and_a_schedule_wakes_without_a_request() {
    let always = "keep-awake = { schedule = \"* * * * *\", for = \"2min\" }";
    let mut pool = Pool::new(&(sleepy("shop", "") + &sleepy("desk", always)));
    pool.start();
    until_asleep(&pool, "shop");
    pool.eventually("desk ready", || (state_of(&pool, "desk")? == "ready").then_some(()));
    let shown = text(&pool.run(&["status"]).stdout);
    assert!(shown.contains("kept awake by its schedule"), "{shown}");
    let ordered = pool.run(&["keep-awake", "shop", "--for", "15s"]);
    assert!(ordered.status.success(), "{}", text(&ordered.stderr));
    until_asleep(&pool, "shop");
    let events = text(&pool.run(&["events", "-n", "1000"]).stdout);
    assert!(events.contains("shop may sleep again: its time to be kept awake has passed"), "{events}");
    assert_eq!(state_of(&pool, "desk").as_deref(), Some("ready"));
}

#[test]
fn an_application_sleeps_and_wakes_for_a_request_without_a_controller() {
    let pool = asleep(&["shop"], &sleepy("shop", ""));
    let pids = pool.instance_pids();
    // Killed, it would be back within milliseconds.
    pool.pause("controller");
    assert!(answered(&pool, "shop").contains("pid"));
    pool.resume("controller");
    pool.eventually("shop ready", || (state_of(&pool, "shop")? == "ready").then_some(()));
    assert_eq!(pool.instance_pids(), pids, "it is the same process");
    let instances = pool.json(&["instances", "shop"]);
    assert!(instances[0]["last_wake_ms"].as_f64().unwrap() > 0.0, "{instances}");
    until_asleep(&pool, "shop");
}

#[test]
fn fifty_requests_at_once_cause_one_wake() {
    let pool = asleep(&["shop"], &sleepy("shop", ""));
    let start = Arc::new(Barrier::new(50));
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let (start, listen) = (Arc::clone(&start), pool.listen);
            std::thread::spawn(move || {
                start.wait();
                get(listen, "shop.localhost", "/").unwrap().0
            })
        })
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap() == 200));
    pool.eventually("the wake is told", || (wakes(&pool, "shop") > 0).then_some(()));
    assert_eq!(wakes(&pool, "shop"), 1);
}

#[test]
fn many_applications_wake_at_once() {
    let names: Vec<String> = (0..50).map(|number| format!("app{number}")).collect();
    let config: String = names.iter().map(|name| sleepy(name, "").replace("64MiB", "24MiB")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let pool = asleep(&all, &config);
    let start = Arc::new(Barrier::new(names.len()));
    let clients: Vec<_> = names
        .into_iter()
        .map(|name| {
            let (start, listen) = (Arc::clone(&start), pool.listen);
            std::thread::spawn(move || {
                start.wait();
                get(listen, &format!("{name}.localhost"), "/").unwrap()
            })
        })
        .collect();
    for client in clients {
        let (status, body) = client.join().unwrap();
        assert_eq!(status, 200, "{body}");
    }
}

#[test]
fn going_to_sleep_under_full_load_loses_nothing() {
    let mut pool = Pool::new(&sleepy("shop", ""));
    pool.up();
    let load = Load::start(pool.listen, "shop.localhost", "/", 8);
    load.wait_for(200);
    for _ in 0..5 {
        // It is asked for all the time: sleep is called off, or the next request wakes it.
        let _ = pool.run(&["sleep", "shop", "--timeout", "1"]);
        load.wait_for(100);
    }
    let tally = load.finish();
    assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
}

#[test]
fn a_request_in_flight_is_finished_before_its_instance_sleeps() {
    let mut pool = Pool::new(&sleepy("shop", ""));
    pool.up();
    let listen = pool.listen;
    let slow = std::thread::spawn(move || get(listen, "shop.localhost", "/slow/3000").unwrap().0);
    pool.eventually("the request is there", || {
        let status = pool.status()?;
        (status["apps"][0]["instances"][0]["in_flight"].as_u64()? == 1).then_some(())
    });
    let output = pool.run(&["sleep", "shop"]);
    assert!(output.status.success(), "{}", crate::pool::text(&output.stderr));
    assert!(slow.is_finished(), "it sleeps although a request is at it");
    assert_eq!(slow.join().unwrap(), 200);
}

#[test]
fn a_sleeper_that_was_killed_is_replaced_for_the_request_that_waits() {
    let pool = asleep(&["shop"], &sleepy("shop", ""));
    let old = pool.instance_pids();
    kill(i32::try_from(old[0]).unwrap());
    assert!(answered(&pool, "shop").contains("pid"));
    pool.eventually("another process", || {
        let pids = pool.instance_pids();
        (!pids.is_empty() && pids.iter().all(|pid| !old.contains(pid) && is_alive(*pid))).then_some(())
    });
}

#[test]
fn a_clients_connection_outlives_the_sleep_of_its_instance() {
    let mut pool = Pool::new(&sleepy("shop", ""));
    pool.up();
    let mut client = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
    let mut ask = move || {
        client.write_all(b"POST / HTTP/1.1\r\nhost: shop.localhost\r\ncontent-length: 0\r\n\r\n").unwrap();
        let mut answer = vec![0; 4096];
        let length = client.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    assert!(ask().starts_with("HTTP/1.1 200"));
    until_asleep(&pool, "shop");
    let again = ask();
    assert!(again.starts_with("HTTP/1.1 200"), "{again}");
}

#[test]
fn an_instance_that_forks_all_the_time_stands_still_as_a_whole() {
    let echo = crate::pool::echo_program();
    let forks = format!("while sleep 0.01; do /bin/true & done & exec {} --port $PORT", echo.display());
    let config = sleepy("forks", "").replace(
        &format!("run = [\"{}\", \"--port\", \"$PORT\"]", echo.display()),
        &format!("run = [\"/bin/sh\", \"-c\", \"{forks}\"]"),
    );
    let pool = asleep(&["forks"], &config);
    let cpu = || pool.status()?["apps"][0]["instances"][0]["cpu_used"].as_f64();
    pool.eventually("no CPU used", || (cpu()? < 0.001).then_some(()));
    assert!(answered(&pool, "forks").contains("pid"));
    pool.eventually("it forks again", || (cpu()? > 0.001).then_some(()));
}

#[test]
fn sleep_and_wake_say_what_they_did_and_what_they_cannot() {
    let mut pool = Pool::new(&(echo_app("shop", "") + &echo_app("front", "needs = [\"shop\"]")));
    pool.up();
    let said = |args: &[&str]| {
        let output = pool.run(args);
        (output.status.code(), crate::pool::text(&output.stdout) + &crate::pool::text(&output.stderr))
    };
    let (code, text) = said(&["sleep", "shop"]);
    assert!(code == Some(1) && text.contains("`front` is awake and needs it"), "{text}");
    let (code, text) = said(&["sleep", "front", "--rung", "suspended"]);
    let slept = code == Some(0) && text.starts_with("front sleeps: front-1 is suspended");
    assert!(slept, "{text}{}", said(&["events"]).1);
    let (code, text) = said(&["why", "front"]);
    assert!(code == Some(0) && text.contains("front is asleep"), "{text}");
    let (code, text) = said(&["instances"]);
    assert!(code == Some(0) && text.contains("suspended") && text.contains("SWAP"), "{text}");
    let (code, text) = said(&["wake", "front"]);
    assert!(code == Some(0) && text.starts_with("front-1 is ready: woken from suspended in "), "{text}");
    let (code, text) = said(&["sleep", "nothing"]);
    assert!(code == Some(1) && text.contains("no application `nothing`"), "{text}");
}

#[test]
fn who_is_told_to_sleep_right_after_a_request_sleeps() {
    let mut pool = Pool::new(&echo_app("shop", ""));
    pool.up();
    for _ in 0..2 {
        assert!(pool.run(&["sleep", "shop", "--rung", "suspended"]).status.success());
        assert!(answered(&pool, "shop").contains("pid"), "it was woken for this request");
    }
    let output = pool.run(&["sleep", "shop", "--rung", "suspended", "--timeout", "20"]);
    assert!(output.status.success(), "{}", crate::pool::text(&output.stderr));
    assert_eq!(state_of(&pool, "shop").as_deref(), Some("asleep"));
}

#[test]
fn who_was_told_to_sleep_sleeps_on_when_the_controller_is_replaced() {
    let mut pool = Pool::new(&echo_app("shop", ""));
    pool.up();
    let output = pool.run(&["sleep", "shop", "--rung", "suspended"]);
    assert!(output.status.success(), "{}", crate::pool::text(&output.stderr));
    pool.kill_role("controller");
    let plan =
        pool.eventually("a plan of the new controller", || Some(pool.status()?["plan"].clone()).filter(|plan| plan.is_object()));
    assert_eq!(plan["actions"], 0, "although one instance is to run, nothing is woken: {plan}");
    assert_eq!(state_of(&pool, "shop").as_deref(), Some("asleep"));
    assert!(answered(&pool, "shop").contains("pid"));
    pool.eventually("shop ready", || (state_of(&pool, "shop")? == "ready").then_some(()));
    pool.kill_role("controller");
    pool.eventually("a plan of the third", || pool.status()?["plan"].is_object().then_some(()));
    assert_eq!(state_of(&pool, "shop").as_deref(), Some("ready"), "it was asked for since");
}

#[test]
fn an_order_to_sleep_that_is_given_up_says_so_at_once_and_why() {
    let mut pool = Pool::echo();
    pool.up();
    let load = Load::start(pool.listen, "echo.localhost", "/slow/50", 4);
    load.wait_for(10);
    let sleep = pool.run(&["sleep", "echo", "--timeout", "50"]);
    let said = text(&sleep.stderr);
    assert_eq!(sleep.status.code(), Some(1), "not a time-out: {said}");
    assert!(said.contains("the order is given up") && said.contains("echo"), "{said}");
    let tally = load.finish();
    assert!(tally.lost.is_empty(), "{:?}", tally.lost);
}

/// What weal's own processes have done so far: the supervisor, its roles, and the shims.
struct Work {
    cpu_seconds: f64,
    /// Calls that read and write.
    calls: u64,
}

impl Work {
    fn of(pool: &Pool) -> Self {
        let (proc, folder, supervisor) = (weal_host::Proc::system(), pool.state(), pool.pid("supervisor").cast_unsigned());
        let is_of_weal = |pid: u32| {
            let arguments = proc.arguments(pid);
            let names_folder = arguments.iter().any(|argument| Path::new(argument).starts_with(&folder));
            pid == supervisor || (names_folder && arguments.first().is_some_and(|first| first.starts_with("weal")))
        };
        let calls = |pid: u32| -> u64 {
            let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
            let counted = text.lines().filter_map(|line| line.strip_prefix("syscr: ").or(line.strip_prefix("syscw: ")));
            counted.map(|number| number.parse::<u64>().unwrap()).sum()
        };
        let stats: Vec<_> = proc.all().into_iter().filter(|stat| is_of_weal(stat.pid)).collect();
        assert!(stats.len() >= 4, "the supervisor and its roles");
        Self {
            cpu_seconds: stats.iter().map(weal_host::Stat::own_seconds).sum(),
            calls: stats.iter().map(|stat| calls(stat.pid)).sum(),
        }
    }
}

#[test]
fn sixty_applications_that_sleep_take_next_to_no_work() {
    let names: Vec<String> = (0..60).map(|number| format!("app{number}")).collect();
    let config: String = names.iter().map(|name| sleepy(name, "").replace("64MiB", "24MiB")).collect();
    let mut pool = Pool::new(&config);
    pool.start();
    let all_sleep = || {
        let status = pool.status()?;
        status["apps"].as_array()?.iter().all(|app| app["state"] == "asleep").then_some(())
    };
    pool.eventually("all of them sleep", all_sleep);
    // What paged them out may go on for a while.
    pool.eventually("weal lets them sleep", || {
        let (began, before) = (Instant::now(), Work::of(&pool));
        std::thread::sleep(Duration::from_secs(5));
        let (seconds, after) = (began.elapsed().as_secs_f64(), Work::of(&pool));
        let (cpu, calls) = (after.cpu_seconds - before.cpu_seconds, (after.calls - before.calls) as f64);
        println!("60 sleeping applications: {:.1} % of a core, {:.0} calls a second", 100.0 * cpu / seconds, calls / seconds);
        // Four for each of them and sixty beside were counted; a slower machine makes fewer. The CPU is that of a program which was not
        // optimized, beside others: one that spins takes a whole core.
        (calls / seconds < 700.0 && cpu / seconds < 0.7).then_some(())
    });
    pool.eventually("they still sleep", all_sleep);
}
