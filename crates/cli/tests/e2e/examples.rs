//! The examples as they run: each instance in the strict sandbox, and none as root.

use std::path::{Path, PathBuf};

use crate::identity::values;
use crate::pool::{Pool, demo_program};

/// Asserts it of all instances that have a process, of which there have to be so many at least. Skips a pool that cannot give users.
pub fn assert_confined(pool: &Pool, at_least: usize) {
    if !rustix::process::geteuid().is_root() {
        weal_testing::skip("only root's pools give their applications users of their own");
        return;
    }
    let status = pool.status().unwrap();
    let apps = status["apps"].as_array().unwrap();
    let instances = apps.iter().flat_map(|app| app["instances"].as_array().unwrap());
    let pids: Vec<(String, u64)> =
        instances.filter_map(|one| Some((one["id"].as_str()?.to_owned(), one["pid"].as_u64()?))).collect();
    assert!(pids.len() >= at_least, "{pids:?}");
    for (instance, pid) in pids {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert_ne!(values(&status, "Uid:")[0], "0", "{instance} runs as root");
        for (name, value) in
            [("CapEff:", "0000000000000000"), ("CapBnd:", "0000000000000000"), ("NoNewPrivs:", "1"), ("Seccomp:", "2")]
        {
            assert_eq!(values(&status, name), [value], "{instance}: {name} {status}");
        }
    }
}

/// The applications of an example, with programs that every user gets to: the pool's addresses are the test's.
fn applications(example: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("examples").join(example);
    let text = std::fs::read_to_string(folder.join("weal.toml")).unwrap();
    let sections = text.split("\n[").filter(|section| !section.starts_with("pool]") && !section.starts_with("tls."));
    let text = sections.collect::<Vec<_>>().join("\n[");
    let programs = ["weal-demo-shop", "weal-demo-search", "weal-demo-feed", "weal-trade"];
    programs.into_iter().filter(|name| text.contains(name)).fold(text.clone(), |text, name| {
        text.replace(&format!("../../target/debug/{name}"), &demo_program(name).display().to_string())
    })
}

fn has_postgres() -> bool {
    let folders = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.map(|folder| folder.path().join("bin/postgres")).any(|program: PathBuf| program.exists())
}

#[test]
fn the_demo_runs_confined_and_without_root() {
    let mut pool = Pool::new(&applications("demo"));
    pool.up();
    assert_confined(&pool, 3);
}

#[test]
fn the_example_of_contention_runs_confined_and_without_root() {
    let mut pool = Pool::new(&applications("contention"));
    pool.up();
    assert_confined(&pool, 4);
}

#[test]
fn the_trade_example_runs_confined_and_without_root() {
    if !rustix::process::geteuid().is_root() || !has_postgres() {
        weal_testing::skip("the trade example needs root and PostgreSQL (Debian package postgresql)");
        return;
    }
    let mut pool = Pool::new(&applications("trade"));
    pool.up();
    assert_confined(&pool, 5);
}
