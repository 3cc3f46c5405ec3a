//! Queues and seats: how many requests are at an instance at once, and what becomes of the others.

use std::sync::atomic::Ordering;

use weal_model::Crowd;
use weal_protocol::gateway::{REFUSED, RefusedQuery};

use crate::bed::*;

#[tokio::test(flavor = "multi_thread")]
async fn no_more_requests_are_outstanding_than_there_are_seats_and_all_are_answered() {
    let gate = gate().await;
    let mut limited = cluster(&[gate.address]);
    limited.seats = Some(3);
    limited.flows.insert("gold".into(), flow(1.0, 1000));
    let bed = Bed::start(vec![limited]).await;
    let mut clients = Vec::new();
    for _ in 0..60 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        clients.push(client);
    }
    bed.until("all have arrived", |counters| counters.flows[0].queued == 57 && counters.flows[0].in_service == 3).await;
    gate.permits.add_permits(60);
    for client in &mut clients {
        assert_eq!(client.read_answer().await.status, 200);
    }
    assert_eq!(gate.most_inside.load(Ordering::SeqCst), 3);
    let counters = bed.until("all are counted", |counters| counters.flows[0].completions == 60).await;
    let flow = &counters.flows[0];
    assert_eq!((flow.arrivals, flow.rejections, flow.errors, flow.queued, flow.in_service), (60, 0, 0, 0, 0));
    assert_eq!((flow.service_time.count(), flow.response_time.count()), (60, 60));
    assert!(flow.queue_integral_s > 0.0 && flow.in_service_integral_s > 0.0);
    assert_eq!((counters.instances[0].completions, counters.instances[0].in_flight), (60, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_answers_503_with_retry_after() {
    let gate = gate().await;
    let mut limited = cluster(&[gate.address]);
    limited.seats = Some(1);
    limited.flows.insert("gold".into(), flow(1.0, 1));
    let bed = Bed::start(vec![limited]).await;
    let mut held = Vec::new();
    for expected in 1..=2 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        bed.until("it has arrived", |counters| counters.flows[0].arrivals == expected).await;
        held.push(client);
    }
    let answer = bed.get("x", "/").await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!(answer.text(), "the queue is full: try again later\n");
    assert_eq!(answer.header("x-weal-reason"), Some("queue-full"));
    let id = answer.header("x-request-id").map(str::to_owned);
    let refused = bed.rpc.call(REFUSED, &RefusedQuery { id, limit: 9, ..RefusedQuery::default() }).await.unwrap();
    let crowd = Crowd { queued: 1, queue_limit: 1, in_service: 1, seats: Some(1), any_open: true };
    assert_eq!((refused.len(), refused[0].reason.as_str(), refused[0].crowd), (1, "queue-full", Some(crowd)));
    assert_eq!(refused[0].class.as_ref().map(weal_model::ClassName::as_str), Some("gold"));
    gate.permits.add_permits(2);
    for client in &mut held {
        assert_eq!(client.read_answer().await.status, 200);
    }
    assert_eq!(bed.flow("gold").await.rejections, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_the_first_instance_and_are_rejected_when_none_comes() {
    let mut empty = cluster(&[]);
    empty.request_timeout_s = 0.2;
    let bed = Bed::start(vec![empty.clone()]).await;
    let answer = bed.get("x", "/").await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert!(answer.text().starts_with("no instance was ready within 0.2 s"), "{}", answer.text());
    empty.request_timeout_s = 20.0;
    bed.configure(vec![empty]).await.unwrap();
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it waits", |counters| counters.flows[0].queued == 1).await;
    bed.configure(vec![cluster(&[named("late").await])]).await.unwrap();
    assert_eq!(client.read_answer().await.text(), "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_classes_are_released_in_proportion_to_their_weights() {
    let gate = gate().await;
    let mut limited = cluster(&[gate.address]);
    limited.seats = Some(1);
    limited.routes = vec![route("gold", None, Some("/gold")), route("bronze", None, Some("/bronze"))];
    limited.flows = [("gold".into(), flow(3.0, 100)), ("bronze".into(), flow(1.0, 100))].into();
    let bed = Bed::start(vec![limited]).await;
    let mut clients = Vec::new();
    for (count, path) in [(20, "/gold"), (20, "/bronze")] {
        for _ in 0..count {
            let mut client = bed.connect().await;
            client.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
            clients.push(client);
        }
    }
    bed.until("all have arrived", |counters| counters.flows.iter().map(|flow| flow.arrivals).sum::<u64>() == 40).await;
    gate.permits.add_permits(16);
    let done =
        |counters: &weal_protocol::gateway::GatewayCounters| counters.flows.iter().map(|flow| flow.completions).sum::<u64>();
    bed.until("sixteen are done", |counters| done(counters) == 16).await;
    let (gold, bronze) = (bed.flow("gold").await.completions, bed.flow("bronze").await.completions);
    assert!((11..=13).contains(&gold), "gold {gold}, bronze {bronze}");
    gate.permits.add_permits(24);
    for client in &mut clients {
        assert_eq!(client.read_answer().await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_is_held_to_the_end_of_the_response() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (go, gone) = tokio::sync::watch::channel(false);
    let address = raw_instance(move |mut stream| {
        let mut gone = gone.clone();
        async move {
            let mut buffer = [0; 4096];
            while stream.read(&mut buffer).await.unwrap_or(0) > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst").await.unwrap();
                gone.wait_for(|go| *go).await.unwrap();
                stream.write_all(b"-last").await.unwrap();
            }
        }
    })
    .await;
    let mut limited = cluster(&[address]);
    limited.seats = Some(1);
    let bed = Bed::start(vec![limited]).await;
    let mut first = bed.connect().await;
    first.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    first.read_until("first").await;
    let mut second = bed.connect().await;
    second.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let counters = bed.until("the second waits", |counters| counters.flows[0].queued == 1).await;
    assert_eq!(counters.flows[0].in_service, 1);
    go.send(true).unwrap();
    first.read_until("-last").await;
    assert_eq!(second.read_answer().await.text(), "first-last");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_gives_its_seat_back() {
    let gate = gate().await;
    let mut limited = cluster(&[gate.address]);
    limited.seats = Some(1);
    let bed = Bed::start(vec![limited]).await;
    let mut leaving = bed.connect().await;
    leaving.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it is outstanding", |counters| counters.flows[0].in_service == 1).await;
    socket2_linger_zero(&leaving.stream);
    drop(leaving);
    bed.until("its seat is free", |counters| counters.flows[0].in_service == 0 && counters.flows[0].errors == 1).await;
    gate.permits.add_permits(1);
    assert_eq!(bed.get("x", "/").await.status, 200);
}

/// Makes the next close a reset, which cannot be taken for a client that only has nothing more to say.
fn socket2_linger_zero(stream: &tokio::net::TcpStream) {
    #[expect(deprecated, reason = "its warning is about blocking on close, which a zero never does")]
    stream.set_linger(Some(std::time::Duration::ZERO)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn load_follows_the_weights_and_a_draining_instance_gets_nothing() {
    let gates = [gate().await, gate().await, gate().await];
    let mut weighted = cluster(&gates.each_ref().map(|gate| gate.address));
    weighted.endpoints[0].weight = 3.0;
    weighted.endpoints[2].draining = true;
    let bed = Bed::start(vec![weighted]).await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        clients.push(client);
    }
    let counters = bed.until("all are outstanding", |counters| counters.flows[0].in_service == 16).await;
    let in_flight: Vec<u32> = counters.instances.iter().map(|instance| instance.in_flight).collect();
    assert_eq!(in_flight, [12, 4, 0]);
    gates.iter().for_each(|gate| gate.permits.add_permits(16));
    for client in &mut clients {
        assert_eq!(client.read_answer().await.status, 200);
    }
}
