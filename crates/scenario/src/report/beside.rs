//! A rehearsal and a simulation of the same scenario beside each other.

use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use super::chart::{Chart, Line};
use super::html::{document, shown, style};
use super::run::{FlowPoint, FlowSeries, JobEnd, NodeSeries, Run};

/// How far a simulation is from the real run, flow by flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BesideSimulation {
    /// One per flow that both have.
    pub flows: Vec<BesideFlow>,
    /// One per job that was done in both.
    #[serde(default)]
    pub jobs: Vec<BesideJob>,
    /// Share of the fullest node's CPU that was used, from the end of the warm-up on: real, simulated.
    pub fullest: (f64, f64),
}

/// One flow, from the end of the warm-up on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BesideFlow {
    /// `app/class`.
    pub name: String,
    /// Mean response time in milliseconds: real, simulated.
    pub mean_ms: (f64, f64),
    /// Requests answered per second: real, simulated.
    pub throughput_per_s: (f64, f64),
    /// Utility: real, simulated; `None` without a goal.
    pub utility: (Option<f64>, Option<f64>),
}

/// One job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BesideJob {
    /// Its name in the scenario.
    pub name: String,
    /// Seconds from when it was submitted until it was done: real, simulated.
    pub took_s: (f64, f64),
    /// Utility of that: real, simulated.
    pub utility: (Option<f64>, Option<f64>),
}

impl BesideSimulation {
    /// Compares from `warm_up_s` on.
    pub fn of(real: &Run, simulated: &Run, warm_up_s: f64) -> Self {
        let pairs =
            real.flows.iter().filter_map(|flow| Some((flow, simulated.flows.iter().find(|other| other.name == flow.name)?)));
        let both = |a: &FlowSeries, b: &FlowSeries, value: Value| Some((mean(a, warm_up_s, value)?, mean(b, warm_up_s, value)?));
        let flows = pairs.map(|(real, simulated)| BesideFlow {
            name: real.name.clone(),
            mean_ms: both(real, simulated, |point| Some((point.mean_ms?, point.throughput_per_s))).unwrap_or_default(),
            throughput_per_s: both(real, simulated, |point| Some((point.throughput_per_s, 1.0))).unwrap_or_default(),
            utility: (
                mean(real, warm_up_s, |point| Some((point.utility?, 1.0))),
                mean(simulated, warm_up_s, |point| Some((point.utility?, 1.0))),
            ),
        });
        Self {
            flows: flows.collect(),
            jobs: jobs(real, simulated),
            fullest: (fullest(real, warm_up_s), fullest(simulated, warm_up_s)),
        }
    }

    /// One self-contained page: the differences in numbers, and both runs in the same charts.
    pub fn to_html(&self, real: &Run, simulated: &Run) -> String {
        let title = format!("{}: real and simulated", real.title);
        let body = html! {
            h1 { (title) }
            p { (real.intent) }
            p.soft { "Real: " (real.machine) ". Simulated: " (simulated.machine) "." }
            (self.table())
            @for flow in &real.flows {
                @if let Some(other) = simulated.flows.iter().find(|other| other.name == flow.name) {
                    h2 { (flow.name) }
                    (charts(flow, other, real.duration_s))
                }
            }
        };
        document(&title, &style(), &body)
    }

    /// All figures that both have: whose, what, and real and simulated.
    pub fn figures(&self) -> Vec<(&str, &str, (f64, f64))> {
        let of_flow =
            |flow: &'_ BesideFlow| [("mean response, ms", flow.mean_ms), ("answered per second", flow.throughput_per_s)];
        let flows = self.flows.iter().flat_map(|flow| of_flow(flow).map(|(what, both)| (flow.name.as_str(), what, both)));
        let jobs = self.jobs.iter().map(|job| (job.name.as_str(), "done after, s", job.took_s));
        flows.chain(jobs).collect()
    }

    fn table(&self) -> Markup {
        html! {
            table {
                tr { th { "Flow or job" } th {} th.n { "Real" } th.n { "Simulated" } th.n { "Difference" } }
                @for (whose, what, (was, is)) in self.figures() {
                    tr {
                        td { (whose) }
                        td { (what) }
                        td.n { (format!("{was:.1}")) }
                        td.n { (format!("{is:.1}")) }
                        td.n { (format!("{:+.1}%", 100.0 * difference((was, is)))) }
                    }
                }
            }
        }
    }
}

fn jobs(real: &Run, simulated: &Run) -> Vec<BesideJob> {
    let (Some(real), Some(simulated)) = (&real.jobs, &simulated.jobs) else { return Vec::new() };
    let beside = |job: &JobEnd| {
        let other = simulated.ends.iter().find(|other| other.name == job.name)?;
        let took_s = (job.finished_s? - job.submitted_s, other.finished_s? - other.submitted_s);
        Some(BesideJob { name: job.name.clone(), took_s, utility: (job.utility, other.utility) })
    };
    real.ends.iter().filter_map(beside).collect()
}

/// How far the second is from the first, relative to the first.
pub fn difference((real, simulated): (f64, f64)) -> f64 {
    if real == 0.0 { f64::from(simulated != 0.0) } else { (simulated - real) / real }
}

/// See [`BesideSimulation::fullest`].
fn fullest(run: &Run, from_s: f64) -> f64 {
    let used = |node: &NodeSeries| {
        let late: Vec<f64> = node.points.iter().filter(|point| point.t_s > from_s).map(|point| point.cpu_used).collect();
        late.iter().sum::<f64>() / late.len().max(1) as f64 / node.cpu_capacity.max(1e-9)
    };
    run.nodes.iter().map(used).fold(0.0, f64::max)
}

/// A value of a point with its weight.
type Value = fn(&FlowPoint) -> Option<(f64, f64)>;

fn mean(flow: &FlowSeries, from_s: f64, value: Value) -> Option<f64> {
    let values = flow.points.iter().filter(|point| point.t_s >= from_s).filter_map(value);
    let (sum, weights) = values.fold((0.0, 0.0), |(sum, weights), (value, weight)| (sum + value * weight, weights + weight));
    (weights > 0.0).then(|| sum / weights)
}

/// What a chart shows of a point.
type Measure = fn(&FlowPoint) -> Option<f64>;

fn charts(real: &FlowSeries, simulated: &FlowSeries, duration_s: f64) -> Markup {
    let line = |flow: &FlowSeries, name: &str, style: usize, value: Measure| Line {
        name: name.to_owned(),
        style,
        points: flow.points.iter().map(|point| (point.t_s, value(point))).collect(),
    };
    let measures: [(&str, Measure); 4] = [
        ("Mean response time, ms", |point| point.mean_ms),
        ("Answered per second", |point| Some(point.throughput_per_s)),
        ("Seats in force", |point| Some(point.seats)),
        ("Requests waiting", |point| Some(point.queue)),
    ];
    let chart = |(title, value): (&str, Measure)| {
        let lines = vec![line(real, "real", 0, value), line(simulated, "simulated", 1, value)];
        shown(&Chart { title, duration_s, lines, limits: vec![], marks: vec![], stacked: false, cap: None })
    };
    html! {
        @for measure in measures { (chart(measure)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::JobSeries;
    use super::*;

    fn run(mean_ms: f64) -> Run {
        let point = |t: u32| FlowPoint {
            t_s: f64::from(t),
            mean_ms: Some(if t < 5 { 1e3 } else { mean_ms }),
            throughput_per_s: 20.0,
            utility: Some(0.5),
            ..FlowPoint::default()
        };
        let flow = FlowSeries { name: "shop/<gold>".into(), points: (1..=10).map(point).collect(), ..FlowSeries::default() };
        Run { title: "steady".into(), duration_s: 10.0, flows: vec![flow], ..Run::default() }
    }

    #[test]
    fn a_comparison_leaves_out_the_warm_up_and_tells_differences() {
        let (real, simulated) = (run(100.0), run(110.0));
        let comparison = BesideSimulation::of(&real, &simulated, 5.0);
        assert_eq!(comparison.flows[0].mean_ms, (100.0, 110.0));
        assert!((difference(comparison.flows[0].mean_ms) - 0.1).abs() < 1e-9);
        let page = comparison.to_html(&real, &simulated);
        assert!(page.contains("+10.0%") && page.contains("shop/&lt;gold&gt;") && !page.contains("<gold>"), "{page}");
        assert_eq!(page.matches("<svg").count(), 4);
    }

    #[test]
    fn jobs_that_both_have_done_are_compared_by_the_time_they_took() {
        let with = |submitted_s: f64, finished_s: &[Option<f64>]| {
            let end = |(at, finished_s): (usize, &Option<f64>)| JobEnd {
                name: format!("report-{at}"),
                submitted_s,
                finished_s: *finished_s,
                ..JobEnd::default()
            };
            let ends = finished_s.iter().enumerate().map(end).collect();
            Run { jobs: Some(JobSeries { ends, ..JobSeries::default() }), ..run(100.0) }
        };
        let (real, simulated) = (with(2.0, &[Some(12.0), None]), with(1.0, &[Some(12.0), Some(13.0)]));
        let comparison = BesideSimulation::of(&real, &simulated, 5.0);
        assert_eq!(comparison.figures().last(), Some(&("report-0", "done after, s", (10.0, 11.0))));
        assert_eq!(comparison.jobs.len(), 1);
    }
}
