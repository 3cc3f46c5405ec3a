//! A client and an instance that see every byte. The instance reads requests by the letter, with a reader of its own, and records them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use tokio::net::TcpStream;

use crate::bed::*;

/// A request as an instance got it.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The request line and the fields, as they came.
    pub head: String,
    pub body: Vec<u8>,
    /// The lines after the last chunk.
    pub trailers: Vec<String>,
    /// False when it broke off within the body.
    pub is_complete: bool,
}

/// What an instance got.
#[derive(Debug, Default)]
pub struct Records {
    pub requests: Vec<Recorded>,
    /// What no gateway may send.
    pub violations: Vec<String>,
}

/// An instance that records what it gets and answers each request with its method and target.
#[derive(Clone)]
pub struct Recorder {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    records: Mutex<Records>,
    /// Those that have not ended.
    connections: Mutex<Vec<Arc<Connection>>>,
}

impl Recorder {
    pub async fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let address = raw_instance(move |stream| {
            let connection = Arc::new(Connection { peer: stream.peer_addr().ok(), stream, rests: Mutex::new(true) });
            own.connections.lock().unwrap().push(Arc::clone(&connection));
            serve(connection, Arc::clone(&own))
        })
        .await;
        Self { address, shared }
    }

    /// What has come since the last call, once every byte that was sent has been read.
    pub async fn take(&self) -> Records {
        let begun = Instant::now();
        // Connections are accepted in their order: when this one is, all before it are.
        let last = TcpStream::connect(self.address).await.unwrap();
        let own = last.local_addr().ok();
        while !self.shared.is_settled_after(own) {
            assert!(begun.elapsed() < PATIENCE, "a request neither goes on nor ends");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        std::mem::take(&mut self.shared.records.lock().unwrap())
    }
}

impl Shared {
    /// True when the connection from `last` has come and nothing is left to read on any.
    fn is_settled_after(&self, last: Option<SocketAddr>) -> bool {
        let connections = self.connections.lock().unwrap();
        let mut has_come = connections.iter().filter(|connection| connection.peer == last);
        has_come.next().is_some() && connections.iter().all(|connection| connection.is_settled())
    }
}

/// A connection of a gateway.
struct Connection {
    peer: Option<SocketAddr>,
    stream: TcpStream,
    /// False from the first byte of a request until it is recorded. Who reads holds the lock, so that no byte is between the socket
    /// and this mark.
    rests: Mutex<bool>,
}

impl Connection {
    /// Reads what is there; false at the end.
    async fn read_some(&self, bytes: &mut Vec<u8>) -> bool {
        loop {
            if self.stream.readable().await.is_err() {
                return false;
            }
            let mut rests = self.rests.lock().unwrap();
            match self.stream.try_read_buf(bytes) {
                Ok(0) => return false,
                Ok(_) => {
                    *rests = false;
                    return true;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
    }

    /// False when the other side has gone.
    async fn write(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.stream.writable().await.is_err() {
                return false;
            }
            match self.stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn is_settled(&self) -> bool {
        let rests = self.rests.lock().unwrap();
        let peeked = rustix::net::recv(&self.stream, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        *rests && matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }
}

impl Recorded {
    /// `POST / abcd`.
    pub fn summary(&self) -> String {
        let line = self.head.split("\r\n").next().unwrap_or("");
        let line = line.strip_suffix(" HTTP/1.1").unwrap_or(line);
        format!("{line} {}", String::from_utf8_lossy(&self.body).escape_default())
    }

    pub fn fields(&self, name: &str) -> Vec<&str> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

/// How a request says where its body ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// Serves a connection until it ends.
async fn serve(connection: Arc<Connection>, shared: Arc<Shared>) {
    record(&connection, &shared.records).await;
    shared.connections.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &connection));
}

async fn record(stream: &Connection, records: &Mutex<Records>) {
    let mut bytes = Vec::new();
    loop {
        *stream.rests.lock().unwrap() = bytes.is_empty();
        let Some(end) = read_to(stream, &mut bytes, b"\r\n\r\n").await else {
            if !bytes.is_empty() {
                records.lock().unwrap().violations.push(format!("half a head: {:?}", String::from_utf8_lossy(&bytes)));
            }
            return;
        };
        let head: Vec<u8> = bytes.drain(..end).collect();
        let (head, framing) = match read_head(&head) {
            Ok(read) => read,
            Err(violation) => return records.lock().unwrap().violations.push(violation),
        };
        let mut trailers = Vec::new();
        let body = match framing {
            Framing::Length(length) => read_length(stream, &mut bytes, length).await,
            Framing::Chunked => read_chunks(stream, &mut bytes, &mut trailers).await,
        };
        let (body, is_complete) = match body {
            Ok(body) => (body, true),
            Err(part) => (part, false),
        };
        let line = head.split("\r\n").next().unwrap_or("").to_owned();
        records.lock().unwrap().requests.push(Recorded { head, body, trailers, is_complete });
        if !is_complete {
            return;
        }
        let text = if line.starts_with("HEAD ") { String::new() } else { line.clone() };
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", line.len());
        if !stream.write(answer.as_bytes()).await {
            return;
        }
    }
}

/// Reads until `end` is there; `None` when the connection ends before.
async fn read_to(stream: &Connection, bytes: &mut Vec<u8>, end: &[u8]) -> Option<usize> {
    loop {
        if let Some(at) = bytes.windows(end.len()).position(|window| window == end) {
            return Some(at + end.len());
        }
        if !stream.read_some(bytes).await {
            return None;
        }
    }
}

async fn read_length(stream: &Connection, bytes: &mut Vec<u8>, length: usize) -> Result<Vec<u8>, Vec<u8>> {
    while bytes.len() < length {
        if !stream.read_some(bytes).await {
            return Err(std::mem::take(bytes));
        }
    }
    Ok(bytes.drain(..length).collect())
}

async fn read_chunks(stream: &Connection, bytes: &mut Vec<u8>, trailers: &mut Vec<String>) -> Result<Vec<u8>, Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let Some(end) = read_to(stream, bytes, b"\r\n").await else { return Err(body) };
        let line: Vec<u8> = bytes.drain(..end).collect();
        let size = usize::from_str_radix(&String::from_utf8_lossy(&line[..end - 2]), 16);
        let Ok(size) = size else { return Err(body) };
        if size == 0 {
            while let Some(end) = read_to(stream, bytes, b"\r\n").await {
                let line: Vec<u8> = bytes.drain(..end).collect();
                if line == b"\r\n" {
                    return Ok(body);
                }
                trailers.push(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            return Err(body);
        }
        match read_length(stream, bytes, size + 2).await {
            Ok(data) if data.ends_with(b"\r\n") => body.extend_from_slice(&data[..size]),
            Ok(data) | Err(data) => {
                body.extend_from_slice(&data);
                return Err(body);
            }
        }
    }
}

/// Reads a head by the letter of RFC 9112: what a gateway sends may leave no room for a second opinion.
fn read_head(bytes: &[u8]) -> Result<(String, Framing), String> {
    let violation = |what: &str| Err(format!("{what}: {:?}", String::from_utf8_lossy(bytes)));
    let head = String::from_utf8_lossy(&bytes[..bytes.len() - 4]).into_owned();
    let mut lines = head.split("\r\n");
    let parts: Vec<&str> = lines.next().unwrap_or("").split(' ').collect();
    let [method, target, "HTTP/1.1"] = parts.as_slice() else { return violation("no request line") };
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    if !is_token(method) || !(target.starts_with('/') || *target == "*") {
        return violation("a bad request line");
    }
    let (mut hosts, mut lengths, mut codings) = (0, Vec::new(), Vec::new());
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { return violation("no colon") };
        if !is_token(name) || value.contains(['\r', '\n', '\0']) {
            return violation("a bad field");
        }
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "content-length" => lengths.push(value.trim().to_owned()),
            "transfer-encoding" => codings.push(value.trim().to_owned()),
            _ => {}
        }
    }
    if hosts != 1 {
        return violation("not one Host");
    }
    let framing = match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Framing::Length(0),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) && !length.is_empty() => {
            Framing::Length(length.parse().unwrap_or(usize::MAX))
        }
        ([], [coding]) if coding == "chunked" => Framing::Chunked,
        _ => return violation("a body of which the end is not sure"),
    };
    Ok((head, framing))
}

/// A response as a client got it.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

/// Divides what a client got into responses, by their lengths. `heads` are those whose bodies do not come: of HEAD.
pub fn responses(mut bytes: &[u8], heads: &[usize]) -> Result<Vec<Received>, String> {
    let mut received = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        let end = end.ok_or_else(|| format!("half a head: {:?}", String::from_utf8_lossy(bytes)))?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes = &bytes[end..];
        let status =
            head.strip_prefix("HTTP/1.1 ").or(head.strip_prefix("HTTP/1.0 ")).and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.ok_or_else(|| format!("no response: {head:?}"))?;
        if status < 200 {
            continue;
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap_or(0);
        let length = if heads.contains(&received.len()) { 0 } else { length };
        let body = bytes.get(..length).ok_or_else(|| format!("half a body after {head:?}"))?.to_vec();
        bytes = &bytes[length..];
        received.push(Received { status, head, body });
    }
    Ok(received)
}
