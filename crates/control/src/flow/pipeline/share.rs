//! A pipeline's part in seats that several gateways share ([`crate::flow::sharing`]).

use weal_model::Time;

use super::{ClassIndex, Pipeline};
use crate::flow::sharing::Need;

/// Sums of sizes are taken as whole up to this.
const ROUNDING: f64 = 1e-9;

impl Pipeline {
    /// Of the planned seats, `held` are this gateway's now; `None` when all are.
    pub fn handle_share(&mut self, held: Option<u32>) {
        self.held = held;
    }

    /// What its requests need, with one more of the class `expecting`. Requests that their rate keeps back need nothing yet.
    pub fn need(&mut self, now: Time, expecting: Option<ClassIndex>) -> Need {
        self.advance(now);
        let occupied = self.occupied();
        let (mut wanted, mut weight) = (occupied, 0.0);
        for (index, class) in self.classes.iter().enumerate() {
            let one_more = u32::from(expecting.is_some_and(|expected| expected.at() == index));
            let ready = class.may_go(class.queued.saturating_add(one_more));
            if ready > 0 {
                wanted += class.size * f64::from(ready);
                weight += class.weight;
            }
        }
        let whole = |seats: f64| (seats - ROUNDING).ceil().max(0.0) as u32;
        Need { occupied: whole(occupied), wanted: whole(wanted), weight: if weight > 0.0 { weight } else { 1.0 } }
    }

    /// Seats of the outstanding requests, without those that slow readers have given to others.
    pub(super) fn occupied(&self) -> f64 {
        let outstanding: f64 = self.classes.iter().map(|class| class.size * f64::from(class.in_service)).sum();
        outstanding - self.lent()
    }

    /// True when requests that take so much more may be outstanding. What is larger than all the seats goes alone.
    pub(super) fn has_room(&self, size: f64) -> bool {
        let Some(planned) = self.seats else { return true };
        let seats = self.held.map_or(planned, |held| held.min(planned));
        let is_alone = self.in_service == 0 && planned > 0 && seats == planned;
        self.occupied() + size <= f64::from(seats) * (1.0 + ROUNDING) || is_alone
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weal_model::FlowPolicy;

    use super::super::{ClassLimits, PipelineLimits, RequestOutcome};
    use super::*;

    const FAR: Time = Time(u64::MAX);

    fn pipeline(seats: u32, limits: ClassLimits) -> (Pipeline, ClassIndex) {
        let limits = PipelineLimits { seats: Some(seats), classes: [("gold".into(), limits)].into() };
        let pipeline = Pipeline::new(&limits);
        let gold = pipeline.class(&"gold".into()).unwrap();
        (pipeline, gold)
    }

    fn need(occupied: u32, wanted: u32) -> Need {
        Need { occupied, wanted, weight: 1.0 }
    }

    #[test]
    fn no_more_requests_go_than_seats_are_held() {
        let (mut pipeline, gold) = pipeline(8, ClassLimits { queue_limit: 10, ..ClassLimits::default() });
        assert_eq!(pipeline.need(Time::ZERO, Some(gold)), need(0, 1));
        for _ in 0..5 {
            pipeline.handle_arrival(Time::ZERO, gold, FAR).unwrap();
        }
        assert_eq!(pipeline.need(Time::ZERO, None), need(0, 5));
        pipeline.handle_share(Some(2));
        let gone: Vec<_> = std::iter::from_fn(|| pipeline.poll_dispatch(Time::ZERO)).collect();
        assert_eq!((gone.len(), pipeline.need(Time::ZERO, None)), (2, need(2, 5)));
        pipeline.handle_completion(Time::ZERO, gone[0].ticket, RequestOutcome::Served);
        assert_eq!(pipeline.need(Time::ZERO, None), need(1, 4));
        pipeline.handle_share(None);
        assert_eq!(std::iter::from_fn(|| pipeline.poll_dispatch(Time::ZERO)).count(), 3);
    }

    #[test]
    fn a_request_that_is_larger_than_all_seats_waits_until_this_gateway_has_them_all() {
        let (mut pipeline, gold) = pipeline(2, ClassLimits { size: 2.5, queue_limit: 10, ..ClassLimits::default() });
        pipeline.handle_arrival(Time::ZERO, gold, FAR).unwrap();
        assert_eq!(pipeline.need(Time::ZERO, None), need(0, 3));
        pipeline.handle_share(Some(1));
        assert!(pipeline.poll_dispatch(Time::ZERO).is_none());
        pipeline.handle_share(Some(2));
        assert!(pipeline.poll_dispatch(Time::ZERO).is_some());
    }

    #[test]
    fn requests_that_their_rate_keeps_back_need_no_seats() {
        let policy = FlowPolicy { rate_limit_per_s: Some(1.0), ..FlowPolicy::default() };
        let (mut pipeline, gold) = pipeline(8, ClassLimits { queue_limit: 10, policy, ..ClassLimits::default() });
        for _ in 0..5 {
            pipeline.handle_arrival(Time::ZERO, gold, FAR).unwrap();
        }
        assert_eq!(pipeline.need(Time::ZERO, None), need(0, 1));
        pipeline.poll_dispatch(Time::ZERO).unwrap();
        assert_eq!(pipeline.need(Time::ZERO, None), need(1, 1));
        assert_eq!(pipeline.need(Time::ZERO + Duration::from_secs(1), None), need(1, 2));
    }
}
