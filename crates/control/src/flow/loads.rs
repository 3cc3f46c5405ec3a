//! The CPU in force: what each instance has, as the flow cycle and the placement cycle decide it by turns, and what of it whoever
//! enforces it does not know yet.
//!
//! ```text
//! loads.handle_seats(&decision.loads, decision.bursts, &spec); // flow cycle
//! loads.handle_plan(&plan.loads, &spec); // placement cycle
//! let changed = loads.poll_changes(|id| is_there(id));
//! loads.handle_told(changed);                     // once it is enforced
//! ```

use std::collections::BTreeMap;

use weal_model::{Cpu, InstanceId, LoadEntry, PoolSpec};

/// A share or a limit that changed by less than this part of it is not worth a call.
const CHANGE: f64 = 0.03;
/// What even an idle instance gets while its node is full, in cores: it must answer health checks, and the first requests
/// of a burst until the next cycle.
const LEAST: f64 = 0.05;
/// The weight of an instance that no plan gives anything yet.
const DEFAULT_WEIGHT: f64 = 1.0;
/// Below this a weight would be rounded away.
const LEAST_WEIGHT: f64 = 0.01;

/// Each instance's share and limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loads {
    decided: BTreeMap<InstanceId, LoadEntry>,
    /// What instances count as beside jobs, where that is more.
    bursts: BTreeMap<InstanceId, Cpu>,
    told: BTreeMap<InstanceId, LoadEntry>,
}

impl Loads {
    /// Takes what the flow cycle decided. Who does not limit seats limits no CPU either.
    pub fn handle_seats(&mut self, decided: &[LoadEntry], bursts: BTreeMap<InstanceId, Cpu>, pool: &PoolSpec) {
        self.decided.values_mut().for_each(|load| load.limit = None);
        if pool.limits_seats() {
            self.decided.extend(decided.iter().map(|load| (load.instance.clone(), load.clone())));
            self.bursts = bursts;
        }
    }

    /// Takes what the placement cycle decided. Of instances that the flow cycle has given CPU to, its word is newer; the plan's
    /// counts for those that are new.
    pub fn handle_plan(&mut self, planned: &[LoadEntry], pool: &PoolSpec) {
        let mut before = std::mem::take(&mut self.decided);
        if !pool.limits_seats() {
            before.clear();
        }
        let load = |planned: &LoadEntry| before.remove(&planned.instance).unwrap_or(LoadEntry { limit: None, ..planned.clone() });
        self.decided = planned.iter().map(load).map(|load| (load.instance.clone(), load)).collect();
    }

    /// What was decided for an instance; `None` when nothing was.
    pub fn cpu(&self, instance: &InstanceId) -> Option<Cpu> {
        self.decided.get(instance).map(|load| load.cpu)
    }

    /// What an instance gets by that: never so little that it cannot answer.
    pub fn given(&self, instance: &InstanceId) -> Option<Cpu> {
        self.cpu(instance).map(at_least)
    }

    /// Its weight among its application's instances, for the dispatcher. Two digits, so that noise in a plan is no new config.
    /// Who does not control gives every instance the same: a plan's loads would decide all the same.
    pub fn weight(&self, instance: &InstanceId, pool: &PoolSpec) -> f64 {
        let planned = self.cpu(instance).filter(|_| pool.limits_seats());
        let load = planned.map_or(DEFAULT_WEIGHT, |cpu| cpu.0);
        ((load * 100.0).round() / 100.0).max(LEAST_WEIGHT)
    }

    /// What must be told of the instances that are there, sorted by instance. Those that are gone are forgotten.
    pub fn poll_changes(&mut self, is_there: impl Fn(&InstanceId) -> bool) -> Vec<LoadEntry> {
        self.told.retain(|instance, _| is_there(instance));
        let given = |load: &LoadEntry| LoadEntry {
            instance: load.instance.clone(),
            cpu: self.bursts.get(&load.instance).map_or(at_least(load.cpu), |burst| Cpu(burst.0.max(at_least(load.cpu).0))),
            limit: load.limit.map(at_least),
        };
        let there = self.decided.values().filter(|load| is_there(&load.instance)).map(given);
        there.filter(|load| self.told.get(&load.instance).is_none_or(|told| differ(told, load))).collect()
    }

    /// These are enforced now.
    pub fn handle_told(&mut self, changed: Vec<LoadEntry>) {
        self.told.extend(changed.into_iter().map(|load| (load.instance.clone(), load)));
    }

    /// Whoever enforces them has begun again and knows nothing.
    pub fn handle_forgotten(&mut self) {
        self.told.clear();
    }
}

fn at_least(cpu: Cpu) -> Cpu {
    Cpu(cpu.0.max(LEAST))
}

fn differ(told: &LoadEntry, load: &LoadEntry) -> bool {
    has_moved(told.cpu, load.cpu) || is_other_limit(told.limit, load.limit)
}

fn has_moved(told: Cpu, now: Cpu) -> bool {
    (told.0 - now.0).abs() > told.0 * CHANGE
}

/// Whether a limit has changed so far that it is worth a call.
pub fn is_other_limit(told: Option<Cpu>, now: Option<Cpu>) -> bool {
    match (told, now) {
        (Some(told), Some(now)) => has_moved(told, now),
        (None, None) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::fixtures::{app, pool};

    fn load(instance: &str, cpu: f64, limit: Option<f64>) -> LoadEntry {
        LoadEntry { instance: instance.into(), cpu: Cpu(cpu), limit: limit.map(Cpu) }
    }

    fn shares(changed: &[LoadEntry]) -> Vec<(&str, f64, Option<f64>)> {
        changed.iter().map(|load| (load.instance.as_str(), load.cpu.0, load.limit.map(|limit| limit.0))).collect()
    }

    #[test]
    fn the_flow_cycles_word_is_newer_and_the_plans_counts_for_new_instances() {
        let pool = pool(1, vec![app("a", 100, 1, 3)]);
        let mut loads = Loads::default();
        loads.handle_plan(&[load("a-1", 0.5, None)], &pool);
        loads.handle_seats(&[load("a-1", 0.3, Some(0.31))], BTreeMap::new(), &pool);
        loads.handle_plan(&[load("a-1", 0.5, None), load("a-2", 0.4, None)], &pool);
        assert_eq!(shares(&loads.poll_changes(|_| true)), [("a-1", 0.3, Some(0.31)), ("a-2", 0.4, None)]);
        loads.handle_plan(&[load("a-2", 0.4, None)], &pool);
        assert_eq!((loads.cpu(&"a-1".into()), loads.cpu(&"a-2".into())), (None, Some(Cpu(0.4))));
    }

    #[test]
    fn only_what_changed_is_told_and_only_of_who_is_there() {
        let pool = pool(1, vec![app("a", 100, 1, 3)]);
        let mut loads = Loads::default();
        loads.handle_seats(&[load("a-1", 0.5, Some(0.51)), load("a-2", 0.001, None)], BTreeMap::new(), &pool);
        let there = |id: &InstanceId| id.as_str() != "a-2";
        let changed = loads.poll_changes(there);
        assert_eq!(shares(&changed), [("a-1", 0.5, Some(0.51))]);
        loads.handle_told(changed);
        loads.handle_seats(&[load("a-1", 0.51, Some(0.52))], BTreeMap::new(), &pool);
        assert_eq!(shares(&loads.poll_changes(|_| true)), [("a-2", 0.05, None)], "the rest is noise");
        loads.handle_seats(&[load("a-1", 0.51, None)], BTreeMap::new(), &pool);
        assert_eq!(shares(&loads.poll_changes(there)), [("a-1", 0.51, None)], "a limit that goes is told");
        loads.handle_forgotten();
        assert_eq!(loads.poll_changes(|_| true).len(), 2);
    }

    #[test]
    fn a_burst_counts_for_more_than_the_cpu_that_is_shown() {
        let pool = pool(1, vec![app("a", 100, 1, 3)]);
        let mut loads = Loads::default();
        let bursts = BTreeMap::from([("a-1".into(), Cpu(1.8)), ("a-2".into(), Cpu(0.1))]);
        loads.handle_seats(&[load("a-1", 0.0, None), load("a-2", 0.5, None), load("a-3", 0.3, None)], bursts, &pool);
        assert_eq!(shares(&loads.poll_changes(|_| true)), [("a-1", 1.8, None), ("a-2", 0.5, None), ("a-3", 0.3, None)]);
        assert_eq!(loads.given(&"a-1".into()), Some(Cpu(LEAST)));
    }

    #[test]
    fn without_control_every_instance_weighs_the_same() {
        let mut pool = pool(1, vec![app("a", 100, 1, 3)]);
        let mut loads = Loads::default();
        loads.handle_plan(&[load("a-1", 0.256, None), load("a-2", 0.0, None)], &pool);
        let weights = |loads: &Loads, pool: &PoolSpec| ["a-1", "a-2", "a-3"].map(|id| loads.weight(&id.into(), pool));
        assert_eq!(weights(&loads, &pool), [0.26, 0.01, 1.0]);
        pool.control = false;
        assert_eq!(weights(&loads, &pool), [1.0; 3]);
    }
}
