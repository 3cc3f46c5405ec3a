//! A program that looks at what it was given and tries what it may not, for tests of who may do what.
//!
//! ```text
//! attacker serve PORT               answers `/healthz` with ok, `/self` with how it runs, `/detach` with the pid of a child that hides, and
//!                                   `/secret` with the file that `KEY_FILE` names, or the error
//! attacker look FILE                writes how it runs to a file
//! attacker call SOCKET METHOD BODY  calls a role and prints the answer's status and body, or the error
//! attacker read PATH                prints how much of a file or a folder it can read
//! attacker detach                   leaves its session and its parent, and waits
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["serve", port] => serve(port),
        ["call", socket, method, body] => {
            println!("{}", call(socket, method, body));
            Ok(())
        }
        ["read", path] => {
            println!("{}", read(path).unwrap_or_else(|error| format!("error {error}")));
            Ok(())
        }
        ["look", file] => itself().and_then(|seen| std::fs::write(file, seen)),
        ["detach"] => {
            let _ = rustix::process::setsid();
            loop {
                std::thread::park();
            }
        }
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

fn serve(port: &str) -> io::Result<()> {
    // Before anything of its own is open.
    let seen = itself()?;
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    for stream in listener.incoming() {
        // A client that breaks off is its own affair.
        let _ = answer(stream?, &seen);
    }
    Ok(())
}

/// How it runs: the kernel's word on its users, its descriptors, and its environment.
fn itself() -> io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    // First all names: the descriptor of this very look is among them, and closed before their targets are read.
    let paths = std::fs::read_dir("/proc/self/fd")?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let open = paths.iter().filter_map(|path| Some((path.file_name()?, std::fs::read_link(path).ok()?)));
    let descriptors: String = open.map(|(number, target)| format!("Fd:\t{}\t{}\n", number.display(), target.display())).collect();
    let environment: String = std::env::vars().map(|(name, value)| format!("Env:\t{name}\t{value}\n")).collect();
    Ok(status + &descriptors + &environment)
}

fn answer(mut stream: TcpStream, seen: &str) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let path = line.split_whitespace().nth(1).unwrap_or("/");
    let body = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["", "self"] => seen.to_owned(),
        ["", "secret"] => {
            let key = std::env::var("KEY_FILE").map_err(io::Error::other).and_then(std::fs::read_to_string);
            key.unwrap_or_else(|error| format!("error {error}"))
        }
        ["", "detach"] => {
            let program = std::env::current_exe()?;
            Command::new(program).arg("detach").env_clear().stdin(Stdio::null()).spawn()?.id().to_string()
        }
        _ => "ok".to_owned(),
    };
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn read(path: &str) -> io::Result<String> {
    let path = std::path::Path::new(path);
    let length = if path.is_dir() { std::fs::read_dir(path)?.count() } else { std::fs::read(path)?.len() };
    Ok(format!("read {length}"))
}

/// The status and the body of the answer, or why there is none.
fn call(socket: &str, method: &str, body: &str) -> String {
    let exchange = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        let length = body.len();
        write!(
            stream,
            "POST /{method} HTTP/1.1\r\nHost: weal\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("no answer"))?;
        Ok(format!("{} {body}", head.split_whitespace().nth(1).unwrap_or_default()))
    };
    exchange().unwrap_or_else(|error| format!("error {error}"))
}
