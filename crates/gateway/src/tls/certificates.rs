//! Which certificate a client gets, by the host that it names (RFC 6066 section 3).

use std::collections::HashMap;
use std::sync::Arc;

use tokio_rustls::rustls;
use tokio_rustls::rustls::SignatureAlgorithm;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use weal_protocol::tls::Certificate;

use super::error::TlsError;

/// How a chain and its key become one.
type Pairing = fn(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, &CryptoProvider) -> Result<CertifiedKey, rustls::Error>;

/// The certificates by host.
#[derive(Debug)]
pub(super) struct Certificates {
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By what follows the `*.`.
    wildcard: HashMap<String, Arc<CertifiedKey>>,
    /// For a client that names no host.
    first: Option<Arc<CertifiedKey>>,
}

impl Certificates {
    /// For clients: each certificate is checked against its key.
    pub fn load(certificates: &[Certificate], provider: &CryptoProvider) -> Result<Self, TlsError> {
        Self::load_by(certificates, provider, CertifiedKey::from_der)
    }

    /// For authorities, which alone understand the critical extension that their proofs have (RFC 8737 section 3): nothing is checked.
    pub fn load_proofs(proofs: &[Certificate], provider: &CryptoProvider) -> Result<Self, TlsError> {
        Self::load_by(proofs, provider, |chain, key, provider| {
            Ok(CertifiedKey::new(chain, provider.key_provider.load_private_key(key)?))
        })
    }

    fn load_by(certificates: &[Certificate], provider: &CryptoProvider, pair: Pairing) -> Result<Self, TlsError> {
        let (mut exact, mut wildcard, mut first) = (HashMap::new(), HashMap::new(), None);
        for certificate in certificates {
            let key = Arc::new(load(certificate, provider, pair)?);
            for host in &certificate.hosts {
                let (table, host) = match host.strip_prefix("*.") {
                    Some(rest) => (&mut wildcard, rest),
                    None => (&mut exact, host.as_str()),
                };
                table.entry(host.to_owned()).or_insert_with(|| Arc::clone(&key));
            }
            first.get_or_insert(key);
        }
        Ok(Self { exact, wildcard, first })
    }

    /// By which kind of key a client for `host` is shown a certificate.
    pub fn algorithm(&self, host: Option<&str>) -> Option<SignatureAlgorithm> {
        self.find(host).map(|key| key.key.algorithm())
    }

    /// An exact name goes before a wildcard, which stands for one label (RFC 6125 section 6.4.3). `None` for a host of nobody's.
    fn find(&self, host: Option<&str>) -> Option<&Arc<CertifiedKey>> {
        let Some(host) = host else { return self.first.as_ref() };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.exact.get(&host).or_else(|| self.wildcard.get(host.split_once('.')?.1))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.find(hello.server_name()).cloned()
    }
}

fn load(certificate: &Certificate, provider: &CryptoProvider, pair: Pairing) -> Result<CertifiedKey, TlsError> {
    let name = || certificate.name.clone();
    let chain = CertificateDer::pem_slice_iter(certificate.chain.as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|source| TlsError::Chain { name: name(), source })?;
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes());
    let key = key.map_err(|source| TlsError::Key { name: name(), source })?;
    pair(chain, key, provider).map_err(|source| TlsError::Pair { name: name(), source })
}
