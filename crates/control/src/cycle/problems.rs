//! What is wrong with weal itself, by what it concerns.

use std::collections::BTreeMap;

/// The problems that last.
#[derive(Debug, Default)]
pub(super) struct Problems(BTreeMap<&'static str, String>);

impl Problems {
    /// `what` has a problem. True when it had none before.
    pub fn raise(&mut self, what: &'static str, text: String) -> bool {
        self.0.insert(what, text).is_none()
    }

    /// `what` is well. True when it had a problem.
    pub fn clear(&mut self, what: &'static str) -> bool {
        self.0.remove(what).is_some()
    }

    /// One sentence each.
    pub fn texts(&self) -> Vec<String> {
        self.0.values().cloned().collect()
    }
}

/// Each problem is about a call that was not answered. What it asked for may have been done all the same, or be wanted no more: then nothing is
/// left to be called, and no success could tell that all is well.
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use weal_model::{Bytes, Cpu, CpuShare, InstanceState, NodeReserve, Time};
    use weal_protocol::engine::{InstanceSeen, NodeSeen, Observation};
    use weal_protocol::gateway::GatewayCounters;
    use weal_protocol::{Capabilities, Refusal};

    use super::super::effect::{Config, Effect, Start};
    use super::super::state::State;
    use crate::jobs::Costs;
    use crate::placement::fixtures::{app, pool};

    const UNANSWERED: Refusal = Refusal::TimedOut { seconds: 10.0 };

    /// A controller whose engine has all nodes of the config, and one instance that runs.
    fn state() -> State {
        let pool = Arc::new(pool(1, vec![app("web", 100, 1, 3)]));
        let config = Config { generation: 1, pool: Arc::clone(&pool), revisions: BTreeMap::new() };
        let mut state = State::new(Time::ZERO, Start::first("gw".into(), Some(config), Costs::THESIS));
        let instance =
            InstanceSeen { state: InstanceState::Ready, ..InstanceSeen::example("web-1", "web", pool.nodes[0].name.as_str()) };
        let seen = Observation {
            capabilities: Capabilities::all("simulated"),
            nodes: pool.nodes.iter().map(NodeSeen::example).collect(),
            instances: vec![instance],
            ..Observation::default()
        };
        state.engine.handle_seen(Time::ZERO, seen);
        state.engine.has_forgotten = false;
        state
    }

    fn change_seen(state: &mut State, change: impl FnOnce(&mut Observation)) {
        let mut seen = Observation::clone(state.engine.seen.as_ref().unwrap());
        change(&mut seen);
        state.engine.seen = Some(Arc::new(seen));
    }

    fn problems(state: &State) -> usize {
        state.problems.texts().len()
    }

    /// Lets the instance have so much CPU, and tells what the engine is told of it.
    fn share(state: &mut State, cpu: f64) -> Option<Vec<CpuShare>> {
        let pool = state.pool().unwrap();
        let id = state.engine.instances()[0].id.clone();
        state.seating.shares.handle_plan(&[], &pool);
        state.seating.shares.handle_plan(&[CpuShare { instance: id, cpu: Cpu(cpu), limit: None }], &pool);
        state.push_cpu_shares();
        state.outbox.drain(..).find_map(|effect| match effect {
            Effect::SetCpuShares(told) => Some(told),
            _ => None,
        })
    }

    #[test]
    fn shares_that_may_have_been_set_are_set_again_also_to_what_they_were_before() {
        let mut state = state();
        assert!(share(&mut state, 0.3).is_some());
        state.handle_cpu_shares_set(Ok(()));
        assert!(share(&mut state, 0.6).is_some());
        state.handle_cpu_shares_set(Err(UNANSWERED));
        assert_eq!(problems(&state), 1);
        assert_eq!(share(&mut state, 0.3).expect("0.6 may be in force")[0].cpu, Cpu(0.3));
        state.handle_cpu_shares_set(Ok(()));
        assert_eq!(problems(&state), 0);
    }

    #[test]
    fn the_share_of_an_instance_that_is_gone_waits_for_nothing() {
        let mut state = state();
        share(&mut state, 0.3).unwrap();
        state.handle_cpu_shares_set(Err(UNANSWERED));
        change_seen(&mut state, |seen| seen.instances[0].is_running = false);
        state.push_cpu_shares();
        assert_eq!(problems(&state), 0);
    }

    #[test]
    fn nodes_that_were_set_up_without_an_answer_are_no_problem() {
        let mut state = state();
        change_seen(&mut state, |seen| seen.nodes[0].memory_capacity = Bytes::mib(7));
        assert!(state.configure_nodes(Time::ZERO), "they differ");
        state.handle_nodes_configured(Time::ZERO, Err(UNANSWERED));
        assert_eq!(problems(&state), 1);
        let memory = state.pool().unwrap().nodes[0].memory;
        change_seen(&mut state, |seen| seen.nodes[0].memory_capacity = memory);
        assert!(!state.configure_nodes(Time::ZERO));
        assert_eq!(problems(&state), 0);
    }

    #[test]
    fn memory_that_is_kept_free_without_an_answer_is_no_problem() {
        let mut state = state();
        let pool = state.pool().unwrap();
        let reserve = NodeReserve { node: pool.nodes[0].name.clone(), memory: Bytes::mib(9) };
        state.placing.plan.reserves = vec![reserve];
        state.push_reserves(&pool);
        state.handle_reserves_set(Err(UNANSWERED));
        assert_eq!(problems(&state), 1);
        change_seen(&mut state, |seen| seen.nodes[0].memory_reserve = Bytes::mib(9));
        state.push_reserves(&pool);
        assert_eq!(problems(&state), 0);
    }

    #[test]
    fn a_gateway_that_works_by_its_config_without_an_answer_is_no_problem() {
        let mut state = state();
        state.push_gateway_config();
        let told = state.outbox.drain(..).find_map(|effect| match effect {
            Effect::ConfigureGateway(config) => Some(config.version),
            _ => None,
        });
        state.handle_gateway_told(Err(UNANSWERED));
        assert_eq!(problems(&state), 1);
        let counters = GatewayCounters { version: told.unwrap(), ..GatewayCounters::none("gw".into(), Time::ZERO, Time::ZERO) };
        state.gateway.handle_counters(Some(counters));
        state.push_gateway_config();
        assert_eq!(problems(&state), 0);
    }
}
