//! Why an authority gave no certificate.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why no certificate came.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The authority refused, or could not be reached.
    #[error("{}", chain(.0))]
    Authority(#[from] instant_acme::Error),
    /// It does not prove hosts as the config says.
    #[error("it does not offer the challenge {challenge} for {host}")]
    NotOffered {
        /// The challenge.
        challenge: &'static str,
        /// The host.
        host: String,
    },
    /// It asked, and did not get what it wanted.
    #[error("it could not convince itself that {host} is yours: {why}")]
    NotProven {
        /// The host.
        host: String,
        /// What it says.
        why: String,
    },
    /// The gateway does not show the proof.
    #[error("the gateway does not show what the authority asks for")]
    NotShown,
    /// All of it took too long.
    #[error("it took longer than {} s", .0.as_secs())]
    TooSlow(Duration),
    /// The certificates by which the authority is trusted.
    #[error("cannot read the certificates in {}: {why}", .path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The certificate or the account cannot be kept.
    #[error("cannot write {}: {source}", .path.display())]
    Kept {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A certificate for a handshake with the authority cannot be made.
    #[error("cannot make the certificate that the authority asks for: {0}")]
    Made(#[from] rcgen::Error),
}

impl AcmeError {
    /// True when the authority no longer knows the nonce that it gave, which is to be tried again (RFC 8555 section 6.5).
    pub fn is_nonce(&self) -> bool {
        const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";
        matches!(self, Self::Authority(instant_acme::Error::Api(problem)) if problem.r#type.as_deref() == Some(BAD_NONCE))
    }
}

/// An error with what is behind it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}
