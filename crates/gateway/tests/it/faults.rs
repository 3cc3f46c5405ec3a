//! Instances and clients that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weal_gateway::Limits;
use weal_protocol::gateway::ErrorCounter;

use crate::bed::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_goes_to_another_instance_whatever_the_method() {
    let bed = Bed::start(vec![cluster(&[nobody().await, named("alive").await, nobody().await])]).await;
    for method in ["GET", "POST"] {
        for _ in 0..4 {
            let mut client = bed.connect().await;
            client.send(&format!("{method} / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi")).await;
            assert_eq!(client.read_answer().await.text(), "alive");
        }
    }
    let counters = bed.until("all are counted", |counters| counters.flows[0].completions == 8).await;
    assert!(counters.flows[0].retries >= 1 && counters.flows[0].errors == 0, "{:?}", counters.flows);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_no_instance_takes_a_connection_for_long_the_answer_is_502_and_says_why() {
    let bed = Bed::start(vec![cluster(&[nobody().await])]).await;
    for errors in 1..3 {
        let answer = bed.get("x", "/").await;
        assert_eq!((answer.status, answer.header("x-weal-reason")), (502, Some("instance-refused")));
        assert!(answer.text().starts_with("no connection to the instance: "), "{}", answer.text());
        let counters = bed.observe().await;
        assert_eq!((counters.flows[0].errors, counters.flows[0].in_service, counters.flows[0].queued), (errors, 0, 0));
        let counted = ErrorCounter { app: Some("shop".into()), reason: weal_model::OwnAnswer::InstanceRefused, count: errors };
        assert_eq!(counters.errors, [counted]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_an_instance_that_was_killed_and_are_served_by_the_next_one() {
    let gone = nobody().await;
    let bed = Bed::start(vec![cluster(&[gone])]).await;
    let mut waiting = Vec::new();
    for method in ["GET", "POST", "GET", "POST"] {
        let mut client = bed.connect().await;
        client.send(&format!("{method} / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi")).await;
        waiting.push(client);
    }
    bed.until("all wait and one was refused", |counters| {
        counters.flows[0].queued + counters.flows[0].in_service == 4 && counters.instances[0].failures > 0
    })
    .await;
    bed.configure(vec![cluster(&[])]).await.unwrap();
    bed.until("all wait", |counters| counters.flows[0].queued == 4).await;
    let mut next = cluster(&[named("next").await]);
    next.endpoints[0].instance = "shop-9".into();
    bed.configure(vec![next]).await.unwrap();
    for client in &mut waiting {
        assert_eq!(client.read_answer().await.text(), "next");
    }
    let counters = bed.until("all are counted", |counters| counters.flows[0].completions == 4).await;
    assert_eq!((counters.flows[0].errors, counters.flows[0].rejections), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_an_instance_that_is_started_again_at_its_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it was refused", |counters| counters.instances[0].failures > 0).await;
    let again = tokio::net::TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = again.accept().await.unwrap();
        read_head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nagain").await.unwrap();
        let _ = stream.read(&mut [0; 16]).await;
    });
    assert_eq!(client.read_answer().await.text(), "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_ends_every_instance_it_comes_to_is_not_kept_for_the_next_one() {
    // The first connection is answered once; with any later request, the process ends and another one listens in its place.
    let requests = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&requests);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        read_head(&mut stream).await.unwrap();
        seen.fetch_add(1, Ordering::SeqCst);
        drop(stream);
        // The socket outlives the process, or somebody else might take its port meanwhile.
        while let Ok((mut stream, _)) = listener.accept().await {
            read_head(&mut stream).await;
            seen.fetch_add(1, Ordering::SeqCst);
        }
    });
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    for (status, reason) in [(200, None), (502, Some("instance-broke-off"))] {
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let answer = client.read_answer().await;
        assert_eq!((answer.status, answer.header("x-weal-reason")), (status, reason));
    }
    assert_eq!(requests.load(Ordering::SeqCst), 2, "once over the connection that was kept, and once more");
}

/// Reads a request's head and closes without an answer.
async fn deaf() -> (std::net::SocketAddr, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    let address = raw_instance(move |mut stream| {
        let seen = Arc::clone(&seen);
        async move {
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).await.unwrap_or(0) > 0 {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        }
    })
    .await;
    (address, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_broke_off_is_sent_again_only_if_it_is_idempotent_and_has_no_body() {
    let (address, seen) = deaf().await;
    let mut both = cluster(&[address, named("alive").await]);
    // So that the first is always chosen first.
    both.endpoints[0].weight = 1000.0;
    let bed = Bed::start(vec![both]).await;
    assert_eq!(bed.get("x", "/").await.text(), "alive");
    let mut client = bed.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await;
    let answer = client.read_answer().await;
    assert_eq!(answer.status, 502);
    assert!(answer.text().starts_with("the instance broke off: "), "{}", answer.text());
    assert_eq!(seen.load(Ordering::SeqCst), 2);
    let flow = bed.flow("gold").await;
    assert_eq!((flow.completions, flow.errors, flow.retries), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_that_the_instance_has_closed_is_replaced_without_notice() {
    let connections = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&connections);
    // Answers once per connection, without saying that it will close.
    let address = raw_instance(move |mut stream| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).await.unwrap_or(0) > 0 {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    for _ in 0..20 {
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(client.read_answer().await.status, 200);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 20);
    assert_eq!(bed.flow("gold").await.errors, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_dies_within_the_body_cuts_the_response_off() {
    let (die, dying) = tokio::sync::watch::channel(false);
    let address = raw_instance(move |mut stream| {
        let mut dying = dying.clone();
        async move {
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).await.unwrap_or(0) > 0 {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
                let _ = dying.wait_for(|die| *die).await;
            }
        }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.read_until("half").await;
    die.send(true).unwrap();
    assert!(client.read_to_end().await.is_empty(), "the client sees that bytes are missing");
    let counters = bed.until("it is counted", |counters| counters.flows[0].errors == 1).await;
    assert_eq!((counters.flows[0].in_service, counters.instances[0].failures), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_does_not_answer_in_time_gives_504() {
    let gate = gate().await;
    let mut hurried = cluster(&[gate.address]);
    hurried.request_timeout_s = 0.2;
    let bed = Bed::start(vec![hurried]).await;
    let answer = bed.get("x", "/").await;
    assert_eq!((answer.status, answer.text().as_str()), (504, "the instance did not answer within 0.2 s\n"));
    let flow = bed.flow("gold").await;
    assert_eq!((flow.errors, flow.in_service), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_stops_coming_is_cut_off() {
    let address = raw_instance(|mut stream| async move {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).await.unwrap_or(0) > 0 {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
        }
    })
    .await;
    let impatient = Limits { stalled_response: Duration::from_millis(200), ..limits() };
    let bed = Bed::start_with(vec![cluster(&[address])], impatient).await;
    assert_eq!(bed.get("x", "/").await.text(), "half");
    bed.until("its seat is free", |counters| counters.flows[0].errors == 1 && counters.flows[0].in_service == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_are_cut_off_and_idle_connections_are_not() {
    let strict = Limits { head: Duration::from_millis(300), ..limits() };
    let bed = Bed::start_with(vec![cluster(&[named("alive").await])], strict).await;
    let mut idle = bed.connect().await;
    let mut slow = bed.connect().await;
    slow.send("GET / HTTP/1.1\r\nhost: x\r\n").await;
    let answer = Answer::parse(&slow.read_to_end().await);
    assert_eq!((answer.status, answer.text().as_str()), (408, "the request's head took too long\n"));
    idle.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle.read_answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_idle_for_too_long_are_closed() {
    let strict = Limits { idle: Duration::from_millis(200), ..limits() };
    let bed = Bed::start_with(vec![cluster(&[named("alive").await])], strict).await;
    let mut idle = bed.connect().await;
    idle.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle.read_answer().await.status, 200);
    assert!(idle.read_to_end().await.is_empty());
    bed.until("none is open", |counters| counters.connections == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_idle_connections_leave_room_for_requests() {
    let bed = Bed::start(vec![cluster(&[named("alive").await])]).await;
    let mut idle = Vec::new();
    for _ in 0..2000 {
        idle.push(bed.connect().await);
    }
    bed.until("all are open", |counters| counters.connections == 2000).await;
    assert_eq!(bed.get("x", "/").await.status, 200);
    idle[1234].send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(idle[1234].read_answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_limit_the_longest_idle_connections_make_room() {
    let small = Limits { connections: 20, ..limits() };
    let bed = Bed::start_with(vec![cluster(&[named("alive").await])], small).await;
    let mut old = bed.connect().await;
    bed.until("the first is open", |counters| counters.connections == 1).await;
    let mut others = Vec::new();
    for _ in 0..39 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(client.read_answer().await.status, 200);
        others.push(client);
    }
    assert!(old.read_to_end().await.is_empty(), "the oldest was closed");
    bed.until("the limit holds", |counters| counters.connections <= 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_no_connection_is_idle_newcomers_beyond_the_limit_are_refused() {
    let gate = gate().await;
    let bed = Bed::start_with(vec![cluster(&[gate.address])], Limits { connections: 3, ..limits() }).await;
    let mut busy = Vec::new();
    for _ in 0..3 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        busy.push(client);
    }
    bed.until("all are outstanding", |counters| counters.flows[0].in_service == 3).await;
    let answer = Answer::parse(&bed.connect().await.read_to_end().await);
    assert_eq!((answer.status, answer.text().as_str()), (503, "too many connections\n"));
    gate.permits.add_permits(3);
    for client in &mut busy {
        assert_eq!(client.read_answer().await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_is_cut_off_and_its_seat_freed() {
    let address = endless_instance().await;
    let impatient = Limits { stalled_write: Duration::from_millis(300), ..limits() };
    let bed = Bed::start_with(vec![cluster(&[address])], impatient).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it was cut off", |counters| counters.flows[0].errors == 1 && counters.flows[0].in_service == 0).await;
    bed.until("it is closed", |counters| counters.connections == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_said_all_it_has_to_say_still_gets_its_answer() {
    let gate = gate().await;
    let bed = Bed::start(vec![cluster(&[gate.address])]).await;
    let mut client = bed.connect().await;
    client.send("GET /half HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.stream.shutdown().await.unwrap();
    bed.until("it is outstanding", |counters| counters.flows[0].in_service == 1).await;
    gate.permits.add_permits(1);
    let answer = Answer::parse(&client.read_to_end().await);
    assert_eq!((answer.status, answer.text().as_str()), (200, "/half"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_within_its_head_is_no_request() {
    let bed = Bed::start(vec![cluster(&[named("alive").await])]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nho").await;
    client.stream.shutdown().await.unwrap();
    client.read_to_end().await;
    let counters = bed.until("it is closed", |counters| counters.connections == 0).await;
    assert_eq!(counters.flows[0].arrivals, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_answer_nonsense_give_502() {
    for nonsense in [
        "HELLO\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
    ] {
        let address = raw_instance(move |mut stream| async move {
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).await.unwrap_or(0) > 0 {
                let _ = stream.write_all(nonsense.as_bytes()).await;
            }
        })
        .await;
        let bed = Bed::start(vec![cluster(&[address])]).await;
        assert_eq!(bed.get("x", "/").await.status, 502, "{nonsense}");
    }
}
