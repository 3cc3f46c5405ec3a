//! Hypothetical utility, exactly: the level at which the group's needs meet its allocation (Carrera 5.4.2.4).
//!
//! Each member is brought to the common level `u`, or to its own maximum where that is lower; the needs grow with `u`, so
//! the level that uses up the allocation is found by bisection. The result is the lexicographic max-min optimum: whoever is
//! below the level is there because more CPU would not help it.

use super::job::{Job, WORST};

/// Each step at least halves the bracket: from any that occurs, this ends well below what is told apart (1e-9).
const STEPS: u32 = 60;
/// How exactly a level is found: a thousandth of what is told apart.
const PRECISION: f64 = 1e-10;
/// How far from a known level its neighbours are looked for: what one job more or less makes in a group of hundreds.
const NEARBY: f64 = 0.005;

/// What a group is headed for.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// The common level; each member has this, or its own maximum if that is lower.
    pub level: f64,
    /// Each member's utility.
    pub utilities: Vec<f64>,
    /// Each member's average speed, over all its tasks.
    pub speeds: Vec<f64>,
}

/// The level at which members with these demand curves use up `cpu`.
///
/// `demand(m, u)` is the CPU that brings member `m` to `u`, increasing in `u`; it is asked only up to `max_utility[m]`.
/// Without CPU, the level is the lowest that is told apart.
pub fn equalize(demand: impl Fn(usize, f64) -> f64, max_utility: &[f64], cpu: f64) -> Outlook {
    let at = |level: f64| -> f64 { max_utility.iter().enumerate().map(|(m, &max)| demand(m, level.min(max))).sum() };
    let level = level_of(at, max_utility, cpu, None);
    let utilities: Vec<f64> = max_utility.iter().map(|&max| level.min(max)).collect();
    let speeds = utilities.iter().enumerate().map(|(m, &utility)| demand(m, utility)).collect();
    Outlook { level, utilities, speeds }
}

/// The highest common level at which a group asks for no more than `cpu`, looked for around `near` first.
fn level_of(demand: impl Fn(f64) -> f64, max_utility: &[f64], cpu: f64, near: Option<f64>) -> f64 {
    let top = max_utility.iter().copied().fold(WORST, f64::max);
    // Each look at the group's demand is a pass over all members, so none is taken twice.
    let beyond = |level: f64| (level, demand(level) - cpu);
    let nearby = near.filter(|near| *near < top - NEARBY).map(|near| beyond(near + NEARBY)).filter(|high| high.1 > 0.0);
    let (mut high, mut width) = match nearby {
        Some(high) => (high, 2.0 * NEARBY),
        None => {
            let most = demand(top);
            if most <= cpu * (1.0 + 1e-12) {
                return top;
            }
            ((top, most - cpu), 1.0)
        }
    };
    let mut low = beyond(high.0 - width);
    while low.1 > 0.0 && low.0 > WORST {
        high = low;
        width *= 4.0;
        low = beyond((low.0 - width).max(WORST));
    }
    root(low, high, PRECISION, |level| beyond(level).1)
}

/// Where an increasing function crosses zero between `low` (not above zero) and `high` (above zero), each with its value there: false
/// position, with bisection as soon as that shrinks the bracket by less than half, until that is as narrow as `precision`, relative to its
/// upper end or 1. Never ends above the crossing.
pub(super) fn root(
    (mut low, mut at_low): (f64, f64),
    (mut high, mut at_high): (f64, f64),
    precision: f64,
    f: impl Fn(f64) -> f64,
) -> f64 {
    for _ in 0..STEPS {
        let width = high - low;
        if width < precision * high.abs().max(1.0) {
            break;
        }
        // The Illinois rule keeps both ends moving: an end that stays counts half next time.
        let guess = low + width * (-at_low / (at_high - at_low)).clamp(1e-3, 1.0 - 1e-3);
        for point in [guess, f64::NAN] {
            let point = if point.is_nan() { 0.5 * (low + high) } else { point };
            let value = f(point);
            if value > 0.0 {
                (high, at_high, at_low) = (point, value, 0.5 * at_low);
            } else {
                (low, at_low, at_high) = (point, value, 0.5 * at_high);
            }
            if high - low <= 0.5 * width {
                break;
            }
        }
    }
    low
}

/// The hypothetical utility of `jobs` (unfinished ones) at `now_s` if the group keeps `cpu`.
pub fn hypothetical(jobs: &[Job], now_s: f64, cpu: f64) -> Outlook {
    let members: Vec<Member> = jobs.iter().map(|job| Member::new(job, job.done, now_s)).collect();
    outlook_of(&members, cpu)
}

/// The level alone, looked for around `near` first, of jobs that wait for a place for `wait_s` seconds.
pub(super) fn level(jobs: &[Job], wait_s: &[f64], now_s: f64, cpu: f64, near: f64) -> f64 {
    let member = |(job, wait_s): (&Job, &f64)| Member::new(job, job.done, now_s).begins_at(job, job.done, now_s + wait_s);
    Group::of(jobs.iter().zip(wait_s).map(member)).level(cpu, Some(near))
}

/// What each job is headed for if it runs at `speeds[m]` (over all tasks) for a cycle, after being held up for `held_s[m]`
/// seconds, and the group keeps its total from then on (Carrera 5.4.2.4, "Evaluating placement decisions").
pub fn evaluate(jobs: &[Job], speeds: &[f64], held_s: &[f64], now_s: f64, cycle_s: f64) -> Vec<f64> {
    Ahead { now_s, cycle_s, margin: 0.0 }.forecast(jobs, speeds, held_s, &vec![0.0; jobs.len()], None).utilities
}

/// A look ahead: for a cycle everyone runs at the speed that it is given, and the group shares its CPU from then on. With a cycle of 0
/// it shares from now on, as whoever decides needs it ([`super::weal`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    pub now_s: f64,
    pub cycle_s: f64,
    /// How far above the group's level a job's own best is still told apart.
    pub margin: f64,
}

/// What a job brings along to the end of the cycle.
pub(super) enum Prospect {
    /// It is done by then, which is worth this.
    Done(f64),
    /// It shares the group's CPU from then on.
    Open(Member),
}

/// What all jobs are headed for.
#[derive(Debug, Clone)]
pub(super) struct Forecast {
    pub utilities: Vec<f64>,
    /// The common level of those that are not done within the cycle.
    pub level: f64,
    /// True when everyone is headed for its best, so that no CPU can lift the level.
    at_best: bool,
    /// What the group asks for at [`Forecast::above`], and what it has.
    demand_above: f64,
    cpu: f64,
}

impl Ahead {
    /// What `job` comes to at `speed` (over all tasks) after being held up for `held_s` seconds. One that does not run may have to wait
    /// for a place, at least `wait_s` seconds from now.
    pub fn prospect(&self, job: &Job, speed: f64, held_s: f64, wait_s: f64) -> Prospect {
        let speed = speed / f64::from(job.tasks);
        let finish_s = if speed > 0.0 { held_s + job.duration_at(speed) } else { f64::INFINITY };
        if finish_s <= self.cycle_s {
            return Prospect::Done(job.utility(self.now_s + finish_s));
        }
        // What a hold-up leaves for later cycles still delays it then, whether it runs now or not.
        let owed_s = if speed > 0.0 { (held_s - self.cycle_s).max(0.0) } else { held_s };
        let pace = if speed > 0.0 || owed_s <= 0.0 { speed } else { job.needs(self.cycle_s).max_speed };
        let done = job.done + job.progress(speed, self.cycle_s - held_s) - pace * owed_s;
        Prospect::Open(Member::new(job, done, self.now_s + self.cycle_s).begins_at(job, done, self.now_s + wait_s))
    }

    /// What all `jobs` come to, and the level of those that go on, which is found sooner when one nearby is known.
    pub fn forecast(&self, jobs: &[Job], speeds: &[f64], held_s: &[f64], wait_s: &[f64], near: Option<f64>) -> Forecast {
        let mut utilities = vec![0.0; jobs.len()];
        let (mut group, mut open) = (Group::default(), Vec::with_capacity(jobs.len()));
        for (m, job) in jobs.iter().enumerate() {
            match self.prospect(job, speeds[m], held_s[m], wait_s[m]) {
                Prospect::Done(utility) => utilities[m] = utility,
                Prospect::Open(member) => {
                    group.push(&member);
                    open.push(m);
                }
            }
        }
        let cpu = speeds.iter().sum();
        let level = group.level(cpu, near);
        for (&m, &max) in open.iter().zip(&group.max_utility) {
            utilities[m] = (level + self.margin).min(max);
        }
        let at_best = group.max_utility.iter().all(|max| *max <= level);
        Forecast { utilities, level, at_best, demand_above: group.demand(level + NEARBY), cpu }
    }
}

impl Forecast {
    /// A little more than the level.
    fn above(&self) -> f64 {
        self.level + NEARBY
    }

    /// What the group's level does not exceed when some of its jobs change from `before` to `after` and it gets `more` CPU, all else being
    /// the same, and how much the others may gain at most. Asks nobody but those. `None` when that does not tell.
    pub fn ceiling(&self, before: &[Prospect], after: &[Prospect], more: f64) -> Option<(f64, f64)> {
        if self.at_best {
            return Some((f64::INFINITY, 0.0));
        }
        let level = self.above();
        let asked = |prospects: &[Prospect]| prospects.iter().map(|prospect| prospect.demand(level)).sum::<f64>();
        let demand = self.demand_above - asked(before) + asked(after);
        let rounding = 1e-9 * self.demand_above.max(self.cpu);
        (demand > self.cpu + more + rounding).then_some((level, NEARBY))
    }
}

impl Prospect {
    /// What it is worth when the group reaches `level`.
    pub fn utility(&self, level: f64) -> f64 {
        match self {
            Self::Done(utility) => *utility,
            Self::Open(member) => level.min(member.max_utility),
        }
    }

    fn demand(&self, level: f64) -> f64 {
        match self {
            Self::Done(_) => 0.0,
            Self::Open(member) => member.demand(level),
        }
    }
}

fn outlook_of(members: &[Member], cpu: f64) -> Outlook {
    let level = Group::of(members.iter().copied()).level(cpu, None);
    let utilities = members.iter().map(|member| level.min(member.max_utility)).collect();
    let speeds = members.iter().map(|member| member.demand(level)).collect();
    Outlook { level, utilities, speeds }
}

/// The members' demand curves side by side: summing them is where a scheduler's time goes, and it is one pass over arrays.
#[derive(Default)]
struct Group {
    remaining: Vec<f64>,
    left_s: Vec<f64>,
    above_s: Vec<f64>,
    below_s: Vec<f64>,
    max_utility: Vec<f64>,
    most: Vec<f64>,
}

impl Group {
    fn of(members: impl Iterator<Item = Member>) -> Self {
        let mut group = Self::default();
        members.for_each(|member| group.push(&member));
        group
    }

    fn push(&mut self, member: &Member) {
        self.remaining.push(member.remaining);
        self.left_s.push(member.left_s);
        self.above_s.push(member.above_s);
        self.below_s.push(member.below_s);
        self.max_utility.push(member.max_utility);
        self.most.push(member.most);
    }

    /// The level at which `cpu` is used up, looked for around `near` first.
    fn level(&self, cpu: f64, near: Option<f64>) -> f64 {
        level_of(|level| self.demand(level), &self.max_utility, cpu, near)
    }

    /// The CPU that brings everyone to `level`, or to its own maximum where that is lower. Summed in lanes, without branches: a
    /// scheduler spends a third of its time here, and one sum would wait for each of its additions.
    fn demand(&self, level: f64) -> f64 {
        const LANES: usize = 4;
        let unit_s = if level >= 0.0 { &self.above_s } else { &self.below_s };
        let asked = |remaining: f64, left_s: f64, unit_s: f64, max_utility: f64, most: f64| {
            let average = remaining / (left_s - level * unit_s).max(1e-9);
            if level < max_utility { average } else { most }
        };
        let (remaining, remaining_tail) = self.remaining.as_chunks::<LANES>();
        let (left_s, left_tail) = self.left_s.as_chunks::<LANES>();
        let (unit_s, unit_tail) = unit_s.as_chunks::<LANES>();
        let (max_utility, max_tail) = self.max_utility.as_chunks::<LANES>();
        let (most, most_tail) = self.most.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for ((((remaining, left_s), unit_s), max_utility), most) in
            remaining.iter().zip(left_s).zip(unit_s).zip(max_utility).zip(most)
        {
            for lane in 0..LANES {
                sums[lane] += asked(remaining[lane], left_s[lane], unit_s[lane], max_utility[lane], most[lane]);
            }
        }
        let tail =
            (0..remaining_tail.len()).map(|m| asked(remaining_tail[m], left_tail[m], unit_tail[m], max_tail[m], most_tail[m]));
        sums.iter().sum::<f64>() + tail.sum::<f64>()
    }
}

/// A job as the group sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    /// Work left over all tasks.
    remaining: f64,
    /// Seconds to the goal.
    left_s: f64,
    /// The goal's length: seconds that a unit of utility is worth above the goal, and below it.
    above_s: f64,
    below_s: f64,
    /// The best that it can still reach, and the average speed for that.
    pub max_utility: f64,
    most: f64,
}

impl Member {
    /// `job` at `now_s`, had it done `done` per task.
    pub fn new(job: &Job, done: f64, now_s: f64) -> Self {
        let (remaining, best_s) = job.left_at(done);
        let (start_s, goal_s) = (now_s.max(job.start_s), job.goal_s);
        let mut member = Self {
            remaining: remaining.max(0.0),
            left_s: job.deadline_s - start_s,
            above_s: goal_s,
            below_s: goal_s / job.weight,
            max_utility: job.utility(start_s + best_s),
            most: 0.0,
        };
        member.most = member.average_speed(member.max_utility);
        member
    }

    /// The same for a job that cannot begin before `start_s`: its best is what it reaches from there.
    fn begins_at(mut self, job: &Job, done: f64, start_s: f64) -> Self {
        if start_s > job.start_s.max(job.deadline_s - self.left_s) {
            self.max_utility = job.utility(start_s + job.left_at(done).1).min(self.max_utility);
            self.most = self.average_speed(self.max_utility);
        }
        self
    }

    /// The speed over the rest of its life, all tasks together, that leads to `utility` (5.13).
    fn average_speed(&self, utility: f64) -> f64 {
        let unit_s = if utility >= 0.0 { self.above_s } else { self.below_s };
        self.remaining / (self.left_s - utility * unit_s).max(1e-9)
    }

    /// The same up to the best that it can still reach.
    pub fn demand(&self, level: f64) -> f64 {
        if level < self.max_utility { self.average_speed(level) } else { self.most }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::job::tests::job;
    use super::*;

    #[test]
    fn experiment_one_prefers_no_change_in_scenario_1_and_sharing_in_scenario_2() {
        // Carrera 5.6.2.1 (Table 5.2), cycle 2 of Figure 5.14: J1 did 1000 Mcycles in cycle 1; T = 1 s.
        for (goal, sharing, waiting) in [(16.0, [0.6958, 0.6958], [0.7, 0.6875]), (12.0, [0.6581, 0.6581], [0.7, 0.5833])] {
            let mut j1 = job(0.0, 20.0, 4000.0, 1000.0, 750);
            j1.done = 1000.0;
            let jobs = [j1, job(1.0, goal, 2000.0, 500.0, 750)];
            for (speeds, expected) in [([500.0, 500.0], sharing), ([1000.0, 0.0], waiting)] {
                let got = evaluate(&jobs, &speeds, &[0.0; 2], 1.0, 1.0);
                assert!((got[0] - expected[0]).abs() < 1e-3 && (got[1] - expected[1]).abs() < 1e-3, "{goal} {speeds:?}: {got:?}");
            }
        }
    }

    #[test]
    fn exact_solutions_of_the_two_interpolation_examples() {
        // Carrera 5.4.2.4: x^3 and x^2 sharing 150; min(1000, x^3) and x^2 sharing 1180.
        let demand = |m: usize, u: f64| if m == 0 { u.max(0.0).powi(3) } else { u.max(0.0).powi(2) };
        let first = equalize(demand, &[100.0, 100.0], 150.0);
        assert!((first.speeds[0] - 125.0).abs() < 1e-6 && (first.speeds[1] - 25.0).abs() < 1e-6);
        let second = equalize(demand, &[10.0, 100.0], 1180.0);
        assert!((second.speeds[0] - 1000.0).abs() < 1e-6 && (second.speeds[1] - 180.0).abs() < 1e-6);
    }

    #[test]
    fn a_job_held_up_longer_than_a_cycle_loses_that_too() {
        let jobs = [job(0.0, 100.0, 50.0, 1.0, 1)];
        let free = evaluate(&jobs, &[1.0], &[0.0], 0.0, 10.0)[0];
        let held = evaluate(&jobs, &[1.0], &[30.0], 0.0, 10.0)[0];
        assert!((free - 0.5).abs() < 1e-9 && (held - 0.2).abs() < 1e-9, "{free} {held}");
    }

    fn jobs() -> impl Strategy<Value = Vec<Job>> {
        let one = (0.0..100.0f64, 10.0..1000.0f64, 1.0..500.0f64, 0.1..8.0f64, prop::sample::select(vec![0.25, 1.0, 4.0]));
        prop::collection::vec(one, 1..12).prop_map(|jobs| {
            jobs.into_iter()
                .map(|(start, goal, work, speed, weight)| Job { weight, ..job(start, goal, work, speed, 1) })
                .collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_outlook_is_the_max_min_optimum(jobs in jobs(), now in 0.0..200.0f64, cpu in 0.01..50.0f64) {
            let outlook = hypothetical(&jobs, now, cpu);
            let used: f64 = outlook.speeds.iter().sum();
            prop_assert!(used <= cpu * (1.0 + 1e-6), "{used} of {cpu}");
            let capped = outlook.utilities.iter().zip(&jobs).filter(|(u, job)| (**u - job.max_utility(now)).abs() < 1e-9);
            // Who is not at its own maximum is at the level, and then the allocation is used up.
            if capped.count() < jobs.len() {
                prop_assert!(used > cpu * (1.0 - 1e-3), "{used} of {cpu}");
            }
            for (utility, job) in outlook.utilities.iter().zip(&jobs) {
                prop_assert!((utility - outlook.level.min(job.max_utility(now))).abs() < 1e-9);
            }
            // More never hurts anyone.
            let more = hypothetical(&jobs, now, cpu * 1.1);
            prop_assert!(more.level >= outlook.level - 1e-9);
        }
    }
}
