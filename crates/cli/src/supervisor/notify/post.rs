//! A POST to a receiver: one request a connection, over TLS where its address says so, with bounds on time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::message::DeliveryError;

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
    let uri: Uri = url.parse().map_err(|_| DeliveryError::Address)?;
    let host = uri.host().ok_or(DeliveryError::Address)?.trim_matches(['[', ']']).to_owned();
    let is_tls = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let request = request(&uri, body)?;
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(DeliveryError::Unreachable)?;
    if !is_tls {
        return send(stream, request).await;
    }
    let name = ServerName::try_from(host).map_err(|_| DeliveryError::Address)?;
    send(connector()?.connect(name, stream).await.map_err(DeliveryError::Unreachable)?, request).await
}

fn request(uri: &Uri, body: Vec<u8>) -> Result<Request<Full<Bytes>>, DeliveryError> {
    let authority = uri.authority().ok_or(DeliveryError::Address)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| DeliveryError::Address)?;
    let request = Request::builder().method(Method::POST).uri(path).header(HOST, host);
    let request = request.header(CONTENT_TYPE, "application/json");
    let request = request.header(USER_AGENT, concat!("weal/", env!("CARGO_PKG_VERSION")));
    request.body(Full::new(Bytes::from(body))).map_err(|_| DeliveryError::Address)
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(), DeliveryError> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(DeliveryError::BrokeOff)?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(DeliveryError::BrokeOff);
    // The body says nothing that matters, however long it is.
    connection.abort();
    let status = response?.status();
    if status.is_success() { Ok(()) } else { Err(DeliveryError::Refused(status)) }
}

/// Trusts whom the system trusts.
fn connector() -> Result<TlsConnector, DeliveryError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| DeliveryError::Tls(error.to_string()))?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}
