//! The answer to `weal why` in at most three sentences: how the application is, why, and what would change it.
//!
//! All numbers are measured ones, each said once. What a plan expects is not among them. Of a plan's report only that is used which the
//! measurement bears out: a node is full when its CPU is used, not when a plan has given it away.

use weal_model::{AppName, AppState, AppStatus, Binding, FlowStatus, Goal, InstanceState, NodeStatus, Report, Status};

use super::words::{how, sentence};

/// From this share of its CPU on, a node is called full: what is left goes in pieces between two looks.
const FULL: f64 = 0.9;
/// A goal that is missed by less than this factor is said without the factor.
const TIMES: f64 = 1.5;

/// The most sentences that are said.
const MOST: usize = 3;

/// What is to be said of an application.
#[derive(Debug, Default)]
struct Said {
    /// How it is: one sentence at least.
    how: Vec<String>,
    /// Why its goal is missed.
    cause: Option<String>,
    /// What would change that.
    remedy: Option<String>,
}

/// One to three sentences about `app`; none when the pool has it not.
pub(super) fn brief(app: &AppName, status: &Status, report: &Report) -> Vec<String> {
    let Said { how, cause, remedy } = said(app, status, report);
    how.into_iter().chain(cause).chain(remedy).take(MOST).collect()
}

/// Of [`brief`] the one sentence that gives the reason: why a goal is missed, or else how `app` is.
pub fn reason(app: &AppName, status: &Status, report: &Report) -> Option<String> {
    let Said { how, cause, .. } = said(app, status, report);
    cause.or_else(|| how.into_iter().next())
}

fn said(app: &AppName, status: &Status, report: &Report) -> Said {
    let Some(own) = status.apps.iter().find(|known| known.name == *app) else { return Said::default() };
    if !matches!(own.state, AppState::Ready | AppState::Degraded) {
        return Said { how: not_ready(own), ..Said::default() };
    }
    let flows: Vec<&FlowStatus> = status.flows.iter().filter(|flow| flow.app == *app).collect();
    let worst = flows.iter().filter_map(|flow| Some((*flow, flow.utility?.0))).min_by(|a, b| a.1.total_cmp(&b.1));
    let mut how = if own.state == AppState::Degraded { not_ready(own) } else { Vec::new() };
    let Some((flow, utility)) = worst else {
        how.push(idle(own, &flows, status.apps.len() == 1));
        how.extend(own.kept_awake.map(|kept| sentence(&format!("It is {}", kept.phrase(status.time)))));
        return Said { how, ..Said::default() };
    };
    how.push(measured(flow, flows.len()));
    if utility >= 0.0 {
        return Said { how, ..Said::default() };
    }
    let full = full_nodes(own, status);
    Said { how, cause: Some(cause(flow, &full, own)), remedy: remedy(own, utility, &full, status, report) }
}

fn not_ready(app: &AppStatus) -> Vec<String> {
    vec![how(app, "")]
}

fn idle(app: &AppStatus, flows: &[&FlowStatus], is_alone: bool) -> String {
    let goals = flows.iter().filter(|flow| flow.goal.is_some()).count();
    let (name, how) = (&app.name, app.state.phrase());
    match (flows.len(), goals) {
        (0, _) => format!("{name} {how} and has no routes, so weal measures no goal for it."),
        (_, 0) if is_alone => format!("{name} {how} and has no goal."),
        (_, 0) => format!("{name} {how} and has no goal: it gets the CPU that others leave."),
        _ => format!("{name} {how} and has no traffic now."),
    }
}

/// How the worst flow does, by its own number.
fn measured(flow: &FlowStatus, flows: usize) -> String {
    let name = if flows > 1 { format!("{}/{}", flow.app, flow.class) } else { flow.app.to_string() };
    let achieved = flow.achieved.unwrap_or_default();
    let is_missed = flow.utility.is_some_and(|utility| utility.0 < 0.0);
    let (number, times) = match flow.goal {
        Some(Goal::Throughput { per_second }) => (format!("{achieved:.1} requests/s"), per_second / achieved),
        Some(goal) => (format!("{achieved:.0} ms"), achieved / (goal.target_s().unwrap_or(f64::NAN) * 1e3)),
        None => (format!("{achieved:.0} ms"), f64::NAN),
    };
    match is_missed {
        false => format!("{name} meets its goal {}: {number} measured.", flow.goal_text),
        true if times.is_finite() && times >= TIMES => {
            format!("{name} misses its goal {} by a factor of {times:.1}: {number} measured.", flow.goal_text)
        }
        true => format!("{name} misses its goal {}: {number} measured.", flow.goal_text),
    }
}

/// Nodes with this application whose CPU is used up.
fn full_nodes<'a>(app: &AppStatus, status: &'a Status) -> Vec<&'a NodeStatus> {
    let is_here = |node: &NodeStatus| app.instances.iter().any(|one| one.node == node.name && one.state == InstanceState::Ready);
    status.nodes.iter().filter(|node| is_here(node) && is_full(node)).collect()
}

fn is_full(node: &NodeStatus) -> bool {
    node.cpu_capacity.0 > 0.0 && node.cpu_used.0 >= FULL * node.cpu_capacity.0
}

fn cause(flow: &FlowStatus, full: &[&NodeStatus], app: &AppStatus) -> String {
    if !full.is_empty() {
        let told: Vec<String> = full.iter().map(|node| told_use(node)).collect();
        return format!("The CPU is used up: {}, of which {} uses {:.2}.", told.join(", "), app.name, app.cpu_used.0);
    }
    let waits = (flow.response.mean_ms - flow.service.mean_ms).max(0.0);
    if waits > flow.service.mean_ms {
        return format!("Its requests wait {waits:.0} ms in the queue on average for one of {} seats.", flow.seats);
    }
    format!(
        "Its instances take {:.0} ms for a request on average, though their nodes have CPU to spare: so a request either waits \
         for something else or simply takes that long.",
        flow.service.mean_ms
    )
}

fn told_use(node: &NodeStatus) -> String {
    format!("{} uses {:.2} of {:.2} cores", node.name, node.cpu_used.0, node.cpu_capacity.0)
}

/// What would change it, where the plan knows and the measurement does not speak against it.
fn remedy(app: &AppStatus, utility: f64, full: &[&NodeStatus], status: &Status, report: &Report) -> Option<String> {
    let explained = report.apps.get(&app.name)?;
    match &explained.binding {
        Binding::Memory { missing } => {
            Some(format!("Another instance would need {missing} more free memory on a node that it may run on."))
        }
        Binding::MaxInstances { max } => Some(format!("`instances.max` allows it no more than {max} instances.")),
        Binding::Manual => Some("weal may not change its placement: `manual` is set, or `control` is off.".to_owned()),
        Binding::Constraint { what } => Some(sentence(&format!("More instances are not possible: {what}"))),
        Binding::Cpu { .. } | Binding::InstanceCpu if !full.is_empty() => one_more_core(app, utility, status, report),
        _ => None,
    }
}

/// The gain is the worst off's, so it is said of no other.
fn one_more_core(app: &AppStatus, utility: f64, status: &Status, report: &Report) -> Option<String> {
    let lowest = status.apps.iter().filter_map(|other| Some(other.utility?.0)).fold(f64::INFINITY, f64::min);
    if utility > lowest {
        return Some("Others that share the CPU are worse off.".to_owned());
    }
    let gain = report.utility_per_core;
    match utility + gain {
        _ if gain <= 1e-3 => None,
        after if after >= 0.0 => Some("One more core would fix it.".to_owned()),
        _ => Some(format!("One more core would not be enough for {}.", app.name)),
    }
}

#[cfg(test)]
mod tests;
