//! How much CPU a job may take beside applications.
//!
//! A node that is smaller than the machine is a group with a quota for each 100 ms, and what runs in it spends that on several processors at once.
//! Shares divide one processor, not a quota: a job of two threads spends it in a part of the period, and until the next one the applications on its
//! node stand still with it, whatever their shares. So a job beside applications gets a limit: what plans may fill of the node, less what all others
//! there are to have. It is never less than what the plan gives the job, and leaves to the job what nobody is to have, as far as the job was seen to
//! use it. One thread that says `--cpus 4` has the quota of one thread, so that the others it might begin spend nobody's quota before they were seen
//! (the thesis maps virtual processors to as many as a job can use, Carrera 5.7). A job that uses its limit up is taken for one that can use a quarter
//! more, so the limit follows it. On a node as large as its
//! machine there is no quota to spend: shares say who goes first at every moment, so a job may use all that the others leave.

use weal_model::{Cpu, JobName, NodeName};
use weal_protocol::engine::RunState;

use super::state::State;

impl State {
    /// The most CPU that each task of a job may take; `None` where no application of its node would stand still with it.
    pub(super) fn job_limit(&self, name: &JobName) -> Option<Cpu> {
        let entry = self.queue.get(name)?;
        let speed = entry.speed?;
        let rooms = entry.nodes.iter().filter_map(|node| Some(self.room_for_job(name, node)? / entry.tasks_on(node) as f64));
        let least = rooms.reduce(f64::min)?;
        let usable = entry.usable.known().unwrap_or(f64::INFINITY);
        Some(Cpu(least.min(usable).max(speed.0)))
    }

    /// CPU of a slice that nobody else there is to have; `None` on a node without a quota, and where no application runs.
    fn room_for_job(&self, name: &JobName, node: &NodeName) -> Option<f64> {
        let (pool, seen) = (self.pool()?, self.engine.seen.as_ref()?);
        let spec = pool.nodes.iter().find(|spec| spec.name == *node)?;
        let slice = seen.nodes.iter().find(|seen| seen.name == *node && seen.is_slice)?;
        let apps: Vec<f64> = seen
            .instances
            .iter()
            .filter(|instance| instance.node == *node && instance.is_running && !instance.state.is_asleep())
            .map(|instance| self.seating.shares.given(&instance.id).map_or(0.0, |cpu| cpu.0))
            .collect();
        if apps.is_empty() {
            return None;
        }
        let others = self.queue.open().filter(|other| other.record.spec.name != *name);
        let running = others.filter(|other| other.run.as_ref().is_some_and(|run| run.state == RunState::Running));
        let jobs: f64 = running.map(|other| other.speed.map_or(0.0, |cpu| cpu.0) * other.tasks_on(node) as f64).sum();
        Some(spec.usable_cpu(slice.cpu_capacity).0 - apps.iter().sum::<f64>() - jobs)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use weal_model::{Bytes, CpuShare, InstanceState, NodeSpec, PoolSpec, Time};
    use weal_protocol::engine::{InstanceSeen, NodeSeen, Observation};

    use super::super::effect::{Config, Start};
    use super::super::queue::tests::{record, run};
    use super::super::queue::{StoredJobs, Usable};
    use super::*;
    use crate::jobs::Costs;

    /// The limit of `a-1`, to which a plan gives 0.3 cores, on a node of one core of which plans may fill 0.9: beside `b-2`, which is to have 0.2 on the
    /// same node, and these instances.
    fn limit(instances: &[(&str, InstanceState, f64)]) -> Option<Cpu> {
        limit_on(1.0, instances)
    }

    /// The same on a node of which the config says that it has one core, and that was measured to have so many.
    fn limit_on(measured: f64, instances: &[(&str, InstanceState, f64)]) -> Option<Cpu> {
        limit_of(true, measured, instances)
    }

    /// The same on a node that is a slice of its machine, or all of it.
    fn limit_of(is_slice: bool, measured: f64, instances: &[(&str, InstanceState, f64)]) -> Option<Cpu> {
        limit_of_usable(None, is_slice, measured, instances)
    }

    /// The same of a job that was seen to use so many cores at most.
    fn limit_of_usable(
        usable: Option<f64>,
        is_slice: bool,
        measured: f64,
        instances: &[(&str, InstanceState, f64)],
    ) -> Option<Cpu> {
        let mut pool = PoolSpec::example();
        pool.nodes = vec![NodeSpec { name: "n1".into(), cpu: Cpu(1.0), memory: Bytes::gib(1), utilization_limit: 0.9 }];
        let pool = Arc::new(pool);
        let config = Config { generation: 1, pool: Arc::clone(&pool), revisions: BTreeMap::new() };
        let jobs = StoredJobs { records: vec![record("a-1", 1, 0), record("b-2", 2, 0)], highest: 2, ..StoredJobs::default() };
        let mut state = State::new(Time::ZERO, Start { jobs, ..Start::first("gw".into(), Some(config), Costs::THESIS) });
        for (name, speed) in [("a-1", 0.3), ("b-2", 0.2)] {
            let entry = state.queue.get_mut(&name.into()).unwrap();
            (entry.speed, entry.nodes) = (Some(Cpu(speed)), vec!["n1".into()]);
            entry.run = Some(run(name, 1, RunState::Running));
            entry.usable = Usable::expected(usable);
        }
        let share = |(id, _, cpu): &(&str, InstanceState, f64)| CpuShare { instance: (*id).into(), cpu: Cpu(*cpu), limit: None };
        let shares: Vec<CpuShare> = instances.iter().map(share).collect();
        state.seating.shares.handle_plan(&shares, &pool);
        let seen =
            |(id, state, _): &(&str, InstanceState, f64)| InstanceSeen { state: *state, ..InstanceSeen::example(id, "a", "n1") };
        let instances = instances.iter().map(seen).collect();
        let nodes = vec![NodeSeen { cpu_capacity: Cpu(measured), is_slice, ..NodeSeen::example(&pool.nodes[0]) }];
        state.engine.seen = Some(Arc::new(Observation { nodes, instances, ..Observation::default() }));
        state.job_limit(&"a-1".into()).map(|limit| Cpu((limit.0 * 100.0).round() / 100.0))
    }

    #[test]
    fn a_job_leaves_to_applications_what_they_are_to_have() {
        assert_eq!(limit(&[]), None, "nobody stands still with it");
        assert_eq!(limit(&[("web-1", InstanceState::Ready, 0.25)]), Some(Cpu(0.45)), "0.9 - 0.25 - 0.2");
        assert_eq!(limit(&[("web-1", InstanceState::Ready, 0.25), ("web-2", InstanceState::Ready, 0.3)]), Some(Cpu(0.3)));
        assert_eq!(limit(&[("web-1", InstanceState::Suspended, 0.25)]), None, "who sleeps waits for nothing");
    }

    #[test]
    fn a_job_has_no_more_quota_than_it_was_seen_to_use() {
        let beside = |usable: f64| limit_of_usable(Some(usable), true, 4.0, &[("web-1", InstanceState::Ready, 0.25)]);
        assert_eq!(beside(9.0), Some(Cpu(3.15)), "3.6 - 0.25 - 0.2");
        assert_eq!(beside(1.25), Some(Cpu(1.25)), "one thread, and a quarter more");
        assert_eq!(beside(0.2), Some(Cpu(0.3)), "what the plan gives it is its own");
    }

    #[test]
    fn a_whole_machine_has_no_quota_that_a_job_could_spend() {
        assert_eq!(limit_of(false, 1.0, &[("web-1", InstanceState::Ready, 0.25)]), None);
    }

    #[test]
    fn a_node_has_what_was_measured_and_not_what_the_config_says() {
        assert_eq!(limit_on(2.0, &[("web-1", InstanceState::Ready, 0.25)]), Some(Cpu(1.35)), "1.8 - 0.25 - 0.2");
    }
}
