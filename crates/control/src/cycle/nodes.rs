//! The engine's nodes, which are to be those of the config.

use std::sync::Arc;

use weal_model::Time;
use weal_protocol::{NodeOrigin, Refusal};

use super::effect::Effect;
use super::state::State;

impl State {
    /// Makes the engine's nodes those of the config. True when that is under way: what runs is to be looked at afterwards.
    pub(super) fn configure_nodes(&mut self, now: Time) -> bool {
        let Some(pool) = self.config.as_ref().map(|config| Arc::clone(&config.pool)) else { return false };
        let capabilities = self.engine.capabilities();
        let are_ours = capabilities.is_some_and(|can| can.nodes == NodeOrigin::Configured);
        if self.engine.configuring {
            return true;
        }
        let must = are_ours && (self.engine.nodes_differ(&pool) || self.engine.has_forgotten);
        if !must {
            // They may have been set up although no answer came.
            self.clear_problem("nodes", &format!("{} has the nodes of the config", self.engine.peer));
            return false;
        }
        if now < self.engine.retry_nodes {
            return false;
        }
        self.engine.configuring = true;
        self.push(Effect::ConfigureNodes(pool.nodes.clone()));
        true
    }

    pub(super) fn handle_nodes_configured(&mut self, now: Time, result: Result<(), Refusal>) {
        self.engine.configuring = false;
        match result {
            Ok(()) => {
                self.clear_problem("nodes", &format!("{} has set up the nodes", self.engine.peer));
                if std::mem::take(&mut self.engine.has_forgotten) {
                    self.seating.shares.handle_forgotten();
                }
            }
            Err(error) => self.raise_problem("nodes", format!("{} cannot set up the nodes: {error}", self.engine.peer)),
        }
        // The next cycle tries again what did not help.
        self.engine.retry_nodes = now + self.timers.flow_cycle();
        self.engine.look.want();
    }
}
