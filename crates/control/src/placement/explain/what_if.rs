//! What a change would do: the plans of both worlds, compared.
//!
//! A world is a snapshot with a policy. A changed goal or importance is another curve in
//! [`Policy::demands`](crate::placement::Policy::demands); a node more or less is another pool and another snapshot; so is a load
//! factor. Nothing is carried out.

use std::collections::BTreeMap;

use weal_model::{Action, AppExplanation, AppName, Cpu, Plan, Report, Utility};

/// How one application fares in both worlds.
#[derive(Debug, Clone, PartialEq)]
pub struct Shift {
    /// Utility as it is, and with the change; `None` without a goal, or where the application is not there.
    pub utility: (Option<Utility>, Option<Utility>),
    /// CPU granted.
    pub cpu: (Cpu, Cpu),
    /// Instances that run.
    pub instances: (u32, u32),
}

/// What a change would do.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// By application, in either world.
    pub apps: BTreeMap<AppName, Shift>,
    /// The utility of the worst off, as it is and with the change.
    pub lowest: (Option<Utility>, Option<Utility>),
    /// Steps that the change would cause now and that are not due anyway.
    pub actions: Vec<Action>,
}

impl WhatIf {
    /// Applications that would lose more than `tolerance`, the greatest loss first.
    pub fn losers(&self, tolerance: f64) -> Vec<(&AppName, f64)> {
        let loss = |shift: &Shift| Some(shift.utility.0?.0 - shift.utility.1?.0);
        let mut losers: Vec<(&AppName, f64)> =
            self.apps.iter().filter_map(|(app, shift)| Some((app, loss(shift)?))).filter(|(_, loss)| *loss > tolerance).collect();
        losers.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        losers
    }
}

/// What comes of a change, by the plans and reports of the world as it is and of the changed one.
pub(in crate::placement) fn compare(is: (Plan, Report), changed: (Plan, Report)) -> WhatIf {
    let names = is.1.apps.keys().chain(changed.1.apps.keys());
    let apps = names.map(|app| (app.clone(), shift(app, &is, &changed))).collect();
    let lowest = (is.1.lowest_utility, changed.1.lowest_utility);
    let actions = changed.0.actions.into_iter().filter(|action| !is.0.actions.contains(action)).collect();
    WhatIf { apps, lowest, actions }
}

fn shift(app: &AppName, is: &(Plan, Report), changed: &(Plan, Report)) -> Shift {
    let told = |report: &Report| report.apps.get(app).cloned();
    let cpu = |told: &Option<AppExplanation>| told.as_ref().map_or(Cpu(0.0), |told| told.allocation);
    let instances = |plan: &Plan| plan.placement.entries.iter().filter(|entry| entry.app == *app).map(|entry| entry.ready).sum();
    let (before, after) = (told(&is.1), told(&changed.1));
    Shift {
        utility: (before.as_ref().and_then(|told| told.utility), after.as_ref().and_then(|told| told.utility)),
        cpu: (cpu(&before), cpu(&after)),
        instances: (instances(&is.0), instances(&changed.0)),
    }
}

#[cfg(test)]
mod tests {
    use weal_model::InstanceState::Ready;
    use weal_model::{Goal, Importance};

    use super::*;
    use crate::placement::fixtures::{app, pool, snapshot};
    use crate::placement::{Iterations, Policy, what_if};
    use crate::queueing::FlowModel;
    use crate::utility::Curve;

    // 20 clients without think time, 0.2 CPU-seconds a request.
    fn demand(goal: &str) -> Curve {
        let goal: Goal = goal.parse().unwrap();
        let model = FlowModel {
            goal: Some(goal),
            importance: Importance::NORMAL,
            clients: 20.0,
            think_s: 0.0,
            floor_s: 0.2,
            computing_s: 0.2,
            tail: 1.0,
        };
        Curve::from_inverse(Utility(-10.0), model.best(), |u| Cpu(0.2 * model.rate_for(u)))
    }

    fn policy(pool: &weal_model::PoolSpec, goals: [&str; 2]) -> Policy {
        let mut policy = Policy::new(pool.clone());
        for (name, goal) in ["a", "b"].into_iter().zip(goals) {
            policy.demands.insert(name.into(), demand(goal));
        }
        policy
    }

    #[test]
    fn a_tighter_goal_takes_cpu_from_those_it_shares_with() {
        let pool = pool(1, vec![app("a", 300, 1, 1), app("b", 300, 1, 1)]);
        let snapshot = snapshot(&pool, &[("a-1", 0, Ready), ("b-1", 0, Ready)]);
        let (now, then) = (policy(&pool, ["mean < 6s", "mean < 6s"]), policy(&pool, ["mean < 3s", "mean < 6s"]));
        let told = what_if((&snapshot, &now), (&snapshot, &then), Iterations::default());
        let (a, b) = (&told.apps["a"], &told.apps["b"]);
        assert!((a.cpu.0.0 - 1.0).abs() < 1e-6 && (a.cpu.1.0 - 4.0 / 3.0).abs() < 2e-2, "{a:?}");
        assert!((b.utility.0.unwrap().0 - b.utility.1.unwrap().0) > 0.2, "{b:?}");
        assert_eq!(told.losers(0.01).len(), 2, "{told:?}");
        assert!(told.lowest.1 < told.lowest.0 && told.actions.is_empty());
    }

    #[test]
    fn one_more_node_is_used_by_the_worst_off() {
        let (small, large) =
            (pool(1, vec![app("a", 300, 1, 2), app("b", 300, 1, 2)]), pool(2, vec![app("a", 300, 1, 2), app("b", 300, 1, 2)]));
        let running = [("a-1", 0, Ready), ("b-1", 0, Ready)];
        let goals = ["mean < 2s", "mean < 6s"];
        let (is, then) = (policy(&small, goals), policy(&large, goals));
        let told = what_if((&snapshot(&small, &running), &is), (&snapshot(&large, &running), &then), Iterations::default());
        assert!(told.losers(0.01).is_empty() && !told.actions.is_empty(), "{told:?}");
        assert!(told.lowest.1.unwrap().0 > told.lowest.0.unwrap().0 + 0.2, "{told:?}");
        assert_eq!(
            what_if((&snapshot(&small, &running), &is), (&snapshot(&small, &running), &is), Iterations::default()).actions,
            []
        );
    }
}
