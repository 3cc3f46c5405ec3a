//! What the node's tests run: the agent and the shim as processes of their own, and instances that behave and misbehave.
//!
//! ```text
//! node_fixture shim --dir DIR [--adopt]
//! node_fixture agent --state DIR --isolation cgroup-v2|cgroup-hybrid|none|best [--prefetch nothing|working-set|everything]
//! node_fixture serve PORT               answers 200 on every path; `/hog/MIB` takes memory first, `/touch` reads it,
//!                                       `/dirty` writes to it, `/sum` answers with a checksum of it, `/spin/MS` burns CPU;
//!                                       `/map/COUNT` makes mappings, `/mapped` looks whether they hold what they did;
//!                                       `/deafen` closes its listener, and it runs on
//! node_fixture stubborn PORT            serves and ignores SIGTERM
//! node_fixture forks PORT               serves, with children that detach themselves and ignore SIGTERM
//! node_fixture hides PORT               serves, with a child that detaches itself and clears its environment
//! node_fixture storm PORT               serves, and starts three short-lived children at a time, for ever
//! node_fixture deaf                     runs and never listens
//! node_fixture flood MIB                writes that much and waits
//! ```
//!
//! As the first process of a machine it is the `init` of the one that `vm.rs` boots.

mod vm_init;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Bytes of memory that one number marks: sixteen to a page.
const PIECE: usize = 256;

fn main() -> ExitCode {
    if std::process::id() == 1 && std::env::args().next().as_deref() == Some("/init") {
        vm_init::run();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["shim", "--dir", dir] => weal_node::shim::main(dir.as_ref(), false),
        ["shim", "--dir", dir, "--adopt"] => weal_node::shim::main(dir.as_ref(), true),
        ["agent", "--state", dir, "--isolation", kind] => agent(dir.into(), kind, None),
        ["agent", "--state", dir, "--isolation", kind, "--prefetch", what] => agent(dir.into(), kind, Some(what)),
        ["serve", port] => serve(port),
        ["stubborn", port] => {
            ignore_sigterm();
            serve(port)
        }
        ["forks", port] => fork_and_serve(port),
        ["child"] => {
            ignore_sigterm();
            // A daemon leaves its parent's session.
            let _ = rustix::process::setsid();
            wait_forever()
        }
        ["hides", port] => hide_and_serve(port),
        ["storm", port] => storm(port),
        ["brief"] => {
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }
        ["threads", code] => end_after_main(code),
        ["deaf"] => {
            println!("I hear nothing");
            wait_forever()
        }
        ["flood", mib] => flood(mib),
        _ => Err(io::Error::other(format!("unknown: {words:?}"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn agent(state: PathBuf, kind: &str, prefetch: Option<&str>) -> io::Result<()> {
    let run = state.join("run");
    std::fs::create_dir_all(&run)?;
    let mut options = weal_node::Options::new(&state, weal_rpc::bind(&run.join("node.sock"))?);
    options.wake = Some(weal_rpc::bind(&run.join("wake.sock"))?);
    options.prefetch = match prefetch {
        Some("nothing") => Some(weal_node::Prefetch::Nothing),
        Some("working-set") => Some(weal_node::Prefetch::WorkingSet),
        Some("everything") => Some(weal_node::Prefetch::Everything),
        _ => None,
    };
    options.isolation = match kind {
        "cgroup-v2" => Some(weal_node::Kind::CgroupV2),
        "cgroup-hybrid" => Some(weal_node::Kind::CgroupHybrid),
        "none" => Some(weal_node::Kind::None),
        _ => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(weal_node::run(options)).map_err(io::Error::other)
}

fn serve(port: &str) -> io::Result<()> {
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    println!("serving on {port}");
    let (mut hoard, mut mappings) = (Vec::new(), Vec::new());
    for stream in listener.incoming() {
        let stream = stream?;
        // A client that breaks off is its own affair.
        if answer(stream, &mut hoard, &mut mappings).is_ok_and(|path| path == "/deafen") {
            break;
        }
    }
    drop(listener);
    wait_forever()
}

/// Answers, and says what it was asked for.
fn answer(mut stream: TcpStream, hoard: &mut Vec<Vec<u8>>, mappings: &mut Vec<*mut u64>) -> io::Result<String> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    reader.read_line(&mut line)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let path = line.split_whitespace().nth(1).unwrap_or("/");
    if let Some(mib) = path.strip_prefix("/hog/").and_then(|text| text.parse::<usize>().ok()) {
        // Every page is written to, so that it is really there, and none is like another.
        let first = hoard.len();
        hoard.extend((first..first + mib).map(block));
    }
    if let Some(count) = path.strip_prefix("/map/").and_then(|text| text.parse().ok()) {
        *mappings = map(count)?;
    }
    if path == "/mapped" {
        // SAFETY: each was mapped by `map` and is never unmapped.
        let holds = |(number, at): (usize, &*mut u64)| unsafe { at.read() } == number as u64 + 1;
        if mappings.is_empty() || !mappings.iter().enumerate().all(holds) {
            return Err(io::Error::other("a mapping has lost what it held"));
        }
    }
    if path == "/dirty" {
        hoard.iter_mut().flat_map(|block| block.iter_mut().step_by(4096)).for_each(|byte| *byte = byte.wrapping_add(1));
    }
    if path == "/touch" {
        let sum: usize = hoard.iter().flat_map(|block| block.iter().step_by(4096)).map(|byte| usize::from(*byte)).sum();
        std::hint::black_box(sum);
    }
    if let Some(ms) = path.strip_prefix("/spin/").and_then(|text| text.parse().ok()) {
        let end = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < end {}
    }
    if let Some(text) = path.strip_prefix("/say/") {
        println!("{text}");
    }
    let body = if path == "/sum" { sum(hoard) } else { u64::from(std::process::id()) };
    let body = format!("{body}\n");
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())?;
    stream.flush()?;
    stream.shutdown(std::net::Shutdown::Write)?;
    io::copy(&mut stream.take(1 << 16), &mut io::sink())?;
    Ok(path.to_owned())
}

/// A MiB that holds in each of its pieces how many such come before it.
fn block(number: usize) -> Vec<u8> {
    let mut block = vec![1; 1 << 20];
    let first = number * (block.len() / PIECE);
    for (position, piece) in (first as u64..).zip(block.chunks_exact_mut(PIECE)) {
        piece[1..9].copy_from_slice(&position.to_le_bytes());
    }
    block
}

/// FNV-1a over each piece's first bytes: another value in one of them, or another order, gives another number.
fn sum(hoard: &[Vec<u8>]) -> u64 {
    let bytes = hoard.iter().flat_map(|block| block.chunks_exact(PIECE)).flat_map(|piece| &piece[..9]);
    weal_model::fnv1a(bytes)
}

fn fork_and_serve(port: &str) -> io::Result<()> {
    for _ in 0..3 {
        Command::new(std::env::current_exe()?).arg("child").stdin(Stdio::null()).spawn()?;
    }
    serve(port)
}

fn hide_and_serve(port: &str) -> io::Result<()> {
    Command::new(std::env::current_exe()?).arg("child").env_clear().stdin(Stdio::null()).spawn()?;
    serve(port)
}

fn storm(port: &str) -> io::Result<()> {
    let own = std::env::current_exe()?;
    for _ in 0..3 {
        let own = own.clone();
        std::thread::spawn(move || {
            loop {
                // It may be killed in the middle of this, with all that it has started.
                let _ = Command::new(&own).arg("brief").stdin(Stdio::null()).status();
            }
        });
    }
    serve(port)
}

/// `count` mappings of a page each, with another number in each. Every second one may be executed, so that none are joined.
fn map(count: usize) -> io::Result<Vec<*mut u64>> {
    let page = rustix::param::page_size();
    let one = |number: usize| {
        let rights = libc::PROT_READ | libc::PROT_WRITE | if number.is_multiple_of(2) { libc::PROT_EXEC } else { 0 };
        // SAFETY: a new mapping wherever there is room; nobody else knows of it.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), page, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = at.cast::<u64>();
        // SAFETY: it was just mapped, is writable, and is larger than this.
        unsafe { at.write(number as u64 + 1) };
        Ok(at)
    };
    (0..count).map(one).collect()
}

fn flood(mib: &str) -> io::Result<()> {
    let mib: usize = mib.parse().map_err(io::Error::other)?;
    let line = format!("{}\n", "x".repeat(99));
    let block = line.repeat((1 << 20) / line.len());
    let mut stdout = io::stdout().lock();
    for _ in 0..mib {
        stdout.write_all(block.as_bytes())?;
    }
    stdout.write_all(b"flood over\n")?;
    stdout.flush()?;
    wait_forever()
}

fn wait_forever() -> io::Result<()> {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn ignore_sigterm() {
    // SAFETY: ignoring a signal runs no handler.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
}

/// Ends with `code` some time after its main thread: until then it looks gone, and nobody can be told how it ended.
fn end_after_main(code: &str) -> ! {
    let code = code.parse().expect("a status");
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(700));
        std::process::exit(code);
    });
    loop {
        // SAFETY: ends this thread and nothing else; nobody waits for it, and it owns nothing that others use.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}
