//! Two gateways of one pool: what they have at an instance together is no more than the seats.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use weal_protocol::gateway::GatewayCounters;

use crate::bed::*;

async fn clients(bed: &Bed, count: u64) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        clients.push(client);
    }
    bed.until("all have arrived", |counters| counters.flows[0].arrivals == count).await;
    clients
}

/// Two gateways of one pool that send up to `seats` requests to one instance; `queue_limit` requests may wait at each.
async fn two_gateways(instance: SocketAddr, seats: u32, queue_limit: u32) -> [Bed; 2] {
    let (folder, memory) = (folder(), weal_gateway::seats_memory().unwrap());
    let start = async || {
        let mut limited = cluster(&[instance]);
        limited.seats = Some(seats);
        limited.flows.insert("gold".into(), flow(1.0, queue_limit));
        let bed = Bed::start_beside(folder.clone(), limits(), false, Some(&memory)).await;
        bed.configure(vec![limited]).await.unwrap();
        bed
    };
    [start().await, start().await]
}

/// Seats that the gateway says others hold.
async fn lent(bed: &Bed) -> u32 {
    bed.observe().await.clusters[0].seats_lent
}

fn flow_of(counters: &GatewayCounters) -> (u64, u32) {
    (counters.flows[0].completions, counters.flows[0].in_service)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_with_uneven_crowds_have_exactly_the_seats_together_and_both_are_served() {
    const SEATS: u32 = 4;
    let gate = gate().await;
    let [crowded, quiet] = two_gateways(gate.address, SEATS, 1000).await;

    let mut all = clients(&crowded, 60).await;
    assert_eq!(flow_of(&crowded.observe().await).1, SEATS, "it borrows what the other one does not use");
    all.extend(clients(&quiet, 6).await);
    assert_eq!(flow_of(&quiet.observe().await).1, 0, "no request is interrupted for it");
    assert_eq!((lent(&crowded).await, lent(&quiet).await), (0, SEATS));

    for ended in 1..=66_u64 {
        gate.permits.add_permits(1);
        loop {
            let [one, other] = [&crowded, &quiet].map(|bed| async { flow_of(&bed.observe().await) });
            let ((done, held), (done_there, held_there)) = tokio::join!(one, other);
            let due = u64::from(SEATS).min(66 - ended);
            if done + done_there == ended && u64::from(held + held_there) == due {
                break;
            }
            tokio::task::yield_now().await;
        }
        // Every second seat is its due; a machine that stands still for long may give it fewer.
        let has_begun = ended < 40 || flow_of(&quiet.observe().await).0 > 0;
        assert!(has_begun, "{ended} requests have ended, and none of the gateway that had lent its seats");
    }
    for client in &mut all {
        assert_eq!(client.read_answer().await.status, 200);
    }
    assert_eq!(gate.most_inside.load(Ordering::SeqCst), SEATS);
    assert_eq!((lent(&crowded).await, lent(&quiet).await), (0, 0), "nothing is under way");
}

/// Its class may not wait at all: it gets an answer where a seat is free, and only there.
#[tokio::test(flavor = "multi_thread")]
async fn a_class_without_a_queue_finds_the_free_seats_of_both() {
    let gate = gate().await;
    let [one, other] = two_gateways(gate.address, 2, 0).await;
    let mut held = clients(&one, 1).await;
    held.extend(clients(&other, 1).await);
    for bed in [&one, &other] {
        assert_eq!(bed.get("x", "/").await.status, 503, "both seats are taken");
    }
    gate.permits.add_permits(2);
    for client in &mut held {
        assert_eq!(client.read_answer().await.status, 200);
    }
    assert_eq!(gate.most_inside.load(Ordering::SeqCst), 2);
}
