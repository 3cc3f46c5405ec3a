//! `logs-to`: what applications and jobs write is sent to the journal or to a collector too.
//!
//! The supervisor reads the logs where they stand on disk, so no instance ever waits for who takes its lines. While nobody takes them they wait
//! on disk, as long as logs are kept at all. A line is sent once, but again where it is not known whether it arrived.

mod error;
mod journal;
mod places;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use weal_controller::logs::lines_of;
use weal_model::{LogsTo, PoolSpec};
use weal_node::logbook::{LogError, Logbook};
use weal_protocol::controller::LogLine;
use weal_protocol::node::{LogSource, LogsChunk, LogsRequest};

use self::error::Unsent;
use self::journal::Journal;
use self::places::Places;
use super::console::Console;
use super::otlp::{self, Collector, Signal};
use super::outlet::{Outlet, changes};
use crate::output;
use crate::state::StateDir;

/// Between two looks at the logs.
const LOOK: Duration = Duration::from_secs(1);
/// Where the journal takes entries (systemd-journald.service(8)).
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Who takes lines.
enum Sink {
    Journal(Journal),
    Collector { collector: Collector, pool: String },
}

impl Sink {
    fn of(to: &LogsTo, pool: &str) -> Self {
        match to {
            LogsTo::Journald => Self::Journal(Journal::new(JOURNAL.into(), pool)),
            LogsTo::Otlp(url) => Self::Collector { collector: Collector::new(url, Signal::Logs), pool: pool.to_owned() },
        }
    }

    async fn send(&mut self, lines: &[LogLine]) -> Result<(), Unsent> {
        match self {
            Self::Journal(journal) => journal.send(lines).await,
            Self::Collector { collector, pool } => {
                let body = otlp::logs::request(pool, lines, output::now().0);
                collector.send(&body).await.map_err(|why| Unsent { sent: 0, why: why.into() })
            }
        }
    }
}

/// Sends the logs of one pool.
pub struct Ship {
    console: Console,
    book: Logbook,
    /// Where stands how far each log was sent.
    kept: PathBuf,
}

impl Ship {
    /// Sends those of the pool in `state`.
    pub fn new(state: &StateDir, console: Console) -> Self {
        Self { console, book: Logbook::of_pool(&state.root), kept: state.root.join("logs-sent.json") }
    }

    /// Runs for as long as the supervisor does. `specs` tells the config in force.
    pub async fn run(self, mut specs: watch::Receiver<PoolSpec>) {
        loop {
            let (to, pool) = {
                let spec = specs.borrow_and_update();
                (spec.logs_to.clone(), spec.name.clone())
            };
            let changes = changes(&mut specs, |spec| &spec.logs_to, &to);
            let goes_on = match &to {
                Some(to) => tokio::select! {
                    goes_on = changes => goes_on,
                    () = self.send_all(Sink::of(to, &pool)) => true,
                },
                None => {
                    // What is written meanwhile is not sent later.
                    let _ = std::fs::remove_file(&self.kept);
                    changes.await
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    async fn send_all(&self, mut sink: Sink) {
        let mut places = self.places().await;
        loop {
            let sources = self.sources().await;
            places.prune(&sources);
            let before = places.clone();
            while self.send_round(&mut places, &sources, &mut sink).await {}
            if places != before {
                self.keep(&places);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends a piece of each log that has more; false when none has.
    async fn send_round(&self, places: &mut Places, sources: &[LogSource], sink: &mut Sink) -> bool {
        let mut has_sent = false;
        for request in places.requests(sources) {
            // One that cannot be read now is tried again: it may have been moved at this moment.
            let Ok(chunk) = self.read(request.clone()).await else { continue };
            let lines = lines_of(&request.instance, &chunk);
            has_sent |= !lines.is_empty();
            self.deliver(sink, &lines).await;
            places.handle_sent(&request, &chunk);
        }
        has_sent
    }

    /// Sends `lines` until they are taken, or refused for good.
    async fn deliver(&self, sink: &mut Sink, lines: &[LogLine]) {
        let (mut from, mut outlet) = (0, Outlet::new(&self.console, "logs-to:", "lines"));
        while from < lines.len() {
            let unsent = sink.send(&lines[from..]).await.err();
            from = unsent.as_ref().map_or(lines.len(), |unsent| from + unsent.sent);
            let why = unsent.as_ref().map(|unsent| &unsent.why);
            let Some(pause) = outlet.handle_attempt(lines.len() - from, why) else { return };
            tokio::time::sleep(pause).await;
        }
    }

    /// How far each log was sent. Where nothing is known, only what comes from now on is sent.
    async fn places(&self) -> Places {
        let kept = std::fs::read(&self.kept).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(places) = kept {
            return places;
        }
        let sources = self.sources().await;
        let mut places = Places::default();
        for request in places.begin(&sources) {
            if let Ok(chunk) = self.read(request.clone()).await {
                places.handle_sent(&request, &chunk);
            }
        }
        self.keep(&places);
        places
    }

    /// What cannot be written (the disk is full) is known to this process only: a line may then be sent twice.
    fn keep(&self, places: &Places) {
        let new = self.kept.with_extension("new");
        let text = serde_json::to_vec(places).expect("names and numbers are JSON");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.kept));
        if let Err(error) = written {
            tracing::debug!(%error, "how far logs were sent is not kept");
        }
    }

    async fn sources(&self) -> Vec<LogSource> {
        let book = self.book.clone();
        tokio::task::spawn_blocking(move || book.all()).await.unwrap_or_default()
    }

    async fn read(&self, request: LogsRequest) -> Result<LogsChunk, LogError> {
        let book = self.book.clone();
        let read = tokio::task::spawn_blocking(move || book.read(&request)).await;
        read.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
    }
}
