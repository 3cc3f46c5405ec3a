//! A gateway with one cluster and nothing around it: what `cargo xtask bench gateway` and `locality` measure.
//!
//! `gateway-bench LISTEN INSTANCES SEATS WORKERS [RULES]`, e.g. `gateway-bench 127.0.0.1:8080 127.0.0.1:9000,127.0.0.1:9001 256 2`. SEATS 0
//! does not limit; RULES are those of dispatch, as JSON.

use std::error::Error;

use weal_gateway::{Limits, Options, run_until};
use weal_model::{ClientPolicy, HttpRules, RouteSpec};
use weal_protocol::gateway::{CONFIGURE, ClusterConfig, Endpoint, FlowConfig, GatewayConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some([listen, instances, seats, workers]), rest) = (arguments.first_chunk(), arguments.get(4..).unwrap_or_default())
    else {
        return Err("usage: gateway-bench LISTEN INSTANCES SEATS WORKERS [RULES]".into());
    };
    let dispatch = rest.first().map(|rules| serde_json::from_str(rules)).transpose()?.unwrap_or_default();
    let endpoint = |(number, address): (usize, &str)| {
        let instance = format!("bench-{number}").as_str().into();
        Ok::<_, std::net::AddrParseError>(Endpoint {
            instance,
            address: address.parse()?,
            weight: 1.0,
            draining: false,
            listener: None,
        })
    };
    let state_dir = std::env::temp_dir().join(format!("gateway-bench-{}", std::process::id()));
    std::fs::create_dir_all(&state_dir)?;
    let socket = state_dir.join("gateway.sock");
    let options = Options {
        name: "bench".into(),
        state_dir: state_dir.clone(),
        clients: std::net::TcpListener::bind(listen)?,
        ports: None,
        seats: None,
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
        flows: [("all".into(), FlowConfig { weight: 1.0, seats, queue_limit: 10_000, ..FlowConfig::default() })].into(),
        endpoints: instances.split(',').enumerate().map(endpoint).collect::<Result<_, _>>()?,
        request_timeout_s: 30.0,
        standby: None,
        wakeable: None,
        http: HttpRules { dispatch, ..HttpRules::default() },
        unavailable: None,
        inner: None,
        calls: false,
    };
    let limits = Limits { workers: workers.parse()?, ..Limits::default() };
    let serving = tokio::spawn(run_until(options, limits, async {
        let _ = tokio::signal::ctrl_c().await;
    }));
    let client = weal_rpc::Client::new(&socket, std::time::Duration::from_secs(60));
    client.call(CONFIGURE, &GatewayConfig { version: 1, clusters: vec![cluster], clients: ClientPolicy::default() }).await?;
    serving.await??;
    std::fs::remove_dir_all(&state_dir)?;
    Ok(())
}
