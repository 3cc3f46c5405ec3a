//! The cases, one file of a few for each part of a paper.

mod bsp;
mod components;
mod crowds;
mod dispatching;
mod hypothetical;
mod locality;
mod mixed;
mod patterns;
mod pools;
mod prototype;
mod randomized;
mod seats;
mod shares;
mod streams;
mod trade;
mod weeks;

use crate::Case;

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
