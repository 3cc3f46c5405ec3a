//! What a replacement looks at.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{AppName, Bytes, InstanceId, InstanceState, NodeName, PoolSpec};
use weal_protocol::engine::{InstanceSeen, Revision};

/// What the replacement looks at.
pub(in crate::cycle) struct View<'a> {
    pub pool: &'a PoolSpec,
    pub instances: &'a [InstanceSeen],
    /// What instances would be started from now.
    pub revisions: &'a BTreeMap<AppName, Revision>,
    /// Whether something is being done to an instance.
    pub busy: &'a dyn Fn(&InstanceId) -> bool,
    /// Memory of a node that nothing holds.
    pub free: &'a dyn Fn(&NodeName) -> Bytes,
    /// Why the last start of an application failed.
    pub failures: &'a BTreeMap<AppName, String>,
    /// Applications of which an instance is being started that is not among `instances` yet.
    pub unseen: &'a BTreeSet<AppName>,
}

/// An instance as the replacement sees it.
pub(super) struct Seen<'a> {
    pub instance: &'a InstanceSeen,
    /// Why it must be replaced.
    pub stale: Option<String>,
    pub busy: bool,
}

impl Seen<'_> {
    pub fn is_ready(&self) -> bool {
        !self.busy && self.instance.state == InstanceState::Ready
    }

    /// It served once and may again: better than nothing while its successor is not ready.
    pub fn may_serve(&self) -> bool {
        let has_ended = matches!(self.instance.state, InstanceState::Failed | InstanceState::Stopped);
        !has_ended && (self.instance.start_took_s.is_some() || self.instance.state == InstanceState::Ready)
    }
}
