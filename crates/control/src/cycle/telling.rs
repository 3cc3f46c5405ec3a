//! What the gateway is told, and when.

use std::collections::BTreeMap;
use std::sync::Arc;

use weal_model::{AppName, AppSpec, InstanceObservation};
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
            loads: &self.seating.loads,
            seated: &self.seating.seated,
            standbys: &self.standbys(),
            broken: self.placing.starts.broken(),
        });
        match self.gateway.poll_config(clusters, &config.pool.clients) {
            Telling::Known(version) => self.operations.handle_told(version),
            Telling::Tell(config) => {
                self.operations.handle_told(config.version);
                self.push(Effect::ConfigureGateway(config));
            }
            Telling::UnderWay => {}
        }
    }

    /// Takes over where the gateway listens for calls between applications. An instance that was told another address is replaced.
    pub(super) fn follow_inner_addresses(&mut self) {
        let (Some(config), Some(inner)) = (&mut self.config, &self.gateway.inner) else { return };
        let is_known = |app: &AppSpec| app.inner == inner.get(&app.name).copied();
        if config.pool.apps.values().all(is_known) {
            return;
        }
        for app in Arc::make_mut(&mut config.pool).apps.values_mut() {
            app.inner = inner.get(&app.name).copied();
        }
    }

    pub(super) fn handle_gateway_told(&mut self, result: Result<u64, Refusal>) {
        match &result {
            Ok(_) => self.clear_problem("gateway", "the gateway answers again"),
            Err(error) => self.raise_problem("gateway", format!("the gateway did not take its config: {error}")),
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
        let known = Known { closed: &self.operations.closed(), seats: &self.seating.plan };
        let present = observe::present(snapshot, seen, &known);
        let is_free = |seen: &InstanceObservation| {
            !self.operations.contains_instance(&seen.id) && !self.sleep.resting.contains_key(&seen.app)
        };
        crowd::standbys(&present, &pool, is_free)
    }
}
