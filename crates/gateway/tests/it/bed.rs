//! A gateway on loopback with instances made for a test.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use weal_gateway::{Limits, Options, run_until};
use weal_model::{ClientPolicy, HeaderMatch, HttpRules, Network, RouteSpec};
use weal_protocol::gateway::{
    CONFIGURE, ClusterConfig, Endpoint, FlowConfig, FlowCounters, GatewayConfig, GatewayCounters, OBSERVE,
};

/// Nothing in these tests takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Bed {
    pub address: SocketAddr,
    /// Where it speaks TLS once it has been told a certificate.
    pub tls_address: SocketAddr,
    pub rpc: weal_rpc::Client,
    pub state: PathBuf,
    pub stop: Option<oneshot::Sender<()>>,
    pub ended: JoinHandle<Result<(), weal_gateway::Error>>,
    version: AtomicU64,
    _folder: Arc<tempfile::TempDir>,
}

impl Bed {
    pub async fn start(clusters: Vec<ClusterConfig>) -> Self {
        Self::start_with(clusters, limits()).await
    }

    pub async fn start_with(clusters: Vec<ClusterConfig>, limits: Limits) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let bed = Self::start_in(folder, limits).await;
        bed.configure(clusters).await.unwrap();
        bed
    }

    /// Without a config, unless the folder has one.
    pub async fn start_in(folder: Arc<tempfile::TempDir>, limits: Limits) -> Self {
        Self::start_for(folder, limits, false).await
    }

    /// As [`Bed::start_in`]; with `tls` it listens at an address for that too.
    pub async fn start_for(folder: Arc<tempfile::TempDir>, limits: Limits, tls: bool) -> Self {
        Self::start_beside(folder, limits, tls, None).await
    }

    /// As [`Bed::start_for`]; it shares its seats with others that have the book in `seats`.
    pub async fn start_beside(folder: Arc<tempfile::TempDir>, limits: Limits, tls: bool, seats: Option<&OwnedFd>) -> Self {
        let clients = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = clients.local_addr().unwrap();
        let tls_clients = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tls_address = tls_clients.local_addr().unwrap();
        // Its own: another gateway of the same folder may still live.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let socket = folder.path().join(format!("gateway-{}.sock", NEXT.fetch_add(1, Ordering::Relaxed)));
        let rpc = weal_rpc::bind(&socket).unwrap();
        let state = folder.path().to_owned();
        let wake = folder.path().join("wake.sock");
        let ports = Some(weal_rpc::bind_handover(&folder.path().join("ports.sock")).unwrap());
        let (tls_clients, state_dir) = (tls.then_some(tls_clients), state.clone());
        let seats = seats.map(|memory| weal_gateway::seats_of_another(memory).unwrap());
        let options = Options { name: "gw".into(), state_dir, clients, tls_clients, ports, seats, rpc, controller: None, wake };
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = tokio::spawn(run_until(options, limits, async {
            let _ = stopped.await;
        }));
        let rpc = weal_rpc::Client::new(&socket, PATIENCE);
        Self { address, tls_address, rpc, state, stop: Some(stop), ended, version: AtomicU64::new(0), _folder: folder }
    }

    pub async fn configure(&self, clusters: Vec<ClusterConfig>) -> Result<u64, weal_rpc::Error> {
        self.configure_for(clusters, ClientPolicy::default()).await
    }

    pub async fn configure_for(&self, clusters: Vec<ClusterConfig>, clients: ClientPolicy) -> Result<u64, weal_rpc::Error> {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let ack = self.rpc.call(CONFIGURE, &GatewayConfig { version, clusters, clients }).await?;
        Ok(ack.version)
    }

    pub async fn observe(&self) -> GatewayCounters {
        self.rpc.call(OBSERVE, &()).await.unwrap()
    }

    pub async fn flow(&self, class: &str) -> FlowCounters {
        let counters = self.observe().await;
        counters.flows.into_iter().find(|flow| flow.id.class.as_str() == class).unwrap()
    }

    /// Polls until `wanted` holds of what the gateway counts.
    pub async fn until(&self, what: &str, wanted: impl Fn(&GatewayCounters) -> bool) -> GatewayCounters {
        let begun = Instant::now();
        loop {
            let counters = self.observe().await;
            if wanted(&counters) {
                return counters;
            }
            assert!(begun.elapsed() < PATIENCE, "never {what}: {}", serde_json::to_string(&counters).unwrap());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap() }
    }

    /// One request over a connection of its own.
    pub async fn get(&self, host: &str, path: &str) -> Answer {
        let mut client = self.connect().await;
        client.send(&format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")).await;
        Answer::parse(&client.read_to_end().await)
    }

    pub fn state_file(&self) -> PathBuf {
        self.state.join("gateway/gateway.json")
    }
}

/// The limits of the tests: as by default, but with two workers on every machine.
pub fn limits() -> Limits {
    Limits {
        workers: 2,
        drain: Duration::from_secs(20),
        quiet: Duration::from_millis(200),
        first_config: Duration::from_millis(100),
        ..Limits::default()
    }
}

/// The policy where programs of this machine are proxies that say who their clients are.
pub fn behind_local_proxies() -> ClientPolicy {
    ClientPolicy { trusted_proxies: Network::loopback().to_vec(), ..ClientPolicy::default() }
}

/// A cluster `shop` that takes every request as class `gold`.
pub fn cluster(addresses: &[SocketAddr]) -> ClusterConfig {
    let endpoint = |(i, &address): (usize, &SocketAddr)| Endpoint {
        instance: format!("shop-{i}").as_str().into(),
        address,
        weight: 1.0,
        draining: false,
        listener: None,
    };
    ClusterConfig {
        app: "shop".into(),
        routes: vec![route("gold", None, None)],
        seats: None,
        flows: [("gold".into(), flow(1.0, 100))].into(),
        endpoints: addresses.iter().enumerate().map(endpoint).collect(),
        request_timeout_s: 20.0,
        standby: None,
        wakeable: None,
        http: HttpRules { upgrades: vec!["websocket".into(), "echo".into()], ..HttpRules::default() },
        unavailable: None,
        inner: None,
        calls: false,
    }
}

pub fn flow(weight: f64, queue_limit: u32) -> FlowConfig {
    FlowConfig { weight, queue_limit, ..FlowConfig::default() }
}

pub fn route(class: &str, host: Option<&str>, path: Option<&str>) -> RouteSpec {
    RouteSpec { host: host.map(Into::into), path: path.map(Into::into), ..RouteSpec::any(class.into()) }
}

pub fn header_route(class: &str, name: &str, value: &str) -> RouteSpec {
    RouteSpec { header: Some(HeaderMatch { name: name.into(), value: Some(value.into()) }), ..route(class, None, None) }
}

/// A client that says exactly what it is told.
pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Everything until the gateway closes, a reset included.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer)).await.expect("the gateway closes") {
                Ok(0) | Err(_) => return all,
                Ok(count) => all.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// One answer with a Content-Length.
    pub async fn read_answer(&mut self) -> Answer {
        let mut all = Vec::new();
        loop {
            let parsed = Answer::parse(&all);
            let length = parsed.header("content-length").and_then(|length| length.parse::<usize>().ok());
            if length.is_some_and(|length| parsed.body.len() >= length) {
                return parsed;
            }
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut all)).await.expect("an answer comes");
            assert!(read.unwrap() > 0, "closed after {:?}", String::from_utf8_lossy(&all));
        }
    }

    /// Reads until `end` has come.
    pub async fn read_until(&mut self, end: &str) -> String {
        let mut all = Vec::new();
        while !String::from_utf8_lossy(&all).ends_with(end) {
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut all)).await.expect("it comes");
            assert!(read.unwrap() > 0, "closed after {:?}", String::from_utf8_lossy(&all));
        }
        String::from_utf8(all).unwrap()
    }
}

/// A response as it came: enough of HTTP for tests.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Status 0 when the head is not complete.
    pub fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let Some(end) = end else { return Self { status: 0, head: String::new(), body: Vec::new() } };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// An instance that answers with `handler`.
pub async fn instance<F>(handler: impl Fn(Request<Incoming>) -> F + Send + Sync + Clone + 'static) -> SocketAddr
where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let handler = handler.clone();
            let service = service_fn(move |request| {
                let answer = handler(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

/// An instance that says its name to everyone.
pub async fn named(name: &'static str) -> SocketAddr {
    instance(move |_| async move { Response::new(Full::from(name)) }).await
}

/// An instance whose answer is endless, so that it fits no buffer on the way.
pub async fn endless_instance() -> SocketAddr {
    raw_instance(|mut stream| async move {
        let mut buffer = [0; 4096];
        if stream.read(&mut buffer).await.unwrap_or(0) > 0 {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            let chunk = vec![b'x'; 64 << 10];
            while stream.write_all(&chunk).await.is_ok() {}
        }
    })
    .await
}

/// An instance that does with each connection what `behave` says.
pub async fn raw_instance<F>(behave: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(behave(stream));
        }
    });
    address
}

/// An answer that does not wait for the request's body.
pub const EARLY: &[u8] = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno";

/// An instance that reads heads and nothing more, and gives each the same answer. What remains of the request stays in its socket. With it the
/// number of its connections so far.
pub async fn hasty(answer: impl Into<Bytes>, closes: bool) -> (SocketAddr, Arc<AtomicU32>) {
    let (answer, connections) = (answer.into(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&connections);
    let address = raw_instance(move |mut stream| {
        let (answer, count) = (answer.clone(), Arc::clone(&count));
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            while read_head(&mut stream).await.is_some() {
                stream.write_all(&answer).await.unwrap();
                if closes {
                    return;
                }
            }
        }
    })
    .await;
    (address, connections)
}

/// Up to the end of a head, byte by byte, so that nothing after it is read.
pub async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// An address that refuses connections.
pub async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// An instance whose requests wait until the test lets them go, and that counts how many are there at once.
#[derive(Clone)]
pub struct Gate {
    pub permits: Arc<Semaphore>,
    pub most_inside: Arc<AtomicU32>,
    pub address: SocketAddr,
}

pub async fn gate() -> Gate {
    let permits = Arc::new(Semaphore::new(0));
    let (inside, most_inside) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (waits, count, most) = (Arc::clone(&permits), Arc::clone(&inside), Arc::clone(&most_inside));
    let address = instance(move |request| {
        let (waits, count, most) = (Arc::clone(&waits), Arc::clone(&count), Arc::clone(&most));
        async move {
            most.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            waits.acquire().await.unwrap().forget();
            count.fetch_sub(1, Ordering::SeqCst);
            Response::new(Full::from(request.uri().path().to_owned()))
        }
    })
    .await;
    Gate { permits, most_inside, address }
}

pub fn folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().unwrap())
}

/// What a file has that the gateway writes beside its requests, once it is there.
pub fn read(path: &Path) -> String {
    let begun = Instant::now();
    loop {
        match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            read => return read.unwrap(),
        }
    }
}
