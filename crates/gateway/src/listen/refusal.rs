//! Answers outside of HTTP's machinery.

use std::io::Write as _;
use std::net::TcpStream;

use futures_util::FutureExt as _;
use tokio::io::AsyncWriteExt as _;

use super::transport::Transport;

/// Answers as far as the client takes it at once, and closes.
pub(crate) fn answer_raw<T: Transport>(mut stream: T, status: &str, reason: &str) {
    let answer = answer(status, reason);
    let _ = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await
    }
    .now_or_never();
}

/// The same over a socket that was just accepted: no runtime knows yet that it takes something.
pub(crate) fn answer_new(mut stream: &TcpStream, status: &str, reason: &str) {
    let _ = stream.write(answer(status, reason).as_bytes());
}

fn answer(status: &str, reason: &str) -> String {
    let length = reason.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{reason}")
}
