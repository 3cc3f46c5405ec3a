//! Which instance requests go to, and how they wait, as a config of a real pool says it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::pool::{PATIENCE, Pool, echo_program, kill};

/// An application of `count` instances.
fn app(name: &str, count: u32, more: &str) -> String {
    format!(
        "[app.{name}]\nrun = [\"{}\", \"--port\", \"$PORT\"]\nhealth = \"/healthz\"\nmemory = \"64MiB\"\n\
         instances = {count}\nroutes = [{{ host = \"{name}.localhost\", class = \"gold\" }}]\n{more}\n",
        echo_program().display()
    )
}

/// The head and the body of an answer over a connection of its own.
fn ask(pool: &Pool, host: &str, path: &str, fields: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{fields}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {path}: {answer:?}"));
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    (head.to_owned(), body.to_owned())
}

/// The pid of the instance that answers.
fn pid_of(body: &str) -> i32 {
    body.trim().split(' ').nth(2).unwrap_or_else(|| panic!("{body}")).parse().unwrap()
}

fn wait_for_instances(pool: &Pool, count: usize) {
    pool.eventually("all instances are ready", || {
        let status = pool.status()?;
        let apps = status["apps"].as_array()?;
        let instances = apps.iter().flat_map(|app| app["instances"].as_array().unwrap());
        (instances.filter(|instance| instance["state"] == "ready").count() == count).then_some(())
    });
}

#[test]
fn each_url_keeps_its_instance_and_the_death_of_one_moves_only_its_own() {
    let mut pool = Pool::new(&format!("[class.gold]\n\n{}", app("files", 3, "dispatch = \"url-hash\"\nreplication = 1")));
    pool.up();
    wait_for_instances(&pool, 3);
    let homes = |pool: &Pool| -> BTreeMap<u32, i32> {
        (0..60)
            .map(|number| (number, pid_of(&ask(pool, "files.localhost", &format!("/file/{number}?x={number}"), "").1)))
            .collect()
    };
    let before = pool.eventually("the gateway knows all three", || {
        let seen = homes(&pool);
        let mut pids: Vec<i32> = seen.values().copied().collect();
        pids.sort_unstable();
        pids.dedup();
        (pids.len() == 3).then_some(seen)
    });
    assert_eq!(homes(&pool), before);
    let dead = before[&0];
    kill(dead);
    let after = homes(&pool);
    for (number, home) in &before {
        if *home == dead {
            assert_ne!(after[number], dead, "file {number}");
        } else {
            assert_eq!(after[number], *home, "file {number} stays where it is");
        }
    }
    wait_for_instances(&pool, 3);
    pool.eventually("the instance that was started again has its part back", || {
        let again = homes(&pool);
        let kept = before.iter().all(|(number, home)| *home == dead || again[number] == *home);
        assert!(kept, "only what was moved comes back");
        (before.iter().filter(|(_, home)| **home == dead).all(|(number, _)| again[number] != after[number])).then_some(())
    });
}

#[test]
fn a_session_stays_with_its_instance_and_goes_on_when_that_dies() {
    let mut pool = Pool::new(&format!("[class.gold]\n\n{}", app("shop", 2, "affinity = \"shop-at\"")));
    pool.up();
    wait_for_instances(&pool, 2);
    let cookie = |head: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix("set-cookie: shop-at="));
        line.and_then(|line| line.split(';').next()).map(str::to_owned)
    };
    let (head, body) = ask(&pool, "shop.localhost", "/", "");
    let (token, home) = (cookie(&head).expect("a cookie"), pid_of(&body));
    for _ in 0..20 {
        let (head, body) = ask(&pool, "shop.localhost", "/", &format!("cookie: shop-at={token}\r\n"));
        assert_eq!((pid_of(&body), cookie(&head)), (home, None));
    }
    pool.kill_role("gateway");
    let (head, body) = ask(&pool, "shop.localhost", "/", &format!("cookie: shop-at={token}\r\n"));
    assert_eq!((pid_of(&body), cookie(&head)), (home, None), "cookies outlive the gateway");
    kill(home);
    let (head, body) = ask(&pool, "shop.localhost", "/", &format!("cookie: shop-at={token}\r\n"));
    let (moved, other) = (cookie(&head).expect("a cookie for there"), pid_of(&body));
    assert_ne!(other, home);
    let (head, body) = ask(&pool, "shop.localhost", "/", &format!("cookie: shop-at={moved}\r\n"));
    assert_eq!((pid_of(&body), cookie(&head)), (other, None));
}

#[test]
fn a_rate_limit_of_a_class_holds_and_can_be_lifted_while_requests_wait() {
    let limited = |limit: &str| format!("[class.gold]\n{limit}\n\n{}", app("shop", 1, ""));
    let mut pool = Pool::new(&limited("rate-limit = \"20/s\""));
    pool.up();
    let time = |pool: &Pool, count: u32| {
        let begun = Instant::now();
        (0..count).for_each(|_| drop(ask(pool, "shop.localhost", "/", "")));
        begun.elapsed()
    };
    time(&pool, 1);
    assert!(time(&pool, 30) >= Duration::from_millis(1400), "thirty at twenty a second");
    pool.write(&limited(""));
    let applied = pool.run(&["apply"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    pool.eventually("the limit is lifted", || (time(&pool, 30) < Duration::from_millis(1000)).then_some(()));
}
