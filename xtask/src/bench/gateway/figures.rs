//! What is made of samples: ratios to HAProxy, round by round, and whether the target is met.

use super::proxies::Kind;
use super::setting::{CONNECTIONS, Course};
use crate::bench::real::{median, quantile};
use crate::table::Table;

/// What is done per CPU-second relative to HAProxy that the gateway has to reach.
pub const TARGET: f64 = 1.0;

/// One round with one proxy.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Requests, handshakes or messages.
    pub per_cpu_second: f64,
    pub per_second: f64,
    /// `None` where the load generator does not tell it.
    pub p99_ms: Option<f64>,
}

pub fn new_table(course: Course) -> Table {
    let title = format!(
        "what is done per CPU-second of the proxy: {CONNECTIONS} connections, median of {} rounds of {} s",
        course.rounds, course.seconds
    );
    Table::new(title, &["work", "proxy", "per CPU-s", "of HAProxy", "rounds", "per s", "p99 ms", "of HAProxy's", "rounds"])
}

/// Adds what was seen of each proxy in one work.
pub fn add_rows(table: &mut Table, work: &str, samples: &[Vec<Sample>]) {
    let of = |kind: Kind| &samples[Kind::ALL.iter().position(|one| *one == kind).expect("it is one of all")];
    let haproxy = of(Kind::Haproxy);
    for kind in Kind::ALL {
        let own = of(kind);
        let [ratio, rounds] = ratio_cells(own, haproxy, |sample| Some(sample.per_cpu_second));
        let [p99_ratio, p99_rounds] = ratio_cells(own, haproxy, |sample| sample.p99_ms);
        let p99 = p99s(own);
        let cells = [
            work.to_owned(),
            kind.name().to_owned(),
            format!("{:.0}", median_of(own, |sample| sample.per_cpu_second)),
            ratio,
            rounds,
            format!("{:.0}", median_of(own, |sample| sample.per_second)),
            if p99.is_empty() { String::new() } else { format!("{:.1}", median(&p99)) },
            p99_ratio,
            p99_rounds,
        ];
        table.row(cells, (kind == Kind::Weal).then(|| is_met(own, haproxy)));
    }
}

/// The median ratio, and the least and the greatest.
fn ratio_cells(own: &[Sample], theirs: &[Sample], value: fn(&Sample) -> Option<f64>) -> [String; 2] {
    let ratios = ratios(own, theirs, value);
    if ratios.is_empty() {
        return [String::new(), String::new()];
    }
    [format!("{:.2}", median(&ratios)), format!("{:.2} to {:.2}", quantile(&ratios, 0.0), quantile(&ratios, 1.0))]
}

fn ratios(own: &[Sample], theirs: &[Sample], value: fn(&Sample) -> Option<f64>) -> Vec<f64> {
    own.iter().zip(theirs).filter_map(|(own, theirs)| Some(value(own)? / value(theirs)?)).collect()
}

fn is_met(own: &[Sample], theirs: &[Sample]) -> bool {
    // As it is printed, or a row could say 1.00 and be missed.
    let ratio = (median(&ratios(own, theirs, |sample| Some(sample.per_cpu_second))) * 100.0).round() / 100.0;
    ratio >= TARGET && is_as_prompt(&p99s(own), &p99s(theirs))
}

/// Whether a p99 is beyond the other by no more than the other's rounds are apart.
fn is_as_prompt(own: &[f64], theirs: &[f64]) -> bool {
    let apart = quantile(theirs, 1.0) - quantile(theirs, 0.0);
    own.is_empty() || median(own) <= median(theirs) + apart
}

fn p99s(samples: &[Sample]) -> Vec<f64> {
    samples.iter().filter_map(|sample| sample.p99_ms).collect()
}

fn median_of(samples: &[Sample], value: fn(&Sample) -> f64) -> f64 {
    median(&samples.iter().map(value).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(per_cpu_second: [f64; 3], p99_ms: Option<[f64; 3]>) -> Vec<Sample> {
        let p99 = |at: usize| p99_ms.map(|values| values[at]);
        per_cpu_second
            .iter()
            .enumerate()
            .map(|(at, &value)| Sample { per_cpu_second: value, per_second: value, p99_ms: p99(at) })
            .collect()
    }

    #[test]
    fn the_ratio_is_taken_round_by_round() {
        // The machine was twice as slow in the last round, for both.
        let (ours, haproxy) = (rounds([90.0, 120.0, 55.0], None), rounds([100.0, 100.0, 50.0], None));
        assert_eq!(ratio_cells(&ours, &haproxy, |sample| Some(sample.per_cpu_second)), ["1.10", "0.90 to 1.20"]);
        assert!(is_met(&ours, &haproxy));
        assert!(!is_met(&rounds([99.0, 99.0, 49.0], None), &haproxy));
    }

    #[test]
    fn a_p99_may_be_beyond_the_other_by_as_much_as_the_other_varies() {
        let haproxy = rounds([100.0; 3], Some([8.0, 10.0, 12.0]));
        assert!(is_met(&rounds([100.0; 3], Some([14.0; 3])), &haproxy));
        assert!(!is_met(&rounds([100.0; 3], Some([14.1; 3])), &haproxy));
    }

    #[test]
    fn a_work_without_p99_has_empty_cells_and_is_judged_by_the_rest() {
        let without = rounds([100.0; 3], None);
        assert_eq!(ratio_cells(&without, &without, |sample| sample.p99_ms), ["", ""]);
        assert!(is_met(&without, &without));
    }

    #[test]
    fn only_the_gateway_has_a_target() {
        let mut table = new_table(Course { rounds: 3, seconds: 1 });
        add_rows(&mut table, "h1", &vec![rounds([100.0; 3], None); Kind::ALL.len()]);
        let judged: Vec<_> = table.rows.iter().filter(|row| row.met.is_some()).map(|row| row.cells[1].as_str()).collect();
        assert_eq!(judged, [Kind::Weal.name()]);
    }
}
