//! The PROXY protocol: headers of proxies in front, good and bad, and those that instances get.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weal_gateway::Limits;
use weal_model::proxy::SIGNATURE;
use weal_model::{ClientPolicy, ListenScheme, ProxyVersion};
use weal_protocol::gateway::{ClusterConfig, REFUSED, RefusedQuery};

use crate::bed::*;
use crate::raw::Recorder;

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

fn accepting() -> ClientPolicy {
    ClientPolicy { accept_proxy: [ListenScheme::Http].into(), ..behind_local_proxies() }
}

/// A gateway whose clients on this machine have to begin with a header.
async fn bed(cluster: ClusterConfig, limits: Limits) -> Bed {
    let bed = Bed::start_in(folder(), limits).await;
    bed.configure_for(vec![cluster], accepting()).await.unwrap();
    bed
}

async fn say(bed: &Bed, pieces: &[&[u8]]) -> Vec<u8> {
    let mut client = bed.connect().await;
    client.stream.set_nodelay(true).unwrap();
    for piece in pieces {
        // The gateway may have closed already.
        let _ = client.stream.write_all(piece).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.read_to_end().await
}

fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, rest].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_header_names_the_client_however_it_is_cut() {
    let recorder = Recorder::start().await;
    let bed = bed(cluster(&[recorder.address]), limits()).await;
    let (source, server): (SocketAddr, SocketAddr) = ("203.0.113.9:4711".parse().unwrap(), "192.0.2.1:80".parse().unwrap());
    for version in ProxyVersion::ALL {
        let header = version.header(source, server);
        for at in [1, 12, 13, header.len() - 1, header.len()] {
            let rest = [&header[at..], REQUEST].concat();
            let answer = Answer::parse(&say(&bed, &[&header[..at], &rest]).await);
            assert_eq!(answer.status, 200, "{version:?} cut at {at}");
            let got = recorder.take().await.requests.remove(0);
            assert_eq!(got.fields("x-forwarded-for"), ["203.0.113.9"], "{version:?} cut at {at}");
        }
        let own = [&version.own_header()[..], REQUEST].concat();
        assert_eq!(Answer::parse(&say(&bed, &[&own]).await).status, 200);
        assert_eq!(
            recorder.take().await.requests.remove(0).fields("x-forwarded-for"),
            ["127.0.0.1"],
            "the proxy's own connection"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_follows_a_bad_header_reaches_an_instance() {
    let recorder = Recorder::start().await;
    let bed = bed(cluster(&[recorder.address]), limits()).await;
    let four = [192, 0, 2, 1, 192, 0, 2, 2, 0, 80, 0, 81];
    let long_line = format!("PROXY TCP4 {} 192.0.2.1 1 2\r\n", "1".repeat(100));
    let mut bad: Vec<Vec<u8>> = [
        "",
        "PROXY\r\n",
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
        "PROXY TCP4 ::1 ::2 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4 a.example 192.0.2.2 1 2\r\n",
        "PROXY TCP4 \0 192.0.2.2 1 2\r\n",
        "\r\nPROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        " PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        &long_line,
        "GET /x HTTP/1.1\r\n",
        "\x16\x03\x01",
    ]
    .into_iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    bad.extend([
        b"PROXY TCP4 \xff 192.0.2.2 1 2\r\n".to_vec(),
        v2(0x11, 0x11, &four),
        v2(0x31, 0x11, &four),
        v2(0x22, 0x11, &four),
        v2(0x2f, 0x11, &four),
        v2(0x21, 0x12, &four),
        v2(0x21, 0x22, &[0; 36]),
        v2(0x21, 0x41, &four),
        v2(0x21, 0xff, &four),
        v2(0x21, 0x11, &four[..11]),
        v2(0x21, 0x11, &[]),
        v2(0x21, 0x21, &four),
        v2(0x21, 0x11, &[&four[..], &[1]].concat()),
        v2(0x21, 0x11, &[&four[..], &[1, 0, 9, 1]].concat()),
        v2(0x21, 0x11, &[0; 4096]),
        v2(0x21, 0x11, &[0; 65535])[..16].to_vec(),
        SIGNATURE[..11].iter().copied().chain([b'X', 0x21, 0x11, 0, 12]).chain(four).collect(),
    ]);
    for header in &bad {
        let answer = say(&bed, &[header, REQUEST]).await;
        assert!(answer.is_empty(), "{:?} got {:?}", String::from_utf8_lossy(header), String::from_utf8_lossy(&answer));
        assert!(recorder.take().await.requests.is_empty(), "{:?} was passed on", String::from_utf8_lossy(header));
    }
    let refused = bed.rpc.call(REFUSED, &RefusedQuery { app: None, id: None, limit: 100 }).await.unwrap();
    assert_eq!(refused.len(), bad.len(), "each is remembered");
    assert!(refused.iter().all(|refused| refused.reason == weal_model::OwnAnswer::ProxyHeader));
    let good = [&ProxyVersion::V1.own_header()[..], REQUEST].concat();
    assert_eq!(Answer::parse(&say(&bed, &[&good]).await).status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_does_not_come_in_time_ends_the_connection() {
    let recorder = Recorder::start().await;
    let limits = Limits { proxy_header: Duration::from_millis(100), ..limits() };
    let bed = bed(cluster(&[recorder.address]), limits).await;
    let mut slow = bed.connect().await;
    slow.send("PROXY TCP4 192.0.2.1 ").await;
    assert!(slow.read_to_end().await.is_empty());
    assert!(bed.connect().await.read_to_end().await.is_empty());
    bed.until("no connection is left", |counters| counters.connections == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_two_clients_are_never_mixed_at_an_instance() {
    // It says which header its connection began with, and which number the connection has.
    let address = raw_instance(|mut stream: TcpStream| async move {
        let mut header = Vec::new();
        while !header.ends_with(b"\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            header.push(byte);
        }
        let mut head = Vec::new();
        while stream.read_buf(&mut head).await.unwrap_or(0) > 0 {
            if head.ends_with(b"\r\n\r\n") {
                head.clear();
                let answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", header.len(), String::from_utf8_lossy(&header));
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let mut cluster = cluster(&[address]);
    cluster.http.send_proxy = Some(ProxyVersion::V1);
    let bed = Bed::start(vec![cluster]).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(bed.connect().await);
    }
    for _ in 0..5 {
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
            let (own, server) = (client.stream.local_addr().unwrap(), bed.address);
            let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", own.port(), server.port());
            assert_eq!(client.read_answer().await.text(), expected);
        }
    }
}
