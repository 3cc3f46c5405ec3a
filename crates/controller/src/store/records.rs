//! What the store keeps, and how much of it.

use std::collections::BTreeMap;

use weal_model::{Event, HistorySample, JobRecord, Time};
use weal_protocol::controller::{Caller, ConfigVersion};

/// Old configs, to look back at or to return to; each is a few KiB.
pub const CONFIGS_KEPT: u64 = 50;
/// About a day of a lively pool; 300 bytes each.
pub const EVENTS_KEPT: u64 = 10_000;
/// Full resolution for the dashboard's longest live view.
pub const RAW_KEPT_S: u64 = 3600;
/// A day and a half, so that yesterday's peak is still there today.
pub const MINUTES_KEPT_S: u64 = 36 * 3600;

/// Jobs that are over; about 1 KiB each. Those that are not over are all kept.
pub const JOBS_KEPT: u64 = 100_000;

/// Which job is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichJob {
    /// The one of this name.
    Name(String),
    /// The newest one that was submitted with this key by this token, or without one.
    Key {
        /// The key.
        key: String,
        /// The token's name.
        submitter: Option<String>,
    },
}

/// A config as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredConfig {
    /// Grows by one.
    pub generation: u64,
    /// When it was taken.
    pub time: Time,
    /// Where it was read.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Who brought it.
    pub who: Option<Caller>,
    /// What brought it, in a few words.
    pub origin: String,
}

impl StoredConfig {
    /// As the API shows it; its text only where that is asked for.
    pub fn version(self, with_text: bool) -> ConfigVersion {
        let Self { generation, time, path, text, who, origin } = self;
        ConfigVersion { generation, time, who, origin, path, text: with_text.then_some(text), failed: None }
    }
}

/// What a new controller starts from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Saved {
    /// The config in force.
    pub config: Option<StoredConfig>,
    /// The newest events, oldest first.
    pub events: Vec<Event>,
    /// The jobs that are not over, those that one of them waits for, and the last that are over, by number.
    pub jobs: Vec<JobRecord>,
    /// False when the store could not be read.
    pub is_read: bool,
    /// The highest number that a job ever had.
    pub highest_job: u64,
    /// What [`save_value`](super::Store::save_value) kept, as JSON.
    pub values: BTreeMap<String, String>,
}

/// Something to keep.
#[derive(Debug, Clone)]
pub(super) enum Write {
    Config(StoredConfig),
    Event(Event),
    Sample(HistorySample),
    Value {
        key: &'static str,
        body: String,
    },
    Jobs(Vec<JobRecord>),
    /// Jobs whose submission was refused since it could not be written: they must not come up later.
    NoJobs {
        numbers: Vec<u64>,
    },
}
