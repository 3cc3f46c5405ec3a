//! Making calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use weal_protocol::Method;

use crate::error::{Error, Fault};
use crate::http::{HttpClient, HttpError, read_body};

/// Calls one role.
#[derive(Debug, Clone)]
pub struct Client {
    http: HttpClient,
    timeout: Duration,
}

impl Client {
    /// Calls the role that listens at `socket`, waiting at most `timeout` for an answer.
    pub fn new(socket: impl Into<PathBuf>, timeout: Duration) -> Self {
        Self { http: HttpClient::new(socket), timeout }
    }

    /// The same with another time-out.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { http: self.http.clone(), timeout }
    }

    /// Where it calls.
    pub fn socket(&self) -> &Path {
        self.http.socket()
    }

    /// Calls `method`.
    pub async fn call<Q: Serialize, A: DeserializeOwned>(&self, method: Method<Q, A>, request: &Q) -> Result<A, Error> {
        let exchange = self.exchange(method.name(), request);
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Error::TimedOut {
                socket: self.socket().display().to_string(),
                method: method.name(),
                seconds: self.timeout.as_secs_f64(),
            }),
        }
    }

    async fn exchange<Q: Serialize, A: DeserializeOwned>(&self, method: &'static str, request: &Q) -> Result<A, Error> {
        let unreachable = |source: HttpError| Error::Unreachable { socket: self.socket().display().to_string(), source };
        let body = serde_json::to_vec(request).map_err(|source| Error::Unwritable { method, source })?;
        let response = self.http.send(http::Method::POST, &format!("/{method}"), body).await.map_err(unreachable)?;
        let status = response.status();
        let body = read_body(response).await.map_err(unreachable)?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|source| Error::Unreadable { method, source });
        }
        let fault = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Fault { status: status.as_u16(), message: String::from_utf8_lossy(&body).into_owned() });
        Err(Error::Refused { method, fault })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Router, bind, serve};

    const DOUBLE: Method<u32, u32> = Method::new("test.v1/double");
    const MISSING: Method<(), ()> = Method::new("test.v2/missing");

    #[tokio::test]
    async fn a_call_comes_back_and_a_refusal_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("x".repeat(120));
        std::fs::create_dir(&long).unwrap();
        let path = long.join("role.sock");
        let listener = tokio::net::UnixListener::from_std(bind(&path).unwrap()).unwrap();
        let router =
            Router::default().on(DOUBLE, |n: u32| async move { n.checked_mul(2).ok_or_else(|| Fault::bad_request("too large")) });
        tokio::spawn(serve(listener, router));
        let client = Client::new(&path, Duration::from_secs(5));
        assert_eq!(client.call(DOUBLE, &21).await.unwrap(), 42);
        let error = client.call(DOUBLE, &u32::MAX).await.unwrap_err().to_string();
        assert_eq!(error, "test.v1/double: too large");
        let error = client.call(MISSING, &()).await.unwrap_err().to_string();
        assert!(error.contains("unknown method test.v2/missing"), "{error}");
    }

    #[tokio::test]
    async fn nobody_there_is_said_with_the_path() {
        let client = Client::new("/nowhere/role.sock", Duration::from_secs(5));
        let error = client.call(DOUBLE, &1).await.unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/role.sock does not answer"), "{error}");
    }
}
