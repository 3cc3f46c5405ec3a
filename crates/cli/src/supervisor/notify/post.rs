//! A POST to a receiver, with a bound on time.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Uri};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::RootCertStore;

use super::message::DeliveryError;
use crate::supervisor::outgoing::{OutgoingError, connector, send};

/// What one attempt may take. A receiver that works answers within a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Posts `body` as JSON.
///
/// # Errors
/// It was not taken: there is no answer in time, or another than 2xx.
pub async fn post(url: &str, body: Vec<u8>) -> Result<(), DeliveryError> {
    tokio::time::timeout(PATIENCE, attempt(url, body)).await.unwrap_or(Err(DeliveryError::TooSlow(PATIENCE)))
}

/// The host that is called.
pub fn host_of(url: &str) -> String {
    url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_else(|| "a receiver".to_owned())
}

async fn attempt(url: &str, body: Vec<u8>) -> Result<(), DeliveryError> {
    let request = Request::builder().method(Method::POST).uri(url).header(CONTENT_TYPE, "application/json");
    let request = request.body(Full::new(Bytes::from(body))).map_err(|_| OutgoingError::Address)?;
    let tls = (request.uri().scheme_str() == Some("https")).then(trusting_the_system).transpose()?;
    // The body says nothing that matters, however long it is.
    let status = send(tls.as_ref(), request).await?.status();
    if status.is_success() { Ok(()) } else { Err(DeliveryError::Refused(status)) }
}

/// Trusts whom the system trusts.
fn trusting_the_system() -> Result<TlsConnector, DeliveryError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    connector(roots).map_err(|error| DeliveryError::Tls(error.to_string()))
}
