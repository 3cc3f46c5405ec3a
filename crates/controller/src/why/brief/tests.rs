use serde_json::json;
use weal_model::{AppExplanation, Cpu, Utility};

use super::*;

/// A small generator: the same numbers in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn share(&mut self) -> f64 {
        self.below(1001) as f64 / 1000.0
    }
}

/// A pool of some nodes, and of applications with one flow each.
fn pool(numbers: &mut Numbers) -> (Status, Report) {
    let nodes = 1 + numbers.below(3);
    let node = |numbers: &mut Numbers, n: u64| {
        json!({ "name": format!("n{n}"), "up": true, "cpu_capacity": 2.0, "cpu_used": 2.0 * numbers.share(), "cpu_allocated": 0.0,
            "memory_capacity": 1 << 30, "memory_used": 0 })
    };
    let nodes: Vec<_> = (0..nodes).map(|n| node(numbers, n)).collect();
    let (mut apps, mut flows) = (Vec::new(), Vec::new());
    let mut report = Report { utility_per_core: numbers.share(), ..Report::default() };
    for m in 0..=numbers.below(3) {
        let name = format!("a{m}");
        let (app, flow) = app(numbers, &name, nodes.len() as u64);
        apps.push(app);
        flows.push(flow);
        let binding = [
            Binding::Satisfied,
            Binding::Cpu { nodes: vec!["n0".into()] },
            Binding::MaxInstances { max: 2 },
            Binding::ChangeCost,
        ][numbers.below(4) as usize]
            .clone();
        let explained = AppExplanation {
            demand: Cpu(9.0),
            allocation: Cpu(0.07),
            utility: Some(Utility(-9.99)),
            binding,
            text: "plan".into(),
        };
        report.apps.insert(name.as_str().into(), explained);
    }
    let status = json!({ "pool": "p", "version": "0", "time": 0, "config_generation": 1, "config_error": null, "control": true,
        "listen": "", "api": "", "limits": [], "nodes": nodes, "apps": apps, "flows": flows, "plan": null });
    (serde_json::from_value(status).unwrap(), report)
}

fn app(numbers: &mut Numbers, name: &str, nodes: u64) -> (serde_json::Value, serde_json::Value) {
    let state = ["ready", "ready", "ready", "degraded", "starting", "failed", "asleep"][numbers.below(7) as usize];
    let achieved = 1.0 + 1000.0 * numbers.share();
    let has_traffic = numbers.below(5) > 0;
    let goal = Goal::Percentile { percentile: 0.95, target_s: 0.25 };
    let utility = has_traffic.then(|| goal.utility(achieved / 1e3, weal_model::Importance::NORMAL));
    let node = format!("n{}", numbers.below(nodes));
    let instance = json!({ "id": format!("{name}-1"), "node": node, "state": "ready", "detail": "", "pid": 1, "address": "",
        "cpu_used": 0.5, "cpu_allocated": 0.5, "memory_used": 0, "in_flight": 0, "restarts": 0, "since": 0 });
    let app = json!({ "name": name, "state": state, "detail": if state == "ready" { "" } else { "because of this" }, "min": 1, "max": 2,
        "cpu_used": 0.5, "cpu_demand": 0.0, "cpu_allocated": 0.0, "utility": utility, "instances": [instance] });
    let latency = |mean: f64| json!({ "count": 9, "mean_ms": mean, "p50_ms": mean, "p95_ms": mean, "p99_ms": mean });
    let service = achieved * numbers.share();
    let flow = json!({ "id": { "gateway": "gw", "app": name, "class": "gold" }, "app": name, "class": "gold", "goal": goal, "goal_text": "p95 < 250ms",
        "importance": 1.0, "achieved": has_traffic.then_some(achieved), "utility": utility, "predicted_utility": null,
        "arrival_per_s": 1.0, "throughput_per_s": 1.0, "rejected_per_s": 0.0, "errors_per_s": 0.0, "response": latency(achieved),
        "service": latency(service), "queue_mean": 0.0, "in_service_mean": 0.0, "seats": 3, "weight": 1.0, "cpu_used": 0.0,
        "cpu_allocated": 0.0, "work_factors": [], "binding": Binding::Satisfied });
    (app, flow)
}

#[test]
fn what_is_said_agrees_with_the_status_in_random_pools() {
    let mut numbers = Numbers(1);
    let (mut fixes, mut fulls) = (0, 0);
    for _ in 0..5000 {
        let (status, report) = pool(&mut numbers);
        for app in &status.apps {
            let said = brief(&app.name, &status, &report);
            agrees(app, &said, &status, &report);
            fixes += said.iter().filter(|one| one.contains("would fix it")).count();
            fulls += said.iter().filter(|one| one.contains("used up")).count();
        }
    }
    assert!(fixes > 0 && fulls > 50, "what is checked happens: {fixes} {fulls}");
}

fn agrees(app: &AppStatus, said: &[String], status: &Status, report: &Report) {
    let text = said.join(" ");
    assert!((1..=3).contains(&said.len()), "{said:?}");
    assert!(said.iter().all(|one| one.ends_with('.')), "{said:?}");
    let flow = status.flows.iter().find(|flow| flow.app == app.name).unwrap();
    let is_shown = matches!(app.state.as_str(), "ready" | "degraded");
    let misses = is_shown && flow.utility.is_some_and(|utility| utility.0 < 0.0);
    assert_eq!(text.contains("misses its goal"), misses, "{text}");
    assert_eq!(text.contains("meets its goal"), is_shown && flow.utility.is_some_and(|utility| utility.0 >= 0.0), "{text}");
    if app.state != weal_model::AppState::Ready {
        assert!(text.contains(&format!("{}: {}", app.state.phrase(), app.detail)), "{text}");
    }
    for node in &status.nodes {
        if text.contains(&format!("{} uses", node.name)) {
            assert!(node.cpu_used.0 >= 0.9 * node.cpu_capacity.0, "{text}");
            assert!(app.instances.iter().any(|instance| instance.node == node.name), "{text}");
        }
    }
    if text.contains("CPU to spare") {
        let here = status.nodes.iter().filter(|node| app.instances.iter().any(|instance| instance.node == node.name));
        here.for_each(|node| assert!(node.cpu_used.0 < 0.9 * node.cpu_capacity.0, "{text}"));
    }
    let worse = |limit: f64| status.apps.iter().any(|other| other.utility.is_some_and(|utility| utility.0 < limit));
    if text.contains("would fix it") {
        let utility = flow.utility.unwrap().0;
        assert!(utility + report.utility_per_core >= 0.0 && !worse(utility), "{text}");
    }
    if text.contains("are worse off") {
        assert!(status.apps.len() > 1 && worse(flow.utility.unwrap().0), "{text}");
    }
    // Neither what the plan gives nor what it expects is said: one thing has one number.
    assert!(!text.contains("9.99") && !text.contains("0.07") && !text.contains("expect"), "{text}");
}
