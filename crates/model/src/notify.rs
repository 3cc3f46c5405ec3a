//! Who is told when something happens: `[[notify]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that an operator may want to be told of. Each lasts for a while, and then is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    /// A flow misses its goal.
    GoalMissed,
    /// An instance ends again and again, soon after each start.
    CrashLoop,
    /// The new version of an application does not get ready, or a task failed.
    DeployFailed,
    /// The disk that holds weal's state is nearly full.
    DiskNearlyFull,
}

impl Occasion {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::GoalMissed, Self::CrashLoop, Self::DeployFailed, Self::DiskNearlyFull];

    /// As a config names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GoalMissed => "goal-missed",
            Self::CrashLoop => "crash-loop",
            Self::DeployFailed => "deploy-failed",
            Self::DiskNearlyFull => "disk-nearly-full",
        }
    }
}

/// Who is told of what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotifySpec {
    /// Of what.
    pub on: Vec<Occasion>,
    /// Seconds that it must have lasted.
    pub after_s: f64,
    /// How.
    pub by: NotifyBy,
}

/// How somebody is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NotifyBy {
    /// By a POST of JSON to this `http://` or `https://` address. It may hold a secret.
    Url(String),
    /// By a command: program and arguments.
    Run(Vec<String>),
}
