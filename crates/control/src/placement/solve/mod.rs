//! A placement for a problem, as good as can be found in the steps that may be taken.
//!
//! | file | what |
//! | --- | --- |
//! | [`search`] | from the current placement to a better one: lift the worst off, then the rest |
//! | [`repair`], [`pack`] | change a placement until all have what a utility asks for; pack nodes anew |
//! | `exchange` | single instances change places where that helps one who lacks CPU |
//! | `polish`, `exact` | in small pools, every exchange of a few instances, then branch and bound |
//! | [`partition`] | pools too large to be searched as a whole, in parts |
//! | [`distribute`](mod@distribute) | the best loads for a placement, exactly, on the maximum flow of [`max_flow`] |
//! | `candidate`, [`Solution`] | placements compared; the answer |

mod candidate;
pub mod distribute;
mod exact;
mod exchange;
pub mod max_flow;
pub mod pack;
pub mod partition;
mod polish;
pub mod repair;
pub mod search;
mod solution;

#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod properties;

use super::problem::Problem;
pub(in crate::placement) use candidate::{Worth, try_instead};
pub use solution::Solution;

/// A placement for `problem`, with `budget` steps for each pass of the search.
///
/// Postcondition: when the search ends before its passes do, searching again from the answer changes nothing.
pub fn solve(problem: &Problem, budget: u32) -> Solution {
    if problem.nodes.len() > partition::WHOLE {
        partition::solve_in_parts(problem, budget)
    } else {
        search::solve_whole(problem, budget)
    }
}
