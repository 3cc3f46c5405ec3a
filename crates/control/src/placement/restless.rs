//! Applications that change places for nothing: what one plan did, the next ones take back.
//!
//! How far the measurements of a demand were off is known ([`demand_doubts`](crate::flow::controller::demand_doubts)); how far the model
//! is off that a plan's gain was computed with is not, until plans undo each other. Each time that happens, the demand of the
//! application is doubted more, for a while. Doubt counts well above a goal only, so nobody who misses one waits for it.

use std::collections::BTreeMap;

use weal_model::{Action, AppName, InstanceId, InstanceState, NodeName, Plan, Snapshot, Time};

/// What is undone within so many seconds was done for nothing: eight placement cycles of 15 s.
const TAKEN_BACK_S: f64 = 120.0;
/// So long it counts.
const REMEMBERED_S: f64 = 600.0;
/// By so much of a demand it is doubted for each time.
const DOUBT: f64 = 0.1;

/// Who changed places lately.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Restless(Vec<Move>);

#[derive(Debug, Clone, PartialEq)]
struct Move {
    at: Time,
    app: AppName,
    node: NodeName,
    comes: bool,
    takes_back: bool,
}

impl Restless {
    /// Takes note of a plan that is carried out.
    pub fn handle_plan(&mut self, plan: &Plan, snapshot: &Snapshot) {
        let now = snapshot.time;
        self.0.retain(|past| now.since(past.at).as_secs_f64() < REMEMBERED_S);
        for action in &plan.actions {
            let Some((app, node, comes)) = move_of(action, plan, snapshot) else { continue };
            let same = |past: &&Move| past.app == app && past.node == node;
            let last = self.0.iter().rev().find(same);
            let takes_back = last.is_some_and(|past| past.comes != comes && now.since(past.at).as_secs_f64() < TAKEN_BACK_S);
            self.0.push(Move { at: now, app, node, comes, takes_back });
        }
    }

    /// Adds to `doubts` what is doubted for that.
    pub fn doubt(&self, doubts: &mut BTreeMap<AppName, f64>) {
        for past in self.0.iter().filter(|past| past.takes_back) {
            *doubts.entry(past.app.clone()).or_default() += DOUBT;
        }
    }
}

/// The application that an action brings to a node or takes away from there. Those that stand by take no CPU, and are no move.
fn move_of(action: &Action, plan: &Plan, snapshot: &Snapshot) -> Option<(AppName, NodeName, bool)> {
    let there = |instance: &InstanceId| snapshot.instances.iter().find(|seen| seen.id == *instance);
    let comes = match action {
        Action::Start { instance, app, node } => {
            return (!plan.ahead.contains(instance)).then(|| (app.clone(), node.clone(), true));
        }
        Action::Resume { .. } => true,
        Action::Stop { .. } | Action::Sleep { .. } => false,
        _ => return None,
    };
    let (Action::Resume { instance } | Action::Stop { instance } | Action::Sleep { instance, .. }) = action else { return None };
    let seen = there(instance)?;
    (comes || seen.state == InstanceState::Ready).then(|| (seen.app.clone(), seen.node.clone(), comes))
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, InstanceObservation, Rung};

    use super::*;

    fn at(seconds: f64, state: InstanceState) -> Snapshot {
        let shop = InstanceObservation {
            id: "shop-1".into(),
            app: "shop".into(),
            node: "n1".into(),
            state,
            cpu_used: None,
            memory_used: Some(Bytes::mib(1)),
            disk_bytes_per_s: None,
            network_bytes_per_s: None,
            in_flight: 0,
            since: Time::ZERO,
        };
        Snapshot { time: Time::from_secs_f64(seconds), instances: vec![shop], ..Snapshot::default() }
    }

    fn plan(action: Action) -> Plan {
        Plan { actions: vec![action], ..Plan::default() }
    }

    fn doubt(restless: &Restless) -> f64 {
        let mut doubts = BTreeMap::from([("shop".into(), 0.05)]);
        restless.doubt(&mut doubts);
        doubts["shop"]
    }

    #[test]
    fn who_goes_and_comes_again_is_doubted_for_a_while() {
        let goes = plan(Action::Sleep { instance: "shop-1".into(), rung: Rung::Parked });
        let comes = plan(Action::Resume { instance: "shop-1".into() });
        let mut restless = Restless::default();
        restless.handle_plan(&goes, &at(1000.0, InstanceState::Ready));
        assert_eq!(doubt(&restless), 0.05, "it may have been right");
        restless.handle_plan(&comes, &at(1010.0, InstanceState::Parked));
        restless.handle_plan(&goes, &at(1020.0, InstanceState::Ready));
        assert!((doubt(&restless) - 0.25).abs() < 1e-9);
        restless.handle_plan(&goes, &at(1030.0, InstanceState::Suspended));
        assert!((doubt(&restless) - 0.25).abs() < 1e-9, "deeper is no move");
        restless.handle_plan(&comes, &at(1200.0, InstanceState::Parked));
        assert!((doubt(&restless) - 0.25).abs() < 1e-9, "three minutes later it was for a reason");
        restless.handle_plan(&Plan::default(), &at(1700.0, InstanceState::Ready));
        assert_eq!(doubt(&restless), 0.05, "it is forgotten");
    }

    #[test]
    fn who_is_started_to_stand_by_has_not_moved() {
        let start = Action::Start { instance: "shop-2".into(), app: "shop".into(), node: "n1".into() };
        let mut restless = Restless::default();
        restless.handle_plan(&Plan { ahead: vec!["shop-2".into()], ..plan(start) }, &at(1.0, InstanceState::Ready));
        restless.handle_plan(&plan(Action::Stop { instance: "shop-1".into() }), &at(2.0, InstanceState::Ready));
        assert_eq!(doubt(&restless), 0.05);
    }
}
