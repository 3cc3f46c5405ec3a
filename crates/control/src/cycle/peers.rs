//! The engine and the gateway as the loop knows them: what they said last, what they were told, and whether they answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weal_model::{AppName, ClientPolicy, InstanceId, PoolSpec, Time};
use weal_protocol::engine::{InstanceSeen, NodeSeen, Observation};
use weal_protocol::gateway::{ClusterConfig, EndpointCounters, GatewayConfig, GatewayCounters};
use weal_protocol::{Capabilities, Refusal};

/// A peer that has left a call unanswered for so long is treated as away until it answers: both answer from memory and from a few
/// hundred small files. Shorter, and a busy machine looks stuck; longer, and orders wait for nobody.
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// The calls that ask a peer how things are: at most one is under way. Each look has a number, so that whoever needs one that was begun
/// after a certain moment can wait for it.
#[derive(Debug, Default)]
pub(super) struct Look {
    begun: u64,
    ended: u64,
    wanted: u64,
    /// When the one under way began.
    since: Option<Time>,
}

/// The number of a look that somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

impl Look {
    /// Wants a look that begins from now on.
    pub fn want(&mut self) -> Ticket {
        self.wanted = self.begun + 1;
        Ticket(self.wanted)
    }

    /// True when a call must be made now, which this counts as begun.
    pub fn poll(&mut self, now: Time) -> bool {
        let begins = self.since.is_none() && self.wanted > self.begun;
        if begins {
            self.begun += 1;
            self.since = Some(now);
        }
        begins
    }

    /// The call under way has ended, with an answer or without.
    pub fn handle_end(&mut self) {
        self.since = None;
        self.ended = self.begun;
    }

    /// Whether the look that `ticket` waits for has ended.
    pub fn has_ended(&self, ticket: Ticket) -> bool {
        self.ended >= ticket.0
    }

    /// How long the call under way has been unanswered, if that is too long.
    pub fn stuck_for(&self, now: Time) -> Option<Duration> {
        self.since.map(|since| now.since(since)).filter(|span| *span >= STUCK_AFTER)
    }
}

/// The engine.
#[derive(Debug, Default)]
pub(super) struct Engine {
    /// Who carries actions out, as sentences name it.
    pub peer: String,
    pub look: Look,
    /// What it said last.
    pub seen: Option<Arc<Observation>>,
    /// The last call was answered.
    pub is_up: bool,
    /// When the last answer came, by the loop's clock.
    heard: Time,
    /// Its nodes are being set up.
    pub configuring: bool,
    /// It forgot what it was told, and its nodes have not been set up since.
    pub has_forgotten: bool,
    /// Its nodes are not tried again before, because it could not set them up.
    pub retry_nodes: Time,
    /// CPU is being divided.
    pub setting_cpu_shares: Option<Vec<weal_model::CpuShare>>,
    /// Memory is being reserved.
    pub setting_reserves: bool,
}

impl Engine {
    /// One that has said nothing yet.
    pub fn new(peer: String) -> Self {
        Self { peer, ..Self::default() }
    }

    /// Takes what it says. True when it has begun anew since its last answer.
    pub fn handle_seen(&mut self, now: Time, seen: Observation) -> bool {
        let began_anew = self.seen.as_ref().is_none_or(|before| before.began != seen.began);
        self.has_forgotten |= began_anew;
        self.seen = Some(Arc::new(seen));
        (self.is_up, self.heard) = (true, now);
        began_anew
    }

    /// The instances that it has.
    pub fn instances(&self) -> &[InstanceSeen] {
        self.seen.as_ref().map_or(&[], |seen| &seen.instances)
    }

    /// The nodes that it has.
    pub fn nodes(&self) -> &[NodeSeen] {
        self.seen.as_ref().map_or(&[], |seen| &seen.nodes)
    }

    /// One of its instances.
    pub fn instance(&self, id: &InstanceId) -> Option<&InstanceSeen> {
        self.instances().iter().find(|seen| seen.id == *id)
    }

    /// What can be done there.
    pub fn capabilities(&self) -> Option<&Capabilities> {
        self.seen.as_ref().map(|seen| &seen.capabilities)
    }

    /// What its clock shows now: clocks of two machines differ, and each may be set.
    pub fn its_time(&self, now: Time) -> Time {
        self.seen.as_ref().map_or(now, |seen| seen.time + now.since(self.heard))
    }

    /// Why nothing can be asked of it now, if so.
    pub fn away(&self, now: Time) -> Option<Refusal> {
        let away = |detail| Refusal::Away { peer: self.peer.clone(), detail };
        if let Some(span) = self.look.stuck_for(now) {
            return Some(away(format!("a call has been unanswered for {:.1} s", span.as_secs_f64())));
        }
        (!self.is_up).then(|| away("the last call failed".to_owned()))
    }

    /// Whether its nodes are other than `pool` says.
    pub fn nodes_differ(&self, pool: &PoolSpec) -> bool {
        let seen = self.nodes();
        let same = |node: &weal_model::NodeSpec| {
            seen.iter().any(|seen| seen.name == node.name && seen.memory_capacity == node.memory && seen.cpu_capacity == node.cpu)
        };
        pool.nodes.len() != seen.len() || !pool.nodes.iter().all(same)
    }
}

/// The gateway.
#[derive(Debug, Default)]
pub(super) struct Gateway {
    pub look: Look,
    /// Its counters, while it answers.
    pub counters: Option<Arc<GatewayCounters>>,
    /// What it was told last, whether or not it answered.
    told: Option<GatewayConfig>,
    /// The version that it has, as far as is known.
    in_force: u64,
    /// Where it listens for calls to each application, as it said last; `None` before it has said anything.
    pub inner: Option<BTreeMap<AppName, SocketAddr>>,
    /// The look that says where calls go which the config in force needs anew.
    asked_where_calls_go: Option<Ticket>,
    /// It is being told, and has not answered yet.
    telling: bool,
}

impl Gateway {
    /// Takes its counters; `None` when it did not answer.
    pub fn handle_counters(&mut self, counters: Option<GatewayCounters>) {
        self.look.handle_end();
        if let Some(counters) = &counters {
            self.in_force = counters.version;
            // One that has just begun may not have its sockets yet: its addresses stay, and nobody is replaced for them.
            if self.inner.is_none() || !counters.inner_addresses.is_empty() {
                self.inner = Some(counters.inner_addresses.clone());
            }
        }
        self.counters = counters.map(Arc::new);
    }

    /// Applications need these: asks where calls to them go, if it has not said so of all of them. Its sockets were opened before the config came.
    pub fn ask_where_calls_go<'a>(&mut self, mut needed: impl Iterator<Item = &'a AppName>) {
        let inner = self.inner.as_ref();
        if needed.any(|app| inner.is_none_or(|inner| !inner.contains_key(app))) {
            self.asked_where_calls_go = Some(self.look.want());
        }
    }

    /// True once for each time that it was asked and has had its say.
    pub fn take_said_where_calls_go(&mut self) -> bool {
        self.asked_where_calls_go.take_if(|ticket| self.look.has_ended(*ticket)).is_some()
    }

    /// Whether it has said where calls to `needed` go, or was asked and did not.
    pub fn has_said_where_calls_go(&self, needed: &AppName) -> bool {
        self.inner.as_ref().is_some_and(|inner| self.asked_where_calls_go.is_none() || inner.contains_key(needed))
    }

    /// Its counters as far as they can be believed now: a stuck gateway says nothing.
    pub fn fresh_counters(&self, now: Time) -> Option<Arc<GatewayCounters>> {
        self.counters.clone().filter(|_| self.look.stuck_for(now).is_none())
    }

    /// What it counts of an instance.
    pub fn counters_of<'a>(counters: &'a GatewayCounters, instance: &InstanceId) -> Option<&'a EndpointCounters> {
        counters.instances.iter().find(|seen| seen.instance == *instance)
    }

    /// Whether it was told that it may have this instance woken.
    pub fn may_have_woken(&self, instance: &InstanceId) -> bool {
        let clusters = self.told.iter().flat_map(|told| &told.clusters);
        clusters.filter_map(|cluster| cluster.standby.as_ref()).any(|standby| standby.instances.contains(instance))
    }

    /// What it must be told so that it works by `clusters` and `clients`; `None` while it is being told something, or when it knows. With the second,
    /// the version that has it.
    pub fn poll_config(&mut self, clusters: Vec<ClusterConfig>, clients: &ClientPolicy) -> Telling {
        if self.telling {
            return Telling::UnderWay;
        }
        if let Some(told) = &self.told
            && told.version == self.in_force
            && told.clusters == clusters
            && told.clients == *clients
        {
            return Telling::Known(told.version);
        }
        let told_version = self.told.as_ref().map_or(0, |told| told.version);
        let config = GatewayConfig { version: told_version.max(self.in_force) + 1, clusters, clients: clients.clone() };
        self.told = Some(config.clone());
        self.telling = true;
        Telling::Tell(config)
    }

    /// It has answered what it was told; `None` when it has not.
    pub fn handle_told(&mut self, version: Option<u64>) {
        self.telling = false;
        if let Some(version) = version {
            self.in_force = version;
        }
    }
}

/// What becomes of what the gateway shall know.
#[derive(Debug)]
pub(super) enum Telling {
    /// It knows, by the config of this version.
    Known(u64),
    /// It must be told.
    Tell(GatewayConfig),
    /// It is being told something else: ask again afterwards.
    UnderWay,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn one_look_is_under_way_and_a_later_wish_waits_for_the_next_one() {
        let mut look = Look::default();
        let first = look.want();
        assert!(look.poll(at(0.0)) && !look.poll(at(0.0)));
        let second = look.want();
        assert!(!look.poll(at(0.1)), "one is under way");
        look.handle_end();
        assert!(look.has_ended(first) && !look.has_ended(second), "the first began before the second wish");
        assert!(look.poll(at(0.2)));
        look.handle_end();
        assert!(look.has_ended(second));
        assert!(!look.poll(at(0.3)), "nobody wants another");
    }

    #[test]
    fn a_peer_that_leaves_a_call_unanswered_is_stuck_until_it_answers() {
        let mut engine = Engine { is_up: true, ..Engine::default() };
        engine.look.want();
        engine.look.poll(at(1.0));
        assert_eq!(engine.away(at(1.4)), None);
        assert!(engine.away(at(2.2)).unwrap().to_string().contains("1.2 s"));
        engine.look.handle_end();
        assert_eq!(engine.away(at(2.2)), None);
    }

    #[test]
    fn the_time_there_goes_on_from_the_last_answer() {
        let mut engine = Engine::default();
        engine.handle_seen(at(10.0), Observation { time: at(5.0), ..Observation::default() });
        assert_eq!(engine.its_time(at(12.0)), at(7.0));
    }
}
