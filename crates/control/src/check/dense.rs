//! Judges a placement in dense indices: every constraint counted again from the list of instances, nothing taken from the
//! search's own books.

use crate::placement::problem::Problem;

/// (application, node, instances, CPU for all of them).
pub type Entry = (u32, u32, u32, f64);

/// What a placement breaks, in words; empty when it breaks nothing. `lacking` says for which applications the planner
/// reported that their fewest instances could not be brought up.
///
/// What the current placement breaks already and the new one does not add to is let pass, as for real plans.
pub fn check(problem: &Problem, entries: &[Entry], lacking: impl Fn(u32) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (n, node) in problem.nodes.iter().enumerate() {
        let here: Vec<&Entry> = entries.iter().filter(|entry| entry.1 as usize == n).collect();
        let memory: u128 = here.iter().map(|entry| u128::from(problem.apps[entry.0 as usize].memory) * u128::from(entry.2)).sum();
        let cpu: f64 = here.iter().map(|entry| entry.3).sum();
        if memory > u128::from(node.memory) && here.iter().any(|entry| added(problem, entry) > 0) {
            findings.push(format!("node {n} holds {memory} of {} bytes", node.memory));
        }
        if cpu.is_nan() || cpu > node.cpu * (1.0 + 1e-6) + 1e-9 {
            findings.push(format!("node {n} gives {cpu} of {} cores", node.cpu));
        }
        findings.extend(here.iter().flat_map(|entry| neighbours(problem, entry, &here)));
    }
    for m in 0..problem.apps.len() as u32 {
        findings.extend(application(problem, m, entries, lacking(m)));
    }
    findings
}

fn added(problem: &Problem, entry: &Entry) -> u32 {
    let current = problem.apps[entry.0 as usize].current.iter().find(|place| place.0 == entry.1).map_or(0, |place| place.1);
    entry.2.saturating_sub(current)
}

fn neighbours(problem: &Problem, entry: &Entry, here: &[&Entry]) -> Vec<String> {
    let &(m, n, count, load) = entry;
    let app = &problem.apps[m as usize];
    let mut findings = Vec::new();
    if load.is_nan() || load < -1e-9 || load > f64::from(count) * app.instance_cpu * (1.0 + 1e-6) + 1e-9 {
        findings.push(format!("application {m} gets {load} cores on node {n} from {count} instances"));
    }
    if added(problem, entry) == 0 {
        return findings;
    }
    if count > app.per_node {
        findings.push(format!("application {m} has {count} instances on node {n}"));
    }
    if app.allowed.as_ref().is_some_and(|nodes| !nodes.contains(&n)) {
        findings.push(format!("application {m} may not be on node {n}"));
    }
    let there = |other: &u32| here.iter().any(|entry| entry.0 == *other);
    findings.extend(
        app.apart.iter().filter(|other| there(other)).map(|other| format!("applications {m} and {other} meet on node {n}")),
    );
    findings.extend(
        app.together.iter().filter(|other| !there(other)).map(|other| format!("application {m} lacks {other} on node {n}")),
    );
    findings
}

fn application(problem: &Problem, m: u32, entries: &[Entry], lacking: bool) -> Vec<String> {
    let app = &problem.apps[m as usize];
    let mine: Vec<&Entry> = entries.iter().filter(|entry| entry.0 == m).collect();
    let total: u32 = mine.iter().map(|entry| entry.2).sum();
    let before: u32 = app.current.iter().map(|place| place.1).sum();
    let grew = mine.iter().any(|entry| added(problem, entry) > 0);
    let lost = app.current.iter().any(|&(n, count)| mine.iter().find(|entry| entry.1 == n).map_or(0, |entry| entry.2) < count);
    let mut findings = Vec::new();
    if grew && total > app.instances.1 {
        findings.push(format!("application {m} has {total} instances of at most {}", app.instances.1));
    }
    let spread = mine.iter().any(|entry| added(problem, entry) == entry.2);
    if spread && mine.len() as u32 > app.nodes.1 {
        findings.push(format!("application {m} is on {} nodes of at most {}", mine.len(), app.nodes.1));
    }
    if total < app.instances.0 && !lacking && total < before.max(app.instances.0) {
        findings.push(format!("application {m} has {total} instances of at least {}", app.instances.0));
    }
    if lost && (app.pinned || app.manual) {
        findings.push(format!("application {m} is fixed and lost an instance"));
    }
    if grew && app.manual && total > app.instances.0.max(before + app.nodes.0.saturating_sub(app.current.len() as u32)) {
        findings.push(format!("application {m} is in manual mode and grew to {total}"));
    }
    findings
}
