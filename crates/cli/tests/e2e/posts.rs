//! Somebody who takes what is posted.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

/// Takes JSON that is posted to `path` at a port of its own; the first request is refused for the moment.
pub fn posts(path: &'static str) -> (u16, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (taken, posted) = channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let head: Vec<String> = stream.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            assert_eq!(head[0], format!("POST {path} HTTP/1.1"));
            let length = head.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap()];
            stream.read_exact(&mut body).unwrap();
            let status = if number == 0 { "503 Service Unavailable" } else { "200 OK" };
            write!(stream.get_mut(), "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
            if number > 0 && taken.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (port, posted)
}
