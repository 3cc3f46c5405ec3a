//! Clients of every kind while the gateway gets one config and one certificate after the other.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::rustls::version::TLS13;
use weal_protocol::tls::CERTIFY;

use crate::bed::*;
use crate::h2::{answer, request, send, within};
use crate::tls::{Authority, config, connect, get, secure_bed};

/// How many requests, or messages, of each kind there are where this variable does not say so. With 34000 they are 100,000 in all.
const REQUESTS: &str = "WEAL_REQUESTS";
const FEW: u32 = 1000;

/// Answers requests without content, and sends back what comes through a WebSocket.
async fn serving() -> SocketAddr {
    raw_instance(|mut stream| async move {
        while let Some(head) = read_head(&mut stream).await {
            let switches = head.to_ascii_lowercase().contains("\r\nupgrade: websocket\r\n");
            let answer = if switches {
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
            if switches {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                return;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_any_client_is_lost_while_configs_and_certificates_change() {
    let count: u32 = std::env::var(REQUESTS).ok().and_then(|count| count.parse().ok()).unwrap_or(FEW);
    let authority = Arc::new(Authority::new());
    let instances = [serving().await, serving().await];
    let certificate = || config(vec![authority.certify(&["shop.test"])]);
    let bed = Arc::new(secure_bed(instances[0], limits(), &certificate()).await);
    let over_h1 = tokio::spawn(speak_h1(Arc::clone(&bed), Arc::clone(&authority), count));
    let over_h2 = tokio::spawn(speak_h2(Arc::clone(&bed), Arc::clone(&authority), count));
    let in_tunnel = tokio::spawn(speak_websocket(Arc::clone(&bed), Arc::clone(&authority), count));
    let mut changes = 0;
    while !(over_h1.is_finished() && over_h2.is_finished() && in_tunnel.is_finished()) {
        changes += 1;
        bed.configure(vec![cluster(&[instances[changes % 2]])]).await.unwrap();
        bed.rpc.call(CERTIFY, &certificate()).await.unwrap();
    }
    for client in [over_h1, over_h2, in_tunnel] {
        client.await.unwrap();
    }
    assert!(changes >= 4, "{changes}");
    let counters = bed.observe().await;
    // A config forgets the instances that it does not name, but not what the class has counted.
    let flow = &counters.flows[0];
    assert_eq!((flow.errors, flow.completions, counters.tls.failed), (0, u64::from(2 * count + 1), 0));
}

/// A request each, and a new connection for every twentieth.
async fn speak_h1(bed: Arc<Bed>, authority: Arc<Authority>, count: u32) {
    let client = authority.client(&[&TLS13]);
    let mut stream = connect(&bed, &client, "shop.test").await.unwrap();
    for number in 0..count {
        if number % 20 == 19 {
            stream = connect(&bed, &client, "shop.test").await.unwrap();
        }
        assert_eq!(get(&mut stream, "shop.test", "keep-alive").await.status, 200, "request {number}");
    }
}

/// Ten requests at once, over one connection from the first to the last.
async fn speak_h2(bed: Arc<Bed>, authority: Arc<Authority>, count: u32) {
    let stream = connect(&bed, &authority.offering(&[b"h2"]), "shop.test").await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for number in 0..count.div_ceil(10) {
        let here = (count - number * 10).min(10);
        let sent: Vec<_> = (0..here).map(|_| send(&mut client, request("GET", "https://shop.test/"))).collect();
        for response in sent {
            assert_eq!(answer(response).await.0.status, 200, "ten from {number}0 on");
        }
    }
}

/// A message each, over one connection from the first to the last.
async fn speak_websocket(bed: Arc<Bed>, authority: Arc<Authority>, count: u32) {
    let mut stream = connect(&bed, &authority.client(&[&TLS13]), "shop.test").await.unwrap();
    let handshake = "GET / HTTP/1.1\r\nhost: shop.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(handshake.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within("a switch", stream.read_u8()).await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    for number in 0..count {
        stream.write_all(&number.to_be_bytes()).await.unwrap();
        assert_eq!(within("its echo", stream.read_u32()).await.unwrap(), number);
    }
}
