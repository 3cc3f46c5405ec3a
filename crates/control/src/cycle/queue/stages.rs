//! Which phase of its job a run is in, and what that asks for (Carrera 5.4.2.1).
//!
//! Weal does not see a job go from one phase into the next. What it has used of CPU says where it is, and so plans and memory limits follow that.
//! Where memory says something else, memory is believed: a job keeps the memory of a former phase for as long as it uses it.

use weal_model::{Bytes, JobObservation, JobSpec, JobState, Work};

use crate::jobs::Job;

/// A job that is done to the last thousandth still runs, so something is left.
const MOST_PROGRESS: f64 = 0.999;
/// The memory of a phase is there so many seconds before the job can reach it: some looks at its run, each one or two seconds after the other.
/// Less, and it is ended for a memory that it was promised; more, and memory lies idle.
const AHEAD_S: f64 = 5.0;

/// A job that waits and has used so many CPU-seconds, as a plan sees it.
pub(in super::super) fn observation(spec: JobSpec, used: f64) -> JobObservation {
    JobObservation { spec, state: JobState::Pending, done: Work(used), nodes: Vec::new(), cpu: None }
}

/// Where a run is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Standing {
    /// The phase, from 0.
    pub index: usize,
    /// The memory that it may need until the next look.
    pub memory: Bytes,
}

impl Standing {
    /// Of a job that has used so many CPU-seconds.
    pub fn of(spec: &JobSpec, used: f64) -> Self {
        Self { index: index(spec, used), memory: memory(spec, used) }
    }
}

/// The job as its run shows it: its work from its progress, which tells that better than anybody, and the memory that it holds.
pub(super) fn corrected(spec: &JobSpec, used: f64, progress: Option<f64>, memory_used: Option<Bytes>) -> JobSpec {
    let mut spec = spec.clone();
    if let Some(progress) = progress {
        set_work(&mut spec, used / progress.min(MOST_PROGRESS));
    }
    if let Some(memory_used) = memory_used {
        hold(&mut spec, used, memory_used);
    }
    spec
}

/// All phases are as much longer or shorter than was said.
fn set_work(spec: &mut JobSpec, work: f64) {
    let stated: f64 = spec.stages.iter().map(|stage| stage.work.0).sum();
    if let [stage] = spec.stages.as_mut_slice() {
        stage.work = Work(work);
    } else if stated > 0.0 {
        spec.stages.iter_mut().for_each(|stage| stage.work.0 *= work / stated);
    }
}

/// The phase that it is in needs as much as the smallest one that what it uses fits into.
fn hold(spec: &mut JobSpec, used: f64, memory_used: Bytes) {
    let fitting = spec.stages.iter().map(|stage| stage.memory).filter(|memory| *memory >= memory_used).min();
    let largest = spec.stages.iter().map(|stage| stage.memory).max();
    let now = index(spec, used);
    if let (Some(stage), Some(memory)) = (spec.stages.get_mut(now), fitting.or(largest)) {
        stage.memory = stage.memory.max(memory);
    }
}

/// The phase of a job that has used so many CPU-seconds, from 0.
pub(in super::super) fn index(spec: &JobSpec, used: f64) -> usize {
    let ends = spec.stages.iter().scan(0.0, |end, stage| {
        *end += stage.work.0;
        Some(*end)
    });
    ends.take_while(|end| *end <= used).count().min(spec.stages.len().saturating_sub(1))
}

fn memory(spec: &JobSpec, used: f64) -> Bytes {
    let seen = JobObservation { spec: spec.clone(), state: JobState::Running, done: Work(used), nodes: Vec::new(), cpu: None };
    let needs = Job::observed(&seen, |_| None).needs(AHEAD_S);
    // A job that does not say its work, or has done more, is in its last phase.
    let last = spec.stages.last().map_or(Bytes(0), |stage| stage.memory);
    if needs.memory == 0 { last } else { Bytes(needs.memory) }
}

#[cfg(test)]
mod tests {
    use weal_model::{Cpu, Importance, Stage, Time};

    use super::*;

    fn staged(stages: &[(f64, f64, u64)]) -> JobSpec {
        let stage = |&(work, cpus, mib): &(f64, f64, u64)| Stage {
            work: Work(work),
            max_speed: Cpu(cpus),
            min_speed: Cpu(0.0),
            memory: Bytes::mib(mib),
        };
        JobSpec {
            name: "a-1".into(),
            submitted: Time::ZERO,
            desired_start: Time::ZERO,
            deadline: Time(1_000_000_000_000),
            importance: Importance::NORMAL,
            priority: 0,
            stages: stages.iter().map(stage).collect(),
            tasks: 1,
        }
    }

    #[test]
    fn the_memory_of_the_next_stage_is_there_before_the_job_can_reach_it() {
        let spec = staged(&[(20.0, 1.0, 100), (40.0, 2.0, 300), (10.0, 1.0, 50)]);
        let at = |used: f64| {
            let Standing { index, memory } = Standing::of(&spec, used);
            (index, memory.0 >> 20)
        };
        assert_eq!([0.0, 14.0, 16.0, 20.0].map(at), [(0, 100), (0, 100), (0, 300), (1, 300)]);
        // The second goes at two cores: five seconds before its end are ten of CPU.
        assert_eq!([55.0, 60.0, 70.0, 99.0].map(at), [(1, 300), (2, 50), (2, 50), (2, 50)]);
    }

    #[test]
    fn a_job_keeps_the_memory_that_it_uses_though_its_stage_says_less() {
        let spec = staged(&[(20.0, 1.0, 300), (40.0, 2.0, 100), (10.0, 1.0, 50)]);
        let held = |mib: u64| {
            let spec = corrected(&spec, 30.0, None, Some(Bytes::mib(mib)));
            (spec.stages[1].memory.0 >> 20, spec.stages[2].memory.0 >> 20)
        };
        assert_eq!([20, 100, 101, 300, 900].map(held), [(100, 50), (100, 50), (300, 50), (300, 50), (300, 50)]);
    }

    #[test]
    fn progress_stretches_all_stages_alike() {
        let spec = staged(&[(20.0, 1.0, 100), (40.0, 2.0, 300)]);
        let works = |progress| -> Vec<f64> {
            corrected(&spec, 12.0, Some(progress), None).stages.iter().map(|stage| stage.work.0).collect()
        };
        assert_eq!((works(0.2), works(0.1)), (vec![20.0, 40.0], vec![40.0, 80.0]));
        let one = corrected(&staged(&[(0.0, 1.0, 100)]), 12.0, Some(0.1), None);
        assert_eq!(one.stages[0].work, Work(120.0), "also where nothing was said");
    }

    #[test]
    fn a_job_of_unknown_work_has_the_memory_that_it_asked_for() {
        assert_eq!(Standing::of(&staged(&[(0.0, 1.0, 100)]), 7.0), Standing { index: 0, memory: Bytes::mib(100) });
    }
}
