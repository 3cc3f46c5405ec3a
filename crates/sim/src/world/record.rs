//! The run as data, in the form that a rehearsal with real processes gives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weal_model::{
    Action, FlowObservation, Goal, InstanceId, InstanceState, JobState, LatencyHistogram, Plan, ServiceClass, Snapshot,
};

use super::clients::Told;
use super::jobs::Job;
use super::{Move, Simulated, World};
use weal_scenario::Scenario;
use weal_scenario::report::{
    AppSeries, Change, FlowPoint, FlowSeries, FlowSummary, JobPoint, JobSeries, NodePoint, NodeSeries, Run,
};

/// Seconds that a point looks back, as the status of a running pool does.
const SPAN_S: f64 = 10.0;

/// The name of the jobs' CPU among that of the applications.
const JOBS: &str = "(jobs)";

/// What is written down while a scenario runs.
pub(super) struct Recorder {
    flows: BTreeMap<String, FlowRecord>,
    nodes: Vec<NodeSeries>,
    apps: Vec<AppSeries>,
    jobs: Vec<JobPoint>,
    changes: Vec<Change>,
    moves: Vec<Move>,
    /// Instances that come up only to stand by, by the last plan.
    ahead: BTreeSet<InstanceId>,
}

/// One flow.
struct FlowRecord {
    class: ServiceClass,
    series: FlowSeries,
    /// Of the whole run.
    responses: LatencyHistogram,
    /// Of the run without its warm-up.
    settled: LatencyHistogram,
    /// The last cycles with their lengths.
    recent: VecDeque<(f64, FlowObservation)>,
    /// The response times of these.
    recent_responses: LatencyHistogram,
}

impl Recorder {
    pub fn new(scenario: &Scenario) -> Self {
        let pool = &scenario.pool;
        let names: Vec<String> = pool.apps.keys().map(ToString::to_string).collect();
        let classes = scenario.loads.iter().flat_map(|load| load.classes().map(move |class| (&load.app, class)));
        let flows = classes.map(|(app, class)| {
            let name = format!("{app}/{class}");
            let class = pool.classes[class].clone();
            let series = FlowSeries {
                name: name.clone(),
                goal: class.goal.map_or(String::new(), |goal| goal.to_string()),
                target_ms: class.goal.and_then(|goal| goal.target_s()).map(|target_s| target_s * 1e3),
                ..FlowSeries::default()
            };
            let (responses, settled, recent_responses) = Default::default();
            (name, FlowRecord { class, series, responses, settled, recent: VecDeque::new(), recent_responses })
        });
        let node = |node: &weal_model::NodeSpec| NodeSeries {
            name: node.name.to_string(),
            cpu_capacity: node.cpu.0,
            apps: names.iter().cloned().chain((!scenario.jobs.is_empty()).then(|| JOBS.to_owned())).collect(),
            points: Vec::new(),
        };
        Self {
            flows: flows.collect(),
            nodes: pool.nodes.iter().map(node).collect(),
            apps: names.iter().map(|name| AppSeries { name: name.clone(), ready: Vec::new() }).collect(),
            jobs: Vec::new(),
            changes: Vec::new(),
            moves: Vec::new(),
            ahead: BTreeSet::new(),
        }
    }

    /// A plan was made.
    pub fn handle_plan(&mut self, plan: &Plan) {
        self.ahead = plan.ahead.iter().cloned().collect();
    }

    /// The controller has begun an action.
    pub fn begin(&mut self, t_s: f64, action: Action, text: String) {
        let is_ahead = matches!(&action, Action::Start { instance, .. } if self.ahead.contains(instance));
        self.moves.push(Move { t_s, action, is_ahead, text });
    }

    pub fn note(&mut self, t_s: f64, placement: bool, text: String) {
        self.changes.push(Change { t_s, placement, text });
    }
}

impl FlowRecord {
    fn take(&mut self, t_s: f64, window_s: f64, warm_up_s: f64, flow: &FlowObservation) {
        self.responses.add(&flow.response_time);
        if t_s - window_s >= warm_up_s {
            self.settled.add(&flow.response_time);
        }
        self.recent_responses.add(&flow.response_time);
        self.recent.push_back((window_s, flow.clone()));
        let mut span_s: f64 = self.recent.iter().map(|(window_s, _)| window_s).sum();
        while self.recent.len() > 1 && span_s - self.recent[0].0 >= SPAN_S {
            span_s -= self.recent[0].0;
            let (_, left) = self.recent.pop_front().expect("there is more than one");
            if left.response_time.count() > 0 {
                self.recent_responses = self.recent_responses.since(&left.response_time);
            }
        }
        self.series.points.push(point(&self.class, &self.recent, &self.recent_responses, t_s, span_s));
    }
}

impl World<'_> {
    /// Writes down a snapshot as it truly is, before faults get at it.
    pub(super) fn record(&mut self, snapshot: &Snapshot) {
        let (t_s, warm_up_s) = (self.now_s(), self.scenario.warm_up_s);
        for flow in &snapshot.flows {
            if let Some(record) = self.recorder.flows.get_mut(&flow.id.to_string()) {
                record.take(t_s, snapshot.window_s, warm_up_s, flow);
            }
        }
        for (number, series) in self.recorder.nodes.iter_mut().enumerate() {
            let used = snapshot.nodes.iter().find(|node| node.name.as_str() == series.name).map_or(0.0, |node| node.cpu_used.0);
            let mut cpu = vec![0.0; self.apps.len()];
            for instance in self.instances.iter().filter(|i| i.node == number && i.state != InstanceState::Stopped) {
                cpu[instance.app] += self.controller.cpu(&instance.id).map_or(0.0, |cpu| cpu.0);
            }
            if !self.scenario.jobs.is_empty() {
                cpu.push(cpu_on(&self.jobs, number));
            }
            series.points.push(NodePoint { t_s, cpu, cpu_used: used });
        }
        let mut ready = vec![0; self.apps.len()];
        self.instances.iter().filter(|i| i.state == InstanceState::Ready).for_each(|i| ready[i.app] += 1);
        for (series, ready) in self.recorder.apps.iter_mut().zip(ready) {
            series.ready.push((t_s, ready));
        }
        if !self.scenario.jobs.is_empty() {
            self.recorder.jobs.push(self.job_point());
        }
    }

    fn job_point(&self) -> JobPoint {
        let count = |state: JobState| self.jobs.iter().filter(|job| job.state == state).count() as u32;
        JobPoint {
            t_s: self.now_s(),
            running: count(JobState::Running),
            suspended: count(JobState::Suspended),
            waiting: count(JobState::Pending),
            done: count(JobState::Completed),
            cpu: (0..self.nodes.len()).map(|node| cpu_on(&self.jobs, node)).sum(),
        }
    }

    pub(super) fn finish(self) -> Simulated {
        let scenario = self.scenario;
        let Recorder { mut flows, nodes, apps, jobs, changes, moves, .. } = self.recorder;
        let ends = self.jobs.iter().map(Job::end).collect();
        let jobs = (!scenario.jobs.is_empty()).then_some(JobSeries { points: jobs, ends });
        let mut unfinished = 0;
        for flow in &self.flows {
            let Told { sent, answered, rejected, failed } = flow.told;
            unfinished += (sent - answered - rejected - failed) as usize;
            let summary = &mut flows.get_mut(&flow.name).expect("each flow is recorded").series.summary;
            summary.sent += sent;
            summary.answered += answered;
            summary.rejected += rejected;
            summary.failed += failed;
        }
        flows.values_mut().for_each(summarise);
        let cores: f64 = scenario.pool.nodes.iter().map(|node| node.cpu.0).sum();
        let assumed = scenario.loads.iter().filter(|load| scenario.behaviours[&load.app].assumed);
        let note = |load: &weal_scenario::Load| {
            format!("no [[simulate]] says what a request to {} costs: 10 ms of CPU are assumed", load.app)
        };
        let mut run = Run {
            title: scenario.intent.clone(),
            intent: scenario.intent.clone(),
            kind: "simulated".to_owned(),
            control: match scenario.pool.control {
                true => scenario.pool.placement.word().to_owned(),
                false => "off".to_owned(),
            },
            machine: format!("{} simulated nodes, {cores:.1} cores", scenario.pool.nodes.len()),
            seed: scenario.seed,
            duration_s: scenario.duration_s,
            flows: flows.into_values().map(|record| record.series).collect(),
            nodes,
            apps,
            jobs,
            changes,
            notes: assumed.map(note).collect(),
            ..Run::default()
        };
        run.notes.dedup();
        run.judge(&scenario.expectations, scenario.warm_up_s);
        Simulated { run, moves, findings: self.oracle.into_findings(), events: self.events, unfinished }
    }
}

/// A point over the last cycles; its seats are those of the last.
fn point(
    class: &ServiceClass,
    recent: &VecDeque<(f64, FlowObservation)>,
    response: &LatencyHistogram,
    t_s: f64,
    span_s: f64,
) -> FlowPoint {
    let per_s = |count: fn(&FlowObservation) -> u64| recent.iter().map(|(_, flow)| count(flow)).sum::<u64>() as f64 / span_s;
    let mean =
        |value: fn(&FlowObservation) -> f64| recent.iter().map(|(window_s, flow)| value(flow) * window_s).sum::<f64>() / span_s;
    let throughput_per_s = per_s(|flow| flow.completions);
    let achieved = match class.goal {
        Some(Goal::Percentile { percentile, .. }) => response.quantile_s(percentile),
        Some(Goal::Throughput { .. }) => Some(throughput_per_s),
        _ => response.mean_s(),
    };
    let timed = !matches!(class.goal, Some(Goal::Throughput { .. }));
    let ms = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e3);
    FlowPoint {
        t_s,
        response_ms: if timed { ms(achieved) } else { ms(response.mean_s()) },
        mean_ms: ms(response.mean_s()),
        p95_ms: ms(response.quantile_s(0.95)),
        utility: class.goal.zip(achieved).map(|(goal, achieved)| goal.utility(achieved, class.importance).0),
        seats: recent.back().map_or(0.0, |(_, flow)| flow.seats),
        queue: mean(|flow| flow.queue_mean),
        in_service: mean(|flow| flow.in_service_mean),
        throughput_per_s,
        arrival_per_s: per_s(|flow| flow.arrivals),
        rejected_per_s: per_s(|flow| flow.rejections),
        errors_per_s: per_s(|flow| flow.errors),
    }
}

fn summarise(record: &mut FlowRecord) {
    let (summary, responses): (&mut FlowSummary, _) = (&mut record.series.summary, &record.responses);
    let ms = |quantile: f64| responses.quantile_s(quantile).unwrap_or(0.0) * 1e3;
    summary.mean_ms = responses.mean_s().unwrap_or(0.0) * 1e3;
    (summary.p50_ms, summary.p95_ms, summary.p99_ms) = (ms(0.5), ms(0.95), ms(0.99));
    summary.settled_ms = record.settled.mean_s().zip(record.settled.quantile_s(0.95)).map(|(mean, p95)| (mean * 1e3, p95 * 1e3));
    let within = record.class.goal.and_then(|goal| goal.target_s()).and_then(|target_s| responses.share_within(target_s));
    summary.within_goal = within.map(|share| share * summary.answered as f64 / summary.sent.max(1) as f64);
}

/// Cores that the jobs on a node have.
fn cpu_on(jobs: &[Job], node: usize) -> f64 {
    jobs.iter().map(|job| job.cpu_on(node)).sum()
}
