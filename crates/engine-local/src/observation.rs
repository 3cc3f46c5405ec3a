//! The agent's words in neutral ones.

use weal_protocol::engine::{InstanceSeen, NodeSeen, Observation};
use weal_protocol::node::{AgentObservation, InstanceCounters, NodeCounters};

use crate::jobs;
use crate::spec::revision_of;

/// What the agent sees, as any engine says it.
pub(super) fn neutral(agent: AgentObservation) -> Observation {
    let (mut instances, mut runs) = (Vec::new(), Vec::new());
    for counters in agent.instances {
        match jobs::seen(&counters) {
            Some(run) => runs.push(run),
            None => instances.push(instance(counters)),
        }
    }
    Observation {
        began: agent.started,
        time: agent.time,
        capabilities: agent.capabilities,
        nodes: agent.nodes.into_iter().map(node).collect(),
        instances,
        runs,
    }
}

fn node(node: NodeCounters) -> NodeSeen {
    NodeSeen {
        name: node.name,
        up: true,
        cpu_capacity: node.cpu_capacity,
        is_slice: node.is_slice,
        memory_capacity: node.memory_capacity,
        cpu_seconds: node.cpu_seconds,
        memory_used: node.memory_used,
        cpu_pressure_seconds: node.cpu_pressure_seconds,
        memory_reserve: node.memory_reserve,
        parked_for_reserve: node.parked_for_reserve,
    }
}

fn instance(instance: InstanceCounters) -> InstanceSeen {
    InstanceSeen {
        revision: revision_of(&instance.spec),
        id: instance.spec.id,
        app: instance.spec.app,
        node: instance.spec.node,
        state: instance.state,
        detail: instance.detail,
        since: instance.since,
        is_running: instance.pid.is_some(),
        pid: instance.pid,
        address: instance.address,
        needs: instance.spec.needs,
        memory_limit: instance.spec.memory,
        cpu_seconds: instance.cpu_seconds,
        memory_used: instance.memory_used,
        swap_used: instance.swap_used,
        disk_bytes: instance.disk_bytes,
        restarts: instance.restarts,
        start_took_s: instance.start_took_s,
        last_wake_s: instance.last_wake_s,
        costs: instance.costs,
        keeps_awake: instance.keeps_awake,
        listener: instance.listener,
    }
}
