//! Clients that send or take a byte now and then, and instances that never come to the point.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weal_gateway::Limits;
use weal_model::{ClientPolicy, RouteExtras};

use crate::bed::*;
use crate::raw::Recorder;

/// `count` clients that have sent the head of a request and the first byte of its body.
async fn dawdlers(bed: &Bed, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for index in 0..count {
        let mut client = bed.connect().await;
        let begun = if index % 2 == 0 { "content-length: 1000\r\n\r\nx" } else { "transfer-encoding: chunked\r\n\r\n1\r\nx\r\n" };
        client.send(&format!("POST /slow HTTP/1.1\r\nhost: x\r\n{begun}")).await;
        clients.push(client);
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_clients_that_send_slowly_leave_half_of_the_seats_to_others() {
    for seats in [1, 4, 7] {
        let recorder = Recorder::start().await;
        let mut limited = cluster(&[recorder.address]);
        limited.seats = Some(seats);
        let bed = Bed::start(vec![limited]).await;
        let slow = dawdlers(&bed, 40).await;
        let held = seats / 2;
        bed.until("they are there", |counters| counters.connections == 40 && counters.flows[0].in_service == held).await;
        for _ in 0..50 {
            assert_eq!(bed.get("x", "/good").await.status, 200, "{seats} seats");
        }
        let flow = bed.flow("gold").await;
        assert_eq!((flow.in_service, flow.at_clients, flow.rejections), (held, held, 0), "{seats} seats");
        drop(slow);
        bed.until("their seats are free", |counters| counters.flows[0].in_service == 0 && counters.connections == 0).await;
        assert_eq!(bed.get("x", "/good").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_too_slowly_is_refused_with_and_without_a_seat() {
    let hasty = Limits { slow_body: Duration::from_millis(200), ..limits() };
    for seats in [None, Some(1)] {
        let recorder = Recorder::start().await;
        let mut limited = cluster(&[recorder.address]);
        limited.seats = seats;
        let bed = Bed::start_with(vec![limited], hasty.clone()).await;
        for mut client in dawdlers(&bed, 4).await {
            let answer = Answer::parse(&client.read_to_end().await);
            assert_eq!((answer.status, answer.header("x-weal-reason")), (408, Some("client-too-slow")), "{seats:?}");
            assert_eq!(answer.text(), "the request's body came at less than 240 bytes per second\n");
        }
        let counters = bed.until("all have ended", |counters| counters.flows[0].in_service == 0).await;
        assert_eq!(counters.instances[0].failures, 0, "clients' faults are not the instance's");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_without_a_least_rate_waits_for_its_clients() {
    let hasty = Limits { slow_body: Duration::from_millis(50), ..limits() };
    let recorder = Recorder::start().await;
    let mut patient = cluster(&[recorder.address]);
    patient.seats = Some(1);
    patient.routes[0].extras = RouteExtras { client_min_rate: Some(0), ..RouteExtras::default() };
    let bed = Bed::start_with(vec![patient], hasty).await;
    let mut client = dawdlers(&bed, 1).await.remove(0);
    bed.until("it has a seat", |counters| counters.flows[0].in_service == 1).await;
    // Four times what others have.
    tokio::time::sleep(Duration::from_millis(200)).await;
    client.send(&"y".repeat(999)).await;
    assert_eq!(client.read_answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_gathered_first_arrives_whole() {
    let recorder = Recorder::start().await;
    let mut limited = cluster(&[recorder.address]);
    limited.seats = Some(1);
    let bed = Bed::start(vec![limited]).await;
    for (size, piece) in [(1, 1), (100, 3), (60_000, 700), (70_000, 9_000), (1 << 20, 50_000)] {
        for is_chunked in [false, true] {
            let body: Vec<u8> = (0..size).map(|i: usize| b'a' + u8::try_from(i % 23).unwrap()).collect();
            let mut client = bed.connect().await;
            let framing = if is_chunked {
                "transfer-encoding: chunked\r\ntrailer: x-end".to_owned()
            } else {
                format!("content-length: {size}")
            };
            client.send(&format!("POST /up HTTP/1.1\r\nhost: x\r\nte: trailers\r\n{framing}\r\n\r\n")).await;
            for part in body.chunks(piece) {
                if is_chunked {
                    client.send(&format!("{:x}\r\n", part.len())).await;
                }
                client.stream.write_all(part).await.unwrap();
                if is_chunked {
                    client.send("\r\n").await;
                }
            }
            if is_chunked {
                client.send("0\r\nx-end: yes\r\n\r\n").await;
            }
            assert_eq!(client.read_answer().await.status, 200, "{size} bytes, chunked {is_chunked}");
            let records = recorder.take().await;
            let got = &records.requests[0];
            assert!(got.is_complete && got.body == body, "{size} bytes, chunked {is_chunked}: {} came", got.body.len());
            assert_eq!(got.trailers.len(), usize::from(is_chunked), "{:?}", got.trailers);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_slow_clients_take_is_not_taken_for_work() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    let mut slow = dawdlers(&bed, 2).await;
    bed.until("they have seats", |counters| counters.flows[0].in_service == 2).await;
    let before = bed.until("they are known to wait", |counters| counters.flows[0].at_clients == 2).await;
    let before = before.flows[0].in_service_integral_s;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after = bed.observe().await.flows[0].in_service_integral_s;
    assert!((after - before).abs() < 1e-9, "{}", after - before);
    slow[1].send("0\r\n\r\n").await;
    assert_eq!(slow[1].read_answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_clients_take_to_read_is_not_taken_for_work_either() {
    let bed = Bed::start(vec![cluster(&[endless_instance().await])]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    // It reads nothing: once all buffers between are full, the gateway waits for it.
    let before = bed.until("it is known to wait", |counters| counters.flows[0].at_clients == 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after = bed.observe().await;
    assert_eq!((after.flows[0].in_service, after.flows[0].at_clients), (1, 1), "it keeps its seat");
    let grown = after.flows[0].in_service_integral_s - before.flows[0].in_service_integral_s;
    assert!(grown.abs() < 1e-9, "{grown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_too_slowly_is_cut_off_although_it_reads() {
    let address = endless_instance().await;
    let hasty = Limits { stalled_write: Duration::from_secs(1), ..limits() };
    let bed = Bed::start_in(folder(), hasty).await;
    // Whatever the buffers between hold, the client takes less.
    let clients = ClientPolicy { client_min_rate: 1_000_000, ..ClientPolicy::default() };
    bed.configure_for(vec![cluster(&[address])], clients).await.unwrap();
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let reader = tokio::spawn(async move {
        let mut some = [0; 4096];
        while client.stream.read(&mut some).await.is_ok_and(|count| count > 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    bed.until("it was cut off", |counters| counters.flows[0].errors == 1 && counters.flows[0].in_service == 0).await;
    reader.abort();
}

/// An instance that answers `/good`, and everything else without end.
async fn good_and_endless() -> std::net::SocketAddr {
    raw_instance(|mut stream| async move {
        while let Some(head) = read_head(&mut stream).await {
            if !head.starts_with("GET /good ") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                let chunk = vec![b'x'; 64 << 10];
                while stream.write_all(&chunk).await.is_ok() {}
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood").await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_read_slowly_never_hold_all_seats_from_however_many_addresses() {
    // Only others end an answer that nobody takes.
    let patient = Limits { stalled_write: Duration::from_secs(600), ..limits() };
    for (seats, others) in [(1, 1), (4, 2)] {
        let mut limited = cluster(&[good_and_endless().await]);
        limited.seats = Some(seats);
        let bed = Bed::start_with(vec![limited], patient.clone()).await;
        let mut slow = Vec::new();
        for _ in 0..seats + others {
            let mut client = bed.connect().await;
            client.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
            slow.push(client);
        }
        // The slow ones beyond half of the seats give theirs to others, which turn out to be as slow.
        let all = seats + others;
        bed.until("they are all there", |counters| counters.flows[0].in_service == all && counters.flows[0].at_clients == all)
            .await;
        for _ in 0..20 {
            assert_eq!(bed.get("x", "/good").await.text(), "good", "{seats} seats");
        }
        let counters = bed
            .until("the good ones are gone", |counters| {
                let flow = &counters.flows[0];
                flow.at_clients == flow.in_service && u64::from(flow.in_service) + flow.errors == u64::from(all)
            })
            .await;
        // As soon as one has ended, no request waits: then the last of the others need not have become slow yet.
        let flow = &counters.flows[0];
        assert!((1..=u64::from(others)).contains(&flow.errors), "{} of {all} were cut off", flow.errors);
        assert_eq!(flow.rejections, 0, "everybody got a seat");
        assert_eq!(counters.instances[0].failures, 0, "clients' faults are not the instance's");
        let left = flow.in_service;
        let closed = bed.until("others were cut off", |counters| counters.connections == u64::from(left)).await;
        assert_eq!(closed.flows[0].in_service, left, "nobody is cut off while nobody waits");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_route_without_a_least_rate_keep_their_seats() {
    let mut patient = cluster(&[good_and_endless().await]);
    (patient.seats, patient.request_timeout_s) = (Some(1), 3.0);
    patient.routes[0].extras = RouteExtras { client_min_rate: Some(0), ..RouteExtras::default() };
    let bed = Bed::start(vec![patient]).await;
    let mut slow = bed.connect().await;
    slow.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it takes nothing", |counters| counters.flows[0].at_clients == 1).await;
    assert_eq!(bed.get("x", "/good").await.status, 503, "it has waited in vain");
    assert_eq!(bed.flow("gold").await.in_service, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn interim_responses_without_end_end_the_exchange() {
    let address = raw_instance(|mut stream| async move {
        if read_head(&mut stream).await.is_some() {
            while stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await.is_ok() {}
        }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.0\r\nhost: x\r\n\r\n").await;
    let answer = Answer::parse(&client.read_to_end().await);
    assert_eq!((answer.status, answer.header("x-weal-reason")), (502, Some("instance-broke-off")), "{}", answer.text());
    let mut leaving = bed.connect().await;
    leaving.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    leaving.stream.read_u8().await.unwrap();
    drop(leaving);
    bed.until("nothing is left of it", |counters| counters.flows[0].in_service == 0 && counters.connections == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_on_which_nothing_moves_is_closed_and_one_that_is_used_stays() {
    let address = raw_instance(|mut stream| async move {
        if read_head(&mut stream).await.is_some() {
            stream
                .write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhello;")
                .await
                .unwrap();
            let (mut from, mut to) = stream.split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        }
    })
    .await;
    let mut short = cluster(&[address]);
    short.routes[0].tunnel_idle_timeout_s = Some(1.0);
    let bed = Bed::start(vec![short]).await;
    let (mut idle, mut used) = (bed.connect().await, bed.connect().await);
    for client in [&mut idle, &mut used] {
        client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n").await;
        client.read_until("hello;").await;
    }
    let closed = tokio::spawn(async move { idle.read_to_end().await });
    while !closed.is_finished() {
        used.send("ping;").await;
        assert_eq!(used.read_until("ping;").await, "ping;");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(closed.await.unwrap().is_empty());
    used.send("ping;").await;
    assert_eq!(used.read_until("ping;").await, "ping;");
    bed.until("one is left", |counters| counters.connections == 1 && counters.instances[0].in_flight == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_heads_are_bounded_and_the_oldest_make_room() {
    let few = Limits { half_heads: 5, ..limits() };
    let bed = Bed::start_with(vec![cluster(&[named("alive").await])], few).await;
    let mut halves = Vec::new();
    for _ in 0..20 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nho").await;
        halves.push(client);
    }
    bed.until("the others are closed", |counters| counters.connections == 5).await;
    let answer = Answer::parse(&halves[0].read_to_end().await);
    assert_eq!(answer.status, 408, "the oldest is told why");
    assert_eq!(bed.get("x", "/").await.text(), "alive");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_before_the_first_config_waits_for_it() {
    let patient = Limits { first_config: Duration::from_secs(60), ..limits() };
    let bed = Bed::start_in(folder(), patient).await;
    let mut early = bed.connect().await;
    early.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(bed.observe().await.connections, 0, "it is in the backlog");
    bed.configure(vec![cluster(&[named("here").await])]).await.unwrap();
    assert_eq!(early.read_answer().await.text(), "here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_ends_answers_what_is_on_its_way() {
    let unhurried = Limits { quiet: Duration::from_secs(60), ..limits() };
    let mut bed = Bed::start_with(vec![cluster(&[named("last").await])], unhurried).await;
    let (mut new, mut kept, mut half) = (bed.connect().await, bed.connect().await, bed.connect().await);
    kept.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(kept.read_answer().await.header("connection"), None);
    half.send("GET / HTTP/1.1\r\nho").await;
    bed.until("all are open", |counters| counters.connections == 3).await;
    bed.stop.take().unwrap().send(()).unwrap();
    while tokio::net::TcpStream::connect(bed.address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    half.send("st: x\r\n\r\n").await;
    for client in [&mut new, &mut kept] {
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    }
    for client in [&mut new, &mut kept, &mut half] {
        let answer = Answer::parse(&client.read_to_end().await);
        assert_eq!((answer.text().as_str(), answer.header("connection")), ("last", Some("close")));
    }
    bed.ended.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_bodies_that_are_still_to_come_are_refused_beyond_what_the_gateway_keeps() {
    let few = Limits { gathers: 3, ..limits() };
    let gate = gate().await;
    let mut limited = cluster(&[gate.address]);
    limited.seats = Some(1);
    let bed = Bed::start_with(vec![limited], few).await;
    let mut refused = 0;
    let mut waiting = Vec::new();
    for mut client in dawdlers(&bed, 6).await {
        waiting.push(tokio::spawn(async move { Answer::parse(&client.read_to_end().await) }));
    }
    while refused < 3 {
        refused = waiting.iter().filter(|task| task.is_finished()).count();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    gate.permits.add_permits(1);
    assert_eq!(bed.get("x", "/good").await.status, 200);
    assert_eq!(gate.most_inside.load(Ordering::SeqCst), 1);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_first_is_told_to_go_on_by_the_gateway_where_no_seat_may_wait_for_it() {
    let recorder = Recorder::start().await;
    let mut limited = cluster(&[recorder.address]);
    limited.seats = Some(1);
    let bed = Bed::start(vec![limited]).await;
    let mut client = bed.connect().await;
    client.send("POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
    assert_eq!(client.read_until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(bed.flow("gold").await.arrivals, 0, "it has no seat yet");
    client.send("abcd").await;
    assert_eq!(client.read_answer().await.status, 200);
    let got = recorder.take().await.requests.remove(0);
    assert_eq!((got.summary().as_str(), got.fields("expect").len()), ("POST /a abcd", 0));
}
