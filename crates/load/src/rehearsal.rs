//! A scenario with real processes: which load to make, and what the pool's status says while it is made, as a [`Run`].
//!
//! This only turns data into data; `weal rehearse` starts the pool, asks it for its status about once a second, and
//! calls [`drive`](crate::drive) meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use weal_model::{
    Event, EventKind, FlowStatus, InstanceState, JobName, JobSpec, JobStatus, LatencyHistogram, LatencySummary, NodeStatus,
    Status, Time,
};
use weal_scenario::report::{ALL_JOBS, AppSeries, FlowPoint, FlowSeries, FlowSummary, NodePoint, NodeSeries, Run, RunEvent};
use weal_scenario::{LoadSource, Scenario};

use crate::driver::{LoadFlow, Request, Source};
use crate::jobs::Jobs;
use crate::tally::{FlowResult, LoadResult};

/// The load that a scenario asks for, against the gateway at `gateway`. Goals come from the pool's own status.
pub fn flows_of(scenario: &Scenario, gateway: SocketAddr, status: &Status) -> Vec<LoadFlow> {
    let flow = |load: &LoadSource| LoadFlow {
        name: load.name.clone(),
        request: Request {
            address: gateway,
            host: load.host.clone().unwrap_or_else(|| format!("{}.localhost", load.app)),
            method: "GET".into(),
            path: load.path.clone(),
            headers: load.headers.clone(),
            body: Bytes::new(),
        },
        source: Source::Workload(load.workload.clone()),
        pages: load.pages.clone(),
        target: target_of(status, load).map(Duration::from_secs_f64),
    };
    scenario.loads.iter().map(flow).collect()
}

fn target_of(status: &Status, load: &LoadSource) -> Option<f64> {
    let flow = status.flows.iter().find(|flow| flow.app.as_str() == load.app && flow.class.as_str() == load.class)?;
    flow.goal?.target_s()
}

/// A rehearsal while it runs.
#[derive(Debug)]
pub struct Rehearsal {
    run: Run,
    started: Time,
    warm_up_s: f64,
    /// `app/class` of each load, in the order of the load's results.
    loads: Vec<String>,
    scenario: Scenario,
    jobs: Jobs,
}

impl Rehearsal {
    /// Begins at `started`, by the pool's clock. `text` is the scenario file, `machine` describes where it runs.
    pub fn begin(scenario: Scenario, title: &str, text: &str, machine: String, started: Time) -> Self {
        let run = Run {
            title: title.to_owned(),
            intent: scenario.intent.clone(),
            kind: "real processes".into(),
            machine,
            scenario: text.to_owned(),
            seed: scenario.seed,
            duration_s: scenario.duration_s,
            ..Run::default()
        };
        let loads = scenario.loads.iter().map(|load| format!("{}/{}", load.app, load.class)).collect();
        Self { run, started, warm_up_s: scenario.warm_up_s, loads, scenario, jobs: Jobs::default() }
    }

    /// Whether the scenario has jobs.
    pub fn has_jobs(&self) -> bool {
        !self.scenario.jobs.is_empty()
    }

    /// Takes that a job of the scenario was submitted, and how the pool calls it.
    pub fn handle_submitted(&mut self, spec: JobSpec, id: JobName) {
        self.jobs.handle_submitted(spec, id);
    }

    /// Takes what the pool says of its jobs at a moment of its clock; to be called before [`Self::handle_status`] of that moment.
    pub fn handle_jobs(&mut self, time: Time, jobs: Vec<JobStatus>) {
        self.jobs.handle_status(time.since(self.started).as_secs_f64(), jobs);
    }

    /// Takes what the pool says of itself.
    pub fn handle_status(&mut self, status: &Status) {
        let t_s = status.time.since(self.started).as_secs_f64();
        self.run.control = if status.control { status.placement.word().into() } else { "off".into() };
        for flow in &status.flows {
            self.flow_series(flow).points.push(flow_point(t_s, flow));
        }
        for node in &status.nodes {
            self.handle_node(t_s, status, node);
        }
        for app in &status.apps {
            let ready = app.instances.iter().filter(|instance| instance.state == InstanceState::Ready).count();
            let series = find_or_add(
                &mut self.run.apps,
                |known| known.name == app.name.as_str(),
                || AppSeries { name: app.name.to_string(), ready: vec![] },
            );
            series.ready.push((t_s, u32::try_from(ready).unwrap_or(u32::MAX)));
        }
    }

    /// Takes something that happened. What was before the beginning is left out.
    pub fn handle_event(&mut self, event: &Event) {
        if event.time < self.started {
            return;
        }
        let t_s = event.time.since(self.started).as_secs_f64();
        self.run.changes.push(RunEvent { t_s, placement: event.kind == EventKind::Plan, text: event.text.clone() });
    }

    /// Adds what the clients saw, and judges.
    pub fn finish(mut self, outcome: &LoadResult) -> Run {
        let mut results: BTreeMap<&str, Vec<&FlowResult>> = BTreeMap::new();
        for (name, result) in self.loads.iter().zip(&outcome.flows) {
            results.entry(name).or_default().push(result);
            if result.generator_overloaded {
                self.run.notes.push(format!(
                    "the load generator could not keep up with {}: {} requests were not sent, 1% left over {:.0} ms late; its numbers are about the generator too",
                    result.name, result.not_sent, result.late_p99_ms
                ));
            }
        }
        for series in &mut self.run.flows {
            if let Some(results) = results.get(series.name.as_str()) {
                series.summary = summary(results);
            }
        }
        // A flow that nobody asked for has nothing to show.
        let asked: BTreeSet<&String> = self.loads.iter().collect();
        self.run.flows.retain(|series| asked.contains(&series.name));
        self.run.jobs = self.has_jobs().then(|| self.jobs.finish(self.started));
        self.run.judge(&self.scenario.expectations, self.warm_up_s);
        self.run
    }

    fn flow_series(&mut self, flow: &FlowStatus) -> &mut FlowSeries {
        let name = format!("{}/{}", flow.app, flow.class);
        find_or_add(
            &mut self.run.flows,
            |known| known.name == name,
            || FlowSeries {
                name: name.clone(),
                goal: flow.goal_text.clone(),
                target_ms: flow.goal.and_then(|goal| goal.target_s()).map(|target_s| target_s * 1e3),
                ..FlowSeries::default()
            },
        )
    }

    fn handle_node(&mut self, t_s: f64, status: &Status, node: &NodeStatus) {
        let mut apps: Vec<String> = status.apps.iter().map(|app| app.name.to_string()).collect();
        let has_jobs = self.has_jobs();
        apps.extend(has_jobs.then(|| ALL_JOBS.to_owned()));
        let series = find_or_add(
            &mut self.run.nodes,
            |known| known.name == node.name.as_str(),
            || NodeSeries { name: node.name.to_string(), cpu_capacity: node.cpu_capacity.0, apps: apps.clone(), points: vec![] },
        );
        let of_jobs = self.jobs.cpu_on(&node.name);
        let here = |name: &String| {
            if has_jobs && name == ALL_JOBS {
                return of_jobs;
            }
            let app = status.apps.iter().find(|app| app.name.as_str() == name);
            let instances = app.iter().flat_map(|app| &app.instances).filter(|instance| instance.node == node.name);
            instances.map(|instance| instance.cpu_allocated.0).sum()
        };
        let cpu = series.apps.iter().map(here).collect();
        series.points.push(NodePoint { t_s, cpu, cpu_used: node.cpu_used.0 });
    }
}

fn flow_point(t_s: f64, flow: &FlowStatus) -> FlowPoint {
    let measured = flow.response.count > 0;
    let is_throughput = flow.goal.is_some_and(|goal| goal.target_s().is_none());
    FlowPoint {
        t_s,
        response_ms: if is_throughput {
            measured.then_some(flow.response.mean_ms)
        } else {
            flow.achieved.or(measured.then_some(flow.response.mean_ms))
        },
        mean_ms: measured.then_some(flow.response.mean_ms),
        p95_ms: measured.then_some(flow.response.p95_ms),
        utility: flow.utility.map(|utility| utility.0),
        seats: f64::from(flow.seats),
        queue: flow.queue_mean,
        in_service: flow.in_service_mean,
        throughput_per_s: flow.throughput_per_s,
        arrival_per_s: flow.arrival_per_s,
        rejected_per_s: flow.rejected_per_s,
        errors_per_s: flow.errors_per_s,
    }
}

fn summary(results: &[&FlowResult]) -> FlowSummary {
    let mut histogram = LatencyHistogram::default();
    for result in results {
        histogram.add(&result.histogram);
    }
    let latency = LatencySummary::of(&histogram);
    let sum = |count: &dyn Fn(&FlowResult) -> u64| results.iter().map(|result| count(result)).sum::<u64>();
    let due = sum(&|result| result.sent + result.not_sent);
    let within: Option<f64> =
        results.iter().map(|result| Some(result.within_goal? * (result.sent + result.not_sent) as f64)).sum::<Option<f64>>();
    FlowSummary {
        sent: sum(&|result| result.sent),
        answered: sum(&|result| result.answered),
        rejected: sum(&|result| result.rejected),
        failed: sum(&|result| result.failed + result.timed_out + result.broken),
        mean_ms: latency.mean_ms,
        p50_ms: latency.p50_ms,
        p95_ms: latency.p95_ms,
        p99_ms: latency.p99_ms,
        within_goal: within.filter(|_| due > 0).map(|within| within / due as f64),
        worst_minute_within_goal: worst_minute(results),
        settled_ms: None,
    }
}

/// The lowest share within the goal over whole minutes, of those in which at least [`ENOUGH`] requests were due.
fn worst_minute(results: &[&FlowResult]) -> Option<f64> {
    let mut minutes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for second in results.iter().flat_map(|result| &result.seconds) {
        let minute = minutes.entry(second.at_s / 60).or_default();
        minute.0 += second.due;
        minute.1 += second.within_goal?;
    }
    let shares = minutes.values().filter(|(due, _)| *due >= ENOUGH).map(|&(due, within)| within as f64 / due as f64);
    shares.reduce(f64::min)
}

/// A share of fewer requests says little.
const ENOUGH: u64 = 20;

fn find_or_add<T>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &mut T {
    let at = list.iter().position(is_it).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    });
    &mut list[at]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_status::status;

    const SCENARIO: &str = r#"
intent = "The shop keeps its goal."
duration = "10s"
warm-up = "2s"
config = "weal.toml"

[[load]]
app = "shop"
class = "gold"
rate = "20/s"

[[expect]]
what = "utility"
app = "shop"
at-least = 0.5

[[expect]]
what = "instances"
app = "shop"
at-least = 2
"#;

    #[test]
    fn a_rehearsal_puts_together_what_the_pool_and_the_clients_say() {
        let scenario = Scenario::parse(SCENARIO, weal_scenario::no_files).unwrap();
        let flows = flows_of(&scenario, "127.0.0.1:8080".parse().unwrap(), &status(100.0, 20.0));
        assert_eq!(flows[0].target, Some(Duration::from_millis(250)));
        assert_eq!(flows[0].request.host, "shop.localhost");
        let mut rehearsal = Rehearsal::begin(scenario, "steady", SCENARIO, "a machine".into(), Time::from_secs_f64(100.0));
        for second in 1..=10 {
            rehearsal.handle_status(&status(100.0 + f64::from(second), 20.0));
        }
        let mut tally = crate::tally::Tally::default();
        tally.count_sent(Duration::ZERO, Duration::from_millis(500));
        let result = tally.finish("shop/gold/0", flows[0].target);
        let run = rehearsal.finish(&LoadResult { took_s: 10.0, flows: vec![result] });
        assert_eq!(run.checks.iter().map(|check| check.met).collect::<Vec<_>>(), [true, false]);
        assert_eq!(run.nodes[0].points[0].cpu, [0.5]);
        assert_eq!(run.flows[0].summary.sent, 1);
        assert!(run.notes[0].contains("could not keep up"), "{:?}", run.notes);
    }
}
