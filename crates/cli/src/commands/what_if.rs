//! `weal what-if`: a recording simulated as it was, and with something changed (docs/recordings.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use weal_load::Recording;
use weal_model::written::parse_size;
use weal_model::{AppName, Cpu, Goal, InstanceState, NodeSpec, PoolSpec, Report, Status};
use weal_rng as random;
use weal_scenario::report::{AppSeries, FlowSeries, Run};
use weal_scenario::{Behaviour, Call, LoadSource, RequestCost, Scenario, Span, Surroundings, WorkDistribution};

use crate::args::WhatIf;
use crate::commands::simulate::{simulate_shown, sound};
use crate::config_file;
use crate::failure::{Exit, Failure};
use crate::output::{self, Table, Tone, cell, milliseconds, toned};
use crate::state::DEFAULT_FILE;
use crate::values::{ValueError, factor, halves};

/// Between two processes of one machine, through the loopback and the gateway.
const LATENCY: Span = Span(0.0003);
/// Of the beginning, so much is left out of what is shown: the controller knows nothing of the flows yet.
const WARM_UP_S: f64 = 60.0;
/// A change of utility that is felt: a twentieth of the way from a missed goal to the best that there is.
const FELT_UTILITY: f64 = 0.05;
/// The same of a response time or a rate, as a share.
const FELT_TIME: f64 = 0.05;
/// The same of the mean number of instances: a tenth of the time with one more or one fewer.
const FELT_INSTANCES: f64 = 0.1;

/// The same of a run of this length: a third at most.
fn warm_up_s(duration_s: f64) -> f64 {
    WARM_UP_S.min(duration_s / 3.0)
}

/// Runs it.
///
/// # Errors
/// The recording or the config cannot be used, or a change names what is not there.
pub fn run(order: &WhatIf, json: bool) -> anyhow::Result<()> {
    let file = File::open(&order.recording).with_context(|| format!("cannot read {}", order.recording.display()))?;
    let recording = Recording::read(BufReader::new(file)).with_context(|| format!("cannot use {}", order.recording.display()))?;
    let config = config_file::load(order.target.file.as_deref().unwrap_or(Path::new(DEFAULT_FILE)))?;
    let pool = config.spec.clone();
    let before = scenario_of(&recording, config.spec, order.seed);
    let after = changed(before.clone(), order)?;
    let (before, after) = (simulate_shown(&before)?, simulate_shown(&after)?);
    sound(&before)?;
    sound(&after)?;
    let mut comparison = Comparison::of(&before.run, &after.run, &pool);
    comparison.explain(after.shown.as_ref());
    if json { output::json(&comparison, false) } else { comparison.show() }
}

/// The recorded pool as a scenario. Flows that the config has no route for any more are left out.
fn scenario_of(recording: &Recording, pool: PoolSpec, seed: u64) -> Scenario {
    let mut behaviours: BTreeMap<String, Behaviour> =
        pool.apps.keys().map(|app| (app.to_string(), Behaviour::default())).collect();
    for (flow, work) in &recording.work {
        let Some((app, class)) = flow.split_once('/') else { continue };
        let Some(behaviour) = behaviours.get_mut(app) else { continue };
        let cost = cost_of(app, work, recording.service_s.get(flow).copied(), &pool);
        behaviour.assumed = false;
        behaviour.classes.insert(class.to_owned(), cost);
    }
    for (place, states) in &recording.placement {
        let Some((app, node)) = place.split_once('@') else { continue };
        if let Some(behaviour) = behaviours.get_mut(app).filter(|_| pool.nodes.iter().any(|known| known.name.as_str() == node)) {
            let ready = states.iter().filter(|state| **state == InstanceState::Ready);
            behaviour.initially.extend(ready.map(|_| node.to_owned()));
        }
    }
    let routed = |app: &str, class: &str| {
        pool.apps.get(app).is_some_and(|spec| spec.routes.iter().any(|route| route.class.as_str() == class))
    };
    let loads = recording.workloads.iter().filter_map(|(flow, workload)| {
        let (app, class) = flow.split_once('/').filter(|(app, class)| routed(app, class))?;
        Some(LoadSource {
            name: flow.clone(),
            app: app.to_owned(),
            class: class.to_owned(),
            path: "/".to_owned(),
            host: None,
            headers: Default::default(),
            workload: workload.clone(),
            pages: Vec::new(),
            work_factor: 1.0,
        })
    });
    Scenario {
        intent: format!("The recording of {}, simulated.", recording.pool),
        seed,
        duration_s: recording.duration_s,
        warm_up_s: warm_up_s(recording.duration_s),
        config: None,
        loads: loads.collect(),
        jobs: Vec::new(),
        behaviours,
        surroundings: Surroundings { latency: LATENCY, slices_of: config_file::machine().cpus as u32, ..Surroundings::default() },
        pool,
        faults: Vec::new(),
        expectations: Vec::new(),
    }
}

/// CPU in the application itself and in those that it needs; what is left of the time in a seat is waiting.
fn cost_of(app: &str, work: &BTreeMap<String, f64>, service_s: Option<f64>, pool: &PoolSpec) -> RequestCost {
    let known = |name: &&String| pool.apps.contains_key(name.as_str());
    let others = work.iter().filter(|(name, work_s)| *name != app && **work_s > 0.0 && known(name));
    let calls = others.map(|(name, work_s)| Call { app: name.clone(), count: 1, work_s: Some(*work_s) }).collect();
    let all_s: f64 = work.values().sum();
    let delay_s = service_s.map_or(0.0, |service_s| (service_s - all_s - 2.0 * LATENCY.0).max(0.0));
    RequestCost {
        work_s: work.get(app).copied().unwrap_or(0.0),
        spread: WorkDistribution::Constant,
        delay_s,
        calls,
        ..RequestCost::default()
    }
}

fn changed(mut scenario: Scenario, order: &WhatIf) -> anyhow::Result<Scenario> {
    for change in &order.goal {
        let (class, goal) = halves(change)?;
        let class = scenario.pool.classes.get_mut(class).ok_or_else(|| missing("class", class))?;
        class.goal = Some(goal.parse::<Goal>().map_err(|error| Failure::new(Exit::Usage, error.to_string()))?);
    }
    for change in &order.node {
        let (name, sizes) = halves(change)?;
        change_node(&mut scenario, name, sizes)?;
    }
    for change in &order.cost {
        let (app, times) = halves(change)?;
        let factor = factor(times)?;
        if factor == 0.0 {
            return Err(Failure::new(Exit::Usage, format!("a request to {app} costs something: give a factor above 0")).into());
        }
        let behaviour = scenario.behaviours.get_mut(app).ok_or_else(|| missing("application", app))?;
        behaviour.request.work_s *= factor;
        behaviour.classes.values_mut().for_each(|cost| cost.work_s *= factor);
        let all = scenario.behaviours.values_mut().flat_map(|behaviour| behaviour.classes.values_mut());
        let calls = all.flat_map(|cost| &mut cost.calls).filter(|call| call.app == app);
        calls.for_each(|call| call.work_s = call.work_s.map(|work_s| work_s * factor));
    }
    for change in &order.load {
        let (app, times) = change.split_once('=').map_or((None, change.as_str()), |(app, times)| (Some(app), times));
        let factor = factor(times)?;
        if let Some(app) = app.filter(|app| !scenario.pool.apps.contains_key(*app)) {
            return Err(missing("application", app).into());
        }
        for load in scenario.loads.iter_mut().filter(|load| app.is_none_or(|app| load.app == app)) {
            let mut chance = random::stream(scenario.seed, &format!("{}/more or fewer", load.name));
            load.workload = load.workload.with_clients(factor, &mut chance);
        }
    }
    Ok(scenario)
}

/// `off`, or cores and memory, either of which an existing node may leave out.
fn change_node(scenario: &mut Scenario, name: &str, sizes: &str) -> anyhow::Result<()> {
    let nodes = &mut scenario.pool.nodes;
    let at = nodes.iter().position(|node| node.name.as_str() == name);
    if sizes.trim() == "off" {
        nodes.remove(at.ok_or_else(|| missing("node", name))?);
        for spec in scenario.pool.apps.values_mut() {
            if let Some(allowed) = &mut spec.nodes {
                allowed.remove(name);
            }
        }
        scenario.behaviours.values_mut().for_each(|behaviour| behaviour.initially.retain(|node| node != name));
        if nodes.is_empty() {
            return Err(Failure::new(Exit::Usage, format!("without `{name}` the pool has no node")).into());
        }
        return Ok(());
    }
    let mut node = at.map(|at| nodes.remove(at));
    let (cores, memory) = sizes.split_once(',').unwrap_or((sizes, ""));
    let cpu = cores.trim().parse::<f64>().ok().filter(|cores| cores.is_finite() && *cores > 0.0).map(Cpu);
    let cpu = cpu.ok_or_else(|| ValueError::Node(sizes.to_owned()))?;
    let memory = match (memory.trim(), &node) {
        ("", Some(node)) => node.memory,
        (memory, _) => parse_size(memory)?,
    };
    let limit = node.take().map_or(0.95, |node| node.utilization_limit);
    nodes.push(NodeSpec { name: name.into(), cpu, memory, utilization_limit: limit });
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    // What the machine does not have comes with the node.
    let cores = nodes.iter().map(|node| node.cpu.0).sum::<f64>().ceil() as u32;
    scenario.surroundings.slices_of = scenario.surroundings.slices_of.max(cores);
    Ok(())
}

fn missing(what: &str, name: &str) -> Failure {
    Failure::new(Exit::Usage, format!("the pool has no {what} `{name}`"))
}

/// Before and after.
#[derive(Debug, Serialize)]
struct Comparison {
    flows: Vec<ComparedFlow>,
    /// How busy each node is: a flow that gains nothing by more CPU may not have been short of it.
    nodes: Vec<ComparedNode>,
    /// How many instances each application has.
    apps: Vec<ComparedApp>,
    changes_before: usize,
    changes_after: usize,
}

/// A node, in either run; `None` where it is not there.
#[derive(Debug, Serialize)]
struct ComparedNode {
    name: String,
    before: Option<Busy>,
    after: Option<Busy>,
}

/// Cores, the first a mean over the run without its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Busy {
    cpu_used: f64,
    cpu_capacity: f64,
}

/// Ready instances, a mean over the run without its beginning.
#[derive(Debug, Serialize)]
struct ComparedApp {
    name: String,
    before: f64,
    after: f64,
    most: u32,
    /// Why it fares as it does with the change, in the words of `weal why` at the end of the run; `None` where the change is hardly felt and no
    /// goal is missed.
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct ComparedFlow {
    name: String,
    before: Side,
    after: Side,
}

#[derive(Debug, Serialize)]
struct Side {
    goal: String,
    /// Mean over the run without its beginning, as the next two.
    utility: Option<f64>,
    mean_ms: f64,
    p95_ms: f64,
    answered_per_s: f64,
    rejected: u64,
    failed: u64,
}

impl ComparedFlow {
    /// Whether somebody who reads it would ask why.
    fn asks_why(&self) -> bool {
        let is_other = |was: f64, is: f64, by: f64| (was - is).abs() > by;
        let utility = |side: &Side| side.utility.unwrap_or(0.0);
        utility(&self.after) < 0.0
            || is_other(utility(&self.before), utility(&self.after), FELT_UTILITY)
            || is_other(self.before.mean_ms, self.after.mean_ms, FELT_TIME * self.before.mean_ms)
            || is_other(self.before.answered_per_s, self.after.answered_per_s, FELT_TIME * self.before.answered_per_s)
    }
}

impl Comparison {
    fn of(before: &Run, after: &Run, pool: &PoolSpec) -> Self {
        let side = |run: &Run, flow: &FlowSeries| {
            let from_s = warm_up_s(run.duration_s);
            let utilities: Vec<f64> =
                flow.points.iter().filter(|point| point.t_s >= from_s).filter_map(|point| point.utility).collect();
            let (mean_ms, p95_ms) = flow.summary.settled_ms.unwrap_or((flow.summary.mean_ms, flow.summary.p95_ms));
            Side {
                goal: flow.goal.clone(),
                utility: (!utilities.is_empty()).then(|| utilities.iter().sum::<f64>() / utilities.len() as f64),
                mean_ms,
                p95_ms,
                answered_per_s: flow.summary.answered as f64 / run.duration_s,
                rejected: flow.summary.rejected,
                failed: flow.summary.failed,
            }
        };
        let flows = before.flows.iter().zip(&after.flows);
        let flow = |(old, new): (&FlowSeries, &FlowSeries)| ComparedFlow {
            name: old.name.clone(),
            before: side(before, old),
            after: side(after, new),
        };
        let changes = |run: &Run| run.changes.iter().filter(|change| change.placement).count();
        let most = |name: &str| pool.apps.get(name).map_or(0, |app| app.instances.max);
        let app = |(old, new): (&AppSeries, &AppSeries)| ComparedApp {
            name: old.name.clone(),
            before: mean_ready(old, before.duration_s),
            after: mean_ready(new, after.duration_s),
            most: most(&old.name),
            why: None,
        };
        Self {
            flows: flows.map(flow).collect(),
            nodes: compared_nodes(before, after),
            apps: before.apps.iter().zip(&after.apps).map(app).collect(),
            changes_before: changes(before),
            changes_after: changes(after),
        }
    }

    /// Says of each application that feels the change, or misses a goal with it, why it fares so.
    fn explain(&mut self, shown: Option<&(Status, Report)>) {
        let Some((status, report)) = shown else { return };
        let Self { flows, apps, .. } = self;
        for app in apps {
            let mut mine = flows.iter().filter(|flow| flow.name.split('/').next() == Some(app.name.as_str()));
            if mine.any(ComparedFlow::asks_why) || (app.before - app.after).abs() >= FELT_INSTANCES {
                app.why = weal_controller::reason(&AppName::from(app.name.as_str()), status, report);
            }
        }
    }

    fn show(&self) -> anyhow::Result<()> {
        let mut table = Table::new(&["FLOW", "", "GOAL", "UTILITY", "MEAN", "P95", "ANSWERED/S", "REJECTED", "FAILED"]);
        for flow in &self.flows {
            for (name, when, side) in [(flow.name.as_str(), "before", &flow.before), ("", "after", &flow.after)] {
                let tone = |utility: f64| if utility < 0.0 { Tone::Bad } else { Tone::Good };
                table.row(vec![
                    cell(name),
                    cell(when),
                    cell(&side.goal),
                    side.utility.map_or(cell("-"), |utility| toned(format!("{utility:+.2}"), tone(utility))),
                    cell(milliseconds(side.mean_ms)),
                    cell(milliseconds(side.p95_ms)),
                    cell(format!("{:.1}", side.answered_per_s)),
                    cell(side.rejected.to_string()),
                    cell(side.failed.to_string()),
                ]);
            }
        }
        output::print(&table.render());
        output::print(&format!("\n{}\n{}\n", self.nodes_text(), self.apps_text()));
        output::print(&self.why_text());
        output::line(&format!("placement changes: {} before, {} after", self.changes_before, self.changes_after));
        Ok(())
    }
}

impl Comparison {
    fn nodes_text(&self) -> String {
        let mut table = Table::new(&["NODE", "CPU BEFORE", "CPU AFTER"]);
        let shown = |busy: Option<Busy>| {
            cell(busy.map_or_else(|| "-".to_owned(), |busy| format!("{:.2} of {:.2}", busy.cpu_used, busy.cpu_capacity)))
        };
        self.nodes.iter().for_each(|node| table.row(vec![cell(&node.name), shown(node.before), shown(node.after)]));
        table.render()
    }

    fn why_text(&self) -> String {
        let told: String = self.apps.iter().filter_map(|app| Some(format!("  {}: {}\n", app.name, app.why.as_ref()?))).collect();
        if told.is_empty() { told } else { format!("Why, at the end of the changed run:\n{told}\n") }
    }

    fn apps_text(&self) -> String {
        let mut table = Table::new(&["APP", "INSTANCES BEFORE", "AFTER", "AT MOST"]);
        for app in &self.apps {
            let ready = |ready: f64| cell(format!("{ready:.1}"));
            table.row(vec![cell(&app.name), ready(app.before), ready(app.after), cell(app.most.to_string())]);
        }
        table.render()
    }
}

/// The nodes of either run, by their names.
fn compared_nodes(before: &Run, after: &Run) -> Vec<ComparedNode> {
    let names: BTreeSet<&String> = before.nodes.iter().chain(&after.nodes).map(|node| &node.name).collect();
    let busy = |run: &Run, name: &str| {
        let node = run.nodes.iter().find(|node| node.name == name)?;
        let from_s = warm_up_s(run.duration_s);
        let used: Vec<f64> = node.points.iter().filter(|point| point.t_s >= from_s).map(|point| point.cpu_used).collect();
        let cpu_used = if used.is_empty() { 0.0 } else { used.iter().sum::<f64>() / used.len() as f64 };
        Some(Busy { cpu_used, cpu_capacity: node.cpu_capacity })
    };
    let node = |name: &String| ComparedNode { name: name.clone(), before: busy(before, name), after: busy(after, name) };
    names.into_iter().map(node).collect()
}

/// A mean over time: each count holds up to the next.
fn mean_ready(app: &AppSeries, duration_s: f64) -> f64 {
    let from_s = warm_up_s(duration_s);
    let ends = app.ready.iter().skip(1).map(|(at, _)| *at).chain([duration_s]);
    let held = app.ready.iter().zip(ends).map(|((at, count), end)| (end - at.max(from_s)).max(0.0) * f64::from(*count));
    held.sum::<f64>() / (duration_s - from_s).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDING: &str = r#"{"recording":"weal","version":1,"pool":"demo","started":0,"listen":"x"}
{"t_s":1.0,"arrivals":{"shop/gold":20},"work":{"shop/gold":{"shop":0.02}},"service":{"shop/gold":0.03},"placement":{"shop@n1":["ready"]}}
"#;

    /// Twenty minutes of Poisson arrivals on a machine with one core.
    fn scenario() -> Scenario {
        let mut text = RECORDING.to_owned();
        let mut chance = random::stream(1, "test");
        for second in 2..=1200 {
            text += &format!("{{\"t_s\":{second},\"arrivals\":{{\"shop/gold\":{}}}}}\n", random::poisson(&mut chance, 20.0));
        }
        let config = "[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n[class.gold]\ngoal = \"mean < 100ms\"\n\
                      [app.shop]\nrun = [\"/bin/true\"]\nmemory = \"64MiB\"\nroutes = [{ host = \"shop.localhost\", class = \"gold\" }]\n";
        let pool = weal_config::parse(config, "weal.toml", &config_file::machine()).expect("a config").spec;
        let mut scenario = scenario_of(&Recording::read(text.as_bytes()).expect("a recording"), pool, 1);
        scenario.surroundings.slices_of = 1;
        scenario
    }

    fn order(arguments: &[&str]) -> WhatIf {
        use clap::Parser;
        let all = ["weal", "what-if", "x"].iter().chain(arguments);
        match crate::args::Cli::parse_from(all).command {
            crate::args::Command::WhatIf(order) => order,
            other => panic!("{other:?}"),
        }
    }

    /// Requests take 20 ms of CPU, always, and 10 ms of waiting. One core serves them in turn or side by side, as the gateway has it: the
    /// mean lies between M/D/1 in order of arrival (Pollaczek and Khinchin) and M/D/1 under processor sharing.
    #[test]
    fn more_load_and_larger_nodes_do_what_queueing_theory_says() {
        let mean_ms = |arguments: &[&str]| {
            let scenario = changed(scenario(), &order(arguments)).unwrap();
            simulate_shown(&scenario).unwrap().run.flows[0].summary.mean_ms
        };
        const REST_MS: f64 = 10.0;
        const WORK_MS: f64 = 20.0;
        let in_turn = |load: f64| REST_MS + WORK_MS * (1.0 + load / (2.0 * (1.0 - load)));
        let side_by_side = |load: f64| REST_MS + WORK_MS / (1.0 - load);
        for (arguments, load) in
            [(&[][..], 0.4), (&["--load", "0.5"], 0.2), (&["--load", "2"], 0.8), (&["--cost", "shop=1.5"], 0.6)]
        {
            let scale = if arguments.contains(&"--cost") { 1.5 } else { 1.0 };
            let bounds = [in_turn, side_by_side].map(|bound: fn(f64) -> f64| scale * (bound(load) - REST_MS) + REST_MS);
            let mean_ms = mean_ms(arguments);
            assert!((0.93 * bounds[0]..1.07 * bounds[1]).contains(&mean_ms), "{arguments:?}: {mean_ms} ms, theory {bounds:?}");
        }
    }

    #[test]
    fn a_larger_node_takes_the_queue_away() {
        let mut scenario = changed(scenario(), &order(&["--load", "2", "--node", "n1=4.0"])).unwrap();
        scenario.surroundings.slices_of = 4;
        let mean_ms = simulate_shown(&scenario).unwrap().run.flows[0].summary.mean_ms;
        // M/D/4 at a load of 0.2 waits for less than a hundredth of its work.
        assert!((30.0..31.5).contains(&mean_ms), "{mean_ms}");
    }

    #[test]
    fn what_nodes_and_instances_did_stands_beside_what_flows_got() {
        let simulated = |arguments: &[&str]| simulate_shown(&changed(scenario(), &order(arguments)).unwrap()).unwrap().run;
        let pool = scenario().pool;
        let told = Comparison::of(&simulated(&[]), &simulated(&["--load", "2", "--node", "n2=1.0, 1GiB"]), &pool);
        let [n1, n2] = &told.nodes[..] else { panic!("{:?}", told.nodes) };
        assert!(n1.before.is_some_and(|busy| (busy.cpu_used - 0.4).abs() < 0.05 && busy.cpu_capacity == 1.0), "{n1:?}");
        assert!(n2.before.is_none() && n2.after.is_some(), "{n2:?}");
        assert!(
            (told.apps[0].before - 1.0).abs() < 0.1 && told.apps[0].most == pool.apps["shop"].instances.max,
            "{:?}",
            told.apps
        );
        let shown = told.nodes_text() + &told.apps_text();
        let is_new = |line: &str| line.split_whitespace().take(2).eq(["n2", "-"]);
        assert!(shown.contains("of 1.00") && shown.contains("AT MOST") && shown.lines().any(is_new), "{shown}");
    }

    #[test]
    fn an_application_that_feels_the_change_says_why_and_no_other_does() {
        let simulated = |arguments: &[&str]| simulate_shown(&changed(scenario(), &order(arguments)).unwrap()).unwrap();
        let (pool, was) = (scenario().pool, simulated(&[]));
        let why = |arguments: &[&str]| {
            let is = simulated(arguments);
            let mut told = Comparison::of(&was.run, &is.run, &pool);
            told.explain(is.shown.as_ref());
            (told.apps[0].why.clone(), told.why_text())
        };
        assert_eq!(why(&[]), (None, String::new()));
        // One core is not enough for three times the work, whatever the goal is.
        let (crowded, text) = why(&["--load", "3"]);
        assert!(crowded.as_ref().is_some_and(|why| why.contains("The CPU is used up: n1 uses")), "{crowded:?}");
        assert!(text.contains("shop: The CPU is used up") && text.starts_with("Why, at the end"), "{text}");
        // A request takes 30 ms with all the CPU that there is.
        let (impossible, _) = why(&["--goal", "gold=mean < 10ms"]);
        assert!(impossible.as_ref().is_some_and(|why| why.contains("on average")), "{impossible:?}");
    }

    #[test]
    fn counts_hold_up_to_the_next() {
        let app = AppSeries { name: "a".to_owned(), ready: vec![(0.0, 1), (100.0, 3), (130.0, 1)] };
        // From 50 s on: 50 s of one, 30 s of three, 20 s of one.
        assert!((mean_ready(&app, 150.0) - (50.0 + 90.0 + 20.0) / 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_change_that_names_what_is_not_there_says_so() {
        for (arguments, part) in [
            (["--goal", "tin=mean < 1s"], "no class `tin`"),
            (["--node", "n9=off"], "no node `n9`"),
            (["--node", "n1=off"], "without `n1` the pool has no node"),
            (["--cost", "chop=2"], "no application `chop`"),
            (["--load", "much"], "`much` is not a factor"),
            (["--node", "n1=lots"], "is not `CORES, MEMORY`"),
        ] {
            let error = changed(scenario(), &order(&arguments)).unwrap_err().to_string();
            assert!(error.contains(part), "{arguments:?}: {error}");
        }
    }
}
