//! What is due when.

use std::time::Duration;

use weal_model::{PoolSpec, Time};

/// Between two looks at what is draining: short against a stop, long against a call of 1 ms.
const DRAIN_POLL: Duration = Duration::from_millis(100);
/// Events that come together make one plan.
const PLAN_DELAY: Duration = Duration::from_millis(50);
/// Between two placement plans, however many events there are: a crash loop must not keep the planner busy.
const PLAN_PAUSE: Duration = Duration::from_millis(500);
/// From a plan to the next look at jobs that wait, at most.
const LONGEST_LOOK: Duration = Duration::from_secs(3600);
/// How often what was learnt is kept: a crash loses at most this much of it.
const KEEP_PERIOD: Duration = Duration::from_secs(30);
/// How long a flow cycle waits for both peers' answers. Both answer within milliseconds; one that does not is stuck or away, and seats
/// go on by what the other says.
const PATIENCE: Duration = Duration::from_secs(1);
/// Before the first config.
const DEFAULT_CYCLES: (f64, f64) = (2.0, 15.0);

/// When the next of each is due.
#[derive(Debug, Default)]
pub(super) struct Timers {
    flow_cycle: Duration,
    placement_cycle: Duration,
    next_flow_cycle: Time,
    next_placement_cycle: Time,
    /// When the flow cycle under way ends, whoever has answered.
    patience_ends: Time,
    next_drain_poll: Time,
    plan: Option<Time>,
    /// By when there is a plan, whatever happens, for the sake of jobs that wait.
    look_again: Option<Time>,
    last_plan: Option<Time>,
    kept: Time,
}

/// What is due.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub flow_cycle: bool,
    pub patience_is_over: bool,
    pub placement_cycle: bool,
    pub plan: bool,
    pub drains: bool,
}

impl Timers {
    /// Both cycles begin now, as `pool` says how long they are.
    pub fn restart(&mut self, now: Time, pool: Option<&PoolSpec>) {
        let (flow_cycle_s, placement_cycle_s) =
            pool.map_or(DEFAULT_CYCLES, |pool| (pool.timing.flow_cycle_s, pool.timing.placement_cycle_s));
        let length = |seconds: f64| Duration::from_secs_f64(seconds.clamp(0.1, 3600.0));
        (self.flow_cycle, self.placement_cycle) = (length(flow_cycle_s), length(placement_cycle_s));
        (self.next_flow_cycle, self.next_placement_cycle) = (now + self.flow_cycle, now + self.placement_cycle);
        if self.kept == Time::ZERO {
            self.kept = now;
        }
    }

    /// The length of a flow cycle.
    pub fn flow_cycle(&self) -> Duration {
        self.flow_cycle
    }

    /// A flow cycle has begun.
    pub fn handle_flow_cycle_begun(&mut self, now: Time) {
        self.patience_ends = now + PATIENCE;
    }

    /// A plan, soon, and not too often.
    pub fn schedule_plan(&mut self, now: Time) {
        let earliest = self.last_plan.map_or(now, |last| last + PLAN_PAUSE);
        let due = earliest.max(now + PLAN_DELAY);
        self.plan = Some(self.plan.map_or(due, |already| already.min(due)));
    }

    /// A plan in so many seconds, whatever is planned before: what jobs lose by waiting counts by then. Returns when.
    pub fn schedule_look_again(&mut self, now: Time, seconds: Option<f64>) -> Option<Time> {
        let bounded = |seconds: f64| seconds.clamp(PLAN_PAUSE.as_secs_f64(), LONGEST_LOOK.as_secs_f64());
        self.look_again = seconds.map(|seconds| now + Duration::from_secs_f64(bounded(seconds)));
        self.look_again
    }

    /// A plan, now: somebody waits for it.
    pub fn schedule_plan_at_once(&mut self, now: Time) {
        self.plan = Some(now);
    }

    /// A plan is being made.
    pub fn handle_plan_begun(&mut self, now: Time) {
        (self.plan, self.last_plan) = (None, Some(now));
        self.look_again.take_if(|due| now >= *due);
    }

    /// When the next of them is due.
    pub fn next(&self, drains: bool, in_flow_cycle: bool) -> Time {
        let drain = drains.then_some(self.next_drain_poll);
        let patience = in_flow_cycle.then_some(self.patience_ends);
        let cycles = self.next_flow_cycle.min(self.next_placement_cycle);
        [drain, patience, self.plan, self.look_again].into_iter().flatten().fold(cycles, Time::min)
    }

    /// What is due now; each is due once.
    pub fn poll_due(&mut self, now: Time, drains: bool) -> Due {
        let passed = |next: &mut Time, period: Duration| {
            let is_due = now >= *next;
            if is_due {
                *next = *next + period;
                // One that was missed is not made up for.
                if *next <= now {
                    *next = now + period;
                }
            }
            is_due
        };
        let drains = drains && now >= self.next_drain_poll;
        if drains {
            self.next_drain_poll = now + DRAIN_POLL;
        }
        Due {
            flow_cycle: passed(&mut self.next_flow_cycle, self.flow_cycle),
            placement_cycle: passed(&mut self.next_placement_cycle, self.placement_cycle),
            patience_is_over: now >= self.patience_ends,
            plan: [self.plan, self.look_again].into_iter().flatten().any(|due| now >= due),
            drains,
        }
    }

    /// Whether what was learnt is to be kept now.
    pub fn poll_keep(&mut self, now: Time) -> bool {
        let is_due = now.since(self.kept) >= KEEP_PERIOD;
        if is_due {
            self.kept = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn events_that_come_together_make_one_plan_and_the_next_one_waits() {
        let mut timers = Timers::default();
        timers.restart(at(0.0), None);
        timers.schedule_plan(at(1.0));
        timers.schedule_plan(at(1.02));
        assert_eq!(timers.next(false, false), at(1.05));
        assert!(!timers.poll_due(at(1.04), false).plan && timers.poll_due(at(1.05), false).plan);
        timers.handle_plan_begun(at(1.05));
        timers.schedule_plan(at(1.1));
        assert_eq!(timers.next(false, false), at(1.55));
    }

    #[test]
    fn a_plan_that_comes_before_leaves_the_next_look_at_jobs_where_it_was() {
        let mut timers = Timers::default();
        timers.restart(at(0.0), None);
        assert_eq!(timers.schedule_look_again(at(0.05), Some(40.0)), Some(at(40.05)));
        timers.schedule_plan(at(15.0));
        timers.handle_plan_begun(at(15.05));
        assert!(!timers.poll_due(at(40.0), false).plan && timers.poll_due(at(40.05), false).plan);
        timers.handle_plan_begun(at(40.05));
        assert!(!timers.poll_due(at(41.0), false).plan, "once");
    }

    #[test]
    fn a_cycle_that_was_missed_is_not_made_up_for() {
        let mut timers = Timers::default();
        timers.restart(at(0.0), None);
        assert!(timers.poll_due(at(2.0), false).flow_cycle);
        assert!(timers.poll_due(at(9.0), false).flow_cycle, "a clock or a machine stood still");
        assert_eq!(timers.next(false, false), at(11.0));
    }
}
