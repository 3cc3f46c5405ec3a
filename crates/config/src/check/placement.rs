//! Whether everything can be placed at all.

use std::collections::BTreeSet;

use weal_model::{AppName, AppSpec, Bytes, NodeName, NodeSpec, PoolSpec};

use crate::machine::MachineSize;
use crate::section::Reading;
use crate::suggest;

pub(super) fn check(reading: &mut Reading, spec: &PoolSpec, machine: &MachineSize) {
    check_machine(reading, spec, machine);
    for app in spec.apps.values() {
        check_allowed_nodes(reading, spec, app);
        check_room(reading, spec, app);
        check_collocation(reading, spec, app);
    }
    check_total(reading, spec);
}

/// Slices may promise more than there is; then their limits do not hold when all are busy.
fn check_machine(reading: &mut Reading, spec: &PoolSpec, machine: &MachineSize) {
    if !reading.places.has("node") {
        return;
    }
    // A node that does not say what it has is an error already, and stands here with all of the machine.
    let says = |node: &&NodeSpec, key: &str| reading.places.has(&format!("node.{}.{key}", node.name));
    let cores: f64 = spec.nodes.iter().filter(|node| says(node, "cpu")).map(|node| node.cpu.0).sum();
    let memory: Bytes = spec.nodes.iter().filter(|node| says(node, "memory")).map(|node| node.memory).sum();
    // 0.1% forgives shares such as 0.333 that were rounded up.
    if cores > machine.cpus * 1.001 {
        let message = format!("the nodes have {} cores together, this machine has {}", (cores * 1e3).round() / 1e3, machine.cpus);
        reading.findings.warning(
            reading.places.key("node"),
            message,
            "give them less, or they will slow each other down when all are busy",
        );
    }
    if memory > machine.memory {
        let message = format!("the nodes have {memory} of memory together, this machine has {}", machine.memory);
        reading.findings.warning(
            reading.places.key("node"),
            message,
            "give them less, or the system may kill instances within their limits",
        );
    }
}

fn check_allowed_nodes(reading: &mut Reading, spec: &PoolSpec, app: &AppSpec) {
    for node in app.nodes.iter().flatten().filter(|node| !spec.nodes.iter().any(|known| known.name == **node)) {
        let place = reading.places.value(&format!("app.{}.nodes.{node}", app.name));
        let help = suggest::help(node.as_str(), spec.nodes.iter().map(|node| node.name.as_str()), "nodes");
        reading.findings.error(place, format!("unknown node `{node}`"), help);
    }
}

fn allowed<'s>(spec: &'s PoolSpec, app: &'s AppSpec) -> Vec<&'s NodeSpec> {
    spec.nodes.iter().filter(|node| app.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node.name))).collect()
}

fn check_room(reading: &mut Reading, spec: &PoolSpec, app: &AppSpec) {
    let nodes = allowed(spec, app);
    let Some(largest) = nodes.iter().max_by_key(|node| node.memory) else { return };
    let at = |key: &str| format!("app.{}.{key}", app.name);
    if app.memory > largest.memory {
        reading.findings.error(
            reading.places.value(&at("memory")),
            format!("one instance of `{}` needs {}, more than any node it may run on has", app.name, app.memory),
            format!("the largest is `{}` with {}", largest.name, largest.memory),
        );
        return;
    }
    let fits = |node: &&NodeSpec| u64::from(app.per_node).min(node.memory.0 / app.memory.0.max(1));
    let room: u64 = nodes.iter().map(fits).sum();
    if u64::from(app.instances.min) > room {
        let place = if reading.places.has(&at("instances.min")) { at("instances.min") } else { at("instances") };
        reading.findings.error(
            reading.places.value(&place),
            format!("{} instances of `{}` fit nowhere: there is room for {room}", app.instances.min, app.name),
            format!("each needs {}, and a node may hold {} of them: lower one of these or `min`", app.memory, app.per_node),
        );
    }
}

fn check_total(reading: &mut Reading, spec: &PoolSpec) {
    let needed: u64 =
        spec.apps.values().map(|app| app.memory.0.saturating_mul(u64::from(app.instances.min))).fold(0, u64::saturating_add);
    let there: Bytes = spec.nodes.iter().map(|node| node.memory).sum();
    let each_fits = spec.apps.values().all(|app| app.memory.0.saturating_mul(u64::from(app.instances.min)) <= there.0);
    if Bytes(needed) > there && each_fits {
        let message = format!("the fewest instances of all applications need {}, the nodes have {there}", Bytes(needed));
        reading.findings.warning(
            reading.places.key("app"),
            message,
            "some instances will have to wait: lower `memory` or `min` somewhere",
        );
    }
}

/// `together` and `apart` must not contradict each other or the allowed nodes.
fn check_collocation(reading: &mut Reading, spec: &PoolSpec, app: &AppSpec) {
    let name = &app.name;
    let company = company(spec, name);
    for other in company.iter().filter(|other| *other != name) {
        let listed = if app.together.contains(other) { other.to_string() } else { first_step(spec, app, other) };
        let place = reading.places.value(&format!("app.{name}.together.{listed}"));
        // Anybody in the company that must be apart from anybody else in it makes the whole impossible.
        for (apart_of, side) in [(name, other), (other, name)] {
            if spec.apps[apart_of].apart.contains(side) {
                let there = reading.places.value(&format!("app.{apart_of}.apart.{side}"));
                reading.findings.error_with(
                    place.clone(),
                    format!("`{name}` must be both together with and apart from `{other}`"),
                    "remove one of the two".to_owned(),
                    (there, "apart".to_owned()),
                );
            }
        }
        let theirs = &spec.apps[other];
        if let (Some(ours), Some(theirs)) = (&app.nodes, &theirs.nodes)
            && !ours.is_empty()
            && ours.is_disjoint(theirs)
        {
            let list = |nodes: &BTreeSet<NodeName>| suggest::list(&nodes.iter().map(|node| node.as_str()).collect::<Vec<_>>());
            reading.findings.error(
                place,
                format!("`{name}` and `{other}` must be together, but no node may run both"),
                format!("`{name}` may run on {}, `{other}` on {}", list(ours), list(theirs)),
            );
        }
    }
}

/// Everyone that must be wherever `name` is: `together`, and theirs.
fn company(spec: &PoolSpec, name: &AppName) -> BTreeSet<AppName> {
    let mut company = BTreeSet::from([name.clone()]);
    let mut open = vec![name.clone()];
    while let Some(next) = open.pop() {
        for other in spec.apps[&next].together.iter().filter(|other| spec.apps.contains_key(*other)) {
            if company.insert(other.clone()) {
                open.push(other.clone());
            }
        }
    }
    company
}

/// The entry of `app.together` that leads to `other`.
fn first_step(spec: &PoolSpec, app: &AppSpec, other: &AppName) -> String {
    let leads = |step: &&AppName| spec.apps.contains_key(*step) && company(spec, step).contains(other);
    app.together.iter().find(leads).map(ToString::to_string).unwrap_or_default()
}
