//! What must hold when a fault is over.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::load::ask;
use super::pool::{Pool, ROLES};

/// How long the pool may take to be whole again. An instance that ended a few times in a row waits for a minute by itself.
const PATIENCE: Duration = Duration::from_secs(75);
const PAUSE: Duration = Duration::from_millis(50);
/// More open files than this in a role or the supervisor are a leak: a pool of two applications needs a tenth.
const MOST_FILES: usize = 300;

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
        broken.extend(living.iter().filter_map(|pid| leak(role, *pid)));
    }
    let instances =
        status["apps"].as_array().into_iter().flatten().flat_map(|app| app["instances"].as_array().into_iter().flatten());
    let shown: BTreeSet<u64> = instances.filter_map(|instance| instance["pid"].as_u64()).collect();
    let real: BTreeSet<u64> = pool.instances().into_iter().map(u64::from).collect();
    if shown != real {
        broken.push(format!("instances {real:?} run, and {shown:?} are shown"));
    }
    broken
}

fn leak(role: &str, pid: u32) -> Option<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    (files > MOST_FILES).then(|| format!("the {role} has {files} files open"))
}
