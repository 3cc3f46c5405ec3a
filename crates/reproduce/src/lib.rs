//! The papers' cases, run again: `weal reproduce`.
//!
//! | module | what it is |
//! | --- | --- |
//! | `cases` | the list of all cases, one file of a few for each part of a paper |
//! | [`batch`] | batch jobs in virtual time under any scheduler |
//! | [`fluid`] | load as rates: flash crowds, job logs beside web load, weeks in seconds |
//!
//! Each case states the claim, where it stands, its inputs and its tolerance; `experiments/CASE/README.md` tells the same to
//! readers. A case that is not met is reported as a difference. Nothing here is tuned to a paper's number: inputs come
//! from the papers, and the code under test is that of `weal up`.

pub mod batch;
mod cases;
pub mod fluid;
mod page;
mod plot;
mod record;
mod setting;

pub use cases::cases;
pub use page::{files, page, page_of, verdict};
pub use record::{Figure, Measure, Record, Reproduction};
pub use setting::{Effort, InTurn, Setting, Workers};

use record::mean;

/// A case that can be run.
#[derive(Clone, Copy)]
pub struct Case {
    /// `C1`, as in `experiments/`.
    pub name: &'static str,
    /// The claim in a line.
    pub title: &'static str,
    /// Runs it.
    pub run: fn(&Setting) -> Reproduction,
}

/// Runs the case of this name, one piece after the other.
pub fn reproduce(name: &str, effort: Effort) -> Option<Reproduction> {
    let setting = Setting { effort, workers: &InTurn };
    cases().into_iter().find(|case| case.name.eq_ignore_ascii_case(name)).map(|case| (case.run)(&setting))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a case's quick form; every number holds.
    fn check(name: &str) {
        check_but(name, &[]);
    }

    /// Runs a case's quick form; these numbers differ from the paper's, and no others.
    fn check_but(name: &str, known: &[&str]) {
        let reproduction = reproduce(name, Effort::Quick).unwrap_or_else(|| panic!("there is no case {name}"));
        for measure in &reproduction.measures {
            println!(
                "{:8}{}: {} (paper {}, {})",
                verdict(measure),
                measure.what,
                measure.got,
                measure.expected,
                measure.tolerance
            );
        }
        let differing: Vec<&str> = reproduction.measures.iter().filter(|one| !one.pass).map(|one| one.what.as_str()).collect();
        assert_eq!(differing, known, "{name} ({})", reproduction.source);
    }

    /// Every case has a folder with a README, and what `weal reproduce --save` writes for it; nothing else has one.
    #[test]
    fn every_case_has_a_folder_that_tells_it() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        for case in cases() {
            let folder = root.join(case.name);
            let readme =
                std::fs::read_to_string(folder.join("README.md")).unwrap_or_else(|_| panic!("{} has no README", case.name));
            for part in ["**Source**", "**Claim**", "**Inputs**", "**Seeds**", "**Tolerance**", "**Result**", "**Run**"] {
                assert!(readme.contains(part), "experiments/{}/README.md has no {part}", case.name);
            }
            let script =
                std::fs::read_to_string(folder.join("plot.gp")).unwrap_or_else(|_| panic!("{} has no plot.gp", case.name));
            let csv = script.split('\'').filter(|name| name.ends_with(".csv")).chain(["numbers.csv"]);
            csv.for_each(|name| assert!(folder.join(name).is_file(), "experiments/{}/{name} is missing", case.name));
        }
        let folders = std::fs::read_dir(&root).unwrap().flatten().filter(|entry| entry.path().is_dir());
        for folder in folders.map(|entry| entry.file_name().into_string().unwrap()) {
            assert!(cases().iter().any(|case| case.name == folder), "experiments/{folder} belongs to no case");
        }
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
        check_but("C7", &["share of jobs at 0.63"]);
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
        check_but("C10", &["difference between jobs and application under contention, mean"]);
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
        let known = [
            "seats of TradeB, phase 2 less phase 1: unchanged (Figure 5)",
            "seats on df211, phase 2 less phase 1: TradeA (Figure 9)",
            "without control, phase 2: TradeB is well below its goal (Figures 11, 12)",
            "df209 down, no control: TradeA's throughput drops by, % (Figure 13)",
            "df209 down, control: both flows meet their goals (Figure 13)",
        ];
        check_but("P3", &known);
    }

    #[test]
    fn c13_c14_carrera_5_6_1_placement() {
        check_but("C13", &["the harder, the larger the difference"]);
        let known = [
            "not overloaded: changes per cycle, at most those for satisfied demand",
            "partly overloaded: changes per cycle, at most those for satisfied demand",
            "overloaded: changes per cycle, at most those for satisfied demand",
        ];
        check_but("C14", &known);
    }

    #[test]
    fn a1_al_qudah_5_flash_crowd() {
        check_but("A1", &["resume: longest response, s"]);
    }

    #[test]
    fn f1_fluid_weeks() {
        check("F1");
    }

    #[test]
    fn t3_tsai_3_5_dispatching() {
        let known = [
            "World Cup: response, URL hash R = 2 over least connection, % (Figure 3.7)",
            "World Cup: response, URL hash R = 2 over LARD, % (Figure 3.7)",
            "World Cup, 140 clients: throughput, LARD over least connection, % (Figure 3.9)",
            "videos, 440 clients: throughput, LARD over least connection, % (Figure 3.10)",
            "videos, 440 clients: throughput, URL hash R = 1 over least connection, % (Figure 3.10)",
            "videos, 560 clients: throughput, URL hash R = 2 over LARD, % (Figure 3.10)",
        ];
        check_but("T3", &known);
    }

    #[test]
    fn t4_tsai_5_5_6_many_programs() {
        let known = [
            "all booked, work-conserving: programs with the largest speed-up",
            "all booked, work-conserving: largest speed-up, %",
        ];
        check_but("T4", &known);
    }

    #[test]
    fn s1_stewart_and_shen_5_1_component_placement() {
        check("S1");
    }

    #[test]
    fn t2_v1_tsai_share_exchange_and_locality() {
        check_but("T2", &["share 0.2, distributed: exchanges until within 5% of the settled response"]);
        check("V1");
    }

    #[test]
    fn t1_tsai_5_3_share_exchange_examples() {
        check("T1");
    }
}
