//! What a gateway needs to speak TLS. The supervisor says it, which alone may read private keys: they cross one local socket and stand in
//! no file that a gateway could read, in no argument and in no log.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use weal_model::TlsVersion;

use crate::Method;

/// Use these certificates and keys from now on. Connections that stand stay as they are.
pub const CERTIFY: Method<TlsConfig, ()> = Method::new("gateway.v1/certify").up_to(16);

/// All that is needed for TLS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TlsConfig {
    /// A client that names no host gets the first. Empty while an authority is still to give the first.
    pub certificates: Vec<Certificate>,
    /// Secrets that seal session tickets: the first seals, all open. The same for all workers, and after a restart.
    pub ticket_keys: Vec<TicketKey>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// The port that requests without TLS are sent on to; `None` answers them.
    pub redirect_port: Option<u16>,
    /// What authorities are to be shown.
    #[serde(default)]
    pub challenges: Challenges,
}

/// What authorities are to be shown, as long as they ask: proofs that hosts are ours.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Challenges {
    /// What is answered at `/.well-known/acme-challenge/TOKEN`, by token (RFC 8555 section 8.3).
    pub tokens: BTreeMap<String, String>,
    /// What is shown to a client that speaks `acme-tls/1` (RFC 8737 section 3), one for each host.
    pub certificates: Vec<Certificate>,
}

/// A certificate with its private key.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Its name in the config.
    pub name: String,
    /// The hosts that it is for, in lower case; `*.` stands for one label.
    pub hosts: Vec<String>,
    /// PEM: the certificate first.
    pub chain: String,
    /// PEM.
    pub key: String,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("name", &self.name).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// What a controller needs to speak TLS at the API: all of it PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiCertificate {
    /// The certificate first.
    pub chain: String,
    /// Its private key.
    pub key: String,
    /// Whose certificates callers have to show; `None` asks for none.
    pub client_ca: Option<String>,
}

impl fmt::Debug for ApiCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiCertificate(..)")
    }
}

/// A secret of 256 bits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKey(pub [u8; 32]);

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(..)")
    }
}
