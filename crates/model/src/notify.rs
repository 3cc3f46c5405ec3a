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

/// Stands for what is hidden of an address. No config is taken with it: an address has no letters beyond ASCII.
const HIDDEN: char = '…';

impl NotifyBy {
    /// The same for others to see: of an address only its host, since the rest is mostly a secret.
    #[must_use]
    pub fn hidden(&self) -> Self {
        match self {
            Self::Url(url) => Self::Url(hidden_address(url)),
            Self::Run(argv) => Self::Run(argv.clone()),
        }
    }
}

/// `https://hooks.example.com/…` of an address whose path may be a secret; one without a path or a query stays as it is.
pub fn hidden_address(url: &str) -> String {
    let host = url.find("://").map_or(0, |at| at + 3);
    match url[host..].find(['/', '?', '#']) {
        Some(end) if url.len() > host + end + 1 => format!("{}/{HIDDEN}", &url[..host + end]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_address_only_the_host_is_shown() {
        for (url, shown) in [
            ("https://hooks.example.com/services/T0/B0/s3cret", "https://hooks.example.com/…"),
            ("http://127.0.0.1:9000?token=s3cret", "http://127.0.0.1:9000/…"),
            ("http://hook.example#s3cret", "http://hook.example/…"),
            ("http://hook.example/", "http://hook.example/"),
            ("http://hook.example", "http://hook.example"),
            ("s3cret/s3cret", "s3cret/…"),
        ] {
            assert_eq!(hidden_address(url), shown);
        }
        assert_eq!(NotifyBy::Url("http://a/s3cret".into()).hidden(), NotifyBy::Url("http://a/…".into()));
    }
}
