//! The inner interface of the job schedulers: what there is, and what is decided. Indices instead of names.

use serde::{Deserialize, Serialize};
use weal_model::{Bytes, JobState};

use super::Job;
use super::changes::ChangeKind;
use crate::utility::Curve;

/// What a node offers to jobs and applications together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Site {
    /// CPU that plans may fill.
    pub cpu: f64,
    /// Bytes for jobs.
    pub memory: u64,
}

/// An application that shares the nodes' CPU with the jobs. Its placement is given; only its CPU is decided here.
#[derive(Debug, Clone, PartialEq)]
pub struct AppCurve {
    /// Its utility as a function of its CPU, all nodes together.
    pub curve: Curve,
    /// The nodes that it has instances on.
    pub nodes: Vec<usize>,
}

/// The cost of a change that cannot be made: a job of 1 MiB would be held up for a month.
const NEVER_S_PER_MIB: f64 = 3e6;

/// What changes to a job's run cost: seconds, growing with its memory (Carrera Table 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Seconds that a start takes.
    pub start_s: f64,
    /// Seconds per MiB to suspend.
    pub suspend_s_per_mib: f64,
    /// Seconds per MiB to resume; also where it was not suspended, for which the thesis gives no number.
    pub resume_s_per_mib: f64,
    /// Seconds per MiB to move while it runs.
    pub migrate_s_per_mib: f64,
}

impl Costs {
    /// Carrera Table 5.1: measured on Xen.
    pub const THESIS: Self =
        Self { start_s: 3.6, suspend_s_per_mib: 0.0353, resume_s_per_mib: 0.0333, migrate_s_per_mib: 0.0132 };
    /// Changes for nothing, as in Experiment Four.
    pub const FREE: Self = Self { start_s: 0.0, suspend_s_per_mib: 0.0, resume_s_per_mib: 0.0, migrate_s_per_mib: 0.0 };

    /// The same where a job may not be able to leave memory, or to move: what cannot be done costs more than anything gains.
    #[must_use]
    pub fn where_possible(self, leaves_memory: bool, moves: bool) -> Self {
        let or_never = |can: bool, cost: f64| if can { cost } else { NEVER_S_PER_MIB };
        Self {
            suspend_s_per_mib: or_never(leaves_memory, self.suspend_s_per_mib),
            migrate_s_per_mib: or_never(moves, self.migrate_s_per_mib),
            ..self
        }
    }

    /// The same for a job that saves its state itself and is begun anew from that. Nobody has measured it before it has happened, so it is taken
    /// for what the thesis' images took; where it is, makes no difference.
    #[must_use]
    pub fn by_saving(self) -> Self {
        let Self { suspend_s_per_mib, resume_s_per_mib, .. } = Self::THESIS;
        Self { suspend_s_per_mib, resume_s_per_mib, ..self }
    }

    /// Whether a job's image can leave memory at all.
    pub fn leaves_memory(&self) -> bool {
        self.suspend_s_per_mib < NEVER_S_PER_MIB
    }

    /// Whether a job can move while it runs.
    pub fn moves(&self) -> bool {
        self.migrate_s_per_mib < NEVER_S_PER_MIB
    }

    /// Seconds that this change holds up `job` with `memory` bytes per task, which may save its state itself: what was measured in its family, else what
    /// this says.
    pub fn of_job(&self, job: &Job, kind: ChangeKind, memory: u64) -> f64 {
        if !job.saves {
            let is_measured = |kind| Some(kind).filter(|kind| self.can(*kind)).and_then(|kind| job.took.of(kind));
            return is_measured(kind).unwrap_or_else(|| self.of(kind, memory));
        }
        let own = self.by_saving();
        let restored = own.start_s + own.of(ChangeKind::Resume, memory);
        let goes_on = |kind, otherwise| job.took.of(kind).unwrap_or(otherwise);
        let saves = || job.took.of(ChangeKind::Suspend).unwrap_or_else(|| own.of(ChangeKind::Suspend, memory));
        match kind {
            ChangeKind::Start if job.done <= 0.0 => job.took.of(kind).unwrap_or(own.start_s),
            // It begins anew, and reads what it has saved.
            ChangeKind::Start => goes_on(ChangeKind::Resume, restored),
            // One that has done nothing has saved nothing.
            ChangeKind::MoveAndResume if job.done <= 0.0 => goes_on(kind, own.start_s),
            ChangeKind::Resume | ChangeKind::MoveAndResume => goes_on(kind, restored),
            ChangeKind::Suspend => saves(),
            // What cannot move as it runs is saved, and begins anew where it is to go.
            ChangeKind::Migrate => (saves() + goes_on(ChangeKind::MoveAndResume, restored)).min(self.of(kind, memory)),
        }
    }

    /// Whether a job that does not save its state can be changed so at all.
    fn can(&self, kind: ChangeKind) -> bool {
        match kind {
            ChangeKind::Suspend => self.leaves_memory(),
            ChangeKind::Migrate => self.moves(),
            ChangeKind::Start | ChangeKind::Resume | ChangeKind::MoveAndResume => true,
        }
    }

    /// Seconds that this change holds up a job with `memory` bytes per task.
    pub fn of(&self, kind: ChangeKind, memory: u64) -> f64 {
        let mib = memory as f64 / Bytes::MIB as f64;
        match kind {
            ChangeKind::Start => self.start_s,
            ChangeKind::Suspend => self.suspend_s_per_mib * mib,
            ChangeKind::Resume | ChangeKind::MoveAndResume => self.resume_s_per_mib * mib,
            ChangeKind::Migrate => self.migrate_s_per_mib * mib,
        }
    }
}

/// Everything that a scheduler knows.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// Now, on the clock of the jobs.
    pub now_s: f64,
    /// How far ahead the needs of a job's stages are looked at (Carrera 5.10-5.12): the control cycle.
    pub cycle_s: f64,
    /// The nodes.
    pub nodes: &'a [Site],
    /// The unfinished jobs that have been submitted.
    pub jobs: &'a [Job],
    /// Applications on the same nodes.
    pub apps: &'a [AppCurve],
    /// What changes cost.
    pub costs: Costs,
}

/// Where a job's tasks run and how fast.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// One node a task.
    pub nodes: Vec<usize>,
    /// CPU per task.
    pub speed: f64,
}

/// A decision: complete, nothing is left to choose.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assignment {
    /// One entry a job; `None` does not run.
    pub runs: Vec<Option<Run>>,
    /// CPU of each application.
    pub apps: Vec<f64>,
    /// Seconds until it should be asked again although nothing has happened: what waits loses by then what counts. `None`: on the
    /// next event.
    pub look_again_s: Option<f64>,
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobChange {
    /// Which job.
    pub job: usize,
    /// What happens.
    pub kind: ChangeKind,
}

/// Decides which jobs run where, and how fast. All kinds of scheduler are compared behind this.
pub trait Scheduler {
    /// Its name, for tables.
    fn name(&self) -> &'static str;

    /// Decides. Equal situations give equal decisions.
    fn schedule(&self, situation: &Situation) -> Assignment;
}

impl Assignment {
    /// What has to happen to get from the jobs' present runs to this one, in the order of the jobs.
    pub fn changes(&self, jobs: &[Job]) -> Vec<JobChange> {
        let kinds = jobs.iter().zip(&self.runs).enumerate();
        kinds
            .filter_map(|(m, (job, run))| {
                change_of(job, run.as_ref().map(|run| run.nodes.as_slice())).map(|kind| JobChange { job: m, kind })
            })
            .collect()
    }
}

/// What has to happen to `job` so that it runs on `nodes` (`None`: not at all).
pub(super) fn change_of(job: &Job, nodes: Option<&[usize]>) -> Option<ChangeKind> {
    match (job.state, nodes) {
        (JobState::Pending, Some(_)) => Some(ChangeKind::Start),
        (JobState::Running, None) => Some(ChangeKind::Suspend),
        (JobState::Running, Some(nodes)) if nodes != job.nodes => Some(ChangeKind::Migrate),
        (JobState::Suspended, Some(nodes)) if nodes == job.nodes => Some(ChangeKind::Resume),
        (JobState::Suspended, Some(_)) => Some(ChangeKind::MoveAndResume),
        _ => None,
    }
}

/// The most CPU and the most memory left on any node, of `free` by node.
pub(super) fn most_of(free: &[(f64, u64)]) -> (f64, u64) {
    free.iter().fold((0.0, 0), |most, free| (most.0.max(free.0), most.1.max(free.1)))
}

#[cfg(test)]
mod tests {
    use super::super::Changes;
    use super::super::job::tests::job;
    use super::*;

    const MIB: u64 = 100 << 20;

    /// A job of 100 MiB whose family took so many seconds.
    fn known(took: &[(ChangeKind, f64)]) -> Job {
        let mut changes = Changes::default();
        took.iter().for_each(|&(kind, took_s)| changes.learn(&"a-1".into(), kind, Bytes(MIB), took_s));
        Job { took: changes.took(&"a-2".into(), Bytes(MIB)), ..job(0.0, 100.0, 10.0, 1.0, 100) }
    }

    #[test]
    fn what_was_measured_counts_and_the_table_where_nothing_was() {
        let costs = |job: &Job| {
            [ChangeKind::Start, ChangeKind::Suspend, ChangeKind::Resume].map(|kind| Costs::THESIS.of_job(job, kind, MIB))
        };
        let near = |costs: [f64; 3], expected: [f64; 3]| costs.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near(costs(&known(&[])), [3.6, 3.53, 3.33]));
        let measured = known(&[(ChangeKind::Start, 0.2), (ChangeKind::Resume, 1.5)]);
        assert!(near(costs(&measured), [0.2, 3.53, 1.5]));
    }

    #[test]
    fn what_cannot_be_done_is_not_cheap_because_it_was_once_measured() {
        let job = known(&[(ChangeKind::Suspend, 0.1), (ChangeKind::Migrate, 0.1)]);
        let never = Costs::THESIS.where_possible(false, false);
        for kind in [ChangeKind::Suspend, ChangeKind::Migrate] {
            assert!(never.of_job(&job, kind, MIB) > 1e6, "{kind:?}");
        }
    }

    #[test]
    fn a_job_that_saves_its_state_moves_for_what_saving_and_beginning_took() {
        let took = [(ChangeKind::Suspend, 1.0), (ChangeKind::MoveAndResume, 2.0), (ChangeKind::Start, 0.5)];
        let saves = Job { saves: true, done: 5.0, ..known(&took) };
        let costs = Costs::THESIS.where_possible(false, false);
        assert_eq!(costs.of_job(&saves, ChangeKind::Migrate, MIB), 3.0);
        assert_eq!(costs.of_job(&saves, ChangeKind::MoveAndResume, MIB), 2.0);
        assert!((costs.of_job(&saves, ChangeKind::Resume, MIB) - 6.93).abs() < 1e-9, "by the table: 3.6 + 3.33");
        let fresh = Job { done: 0.0, ..saves };
        assert_eq!(costs.of_job(&fresh, ChangeKind::Start, MIB), 0.5);
    }
}
