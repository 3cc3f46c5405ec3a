//! How a case is run: how much of it, and by how many hands.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// Seconds: fewer seeds and jobs where a case is long.
    Quick,
    /// All of what the paper did, with at least 20 seeds where chance matters.
    Full,
}

/// Who carries out independent pieces of work. This crate starts no threads; whoever runs a case may bring some.
pub trait Workers: Sync {
    /// Calls `work` once with each of `0..count`, in any order, and returns when all are done.
    fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync));
}

/// One piece after the other.
#[derive(Debug, Clone, Copy)]
pub struct InTurn;

impl Workers for InTurn {
    fn each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }
}

/// What a case is given.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// How much is run.
    pub effort: Effort,
    /// Who runs it.
    pub workers: &'a dyn Workers,
}

impl Setting<'_> {
    /// `full` or, for a quick run, `quick`.
    pub(super) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.effort == Effort::Full { full } else { quick }
    }

    /// `f` of each of `0..count`, in order; the workers share the work.
    pub(super) fn map<T: Send + Sync>(&self, count: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let slots: Vec<OnceLock<T>> = (0..count).map(|_| OnceLock::new()).collect();
        self.workers.each(count, &|i| {
            slots[i].get_or_init(|| f(i));
        });
        slots.into_iter().map(|slot| slot.into_inner().expect("workers do every piece")).collect()
    }

    /// `f` of each of the seeds `1..=count`, in order.
    pub(super) fn seeds<T: Send + Sync>(&self, count: u64, f: impl Fn(u64) -> T + Sync) -> Vec<T> {
        self.map(count as usize, |i| f(i as u64 + 1))
    }
}
