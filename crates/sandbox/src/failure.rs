//! Why a sandbox cannot be entered.

use std::io;
use std::path::{Path, PathBuf};

/// What failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A step failed.
    #[error("its sandbox cannot {step}: {source}")]
    Step {
        /// What was tried, as the end of a sentence.
        step: String,
        /// Why it failed.
        source: io::Error,
    },
    /// What it is to write is not there.
    #[error("`write` names {}, which does not exist: mkdir it, or take it out", .0.display())]
    NothingToWrite(PathBuf),
    /// Somebody else than root decides where its way leads.
    #[error("{} cannot be part of its sandbox: others than root can change {} on the way, which is a link; name the folder that it leads to", .path.display(), .link.display())]
    ForeignLink {
        /// What is to be part of it.
        path: PathBuf,
        /// The link.
        link: PathBuf,
    },
    /// A device is not there.
    #[error("`devices` names {}, which this machine does not have", .0.display())]
    NoDevice(PathBuf),
}

impl Failure {
    pub(crate) fn new(step: String, source: io::Error) -> Self {
        Self::Step { step, source }
    }

    pub(crate) fn at(step: &str, path: &Path, source: io::Error) -> Self {
        Self::new(format!("{step} {}", path.display()), source)
    }

    /// What the system said.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Step { source, .. } => source,
            Self::ForeignLink { .. } => io::Error::from_raw_os_error(libc::ELOOP),
            Self::NothingToWrite(_) | Self::NoDevice(_) => io::Error::from_raw_os_error(libc::ENOENT),
        }
    }

    /// `self`, or `missing` when it failed because something is not there.
    pub(crate) fn or_missing(self, missing: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Step { source, .. } if source.kind() == io::ErrorKind::NotFound => missing(),
            other => other,
        }
    }
}

pub(crate) fn during<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::new(step.to_owned(), error.into())
}
