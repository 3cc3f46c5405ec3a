//! The smallest application that the tests host: one thread a connection, keep-alive, no dependencies.
//!
//! `echo --port PORT`; `GET /healthz`, `GET /slow/MS`, `GET /most` says how many of those were under way at once, `GET /head` gives back the request's head, `GET /stream` answers without end, `GET
//! /call/NAME/PATH` passes on what the needed application NAME answers to `GET /PATH`, `GET /file/BYTES` is a file with a strong tag of which
//! parts can be asked for, `GET /file/BYTES/stuck` the same, but whoever asks for the whole gets half of it and no more, `GET /interim` says
//! without end that an answer will come, `GET /eat` takes 256 MiB for a moment, a request for a WebSocket makes a tunnel that echoes, anything else says which instance answers, and whether it was told a class. `ECHO_MODE`
//! makes it misbehave: `exit` ends at once and `sick` never becomes healthy. With `--proxy`, each connection has to begin with a header of the
//! PROXY protocol; `GET /head` says who it names. With `--given`, it listens at the socket that it is given as descriptor 3.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// More than the tests allow an instance.
const MEAL_BYTES: usize = 256 << 20;

/// Slow requests that are under way, and the most that ever were.
static SLOW: AtomicU32 = AtomicU32::new(0);
static MOST_SLOW: AtomicU32 = AtomicU32::new(0);

fn main() {
    let port = std::env::args().skip_while(|arg| arg != "--port").nth(1).expect("--port PORT");
    let mode = std::env::var("ECHO_MODE").unwrap_or_default();
    if mode == "exit" {
        eprintln!("echo: told to exit");
        std::process::exit(7);
    }
    let listener = if std::env::args().any(|arg| arg == "--given") {
        given_listener()
    } else {
        TcpListener::bind(format!("127.0.0.1:{port}")).expect("the port is free")
    };
    println!("echo: listening on {port}");
    let expects_proxy = std::env::args().any(|arg| arg == "--proxy");
    for client in listener.incoming().flatten() {
        let sick = mode == "sick";
        std::thread::spawn(move || serve(client, sick, expects_proxy));
    }
}

/// As sd_listen_fds(3) finds it.
fn given_listener() -> TcpListener {
    use std::os::fd::FromRawFd;
    let own = std::process::id().to_string();
    let [count, whom] = ["LISTEN_FDS", "LISTEN_PID"].map(|name| std::env::var(name).unwrap_or_default());
    assert_eq!((count.as_str(), &whom), ("1", &own), "one socket is given, and to this process");
    // SAFETY: the variables say that it is there, and nothing else uses it.
    unsafe { TcpListener::from_raw_fd(3) }
}

/// Answers until the client closes; errors mean just that.
fn serve(client: TcpStream, sick: bool, expects_proxy: bool) {
    let _ = client.set_nodelay(true);
    let Ok(mut writer) = client.try_clone() else { return };
    let mut reader = BufReader::new(client);
    let proxy = if expects_proxy { read_proxy(&mut reader) } else { Some(String::new()) };
    let Some(proxy) = proxy else { return eprintln!("echo: no PROXY header") };
    while let Some(Request { path, class, head }) = read_request(&mut reader) {
        if head.to_ascii_lowercase().contains("upgrade: websocket") {
            return tunnel(reader, writer);
        }
        if path == "/interim" {
            while writer.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_ok() {}
            return;
        }
        if let Some(ms) = path.strip_prefix("/slow/").and_then(|ms| ms.parse().ok()) {
            MOST_SLOW.fetch_max(SLOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(ms));
            SLOW.fetch_sub(1, Ordering::SeqCst);
        }
        if path == "/eat" {
            std::hint::black_box(vec![1_u8; MEAL_BYTES]);
        }
        if path.starts_with("/stream") {
            return stream(&mut writer);
        }
        if let Some(file) = path.strip_prefix("/file/") {
            let (bytes, is_stuck) = file.strip_suffix("/stuck").map_or((file, false), |bytes| (bytes, true));
            let Ok(bytes) = bytes.parse() else { return };
            if send_file(&mut writer, bytes, is_stuck, &head).is_err() {
                return;
            }
            continue;
        }
        let status = if sick { "503 Service Unavailable" } else { "200 OK" };
        let marked = if class.is_empty() { "" } else { " marked" };
        let own = format!("{} pid {}{marked}\n", std::env::var("INSTANCE").unwrap_or_default(), std::process::id());
        let body = match path.strip_prefix("/call/").and_then(|rest| rest.split_once('/')) {
            Some((needed, rest)) => own + &call(needed, rest, &class).unwrap_or_else(|error| format!("no answer: {error}\n")),
            None if path.starts_with("/head") => proxy.clone() + &head,
            None if path == "/most" => MOST_SLOW.load(Ordering::SeqCst).to_string(),
            None => own,
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\ncontent-type: text/plain\r\n\r\n{body}", body.len());
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Answers one line after the other until the client goes.
fn stream(writer: &mut TcpStream) {
    let line = format!("{}\n", std::env::var("INSTANCE").unwrap_or_default());
    let chunk = format!("{:x}\r\n{line}\r\n", line.len());
    let mut next = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n".to_owned() + &chunk;
    while writer.write_all(next.as_bytes()).is_ok() {
        next.clone_from(&chunk);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A file of `length` bytes, of which each says where it is, or the part from the byte that the head asks for on.
fn send_file(writer: &mut TcpStream, length: usize, is_stuck: bool, head: &str) -> std::io::Result<()> {
    let head = head.to_ascii_lowercase();
    let asked = head.lines().find_map(|line| line.strip_prefix("range: bytes=")?.split('-').next()?.parse::<usize>().ok());
    let first = asked.filter(|&first| first < length);
    let part = first.map(|first| format!("content-range: bytes {first}-{}/{length}\r\n", length - 1)).unwrap_or_default();
    let status = if first.is_some() { "206 Partial Content" } else { "200 OK" };
    let body: Vec<u8> = (first.unwrap_or(0)..length).map(|at| (at % 251) as u8).collect();
    write!(
        writer,
        "HTTP/1.1 {status}\r\netag: \"file-{length}\"\r\nx-pid: {}\r\n{part}content-length: {}\r\n\r\n",
        std::process::id(),
        body.len()
    )?;
    if is_stuck && first.is_none() {
        writer.write_all(&body[..length / 2])?;
        std::thread::sleep(Duration::from_secs(600));
    }
    writer.write_all(&body)
}

/// No longer HTTP: gives back what comes.
fn tunnel(mut reader: impl Read, mut writer: impl Write) {
    let consent = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    if writer.write_all(consent).is_ok() {
        let _ = std::io::copy(&mut reader, &mut writer);
    }
}

/// What the application `needed` answers, over a connection of its own. The class goes along.
fn call(needed: &str, path: &str, class: &str) -> std::io::Result<String> {
    let name = weal_model::naming::variable(&needed.into(), "ADDR");
    let address = std::env::var(name).map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect(&address)?;
    let class = if class.is_empty() { String::new() } else { format!("x-weal-class: {class}\r\n") };
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {address}\r\n{class}connection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map_or(answer.clone(), |(_, body)| body.to_owned()))
}

/// Whom the header at the start of a connection names: `from ADDRESS PORT`, or `from nobody`. `None` when there is no header.
fn read_proxy(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut start = [0; 12];
    reader.read_exact(&mut start).ok()?;
    if start == *b"\r\n\r\n\0\r\nQUIT\n" {
        let mut rest = [0; 4];
        reader.read_exact(&mut rest).ok()?;
        let mut addresses = vec![0; usize::from(u16::from_be_bytes([rest[2], rest[3]]))];
        reader.read_exact(&mut addresses).ok()?;
        let [a, b, c, d, _, _, _, _, high, low, ..] = addresses[..] else { return Some("from nobody\n".to_owned()) };
        return Some(format!("from {a}.{b}.{c}.{d} {}\n", u16::from_be_bytes([high, low])));
    }
    let mut line = String::from_utf8(start.to_vec()).ok()?;
    reader.read_line(&mut line).ok()?;
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    match words[..] {
        ["PROXY", "TCP4", source, _, port, _] => Some(format!("from {source} {port}\n")),
        ["PROXY", "UNKNOWN"] => Some("from nobody\n".to_owned()),
        _ => None,
    }
}

struct Request {
    path: String,
    /// The class that it brings along; empty without one.
    class: String,
    /// As it came.
    head: String,
}

/// The next request, its head and body read; `None` at the end.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let (mut head, mut length, mut class) = (String::new(), 0, String::new());
    loop {
        let start = head.len();
        reader.read_line(&mut head).ok().filter(|length| *length > 0)?;
        match head[start..].trim_end().split_once(':') {
            None if start > 0 => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            Some((name, value)) if name.eq_ignore_ascii_case("x-weal-class") => value.trim().clone_into(&mut class),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    Some(Request { path, class, head })
}
