//! What a class says of how its requests wait, on a real pool. A rate of one request in many seconds keeps them waiting for as long as a test
//! needs, whatever the machine does.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::load::get;
use crate::pool::{PATIENCE, Pool, echo_program, text};

fn shop(class: &str, more: &str) -> String {
    format!(
        "[class.gold]\n{class}\n\n[app.shop]\nrun = [\"{}\", \"--port\", \"$PORT\"]\nhealth = \"/healthz\"\nmemory = \"64MiB\"\n\
         instances = 1\nroutes = [{{ host = \"shop.localhost\", class = \"gold\" }}]\n{more}\n",
        echo_program().display()
    )
}

/// A request that nobody waits for yet.
fn send(pool: &Pool, path: &str, fields: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
    stream.set_read_timeout(Some(*PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: shop.localhost\r\nconnection: close\r\n{fields}\r\n").unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn apply(pool: &Pool, apps: &str) {
    pool.write(apps);
    let applied = pool.run(&["apply"]);
    assert!(applied.status.success(), "{}", text(&applied.stderr));
}

#[test]
fn a_request_that_can_no_longer_meet_its_goal_is_refused_where_the_class_says_so() {
    let class = |late: &str| format!("goal = \"p95 < 300ms\"\nrate-limit = \"0.02/s\"\n{late}");
    let mut pool = Pool::new(&shop(&class("late = \"drop\""), ""));
    pool.up();
    // The first one takes what the rate allows; of those that health checks or earlier tries left nothing is known.
    let refused = pool.eventually("a late request is refused", || {
        let (status, answer) = get(pool.listen, "shop.localhost", "/").ok()?;
        (status == 503).then_some(answer)
    });
    assert!(refused.contains("x-weal-reason: late") && refused.contains("retry-after: "), "{refused}");
    let listed = text(&pool.run(&["why", "shop", "--rejected"]).stdout);
    assert!(listed.contains("late (503)"), "{listed}");

    // With `serve`, the default, the same one waits as long as it takes.
    apply(&pool, &shop(&class(""), ""));
    let waiting = send(&pool, "/", "");
    pool.eventually("it waits beyond its goal", || {
        let status = pool.status()?;
        let flow = status["flows"].as_array()?.iter().find(|flow| flow["class"] == "gold")?.clone();
        (flow["queue_mean"].as_f64()? > 0.9).then_some(())
    });
    apply(&pool, &shop("goal = \"p95 < 300ms\"", ""));
    assert!(answer(waiting).starts_with("HTTP/1.1 200"), "it was not dropped");
}

#[test]
fn a_request_of_a_session_goes_before_newcomers_and_takes_the_place_of_the_newest() {
    let class = "rate-limit = \"0.02/s\"\nsession-cookie = \"JSESSIONID\"";
    let mut pool = Pool::new(&shop(class, "queue-limit = 1"));
    pool.up();
    assert_eq!(get(pool.listen, "shop.localhost", "/").unwrap().0, 200, "the rate lets one through");
    let newcomer = send(&pool, "/", "cookie: theme=dark\r\n");
    pool.eventually("it waits", || {
        let status = pool.status()?;
        let flow = status["flows"].as_array()?.iter().find(|flow| flow["class"] == "gold")?.clone();
        (flow["queue_mean"].as_f64()? > 0.0).then_some(())
    });
    let other = answer(send(&pool, "/", ""));
    assert!(other.starts_with("HTTP/1.1 503") && other.contains("x-weal-reason: queue-full"), "{other}");
    let session = send(&pool, "/", "cookie: theme=dark; JSESSIONID=4711\r\n");
    let displaced = answer(newcomer);
    assert!(displaced.starts_with("HTTP/1.1 503") && displaced.contains("x-weal-reason: displaced"), "{displaced}");
    let listed = text(&pool.run(&["why", "shop", "--rejected"]).stdout);
    assert!(listed.contains("displaced (503)"), "{listed}");
    apply(&pool, &shop("session-cookie = \"JSESSIONID\"", "queue-limit = 1"));
    assert!(answer(session).starts_with("HTTP/1.1 200"), "the session goes on");
}
