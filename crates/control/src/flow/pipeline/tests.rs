use proptest::prelude::*;
use weal_model::{FlowAllocation, OverloadLimit};

use super::limits::sizes;
use super::*;

const FAR: Time = Time(u64::MAX);

fn limits(seats: Option<u32>, classes: &[(&str, f64, u32)]) -> PipelineLimits {
    let limits = |weight, queue_limit| ClassLimits { weight, queue_limit, ..ClassLimits::default() };
    let classes = classes.iter().map(|&(name, weight, queue_limit)| (name.into(), limits(weight, queue_limit))).collect();
    PipelineLimits { seats, classes }
}

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

#[test]
fn a_class_borrows_the_seats_that_others_leave() {
    let mut pipeline = Pipeline::new(&limits(Some(4), &[("bronze", 1.0, 10), ("gold", 9.0, 10)]));
    let bronze = pipeline.class(&"bronze".into()).unwrap();
    for _ in 0..6 {
        pipeline.handle_arrival(at(0), bronze, FAR).unwrap();
    }
    let dispatched = std::iter::from_fn(|| pipeline.poll_dispatch(at(0))).count();
    assert_eq!((dispatched, pipeline.in_service(), pipeline.queued()), (4, 4, 2));
}

/// Pacifici section 6: "it would surely be an improvement to reckon with power rather than seats".
#[test]
fn by_power_a_borrower_brings_no_more_load_than_was_planned() {
    let flow = |class: &str, seats, seat_power| FlowAllocation {
        id: weal_model::FlowId { gateway: "gw".into(), app: "shop".into(), class: class.into() },
        seats,
        seat_power: weal_model::Cpu(seat_power),
        weight: 1.0,
        allocation: weal_model::Cpu(0.0),
        demand: weal_model::Cpu(0.0),
        predicted: weal_model::Utility::AT_GOAL,
    };
    // Six seats for light requests and two for heavy ones: 6 x 0.1 + 2 x 0.7 = 2 cores.
    let (light, heavy) = (flow("light", 6, 0.1), flow("heavy", 2, 0.7));
    let most_heavy = |limit| {
        let sizes = sizes(limit, &[&heavy, &light]);
        let mut limits = limits(Some(8), &[("heavy", 1.0, 20), ("light", 1.0, 20)]);
        limits.classes.values_mut().zip(sizes).for_each(|(class, size)| class.size = size);
        let mut pipeline = Pipeline::new(&limits);
        let class = pipeline.class(&"heavy".into()).unwrap();
        for _ in 0..20 {
            pipeline.handle_arrival(at(0), class, FAR).unwrap();
        }
        std::iter::from_fn(|| pipeline.poll_dispatch(at(0))).count()
    };
    // 8 x 0.7 = 5.6 cores with seats; 2 x 0.7 = 1.4 of 2 cores by power, since a third would make it 2.1.
    assert_eq!((most_heavy(OverloadLimit::Seats), most_heavy(OverloadLimit::Power)), (8, 2));
    assert_eq!(sizes(OverloadLimit::Power, &[&flow("new", 3, 0.0), &light]), [1.0, 1.0]);
}

#[test]
fn a_request_larger_than_all_seats_goes_alone() {
    let mut limits = limits(Some(2), &[("heavy", 1.0, 20), ("light", 1.0, 20)]);
    limits.classes.get_mut("heavy").unwrap().size = 5.0;
    let mut pipeline = Pipeline::new(&limits);
    let [heavy, light] = ["heavy", "light"].map(|name| pipeline.class(&name.into()).unwrap());
    pipeline.handle_arrival(at(0), light, FAR).unwrap();
    let first = pipeline.poll_dispatch(at(0)).unwrap();
    pipeline.handle_arrival(at(0), heavy, FAR).unwrap();
    pipeline.handle_arrival(at(1), light, FAR).unwrap();
    assert_eq!(pipeline.poll_dispatch(at(1)), None, "nobody passes it while it waits for the others");
    pipeline.handle_completion(at(2), first.ticket, RequestOutcome::Served);
    assert_eq!(pipeline.poll_dispatch(at(2)).unwrap().class, heavy);
    assert_eq!(pipeline.poll_dispatch(at(2)), None);
}

#[test]
fn releases_are_proportional_to_weights_and_fifo_within_a_class() {
    let mut pipeline = Pipeline::new(&limits(Some(1), &[("bronze", 1.0, 1000), ("gold", 3.0, 1000)]));
    let classes = ["bronze", "gold"].map(|name| pipeline.class(&name.into()).unwrap());
    let mut waiting = [VecDeque::new(), VecDeque::new()];
    for _ in 0..400 {
        for (index, &class) in classes.iter().enumerate() {
            waiting[index].push_back(pipeline.handle_arrival(at(0), class, FAR).unwrap());
        }
    }
    let mut released = [0; 2];
    for _ in 0..400 {
        let dispatch = pipeline.poll_dispatch(at(1)).unwrap();
        let index = classes.iter().position(|&class| class == dispatch.class).unwrap();
        assert_eq!(waiting[index].pop_front(), Some(dispatch.ticket));
        released[index] += 1;
        assert!(pipeline.handle_completion(at(1), dispatch.ticket, RequestOutcome::Served));
    }
    assert_eq!(released, [100, 300]);
}

#[test]
fn a_class_that_was_idle_gains_no_credit() {
    let mut pipeline = Pipeline::new(&limits(Some(1), &[("idle", 1.0, 1000), ("busy", 1.0, 1000)]));
    let (idle, busy) = (pipeline.class(&"idle".into()).unwrap(), pipeline.class(&"busy".into()).unwrap());
    for _ in 0..500 {
        pipeline.handle_arrival(at(0), busy, FAR).unwrap();
    }
    let next = |pipeline: &mut Pipeline| {
        let dispatch = pipeline.poll_dispatch(at(0)).unwrap();
        pipeline.handle_completion(at(0), dispatch.ticket, RequestOutcome::Served);
        dispatch.class
    };
    for _ in 0..400 {
        next(&mut pipeline);
    }
    for _ in 0..100 {
        pipeline.handle_arrival(at(0), idle, FAR).unwrap();
    }
    let of_idle = (0..20).filter(|_| next(&mut pipeline) == idle).count();
    assert!((9..=11).contains(&of_idle), "{of_idle} of 20");
}

#[test]
fn a_full_queue_rejects_and_a_free_seat_needs_no_queue() {
    let mut pipeline = Pipeline::new(&limits(Some(1), &[("a", 1.0, 0)]));
    let class = pipeline.class(&"a".into()).unwrap();
    let first = pipeline.handle_arrival(at(0), class, FAR).unwrap();
    assert_eq!(pipeline.poll_dispatch(at(0)).unwrap().ticket, first);
    assert_eq!(pipeline.handle_arrival(at(0), class, FAR), Err(Rejection::QueueFull));
}

#[test]
fn a_request_expires_at_its_deadline_and_not_before() {
    let mut pipeline = Pipeline::new(&limits(Some(0), &[("a", 1.0, 10)]));
    let class = pipeline.class(&"a".into()).unwrap();
    let late = pipeline.handle_arrival(at(0), class, at(20)).unwrap();
    let early = pipeline.handle_arrival(at(0), class, at(10)).unwrap();
    assert_eq!(pipeline.poll_timeout(), Some(at(10)));
    assert!(pipeline.handle_timeout(at(9)).is_empty());
    assert_eq!(pipeline.handle_timeout(at(10)), [early]);
    assert_eq!(pipeline.handle_timeout(at(30)), [late]);
    assert_eq!(pipeline.poll_timeout(), None);
    assert!(!pipeline.handle_cancel(at(30), late), "an expired ticket is void");
}

#[test]
fn lengths_integrate_over_time() {
    let mut pipeline = Pipeline::new(&limits(Some(1), &[("a", 1.0, 10)]));
    let class = pipeline.class(&"a".into()).unwrap();
    let first = pipeline.handle_arrival(at(1000), class, FAR).unwrap();
    pipeline.handle_arrival(at(1000), class, FAR).unwrap();
    pipeline.poll_dispatch(at(1000)).unwrap();
    pipeline.handle_completion(at(3000), first, RequestOutcome::Served);
    let dispatch = pipeline.poll_dispatch(at(3000)).unwrap();
    assert_eq!(dispatch.waited, Duration::from_secs(2));
    let seen = pipeline.observe(at(4500)).next().unwrap();
    assert_eq!((seen.counters.queue_integral_s, seen.counters.in_service_integral_s), (2.0, 3.5));
}

#[test]
fn a_class_that_is_removed_still_serves_those_who_wait() {
    let mut pipeline = Pipeline::new(&limits(Some(0), &[("old", 1.0, 10)]));
    let old = pipeline.class(&"old".into()).unwrap();
    let ticket = pipeline.handle_arrival(at(0), old, FAR).unwrap();
    pipeline.configure(at(1), &limits(Some(1), &[("new", 1.0, 10)]));
    assert_eq!(pipeline.poll_dispatch(at(1)).unwrap().ticket, ticket);
    assert_eq!(pipeline.handle_arrival(at(1), old, FAR), Err(Rejection::QueueFull));
}

/// Clients that send their next request `gap` after each answer, over so many seats: what each class got of all answers.
fn shares(seats: u32, clients: [usize; 2], weights: [f64; 2], length: impl Fn(usize, u64) -> u64, gap_us: u64) -> [f64; 2] {
    let mut pipeline = Pipeline::new(&limits(Some(seats), &[("few", weights[0], 1000), ("many", weights[1], 1000)]));
    let classes = ["few", "many"].map(|name| pipeline.class(&name.into()).unwrap());
    let mut agenda: BTreeSet<(u64, u64, usize, Option<Ticket>)> = BTreeSet::new();
    let mut number = 0;
    for (class, count) in clients.into_iter().enumerate() {
        agenda.extend((0..count as u64).map(|client| (client * 13, client, class, None)));
    }
    let mut answered = [0u64; 2];
    while let Some((us, _, class, ticket)) = agenda.pop_first() {
        if us > 200_000_000 {
            break;
        }
        let now = Time(us * 1000);
        match ticket {
            Some(ticket) => {
                pipeline.handle_completion(now, ticket, RequestOutcome::Served);
                answered[class] += u64::from(us > 1_000_000);
                agenda.insert((us + gap_us, number, class, None));
            }
            None => drop(pipeline.handle_arrival(now, classes[class], FAR).unwrap()),
        }
        while let Some(next) = pipeline.poll_dispatch(now) {
            number += 1;
            agenda.insert((us + length(next.class.at(), number).max(1), number, next.class.at(), Some(next.ticket)));
        }
    }
    let all = (answered[0] + answered[1]) as f64;
    answered.map(|count| count as f64 / all)
}

/// Pacifici section 3: "when fully loaded, the scheduler divides its total throughput among its service classes in proportion to their
/// round-robin weights". Here with 16 clients beside 200 on eight seats, whatever the lengths of requests are.
#[test]
fn few_clients_beside_many_get_the_share_of_their_weight_at_any_mix_of_lengths() {
    // Lengths in microseconds, spread from a tenth to nearly twice of the mean.
    let spread = |mean: u64, number: u64| mean / 10 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % (mean * 9 / 5);
    for weights in [[1.0, 1.0], [3.0, 1.0], [1.0, 3.0]] {
        for (few_us, many_us) in [(10_000, 10_000), (50_000, 5_000), (5_000, 50_000), (2_000, 2_000)] {
            for gap_us in [10, 200] {
                let [few, _] = shares(8, [16, 200], weights, |class, number| spread([few_us, many_us][class], number), gap_us);
                let wanted = weights[0] / (weights[0] + weights[1]);
                assert!(
                    (few / wanted - 1.0).abs() < 0.02,
                    "{few:.3} instead of {wanted:.3}: weights {weights:?}, {few_us} beside {many_us} us, {gap_us} us between"
                );
            }
        }
    }
}

fn with_policy(seats: u32, queue_limit: u32, policy: weal_model::FlowPolicy) -> (Pipeline, ClassIndex) {
    let mut limits = limits(Some(seats), &[("a", 1.0, queue_limit)]);
    limits.classes.get_mut("a").unwrap().policy = policy;
    let pipeline = Pipeline::new(&limits);
    let class = pipeline.class(&"a".into()).unwrap();
    (pipeline, class)
}

#[test]
fn a_request_that_can_no_longer_meet_its_goal_is_dropped_and_one_that_can_is_not() {
    let policy = weal_model::FlowPolicy { drop_after_s: Some(0.1), rate_limit_per_s: None };
    let (mut pipeline, class) = with_policy(1, 10, policy);
    // 20 ms in the seat, and none of them differs: what waits for more than 80 ms is late, once the deviation is known to be small.
    for turn in 0..40 {
        let ticket = pipeline.handle_arrival(at(turn * 20), class, FAR).unwrap();
        assert_eq!(pipeline.poll_dispatch(at(turn * 20)).unwrap().ticket, ticket);
        pipeline.handle_completion(at(turn * 20 + 20), ticket, RequestOutcome::Served);
    }
    let busy = pipeline.handle_arrival(at(1000), class, FAR).unwrap();
    pipeline.poll_dispatch(at(1000)).unwrap();
    let late = pipeline.handle_arrival(at(1000), class, FAR).unwrap();
    let in_time = pipeline.handle_arrival(at(1070), class, FAR).unwrap();
    assert_eq!(pipeline.poll_dropped(at(1079)), None);
    let from = pipeline.poll_wait().unwrap();
    assert!((at(1079)..=at(1080)).contains(&from), "{from:?}");
    assert_eq!(pipeline.poll_dropped(at(1081)), Some(Dropped { ticket: late, reason: DropReason::Late }));
    assert_eq!(pipeline.poll_dropped(at(1081)), None);
    pipeline.handle_completion(at(1100), busy, RequestOutcome::Served);
    assert_eq!(pipeline.poll_dispatch(at(1100)).unwrap().ticket, in_time);
    let seen = pipeline.observe(at(1100)).next().unwrap();
    assert_eq!((seen.counters.rejections, seen.counters.late, seen.counters.arrivals), (1, 1, 43));
}

#[test]
fn nothing_is_dropped_for_a_goal_that_no_request_can_meet() {
    let policy = weal_model::FlowPolicy { drop_after_s: Some(0.1), rate_limit_per_s: None };
    let (mut pipeline, class) = with_policy(1, 10, policy);
    let first = pipeline.handle_arrival(at(0), class, FAR).unwrap();
    pipeline.poll_dispatch(at(0)).unwrap();
    pipeline.handle_completion(at(300), first, RequestOutcome::Served);
    for _ in 0..2 {
        pipeline.handle_arrival(at(300), class, FAR).unwrap();
    }
    assert!(pipeline.poll_dispatch(at(300)).is_some());
    assert_eq!((pipeline.poll_dropped(at(9000)), pipeline.poll_wait()), (None, None));
}

#[test]
fn a_rate_limit_releases_so_many_a_second_and_holds_up_nobody_else() {
    let mut limits = limits(Some(100), &[("limited", 1.0, 1000), ("other", 1.0, 1000)]);
    limits.classes.get_mut("limited").unwrap().policy.rate_limit_per_s = Some(100.0);
    let mut pipeline = Pipeline::new(&limits);
    let [limited, other] = ["limited", "other"].map(|name| pipeline.class(&name.into()).unwrap());
    for _ in 0..500 {
        pipeline.handle_arrival(at(0), limited, FAR).unwrap();
    }
    let mut released = 0u32;
    let mut now = at(0);
    while now < at(2000) {
        while let Some(next) = pipeline.poll_dispatch(now) {
            released += 1;
            pipeline.handle_completion(now, next.ticket, RequestOutcome::Served);
        }
        let ticket = pipeline.handle_arrival(now, other, FAR).unwrap();
        assert_eq!(pipeline.poll_dispatch(now).map(|next| next.ticket), Some(ticket), "a seat is free for it");
        pipeline.handle_completion(now, ticket, RequestOutcome::Served);
        now = pipeline.poll_wait().expect("more wait");
    }
    assert!((200..=203).contains(&released), "{released} in two seconds");
}

#[test]
fn a_session_under_way_goes_before_those_that_begin_and_takes_the_place_of_one() {
    let (mut pipeline, class) = with_policy(1, 3, weal_model::FlowPolicy::default());
    let arrive =
        |pipeline: &mut Pipeline, in_session| pipeline.handle_arrival(at(0), Arrival { in_session, ..class.into() }, FAR);
    let busy = arrive(&mut pipeline, false).unwrap();
    pipeline.poll_dispatch(at(0)).unwrap();
    let begun: Vec<Ticket> = (0..3).map(|_| arrive(&mut pipeline, false).unwrap()).collect();
    let under_way: Vec<Ticket> = (0..2).map(|_| arrive(&mut pipeline, true).unwrap()).collect();
    let displaced: Vec<Dropped> = std::iter::from_fn(|| pipeline.poll_dropped(at(0))).collect();
    assert_eq!(displaced, [begun[2], begun[1]].map(|ticket| Dropped { ticket, reason: DropReason::Displaced }));
    assert_eq!(arrive(&mut pipeline, false), Err(Rejection::QueueFull));
    let mut last = busy;
    let mut order = Vec::new();
    for _ in 0..3 {
        pipeline.handle_completion(at(1), last, RequestOutcome::Served);
        last = pipeline.poll_dispatch(at(1)).unwrap().ticket;
        order.push(last);
    }
    assert_eq!(order, [under_way[0], under_way[1], begun[0]]);
    let seen = pipeline.observe(at(1)).next().unwrap();
    assert_eq!((seen.counters.arrivals, seen.counters.rejections, seen.counters.late), (7, 3, 0));
}

#[test]
fn a_session_that_finds_only_others_of_its_kind_is_refused_like_anybody() {
    let (mut pipeline, class) = with_policy(0, 2, weal_model::FlowPolicy::default());
    let arrive = |pipeline: &mut Pipeline| pipeline.handle_arrival(at(0), Arrival { in_session: true, ..class.into() }, FAR);
    assert!(arrive(&mut pipeline).is_ok() && arrive(&mut pipeline).is_ok());
    assert_eq!(arrive(&mut pipeline), Err(Rejection::QueueFull));
}

#[test]
fn seats_without_a_sign_of_life_hang_after_a_while() {
    let (mut pipeline, class) = with_policy(3, 9, weal_model::FlowPolicy::default());
    let tickets: Vec<Ticket> = (0..3).map(|_| pipeline.handle_arrival(at(0), class, FAR).unwrap()).collect();
    while pipeline.poll_dispatch(at(0)).is_some() {}
    pipeline.handle_sign_of_life(tickets[0]);
    let hanging = |pipeline: &mut Pipeline, now| pipeline.observe(now).next().unwrap().hanging;
    assert_eq!(hanging(&mut pipeline, at(29_999)), 0);
    assert_eq!(hanging(&mut pipeline, at(30_000)), 2);
    pipeline.handle_completion(at(30_001), tickets[1], RequestOutcome::Failed);
    assert_eq!(hanging(&mut pipeline, at(40_000)), 1);
}

#[derive(Debug, Clone)]
enum Step {
    Arrive { class: usize, patience_ms: u64 },
    Complete { which: usize, served: bool },
    Cancel { which: usize },
    Pass { ms: u64 },
    Configure { seats: Option<u32>, weights: [f64; 3], queue_limit: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3usize, 1..500u64).prop_map(|(class, patience_ms)| Step::Arrive { class, patience_ms }),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(which, served)| Step::Complete { which, served }),
        1 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        2 => (0..100u64).prop_map(|ms| Step::Pass { ms }),
        1 => (proptest::option::of(0..6u32), [0.1..50.0, 0.1..50.0, 0.1..50.0], 0..20u32)
            .prop_map(|(seats, weights, queue_limit)| Step::Configure { seats, weights, queue_limit }),
    ];
    proptest::collection::vec(step, 1..300)
}

const NAMES: [&str; 3] = ["a", "b", "c"];

proptest! {
    #[test]
    fn each_request_is_answered_once_within_the_seats_and_no_seat_idles_while_one_waits(steps in steps()) {
        let mut seats = Some(3);
        let mut pipeline = Pipeline::new(&limits(seats, &NAMES.map(|name| (name, 1.0, 10))));
        let (mut now, mut queued, mut in_service, mut ended) = (at(0), BTreeSet::new(), BTreeSet::new(), 0u64);
        let mut accepted = 0u64;
        for step in steps {
            match step {
                Step::Arrive { class, patience_ms } => {
                    let index = pipeline.class(&NAMES[class].into()).unwrap();
                    if let Ok(ticket) = pipeline.handle_arrival(now, index, now + Duration::from_millis(patience_ms)) {
                        prop_assert!(queued.insert(ticket), "a ticket is given once");
                        accepted += 1;
                    }
                }
                Step::Complete { which, served } => {
                    if let Some(&ticket) = in_service.iter().nth(which % in_service.len().max(1)) {
                        let outcome = if served { RequestOutcome::Served } else { RequestOutcome::Failed };
                        prop_assert!(pipeline.handle_completion(now, ticket, outcome));
                        prop_assert!(!pipeline.handle_completion(now, ticket, outcome), "never twice");
                        in_service.remove(&ticket);
                        ended += 1;
                    }
                }
                Step::Cancel { which } => {
                    let all: Vec<Ticket> = queued.iter().chain(&in_service).copied().collect();
                    if let Some(ticket) = all.get(which % all.len().max(1)) {
                        prop_assert!(pipeline.handle_cancel(now, *ticket));
                        prop_assert!(queued.remove(ticket) || in_service.remove(ticket));
                        ended += 1;
                    }
                }
                Step::Pass { ms } => {
                    now = now + Duration::from_millis(ms);
                    for ticket in pipeline.handle_timeout(now) {
                        prop_assert!(queued.remove(&ticket), "only waiting requests expire");
                        ended += 1;
                    }
                }
                Step::Configure { seats: new_seats, weights, queue_limit } => {
                    seats = new_seats;
                    let classes = [0, 1, 2].map(|i| (NAMES[i], weights[i], queue_limit));
                    pipeline.configure(now, &limits(seats, &classes));
                }
            }
            let before = in_service.len();
            while let Some(dispatch) = pipeline.poll_dispatch(now) {
                prop_assert!(queued.remove(&dispatch.ticket), "only waiting requests are dispatched");
                in_service.insert(dispatch.ticket);
            }
            if let Some(seats) = seats {
                prop_assert!(in_service.len() <= before.max(seats as usize), "never above the seats");
            }
            let seat_is_free = seats.is_none_or(|seats| in_service.len() < seats as usize);
            prop_assert!(!seat_is_free || queued.is_empty(), "work conserving");
            prop_assert_eq!((pipeline.queued() as usize, pipeline.in_service() as usize), (queued.len(), in_service.len()));
        }
        prop_assert_eq!(accepted, ended + (queued.len() + in_service.len()) as u64);
        for class in pipeline.observe(now) {
            let c = class.counters;
            let open = u64::from(class.queued + class.in_service);
            prop_assert_eq!(c.arrivals, c.completions + c.rejections + c.errors + open);
        }
    }

    #[test]
    fn proportions_stay_within_the_bound_at_every_moment_while_all_have_requests(
        weights in [0.05..100.0, 0.05..100.0, 0.05..100.0],
        changed in proptest::option::of([0.05..100.0, 0.05..100.0, 0.05..100.0]),
        count in 1..2000usize,
    ) {
        let of = |weights: [f64; 3]| limits(Some(1), &[0, 1, 2].map(|i| (NAMES[i], weights[i], u32::MAX)));
        let mut pipeline = Pipeline::new(&of(weights));
        let classes = NAMES.map(|name| pipeline.class(&name.into()).unwrap());
        let mut weights = weights;
        let mut released = [0u32; 3];
        for class in classes {
            pipeline.handle_arrival(at(0), class, FAR).unwrap();
        }
        for turn in 0..count {
            if let Some(new) = changed.filter(|_| turn == count / 2) {
                pipeline.configure(at(0), &of(new));
                (weights, released) = (new, [0; 3]);
            }
            let dispatch = pipeline.poll_dispatch(at(0)).unwrap();
            pipeline.handle_arrival(at(0), dispatch.class, FAR).unwrap();
            pipeline.handle_completion(at(0), dispatch.ticket, RequestOutcome::Served);
            released[classes.iter().position(|&class| class == dispatch.class).unwrap()] += 1;
            for i in 0..3 {
                for j in 0..i {
                    let apart = (f64::from(released[i]) / weights[i] - f64::from(released[j]) / weights[j]).abs();
                    prop_assert!(apart <= 1.0 / weights[i] + 1.0 / weights[j] + 1e-6, "{released:?} for {weights:?}");
                }
            }
        }
    }

    #[test]
    fn no_class_waits_longer_than_its_weight_allows(heavy in 1.0..200.0f64, light in 0.5..1.0f64) {
        let mut pipeline = Pipeline::new(&limits(Some(1), &[("heavy", heavy, u32::MAX), ("light", light, u32::MAX)]));
        let classes = ["heavy", "light"].map(|name| pipeline.class(&name.into()).unwrap());
        for class in classes {
            pipeline.handle_arrival(at(0), class, FAR).unwrap();
        }
        let mut in_a_row = 0u32;
        for _ in 0..2000 {
            let dispatch = pipeline.poll_dispatch(at(0)).unwrap();
            pipeline.handle_arrival(at(0), dispatch.class, FAR).unwrap();
            pipeline.handle_completion(at(0), dispatch.ticket, RequestOutcome::Served);
            in_a_row = if dispatch.class == classes[0] { in_a_row + 1 } else { 0 };
            prop_assert!(f64::from(in_a_row) <= (heavy / light).ceil() + 1.0);
        }
    }
}

#[test]
fn time_that_clients_take_is_no_service() {
    let mut pipeline = Pipeline::new(&limits(Some(1), &[("gold", 1.0, 10)]));
    let gold = pipeline.class(&"gold".into()).unwrap();
    let ticket = pipeline.handle_arrival(at(0), gold, FAR).unwrap();
    pipeline.handle_client_wait(at(0), ticket, true);
    assert_eq!(pipeline.poll_dispatch(at(100)).unwrap().ticket, ticket, "waiting in the queue is not the client's doing");
    for (ms, waits) in [(100, true), (200, true), (60_100, false), (60_150, false), (60_200, true)] {
        pipeline.handle_client_wait(at(ms), ticket, waits);
    }
    assert_eq!(pipeline.observe(at(90_000)).map(|class| class.hanging).sum::<u32>(), 0);
    assert!(pipeline.handle_completion(at(100_000), ticket, RequestOutcome::Served));
    pipeline.handle_client_wait(at(100_000), ticket, false);
    let class = pipeline.observe(at(101_000)).next().unwrap();
    let near = |seconds: f64, wanted: f64| (seconds - wanted).abs() < 0.01;
    assert!(near(class.counters.in_service_integral_s, 0.1), "{}", class.counters.in_service_integral_s);
    assert!(near(class.counters.service_time.mean_s().unwrap(), 0.1), "{:?}", class.counters.service_time);
    assert!(near(class.counters.response_time.mean_s().unwrap(), 0.2), "{:?}", class.counters.response_time);
}
