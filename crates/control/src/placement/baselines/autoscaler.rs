//! How many instances a cooldown autoscaler would run, for comparison: Kubernetes' HorizontalPodAutoscaler with its published
//! algorithm and defaults (Kubernetes documentation, "Horizontal Pod Autoscaling", "Algorithm details").
//!
//! At each sync, for each application with requests of its own:
//!
//! - the ratio is mean CPU used per ready instance / (what one requests x target utilisation);
//! - a ratio within 10% of 1 changes nothing, any other asks for `ceil(ratio x instances)`;
//! - instances that are not ready count as using nothing when the ratio asks for more, and if that brings it to 1 or below,
//!   nothing changes;
//! - one sync at most doubles the instances or adds four, whichever is more;
//! - the most that was asked for in the last five minutes counts, so that going down waits and going up does not.
//!
//! Kubernetes needs to be told what an instance requests, which a `weal.toml` does not say: it is the greatest amount at which
//! all applications at their most instances fit the pool together.

use std::collections::{BTreeMap, VecDeque};

use weal_model::{AppName, AppSpec, Cpu, InstanceState, PoolSpec, Snapshot, Time};

/// How it scales. The defaults are Kubernetes' own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The share of what an instance requests that it is to use on average (the `autoscaling/v1` default).
    pub target: f64,
    /// A ratio so close to 1 changes nothing (`--horizontal-pod-autoscaler-tolerance`).
    pub tolerance: f64,
    /// Seconds between two decisions (`--horizontal-pod-autoscaler-sync-period`).
    pub sync_s: f64,
    /// Seconds for which the most that was asked for counts (`--horizontal-pod-autoscaler-downscale-stabilization`).
    pub down_window_s: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { target: 0.8, tolerance: 0.1, sync_s: 15.0, down_window_s: 300.0 }
    }
}

impl Settings {
    /// All times divided by `speed`, for load that is compressed as much.
    pub fn sped_up(self, speed: f64) -> Self {
        Self { sync_s: self.sync_s / speed, down_window_s: self.down_window_s / speed, ..self }
    }
}

/// The autoscaler's memory, from snapshot to snapshot.
#[derive(Debug, Default)]
pub struct Autoscaler {
    apps: BTreeMap<AppName, Scaled>,
    synced: Option<Time>,
}

/// One application.
#[derive(Debug, Default)]
struct Scaled {
    /// CPU-seconds that ready instances used since the last sync.
    used: f64,
    /// Seconds for which they were ready, summed over them.
    ready_s: f64,
    /// What was asked for, in order of time. Invariant: none older than the window but for the last sync's.
    asked: VecDeque<(Time, u32)>,
    replicas: u32,
}

impl Autoscaler {
    /// Takes one flow cycle's measurements, and decides when a sync is due. Syncs are no more frequent than snapshots.
    pub fn handle_snapshot(&mut self, snapshot: &Snapshot, pool: &PoolSpec) {
        let settings = Settings::default().sped_up(pool.autoscaler_speed);
        self.apps.retain(|name, _| pool.apps.contains_key(name));
        for spec in pool.apps.values().filter(|spec| !spec.routes.is_empty() && !spec.manual) {
            self.apps.entry(spec.name.clone()).or_default().measure(snapshot, spec);
        }
        let due = self.synced.is_none_or(|synced| snapshot.time.since(synced).as_secs_f64() >= settings.sync_s);
        if !due {
            return;
        }
        self.synced = Some(snapshot.time);
        for (name, scaled) in &mut self.apps {
            let spec = &pool.apps[name];
            let goal = request(pool, spec).0 * settings.target;
            scaled.sync(snapshot, spec, goal, settings);
        }
    }

    /// How many instances it asks for.
    pub fn replicas(&self) -> BTreeMap<AppName, u32> {
        self.apps.iter().filter(|(_, scaled)| scaled.replicas > 0).map(|(name, scaled)| (name.clone(), scaled.replicas)).collect()
    }
}

/// What an instance of `spec` requests: see the module.
pub fn request(pool: &PoolSpec, spec: &AppSpec) -> Cpu {
    let most = |spec: &AppSpec| {
        let nodes = spec.nodes.as_ref().map_or(pool.nodes.len(), std::collections::BTreeSet::len) as u32;
        f64::from(spec.instances.max.min(nodes.saturating_mul(spec.per_node.max(1))))
    };
    let instances: f64 = pool.apps.values().map(most).sum();
    let share = pool.nodes.iter().map(|node| node.cpu.0).sum::<f64>() / instances.max(1.0);
    Cpu(spec.cpu_limit.map_or(share, |limit| limit.0.min(share)).max(1e-3))
}

impl Scaled {
    fn measure(&mut self, snapshot: &Snapshot, spec: &AppSpec) {
        let ready = snapshot.instances.iter().filter(|i| i.app == spec.name && i.state == InstanceState::Ready);
        for cpu in ready.filter_map(|instance| instance.cpu_used).filter(|cpu| cpu.0.is_finite()) {
            self.used += cpu.0 * snapshot.window_s;
            self.ready_s += snapshot.window_s;
        }
    }

    fn sync(&mut self, snapshot: &Snapshot, spec: &AppSpec, goal: f64, settings: Settings) {
        let (used, ready_s) = (std::mem::take(&mut self.used), std::mem::take(&mut self.ready_s));
        let active = || snapshot.instances.iter().filter(|i| i.app == spec.name && i.state.is_active());
        let ready = active().filter(|i| i.state == InstanceState::Ready).count();
        let (ready, all) = (f64::from(ready as u32), f64::from(active().count() as u32));
        let now = if self.replicas == 0 { all as u32 } else { self.replicas };
        let asked = if ready_s > 0.0 && ready > 0.0 { wanted(used / ready_s, ready, all, goal, settings) } else { None };
        let bounds = (spec.instances.min.max(1), spec.instances.max.max(1));
        let asked = asked.unwrap_or(now).min((2 * now).max(now + 4)).clamp(bounds.0, bounds.1);
        let recent = |(at, _): &(Time, u32)| snapshot.time.since(*at).as_secs_f64() < settings.down_window_s;
        self.asked.retain(recent);
        if self.replicas == 0 {
            self.asked.push_back((snapshot.time, now));
        }
        self.asked.push_back((snapshot.time, asked));
        let most = self.asked.iter().map(|(_, asked)| *asked).max().unwrap_or(asked);
        self.replicas = most.clamp(bounds.0, bounds.1);
    }
}

/// `None` when nothing is to change.
fn wanted(mean: f64, ready: f64, all: f64, goal: f64, settings: Settings) -> Option<u32> {
    let near = |ratio: f64| (ratio - 1.0).abs() <= settings.tolerance;
    let ratio = mean / goal;
    if near(ratio) {
        return None;
    }
    if ratio < 1.0 || all <= ready {
        return Some((ratio * ready).ceil() as u32);
    }
    let with_unready = ratio * ready / all;
    (!near(with_unready) && with_unready > 1.0).then(|| (with_unready * all).ceil() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::fixtures::{app, pool, snapshot};
    use weal_model::InstanceState::{Ready, Starting};
    use weal_model::RouteSpec;

    // Two nodes of 2 cores and at most 4 instances: each requests 1 core, and is to use 0.8.
    fn scaled_pool() -> PoolSpec {
        let mut web = app("web", 100, 1, 4);
        web.per_node = 2;
        web.routes = vec![RouteSpec::any("gold".into())];
        pool(2, vec![web])
    }

    // Each instance uses `cpu` for a cycle of 5 s.
    fn seen(pool: &PoolSpec, at_s: f64, instances: &[(&str, usize, InstanceState)], cpu: f64) -> Snapshot {
        let mut seen = snapshot(pool, instances);
        seen.time = Time::from_secs_f64(at_s);
        seen.window_s = 5.0;
        for instance in &mut seen.instances {
            instance.cpu_used = Some(Cpu(cpu));
        }
        seen
    }

    fn replicas(autoscaler: &Autoscaler) -> u32 {
        autoscaler.replicas()["web"]
    }

    #[test]
    fn an_instance_requests_what_all_at_their_most_can_have() {
        let pool = scaled_pool();
        assert_eq!(request(&pool, &pool.apps["web"]), Cpu(1.0));
    }

    #[test]
    fn it_asks_for_the_ratio_of_used_to_target_and_not_within_a_tenth() {
        let (pool, one) = (scaled_pool(), [("web-1", 0, Ready)]);
        for (cpu, expected) in [(0.5, 1), (0.87, 1), (0.89, 2), (1.7, 3), (2.0, 3), (9.0, 4)] {
            let mut autoscaler = Autoscaler::default();
            autoscaler.handle_snapshot(&seen(&pool, 0.0, &one, cpu), &pool);
            assert_eq!(replicas(&autoscaler), expected, "{cpu}");
        }
    }

    #[test]
    fn it_decides_each_fifteen_seconds_by_the_mean_since() {
        let (pool, one) = (scaled_pool(), [("web-1", 0, Ready)]);
        let mut autoscaler = Autoscaler::default();
        autoscaler.handle_snapshot(&seen(&pool, 0.0, &one, 0.8), &pool);
        for (at_s, cpu, expected) in [(5.0, 2.0, 1), (10.0, 2.0, 1), (15.0, 0.5, 2)] {
            autoscaler.handle_snapshot(&seen(&pool, at_s, &one, cpu), &pool);
            assert_eq!(replicas(&autoscaler), expected, "at {at_s} s: a mean of 1.5 asks for 2");
        }
    }

    #[test]
    fn instances_that_start_count_as_using_nothing() {
        let pool = scaled_pool();
        let mut autoscaler = Autoscaler::default();
        autoscaler.handle_snapshot(&seen(&pool, 0.0, &[("web-1", 0, Ready)], 1.5), &pool);
        assert_eq!(replicas(&autoscaler), 2);
        let mut second = seen(&pool, 15.0, &[("web-1", 0, Ready), ("web-2", 1, Starting)], 1.5);
        second.instances[1].cpu_used = None;
        autoscaler.handle_snapshot(&second, &pool);
        assert_eq!(replicas(&autoscaler), 2, "1.5 / 2 instances is below the target");
    }

    #[test]
    fn it_goes_down_only_when_nothing_more_was_asked_for_in_five_minutes() {
        let pool = scaled_pool();
        let three = [("web-1", 0, Ready), ("web-2", 1, Ready), ("web-3", 0, Ready)];
        let mut autoscaler = Autoscaler::default();
        let mut down_at = None;
        for at_s in (0..600).step_by(15).map(f64::from) {
            let cpu = if at_s < 60.0 { 0.8 } else { 0.1 };
            autoscaler.handle_snapshot(&seen(&pool, at_s, &three, cpu), &pool);
            if replicas(&autoscaler) < 3 {
                down_at = down_at.or(Some((at_s, replicas(&autoscaler))));
            }
        }
        assert_eq!(down_at, Some((345.0, 1)));
    }

    #[test]
    fn ten_times_as_fast_it_goes_down_after_half_a_minute() {
        let mut pool = scaled_pool();
        pool.autoscaler_speed = 10.0;
        let two = [("web-1", 0, Ready), ("web-2", 1, Ready)];
        let mut autoscaler = Autoscaler::default();
        let at: Vec<f64> = (0..20).map(|i| 2.0 * f64::from(i)).collect();
        let down = at.into_iter().find(|&at_s| {
            autoscaler.handle_snapshot(&seen(&pool, at_s, &two, 0.1), &pool);
            replicas(&autoscaler) < 2
        });
        assert_eq!(down, Some(30.0));
    }
}
