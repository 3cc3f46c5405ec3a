//! Why a sandbox cannot be entered.

use std::io;
use std::path::Path;

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("its sandbox cannot {step}: {source}")]
pub struct Failure {
    /// What was tried, as the end of a sentence.
    pub step: String,
    /// Why it failed.
    pub source: io::Error,
}

impl Failure {
    pub(crate) fn new(step: String, source: io::Error) -> Self {
        Self { step, source }
    }

    pub(crate) fn at(step: &str, path: &Path, source: io::Error) -> Self {
        Self::new(format!("{step} {}", path.display()), source)
    }
}

pub(crate) fn during<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::new(step.to_owned(), error.into())
}
