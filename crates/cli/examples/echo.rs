//! The smallest application that the tests host: one thread a connection, keep-alive, no dependencies.
//!
//! `echo --port PORT`; `GET /healthz`, `GET /slow/MS`, `GET /call/NAME/PATH` passes on what the needed application NAME answers to `GET /PATH`,
//! anything else says which instance answers, and whether it was told a class. `WEAL_ECHO` makes it
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
    while let Some((path, class)) = read_request(&mut reader) {
        if let Some(ms) = path.strip_prefix("/slow/").and_then(|ms| ms.parse().ok()) {
            std::thread::sleep(Duration::from_millis(ms));
        }
        let status = if sick { "503 Service Unavailable" } else { "200 OK" };
        let marked = if class.is_empty() { "" } else { " marked" };
        let own = format!("{} pid {}{marked}\n", std::env::var("INSTANCE").unwrap_or_default(), std::process::id());
        let body = match path.strip_prefix("/call/").and_then(|rest| rest.split_once('/')) {
            Some((needed, rest)) => own + &call(needed, rest, &class).unwrap_or_else(|error| format!("no answer: {error}\n")),
            None => own,
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\ncontent-type: text/plain\r\n\r\n{body}", body.len());
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// What the application `needed` answers, over a connection of its own. The class goes along.
fn call(needed: &str, path: &str, class: &str) -> std::io::Result<String> {
    let name = format!("{}_ADDR", needed.to_uppercase().replace('-', "_"));
    let address = std::env::var(name).map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect(&address)?;
    let class = if class.is_empty() { String::new() } else { format!("x-weal-class: {class}\r\n") };
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {address}\r\n{class}connection: close\r\n\r\n")?;
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map_or(answer.clone(), |(_, body)| body.to_owned()))
}

/// The path of the next request and the class that it brings along, its head and body read; `None` at the end.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut class) = (0, String::new());
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        match line.trim_end().split_once(':') {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            Some((name, value)) if name.eq_ignore_ascii_case("x-weal-class") => value.trim().clone_into(&mut class),
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    std::io::Read::read_exact(reader, &mut body).ok()?;
    Some((path, class))
}
