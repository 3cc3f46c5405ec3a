//! Crowds: more requests than those that are awake can answer, met at the gateway before a cycle is over.
//!
//! A flow cycle is 2 s, and a jump is told from an outlier only by the second one. A crowd of 1.4 times what an instance can do has its
//! requests wait for longer than any goal by then. So the controller says beforehand what is to be done ([`standbys`]): which sleeping
//! instances are where there is CPU and memory for them, and how long a request may wait before one of them is needed. The gateway
//! watches its queues ([`Watch`]) and has the node agent wake one, in milliseconds. The next plan says whether it stays awake.
//!
//! A wake for nothing costs little: what is woken had its CPU to spare, and may go back to sleep after [`CYCLES_AWAKE`]. So the sign
//! for a crowd is a plain one: a request has waited for a quarter of the time in which its goal wants it answered.

use std::collections::BTreeMap;
use std::time::Duration;

use weal_model::{AppName, AppSpec, InstanceId, InstanceObservation, NodeObservation, PoolSpec, Snapshot, Time};
use weal_protocol::gateway::Standby;

use crate::placement::SPARE_CPU;

/// A request that has waited for this part of its goal's time is a sign that those behind it will miss it: a crowd that is half as much again as
/// what there is shows within a quarter of a second, and what it has piled up by then is worked off in another. At half of the goal's time both
/// took twice as long (docs/benchmarks/al-qudah.md, figure 11).
const PART_OF_GOAL: f64 = 0.25;
/// A shorter wait says nothing: a pause of a garbage collector is as long.
const SHORTEST_WAIT_S: f64 = 0.02;
/// What was woken for a crowd stays awake for so many flow cycles: the second one tells a jump from an outlier, the third is whole.
pub const CYCLES_AWAKE: u32 = 3;
/// After a wake that failed: what stands in its way may take the controller to clear.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two looks at a queue: where requests always wait for nearly too long, each of them would be looked at otherwise. A tenth of the
/// shortest wait, so that nobody is late by much.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Whom gateways may have woken, by application. `may_wake` says of an instance that nothing else is about to be done with it.
pub fn standbys(
    snapshot: &Snapshot,
    pool: &PoolSpec,
    may_wake: impl Fn(&InstanceObservation) -> bool,
) -> BTreeMap<AppName, Standby> {
    if !pool.limits_seats() || !pool.enactment.sleeps() {
        return BTreeMap::new();
    }
    let spare: Vec<&NodeObservation> = snapshot.nodes.iter().filter(|node| has_spare_cpu(node, pool)).collect();
    let standby = |app: &AppSpec| {
        let after_s = patience_s(app, pool).filter(|_| !app.manual)?;
        let own = || snapshot.instances.iter().filter(|instance| instance.app == app.name);
        if own().filter(|instance| instance.state.is_active()).count() >= app.instances.max as usize {
            return None;
        }
        let fits = |instance: &InstanceObservation| {
            let node = spare.iter().find(|node| node.name == instance.node);
            node.is_some_and(|node| has_room(snapshot, pool, app, instance, node))
        };
        let sleepers = own().filter(|instance| instance.state.is_asleep() && may_wake(instance) && fits(instance));
        let instances: Vec<InstanceId> = sleepers.map(|instance| instance.id.clone()).collect();
        (!instances.is_empty()).then(|| (app.name.clone(), Standby { after_s, instances }))
    };
    pool.apps.values().filter_map(standby).collect()
}

/// How long a request of `app` may wait; `None` when no class of it has a goal for the time of an answer.
fn patience_s(app: &AppSpec, pool: &PoolSpec) -> Option<f64> {
    let goals = app.routes.iter().filter_map(|route| pool.classes.get(&route.class)?.goal?.target_s());
    goals.reduce(f64::min).map(|target_s| (PART_OF_GOAL * target_s).max(SHORTEST_WAIT_S))
}

fn has_spare_cpu(node: &NodeObservation, pool: &PoolSpec) -> bool {
    let spec = pool.nodes.iter().find(|spec| spec.name == node.name);
    let usable = spec.map_or(0.0, |spec| spec.usable_cpu(node.cpu_capacity).0);
    node.up && usable - node.cpu_used.0 >= SPARE_CPU * node.cpu_capacity.0
}

/// Whether `instance` of `app` can be awake on its node beside what is there.
fn has_room(snapshot: &Snapshot, pool: &PoolSpec, app: &AppSpec, instance: &InstanceObservation, node: &NodeObservation) -> bool {
    let here = || snapshot.instances.iter().filter(|other| other.node == node.name && other.id != instance.id);
    let held: u64 = here()
        .filter(|other| other.state.holds_memory())
        .filter_map(|other| pool.apps.get(&other.app).map(|app| app.memory.0))
        .sum();
    let is_apart = |other: &InstanceObservation| {
        app.apart.contains(&other.app) || pool.apps.get(&other.app).is_some_and(|other| other.apart.contains(&app.name))
    };
    let awake = || here().filter(|other| other.state.is_active());
    let beside = awake().filter(|other| other.app == app.name).count();
    held.saturating_add(app.memory.0) <= node.memory_capacity.0 && beside < app.per_node as usize && !awake().any(is_apart)
}

/// What one gateway knows of one cluster's [`Standby`], and whether it is time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Watch {
    standby: Option<Standby>,
    /// Not before: somebody was woken just now, or could not be.
    not_before: Time,
}

impl Watch {
    /// Works by `standby` from now on; `None`: nobody is to be woken for a crowd.
    pub fn configure(&mut self, standby: Option<&Standby>) {
        self.standby = standby.cloned();
    }

    /// Those of whom one is needed now, by how long the oldest request has waited, which is asked only when somebody stands by.
    pub fn poll(&self, now: Time, oldest_wait: impl FnOnce() -> Duration) -> Option<&[InstanceId]> {
        let standby = self.standby()?;
        let is_late = now >= self.not_before && oldest_wait().as_secs_f64() >= standby.after_s;
        is_late.then_some(&standby.instances)
    }

    /// When [`Watch::poll`] is to be asked although no request has come or ended, if those who wait now still wait then: when the first of them
    /// has waited for twice as long as is late. As soon as it is late would be too early: a few that come together by chance are mostly gone at
    /// the next end, and every now and then one would be woken for them. `None` when nobody stands by.
    pub fn poll_timeout(&self, now: Time, oldest_wait: impl FnOnce() -> Duration) -> Option<Time> {
        let after = Duration::try_from_secs_f64(2.0 * self.standby()?.after_s).unwrap_or(Duration::MAX);
        let is_late = now + after.saturating_sub(oldest_wait());
        Some(is_late.max(self.not_before).max(now + BETWEEN_LOOKS))
    }

    fn standby(&self) -> Option<&Standby> {
        self.standby.as_ref().filter(|standby| !standby.instances.is_empty())
    }

    /// It is awake. The next one has to wait for twice as long as a request does until it has had time to show what it can do.
    pub fn handle_woken(&mut self, now: Time, instance: &InstanceId) {
        let Some(standby) = &mut self.standby else { return };
        standby.instances.retain(|other| other != instance);
        self.not_before = now + Duration::try_from_secs_f64(2.0 * standby.after_s).unwrap_or(Duration::MAX);
    }

    /// None of them could be woken.
    pub fn handle_failure(&mut self, now: Time) {
        self.not_before = now + PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use weal_model::InstanceState::{Parked, Ready, Starting, Suspended};
    use weal_model::{Bytes, Cpu, Enactment, Goal, Importance, InstanceState, RouteSpec, ServiceClass};

    use super::*;
    use crate::placement::fixtures::{app, pool, snapshot};

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    fn waits(ms: u64) -> impl FnOnce() -> Duration {
        move || Duration::from_millis(ms)
    }

    #[test]
    fn one_is_woken_when_a_request_has_waited_for_too_long_and_the_next_when_that_was_not_enough() {
        let mut watch = Watch::default();
        assert_eq!(watch.poll(at(0), waits(9000)), None, "nobody stands by");
        watch.configure(Some(&Standby { after_s: 0.1, instances: vec!["a-2".into(), "a-3".into()] }));
        assert_eq!(watch.poll(at(0), waits(99)), None);
        assert_eq!(watch.poll(at(0), waits(100)).map(<[_]>::len), Some(2));
        watch.handle_woken(at(10), &"a-2".into());
        assert_eq!(watch.poll(at(209), waits(300)), None, "it has not had time yet");
        assert_eq!(watch.poll(at(210), waits(300)), Some(&["a-3".into()][..]));
        watch.handle_failure(at(210));
        assert_eq!((watch.poll(at(1209), waits(300)), watch.poll(at(1210), waits(300)).is_some()), (None, true));
        watch.configure(None);
        assert_eq!(watch.poll(at(5000), waits(9000)), None);
    }

    #[test]
    fn a_queue_in_which_nothing_moves_is_looked_at_again() {
        let mut watch = Watch::default();
        assert_eq!(watch.poll_timeout(at(0), waits(50)), None, "nobody stands by");
        watch.configure(Some(&Standby { after_s: 0.1, instances: vec!["a-2".into(), "a-3".into()] }));
        assert_eq!(watch.poll_timeout(at(1000), waits(0)), Some(at(1200)));
        assert_eq!(watch.poll_timeout(at(1000), waits(160)), Some(at(1040)));
        assert_eq!(watch.poll_timeout(at(1000), waits(199)), Some(at(1002)), "not for each request that is nearly late");
        watch.handle_woken(at(1000), &"a-2".into());
        assert_eq!(watch.poll_timeout(at(1010), waits(170)), Some(at(1200)), "it has not had time yet");
        assert_eq!(watch.poll_timeout(at(1150), waits(0)), Some(at(1350)));
        watch.handle_woken(at(1250), &"a-3".into());
        assert_eq!(watch.poll_timeout(at(1500), waits(300)), None, "nobody is left");
    }

    /// `a` with a goal of 200 ms, and `b` without, on two nodes of two cores.
    fn two() -> PoolSpec {
        let route = |class: &str| RouteSpec::any(class.into());
        let goal = |target_s| Some(Goal::Mean { target_s });
        let (mut a, b) = (app("a", 400, 1, 2), app("b", 700, 1, 2));
        a.routes = vec![route("gold"), route("basic")];
        let mut pool = pool(2, vec![a, b]);
        for (name, goal) in [("gold", goal(0.2)), ("basic", None)] {
            let class = ServiceClass::new(name.into(), goal, Importance::NORMAL);
            pool.classes.insert(class.name.clone(), class);
        }
        pool
    }

    fn named(pool: &PoolSpec, instances: &[(&str, usize, InstanceState)]) -> Option<(f64, usize)> {
        let found = standbys(&snapshot(pool, instances), pool, |_| true);
        assert!(found.keys().all(|app| app.as_str() == "a"));
        found.get("a").map(|standby| (standby.after_s, standby.instances.len()))
    }

    #[test]
    fn only_who_sleeps_where_there_is_cpu_and_memory_may_be_woken() {
        let pool = two();
        let quarter = Some((0.05, 1));
        assert_eq!(named(&pool, &[("a-1", 0, Ready), ("a-2", 1, Suspended)]), quarter);
        assert_eq!(named(&pool, &[("a-1", 0, Ready), ("a-2", 1, Parked), ("b-1", 0, Parked)]), quarter);
        assert_eq!(named(&pool, &[("a-1", 0, Ready), ("a-2", 1, Parked), ("b-1", 1, Ready)]), None, "memory");
        assert_eq!(named(&pool, &[("a-1", 0, Ready), ("a-2", 0, Parked)]), None, "one per node");
        assert_eq!(named(&pool, &[("a-1", 0, Ready), ("a-3", 1, Starting), ("a-2", 1, Parked)]), None, "as many as may be");
        let mut busy = snapshot(&pool, &[("a-1", 0, Ready), ("a-2", 1, Parked)]);
        busy.nodes[1].cpu_used = Cpu(1.6);
        assert!(standbys(&busy, &pool, |_| true).is_empty(), "CPU");
        busy.nodes[1].cpu_used = Cpu(1.4);
        assert_eq!(standbys(&busy, &pool, |_| true).len(), 1);
        assert!(standbys(&busy, &pool, |seen| seen.id.as_str() != "a-2").is_empty(), "something else is done with it");
    }

    #[test]
    fn nobody_is_woken_against_what_was_said() {
        let instances = [("a-1", 0, Ready), ("a-2", 1, Suspended)];
        let forbid: [fn(&mut PoolSpec); 5] = [
            |pool| pool.control = false,
            |pool| pool.enactment = Enactment::RunEverywhere,
            |pool| pool.apps.get_mut("a").unwrap().manual = true,
            |pool| pool.classes.get_mut("gold").unwrap().goal = None,
            |pool| pool.nodes[1].utilization_limit = 0.2,
        ];
        assert!(named(&two(), &instances).is_some());
        for forbid in forbid {
            let mut pool = two();
            forbid(&mut pool);
            assert_eq!(named(&pool, &instances), None);
        }
        let mut apart = two();
        apart.apps.get_mut("b").unwrap().apart.insert("a".into());
        apart.apps.get_mut("b").unwrap().memory = Bytes::mib(1);
        let beside = [("a-1", 0, Ready), ("a-2", 1, Suspended), ("b-1", 1, Ready)];
        assert_eq!(named(&apart, &beside), None);
    }
}
