//! The papers' cases, run again: `weal reproduce`.
//!
//! Each case states the claim, where it stands, its inputs and its tolerance; `experiments/CASE/README.md` tells the same to
//! readers. A case that is not met is reported as a difference. Nothing here is tuned to a paper's number: inputs come
//! from the papers, and the code under test is that of `weal up`.

mod hypothetical;
mod mixed;
mod prototype;
mod seats;
mod shares;
mod streams;

use serde::{Deserialize, Serialize};

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// Seconds: fewer seeds and jobs where a case is long.
    Quick,
    /// All of what the paper did.
    Full,
}

/// One number of a case, beside what the paper says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// What it is.
    pub what: String,
    /// What the paper, or its inputs recalculated, gives.
    pub expected: String,
    /// What weal gives.
    pub got: String,
    /// How far apart they may be.
    pub tolerance: String,
    /// True when they are no further apart than that.
    pub pass: bool,
}

/// One case, run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// `C1`, as in `experiments/`.
    pub case: String,
    /// What the paper claims.
    pub claim: String,
    /// Paper and section.
    pub source: String,
    /// What went in.
    pub inputs: String,
    /// The numbers.
    pub measures: Vec<Measure>,
    /// True when all of them are within their tolerances.
    pub pass: bool,
}

/// A case that can be run.
#[derive(Clone, Copy)]
pub struct Case {
    /// `C1`, as in `experiments/`.
    pub name: &'static str,
    /// The claim in a line.
    pub title: &'static str,
    /// Runs it.
    pub run: fn(Effort) -> Reproduction,
}

/// All cases, in the order of reproductions.
pub fn cases() -> Vec<Case> {
    let case = |name, title, run| Case { name, title, run };
    vec![
        case("C1", "equal predictions leave a placement alone", hypothetical::experiment_one_scenario_1),
        case("C2", "a tighter goal makes sharing worth a change", hypothetical::experiment_one_scenario_2),
        case("C4", "interpolated and exact division of a group's allocation", hypothetical::first_example),
        case("C5", "the same with a member at its maximum", hypothetical::second_example),
        case("C6", "the baseline job's bounds", hypothetical::baseline_bounds),
        case("C7", "identical jobs are never interrupted", streams::experiment_two),
        case("C8", "mixed goals make suspending worth it", streams::experiment_three),
        case("C9", "goals met and changes made against FCFS and EDF", streams::experiment_four),
        case("C10", "jobs and an application share a pool at one utility", mixed::heterogeneous),
        case("C11", "what a rule that maximises satisfied demand does", prototype::demand_based_rule),
        case("C12", "suspending and migrating jobs for stricter goals", prototype::long_running_jobs),
        case("P1", "the frontier of feasible seats", seats::frontier),
        case("P2", "seats follow the sessions of two flows", seats::experiment_one),
        case("T1", "the share exchange examples", shares::worked_examples),
    ]
}

/// Runs the case of this name.
pub fn reproduce(name: &str, effort: Effort) -> Option<Reproduction> {
    cases().into_iter().find(|case| case.name.eq_ignore_ascii_case(name)).map(|case| (case.run)(effort))
}

/// Collects the numbers of one case.
struct Record {
    reproduction: Reproduction,
}

impl Record {
    fn new(case: &str, source: &str, claim: &str, inputs: &str) -> Self {
        let text = str::to_owned;
        Self {
            reproduction: Reproduction {
                case: text(case),
                claim: text(claim),
                source: text(source),
                inputs: text(inputs),
                measures: Vec::new(),
                pass: true,
            },
        }
    }

    /// A number that has to be within `tolerance` of the expected one.
    fn near(&mut self, what: &str, expected: f64, got: f64, tolerance: f64) {
        let pass = (got - expected).abs() <= tolerance;
        self.push(what, number(expected), number(got), format!("{tolerance}"), pass);
    }

    /// A number that has to lie in a range.
    fn within(&mut self, what: &str, expected: std::ops::RangeInclusive<f64>, got: f64) {
        let (low, high) = (*expected.start(), *expected.end());
        let range = match (low.is_finite(), high.is_finite()) {
            (true, true) => format!("{}..={}", number(low), number(high)),
            (true, false) => format!(">= {}", number(low)),
            _ => format!("<= {}", number(high)),
        };
        self.push(what, range, number(got), "range".to_owned(), expected.contains(&got));
    }

    /// Something that has to be just so.
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, expected: T, got: T) {
        let pass = expected == got;
        self.push(what, format!("{expected:?}"), format!("{got:?}"), "exact".to_owned(), pass);
    }

    /// A number to be told, not judged.
    fn tell(&mut self, what: &str, got: f64) {
        self.push(what, "-".to_owned(), number(got), "told only".to_owned(), true);
    }

    fn push(&mut self, what: &str, expected: String, got: String, tolerance: String, pass: bool) {
        self.reproduction.pass &= pass;
        self.reproduction.measures.push(Measure { what: what.to_owned(), expected, got, tolerance, pass });
    }

    fn done(self) -> Reproduction {
        self.reproduction
    }
}

/// A number with the digits that matter.
fn number(value: f64) -> String {
    let text = if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.4}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a case and tells what is off.
    fn check(name: &str) {
        let reproduction = reproduce(name, Effort::Quick).unwrap_or_else(|| panic!("there is no case {name}"));
        for measure in &reproduction.measures {
            let mark = if measure.pass { "ok " } else { "OFF" };
            println!("{mark} {}: {} (expected {}, {})", measure.what, measure.got, measure.expected, measure.tolerance);
        }
        assert!(reproduction.pass, "{name} ({}): {:?}", reproduction.source, off(&reproduction));
    }

    fn off(reproduction: &Reproduction) -> Vec<&Measure> {
        reproduction.measures.iter().filter(|measure| !measure.pass).collect()
    }

    #[test]
    fn c1_c2_carrera_5_6_2_1_experiment_one() {
        check("C1");
        check("C2");
    }

    #[test]
    fn c4_c5_carrera_5_4_2_4_interpolation_examples() {
        check("C4");
        check("C5");
    }

    #[test]
    fn c6_carrera_5_6_2_2_bounds_of_the_baseline() {
        check("C6");
    }

    #[test]
    fn c7_carrera_5_6_2_2_experiment_two() {
        check("C7");
    }

    #[test]
    fn c8_carrera_5_6_2_3_experiment_three() {
        check("C8");
    }

    #[test]
    fn c9_carrera_5_6_2_4_experiment_four() {
        check("C9");
    }

    #[test]
    fn c10_carrera_5_6_3_heterogeneous_workloads() {
        check("C10");
    }

    #[test]
    fn c11_carrera_5_7_1_2_demand_based_rule() {
        check("C11");
    }

    #[test]
    fn c12_carrera_5_7_2_long_running_jobs() {
        check("C12");
    }

    #[test]
    fn p1_p2_pacifici_seats() {
        check("P1");
        check("P2");
    }

    #[test]
    fn t1_tsai_5_3_share_exchange_examples() {
        check("T1");
    }
}
