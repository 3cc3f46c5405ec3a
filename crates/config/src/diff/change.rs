//! A change, and words that several kinds of changes share.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// How a change takes effect, the mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// At once; nothing is restarted and no request is lost.
    Live,
    /// Something is started.
    Adds,
    /// Instances are replaced one after the other.
    Restarts,
    /// Something is stopped.
    Removes,
    /// Only after `weal down` and `weal up`: the address of a role.
    NextStart,
}

/// One change between two configs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigChange {
    /// What changes: `pool`, `node n1`, `class gold`, `app shop`, `job nightly`.
    pub subject: String,
    /// The keys that differ; none where all of it comes or goes.
    pub keys: Vec<String>,
    /// How it takes effect.
    pub effect: Effect,
    /// One plain sentence. It quotes commands and addresses, which may hold secrets: for whoever may read the config.
    pub text: String,
}

impl ConfigChange {
    /// One of a single key of `subject`, or of all of it.
    pub(super) fn of(subject: String, key: Option<&str>, effect: Effect, text: String) -> Self {
        Self { subject, keys: key.map(str::to_owned).into_iter().collect(), effect, text }
    }

    /// The same for everybody: what changes and by which keys, without a value of any.
    pub fn outline(&self) -> String {
        let subject = &self.subject;
        let keys = if self.keys.is_empty() { String::new() } else { format!(" ({})", self.keys.join(", ")) };
        match self.effect {
            Effect::Adds => format!("{subject} comes"),
            Effect::Removes => format!("{subject} goes"),
            Effect::Restarts => format!("{subject} changes{keys} and restarts instance by instance"),
            Effect::Live => format!("{subject} changes{keys}"),
            Effect::NextStart => format!("{subject} changes{keys}, which takes effect after `weal down` and `weal up`"),
        }
    }
}

/// One key that differs.
pub(super) struct KeyChange {
    pub key: String,
    /// A part of a sentence.
    pub text: String,
}

/// Which variables differ, but not their values: they may be secrets.
pub(super) fn env_changes(was: &BTreeMap<String, String>, is: &BTreeMap<String, String>) -> Vec<KeyChange> {
    let names: BTreeSet<_> = was.keys().chain(is.keys()).filter(|name| was.get(*name) != is.get(*name)).collect();
    let change = |name: &&String| {
        let key = format!("variable {name}");
        let how = match (was.contains_key(*name), is.contains_key(*name)) {
            (true, false) => "goes",
            (false, true) => "comes",
            _ => "changes",
        };
        KeyChange { text: format!("{key} {how}"), key }
    };
    names.iter().map(change).collect()
}

pub(super) fn show_argv(argv: &[String]) -> String {
    format!("{argv:?}")
}
