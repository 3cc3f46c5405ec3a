//! The reserve: memory that is kept free on a node for the next instance that starts, wakes or grows there.
//!
//! The placement controller decides how much and hands it over with its plans; between two plans the agent upholds it, because memory runs
//! short faster than plans come. With
//!
//! - `R` the reserve of a node, `C` its capacity, `U` what its instances use,
//! - `A` what the machine has available, of which each node has the part `R / sum of all R`,
//!
//! a node has `F = min(C - U, A R / sum R)` free, and while `F < R` it parks instances that sleep with their memory, one after the other,
//! those first that have been on their rung the longest (al-Qudah section 3: paged out in bulk, ahead of need).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weal_model::{Bytes, InstanceId, NodeName, Rung};
use weal_protocol::node::NodeReserve;

use crate::agent::Agent;
use crate::files::write_json;
use crate::instance::{Handle, Order};

/// The reserves, as last handed over.
pub const RESERVES_FILE: &str = "reserves.json";
/// How often memory is looked at. A purge takes about as long; an instance that grows by 100 MiB in it is met within the next.
const TICK: Duration = Duration::from_secs(1);
/// One that could not be parked is left alone for so long: what keeps it (full swap, a missing right) does not pass at once.
const LEFT_ALONE: Duration = Duration::from_secs(30);

/// What a node keeps free, and what that has led to.
#[derive(Debug, Default, Clone, Copy)]
pub struct Reserve {
    /// What is to be free.
    pub memory: Bytes,
    /// Instances that were parked for it since the agent started.
    pub parked: u64,
}

impl Agent {
    /// Takes the reserves over; a node that is not named keeps nothing free.
    pub(crate) fn set_reserves(&self, wanted: &[NodeReserve]) -> std::io::Result<()> {
        let mut reserves = self.reserves.lock().expect("nothing panics while it is held");
        let before = reserves.clone();
        reserves.values_mut().for_each(|reserve| reserve.memory = Bytes(0));
        for NodeReserve { node, memory } in wanted {
            reserves.entry(node.clone()).or_default().memory = *memory;
        }
        let is_as_before = |(node, reserve): (&NodeName, &Reserve)| before.get(node).map(|b| b.memory) == Some(reserve.memory);
        if reserves.iter().all(is_as_before) { Ok(()) } else { write_json(&self.dir.join(RESERVES_FILE), &wanted) }
    }

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
                    Ok(()) => {
                        let mut reserves = self.reserves.lock().expect("nothing panics while it is held");
                        reserves.entry(spec.node).or_default().parked += 1;
                    }
                    Err(_) => drop(failed.insert(spec.id, Instant::now())),
                }
            }
        }
    }

    /// The instance that is parked next, and why; `None` while every reserve stands or nothing more can be done for it.
    fn next_to_park(&self, passed_over: &BTreeSet<InstanceId>) -> Option<(Handle, String)> {
        let reserves = self.reserves.lock().expect("nothing panics while it is held").clone();
        let all: Bytes = reserves.values().map(|reserve| reserve.memory).sum();
        if all == Bytes(0) {
            return None;
        }
        // A kernel that does not say what is available leaves it to the nodes' capacity.
        let available = self.site.proc.memory().available.unwrap_or(Bytes(u64::MAX));
        for (node, &Reserve { memory, .. }) in reserves.iter().filter(|(_, reserve)| reserve.memory > Bytes(0)) {
            let part = Bytes((available.0 as f64 * (memory.0 as f64 / all.0 as f64)) as u64);
            let Some(free) = self.unused(node).map(|unused| unused.min(part)) else { continue };
            if free < memory
                && let Some(handle) = self.coldest(node, passed_over)
            {
                return Some((handle, format!("`{node}` is to have {memory} free and had {free}")));
            }
        }
        None
    }

    /// Of those on `node` that sleep with their memory, the one that has been on its rung the longest.
    fn coldest(&self, node: &NodeName, passed_over: &BTreeSet<InstanceId>) -> Option<Handle> {
        let holds_memory = |(_, view): &(Handle, crate::instance::View)| {
            view.memory.state.rung().is_some_and(|rung| rung < Rung::Parked)
                && view.record.spec.node == *node
                && !passed_over.contains(&view.record.spec.id)
        };
        let sleepers = self.handles().into_iter().map(|handle| (handle.clone(), handle.view())).filter(holds_memory);
        sleepers.min_by_key(|(_, view)| view.memory.since).map(|(handle, _)| handle)
    }
}
