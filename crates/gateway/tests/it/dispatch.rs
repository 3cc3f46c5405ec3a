//! Which instance a request goes to: by name, by table, by session.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weal_model::{DispatchPolicy, DispatchRules};
use weal_protocol::gateway::ClusterConfig;

use crate::bed::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn by(rules: DispatchRules, addresses: &[SocketAddr]) -> ClusterConfig {
    let mut config = cluster(addresses);
    config.http.dispatch = rules;
    config
}

fn policy(policy: DispatchPolicy) -> DispatchRules {
    DispatchRules { policy, replication: 1, ..DispatchRules::default() }
}

async fn four() -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for name in NAMES {
        addresses.push(named(name).await);
    }
    addresses
}

/// Who answers for each of these paths, asked one after the other over one connection.
async fn homes(bed: &Bed, paths: &[String]) -> BTreeMap<String, String> {
    let mut client = bed.connect().await;
    let mut homes = BTreeMap::new();
    for path in paths {
        client.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        let answer = client.read_answer().await;
        assert_eq!(answer.status, 200, "{path}");
        homes.insert(path.clone(), answer.text());
    }
    homes
}

fn paths(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("/files/{number}.bin")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_url_has_its_instance_and_only_those_of_a_dead_one_move() {
    let mut addresses = four().await;
    let bed = Bed::start(vec![by(policy(DispatchPolicy::UrlHash), &addresses)]).await;
    let paths = paths(120);
    let before = homes(&bed, &paths).await;
    assert_eq!(homes(&bed, &paths).await, before, "per request on one connection, and the same on another");
    let counted = NAMES.map(|name| before.values().filter(|home| *home == name).count());
    assert!(counted.iter().all(|&count| (15..46).contains(&count)), "{counted:?}");
    // The second one dies: nobody listens there any more, and no config says so.
    addresses[1] = nobody().await;
    bed.configure(vec![by(policy(DispatchPolicy::UrlHash), &addresses)]).await.unwrap();
    for (path, home) in homes(&bed, &paths).await {
        assert_eq!(home, if before[&path] == "b" { "c" } else { &before[&path] }, "{path}: the next one, and nothing else moves");
    }
    // And leaves the config: its place stays.
    let mut without = by(policy(DispatchPolicy::UrlHash), &addresses);
    without.endpoints.remove(1);
    bed.configure(vec![without]).await.unwrap();
    for (path, home) in homes(&bed, &paths).await {
        assert_eq!(home, if before[&path] == "b" { "c" } else { &before[&path] }, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_query_is_part_of_the_name_only_where_that_is_asked_for() {
    let addresses = four().await;
    let asked: Vec<String> = (0..40).map(|number| format!("/list?page={number}")).collect();
    for hash_query in [false, true] {
        let rules = DispatchRules { hash_query, ..policy(DispatchPolicy::UrlHash) };
        let bed = Bed::start(vec![by(rules, &addresses)]).await;
        let mut used: Vec<String> = homes(&bed, &asked).await.into_values().collect();
        used.sort();
        used.dedup();
        assert_eq!(used.len(), if hash_query { 4 } else { 1 }, "{used:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_answers_over_dead_instances() {
    for chosen in DispatchPolicy::ALL {
        let addresses = [nobody().await, named("b").await, nobody().await, named("d").await];
        let bed = Bed::start(vec![by(policy(chosen), &addresses)]).await;
        let homes = homes(&bed, &paths(30)).await;
        assert!(homes.values().all(|home| home == "b" || home == "d"), "{chosen:?}: {homes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lard_remembers_who_served_a_url() {
    let bed = Bed::start(vec![by(policy(DispatchPolicy::Lard), &four().await)]).await;
    let (paths, mut reversed) = (paths(60), paths(60));
    let before = homes(&bed, &paths).await;
    reversed.reverse();
    assert_eq!(homes(&bed, &reversed).await, before);
    let counted = NAMES.map(|name| before.values().filter(|home| *home == name).count());
    assert_eq!(counted, [15; 4], "new ones go to whose turn it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_its_instance_and_gets_another_when_that_dies() {
    let mut addresses = four().await;
    let rules = || DispatchRules { affinity: Some("shop-at".into()), ..DispatchRules::default() };
    let bed = Bed::start(vec![by(rules(), &addresses)]).await;
    let ask = async |cookie: &str| {
        let mut client = bed.connect().await;
        client.send(&format!("GET / HTTP/1.1\r\nhost: x\r\ncookie: theme=dark; shop-at={cookie}\r\n\r\n")).await;
        client.read_answer().await
    };
    let first = bed.get("x", "/").await;
    let given = first.header("set-cookie").expect("a new client gets a cookie").to_owned();
    let (token, rest) = given.strip_prefix("shop-at=").unwrap().split_once(';').unwrap();
    assert_eq!(rest, " Path=/; HttpOnly; SameSite=Lax");
    assert!(token.len() == 32 && token.chars().all(|c| c.is_ascii_hexdigit()), "it says nothing of an instance: {token}");
    for _ in 0..20 {
        let answer = ask(token).await;
        assert_eq!((answer.text(), answer.header("set-cookie")), (first.text(), None));
    }
    let forged = ask(&"0".repeat(32)).await;
    assert!(forged.header("set-cookie").is_some(), "what nobody gave out means nothing");
    let at = NAMES.iter().position(|name| *name == first.text()).unwrap();
    addresses[at] = nobody().await;
    bed.configure(vec![by(rules(), &addresses)]).await.unwrap();
    let moved = ask(token).await;
    assert_eq!(moved.status, 200, "its session goes on elsewhere");
    assert_ne!(moved.text(), first.text());
    let new = moved.header("set-cookie").expect("with a cookie for there").split(['=', ';']).nth(1).unwrap().to_owned();
    for _ in 0..10 {
        let answer = ask(&new).await;
        assert_eq!((answer.text(), answer.header("set-cookie")), (moved.text(), None));
    }
}
