//! The papers' cases, run again: `weal reproduce`.
//!
//! Each case states the claim, where it stands, its inputs and its tolerance; `experiments/CASE/README.md` tells the same to
//! readers. A case that is not met is reported as a difference. Nothing here is tuned to a paper's number: inputs come
//! from the papers, and the code under test is that of `weal up`.

mod bsp;
mod components;
mod crowds;
mod dispatching;
mod hypothetical;
mod locality;
mod mixed;
mod page;
mod patterns;
mod plot;
mod pools;
mod prototype;
mod randomized;
mod record;
mod seats;
mod setting;
mod shares;
mod streams;
mod trade;
mod weeks;

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
        case("C9", "goals met and changes made against FCFS and EDF", randomized::experiment_four),
        case("C10", "jobs and an application share a pool at one utility", mixed::heterogeneous),
        case("C11", "what a rule that maximises satisfied demand does", prototype::demand_based_rule),
        case("C12", "suspending and migrating jobs for stricter goals", prototype::long_running_jobs),
        case("C13", "the lowest utility of web applications against satisfied demand", pools::lowest_utility),
        case("C14", "changes to a placement against satisfied demand", pools::changes),
        case("P1", "the frontier of feasible seats", seats::frontier),
        case("P2", "seats follow the sessions of two flows", seats::experiment_one),
        case("P3", "what control changes for two flows, in the model", trade::figures),
        case("T1", "the share exchange examples", shares::worked_examples),
        case("T2", "share exchange in a cluster that others use too", patterns::competing),
        case("T3", "dispatching to servers that cache", dispatching::caches),
        case("T4", "many parallel programs on one cluster", bsp::programs),
        case("V1", "what a failed server costs in locality", locality::lost_by_a_failure),
        case("A1", "a flash crowd with three ways to bring an instance up", crowds::flash_crowd),
        case("F1", "jobs and a web load on hundreds of nodes for weeks", weeks::weeks),
        case("S1", "where the components of a service should stand", components::placements),
    ]
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
