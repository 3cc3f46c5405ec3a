//! A run as one thing, whose tasks are processes of their own: a gang. All of them run, or none does.
//!
//! The engine tells of each task. Plans, orders and records know the run alone, so that what is decided holds for all tasks:
//!
//! | the tasks | the run |
//! | --- | --- |
//! | one has ended badly | has ended as that one, the first of several: what is left of it is taken away |
//! | one is missing | is lost: a gang without a task can neither go on nor wait for it |
//! | all have ended well | is done |
//! | some have ended well | is what the others are |
//! | others differ | is what is least wanted: what stands still where it is to run, what runs where it is to stand still. So the order is given again |

use weal_model::{Hold, JobName, JobRecord, JobSpec, NodeName, RunEnd};
use weal_protocol::engine::{RunSeen, RunState};

/// Processes that run at once, as a number to divide by.
pub(in super::super) fn tasks(spec: &JobSpec) -> f64 {
    f64::from(spec.tasks.max(1))
}

/// The tasks of a run that were seen and for which `is_meant` holds; the only one where none was seen.
pub(super) fn seen(job: &JobName, attempt: u32, runs: &[RunSeen], is_meant: impl Fn(&RunSeen) -> bool) -> Vec<u32> {
    let of_it = runs.iter().filter(|run| run.job == *job && run.attempt == attempt && is_meant(run));
    let mut tasks: Vec<u32> = of_it.map(|run| run.task).collect();
    tasks.sort_unstable();
    if tasks.is_empty() { vec![0] } else { tasks }
}

/// What a run is, from what was seen of its tasks, and the node of each of them.
pub(super) fn whole(record: &JobRecord, mut parts: Vec<&RunSeen>) -> (Option<RunSeen>, Vec<NodeName>) {
    parts.sort_by_key(|part| part.task);
    let Some(first) = parts.first().copied() else { return (None, Vec::new()) };
    let tasks = record.spec.tasks.max(1);
    if tasks == 1 {
        return (Some(first.clone()), vec![first.node.clone()]);
    }
    let nodes = parts.iter().map(|part| part.node.clone()).collect();
    let missing = (0..tasks).find(|task| !parts.iter().any(|part| part.task == *task));
    let run = match (missing, fallen(&parts)) {
        (_, Some(fallen)) => RunSeen { detail: named(fallen.task, tasks, &fallen.detail), ..fallen.clone() },
        (Some(task), None) => {
            let (state, end) = (RunState::Ended, Some(RunEnd::Lost));
            RunSeen { state, end, detail: named(task, tasks, "its processes are gone and left no exit status"), ..first.clone() }
        }
        (None, None) => standing(record.hold, &parts),
    };
    (Some(together(run, &parts)), nodes)
}

/// The first task that has ended otherwise than well.
fn fallen<'r>(parts: &[&'r RunSeen]) -> Option<&'r RunSeen> {
    let has_fallen = |part: &&&RunSeen| part.state == RunState::Ended && part.end != Some(RunEnd::Code { code: 0 });
    parts.iter().filter(has_fallen).min_by_key(|part| part.since).copied()
}

fn named(task: u32, tasks: u32, detail: &str) -> String {
    format!("task {} of {tasks}: {detail}", task + 1)
}

/// A run of which no task has ended badly.
fn standing(hold: Hold, parts: &[&RunSeen]) -> RunSeen {
    let rank = |state: RunState| match state {
        RunState::Stopping => 0,
        RunState::Starting => 1,
        RunState::Running => 2,
        RunState::Paused => 3,
        RunState::Suspended => 4,
        RunState::Ended => 5,
    };
    let open = parts.iter().filter(|part| part.state != RunState::Ended);
    let on_its_way = open.clone().filter(|part| rank(part.state) < 2).min_by_key(|part| rank(part.state));
    let least_wanted = match hold {
        Hold::None => open.max_by_key(|part| rank(part.state)),
        Hold::Paused | Hold::Suspended => open.min_by_key(|part| rank(part.state)),
    };
    let last = || parts.iter().max_by_key(|part| part.since);
    on_its_way.or(least_wanted).or_else(last).map_or_else(|| parts[0].clone(), |part| (*part).clone())
}

/// `run` with what all tasks have used, and what the largest and the slowest of them say.
fn together(run: RunSeen, parts: &[&RunSeen]) -> RunSeen {
    RunSeen {
        task: 0,
        node: parts[0].node.clone(),
        cpu_seconds: parts.iter().map(|part| part.cpu_seconds).sum(),
        memory_used: parts.iter().filter_map(|part| part.memory_used).max(),
        progress: parts.iter().filter_map(|part| part.progress).min_by(f64::total_cmp),
        ..run
    }
}
