//! Applications that change places for nothing: what one plan did, the next ones take back.
//!
//! How far the measurements of a demand were off is known ([`demand_doubts`](crate::flow::controller::demand_doubts)); how far the model
//! is off that a plan's gain was computed with is not, until plans undo each other. Each time that happens, the demand of the
//! application is doubted more, for a while. Doubt counts well above a goal only, so no application that misses one waits for it.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{Action, AppName, InstanceId, InstanceObservation, InstanceState, NodeName, Plan, Snapshot, Time};

/// What is undone within so many seconds was done for nothing: eight placement cycles of 15 s.
const TAKEN_BACK_S: f64 = 120.0;
/// So long it counts.
const REMEMBERED_S: f64 = 600.0;
/// By so much of a demand it is doubted for each time.
const DOUBT: f64 = 0.1;

/// Who changed places lately.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Restless {
    /// When an application came to a node (true) or went from it last.
    moves: BTreeMap<(AppName, NodeName), (Time, bool)>,
    /// When a move was taken back.
    taken_back: Vec<(Time, AppName)>,
}

impl Restless {
    /// Takes note of a plan that is carried out; `ahead` is [`Plan::ahead`] of the one before.
    pub fn handle_plan(&mut self, plan: &Plan, snapshot: &Snapshot, ahead: &BTreeSet<InstanceId>) {
        let now = snapshot.time;
        let ago_s = |then: Time| now.since(then).as_secs_f64();
        self.moves.retain(|_, (at, _)| ago_s(*at) < TAKEN_BACK_S);
        self.taken_back.retain(|(at, _)| ago_s(*at) < REMEMBERED_S);
        for (app, node, comes) in moves(plan, snapshot, ahead) {
            let before = self.moves.insert((app.clone(), node), (now, comes));
            if before.is_some_and(|(_, came)| came != comes) {
                self.taken_back.push((now, app));
            }
        }
    }

    /// Adds to `doubts` what is doubted for that.
    pub fn doubt(&self, doubts: &mut BTreeMap<AppName, f64>) {
        for (_, app) in &self.taken_back {
            *doubts.entry(app.clone()).or_default() += DOUBT;
        }
    }
}

/// The applications that a plan brings to a node (true) or takes away from there. Those that come to stand by, and then sleep, take no CPU:
/// that is no move.
fn moves(plan: &Plan, snapshot: &Snapshot, ahead: &BTreeSet<InstanceId>) -> Vec<(AppName, NodeName, bool)> {
    let instances: BTreeMap<&InstanceId, &InstanceObservation> = snapshot.instances.iter().map(|seen| (&seen.id, seen)).collect();
    let of_seen = |instance: &InstanceId, comes: bool| {
        let seen = instances.get(instance)?;
        let moves = comes || seen.state == InstanceState::Ready && !ahead.contains(instance);
        moves.then(|| (seen.app.clone(), seen.node.clone(), comes))
    };
    let move_of = |action: &Action| match action {
        Action::Start { instance, app, node } => (!plan.ahead.contains(instance)).then(|| (app.clone(), node.clone(), true)),
        Action::Resume { instance, .. } => of_seen(instance, true),
        Action::Stop { instance, .. } | Action::Sleep { instance, .. } => of_seen(instance, false),
        _ => None,
    };
    plan.actions.iter().filter_map(move_of).collect()
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, Rung};

    use super::*;

    fn at(seconds: f64, state: InstanceState) -> Snapshot {
        let shop = InstanceObservation {
            memory_used: Some(Bytes::mib(1)),
            ..InstanceObservation::unmeasured("shop-1".into(), "shop".into(), "n1".into(), state)
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
        let goes = plan(Action::Sleep { instance: "shop-1".into(), app: "shop".into(), rung: Rung::Parked });
        let comes = plan(Action::Resume { instance: "shop-1".into(), app: "shop".into() });
        let (mut restless, none) = (Restless::default(), BTreeSet::new());
        restless.handle_plan(&goes, &at(1000.0, InstanceState::Ready), &none);
        assert_eq!(doubt(&restless), 0.05, "it may have been right");
        restless.handle_plan(&comes, &at(1010.0, InstanceState::Parked), &none);
        restless.handle_plan(&goes, &at(1020.0, InstanceState::Ready), &none);
        assert!((doubt(&restless) - 0.25).abs() < 1e-9);
        restless.handle_plan(&goes, &at(1030.0, InstanceState::Suspended), &none);
        assert!((doubt(&restless) - 0.25).abs() < 1e-9, "deeper is no move");
        restless.handle_plan(&comes, &at(1200.0, InstanceState::Parked), &none);
        assert!((doubt(&restless) - 0.25).abs() < 1e-9, "three minutes later it was for a reason");
        restless.handle_plan(&Plan::default(), &at(1700.0, InstanceState::Ready), &none);
        assert_eq!(doubt(&restless), 0.05, "it is forgotten");
    }

    #[test]
    fn who_is_started_to_stand_by_has_not_moved() {
        let start = Action::Start { instance: "shop-1".into(), app: "shop".into(), node: "n1".into() };
        let sleep = || plan(Action::Sleep { instance: "shop-1".into(), app: "shop".into(), rung: Rung::Suspended });
        let resume = || plan(Action::Resume { instance: "shop-1".into(), app: "shop".into() });
        let mut restless = Restless::default();
        let nobody = Snapshot { instances: Vec::new(), ..at(1.0, InstanceState::Ready) };
        let (none, ahead) = (BTreeSet::new(), BTreeSet::from(["shop-1".into()]));
        restless.handle_plan(&Plan { ahead: vec!["shop-1".into()], ..plan(start) }, &nobody, &none);
        restless.handle_plan(&sleep(), &at(5.0, InstanceState::Ready), &ahead);
        restless.handle_plan(&resume(), &at(20.0, InstanceState::Suspended), &none);
        assert_eq!(doubt(&restless), 0.05, "that is what it stood by for");
        restless.handle_plan(&sleep(), &at(30.0, InstanceState::Ready), &none);
        assert!((doubt(&restless) - 0.15).abs() < 1e-9, "and this is not");
    }
}
