//! Why certificates and keys cannot be used.

use tokio_rustls::rustls;

/// Why a TLS config is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("there is no key for session tickets")]
    NoTicketKey,
    #[error("`{name}`: the certificate file cannot be read as PEM: {source}")]
    Chain { name: String, source: rustls::pki_types::pem::Error },
    #[error("`{name}`: the key file cannot be read as PEM: {source}")]
    Key { name: String, source: rustls::pki_types::pem::Error },
    #[error("`{name}`: certificate and key cannot be used together: {source}")]
    Pair { name: String, source: rustls::Error },
    #[error("no such version: {0}")]
    Version(rustls::Error),
}
