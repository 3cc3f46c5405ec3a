//! Answers outside of HTTP's machinery.

use futures_util::FutureExt as _;
use tokio::io::AsyncWriteExt as _;

use super::transport::Transport;

/// Answers as far as the client takes it at once, and closes.
pub(crate) fn answer_raw<T: Transport>(mut stream: T, status: &str, reason: &str) {
    let length = reason.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let answer = format!("{head}{reason}");
    let _ = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await
    }
    .now_or_never();
}
