//! How an authority is asked: one request a connection, over TLS, with bounds on time and size.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Limited;
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use weal_model::AcmeSpec;

use super::error::AcmeError;

/// What one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer. A chain of certificates has some kilobytes.
const LONGEST: usize = 256 << 10;

/// Asks one authority.
#[derive(Clone)]
pub struct Https(TlsConnector);

impl Https {
    /// Trusts whom `spec` says.
    ///
    /// # Errors
    /// There is nobody to trust.
    pub fn new(spec: &AcmeSpec) -> Result<Self, AcmeError> {
        let roots = roots(spec)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Other(Box::new(error)))?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    async fn ask(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Box<dyn StdError + Send + Sync>> {
        let uri = request.uri().clone();
        let host = uri.host().ok_or("the authority's address has no host")?.to_owned();
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), uri.port_u16().unwrap_or(443))).await?;
        let stream = self.0.connect(name, stream).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let response = sender.send_request(in_origin_form(request, &uri)?).await?;
        Ok(BytesResponse::from(response.map(|body| Limited::new(body, LONGEST))))
    }
}

fn in_origin_form<B>(mut request: Request<B>, uri: &Uri) -> Result<Request<B>, Box<dyn StdError + Send + Sync>> {
    let authority = uri.authority().ok_or("the authority's address has no host")?;
    request.headers_mut().insert(HOST, HeaderValue::from_str(authority.as_str())?);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(concat!("weal/", env!("CARGO_PKG_VERSION"))));
    *request.uri_mut() = uri.path_and_query().map_or_else(|| Ok(Uri::from_static("/")), |path| path.as_str().parse())?;
    Ok(request)
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let asking = self.clone().ask(request);
        Box::pin(async move {
            let too_slow = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
            tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| too_slow()).map_err(Error::Other)
        })
    }
}

/// The certificates by which an authority's own address is trusted.
fn roots(spec: &AcmeSpec) -> Result<RootCertStore, AcmeError> {
    let mut roots = RootCertStore::empty();
    let Some(file) = &spec.directory_ca else {
        let loaded = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(loaded.certs);
        let why = || loaded.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string);
        return if roots.is_empty() { Err(unreadable("the system's store", why())) } else { Ok(roots) };
    };
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| unreadable(file, error.to_string()))?;
    for certificate in certificates {
        roots.add(certificate).map_err(|error| unreadable(file, error.to_string()))?;
    }
    if roots.is_empty() { Err(unreadable(file, "there are none".to_owned())) } else { Ok(roots) }
}

fn unreadable(path: &str, why: String) -> AcmeError {
    AcmeError::Roots { path: path.into(), why }
}
