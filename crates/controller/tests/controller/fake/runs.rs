//! Runs of jobs in the fake machine.

use weal_model::{Action, InstanceState, JobName, RunEnd};
use weal_protocol::Refusal;
use weal_protocol::engine::{JobOrder, RunSeen, RunState};
use weal_protocol::node::InstanceEvent;

use super::{FakeMachine, now};

impl FakeMachine {
    /// Does what is ordered to a run at once, and says so in an event.
    pub fn act_on_job(&mut self, order: &JobOrder) -> Option<Refusal> {
        let weal_model::Target::Job { job } = order.action.target() else { return Some(Refusal::failed("no job")) };
        let is_it = |run: &RunSeen| run.job == job && run.attempt == order.attempt;
        match &order.action {
            Action::StartJob { .. } if order.command.run == ["missing"] => {
                return Some(Refusal::StartFailed { detail: "cannot run missing: there is no such file".into() });
            }
            Action::StartJob { nodes, .. } if !self.agent.runs.iter().any(is_it) => self.agent.runs.push(RunSeen {
                job: job.clone(),
                attempt: order.attempt,
                task: 0,
                node: nodes[0].clone(),
                state: RunState::Running,
                detail: String::new(),
                since: now(),
                cpu_seconds: Some(0.0),
                memory_used: None,
                end: None,
                progress: None,
            }),
            Action::EndJob { .. } => self.agent.runs.retain(|run| !is_it(run)),
            Action::PauseJob { .. } => self.set_run(&job, RunState::Paused, None),
            Action::SuspendJob { .. } => self.set_run(&job, RunState::Suspended, None),
            Action::ResumeJob { .. } => self.set_run(&job, RunState::Running, None),
            _ => {}
        }
        None
    }

    /// The run of a job is as `state` says from now on.
    pub fn set_run(&mut self, job: &JobName, state: RunState, end: Option<RunEnd>) {
        let Some(run) = self.agent.runs.iter_mut().find(|run| run.job == *job) else { return };
        (run.state, run.end, run.since) = (state, end, now());
        let event = InstanceEvent {
            id: self.events.len() as u64 + 1,
            time: now(),
            instance: format!("job.{job}.{}", run.attempt).into(),
            app: "job.test".into(),
            node: run.node.clone(),
            state: InstanceState::Ready,
            detail: String::new(),
            job: Some(job.clone()),
        };
        self.events.push(event);
    }
}
