//! What is being done to instances right now: draining, and actions under way.
//!
//! An instance has at most one operation. Nothing here is kept on disk: a controller that starts anew decides anew, from
//! what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use weal_gateway::api::GatewayCounters;
use weal_model::{Action, InstanceId};

/// One thing that is being done to one instance.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub action: Action,
    /// Why, in a sentence.
    pub reason: String,
    phase: Phase,
}

#[derive(Debug, Clone)]
enum Phase {
    /// The gateway sends nothing new to it; waits until nothing is outstanding, at most until the deadline.
    Draining {
        /// The gateway config that says so; `None` until the gateway has it.
        version: Option<u64>,
        deadline: Instant,
    },
    /// The engine has it.
    Acting,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Operations(BTreeMap<InstanceId, Operation>);

impl Operations {
    /// Begins `action`; the answer says whether the engine takes it at once (it needs no draining). An instance that has
    /// an operation keeps it: `None`.
    pub fn begin(&mut self, instance: &InstanceId, action: Action, reason: String, drain: Option<Duration>) -> Option<bool> {
        if self.0.contains_key(instance) {
            return None;
        }
        let phase = match drain {
            Some(most) => Phase::Draining { version: None, deadline: Instant::now() + most },
            None => Phase::Acting,
        };
        self.0.insert(instance.clone(), Operation { action, reason, phase });
        Some(drain.is_none())
    }

    /// The operation of `instance` is over.
    pub fn end(&mut self, instance: &InstanceId) -> Option<Operation> {
        self.0.remove(instance)
    }

    pub fn contains(&self, instance: &InstanceId) -> bool {
        self.0.contains_key(instance)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&InstanceId, &Operation)> {
        self.0.iter()
    }

    /// Instances that the gateway must send nothing new to: those being drained, and those being stopped or frozen.
    pub fn closed(&self) -> BTreeSet<InstanceId> {
        let closes = |operation: &Operation| matches!(operation.action, Action::Stop { .. } | Action::Sleep { .. });
        self.0.iter().filter(|(_, operation)| closes(operation)).map(|(id, _)| id.clone()).collect()
    }

    pub fn any_draining(&self) -> bool {
        self.0.values().any(|operation| matches!(operation.phase, Phase::Draining { .. }))
    }

    /// The gateway has the config `version`, made after everything that is draining now began to.
    pub fn handle_told(&mut self, version: u64) {
        for operation in self.0.values_mut() {
            if let Phase::Draining { version: told @ None, .. } = &mut operation.phase {
                *told = Some(version);
            }
        }
    }

    /// The drained ones, which the engine may now have: nothing is outstanding at them, or their deadline is over.
    pub fn poll_drained(&mut self, counters: Option<&GatewayCounters>) -> Vec<(InstanceId, Action)> {
        let now = Instant::now();
        let mut drained = Vec::new();
        for (id, operation) in &mut self.0 {
            let Phase::Draining { version, deadline } = operation.phase else { continue };
            if now >= deadline || counters.is_some_and(|counters| is_empty(id, version, counters)) {
                operation.phase = Phase::Acting;
                drained.push((id.clone(), operation.action.clone()));
            }
        }
        drained
    }
}

/// The gateway knows that `instance` is closed, and nothing is outstanding at it.
fn is_empty(instance: &InstanceId, version: Option<u64>, counters: &GatewayCounters) -> bool {
    let in_flight = counters.instances.iter().find(|seen| seen.instance == *instance).map_or(0, |seen| seen.in_flight);
    version.is_some_and(|version| counters.version >= version) && in_flight == 0
}
