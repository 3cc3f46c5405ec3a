//! What authorities are shown that ask whether a host is ours (RFC 8555 section 8.3, RFC 8737).

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::CryptoProvider;
use weal_protocol::tls::Challenges;

use super::certificates::Certificates;
use super::error::TlsError;

/// The protocol that an authority asks for in its handshake.
pub(crate) const ACME_TLS: &[u8] = b"acme-tls/1";

/// Below it an authority asks for a token.
const PATH: &str = "/.well-known/acme-challenge/";

/// What there is to show now.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    tokens: BTreeMap<String, String>,
    /// How hands are shaken with an authority; `None` while none is expected.
    pub handshake: Option<Arc<ServerConfig>>,
}

impl Shown {
    pub fn load(challenges: &Challenges, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let handshake = (!challenges.certificates.is_empty()).then(|| handshake(challenges, provider)).transpose()?;
        Ok(Self { tokens: challenges.tokens.clone(), handshake })
    }

    /// What is answered to a request for `path`.
    pub fn answer(&self, path: &str) -> Option<&str> {
        self.tokens.get(path.strip_prefix(PATH)?).map(String::as_str)
    }
}

/// True when an authority may ask for `path`, and has to be answered without TLS.
pub(crate) fn is_asked_for(path: &str) -> bool {
    path.starts_with(PATH)
}

fn handshake(challenges: &Challenges, provider: &Arc<CryptoProvider>) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates = Certificates::load_proofs(&challenges.certificates, provider)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Version)?;
    let mut server = builder.with_no_client_auth().with_cert_resolver(Arc::new(certificates));
    server.alpn_protocols = vec![ACME_TLS.to_vec()];
    Ok(Arc::new(server))
}
