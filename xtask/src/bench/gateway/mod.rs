//! `cargo xtask bench gateway`: weal's gateway beside HAProxy and nginx, in requests per CPU-second of the proxy.
//!
//! All three stand before the same instance (nginx with one worker, answering from memory), with two threads or workers each,
//! keep-alive on both sides and the same headers added. wrk loads them one after the other in short interleaved rounds, so that
//! whatever else the machine does hits all of them; each round gives a ratio, and the median of those is what counts.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Arguments;
use super::real::machine::cpu_seconds;
use super::real::pool::free_address;
use crate::programs::release;
use crate::table::Table;

/// Requests per CPU-second relative to HAProxy's that the gateway has to reach.
const TARGET: f64 = 0.9;

/// Client connections: enough to keep every proxy busy, few enough to fit the scheduler's noise.
const CONNECTIONS: u32 = 64;

/// One thing that is asked of the proxies.
struct Case {
    name: &'static str,
    path: &'static str,
    has_target: bool,
}

const CASES: [Case; 2] =
    [Case { name: "64 bytes", path: "/small", has_target: true }, Case { name: "64 KiB", path: "/large", has_target: false }];

/// One proxy under test. Ends with its processes when dropped.
struct Proxy {
    name: &'static str,
    address: SocketAddr,
    process: Process,
}

/// One round with one proxy.
#[derive(Clone, Copy)]
struct Sample {
    per_cpu_second: f64,
    per_second: f64,
    p99_ms: f64,
}

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    need_tools()?;
    let binary = build()?;
    let folder = std::env::temp_dir().join(format!("weal-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = measure(arguments, &binary, &folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn measure(arguments: &Arguments, binary: &Path, folder: &Path) -> Result<Table> {
    let (rounds, seconds) = if arguments.quick { (2, 1) } else { (9, 3) };
    let instance = start_instance(folder)?;
    let proxies =
        [start_weal(binary, instance.address)?, start_haproxy(folder, instance.address)?, start_nginx(folder, instance.address)?];
    let title =
        format!("requests per CPU-second of the proxy: {CONNECTIONS} connections, median of {rounds} rounds of {seconds} s");
    let mut table = Table::new(title, &["answer", "proxy", "req/CPU-s", "of HAProxy", "rounds", "req/s", "p99 ms"]);
    for case in &CASES {
        let samples = run_rounds(case, &proxies, rounds, seconds)?;
        add_rows(&mut table, case, &proxies, &samples);
    }
    table.notes.push(format!(
        "One machine with {} CPUs runs wrk, the proxy and the instance: req/s and p99 are of that whole, only ratios say something \
         about the proxy. Target: {TARGET} of HAProxy.",
        std::thread::available_parallelism()?
    ));
    table.notes.push(versions()?);
    Ok(table)
}

/// Samples by proxy, then by round. The order of proxies turns with each round.
fn run_rounds(case: &Case, proxies: &[Proxy; 3], rounds: usize, seconds: u32) -> Result<[Vec<Sample>; 3]> {
    let mut samples = [vec![], vec![], vec![]];
    for proxy in proxies {
        load(proxy, case, 1).with_context(|| format!("cannot warm up {}", proxy.name))?;
    }
    for round in 0..rounds {
        for turn in 0..proxies.len() {
            let index = (round + turn) % proxies.len();
            samples[index].push(load(&proxies[index], case, seconds)?);
        }
    }
    Ok(samples)
}

fn add_rows(table: &mut Table, case: &Case, proxies: &[Proxy; 3], samples: &[Vec<Sample>; 3]) {
    let reference = proxies.iter().position(|proxy| proxy.name == "haproxy").expect("it is the reference");
    for (index, proxy) in proxies.iter().enumerate() {
        let of = |value: fn(&Sample) -> f64| median(samples[index].iter().map(value).collect());
        let pairs = samples[index].iter().zip(&samples[reference]);
        let ratios: Vec<f64> = pairs.map(|(own, theirs)| own.per_cpu_second / theirs.per_cpu_second).collect();
        let (least, most) = ratios.iter().fold((f64::MAX, 0.0_f64), |(least, most), &ratio| (least.min(ratio), most.max(ratio)));
        let ratio = median(ratios);
        let met = (case.has_target && proxy.name == "weal").then_some(ratio >= TARGET);
        let cells = [
            case.name.to_owned(),
            proxy.name.to_owned(),
            format!("{:.0}", of(|sample| sample.per_cpu_second)),
            format!("{ratio:.2}"),
            format!("{least:.2} to {most:.2}"),
            format!("{:.0}", of(|sample| sample.per_second)),
            format!("{:.1}", of(|sample| sample.p99_ms)),
        ];
        table.row(cells, met);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// One round of wrk against one proxy.
fn load(proxy: &Proxy, case: &Case, seconds: u32) -> Result<Sample> {
    let before = proxy.process.cpu_s()?;
    let output = Command::new("wrk")
        .args(["--latency", "-t", "1", "-c", &CONNECTIONS.to_string(), "-d", &format!("{seconds}s")])
        .arg(format!("http://{}{}", proxy.address, case.path))
        .output()
        .context("cannot run wrk")?;
    let cpu_s = proxy.process.cpu_s()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "{} failed requests:\n{text}", proxy.name);
    let word_before = |marker: &str| {
        let line =
            text.lines().find(|line| line.contains(marker)).with_context(|| format!("wrk says nothing on {marker}:\n{text}"))?;
        Ok::<_, anyhow::Error>(line.trim().to_owned())
    };
    let requests: f64 = word_before(" requests in ")?.split(' ').next().unwrap_or_default().parse()?;
    let per_second: f64 = word_before("Requests/sec:")?.split(':').nth(1).unwrap_or_default().trim().parse()?;
    let p99 = word_before("99%")?;
    let p99_ms = milliseconds(p99.split_whitespace().nth(1).unwrap_or_default())?;
    ensure!(cpu_s > 0.05, "{} used no CPU to speak of: {cpu_s} s", proxy.name);
    Ok(Sample { per_cpu_second: requests / cpu_s, per_second, p99_ms })
}

fn milliseconds(text: &str) -> Result<f64> {
    let split = text.find(|c: char| c.is_alphabetic()).with_context(|| format!("`{text}` has no unit"))?;
    let value: f64 = text[..split].parse()?;
    Ok(match &text[split..] {
        "us" => value / 1e3,
        "ms" => value,
        "s" => value * 1e3,
        unit => bail!("unknown unit `{unit}`"),
    })
}

fn need_tools() -> Result<()> {
    for tool in ["wrk", "haproxy", "nginx"] {
        let found = Command::new(tool).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        ensure!(found, "{tool} is not installed: run `apt-get install wrk haproxy nginx-light`");
    }
    Ok(())
}

fn versions() -> Result<String> {
    let first_line = |tool: &str| -> Result<String> {
        let output = Command::new(tool).arg("-v").output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned())
    };
    Ok(format!("{}; {}", first_line("haproxy")?, first_line("nginx")?))
}

fn build() -> Result<PathBuf> {
    Ok(release(&["--package", "weal-gateway", "--example", "gateway-bench"])?.join("examples/gateway-bench"))
}

fn start_instance(folder: &Path) -> Result<Proxy> {
    let address = free_address()?;
    let large = folder.join("large");
    std::fs::write(&large, vec![b'x'; 64 << 10])?;
    let small = "x".repeat(64);
    let server = format!(
        "server {{ listen {address} backlog=4096; root {folder}; location /small {{ return 200 \"{small}\"; }} }}",
        folder = folder.display()
    );
    start_nginx_with("instance", folder, 1, &server, address)
}

fn start_nginx(folder: &Path, instance: SocketAddr) -> Result<Proxy> {
    let address = free_address()?;
    let server = format!(
        "upstream instance {{ server {instance}; keepalive 256; keepalive_requests 100000000; }}
         server {{
           listen {address} backlog=4096;
           location / {{
             proxy_pass http://instance;
             proxy_http_version 1.1;
             proxy_set_header Connection \"\";
             proxy_set_header Host $http_host;
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
             proxy_set_header X-Forwarded-Proto $scheme;
             proxy_set_header X-Forwarded-Host $http_host;
             proxy_set_header Forwarded \"for=$remote_addr;proto=$scheme;host=$http_host\";
             proxy_set_header X-Request-Id $request_id;
             add_header X-Request-Id $request_id;
           }}
         }}"
    );
    start_nginx_with("nginx", folder, 2, &server, address)
}

fn start_nginx_with(name: &'static str, folder: &Path, workers: u32, server: &str, address: SocketAddr) -> Result<Proxy> {
    let file = folder.join(format!("{name}.conf"));
    let config = format!(
        "daemon off; worker_processes {workers}; pid {folder}/{name}.pid; error_log /dev/null;
         events {{ worker_connections 4096; }}
         http {{ access_log off; keepalive_requests 100000000; sendfile on; tcp_nopush on; {server} }}",
        folder = folder.display()
    );
    std::fs::write(&file, config)?;
    let child = quiet(Command::new("nginx").arg("-c").arg(&file)).spawn().context("cannot start nginx")?;
    Proxy { name, address, process: Process(child) }.ready()
}

fn start_haproxy(folder: &Path, instance: SocketAddr) -> Result<Proxy> {
    let address = free_address()?;
    let file = folder.join("haproxy.cfg");
    let config = format!(
        "global
  nbthread 2
  maxconn 4096
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 2s
  timeout http-request 10s
  timeout queue 30s
  http-reuse always
frontend clients
  bind {address}
  option forwardfor
  unique-id-format %{{+X}}o%ci%cp%ts%rt%pid
  unique-id-header x-request-id
  http-request set-header x-forwarded-proto http
  http-request set-header x-forwarded-host %[req.hdr(host)]
  http-request set-header forwarded for=%[src];proto=http;host=%[req.hdr(host)]
  http-response set-header x-request-id %[unique-id]
  default_backend instances
backend instances
  balance leastconn
  server one {instance} maxconn 256
"
    );
    std::fs::write(&file, config)?;
    let child = quiet(Command::new("haproxy").arg("-db").arg("-f").arg(&file)).spawn().context("cannot start haproxy")?;
    Proxy { name: "haproxy", address, process: Process(child) }.ready()
}

fn start_weal(binary: &Path, instance: SocketAddr) -> Result<Proxy> {
    let address = free_address()?;
    let arguments = [address.to_string(), instance.to_string(), "256".into(), "2".into()];
    let child = quiet(Command::new(binary).args(arguments)).spawn().context("cannot start the gateway")?;
    Proxy { name: "weal", address, process: Process(child) }.ready()
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

impl Proxy {
    /// Waits until it answers.
    fn ready(mut self) -> Result<Self> {
        let begun = Instant::now();
        while !answers(self.address) {
            if let Some(status) = self.process.0.try_wait()? {
                bail!("{} ended at once: {status}", self.name);
            }
            ensure!(begun.elapsed() < Duration::from_secs(10), "{} does not answer at {}", self.name, self.address);
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(self)
    }
}

fn answers(address: SocketAddr) -> bool {
    let ask = || -> Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        std::io::Write::write_all(&mut stream, b"GET /small HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

/// A process with its children.
struct Process(Child);

impl Process {
    /// CPU-seconds used so far, by it and by its living children: user and system.
    fn cpu_s(&self) -> Result<f64> {
        let pid = self.0.id();
        let children = weal_host::Proc::system().children(pid);
        std::iter::once(pid).chain(children).map(cpu_seconds).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGTERM, because a killed nginx master leaves its workers behind.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_times_are_read_in_every_unit() {
        let read = ["834.00us", "2.50ms", "1.20s"].map(|text| milliseconds(text).unwrap());
        assert_eq!(read, [0.834, 2.5, 1200.0]);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
    }
}
