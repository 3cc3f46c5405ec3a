//! HTTP/1.1 over local sockets, for calls between roles and for whatever else speaks HTTP there.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::socket;

/// The largest response that is read; each method says itself how long a request may be. A snapshot of 200 flows and 50 nodes is about 1 MiB; beyond 64 MiB
/// something is wrong and memory is at risk.
pub const BODY_LIMIT: usize = 64 << 20;

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nobody listens there.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// What was asked for is no path.
    #[error("`{path}` is no path: {source}")]
    Path {
        /// What was asked for.
        path: String,
        /// What is wrong with it.
        source: http::Error,
    },
    /// The other side broke off, before its answer or within it.
    #[error("the other side broke off: {0}")]
    BrokeOff(#[source] hyper::Error),
    /// The answer is beyond [`BODY_LIMIT`].
    #[error("the answer is larger than {BODY_LIMIT} bytes")]
    TooLarge,
    /// The body failed in a way that this crate does not know.
    #[error("the answer cannot be read: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Exchanges requests for responses with one server. Each exchange makes its own connection: local ones cost 50 us, and a server
/// that was started anew is found without a word.
#[derive(Debug, Clone)]
pub struct HttpClient {
    socket: PathBuf,
}

impl HttpClient {
    /// Speaks to the server that listens at `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Where the server listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends `body`, which is JSON, and waits for the head of the response. Its body arrives while it is read; dropping it ends the
    /// connection. There is no time limit.
    pub async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Result<Response<Incoming>, HttpError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "weal")
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .map_err(|source| HttpError::Path { path: path.to_owned(), source })?;
        let stream = socket::connect(&self.socket).await.map_err(HttpError::Connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(HttpError::BrokeOff)?;
        // It ends with the response: when its body was read or dropped.
        tokio::spawn(async move {
            // Its errors come back with the request.
            let _ = connection.await;
        });
        sender.send_request(request).await.map_err(HttpError::BrokeOff)
    }
}

/// The whole body of a response.
///
/// # Errors
/// The other side broke off, or the body is beyond [`BODY_LIMIT`].
pub async fn read_body(response: Response<Incoming>) -> Result<Bytes, HttpError> {
    let body = Limited::new(response.into_body(), BODY_LIMIT).collect().await;
    let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(broke_off) => HttpError::BrokeOff(*broke_off),
        Err(error) if error.is::<LengthLimitError>() => HttpError::TooLarge,
        Err(error) => HttpError::Body(error),
    })?;
    Ok(body.to_bytes())
}
