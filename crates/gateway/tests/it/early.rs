//! Answers that come before the end of their requests, where the instance reads on.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weal_gateway::Limits;

use crate::bed::*;

/// An instance that answers 202 at once and reads the body afterwards; it says how that ended.
async fn reading_on() -> (SocketAddr, tokio::sync::mpsc::Receiver<bool>) {
    let (done, whole) = tokio::sync::mpsc::channel(8);
    let address = raw_instance(move |mut stream| {
        let done = done.clone();
        async move {
            while read_head(&mut stream).await.is_some() {
                stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                let read = stream.read_exact(&mut [0; 1000]).await;
                done.send(read.is_ok()).await.unwrap();
            }
        }
    })
    .await;
    (address, whole)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_still_reads_has_its_seat_taken() {
    let (address, mut whole) = reading_on().await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send(&format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{}", "x".repeat(500))).await;
    assert_eq!(client.read_answer().await.status, 202);
    client.send("x").await;
    let counters = bed.observe().await;
    assert_eq!((counters.flows[0].in_service, counters.flows[0].completions, counters.instances[0].in_flight), (1, 0, 1));
    client.send(&"x".repeat(499)).await;
    assert_eq!(tokio::time::timeout(PATIENCE, whole.recv()).await.unwrap(), Some(true));
    let counters = bed.until("it is counted", |counters| counters.flows[0].completions == 1).await;
    assert_eq!((counters.flows[0].in_service, counters.flows[0].errors), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_after_its_answer_has_no_more_time_than_its_request() {
    let (address, mut whole) = reading_on().await;
    let mut timed = cluster(&[address]);
    timed.routes[0].total_timeout_s = Some(0.5);
    timed.routes[0].extras.client_min_rate = Some(0);
    let bed = Bed::start(vec![timed]).await;
    let mut client = bed.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nx").await;
    assert_eq!(client.read_answer().await.status, 202);
    let trickle = async {
        // Bytes that go on moving: only the time in all ends this.
        while client.stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::future::pending::<()>().await;
    };
    let ended = async { tokio::time::timeout(PATIENCE, whole.recv()).await.unwrap() };
    tokio::select! {
        () = trickle => {}
        whole = ended => assert_eq!(whole, Some(false), "it breaks off"),
    }
    let counters = bed.until("it has ended", |counters| counters.flows[0].in_service == 0).await;
    assert_eq!(counters.instances[0].failures, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_after_its_answer_is_no_head_that_takes_too_long() {
    let (address, mut whole) = reading_on().await;
    let hasty = Limits { head: Duration::from_millis(300), ..limits() };
    let bed = Bed::start_with(vec![cluster(&[address])], hasty).await;
    let mut client = bed.connect().await;
    for request in ["first", "second"] {
        client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n").await;
        assert_eq!(client.read_answer().await.status, 202, "{request}");
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            client.send(&"x".repeat(50)).await;
        }
        assert_eq!(tokio::time::timeout(PATIENCE, whole.recv()).await.unwrap(), Some(true), "{request}");
        // The end of a body begins no head either.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
