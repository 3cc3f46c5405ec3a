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
    /// How it takes effect.
    pub effect: Effect,
    /// One plain sentence.
    pub text: String,
}

/// Which variables differ, but not their values: they may be secrets.
pub(super) fn env_changes(was: &BTreeMap<String, String>, is: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<_> = was.keys().chain(is.keys()).filter(|name| was.get(*name) != is.get(*name)).collect();
    let text = |name: &&String| match (was.contains_key(*name), is.contains_key(*name)) {
        (true, false) => format!("variable {name} goes"),
        (false, true) => format!("variable {name} comes"),
        _ => format!("variable {name} changes"),
    };
    names.iter().map(text).collect()
}

pub(super) fn show_argv(argv: &[String]) -> String {
    format!("{argv:?}")
}
