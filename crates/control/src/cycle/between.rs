//! What a job waits for between a decision and what comes of it: its plan, its order, its place, or a look at its run.

use weal_model::{Action, Bytes, JobName, NodeName, PoolSpec, Target};

use super::queue::Entry;
use super::state::State;

impl State {
    /// What a job waits for that nobody holds up and that the last plan wants to run, or does not know.
    pub(super) fn between(&self, entry: &Entry) -> String {
        let job = &entry.record.spec.name;
        if self.config.is_none() || self.engine.seen.is_none() {
            return format!("{} has not said yet what runs", self.engine.peer);
        }
        if let Some(action) = self.operations.action(&Target::Job { job: job.clone() }) {
            return format!("{} was told to {} it and has not answered yet", self.engine.peer, action.verb());
        }
        if entry.record.begun && entry.run.is_none() {
            return "it was started, and the next observation will show its run".to_owned();
        }
        match (self.places_of(job), self.pool()) {
            (Some(nodes), Some(pool)) => self.waits_for_room(&pool, entry, nodes),
            _ => "the next plan decides about it".to_owned(),
        }
    }

    /// The nodes on which the last plan wants it to run.
    fn places_of(&self, wanted: &JobName) -> Option<&[NodeName]> {
        self.placing.plan.actions.iter().find_map(|action| match action {
            Action::StartJob { job, nodes } | Action::ResumeJob { job, nodes } if job == wanted => Some(nodes.as_slice()),
            _ => None,
        })
    }

    fn waits_for_room(&self, pool: &PoolSpec, entry: &Entry, nodes: &[NodeName]) -> String {
        let needed = |node: &NodeName| {
            let tasks = nodes.iter().filter(|other| *other == node).count() as u64;
            Bytes(entry.memory().0.saturating_mul(tasks))
        };
        let place = nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ");
        let mut rooms = nodes.iter().map(|node| (node, self.room(pool, node), needed(node)));
        match rooms.find(|(_, has, needs)| has < needs) {
            Some((node, has, needs)) => {
                format!("the plan lets it run on {place} once {needs} of memory are free on {node}, which has {has}")
            }
            None => format!("the plan lets it run on {place}"),
        }
    }
}
