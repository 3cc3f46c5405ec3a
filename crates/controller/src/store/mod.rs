//! What outlives the controller: configs, profiles, events, history, the last plan. SQLite in WAL mode.
//!
//! One thread owns the database, so no task ever waits for a disk. Writes queue; each turn of the thread puts all of them
//! into one transaction. When that fails (a full disk), they stay queued, bounded, and are tried again: the pool keeps
//! running, [`Store::problem`] says what is wrong, and nothing is lost that a bounded queue can hold.
//!
//! | table | bound |
//! | --- | --- |
//! | `config` | the last [`CONFIGS_KEPT`] generations |
//! | `event` | the last [`EVENTS_KEPT`] |
//! | `sample` | one per cycle for [`RAW_KEPT_S`], then one per minute for [`MINUTES_KEPT_S`] |
//! | `value` | profiles, last plan and report, who was told to sleep: one row each |

mod database;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use serde::Serialize;
use tokio::sync::{oneshot, watch};
use weal_model::{Event, HistorySample, Time};

use database::Database;
use worker::Worker;

/// Old configs, to look back at or to return to; each is a few KiB.
pub const CONFIGS_KEPT: u64 = 50;
/// About a day of a lively pool; 300 bytes each.
pub const EVENTS_KEPT: u64 = 10_000;
/// Full resolution for the dashboard's longest live view.
pub const RAW_KEPT_S: u64 = 3600;
/// A day and a half, so that yesterday's peak is still there today.
pub const MINUTES_KEPT_S: u64 = 36 * 3600;
/// Jobs that may wait for the thread. A full disk stops it for a busy time-out at most; beyond this something is wrong and
/// the newest are dropped rather than memory filled.
const QUEUE: usize = 4096;

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
}

/// What a new controller starts from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Saved {
    /// The config in force.
    pub config: Option<StoredConfig>,
    /// The newest events, oldest first.
    pub events: Vec<Event>,
    /// What [`Store::save_value`] kept, as JSON.
    pub values: BTreeMap<String, String>,
}

/// Something to keep.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Config(StoredConfig),
    Event(Event),
    Sample(HistorySample),
    Value { key: &'static str, body: String },
}

pub(crate) enum Job {
    Write(Write, Option<oneshot::Sender<Result<(), String>>>),
    Events { after: u64, limit: u32, reply: oneshot::Sender<Vec<Event>> },
    History { since: Time, reply: oneshot::Sender<Vec<HistorySample>> },
    Stop,
}

/// Why the store cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Made by a newer weal.
    #[error(
        "{path} was written by a newer weal (its schema is {found}, this one knows {known}): use that one, or move the file away"
    )]
    Newer {
        /// The database.
        path: String,
        /// Its schema's number.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The database said no.
    #[error("{path}: {source}")]
    Sqlite {
        /// The database.
        path: String,
        /// Why.
        source: rusqlite::Error,
    },
    /// The thread cannot be started.
    #[error("cannot start the store's thread: {0}")]
    Thread(std::io::Error),
}

/// The handle to the store's thread. Dropping it writes what is queued.
#[derive(Debug)]
pub struct Store {
    jobs: SyncSender<Job>,
    problem: watch::Receiver<Option<String>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the database at `path`, or makes it. One that cannot be read as a database is moved aside. When it cannot be
    /// opened now for a reason that may pass (no space), starts without it and keeps trying.
    pub fn open(path: &Path) -> Result<(Self, Saved, Vec<String>), Error> {
        let mut notes = Vec::new();
        let database = match Database::open_or_set_aside(path, &mut notes) {
            Ok(database) => Some(database),
            Err(error @ Error::Newer { .. }) => return Err(error),
            Err(error) => {
                notes.push(format!("the store cannot be opened: {error}; running without it and trying again"));
                None
            }
        };
        let saved = match &database {
            Some(database) => database.saved().map_err(|source| sqlite(path, source))?,
            None => Saved::default(),
        };
        let (jobs, queue): (_, Receiver<Job>) = sync_channel(QUEUE);
        let (report, problem) = watch::channel(notes.last().filter(|_| database.is_none()).cloned());
        let mut worker = Worker::new(path.to_owned(), database, report);
        let thread =
            std::thread::Builder::new().name("store".into()).spawn(move || worker.work(&queue)).map_err(Error::Thread)?;
        Ok((Self { jobs, problem, thread: Mutex::new(Some(thread)) }, saved, notes))
    }

    /// Why nothing can be written now; `None` when all is well. Changes are seen through the receiver.
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.clone()
    }

    /// Keeps a config; comes back when it is on disk. On an error it stays queued and is tried again.
    pub async fn save_config(&self, config: StoredConfig) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Write(Write::Config(config), Some(reply)));
        answer.await.unwrap_or_else(|_| Err("the store's thread is gone".into()))
    }

    /// Keeps an event, soon.
    pub fn save_event(&self, event: Event) {
        self.send(Job::Write(Write::Event(event), None));
    }

    /// Keeps a sample, soon.
    pub fn save_sample(&self, sample: HistorySample) {
        self.send(Job::Write(Write::Sample(sample), None));
    }

    /// Keeps `value` under `key` in place of the former, soon.
    pub fn save_value(&self, key: &'static str, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(body) => self.send(Job::Write(Write::Value { key, body }, None)),
            Err(error) => tracing::error!(key, %error, "cannot be stored"),
        }
    }

    /// At most `limit` events with an id above `after`, oldest first; the newest ones when `after` is `None`.
    pub async fn events(&self, after: u64, limit: u32) -> Vec<Event> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Events { after, limit, reply });
        answer.await.unwrap_or_default()
    }

    /// The samples since `since`, oldest first.
    pub async fn history(&self, since: Time) -> Vec<HistorySample> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::History { since, reply });
        answer.await.unwrap_or_default()
    }

    /// Writes what is queued and ends the thread; what comes afterwards is not kept.
    pub fn finish(&self) {
        // A full queue means that the thread is alive and busy: it will see the next one.
        if self.jobs.send(Job::Stop).is_err() {
            tracing::debug!("the store's thread had ended already");
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the store's thread panicked");
        }
    }

    fn send(&self, job: Job) {
        match self.jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => tracing::warn!("the store is too slow: something was not kept"),
            Err(TrySendError::Disconnected(_)) => tracing::error!("the store's thread is gone: something was not kept"),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.finish();
    }
}

fn sqlite(path: &Path, source: rusqlite::Error) -> Error {
    Error::Sqlite { path: path.display().to_string(), source }
}
