//! Which instance requests go to, and how they wait, as a config of a real pool says it.

use std::collections::{BTreeMap, BTreeSet};
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
    stream.set_read_timeout(Some(*PATIENCE)).unwrap();
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
            .map(|number| (number, pid_of(&ask(pool, "files.localhost", &format!("/page/{number}?x={number}"), "").1)))
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
fn urls_that_differ_in_their_query_are_different_ones_where_the_config_says_so() {
    let rules =
        |more: &str| format!("[class.gold]\n\n{}", app("files", 3, &format!("dispatch = \"url-hash\"\nreplication = 1\n{more}")));
    let mut pool = Pool::new(&rules("hash-query = true"));
    pool.up();
    wait_for_instances(&pool, 3);
    let homes = |pool: &Pool| -> Vec<i32> {
        (0..40).map(|number| pid_of(&ask(pool, "files.localhost", &format!("/page?item={number}"), "").1)).collect()
    };
    let before = pool.eventually("the queries of one path go to all three", || {
        let seen = homes(&pool);
        let instances: BTreeSet<i32> = seen.iter().copied().collect();
        (instances.len() == 3).then_some(seen)
    });
    assert_eq!(homes(&pool), before, "each to its own");
    pool.write(&rules(""));
    assert!(pool.run(&["apply"]).status.success());
    pool.eventually("without the key the path alone counts", || {
        let instances: BTreeSet<i32> = homes(&pool).into_iter().collect();
        (instances.len() == 1).then_some(())
    });
}

/// Where each of these files is served, one after the other.
fn homes_of(pool: &Pool, files: std::ops::Range<u32>) -> BTreeMap<u32, i32> {
    files.map(|number| (number, pid_of(&ask(pool, "files.localhost", &format!("/file-{number}"), "").1))).collect()
}

#[test]
fn under_lard_a_url_stays_where_it_was_served_first_also_when_an_instance_that_died_is_back() {
    let mut pool = Pool::new(&format!("[class.gold]\n\n{}", app("files", 3, "dispatch = \"lard\"")));
    pool.up();
    wait_for_instances(&pool, 3);
    // Each try has names of its own: the table keeps what it has seen before it knew all instances.
    let mut next = 0;
    let (names, before) = pool.eventually("files are spread over all three", || {
        let names = next..next + 30;
        next += 30;
        let seen = homes_of(&pool, names.clone());
        let instances: BTreeSet<i32> = seen.values().copied().collect();
        (instances.len() == 3).then_some((names, seen))
    });
    for _ in 0..3 {
        assert_eq!(homes_of(&pool, names.clone()), before);
    }
    let dead = *before.values().next().unwrap();
    kill(dead);
    let moved = homes_of(&pool, names.clone());
    for (name, home) in &before {
        assert_eq!(*home == dead, moved[name] != *home, "file {name} moves if its instance died");
    }
    wait_for_instances(&pool, 3);
    pool.eventually("the instance that was started again serves what is new", || {
        let seen = homes_of(&pool, next..next + 12);
        next += 12;
        seen.values().any(|home| !moved.values().any(|known| known == home)).then_some(())
    });
    assert_eq!(homes_of(&pool, names), moved, "its memory is empty: nothing comes back to it");
}

#[test]
fn under_lard_r_a_hot_url_is_served_by_several_and_others_by_one() {
    const CROWD: usize = 300;
    let rules = "dispatch = \"lard-r\"\nreplication = 2\nqueue-limit = 1000";
    let mut pool = Pool::new(&format!("[class.gold]\n\n{}", app("files", 3, rules)));
    pool.up();
    wait_for_instances(&pool, 3);
    let hot = |pool: &Pool| -> BTreeSet<i32> {
        let clients: Vec<TcpStream> = (0..CROWD)
            .map(|_| {
                let mut stream = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
                stream.set_read_timeout(Some(*PATIENCE)).unwrap();
                stream.write_all(b"GET /slow/200 HTTP/1.1\r\nhost: files.localhost\r\nconnection: close\r\n\r\n").unwrap();
                stream
            })
            .collect();
        let read = |mut stream: TcpStream| {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            pid_of(answer.split_once("\r\n\r\n").unwrap().1)
        };
        clients.into_iter().map(read).collect()
    };
    pool.eventually("a crowd is too much for one", || Some(hot(&pool)).filter(|serving| serving.len() > 1));
    assert_eq!(homes_of(&pool, 0..20), homes_of(&pool, 0..20), "without a crowd each has one");
}

#[test]
fn a_download_goes_on_from_another_instance_when_its_own_is_killed() {
    const BYTES: usize = 400_000;
    let mut pool = Pool::new(&format!("[class.gold]\n\n{}", app("files", 2, "")));
    pool.up();
    wait_for_instances(&pool, 2);
    let mut stream = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
    stream.set_read_timeout(Some(*PATIENCE)).unwrap();
    write!(stream, "GET /file/{BYTES}/stuck HTTP/1.1\r\nhost: files.localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = vec![0; BYTES / 4];
    stream.read_exact(&mut answer).unwrap();
    let head = String::from_utf8_lossy(&answer).into_owned();
    let serving = head.lines().find_map(|line| line.strip_prefix("x-pid: ")).unwrap_or_else(|| panic!("{head}"));
    kill(serving.parse().unwrap());
    stream.read_to_end(&mut answer).unwrap();
    let body = answer.windows(4).position(|window| window == b"\r\n\r\n").map(|end| &answer[end + 4..]).unwrap();
    let is_right = body.iter().enumerate().all(|(at, &byte)| usize::from(byte) == at % 251);
    assert!(body.len() == BYTES && is_right, "{} bytes of {BYTES}", body.len());
    assert!(head.starts_with("HTTP/1.1 200"), "one answer, and the client saw nothing: {head}");
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
