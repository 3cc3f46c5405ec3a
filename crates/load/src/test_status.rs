//! A status for tests.

use weal_model::{
    AppStatus, Binding, Cpu, FlowId, FlowStatus, Importance, InstanceStatus, LatencySummary, NodeStatus, Status, Time,
};
use weal_model::{Bytes, InstanceState, Utility, Work, WorkFactor};

/// A pool of one node with one application at `time_s`, to which `arrival_per_s` requests come in.
pub fn status(time_s: f64, arrival_per_s: f64) -> Status {
    let id = FlowId { gateway: "gw".into(), app: "shop".into(), class: "gold".into() };
    let goal: weal_model::Goal = "mean < 250ms".parse().expect("a goal");
    let instance = InstanceStatus {
        id: "shop-1".into(),
        node: "n1".into(),
        state: InstanceState::Ready,
        detail: String::new(),
        pid: Some(1),
        address: "127.0.0.1:40000".into(),
        cpu_used: Cpu(0.2),
        cpu_allocated: Cpu(0.5),
        swap_used: Bytes(0),
        last_wake_ms: None,
        memory_used: Bytes::mib(10),
        in_flight: 0,
        restarts: 0,
        since: Time::ZERO,
    };
    let factor =
        WorkFactor { flow: id.clone(), app: "shop".into(), work: Work(0.008), plus_minus: Work(0.001), tied_with: vec![] };
    let latency = LatencySummary { count: 10, mean_ms: 100.0, p50_ms: 90.0, p95_ms: 200.0, p99_ms: 240.0 };
    let flow = FlowStatus {
        id,
        app: "shop".into(),
        class: "gold".into(),
        goal: Some(goal),
        goal_text: goal.to_string(),
        importance: Importance::NORMAL,
        achieved: Some(100.0),
        utility: Some(Utility(0.6)),
        predicted_utility: None,
        arrival_per_s,
        throughput_per_s: arrival_per_s,
        rejected_per_s: 0.0,
        errors_per_s: 0.0,
        response: latency.clone(),
        service: latency,
        queue_mean: 0.0,
        in_service_mean: 1.0,
        hanging: 0,
        at_clients: 0,
        seats: 4,
        weight: 1.0,
        cpu_used: Cpu(0.2),
        cpu_allocated: Cpu(0.5),
        work_factors: vec![factor],
        binding: Binding::Satisfied,
    };
    let app = AppStatus {
        name: "shop".into(),
        kind: Default::default(),
        state: weal_model::AppState::Ready,
        detail: String::new(),
        min: 1,
        max: 2,
        cpu_used: Cpu(0.2),
        cpu_demand: Cpu(0.5),
        cpu_allocated: Cpu(0.5),
        seats_lent: 0,
        utility: Some(Utility(0.6)),
        rollout: None,
        told_to_sleep: false,
        kept_awake: None,
        instances: vec![instance],
    };
    let node = NodeStatus {
        name: "n1".into(),
        up: true,
        cpu_capacity: Cpu(1.0),
        cpu_used: Cpu(0.2),
        cpu_allocated: Cpu(0.5),
        memory_capacity: Bytes::gib(1),
        memory_used: Bytes::mib(10),
        memory_reserve: Bytes(0),
        parked_for_reserve: 0,
    };
    Status {
        pool: "demo".into(),
        time: Time::from_secs_f64(time_s),
        control: true,
        nodes: vec![node],
        apps: vec![app],
        flows: vec![flow],
        ..empty()
    }
}

fn empty() -> Status {
    serde_json::from_value(serde_json::json!({
        "pool": "", "version": "0", "time": 0, "config_generation": 1, "config_error": null, "control": true,
        "listen": "http://127.0.0.1:8080", "api": "http://127.0.0.1:8081", "limits": [], "problems": [],
        "nodes": [], "apps": [], "flows": [], "plan": null
    }))
    .expect("an empty status")
}
