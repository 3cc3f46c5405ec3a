//! From a solved problem to ordered actions on named instances and jobs.
//!
//! | file | what |
//! | --- | --- |
//! | `actions` | running instances come and go: what frees memory before what takes it |
//! | `sleepers` | what stands by goes deeper, or makes room |
//! | `ahead` | what is started before anybody asks |
//! | `jobs` | which jobs run beside them, and how fast |
//! | `names` | names for new instances |

mod actions;
mod ahead;
mod jobs;
mod names;
mod sleepers;

use weal_model::Snapshot;

use super::policy::Policy;
use super::problem::translate::Translation;
use super::solve::Solution;
pub(super) use actions::Steps;
pub(super) use jobs::Decided;
use names::Names;

/// The steps from what runs to what the solution has, those about jobs, and those about what stands by, which take what the others leave.
/// `solution` loses the CPU that jobs get.
pub(super) fn of(translation: &Translation, snapshot: &Snapshot, policy: &Policy, solution: &mut Solution) -> (Steps, Decided) {
    let mut names = Names::of(snapshot, policy);
    let mut steps = Steps::of(translation, snapshot, policy, solution, &mut names);
    sleepers::descend(&mut steps, translation, policy);
    sleepers::tidy(&mut steps, translation, policy);
    ahead::lay_down(&mut steps, translation, policy);
    // Jobs come before what nobody has asked for: a gang needs its memory at once, and instances that are started one by one would fill it
    // again and again.
    let jobs = jobs::decide(&mut steps, translation, snapshot, policy, solution);
    ahead::start_ahead(&mut steps, translation, policy, solution, &mut names);
    (steps, jobs)
}
