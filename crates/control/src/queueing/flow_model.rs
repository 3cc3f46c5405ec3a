//! What a flow gets from a rate of CPU.
//!
//! Symbols: `C` clients, `Z` think time, `t` mean response time, `S` the time in an idle instance, `c` the part of `S` that is CPU time,
//! `alpha` CPU-seconds a request. Clients that wait send nothing new, so the throughput that goes with a mean response time `t` is (Carrera 5.5)
//!
//! ```text
//! lambda(t) = C / (t + Z)
//! ```
//!
//! A flow of independent arrivals is the limit of many clients that think long: `Z -> inf` with `C / Z` held at the arrival
//! rate. Then queueing delay shows before the CPU is full, so that more must be reserved than is used. Under processor
//! sharing only the part of a request at the CPU takes longer: `t = S - c + c / (1 - alpha lambda / omega)`, hence a reserve of
//! `(t - S + c) / (t - S)`. Closed flows need none. In between, the exponent `q = Z / (t + Z)`, the share of its time that a client
//! thinks, blends the two:
//!
//! ```text
//! omega(t) = alpha * lambda(t) * ((t - S + c) / (t - S))^q
//! ```
//!
//! which falls as `t` grows, so it has an inverse. Goals on a percentile become goals on the mean through the measured ratio
//! of the two, `tail`. A goal on throughput asks for `lambda` itself.

use weal_model::{Cpu, Goal, Importance, Utility, Work};

use super::formulas::closed_throughput;
use crate::utility::Curve;

/// A flow's behaviour and its goal.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowModel {
    /// What is asked; `None` is best effort, whose utility is `1 + lambda / lambda_max`: it gains only where goals have all
    /// that helps them.
    pub goal: Option<Goal>,
    /// How much a miss matters.
    pub importance: Importance,
    /// `C`: sessions, or those outstanding when requests come without sessions. Invariant: finite, not negative.
    pub clients: f64,
    /// `Z`: mean time from an answer to the client's next request. Invariant: finite, not negative.
    pub think_s: f64,
    /// `S`: response time when nobody else is there. Invariant: finite, positive.
    pub floor_s: f64,
    /// `c`: the part of `S` that is CPU time; the rest is for a disk, or for others. Invariant: finite, positive, at most `S`.
    pub computing_s: f64,
    /// The goal's statistic over the mean: 1 for goals on the mean, about 3 for a p95 of an exponential. Invariant: positive.
    pub tail: f64,
}

/// Open flows never reach `S` exactly: with a quarter more CPU time than `c`, processor sharing reserves five times what is used, and more
/// helps nobody.
const OPEN_FLOOR: f64 = 0.25;

impl FlowModel {
    /// The rate of work to reserve, in requests per second, so that the utility is at least `utility`; for utilities above
    /// [`FlowModel::best`], that of the best. Never more than [`FlowModel::most`], never NaN.
    pub fn rate_for(&self, utility: Utility) -> f64 {
        if self.clients <= 0.0 {
            return 0.0;
        }
        match self.goal {
            None => self.most() * (utility.0 - 1.0).clamp(0.0, 1.0),
            Some(goal @ Goal::Throughput { .. }) => goal.achieved_at(utility, self.importance).min(self.most()),
            Some(goal) => self.rate_at(goal.achieved_at(utility, self.importance) / self.tail),
        }
    }

    /// The utility of a reserved rate of work in requests per second.
    pub fn utility_of(&self, rate: f64) -> Utility {
        let rate = if rate.is_nan() { 0.0 } else { rate.clamp(0.0, self.most()) };
        match self.goal {
            None => Utility(if self.most() > 0.0 { 1.0 + rate / self.most() } else { 2.0 }),
            Some(goal @ Goal::Throughput { .. }) if self.clients > 0.0 => goal.utility(rate, self.importance),
            Some(Goal::Throughput { .. }) => Utility::AT_GOAL,
            Some(goal) => goal.utility(self.response_at(rate) * self.tail, self.importance),
        }
    }

    /// The highest utility that CPU can buy.
    pub fn best(&self) -> Utility {
        self.utility_of(self.most())
    }

    /// The rate at the best utility.
    pub fn most(&self) -> f64 {
        if self.clients <= 0.0 { 0.0 } else { self.rate_at(self.shortest_s()) }
    }

    /// The curve utility(CPU) in a cluster where a request costs `work` (Carrera eq. 5.6).
    pub fn curve(&self, work: Work) -> Curve {
        let best = self.best();
        if self.clients <= 0.0 || work.0 <= 0.0 || !work.0.is_finite() {
            return Curve::constant(best);
        }
        let worst = Utility(if self.goal.is_none() { 1.0 } else { best.0.min(0.0) - 10.0 });
        Curve::from_inverse(worst, best, |utility| Cpu(self.rate_for(utility) * work.0))
    }

    /// The mean response time that `utility` asks for, in seconds; `None` without a goal on response time.
    pub fn mean_target_s(&self, utility: Utility) -> Option<f64> {
        let goal = self.goal.filter(|goal| goal.target_s().is_some())?;
        Some(goal.achieved_at(utility, self.importance) / self.tail)
    }

    /// The rate of requests that clients send when they are answered in `response_s`, without the reserve.
    pub fn throughput_at(&self, response_s: f64) -> f64 {
        closed_throughput(self.clients, response_s, self.think_s)
    }

    fn shortest_s(&self) -> f64 {
        let open = self.think_s / (self.floor_s + self.think_s);
        self.floor_s + OPEN_FLOOR * self.computing_s * open
    }

    /// Think times that are the rounding of an estimate are none: the reserve below would be infinite for `t = S`.
    fn thinks(&self) -> bool {
        self.think_s > 1e-6 * self.floor_s
    }

    fn rate_at(&self, response_s: f64) -> f64 {
        let t = response_s.max(self.shortest_s());
        let rate = closed_throughput(self.clients, t, self.think_s);
        if !self.thinks() {
            return rate;
        }
        let beyond = t - self.floor_s;
        rate * ((beyond + self.computing_s) / beyond).powf(self.think_s / (t + self.think_s))
    }

    /// Inverts [`FlowModel::rate_at`] by bisection in `ln t`; in closed form without think time.
    fn response_at(&self, rate: f64) -> f64 {
        if self.clients <= 0.0 {
            return self.shortest_s();
        }
        if rate <= 0.0 {
            return f64::INFINITY;
        }
        if !self.thinks() {
            return (self.clients / rate).max(self.floor_s);
        }
        let (mut low, mut high) = (self.shortest_s().ln(), (self.shortest_s() * 1e9).ln());
        for _ in 0..80 {
            let middle = 0.5 * (low + high);
            if self.rate_at(middle.exp()) > rate { low = middle } else { high = middle }
        }
        high.exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(goal: &str, clients: f64, think_s: f64) -> FlowModel {
        FlowModel {
            goal: Some(goal.parse().unwrap()),
            importance: Importance::NORMAL,
            clients,
            think_s,
            floor_s: 0.05,
            computing_s: 0.05,
            tail: 1.0,
        }
    }

    #[test]
    fn cpu_for_a_utility_follows_carrera_equation_5_6() {
        let alpha = Work(0.02);
        let flow = FlowModel { think_s: 0.0, ..flow("mean < 350ms", 40.0, 0.0) };
        for utility in [-3.0, -0.5, 0.0, 0.4] {
            let expected = 0.02 * 40.0 / (0.35 * (1.0 - utility));
            assert!((flow.rate_for(Utility(utility)) * alpha.0 - expected).abs() < 1e-12);
            assert!((flow.curve(alpha).utility_at(Cpu(expected)).0 - utility).abs() < 0.02);
        }
        assert!((flow.most() - 40.0 / 0.05).abs() < 1e-9);
    }

    #[test]
    fn rate_and_utility_are_inverse_for_every_kind_of_goal() {
        for goal in ["mean < 350ms", "p95 < 350ms", "throughput > 50/s"] {
            for think_s in [0.0, 1e-17, 0.2, 30.0] {
                for tail in [1.0, 2.5] {
                    let computing_s = if tail > 1.0 { 0.002 } else { 0.05 };
                    let flow = FlowModel { tail, computing_s, ..flow(goal, 20.0 + 60.0 * think_s, think_s) };
                    for utility in [-4.0, -0.9, -0.2, 0.0, 0.3, 0.7] {
                        if utility < flow.best().0 {
                            let back = flow.utility_of(flow.rate_for(Utility(utility)));
                            let expected = if goal.starts_with('t') { f64::max(utility, -1.0) } else { utility };
                            assert!((back.0 - expected).abs() < 1e-6, "{goal}, {think_s} s, {utility}: {back}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_open_flow_reserves_more_than_it_uses_and_a_closed_one_does_not() {
        let open = flow("mean < 100ms", 10.0 * 1000.0, 1000.0);
        assert!((open.rate_for(Utility::AT_GOAL) / 10.0 - 2.0).abs() < 0.01, "t / (t - S) = 2 at t = 2 S");
        let waits = FlowModel { computing_s: 0.01, ..open.clone() };
        assert!(
            (waits.rate_for(Utility::AT_GOAL) / 10.0 - 1.2).abs() < 0.01,
            "40 of 50 ms are no CPU time: (t - S + c) / (t - S) = 60 / 50"
        );
        let closed = flow("mean < 100ms", 10.0, 0.0);
        assert_eq!(closed.rate_for(Utility::AT_GOAL), 100.0);
    }

    #[test]
    fn nobody_asking_needs_nothing_and_is_not_unhappy() {
        let idle = flow("p95 < 350ms", 0.0, 0.0);
        assert_eq!(idle.most(), 0.0);
        assert!(idle.best().0 > 0.0);
        assert_eq!(idle.curve(Work(0.1)).demand(), Cpu(0.0));
    }
}
