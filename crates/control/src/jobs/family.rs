//! Families of jobs: jobs of one name, but for a number or date at its end. What one run tells, is expected of the others.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use weal_model::JobName;

/// Families remembered, those that were learnt of last. More cost time at the end of each job, when all are written down; fewer forget a job that runs
/// once a month.
pub(super) const MOST_FAMILIES: usize = 1000;

/// The name without the number or date at its end.
pub(super) fn family(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '-' | '_' | '.' | ':'))
}

/// What is known of each family. Plans look at it for each job, so it is found by its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Families<T> {
    families: BTreeMap<String, T>,
    /// In the order in which they were learnt of last. Those that a version without this has left are missing.
    #[serde(default)]
    order: VecDeque<String>,
}

impl<T> Default for Families<T> {
    fn default() -> Self {
        Self { families: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<T: Default> Families<T> {
    /// What is known of the family of `name`.
    pub fn get(&self, name: &JobName) -> Option<&T> {
        self.families.get(family(name.as_str()))
    }

    /// The same, to take in more. The family that was learnt of longest ago makes room for a new one.
    pub fn learn(&mut self, name: &JobName) -> &mut T {
        let family = family(name.as_str());
        self.order.retain(|known| known != family);
        while self.families.len() >= MOST_FAMILIES && !self.families.contains_key(family) {
            let oldest = self.order.pop_front().or_else(|| self.families.keys().next().cloned());
            oldest.and_then(|oldest| self.families.remove(&oldest));
        }
        self.order.push_back(family.to_owned());
        self.families.entry(family.to_owned()).or_default()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.order.len(), self.families.len());
        self.families.len()
    }
}
