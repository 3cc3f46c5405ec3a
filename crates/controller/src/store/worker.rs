//! The thread that owns the database.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use weal_control::cycle::StoreProblem;
use weal_model::{Event, HistorySample, JobRecord, Time};

use super::database::{Database, set_aside};
use super::error::Error;
use super::records::{StoredConfig, WhichJob, Write};

/// Writes kept while the disk is full; beyond it the oldest samples and events go first. About 2 MiB.
const BACKLOG: usize = 2000;
/// Seconds between two attempts while nothing can be written.
const RETRY: Duration = Duration::from_secs(2);
/// Samples between two tidyings: every two minutes at the default cycle.
const TIDY_EVERY: u32 = 60;

type Reply = oneshot::Sender<Result<(), StoreProblem>>;

/// What the thread is asked.
pub(super) enum Ask {
    Write(Write, Option<Reply>),
    Events { after: u64, limit: u32, reply: oneshot::Sender<Vec<Event>> },
    Configs { upto: u64, limit: u32, reply: oneshot::Sender<Vec<StoredConfig>> },
    JobsOver { before: u64, limit: u32, reply: oneshot::Sender<Vec<JobRecord>> },
    Job { which: WhichJob, reply: oneshot::Sender<Option<JobRecord>> },
    History { since: Time, reply: oneshot::Sender<Vec<HistorySample>> },
    Stop,
}

pub(super) struct Worker {
    path: PathBuf,
    database: Option<Database>,
    backlog: VecDeque<Write>,
    waiting: Vec<Reply>,
    problem: watch::Sender<Option<StoreProblem>>,
    newest_sample: Time,
    samples_since_tidy: u32,
}

impl Worker {
    pub(super) fn new(path: PathBuf, database: Option<Database>, problem: watch::Sender<Option<StoreProblem>>) -> Self {
        Self {
            path,
            database,
            backlog: VecDeque::new(),
            waiting: Vec::new(),
            problem,
            newest_sample: Time::ZERO,
            samples_since_tidy: TIDY_EVERY - 5,
        }
    }

    /// Works until told to stop or until nobody can tell any more.
    pub(super) fn work(&mut self, queue: &Receiver<Ask>) {
        loop {
            let mut goes_on = match queue.recv_timeout(RETRY) {
                Ok(job) => self.take(job),
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => false,
            };
            while goes_on && let Ok(job) = queue.try_recv() {
                goes_on = self.take(job);
            }
            self.flush();
            if !goes_on {
                return;
            }
        }
    }

    /// False when it is time to stop.
    fn take(&mut self, ask: Ask) -> bool {
        match ask {
            Ask::Write(write, reply) => {
                if let Write::Sample(sample) = &write {
                    self.newest_sample = sample.time;
                    self.samples_since_tidy += 1;
                }
                self.backlog.push_back(write);
                self.waiting.extend(reply);
            }
            Ask::Events { after, limit, reply } => {
                self.flush();
                let _ = reply.send(self.read(|database| database.events(after, limit)));
            }
            Ask::Configs { upto, limit, reply } => {
                self.flush();
                let _ = reply.send(self.read(|database| database.configs(upto, limit)));
            }
            Ask::JobsOver { before, limit, reply } => {
                self.flush();
                let _ = reply.send(self.read(|database| database.jobs_over(before, limit)));
            }
            Ask::Job { which, reply } => {
                self.flush();
                let _ = reply.send(self.read(|database| database.job(&which)));
            }
            Ask::History { since, reply } => {
                self.flush();
                let _ = reply.send(self.read(|database| database.history(since)));
            }
            Ask::Stop => return false,
        }
        true
    }

    fn read<T: Default>(&self, read: impl Fn(&Database) -> rusqlite::Result<T>) -> T {
        let result = self.database.as_ref().map(read).transpose();
        result
            .unwrap_or_else(|error| {
                tracing::warn!(%error, "the store cannot be read");
                None
            })
            .unwrap_or_default()
    }

    /// Writes the backlog, or keeps it for the next turn and says why.
    fn flush(&mut self) {
        if self.backlog.is_empty() && self.database.is_some() {
            return;
        }
        let result = self.write_all();
        for reply in self.waiting.drain(..) {
            let _ = reply.send(result.clone());
        }
        let problem = result.err();
        self.problem.send_if_modified(|now| {
            let changed = now.is_some() != problem.is_some();
            *now = problem;
            changed
        });
        while self.backlog.len() > BACKLOG {
            let oldest = self.backlog.iter().position(|write| matches!(write, Write::Sample(_) | Write::Event(_)));
            self.backlog.remove(oldest.unwrap_or(0));
        }
    }

    fn write_all(&mut self) -> Result<(), StoreProblem> {
        let closed = |error: Error| StoreProblem::Closed { detail: error.to_string() };
        let mut database = match self.database.take() {
            Some(database) => database,
            None => Database::open(&self.path).map_err(closed)?,
        };
        let written = self.write_to(&mut database).map_err(|source| Error::sqlite(&self.path, source));
        match written {
            // Damage that shows only now: the next turn begins a new file with all that waits.
            Err(error) if error.is_damage() => {
                drop(database);
                tracing::error!("{}", set_aside(&self.path, &error));
                Err(closed(error))
            }
            Err(error) => {
                self.database = Some(database);
                Err(StoreProblem::Unwritable { detail: error.to_string() })
            }
            Ok(()) => {
                self.database = Some(database);
                Ok(())
            }
        }
    }

    fn write_to(&mut self, database: &mut Database) -> rusqlite::Result<()> {
        database.write(self.backlog.iter())?;
        self.backlog.clear();
        if self.samples_since_tidy >= TIDY_EVERY {
            self.samples_since_tidy = 0;
            database.tidy(self.newest_sample)?;
        }
        Ok(())
    }
}
