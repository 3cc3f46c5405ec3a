//! A client that counts what is lost: connections kept alive, one request at a time on each, no retries.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::patience::Patience;

/// No answer after so long counts as lost.
static LIMIT: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(20) * super::pool::slowness());

/// What became of a run.
#[derive(Debug, Default)]
pub struct Tally {
    pub answered: u64,
    /// What was lost, in words.
    pub lost: Vec<String>,
    /// The longest time without any answer.
    pub longest_gap: Duration,
}

/// A running load.
pub struct Load {
    runtime: Runtime,
    tasks: JoinSet<Vec<String>>,
    shared: Arc<Shared>,
}

struct Shared {
    port: u16,
    request: String,
    stop: AtomicBool,
    answered: AtomicU64,
    begun: Instant,
    last_answer_ns: AtomicU64,
    longest_gap_ns: AtomicU64,
}

impl Load {
    /// `connections` clients that ask `host` for `path` at `port`.
    pub fn start(port: u16, host: &str, path: &str, connections: usize) -> Self {
        Self::start_with(port, host, path, connections, "")
    }

    /// The same, with a new connection for each request.
    pub fn start_anew(port: u16, host: &str, path: &str, connections: usize) -> Self {
        Self::start_with(port, host, path, connections, "connection: close\r\n")
    }

    fn start_with(port: u16, host: &str, path: &str, connections: usize, fields: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::new(Shared {
            port,
            request: format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n"),
            stop: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            begun: Instant::now(),
            last_answer_ns: AtomicU64::new(0),
            longest_gap_ns: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for _ in 0..connections {
            tasks.spawn_on(client(Arc::clone(&shared)), runtime.handle());
        }
        Self { runtime, tasks, shared }
    }

    /// Waits until `count` more requests were answered.
    pub fn wait_for(&self, count: u64) {
        let goal = self.shared.answered.load(Ordering::Relaxed) + count;
        let mut patience = Patience::new(*super::pool::PATIENCE);
        while self.shared.answered.load(Ordering::Relaxed) < goal {
            assert!(!patience.is_over(), "{} of {goal} requests answered", self.shared.answered.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lets each client finish its request and adds up.
    pub fn finish(mut self) -> Tally {
        self.shared.stop.store(true, Ordering::Relaxed);
        let lost = self.runtime.block_on(async {
            let mut lost = Vec::new();
            while let Some(of_one) = self.tasks.join_next().await {
                lost.extend(of_one.unwrap());
            }
            lost
        });
        let longest_gap = Duration::from_nanos(self.shared.longest_gap_ns.load(Ordering::Relaxed));
        Tally { answered: self.shared.answered.load(Ordering::Relaxed), lost, longest_gap }
    }
}

async fn client(shared: Arc<Shared>) -> Vec<String> {
    let mut lost = Vec::new();
    let mut connection = None;
    while !shared.stop.load(Ordering::Relaxed) {
        let outcome = tokio::time::timeout(*LIMIT, exchange(&mut connection, &shared)).await;
        match outcome.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(200) => shared.count(),
            Ok(status) => lost.push(format!("status {status}")),
            Err(error) => {
                lost.push(error.to_string());
                connection = None;
            }
        }
    }
    lost
}

impl Shared {
    fn count(&self) {
        let now = u64::try_from(self.begun.elapsed().as_nanos()).unwrap();
        let before = self.last_answer_ns.fetch_max(now, Ordering::Relaxed);
        self.longest_gap_ns.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

async fn exchange(connection: &mut Option<BufReader<TcpStream>>, shared: &Shared) -> io::Result<u16> {
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(("127.0.0.1", shared.port)).await?;
            stream.set_nodelay(true)?;
            connection.insert(BufReader::new(stream))
        }
    };
    stream.write_all(shared.request.as_bytes()).await?;
    let (status, close) = read_answer(stream).await?;
    if close {
        // The server said so: the next request takes another connection, and nothing is lost.
        *connection = None;
    }
    Ok(status)
}

/// An answer's status, and whether the connection closes behind it.
pub async fn read_answer(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<(u16, bool)> {
    let (mut status, mut length, mut close) = (0, 0, false);
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = text.strip_prefix("http/1.1 ") {
            status = rest.get(..3).and_then(|code| code.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        } else if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        } else if text.starts_with("connection:") && text.contains("close") {
            close = true;
        } else if text.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((status, close))
}

/// One request of its own; the status and the whole answer.
pub fn get(port: u16, host: &str, path: &str) -> io::Result<(u16, String)> {
    get_with(port, host, path, &[])
}

/// The same with more headers.
pub fn get_with(port: u16, host: &str, path: &str, headers: &[(&str, &str)]) -> io::Result<(u16, String)> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    ask(port, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{headers}connection: close\r\n\r\n"))
}

/// Hands JSON to the API by a token.
pub fn post_json(port: u16, path: &str, secret: &str, json: &str) -> io::Result<(u16, String)> {
    hand_over("POST", port, path, secret, json)
}

/// As [`post_json`], in place of what is there.
pub fn put_json(port: u16, path: &str, secret: &str, json: &str) -> io::Result<(u16, String)> {
    hand_over("PUT", port, path, secret, json)
}

fn hand_over(method: &str, port: u16, path: &str, secret: &str, json: &str) -> io::Result<(u16, String)> {
    let length = json.len();
    let headers = format!("authorization: Bearer {secret}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
    ask(port, &format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}connection: close\r\n\r\n{json}"))
}

fn ask(port: u16, request: &str) -> io::Result<(u16, String)> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(*LIMIT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, answer))
}
