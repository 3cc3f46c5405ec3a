//! What is wrong with weal itself, by what it concerns.

use std::collections::BTreeMap;

/// The problems that last.
#[derive(Debug, Default)]
pub(super) struct Problems(BTreeMap<&'static str, String>);

impl Problems {
    /// `what` has a problem. True when it had none before.
    pub fn raise(&mut self, what: &'static str, text: String) -> bool {
        self.0.insert(what, text).is_none()
    }

    /// `what` is well. True when it had a problem.
    pub fn clear(&mut self, what: &'static str) -> bool {
        self.0.remove(what).is_some()
    }

    /// One sentence each.
    pub fn texts(&self) -> Vec<String> {
        self.0.values().cloned().collect()
    }
}
