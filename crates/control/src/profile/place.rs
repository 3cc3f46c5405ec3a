//! What the nodes have, and where an application runs.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{AppName, NodeName, NodeObservation, NodeSpec, PoolSpec, Snapshot};

/// CPU of each node that plans may fill: `rho Omega`.
pub(crate) struct Usable<'a>(BTreeMap<&'a NodeName, &'a NodeSpec>);

impl<'a> Usable<'a> {
    pub(crate) fn of(spec: &'a PoolSpec) -> Self {
        // Of nodes with the same name the first counts.
        Self(spec.nodes.iter().rev().map(|node| (&node.name, node)).collect())
    }

    pub(crate) fn on(&self, node: &NodeObservation) -> f64 {
        self.0.get(&node.name).map_or(node.cpu_capacity, |spec| spec.usable_cpu(node.cpu_capacity)).0
    }
}

/// Which clusters a request to each cluster may load: itself and all that it needs, directly or not.
pub fn reach(spec: &PoolSpec) -> BTreeMap<AppName, BTreeSet<AppName>> {
    spec.apps
        .keys()
        .map(|app| {
            let (mut reached, mut open) = (BTreeSet::from([app.clone()]), vec![app]);
            while let Some(needs) = open.pop().and_then(|app| spec.apps.get(app)).map(|app| &app.needs) {
                open.extend(needs.iter().filter(|need| spec.apps.contains_key(*need) && reached.insert((*need).clone())));
            }
            (app.clone(), reached)
        })
        .collect()
}

/// Where an application runs, as far as its requests can tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Surroundings {
    /// Computing power that one request can use, in cores: at most 1, and less on a slice of a core.
    pub speed: f64,
    /// Requests outstanding per core on its nodes, of all applications there.
    pub crowd: f64,
    /// Share of its nodes' CPU that is used, 0..=1; of the fullest node.
    pub busy: f64,
    /// Share of its nodes' usable CPU that is used, all of them together.
    pub busy_together: f64,
    /// The same of others only.
    pub neighbours: f64,
}

impl Surroundings {
    pub(crate) fn of(app: &AppName, snapshot: &Snapshot, spec: &PoolSpec) -> Self {
        let ready = |i: &&weal_model::InstanceObservation| i.state == weal_model::InstanceState::Ready;
        let mut outstanding: BTreeMap<&str, f64> = BTreeMap::new();
        for (app, in_service) in in_service(snapshot) {
            let homes: Vec<_> = snapshot.instances.iter().filter(ready).filter(|i| i.app == *app).collect();
            for instance in &homes {
                *outstanding.entry(instance.node.as_str()).or_default() += in_service / homes.len() as f64;
            }
        }
        let hosts: BTreeSet<&str> =
            snapshot.instances.iter().filter(ready).filter(|i| i.app == *app).map(|i| i.node.as_str()).collect();
        let nodes = || snapshot.nodes.iter().filter(|node| hosts.contains(node.name.as_str()) && node.cpu_capacity.0 > 0.0);
        let cores: f64 = nodes().map(|node| node.cpu_capacity.0).sum();
        let used: f64 = nodes().map(|node| node.cpu_used.0).filter(|used| used.is_finite()).sum();
        let own = snapshot.instances.iter().filter(|i| i.app == *app).filter_map(|i| i.cpu_used).map(|cpu| cpu.0);
        let own: f64 = own.filter(|used| used.is_finite()).sum();
        let limit = spec.apps.get(app).and_then(|app| app.cpu_limit).map_or(1.0, |limit| limit.0);
        let slowest = nodes().map(|node| node.cpu_capacity.0).fold(1.0, f64::min);
        let busy = nodes().map(|node| node.cpu_used.0 / node.cpu_capacity.0).filter(|busy| busy.is_finite());
        Self {
            speed: slowest.min(limit).clamp(0.01, 1.0),
            crowd: if cores > 0.0 { hosts.iter().filter_map(|host| outstanding.get(host)).sum::<f64>() / cores } else { 0.0 },
            busy: busy.fold(0.0, f64::max),
            busy_together: if cores > 0.0 { used / cores } else { 0.0 },
            neighbours: if cores > 0.0 { ((used - own) / cores).max(0.0) } else { 0.0 },
        }
    }
}

fn in_service(snapshot: &Snapshot) -> BTreeMap<&AppName, f64> {
    let mut sums = BTreeMap::new();
    for flow in snapshot.flows.iter().filter(|flow| flow.in_service_mean.is_finite()) {
        *sums.entry(&flow.id.app).or_default() += flow.in_service_mean.max(0.0);
    }
    sums
}
