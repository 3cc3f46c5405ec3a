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
//! | `job` | all that are not over, and of the others those of the last [`JOBS_KEPT`] numbers |
//! | `value` | profiles, last plan and report, who was told to sleep or to stop: one row each |

mod database;
mod error;
mod records;
mod worker;

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use serde::Serialize;
use tokio::sync::{oneshot, watch};
use weal_control::cycle::StoreProblem;
use weal_model::{Event, HistorySample, JobRecord, Time};

use database::Database;
pub use error::Error;
use records::Write;
pub use records::{CONFIGS_KEPT, EVENTS_KEPT, JOBS_KEPT, MINUTES_KEPT_S, RAW_KEPT_S, Saved, StoredConfig, WhichJob};
use worker::{Ask, Worker};

/// Jobs that may wait for the thread. A full disk stops it for a busy time-out at most; beyond this something is wrong and
/// the newest are dropped rather than memory filled.
const QUEUE: usize = 4096;

/// The handle to the store's thread. Dropping it writes what is queued.
#[derive(Debug)]
pub struct Store {
    asks: SyncSender<Ask>,
    problem: watch::Receiver<Option<StoreProblem>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the database at `path`, or makes it. One that cannot be read as a database is moved aside. When it cannot be
    /// opened now for a reason that may pass (no space), starts without it and keeps trying.
    pub fn open(path: &Path) -> Result<(Self, Saved, Vec<String>), Error> {
        let mut notes = Vec::new();
        let mut closed = None;
        let (database, saved) = match Database::open_or_set_aside(path, &mut notes) {
            Ok((database, saved)) => (Some(database), saved),
            Err(error @ Error::Newer { .. }) => return Err(error),
            Err(error) => {
                let problem = StoreProblem::Closed { detail: error.to_string() };
                notes.push(format!("{problem}; weal runs without the store and tries again"));
                closed = Some(problem);
                (None, Saved::default())
            }
        };
        let (asks, queue): (_, Receiver<Ask>) = sync_channel(QUEUE);
        let (report, problem) = watch::channel(closed);
        let mut worker = Worker::new(path.to_owned(), database, report);
        let thread =
            std::thread::Builder::new().name("store".into()).spawn(move || worker.work(&queue)).map_err(Error::Thread)?;
        Ok((Self { asks, problem, thread: Mutex::new(Some(thread)) }, saved, notes))
    }

    /// Why nothing can be written now; `None` when all is well. Changes are seen through the receiver.
    pub fn problem(&self) -> watch::Receiver<Option<StoreProblem>> {
        self.problem.clone()
    }

    /// Keeps a config; comes back when it is on disk. On an error it stays queued and is tried again.
    pub async fn save_config(&self, config: StoredConfig) -> Result<(), StoreProblem> {
        let (reply, answer) = oneshot::channel();
        self.send(Ask::Write(Write::Config(config), Some(reply)));
        answer.await.unwrap_or(Err(StoreProblem::Ended))
    }

    /// At most `limit` configs up to the generation `upto`, the newest first.
    pub async fn configs(&self, upto: u64, limit: u32) -> Vec<StoredConfig> {
        let (reply, answer) = oneshot::channel();
        self.send(Ask::Configs { upto, limit, reply });
        answer.await.unwrap_or_default()
    }

    /// Keeps records of jobs, all or none; comes back when they are on disk. On an error they stay queued and are tried again, but for
    /// submissions, whose refusal is final.
    pub async fn save_jobs(&self, records: Vec<JobRecord>, is_submission: bool) -> Result<(), StoreProblem> {
        let (reply, answer) = oneshot::channel();
        let numbers: Vec<u64> = records.iter().map(|record| record.number).collect();
        self.send(Ask::Write(Write::Jobs(records), Some(reply)));
        let result = answer.await.unwrap_or(Err(StoreProblem::Ended));
        if result.is_err() && is_submission {
            self.send(Ask::Write(Write::NoJobs { numbers }, None));
        }
        result
    }

    /// At most `limit` jobs that are over with a number below `before`, the newest first.
    pub async fn jobs_over(&self, before: u64, limit: u32) -> Vec<JobRecord> {
        let (reply, answer) = oneshot::channel();
        self.send(Ask::JobsOver { before, limit, reply });
        answer.await.unwrap_or_default()
    }

    /// One job, if there is such a one.
    pub async fn job(&self, which: WhichJob) -> Option<JobRecord> {
        let (reply, answer) = oneshot::channel();
        self.send(Ask::Job { which, reply });
        answer.await.ok().flatten()
    }

    /// Keeps an event, soon.
    pub fn save_event(&self, event: Event) {
        self.send(Ask::Write(Write::Event(event), None));
    }

    /// Keeps a sample, soon.
    pub fn save_sample(&self, sample: HistorySample) {
        self.send(Ask::Write(Write::Sample(sample), None));
    }

    /// Keeps `value` under `key` in place of the former, soon.
    pub fn save_value(&self, key: &'static str, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(body) => self.send(Ask::Write(Write::Value { key, body }, None)),
            Err(error) => tracing::error!(key, %error, "cannot be stored"),
        }
    }

    /// At most `limit` events with an id above `after`, oldest first; the newest ones when `after` is `None`.
    pub async fn events(&self, after: u64, limit: u32) -> Vec<Event> {
        let (reply, answer) = oneshot::channel();
        self.send(Ask::Events { after, limit, reply });
        answer.await.unwrap_or_default()
    }

    /// The samples since `since`, oldest first.
    pub async fn history(&self, since: Time) -> Vec<HistorySample> {
        let (reply, answer) = oneshot::channel();
        self.send(Ask::History { since, reply });
        answer.await.unwrap_or_default()
    }

    /// Writes what is queued and ends the thread; what comes afterwards is not kept.
    pub fn finish(&self) {
        // A full queue means that the thread is alive and busy: it will see the next one.
        if self.asks.send(Ask::Stop).is_err() {
            tracing::debug!("the store's thread had ended already");
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the store's thread panicked");
        }
    }

    fn send(&self, ask: Ask) {
        match self.asks.try_send(ask) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => tracing::warn!("the store is too slow: something was not kept"),
            Err(TrySendError::Disconnected(_)) => tracing::error!("the store's thread has ended: something was not kept"),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.finish();
    }
}
