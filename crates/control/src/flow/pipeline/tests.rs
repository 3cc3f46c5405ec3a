use proptest::prelude::*;

use super::*;

const FAR: Time = Time(u64::MAX);

fn limits(seats: Option<u32>, classes: &[(&str, f64, u32)]) -> PipelineLimits {
    let limits = |weight, queue_limit| ClassLimits { weight, size: 1.0, queue_limit };
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
