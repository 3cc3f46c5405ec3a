//! The CPU in force: what each instance has, as the flow cycle and the placement cycle decide it by turns, and what of it whoever
//! enforces it does not know yet.
//!
//! ```text
//! shares.handle_seats(&decision.shares, decision.bursts, &spec); // flow cycle
//! shares.handle_plan(&plan.shares, &spec); // placement cycle
//! let changed = shares.poll_changes(|id| is_there(id));
//! shares.handle_told(changed);                     // once it is enforced
//! ```

use std::collections::BTreeMap;

use weal_model::{Cpu, CpuShare, InstanceId, PoolSpec};

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
pub struct CpuShares {
    decided: BTreeMap<InstanceId, CpuShare>,
    /// What instances count as beside jobs, where that is more.
    bursts: BTreeMap<InstanceId, Cpu>,
    told: BTreeMap<InstanceId, CpuShare>,
}

impl CpuShares {
    /// Takes what the flow cycle decided. Who does not limit seats limits no CPU either.
    pub fn handle_seats(&mut self, decided: &[CpuShare], bursts: BTreeMap<InstanceId, Cpu>, pool: &PoolSpec) {
        self.decided.values_mut().for_each(|share| share.limit = None);
        if pool.limits_seats() {
            self.decided.extend(decided.iter().map(|share| (share.instance.clone(), share.clone())));
            self.bursts = bursts;
        }
    }

    /// Takes what the placement cycle decided. Of instances that the flow cycle has given CPU to, its word is newer; the plan's
    /// counts for those that are new.
    pub fn handle_plan(&mut self, planned: &[CpuShare], pool: &PoolSpec) {
        let mut before = std::mem::take(&mut self.decided);
        if !pool.limits_seats() {
            before.clear();
        }
        let share = |planned: &CpuShare| before.remove(&planned.instance).unwrap_or(CpuShare { limit: None, ..planned.clone() });
        self.decided = planned.iter().map(share).map(|share| (share.instance.clone(), share)).collect();
    }

    /// What was decided for an instance; `None` when nothing was.
    pub fn cpu(&self, instance: &InstanceId) -> Option<Cpu> {
        self.decided.get(instance).map(|share| share.cpu)
    }

    /// What an instance gets by that: never so little that it cannot answer.
    pub fn given(&self, instance: &InstanceId) -> Option<Cpu> {
        self.cpu(instance).map(at_least)
    }

    /// Its weight among its application's instances, for the dispatcher. Two digits, so that noise in a plan is no new config.
    /// Who does not control gives every instance the same: a plan's shares would decide all the same.
    pub fn weight(&self, instance: &InstanceId, pool: &PoolSpec) -> f64 {
        let planned = self.cpu(instance).filter(|_| pool.limits_seats());
        let share = planned.map_or(DEFAULT_WEIGHT, |cpu| cpu.0);
        ((share * 100.0).round() / 100.0).max(LEAST_WEIGHT)
    }

    /// What must be told of the instances that are there, sorted by instance. Those that are gone are forgotten.
    pub fn poll_changes(&mut self, is_there: impl Fn(&InstanceId) -> bool) -> Vec<CpuShare> {
        self.told.retain(|instance, _| is_there(instance));
        let given = |share: &CpuShare| CpuShare {
            instance: share.instance.clone(),
            cpu: self.bursts.get(&share.instance).map_or(at_least(share.cpu), |burst| Cpu(burst.0.max(at_least(share.cpu).0))),
            limit: share.limit.map(at_least),
        };
        let there = self.decided.values().filter(|share| is_there(&share.instance)).map(given);
        there.filter(|share| self.told.get(&share.instance).is_none_or(|told| differ(told, share))).collect()
    }

    /// These are enforced now.
    pub fn handle_told(&mut self, changed: Vec<CpuShare>) {
        self.told.extend(changed.into_iter().map(|share| (share.instance.clone(), share)));
    }

    /// Whether these are enforced is not known: they are told once more.
    pub fn handle_unanswered(&mut self, changed: &[CpuShare]) {
        self.told.retain(|instance, _| changed.iter().all(|share| share.instance != *instance));
    }

    /// Whoever enforces them has begun again and knows nothing.
    pub fn handle_forgotten(&mut self) {
        self.told.clear();
    }
}

fn at_least(cpu: Cpu) -> Cpu {
    Cpu(cpu.0.max(LEAST))
}

fn differ(told: &CpuShare, share: &CpuShare) -> bool {
    has_moved(told.cpu, share.cpu) || is_other_limit(told.limit, share.limit)
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

    fn share(instance: &str, cpu: f64, limit: Option<f64>) -> CpuShare {
        CpuShare { instance: instance.into(), cpu: Cpu(cpu), limit: limit.map(Cpu) }
    }

    fn told(changed: &[CpuShare]) -> Vec<(&str, f64, Option<f64>)> {
        changed.iter().map(|share| (share.instance.as_str(), share.cpu.0, share.limit.map(|limit| limit.0))).collect()
    }

    #[test]
    fn the_flow_cycles_word_is_newer_and_the_plans_counts_for_new_instances() {
        let pool = pool(1, vec![app("a", 100, 1, 3)]);
        let mut shares = CpuShares::default();
        shares.handle_plan(&[share("a-1", 0.5, None)], &pool);
        shares.handle_seats(&[share("a-1", 0.3, Some(0.31))], BTreeMap::new(), &pool);
        shares.handle_plan(&[share("a-1", 0.5, None), share("a-2", 0.4, None)], &pool);
        assert_eq!(told(&shares.poll_changes(|_| true)), [("a-1", 0.3, Some(0.31)), ("a-2", 0.4, None)]);
        shares.handle_plan(&[share("a-2", 0.4, None)], &pool);
        assert_eq!((shares.cpu(&"a-1".into()), shares.cpu(&"a-2".into())), (None, Some(Cpu(0.4))));
    }

    #[test]
    fn only_what_changed_is_told_and_only_of_who_is_there() {
        let pool = pool(1, vec![app("a", 100, 1, 3)]);
        let mut shares = CpuShares::default();
        shares.handle_seats(&[share("a-1", 0.5, Some(0.51)), share("a-2", 0.001, None)], BTreeMap::new(), &pool);
        let there = |id: &InstanceId| id.as_str() != "a-2";
        let changed = shares.poll_changes(there);
        assert_eq!(told(&changed), [("a-1", 0.5, Some(0.51))]);
        shares.handle_told(changed);
        shares.handle_seats(&[share("a-1", 0.51, Some(0.52))], BTreeMap::new(), &pool);
        assert_eq!(told(&shares.poll_changes(|_| true)), [("a-2", 0.05, None)], "the rest is noise");
        shares.handle_seats(&[share("a-1", 0.51, None)], BTreeMap::new(), &pool);
        assert_eq!(told(&shares.poll_changes(there)), [("a-1", 0.51, None)], "a limit that goes is told");
        shares.handle_forgotten();
        assert_eq!(shares.poll_changes(|_| true).len(), 2);
    }

    #[test]
    fn a_burst_counts_for_more_than_the_cpu_that_is_shown() {
        let pool = pool(1, vec![app("a", 100, 1, 3)]);
        let mut shares = CpuShares::default();
        let bursts = BTreeMap::from([("a-1".into(), Cpu(1.8)), ("a-2".into(), Cpu(0.1))]);
        shares.handle_seats(&[share("a-1", 0.0, None), share("a-2", 0.5, None), share("a-3", 0.3, None)], bursts, &pool);
        assert_eq!(told(&shares.poll_changes(|_| true)), [("a-1", 1.8, None), ("a-2", 0.5, None), ("a-3", 0.3, None)]);
        assert_eq!(shares.given(&"a-1".into()), Some(Cpu(LEAST)));
    }

    #[test]
    fn without_control_every_instance_weighs_the_same() {
        let mut pool = pool(1, vec![app("a", 100, 1, 3)]);
        let mut shares = CpuShares::default();
        shares.handle_plan(&[share("a-1", 0.256, None), share("a-2", 0.0, None)], &pool);
        let weights = |shares: &CpuShares, pool: &PoolSpec| ["a-1", "a-2", "a-3"].map(|id| shares.weight(&id.into(), pool));
        assert_eq!(weights(&shares, &pool), [0.26, 0.01, 1.0]);
        pool.control = false;
        assert_eq!(weights(&shares, &pool), [1.0; 3]);
    }
}
