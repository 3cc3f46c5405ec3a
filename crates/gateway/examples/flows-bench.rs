//! A gateway, instances and clients around it: what `cargo xtask bench flows` measures.
//!
//! `flows-bench shares FEW_WEIGHT MANY_WEIGHT FEW_MS MANY_MS SECONDS`: 16 clients beside 200 on eight seats.
//! `flows-bench overload TIMES SECONDS`: so many times what eight seats can answer, with a goal of 200 ms.
//! `flows-bench refusal COUNT`: how long a full queue takes to refuse.
//!
//! Each prints one line of JSON. Requests take time and no CPU, so that the machine's load is not measured.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use weal_control::seeded::Seeded;
use weal_gateway::{Limits, Options, run_until};
use weal_model::{ClientPolicy, FlowPolicy, HttpRules, RouteSpec};
use weal_protocol::gateway::{CONFIGURE, ClusterConfig, Endpoint, FlowConfig, GatewayConfig};

type Failure = Box<dyn Error + Send + Sync>;

const SEATS: u32 = 8;
/// Mean length of a request under overload.
const LENGTH: Duration = Duration::from_millis(20);
const GOAL: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let line = match words.as_slice() {
        ["shares", few, many, few_ms, many_ms, seconds] => {
            shares([few.parse()?, many.parse()?], [few_ms.parse()?, many_ms.parse()?], seconds.parse()?).await?
        }
        ["overload", times, seconds] => overload(times.parse()?, seconds.parse()?).await?,
        ["refusal", count] => refusal(count.parse()?).await?,
        _ => return Err("usage: flows-bench shares|overload|refusal ...".into()),
    };
    println!("{line}");
    Ok(())
}

/// Answers per second of the few and of the many.
async fn shares(weights: [f64; 2], lengths_ms: [f64; 2], seconds: u64) -> Result<serde_json::Value, Failure> {
    let flow = |weight| FlowConfig { weight, queue_limit: 10_000, ..FlowConfig::default() };
    let bench = Bench::start(&[("few", flow(weights[0])), ("many", flow(weights[1]))]).await?;
    let answered: [Arc<AtomicU64>; 2] = Default::default();
    for (class, (name, count)) in [("few", 16), ("many", 200)].into_iter().enumerate() {
        for client in 0..count {
            let (counted, address) = (Arc::clone(&answered[class]), bench.address);
            let mut spread = Spread::new(lengths_ms[class], client);
            tokio::spawn(async move {
                let mut link = Link::connect(address).await?;
                loop {
                    if link.get(&format!("/{name}?{}", spread.next_us())).await? == 200 {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                }
                #[expect(unreachable_code, reason = "it says what may go wrong")]
                Ok::<_, Failure>(())
            });
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let counts = || [0, 1].map(|class: usize| answered[class].load(Ordering::Relaxed));
    let (before, begun) = (counts(), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (after, span_s) = (counts(), begun.elapsed().as_secs_f64());
    let per_s = [0, 1].map(|class| (after[class] - before[class]) as f64 / span_s);
    bench.end();
    Ok(serde_json::json!({ "per_s": per_s }))
}

/// What was answered within the goal, of what the seats can answer.
async fn overload(times: f64, seconds: u64) -> Result<serde_json::Value, Failure> {
    let policy = FlowPolicy { drop_after_s: Some(GOAL.as_secs_f64()), rate_limit_per_s: None };
    let bench = Bench::start(&[("all", FlowConfig { queue_limit: 10_000, policy, ..FlowConfig::default() })]).await?;
    let capacity = f64::from(SEATS) / LENGTH.as_secs_f64();
    let (good, late, refused, failed): (AtomicU64, AtomicU64, AtomicU64, AtomicU64) = Default::default();
    let counts = Arc::new([good, late, refused, failed]);
    // Enough links for all that can wait at once: what is offered does not depend on what is answered.
    let links = (capacity * times * GOAL.as_secs_f64() * 2.0) as usize;
    let pause = Duration::from_secs_f64(links as f64 / (capacity * times));
    let begun = Instant::now();
    let end = begun + Duration::from_secs(seconds + 2);
    let mut clients = Vec::new();
    for client in 0..links {
        let (counts, address) = (Arc::clone(&counts), bench.address);
        let mut spread = Spread::new(LENGTH.as_secs_f64() * 1e3, client as u64);
        clients.push(tokio::spawn(async move {
            let mut link = Link::connect(address).await?;
            let mut due = begun + pause.mul_f64(client as f64 / links as f64);
            while due < end {
                tokio::time::sleep_until(due.into()).await;
                let status = link.get(&format!("/all?{}", spread.next_us())).await?;
                let kind = match status {
                    200 if due.elapsed() <= GOAL => 0,
                    200 => 1,
                    503 => 2,
                    _ => 3,
                };
                if due > begun + Duration::from_secs(2) {
                    counts[kind].fetch_add(1, Ordering::Relaxed);
                }
                due += pause;
            }
            Ok::<_, Failure>(())
        }));
    }
    for client in clients {
        client.await??;
    }
    let [good, late, refused, failed] = [0, 1, 2, 3].map(|kind: usize| counts[kind].load(Ordering::Relaxed));
    let offered_per_s = (good + late + refused + failed) as f64 / seconds as f64;
    bench.end();
    Ok(serde_json::json!({
        "offered": offered_per_s / capacity, "late": late, "refused": refused, "failed": failed, "good": good,
    }))
}

/// Microseconds from a request to its refusal, sorted, over a connection that is there.
async fn refusal(count: usize) -> Result<serde_json::Value, Failure> {
    let bench = Bench::start(&[("all", FlowConfig { queue_limit: 0, ..FlowConfig::default() })]).await?;
    let mut holding = Vec::new();
    for _ in 0..SEATS {
        let mut link = Link::connect(bench.address).await?;
        link.send("/all?3600000000").await?;
        holding.push(link);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut link = Link::connect(bench.address).await?;
    let mut times_us = Vec::new();
    for turn in 0..count + 100 {
        let begun = Instant::now();
        let status = link.get("/all?1").await?;
        if status != 503 {
            return Err(format!("a full queue answered {status}").into());
        }
        if turn >= 100 {
            times_us.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    times_us.sort_by(f64::total_cmp);
    let at = |quantile: f64| times_us[((times_us.len() - 1) as f64 * quantile) as usize];
    bench.end();
    Ok(serde_json::json!({ "p50_us": at(0.5), "p99_us": at(0.99), "worst_us": at(1.0) }))
}

/// A gateway with eight seats before one instance.
struct Bench {
    address: SocketAddr,
    folder: PathBuf,
}

impl Bench {
    async fn start(flows: &[(&str, FlowConfig)]) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("flows-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let clients = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = clients.local_addr()?;
        let socket = folder.join("gateway.sock");
        let options = Options {
            name: "bench".into(),
            state_dir: folder.clone(),
            clients,
            ports: None,
            seats: None,
            tls_clients: None,
            rpc: weal_rpc::bind(&socket)?,
            controller: None,
            wake: folder.join("wake.sock"),
        };
        tokio::spawn(run_until(options, Limits { workers: 2, ..Limits::default() }, std::future::pending()));
        let config =
            GatewayConfig { version: 1, clusters: vec![cluster(flows, instance().await?)], clients: ClientPolicy::default() };
        weal_rpc::Client::new(&socket, Duration::from_secs(5)).call(CONFIGURE, &config).await?;
        Ok(Self { address, folder })
    }

    fn end(self) {
        // What is left behind in a temporary folder does not matter.
        let _ = std::fs::remove_dir_all(self.folder);
    }
}

fn cluster(flows: &[(&str, FlowConfig)], instance: SocketAddr) -> ClusterConfig {
    let route = |name: &str| RouteSpec { path: Some(format!("/{name}")), ..RouteSpec::any(name.into()) };
    ClusterConfig {
        app: "bench".into(),
        routes: flows.iter().map(|(name, _)| route(name)).collect(),
        seats: Some(SEATS),
        flows: flows.iter().map(|(name, flow)| ((*name).into(), flow.clone())).collect(),
        endpoints: vec![Endpoint { instance: "bench-1".into(), address: instance, weight: 1.0, draining: false, listener: None }],
        request_timeout_s: 3600.0,
        standby: None,
        wakeable: None,
        http: HttpRules::default(),
        unavailable: None,
        inner: None,
        calls: false,
    }
}

/// Takes as many microseconds for each request as its query says.
async fn instance() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    Ok(address)
}

async fn serve(stream: TcpStream) -> Result<(), Failure> {
    let mut stream = BufReader::new(stream);
    loop {
        let (first, _) = read_head(&mut stream).await?;
        let us: u64 = first.split(['?', ' ']).nth(2).unwrap_or_default().parse()?;
        tokio::time::sleep(Duration::from_micros(us)).await;
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
    }
}

/// One client's connection, which is made anew when it is closed.
struct Link(BufReader<TcpStream>);

impl Link {
    async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    async fn send(&mut self, path: &str) -> Result<(), Failure> {
        let text = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n");
        Ok(self.0.get_mut().write_all(text.as_bytes()).await?)
    }

    /// The status of the answer.
    async fn get(&mut self, path: &str) -> Result<u16, Failure> {
        self.send(path).await?;
        let (first, length) = read_head(&mut self.0).await?;
        self.0.read_exact(&mut vec![0; length]).await?;
        Ok(first.split(' ').nth(1).unwrap_or_default().parse()?)
    }
}

/// The first line of a head, and the length of the body that follows it.
async fn read_head(stream: &mut BufReader<TcpStream>) -> Result<(String, usize), Failure> {
    let (mut first, mut length) = (String::new(), 0);
    if stream.read_line(&mut first).await? == 0 {
        return Err("closed".into());
    }
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse()?,
            Some(_) => {}
            None => return Ok((first, length)),
        }
    }
}

/// Lengths of requests: evenly spread from half to one and a half of the mean.
struct Spread {
    mean_us: f64,
    random: Seeded,
}

impl Spread {
    fn new(mean_ms: f64, seed: u64) -> Self {
        Self { mean_us: mean_ms * 1e3, random: Seeded::new(seed) }
    }

    fn next_us(&mut self) -> u64 {
        (self.mean_us * self.random.between(0.5, 1.5)) as u64
    }
}
