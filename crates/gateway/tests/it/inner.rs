//! Inner tiers: applications that call each other through the gateway.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use weal_protocol::gateway::{ClusterConfig, InnerTier, Listener, Listeners};

use crate::bed::*;

/// What instances were told in `x-weal-class`, one entry per request.
type Told = Arc<Mutex<Vec<Option<String>>>>;

async fn listening(told: &Told) -> SocketAddr {
    let told = Arc::clone(told);
    instance(move |request| {
        let class = request.headers().get("x-weal-class").map(|class| class.to_str().unwrap().to_owned());
        told.lock().unwrap().push(class);
        async { Response::new(Full::<Bytes>::from("ok")) }
    })
    .await
}

/// The clusters of `shop`, which calls `api`, and of `api`, with what `api` is reached at.
async fn two_tiers(told_shop: &Told, told_api: &Told) -> (Bed, SocketAddr) {
    let shop = ClusterConfig { calls: true, ..cluster(&[listening(told_shop).await]) };
    let flows = [("gold".into(), flow(1.0, 9)), ("default".into(), flow(1.0, 9))].into();
    let api = ClusterConfig {
        app: "api".into(),
        routes: Vec::new(),
        flows: std::collections::BTreeMap::new(),
        inner: Some(InnerTier { http: true, flows, unmarked: "default".into(), callers: [].into() }),
        ..cluster(&[listening(told_api).await, listening(told_api).await])
    };
    let api = ClusterConfig {
        endpoints: api
            .endpoints
            .iter()
            .enumerate()
            .map(|(i, endpoint)| weal_protocol::gateway::Endpoint {
                instance: format!("api-{i}").as_str().into(),
                ..endpoint.clone()
            })
            .collect(),
        ..api
    };
    let bed = Bed::start(vec![shop, api]).await;
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let listeners = Listeners(vec![Listener::Inner { app: "api".into(), address }]);
    weal_rpc::hand_over(&bed.state.join("ports.sock"), &listeners, &[socket.as_fd()]).unwrap();
    (bed, address)
}

async fn call(address: SocketAddr, class: Option<&str>) -> u16 {
    let mut client = Client { stream: tokio::net::TcpStream::connect(address).await.unwrap() };
    let class = class.map_or_else(String::new, |class| format!("x-weal-class: {class}\r\n"));
    client.send(&format!("GET / HTTP/1.1\r\nhost: {address}\r\n{class}connection: close\r\n\r\n")).await;
    Answer::parse(&client.read_to_end().await).status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_brings_its_requests_class_along_and_nobody_else_can_claim_one() {
    let (told_shop, told_api) = (Told::default(), Told::default());
    let (bed, api) = two_tiers(&told_shop, &told_api).await;
    let mut outside = bed.connect().await;
    outside.send("GET / HTTP/1.1\r\nhost: x\r\nx-weal-class: gold\r\nconnection: close\r\n\r\n").await;
    outside.read_to_end().await;
    let mark = told_shop.lock().unwrap()[0].clone().expect("an instance that calls others is told the class");
    assert!(mark.len() == 32 && mark != "gold", "what the client said is replaced: {mark}");
    for class in [Some(mark.as_str()), Some("gold"), None] {
        assert_eq!(call(api, class).await, 200);
    }
    let counters =
        bed.until("all are counted", |counters| counters.inner.iter().map(|flow| flow.completions).sum::<u64>() == 3).await;
    let completions = |class: &str| counters.inner.iter().find(|flow| flow.id.class.as_str() == class).unwrap().completions;
    assert_eq!((completions("gold"), completions("default")), (1, 2), "only the mark is believed");
    assert!(counters.inner.iter().all(|flow| flow.id.app.as_str() == "api"));
    let outer: Vec<_> = counters.flows.iter().map(|flow| (flow.id.app.as_str(), flow.completions)).collect();
    assert_eq!(outer, [("shop", 1)], "calls are no requests from outside");
    assert_eq!(counters.inner_addresses, [("api".into(), api)].into());
    assert_eq!(*told_api.lock().unwrap(), [None, None, None], "one that calls nobody is told nothing");
    let marks = read(&bed.state.join("gateway/marks.json"));
    assert!(marks.contains(&mark), "the next gateway knows it too");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_balanced_over_the_instances() {
    let (bed, api) = two_tiers(&Told::default(), &Told::default()).await;
    for _ in 0..20 {
        assert_eq!(call(api, None).await, 200);
    }
    let counters = bed.until("all are counted", |counters| {
        counters.instances.iter().filter(|one| one.instance.as_str().starts_with("api")).map(|one| one.completions).sum::<u64>()
            == 20
    });
    let counters = counters.await;
    assert!(counters.instances.iter().filter(|one| one.instance.as_str().starts_with("api")).all(|one| one.completions > 5));
}
