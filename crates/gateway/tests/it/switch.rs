//! Requests that ask for another protocol: what a switch needs, and what becomes of such a request without one.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::bed::*;
use crate::raw::Recorder;

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_reached_nobody_goes_to_another_instance() {
    let bed = Bed::start(vec![cluster(&[nobody().await, switching("websocket").await])]).await;
    for _ in 0..6 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
        assert!(client.read_until("hello;").await.starts_with("HTTP/1.1 101 "));
    }
}

/// Switches to `protocol`, whatever was asked for, and says a word in it; without a request for another one it answers 426.
async fn switching(protocol: &'static str) -> SocketAddr {
    raw_instance(move |mut stream| async move {
        while let Some(head) = read_head(&mut stream).await {
            let answer = if head.contains("\r\nupgrade: ") {
                format!("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\r\nhello;")
            } else {
                "HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n".to_owned()
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_protocols_that_are_allowed_are_switched_to() {
    let mut plain = cluster(&[switching("h2c").await]);
    plain.http.upgrades = vec!["websocket".into()];
    let bed = Bed::start(vec![plain.clone()]).await;
    for (asked, status) in [("h2c", 426), ("foo/1, h2c", 426), ("websocket", 502), ("h2c, WebSocket", 502)] {
        let mut client = bed.connect().await;
        client.send(&format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: {asked}\r\n\r\n")).await;
        assert_eq!(client.read_answer().await.status, status, "{asked}");
    }
    plain.http.upgrades = vec!["*".into()];
    bed.configure(vec![plain]).await.unwrap();
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n").await;
    assert!(client.read_until("hello;").await.starts_with("HTTP/1.1 101 "));
}

/// A handshake has no body. A request with one that also asks for another protocol is a request like any other.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_first_and_for_another_protocol_is_told_to_go_on() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    let mut client = bed.connect().await;
    client
        .send(
            "POST /a HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nexpect: 100-continue\r\n\
             content-length: 4\r\n\r\n",
        )
        .await;
    assert_eq!(client.read_until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abcd").await;
    assert_eq!(client.read_answer().await.status, 200);
    assert_eq!(recorder.take().await.requests[0].summary(), "POST /a abcd");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_before_the_answer_to_a_handshake_passes_on() {
    for last in [
        "401 Unauthorized\r\ncontent-length: 2\r\n\r\nno",
        "101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello;",
    ] {
        let answer = format!("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 {last}");
        let (address, _) = hasty(answer, false).await;
        let bed = Bed::start(vec![cluster(&[address])]).await;
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
        let all = client.read_until(&last[last.len() - 2..]).await;
        let (hint, rest) = all.split_once("\r\n\r\n").unwrap();
        assert_eq!(hint, "HTTP/1.1 103 Early Hints\r\nlink: </a>");
        assert!(rest.starts_with(&format!("HTTP/1.1 {}", &last[..3])) && rest.ends_with(&last[last.len() - 2..]), "{rest}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_answer_to_a_request_for_another_protocol_leaves_a_connection_that_works_or_says_that_it_closes() {
    // It reads no body: what comes of one is the start of the next head.
    let (address, _) = hasty(EARLY, false).await;
    for size in [20_000, 100_000] {
        let bed = Bed::start(vec![cluster(&[address])]).await;
        let mut client = bed.connect().await;
        client
            .send(&format!(
                "POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: {size}\r\n\r\n"
            ))
            .await;
        let sent = tokio::time::timeout(PATIENCE, client.stream.write_all(&vec![b'x'; size])).await;
        sent.expect("it does not stall").unwrap();
        let answer = client.read_answer().await;
        assert_eq!((answer.status, answer.text().as_str()), (401, "no"), "{size} bytes");
        if answer.header("connection") == Some("close") {
            assert!(client.read_to_end().await.is_empty());
            client = bed.connect().await;
        }
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(client.read_answer().await.status, 401, "the next request is answered");
    }
}

/// RFC 9110 section 7.8: an instance switches once it has the whole request. What the client sends of it must not come after the switch.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_switches_within_a_request_has_not_answered() {
    let address = raw_instance(|mut stream| async move {
        if read_head(&mut stream).await.is_some() {
            let answer = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            let _ = stream.read(&mut [0; 16]).await;
        }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 4\r\n\r\nab").await;
    let answer = client.read_answer().await;
    assert_eq!((answer.status, answer.header("x-weal-reason")), (502, Some("instance-malformed")));
}
