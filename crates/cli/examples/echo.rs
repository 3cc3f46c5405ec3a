//! The smallest application that the tests host: one thread a connection, keep-alive, no dependencies.
//!
//! `echo --port PORT`; `GET /healthz`, `GET /slow/MS`, anything else says which instance answers. `WEAL_ECHO` makes it
//! misbehave: `exit` ends at once and `sick` never becomes healthy.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn main() {
    let port = std::env::args().skip_while(|arg| arg != "--port").nth(1).expect("--port PORT");
    let mode = std::env::var("WEAL_ECHO").unwrap_or_default();
    if mode == "exit" {
        eprintln!("echo: told to exit");
        std::process::exit(7);
    }
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).expect("the port is free");
    println!("echo: listening on {port}");
    for client in listener.incoming().flatten() {
        let sick = mode == "sick";
        std::thread::spawn(move || serve(client, sick));
    }
}

/// Answers until the client closes; errors mean just that.
fn serve(client: TcpStream, sick: bool) {
    let _ = client.set_nodelay(true);
    let Ok(mut writer) = client.try_clone() else { return };
    let mut reader = BufReader::new(client);
    while let Some(path) = read_request(&mut reader) {
        if let Some(ms) = path.strip_prefix("/slow/").and_then(|ms| ms.parse().ok()) {
            std::thread::sleep(Duration::from_millis(ms));
        }
        let status = if sick { "503 Service Unavailable" } else { "200 OK" };
        let body = format!("{} pid {}\n", std::env::var("INSTANCE").unwrap_or_default(), std::process::id());
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\ncontent-type: text/plain\r\n\r\n{body}", body.len());
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The path of the next request, its head and body read; `None` at the end.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        match line.trim_end().split_once(':') {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    std::io::Read::read_exact(reader, &mut body).ok()?;
    Some(path)
}
