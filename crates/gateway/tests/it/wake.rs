//! Requests for a cluster that sleeps: what the gateway asks of the node agent, and what becomes of those who wait.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;
use weal_model::InstanceId;
use weal_protocol::gateway::Standby;
use weal_protocol::node::{WAKE, WakeAnswer, WakeRequest};
use weal_rpc::RpcRefusal;

use crate::bed::*;

/// A node agent that only wakes: each call waits for a permit, and finds an instance from the `nth` on.
pub struct Agent {
    calls: Arc<AtomicU32>,
    /// Whom each call named.
    named: Arc<Mutex<Vec<Vec<InstanceId>>>>,
    pub permits: Arc<Semaphore>,
}

pub fn agent(bed: &Bed, address: std::net::SocketAddr, nth: u32) -> Agent {
    let agent = Agent { calls: Arc::default(), named: Arc::default(), permits: Arc::new(Semaphore::new(0)) };
    let (calls, named, permits) = (Arc::clone(&agent.calls), Arc::clone(&agent.named), Arc::clone(&agent.permits));
    let listener = weal_rpc::bind(&bed.state.join("wake.sock")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let router = weal_rpc::Router::new(weal_rpc::Callers::own()).on(WAKE, move |request: WakeRequest| {
        let (calls, permits) = (Arc::clone(&calls), Arc::clone(&permits));
        named.lock().unwrap().push(request.instances.clone());
        async move {
            let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(request.app.as_str() == "shop" && request.wait_s > 0.0);
            assert!(request.instances.is_empty() || request.instances == ["shop-7".into()], "{request:?}");
            permits.acquire().await.unwrap().forget();
            if call < nth {
                return Err(RpcRefusal { status: 404, message: "nothing of it sleeps".into(), refusal: None });
            }
            Ok(WakeAnswer { instance: "shop-7".into(), address, took_s: 0.006, listener: None })
        }
    });
    tokio::spawn(weal_rpc::serve(tokio::net::UnixListener::from_std(listener).unwrap(), router));
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_requests_at_once_wake_one_instance_and_are_all_served_by_it() {
    let bed = Bed::start(vec![cluster(&[])]).await;
    let agent = agent(&bed, named("awake").await, 1);
    let mut clients = Vec::new();
    for _ in 0..50 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        clients.push(client);
    }
    bed.until("all wait", |counters| counters.flows[0].queued == 50).await;
    agent.permits.add_permits(1);
    for client in &mut clients {
        assert_eq!(client.read_answer().await.text(), "awake");
    }
    assert_eq!(bed.get("x", "/").await.text(), "awake", "it stays open for those who come later");
    assert_eq!(agent.calls.load(Ordering::SeqCst), 1);
    let counters = bed.until("all are counted", |counters| counters.flows[0].completions == 51).await;
    let woken = &counters.clusters[0];
    assert_eq!((woken.app.as_str(), woken.wakes, woken.wake_failures, woken.wake_wait.count()), ("shop", 1, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_starts_without_a_controller_wakes_by_the_config_on_disk() {
    let folder = folder();
    let mut bed = Bed::start_in(Arc::clone(&folder), limits()).await;
    bed.configure(vec![cluster(&[])]).await.unwrap();
    bed.stop.take().unwrap().send(()).unwrap();
    bed.ended.await.unwrap().unwrap();
    let bed = Bed::start_in(folder, limits()).await;
    let agent = agent(&bed, named("awake").await, 1);
    agent.permits.add_permits(1);
    assert_eq!(bed.get("x", "/").await.text(), "awake");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_is_made_again_while_somebody_waits() {
    let bed = Bed::start(vec![cluster(&[])]).await;
    let agent = agent(&bed, named("at last").await, 3);
    agent.permits.add_permits(3);
    assert_eq!(bed.get("x", "/").await.text(), "at last");
    let counters = bed.observe().await;
    assert_eq!((counters.clusters[0].wakes, counters.clusters[0].wake_failures), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_the_queue_full_or_waits_too_long_for_a_wake_may_come_again() {
    let mut asleep = cluster(&[]);
    asleep.flows.insert("gold".into(), flow(1.0, 1));
    let bed = Bed::start(vec![asleep.clone()]).await;
    let agent = agent(&bed, named("awake").await, 1);
    let mut waiting = bed.connect().await;
    waiting.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("one waits", |counters| counters.flows[0].queued == 1).await;
    let rejected = bed.get("x", "/").await;
    assert_eq!((rejected.status, rejected.header("retry-after")), (503, Some("1")));
    assert_eq!(rejected.text(), "the queue is full: try again later\n");
    asleep.flows.insert("gold".into(), flow(1.0, 2));
    asleep.request_timeout_s = 0.2;
    bed.configure(vec![asleep]).await.unwrap();
    let late = bed.get("x", "/").await;
    assert_eq!((late.status, late.header("retry-after")), (503, Some("1")));
    assert!(late.text().starts_with("no instance was ready within 0.2 s"), "{}", late.text());
    agent.permits.add_permits(1);
    assert_eq!(waiting.read_answer().await.text(), "awake", "the one that came first is served all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_drains_is_asked_for_again_when_a_request_comes_before_it_sleeps() {
    let address = named("still here").await;
    let mut drains = cluster(&[address]);
    let bed = Bed::start(vec![drains.clone()]).await;
    let agent = agent(&bed, address, 1);
    drains.endpoints[0].draining = true;
    bed.configure(vec![drains]).await.unwrap();
    agent.permits.add_permits(1);
    assert_eq!(bed.get("x", "/").await.text(), "still here");
    assert_eq!(agent.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_drains_for_its_stop_is_not_asked_for_again_and_requests_wait_for_another() {
    let stopping = named("about to be stopped").await;
    let mut replaced = cluster(&[stopping]);
    replaced.endpoints[0].draining = true;
    replaced.wakeable = Some(Vec::new());
    let bed = Bed::start(vec![replaced]).await;
    let agent = agent(&bed, stopping, 1);
    agent.permits.add_permits(9);
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it waits", |counters| counters.flows[0].queued == 1).await;
    bed.configure(vec![cluster(&[named("new").await])]).await.unwrap();
    assert_eq!(client.read_answer().await.text(), "new");
    assert_eq!(agent.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeper_is_woken_while_another_drains_for_its_stop() {
    let mut partly = cluster(&[named("about to be stopped").await]);
    partly.endpoints[0].draining = true;
    partly.wakeable = Some(vec!["shop-7".into()]);
    let bed = Bed::start(vec![partly]).await;
    let agent = agent(&bed, named("awake").await, 1);
    agent.permits.add_permits(9);
    assert_eq!(bed.get("x", "/").await.text(), "awake");
    assert_eq!(*agent.named.lock().unwrap(), [vec![InstanceId::from("shop-7")]], "the agent knows of no drain");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_to_be_stopped_since_it_was_asked_for_is_not_used() {
    let bed = Bed::start(vec![cluster(&[])]).await;
    let stopping = named("about to be stopped").await;
    let agent = agent(&bed, stopping, 1);
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it waits", |counters| counters.flows[0].queued == 1).await;
    let mut replaced = cluster(&[stopping]);
    replaced.endpoints[0].instance = "shop-7".into();
    replaced.endpoints[0].draining = true;
    replaced.wakeable = Some(Vec::new());
    bed.configure(vec![replaced]).await.unwrap();
    agent.permits.add_permits(9);
    let counters = bed.until("the call is over", |counters| counters.clusters[0].wake_failures == 1).await;
    assert_eq!((counters.clusters[0].wakes, counters.flows[0].queued), (0, 1));
    bed.configure(vec![cluster(&[named("new").await])]).await.unwrap();
    assert_eq!(client.read_answer().await.text(), "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_an_instance_are_closed_before_it_sleeps_while_the_clients_stays_open() {
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let address = raw_instance(move |mut stream| {
        let ended = ended.clone();
        async move {
            let mut buffer = [0; 4096];
            while matches!(stream.read(&mut buffer).await, Ok(read) if read > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
            }
            let _ = ended.send(());
        }
    })
    .await;
    let mut drains = cluster(&[address]);
    let bed = Bed::start(vec![drains.clone()]).await;
    let agent = agent(&bed, address, 1);
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.read_answer().await.text(), "ok");
    drains.endpoints[0].draining = true;
    bed.configure(vec![drains.clone()]).await.unwrap();
    tokio::time::timeout(PATIENCE, ends.recv()).await.expect("its idle connection is closed");
    drains.endpoints.clear();
    bed.configure(vec![drains]).await.unwrap();
    agent.permits.add_permits(1);
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(client.read_answer().await.text(), "ok", "over the client's old connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_waits_wakes_one_that_stands_by_and_is_served_by_both() {
    let (busy, enter, leave) = busy().await;
    let crowded = |after_s| {
        let mut crowded = cluster(&[busy]);
        crowded.seats = Some(1);
        crowded.standby = Some(Standby { after_s, instances: vec!["shop-7".into()] });
        crowded
    };
    let bed = Bed::start(vec![crowded(3600.0)]).await;
    let agent = agent(&bed, named("awake").await, 1);
    agent.permits.add_permits(9);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        clients.push(client);
    }
    enter.acquire().await.unwrap().forget();
    bed.until("two wait", |counters| counters.flows[0].queued == 2).await;
    assert_eq!(agent.calls.load(Ordering::SeqCst), 0, "nobody has waited for too long yet");
    bed.configure(vec![crowded(1e-6)]).await.unwrap();
    let counters = bed.until("both are answered", |counters| counters.flows[0].completions == 2).await;
    assert_eq!((agent.calls.load(Ordering::SeqCst), counters.flows[0].in_service), (1, 1), "beside the one that is still busy");
    assert_eq!((counters.clusters[0].wakes, counters.clusters[0].crowd_wakes, counters.clusters[0].wake_wait.count()), (1, 1, 0));
    leave.add_permits(1);
    let mut answers = Vec::new();
    for client in &mut clients {
        answers.push(client.read_answer().await.text());
    }
    answers.sort();
    assert_eq!(answers, ["awake", "awake", "busy"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stands_by_is_woken_for_who_waits_although_no_request_comes_or_ends_meanwhile() {
    let (busy, enter, leave) = busy().await;
    let mut crowded = cluster(&[busy]);
    crowded.seats = Some(1);
    crowded.standby = Some(Standby { after_s: 0.1, instances: vec!["shop-7".into()] });
    let bed = Bed::start(vec![crowded]).await;
    let agent = agent(&bed, named("awake").await, 1);
    agent.permits.add_permits(9);
    let (mut first, mut second) = (bed.connect().await, bed.connect().await);
    first.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    enter.acquire().await.unwrap().forget();
    second.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(second.read_answer().await.text(), "awake");
    let counters = bed.until("it is counted", |counters| counters.flows[0].completions == 1).await;
    assert_eq!((counters.clusters[0].crowd_wakes, counters.flows[0].in_service), (1, 1), "the first is not answered yet");
    leave.add_permits(1);
    assert_eq!(first.read_answer().await.text(), "busy");
}

/// An instance that answers `busy` for each permit of the second semaphore, and adds one to the first for each request that comes.
async fn busy() -> (std::net::SocketAddr, Arc<Semaphore>, Arc<Semaphore>) {
    let (enter, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (entered, left) = (Arc::clone(&enter), Arc::clone(&leave));
    let address = raw_instance(move |mut stream| {
        let (entered, left) = (Arc::clone(&entered), Arc::clone(&left));
        async move {
            let mut buffer = [0; 4096];
            while matches!(stream.read(&mut buffer).await, Ok(read) if read > 0) {
                entered.add_permits(1);
                left.acquire().await.unwrap().forget();
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbusy";
                tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
            }
        }
    })
    .await;
    (address, enter, leave)
}
