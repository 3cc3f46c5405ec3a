//! Who may call.

use std::collections::BTreeSet;

/// Users that may call a method. The kernel names the user of each connection, so a caller cannot claim to be another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callers(BTreeSet<u32>);

impl Callers {
    /// The user of this process, and root, which could become that user anyway.
    pub fn own() -> Self {
        Self::of([rustix::process::geteuid().as_raw(), 0])
    }

    /// These users and nobody else.
    pub fn of(uids: impl IntoIterator<Item = u32>) -> Self {
        Self(uids.into_iter().collect())
    }

    /// These, and `uid`.
    #[must_use]
    pub fn and(mut self, uid: u32) -> Self {
        self.0.insert(uid);
        self
    }

    /// True when `uid` is one of them.
    pub fn admit(&self, uid: u32) -> bool {
        self.0.contains(&uid)
    }
}
