use weal_protocol::gateway::{Endpoint, FlowConfig, Standby, Unavailable};

use super::*;
use crate::dispatch::Attempt::{Abandoned, Answered, Broken, Refused};

/// Milliseconds after a moment that is not zero, as a gateway's are.
pub(super) fn at(ms: u64) -> Time {
    Time((1_000_000 + ms) * 1_000_000)
}

/// One class, and open instances by number.
pub(super) fn config(seats: Option<u32>, open: &[u32]) -> ClusterConfig {
    let endpoint = |number: &u32| Endpoint {
        instance: format!("shop-{number}").into(),
        address: ([127, 0, 0, 1], 9).into(),
        weight: 1.0,
        draining: false,
        listener: None,
    };
    ClusterConfig {
        app: "shop".into(),
        routes: Vec::new(),
        seats,
        flows: [("gold".into(), FlowConfig { weight: 1.0, seats: 1, queue_limit: 20, ..FlowConfig::default() })].into(),
        endpoints: open.iter().map(endpoint).collect(),
        request_timeout_s: 60.0,
        standby: None,
        wakeable: None,
        http: weal_model::HttpRules::default(),
        unavailable: None,
        inner: None,
        calls: false,
    }
}

fn admission(config: &ClusterConfig) -> Admission {
    let mut admission = Admission::new("shop".into(), 1);
    admission.handle_config(at(0), config);
    admission
}

fn arrive(admission: &mut Admission, ms: u64) -> Ticket {
    let class = admission.class(&"gold".into()).unwrap();
    admission.handle_arrival(at(ms), class).unwrap()
}

fn named(admission: &mut Admission, ms: u64) -> Option<Vec<String>> {
    let request = admission.poll_wake(at(ms))?;
    Some(request.instances.iter().map(ToString::to_string).collect())
}

fn counters(admission: &mut Admission, ms: u64) -> (ClusterCounters, Vec<FlowCounters>, Vec<EndpointCounters>) {
    let (mut flows, mut instances) = (Vec::new(), Vec::new());
    let cluster = admission.observe(at(ms), &"gw".into(), &mut flows, &mut instances);
    (cluster, flows, instances)
}

#[test]
fn a_request_goes_to_an_open_instance_and_gives_its_seat_back() {
    let mut admission = admission(&config(Some(1), &[1]));
    let (first, second) = (arrive(&mut admission, 0), arrive(&mut admission, 1));
    let dispatched = admission.poll_dispatch(at(1)).unwrap();
    assert_eq!((dispatched.ticket, Some(dispatched.instance)), (first, admission.find(&"shop-1".into())));
    assert_eq!((admission.poll_dispatch(at(1)), admission.queued()), (None, 1));
    assert!(admission.handle_end(at(2), first, Answered, RequestOutcome::Served));
    assert!(!admission.handle_end(at(2), first, Answered, RequestOutcome::Served), "it has ended");
    assert_eq!(admission.poll_dispatch(at(2)).map(|next| next.ticket), Some(second));
    assert!(admission.handle_cancel(at(3), second) && admission.is_idle());
}

#[test]
fn what_an_ended_ticket_says_changes_nothing_for_the_next_one_in_its_slot() {
    let mut admission = admission(&config(Some(1), &[1]));
    let first = arrive(&mut admission, 0);
    admission.poll_dispatch(at(0)).unwrap();
    admission.handle_cancel(at(1), first);
    let second = arrive(&mut admission, 1);
    admission.poll_dispatch(at(1)).unwrap();
    assert_eq!(second.slot(), first.slot());
    assert!(!admission.handle_cancel(at(2), first) && admission.handle_upgrade(at(2), first).is_none());
    assert_eq!(admission.handle_retry(at(2), first, Refused, &[]), None);
    assert!(admission.instance_of(second).is_some());
    assert_eq!(counters(&mut admission, 2).2[0].in_flight, 1);
}

#[test]
fn a_failed_attempt_goes_to_another_instance_in_the_same_seat_until_enough_were_tried() {
    let mut admission = admission(&config(Some(1), &[1, 2, 3, 4]));
    let ticket = arrive(&mut admission, 0);
    let mut failed = vec![admission.poll_dispatch(at(0)).unwrap().instance];
    while let Some(next) = admission.handle_retry(at(1), ticket, Refused, &failed) {
        assert!(!failed.contains(&next));
        failed.push(next);
    }
    assert_eq!(failed.len(), MOST_ATTEMPTS);
    assert!(admission.handle_end(at(2), ticket, Refused, RequestOutcome::Failed));
    let (_, flows, instances) = counters(&mut admission, 2);
    assert_eq!((flows[0].retries, flows[0].errors, flows[0].in_service), (2, 1, 0));
    assert_eq!(instances.iter().map(|instance| instance.failures).collect::<Vec<_>>(), [1, 1, 1, 0]);
}

#[test]
fn a_request_ends_when_no_other_instance_is_left_to_try() {
    let mut admission = admission(&config(Some(1), &[1]));
    let ticket = arrive(&mut admission, 0);
    let only = admission.poll_dispatch(at(0)).unwrap().instance;
    assert_eq!(admission.handle_retry(at(1), ticket, Broken, &[only]), None);
    assert!(admission.handle_end(at(1), ticket, Broken, RequestOutcome::Failed));
    assert_eq!(counters(&mut admission, 1).2[0].failures, 1, "counted once");
}

/// All that is let go now.
fn dispatched(admission: &mut Admission, ms: u64) -> Vec<Ticket> {
    std::iter::from_fn(|| admission.poll_dispatch(at(ms))).map(|next| next.ticket).collect()
}

#[test]
fn a_request_whose_connection_is_refused_waits_for_the_instance_before_all_others() {
    let mut admission = admission(&config(None, &[1]));
    let first = arrive(&mut admission, 0);
    let only = admission.poll_dispatch(at(0)).unwrap().instance;
    assert!(!admission.handle_refused(at(1), first, 0), "it is at an instance");
    assert_eq!(admission.handle_retry(at(1), first, Refused, &[only]), None);
    assert!(!admission.handle_refused(at(1), first, 2), "it may have ended two instances");
    assert!(admission.handle_refused(at(1), first, 0), "none has begun with it");
    let second = arrive(&mut admission, 2);
    assert_eq!((dispatched(&mut admission, 2), admission.queued()), (vec![], 2));
    assert_eq!(admission.poll_wake_timeout(at(2)), Some(at(101)));
    assert_eq!(dispatched(&mut admission, 101), [first], "one is tried");
    admission.handle_connection(first);
    assert_eq!(dispatched(&mut admission, 102), [second], "the instance listens");
    for ticket in [first, second] {
        assert!(admission.handle_end(at(103), ticket, Answered, RequestOutcome::Served));
    }
    let (_, flows, _) = counters(&mut admission, 103);
    assert_eq!((flows[0].arrivals, flows[0].completions, flows[0].errors, flows[0].queued, flows[0].in_service), (2, 2, 0, 0, 0));
}

#[test]
fn what_waits_for_an_instance_that_refuses_goes_to_one_that_comes_instead() {
    let mut admission = admission(&config(Some(1), &[1]));
    let ticket = arrive(&mut admission, 0);
    let gone = admission.poll_dispatch(at(0)).unwrap().instance;
    admission.handle_retry(at(1), ticket, Refused, &[gone]);
    assert!(admission.handle_refused(at(1), ticket, 0));
    admission.handle_config(at(2), &config(Some(1), &[2]));
    assert_eq!(admission.poll_dispatch(at(2)).map(|next| next.instance), admission.find(&"shop-2".into()));
}

#[test]
fn a_request_ends_when_its_instance_has_refused_for_too_long() {
    let mut admission = admission(&config(None, &[1]));
    let ticket = arrive(&mut admission, 0);
    for (ms, waits) in [(0, true), (crate::dispatch::BRIDGED.as_millis() as u64, false)] {
        let only = admission.poll_dispatch(at(ms)).unwrap().instance;
        assert_eq!(admission.handle_retry(at(ms), ticket, Refused, &[only]), None);
        assert_eq!(admission.handle_refused(at(ms), ticket, 0), waits);
    }
    assert!(admission.handle_end(at(6000), ticket, Refused, RequestOutcome::Failed));
}

/// One has refused for so long that nobody waits for it, the other since a moment ago. A request went round between the queue and the first for ever.
#[test]
fn a_request_that_waits_for_one_instance_is_not_tried_at_the_other_again_and_again() {
    let mut admission = admission(&config(None, &[1]));
    let ticket = arrive(&mut admission, 0);
    let gone = admission.poll_dispatch(at(0)).unwrap().instance;
    admission.handle_retry(at(0), ticket, Refused, &[gone]);
    assert!(admission.handle_refused(at(0), ticket, 0));
    admission.handle_config(at(1), &config(None, &[1, 2]));
    let ms = crate::dispatch::BRIDGED.as_millis() as u64;
    let mut tried = 0;
    while let Some(next) = admission.poll_dispatch(at(ms)) {
        let mut failed = vec![next.instance];
        while let Some(other) = admission.handle_retry(at(ms), ticket, Refused, &failed) {
            failed.push(other);
        }
        assert!(admission.handle_refused(at(ms), ticket, 0), "the second one may come back");
        tried += failed.len();
        assert!(tried <= 2, "each instance is tried once");
    }
    assert_eq!((tried, admission.poll_wake_timeout(at(ms))), (2, Some(at(ms + 100))));
}

#[test]
fn a_request_that_waits_again_expires_when_it_would_have_at_first() {
    let mut admission = admission(&config(None, &[1]));
    let ticket = arrive(&mut admission, 0);
    let only = admission.poll_dispatch(at(0)).unwrap().instance;
    admission.handle_retry(at(1), ticket, Refused, &[only]);
    assert!(admission.handle_refused(at(1), ticket, 0));
    assert_eq!(admission.poll_timeout(), Some(at(60_000)));
    assert_eq!(admission.handle_timeout(at(60_000)), [ticket]);
}

#[test]
fn a_tunnel_leaves_its_seat_and_stays_at_its_instance() {
    let mut admission = admission(&config(Some(1), &[1]));
    let ticket = arrive(&mut admission, 0);
    admission.poll_dispatch(at(0)).unwrap();
    let instance = admission.handle_upgrade(at(1), ticket).unwrap();
    let next = arrive(&mut admission, 1);
    assert_eq!(admission.poll_dispatch(at(1)).map(|next| next.ticket), Some(next));
    assert_eq!(counters(&mut admission, 1).2[0].in_flight, 2);
    admission.handle_tunnel_end(at(2), instance);
    assert_eq!(counters(&mut admission, 2).2[0].in_flight, 1);
}

#[test]
fn what_waits_for_too_long_expires() {
    let mut admission = admission(&config(Some(1), &[1]));
    let (first, second) = (arrive(&mut admission, 0), arrive(&mut admission, 5));
    admission.poll_dispatch(at(5)).unwrap();
    assert_eq!(admission.poll_timeout(), Some(at(60_005)));
    assert_eq!(admission.handle_timeout(at(60_004)), []);
    assert_eq!(admission.handle_timeout(at(60_005)), [second]);
    assert!(!admission.handle_cancel(at(60_006), second));
    assert!(admission.instance_of(first).is_some(), "what is outstanding has a timer of its own");
}

#[test]
fn one_wake_is_asked_for_however_many_wait_and_what_is_woken_takes_them_all() {
    let mut admission = admission(&config(None, &[]));
    assert_eq!(named(&mut admission, 0), None, "nobody waits");
    let tickets: Vec<Ticket> = (0..5).map(|ms| arrive(&mut admission, ms)).collect();
    assert_eq!(admission.poll_dispatch(at(5)), None);
    let request = admission.poll_wake(at(5)).unwrap();
    assert_eq!((request.app.as_str(), request.instances.len(), request.wait_s), ("shop", 0, 10.0));
    arrive(&mut admission, 6);
    assert_eq!((named(&mut admission, 6), admission.poll_wake_timeout(at(6))), (None, None), "a call is under way");
    let woken = admission.handle_woken(at(25), &"shop-7".into()).unwrap();
    assert_eq!(woken.reason, WakeReason::NothingOpen);
    let served: Vec<Dispatched> = std::iter::from_fn(|| admission.poll_dispatch(at(25))).collect();
    assert_eq!(served.iter().map(|next| next.ticket).take(5).collect::<Vec<_>>(), tickets);
    assert!(served.len() == 6 && served.iter().all(|next| next.instance == woken.instance));
    assert_eq!((named(&mut admission, 25), admission.poll_wake_timeout(at(25))), (None, None));
    let (cluster, ..) = counters(&mut admission, 25);
    assert_eq!((cluster.wakes, cluster.crowd_wakes, cluster.wake_failures), (1, 0, 0));
    assert_eq!((cluster.wake_wait.count(), cluster.wake_wait.mean_s().map(|mean| (mean * 1e3).round())), (1, Some(20.0)));
}

#[test]
fn refusals_in_a_row_make_longer_pauses_and_a_success_forgets_them() {
    let mut admission = admission(&config(None, &[]));
    arrive(&mut admission, 0);
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..8 {
        assert_eq!(named(&mut admission, now), Some(Vec::new()));
        admission.handle_wake_refused(at(now));
        let until = admission.poll_wake_timeout(at(now)).unwrap();
        let pause = until.since(at(now)).as_millis() as u64;
        assert_eq!(named(&mut admission, now + pause - 1), None);
        pauses.push(pause);
        now += pause;
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000]);
    assert!(admission.poll_wake(at(now)).is_some());
    admission.handle_woken(at(now), &"shop-7".into()).unwrap();
    admission.handle_config(at(now), &config(None, &[]));
    assert!(admission.poll_wake(at(now)).is_some(), "it is gone again");
    admission.handle_wake_refused(at(now));
    assert_eq!(admission.poll_wake_timeout(at(now)), Some(at(now + 20)));
    assert_eq!(counters(&mut admission, now).0.wake_failures, 9);
}

#[test]
fn refusals_are_forgotten_when_nobody_waits_any_more() {
    let mut admission = admission(&config(None, &[]));
    let ticket = arrive(&mut admission, 0);
    for now in [0, 20] {
        assert!(admission.poll_wake(at(now)).is_some());
        admission.handle_wake_refused(at(now));
    }
    admission.handle_cancel(at(30), ticket);
    assert_eq!(
        admission.poll_wake_timeout(at(30)),
        Some(at(60)),
        "the pause lasts, so that who comes and goes brings no more calls"
    );
    assert_eq!((named(&mut admission, 60), admission.poll_wake_timeout(at(60))), (None, None));
    arrive(&mut admission, 70);
    assert!(admission.poll_wake(at(70)).is_some());
    admission.handle_wake_refused(at(70));
    assert_eq!(admission.poll_wake_timeout(at(70)), Some(at(90)));
}

#[test]
fn a_config_ends_a_pause_and_makes_a_refusal_that_was_on_its_way_outdated() {
    let mut admission = admission(&config(None, &[]));
    arrive(&mut admission, 0);
    assert!(admission.poll_wake(at(0)).is_some());
    admission.handle_wake_refused(at(0));
    admission.handle_config(at(1), &config(None, &[]));
    assert!(admission.poll_wake(at(1)).is_some());
    admission.handle_config(at(2), &config(None, &[]));
    admission.handle_wake_refused(at(3));
    assert!(admission.poll_wake(at(3)).is_some());
}

#[test]
fn only_what_may_be_woken_is_asked_for_and_used() {
    let mut stopping = config(None, &[]);
    stopping.wakeable = Some(Vec::new());
    let mut admission = admission(&stopping);
    arrive(&mut admission, 0);
    assert_eq!((named(&mut admission, 0), admission.poll_wake_timeout(at(0))), (None, None), "the next config brings one");
    stopping.wakeable = Some(vec!["shop-7".into()]);
    admission.handle_config(at(1), &stopping);
    assert_eq!(named(&mut admission, 1), Some(vec!["shop-7".to_owned()]));
    stopping.wakeable = Some(vec!["shop-8".into()]);
    admission.handle_config(at(2), &stopping);
    assert_eq!(admission.handle_woken(at(3), &"shop-7".into()), None, "it is about to be stopped");
    assert_eq!((admission.any_open(), counters(&mut admission, 3).0.wake_failures), (false, 1));
    assert_eq!(named(&mut admission, 3), Some(vec!["shop-8".to_owned()]));
}

/// One open instance with `seats`, and those that stand by for who has waited for 100 ms.
fn crowded(seats: u32, standby: &[&str]) -> ClusterConfig {
    let standby = Standby { after_s: 0.1, instances: standby.iter().map(|&id| id.into()).collect() };
    ClusterConfig { standby: Some(standby), ..config(Some(seats), &[1]) }
}

#[test]
fn a_crowd_wakes_one_that_stands_by_after_its_wait_and_brings_its_seats() {
    let mut admission = admission(&crowded(1, &["shop-2"]));
    for _ in 0..3 {
        arrive(&mut admission, 0);
    }
    admission.poll_dispatch(at(0)).unwrap();
    assert_eq!(named(&mut admission, 99), None);
    assert_eq!(admission.poll_wake_timeout(at(0)), Some(at(200)), "when nothing comes or ends, a little later");
    assert_eq!(named(&mut admission, 100), Some(vec!["shop-2".to_owned()]));
    let woken = admission.handle_woken(at(110), &"shop-2".into()).unwrap();
    assert_eq!(woken.reason, WakeReason::Crowd);
    assert_eq!(admission.poll_dispatch(at(110)).map(|next| next.instance), Some(woken.instance));
    assert_eq!(
        (admission.poll_dispatch(at(110)), admission.crowd(admission.class(&"gold".into()).unwrap()).seats),
        (None, Some(2))
    );
    let (cluster, ..) = counters(&mut admission, 110);
    assert_eq!((cluster.wakes, cluster.crowd_wakes, cluster.wake_wait.count()), (1, 1, 0));
    assert_eq!((named(&mut admission, 9000), admission.poll_wake_timeout(at(9000))), (None, None), "nobody else stands by");
}

#[test]
fn a_crowds_refused_wake_is_asked_for_again_a_second_later() {
    let mut admission = admission(&crowded(1, &["shop-2"]));
    for _ in 0..2 {
        arrive(&mut admission, 0);
    }
    admission.poll_dispatch(at(0)).unwrap();
    assert!(admission.poll_wake(at(150)).is_some());
    admission.handle_wake_refused(at(160));
    let mut now = at(160);
    while admission.poll_wake(now).is_none() {
        now = admission.poll_wake_timeout(now).unwrap();
    }
    assert_eq!(now, at(1160));
}

#[test]
fn when_the_last_open_instance_goes_while_a_crowd_waits_any_will_do() {
    let mut admission = admission(&crowded(1, &["shop-2"]));
    for _ in 0..2 {
        arrive(&mut admission, 0);
    }
    admission.poll_dispatch(at(0)).unwrap();
    assert_eq!(named(&mut admission, 1), None);
    admission.handle_config(at(2), &config(Some(1), &[]));
    assert_eq!(named(&mut admission, 2), Some(Vec::new()));
}

#[test]
fn requests_in_service_end_when_their_instance_has_left_the_config() {
    let mut admission = admission(&config(Some(1), &[1]));
    let ticket = arrive(&mut admission, 0);
    let before = admission.poll_dispatch(at(0)).unwrap().instance;
    admission.handle_config(at(1), &config(Some(1), &[2]));
    assert_eq!(admission.instance_of(ticket), Some(before));
    assert!(admission.handle_end(at(2), ticket, Abandoned, RequestOutcome::Failed));
    assert_eq!((admission.find(&"shop-1".into()), counters(&mut admission, 2).2.len()), (None, 1));
}

#[test]
fn nobody_waits_for_an_application_that_cannot_start() {
    let mut broken = config(None, &[]);
    let mut admission = admission(&broken);
    let waiting = arrive(&mut admission, 0);
    broken.unavailable = Some(Unavailable::CannotStart);
    admission.handle_config(at(1), &broken);
    assert_eq!(admission.handle_timeout(at(1)), [waiting], "what waits ends");
    let class = admission.class(&"gold".into()).unwrap();
    assert_eq!(admission.handle_arrival(at(2), class), Err(Rejection::Unavailable(Unavailable::CannotStart)));
    let (mut flows, mut instances) = (Vec::new(), Vec::new());
    admission.observe(at(2), &"gw".into(), &mut flows, &mut instances);
    assert_eq!((flows[0].arrivals, flows[0].rejections, flows[0].queued), (2, 2, 0), "the controller sees that it is wanted");
    let mut mended = config(None, &[1]);
    mended.unavailable = Some(Unavailable::CannotStart);
    admission.handle_config(at(3), &mended);
    assert!(admission.handle_arrival(at(3), class).is_ok(), "an instance that is open counts more");
}

#[test]
fn requests_whose_bodies_are_still_to_come_hold_half_of_the_seats() {
    let mut admission = admission(&config(Some(5), &[1]));
    let taken = |admission: &mut Admission| [false; 4].map(|has_flowed| admission.handle_upload(has_flowed));
    assert_eq!(taken(&mut admission), [true, true, false, false]);
    assert!(!admission.handle_upload(true));
    admission.handle_upload_end();
    assert!(admission.handle_upload(true) && !admission.handle_upload(true));
    admission.handle_config(at(1), &config(Some(1), &[1]));
    (0..2).for_each(|_| admission.handle_upload_end());
    assert!(!admission.handle_upload(false), "a single seat is for what is there");
    assert!(admission.handle_upload(true), "but no body is kept out for ever");
    admission.handle_config(at(2), &config(None, &[1]));
    assert_eq!(taken(&mut admission), [true; 4], "no seats, no limit");
}
