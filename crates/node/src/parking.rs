//! Upholding the reserves: parks instances that sleep with their memory while a node has too little free ([`crate::reserve`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weal_model::{Bytes, InstanceId, NodeName, parked_next};

use crate::agent::Agent;
use crate::instance::{Handle, Order};

/// How often memory is looked at. A purge takes about as long; an instance that grows by 100 MiB in it is met within the next.
const TICK: Duration = Duration::from_secs(1);
/// One that could not be parked is left alone for so long: what keeps it (full swap, a missing right) does not pass at once.
const LEFT_ALONE: Duration = Duration::from_secs(30);

impl Agent {
    /// Parks who sleeps with its memory where less is free than is to be. Never ends.
    pub async fn keep_reserves(self: Arc<Self>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut failed: BTreeMap<InstanceId, Instant> = BTreeMap::new();
        loop {
            tick.tick().await;
            failed.retain(|_, when| when.elapsed() < LEFT_ALONE);
            while let Some((handle, why)) = self.next_to_park(&failed.keys().cloned().collect()) {
                let spec = handle.view().record.spec;
                match handle.order(Order::Park(why)).await {
                    Ok(()) => self.reserves.note_parked(spec.node),
                    Err(_) => drop(failed.insert(spec.id, Instant::now())),
                }
            }
        }
    }

    /// The instance that is parked next, and why; `None` while every reserve stands or nothing more can be done for it.
    fn next_to_park(&self, passed_over: &BTreeSet<InstanceId>) -> Option<(Handle, String)> {
        let reserves = self.reserves.all();
        let all: Bytes = reserves.iter().map(|(_, memory)| *memory).sum();
        if all == Bytes(0) {
            return None;
        }
        // A kernel that does not say what is available leaves it to the nodes' capacity.
        let available = self.site.proc.memory().available.unwrap_or(Bytes(u64::MAX));
        for (node, memory) in reserves {
            let part = Bytes((available.0 as f64 * (memory.0 as f64 / all.0 as f64)) as u64);
            let Some(free) = self.unused(&node).map(|unused| unused.min(part)) else { continue };
            if free < memory
                && let Some(handle) = self.coldest(&node, passed_over)
            {
                return Some((handle, format!("the plan keeps {memory} free on `{node}`, which had {free}")));
            }
        }
        None
    }

    /// Who is parked next on `node`.
    fn coldest(&self, node: &NodeName, passed_over: &BTreeSet<InstanceId>) -> Option<Handle> {
        let handles = self.handles();
        let here = handles
            .into_iter()
            .map(|handle| (handle.clone(), handle.view()))
            .filter(|(_, view)| view.record.spec.node == *node && !passed_over.contains(&view.record.spec.id));
        parked_next(here.map(|(handle, view)| (handle, view.memory.state, view.memory.since)))
    }
}
