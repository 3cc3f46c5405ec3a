//! A gateway, and the sessions of many clients: what `cargo xtask bench tls-overload` and `threads` measure.
//!
//! `sessions-bench serve ADDRESS PLAIN INSTANCE CERTIFICATE KEY WORKERS ordered|unordered`: the gateway. It prints where it answers calls.
//! `sessions-bench cost ADDRESS AUTHORITY SOCKET 1.2|1.3`: what a full and a resumed handshake cost it, one after the other.
//! `sessions-bench answer ADDRESS`: an instance that answers from memory.
//! `sessions-bench threads ADDRESS THREADS CPU_US`: an instance that gives a thread to each connection, as long as there are some.
//! `sessions-bench load ADDRESS AUTHORITY SOCKET 1.2|1.3|plain SHAPE SESSIONS_PER_S SECONDS`: clients. SOCKET may be `-`. SHAPE is
//! `VISITSxREQUESTS`, `surge` or `rubis`.
//!
//! `cost` and `load` print one line of JSON; `load` only how many files it may open, where that is too few for its clients. A session makes
//! its requests as its shape says, and thinks in between. A client that gets no answer for [`PATIENCE`] leaves and comes back as a new one, as does one that is turned away after it has thought
//! about it, [`RETURNS`] times at most (Carrera 4.3.2: httperf's sessions, ten seconds of patience). One whose connection is closed while it
//! thinks goes on over another.

mod work;

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Resource;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use weal_control::seeded::Seeded;
use weal_gateway::{Limits, Options, run_until};
use weal_model::{ClientPolicy, HttpRules, RouteSpec, TlsVersion};
use weal_protocol::gateway::{CONFIGURE, ClusterConfig, Endpoint, FlowConfig, GatewayConfig, OBSERVE, TlsCounters};
use weal_protocol::tls::{CERTIFY, Certificate, Challenges, TicketKey, TlsConfig};

use work::{Shape, Wanted, Way};

type Failure = Box<dyn Error + Send + Sync>;

const HOST: &str = "bench.test";
/// Mean time between a client's answer and what it does next.
const THINK: Duration = Duration::from_millis(700);
/// Without an answer, a client leaves.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a client that left comes back.
const RETURNS: u32 = 2;
/// Bytes of an answer's body.
const ANSWER: usize = 2048;
/// How long a thread waits for the next request on its connection, in steps of a second: after each it gives up if no thread is free.
const KEEP_ALIVE_S: u32 = 10;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let line = match words.as_slice() {
        ["serve", address, plain, instance, certificate, key, workers, order] => {
            return runtime.block_on(serve(
                [address, plain],
                instance,
                [certificate, key],
                workers.parse()?,
                *order == "ordered",
            ));
        }
        ["cost", address, authority, socket, version] => {
            runtime.block_on(cost(Target::new(address, authority, version)?, Path::new(socket)))?
        }
        ["answer", address] => return runtime.block_on(answer_all(address)),
        ["threads", address, threads, cpu_us] => {
            return serve_by_threads(
                std::net::TcpListener::bind(address)?,
                threads.parse()?,
                Duration::from_micros(cpu_us.parse()?),
            );
        }
        ["load", address, authority, socket, version, shape, rate, seconds] => {
            let shape = Shape::read(shape).ok_or("a shape is VISITSxREQUESTS, surge or rubis")?;
            let target = Target { shape, ..Target::new(address, authority, version)? };
            let socket = (*socket != "-").then(|| Path::new(socket));
            runtime.block_on(load(target, socket, rate.parse()?, Duration::from_secs(seconds.parse()?)))?
        }
        _ => return Err("usage: sessions-bench serve|cost|answer|threads|load ...".into()),
    };
    println!("{line}");
    Ok(())
}

async fn serve(
    [address, plain]: [&str; 2],
    instance: &str,
    files: [&str; 2],
    workers: usize,
    orders: bool,
) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("sessions-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let socket = folder.join("gateway.sock");
    let options = Options {
        name: "bench".into(),
        state_dir: folder.clone(),
        clients: std::net::TcpListener::bind(plain)?,
        tls_clients: Some(std::net::TcpListener::bind(address)?),
        ports: None,
        seats: None,
        rpc: weal_rpc::bind(&socket)?,
        controller: None,
        wake: folder.join("wake.sock"),
    };
    let limits = Limits { workers, orders_handshakes: orders, ..Limits::default() };
    let serving = tokio::spawn(run_until(options, limits, async {
        let _ = tokio::task::spawn_blocking(|| std::io::Read::read(&mut std::io::stdin(), &mut [0])).await;
    }));
    let client = weal_rpc::Client::new(&socket, Duration::from_secs(5));
    client
        .call(
            CONFIGURE,
            &GatewayConfig { version: 1, clusters: vec![cluster(instance.parse()?)], clients: ClientPolicy::default() },
        )
        .await?;
    let [chain, key] = [std::fs::read_to_string(files[0])?, std::fs::read_to_string(files[1])?];
    let certificate = Certificate { name: HOST.into(), hosts: vec![HOST.into()], chain, key };
    client.call(CERTIFY, &tls(certificate)).await?;
    println!("{}", socket.display());
    serving.await??;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn tls(certificate: Certificate) -> TlsConfig {
    TlsConfig {
        certificates: vec![certificate],
        ticket_keys: vec![TicketKey([7; 32])],
        min_version: TlsVersion::V12,
        redirect_port: None,
        challenges: Challenges::default(),
    }
}

fn cluster(address: SocketAddr) -> ClusterConfig {
    ClusterConfig {
        app: "bench".into(),
        routes: vec![RouteSpec::any("all".into())],
        seats: None,
        flows: [("all".into(), FlowConfig { queue_limit: 10_000, ..FlowConfig::default() })].into(),
        endpoints: vec![Endpoint { instance: "bench-0".into(), address, weight: 1.0, draining: false, listener: None }],
        request_timeout_s: 30.0,
        standby: None,
        wakeable: None,
        http: HttpRules::default(),
        unavailable: None,
        inner: None,
        calls: false,
    }
}

/// Whom clients connect to, and how.
struct Target {
    address: SocketAddr,
    config: ClientConfig,
    is_plain: bool,
    shape: Shape,
}

impl Target {
    fn new(address: &str, authority: &str, version: &str) -> Result<Self, Failure> {
        let (mut roots, is_plain) = (RootCertStore::empty(), version == "plain");
        if !is_plain {
            roots.add(CertificateDer::from_pem_file(authority)?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = if version == "1.2" { &[&TLS12] } else { &[&TLS13] };
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { address: address.parse()?, config, is_plain, shape: Shape::Even { visits: 1, requests: 1 } })
    }

    /// A client that knows nobody yet.
    fn client(&self) -> TlsConnector {
        let mut config = self.config.clone();
        config.resumption = Resumption::in_memory_sessions(4);
        TlsConnector::from(Arc::new(config))
    }

    async fn connect(&self, client: &TlsConnector) -> Result<Link, Failure> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> =
            if self.is_plain { Box::new(stream) } else { Box::new(client.connect(ServerName::try_from(HOST)?, stream).await?) };
        Ok(Link(BufReader::new(stream)))
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection of one client.
struct Link(BufReader<Box<dyn Stream>>);

impl Link {
    async fn get(&mut self, path: &str) -> Result<(), Failed> {
        let asked = self.0.write_all(format!("GET {path} HTTP/1.1\r\nhost: {HOST}\r\n\r\n").as_bytes()).await;
        asked.map_err(|_| Failed::Closed)?;
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            match self.0.read_line(&mut line).await {
                Ok(0) if line.is_empty() && length == 0 => return Err(Failed::Closed),
                Ok(0) => return Err(Failed::Refused),
                Err(_) if length == 0 => return Err(Failed::Closed),
                read => drop(read?),
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(|_| Failed::Refused)?;
            } else if lower.starts_with("http/1.1 ") && !lower.starts_with("http/1.1 200") {
                return Err(Failed::Refused);
            } else if lower == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await?;
        Ok(())
    }
}

/// Why a request has no answer.
enum Failed {
    /// The connection was closed before a word of it.
    Closed,
    Refused,
}

impl From<std::io::Error> for Failed {
    fn from(_: std::io::Error) -> Self {
        Self::Refused
    }
}

impl From<Failure> for Failed {
    fn from(_: Failure) -> Self {
        Self::Refused
    }
}

/// What the gateway counted. Asked on a thread of its own: the others may have so much to do that the gateway would take this for a caller that says
/// nothing.
async fn counters(socket: &Path) -> Result<TlsCounters, Failure> {
    let client = weal_rpc::Client::new(socket, Duration::from_secs(60));
    let asked = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok::<_, Failure>(runtime.block_on(client.call(OBSERVE, &()))?.tls)
    });
    asked.await?
}

async fn cost(target: Target, socket: &Path) -> Result<serde_json::Value, Failure> {
    const ROUNDS: u32 = 60;
    for _ in 0..ROUNDS {
        let client = target.client();
        for _ in 0..2 {
            let mut link = target.connect(&client).await?;
            // Tickets of 1.3 come with what is read first; there is no instance, so it is an error that is read.
            let _ = link.get("/").await;
        }
    }
    let seen = counters(socket).await?;
    let ms = |cpu_s: f64, count: u64| cpu_s * 1e3 / count.max(1) as f64;
    Ok(serde_json::json!({ "full_ms": ms(seen.full_cpu_s, seen.full), "resumed_ms": ms(seen.resumed_cpu_s, seen.resumed) }))
}

/// What became of sessions and requests in the time that counts.
#[derive(Default)]
struct Tally {
    begun: AtomicU64,
    completed: AtomicU64,
    left: AtomicU64,
    turned_away: AtomicU64,
    replies: AtomicU64,
    /// Connections that were closed while their clients thought.
    closed: AtomicU64,
    /// Milliseconds from a client's wish to its answer, connection included.
    response_ms: Mutex<Vec<f64>>,
    /// Milliseconds from a client's wish for a connection to the end of its handshake.
    handshake_ms: Mutex<Vec<f64>>,
    /// Seconds of sessions that came to their end.
    lifetime_s: Mutex<Vec<f64>>,
    /// A client found that this process may open no more files: what is counted from then on is not what clients would do.
    is_out_of_files: AtomicBool,
}

async fn load(target: Target, socket: Option<&Path>, rate: f64, span: Duration) -> Result<serde_json::Value, Failure> {
    // Before that, sessions come and queues grow, until the first clients have lost their patience.
    let warm_up = (span / 4).max(PATIENCE);
    let counters = async || match socket {
        Some(socket) => counters(socket).await,
        None => Ok(TlsCounters::default()),
    };
    let (target, tally) = (Arc::new(target), Arc::new(Tally::default()));
    let (begun, mut random) = (Instant::now(), Seeded::new(4711));
    let counts_from = begun + warm_up;
    let (mut due, mut before) = (begun, None);
    while begun.elapsed() < warm_up + span {
        due += Duration::from_secs_f64(exponential(&mut random) / rate);
        tokio::time::sleep_until(due.into()).await;
        if tally.is_out_of_files.load(Ordering::Relaxed) {
            return Ok(serde_json::json!({ "open_files": rustix::process::getrlimit(Resource::Nofile).current }));
        }
        if before.is_none() && Instant::now() >= counts_from {
            before = Some(counters().await?);
        }
        let user =
            User { target: Arc::clone(&target), tally: Arc::clone(&tally), counts_from, random: Seeded::new(random.bits()) };
        tokio::spawn(user.come());
    }
    let (before, after) = (before.unwrap_or_default(), counters().await?);
    Ok(report(&tally, before, after, span))
}

fn report(tally: &Tally, before: TlsCounters, after: TlsCounters, span: Duration) -> serde_json::Value {
    let per_s = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64 / span.as_secs_f64();
    let mut response = tally.response_ms.lock().unwrap().clone();
    response.sort_by(f64::total_cmp);
    let (handshakes, lifetimes) = (tally.handshake_ms.lock().unwrap(), tally.lifetime_s.lock().unwrap());
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (full, resumed) = (after.full - before.full, after.resumed - before.resumed);
    serde_json::json!({
        "begun_per_s": per_s(&tally.begun),
        "completed_per_s": per_s(&tally.completed),
        "left_per_s": per_s(&tally.left),
        "turned_away_per_s": per_s(&tally.turned_away),
        "replies_per_s": per_s(&tally.replies),
        "closed_per_s": per_s(&tally.closed),
        "response_mean_ms": mean(&response),
        "response_p95_ms": response.get(response.len() * 95 / 100).copied().unwrap_or(0.0),
        "handshake_mean_ms": mean(&handshakes),
        "lifetime_s": mean(&lifetimes),
        "full_share": full as f64 / (full + resumed).max(1) as f64,
    })
}

/// Somebody who wants to have a session.
struct User {
    target: Arc<Target>,
    tally: Arc<Tally>,
    counts_from: Instant,
    random: Seeded,
}

/// Why a session did not come to its end.
enum Lost {
    Left,
    TurnedAway,
}

impl User {
    async fn come(mut self) {
        for _ in 0..=RETURNS {
            let begun = Instant::now();
            self.count(&self.tally.begun);
            match self.session().await {
                Ok(()) => {
                    self.count(&self.tally.completed);
                    if begun >= self.counts_from {
                        self.tally.lifetime_s.lock().unwrap().push(begun.elapsed().as_secs_f64());
                    }
                    return;
                }
                Err(Lost::Left) => self.count(&self.tally.left),
                Err(Lost::TurnedAway) => {
                    self.count(&self.tally.turned_away);
                    self.think().await;
                }
            }
        }
    }

    async fn session(&mut self) -> Result<(), Lost> {
        let (target, client) = (Arc::clone(&self.target), self.target.client());
        let (mut way, mut link) = (Way::default(), None);
        while let Some(step) = target.shape.next(&mut way, &mut self.random) {
            if way.asked > 1 {
                self.think().await;
            }
            if step.opens {
                link = None;
            }
            let wished = Instant::now();
            let asking = self.ask(&client, &mut link, &step.path);
            match tokio::time::timeout(PATIENCE, asking).await {
                Ok(Ok(())) => self.note_reply(wished.elapsed()),
                Ok(Err(_)) => return Err(Lost::TurnedAway),
                Err(_) => return Err(Lost::Left),
            }
        }
        Ok(())
    }

    /// Asks over the connection that there is, or else over a new one.
    async fn ask(&self, client: &TlsConnector, kept: &mut Option<Link>, path: &str) -> Result<(), Failed> {
        if let Some(link) = kept {
            match link.get(path).await {
                Err(Failed::Closed) => self.count(&self.tally.closed),
                other => return other,
            }
        }
        let wished = Instant::now();
        let link = kept.insert(self.target.connect(client).await.inspect_err(|error| self.note_failure(error.as_ref()))?);
        if Instant::now() >= self.counts_from {
            self.tally.handshake_ms.lock().unwrap().push(wished.elapsed().as_secs_f64() * 1e3);
        }
        link.get(path).await
    }

    fn note_failure(&self, error: &(dyn Error + 'static)) {
        let code = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if code == Some(rustix::io::Errno::MFILE.raw_os_error()) {
            self.tally.is_out_of_files.store(true, Ordering::Relaxed);
        }
    }

    async fn think(&mut self) {
        tokio::time::sleep(THINK.mul_f64(exponential(&mut self.random))).await;
    }

    fn note_reply(&self, time: Duration) {
        self.count(&self.tally.replies);
        if Instant::now() >= self.counts_from {
            self.tally.response_ms.lock().unwrap().push(time.as_secs_f64() * 1e3);
        }
    }

    fn count(&self, counter: &AtomicU64) {
        if Instant::now() >= self.counts_from {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// With mean 1.
fn exponential(random: &mut Seeded) -> f64 {
    -(1.0 - random.between(0.0, 1.0)).ln()
}

fn answer(bytes: usize) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n").into_bytes(), vec![b'x'; bytes]].concat()
}

async fn answer_all(address: &str) -> Result<(), Failure> {
    let (listener, answer) = (TcpListener::bind(address).await?, Arc::new(answer(ANSWER)));
    loop {
        let (stream, _) = listener.accept().await?;
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|count| count > 0) {
                if line == "\r\n" && stream.write_all(&answer).await.is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
}

/// As a Tomcat of the thesis' time: each thread serves a connection to its end, and closes it sooner when no other thread is free.
fn serve_by_threads(listener: std::net::TcpListener, threads: usize, cpu: Duration) -> Result<(), Failure> {
    let (listener, free) = (Arc::new(listener), Arc::new(AtomicU64::new(threads as u64)));
    let serving: Vec<_> = (0..threads)
        .map(|_| {
            let (listener, free) = (Arc::clone(&listener), Arc::clone(&free));
            std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    free.fetch_sub(1, Ordering::Relaxed);
                    // Clients may break off at any time.
                    let _ = serve_connection(stream, &free, cpu);
                    free.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect::<Result<_, _>>()?;
    serving.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

/// A path that asks for nothing in particular takes `cpu`.
fn serve_connection(stream: std::net::TcpStream, free: &AtomicU64, cpu: Duration) -> std::io::Result<()> {
    use std::io::{BufRead as _, Write as _};

    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut stream = std::io::BufReader::new(stream);
    let (mut line, mut waited_s) = (String::new(), 0);
    let usual = Wanted { bytes: ANSWER, cpu };
    let mut wanted = usual;
    loop {
        match stream.read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => waited_s = 0,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                waited_s += 1;
                if waited_s == KEEP_ALIVE_S || free.load(Ordering::Relaxed) == 0 {
                    return Ok(());
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        if let Some(target) = line.strip_prefix("GET ") {
            wanted = target.split(' ').next().and_then(Wanted::of_path).unwrap_or(usual);
        } else if line == "\r\n" {
            let begun = Instant::now();
            while begun.elapsed() < wanted.cpu {
                std::hint::spin_loop();
            }
            stream.get_mut().write_all(&answer(wanted.bytes))?;
        }
        line.clear();
    }
}
