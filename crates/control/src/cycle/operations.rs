//! What is being done to instances and jobs right now: draining, and actions under way.
//!
//! A target has at most one operation. Nothing here is kept on disk: a controller that starts anew decides anew, from
//! what runs.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{Action, AppName, InstanceId, Target, Time};
use weal_protocol::gateway::GatewayCounters;

use super::peers::Gateway;

/// One thing that is being done to one target.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub action: Action,
    phase: Phase,
}

#[derive(Debug, Clone)]
enum Phase {
    /// The gateway sends nothing new to it; waits until nothing is outstanding, at most until the deadline.
    Draining {
        /// The gateway config that says so, whether or not the gateway has it; `None` before it was sent.
        version: Option<u64>,
        /// A stop goes on then, whatever is outstanding; a sleep is called off, because what is frozen answers nobody.
        deadline: Time,
    },
    /// The engine has it.
    Acting,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Operations(BTreeMap<Target, Operation>);

impl Operations {
    /// Begins `action`, whose instance drains until `drain` at most. The answer says whether the engine takes it at once (it needs no
    /// draining). A target that has an operation keeps it: `None`.
    pub fn begin(&mut self, action: Action, drain: Option<Time>) -> Option<bool> {
        let target = action.target();
        if self.0.contains_key(&target) {
            return None;
        }
        let phase = match drain {
            Some(deadline) => Phase::Draining { version: None, deadline },
            None => Phase::Acting,
        };
        self.0.insert(target, Operation { action, phase });
        Some(drain.is_none())
    }

    /// The operation of `target` is over.
    pub fn end(&mut self, target: &Target) -> Option<Operation> {
        self.0.remove(target)
    }

    pub fn contains(&self, target: &Target) -> bool {
        self.0.contains_key(target)
    }

    /// What is being done to `target`.
    pub fn action(&self, target: &Target) -> Option<&Action> {
        self.0.get(target).map(|operation| &operation.action)
    }

    /// Whether something is being done to an instance, of which only the id is known.
    pub fn contains_instance(&self, id: &InstanceId) -> bool {
        self.0.keys().any(|target| target.instance() == Some(id))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Target, &Operation)> {
        self.0.iter()
    }

    /// Instances that the gateway must send nothing new to: those being drained, and those being stopped or frozen.
    pub fn closed(&self) -> BTreeSet<InstanceId> {
        self.instances(|action| matches!(action, Action::Stop { .. } | Action::Sleep { .. }))
    }

    /// Instances being stopped. A request cancels a pending sleep but never a stop, so the gateway must not wake these.
    pub fn stopping(&self) -> BTreeSet<InstanceId> {
        self.instances(|action| matches!(action, Action::Stop { .. }))
    }

    fn instances(&self, which: impl Fn(&Action) -> bool) -> BTreeSet<InstanceId> {
        let these = self.0.iter().filter(|(_, operation)| which(&operation.action));
        these.filter_map(|(target, _)| target.instance().cloned()).collect()
    }

    pub fn any_draining(&self) -> bool {
        self.0.values().any(|operation| matches!(operation.phase, Phase::Draining { .. }))
    }

    /// Draining instances to which the gateway sends requests again although it was told not to: a request came before they slept.
    /// Their sleep is called off, as is that of those which still have requests (streams, tunnels) at the deadline.
    pub fn poll_wanted(&mut self, now: Time, counters: &GatewayCounters) -> Vec<Target> {
        self.call_off_if(|id, operation| {
            let Phase::Draining { version: Some(version), deadline } = operation.phase else { return false };
            let seen = Gateway::counters_of(counters, id).filter(|_| counters.version >= version);
            seen.is_some_and(|seen| seen.open || (now >= deadline && seen.in_flight > 0))
        })
    }

    /// Calls off the sleep of those whose deadline has passed before anybody has said that nothing is outstanding at them: the gateway
    /// is away, or could not be told.
    pub fn poll_unheard(&mut self, now: Time, counters: Option<&GatewayCounters>) -> Vec<Target> {
        self.call_off_if(|id, operation| {
            let Phase::Draining { version, deadline } = operation.phase else { return false };
            now >= deadline && !counters.is_some_and(|counters| is_empty(id, version, counters))
        })
    }

    /// Calls off the sleeps for which instances of `app` drain, and says which.
    pub fn call_off(&mut self, app: &AppName) -> Vec<Target> {
        let of_app = |operation: &Operation| operation.action.target().app() == Some(app);
        self.call_off_if(|_, operation| matches!(operation.phase, Phase::Draining { .. }) && of_app(operation))
    }

    fn call_off_if(&mut self, which: impl Fn(&InstanceId, &Operation) -> bool) -> Vec<Target> {
        let off = |(target, operation): &(&Target, &Operation)| {
            matches!(operation.action, Action::Sleep { .. }) && target.instance().is_some_and(|id| which(id, operation))
        };
        let off: Vec<Target> = self.0.iter().filter(off).map(|(target, _)| target.clone()).collect();
        self.0.retain(|target, _| !off.contains(target));
        off
    }

    /// The gateway has or will have the config `version`, made after everything that is draining now began to.
    pub fn handle_told(&mut self, version: u64) {
        for operation in self.0.values_mut() {
            if let Phase::Draining { version: told @ None, .. } = &mut operation.phase {
                *told = Some(version);
            }
        }
    }

    /// The drained ones, which the engine may now have: nothing is outstanding at them, or they are to be stopped and their deadline has
    /// passed.
    pub fn poll_drained(&mut self, now: Time, counters: Option<&GatewayCounters>) -> Vec<Action> {
        let mut drained = Vec::new();
        for (target, operation) in &mut self.0 {
            let (Phase::Draining { version, deadline }, Some(id)) = (&operation.phase, target.instance()) else { continue };
            let is_over = now >= *deadline && matches!(operation.action, Action::Stop { .. });
            if is_over || counters.is_some_and(|counters| is_empty(id, *version, counters)) {
                operation.phase = Phase::Acting;
                drained.push(operation.action.clone());
            }
        }
        drained
    }
}

/// The gateway knows that `instance` is closed, and nothing is outstanding at it.
fn is_empty(instance: &InstanceId, version: Option<u64>, counters: &GatewayCounters) -> bool {
    let in_flight = Gateway::counters_of(counters, instance).map_or(0, |seen| seen.in_flight);
    version.is_some_and(|version| counters.version >= version) && in_flight == 0
}

#[cfg(test)]
mod tests {
    use weal_model::Rung;
    use weal_protocol::gateway::EndpointCounters;

    use super::*;

    fn counters(open: bool, in_flight: u32) -> GatewayCounters {
        let shop = EndpointCounters { instance: "shop-1".into(), open, in_flight, completions: 0, failures: 0 };
        GatewayCounters { version: 3, instances: vec![shop], ..GatewayCounters::none("gw".into(), Time::ZERO, Time::ZERO) }
    }

    /// `shop-1` drains for `action`, until `deadline` at most.
    fn drains(action: Action, deadline: Time) -> Operations {
        let mut operations = Operations::default();
        assert_eq!(operations.begin(action, Some(deadline)), Some(false));
        operations
    }

    fn shop() -> Target {
        sleep().target()
    }

    fn sleep() -> Action {
        Action::Sleep { instance: "shop-1".into(), app: "shop".into(), rung: Rung::Suspended }
    }

    fn stop() -> Action {
        Action::Stop { instance: "shop-1".into(), app: "shop".into() }
    }

    /// `shop-1` drains for its sleep, until `deadline` at most, and the gateway knows.
    fn draining(deadline: Time) -> Operations {
        let mut operations = drains(sleep(), deadline);
        operations.handle_told(3);
        operations
    }

    const NOW: Time = Time(1);
    const LATER: Time = Time(u64::MAX);

    #[test]
    fn a_sleep_is_called_off_when_the_gateway_opened_its_instance_again() {
        let mut operations = draining(LATER);
        assert_eq!(operations.poll_wanted(NOW, &counters(false, 0)), Vec::new());
        assert_eq!(operations.poll_wanted(NOW, &counters(true, 0)), [shop()]);
        assert!(!operations.contains(&shop()));
    }

    #[test]
    fn what_never_ends_keeps_its_instance_awake_and_what_has_ended_does_not() {
        let mut endless = draining(Time::ZERO);
        assert_eq!(endless.poll_wanted(NOW, &counters(false, 1)), [shop()]);
        let mut drained = draining(LATER);
        assert!(drained.poll_drained(NOW, Some(&counters(false, 1))).is_empty());
        assert_eq!(drained.poll_drained(NOW, Some(&counters(false, 0))).len(), 1);
    }

    #[test]
    fn nothing_is_frozen_of_which_nobody_says_that_it_is_empty() {
        let mut away = draining(Time::ZERO);
        assert_eq!((away.poll_drained(NOW, None), away.poll_unheard(NOW, None)), (Vec::new(), vec![shop()]));
        let mut untold = drains(sleep(), Time::ZERO);
        assert!(untold.poll_drained(NOW, Some(&counters(true, 0))).is_empty());
        assert_eq!(untold.poll_unheard(NOW, Some(&counters(true, 0))), [shop()]);
        let mut early = draining(LATER);
        assert_eq!((early.poll_drained(NOW, None), early.poll_unheard(NOW, None)), (Vec::new(), Vec::new()));
        let mut empty = draining(Time::ZERO);
        assert_eq!(empty.poll_unheard(NOW, Some(&counters(false, 0))), Vec::new());
        assert_eq!(empty.poll_drained(NOW, Some(&counters(false, 0))).len(), 1, "its time is up, and nothing is at it");
    }

    #[test]
    fn a_target_has_one_operation_whether_it_is_an_instance_or_a_job() {
        let mut operations = Operations::default();
        let suspend = Action::SuspendJob { job: "shop-1".into() };
        assert_eq!(operations.begin(suspend.clone(), None), Some(true));
        assert_eq!(operations.begin(stop(), None), Some(true), "an instance of the same name is another target");
        assert_eq!(operations.begin(sleep(), None), None);
        assert_eq!(operations.closed(), ["shop-1".into()].into());
        assert!(operations.end(&suspend.target()).is_some() && !operations.contains(&suspend.target()));
    }

    #[test]
    fn a_stop_goes_on_when_its_time_is_up_whoever_asks_for_its_instance() {
        let mut operations = drains(stop(), Time::ZERO);
        operations.handle_told(3);
        assert_eq!(operations.stopping(), operations.closed());
        assert_eq!(operations.poll_wanted(NOW, &counters(true, 1)), Vec::new());
        assert_eq!(operations.poll_unheard(NOW, None), Vec::new());
        assert_eq!(operations.poll_drained(NOW, None), [stop()]);
        assert!(draining(LATER).stopping().is_empty(), "a sleep may be called off");
    }
}
