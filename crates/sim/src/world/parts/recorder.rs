//! What is written down while a scenario runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weal_model::{Action, FlowObservation, Goal, InstanceId, LatencyHistogram, Plan, ServiceClass};
use weal_scenario::Scenario;
use weal_scenario::report::{ALL_JOBS, AppSeries, FlowPoint, FlowSeries, FlowSummary, JobPoint, JobWatch, NodeSeries, RunEvent};

use crate::world::outcome::Move;

/// Seconds that a point looks back, as the status of a running pool does.
const SPAN_S: f64 = 10.0;

/// What is written down while a scenario runs.
pub struct Recorder {
    pub flows: BTreeMap<String, FlowRecord>,
    pub nodes: Vec<NodeSeries>,
    pub apps: Vec<AppSeries>,
    pub jobs: Vec<JobPoint>,
    pub watch: JobWatch,
    pub changes: Vec<RunEvent>,
    pub moves: Vec<Move>,
    /// Instances that come up only to stand by, by the last plan.
    pub ahead: BTreeSet<InstanceId>,
}

/// One flow.
pub struct FlowRecord {
    pub class: ServiceClass,
    pub series: FlowSeries,
    /// Of the whole run.
    pub responses: LatencyHistogram,
    /// Of the run without its warm-up.
    pub settled: LatencyHistogram,
    /// The last cycles with their lengths.
    pub recent: VecDeque<(f64, FlowObservation)>,
    /// The response times of these.
    pub recent_responses: LatencyHistogram,
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
            apps: names.iter().cloned().chain((!scenario.jobs.is_empty()).then(|| ALL_JOBS.to_owned())).collect(),
            points: Vec::new(),
        };
        Self {
            flows: flows.collect(),
            nodes: pool.nodes.iter().map(node).collect(),
            apps: names.iter().map(|name| AppSeries { name: name.clone(), ready: Vec::new() }).collect(),
            jobs: Vec::new(),
            watch: JobWatch::default(),
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
        self.changes.push(RunEvent { t_s, placement, text });
    }
}

impl FlowRecord {
    pub fn take(&mut self, t_s: f64, window_s: f64, warm_up_s: f64, flow: &FlowObservation) {
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
        Some(Goal::Throughput { .. }) => Some(throughput_per_s),
        Some(goal) => {
            let waited_s = recent.iter().map(|(_, flow)| flow.oldest_wait_s).fold(0.0, f64::max);
            goal.achieved_s(response, recent.iter().map(|(_, flow)| flow.rejections).sum(), waited_s)
        }
        None => response.mean_s(),
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

pub fn summarise(record: &mut FlowRecord) {
    let (summary, responses): (&mut FlowSummary, _) = (&mut record.series.summary, &record.responses);
    let ms = |quantile: f64| responses.quantile_s(quantile).unwrap_or(0.0) * 1e3;
    summary.mean_ms = responses.mean_s().unwrap_or(0.0) * 1e3;
    (summary.p50_ms, summary.p95_ms, summary.p99_ms) = (ms(0.5), ms(0.95), ms(0.99));
    summary.settled_ms = record.settled.mean_s().zip(record.settled.quantile_s(0.95)).map(|(mean, p95)| (mean * 1e3, p95 * 1e3));
    let within = record.class.goal.and_then(|goal| goal.target_s()).and_then(|target_s| responses.share_within(target_s));
    summary.within_goal = within.map(|share| share * summary.answered as f64 / summary.sent.max(1) as f64);
}
