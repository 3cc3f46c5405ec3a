//! Comma-separated text: a run as tidy data, one number a line with what it is about, and tables of other modules.

use super::run::{FlowPoint, Run};

/// The columns.
const HEAD: [&str; 5] = ["t_s", "kind", "name", "measure", "value"];

/// A measure of a flow, by name.
type FlowMeasure = (&'static str, fn(&FlowPoint) -> Option<f64>);

const FLOW_MEASURES: [FlowMeasure; 11] = [
    ("response_ms", |point| point.response_ms),
    ("mean_ms", |point| point.mean_ms),
    ("p95_ms", |point| point.p95_ms),
    ("utility", |point| point.utility),
    ("seats", |point| Some(point.seats)),
    ("queue", |point| Some(point.queue)),
    ("in_service", |point| Some(point.in_service)),
    ("throughput_per_s", |point| Some(point.throughput_per_s)),
    ("arrival_per_s", |point| Some(point.arrival_per_s)),
    ("rejected_per_s", |point| Some(point.rejected_per_s)),
    ("errors_per_s", |point| Some(point.errors_per_s)),
];

/// These records as comma-separated text, a line each; cells are quoted where they must be. Records may differ in length.
pub fn comma_separated<Cell: AsRef<[u8]>, Cells: IntoIterator<Item = Cell>>(records: impl IntoIterator<Item = Cells>) -> String {
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    for record in records {
        writer.write_record(record).expect("a vector takes all that is written to it");
    }
    let bytes = writer.into_inner().expect("a vector takes all that is written to it");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `t_s,kind,name,measure,value`; what could not be measured has no line. A placement change is a line of kind `change` with value 1.
pub fn tidy(run: &Run) -> String {
    let mut records = vec![HEAD.map(str::to_owned)];
    let mut line = |t_s: f64, kind: &str, name: &str, measure: &str, value: f64| {
        records.push([t_s.to_string(), kind.to_owned(), name.to_owned(), measure.to_owned(), value.to_string()]);
    };
    for flow in &run.flows {
        for point in &flow.points {
            for (measure, value) in FLOW_MEASURES {
                if let Some(value) = value(point) {
                    line(point.t_s, "flow", &flow.name, measure, value);
                }
            }
        }
    }
    for node in &run.nodes {
        for point in &node.points {
            line(point.t_s, "node", &node.name, "cpu_used", point.cpu_used);
            for (app, cpu) in node.apps.iter().zip(&point.cpu) {
                line(point.t_s, "node", &node.name, &format!("cpu_allocated.{app}"), *cpu);
            }
        }
    }
    for app in &run.apps {
        app.ready.iter().for_each(|&(t_s, ready)| line(t_s, "app", &app.name, "ready", f64::from(ready)));
    }
    if let Some(jobs) = &run.jobs {
        for point in &jobs.points {
            let counts =
                [("running", point.running), ("suspended", point.suspended), ("waiting", point.waiting), ("done", point.done)];
            counts.into_iter().for_each(|(what, count)| line(point.t_s, "jobs", "all", what, f64::from(count)));
            line(point.t_s, "jobs", "all", "cpu_allocated", point.cpu);
            point.expected.into_iter().for_each(|utility| line(point.t_s, "jobs", "all", "expected_utility", utility));
        }
        for end in &jobs.ends {
            line(end.submitted_s, "job", &end.name, "deadline_s", end.deadline_s);
            end.finished_s
                .zip(end.utility)
                .into_iter()
                .for_each(|(t_s, utility)| line(t_s, "job", &end.name, "utility", utility));
        }
    }
    run.changes.iter().filter(|change| change.placement).for_each(|change| line(change.t_s, "change", &change.text, "made", 1.0));
    comma_separated(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{FlowSeries, RunEvent};

    #[test]
    fn each_number_has_a_line_and_what_was_not_measured_has_none() {
        let point = FlowPoint { t_s: 2.0, mean_ms: Some(5.5), seats: 3.0, ..FlowPoint::default() };
        let run = Run {
            flows: vec![FlowSeries { name: "shop/gold".into(), points: vec![point], ..FlowSeries::default() }],
            changes: vec![RunEvent { t_s: 3.0, placement: true, text: "start shop-2, \"soon\"".into() }],
            ..Run::default()
        };
        let text = tidy(&run);
        assert!(text.starts_with("t_s,kind,name,measure,value\n"), "{text}");
        assert!(text.contains("2,flow,shop/gold,mean_ms,5.5\n2,flow,shop/gold,seats,3\n"), "{text}");
        assert!(!text.contains("p95_ms"));
        assert!(text.ends_with("3,change,\"start shop-2, \"\"soon\"\"\",made,1\n"), "{text}");
    }
}
