//! What changes to a job's run tell: that it moves, and what the next change of this kind will take.

use weal_model::{Action, Bytes, Target};
use weal_protocol::engine::RunState;

use super::{Entry, Queue};
use crate::jobs::ChangeKind;

impl Queue {
    /// An action has been begun.
    pub fn handle_begun(&mut self, action: &Action) {
        let Action::StartJob { job, .. } = action else { return };
        let Some(entry) = self.open.get_mut(job) else { return };
        entry.moving = entry.kind_of(action) == Some(ChangeKind::MoveAndResume);
    }

    /// An action was carried out and took so many seconds; its entry is still as it was before.
    pub fn learn_change(&mut self, action: &Action, took_s: f64) {
        let Target::Job { job } = action.target() else { return };
        let Some(entry) = self.open.get(&job) else { return };
        let (kind, memory) = (entry.kind_of(action), entry.memory());
        kind.into_iter().for_each(|kind| self.runs.changes.learn(&job, kind, memory, took_s));
    }
}

impl Entry {
    /// Which change an action is; `None` when it costs nothing that plans count.
    fn kind_of(&self, action: &Action) -> Option<ChangeKind> {
        match action {
            Action::StartJob { nodes, .. } if self.record.saved => {
                let moves = self.record.saved_on.as_ref().zip(nodes.first()).is_some_and(|(from, to)| from != to);
                Some(if moves { ChangeKind::MoveAndResume } else { ChangeKind::Resume })
            }
            Action::StartJob { .. } => Some(ChangeKind::Start),
            Action::SuspendJob { .. } => Some(ChangeKind::Suspend),
            // What is paused has kept its memory.
            Action::ResumeJob { .. } if self.run.as_ref().is_some_and(|run| run.state != RunState::Suspended) => None,
            Action::ResumeJob { nodes, .. } if *nodes == self.nodes => Some(ChangeKind::Resume),
            Action::ResumeJob { .. } => Some(ChangeKind::MoveAndResume),
            Action::MigrateJob { .. } => Some(ChangeKind::Migrate),
            _ => None,
        }
    }

    /// The most memory that its engine lets a task use: what its phase says, and where that was learnt, what somebody once allowed.
    pub fn memory_limit(&self) -> Bytes {
        self.memory().max(self.record.memory_limit.unwrap_or(Bytes(0)))
    }
}

#[cfg(test)]
mod tests {
    use weal_model::{JobName, NodeName, Time, Work};
    use weal_protocol::engine::Observation;

    use super::super::super::operations::Operations;
    use super::super::tests::{queue, record, run};
    use super::*;

    fn on(node: &str) -> Vec<NodeName> {
        vec![node.into()]
    }

    fn start(node: &str) -> Action {
        Action::StartJob { job: "a-1".into(), nodes: on(node) }
    }

    fn took(queue: &Queue, kind: ChangeKind) -> Option<f64> {
        let name = JobName::from("a-9");
        let memory = queue.get(&"a-1".into()).unwrap().memory();
        queue.runs().changes.measured(&name, kind, memory).map(|measured| measured.seconds)
    }

    #[test]
    fn what_a_change_took_is_expected_of_the_next_one_of_its_family() {
        let mut queue = queue(vec![record("a-1", 1, 0)]);
        queue.learn_change(&start("n1"), 0.2);
        let operations = Operations::default();
        let seen = Observation { runs: vec![run("a-1", 1, RunState::Paused)], ..Observation::default() };
        queue.handle_seen(Time::ZERO, &seen, &operations);
        let resume = |node: &str| Action::ResumeJob { job: "a-1".into(), nodes: on(node) };
        queue.learn_change(&resume("n1"), 9.0);
        assert_eq!(took(&queue, ChangeKind::Resume), None, "its memory was in place");
        queue.learn_change(&Action::SuspendJob { job: "a-1".into() }, 1.5);
        let seen = Observation { runs: vec![run("a-1", 1, RunState::Suspended)], ..Observation::default() };
        queue.handle_seen(Time::ZERO, &seen, &operations);
        queue.learn_change(&resume("n1"), 0.5);
        queue.learn_change(&Action::PauseJob { job: "a-1".into() }, 7.0);
        let kinds = [ChangeKind::Start, ChangeKind::Suspend, ChangeKind::Resume, ChangeKind::MoveAndResume];
        assert_eq!(kinds.map(|kind| took(&queue, kind)), [Some(0.2), Some(1.5), Some(0.5), None]);
    }

    #[test]
    fn a_job_that_goes_on_from_its_saved_state_elsewhere_moves() {
        let mut queue = queue(vec![record("a-1", 1, 0)]);
        let entry = queue.get_mut(&"a-1".into()).unwrap();
        (entry.record.saved, entry.record.saved_work, entry.record.saved_on) = (true, Work(5.0), Some("n1".into()));
        queue.handle_begun(&start("n1"));
        assert!(!queue.get(&"a-1".into()).unwrap().moving);
        queue.handle_begun(&start("n2"));
        assert!(queue.get(&"a-1".into()).unwrap().moving);
        queue.learn_change(&start("n2"), 2.5);
        assert_eq!((took(&queue, ChangeKind::MoveAndResume), took(&queue, ChangeKind::Start)), (Some(2.5), None));
    }
}
