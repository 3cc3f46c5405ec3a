//! What a rehearsal or a simulation measured, and the page that shows it.
//!
//! A [`Run`] is plain data: everything a report shows is in it, and `-o json` prints it. [`Run::to_html`] makes one
//! self-contained file of it: no network, readable on paper and without colour (every line has its own dashes and a label).

pub mod axes;
mod beside;
mod chart;
mod comparison;
mod csv;
mod expect;
mod html;
mod moments;
mod run;

use crate::ExpectTable;

pub use beside::{BesideFlow, BesideJob, BesideSimulation, difference};
pub use comparison::{Comparison, Figure, SeedRange, Variant};
pub use csv::comma_separated;
pub use html::document;
pub use moments::{JobMoment, JobSeen, JobWatch};
pub use run::{
    ALL_JOBS, AppSeries, Check, FlowPoint, FlowSeries, FlowSummary, JobEnd, JobPoint, JobSeries, JobSummary, NodePoint,
    NodeSeries, Run, RunEvent,
};

impl Run {
    /// Measures what a scenario expects and fills in `checks`. `warm_up_s` is left out where an expectation does not say from when.
    pub fn judge(&mut self, expectations: &[ExpectTable], warm_up_s: f64) {
        self.checks = expectations.iter().map(|expectation| expect::check(self, expectation, warm_up_s)).collect();
    }

    /// Tidy CSV: `t_s,kind,name,measure,value`, one number a line.
    pub fn to_csv(&self) -> String {
        csv::tidy(self)
    }

    /// One self-contained page.
    pub fn to_html(&self) -> String {
        html::page(self)
    }
}

impl Comparison {
    /// One self-contained page.
    pub fn to_html(&self) -> String {
        html::comparison_page(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let point = |t: usize| FlowPoint {
            t_s: t as f64,
            response_ms: (t != 3).then_some(100.0 + 40.0 * t as f64),
            mean_ms: None,
            p95_ms: None,
            utility: Some(1.0 - 0.2 * t as f64),
            seats: 4.0,
            queue: t as f64,
            in_service: 3.0,
            throughput_per_s: 20.0,
            arrival_per_s: 22.0,
            rejected_per_s: 0.0,
            errors_per_s: 0.0,
        };
        Run {
            title: "a <b>bold</b> & \"quoted\" title".into(),
            kind: "simulated".into(),
            duration_s: 9.0,
            flows: vec![FlowSeries {
                name: "shop/<script>alert(1)</script>".into(),
                goal: "mean < 250ms".into(),
                target_ms: Some(250.0),
                points: (0..10).map(point).collect(),
                ..FlowSeries::default()
            }],
            nodes: vec![NodeSeries {
                name: "n1".into(),
                cpu_capacity: 1.0,
                apps: vec!["shop".into(), "search".into()],
                points: (0..10).map(|t| NodePoint { t_s: t as f64, cpu: vec![0.3, 0.05 * t as f64], cpu_used: 0.3 }).collect(),
            }],
            changes: vec![RunEvent { t_s: 4.0, placement: true, text: "started shop-2 on n1: it lacked 0.3 CPU".into() }],
            checks: vec![Check { what: "shop mean".into(), expected: "< 250".into(), got: Some(260.0), met: false }],
            ..Run::default()
        }
    }

    #[test]
    fn a_page_stands_alone_and_escapes_what_it_shows() {
        let page = run().to_html();
        assert!(!page.contains("<script"), "no script, ours or somebody's");
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            let found = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(outside), "{outside} would need the network");
        }
        assert!(page.contains("started shop-2 on n1"));
        assert!(page.contains("missed"));
    }

    #[test]
    fn a_gap_in_the_measurements_is_a_gap_in_the_line() {
        let page = run().to_html();
        let response = page.split("<title>Response time").nth(1).unwrap();
        let line = response.split("class=\"line").nth(1).unwrap();
        let path = line.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 2, "{path}");
    }

    #[test]
    fn an_empty_run_is_a_page_too() {
        let page = Run::default().to_html();
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }
}
