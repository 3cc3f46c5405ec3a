//! Ports: connections and datagrams that are passed on as they come.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use weal_gateway::Limits;
use weal_model::{RouteSpec, Transport, TransportPort};
use weal_protocol::gateway::{ClusterConfig, Listener, Listeners, REFUSED, RefusedQuery};

use crate::bed::*;
use crate::wake::agent;

/// A server that says its name to each connection, then sends back what it gets, and closes its side after the client's.
async fn tcp_echo(name: &'static str) -> SocketAddr {
    raw_instance(move |mut stream| async move {
        stream.write_all(name.as_bytes()).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.write_all(b"bye").await;
        let _ = to.shutdown().await;
    })
    .await
}

/// The same with datagrams.
async fn udp_echo(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok((count, peer)) = socket.recv_from(&mut buffer).await {
            let reply = [name.as_bytes(), &buffer[..count]].concat();
            socket.send_to(&reply, peer).await.unwrap();
        }
    });
    address
}

/// A cluster that is reached at a port of `transport`, and what hands its socket to the gateway.
struct Port {
    port: TransportPort,
    tcp: Option<std::net::TcpListener>,
    udp: Option<std::net::UdpSocket>,
}

impl Port {
    fn tcp() -> Self {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        Self { port: TransportPort { transport: Transport::Tcp, address }, tcp: Some(tcp), udp: None }
    }

    fn udp() -> Self {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = udp.local_addr().unwrap();
        Self { port: TransportPort { transport: Transport::Udp, address }, tcp: None, udp: Some(udp) }
    }

    fn hand_over(&self, bed: &Bed) {
        let sockets: Vec<_> = self.tcp.iter().map(AsFd::as_fd).chain(self.udp.iter().map(AsFd::as_fd)).collect();
        weal_rpc::hand_over(&bed.state.join("ports.sock"), &Listeners(vec![Listener::Port(self.port)]), &sockets).unwrap();
    }

    fn cluster(&self, addresses: &[SocketAddr]) -> ClusterConfig {
        let route = RouteSpec { port: Some(self.port), ..RouteSpec::any("gold".into()) };
        ClusterConfig { routes: vec![route], ..cluster(addresses) }
    }

    async fn bed(&self, clusters: Vec<ClusterConfig>, limits: Limits) -> Bed {
        let bed = Bed::start_with(clusters, limits).await;
        self.hand_over(&bed);
        bed
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.port.address).await.unwrap()
    }

    async fn client(&self) -> UdpSocket {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(self.port.address).await.unwrap();
        client
    }
}

async fn read(stream: &mut TcpStream, count: usize) -> String {
    let mut bytes = vec![0; count];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("it comes").unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn read_rest(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it ends").map(|_| rest)
}

async fn reply(client: &UdpSocket) -> String {
    let mut buffer = vec![0; 64 << 10];
    let count = tokio::time::timeout(PATIENCE, client.recv(&mut buffer)).await.expect("a reply comes").unwrap();
    String::from_utf8(buffer[..count].to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_passed_on_both_ways_and_each_direction_ends_by_itself() {
    let port = Port::tcp();
    let bed = port.bed(vec![port.cluster(&[tcp_echo("db").await])], limits()).await;
    let mut client = port.connect().await;
    assert_eq!(read(&mut client, 2).await, "db", "the server may speak first");
    let big = "x".repeat(3 << 20);
    let (mut from, mut to) = client.split();
    let send = async {
        to.write_all(big.as_bytes()).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let mut all = String::new();
    let (_, read) = tokio::join!(send, from.read_to_string(&mut all));
    assert_eq!(read.unwrap(), big.len() + 3);
    assert!(all.ends_with("xbye"), "the answer goes on after the client has ended its side");
    let counters = bed.until("it has ended", |counters| counters.clusters[0].ports.open == 0).await;
    let ports = counters.clusters[0].ports;
    assert_eq!((ports.total, ports.refused, ports.bytes_in, ports.bytes_out), (1, 0, big.len() as u64, big.len() as u64 + 5));
    assert_eq!((counters.flows[0].arrivals, counters.flows[0].completions), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_connections_hold_no_seat_but_stay_outstanding_and_are_balanced() {
    let port = Port::tcp();
    let mut limited = port.cluster(&[tcp_echo("a").await, tcp_echo("b").await]);
    limited.seats = Some(1);
    let bed = port.bed(vec![limited], limits()).await;
    let mut names = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = port.connect().await;
        names.push(read(&mut client, 1).await);
        clients.push(client);
    }
    assert_eq!(names.iter().filter(|name| *name == "a").count(), 5, "{names:?}");
    let counters = bed.observe().await;
    assert_eq!((counters.flows[0].completions, counters.flows[0].in_service), (10, 0));
    assert_eq!(counters.instances.iter().map(|instance| instance.in_flight).collect::<Vec<_>>(), [5, 5]);
    drop(clients);
    bed.until("nothing is outstanding", |counters| counters.instances.iter().all(|instance| instance.in_flight == 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_connection_wakes_an_instance_and_what_it_has_sent_arrives() {
    let port = Port::tcp();
    let bed = port.bed(vec![port.cluster(&[])], limits()).await;
    let agent = agent(&bed, tcp_echo("db").await, 1);
    let mut client = port.connect().await;
    client.write_all(b"select").await.unwrap();
    bed.until("it waits", |counters| counters.flows[0].queued == 1).await;
    agent.permits.add_permits(1);
    assert_eq!(read(&mut client, 8).await, "dbselect");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_passed_on_is_closed_at_once_and_the_reason_is_told() {
    let port = Port::tcp();
    let mut full = port.cluster(&[]);
    full.flows.insert("gold".into(), flow(1.0, 1));
    let bed = port.bed(vec![full], limits()).await;
    let mut waits = port.connect().await;
    bed.until("it waits", |counters| counters.flows[0].queued == 1).await;
    let mut refused = port.connect().await;
    assert_eq!(read_rest(&mut refused).await.unwrap_or_default(), b"");
    bed.configure(vec![port.cluster(&[nobody().await])]).await.unwrap();
    assert_eq!(read_rest(&mut port.connect().await).await.unwrap_or_default(), b"");
    assert_eq!(read_rest(&mut waits).await.unwrap_or_default(), b"");
    bed.configure(Vec::new()).await.unwrap();
    assert_eq!(read_rest(&mut port.connect().await).await.unwrap_or_default(), b"");
    let query = RefusedQuery { limit: 9, ..RefusedQuery::default() };
    let told = bed.rpc.call(REFUSED, &query).await.unwrap();
    let mut reasons: Vec<&str> = told.iter().map(|refused| refused.reason.as_str()).collect();
    reasons.sort_unstable();
    // Who waited is sent to the instance that refuses, too.
    assert_eq!(reasons, ["instance-refused", "instance-refused", "no-route", "queue-full"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_a_dead_instance_goes_to_another_one() {
    let port = Port::tcp();
    let bed = port.bed(vec![port.cluster(&[nobody().await, tcp_echo("b").await])], limits()).await;
    for _ in 0..4 {
        assert_eq!(read(&mut port.connect().await, 1).await, "b");
    }
    assert!(bed.flow("gold").await.retries > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_and_one_that_is_used_stays() {
    let port = Port::tcp();
    let mut impatient = port.cluster(&[tcp_echo("").await]);
    impatient.routes[0].idle_timeout_s = Some(0.4);
    let _bed = port.bed(vec![impatient], limits()).await;
    let (mut idle, mut used) = (port.connect().await, port.connect().await);
    for _ in 0..8 {
        used.write_all(b"x").await.unwrap();
        assert_eq!(read(&mut used, 1).await, "x");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(read_rest(&mut idle).await.unwrap(), b"");
    used.write_all(b"y").await.unwrap();
    assert_eq!(read(&mut used, 1).await, "y");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_side_resets_is_reset_at_the_other() {
    let port = Port::tcp();
    let address = raw_instance(|mut stream| async move {
        stream.write_all(b"half").await.unwrap();
        let _ = stream.read(&mut [0]).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    let _bed = port.bed(vec![port.cluster(&[address])], limits()).await;
    let mut client = port.connect().await;
    assert_eq!(read(&mut client, 4).await, "half");
    client.write_all(b"x").await.unwrap();
    assert_eq!(read_rest(&mut client).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_leaves_the_config_takes_nothing_new_and_finishes_what_it_has() {
    let port = Port::tcp();
    let bed = port.bed(vec![port.cluster(&[tcp_echo("a").await])], limits()).await;
    let mut client = port.connect().await;
    assert_eq!(read(&mut client, 1).await, "a");
    weal_rpc::hand_over(&bed.state.join("ports.sock"), &Listeners::default(), &[]).unwrap();
    let address = port.port.address;
    drop(port);
    let refuses = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refuses).await.expect("nobody listens any more");
    client.write_all(b"still").await.unwrap();
    assert_eq!(read(&mut client, 5).await, "still");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_ends_waits_for_open_connections_and_the_next_one_takes_those_in_the_backlog() {
    let port = Port::tcp();
    let folder = folder();
    let mut bed = Bed::start_in(std::sync::Arc::clone(&folder), limits()).await;
    bed.configure(vec![port.cluster(&[tcp_echo("a").await])]).await.unwrap();
    port.hand_over(&bed);
    let mut open = port.connect().await;
    assert_eq!(read(&mut open, 1).await, "a");
    bed.stop.take().unwrap().send(()).unwrap();
    let mut waits = port.connect().await;
    open.write_all(b"x").await.unwrap();
    assert_eq!(read(&mut open, 1).await, "x", "it is still served while the gateway ends");
    drop(open);
    bed.ended.await.unwrap().unwrap();
    let next = Bed::start_in(folder, limits()).await;
    port.hand_over(&next);
    assert_eq!(read(&mut waits, 1).await, "a", "by the config on disk");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_udp_client_keeps_its_instance_and_replies_come_from_the_port() {
    let port = Port::udp();
    let bed = port.bed(vec![port.cluster(&[udp_echo("a").await, udp_echo("b").await])], limits()).await;
    let (one, other) = (port.client().await, port.client().await);
    let mut names = Vec::new();
    for client in [&one, &other] {
        client.send(b"1").await.unwrap();
        let first = reply(client).await;
        for _ in 0..5 {
            client.send(b"1").await.unwrap();
            assert_eq!(reply(client).await, first);
        }
        names.push(first);
    }
    names.sort();
    assert_eq!(names, ["a1", "b1"], "two sessions are balanced");
    // A reply is counted once it is on its way.
    let counters = bed.until("all replies are counted", |counters| counters.clusters[0].ports.bytes_out >= 24).await;
    let ports = counters.clusters[0].ports;
    assert_eq!((ports.open, ports.total, ports.bytes_in, ports.bytes_out, ports.dropped), (2, 2, 12, 24, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_datagrams_wake_an_instance_and_are_held_for_it() {
    let port = Port::udp();
    let bed = port.bed(vec![port.cluster(&[])], limits()).await;
    let agent = agent(&bed, udp_echo("").await, 1);
    let client = port.client().await;
    for datagram in ["one", "two", "", "three"] {
        client.send(datagram.as_bytes()).await.unwrap();
    }
    bed.until("the session waits", |counters| counters.flows[0].queued == 1).await;
    agent.permits.add_permits(1);
    let replies = [reply(&client).await, reply(&client).await, reply(&client).await, reply(&client).await];
    assert_eq!(replies, ["one", "two", "", "three"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_bounded_and_end_when_they_are_idle() {
    let port = Port::udp();
    let mut brief = port.cluster(&[udp_echo("").await]);
    brief.routes[0].idle_timeout_s = Some(0.3);
    let bed = port.bed(vec![brief], Limits { udp_sessions: 1, ..limits() }).await;
    let (one, other) = (port.client().await, port.client().await);
    one.send(b"x").await.unwrap();
    assert_eq!(reply(&one).await, "x");
    other.send(b"y").await.unwrap();
    bed.until("the second is refused", |counters| counters.clusters[0].ports.refused == 1).await;
    bed.until("the first is over", |counters| counters.clusters[0].ports.open == 0).await;
    other.send(b"z").await.unwrap();
    assert_eq!(reply(&other).await, "z");
}

/// Nobody listens there any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_instance_has_gone_ends_and_the_next_datagram_begins_another() {
    let port = Port::udp();
    let gone = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let bed = port.bed(vec![port.cluster(&[gone])], limits()).await;
    let client = port.client().await;
    client.send(b"x").await.unwrap();
    bed.until("the session is over", |counters| counters.clusters[0].ports.total == 1 && counters.clusters[0].ports.open == 0)
        .await;
    bed.configure(vec![port.cluster(&[udp_echo("b").await])]).await.unwrap();
    client.send(b"x").await.unwrap();
    assert_eq!(reply(&client).await, "bx");
}
