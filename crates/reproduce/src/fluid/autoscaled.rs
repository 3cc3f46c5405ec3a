//! An autoscaler in the manner of Kubernetes' beside a job queue: what a pool does that starts and stops.
//!
//! How many instances the web load gets is decided by [`weal_control::placement::baselines::autoscaler`] as it is, from CPU alone: it does not
//! depend on the jobs, so it is played through first. An instance is a node's CPU, takes its start before it serves, and comes before jobs:
//! the web load's nodes are the last ones, jobs fill the pool from the first on, and a job whose node is taken is stopped and
//! begins anew.

use weal_control::jobs::{Assignment, FirstComeFirstServed, Scheduler, Site, Situation};
use weal_control::placement::baselines::Autoscaler;
use weal_model::{Cpu, InstanceObservation, InstanceState, Snapshot, Time};

use weal_scenario::Scenario;

/// Seconds between two looks of the autoscaler.
const SYNC_S: f64 = 15.0;
const APP: &str = "web";

/// The web load's instances over time, and the jobs' queue on the nodes that they leave.
#[derive(Debug, Clone)]
pub struct Autoscaled {
    /// At each sync: instances that serve, and all that there are.
    instances: Vec<(u32, u32)>,
    /// Cores of a node.
    node_cpu: f64,
}

impl Autoscaled {
    /// Plays `use_at`, the CPU that the web load's requests use at a second, on `nodes` of `node_cpu` cores, for `until_s`. An instance
    /// serves `start_s` after it is asked for.
    pub fn play(nodes: usize, node_cpu: f64, start_s: f64, until_s: f64, use_at: impl Fn(f64) -> f64) -> Self {
        let pool = pool(nodes, node_cpu);
        let mut autoscaler = Autoscaler::default();
        // When each instance began; those that came last go first.
        let first = (use_at(0.0) / node_cpu / 0.8).ceil().clamp(1.0, nodes as f64) as usize;
        let mut began = vec![f64::NEG_INFINITY; first];
        let mut instances = Vec::new();
        for sync in 0..=(until_s / SYNC_S) as usize {
            let now_s = sync as f64 * SYNC_S;
            let serving = began.iter().filter(|began_s| **began_s + start_s <= now_s).count();
            instances.push((serving as u32, began.len() as u32));
            autoscaler.handle_snapshot(&snapshot(now_s, &began, start_s, use_at(now_s), node_cpu), &pool);
            let wanted = autoscaler.replicas().get(APP).map_or(began.len(), |wanted| *wanted as usize);
            began.resize(wanted.clamp(1, nodes), now_s);
        }
        Self { instances, node_cpu }
    }

    fn at(&self, now_s: f64) -> (u32, u32) {
        let sync = (now_s / SYNC_S) as usize;
        self.instances[sync.min(self.instances.len() - 1)]
    }
}

impl Scheduler for Autoscaled {
    fn name(&self) -> &'static str {
        "autoscaler"
    }

    fn schedule(&self, situation: &Situation) -> Assignment {
        let (serving, all) = self.at(situation.now_s);
        let left = situation.nodes.len().saturating_sub(all as usize);
        let site = |(node, site): (usize, &Site)| if node < left { *site } else { Site { cpu: 0.0, memory: 0 } };
        let nodes: Vec<Site> = situation.nodes.iter().enumerate().map(site).collect();
        let mut assignment = FirstComeFirstServed.schedule(&Situation { nodes: &nodes, apps: &[], ..situation.clone() });
        assignment.apps = situation.apps.iter().map(|_| f64::from(serving) * self.node_cpu).collect();
        assignment
    }
}

fn pool(nodes: usize, node_cpu: f64) -> weal_model::PoolSpec {
    let mut text = format!(
        "intent = \"A web load.\"\nduration = \"1s\"\n[class.web]\n[app.{APP}]\nmemory = \"1MiB\"\nwork = \"1ms\"\ninstances = \"1..{nodes}\"\n\
         [[load]]\napp = \"{APP}\"\nclass = \"web\"\nrate = \"1/s\"\n"
    );
    for node in 0..nodes {
        text += &format!("[[node]]\nname = \"n{node}\"\ncpu = {node_cpu:?}\nmemory = \"1GiB\"\n");
    }
    Scenario::parse(&text, weal_scenario::no_files).expect("the text above is a scenario").pool
}

fn snapshot(now_s: f64, began: &[f64], start_s: f64, used: f64, node_cpu: f64) -> Snapshot {
    let is_ready = |began_s: f64| began_s + start_s <= now_s;
    let ready = began.iter().filter(|began_s| is_ready(**began_s)).count().max(1) as f64;
    let instance = |(number, began_s): (usize, &f64)| {
        let id = weal_model::naming::instance_id(&APP.into(), number as u64);
        let state = if is_ready(*began_s) { InstanceState::Ready } else { InstanceState::Starting };
        InstanceObservation {
            cpu_used: is_ready(*began_s).then_some(Cpu((used / ready).min(node_cpu))),
            since: Time::from_secs_f64(began_s.max(0.0)),
            ..InstanceObservation::unmeasured(id, APP.into(), format!("n{number}").into(), state)
        }
    };
    Snapshot {
        generation: 1 + (now_s / SYNC_S) as u64,
        time: Time::from_secs_f64(now_s),
        window_s: SYNC_S,
        instances: began.iter().enumerate().map(instance).collect(),
        ..Snapshot::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_follow_the_load_up_at_once_and_down_after_five_minutes() {
        let load = |now_s: f64| if (600.0..1200.0).contains(&now_s) { 16.0 } else { 4.0 };
        let played = Autoscaled::play(20, 2.0, 60.0, 3600.0, load);
        // 4 cores at 80% of 2 cores an instance.
        assert_eq!(played.at(590.0), (3, 3));
        let (serving, all) = played.at(630.0);
        assert!(serving == 3 && all > 3, "asked for and not there yet: {serving} of {all}");
        assert_eq!(played.at(1190.0), (10, 10), "16 cores");
        assert_eq!(played.at(1200.0 + 290.0).1, 10, "who goes down waits");
        assert_eq!(played.at(1200.0 + 330.0), (3, 3));
    }
}
