//! One class of a pipeline: its queue, its turn, its rate and what it has measured.

use std::time::Duration;

use weal_model::{ClassName, FlowPolicy, LatencyHistogram, StatusCounts, Time};

use super::limits::{ClassLimits, WEIGHTS};
use super::queue::Queue;
use super::tickets::{Request, Ticket, Tickets};

/// Sizes are kept within this range, so that a wrong one neither lets everything pass nor blocks everything.
const SIZES: (f64, f64) = (0.01, 100.0);

/// Seconds of its rate that a class may send at once after it sent less. The gateway looks at its queues about every millisecond at the
/// soonest, so less would lose a part of high rates; more would let bursts through that the limit is to keep away.
const BURST_S: f64 = 0.02;

/// The weights of a new measurement in the smoothed mean and the smoothed mean deviation (Jacobson 1988).
const SMOOTHING: (f64, f64) = (1.0 / 8.0, 1.0 / 4.0);

/// Mean deviations above the mean that a request is taken to need (Jacobson 1988, RFC 6298): about 98 of 100 need less. Under overload all
/// that are answered have waited nearly as long as may be, so that those which need more come too late.
const DEVIATIONS: f64 = 4.0;

/// What happened in one class since the pipeline was made. Counters only grow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClassCounters {
    /// Requests that came in.
    pub arrivals: u64,
    /// Requests served.
    pub completions: u64,
    /// Requests that found the queue full, expired in it or were dropped from it.
    pub rejections: u64,
    /// Those of them that were dropped because they could no longer meet their goal.
    pub late: u64,
    /// Requests that failed in service, or were cancelled in the queue or in service.
    pub errors: u64,
    /// From arrival to completion, without what their clients took, of those served.
    pub response_time: LatencyHistogram,
    /// From dispatch to completion, without what their clients took, of those served.
    pub service_time: LatencyHistogram,
    /// Integral of the queue length over time, in request-seconds.
    pub queue_integral_s: f64,
    /// Integral over time of the outstanding requests that do not wait for their clients, in request-seconds.
    pub in_service_integral_s: f64,
    /// Responses by their status codes.
    pub responses: StatusCounts,
}

#[derive(Debug)]
pub(super) struct Class {
    pub name: ClassName,
    /// Invariant: within [`WEIGHTS`].
    pub weight: f64,
    /// Invariant: within [`SIZES`].
    pub size: f64,
    pub queue_limit: u32,
    policy: FlowPolicy,
    /// `p` of the module docs.
    pub pass: f64,
    pub queue: Queue,
    pub queued: u32,
    pub in_service: u32,
    /// Those of the outstanding that wait for their clients. Invariant: at most `in_service`.
    pub at_clients: u32,
    /// Slow readers among the outstanding ([`super::readers`]).
    pub slow_readers: u32,
    /// Requests that the rate lets go now. Meaningless without a rate limit.
    tokens: f64,
    /// The moment up to which tokens were given out.
    refilled: Time,
    /// Mean and mean deviation of the time in a seat, in seconds; `None` before the first.
    service_s: Option<(f64, f64)>,
    /// The moment up to which the integrals are complete.
    integrated: Time,
    pub counters: ClassCounters,
}

impl Class {
    pub fn new(name: ClassName, limits: &ClassLimits, now: Time) -> Self {
        let mut class = Self {
            name,
            weight: sane_weight(limits.weight),
            size: sane_size(limits.size),
            queue_limit: limits.queue_limit,
            policy: limits.policy,
            pass: 0.0,
            queue: Queue::default(),
            queued: 0,
            in_service: 0,
            at_clients: 0,
            slow_readers: 0,
            tokens: 0.0,
            refilled: now,
            service_s: None,
            integrated: now,
            counters: ClassCounters::default(),
        };
        class.tokens = class.most_tokens();
        class
    }

    /// Works by `limits` from now on; its distance from the virtual time is kept in releases.
    pub fn configure(&mut self, now: Time, limits: &ClassLimits, virtual_time: f64) {
        let weight = sane_weight(limits.weight);
        self.pass = virtual_time + (self.pass - virtual_time) * self.weight / weight;
        (self.weight, self.size, self.queue_limit) = (weight, sane_size(limits.size), limits.queue_limit);
        if self.policy.rate_limit_per_s != limits.policy.rate_limit_per_s {
            self.refilled = now;
        }
        self.policy = limits.policy;
        self.tokens = self.tokens.min(self.most_tokens());
    }

    /// Completes the integrals; to be called before a length changes.
    pub fn integrate(&mut self, now: Time) {
        let span_s = now.since(self.integrated).as_secs_f64();
        self.counters.queue_integral_s += span_s * f64::from(self.queued);
        self.counters.in_service_integral_s += span_s * f64::from(self.in_service - self.at_clients);
        self.integrated = now;
    }

    pub fn is_full(&self) -> bool {
        self.queued >= self.queue_limit
    }

    /// A request that had a seat waits again, before all others. Its turn is lost, its part of the rate is not.
    pub fn take_back(&mut self, now: Time, ticket: Ticket, was_at_client: bool) {
        self.integrate(now);
        (self.in_service, self.queued) = (self.in_service - 1, self.queued + 1);
        self.at_clients -= u32::from(was_at_client);
        self.tokens = (self.tokens + 1.0).min(self.most_tokens());
        self.queue.push_front(ticket);
    }

    /// The request that has waited longest.
    pub fn oldest<'t>(&self, tickets: &'t Tickets) -> Option<&'t Request> {
        self.queue.fronts().filter_map(|ticket| tickets.get(ticket)).min_by_key(|request| request.arrived)
    }

    /// A request was answered after so long in its seat.
    pub fn note_service(&mut self, service: Duration) {
        self.counters.service_time.record(service);
        let measured = service.as_secs_f64();
        self.service_s = Some(match self.service_s {
            None => (measured, measured / 2.0),
            Some((mean, deviation)) => {
                let error = measured - mean;
                (mean + SMOOTHING.0 * error, deviation + SMOOTHING.1 * (error.abs() - deviation))
            }
        });
    }

    /// From when on a request that arrives at `now` is late; `None` when it never is.
    pub fn late_from(&self, now: Time) -> Option<Time> {
        let goal_s = self.policy.drop_after_s?;
        let needs_s = self.service_s.map_or(0.0, |(mean, deviation)| mean + DEVIATIONS * deviation);
        let may_wait = Duration::try_from_secs_f64(goal_s - needs_s).ok()?;
        (!may_wait.is_zero()).then(|| now + may_wait)
    }

    pub fn is_rate_limited(&self) -> bool {
        self.policy.rate_limit_per_s.is_some()
    }

    /// False when its rate keeps its next request back.
    pub fn has_token(&self) -> bool {
        !self.is_rate_limited() || self.tokens >= 1.0
    }

    /// Of so many requests, those that its rate lets go now.
    pub fn may_go(&self, requests: u32) -> u32 {
        if self.is_rate_limited() { requests.min(self.tokens.max(0.0) as u32) } else { requests }
    }

    pub fn take_token(&mut self) {
        if self.is_rate_limited() {
            self.tokens -= 1.0;
        }
    }

    /// Gives out the tokens up to `now`.
    pub fn refill(&mut self, now: Time) {
        let Some(rate) = self.policy.rate_limit_per_s else { return };
        let gained = now.since(self.refilled).as_secs_f64() * rate;
        (self.tokens, self.refilled) = ((self.tokens + gained).min(self.most_tokens()), now);
    }

    /// When there is a token again; `None` when there is one.
    pub fn next_token(&self, now: Time) -> Option<Time> {
        let rate = self.policy.rate_limit_per_s.filter(|_| !self.has_token())?;
        // A nanosecond more, for time is counted in whole ones.
        let wait = Duration::try_from_secs_f64((1.0 - self.tokens) / rate).unwrap_or(Duration::MAX);
        Some(now + wait.saturating_add(Duration::from_nanos(1)))
    }

    fn most_tokens(&self) -> f64 {
        self.policy.rate_limit_per_s.map_or(1.0, |rate| (rate * BURST_S).max(1.0))
    }
}

/// NaN counts as one seat.
fn sane_size(size: f64) -> f64 {
    if size.is_nan() { 1.0 } else { size.clamp(SIZES.0, SIZES.1) }
}

/// NaN and anything below the range count as the least weight: such a class is served last, never not at all.
fn sane_weight(weight: f64) -> f64 {
    if weight.is_nan() { WEIGHTS.0 } else { weight.clamp(WEIGHTS.0, WEIGHTS.1) }
}
