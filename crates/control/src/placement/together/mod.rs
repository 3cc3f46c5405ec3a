//! Jobs and instances placed together.
//!
//! The search for instances ([`solve`](super::solve)) sees the jobs that run, as something that cannot be moved. The job scheduler
//! ([`WealScheduler`]) sees the memory that instances leave. Neither makes room for the other: an instance that gains little shuts a job
//! out for good, and an application that lacks memory waits until a job ends. So a third search begins where these two end. One step of it
//! changes instances and jobs at once, for one that could be better off: it gets a place, or another one, and who is in its way leaves for
//! another node, sleeps or is suspended.
//!
//! All placements are judged alike. With `u` the utilities of all jobs and applications, as the job scheduler foresees them, the first of `u`
//! (from the worst) that differs by more than the tolerance decides; then who gains must gain more than the changes of instances cost
//! ([`Worth`](super::solve::Worth)). Changes of jobs hold them up, which is in their utilities.
//!
//! The present is a placement like the others: the instances and runs of now, with those jobs that begin in room that nobody has to give. What
//! beats something that beats a third need not beat the third, so steps that are each better can lead in a circle. Therefore the present is
//! left only for what beats it and is above it in an order ([`Judged::is_above`]). For the same reason, what a placement leads to does not
//! depend on what there is now ([`Pool::judge`]). Nothing is tried where no placement could be better: where everybody is at the level at which
//! all demands use up the pool's CPU ([`Pool::may_improve`]).
//!
//! | file | what |
//! | --- | --- |
//! | `pool` | placements of both kinds, and what they lead to |
//! | `moves` | who may go where, and who would have to leave for it |
//! | `search` | from a placement to a better one |

mod moves;
mod pool;
mod search;

#[cfg(test)]
mod joint_tests;
#[cfg(test)]
mod tests;

use weal_model::Algorithm;

use super::policy::Policy;
use super::problem::layout::Layout;
use super::problem::mandatory::enforce;
use super::problem::translate::Translation;
use super::solve::Solution;
use super::solve::distribute::distribute;
use super::solve::max_flow::FlowNetwork;
use crate::jobs::{Assignment, Scheduler, WealScheduler};
pub(in crate::placement) use pool::app_curves;
use pool::{Judged, Pool};

/// Where the jobs of a translation run; `solution` becomes what is best beside them. The algorithms that are there for comparison know no
/// jobs: these get what their instances leave.
pub(in crate::placement) fn place(translation: &Translation, policy: &Policy, solution: &mut Solution) -> Assignment {
    if translation.jobs.jobs.is_empty() {
        return Assignment::default();
    }
    let mut pool = Pool::of(translation, policy);
    let planned = pool.only_apps(&solution.layout);
    if translation.apps.is_empty() || policy.algorithm != Algorithm::Weal || !policy.pool.control {
        let around = pool.around(&planned);
        let situation = around.situation(&pool);
        let stands = (policy.jobs_stand && translation.apps.is_empty()).then(|| WealScheduler.stand(&situation)).flatten();
        return stands.unwrap_or_else(|| WealScheduler.schedule(&situation));
    }
    let mut planned = pool.scheduled(planned);
    if planned.leaves_out(&pool) && pool.count_what_leaves(translation) {
        planned = pool.scheduled(pool.only_apps(&solution.layout));
    }
    let best = best(&pool, translation, planned);
    adopt(translation, &pool, solution, &best);
    pool.assignment(best)
}

/// The best that is found from what was planned for instances alone, and from what is best for jobs beside the instances of now. The present
/// is left only for what is above it, too.
fn best(pool: &Pool, translation: &Translation, planned: Judged) -> Judged {
    let mut now = Layout::current(&translation.problem);
    enforce(&translation.problem, &mut now);
    let now = pool.only_apps(&now);
    let is_planned = pool::places(&now) == pool::places(&planned.placing.layout);
    let present = pool.present(now.clone());
    let proposals = (!is_planned).then(|| pool.scheduled(now)).into_iter().chain([planned]);
    let start = proposals.fold(present.clone(), |best, other| if other.beats(&best, pool) { other } else { best });
    let found = if pool.may_improve(&start) { search::improve(pool, start.clone()) } else { start.clone() };
    let is_worth_it = |one: &Judged| one.beats(&present, pool) && one.is_above(&present, pool);
    [found, start].into_iter().find(is_worth_it).unwrap_or(present)
}

/// Brings the instances of `best` into `solution`, if they are others.
fn adopt(translation: &Translation, pool: &Pool, solution: &mut Solution, best: &Judged) {
    let layout = &best.placing.layout;
    if pool::places(layout) == pool::places(&pool.only_apps(&solution.layout)) {
        return;
    }
    let problem = &translation.problem;
    let mut whole = Layout::empty(problem);
    let residents = (0u32..).zip(&problem.apps).skip(translation.apps.len());
    let residents = residents.flat_map(|(m, resident)| resident.current.iter().map(move |&(n, count)| (m, n, count)));
    for (m, n, count) in pool::places(layout).into_iter().chain(residents) {
        (0..count).for_each(|_| _ = whole.add(problem, m, n));
    }
    solution.utilities = distribute(problem, &mut whole, &mut FlowNetwork::new(problem));
    solution.changes = whole.changes(problem);
    solution.layout = whole;
}
