//! How a flow's clients behave.
//!
//! Symbols: `lambda` throughput, `R` response time, `N` requests in the system (`N = lambda R`, Little), `C` clients, `Z` think
//! time, `S` time in a seat, `S_0` the same in an idle instance, `alpha` CPU-seconds a request.
//!
//! **Closed or open.** Clients that wait for their answers send `lambda = C / (R + Z)`, so throughput falls as response time
//! grows: the elasticity `e = d ln lambda / d ln R = -R / (R + Z)` is -1 without think time and 0 for independent arrivals.
//! Since `N = lambda R`, it is the slope of `ln N` over `ln R`, less 1, in the changes from cycle to cycle, whether these come
//! from noise or from seats; `N` is a time average and much less noisy than a count. `Z = R (1 / |e| - 1)` and
//! `C = N + lambda Z` follow. Without evidence `e = -1`, so that `C` is what is there, which is right for one cycle anyway.
//!
//! **Idle service time.** Under processor sharing with `k` requests a core at the CPU, `S = io + alpha k`; so `io = S - alpha k`,
//! and `S_0 = io + alpha`. `k` is at most what is outstanding, and at most `1 / (1 - rho)` at a utilisation `rho`.

use serde::{Deserialize, Serialize};
use weal_model::{FlowId, FlowObservation, Goal, LatencyHistogram, Work};

use super::place::Surroundings;
use super::smooth::Smooth;

/// One flow's profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowProfile {
    /// The flow.
    pub id: FlowId,
    /// Requests answered per second.
    pub throughput: Smooth,
    /// Requests that came in per second.
    pub arrival: Smooth,
    /// `N`: requests in the system.
    pub population: Smooth,
    /// `R`: mean response time in seconds.
    pub response: Smooth,
    /// `S`: mean time in a seat in seconds.
    pub service: Smooth,
    /// `S_0`: `S` in an idle instance, in seconds.
    pub idle_service: Smooth,
    /// The part of `S_0` that is CPU time, in seconds.
    #[serde(default)]
    computing: Smooth,
    /// The goal's statistic over the mean: 1 for a goal on the mean.
    pub tail: Smooth,
    /// Requests refused per second.
    #[serde(default)]
    refused: Smooth,
    queue: Smooth,
    in_service: Smooth,
    elasticity: Elasticity,
    /// Response times of the block of cycles before this one, and of this one: the tail is read from both together.
    former: LatencyHistogram,
    latest: LatencyHistogram,
    /// The shortest mean time in a seat, slowly forgotten, in seconds.
    #[serde(default)]
    shortest: Option<f64>,
    /// Cycles in `latest`.
    cycles: u32,
    /// The goal that `tail` is about.
    goal: Option<Goal>,
}

/// A percentile is read from so many requests or more: of fewer, the 95th is little more than the longest.
const ENOUGH: u64 = 40;
/// A block ends after so many requests, or cycles: more follow a change too slowly, fewer are biased.
const BLOCK: (u64, u32) = (400, 15);

impl FlowProfile {
    pub(super) fn new(id: FlowId) -> Self {
        Self {
            id,
            throughput: Smooth::default(),
            arrival: Smooth::default(),
            population: Smooth::default(),
            response: Smooth::default(),
            service: Smooth::default(),
            idle_service: Smooth::default(),
            computing: Smooth::default(),
            tail: Smooth::default(),
            refused: Smooth::default(),
            queue: Smooth::default(),
            in_service: Smooth::default(),
            elasticity: Elasticity::default(),
            shortest: None,
            former: LatencyHistogram::default(),
            latest: LatencyHistogram::default(),
            cycles: 0,
            goal: None,
        }
    }

    pub(super) fn update(
        &mut self,
        seen: &FlowObservation,
        goal: Option<Goal>,
        work: Option<Work>,
        place: &Surroundings,
        window_s: f64,
    ) {
        let throughput = seen.completions as f64 / window_s;
        let population = seen.population_mean();
        self.throughput.observe(throughput);
        self.arrival.observe(seen.arrivals as f64 / window_s);
        if seen.rejections > 0 || self.refused.or_zero() > 0.0 {
            self.refused.observe(seen.rejections as f64 / window_s);
        }
        if population.is_finite() && population >= 0.0 {
            self.population.observe(population);
            self.queue.observe(seen.queue_mean);
            self.in_service.observe(seen.in_service_mean);
        }
        if let Some(service) = seen.service_time.mean_s() {
            self.service.observe(service);
            if seen.completions >= 5 {
                self.shortest = Some(self.shortest.map_or(service, |shortest| (shortest * 1.001).min(service)));
            }
            let before = self.idle_service.get();
            self.idle_service.observe(idle_service_s(service, before, work.unwrap_or_default(), place));
            if let Some(work) = work {
                self.computing.observe(work.0 / place.speed);
            }
        }
        let response = seen.response_time.mean_s();
        if let Some(response) = response {
            self.response.observe(response);
        }
        match response {
            Some(response) if seen.completions >= 5 => self.elasticity.observe(false, response, population),
            // A full queue grows no more, whoever sends.
            _ if seen.rejections > 0 => {}
            _ => self.elasticity.observe_wait(seen.oldest_wait_s, population),
        }
        self.learn_tail(seen, goal);
    }

    fn learn_tail(&mut self, seen: &FlowObservation, goal: Option<Goal>) {
        if self.goal != goal {
            (self.goal, self.tail) = (goal, Smooth::default());
        }
        let Some(Goal::Percentile { percentile, .. }) = goal else { return };
        self.latest.add(&seen.response_time);
        self.cycles += 1;
        let mut both = self.latest.clone();
        both.add(&self.former);
        if let (true, Some(mean), Some(value)) = (both.count() >= ENOUGH, both.mean_s(), both.quantile_s(percentile)) {
            self.tail.observe((value / mean).clamp(0.5, 50.0));
        }
        if self.latest.count() >= BLOCK.0 || self.cycles >= BLOCK.1 {
            self.former = std::mem::take(&mut self.latest);
            self.cycles = 0;
        }
    }

    /// The part of `S_0` that is CPU time, in seconds; all of it before it is measured.
    pub fn computing_s(&self) -> f64 {
        self.computing.get().or(self.idle_service.get()).unwrap_or_default()
    }

    /// `Z`, in seconds.
    pub fn think_s(&self) -> f64 {
        let response = self.response.or_zero();
        response * (1.0 / self.elasticity.get().abs().clamp(0.02, 1.0) - 1.0)
    }

    /// `C`. Those who were refused count as if they had been answered like the others: by Little's law they would be as many as come in the
    /// time of an answer and a pause.
    pub fn clients(&self) -> f64 {
        let refused = self.refused.or_zero().max(0.0) * (self.response.or_zero() + self.think_s());
        self.population.or_zero().max(0.0) + self.throughput.or_zero().max(0.0) * self.think_s() + refused
    }

    /// By how large a part `C` may be wrong (95%), for its parts were measured over a few cycles; at most 1. Nothing in the first cycle
    /// after a jump: what changed that much is no noise, and a crowd does not wait.
    pub fn doubt(&self) -> f64 {
        let wide = |part: &Smooth| part.plus_minus().unwrap_or(0.0);
        let wrong = wide(&self.population) + wide(&self.throughput) * self.think_s();
        (wrong / self.clients().max(1e-9)).clamp(0.0, 1.0)
    }

    /// `d ln lambda / d ln R`, from -1 (closed, no think time) to 0 (open), with the half-width of its 95% interval.
    pub fn elasticity(&self) -> (f64, f64) {
        (self.elasticity.get(), self.elasticity.plus_minus())
    }

    /// The goal's statistic as achieved lately: seconds, or requests per second; `None` without traffic or goal.
    pub fn achieved(&self) -> Option<f64> {
        match self.goal? {
            Goal::Throughput { .. } => self.throughput.get(),
            goal => Some(self.beside_refused(goal, self.response.get()? * self.tail_or_guess())),
        }
    }

    /// What a goal for response time is about when refused requests count too, as [`Goal::achieved_s`] has it.
    fn beside_refused(&self, goal: Goal, answered_s: f64) -> f64 {
        let (answered, refused) = (self.throughput.or_zero().max(0.0), self.refused.or_zero().max(0.0));
        let share = refused / (answered + refused).max(1e-9);
        match goal {
            Goal::Mean { target_s } => (1.0 - share) * answered_s + share * answered_s.max(2.0 * target_s),
            Goal::Percentile { percentile, target_s } if share > 1.0 - percentile => answered_s.max(2.0 * target_s),
            _ => answered_s,
        }
    }

    /// The goal's statistic over the mean; before it is measured, that of an exponential distribution.
    pub fn tail_or_guess(&self) -> f64 {
        match self.goal {
            Some(Goal::Percentile { percentile, .. }) => self.tail.get().unwrap_or(-(1.0 - percentile).ln()).max(0.1),
            _ => 1.0,
        }
    }

    /// By how large a part [`FlowProfile::tail_or_guess`] may be wrong (95%), as a quantile of so many response times that are exponentially
    /// distributed; 0 for a goal that is about no percentile, and before anything is measured.
    pub fn tail_doubt(&self) -> f64 {
        let (Some(Goal::Percentile { percentile, .. }), Some(_)) = (self.goal, self.tail.get()) else { return 0.0 };
        let count = (self.former.count() + self.latest.count()).max(ENOUGH) as f64;
        1.96 * (percentile / (1.0 - percentile) / count).sqrt() / -(1.0 - percentile).ln()
    }

    /// Requests waiting.
    pub fn queue(&self) -> f64 {
        self.queue.or_zero().max(0.0)
    }

    /// Requests outstanding.
    pub fn in_service(&self) -> f64 {
        self.in_service.or_zero().max(0.0)
    }

    /// The mean time in a seat over the shortest it ever was, slowly forgotten; at least 1. Unlike [`FlowProfile::slowdown`], it sees
    /// what waits for other things than CPU.
    pub fn held_up(&self) -> f64 {
        match (self.service.get(), self.shortest) {
            (Some(service), Some(shortest)) if shortest > 0.0 => (service / shortest).max(1.0),
            _ => 1.0,
        }
    }

    /// `S / S_0`, at least 1.
    pub fn slowdown(&self) -> f64 {
        match (self.service.get(), self.idle_service.get()) {
            (Some(service), Some(idle)) if idle > 0.0 => (service / idle).max(1.0),
            _ => 1.0,
        }
    }
}

/// `S_0` from a mean time in a seat, and from what it was taken for `before`.
///
/// Of the requests outstanding only those at the CPU slow each other down: one at least; all of them at most, and
/// under processor sharing no more than `1 / (1 - rho)`. So `S` tells `io` only within bounds, which are far apart when the CPU is full.
/// Within them what is remembered stands; without memory it is the least, so that seats are few, the crowd goes, and `io` shows.
fn idle_service_s(service_s: f64, before: Option<f64>, work: Work, place: &Surroundings) -> f64 {
    let alone = 1.0 / place.speed;
    let crowd = place.crowd.min(alone / (1.0 - place.busy).max(1e-3)).max(alone);
    let doubt = 0.1 * (crowd * place.speed - 1.0).clamp(0.0, 3.0);
    let least = (service_s - work.0 * crowd * (1.0 + doubt)).max(0.0);
    let most = (service_s - work.0 * alone).max(least);
    let io = before.map_or(least, |before| (before - work.0 * alone).clamp(least, most));
    (io + work.0 * alone).min(service_s.max(1e-6)).max(1e-6)
}

/// The slope of ln(population) over ln(response time), less 1, from changes between cycles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Elasticity {
    last: Option<(f64, f64)>,
    /// Whether that was how long somebody had waited, and no response time: these are not compared with each other.
    #[serde(default)]
    waits: bool,
    squares: f64,
    products: f64,
    residual: f64,
    weight: f64,
}

/// Forgetting per cycle: long enough to see some changes, short enough to follow a change of clients.
const KEEP: f64 = 0.97;
/// The prior: as much evidence as one change by 14%.
const PRIOR: f64 = 0.02;
/// A population that changes by more than a factor of two between cycles is other clients, not an answer to response time.
const OTHER_CLIENTS: f64 = 0.7;

impl Elasticity {
    /// What a response took, or, with `waits`, how long somebody has waited for one.
    fn observe(&mut self, waits: bool, response_s: f64, population: f64) {
        if std::mem::replace(&mut self.waits, waits) != waits {
            self.last = None;
        }
        if !(response_s > 0.0 && population > 0.0 && response_s.is_finite() && population.is_finite()) {
            return;
        }
        let now = (response_s.ln(), population.ln());
        if let Some(last) = self.last.replace(now) {
            let (x, y) = (now.0 - last.0, now.1 - last.1);
            if y.abs() <= OTHER_CLIENTS {
                let off = y - (1.0 + self.get()) * x;
                self.squares = self.squares * KEEP + x * x;
                self.products = self.products * KEEP + x * y;
                self.residual = self.residual * KEEP + off * off;
                self.weight = self.weight * KEEP + 1.0;
            }
        }
    }

    /// While too few are answered to say what a response takes, it takes at least as long as somebody has waited. Clients that wait for their
    /// answers grow no more meanwhile; without this, who was taken for independent arrivals and is not served would be taken for them for ever.
    fn observe_wait(&mut self, oldest_s: f64, population: f64) {
        if self.last.is_some_and(|(response, _)| oldest_s > response.exp()) {
            self.observe(true, oldest_s, population);
        }
    }

    fn get(&self) -> f64 {
        (self.products / (self.squares + PRIOR)).clamp(0.0, 1.0) - 1.0
    }

    fn plus_minus(&self) -> f64 {
        let noise = if self.weight > 2.0 { self.residual / self.weight } else { 1.0 };
        (1.96 * (noise / (self.squares + PRIOR)).sqrt()).min(1.0)
    }
}
