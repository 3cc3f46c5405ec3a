//! Requests, one by one, and what became of each.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A request without an answer for so long hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it takes until what was killed is gone.
const STRIKE: Duration = Duration::from_millis(250);
/// Between two requests of a client: what is shown is correctness, not speed.
pub const PAUSE: Duration = Duration::from_millis(2);

/// Which requests a fault may cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cuts {
    /// None at all.
    None,
    /// Those that were under way when it happened.
    UnderWay,
    /// Those that overlap it or what follows from it.
    UntilWhole,
}

/// The time in which a fault and what follows from it happened.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// The fault's name.
    pub fault: &'static str,
    pub began: Instant,
    /// When it had happened: how long that takes depends on the machine.
    pub struck: Instant,
    pub ended: Instant,
    /// Which requests within it may be cut.
    pub cuts: Cuts,
}

impl Window {
    fn excuses(&self, loss: &Loss) -> bool {
        let latest = match self.cuts {
            Cuts::None => return false,
            // A process is not gone in the moment in which it is killed.
            Cuts::UnderWay => self.struck + STRIKE,
            Cuts::UntilWhole => self.ended,
        };
        loss.began <= latest && overlap(loss, self)
    }
}

/// What became of all requests.
pub struct Total {
    pub all: usize,
    pub answered: usize,
    pub cut: usize,
    /// Those that nothing explains, in words.
    pub unexplained: Vec<String>,
}

/// A request that was not answered with 200.
struct Loss {
    began: Instant,
    ended: Instant,
    why: String,
}

#[derive(Default)]
struct Record {
    all: usize,
    answered: usize,
    lost: Vec<Loss>,
    windows: Vec<Window>,
}

/// Clients that ask both applications in turn: half of them on a connection of its own for each request, the others on one that they keep.
pub struct Load {
    began: Instant,
    clients: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    record: Arc<Mutex<Record>>,
}

impl Load {
    /// So many clients, each of which pauses for `pause` between two requests.
    pub fn start(listen: SocketAddr, clients: usize, pause: Duration) -> Self {
        let (stop, record) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Record>>::default());
        let client = |number: usize| {
            let (stop, record) = (Arc::clone(&stop), Arc::clone(&record));
            std::thread::spawn(move || {
                let mut host = ["front", "back"].into_iter().cycle().skip(number);
                let mut kept = (number % 2 == 1).then(|| Kept { listen, stream: None });
                while !stop.load(Ordering::Relaxed) {
                    let host = host.next().unwrap_or("front");
                    ask_and_record(host, &record, || kept.as_mut().map_or_else(|| ask(listen, host), |kept| kept.ask(host)));
                    std::thread::sleep(pause);
                }
            })
        };
        Self { began: Instant::now(), clients: (0..clients).map(client).collect(), stop, record }
    }

    /// Remembers the time of a fault; says how many requests were cut within it.
    pub fn explain(&self, window: Window) -> usize {
        let mut record = self.record.lock().expect("nothing panics while it is held");
        record.windows.push(window);
        record.lost.iter().filter(|loss| overlap(loss, &window)).count()
    }

    /// Lets each client finish its request, and adds up.
    pub fn finish(mut self) -> Total {
        self.stop.store(true, Ordering::Relaxed);
        for client in std::mem::take(&mut self.clients) {
            client.join().expect("a client does not panic");
        }
        let record = Arc::clone(&self.record);
        let record = record.lock().expect("nothing panics while it is held");
        let is_explained = |loss: &&Loss| record.windows.iter().any(|window| window.excuses(loss));
        let cut = record.lost.iter().filter(is_explained).count();
        let unexplained =
            record.lost.iter().filter(|loss| !is_explained(loss)).map(|loss| self.describe(loss, &record)).collect();
        Total { all: record.all, answered: record.answered, cut, unexplained }
    }

    /// What is known of a loss: when, why, and which fault came before it.
    fn describe(&self, loss: &Loss, record: &Record) -> String {
        let at_s = (loss.began - self.began).as_secs_f64();
        let last = record.windows.iter().rfind(|window| window.began <= loss.ended);
        let after = last.map_or_else(String::new, |window| {
            format!(", {:.2} s after {} began", loss.ended.duration_since(window.began).as_secs_f64(), window.fault)
        });
        format!("a request was lost at {at_s:.2} s{after}: {}", loss.why)
    }
}

fn overlap(loss: &Loss, window: &Window) -> bool {
    loss.began <= window.ended && loss.ended >= window.began
}

fn ask_and_record(host: &str, record: &Mutex<Record>, ask: impl FnOnce() -> Result<(), String>) {
    let began = Instant::now();
    let outcome = ask();
    let mut record = record.lock().expect("nothing panics while it is held");
    record.all += 1;
    match outcome {
        Ok(()) => record.answered += 1,
        Err(why) => record.lost.push(Loss { began, ended: Instant::now(), why: format!("{host}: {why}") }),
    }
}

/// One request.
///
/// # Errors
/// Why it was not answered with 200, in words.
pub fn ask(listen: SocketAddr, host: &str) -> Result<(), String> {
    ask_for(listen, host, "/")
}

/// One request for `path`.
///
/// # Errors
/// The same.
pub fn ask_for(listen: SocketAddr, host: &str, path: &str) -> Result<(), String> {
    let answer = exchange(listen, host, path).map_err(|error| error.to_string())?;
    match answer.split_once("\r\n\r\n") {
        Some((head, _)) if head.starts_with("HTTP/1.1 200") => Ok(()),
        Some((head, body)) => Err(why(head, body)),
        None => Err("the connection ended without an answer".to_owned()),
    }
}

/// What an answer other than 200 says: its status, the gateway's reason in a word, and the first line of its text.
fn why(head: &str, body: &str) -> String {
    let status = head.lines().next().unwrap_or_default();
    let reason = head.lines().find_map(|line| line.strip_prefix("x-weal-reason: ")).unwrap_or("an instance's own answer");
    format!("{status}, {reason}: {}", body.lines().next().unwrap_or_default())
}

fn open(listen: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&listen, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn exchange(listen: SocketAddr, host: &str, path: &str) -> std::io::Result<String> {
    let mut stream = open(listen)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}.localhost\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A client that keeps its connection.
struct Kept {
    listen: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Kept {
    /// One request. A connection that ends before a byte of the answer is there may have been closed just then: a GET is asked again on a new
    /// one, as browsers do (RFC 9110 section 9.2.2).
    fn ask(&mut self, host: &str) -> Result<(), String> {
        if let Some(mut stream) = self.stream.take() {
            match exchange_on(&mut stream, host) {
                Ok(Some((head, body))) => return self.judge(stream, &head, &body),
                Ok(None) => {}
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
                Err(error) => return Err(format!("on a connection that was kept: {error}")),
            }
        }
        let mut stream = BufReader::new(open(self.listen).map_err(|error| error.to_string())?);
        match exchange_on(&mut stream, host).map_err(|error| error.to_string())? {
            Some((head, body)) => self.judge(stream, &head, &body),
            None => Err("a new connection ended without an answer".to_owned()),
        }
    }

    fn judge(&mut self, stream: BufReader<TcpStream>, head: &str, body: &str) -> Result<(), String> {
        if !head.lines().any(|line| line.eq_ignore_ascii_case("connection: close")) {
            self.stream = Some(stream);
        }
        if head.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(why(head, body)) }
    }
}

/// The answer's head and body; `None` when the connection ended before.
fn exchange_on(stream: &mut BufReader<TcpStream>, host: &str) -> std::io::Result<Option<(String, String)>> {
    stream.get_mut().write_all(format!("GET / HTTP/1.1\r\nhost: {host}.localhost\r\n\r\n").as_bytes())?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return if head.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
        }
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.ok_or(ErrorKind::InvalidData)?];
    stream.read_exact(&mut body)?;
    Ok(Some((head, String::from_utf8_lossy(&body).into_owned())))
}
