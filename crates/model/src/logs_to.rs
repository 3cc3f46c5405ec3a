//! Where what applications write, and what weal counts and sees, is sent besides: `logs-to`, `metrics-to`, `traces-to`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::notify::hidden_address;

/// Who keeps logs besides weal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogsTo {
    /// The journal of this machine, by systemd's native protocol.
    Journald,
    /// A collector at this `http://` or `https://` address, by OTLP over HTTP with JSON.
    Otlp(String),
}

/// The `http://` or `https://` address of a collector that takes OTLP over HTTP with JSON. It may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CollectorUrl(pub String);

impl CollectorUrl {
    /// As a config writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same for others to see: only its host.
    #[must_use]
    pub fn hidden(&self) -> Self {
        Self(hidden_address(&self.0))
    }
}

impl LogsTo {
    /// As a config writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Journald => "journald",
            Self::Otlp(url) => url,
        }
    }

    /// The same for others to see: of an address only its host.
    #[must_use]
    pub fn hidden(&self) -> Self {
        match self {
            Self::Journald => Self::Journald,
            Self::Otlp(url) => Self::Otlp(hidden_address(url)),
        }
    }
}
