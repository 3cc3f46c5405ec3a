//! What a service class says of how its requests wait: late ones, rates, sessions under way, seats that hang.

use std::time::{Duration, Instant};

use weal_model::{ClassName, FlowPolicy};
use weal_protocol::gateway::{ClusterConfig, FlowConfig};

use crate::bed::*;

fn limited(address: std::net::SocketAddr, seats: u32, queue_limit: u32, policy: FlowPolicy) -> ClusterConfig {
    let mut limited = cluster(&[address]);
    limited.seats = Some(seats);
    limited.flows.insert("gold".into(), FlowConfig { policy, ..flow(1.0, queue_limit) });
    limited
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_client_has_gone_leaves_the_queue_at_once() {
    let gate = gate().await;
    let bed = Bed::start(vec![limited(gate.address, 1, 9, FlowPolicy::default())]).await;
    let mut clients = Vec::new();
    for arrived in 1..=3 {
        let mut client = bed.connect().await;
        client.send(&format!("GET /{arrived} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        bed.until("it has arrived", |counters| counters.flows[0].arrivals == arrived).await;
        clients.push(client);
    }
    // A plain close, as of a browser whose user went elsewhere.
    drop(clients.remove(1));
    bed.until("it waits no longer", |counters| counters.flows[0].queued == 1 && counters.flows[0].errors == 1).await;
    gate.permits.add_permits(1);
    assert_eq!(clients[0].read_answer().await.text(), "/1");
    gate.permits.add_permits(1);
    assert_eq!(clients[1].read_answer().await.text(), "/3", "no seat was spent on the one that left");
    assert_eq!(gate.permits.available_permits(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_too_late_for_its_goal_is_refused_before_it_gets_a_seat() {
    let gate = gate().await;
    let policy = FlowPolicy { drop_after_s: Some(0.3), rate_limit_per_s: None };
    let bed = Bed::start(vec![limited(gate.address, 1, 9, policy)]).await;
    let mut first = bed.connect().await;
    first.send("GET /first HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it has the seat", |counters| counters.flows[0].in_service == 1).await;
    let begun = Instant::now();
    let late = bed.get("x", "/late").await;
    assert_eq!((late.status, late.header("x-weal-reason"), late.header("retry-after")), (503, Some("late"), Some("1")));
    assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
    gate.permits.add_permits(1);
    assert_eq!(first.read_answer().await.status, 200);
    let flow = bed.flow("gold").await;
    assert_eq!((flow.late, flow.rejections, flow.completions), (1, 1, 1));
    gate.permits.add_permits(1);
    assert_eq!(bed.get("x", "/next").await.status, 200, "a free seat is never refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_lets_so_many_through_and_the_others_wait() {
    let address = named("a").await;
    let policy = FlowPolicy { drop_after_s: None, rate_limit_per_s: Some(50.0) };
    let mut config = limited(address, 100, 1000, policy);
    config.routes.push(route("free", None, Some("/free")));
    config.flows.insert("free".into(), flow(1.0, 100));
    let bed = Bed::start(vec![config]).await;
    let begun = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..51 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        clients.push(client);
    }
    assert_eq!(bed.get("x", "/free").await.status, 200, "others are not held up");
    for client in &mut clients {
        assert_eq!(client.read_answer().await.status, 200);
    }
    // One goes at once, and 50 more take a second at least.
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_under_way_go_before_those_that_begin() {
    let gate = gate().await;
    let mut config = limited(gate.address, 1, 2, FlowPolicy::default());
    config.flows.get_mut(&ClassName::from("gold")).unwrap().session_cookie = Some("JSESSIONID".into());
    let bed = Bed::start(vec![config]).await;
    let ask = async |path: &str, cookie: &str, arrivals: u64| {
        let mut client = bed.connect().await;
        client.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n{cookie}\r\n")).await;
        bed.until("it has arrived", |counters| counters.flows[0].arrivals == arrivals).await;
        client
    };
    let mut busy = ask("/busy", "", 1).await;
    let mut new = ask("/new", "cookie: theme=dark\r\n", 2).await;
    let mut newest = ask("/newest", "", 3).await;
    let mut session = ask("/session", "cookie: a=b; JSESSIONID=4711\r\n", 4).await;
    let displaced = newest.read_answer().await;
    assert_eq!((displaced.status, displaced.header("x-weal-reason")), (503, Some("displaced")));
    gate.permits.add_permits(1);
    assert_eq!(busy.read_answer().await.text(), "/busy");
    gate.permits.add_permits(1);
    assert_eq!(session.read_answer().await.text(), "/session");
    gate.permits.add_permits(1);
    assert_eq!(new.read_answer().await.text(), "/new");
}
