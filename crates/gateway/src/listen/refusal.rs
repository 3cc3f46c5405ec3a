//! Answers outside of HTTP's machinery.

use std::io::Write as _;
use std::net::TcpStream;

use futures_util::FutureExt as _;
use tokio::io::AsyncWriteExt as _;

use super::transport::Transport;

/// Answers as far as the client takes it at once, and closes.
pub(crate) fn send_error_response<T: Transport>(mut stream: T, status: &str, reason: &str) {
    let response = error_response(status, reason);
    let _ = async {
        stream.write_all(response.as_bytes()).await?;
        stream.flush().await
    }
    .now_or_never();
}

/// The same over a socket that was just accepted: no runtime knows yet that it takes something.
pub(crate) fn send_error_response_to_new(mut stream: &TcpStream, status: &str, reason: &str) {
    let _ = stream.write(error_response(status, reason).as_bytes());
}

fn error_response(status: &str, reason: &str) -> String {
    let length = reason.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{reason}")
}
