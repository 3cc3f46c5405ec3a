//! How much one submitter's jobs may be.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, Work};

/// What the jobs of one token that are not over may be together, whether they wait or run. `None` is no bound.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobQuota {
    /// How many there may be.
    pub jobs: Option<u32>,
    /// CPU-seconds that they may take, as submitted or estimated.
    pub work: Option<Work>,
    /// Memory that they may ask for, each in its largest phase.
    pub memory: Option<Bytes>,
}

impl JobQuota {
    /// Whether it bounds nothing.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }
}

/// One of the limits of a [`JobQuota`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QuotaLimit {
    /// [`JobQuota::jobs`].
    MaxJobs,
    /// [`JobQuota::work`].
    MaxWork,
    /// [`JobQuota::memory`].
    MaxMemory,
}

impl fmt::Display for QuotaLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaxJobs => "max-jobs",
            Self::MaxWork => "max-work",
            Self::MaxMemory => "max-memory",
        })
    }
}

/// Who submits a job or gives an order about one: the holder of a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Submitter {
    /// The token's name.
    pub token: String,
    /// What its jobs may be together.
    pub quota: JobQuota,
    /// True: the token lets its holder see and order the jobs alone that were submitted by it.
    #[serde(default)]
    pub own_jobs_only: bool,
}

impl Submitter {
    /// Whether the holder may see and order a job that was submitted by the token `by`.
    pub fn reaches(&self, by: Option<&str>) -> bool {
        !self.own_jobs_only || by == Some(&self.token)
    }
}
