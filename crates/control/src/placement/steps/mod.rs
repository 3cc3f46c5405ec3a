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
use crate::jobs::Assignment;
pub(super) use actions::Steps;
use jobs::Batch;
pub(super) use jobs::Decided;
use names::Names;

/// The steps from what runs to what the solution has, from the jobs' present runs to those of `assignment`, and those about what stands by,
/// which take what the others leave. `solution` loses the CPU that jobs get.
pub(super) fn of(
    translation: &Translation,
    snapshot: &Snapshot,
    policy: &Policy,
    solution: &mut Solution,
    assignment: Assignment,
) -> (Steps, Decided) {
    let mut names = Names::of(snapshot, policy);
    let mut steps = Steps::begin(translation, snapshot);
    let mut jobs = Batch::new(translation, policy, assignment);
    // What frees memory comes before what takes it: instances may come where jobs were, and jobs where instances were.
    jobs.suspend(&mut steps);
    let wanted = steps.take_off(translation, policy, solution);
    jobs.migrate(&mut steps);
    steps.bring_up(translation, policy, solution, &mut names, wanted);
    sleepers::descend(&mut steps, translation, policy);
    sleepers::tidy(&mut steps, translation, policy);
    ahead::lay_down(&mut steps, translation, policy);
    // Jobs come before what nobody has asked for: a gang needs its memory at once, and instances that are started one by one would fill it
    // again and again.
    let jobs = jobs.conclude(&mut steps, solution);
    ahead::start_ahead(&mut steps, translation, policy, solution, &mut names);
    (steps, jobs)
}
