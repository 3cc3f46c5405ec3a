//! Configs that come and go, streams, tunnels, and the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::Response;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use weal_gateway::Limits;
use weal_protocol::gateway::ClusterConfig;

use crate::bed::*;

#[tokio::test(flavor = "multi_thread")]
async fn configs_under_load_lose_no_request() {
    let instances = [named("a").await, named("b").await, named("c").await];
    let bed = Arc::new(Bed::start(vec![cluster(&instances)]).await);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (bed, stop, done) = (Arc::clone(&bed), Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                let mut client = bed.connect().await;
                while !stop.load(Ordering::Relaxed) {
                    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
                    let answer = client.read_answer().await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 0..200u32 {
        let mut next = cluster(&instances);
        next.seats = [None, Some(1), Some(2), Some(50)][round as usize % 4];
        next.flows.insert("gold".into(), flow(1.0 + f64::from(round % 7), 100));
        next.endpoints[round as usize % 3].draining = true;
        if round % 5 == 0 {
            next.endpoints.remove(0);
        }
        bed.configure(vec![next]).await.unwrap();
        let before = done.load(Ordering::Relaxed);
        while done.load(Ordering::Relaxed) < before + 5 {
            assert!(clients.iter().all(|client| !client.is_finished()), "a client failed");
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let total = done.load(Ordering::Relaxed);
    let counters = bed.until("all are counted", |counters| counters.flows[0].completions == total).await;
    assert_eq!((counters.version, counters.flows[0].rejections, counters.flows[0].errors), (201, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_leaves_the_config_finishes_what_it_has() {
    let gate = gate().await;
    let mut limited = cluster(&[gate.address]);
    limited.seats = Some(1);
    let bed = Bed::start(vec![limited]).await;
    let (mut served, mut waiting) = (bed.connect().await, bed.connect().await);
    for (client, expected) in [(&mut served, 1), (&mut waiting, 2)] {
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        bed.until("it has arrived", |counters| counters.flows[0].arrivals == expected).await;
    }
    bed.configure(vec![]).await.unwrap();
    assert_eq!(bed.get("x", "/").await.status, 404);
    gate.permits.add_permits(2);
    assert_eq!((served.read_answer().await.status, waiting.read_answer().await.status), (200, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_starts_with_its_last_config() {
    let folder = folder();
    let address = named("again").await;
    let mut first = Bed::start_in(Arc::clone(&folder), limits()).await;
    assert_eq!(first.get("x", "/").await.status, 404);
    first.configure(vec![cluster(&[address])]).await.unwrap();
    first.stop.take().unwrap().send(()).unwrap();
    let kept = first.state_file();
    first.ended.await.unwrap().unwrap();
    assert!(read(&kept).contains("shop-0"));
    let second = Bed::start_in(folder, limits()).await;
    assert_eq!(second.get("x", "/").await.text(), "again");
    assert_eq!(second.observe().await.version, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_last_config_is_no_reason_not_to_start() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("gateway")).unwrap();
    std::fs::write(folder.path().join("gateway/gateway.json"), "{\"version\": 1, \"clust").unwrap();
    let bed = Bed::start_in(folder, limits()).await;
    bed.configure(vec![cluster(&[named("alive").await])]).await.unwrap();
    assert_eq!(bed.get("x", "/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_or_old_config_changes_nothing() {
    let good = cluster(&[named("good").await]);
    let bed = Bed::start(vec![good.clone()]).await;
    let mut bad = good.clone();
    bad.flows.insert("gold".into(), flow(f64::NEG_INFINITY, 1));
    let mut lost = good.clone();
    lost.flows.clear();
    let mut never = good.clone();
    never.request_timeout_s = 0.0;
    for (bad, reason) in [
        (vec![lost], "cluster shop: a route leads to class gold, which has no flow"),
        (vec![never], "cluster shop: a request's time of 0 s is not positive"),
        (vec![good.clone(), good.clone()], "cluster shop is there twice"),
    ] {
        let error = bed.configure(bad).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert!(bed.configure(vec![bad]).await.is_err());
    assert_eq!((bed.observe().await.version, bed.get("x", "/").await.text().as_str()), (1, "good"));
    bed.configure(vec![good.clone()]).await.unwrap();
    let old = weal_protocol::gateway::GatewayConfig { version: 2, clusters: vec![], clients: Default::default() };
    let error = bed.rpc.call(weal_protocol::gateway::CONFIGURE, &old).await.unwrap_err().to_string();
    assert!(error.contains("config 2 is older than 6"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_running_requests_finish_and_idle_connections_close() {
    let gate = gate().await;
    let mut bed = Bed::start(vec![cluster(&[gate.address])]).await;
    let (mut idle, mut busy) = (bed.connect().await, bed.connect().await);
    busy.send("GET /last HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it is outstanding", |counters| counters.flows[0].in_service == 1 && counters.connections == 2).await;
    bed.stop.take().unwrap().send(()).unwrap();
    assert!(idle.read_to_end().await.is_empty());
    gate.permits.add_permits(1);
    assert_eq!(Answer::parse(&busy.read_to_end().await).text(), "/last");
    bed.ended.await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(bed.address).await.is_err(), "nobody listens any more");
}

/// The head of an answer that was under way could not say that the connection closes.
#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_a_connection_takes_one_more_request_after_an_answer_that_did_not_say_that_it_closes() {
    let (go, next) = tokio::sync::watch::channel(false);
    let address = raw_instance(move |mut stream| {
        let mut next = next.clone();
        async move {
            while let Some(head) = read_head(&mut stream).await {
                if head.starts_with("GET /short ") {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                    continue;
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf").await.unwrap();
                let _ = next.wait_for(|go| *go).await;
                stream.write_all(b"half").await.unwrap();
            }
        }
    })
    .await;
    let mut bed = Bed::start_with(vec![cluster(&[address])], Limits { quiet: PATIENCE, ..limits() }).await;
    let (mut alone, mut crowded) = (bed.connect().await, bed.connect().await);
    alone.send("GET /1 HTTP/1.1\r\nhost: x\r\n\r\n").await;
    crowded.send(&"GET /1 HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2)).await;
    for client in [&mut alone, &mut crowded] {
        let begun = client.read_until("half").await;
        assert!(!begun.contains("connection: close"), "{begun}");
    }
    let mut last = bed.connect().await;
    last.send("GET /short HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut told_last = last.read_answer().await;
    bed.stop.take().unwrap().send(()).unwrap();
    // It came last, and is told last.
    while told_last.header("connection").is_none() {
        last.send("GET /short HTTP/1.1\r\nhost: x\r\n\r\n").await;
        told_last = last.read_answer().await;
    }
    go.send(true).unwrap();
    alone.read_until("half").await;
    alone.send("GET /2 HTTP/1.1\r\nhost: x\r\n\r\n").await;
    for client in [&mut alone, &mut crowded] {
        let rest = String::from_utf8(client.read_to_end().await).unwrap();
        assert!(rest.ends_with("halfhalf") && rest.contains("connection: close\r\n"), "{rest:?}");
    }
    bed.ended.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_stream_both_ways() {
    const SIZE: usize = 8 << 20;
    let echo = |request: http::Request<hyper::body::Incoming>| async move {
        Response::new(Full::from(request.into_body().collect().await.unwrap().to_bytes()))
    };
    let bed = Bed::start(vec![cluster(&[instance(echo).await])]).await;
    let mut client = bed.connect().await;
    let body: Vec<u8> = (0..SIZE).map(|i| (i % 251) as u8).collect();
    client.send(&format!("POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {SIZE}\r\n\r\n")).await;
    assert_eq!(client.read_until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.stream.write_all(&body).await.unwrap();
    let answer = client.read_answer().await;
    assert!(answer.body == body, "{} bytes came back", answer.body.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_of_a_stream_comes_through_before_the_next_is_sent() {
    let (go, next) = tokio::sync::mpsc::channel::<()>(1);
    let next = Arc::new(tokio::sync::Mutex::new(next));
    let address = raw_instance(move |mut stream| {
        let next = Arc::clone(&next);
        async move {
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).await.unwrap_or(0) > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
                for part in ["6\r\npart-0\r\n", "6\r\npart-1\r\n", "6\r\npart-2\r\n", "0\r\n\r\n"] {
                    stream.write_all(part.as_bytes()).await.unwrap();
                    next.lock().await.recv().await;
                }
            }
        }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    for part in ["part-0\r\n", "part-1\r\n", "part-2\r\n", "0\r\n\r\n"] {
        client.read_until(part).await;
        go.send(()).await.unwrap();
    }
}

/// Switches to a protocol that echoes, and says its first word at once.
async fn echo_protocol() -> std::net::SocketAddr {
    raw_instance(|mut stream| async move {
        let Some(head) = read_head(&mut stream).await else { return };
        let head = head.to_lowercase();
        if !(head.contains("upgrade: echo\r\n") && head.contains("connection: upgrade\r\n")) {
            let _ = stream.write_all(b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n").await;
            return;
        }
        let consent = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhello;";
        stream.write_all(consent).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_connection_becomes_a_tunnel_that_survives_configs_and_holds_no_seat() {
    let address = echo_protocol().await;
    let mut limited = cluster(&[address]);
    limited.seats = Some(1);
    let bed = Bed::start(vec![limited.clone()]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: echo\r\n\r\n").await;
    let head = client.read_until("hello;").await;
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("upgrade: echo\r\n"), "{head}");
    let counters = bed.until("its seat is free", |counters| counters.flows[0].completions == 1).await;
    assert_eq!((counters.flows[0].in_service, counters.instances[0].in_flight, counters.connections), (0, 1, 1));
    bed.configure(vec![limited]).await.unwrap();
    bed.configure(vec![]).await.unwrap();
    client.send("ping;").await;
    assert_eq!(client.read_until("ping;").await, "ping;");
    client.stream.shutdown().await.unwrap();
    assert!(client.read_to_end().await.is_empty());
    bed.until("it is closed", |counters| counters.connections == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_consent_an_upgrade_is_an_ordinary_request() {
    let bed = Bed::start(vec![cluster(&[named("plain").await])]).await;
    let mut client = bed.connect().await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await;
        assert_eq!(client.read_answer().await.text(), "plain");
    }
    let bed = Bed::start(vec![cluster(&[echo_protocol().await])]).await;
    let answer = bed.get("x", "/").await;
    assert_eq!(answer.status, 426, "an Upgrade that Connection does not name is not passed on");
}

/// A controller puts an instance to sleep when the gateway has its config and says that the instance is closed. Counts of before the config
/// with its version would say that a request had opened the instance again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn counters_are_never_older_than_the_version_beside_them() {
    // More clusters are looked at than a config needs to come in between.
    let many = |draining: bool| -> Vec<ClusterConfig> {
        let one = |number: u16| {
            let mut one = cluster(&[SocketAddr::from(([127, 0, 0, 1], 1000 + number))]);
            one.app = format!("app-{number}").as_str().into();
            one.routes[0].host = Some(format!("{number}.localhost"));
            one.endpoints[0].draining = draining;
            one
        };
        (0..200).map(one).collect()
    };
    let bed = Bed::start(many(false)).await;
    for _ in 0..20 {
        let before = bed.configure(many(false)).await.unwrap();
        let looks = async {
            loop {
                let counters = bed.observe().await;
                if counters.version > before {
                    return counters;
                }
            }
        };
        let (closed, counters) = tokio::join!(bed.configure(many(true)), looks);
        assert_eq!(counters.version, closed.unwrap());
        assert!(counters.instances.iter().all(|instance| !instance.open), "the config of this version closed them all");
    }
}

/// Clients think, and the gateway keeps their connections while there is room (Carrera 2008, Figure 4.13).
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_has_had_an_answer_is_kept_while_there_is_room_and_serves_again() {
    let thoughtful = Limits { idle: Duration::from_secs(3), rests_after: Duration::from_millis(1), connections: 8, ..limits() };
    let bed = Bed::start_with(vec![cluster(&[named("one").await])], thoughtful).await;
    let mut thinking = bed.connect().await;
    thinking.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(thinking.read_answer().await.text(), "one");
    // One that came later and has said nothing is closed first.
    assert!(bed.connect().await.read_to_end().await.is_empty());
    thinking.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(thinking.read_answer().await.text(), "one");
    let crowd = [bed.connect().await, bed.connect().await, bed.connect().await, bed.connect().await];
    assert!(thinking.read_to_end().await.is_empty(), "there is no room any more for those who think");
    drop(crowd);
}
