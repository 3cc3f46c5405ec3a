//! Messages over WebSocket (RFC 6455): an instance that sends each one back, and clients that wait for it.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::setting::Done;
use crate::bench::real::quantile;

/// A client's key and the server's answer to it, as section 1.3 has them.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Bytes of a message.
const MESSAGE: usize = 64;
/// The head of a frame with a binary message that is whole: without a mask, as instances send it, and with one, as clients do.
const PLAIN_HEAD: [u8; 2] = [0x82, MESSAGE as u8];
const MASKED_HEAD: [u8; 2] = [0x82, 0x80 | MESSAGE as u8];
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// How long a message may be on its way.
const PATIENCE: Duration = Duration::from_secs(10);

/// An instance on a thread of its own. It ends when dropped.
pub struct Echo {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Starts it.
    pub fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept_all(listener) => {}
                    _ = ended => {}
                }
            });
        });
        Ok(Self { address, end: Some(end), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept_all(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        // A connection that breaks off is for its client to say.
        tokio::spawn(serve(stream));
    }
}

async fn serve(stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while !head(&mut stream).await?.lines().any(|line| line.eq_ignore_ascii_case("upgrade: websocket")) {
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await?;
    }
    let switched = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {ACCEPT}\r\n\r\n"
    );
    stream.get_mut().write_all(switched.as_bytes()).await?;
    let mut frame = [0; 2 + MASK.len() + MESSAGE];
    loop {
        stream.read_exact(&mut frame).await?;
        ensure!(frame[..2] == MASKED_HEAD, "another frame than clients send");
        let (head, message) = frame.split_at_mut(2 + MASK.len());
        apply_mask(message, &head[2..]);
        stream.get_mut().write_all(&plain(message)).await?;
    }
}

/// The head of a request or of an answer, with its empty line.
async fn head(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(stream.read_line(&mut head).await? > 0, "closed after `{head}`");
    }
    Ok(head)
}

fn apply_mask(message: &mut [u8], mask: &[u8]) {
    for (byte, mask) in message.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

fn plain(message: &[u8]) -> [u8; 2 + MESSAGE] {
    let mut frame = [0; 2 + MESSAGE];
    frame[..2].copy_from_slice(&PLAIN_HEAD);
    frame[2..].copy_from_slice(message);
    frame
}

fn masked(message: &[u8]) -> [u8; 2 + MASK.len() + MESSAGE] {
    let mut frame = [0; 2 + MASK.len() + MESSAGE];
    frame[..2].copy_from_slice(&MASKED_HEAD);
    frame[2..][..MASK.len()].copy_from_slice(&MASK);
    frame[2 + MASK.len()..].copy_from_slice(message);
    apply_mask(&mut frame[2 + MASK.len()..], &MASK);
    frame
}

/// Messages there and back over so many connections for that time, one at a time on each.
///
/// # Errors
/// The upgrade is not passed, or a message does not come back as it went.
pub fn exchange(address: SocketAddr, connections: usize, span: Duration) -> Result<Done> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(timeout(PATIENCE, connect(address)).await.context("no answer to an upgrade")??);
        }
        let begun = Instant::now();
        let talks: Vec<_> =
            clients.into_iter().enumerate().map(|(number, client)| tokio::spawn(talk(client, number, begun + span))).collect();
        let mut times_ms = Vec::new();
        for talk in talks {
            times_ms.extend(timeout(span + PATIENCE, talk).await.context("a message does not come back")???);
        }
        let p99_ms = Some(quantile(&times_ms, 0.99));
        Ok(Done { count: times_ms.len() as u64, seconds: begun.elapsed().as_secs_f64(), p99_ms })
    })
}

async fn connect(address: SocketAddr) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let asked = format!(
        "GET / HTTP/1.1\r\nHost: bench.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.get_mut().write_all(asked.as_bytes()).await?;
    let answer = head(&mut stream).await?;
    ensure!(answer.starts_with("HTTP/1.1 101 ") && answer.contains(ACCEPT), "the upgrade is not passed: {answer}");
    Ok(stream)
}

/// Milliseconds of each message; there is one at least.
async fn talk(mut stream: BufReader<TcpStream>, client: usize, until: Instant) -> Result<Vec<f64>> {
    let (mut times_ms, mut answer) = (Vec::new(), [0; 2 + MESSAGE]);
    while times_ms.is_empty() || Instant::now() < until {
        let message = message(client, times_ms.len());
        let sent = Instant::now();
        stream.get_mut().write_all(&masked(&message)).await?;
        stream.read_exact(&mut answer).await?;
        ensure!(answer == plain(&message), "a message came back as another one");
        times_ms.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times_ms)
}

/// Unlike any other client's, and any other of this client.
fn message(client: usize, number: usize) -> [u8; MESSAGE] {
    let mut message = [b'.'; MESSAGE];
    message[..8].copy_from_slice(&(client as u64).to_be_bytes());
    message[8..16].copy_from_slice(&(number as u64).to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn messages_come_back_to_the_client_that_sent_them() {
        let echo = Echo::start().unwrap();
        let done = exchange(echo.address(), 3, Duration::ZERO).unwrap();
        assert_eq!(done.count, 3, "each client sends one at least");
    }

    /// Answers one connection by these bytes, and goes on to send them for whatever it reads.
    fn answering(with: &'static [u8]) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {
                let _ = stream.write_all(with);
            }
        });
        address
    }

    #[test]
    fn an_upgrade_that_is_not_passed_is_an_error() {
        let address = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        let error = exchange(address, 1, Duration::ZERO).map(|done| done.count).unwrap_err();
        assert!(error.to_string().contains("the upgrade is not passed"), "{error}");
    }

    #[test]
    fn a_message_that_comes_back_as_another_one_is_an_error() {
        let address = answering(
            b"HTTP/1.1 101 Switching Protocols\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\
              \x82\x40................................................................",
        );
        let error = exchange(address, 1, Duration::ZERO).map(|done| done.count).unwrap_err();
        assert!(error.to_string().contains("as another one"), "{error}");
    }
}
