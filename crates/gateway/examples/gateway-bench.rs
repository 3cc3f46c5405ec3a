//! A gateway with one cluster and nothing around it: what `cargo xtask bench gateway` measures.
//!
//! `gateway-bench LISTEN INSTANCE SEATS WORKERS`, e.g. `gateway-bench 127.0.0.1:8080 127.0.0.1:9000 256 2`. SEATS 0 does not limit.

use std::error::Error;

use weal_gateway::{Limits, Options, run_until};
use weal_model::{ClientPolicy, HttpRules, RouteSpec};
use weal_protocol::gateway::{CONFIGURE, ClusterConfig, Endpoint, FlowConfig, GatewayConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, instance, seats, workers] = arguments.as_slice() else {
        return Err("usage: gateway-bench LISTEN INSTANCE SEATS WORKERS".into());
    };
    let state_dir = std::env::temp_dir().join(format!("gateway-bench-{}", std::process::id()));
    std::fs::create_dir_all(&state_dir)?;
    let socket = state_dir.join("gateway.sock");
    let options = Options {
        name: "bench".into(),
        state_dir: state_dir.clone(),
        clients: std::net::TcpListener::bind(listen)?,
        ports: None,
        tls_clients: None,
        rpc: weal_rpc::bind(&socket)?,
        controller: None,
        wake: state_dir.join("wake.sock"),
    };
    let seats = seats.parse::<u32>()?;
    let cluster = ClusterConfig {
        app: "bench".into(),
        routes: vec![RouteSpec::any("all".into())],
        seats: (seats > 0).then_some(seats),
        flows: [("all".into(), FlowConfig { weight: 1.0, seats, size: 1.0, queue_limit: 10_000 })].into(),
        endpoints: vec![Endpoint { instance: "bench-1".into(), address: instance.parse()?, weight: 1.0, draining: false }],
        request_timeout_s: 30.0,
        standby: None,
        wakeable: None,
        http: HttpRules::default(),
        unavailable: None,
        inner: None,
        calls: false,
    };
    let limits = Limits { workers: workers.parse()?, ..Limits::default() };
    let serving = tokio::spawn(run_until(options, limits, async {
        let _ = tokio::signal::ctrl_c().await;
    }));
    let client = weal_rpc::Client::new(&socket, std::time::Duration::from_secs(5));
    client.call(CONFIGURE, &GatewayConfig { version: 1, clusters: vec![cluster], clients: ClientPolicy::default() }).await?;
    serving.await??;
    std::fs::remove_dir_all(&state_dir)?;
    Ok(())
}
