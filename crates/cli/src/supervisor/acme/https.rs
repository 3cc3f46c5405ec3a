//! How an authority is asked: with bounds on time and size.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Limited;
use hyper::Request;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use weal_model::AcmeSpec;

use super::error::AcmeError;
use crate::supervisor::outgoing::{connector, send};

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
        Ok(Self(connector(roots(spec)?).map_err(|error| Error::Other(Box::new(error)))?))
    }

    async fn ask(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Box<dyn StdError + Send + Sync>> {
        let response = send(Some(&self.0), request).await?;
        Ok(BytesResponse::from(response.map(|body| Limited::new(body, LONGEST))))
    }
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
