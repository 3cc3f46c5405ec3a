//! What becomes of a job, as scenarios expect it and reports tell it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What becomes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobStep {
    /// It runs for the first time.
    Starts,
    /// It runs no more, and what it has done is kept.
    Suspended,
    /// It runs again where it ran before.
    Resumes,
    /// It runs on other nodes than before.
    Moves,
    /// It is done.
    Done,
}

impl JobStep {
    /// Every step with its words.
    const WORDS: [(Self, &'static str); 5] = [
        (Self::Starts, "starts"),
        (Self::Suspended, "is suspended"),
        (Self::Resumes, "resumes"),
        (Self::Moves, "moves"),
        (Self::Done, "is done"),
    ];
}

impl fmt::Display for JobStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Self::WORDS.iter().find(|(step, _)| step == self).map_or("", |(_, words)| words);
        f.write_str(words)
    }
}

/// A step of a job that is expected, such as `report is suspended`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ExpectedStep {
    /// The job's name.
    pub job: String,
    /// What becomes of it.
    pub step: JobStep,
}

impl TryFrom<String> for ExpectedStep {
    type Error = NoStep;

    fn try_from(text: String) -> Result<Self, NoStep> {
        let (job, words) = text.split_once(' ').unwrap_or_default();
        let step = JobStep::WORDS.iter().find(|(_, known)| *known == words);
        step.map(|(step, _)| Self { job: job.to_owned(), step: *step }).ok_or_else(|| NoStep { text: text.clone() })
    }
}

impl fmt::Display for ExpectedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.job, self.step)
    }
}

/// A text that names no step of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is a job's name and then `starts`, `is suspended`, `resumes`, `moves` or `is done`")]
pub struct NoStep {
    text: String,
}
