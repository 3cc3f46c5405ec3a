//! What a scenario expects, against what a run measured.
//!
//! Series are averaged over the span that an expectation is about; response times are weighted by how many requests were
//! answered at each point, so that a quiet moment does not count like a busy one.

use super::moments::JobMoment;
use super::run::{Check, FlowPoint, FlowSeries, JobPoint, Run};
use crate::{ExpectTable, ExpectedStep, Measure};

/// Measures one expectation. What cannot be measured is not met.
pub fn check(run: &Run, expectation: &ExpectTable, warm_up_s: f64) -> Check {
    let from = expectation.from.map_or(warm_up_s, |span| span.0);
    let to = expectation.to.map_or(f64::INFINITY, |span| span.0);
    let span = Span { from, to };
    let got = measure(run, expectation, span).filter(|got| got.is_finite());
    let all = (expectation.what == Measure::JobOrder).then_some(expectation.order.len() as f64);
    let met = got.is_some_and(|got| {
        expectation.at_least.or(all).is_none_or(|least| got >= least) && expectation.at_most.is_none_or(|most| got <= most)
    });
    Check { what: describe(expectation, span), expected: range(expectation), got, met }
}

fn describe(expectation: &ExpectTable, span: Span) -> String {
    let whom = match (&expectation.app, &expectation.class) {
        (Some(app), Some(class)) => format!(" of {app}/{class}"),
        (Some(app), None) => format!(" of {app}"),
        (None, Some(class)) => format!(" of class {class}"),
        (None, None) => String::new(),
    };
    if expectation.what == Measure::JobOrder {
        let steps: Vec<String> = expectation.order.iter().map(ToString::to_string).collect();
        return format!("{}: {}", name(expectation.what), steps.join(", "));
    }
    let until = if span.to.is_finite() { format!("{} s", span.to) } else { "the end".into() };
    format!("{}{whom}, {} s to {until}", name(expectation.what), span.from)
}

fn range(expectation: &ExpectTable) -> String {
    match (expectation.at_least, expectation.at_most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) if expectation.what == Measure::JobOrder => format!("all {}", expectation.order.len()),
        (None, None) => "anything".into(),
    }
}

fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Utility => "utility",
        Measure::LowestUtility => "lowest utility",
        Measure::UtilityGap => "highest minus lowest utility",
        Measure::MeanResponse => "mean response time, s",
        Measure::P95Response => "95th percentile of response time, s",
        Measure::Throughput => "answers per second",
        Measure::Rejections => "rejected requests",
        Measure::Failures => "failed requests",
        Measure::PlacementChanges => "placement changes",
        Measure::Instances => "ready instances",
        Measure::Utilization => "utilisation of the nodes",
        Measure::JobsDone => "jobs done",
        Measure::JobsOnTime => "share of the jobs due that were done by then",
        Measure::JobUtility => "mean utility of the jobs done",
        Measure::LowestJobUtility => "lowest utility of a job done",
        Measure::ExpectedJobUtility => "mean utility that jobs are headed for",
        Measure::JobGap => "mean utility that jobs are headed for, less the lowest of a flow",
        Measure::JobsWaiting => "jobs waiting or suspended",
        Measure::JobCpu => "CPU that jobs have, cores",
        Measure::JobOrder => "steps in this order",
    }
}

#[derive(Debug, Clone, Copy)]
struct Span {
    from: f64,
    to: f64,
}

impl Span {
    fn holds(self, t_s: f64) -> bool {
        t_s >= self.from && t_s < self.to
    }
}

fn measure(run: &Run, expectation: &ExpectTable, span: Span) -> Option<f64> {
    let flows: Vec<&FlowSeries> = run.flows.iter().filter(|flow| is_meant(flow, expectation)).collect();
    let sum = |value: &dyn Fn(&FlowPoint) -> f64| -> Option<f64> {
        let totals: Vec<f64> = flows.iter().filter_map(|flow| total(flow, span, value)).collect();
        (!totals.is_empty()).then(|| totals.iter().sum())
    };
    let utilities = || flows.iter().filter_map(|flow| mean(flow, span, &|point| point.utility, &|_| 1.0));
    let jobs = || run.jobs.as_ref().map(|jobs| jobs.summary(span.from, span.to));
    match expectation.what {
        Measure::Utility | Measure::LowestUtility => utilities().reduce(f64::min),
        Measure::UtilityGap => Some(utilities().reduce(f64::max)? - utilities().reduce(f64::min)?),
        Measure::MeanResponse => weighted(&flows, span, &|point| point.mean_ms).map(|ms| ms / 1e3),
        Measure::P95Response => weighted(&flows, span, &|point| point.p95_ms).map(|ms| ms / 1e3),
        Measure::Throughput => {
            let rates: Vec<f64> =
                flows.iter().filter_map(|flow| mean(flow, span, &|point| Some(point.throughput_per_s), &|_| 1.0)).collect();
            (!rates.is_empty()).then(|| rates.iter().sum())
        }
        Measure::Rejections => sum(&|point| point.rejected_per_s),
        Measure::Failures => sum(&|point| point.errors_per_s),
        Measure::PlacementChanges => {
            Some(run.changes.iter().filter(|change| change.placement && span.holds(change.t_s)).count() as f64)
        }
        Measure::Instances => {
            let series = run.apps.iter().find(|app| Some(&app.name) == expectation.app.as_ref())?;
            average(series.ready.iter().filter(|(t_s, _)| span.holds(*t_s)).map(|&(_, ready)| (f64::from(ready), 1.0)))
        }
        Measure::Utilization => average(run.nodes.iter().filter(|node| node.cpu_capacity > 0.0).flat_map(|node| {
            let points = node.points.iter().filter(move |point| span.holds(point.t_s));
            points.map(|point| (point.cpu_used / node.cpu_capacity, node.cpu_capacity))
        })),
        Measure::JobsDone => jobs().map(|jobs| jobs.done as f64),
        Measure::JobsOnTime => jobs().filter(|jobs| jobs.due > 0).map(|jobs| jobs.on_time as f64 / jobs.due as f64),
        Measure::JobUtility => jobs()?.mean_utility,
        Measure::LowestJobUtility => jobs()?.lowest_utility,
        Measure::ExpectedJobUtility => average_of_jobs(run, span, |point| point.expected),
        Measure::JobGap => Some(average_of_jobs(run, span, |point| point.expected)? - utilities().reduce(f64::min)?),
        Measure::JobsWaiting => average_of_jobs(run, span, |point| Some(f64::from(point.waiting + point.suspended))),
        Measure::JobCpu => average_of_jobs(run, span, |point| Some(point.cpu)),
        Measure::JobOrder => run.jobs.as_ref().map(|jobs| in_order(&jobs.moments, &expectation.order) as f64),
    }
}

fn average_of_jobs(run: &Run, span: Span, of: impl Fn(&JobPoint) -> Option<f64>) -> Option<f64> {
    let points = run.jobs.iter().flat_map(|jobs| &jobs.points).filter(|point| span.holds(point.t_s));
    average(points.filter_map(|point| Some((of(point)?, 1.0))))
}

/// How many of the steps, from the first one on, came one after the other. Steps that one look showed may have been in any order.
fn in_order(moments: &[JobMoment], steps: &[ExpectedStep]) -> usize {
    let (mut since_s, mut used) = (f64::NEG_INFINITY, vec![false; moments.len()]);
    let mut comes = |step: &&ExpectedStep| {
        let is_it = |(at, moment): &(usize, &JobMoment)| {
            !used[*at] && moment.t_s >= since_s && moment.job == step.job && moment.step == step.step
        };
        let found = moments.iter().enumerate().find(is_it);
        if let Some((at, moment)) = found {
            (used[at], since_s) = (true, moment.t_s);
        }
        found.is_some()
    };
    steps.iter().take_while(|step| comes(step)).count()
}

fn is_meant(flow: &FlowSeries, expectation: &ExpectTable) -> bool {
    let (app, class) = flow.name.split_once('/').unwrap_or((&flow.name, ""));
    expectation.app.as_deref().is_none_or(|wanted| wanted == app)
        && expectation.class.as_deref().is_none_or(|wanted| wanted == class)
}

fn weighted(flows: &[&FlowSeries], span: Span, value: &dyn Fn(&FlowPoint) -> Option<f64>) -> Option<f64> {
    let points = flows.iter().flat_map(|flow| &flow.points).filter(|point| span.holds(point.t_s));
    average(points.filter_map(|point| Some((value(point)?, point.throughput_per_s))))
}

fn mean(
    flow: &FlowSeries,
    span: Span,
    value: &dyn Fn(&FlowPoint) -> Option<f64>,
    weight: &dyn Fn(&FlowPoint) -> f64,
) -> Option<f64> {
    let points = flow.points.iter().filter(|point| span.holds(point.t_s));
    average(points.filter_map(|point| Some((value(point)?, weight(point)))))
}

/// The integral of a rate over the span, each point standing for the time since the one before.
fn total(flow: &FlowSeries, span: Span, rate: &dyn Fn(&FlowPoint) -> f64) -> Option<f64> {
    let mut before = 0.0;
    let mut sum = None;
    for point in &flow.points {
        if span.holds(point.t_s) {
            *sum.get_or_insert(0.0) += rate(point) * (point.t_s - before);
        }
        before = point.t_s;
    }
    sum
}

fn average(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weights) = values.fold((0.0, 0.0), |(sum, weights), (value, weight)| (sum + value * weight, weights + weight));
    (weights > 0.0).then(|| sum / weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobStep;
    use crate::Span as SpanText;
    use crate::report::{AppSeries, JobSeries, RunEvent};

    fn run() -> Run {
        let flow = |name: &str, utility: f64| FlowSeries {
            name: name.into(),
            points: (1..=10)
                .map(|t| FlowPoint {
                    t_s: f64::from(t),
                    utility: (t > 2).then_some(utility),
                    mean_ms: Some(if t > 5 { 300.0 } else { 100.0 }),
                    throughput_per_s: if t > 5 { 30.0 } else { 10.0 },
                    rejected_per_s: 2.0,
                    ..FlowPoint::default()
                })
                .collect(),
            ..FlowSeries::default()
        };
        Run {
            flows: vec![flow("shop/gold", 0.5), flow("search/gold", -0.1)],
            apps: vec![AppSeries { name: "shop".into(), ready: vec![(1.0, 1), (6.0, 3)] }],
            changes: vec![
                RunEvent { t_s: 1.0, placement: true, text: "a".into() },
                RunEvent { t_s: 7.0, placement: true, text: "b".into() },
            ],
            ..Run::default()
        }
    }

    fn expect(what: Measure, app: Option<&str>, at_least: f64, at_most: f64) -> ExpectTable {
        let app = app.map(Into::into);
        ExpectTable {
            what,
            app,
            class: None,
            from: None,
            to: None,
            at_least: Some(at_least),
            at_most: Some(at_most),
            order: vec![],
        }
    }

    #[test]
    fn measures_are_taken_over_their_span() {
        let cases = [
            (Measure::Utility, Some("shop"), 0.5),
            (Measure::LowestUtility, None, -0.1),
            (Measure::UtilityGap, None, 0.6),
            (Measure::MeanResponse, Some("shop"), (4.0 * 10.0 * 0.1 + 5.0 * 30.0 * 0.3) / 190.0),
            (Measure::Throughput, Some("shop"), 190.0 / 9.0),
            (Measure::Rejections, Some("shop"), 18.0),
            (Measure::PlacementChanges, None, 1.0),
            (Measure::Instances, Some("shop"), 3.0),
        ];
        for (what, app, value) in cases {
            let check = check(&run(), &expect(what, app, value - 1e-9, value + 1e-9), 1.5);
            assert!(check.met, "{check:?}, expected {value}");
        }
        let mut first = expect(Measure::PlacementChanges, None, 1.0, 1.0);
        (first.from, first.to) = (Some(SpanText(0.0)), Some(SpanText(5.0)));
        assert!(check(&run(), &first, 1.5).met);
    }

    #[test]
    fn what_jobs_are_headed_for_is_compared_with_the_lowest_flow() {
        let points = [(2.0, Some(0.1)), (3.0, None), (4.0, Some(0.3)), (20.0, Some(0.9))];
        let points = points.map(|(t_s, expected)| JobPoint { t_s, expected, ..JobPoint::default() }).to_vec();
        let run = Run { jobs: Some(JobSeries { points, ..JobSeries::default() }), ..run() };
        for (what, value) in [(Measure::ExpectedJobUtility, 0.2), (Measure::JobGap, 0.3)] {
            let mut expected = expect(what, None, value - 1e-9, value + 1e-9);
            (expected.from, expected.to) = (Some(SpanText(1.0)), Some(SpanText(9.0)));
            let check = check(&run, &expected, 0.0);
            assert!(check.met, "{check:?}");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_not_met() {
        let check = check(&run(), &expect(Measure::Utility, Some("nobody"), -1e9, 1e9), 0.0);
        assert!(!check.met && check.got.is_none());
    }

    #[test]
    fn steps_of_jobs_are_expected_in_their_order() {
        let moment = |t_s: f64, job: &str, step| JobMoment { t_s, job: job.into(), step, nodes: vec![] };
        let moments = vec![
            moment(1.0, "a", JobStep::Starts),
            moment(5.0, "b", JobStep::Starts),
            moment(5.0, "a", JobStep::Suspended),
            moment(9.0, "b", JobStep::Done),
        ];
        let run = Run { jobs: Some(JobSeries { moments, ..JobSeries::default() }), ..Run::default() };
        let check = |order: &[&str]| {
            let order = order.iter().map(|&text| ExpectedStep::try_from(text.to_owned()).unwrap()).collect();
            let (at_least, at_most) = (None, None);
            check(&run, &ExpectTable { at_least, at_most, order, ..expect(Measure::JobOrder, None, 0.0, 0.0) }, 3.0)
        };
        assert!(check(&["a starts", "a is suspended", "b starts", "b is done"]).met, "one look showed two of them");
        let late = check(&["b is done", "a is suspended"]);
        assert!(!late.met && late.got == Some(1.0) && late.expected == "all 2", "{late:?}");
        assert!(!check(&["a starts", "a starts"]).met, "a step counts once");
    }
}
