//! What one client address may hold of an application's seats.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use tokio::net::TcpSocket;
use weal_model::ClientPolicy;
use weal_protocol::gateway::{ClusterConfig, InnerTier, Listener, Listeners};

use crate::bed::*;
use crate::raw::Recorder;

/// A gateway that counts this machine's addresses as clients, and bounds nothing but their seats.
async fn bed(cluster: ClusterConfig) -> Bed {
    let clients =
        ClientPolicy { unlimited_clients: Vec::new(), client_connections: 0, client_rate: 0, ..ClientPolicy::default() };
    let bed = Bed::start_in(folder(), limits()).await;
    bed.configure_for(vec![cluster], clients).await.unwrap();
    bed
}

/// A client at another address than others.
async fn connect_from(bed: &Bed, address: &str) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    Client { stream: socket.connect(bed.address).await.unwrap() }
}

/// `count` clients at one address that have sent this.
async fn clients(bed: &Bed, address: &str, count: usize, text: &str) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = connect_from(bed, address).await;
        client.send(text).await;
        clients.push(client);
    }
    clients
}

const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn one_address_holds_three_quarters_of_the_seats_and_its_other_requests_are_in_nobodys_way() {
    let gate = gate().await;
    let mut limited = cluster(&[gate.address]);
    limited.seats = Some(4);
    limited.flows.insert("gold".into(), flow(1.0, 1));
    let bed = bed(limited).await;
    let mut greedy = clients(&bed, "127.0.0.1", 20, GET).await;
    bed.until("it has its part", |counters| counters.connections == 20 && counters.flows[0].in_service == 3).await;
    greedy.extend(clients(&bed, "127.0.0.2", 1, GET).await);
    let counters = bed.until("another has a seat", |counters| counters.flows[0].in_service == 4).await;
    assert_eq!((counters.flows[0].arrivals, counters.flows[0].queued), (4, 0), "the others have no place in the queue");
    gate.permits.add_permits(21);
    for client in &mut greedy {
        assert_eq!(client.read_answer().await.status, 200, "all are answered, one after the other");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_holds_a_part_of_the_seats_that_wait_for_bodies() {
    let recorder = Recorder::start().await;
    let mut limited = cluster(&[recorder.address]);
    limited.seats = Some(8);
    let bed = bed(limited).await;
    let head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nx";
    let slow = clients(&bed, "127.0.0.1", 20, head).await;
    bed.until("it has its part", |counters| counters.connections == 20 && counters.flows[0].in_service == 3).await;
    let other = clients(&bed, "127.0.0.2", 20, head).await;
    bed.until("the last of half of all is another's", |counters| counters.flows[0].in_service == 4).await;
    drop((slow, other));
    bed.until("their seats are free", |counters| counters.flows[0].in_service == 0 && counters.connections == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_in_vain_for_a_seat_of_its_address_is_told_why_and_one_who_leaves_waits_no_longer() {
    let gate = gate().await;
    let mut limited = cluster(&[gate.address]);
    (limited.seats, limited.request_timeout_s) = (Some(1), 0.3);
    limited.routes.iter_mut().for_each(|route| route.idle_timeout_s = Some(600.0));
    let bed = bed(limited).await;
    let mut first = clients(&bed, "127.0.0.1", 1, GET).await;
    bed.until("it has the seat", |counters| counters.flows[0].in_service == 1).await;
    drop(clients(&bed, "127.0.0.1", 3, GET).await);
    let answer = clients(&bed, "127.0.0.1", 1, GET).await[0].read_answer().await;
    assert_eq!((answer.status, answer.header("x-weal-reason")), (429, Some("client-seats")), "{}", answer.text());
    assert!(
        answer
            .text()
            .starts_with("this address already holds its share of the application's seats, and the request waited 0.3 s for one"),
        "{}",
        answer.text()
    );
    bed.until("those who left are gone", |counters| counters.connections <= 2).await;
    gate.permits.add_permits(2);
    for _ in 0..2 {
        assert_eq!(first[0].read_answer().await.status, 200);
        first[0].send(GET).await;
    }
}

/// A connection of a program that runs as `user`. Only root can make one.
fn connect_as(bed: &Bed, user: u32) -> std::net::TcpStream {
    connect_to(bed.address, user)
}

fn adopt(stream: std::net::TcpStream) -> Client {
    stream.set_nonblocking(true).unwrap();
    Client { stream: tokio::net::TcpStream::from_std(stream).unwrap() }
}

fn connect_to(address: SocketAddr, user: u32) -> std::net::TcpStream {
    let connect = move || {
        // Of this thread alone.
        rustix::thread::set_thread_res_uid(
            rustix::process::Uid::from_raw(user),
            rustix::process::Uid::from_raw(user),
            rustix::process::Uid::ROOT,
        )
        .unwrap();
        std::net::TcpStream::connect(address).unwrap()
    };
    std::thread::spawn(connect).join().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hosted_application_is_a_client_like_any_other_although_this_machine_has_no_bounds() {
    if !rustix::process::geteuid().is_root() {
        return weal_testing::skip("without root, applications have the same user as everybody else here");
    }
    let bed = Bed::start_in(folder(), limits()).await;
    let clients = ClientPolicy { client_rate: 2, client_connections: 3, ..ClientPolicy::default() };
    bed.configure_for(vec![cluster(&[named("one").await])], clients).await.unwrap();
    let [first, second] = [0, 1].map(|number| weal_host::users::APPLICATION_UIDS.start() + number);
    let mut operator = bed.connect().await;
    let mut hosted = adopt(connect_as(&bed, first));
    let mut statuses = Vec::new();
    for _ in 0..50 {
        hosted.send(GET).await;
        statuses.push(hosted.read_answer().await.status);
        operator.send(GET).await;
        assert_eq!(operator.read_answer().await.status, 200, "whoever runs weal has no bounds");
    }
    assert!(statuses[..4] == [200; 4] && statuses.contains(&429), "{statuses:?}");
    let _more = [connect_as(&bed, first), connect_as(&bed, first)];
    bed.until("they are open", |counters| counters.connections == 4).await;
    let mut one_too_many = adopt(connect_as(&bed, first));
    assert_eq!(Answer::parse(&one_too_many.read_to_end().await).status, 429);
    let mut other = adopt(connect_as(&bed, second));
    other.send(GET).await;
    assert_eq!(other.read_answer().await.status, 200, "another application has bounds of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_needs_an_application_calls_it_without_bounds_and_another_hosted_one_does_not() {
    if !rustix::process::geteuid().is_root() {
        return weal_testing::skip("without root, applications have the same user as everybody else here");
    }
    let [caller, other] = [0, 1].map(|number| weal_host::users::APPLICATION_UIDS.start() + number);
    for http in [true, false] {
        let bed = Bed::start_in(folder(), limits()).await;
        let flows = [("default".into(), flow(1.0, 9))].into();
        let inner = InnerTier { http, flows, unmarked: "default".into(), callers: [caller].into() };
        let api = ClusterConfig {
            app: "api".into(),
            routes: Vec::new(),
            flows: std::collections::BTreeMap::new(),
            inner: Some(inner),
            ..cluster(&[named("one").await])
        };
        let clients = ClientPolicy { client_rate: 2, client_connections: 3, ..ClientPolicy::default() };
        bed.configure_for(vec![api], clients).await.unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let listeners = Listeners(vec![Listener::Inner { app: "api".into(), address }]);
        weal_rpc::hand_over(&bed.state.join("ports.sock"), &listeners, &[socket.as_fd()]).unwrap();

        let calls: Vec<_> = (0..5).map(|_| connect_to(address, caller)).collect();
        for call in calls {
            let mut call = adopt(call);
            for _ in 0..4 {
                call.send(GET).await;
                assert_eq!(call.read_answer().await.status, 200, "each call belongs to a request that is bounded");
            }
        }
        let mut intruders: Vec<_> = (0..3).map(|_| adopt(connect_to(address, other))).collect();
        if http {
            bed.until("they are open", |counters| counters.connections == 3).await;
        }
        let mut last = adopt(connect_to(address, other));
        if !http {
            assert!(last.read_to_end().await.is_empty(), "a fourth connection is closed");
            continue;
        }
        assert_eq!(Answer::parse(&last.read_to_end().await).status, 429, "a fourth connection");
        let mut statuses = Vec::new();
        for _ in 0..50 {
            intruders[0].send(GET).await;
            statuses.push(intruders[0].read_answer().await.status);
        }
        assert!(statuses[..4] == [200; 4] && statuses.contains(&429), "{statuses:?}");
    }
}
