//! How the supervisor asks others over HTTP: one request a connection, over TLS where the address says so.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Why there is no answer. No variant holds an address.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    /// The address is none.
    #[error("its address cannot be read")]
    Address,
    /// There is no connection.
    #[error("it cannot be reached: {0}")]
    Unreachable(io::Error),
    /// It broke off.
    #[error("it broke off: {0}")]
    BrokeOff(hyper::Error),
    /// TLS cannot be set up.
    #[error("TLS cannot be used: {0}")]
    Tls(rustls::Error),
}

/// Posts JSON, with trust in whom the system trusts.
#[derive(Default)]
pub struct Poster {
    /// Made when it is needed, and once: reading whom the system trusts takes milliseconds.
    tls: Option<TlsConnector>,
}

impl Poster {
    /// Posts `body` to `url`, and says how that was answered. What else the answer says does not matter, however long it is.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn post(&mut self, url: &str, body: Vec<u8>) -> Result<StatusCode, OutgoingError> {
        let request = Request::builder().method(Method::POST).uri(url).header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(Bytes::from(body))).map_err(|_| OutgoingError::Address)?;
        let is_secure = request.uri().scheme_str() == Some("https");
        if is_secure && self.tls.is_none() {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            self.tls = Some(connector(roots).map_err(OutgoingError::Tls)?);
        }
        Ok(send(self.tls.as_ref().filter(|_| is_secure), request).await?.status())
    }
}

/// Speaks TLS with who shows a certificate that `roots` vouch for.
///
/// # Errors
/// The library's algorithms do not go together.
pub fn connector(roots: RootCertStore) -> Result<TlsConnector, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Sends `request`, whose target is a whole address, and says what came back up to the head. `tls` is for an address that wants it.
///
/// # Errors
/// There is no answer.
pub async fn send<B>(tls: Option<&TlsConnector>, mut request: Request<B>) -> Result<Response<Incoming>, OutgoingError>
where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    let uri = request.uri().clone();
    let host = uri.host().ok_or(OutgoingError::Address)?.trim_matches(['[', ']']).to_owned();
    address(&mut request, &uri)?;
    let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(OutgoingError::Unreachable)?;
    let Some(tls) = tls else { return exchange(stream, request).await };
    let name = ServerName::try_from(host).map_err(|_| OutgoingError::Address)?;
    exchange(tls.connect(name, stream).await.map_err(OutgoingError::Unreachable)?, request).await
}

/// In the form that a server gets (RFC 9112 section 3.2.1).
fn address<B>(request: &mut Request<B>, uri: &Uri) -> Result<(), OutgoingError> {
    let authority = uri.authority().ok_or(OutgoingError::Address)?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| OutgoingError::Address)?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(concat!("weal/", env!("CARGO_PKG_VERSION"))));
    let path = uri.path_and_query().map_or_else(|| Ok(Uri::from_static("/")), |path| path.as_str().parse());
    *request.uri_mut() = path.map_err(|_| OutgoingError::Address)?;
    Ok(())
}

async fn exchange<B>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<B>,
) -> Result<Response<Incoming>, OutgoingError>
where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(OutgoingError::BrokeOff)?;
    // It ends when nobody wants more of the answer.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(OutgoingError::BrokeOff)
}
