//! Why a placement is as it is: in words, with the numbers that made it so.

use std::collections::BTreeMap;

use weal_model::{AppExplanation, AppName, Binding, Bytes, Cpu, Report, Snapshot, Utility};

use super::HELD;
use crate::placement::policy::Policy;
use crate::placement::problem::Problem;
use crate::placement::problem::layout::{Layout, Obstacle};
use crate::placement::problem::mandatory::{Missing, best_node};
use crate::placement::problem::translate::Translation;
use crate::placement::solve::Solution;
use crate::placement::solve::distribute::{distribute, level_for};
use crate::placement::solve::max_flow::FlowNetwork;
use crate::placement::steps::{Decided, Steps};

/// The report of a solved problem.
pub(in crate::placement) fn report(
    translation: &Translation,
    snapshot: &Snapshot,
    policy: &Policy,
    solution: &Solution,
    steps: Steps,
    jobs: Decided,
) -> Report {
    let apps: BTreeMap<AppName, AppExplanation> = (0..translation.apps.len() as u32)
        .map(|m| (translation.apps[m as usize].name.clone(), explain(translation, policy, solution, m)))
        .collect();
    let mut notes = translation.notes.clone();
    notes.extend(solution.missing.iter().map(|missing| lacks(translation, solution, missing)));
    notes.extend(jobs.jobs.values().map(|job| job.text.clone()).filter(|text| !text.is_empty()));
    let (utility_per_core, utility_per_gib) = shadow_prices(translation, solution);
    let asking =
        |m: &usize| policy.demands.contains_key(&translation.apps[*m].name) && translation.problem.apps[*m].demand() > 0.0;
    let apps_lowest = (0..translation.apps.len()).filter(asking).map(|m| solution.utilities[m]);
    let lowest = apps_lowest.chain(jobs.lowest.map(|lowest| lowest.0)).min_by(f64::total_cmp);
    Report {
        generation: snapshot.generation,
        lowest_utility: lowest.map(Utility),
        upper_bound: lowest.map(|lowest| Utility(solution.bound.utility.max(lowest))),
        apps,
        flows: Vec::new(),
        jobs: jobs.jobs,
        reasons: steps.reasons,
        notes,
        utility_per_core,
        utility_per_gib,
        look_again_s: jobs.look_again_s,
    }
}

fn explain(translation: &Translation, policy: &Policy, solution: &Solution, m: u32) -> AppExplanation {
    let (app, spec) = (&translation.problem.apps[m as usize], translation.apps[m as usize]);
    let measured = policy.demands.contains_key(&spec.name);
    let utility = solution.utilities[m as usize];
    let binding = if !measured { Binding::Unmeasured } else { binding(translation, policy, solution, m) };
    let (instances, given) = (solution.layout.instances(m), solution.layout.given(m));
    let running = if instances == 1 { "1 instance".to_owned() } else { format!("{instances} instances") };
    let missing = solution.missing.iter().find(|missing| missing.app == m);
    let text = match measured {
        _ if missing.is_some() => missing.map(|missing| lacks(translation, solution, missing)).unwrap_or_default(),
        false => format!("`{}` runs {running}; nothing has been measured yet", spec.name),
        true if app.demand() <= 0.0 => format!("`{}` runs {running} and gets no requests", spec.name),
        true => format!(
            "`{}` gets {given:.2} of the {:.2} CPU that it could use, from {running}, and the plan expects a utility of {utility:+.2}; {}",
            spec.name,
            app.demand(),
            words(&binding, shares_cpu(&solution.layout, m))
        ),
    };
    AppExplanation {
        demand: Cpu(app.demand()),
        allocation: Cpu(given),
        utility: (measured && app.demand() > 0.0).then_some(Utility(utility)),
        binding,
        text,
    }
}

// What keeps an application from more.
fn binding(translation: &Translation, policy: &Policy, solution: &Solution, m: u32) -> Binding {
    let (problem, layout) = (&translation.problem, &solution.layout);
    let (app, spec) = (&problem.apps[m as usize], translation.apps[m as usize]);
    if solution.utilities[m as usize] >= app.best() - problem.tolerance || app.demand() <= 0.0 {
        return Binding::Satisfied;
    }
    if spec.manual || !policy.pool.control {
        return Binding::Manual;
    }
    if policy.held.contains(&spec.name) {
        return Binding::Constraint { what: HELD.to_owned() };
    }
    if !policy.algorithm.knows_goals() {
        return Binding::Constraint {
            what: format!("placement is `{}`: it shares CPU equally and knows no goals", policy.algorithm.word()),
        };
    }
    let edges = layout.of_app(m);
    let at_limit = !edges.is_empty() && edges.iter().all(|&edge| layout.room(problem, edge) <= layout.epsilon());
    let full = (0u32..).zip(&problem.nodes).all(|(n, _)| !app.allows(n) || layout.spare(n) <= layout.epsilon());
    match best_node(problem, layout, m, false) {
        Ok(_) if full => {
            Binding::Cpu { nodes: edges.iter().map(|&edge| translation.nodes[layout.edge(edge).node as usize].clone()).collect() }
        }
        Ok(_) => Binding::ChangeCost,
        Err(_) if full && !at_limit => {
            Binding::Cpu { nodes: edges.iter().map(|&edge| translation.nodes[layout.edge(edge).node as usize].clone()).collect() }
        }
        Err(Obstacle::Memory) => Binding::Memory { missing: missing_memory(translation, solution, m) },
        Err(Obstacle::MaxInstances) if at_limit => Binding::InstanceCpu,
        Err(Obstacle::MaxInstances) => Binding::MaxInstances { max: app.instances.1 },
        Err(other) => Binding::Constraint { what: obstacle(translation, solution, m, other) },
    }
}

fn missing_memory(translation: &Translation, solution: &Solution, m: u32) -> Bytes {
    let need = translation.problem.apps[m as usize].memory;
    let nodes = (0..translation.nodes.len() as u32).filter(|&n| translation.problem.apps[m as usize].allows(n));
    Bytes(nodes.map(|n| need.saturating_sub(solution.layout.free_memory(n))).min().unwrap_or(need))
}

// True when the plan gives others CPU of a node that `m` is on.
fn shares_cpu(layout: &Layout, m: u32) -> bool {
    let nodes = layout.of_app(m).iter().map(|&edge| layout.edge(edge).node);
    let mut beside = nodes.flat_map(|n| layout.on_node(n)).map(|&edge| layout.edge(edge));
    beside.any(|edge| edge.app != m && edge.load > layout.epsilon())
}

fn words(binding: &Binding, shares_cpu: bool) -> String {
    match binding {
        Binding::Satisfied => "more would not help it".to_owned(),
        Binding::Cpu { nodes } if nodes.is_empty() => "no node that it may run on has CPU left".to_owned(),
        Binding::Cpu { nodes } => {
            let names: Vec<&str> = nodes.iter().take(3).map(weal_model::NodeName::as_str).collect();
            let more = if nodes.len() > 3 { " and others" } else { "" };
            let beside = match shares_cpu {
                true => "shared with others that the plan expects to be no better off",
                false => "and no other application uses it",
            };
            format!("all CPU of {}{more} is given out, {beside}", names.join(", "))
        }
        Binding::Memory { missing } => format!("the node with the most room lacks {missing} of memory for another instance"),
        Binding::MaxInstances { max } => format!("`instances.max` allows it {max} instances"),
        Binding::InstanceCpu => "its instances are at their CPU limit".to_owned(),
        Binding::Constraint { what } => what.clone(),
        Binding::ChangeCost => "another instance would cost more than it gains".to_owned(),
        Binding::Manual => "weal may not change its placement (`manual`, or `control` is off)".to_owned(),
        Binding::Unmeasured => "nothing has been measured yet".to_owned(),
    }
}

/// How many instances an application must have and has not, and why.
fn lacks(translation: &Translation, solution: &Solution, missing: &Missing) -> String {
    let (name, why) =
        (&translation.apps[missing.app as usize].name, obstacle(translation, solution, missing.app, missing.obstacle));
    format!("`{name}` lacks {} of its instances: {why}", missing.instances)
}

fn obstacle(translation: &Translation, solution: &Solution, m: u32, obstacle: Obstacle) -> String {
    let spec = translation.apps[m as usize];
    let name = |other: u32| translation.apps[other as usize].name.clone();
    match obstacle {
        Obstacle::Memory => {
            let nodes = (0..translation.nodes.len() as u32).filter(|&n| translation.problem.apps[m as usize].allows(n));
            let most = nodes.map(|n| (solution.layout.free_memory(n), n)).max_by_key(|&(free, n)| (free, std::cmp::Reverse(n)));
            let most = most.map_or_else(String::new, |(free, n)| {
                format!(": {} has the most, {}", translation.nodes[n as usize], Bytes(free))
            });
            format!("no node that it may run on has {} of memory free{most}", spec.memory)
        }
        Obstacle::MaxInstances => format!("`instances.max` allows it {} instances", spec.instances.max),
        Obstacle::MaxNodes => "it is on as many nodes as it may be".to_owned(),
        Obstacle::PerNode => match spec.per_node {
            1 => "every node that it may run on already has an instance of it (`per-node = 1`)".to_owned(),
            most => format!("every node that it may run on already has {most} instances of it (`per-node`)"),
        },
        Obstacle::NotAllowed => "none of the nodes that it may run on answers".to_owned(),
        Obstacle::Apart(other) => format!("it must be apart from `{}`", name(other)),
        Obstacle::Together(other) => format!("it must be together with `{}`", name(other)),
        Obstacle::MinCpu => "no node has the CPU that each instance must get".to_owned(),
        Obstacle::MinInstances | Obstacle::Fixed => "weal may move no other instance for it".to_owned(),
    }
}

/// What the worst off would gain from one more core, and from one more GiB, where it helps most.
fn shadow_prices(translation: &Translation, solution: &Solution) -> (f64, f64) {
    let problem = &translation.problem;
    let can_gain = |m: &u32| solution.utilities[*m as usize] < problem.apps[*m as usize].best() - solution.layout.epsilon();
    let worst = (0..translation.apps.len() as u32)
        .filter(can_gain)
        .min_by(|&a, &b| solution.utilities[a as usize].total_cmp(&solution.utilities[b as usize]));
    let Some(m) = worst else { return (0.0, 0.0) };
    let mut flow = FlowNetwork::new(problem);
    (per_core(problem, solution, &mut flow, m), per_gib(problem, solution, &mut flow, m))
}

// The minimum cut around the worst off says who shares its CPU at its level: one more core on any of these nodes lifts all of them to where
// their needs are one core more.
fn per_core(problem: &Problem, solution: &Solution, flow: &mut FlowNetwork, m: u32) -> f64 {
    let level = solution.utilities[m as usize];
    let lifted = level + problem.tolerance.max(1e-6);
    let all: Vec<u32> = (0..problem.apps.len() as u32).collect();
    let at_level = |m: u32| solution.utilities[m as usize] <= lifted;
    let want: Vec<f64> = all
        .iter()
        .map(|&other| if at_level(other) { problem.apps[other as usize].cpu_for(lifted) } else { solution.layout.given(other) })
        .collect();
    flow.saturate(problem, &mut solution.layout.clone(), &want, &all);
    if !flow.reached(m) || flow.cut_nodes.is_empty() {
        return 0.0;
    }
    let sharing: Vec<u32> = flow.cut_apps.iter().copied().filter(|&other| at_level(other)).collect();
    let cpu: f64 = sharing.iter().map(|&other| solution.layout.given(other)).sum();
    (level_for(problem, &sharing, cpu + 1.0) - level).max(0.0)
}

// One more instance on the node that lacks at most that much and has most CPU to spare.
fn per_gib(problem: &Problem, solution: &Solution, flow: &mut FlowNetwork, m: u32) -> f64 {
    let layout = &solution.layout;
    let nearly = |n: &u32| layout.free_memory(*n).saturating_add(Bytes::GIB) >= problem.apps[m as usize].memory;
    let blocked = (0..problem.nodes.len() as u32)
        .filter(nearly)
        .filter(|&n| layout.may_add_with_companions(problem, m, n) == Err(Obstacle::Memory));
    let Some(n) = blocked.max_by(|&a, &b| layout.spare(a).total_cmp(&layout.spare(b)).then(b.cmp(&a))) else { return 0.0 };
    let mut more = layout.clone();
    more.add(problem, m, n);
    (distribute(problem, &mut more, flow)[m as usize] - solution.utilities[m as usize]).max(0.0)
}
