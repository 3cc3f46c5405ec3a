//! One line of the access log.

use std::net::SocketAddr;
use std::sync::Arc;

use weal_model::Time;

/// What is said of one request at its end.
#[derive(Debug)]
pub(crate) struct Record {
    method: http::Method,
    host: String,
    path: String,
    /// `app/class`; `None` when no route matched.
    pub flow: Option<Arc<str>>,
    pub status: u16,
    /// Bytes of the answer's body.
    pub sent: u64,
    begun: Time,
}

impl Record {
    pub fn new<B>(request: &http::Request<B>, begun: Time) -> Self {
        let named = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        Self {
            method: request.method().clone(),
            host: request.uri().authority().map(http::uri::Authority::as_str).or(named).unwrap_or("").to_owned(),
            path: request.uri().path().to_owned(),
            flow: None,
            status: 0,
            sent: 0,
            begun,
        }
    }

    /// Writes the line.
    pub fn write(&self, client: SocketAddr, now: Time) {
        let took_s = now.since(self.begun).as_secs_f64();
        tracing::info!(
            target: "access", client = %client.ip(), method = %self.method, host = self.host, path = self.path,
            flow = self.flow.as_deref().unwrap_or("-"), status = self.status, bytes = self.sent, took_s, "request"
        );
    }
}
