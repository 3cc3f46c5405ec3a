//! Tasks: applications that run to their end once per deploy, and those that wait for them.

use std::collections::BTreeMap;

use weal_model::{AppKind, AppName, AppSpec, InstanceState};
use weal_protocol::engine::{InstanceSeen, Revision};

/// How a task of this deploy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TaskState {
    /// It has not begun, or runs.
    Open,
    /// It ended with 0.
    Done,
    /// It ended otherwise; says how.
    Failed(String),
}

/// How `task` is, whose instances are started from `wanted` in this deploy.
pub(super) fn state(task: &AppName, instances: &[InstanceSeen], wanted: Option<&Revision>) -> TaskState {
    let current = |seen: &&InstanceSeen| seen.app == *task && wanted.is_some_and(|wanted| seen.revision.start == wanted.start);
    let ended = |seen: &InstanceSeen| match seen.state {
        InstanceState::Stopped => Some(TaskState::Done),
        InstanceState::Failed => Some(TaskState::Failed(format!("{}: {}", seen.id, seen.detail))),
        _ => None,
    };
    instances.iter().filter(current).find_map(ended).unwrap_or(TaskState::Open)
}

/// The first task that must be done before `app` starts and is not, and how it is.
pub(super) fn undone<'a>(
    app: &'a AppSpec,
    instances: &[InstanceSeen],
    revisions: &BTreeMap<AppName, Revision>,
) -> Option<(&'a AppName, TaskState)> {
    let states = app.after.iter().map(|task| (task, state(task, instances, revisions.get(task))));
    states.into_iter().find(|(_, state)| *state != TaskState::Done)
}

/// Why `app` waits for a task, in words; `None` when it waits for none.
pub(super) fn waits_for(app: &AppSpec, instances: &[InstanceSeen], revisions: &BTreeMap<AppName, Revision>) -> Option<String> {
    undone(app, instances, revisions).map(|(task, state)| match state {
        TaskState::Failed(how) => format!("waits for the task {task}, which failed: {how}"),
        _ => format!("waits for the task {task}"),
    })
}

/// A task of an earlier deploy that still runs: the next one waits for its end.
pub(super) fn still_runs(app: &AppSpec, seen: &InstanceSeen) -> bool {
    app.kind == AppKind::Task && seen.state.is_active()
}
