use proptest::prelude::*;

use super::*;
use crate::flow::pipeline::{ClassLimits, PipelineLimits, RequestOutcome};

const FAR: Time = Time(u64::MAX);
const RATE: u32 = 240;

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn pipeline(seats: u32) -> (Pipeline, ClassIndex) {
    let limits = ClassLimits { queue_limit: 1000, ..ClassLimits::default() };
    let pipeline = Pipeline::new(&PipelineLimits { seats: Some(seats), classes: [("gold".into(), limits)].into() });
    let gold = pipeline.class(&"gold".into()).unwrap();
    (pipeline, gold)
}

/// Lets `count` more requests come, and returns those that get a seat.
fn arrive(pipeline: &mut Pipeline, now: Time, class: ClassIndex, count: usize) -> Vec<Ticket> {
    for _ in 0..count {
        pipeline.handle_arrival(now, class, FAR).unwrap();
    }
    dispatch(pipeline, now)
}

fn dispatch(pipeline: &mut Pipeline, now: Time) -> Vec<Ticket> {
    std::iter::from_fn(|| pipeline.poll_dispatch(now)).map(|dispatch| dispatch.ticket).collect()
}

fn cuts(pipeline: &mut Pipeline, now: Time) -> Vec<Ticket> {
    std::iter::from_fn(|| pipeline.poll_cut(now)).collect()
}

fn stall(pipeline: &mut Pipeline, now: Time, ticket: Ticket) {
    pipeline.handle_reading(now, ticket, Reading { waits: true, taken: 0, min_rate: RATE });
}

/// Its client takes `taken` bytes, and then no more.
fn take(pipeline: &mut Pipeline, now: Time, ticket: Ticket, taken: u64) {
    pipeline.handle_reading(now, ticket, Reading { waits: false, taken, min_rate: RATE });
    stall(pipeline, now, ticket);
}

#[test]
fn clients_that_read_slowly_never_keep_all_seats_from_others() {
    for (seats, left) in [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)] {
        let (mut pipeline, gold) = pipeline(seats);
        let most = (seats + left) as usize;
        let slow = arrive(&mut pipeline, at(0), gold, most + 1);
        assert_eq!(slow.len(), seats as usize);
        slow.iter().for_each(|ticket| stall(&mut pipeline, at(0), *ticket));
        assert_eq!(dispatch(&mut pipeline, at(1_999)).len(), 0, "it may be a pause");
        assert_eq!(pipeline.poll_wait(), Some(at(2_000)));
        let more = dispatch(&mut pipeline, at(2_000));
        assert_eq!(more.len(), left as usize, "{seats} seats");
        assert!(cuts(&mut pipeline, at(2_000)).is_empty(), "as many readers as seats are in nobody's way");
        more.iter().for_each(|ticket| stall(&mut pipeline, at(2_000), *ticket));
        assert_eq!(pipeline.poll_wait(), Some(at(4_000)));
        let cut = cuts(&mut pipeline, at(4_000));
        assert_eq!(cut, slow[..left as usize], "who has been waited for longest of those that take nothing");
        assert!(dispatch(&mut pipeline, at(4_000)).is_empty(), "their instances still have them");
        assert!(cut.iter().all(|ticket| pipeline.handle_cancel(at(4_001), *ticket)));
        assert_eq!(dispatch(&mut pipeline, at(4_001)).len(), 1, "the one that waited");
    }
}

#[test]
fn nobody_is_cut_off_while_nobody_waits() {
    let (mut pipeline, gold) = pipeline(2);
    let mut slow = arrive(&mut pipeline, at(0), gold, 2);
    slow.iter().for_each(|ticket| stall(&mut pipeline, at(0), *ticket));
    slow.extend(arrive(&mut pipeline, at(10_000), gold, 1));
    stall(&mut pipeline, at(10_000), slow[2]);
    assert!(cuts(&mut pipeline, at(60_000)).is_empty());
    assert_eq!(pipeline.poll_wait(), None);
    assert!(arrive(&mut pipeline, at(60_000), gold, 1).is_empty());
    assert_eq!(cuts(&mut pipeline, at(60_000)), [slow[0]]);
}

#[test]
fn the_better_the_line_the_longer_others_wait_for_its_reader() {
    for (bytes_per_second, longest_ms) in [(0, 0), (23_999, 0), (24_000, 2_000), (50_000, 4_000), (1_000_000, 12_000)] {
        assert_eq!(patience(bytes_per_second, RATE), Duration::from_millis(longest_ms), "{bytes_per_second}");
    }
    let (mut pipeline, gold) = pipeline(2);
    let mut readers = arrive(&mut pipeline, at(0), gold, 5);
    readers.iter().for_each(|ticket| stall(&mut pipeline, at(0), *ticket));
    readers.extend(dispatch(&mut pipeline, at(2_000)));
    let [good, better, best] = readers[..] else { panic!("{readers:?}") };
    stall(&mut pipeline, at(2_000), best);
    for second in 3..10 {
        for (ticket, rate) in [(good, 30_000), (better, 100_000), (best, 10_000_000)] {
            take(&mut pipeline, at(second * 1000), ticket, rate);
        }
    }
    // No request has got a seat for seven seconds: long enough for the slowest of three good lines.
    assert_eq!(cuts(&mut pipeline, at(9_000)), [good]);
    pipeline.handle_cancel(at(9_000), good);
    assert_eq!(dispatch(&mut pipeline, at(9_000)).len(), 1);
    assert!(cuts(&mut pipeline, at(60_000)).is_empty(), "there are no more readers than seats");
}

#[test]
fn a_client_that_keeps_up_or_may_take_any_time_is_no_slow_reader() {
    let (mut pipeline, gold) = pipeline(2);
    let held = arrive(&mut pipeline, at(0), gold, 3);
    for ms in 0..10_000 {
        let waits = ms % 10 == 0;
        pipeline.handle_reading(at(ms), held[0], Reading { waits, taken: 100_000, min_rate: RATE });
    }
    pipeline.handle_reading(at(0), held[1], Reading { waits: true, taken: 0, min_rate: 0 });
    assert_eq!((dispatch(&mut pipeline, at(20_000)).len(), pipeline.poll_wait()), (0, None));
    assert!(cuts(&mut pipeline, at(20_000)).is_empty());
}

proptest! {
    /// The bound of the module's docs, whatever clients do.
    #[test]
    fn no_more_requests_are_outstanding_than_seats_and_half_of_them_and_nothing_is_remembered_at_the_end(
        seats in 1u32..7,
        steps in proptest::collection::vec((0u8..4, any::<usize>(), 0u64..5_000, 0u64..1_000_000), 1..200),
    ) {
        let (mut pipeline, gold) = pipeline(seats);
        let (mut outstanding, mut now_ms): (Vec<Ticket>, u64) = (Vec::new(), 0);
        let half = (seats / 2).max(1);
        for (what, which, pause_ms, taken) in steps {
            now_ms += pause_ms;
            let now = at(now_ms);
            match (what, outstanding.get(which % outstanding.len().max(1)).copied()) {
                (0, _) => {
                    let _ = pipeline.handle_arrival(now, gold, FAR);
                }
                (1, Some(ticket)) => stall(&mut pipeline, now, ticket),
                (2, Some(ticket)) => pipeline.handle_reading(now, ticket, Reading { waits: false, taken, min_rate: RATE }),
                (_, Some(ticket)) => {
                    pipeline.handle_completion(now, ticket, RequestOutcome::Served);
                    outstanding.retain(|other| *other != ticket);
                }
                _ => {}
            }
            outstanding.extend(dispatch(&mut pipeline, now));
            for ticket in cuts(&mut pipeline, now) {
                prop_assert!(pipeline.queued() > 0);
                prop_assert!(pipeline.handle_cancel(now, ticket), "it had a seat");
                outstanding.retain(|other| *other != ticket);
            }
            outstanding.extend(dispatch(&mut pipeline, now));
            prop_assert!(pipeline.in_service() <= seats + half);
            prop_assert_eq!(pipeline.in_service() as usize, outstanding.len());
            let slow = pipeline.tickets.iter().filter(|request| matches!(request.phase, Phase::InService { reader, .. } if reader.is_slow()));
            prop_assert_eq!(slow.count(), pipeline.classes[gold.at()].slow_readers as usize);
            if pipeline.queued() > 0 {
                prop_assert!(pipeline.in_service() >= seats, "no seat is idle while something waits");
            }
        }
        while !outstanding.is_empty() {
            outstanding.drain(..).for_each(|ticket| assert!(pipeline.handle_cancel(at(now_ms), ticket)));
            outstanding.extend(dispatch(&mut pipeline, at(now_ms)));
        }
        prop_assert!(pipeline.stalls.is_empty() && pipeline.classes[gold.at()].slow_readers == 0);
    }
}
