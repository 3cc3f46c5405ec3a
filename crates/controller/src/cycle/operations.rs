//! What is being done to instances right now: draining, and actions under way.
//!
//! An instance has at most one operation. Nothing here is kept on disk: a controller that starts anew decides anew, from
//! what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use weal_model::{Action, InstanceId};
use weal_protocol::gateway::GatewayCounters;

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
        /// A stop goes on then, whatever is outstanding; a sleep is given up, because what is frozen answers nobody.
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

    /// Those of them that nobody may have woken any more: a request calls a sleep off, not a stop.
    pub fn stopping(&self) -> BTreeSet<InstanceId> {
        let stops = |operation: &Operation| matches!(operation.action, Action::Stop { .. });
        self.0.iter().filter(|(_, operation)| stops(operation)).map(|(id, _)| id.clone()).collect()
    }

    pub fn any_draining(&self) -> bool {
        self.0.values().any(|operation| matches!(operation.phase, Phase::Draining { .. }))
    }

    /// Draining instances for which the gateway was given back what it had been told to leave: a request came before they slept.
    /// Their sleep is called off, as is that of those which still have requests (streams, tunnels) when their time is up.
    pub fn poll_wanted(&mut self, counters: &GatewayCounters) -> Vec<InstanceId> {
        let now = Instant::now();
        let wanted = |id: &InstanceId, operation: &Operation| {
            let Phase::Draining { version: Some(version), deadline } = operation.phase else { return false };
            let seen = counters.instances.iter().find(|seen| seen.instance == *id);
            let Some(seen) = seen.filter(|_| counters.version >= version) else { return false };
            seen.open || (now >= deadline && seen.in_flight > 0)
        };
        let wanted: Vec<InstanceId> =
            self.0.iter().filter(|(id, operation)| wanted(id, operation)).map(|(id, _)| id.clone()).collect();
        self.call_off(|id| wanted.contains(id))
    }

    /// Gives up the sleep of those whose time is up before anybody has said that nothing is outstanding at them: the gateway is away, or
    /// could not be told.
    pub fn poll_unheard(&mut self, counters: Option<&GatewayCounters>) -> Vec<InstanceId> {
        let now = Instant::now();
        let unheard = |id: &InstanceId, operation: &Operation| {
            let Phase::Draining { version, deadline } = operation.phase else { return false };
            now >= deadline && !counters.is_some_and(|counters| is_empty(id, version, counters))
        };
        let unheard: Vec<InstanceId> =
            self.0.iter().filter(|(id, operation)| unheard(id, operation)).map(|(id, _)| id.clone()).collect();
        self.call_off(|id| unheard.contains(id))
    }

    /// Ends the operations of those `which` that drain for their sleep, and says whose.
    pub fn call_off(&mut self, which: impl Fn(&InstanceId) -> bool) -> Vec<InstanceId> {
        let drains = |operation: &Operation| {
            matches!(operation.action, Action::Sleep { .. }) && matches!(operation.phase, Phase::Draining { .. })
        };
        let off = self.0.iter().filter(|(id, operation)| drains(operation) && which(id)).map(|(id, _)| id.clone());
        let off: Vec<InstanceId> = off.collect();
        self.0.retain(|id, _| !off.contains(id));
        off
    }

    /// The gateway has the config `version`, made after everything that is draining now began to.
    pub fn handle_told(&mut self, version: u64) {
        for operation in self.0.values_mut() {
            if let Phase::Draining { version: told @ None, .. } = &mut operation.phase {
                *told = Some(version);
            }
        }
    }

    /// The drained ones, which the engine may now have: nothing is outstanding at them, or they are to be stopped and their time is up.
    pub fn poll_drained(&mut self, counters: Option<&GatewayCounters>) -> Vec<(InstanceId, Action)> {
        let now = Instant::now();
        let mut drained = Vec::new();
        for (id, operation) in &mut self.0 {
            let Phase::Draining { version, deadline } = operation.phase else { continue };
            let is_over = now >= deadline && matches!(operation.action, Action::Stop { .. });
            if is_over || counters.is_some_and(|counters| is_empty(id, version, counters)) {
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

#[cfg(test)]
mod tests {
    use weal_model::{Rung, Time};
    use weal_protocol::gateway::EndpointCounters;

    use super::*;

    fn counters(open: bool, in_flight: u32) -> GatewayCounters {
        let shop = EndpointCounters { instance: "shop-1".into(), open, in_flight, completions: 0, failures: 0 };
        GatewayCounters {
            gateway: "gw".into(),
            started: Time::ZERO,
            time: Time::ZERO,
            version: 3,
            flows: Vec::new(),
            instances: vec![shop],
            clusters: Vec::new(),
            connections: 0,
            unrouted: 0,
            malformed: 0,
        }
    }

    /// `shop-1` drains for `action`, for at most `most`.
    fn drains(action: Action, most: Duration) -> Operations {
        let mut operations = Operations::default();
        assert_eq!(operations.begin(&"shop-1".into(), action, String::new(), Some(most)), Some(false));
        operations
    }

    fn sleep() -> Action {
        Action::Sleep { instance: "shop-1".into(), app: "shop".into(), rung: Rung::Suspended }
    }

    fn stop() -> Action {
        Action::Stop { instance: "shop-1".into(), app: "shop".into() }
    }

    /// `shop-1` drains for its sleep, for at most `most`, and the gateway knows.
    fn draining(most: Duration) -> Operations {
        let mut operations = drains(sleep(), most);
        operations.handle_told(3);
        operations
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_sleep_is_called_off_when_the_gateway_opened_its_instance_again() {
        let mut operations = draining(LONG);
        assert_eq!(operations.poll_wanted(&counters(false, 0)), Vec::<InstanceId>::new());
        assert_eq!(operations.poll_wanted(&counters(true, 0)), ["shop-1".into()]);
        assert!(!operations.contains(&"shop-1".into()));
    }

    #[test]
    fn what_never_ends_keeps_its_instance_awake_and_what_has_ended_does_not() {
        let mut endless = draining(Duration::ZERO);
        assert_eq!(endless.poll_wanted(&counters(false, 1)), ["shop-1".into()]);
        let mut drained = draining(LONG);
        assert!(drained.poll_drained(Some(&counters(false, 1))).is_empty());
        assert_eq!(drained.poll_drained(Some(&counters(false, 0))).len(), 1);
    }

    #[test]
    fn nothing_is_frozen_of_which_nobody_says_that_it_is_empty() {
        let mut away = draining(Duration::ZERO);
        assert_eq!((away.poll_drained(None), away.poll_unheard(None)), (Vec::new(), vec!["shop-1".into()]));
        let mut untold = drains(sleep(), Duration::ZERO);
        assert!(untold.poll_drained(Some(&counters(true, 0))).is_empty());
        assert_eq!(untold.poll_unheard(Some(&counters(true, 0))), ["shop-1".into()]);
        let mut early = draining(LONG);
        assert_eq!((early.poll_drained(None), early.poll_unheard(None)), (Vec::new(), Vec::new()));
        let mut empty = draining(Duration::ZERO);
        assert_eq!(empty.poll_unheard(Some(&counters(false, 0))), Vec::<InstanceId>::new());
        assert_eq!(empty.poll_drained(Some(&counters(false, 0))).len(), 1, "its time is up, and nothing is at it");
    }

    #[test]
    fn a_stop_goes_on_when_its_time_is_up_whoever_asks_for_its_instance() {
        let mut operations = drains(stop(), Duration::ZERO);
        operations.handle_told(3);
        assert_eq!(operations.stopping(), operations.closed());
        assert_eq!(operations.poll_wanted(&counters(true, 1)), Vec::<InstanceId>::new());
        assert_eq!(operations.poll_unheard(None), Vec::<InstanceId>::new());
        assert_eq!(operations.poll_drained(None), [("shop-1".into(), stop())]);
        assert!(draining(LONG).stopping().is_empty(), "a sleep may be called off");
    }
}
