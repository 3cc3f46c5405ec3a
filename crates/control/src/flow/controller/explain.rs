//! Why a flow has the seats it has, in sentences with the numbers that made it so.

use weal_model::{Binding, FlowAllocation, FlowExplanation, Goal, NodeName};

use super::pool::Pool;
use crate::flow::seats::SeatSolution;
use crate::profile::{FlowProfile, Profiles, Resource};

pub(super) fn flow(
    pool: &Pool,
    solution: &SeatSolution,
    profiles: &Profiles,
    planned: &FlowAllocation,
    f: usize,
    seats_before: u32,
) -> FlowExplanation {
    let binding = binding(pool, solution, f);
    let mut text = seats(planned.seats, seats_before);
    text.push_str(&achieved(pool, f, profiles.flow(&planned.id)));
    text.push_str(&reason(pool, solution, &binding, planned, f));
    match profiles.bottleneck(&planned.id.app) {
        None | Some(Resource::Cpu) => {}
        Some(Resource::Concurrency) => {
            text.push_str(&format!(
                " {} waits for something that weal does not measure: not CPU, disk or network.",
                planned.id.app
            ));
        }
        Some(resource) => text.push_str(&format!(" {} runs out of {resource} before CPU.", planned.id.app)),
    }
    FlowExplanation { id: planned.id.clone(), seats_before, seats: planned.seats, binding, text }
}

fn binding(pool: &Pool, solution: &SeatSolution, f: usize) -> Binding {
    if !pool.measured(f) {
        return Binding::Unmeasured;
    }
    match solution.stuck[f].map(|at| &solution.bottlenecks[at]) {
        None => Binding::Satisfied,
        Some(bottleneck) if bottleneck.nodes.is_empty() => Binding::InstanceCpu,
        Some(bottleneck) => Binding::Cpu { nodes: bottleneck.nodes.iter().map(|&m| pool.node_names[m].clone()).collect() },
    }
}

fn seats(now: u32, before: u32) -> String {
    let seats = if now == 1 { "1 seat".to_owned() } else { format!("{now} seats") };
    if before == 0 || before == now { format!("{seats}.") } else { format!("{seats}, before {before}.") }
}

fn achieved(pool: &Pool, f: usize, profile: Option<&FlowProfile>) -> String {
    let model = &pool.problem.flows[f].appetite.model;
    let Some((goal, achieved)) = model.goal.zip(profile.and_then(FlowProfile::achieved)) else { return String::new() };
    let utility = goal.utility(achieved, model.importance);
    let got = match goal {
        Goal::Throughput { .. } => format!("{achieved:.1}/s"),
        _ => format!("{:.0} ms", achieved * 1e3),
    };
    format!(" Lately {got} against the goal {goal}: utility {utility}.")
}

fn reason(pool: &Pool, solution: &SeatSolution, binding: &Binding, planned: &FlowAllocation, f: usize) -> String {
    match binding {
        Binding::Unmeasured if !pool.has_home(f) => " No instance is ready; requests wait until one is.".to_owned(),
        Binding::Unmeasured => " Nothing is known of its requests yet, so each ready instance may have two of them.".to_owned(),
        Binding::Satisfied => " More seats or CPU would not make it faster.".to_owned(),
        Binding::InstanceCpu => {
            format!(
                " Its instances are at their CPU limit. With {} the plan expects a utility of {}.",
                planned.allocation, planned.predicted
            )
        }
        Binding::Cpu { nodes } => {
            let others = same_bottleneck(solution, f);
            let beside = match others {
                0 => String::new(),
                1 => "; the flow beside it is expected to be no better off".to_owned(),
                _ => format!("; the {others} flows beside it are expected to be no better off"),
            };
            format!(
                " All CPU of {} is given out. The flow gets {:.2} of the {:.2} CPU that it could use, and the plan expects a utility of {} \
                 for it{beside}.",
                these(nodes),
                planned.allocation.0,
                planned.demand.0,
                planned.predicted
            )
        }
        _ => String::new(),
    }
}

fn same_bottleneck(solution: &SeatSolution, f: usize) -> usize {
    solution.stuck.iter().enumerate().filter(|&(other, stuck)| other != f && *stuck == solution.stuck[f]).count()
}

fn these(nodes: &[NodeName]) -> String {
    match nodes {
        [one] => format!("node {one}"),
        [first, rest @ ..] if rest.len() < 4 => {
            let rest: Vec<&str> = rest.iter().map(NodeName::as_str).collect();
            format!("nodes {first}, {}", rest.join(", "))
        }
        _ => format!("{} nodes", nodes.len()),
    }
}
