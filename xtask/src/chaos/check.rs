//! What must hold when a fault is over.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weal_host::Proc;
use weal_host::cgroup::Group;

use super::load::ask;
use super::pool::{Pool, ROLES, command_line, groups};

/// How long the pool may take to be whole again. An instance that ended a few times in a row waits for a minute by itself.
const PATIENCE: Duration = Duration::from_secs(75);
const PAUSE: Duration = Duration::from_millis(50);
/// More open files than this in a role or the supervisor are a leak: a pool of two applications needs a tenth.
const MOST_FILES: usize = 300;
/// More memory than this in one of them is a leak too: a build without optimisation needs a fifth.
const MOST_MEMORY: u64 = 256 << 20;
/// More files than this in the state directory are a leak: the pool needs a tenth, and what was damaged is set aside again and again.
const MOST_STATE_FILES: usize = 1000;

/// Waits until everything holds. Returns what still does not.
pub fn until_whole(pool: &Pool) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let broken = broken(pool);
        if broken.is_empty() || Instant::now() >= deadline {
            return broken;
        }
        std::thread::sleep(PAUSE);
    }
}

/// What does not hold now.
fn broken(pool: &Pool) -> Vec<String> {
    let Some(status) = pool.status() else { return vec!["weal status gives no answer".to_owned()] };
    let mut broken = Vec::new();
    broken.extend(apps(&status));
    broken.extend(processes(pool, &status));
    broken.extend(leaks(pool));
    broken.extend(
        ["front", "back"]
            .into_iter()
            .filter_map(|app| ask(pool.listen(), app).err().map(|why| format!("{app} does not answer: {why}"))),
    );
    broken
}

fn apps(status: &Value) -> Vec<String> {
    let apps = status["apps"].as_array().into_iter().flatten();
    let not_ready =
        apps.filter(|app| app["state"] != "ready").map(|app| format!("{} is {}: {}", app["name"], app["state"], app["detail"]));
    let problems = status["problems"].as_array().into_iter().flatten().map(|problem| format!("a problem is shown: {problem}"));
    let refused = status["config_error"].as_str().map(|error| format!("a refused config is shown: {error}"));
    not_ready.chain(problems).chain(refused).collect()
}

/// Each role once, the record as it is, and the processes that run as those that are shown.
fn processes(pool: &Pool, status: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    for role in ROLES {
        let (living, recorded) = (pool.roles(role), pool.recorded(role));
        if living.len() != 1 || recorded != living.first().copied() {
            broken.push(format!("{role}: processes {living:?}, recorded {recorded:?}"));
        }
    }
    let instances =
        status["apps"].as_array().into_iter().flatten().flat_map(|app| app["instances"].as_array().into_iter().flatten());
    let shown: BTreeSet<u64> = instances.filter_map(|instance| instance["pid"].as_u64()).collect();
    let real: BTreeSet<u64> = pool.instances().into_iter().map(u64::from).collect();
    if shown != real {
        broken.push(format!("instances {real:?} run, and {shown:?} are shown"));
    }
    let shims = pool.shims().len();
    if shims != real.len() {
        broken.push(format!("{shims} shims run for {} instances", real.len()));
    }
    broken
}

/// What there is more of than the pool needs: open files, memory, files, control groups.
fn leaks(pool: &Pool) -> Vec<String> {
    let mut leaks: Vec<String> = pool.own_processes().into_iter().chain(pool.shims()).flat_map(leaks_of_process).collect();
    let files = files_below(&pool.state());
    if files > MOST_STATE_FILES {
        leaks.push(format!("the state directory has {files} files"));
    }
    let groups = pool.roles("node").into_iter().flat_map(instance_groups);
    let empty = groups.filter(|group| group.processes().is_empty());
    leaks.extend(empty.map(|group| format!("no process is left in {}", group.path().display())));
    leaks
}

fn leaks_of_process(pid: u32) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let memory = Proc::system().resident(pid).unwrap_or_default();
    let mut leaks = Vec::new();
    if files > MOST_FILES {
        leaks.push(format!("{} has {files} files open", command_line(pid)));
    }
    if memory > MOST_MEMORY {
        leaks.push(format!("{} has {} MiB of memory", command_line(pid), memory >> 20));
    }
    leaks
}

fn files_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.file_type().is_ok_and(|kind| kind.is_dir()) { files_below(&entry.path()) } else { 1 }).sum()
}

/// The control groups of instances, of the pool whose node agent is `agent`: those of its nodes, which lie beside the group of its roles.
fn instance_groups(agent: u32) -> Vec<Group> {
    // The groups of weal's own processes begin with a dot.
    let is_node = |group: &Group| group.path().file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."));
    groups(agent).iter().flat_map(Group::children).filter(is_node).flat_map(|node| node.children()).collect()
}
