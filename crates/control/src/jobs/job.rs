//! One job: stages, progress, what a cycle asks for, and the best that it can still reach (Carrera 5.4.2.1-5.4.2.3).

use weal_model::{Cpu, JobObservation, JobState, NodeName, Stage, Utility};

use super::Took;
use crate::utility::Curve;

/// The lowest utility that is told apart; a job without any CPU has this instead of minus infinity.
pub(super) const WORST: f64 = -1e6;

/// A job in one cycle, in seconds on the caller's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// When it may start: `tau_start`.
    pub start_s: f64,
    /// When it must be done: `tau`.
    pub deadline_s: f64,
    /// The goal's length: `tau - tau_start`. Invariant: more than nothing.
    pub goal_s: f64,
    /// How fast its utility falls once the goal is missed (`Importance::weight`).
    pub weight: f64,
    /// Its place among those of its weight that wait: a higher one goes first.
    pub priority: i32,
    /// Processes that run at once, all or none.
    pub tasks: u32,
    /// Its phases; amounts are per task.
    pub stages: Vec<Stage>,
    /// Work done per task: `alpha*`.
    pub done: f64,
    /// What it does now.
    pub state: JobState,
    /// The nodes of its tasks, by index; empty when pending, or when a node of it is gone.
    pub nodes: Vec<usize>,
    /// It saves its state itself, so that it can leave memory and go on anywhere.
    pub saves: bool,
    /// What changes to it are known to take, for what it needs now.
    pub took: Took,
}

/// What a job needs in the coming cycle, per task (5.10-5.12).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Needs {
    /// Less than this does not let it run.
    pub min_speed: f64,
    /// More than this is not used.
    pub max_speed: f64,
    /// Bytes.
    pub memory: u64,
}

impl Job {
    /// From an observation. `index` finds a node's position; a job that runs on a node which is gone has to start over from
    /// what it has saved, so it comes out as pending.
    pub fn observed(observation: &JobObservation, index: impl Fn(&NodeName) -> Option<usize>) -> Self {
        let spec = &observation.spec;
        let nodes: Option<Vec<usize>> = observation.nodes.iter().map(index).collect();
        let state = if nodes.is_some() { observation.state } else { JobState::Pending };
        let (start_s, deadline_s) = (spec.desired_start.as_secs_f64(), spec.deadline.as_secs_f64());
        let deadline_s = deadline_s.max(start_s + 1e-3);
        Self {
            start_s,
            deadline_s,
            goal_s: deadline_s - start_s,
            weight: spec.importance.weight(),
            priority: spec.priority,
            tasks: spec.tasks.max(1),
            stages: spec.stages.iter().copied().map(sound).collect(),
            done: if observation.done.0.is_finite() { observation.done.0.max(0.0) } else { 0.0 },
            state,
            nodes: nodes.unwrap_or_default(),
            saves: false,
            took: Took::default(),
        }
    }

    /// It where no node gives a task more than `cpu`: what it could use beyond that, it never gets.
    #[must_use]
    pub fn within(mut self, cpu: f64) -> Self {
        if cpu > 0.0 {
            // One that needs more to run at all fits nowhere, and must not seem to.
            self.stages.iter_mut().for_each(|stage| stage.max_speed.0 = stage.max_speed.0.min(cpu.max(stage.min_speed.0)));
        }
        self
    }

    /// It as decisions beside applications see it at `now_s`. The thesis' utility has no lower bound (2.3.1, 5.8; "many utility function forms
    /// may be used"), so with it a job that is hours late is worse off than any application can be, and gets all that it can use. Here
    /// lateness stops to grow once even full speed misses the goal by as much as the goal is long: as bad as an application all of whose
    /// requests are refused. From there each further unit of utility costs it no less than the time that it still takes at full speed. So at half
    /// its speed it loses one unit, however short its goal was.
    #[must_use]
    pub fn with_bounded_lateness(mut self, now_s: f64) -> Self {
        let (best_s, start_s) = (self.best_s(), now_s.max(self.start_s));
        if start_s + best_s > self.deadline_s + self.goal_s {
            self.goal_s = self.goal_s.max(best_s);
            self.deadline_s = start_s + best_s - self.goal_s;
        }
        self
    }

    /// What completion at `finish_s` is worth (5.8).
    pub fn utility(&self, finish_s: f64) -> f64 {
        let relative = (self.deadline_s - finish_s) / self.goal_s;
        let utility = if relative >= 0.0 { relative } else { relative * self.weight };
        utility.clamp(WORST, Utility::BEST.0)
    }

    /// When it must be done to reach `utility`: the inverse of [`Job::utility`].
    pub fn finish_for(&self, utility: f64) -> f64 {
        let relative = if utility >= 0.0 { utility } else { utility / self.weight };
        self.deadline_s - relative * self.goal_s
    }

    /// Work left of every stage, per task (5.9).
    pub fn stages_left(&self) -> impl Iterator<Item = (Stage, f64)> + '_ {
        self.stages_left_at(self.done)
    }

    /// The same for a job that had done `done`; less than nothing means that it owes work, as after a costly change.
    fn stages_left_at(&self, done: f64) -> impl Iterator<Item = (Stage, f64)> + '_ {
        let (mut begin, mut end) = (f64::NEG_INFINITY, 0.0);
        self.stages.iter().filter_map(move |stage| {
            end += stage.work.0;
            let left = (end - done.max(begin)).max(0.0);
            begin = end;
            (left > 0.0).then_some((*stage, left))
        })
    }

    /// (work left over all tasks, seconds at full speed) of a job that had done `done` per task.
    pub(super) fn left_at(&self, done: f64) -> (f64, f64) {
        let add = |(work, seconds): (f64, f64), (stage, left): (Stage, f64)| (work + left, seconds + left / stage.max_speed.0);
        let (work, seconds) = self.stages_left_at(done).fold((0.0, 0.0), add);
        (work * f64::from(self.tasks), seconds)
    }

    /// Work left over all stages and tasks.
    pub fn remaining(&self) -> f64 {
        self.stages_left().map(|(_, left)| left).sum::<f64>() * f64::from(self.tasks)
    }

    /// True when nothing is left to do. What is left of a nanosecond at full speed is rounding.
    pub fn is_done(&self) -> bool {
        self.state == JobState::Completed || self.best_s() < 1e-9
    }

    /// Seconds that it still takes at full speed: `t_best`, over the stages from the current one on.
    pub fn best_s(&self) -> f64 {
        self.stages_left().map(|(stage, left)| left / stage.max_speed.0).sum()
    }

    /// The best that it can still reach (5.4.2.3); it does not start before its desired start.
    pub fn max_utility(&self, now_s: f64) -> f64 {
        self.utility(now_s.max(self.start_s) + self.best_s())
    }

    /// What it needs in a cycle (5.10-5.12). The range of stages includes the one in which the cycle ends, or it would be
    /// empty for a stage that outlasts the cycle.
    pub fn needs(&self, cycle_s: f64) -> Needs {
        let mut needs = Needs { min_speed: 0.0, max_speed: 0.0, memory: 0 };
        let mut used_s = 0.0;
        for (stage, left) in self.stages_left() {
            needs.min_speed = needs.min_speed.max(stage.min_speed.0);
            needs.max_speed = needs.max_speed.max(stage.max_speed.0);
            needs.memory = needs.memory.max(stage.memory.0);
            used_s += left / stage.max_speed.0;
            if used_s > cycle_s {
                break;
            }
        }
        needs
    }

    /// Its utility as a function of the CPU of all its tasks, if it keeps that for the rest of its life (5.13).
    pub fn curve(&self, now_s: f64) -> Curve {
        let (remaining, best_s) = self.left_at(self.done);
        let start_s = now_s.max(self.start_s);
        let best = self.utility(start_s + best_s);
        if remaining <= 0.0 || best_s <= 0.0 {
            return Curve::constant(Utility(best));
        }
        // At a hundredth of full speed a goal is lost; below that, how far makes no difference.
        let worst = self.utility(start_s + 100.0 * best_s).min(best - 1e-3);
        let full = remaining / best_s;
        let cpu = |utility: Utility| Cpu((remaining / (self.finish_for(utility.0) - start_s).max(1e-9)).clamp(0.0, full));
        let sampled = Curve::from_inverse(Utility(worst), Utility(best), cpu);
        Curve::through(std::iter::once((Cpu(0.0), Utility(worst))).chain(sampled.points().skip(1)))
    }

    /// Work per task that `seconds` at `speed` (per task) get done; no stage goes faster than it can.
    pub fn progress(&self, speed: f64, seconds: f64) -> f64 {
        let (mut left_s, mut work) = (seconds.max(0.0), 0.0);
        for (stage, left) in self.stages_left() {
            let pace = speed.min(stage.max_speed.0);
            if pace <= 0.0 || left_s <= 0.0 {
                break;
            }
            let took_s = (left / pace).min(left_s);
            work += (took_s * pace).min(left);
            left_s -= took_s;
        }
        work
    }

    /// Seconds until it is done at `speed` (per task); infinite without any.
    pub fn duration_at(&self, speed: f64) -> f64 {
        self.stages_left().map(|(stage, left)| left / speed.min(stage.max_speed.0).max(0.0)).sum()
    }
}

/// A stage with which the formulas hold: numbers that are none, or not positive where they must be, are replaced.
fn sound(mut stage: Stage) -> Stage {
    let positive = |value: f64, otherwise: f64| if value.is_finite() && value > 0.0 { value } else { otherwise };
    stage.work.0 = positive(stage.work.0, 0.0);
    stage.max_speed.0 = positive(stage.max_speed.0, 1.0);
    stage.min_speed.0 = positive(stage.min_speed.0, 0.0).min(stage.max_speed.0);
    stage
}

#[cfg(test)]
pub(super) mod tests {
    use weal_model::{Bytes, Work};

    use super::*;

    /// A pending job of one stage.
    pub fn job(start_s: f64, relative_goal_s: f64, work: f64, max_speed: f64, memory_mib: u64) -> Job {
        Job {
            start_s,
            deadline_s: start_s + relative_goal_s,
            goal_s: relative_goal_s,
            weight: 1.0,
            priority: 0,
            tasks: 1,
            stages: vec![stage(work, max_speed, memory_mib)],
            done: 0.0,
            state: JobState::Pending,
            nodes: Vec::new(),
            saves: false,
            took: Took::default(),
        }
    }

    pub fn stage(work: f64, max_speed: f64, memory_mib: u64) -> Stage {
        Stage { work: Work(work), max_speed: Cpu(max_speed), min_speed: Cpu(0.0), memory: Bytes::mib(memory_mib) }
    }

    #[test]
    fn the_thesis_baseline_job_takes_17600_seconds_and_reaches_0_6296() {
        // Carrera 5.6.2.2, Table 5.3.
        let job = job(0.0, 2.7 * 17_600.0, 68_640_000.0, 3900.0, 4320);
        assert_eq!(job.best_s(), 17_600.0);
        assert!((job.max_utility(0.0) - (1.0 - 1.0 / 2.7)).abs() < 1e-12);
    }

    #[test]
    fn a_cycle_asks_for_the_largest_needs_of_its_stages() {
        // Carrera 5.4.2.2 with the range read as D_done+1 ..= D_last+1.
        let mut job = job(0.0, 100.0, 0.0, 1.0, 0);
        job.stages = vec![stage(10.0, 1.0, 100), stage(20.0, 4.0, 50), stage(30.0, 2.0, 900)];
        assert_eq!(job.needs(5.0), Needs { min_speed: 0.0, max_speed: 1.0, memory: Bytes::mib(100).0 });
        assert_eq!(job.needs(12.0), Needs { min_speed: 0.0, max_speed: 4.0, memory: Bytes::mib(100).0 });
        assert_eq!(job.needs(60.0), Needs { min_speed: 0.0, max_speed: 4.0, memory: Bytes::mib(900).0 });
        job.done = 12.0;
        assert_eq!(job.stages_left().map(|(_, left)| left).collect::<Vec<_>>(), [18.0, 30.0]);
        assert_eq!(job.best_s(), 18.0 / 4.0 + 15.0);
        assert_eq!(job.needs(1.0).max_speed, 4.0);
    }

    #[test]
    fn progress_and_duration_agree_over_stages() {
        let mut job = job(0.0, 100.0, 0.0, 1.0, 0);
        job.stages = vec![stage(10.0, 1.0, 1), stage(20.0, 4.0, 1)];
        let duration = job.duration_at(2.0);
        assert_eq!(duration, 20.0);
        assert_eq!(job.progress(2.0, duration), 30.0);
        assert_eq!(job.progress(2.0, 11.0), 12.0);
        assert_eq!(job.progress(0.0, 11.0), 0.0);
        assert_eq!(job.duration_at(0.0), f64::INFINITY);
        job.done = 30.0;
        assert!(job.is_done());
        assert_eq!(job.remaining(), 0.0);
    }

    #[test]
    fn utility_and_its_inverse_agree_for_any_importance() {
        let mut job = job(10.0, 50.0, 1.0, 1.0, 1);
        for weight in [0.25, 1.0, 4.0] {
            job.weight = weight;
            for finish in [10.0, 59.0, 60.0, 61.0, 500.0] {
                assert!((job.finish_for(job.utility(finish)) - finish).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn lateness_stops_to_grow_when_full_speed_misses_the_goal_by_its_length() {
        // Two seconds at full speed, and a goal of 20.
        let job = |weight: f64| Job { weight, ..job(0.0, 20.0, 8.0, 4.0, 1) };
        for now_s in [0.0, 10.0, 37.9] {
            assert_eq!(job(1.0).with_bounded_lateness(now_s), job(1.0), "at {now_s} it can still be less late");
        }
        for (weight, now_s) in [(1.0, 38.1), (1.0, 1e6), (4.0, 1e6)] {
            let late = job(weight).with_bounded_lateness(now_s);
            assert!((late.max_utility(now_s) + weight).abs() < 1e-6, "{late:?}");
        }
        // A goal that is much shorter than its work: at half its speed it loses one unit.
        let hopeless = Job { goal_s: 0.1, deadline_s: 0.1, ..job(1.0) }.with_bounded_lateness(500.0);
        assert!((hopeless.utility(502.0) + 1.0).abs() < 1e-6 && (hopeless.utility(504.0) + 2.0).abs() < 1e-6, "{hopeless:?}");
    }

    #[test]
    fn numbers_that_are_none_do_no_harm() {
        use weal_model::{Importance, JobName, JobSpec, Time};
        let spec = JobSpec {
            name: JobName::from("bad"),
            submitted: Time::ZERO,
            desired_start: Time(5_000_000_000),
            deadline: Time::ZERO,
            importance: Importance::NORMAL,
            priority: 0,
            stages: vec![Stage { work: Work(f64::NAN), max_speed: Cpu(f64::NAN), min_speed: Cpu(-1.0), memory: Bytes(1) }],
            tasks: 0,
        };
        let observation =
            JobObservation { spec, state: JobState::Running, done: Work(f64::NAN), nodes: vec!["gone".into()], cpu: None };
        let job = Job::observed(&observation, |_| None);
        assert_eq!(job.state, JobState::Pending);
        assert!(job.max_utility(0.0).is_finite() && job.best_s() == 0.0);
    }
}
