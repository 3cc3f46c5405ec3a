//! What a placement of jobs leads to: asked by the search that changes what is beside them too (`placement::together`).

use super::{Layout, MARGIN, Scored, Search, assignment};
use crate::jobs::{Assignment, Situation};

/// A placement of jobs in a situation, with what it leads to.
#[derive(Clone)]
pub(crate) struct Outcome(Scored);

impl Outcome {
    /// `runs` has the nodes of each job's tasks; without any it does not run. The nodes have the memory for them, and CPU for their least speeds.
    pub fn of(situation: &Situation, runs: Layout) -> Self {
        Self(Search::new(situation).score(runs, None))
    }

    /// The utility that each job is headed for.
    pub fn jobs(&self) -> &[f64] {
        &self.0.forecast.utilities
    }

    /// The CPU of each application.
    pub fn apps(&self) -> &[f64] {
        &self.0.division.apps
    }

    /// It as a decision in the situation that it is for.
    pub fn assignment(self, situation: &Situation) -> Assignment {
        let look_again_s = Search::new(situation).look_again_s(&self.0.layout);
        Assignment { look_again_s, ..assignment(self.0.layout, self.0.division) }
    }
}

/// What a job counts as that can reach `best` in a group whose common level is `level`.
pub(crate) fn best_at(level: f64, best: f64) -> f64 {
    (level + MARGIN).min(best)
}

/// The runs of now, as far as they still fit; and the same with those jobs that begin in room that nobody has to give.
pub(crate) fn present(situation: &Situation) -> (Layout, Layout) {
    let search = Search::new(situation);
    let present = search.present();
    let (with_newcomers, ..) = search.place_freely(present.clone());
    (present, with_newcomers)
}

/// Whether `m`, which does not run in `runs`, would keep memory on `nodes` that a more urgent job would have sooner without it.
pub(crate) fn bars_the_way(situation: &Situation, runs: &mut Layout, m: usize, nodes: &[usize]) -> bool {
    Search::new(situation).bars_the_way(runs, m, nodes)
}

/// All utilities that a layout leads to, ascending.
#[cfg(test)]
pub(crate) fn predicted(situation: &Situation, layout: Layout) -> Vec<f64> {
    Search::new(situation).score(layout, None).sorted
}
