//! The load generator against real servers on loopback.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request as HttpRequest, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use weal_load::{LoadFlow, LoadResult, Options, Request, Source, drive};
use weal_scenario::workload::{Phase, Workload};

/// A server that answers after `delay`, one request at a time if `serial`.
async fn server(delay: Duration, serial: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let turn = std::sync::Arc::new(tokio::sync::Semaphore::new(if serial { 1 } else { 10_000 }));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let turn = turn.clone();
            let service = hyper::service::service_fn(move |_: HttpRequest<Incoming>| {
                let turn = turn.clone();
                async move {
                    let _mine = turn.acquire().await;
                    tokio::time::sleep(delay).await;
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

fn flow(address: SocketAddr, workload: Workload) -> LoadFlow {
    let request = Request {
        address,
        host: "shop.localhost".into(),
        method: "GET".into(),
        path: "/?n={n}".into(),
        headers: [].into(),
        body: Bytes::new(),
    };
    LoadFlow {
        name: "shop".into(),
        request,
        source: Source::Workload(workload),
        pages: Vec::new(),
        target: Some(Duration::from_millis(100)),
    }
}

async fn run(flow: LoadFlow, options: Options) -> LoadResult {
    drive(&[flow], &options, &watch::channel(vec![]).0).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_load_does_not_wait_for_answers() {
    let address = server(Duration::from_millis(300), false).await;
    let workload = Workload::Open { phases: vec![Phase { start_s: 0.0, level: 100.0 }] };
    let outcome = run(flow(address, workload.clone()), Options { duration: Duration::from_secs(2), ..Options::default() }).await;
    let due = workload.arrivals(1, "shop", 2.0).count() as u64;
    let result = &outcome.flows[0];
    assert_eq!((result.sent, result.answered), (due, due), "{result:?}");
    assert_eq!(result.within_goal, Some(0.0));
    assert_eq!(result.seconds.iter().map(|second| second.due).sum::<u64>(), due);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_slow_server_counts_from_when_the_request_was_due() {
    // One at a time, 50 ms each, is 20 a second; 40 a second come in. After 2 s the last has waited for about 40 others.
    let address = server(Duration::from_millis(50), true).await;
    let workload = Workload::Open { phases: vec![Phase { start_s: 0.0, level: 40.0 }] };
    let outcome = run(flow(address, workload), Options { duration: Duration::from_secs(2), ..Options::default() }).await;
    let result = &outcome.flows[0];
    assert!(result.response.p95_ms > 1000.0, "{:?}", result.response);
    assert!(result.response.p50_ms > 300.0, "{:?}", result.response);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_ask_one_at_a_time() {
    let address = server(Duration::from_millis(100), false).await;
    let phases = vec![Phase { start_s: 0.0, level: 2.0 }, Phase { start_s: 1.0, level: 4.0 }];
    let workload = Workload::Sessions { phases, think_s: 0.0 };
    let outcome = run(flow(address, workload), Options { duration: Duration::from_secs(2), ..Options::default() }).await;
    let due: Vec<u64> = outcome.flows[0].seconds.iter().map(|second| second.due).collect();
    assert!(due[0] <= 20 && due[1] > due[0] && due[1] <= 40, "{due:?}");
    assert!(due[0] >= 5, "{due:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_generator_may_have_outstanding_marks_the_result() {
    let address = server(Duration::from_millis(500), false).await;
    let workload = Workload::Open { phases: vec![Phase { start_s: 0.0, level: 200.0 }] };
    let options = Options { duration: Duration::from_secs(1), most_outstanding: 10, ..Options::default() };
    let result = run(flow(address, workload), options).await.flows.remove(0);
    assert!(result.generator_overloaded && result.not_sent > 0 && result.sent > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_listening_is_counted_not_hidden() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let workload = Workload::Open { phases: vec![Phase { start_s: 0.0, level: 20.0 }] };
    let result =
        run(flow(address, workload), Options { duration: Duration::from_secs(1), ..Options::default() }).await.flows.remove(0);
    assert_eq!((result.broken, result.answered), (result.sent, 0));
}
