//! slowhttptest's four attacks, as clients of our own, so that the benchmark runs wherever weal does.
//!
//! | attack | slowhttptest | each connection |
//! | --- | --- | --- |
//! | [`Mode::Heads`] | `-H` (Slowloris) | begins a head, and adds a field every five seconds |
//! | [`Mode::Bodies`] | `-B` (R-U-Dead-Yet) | announces a body of 8192 bytes, and adds some every five seconds |
//! | [`Mode::Ranges`] | `-R` (Apache killer) | asks for a thousand ranges that overlap, every five seconds |
//! | [`Mode::Reads`] | `-X` | asks three times at once, has little room for answers, and takes 32 bytes of them every five seconds |
//!
//! The last two ask for something large that costs its server little. Of a page that takes CPU time, a thousand connections would be too much for
//! the machine however they send and read.
//!
//! Unlike slowhttptest's, connections that the server closes come again.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size;

/// Connections of an attack.
pub const CONNECTIONS: usize = 1000;
/// So many of them begin each second.
pub const PER_SECOND: usize = 250;
/// Between two steps of a connection.
const STEP: Duration = Duration::from_secs(5);
/// How often those are looked for whose step is due.
const TICK: Duration = Duration::from_millis(20);
/// Room for answers, in bytes, where they are read slowly. The kernel doubles it.
const ROOM: usize = 1024;
/// Bytes of an answer that are taken at once then.
const SIP: usize = 32;
/// Where something large is that costs its server little.
const LARGE: &str = "/catalogue";

/// What an attack does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Heads that never end.
    Heads,
    /// Bodies that never end.
    Bodies,
    /// Requests for many ranges.
    Ranges,
    /// Answers that are read slowly.
    Reads,
}

impl Mode {
    /// What a connection says first.
    fn opening(self) -> Vec<u8> {
        let line = match self {
            Self::Bodies => "POST",
            _ => "GET",
        };
        let path = match self {
            Self::Heads | Self::Bodies => "/",
            Self::Ranges | Self::Reads => LARGE,
        };
        let head = format!("{line} {path} HTTP/1.1\r\nHost: shop\r\nUser-Agent: slow\r\n");
        match self {
            Self::Heads => head.into_bytes(),
            Self::Bodies => {
                format!("{head}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 8192\r\n\r\n").into_bytes()
            }
            Self::Ranges => format!("{head}{}\r\n\r\n", ranges()).into_bytes(),
            Self::Reads => format!("{head}\r\n").repeat(3).into_bytes(),
        }
    }

    /// What it says at each step after that.
    fn more(self) -> Vec<u8> {
        match self {
            Self::Heads => b"X-More: more\r\n".to_vec(),
            Self::Bodies => b"field=value&".to_vec(),
            Self::Ranges => self.opening(),
            Self::Reads => Vec::new(),
        }
    }
}

/// As many as fit into a head of 16 KiB.
fn ranges() -> String {
    let ranges: Vec<String> = (1..1000).map(|end| format!("5-{}", end + 5)).collect();
    format!("Range: bytes=0-,{}", ranges.join(","))
}

/// A running attack. It ends when this is dropped.
pub struct Attack {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    open: AtomicUsize,
    closed: AtomicU64,
}

impl Attack {
    /// Begins.
    pub fn start(address: SocketAddr, mode: Mode) -> Self {
        let shared = Arc::new(Shared::default());
        let attacker = Attacker { address, mode, shared: Arc::clone(&shared), connections: Vec::new(), begun: Instant::now() };
        Self { shared, thread: Some(std::thread::spawn(move || attacker.run())) }
    }

    /// Connections that were opened and that nobody has closed.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Connections that the server has closed so far.
    pub fn closed(&self) -> u64 {
        self.shared.closed.load(Ordering::Relaxed)
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Attacker {
    address: SocketAddr,
    mode: Mode,
    shared: Arc<Shared>,
    connections: Vec<Connection>,
    begun: Instant,
}

struct Connection {
    stream: TcpStream,
    /// What the kernel has not taken yet.
    unsent: Vec<u8>,
    next: Instant,
}

impl Attacker {
    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let due = (self.begun.elapsed().as_secs_f64() * PER_SECOND as f64) as usize;
            while self.connections.len() < due.min(CONNECTIONS) {
                let Ok(connection) = Connection::open(self.address, self.mode) else { break };
                self.connections.push(connection);
            }
            let before = self.connections.len();
            let (mode, ready) = (self.mode, self.ready());
            let mut ready = ready.into_iter();
            self.connections.retain_mut(|connection| !ready.next().unwrap_or(true) || connection.step(mode).is_ok());
            self.shared.closed.fetch_add((before - self.connections.len()) as u64, Ordering::Relaxed);
            self.shared.open.store(self.connections.len(), Ordering::Relaxed);
            std::thread::sleep(TICK);
        }
    }

    /// Of each connection, whether there is something to do: the machine that is attacked has better to do than to look at all of them again and again.
    fn ready(&self) -> Vec<bool> {
        let now = Instant::now();
        let mut sockets: Vec<PollFd> = (self.connections.iter())
            .map(|connection| {
                let reads = if self.mode == Mode::Reads { PollFlags::empty() } else { PollFlags::IN };
                let writes = if connection.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                PollFd::new(&connection.stream, reads | writes)
            })
            .collect();
        // Where the kernel does not say it, all are looked at.
        let is_told = poll(&mut sockets, Some(&Timespec::default())).is_ok();
        let seen = self.connections.iter().zip(&sockets);
        seen.map(|(connection, socket)| !is_told || connection.next <= now || !socket.revents().is_empty()).collect()
    }
}

impl Connection {
    fn open(address: SocketAddr, mode: Mode) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        if mode == Mode::Reads {
            set_socket_recv_buffer_size(&stream, ROOM)?;
        }
        stream.set_nonblocking(true)?;
        Ok(Self { stream, unsent: mode.opening(), next: Instant::now() + STEP })
    }

    /// Does what is due; an error once the server has closed.
    fn step(&mut self, mode: Mode) -> io::Result<()> {
        let is_due = Instant::now() >= self.next;
        if is_due {
            self.next += STEP;
            if self.unsent.is_empty() {
                self.unsent = mode.more();
            }
        }
        self.send()?;
        match mode {
            Mode::Reads if !is_due => Ok(()),
            Mode::Reads => self.take(SIP),
            _ => self.take(64 << 10),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes some of what has come.
    fn take(&mut self, most: usize) -> io::Result<()> {
        match self.stream.read(&mut vec![0; most]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Accepts one connection after the other, reads what has come of each, and closes it.
    fn heard(listener: &TcpListener, most: usize) -> String {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; most];
        let count = stream.read(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn connections_say_what_their_attack_says_and_come_again_when_they_are_closed() {
        let beginnings = [
            (Mode::Heads, "GET / HTTP/1.1\r\n", false),
            (Mode::Bodies, "POST / HTTP/1.1\r\n", true),
            (Mode::Ranges, "GET /catalogue HTTP/1.1\r\n", true),
            (Mode::Reads, "GET /catalogue HTTP/1.1\r\n", true),
        ];
        for (mode, beginning, ends) in beginnings {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let attack = Attack::start(listener.local_addr().unwrap(), mode);
            let opening = heard(&listener, 16 << 10);
            assert!(opening.starts_with(beginning), "{mode:?}: {opening}");
            assert_eq!(opening.contains("\r\n\r\n"), ends, "{mode:?}: {opening}");
            assert!(mode.opening().len() < 16 << 10, "{mode:?}: a head that is too large is refused");
            while attack.closed() < 3 {
                heard(&listener, 1);
            }
        }
    }

    #[test]
    fn connections_that_nobody_closes_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let attack = Attack::start(listener.local_addr().unwrap(), Mode::Heads);
        let kept: Vec<TcpStream> = (0..20).map(|_| listener.accept().unwrap().0).collect();
        while attack.open() < 20 {
            std::thread::sleep(TICK);
        }
        assert_eq!((attack.closed(), kept.len()), (0, 20));
    }
}
