//! Who listens in the place of an instance, and what becomes of one that does not listen any more.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use weal_host::Proc;
use weal_model::InstanceState;

use crate::bench::{Bench, PATIENCE, get, is_alive, wait_for};

/// Has the instance at `address` close its listener. It runs on.
fn deafen(address: SocketAddr) {
    // It may be gone before its answer has come.
    let _ = get(address, "/deafen", PATIENCE);
}

/// Listens at `address` once it is free, and answers all that it is asked with 200.
fn stranger_at(address: SocketAddr) {
    let listener = wait_for("the port to be free", || TcpListener::bind(address).ok());
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut question = [0; 4096];
            let _ = client.read(&mut question);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
}

pub fn a_stranger_in_the_place_of_one_that_serves_is_noticed_at_the_next_health_check(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    // It must not be noticed by a check that falls into the moment without anybody.
    spec.health.failures = 1000;
    let first = bench.start_ready(&spec);
    deafen(first.address);
    stranger_at(first.address);
    // All health checks succeed: the stranger answers them.
    bench.said(0, &format!("port {} is held by ", first.address.port()));
    let second = wait_for("another process", || {
        bench.instance("web-1").filter(|one| one.state == InstanceState::Ready && one.pid != first.pid)
    });
    assert!(!is_alive(first.pid.unwrap()), "{second:?}");
    assert_ne!(second.address, first.address, "it has another port, which is its own");
}

pub fn a_stranger_that_takes_datagrams_in_the_place_of_one_is_noticed_where_some_are_sent(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    let unasked = bench.start_ready(&bench.spec("other-1", &["serve", "$PORT"]));
    spec.datagrams = true;
    let first = bench.start_ready(&spec);
    let _unnoticed = UdpSocket::bind(unasked.address).unwrap();
    let _stranger = UdpSocket::bind(first.address).unwrap();
    bench.said(0, &format!("port {} is held by ", first.address.port()));
    let second = wait_for("another process", || {
        bench.instance("web-1").filter(|one| one.state == InstanceState::Ready && one.pid != first.pid)
    });
    assert_ne!(second.address, first.address, "it has another port, at which nobody takes datagrams");
    assert_eq!(bench.instance("other-1").unwrap().pid, unasked.pid, "nobody sends datagrams there");
}

pub fn one_that_closes_its_listener_is_replaced_and_each_time_later(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.health.interval_s = 0.1;
    (spec.health.failures, spec.health.replace_after) = (2, 4);
    let mut last = bench.start_ready(&spec);
    let mut pauses = Vec::new();
    for round in 1..=3 {
        deafen(last.address);
        let told = format!("replaced after {} failed health checks in a row: ", spec.health.replace_after);
        let pause = wait_for("the pause", || {
            let ends = bench.events(0).into_iter().filter(|event| event.detail.starts_with(&told));
            let ends: Vec<String> = ends.map(|event| event.detail).collect();
            (ends.len() == round).then(|| ends[round - 1].clone())
        });
        pauses.push(pause_of(&pause));
        let next = wait_for("another process", || {
            bench.instance("web-1").filter(|one| one.state == InstanceState::Ready && one.pid != last.pid)
        });
        assert!(!is_alive(last.pid.unwrap()) && next.restarts == round as u32, "{next:?}");
        last = next;
    }
    assert!(pauses.windows(2).all(|pair| pair[0] < pair[1]), "it backs off as after a crash: {pauses:?}");
}

/// "…; starts again in 0.8 s".
fn pause_of(detail: &str) -> Duration {
    let seconds = detail.rsplit_once("starts again in ").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or_else(|| panic!("it says no pause: {detail}")))
}

pub fn an_instance_has_256_processes_at_most_and_its_user_is_told(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"]));
    let (proc, pid) = (Proc::system(), web.pid.unwrap());
    assert_eq!(web.listener, proc.users(pid).first().copied(), "the user of the socket at its port");
    if bench.kind() == "none" {
        return;
    }
    let (mounts, groups) = (proc.cgroup_mounts(pid), proc.cgroups(pid).unwrap());
    let limit = |mount: &weal_host::cgroup::Mount| {
        let group = mount.path_of(groups.in_mount(mount)?);
        std::fs::read_to_string(group.join("pids.max")).ok()
    };
    let found: Vec<String> = mounts.iter().filter_map(limit).collect();
    if found.is_empty() {
        return weal_testing::skip("there is no pids controller here");
    }
    assert!(found.iter().any(|limit| limit.trim() == "256"), "{found:?}");
}
