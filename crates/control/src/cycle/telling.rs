//! What the gateway is told, and when.

use std::collections::BTreeMap;

use weal_model::{AppName, InstanceObservation};
use weal_protocol::Refusal;
use weal_protocol::gateway::Standby;

use super::effect::Effect;
use super::gateway;
use super::observe::{self, Known};
use super::peers::Telling;
use super::state::State;
use crate::flow::crowd;

impl State {
    /// Tells the gateway what it does not know yet. Before the first look at the instances there is nothing to say: an empty
    /// list would stop what runs.
    pub(super) fn push_gateway_config(&mut self) {
        let (Some(config), Some(seen)) = (&self.config, &self.engine.seen) else { return };
        let clusters = gateway::clusters(&gateway::Inputs {
            pool: &config.pool,
            gateway: &self.seating.gateway,
            instances: &seen.instances,
            draining: &self.operations.closed(),
            stopping: &self.operations.stopping(),
            seats: &self.seating.plan,
            shares: &self.seating.shares,
            seated: &self.seating.seated,
            standbys: &self.standbys(),
            broken: self.placing.starts.broken(),
        });
        match self.gateway.poll_config(clusters, &config.pool.clients) {
            Telling::Known(version) => {
                self.operations.handle_told(version);
                // It may have taken it although no answer came.
                self.clear_problem("gateway-config", "the gateway has its config");
            }
            Telling::Tell(config) => {
                self.operations.handle_told(config.version);
                self.push(Effect::ConfigureGateway(config));
            }
            Telling::UnderWay => {}
        }
    }

    pub(super) fn handle_gateway_told(&mut self, result: Result<u64, Refusal>) {
        match &result {
            Ok(_) => self.clear_problem("gateway-config", "the gateway has taken its config"),
            Err(error) => self.raise_problem("gateway-config", format!("the gateway did not take its config: {error}")),
        }
        let answered = result.is_ok();
        self.gateway.handle_told(result.ok());
        if answered {
            // What has changed while it was being told.
            self.push_gateway_config();
        }
    }

    /// Which instances a gateway may have woken when a crowd comes.
    fn standbys(&self) -> BTreeMap<AppName, Standby> {
        let (Some(pool), Some(seen), Some(snapshot)) = (self.pool(), &self.engine.seen, &self.measured.snapshot) else {
            return BTreeMap::new();
        };
        if !seen.instances.iter().any(|seen| seen.state.is_asleep()) {
            return BTreeMap::new();
        }
        let known = Known { closed: &self.operations.closed(), seats: &self.seating.plan, jobs: self.queue.planned() };
        let present = observe::present(snapshot, seen, &known);
        let is_free = |seen: &InstanceObservation| {
            !self.operations.contains_instance(&seen.id) && !self.sleep.resting.contains_key(&seen.app)
        };
        crowd::standbys(&present, &pool, is_free)
    }
}
