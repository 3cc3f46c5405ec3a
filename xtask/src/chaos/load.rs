//! Requests, one by one, and what became of each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A request without an answer for so long hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two requests of a client: what is shown is correctness, not speed.
const PAUSE: Duration = Duration::from_millis(2);

/// The time in which a fault and what follows from it happened.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub began: Instant,
    pub ended: Instant,
    /// Whether requests within it may be cut.
    pub may_cut: bool,
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

/// Clients that ask both applications in turn, each request on a connection of its own.
pub struct Load {
    clients: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    record: Arc<Mutex<Record>>,
}

impl Load {
    pub fn start(listen: SocketAddr, clients: usize) -> Self {
        let (stop, record) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Record>>::default());
        let client = |number: usize| {
            let (stop, record) = (Arc::clone(&stop), Arc::clone(&record));
            std::thread::spawn(move || {
                let mut host = ["front", "back"].into_iter().cycle().skip(number);
                while !stop.load(Ordering::Relaxed) {
                    ask_and_record(listen, host.next().unwrap_or("front"), &record);
                    std::thread::sleep(PAUSE);
                }
            })
        };
        Self { clients: (0..clients).map(client).collect(), stop, record }
    }

    /// Remembers the time of a fault; says how many requests were cut within it.
    pub fn explain(&self, window: Window) -> usize {
        let mut record = self.record.lock().expect("nothing panics while it is held");
        record.windows.push(window);
        record.lost.iter().filter(|loss| overlap(loss, &window)).count()
    }

    /// Lets each client finish its request, and adds up.
    pub fn finish(self) -> Total {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("a client does not panic");
        }
        let record = self.record.lock().expect("nothing panics while it is held");
        let is_explained = |loss: &&Loss| record.windows.iter().any(|window| window.may_cut && overlap(loss, window));
        let cut = record.lost.iter().filter(is_explained).count();
        let first = record.lost.first().map_or_else(Instant::now, |loss| loss.began);
        let word =
            |loss: &Loss| format!("a request was lost {:.2} s after the first: {}", (loss.began - first).as_secs_f64(), loss.why);
        let unexplained = record.lost.iter().filter(|loss| !is_explained(loss)).map(word).collect();
        Total { all: record.all, answered: record.answered, cut, unexplained }
    }
}

fn overlap(loss: &Loss, window: &Window) -> bool {
    loss.began <= window.ended && loss.ended >= window.began
}

fn ask_and_record(listen: SocketAddr, host: &str, record: &Mutex<Record>) {
    let began = Instant::now();
    let outcome = ask(listen, host);
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
    let answer = exchange(listen, host).map_err(|error| error.to_string())?;
    match answer.split_once("\r\n") {
        Some((head, _)) if head.starts_with("HTTP/1.1 200") => Ok(()),
        Some((head, _)) => Err(head.to_owned()),
        None => Err("the connection ended without an answer".to_owned()),
    }
}

fn exchange(listen: SocketAddr, host: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&listen, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET / HTTP/1.1\r\nhost: {host}.localhost\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
