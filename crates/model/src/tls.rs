//! What is desired of TLS at the gateway. Only names of files stand here: what is in them never passes through a config.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS towards clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlsSpec {
    /// Where clients connect over TLS.
    pub listen: SocketAddr,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// True: requests without TLS are sent on to `listen`'s port with 308.
    pub redirects: bool,
    /// By their names in the config. Never empty. A client that names no host gets the first.
    pub certificates: BTreeMap<String, CertificateSource>,
}

/// TLS at the API and the dashboard: files in PEM, absolute paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiTls {
    /// The certificate with those that lead from it to a root.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// The certificates of those who may give callers theirs. With it, nobody gets an answer who shows none of them.
    pub client_ca: Option<String>,
}

/// A version of TLS.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// RFC 5246.
    #[default]
    #[serde(rename = "1.2")]
    V12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V13,
}

impl TlsVersion {
    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V12 => "1.2",
            Self::V13 => "1.3",
        }
    }
}

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateSource {
    /// Files in PEM, absolute paths.
    Files {
        /// The certificate with those that lead from it to a root.
        certificate: String,
        /// Its private key.
        key: String,
    },
    /// weal makes one that nobody but who is told to trusts.
    SelfSigned {
        /// The hosts that it names; `*.` stands for one label.
        hosts: Vec<String>,
    },
    /// An authority gives it, and weal asks for the next one in time (RFC 8555).
    Acme(AcmeSpec),
}

/// What is asked of an authority, and how weal proves that the hosts are its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcmeSpec {
    /// The hosts, in lower case. Never empty, and none has a wildcard.
    pub hosts: Vec<String>,
    /// Where the authority says what it can do: a URL that begins with `https://`.
    pub directory: String,
    /// To whom the authority writes.
    pub email: Option<String>,
    /// How the hosts are proven.
    pub challenge: AcmeChallenge,
    /// A file in PEM with the certificates by which the authority's own address is trusted; `None` is the system's.
    pub directory_ca: Option<String>,
}

impl AcmeSpec {
    /// Let's Encrypt.
    pub const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";
}

/// How an authority is shown that a host is ours.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AcmeChallenge {
    /// It asks for a file on port 80 (RFC 8555 section 8.3).
    #[default]
    #[serde(rename = "http-01")]
    Http01,
    /// It shakes hands on port 443 (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

impl AcmeChallenge {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Http01, Self::TlsAlpn01];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}
