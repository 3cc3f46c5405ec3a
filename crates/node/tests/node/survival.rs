//! What outlives an agent or a shim, and what the next agent makes of it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weal_model::{InstanceId, InstanceState, RestartPolicy};
use weal_protocol::node::{self, LogsRequest};

use crate::bench::{Bench, PATIENCE, get, is_alive, kill, signal, wait_for};

pub fn instances_survive_the_agent_and_are_adopted(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"]));
    let asleep = bench.start_ready(&bench.spec("nap-1", &["serve", "$PORT"]));
    get(web.address, "/spin/300", PATIENCE).unwrap();
    get(web.address, "/say/before", PATIENCE).unwrap();
    bench.suspend("nap-1");
    let before = bench.instance("web-1").unwrap();
    bench.kill_agent();
    assert_eq!(get(web.address, "/say/meanwhile", PATIENCE), Some(web.pid.unwrap().to_string()));
    bench.start_agent();

    let after = bench.instance("web-1").unwrap();
    assert_eq!((after.pid, after.address, after.state), (web.pid, web.address, InstanceState::Ready));
    assert_eq!((after.since, after.restarts), (before.since, 0));
    assert!(after.cpu_seconds >= before.cpu_seconds, "{after:?} after {before:?}");
    assert_eq!(bench.instance("nap-1").unwrap().state, InstanceState::Suspended);
    bench.resume("nap-1");
    assert_eq!(get(asleep.address, "/", PATIENCE), Some(asleep.pid.unwrap().to_string()));
    let request =
        LogsRequest { instance: InstanceId::from("web-1"), cursor: None, tail_lines: 2, wait_s: 0.0, since: None, ended: None };
    wait_for("both lines", || Some(bench.call(node::LOGS, &request)).filter(|chunk| chunk.text == "before\nmeanwhile\n"));
    // No other instance gets an adopted one's port.
    let other = bench.start_ready(&bench.spec("other-1", &["serve", "$PORT"]));
    assert!(other.address != web.address && other.address != asleep.address);
    // And an adopted one still stops without a trace.
    bench.stop("web-1");
    assert!(!is_alive(web.pid.unwrap()) && !bench.dir("web-1").exists());
}

pub fn an_instance_that_ended_without_agent_is_noticed(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"]));
    let mut once = bench.spec("once-1", &["serve", "$PORT"]);
    once.restart = RestartPolicy::Never;
    let once = bench.start_ready(&once);
    bench.kill_agent();
    kill(web.pid.unwrap());
    kill(once.pid.unwrap());
    wait_for("their ends", || (!is_alive(web.pid.unwrap()) && !is_alive(once.pid.unwrap())).then_some(()));
    bench.start_agent();
    let failed = bench.wait_state("once-1", InstanceState::Failed);
    assert!(failed.detail.starts_with("was killed by SIGKILL"), "{}", failed.detail);
    let again =
        wait_for("the restart", || bench.instance("web-1").filter(|i| i.restarts == 1 && i.state == InstanceState::Ready));
    assert_ne!(again.pid, web.pid);
}

pub fn a_killed_shim_is_replaced_and_its_instance_lives(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["forks", "$PORT"]));
    let shim = || shim_of(bench, "web-1");
    let first = shim();
    kill(first);
    wait_for("another shim", || Some(shim()).filter(|pid| *pid != first && is_alive(*pid)));
    assert_eq!(get(web.address, "/say/still+here", PATIENCE), Some(web.pid.unwrap().to_string()));
    let request =
        LogsRequest { instance: InstanceId::from("web-1"), cursor: None, tail_lines: 1, wait_s: 0.0, since: None, ended: None };
    wait_for("the line", || Some(bench.call(node::LOGS, &request)).filter(|chunk| chunk.text == "still+here\n"));
    assert_eq!(bench.instance("web-1").unwrap().restarts, 0);
    let family = bench.marked("web-1");
    assert!(family.len() >= 4, "{family:?}");
    // Its end is noticed, though not how it was; its children, orphans by now, go with it.
    kill(web.pid.unwrap());
    let again = wait_for("the restart", || bench.instance("web-1").filter(|instance| instance.restarts == 1));
    assert_ne!(again.pid, web.pid);
    assert!(family.iter().all(|pid| !is_alive(*pid)), "{family:?}");
    let told = bench.events(0).into_iter().find(|event| event.state == InstanceState::Backoff).unwrap();
    assert!(told.detail.starts_with("ended with an unknown status: its shim was killed too"), "{}", told.detail);
}

pub fn a_shim_that_cannot_be_replaced_at_once_is_replaced_later(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"]));
    let (record, complaints) = (bench.dir("web-1").join("spec.json"), bench.dir("web-1").join("shim.err"));
    let aside = record.with_extension("aside");
    for is_asleep in [false, true] {
        if is_asleep {
            bench.suspend("web-1");
        }
        let (first, said) = (shim_of(bench, "web-1"), fs::metadata(&complaints).map_or(0, |file| file.len()));
        fs::rename(&record, &aside).unwrap();
        kill(first);
        wait_for("a failed attempt", || fs::metadata(&complaints).ok().filter(|file| file.len() > said));
        fs::rename(&aside, &record).unwrap();
        wait_for("another shim", || Some(shim_of(bench, "web-1")).filter(|pid| *pid != first && is_alive(*pid)));
        assert!(is_alive(web.pid.unwrap()));
    }
    assert_eq!(bench.instance("web-1").unwrap().restarts, 0);
}

pub fn a_shim_that_is_late_is_waited_for(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"]));
    let ends = || -> Vec<String> {
        let is_end = |event: &node::InstanceEvent| event.state == InstanceState::Backoff;
        bench.events(0).into_iter().filter(is_end).map(|event| event.detail).collect()
    };
    // One that gets no core for a while has seen the end all the same.
    let late = shim_of(bench, "web-1");
    signal(late, Signal::STOP);
    kill(web.pid.unwrap());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!(ends(), Vec::<String>::new());
        std::thread::sleep(Duration::from_millis(100));
    }
    let silent = bench.wait_state("web-1", InstanceState::Unhealthy);
    assert_eq!((silent.pid, silent.detail.as_str()), (None, "it has ended; its exit status is not known yet"));
    signal(late, Signal::CONT);
    wait_for("its word", || Some(ends()).filter(|ends| ends.len() == 1));
    assert!(ends()[0].starts_with("was killed by SIGKILL"), "{:?}", ends());

    // One that is gone is not waited for.
    let again =
        wait_for("the restart", || bench.instance("web-1").filter(|i| i.restarts == 1 && i.state == InstanceState::Ready));
    let late = shim_of(bench, "web-1");
    signal(late, Signal::STOP);
    kill(again.pid.unwrap());
    kill(late);
    wait_for("the other end", || Some(ends()).filter(|ends| ends.len() == 2));
    assert!(ends()[1].starts_with("ended with an unknown status: its shim was killed too"), "{:?}", ends());
}

pub fn a_shim_that_starts_late_starts_its_instance_once(bench: &Bench) {
    // Who holds its lock keeps a shim from starting anything, as a machine does that gives it no core.
    let folder = bench.dir("web-1");
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(folder.join("shim.lock")).unwrap();
    lock.lock().unwrap();
    let spec = bench.spec("web-1", &["forks", "$PORT"]);
    let waits = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|place| !place.is_empty());
    let shims = || {
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.starts_with(b"weal-shim") && words.split(|byte| *byte == 0).any(|word| word == folder.as_os_str().as_bytes())
        };
        pids.filter(is_ours).filter(waits).collect::<Vec<u32>>()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| bench.start_and_ignore(&spec));
        wait_for("the shim", || (!shims().is_empty()).then_some(()));
        bench.kill_agent();
    });
    bench.start_agent();
    // Longer than the next agent waits for one that has not even begun.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!((bench.instance("web-1").unwrap().state, shims().len()), (InstanceState::Starting, 1));
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(lock);
    let web = bench.wait_state("web-1", InstanceState::Ready);
    assert_eq!(web.restarts, 0);
    let family = wait_for("the children", || Some(bench.marked("web-1")).filter(|pids| pids.len() >= 4));
    assert_eq!(family.len(), 4, "main process {:?} and its three children, but {family:?}", web.pid);
    // Others may neither read nor lock what keeps an instance from starting.
    for lock in ["shim.lock", "starting.lock"] {
        let mode = fs::metadata(folder.join(lock)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{lock}");
    }
}

pub fn the_next_agent_knows_how_one_ended_that_waits_to_be_started(bench: &Bench) {
    let mut spec = bench.spec("web-1", &[]);
    spec.run = ["sh", "-c", "exit 7"].map(str::to_owned).to_vec();
    bench.start(&spec);
    // Its pauses grow, so that the next agent finds it in one, on a busy machine as well.
    wait_for("some restarts", || bench.instance("web-1").filter(|one| one.restarts >= 4 && one.state == InstanceState::Backoff));
    bench.kill_agent();
    bench.start_agent();
    let found = wait_for("its state", || bench.instance("web-1"));
    assert!(found.detail.starts_with("ended by itself with status 7; starts again in "), "{}", found.detail);
}

/// The process that keeps an instance.
pub fn shim_of(bench: &Bench, id: &str) -> u32 {
    let text = fs::read_to_string(bench.dir(id).join("pid")).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["shim"]["pid"].as_u64().unwrap() as u32
}

pub fn a_killed_agent_leaves_no_half_frozen_instance(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"]));
    // As if the agent had died between writing down what it wants and doing it, both ways.
    for (wanted, frozen) in [("suspended", true), ("ready", false)] {
        bench.kill_agent();
        let path = bench.dir("web-1").join("agent.json");
        let mut memory: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        memory["state"] = wanted.into();
        fs::write(&path, memory.to_string()).unwrap();
        bench.start_agent();
        wait_for("the wanted state", || {
            let answers = get(web.address, "/", Duration::from_millis(500)).is_some();
            (answers != frozen).then_some(())
        });
    }
    assert_eq!(bench.instance("web-1").unwrap().state, InstanceState::Ready);
}

pub fn stop_all_works_without_an_agent(bench: &Bench) {
    let mut spec = bench.spec("fork-1", &["forks", "$PORT"]);
    spec.stop_timeout_s = 0.5;
    bench.start_ready(&spec);
    let nap = bench.start_ready(&bench.spec("nap-1", &["serve", "$PORT"]));
    bench.suspend("nap-1");
    let family = bench.marked("fork-1");
    bench.kill_agent();
    assert_eq!(weal_node::stop_all(bench.state()).unwrap(), Vec::<String>::new());
    assert!(family.iter().chain(&nap.pid).all(|pid| !is_alive(*pid)));
    assert_eq!(fs::read_dir(bench.state().join("node/instances")).unwrap().count(), 0);
}

pub fn an_instance_whose_record_cannot_be_read_is_ended(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["forks", "$PORT"])).pid.unwrap();
    let shim = shim_of(bench, "web-1");
    bench.kill_agent();
    fs::write(bench.dir("web-1").join("spec.json"), "").unwrap();
    bench.start_agent();
    wait_for("its end", || (!is_alive(web) && !is_alive(shim) && !bench.dir("web-1").exists()).then_some(()));
    assert_eq!(bench.marked("web-1"), Vec::<u32>::new());
    assert!(bench.instance("web-1").is_none());
}

pub fn an_instance_whose_record_was_removed_while_no_agent_lived_is_ended(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["forks", "$PORT"])).pid.unwrap();
    let kept = bench.start_ready(&bench.spec("web-2", &["serve", "$PORT"])).pid.unwrap();
    let shim = shim_of(bench, "web-1");
    bench.kill_agent();
    fs::remove_dir_all(bench.dir("web-1")).unwrap();
    bench.start_agent();
    wait_for("its end", || (!is_alive(web) && !is_alive(shim) && !bench.dir("web-1").exists()).then_some(()));
    assert_eq!(bench.marked("web-1"), Vec::<u32>::new());
    assert!(bench.instance("web-1").is_none());
    assert!(is_alive(kept), "its neighbour runs on");
}

pub fn an_agent_that_ends_writes_down_again_what_was_removed(bench: &Bench) {
    let pids = ["web-1", "web-2"].map(|name| bench.start_ready(&bench.spec(name, &["serve", "$PORT"])).pid.unwrap());
    // Not all of it: a folder is taken away file by file, and who takes it away may be held up.
    fs::remove_dir_all(bench.dir("web-1")).unwrap();
    bench.end_agent();
    assert!(bench.dir("web-1").join("spec.json").exists());
    bench.start_agent();
    let shown = ["web-1", "web-2"].map(|name| wait_for("it", || bench.instance(name)?.pid));
    assert_eq!(shown, pids, "the same processes");
}

pub fn an_agent_killed_in_the_middle_of_a_start_leaves_one_instance_or_none(bench: &Bench) {
    // The kill comes at another moment of the start each time; whatever it hits, the next agent has exactly one.
    for round in 0..6 {
        let spec = bench.spec("web-1", &["forks", "$PORT"]);
        let folder = bench.dir("web-1");
        std::thread::scope(|scope| {
            scope.spawn(|| bench.start_and_ignore(&spec));
            wait_for("the folder", || folder.join("spec.json").exists().then_some(()));
            (0..round * 40_000).for_each(|_| std::hint::spin_loop());
            bench.kill_agent();
        });
        bench.start_agent();
        let web = bench.wait_state("web-1", InstanceState::Ready);
        let family = wait_for("the children", || Some(bench.marked("web-1")).filter(|pids| pids.len() >= 4));
        assert_eq!(family.len(), 4, "round {round}: main process {:?} and its three children, but {family:?}", web.pid);
        bench.kill_agent();
        assert_eq!(weal_node::stop_all(bench.state()).unwrap(), Vec::<String>::new());
        assert!(bench.marked("web-1").is_empty(), "round {round}: {:?}", bench.marked("web-1"));
        bench.start_agent();
    }
}

pub fn what_a_removed_state_folder_leaves_is_ended_with_its_groups(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"])).pid.unwrap();
    let groups: Vec<_> = groups_of(web).into_iter().filter(|group| group.ends_with("web-1")).collect();
    assert_eq!(groups.is_empty(), bench.kind() == "none", "{groups:?}");
    bench.kill_agent();
    fs::remove_dir_all(bench.state().join("node")).unwrap();
    assert_eq!(weal_node::stop_all(bench.state()).unwrap(), Vec::<String>::new(), "no record tells of anything");
    assert_eq!(weal_node::end_strays(bench.state()).unwrap().left, []);
    assert!(!is_alive(web));
    // Of the pool, its node and the instance.
    let left: Vec<_> = groups.iter().flat_map(|group| group.ancestors().take(3)).filter(|group| group.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The directories of a process' control groups.
fn groups_of(pid: u32) -> Vec<PathBuf> {
    assert!(is_alive(pid), "who has ended is in no group");
    let proc = weal_host::Proc::system();
    proc.group_directories(pid, &proc.cgroup_mounts(std::process::id()))
}
