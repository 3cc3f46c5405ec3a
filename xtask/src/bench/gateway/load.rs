//! What loads a proxy, and how what it prints is read. A load of which anything failed is an error.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::setting::{CONNECTIONS, Done, SMALL};
use super::websocket;
use crate::bench::real::quantile;

/// Streams under way over each connection of HTTP/2. Together there are as many requests as over connections of HTTP/1.
const STREAMS: usize = 4;

/// Processes of openssl that shake hands, each one after the other: enough to keep a proxy busy on two CPUs that they share.
const SHAKERS: usize = 8;

/// What loads a proxy.
#[derive(Clone, Copy)]
pub enum Load {
    /// wrk, over connections that it keeps.
    KeepAlive,
    /// wrk, with a connection for each request.
    NewConnections,
    /// h2load.
    Streams,
    /// `openssl s_time`: a connection with a full handshake for each request.
    FullHandshakes,
    /// The same, where each goes on with the session of the one before.
    Resumptions,
    /// Clients that send a message and wait until it has come back.
    Messages,
}

impl Load {
    /// Loads the proxy for some seconds.
    pub fn run(self, address: SocketAddr, path: &str, seconds: u32, folder: &Path) -> Result<Done> {
        match self {
            Self::KeepAlive => wrk(address, path, seconds, &[]),
            Self::NewConnections => wrk(address, path, seconds, &["-H", "Connection: close"]),
            Self::Streams => h2load(address, path, seconds, &folder.join("h2load.log")),
            Self::FullHandshakes => handshakes(address, path, seconds, Handshake::Full),
            Self::Resumptions => handshakes(address, path, seconds, Handshake::Resumed),
            Self::Messages => websocket::exchange(address, CONNECTIONS, Duration::from_secs(seconds.into())),
        }
    }
}

fn wrk(address: SocketAddr, path: &str, seconds: u32, more: &[&str]) -> Result<Done> {
    let mut command = Command::new("wrk");
    command.args(["--latency", "-t", "1", "-c", &CONNECTIONS.to_string(), "-d", &format!("{seconds}s")]).args(more);
    command.arg(format!("http://{address}{path}"));
    read_wrk(&printed(&command.output().context("cannot run wrk")?)?)
}

fn read_wrk(text: &str) -> Result<Done> {
    ensure!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "requests failed:\n{text}");
    let line_with = |marker: &str| {
        let line = text.lines().find(|line| line.contains(marker));
        line.map(str::trim).with_context(|| format!("wrk says nothing on {marker}:\n{text}"))
    };
    // "12345 requests in 5.10s, 3.21MB read"
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let total =
        lines.find(|words| words.get(1) == Some(&"requests")).with_context(|| format!("wrk counts no requests:\n{text}"))?;
    let (requests, span) = (total[0], total.get(3).copied().unwrap_or_default());
    let p99 = line_with("99%")?.split_whitespace().nth(1).unwrap_or_default();
    let seconds = milliseconds(span.trim_end_matches(','))? / 1e3;
    Ok(Done { count: requests.parse()?, seconds, p99_ms: Some(milliseconds(p99)?) })
}

fn milliseconds(text: &str) -> Result<f64> {
    let split = text.find(|c: char| c.is_alphabetic()).with_context(|| format!("`{text}` has no unit"))?;
    let value: f64 = text[..split].parse()?;
    Ok(match &text[split..] {
        "us" => value / 1e3,
        "ms" => value,
        "s" => value * 1e3,
        "m" => value * 60e3,
        unit => bail!("unknown unit `{unit}`"),
    })
}

fn h2load(address: SocketAddr, path: &str, seconds: u32, log: &Path) -> Result<Done> {
    // It writes behind what is there.
    let _ = std::fs::remove_file(log);
    let mut command = Command::new("h2load");
    command.args(["-t", "1", "-c", &(CONNECTIONS / STREAMS).to_string(), "-m", &STREAMS.to_string(), "-D", &seconds.to_string()]);
    command.arg("--log-file").arg(log).arg(format!("http://{address}{path}"));
    let count = read_h2load(&printed(&command.output().context("cannot run h2load")?)?)?;
    let times = std::fs::read_to_string(log).context("h2load wrote no log")?;
    Ok(Done { count, seconds: seconds.into(), p99_ms: Some(read_h2load_log(&times)?) })
}

/// How many requests were answered.
fn read_h2load(text: &str) -> Result<u64> {
    let numbers = |marker: &str| -> Result<Vec<u64>> {
        let line = text.lines().find_map(|line| line.strip_prefix(marker));
        let line = line.with_context(|| format!("h2load says nothing on {marker}\n{text}"))?;
        line.split(',').map(|part| Ok(part.split_whitespace().next().unwrap_or_default().parse()?)).collect()
    };
    let [requests, statuses] = [numbers("requests:")?, numbers("status codes:")?];
    // Those that were under way at the end are begun and not done; some have a status.
    let [_, _, done, succeeded, failed, errored, timeout] = requests[..] else { bail!("h2load counts otherwise:\n{text}") };
    let others: u64 = statuses.iter().skip(1).sum();
    let is_good = done == succeeded && failed + errored + timeout + others == 0;
    ensure!(is_good, "requests failed:\n{text}");
    Ok(succeeded)
}

/// A line for each request: when it was begun, its status, and how many microseconds it took.
fn read_h2load_log(text: &str) -> Result<f64> {
    let times: Vec<f64> = text.lines().filter_map(|line| line.split('\t').nth(2)?.parse().ok()).collect();
    ensure!(!times.is_empty(), "h2load logged no request");
    Ok(quantile(&times, 0.99) / 1e3)
}

/// What every handshake of a load has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handshake {
    Full,
    Resumed,
}

impl Handshake {
    fn flag(self) -> &'static str {
        match self {
            Self::Full => "-new",
            Self::Resumed => "-reuse",
        }
    }

    /// How `openssl s_time` writes one down.
    fn mark(self) -> char {
        match self {
            Self::Full => '*',
            Self::Resumed => 'r',
        }
    }
}

/// Tickets of TLS 1.3 come after the handshake, so each connection also asks for an answer and reads it to its end.
fn handshakes(address: SocketAddr, path: &str, seconds: u32, kind: Handshake) -> Result<Done> {
    let begun = Instant::now();
    let start = |_| -> Result<Child> {
        let mut command = Command::new("openssl");
        command.args(["s_time", "-connect", &address.to_string(), kind.flag(), "-tls1_3", "-www", path]);
        command.args(["-time", &seconds.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("cannot run openssl")
    };
    let shakers = (0..SHAKERS).map(start).collect::<Result<Vec<_>>>()?;
    let outputs = shakers.into_iter().map(Child::wait_with_output).collect::<Result<Vec<_>, _>>()?;
    let elapsed = begun.elapsed();
    let counts = outputs.iter().map(|output| read_s_time(&printed(output)?, kind)).collect::<Result<Vec<_>>>()?;
    Ok(Done { count: counts.iter().sum(), seconds: elapsed.as_secs_f64(), p99_ms: None })
}

/// How many connections there were: each has its mark, and each got the whole answer.
fn read_s_time(text: &str, kind: Handshake) -> Result<u64> {
    let is_marks = |line: &&str| !line.is_empty() && line.chars().all(|mark| "*rt3".contains(mark));
    let marks: String = text.lines().filter(is_marks).collect();
    let as_asked = marks.chars().filter(|mark| *mark == kind.mark()).count();
    ensure!(!marks.is_empty() && as_asked == marks.len(), "{as_asked} of {} handshakes were as asked:\n{text}", marks.len());
    let bytes = text.lines().find_map(|line| line.strip_suffix(" bytes read per connection")?.rsplit(' ').next());
    let bytes: usize = bytes.with_context(|| format!("openssl says nothing on bytes:\n{text}"))?.parse()?;
    ensure!(bytes > SMALL, "a connection got {bytes} bytes, less than an answer has");
    Ok(as_asked as u64)
}

fn printed(output: &Output) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_times_are_read_in_every_unit() {
        let read = ["834.00us", "2.50ms", "1.20s", "1.00m"].map(|text| milliseconds(text).unwrap());
        assert_eq!(read, [0.834, 2.5, 1200.0, 60_000.0]);
    }

    #[test]
    fn what_wrk_prints_is_read_unless_a_request_failed() {
        let text = "Running 3s test @ http://127.0.0.1:1/small\n  1 threads and 64 connections\n  Latency Distribution\n     50%    1.96ms\n     \
                    99%    8.31ms\n  91221 requests in 3.01s, 24.71MB read\nRequests/sec:  30306.14\n";
        let done = read_wrk(text).unwrap();
        assert_eq!((done.count, done.seconds, done.p99_ms), (91_221, 3.01, Some(8.31)));
        assert!(read_wrk(&format!("{text}  Non-2xx or 3xx responses: 1\n")).is_err());
        assert!(read_wrk(&format!("{text}  Socket errors: connect 0, read 1, write 0, timeout 0\n")).is_err());
    }

    #[test]
    fn what_h2load_prints_is_read_unless_a_request_failed() {
        let text = |failed: u64, refused: u64| {
            format!(
                "finished in 3.00s, 100.00 req/s, 6.85MB/s\nrequests: 310 total, 310 started, 300 done, {} succeeded, {failed} failed, 0 errored, 0 \
                 timeout\nstatus codes: {} 2xx, 0 3xx, 0 4xx, {refused} 5xx\n",
                300 - failed,
                300 - failed - refused
            )
        };
        assert_eq!(read_h2load(&text(0, 0)).unwrap(), 300);
        assert!(read_h2load(&text(1, 0)).is_err());
        assert!(read_h2load(&text(0, 1)).is_err());
    }

    #[test]
    fn the_p99_of_h2load_is_of_its_log() {
        let log: String = (1..=200).map(|took| format!("1700000000\t200\t{}\n", took * 1000)).collect();
        assert_eq!(read_h2load_log(&log).unwrap(), 199.0);
    }

    #[test]
    fn a_single_handshake_that_is_not_as_asked_is_an_error() {
        let text = |marks: &str, bytes: usize| {
            format!(
                "Collecting connection statistics for 3 seconds\n\n\nNow timing with session id reuse.\nstarting\n{marks}\n\n\
                 4 connections in 0.10s; 40.00 connections/user sec, bytes read 400\n\
                 4 connections in 4 real seconds, {bytes} bytes read per connection\n"
            )
        };
        assert_eq!(read_s_time(&text("rrrr", 300), Handshake::Resumed).unwrap(), 4);
        assert_eq!(read_s_time(&text("****", 300), Handshake::Full).unwrap(), 4);
        assert!(read_s_time(&text("rr*r", 300), Handshake::Resumed).is_err());
        assert!(read_s_time(&text("rrrr", 300), Handshake::Full).is_err());
        assert!(read_s_time(&text("rrrr", 0), Handshake::Resumed).is_err(), "nothing was answered");
        assert!(read_s_time(&text("", 300), Handshake::Resumed).is_err());
    }
}
