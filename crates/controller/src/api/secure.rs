//! TLS at the API.

use std::io::Cursor;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use weal_protocol::tls::ApiCertificate;

/// Why the API cannot speak TLS. No text of these says what is in a key.
#[derive(Debug, thiserror::Error)]
pub enum ApiTlsError {
    /// The certificate is none.
    #[error("`certificate` cannot be read as PEM: {0}")]
    Certificate(pem::Error),
    /// The key is none.
    #[error("`key` cannot be read as PEM: {0}")]
    Key(pem::Error),
    /// They do not belong together.
    #[error("`certificate` and `key` cannot be used together: {0}")]
    Pair(rustls::Error),
    /// The authority's certificates are none.
    #[error("`client-ca` cannot be read as PEM: {0}")]
    Authority(pem::Error),
    /// One of them cannot be trusted.
    #[error("`client-ca` cannot be used: {0}")]
    Untrusted(rustls::Error),
    /// Nobody would be let in.
    #[error("`client-ca` holds no certificate of an authority: {0}")]
    Nobody(VerifierBuilderError),
}

/// Who shakes hands at the API. Sessions are not resumed: whoever calls shows its certificate each time.
///
/// # Errors
/// What was given cannot be used.
pub fn acceptor(certificate: &ApiCertificate) -> Result<TlsAcceptor, ApiTlsError> {
    let read = |text: &str| CertificateDer::pem_reader_iter(Cursor::new(text.to_owned())).collect::<Result<Vec<_>, _>>();
    let chain = read(&certificate.chain).map_err(ApiTlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).map_err(ApiTlsError::Key)?;
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(ApiTlsError::Pair)?;
    let builder = match &certificate.client_ca {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            for root in read(authority).map_err(ApiTlsError::Authority)? {
                roots.add(root).map_err(ApiTlsError::Untrusted)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(ApiTlsError::Nobody)?)
        }
    };
    let mut server = builder.with_single_cert(chain, key).map_err(ApiTlsError::Pair)?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(server)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named_and_no_key_is_shown() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let good = ApiCertificate { chain: chain.clone(), key, client_ca: Some(chain) };
        assert!(acceptor(&good).is_ok());
        let refused = |bad: ApiCertificate| acceptor(&bad).err().expect("it cannot be used").to_string();
        let foreign = ApiCertificate { key: other.signing_key.serialize_pem(), ..good.clone() };
        assert!(refused(foreign).contains("together"));
        assert!(refused(ApiCertificate { key: "hunter2".to_owned(), ..good.clone() }).starts_with("`key`"));
        assert!(!refused(ApiCertificate { key: "hunter2".to_owned(), ..good.clone() }).contains("hunter2"));
        assert!(refused(ApiCertificate { client_ca: Some(String::new()), ..good }).starts_with("`client-ca`"));
    }
}
