use proptest::prelude::*;

use std::time::Duration;

use super::*;

const ANY: RequestKey = RequestKey { name: None, prefers: None };

fn candidates(weights: &[f64]) -> Vec<Candidate> {
    let candidate =
        |(i, &weight): (usize, &f64)| Candidate { instance: format!("a-{i}").as_str().into(), weight, draining: false };
    weights.iter().enumerate().map(candidate).collect()
}

fn dispatcher(weights: &[f64]) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(7);
    dispatcher.configure(at(0), &candidates(weights));
    dispatcher
}

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

#[test]
fn idle_equals_take_turns() {
    let mut dispatcher = dispatcher(&[1.0, 1.0, 1.0]);
    let mut order = Vec::new();
    for _ in 0..6 {
        let chosen = dispatcher.handle_dispatch(at(0), ANY, &[]).unwrap();
        dispatcher.handle_end(at(0), chosen, Attempt::Answered);
        order.push(chosen.slot());
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_draining_instance_gets_nothing_and_one_that_is_gone_finishes_what_it_has() {
    let mut dispatcher = dispatcher(&[1.0, 1.0]);
    let first = dispatcher.handle_dispatch(at(0), ANY, &[]).unwrap();
    let mut list = candidates(&[1.0, 1.0]);
    list[first.slot()].draining = true;
    dispatcher.configure(at(0), &list);
    for _ in 0..5 {
        assert_ne!(dispatcher.handle_dispatch(at(0), ANY, &[]), Some(first));
    }
    dispatcher.configure(at(0), &[]);
    assert!(!dispatcher.has_candidate());
    assert_eq!(dispatcher.counts().map(|counts| counts.outstanding).sum::<u32>(), 6);
    dispatcher.handle_end(at(0), first, Attempt::Answered);
    assert_eq!(dispatcher.counts().count(), 1, "its last request has ended");
}

#[test]
fn a_refusal_marks_and_an_answer_on_probation_lifts_the_mark() {
    let mut dispatcher = dispatcher(&[1.0, 1.0]);
    let bad = dispatcher.handle_dispatch(at(0), ANY, &[]).unwrap();
    dispatcher.handle_end(at(0), bad, Attempt::Refused);
    for _ in 0..10 {
        assert_ne!(dispatcher.handle_dispatch(at(100), ANY, &[]).unwrap(), bad);
    }
    let back = FIRST_SPAN.as_millis() as u64;
    assert_eq!(dispatcher.handle_dispatch(at(back), ANY, &[]).unwrap(), bad, "on probation");
    assert_ne!(dispatcher.handle_dispatch(at(back), ANY, &[]).unwrap(), bad, "one at a time");
    dispatcher.handle_end(at(back), bad, Attempt::Answered);
    for _ in 0..5 {
        assert_eq!(dispatcher.handle_dispatch(at(back), ANY, &[]).unwrap(), bad, "the other has eleven outstanding");
    }
}

#[test]
fn marks_in_a_row_keep_out_for_longer_and_three_breaks_mark() {
    let mut dispatcher = dispatcher(&[1.0, 1.0]);
    let bad = dispatcher.find(&"a-1".into()).unwrap();
    let mut now = at(0);
    let mut spans = Vec::new();
    let take = |dispatcher: &mut Dispatcher, now: Time| {
        let other = dispatcher.find(&"a-0".into()).unwrap();
        dispatcher.handle_dispatch(now, ANY, &[other])
    };
    for _ in 0..BREAKS_TO_MARK {
        assert_eq!(take(&mut dispatcher, now), Some(bad));
        dispatcher.handle_end(now, bad, Attempt::Broken);
    }
    for _ in 0..8 {
        let marked = now;
        while !dispatcher.slots[bad.slot()].as_ref().unwrap().takes_at(now) {
            now = now + Duration::from_millis(100);
        }
        spans.push(now.since(marked).as_millis());
        assert_eq!(take(&mut dispatcher, now), Some(bad));
        dispatcher.handle_end(now, bad, Attempt::Broken);
    }
    assert_eq!(spans, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
}

#[test]
fn when_all_are_marked_all_are_tried() {
    let mut dispatcher = dispatcher(&[1.0, 1.0]);
    for _ in 0..2 {
        let chosen = dispatcher.handle_dispatch(at(0), ANY, &[]).unwrap();
        dispatcher.handle_end(at(0), chosen, Attempt::Refused);
    }
    assert_eq!((dispatcher.handle_dispatch(at(1), ANY, &[]), dispatcher.poll_try(at(1))), (None, Some(at(100))), "a moment ago");
    let first = dispatcher.handle_dispatch(at(100), ANY, &[]).unwrap();
    let second = dispatcher.handle_dispatch(at(100), ANY, &[first]).unwrap();
    assert_ne!(first, second);
    assert_eq!(dispatcher.handle_dispatch(at(100), ANY, &[first, second]), None, "nothing is left to try");
}

#[test]
fn an_instance_that_refuses_is_tried_now_and_then_until_it_listens() {
    let mut dispatcher = dispatcher(&[1.0]);
    let only = dispatcher.handle_dispatch(at(0), ANY, &[]).unwrap();
    dispatcher.handle_end(at(0), only, Attempt::Refused);
    assert!(!dispatcher.can_dispatch(at(99)) && dispatcher.has_candidate() && dispatcher.may_come_back(at(99)));
    assert_eq!(dispatcher.handle_dispatch(at(100), ANY, &[]), Some(only));
    assert_eq!(dispatcher.handle_dispatch(at(100), ANY, &[]), None, "one at a time");
    dispatcher.handle_connection(only);
    assert_eq!(dispatcher.handle_dispatch(at(100), ANY, &[]), Some(only), "before the first is answered");
    assert!(!dispatcher.may_come_back(at(100)), "it is there");
}

#[test]
fn an_instance_that_refuses_for_long_is_waited_for_no_longer() {
    let mut dispatcher = dispatcher(&[1.0]);
    let mut tries = Vec::new();
    for ms in (0..6000).step_by(10) {
        if let Some(chosen) = dispatcher.handle_dispatch(at(ms), ANY, &[]) {
            dispatcher.handle_end(at(ms), chosen, Attempt::Refused);
            tries.push(ms);
        }
    }
    let bridged = BRIDGED.as_millis() as u64;
    let expected = (0..bridged).step_by(TRY_EVERY.as_millis() as usize).chain((bridged..6000).step_by(10));
    assert_eq!(tries, expected.collect::<Vec<_>>(), "now and then at first, and then at once");
    assert!(!dispatcher.may_come_back(at(6000)) && dispatcher.poll_try(at(6000)).is_none());
}

proptest! {
    #[test]
    fn outstanding_requests_follow_the_weights(weights in proptest::collection::vec(0.1..8.0f64, 1..12), count in 1..500usize) {
        let mut dispatcher = dispatcher(&weights);
        for _ in 0..count {
            dispatcher.handle_dispatch(at(0), ANY, &[]).unwrap();
        }
        // The least loaded or an idle one was taken each time, so nobody with more than one is better off by moving one.
        let loads: Vec<f64> = dispatcher.counts().map(|counts| f64::from(counts.outstanding)).collect();
        for i in 0..weights.len() {
            for j in 0..weights.len() {
                let least_loaded = loads[i] / weights[i] <= (loads[j] + 1.0) / weights[j] + 1e-9;
                prop_assert!(loads[i] <= 1.0 || least_loaded, "{loads:?} for {weights:?}");
            }
        }
    }

    #[test]
    fn two_choices_keep_the_longest_queue_close_to_the_mean(seed in any::<u64>()) {
        let mut dispatcher = Dispatcher::new(seed);
        dispatcher.configure(at(0), &candidates(&[1.0; 100]));
        for _ in 0..1000 {
            dispatcher.handle_dispatch(at(0), ANY, &[]).unwrap();
        }
        let longest = dispatcher.counts().map(|counts| counts.outstanding).max().unwrap();
        prop_assert!(longest <= 16, "the longest of 100 queues has {longest} of 1000 requests");
    }

    #[test]
    fn every_dispatch_is_counted_until_it_ends(ends in proptest::collection::vec((0..4u8, any::<bool>()), 1..200)) {
        let mut dispatcher = dispatcher(&[1.0, 2.0, 0.5]);
        let (mut open, mut ended) = (Vec::new(), 0u64);
        for (i, (attempt, end)) in ends.into_iter().enumerate() {
            let now = at(i as u64 * 50);
            open.extend(dispatcher.handle_dispatch(now, ANY, &[]));
            if end && !open.is_empty() {
                let attempt =
                    [Attempt::Answered, Attempt::Refused, Attempt::Broken, Attempt::Answered][usize::from(attempt)];
                dispatcher.handle_end(now, open.swap_remove(i % open.len()), attempt);
                ended += 1;
            }
        }
        let outstanding: u32 = dispatcher.counts().map(|counts| counts.outstanding).sum();
        prop_assert_eq!(outstanding as usize, open.len());
        prop_assert_eq!(dispatcher.counts().map(|counts| counts.completions + counts.failures).sum::<u64>(), ended);
    }
}
