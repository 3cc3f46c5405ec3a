//! What must hold when instances sleep and wake, whatever the isolation, with swap and without.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weal_model::{Bytes, Cpu, HealthProbe, InstanceState, NodeName, NodeSpec, Rung};
use weal_protocol::Refusal;
use weal_protocol::node::{self, Command};

use crate::bench::{Bench, PATIENCE, get, kill, wait_for};

fn has_swap() -> bool {
    fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() > 1
}

pub fn fifty_callers_wake_one_instance_once(bench: &Bench) {
    for id in ["web-1", "web-2"] {
        bench.start_ready(&bench.spec(id, &["serve", "$PORT"]));
        bench.suspend(id);
    }
    let before = bench.events(0).last().unwrap().id;
    let answers: Vec<node::WakeAnswer> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..50).map(|_| scope.spawn(|| bench.wake("web").unwrap())).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| answer.instance == answers[0].instance), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.took_s > 0.0).count(), 1, "one of them has woken it: {answers:?}");
    assert!(get(answers[0].address, "/", PATIENCE).is_some());
    let states: Vec<InstanceState> = bench.events(before).iter().map(|event| event.state).collect();
    assert_eq!(states, [InstanceState::Ready], "one of the two is left asleep");
    let woken = bench.instance(answers[0].instance.as_str()).unwrap();
    assert!(woken.last_wake_s.unwrap() > 0.0 && woken.costs.suspended.wake_s.is_some(), "{woken:?}");
    let other = if woken.spec.id.as_str() == "web-1" { "web-2" } else { "web-1" };
    let asleep = bench.instance(other).unwrap();
    assert_eq!(asleep.state, InstanceState::Suspended);
    assert!(asleep.costs.suspended.wake_s.is_some(), "what one of them has learnt the other knows");
}

pub fn one_that_is_named_is_woken_although_another_is_awake(bench: &Bench) {
    for id in ["web-1", "web-2", "web-3"] {
        bench.start_ready(&bench.spec(id, &["serve", "$PORT"]));
    }
    bench.suspend("web-2");
    bench.suspend("web-3");
    assert_eq!(bench.wake_one_of("web", &["web-3"]).unwrap().instance.as_str(), "web-3");
    assert_eq!(bench.instance("web-2").unwrap().state, InstanceState::Suspended);
    let error = bench.wake_one_of("web", &["shop-1"]).unwrap_err();
    assert_eq!(error.refusal(), Some(&Refusal::NobodyToWake { app: "web".into(), failed: Vec::new() }), "none of web's is named");
}

pub fn the_wake_socket_answers_nothing_else(bench: &Bench) {
    let refused = |error: weal_rpc::Error| match error {
        weal_rpc::Error::Refused { fault, .. } => fault.status,
        other => panic!("{other}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = bench.wake_client();
    let stop = vec![Command::Stop { instance: "web-1".into() }];
    assert_eq!(refused(runtime.block_on(client.call(node::APPLY, &stop)).unwrap_err()), 404);
    assert_eq!(refused(runtime.block_on(client.call(node::OBSERVE, &())).unwrap_err()), 404);
    let error = bench.wake("nobody").unwrap_err();
    assert_eq!(error.refusal(), Some(&Refusal::NobodyToWake { app: "nobody".into(), failed: Vec::new() }));
    assert_eq!(refused(error), 404);
}

pub fn a_sleeper_that_is_killed_is_started_again_for_who_asks(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"]));
    bench.suspend("web-1");
    kill(web.pid.unwrap());
    let answer = wait_for("another process", || {
        bench.wake("web").ok().filter(|_| bench.instance("web-1").is_some_and(|instance| instance.restarts == 1))
    });
    let pid: u32 = get(answer.address, "/", PATIENCE).unwrap().parse().unwrap();
    assert_ne!(Some(pid), web.pid);
    let told = bench.events(0).into_iter().find(|event| event.state == InstanceState::Backoff).unwrap();
    assert!(told.detail.starts_with("was killed by SIGKILL"), "{}", told.detail);
}

pub fn an_agent_killed_in_any_transition_leaves_it_awake_or_asleep(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["forks", "$PORT"]);
    spec.memory = Bytes::mib(200);
    let web = bench.start_ready(&spec);
    get(web.address, "/hog/30", PATIENCE).unwrap();
    let deepest = if has_swap() { Rung::Parked } else { Rung::Suspended };
    for round in 0..8u64 {
        std::thread::scope(|scope| {
            // It dies in the middle of a suspend and a purge, or of a prefetch and a thaw: where exactly differs.
            scope.spawn(|| match round % 2 {
                0 => bench.apply_and_ignore(Command::Sleep { instance: "web-1".into(), rung: deepest }),
                _ => bench.apply_and_ignore(Command::Resume { instance: "web-1".into() }),
            });
            std::thread::sleep(Duration::from_millis(round * round));
            bench.kill_agent();
        });
        bench.start_agent();
        wait_for("a state", || {
            bench.instance("web-1").filter(|instance| instance.state == InstanceState::Ready || instance.state.is_asleep())
        });
        let answer = bench.wake("web").unwrap();
        assert_eq!(get(answer.address, "/", PATIENCE), web.pid.map(|pid| pid.to_string()), "round {round}");
        assert_eq!(bench.sleep("web-1", Rung::Suspended), None);
        assert_eq!(get(web.address, "/", Duration::from_millis(50)), None, "it stands still, all of it");
        if round % 2 == 1 {
            bench.wake("web").unwrap();
        }
    }
    assert_eq!(bench.instance("web-1").unwrap().restarts, 0);
}

pub fn a_tree_that_forks_while_it_is_frozen_stands_still(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["storm", "$PORT"]));
    wait_for("some forks", || Some(bench.marked("web-1")).filter(|pids| pids.len() >= 3));
    for _ in 0..3 {
        bench.suspend("web-1");
        let (family, asleep) = (bench.marked("web-1"), bench.instance("web-1").unwrap());
        let began = Instant::now();
        // A little longer than what must pass: the kernel counts a timeout in ticks, and the first of them has begun.
        assert_eq!(get(web.address, "/", Duration::from_millis(320)), None);
        assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
        assert_eq!(bench.marked("web-1"), family, "nothing is forked and nothing ends");
        let used = bench.instance("web-1").unwrap().cpu_seconds.unwrap() - asleep.cpu_seconds.unwrap();
        assert!(used < 0.05, "{used} s of CPU in its sleep");
        let answer = bench.wake("web").unwrap();
        assert!(get(answer.address, "/", PATIENCE).is_some());
        wait_for("more forks", || Some(bench.marked("web-1")).filter(|pids| *pids != family));
    }
}

pub fn ten_thousand_mappings_sleep_and_wake(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.memory = Bytes::mib(300);
    let web = bench.start_ready(&spec);
    get(web.address, "/map/10000", PATIENCE).unwrap();
    let maps = fs::read_to_string(format!("/proc/{}/maps", web.pid.unwrap())).unwrap();
    assert!(maps.lines().count() > 10_000, "{}", maps.lines().count());
    for rung in [Rung::Parked, Rung::Warm, Rung::Parked] {
        let error = bench.sleep("web-1", rung);
        assert_eq!(error.is_none(), has_swap(), "{error:?}");
        let asleep = bench.instance("web-1").unwrap();
        if has_swap() && rung == Rung::Parked && bench.kind() != "none" {
            assert!(asleep.memory_used.unwrap() < Bytes::mib(25), "{asleep:?}");
        }
        let answer = bench.wake("web").unwrap();
        // It looks whether each mapping still holds what it wrote there.
        assert_eq!(get(answer.address, "/mapped", PATIENCE), web.pid.map(|pid| pid.to_string()));
    }
}

pub fn a_hook_renews_what_slept_too_long(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    // Where its user may write.
    let file = bench.state().join("data/web/renewed");
    spec.on_resume = vec!["/bin/sh".into(), "-c".into(), "echo $INSTANCE >> $DATA/renewed".into()];
    bench.start_ready(&spec);
    assert!(!file.exists(), "a start is no resume");
    bench.suspend("web-1");
    bench.wake("web").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "web-1\n");
    spec.on_resume = vec!["/bin/sh".into(), "-c".into(), "echo no database >&2; exit 3".into()];
    assert_eq!(bench.start(&spec), None);
    bench.suspend("web-1");
    let error = bench.wake("web").unwrap_err();
    let Some(Refusal::NobodyToWake { failed, .. }) = error.refusal() else { panic!("{error}") };
    assert!(
        matches!(&failed[0].1, Refusal::HookFailed { detail, .. } if detail.ends_with("`/bin/sh`: exit status: 3")),
        "{failed:?}"
    );
}

/// A server that holds 40 MiB of its own.
fn web_with_memory(bench: &Bench) -> node::InstanceCounters {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.memory = Bytes::mib(200);
    let web = bench.start_ready(&spec);
    get(web.address, "/hog/40", PATIENCE).unwrap();
    web
}

pub fn what_it_needs_is_remembered_over_the_agent(bench: &Bench) {
    if !has_swap() {
        return no_swap(bench);
    }
    let web = web_with_memory(bench);
    assert_eq!(bench.sleep("web-1", Rung::Parked), None);
    let parked = bench.instance("web-1").unwrap();
    assert!(parked.swap_used.unwrap() > Bytes::mib(30), "{parked:?}");
    bench.wake("web").unwrap();
    get(web.address, "/touch", PATIENCE).unwrap();
    let file = bench.dir("web-1").join("working-set.json");
    wait_for("a working set", || fs::read_to_string(&file).ok().filter(|text| text.contains("\"touched\":[[[")));
    assert_eq!(bench.sleep("web-1", Rung::Parked), None);
    bench.kill_agent();
    bench.start_agent();
    let before = bench.events(0).last().map_or(0, |event| event.id);
    bench.wake("web").unwrap();
    let detail = bench.said(before, "woken from parked in ");
    assert!(detail.ends_with(" prefetched"), "{detail}");
    assert_eq!(get(web.address, "/touch", PATIENCE), web.pid.map(|pid| pid.to_string()));
}

pub fn one_that_was_only_suspended_and_was_paged_out_by_others_is_read_ahead(bench: &Bench) {
    if !has_swap() {
        return no_swap(bench);
    }
    // Only there can the kernel be told to page out a group.
    if bench.kind() != "cgroup-v2" {
        return;
    }
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.memory = Bytes::mib(200);
    // Its answer needs all of its memory, so that the wake takes long enough to look where that is.
    spec.health.probe = HealthProbe::Http { path: "/touch".into() };
    let web = bench.start_ready(&spec);
    get(web.address, "/hog/40", PATIENCE).unwrap();
    assert_eq!(bench.sleep("web-1", Rung::Parked), None);
    bench.wake("web").unwrap();
    let file = bench.dir("web-1").join("working-set.json");
    wait_for("a working set", || fs::read_to_string(&file).ok().filter(|text| text.contains("\"touched\":[[[")));
    // On a busy machine it may have read all by itself before that is looked at.
    let details: Vec<String> = (0..3).map(|_| wake_from_swap(bench, web.pid.unwrap())).collect();
    assert!(details.iter().any(|detail| detail.ends_with(" prefetched")), "{details:?}");
    assert_eq!(get(web.address, "/touch", PATIENCE), web.pid.map(|pid| pid.to_string()));
}

/// Suspends `web-1`, lets the kernel page it out, wakes it, and returns what is said of that.
fn wake_from_swap(bench: &Bench, pid: u32) -> String {
    bench.suspend("web-1");
    // What a machine does that is short of memory.
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let group = PathBuf::from(format!("/sys/fs/cgroup{}", groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap()));
    fs::write(group.join("memory.swap.max"), "max").unwrap();
    // It says so when it finds less than that.
    let _ = fs::write(group.join("memory.reclaim"), "100M");
    let asleep = bench.instance("web-1").unwrap();
    assert!(asleep.state == InstanceState::Suspended && asleep.swap_used.unwrap() > Bytes::mib(30), "{asleep:?}");
    let before = bench.events(0).last().map_or(0, |event| event.id);
    bench.wake("web").unwrap();
    bench.said(before, "woken from suspended in ")
}

pub fn a_warm_sleeper_keeps_what_it_needs(bench: &Bench) {
    if !has_swap() {
        return no_swap(bench);
    }
    let web = web_with_memory(bench);
    // Nothing is known of it yet: it is woken once to learn what it needs.
    assert_eq!(bench.sleep("web-1", Rung::Warm), None);
    let warm = bench.instance("web-1").unwrap();
    assert_eq!(warm.state, InstanceState::Warm);
    assert!(warm.memory_used.unwrap() < Bytes::mib(30) || bench.kind() == "none", "{warm:?}");
    assert!(warm.costs.warm.sleep_s.is_some() && warm.costs.warm.memory.is_some(), "{warm:?}");
    // Up and down the ladder without waking.
    for rung in [Rung::Parked, Rung::Warm, Rung::Suspended, Rung::Warm] {
        assert_eq!(bench.sleep("web-1", rung), None, "{rung:?}");
        assert_eq!(bench.instance("web-1").unwrap().state, rung.state());
    }
    bench.wake("web").unwrap();
    assert_eq!(get(web.address, "/touch", PATIENCE), web.pid.map(|pid| pid.to_string()));
}

/// To learn what it needs it is asked for its health. What was asked before it was frozen has nobody who listens any more, and it answers one
/// after the other.
pub fn a_health_check_that_was_underway_holds_nobody_up(bench: &Bench) {
    if !has_swap() {
        return no_swap(bench);
    }
    let web = web_with_memory(bench);
    std::thread::scope(|scope| {
        // A health check comes meanwhile and waits.
        scope.spawn(|| get(web.address, "/spin/2000", PATIENCE).unwrap());
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(bench.sleep("web-1", Rung::Warm), None);
        bench.wake("web").unwrap();
    });
    assert_eq!(get(web.address, "/touch", PATIENCE), web.pid.map(|pid| pid.to_string()));
}

fn no_swap(bench: &Bench) {
    bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"]));
    for rung in [Rung::Parked, Rung::Warm] {
        let error = bench.sleep("web-1", rung).unwrap();
        assert!(matches!(error, Refusal::NoSwap { free: Bytes(0), .. }), "{error:?}");
        assert_eq!(bench.instance("web-1").unwrap().state, InstanceState::Suspended);
    }
    assert!(bench.wake("web").is_ok());
}

pub fn more_than_the_swap_is_never_begun(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.memory = Bytes::mib(400);
    let web = bench.start_ready(&spec);
    get(web.address, "/hog/300", PATIENCE).unwrap();
    let error = bench.sleep("web-1", Rung::Parked);
    let asleep = bench.instance("web-1").unwrap();
    match error {
        None => assert_eq!(asleep.state, InstanceState::Parked, "there was room for it"),
        Some(refusal) => {
            assert!(matches!(refusal, Refusal::NoSwap { needs, free } if free < needs), "{refusal:?}");
            assert_eq!(asleep.state, InstanceState::Suspended);
            assert_eq!(asleep.detail, format!("it stays suspended: {refusal}"));
        }
    }
    bench.wake("web").unwrap();
    assert_eq!(get(web.address, "/touch", PATIENCE), web.pid.map(|pid| pid.to_string()));
}

pub fn what_sleeps_in_swap_leaves_its_nodes_memory_to_others(bench: &Bench) {
    let node = NodeSpec { name: NodeName::from("n1"), cpu: Cpu(2.0), memory: Bytes::mib(130), utilization_limit: 0.9 };
    bench.call(node::CONFIGURE, &vec![node.clone()]);
    // Each takes half of the node, so that there is no room for a third that is awake.
    let servers: Vec<_> = ["a-1", "b-1", "c-1"]
        .into_iter()
        .map(|id| {
            let mut spec = bench.spec(id, &["serve", "$PORT"]);
            spec.memory = Bytes::mib(125);
            let server = bench.start_ready(&spec);
            get(server.address, "/hog/60", PATIENCE).expect("there is room for it");
            let sum = get(server.address, "/sum", PATIENCE);
            (server, sum, bench.sleep(id, Rung::Parked))
        })
        .take_while(|(_, _, refusal)| {
            let about_swap = matches!(refusal, None | Some(Refusal::NoSwap { .. } | Refusal::SwapFilled { .. }));
            assert!(about_swap, "{refusal:?}");
            refusal.is_none()
        })
        .collect();
    // The next agent takes the node over, although more than its memory is asleep on it.
    bench.call(node::CONFIGURE, &vec![NodeSpec { cpu: Cpu(1.5), ..node }]);
    assert_eq!(bench.observe().nodes[0].cpu_capacity, Cpu(1.5));
    for (server, sum, _) in servers {
        let answer = bench.wake(server.spec.app.as_str()).unwrap();
        assert_eq!(get(answer.address, "/sum", PATIENCE), sum, "its memory is what it was");
        assert_eq!(bench.instance(server.spec.id.as_str()).unwrap().restarts, 0);
        assert_eq!(bench.sleep(server.spec.id.as_str(), Rung::Parked), None);
    }
}

pub fn fifty_applications_wake_at_once(bench: &Bench) {
    let ids: Vec<String> = (0..50).map(|number| format!("app{number}-1")).collect();
    // Not all of them at once: an emulated machine starts two programs a second.
    for some in ids.chunks(10) {
        let starts = some.iter().map(|id| Command::Start { spec: Box::new(bench.spec(id, &["serve", "$PORT"])) });
        let failed: Vec<_> =
            bench.call(node::APPLY, &starts.collect()).into_iter().filter_map(|outcome| outcome.refusal).collect();
        assert!(failed.is_empty(), "{failed:?}");
    }
    wait_for("all of them", || {
        let ready = bench.observe().instances.iter().filter(|instance| instance.state == InstanceState::Ready).count();
        (ready == ids.len()).then_some(())
    });
    for id in &ids {
        bench.suspend(id);
    }
    let awake = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for id in &ids {
            scope.spawn(|| {
                let answer = bench.wake(id.trim_end_matches("-1")).unwrap();
                assert!(get(answer.address, "/", PATIENCE).is_some());
                awake.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(awake.into_inner(), 50);
}

/// The controller takes any other refusal for something that the rung lacks here, and leaves it alone for a minute.
pub fn a_purge_that_a_wake_breaks_off_is_refused_because_it_is_wanted(bench: &Bench) {
    if !has_swap() {
        return;
    }
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.memory = Bytes::mib(400);
    let web = bench.start_ready(&spec);
    // Background work takes seconds for as much.
    get(web.address, "/hog/200", PATIENCE).unwrap();
    let refusal = std::thread::scope(|scope| {
        let sleep = scope.spawn(|| bench.apply(Command::Sleep { instance: "web-1".into(), rung: Rung::Parked }).refusal);
        wait_for("it to be frozen", || bench.instance("web-1").filter(|instance| instance.state == InstanceState::Suspended));
        bench.wake("web").unwrap();
        sleep.join().unwrap()
    });
    let refusal = refusal.expect("it was still being paged out");
    assert!(refusal.is_wanted(), "{refusal}");
    assert_eq!(get(web.address, "/touch", PATIENCE), web.pid.map(|pid| pid.to_string()));
}
