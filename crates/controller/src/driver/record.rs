//! Inputs and effects of the loop, written down line by line, so that a running pool's decisions can be replayed.
//!
//! The first line has what the loop began with. Each further one has an input with its time, or the digest of an effect in the order in which
//! the loop asked for it: a replay that gives other digests has decided otherwise.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weal_control::cycle::{AppOrders, Config, Cycle, Effect, Input, Start, StoredJobs};
use weal_control::jobs::Costs;
use weal_control::profile::Profiles;
use weal_model::{AppName, GatewayName, Rung, Time};

/// Where a loop's inputs and effects go; nowhere unless somebody wants them.
#[derive(Debug, Default)]
pub struct Recorder(Option<BufWriter<File>>);

/// One line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// What the loop began with.
    Start {
        /// When.
        at: Time,
        /// Who carries actions out, as sentences name it.
        engine: String,
        /// The gateway.
        gateway: GatewayName,
        /// The config in force.
        config: Option<Box<Config>>,
        /// What was learnt before.
        profiles: Box<Profiles>,
        /// Applications that were told to sleep.
        resting: BTreeMap<AppName, Option<Rung>>,
        /// What people ordered about applications.
        #[serde(default)]
        orders: Box<AppOrders>,
        /// Events up to here were noted before.
        noted_until: Time,
        /// The jobs that an earlier controller had.
        #[serde(default)]
        jobs: Box<StoredJobs>,
    },
    /// What happened.
    Input {
        /// When.
        at: Time,
        /// What.
        input: Box<Input>,
    },
    /// What was asked for then.
    Effect {
        /// The digest of all of it.
        digest: u64,
    },
}

/// Why a recording cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of it.
    #[error("{}:{line}: {source}", .path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
}

impl Recorder {
    /// Writes to `path`, in place of what was there.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        Ok(Self(Some(BufWriter::new(file))))
    }

    pub(super) fn handle_start(&mut self, at: Time, start: &Start) {
        if self.0.is_some() {
            self.write(&Line::Start {
                at,
                engine: start.engine.clone(),
                gateway: start.gateway.clone(),
                config: start.config.clone().map(Box::new),
                profiles: Box::new(start.profiles.clone()),
                resting: start.resting.clone(),
                orders: Box::new(start.orders.clone()),
                noted_until: start.noted_until,
                jobs: Box::new(start.jobs.clone()),
            });
        }
    }

    pub(super) fn handle_input(&mut self, at: Time, input: &Input) {
        if self.0.is_some() {
            self.write(&Line::Input { at, input: Box::new(input.clone()) });
        }
    }

    pub(super) fn handle_effect(&mut self, effect: &Effect) {
        if self.0.is_some() {
            self.write(&Line::Effect { digest: digest(effect) });
        }
    }

    /// A recording that cannot be written ends; the pool goes on.
    fn write(&mut self, line: &Line) {
        let Some(file) = &mut self.0 else { return };
        let written = serde_json::to_writer(&mut *file, line).map_err(std::io::Error::from);
        let written = written.and_then(|()| file.write_all(b"\n")).and_then(|()| file.flush());
        if let Err(error) = written {
            tracing::warn!(%error, "the recording of the loop's inputs ends");
            self.0 = None;
        }
    }
}

/// Where a replay decided otherwise than the recording says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The first line does not say what the loop began with.
    #[error("the recording does not begin with a start")]
    NoStart,
    /// An effect differs, is missing, or is one too many.
    #[error("effect {number} differs: recorded {recorded:x?}, replayed {replayed:x?}")]
    Effect {
        /// Counted from 1.
        number: usize,
        /// The digest in the recording; `None` when it has no more before the next input.
        recorded: Option<u64>,
        /// The digest of the replay; `None` when the loop asks for no more.
        replayed: Option<u64>,
    },
}

/// Feeds a recording's inputs to a loop of this version, and says how many effects were the same.
///
/// # Errors
/// At the first effect that differs.
pub fn replay(lines: &[Line]) -> Result<usize, Mismatch> {
    let Some(Line::Start { at, engine, gateway, config, profiles, resting, orders, noted_until, jobs }) = lines.first().cloned()
    else {
        return Err(Mismatch::NoStart);
    };
    let start = Start {
        engine,
        gateway,
        config: config.map(|config| *config),
        profiles: *profiles,
        resting,
        orders: *orders,
        noted_until,
        job_costs: Costs::THESIS,
        jobs: *jobs,
    };
    let mut cycle = Cycle::new(at, start);
    let mut number = 0;
    for line in &lines[1..] {
        match line {
            Line::Start { .. } => return Err(Mismatch::NoStart),
            Line::Input { at, input } => {
                if let Some(effect) = cycle.poll_effect() {
                    let replayed = Some(digest(&effect));
                    return Err(Mismatch::Effect { number: number + 1, recorded: None, replayed });
                }
                cycle.handle(*at, (**input).clone());
            }
            Line::Effect { digest: recorded } => {
                number += 1;
                let replayed = cycle.poll_effect().as_ref().map(digest);
                if replayed != Some(*recorded) {
                    return Err(Mismatch::Effect { number, recorded: Some(*recorded), replayed });
                }
            }
        }
    }
    Ok(number)
}

/// The lines of a recording.
///
/// # Errors
/// When it cannot be read; a last line that was cut off is left out.
pub fn read(path: &Path) -> Result<Vec<Line>, Error> {
    let file = |source| Error::File { path: path.to_owned(), source };
    let texts: Vec<String> = BufReader::new(File::open(path).map_err(file)?).lines().collect::<Result<_, _>>().map_err(file)?;
    let mut lines = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match serde_json::from_str(text) {
            Ok(line) => lines.push(line),
            Err(_) if index + 1 == texts.len() => {}
            Err(source) => return Err(Error::Line { path: path.to_owned(), line: index + 1, source }),
        }
    }
    Ok(lines)
}

/// A digest of everything that an effect says (FNV-1a over its text).
pub fn digest(effect: &Effect) -> u64 {
    let text = format!("{effect:?}");
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
