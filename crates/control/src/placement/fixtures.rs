//! Small pools and snapshots for tests.

use weal_model::naming::parts;
use weal_model::{
    AppName, AppSpec, Bytes, Cpu, InstanceId, InstanceObservation, InstanceRange, InstanceState, NodeName, NodeObservation,
    NodeSpec, PoolSpec, Snapshot, Time,
};

pub(crate) fn app(name: &str, memory_mib: u64, min: u32, max: u32) -> AppSpec {
    AppSpec { memory: Bytes::mib(memory_mib), instances: InstanceRange { min, max }, ..AppSpec::example(name) }
}

pub(crate) fn pool(nodes: usize, apps: Vec<AppSpec>) -> PoolSpec {
    let node = |i: usize| NodeSpec { name: node_name(i), cpu: Cpu(2.0), memory: Bytes::mib(1000), utilization_limit: 1.0 };
    PoolSpec {
        nodes: (0..nodes).map(node).collect(),
        apps: apps.into_iter().map(|app| (app.name.clone(), app)).collect(),
        ..PoolSpec::example()
    }
}

pub(crate) fn node_name(i: usize) -> NodeName {
    format!("n{i}").into()
}

/// An instance of which nothing is measured.
pub(crate) fn instance(id: &InstanceId, app: &AppName, node: &NodeName, state: InstanceState) -> InstanceObservation {
    InstanceObservation {
        id: id.clone(),
        app: app.clone(),
        node: node.clone(),
        state,
        cpu_used: None,
        memory_used: None,
        disk_bytes_per_s: None,
        network_bytes_per_s: None,
        in_flight: 0,
        since: Time::ZERO,
    }
}

pub(crate) fn snapshot(pool: &PoolSpec, instances: &[(&str, usize, InstanceState)]) -> Snapshot {
    let node = |spec: &NodeSpec| NodeObservation {
        name: spec.name.clone(),
        up: true,
        cpu_capacity: spec.cpu,
        cpu_used: Cpu(0.0),
        memory_capacity: spec.memory,
        memory_used: Bytes(0),
        cpu_pressure: None,
    };
    let observed = |&(id, node, state): &(&str, usize, InstanceState)| {
        let id = id.into();
        instance(&id, &parts(&id).unwrap().0, &node_name(node), state)
    };
    Snapshot {
        generation: 7,
        nodes: pool.nodes.iter().map(node).collect(),
        instances: instances.iter().map(observed).collect(),
        ..Snapshot::default()
    }
}
