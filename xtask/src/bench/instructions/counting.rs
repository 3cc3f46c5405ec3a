//! Instructions that the gateway takes for a request: what a thousand requests more cost, so that its start does not count.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::version::{Version, callgrind, counted};

/// Requests that go ahead, so that connections, buffers and statistics are there.
const AHEAD: usize = 200;
/// The longest that a start under valgrind may take.
const START: Duration = Duration::from_secs(60);
/// A gateway that has not answered within that time on a busy machine is started again.
const STARTS: usize = 3;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Fields of its head beside the host, each with the end of its line.
    pub fields: &'static str,
    /// Bytes of the answer.
    pub bytes: usize,
    /// Each comes over a connection of its own, which is closed behind its answer.
    pub is_alone: bool,
}

impl Request {
    /// As little as there can be.
    pub const SMALL: Self = Self { fields: "", bytes: 64, is_alone: false };
    /// The same over a connection of its own.
    pub const ALONE: Self = Self { fields: "connection: close\r\n", is_alone: true, ..Self::SMALL };
}

/// Instructions for each request.
pub fn instructions(version: &Version, request: &Request, quick: bool) -> Result<f64> {
    let more = if quick { 200 } else { 2000 };
    let instance = serve(request.bytes)?;
    let few = count(version, instance, request, AHEAD)?;
    let many = count(version, instance, request, AHEAD + more)?;
    Ok((many - few) / more as f64)
}

/// Instructions of a gateway from its start to its end, with so many requests between.
fn count(version: &Version, instance: SocketAddr, request: &Request, requests: usize) -> Result<f64> {
    let mut counted = count_once(version, instance, request, requests);
    for _ in 1..STARTS {
        if counted.is_ok() {
            break;
        }
        counted = count_once(version, instance, request, requests);
    }
    counted
}

fn count_once(version: &Version, instance: SocketAddr, request: &Request, requests: usize) -> Result<f64> {
    let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let file = version.scratch.join("callgrind.gateway");
    let mut gateway = callgrind(&file)
        .arg(version.examples.join("gateway-bench"))
        .args([&listen.to_string(), &instance.to_string(), "256", "1"])
        .spawn()
        .context("cannot start valgrind")?;
    let asked = ask_when_ready(&mut gateway, listen, request, requests);
    end(&mut gateway)?;
    asked?;
    counted(&file)
}

/// Sends requests one after the other, on one connection or on one each, once the gateway has its parameters.
fn ask_when_ready(gateway: &mut Child, listen: SocketAddr, request: &Request, requests: usize) -> Result<()> {
    let asked = &format!("GET /small HTTP/1.1\r\nhost: bench.localhost\r\n{}\r\n", request.fields);
    let begun = Instant::now();
    let mut connection = loop {
        // A gateway without parameters refuses; the few requests that it takes hardly count.
        match ask_first(listen, asked) {
            Ok(connection) => break connection,
            Err(error) if begun.elapsed() > START || gateway.try_wait()?.is_some() => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    for _ in 1..requests {
        if request.is_alone {
            ensure!(connection.read(&mut [0])? == 0, "something follows an answer that was the last one");
            connection = ask_first(listen, asked)?;
        } else {
            let status = ask(&mut connection, asked)?;
            ensure!(status == 200, "the gateway answered with {status}");
        }
    }
    Ok(())
}

fn ask_first(listen: SocketAddr, request: &str) -> Result<BufReader<TcpStream>> {
    let mut connection = BufReader::new(TcpStream::connect(listen).context("the gateway does not listen")?);
    let status = ask(&mut connection, request)?;
    ensure!(status == 200, "the gateway answered with {status}");
    Ok(connection)
}

/// Sends one request and reads its answer; returns the status.
fn ask(connection: &mut BufReader<TcpStream>, request: &str) -> Result<u16> {
    connection.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).context("the gateway closed the connection")?;
    let mut length = 0;
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse()?,
            Some(_) => {}
            None => break,
        }
    }
    connection.read_exact(&mut vec![0; length])?;
    Ok(status)
}

/// Ends the gateway as Ctrl-C does, and waits for it.
fn end(gateway: &mut Child) -> Result<()> {
    if gateway.try_wait()?.is_some() {
        return Ok(());
    }
    Command::new("kill").args(["-INT", &gateway.id().to_string()]).status()?;
    let begun = Instant::now();
    while gateway.try_wait()?.is_none() {
        if begun.elapsed() > START {
            gateway.kill()?;
            bail!("the gateway does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// An instance that answers every request with so many bytes, until this process ends.
fn serve(bytes: usize) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || answer(connection, bytes));
        }
    });
    Ok(address)
}

fn answer(connection: TcpStream, bytes: usize) -> Option<()> {
    let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n{}", "a".repeat(bytes));
    let mut connection = BufReader::new(connection);
    let mut line = String::new();
    loop {
        line.clear();
        if connection.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            connection.get_mut().write_all(response.as_bytes()).ok()?;
        }
    }
}
