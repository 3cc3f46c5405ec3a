//! A pool in memory: an engine whose instances do what a test says, a gateway that remembers what it was told, and a
//! controller between them on sockets in a temporary folder.

mod runs;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weal_controller::{Error, Options};
use weal_engine::Engine;
use weal_engine_local::{instance_spec, revision};
use weal_model::{
    Action, AppName, AppSpec, ClassName, CpuShare, FlowId, InstanceId, InstanceState, LatencyHistogram, NodeReserve, NodeSpec,
    PoolSpec, Status, StatusCounts, Time,
};
use weal_protocol::controller::{ConfigTaken, ConfigUpdate};
use weal_protocol::engine::{ActionOutcome, InstanceSeen, JobOrder, NodeSeen, Observation, OutputPiece, OutputRequest, Revision};
use weal_protocol::gateway::{ConfigAck, FlowCounters, GatewayConfig, GatewayCounters};
use weal_protocol::node::{InstanceEvent, InstanceSpec, LogSource, LogsChunk, LogsRequest};
use weal_protocol::{Capabilities, Refusal};

/// Nothing in these tests takes this long; a test that fails waits for it.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// How sentences name the fake machine.
pub const PEER: &str = "the fake machine";

pub fn now() -> Time {
    Time::ZERO + std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap()
}

/// What the fake machine holds.
#[derive(Debug)]
pub struct FakeMachine {
    pub agent: Observation,
    /// What each instance was started from.
    pub specs: BTreeMap<InstanceId, InstanceSpec>,
    /// True: no call ends, as when the agent's process is stopped.
    pub stuck: bool,
    pub events: Vec<InstanceEvent>,
    /// Every action in the order in which it came.
    pub actions: Vec<Action>,
    pub shares: BTreeMap<InstanceId, f64>,
    /// Instances of these stay `starting`.
    pub never_ready: Vec<AppName>,
    /// Starting one of these fails.
    pub unstartable: Vec<AppName>,
    /// False: every call fails.
    pub up: bool,
    /// So far its clock is ahead of this machine's.
    pub ahead: Duration,
    next_port: u16,
}

/// A handle to it, and the engine of the controller under test.
#[derive(Debug, Clone)]
pub struct FakeEngine(Arc<Mutex<FakeMachine>>);

impl FakeEngine {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(FakeMachine {
            agent: Observation {
                began: now(),
                time: now(),
                capabilities: Capabilities {
                    jobs: false,
                    losses: vec!["nothing is kept apart".into()],
                    ..Capabilities::all("none")
                },
                ..Observation::default()
            },
            specs: BTreeMap::new(),
            stuck: false,
            events: Vec::new(),
            actions: Vec::new(),
            shares: BTreeMap::new(),
            never_ready: Vec::new(),
            unstartable: Vec::new(),
            up: true,
            ahead: Duration::ZERO,
            next_port: 40_000,
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, FakeMachine> {
        self.0.lock().unwrap()
    }

    pub fn set_state(&self, id: &str, state: InstanceState, detail: &str) {
        self.lock().set_state(id, state, detail);
    }

    async fn up(&self) -> Result<MutexGuard<'_, FakeMachine>, weal_engine::Error> {
        while self.lock().stuck {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let machine = self.lock();
        if machine.up {
            return Ok(machine);
        }
        Err(weal_engine::Error::Away { peer: PEER, detail: "down for the test".into() })
    }
}

impl FakeMachine {
    pub fn set_state(&mut self, id: &str, state: InstanceState, detail: &str) {
        let instance = self.agent.instances.iter_mut().find(|i| i.id.as_str() == id).expect("the instance is there");
        (instance.state, instance.detail, instance.since) = (state, detail.into(), now());
        let event = InstanceEvent {
            id: self.events.len() as u64 + 1,
            time: now(),
            instance: instance.id.clone(),
            app: instance.app.clone(),
            node: instance.node.clone(),
            state,
            detail: detail.into(),
            job: None,
        };
        self.events.push(event);
    }

    pub fn states(&self) -> BTreeMap<String, InstanceState> {
        self.agent.instances.iter().map(|i| (i.id.to_string(), i.state)).collect()
    }

    pub fn starts(&self) -> Vec<String> {
        let start = |action: &Action| match action {
            Action::Start { instance, .. } => Some(instance.to_string()),
            _ => None,
        };
        self.actions.iter().filter_map(start).collect()
    }

    fn start(&mut self, pool: &PoolSpec, instance: &InstanceId, app: &AppName, node: &weal_model::NodeName) -> Option<String> {
        if self.unstartable.contains(app) {
            return Some("there is no such program".into());
        }
        if let Some(running) = self.agent.instances.iter_mut().find(|running| running.id == *instance) {
            running.revision = revision(&pool.apps[app]);
            return None;
        }
        let ready = self.agent.instances.iter().filter(|i| i.state == InstanceState::Ready);
        let addresses = ready.map(|i| (i.app.clone(), i.address)).collect();
        let spec = instance_spec(&pool.apps[app], instance, node, &addresses);
        self.next_port += 1;
        self.specs.insert(instance.clone(), spec.clone());
        self.agent.instances.push(InstanceSeen {
            revision: revision(&pool.apps[app]),
            needs: spec.needs,
            memory_limit: spec.memory,
            since: now(),
            pid: Some(1000),
            address: SocketAddr::from(([127, 0, 0, 1], self.next_port)),
            cpu_seconds: Some(0.0),
            memory_used: Some(weal_model::Bytes::mib(10)),
            start_took_s: Some(0.1),
            ..InstanceSeen::example(instance.as_str(), app.as_str(), node.as_str())
        });
        if !self.never_ready.contains(app) {
            self.set_state(instance.as_str(), InstanceState::Ready, "");
        }
        None
    }
}

impl Engine for FakeEngine {
    fn peer(&self) -> &'static str {
        PEER
    }

    fn revision(&self, app: &AppSpec) -> Revision {
        revision(app)
    }

    async fn configure(&self, nodes: &[NodeSpec]) -> Result<(), weal_engine::Error> {
        self.up().await?.agent.nodes = nodes.iter().map(NodeSeen::example).collect();
        Ok(())
    }

    async fn apply(&self, pool: &PoolSpec, actions: &[Action]) -> Result<Vec<ActionOutcome>, weal_engine::Error> {
        let mut machine = self.up().await?;
        let mut outcomes = Vec::new();
        for action in actions {
            machine.actions.push(action.clone());
            let error = match action {
                Action::Start { instance, app, node } => machine.start(pool, instance, app, node),
                Action::Stop { instance, .. } => {
                    machine.agent.instances.retain(|running| running.id != *instance);
                    None
                }
                other => Some(format!("the fake cannot do {other:?}")),
            };
            outcomes.push(ActionOutcome { action: action.clone(), took_s: 0.0, refusal: error.map(Refusal::failed) });
        }
        Ok(outcomes)
    }

    async fn set_cpu_shares(&self, shares: &[CpuShare]) -> Result<(), weal_engine::Error> {
        self.up().await?.shares.extend(shares.iter().map(|share| (share.instance.clone(), share.cpu.0)));
        Ok(())
    }

    async fn set_reserves(&self, reserves: &[NodeReserve]) -> Result<(), weal_engine::Error> {
        for node in &mut self.up().await?.agent.nodes {
            let kept = reserves.iter().find(|reserve| reserve.node == node.name);
            node.memory_reserve = kept.map_or(weal_model::Bytes(0), |reserve| reserve.memory);
        }
        Ok(())
    }

    async fn observe(&self) -> Result<Observation, weal_engine::Error> {
        let mut machine = self.up().await?;
        machine.agent.time = now() + machine.ahead;
        Ok(machine.agent.clone())
    }

    async fn events(&self, after: u64, wait: Duration) -> Result<Vec<InstanceEvent>, weal_engine::Error> {
        let deadline = Instant::now() + wait;
        loop {
            let events: Vec<_> = self.up().await?.events.iter().filter(|event| event.id > after).cloned().collect();
            if !events.is_empty() || Instant::now() > deadline {
                return Ok(events);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn log_sources(&self, name: &str) -> Result<Vec<LogSource>, weal_engine::Error> {
        let machine = self.up().await?;
        let of = machine.agent.instances.iter().filter(|instance| instance.app.as_str() == name);
        Ok(of.map(|instance| LogSource { instance: instance.id.clone(), ended: None }).collect())
    }

    async fn logs(&self, request: &LogsRequest) -> Result<LogsChunk, weal_engine::Error> {
        let machine = self.up().await?;
        assert!(machine.agent.instances.iter().any(|i| i.id == request.instance));
        let text =
            if request.cursor.is_none() { format!("hello from {}\nsecond line\n", request.instance) } else { String::new() };
        Ok(LogsChunk { text, next: "2".into(), times: Vec::new(), is_over: false })
    }

    async fn apply_to_job(&self, order: &JobOrder) -> Result<ActionOutcome, weal_engine::Error> {
        let mut machine = self.up().await?;
        machine.actions.push(order.action.clone());
        let refusal = machine.act_on_job(order);
        Ok(ActionOutcome { action: order.action.clone(), took_s: 0.0, refusal })
    }

    async fn output(&self, request: &OutputRequest) -> Result<OutputPiece, weal_engine::Error> {
        drop(self.up().await?);
        let data = if request.cursor.is_none() { "aGVsbG8A/w==".to_owned() } else { String::new() };
        Ok(OutputPiece { data, next: "1".into(), is_over: request.cursor.is_some() })
    }
}

/// What the fake gateway was told, and what it counts.
#[derive(Debug, Clone)]
pub struct FakeGateway(Arc<Mutex<GatewayCounters>>, Arc<Mutex<Vec<GatewayConfig>>>);

impl FakeGateway {
    pub fn counters(&self) -> MutexGuard<'_, GatewayCounters> {
        self.0.lock().unwrap()
    }

    /// All configs, oldest first.
    pub fn told(&self) -> Vec<GatewayConfig> {
        self.1.lock().unwrap().clone()
    }

    /// Ready and draining endpoints of `app` in the config in force.
    pub fn endpoints(&self, app: &str) -> (Vec<String>, Vec<String>) {
        let told = self.told();
        let cluster = told.last().and_then(|config| config.clusters.iter().find(|c| c.app.as_str() == app)).cloned();
        let endpoints = cluster.map(|cluster| cluster.endpoints).unwrap_or_default();
        let ids = |draining| endpoints.iter().filter(|e| e.draining == draining).map(|e| e.instance.to_string()).collect();
        (ids(false), ids(true))
    }

    /// Serves it at `socket`.
    pub fn serve(socket: &Path) -> (Self, JoinHandle<()>) {
        let counters = GatewayCounters { connections: 3, ..GatewayCounters::none("gw".into(), now(), now()) };
        let gateway = Self(Arc::new(Mutex::new(counters)), Arc::default());
        let task = gateway.serve_again(socket);
        (gateway, task)
    }

    pub fn serve_again(&self, socket: &Path) -> JoinHandle<()> {
        let listener = tokio::net::UnixListener::from_std(weal_rpc::bind(socket).unwrap()).unwrap();
        let (observing, configuring) = (self.clone(), self.clone());
        let router = weal_rpc::Router::new(weal_rpc::Callers::own())
            .on(weal_protocol::gateway::OBSERVE, move |()| {
                let mut counters = observing.counters();
                counters.time = now();
                let counters = counters.clone();
                async move { Ok(counters) }
            })
            .on(weal_protocol::gateway::CONFIGURE, move |config: GatewayConfig| {
                let mut counters = configuring.counters();
                let answer = if config.version < counters.version {
                    Err(weal_rpc::RpcRefusal::bad_request("older than that in force"))
                } else {
                    counters.version = config.version;
                    let version = config.version;
                    configuring.1.lock().unwrap().push(config);
                    Ok(ConfigAck { version })
                };
                async move { answer }
            });
        tokio::spawn(weal_rpc::serve(listener, router))
    }
}

pub fn flow_id(app: &str, class: &str) -> FlowId {
    FlowId { gateway: "gw".into(), app: AppName::from(app), class: ClassName::from(class) }
}

/// A flow's counters after `count` requests of `response`.
pub fn flow(app: &str, class: &str, count: u64, response: Duration) -> FlowCounters {
    let mut histogram = LatencyHistogram::default();
    histogram.record_n(response, count);
    FlowCounters {
        id: flow_id(app, class),
        arrivals: count,
        completions: count,
        rejections: 0,
        errors: 0,
        retries: 0,
        response_time: histogram.clone(),
        service_time: histogram,
        queue_integral_s: 0.0,
        in_service_integral_s: count as f64 * response.as_secs_f64(),
        queued: 0,
        in_service: 0,
        late: 0,
        hanging: 0,
        at_clients: 0,
        oldest_wait_s: 0.0,
        responses: StatusCounts { successful: count, ..StatusCounts::default() },
    }
}

/// A whole pool under test.
pub struct Pool {
    pub folder: tempfile::TempDir,
    pub engine: FakeEngine,
    pub gateway: FakeGateway,
    pub api: SocketAddr,
    gateway_task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    controller: Option<JoinHandle<Result<(), Error>>>,
}

impl Pool {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("run")).unwrap();
        let (gateway, gateway_task) = FakeGateway::serve(&folder.path().join("run/gateway.sock"));
        let mut pool = Self {
            folder,
            engine: FakeEngine::new(),
            gateway,
            api: SocketAddr::from(([127, 0, 0, 1], 0)),
            gateway_task,
            stop: None,
            controller: None,
        };
        pool.start_controller();
        pool
    }

    /// Starts the controller (again).
    pub fn start_controller(&mut self) {
        let api = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        self.api = api.local_addr().unwrap();
        let local = weal_rpc::bind(&self.path("run/controller.sock")).unwrap();
        let options = Options {
            state_dir: self.folder.path().to_owned(),
            api,
            local,
            api_tls: None,
            operator: rustix::process::geteuid().as_raw(),
            record: true,
        };
        let (stop, stopped) = oneshot::channel();
        let engine = self.engine.clone();
        self.stop = Some(stop);
        self.controller = Some(tokio::spawn(weal_controller::run_with(options, engine, async move {
            // A dropped sender stops it too.
            let _ = stopped.await;
        })));
    }

    /// Stops the controller as SIGTERM does.
    pub async fn stop_controller(&mut self) {
        drop(self.stop.take());
        self.controller.take().unwrap().await.unwrap().unwrap();
    }

    /// Waits until the controller ends by itself.
    pub async fn controller_ends(&mut self) {
        self.controller.take().unwrap().await.unwrap().unwrap();
    }

    /// Ends the controller as SIGKILL does: nothing is finished.
    pub async fn kill_controller(&mut self) {
        let task = self.controller.take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn token(&self) -> String {
        std::fs::read_to_string(self.path("controller/token")).unwrap().trim().to_owned()
    }

    /// One request over the local socket.
    pub async fn local(&self, method: &str, path: &str, body: impl Into<Bytes>) -> (u16, String) {
        local(&self.path("run/controller.sock"), method, path, body).await
    }

    /// One request over TCP with these headers.
    pub async fn tcp(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> (u16, String) {
        let stream = tokio::net::TcpStream::connect(self.api).await.unwrap();
        exchange(stream, method, path, headers, body.into()).await
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let (status, body) = self.local("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    pub async fn status(&self) -> Status {
        self.get("/v1/status").await
    }

    pub async fn put(&self, text: &str, dry_run: bool) -> (u16, String) {
        let update =
            ConfigUpdate { text: text.into(), path: "weal.toml".into(), dry_run, refused: String::new(), origin: String::new() };
        self.local("PUT", "/v1/config", serde_json::to_string(&update).unwrap()).await
    }

    /// Gives it a config that it must take.
    pub async fn apply(&self, text: &str) -> ConfigTaken {
        let (status, body) = self.put(text, false).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until `holds`, and says what the status was if it never does.
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            if Instant::now() > deadline {
                let (_, status) = self.local("GET", "/v1/status", "").await;
                let events: Value = self.get("/v1/events").await;
                panic!("never: {what}\nmachine: {:#?}\nstatus: {status}\nevents: {events:#}", self.engine.lock().states());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the status is as wanted, and gives it.
    pub async fn until_status(&self, what: &str, mut holds: impl FnMut(&Status) -> bool) -> Status {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let status = self.status().await;
            if holds(&status) {
                return status;
            }
            let events: Value = self.get("/v1/events").await;
            assert!(Instant::now() < deadline, "never: {what}\n{status:#?}\n{events:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.gateway_task.abort();
    }
}

/// One request over a controller's local socket.
pub async fn local(socket: &Path, method: &str, path: &str, body: impl Into<Bytes>) -> (u16, String) {
    let stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    exchange(stream, method, path, &[], body.into()).await
}

async fn exchange<S>(stream: S, method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> (u16, String)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut request = hyper::Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", "localhost");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let exchange = async {
        let response = sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    let answer = tokio::time::timeout(DEADLINE, exchange).await.expect("an answer in time");
    connection.abort();
    answer
}

/// Two nodes and an application that needs another; quick cycles, so that tests are.
pub const CONFIG: &str = r#"
[pool]
name = "test"
listen = "127.0.0.1:18080"
api = "127.0.0.1:18081"
flow-cycle = "200ms"
placement-cycle = "1s"

[[node]]
name = "n1"
cpu = 1.0
memory = "1GiB"

[[node]]
name = "n2"
cpu = 1.0
memory = "1GiB"

[class.gold]
goal = "p95 < 250ms"
importance = "high"

[app.db]
run = ["db", "--port", "$PORT"]
instances = { min = 1, max = 1 }

[app.shop]
run = ["shop", "--port", "$PORT"]
memory = "100MiB"
instances = { min = 2, max = 4 }
routes = [{ host = "shop.localhost", class = "gold" }]
needs = ["db"]
"#;
