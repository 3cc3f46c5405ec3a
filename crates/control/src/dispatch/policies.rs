//! What each policy promises.

use std::collections::BTreeMap;

use weal_model::NameHash;

use super::lard::{MOST_NAMES, SHRINKS_AFTER};
use super::*;

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn candidates(numbers: &[usize]) -> Vec<Candidate> {
    let candidate = |number: &usize| Candidate { instance: format!("a-{number}").as_str().into(), weight: 1.0, draining: false };
    numbers.iter().map(candidate).collect()
}

fn dispatcher(policy: DispatchPolicy, replication: u32, numbers: &[usize]) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(7);
    dispatcher.set_rules(&DispatchRules { policy, replication, ..DispatchRules::default() }, None);
    dispatcher.configure(at(0), &candidates(numbers));
    dispatcher
}

fn named(name: u64) -> RequestKey {
    RequestKey { name: Some(name), prefers: None }
}

fn url(number: usize) -> u64 {
    locality::hash_of(NameHash::Fnv, format!("/images/{number}.jpg").as_bytes())
}

fn name_of(dispatcher: &Dispatcher, index: InstanceIndex) -> String {
    dispatcher.slots[index.slot()].as_ref().unwrap().id.to_string()
}

/// One request that ends at once: where it went.
fn served_by(dispatcher: &mut Dispatcher, now: Time, key: RequestKey) -> String {
    let index = dispatcher.handle_dispatch(now, key, &[]).unwrap();
    dispatcher.handle_end(now, index, Attempt::Answered);
    name_of(dispatcher, index)
}

/// For each part of the name space, who may serve it: found by holding requests of one name until all of its subset are busy.
fn subsets(dispatcher: &mut Dispatcher, parts: u64, replication: usize) -> Vec<Vec<String>> {
    let subset = |part: u64| {
        let name = (u64::MAX / parts) * part + u64::MAX / parts / 2;
        let held: Vec<_> = (0..replication).map(|_| dispatcher.handle_dispatch(at(0), named(name), &[]).unwrap()).collect();
        let mut names: Vec<_> = held.iter().map(|&index| name_of(dispatcher, index)).collect();
        held.into_iter().for_each(|index| dispatcher.handle_end(at(0), index, Attempt::Abandoned));
        names.sort();
        names
    };
    (0..parts).map(subset).collect()
}

/// Tsai 4.3.3: of the `R N` pairs of a part and a server, the `R` of the failed server move, and no others.
#[test]
fn exactly_one_nth_of_the_pairs_moves_when_an_instance_fails() {
    for (n, r) in [(4, 1), (4, 2), (10, 1), (10, 3)] {
        let all: Vec<usize> = (0..n).collect();
        for failed in 0..n {
            let mut dispatcher = dispatcher(DispatchPolicy::UrlHash, r, &all);
            let before = subsets(&mut dispatcher, n as u64, r as usize);
            let rest: Vec<usize> = all.iter().copied().filter(|&number| number != failed).collect();
            dispatcher.configure(at(1), &candidates(&rest));
            let after = subsets(&mut dispatcher, n as u64, r as usize);
            let kept: usize =
                before.iter().zip(&after).map(|(was, is)| was.iter().filter(|name| is.contains(name)).count()).sum();
            assert_eq!(n * r as usize - kept, r as usize, "N = {n}, R = {r}, without {failed}");
            dispatcher.configure(at(2), &candidates(&all));
            assert_eq!(subsets(&mut dispatcher, n as u64, r as usize), before, "what was moved comes back");
        }
    }
}

#[test]
fn a_marked_instance_is_skipped_like_a_failed_one_and_a_new_one_takes_the_place_of_one_that_is_gone() {
    let mut dispatcher = dispatcher(DispatchPolicy::UrlHash, 1, &[0, 1, 2, 3]);
    let names: Vec<u64> = (0..400).map(url).collect();
    let before: Vec<String> = names.iter().map(|&name| served_by(&mut dispatcher, at(0), named(name))).collect();
    let bad = dispatcher.find(&"a-2".into()).unwrap();
    let of_bad = names[before.iter().position(|name| name == "a-2").unwrap()];
    assert_eq!(dispatcher.handle_dispatch(at(0), named(of_bad), &[]), Some(bad));
    dispatcher.handle_end(at(0), bad, Attempt::Refused);
    for (&name, was) in names.iter().zip(&before) {
        let is = served_by(&mut dispatcher, at(1), named(name));
        assert_eq!(&is, if was == "a-2" { "a-3" } else { was });
    }
    dispatcher.configure(at(2), &candidates(&[0, 1, 3]));
    dispatcher.configure(at(3), &candidates(&[0, 1, 3, 9]));
    for (&name, was) in names.iter().zip(&before) {
        let is = served_by(&mut dispatcher, at(4), named(name));
        assert_eq!(&is, if was == "a-2" { "a-9" } else { was });
    }
}

#[test]
fn sums_of_characters_are_taken_modulo_the_instances() {
    let mut dispatcher = Dispatcher::new(1);
    let rules =
        DispatchRules { policy: DispatchPolicy::UrlHash, replication: 1, hash: NameHash::Charsum, ..DispatchRules::default() };
    dispatcher.set_rules(&rules, None);
    dispatcher.configure(at(0), &candidates(&[0, 1, 2, 3]));
    for name in ["/a", "/b", "/index.html"] {
        let sum: u64 = name.bytes().map(u64::from).sum();
        let key = named(locality::hash_of(NameHash::Charsum, name.as_bytes()));
        assert_eq!(served_by(&mut dispatcher, at(0), key), format!("a-{}", sum % 4));
    }
}

#[test]
fn names_are_spread_evenly() {
    let mut counts = [0u32; 10];
    (0..10_000).for_each(|number| counts[locality::part_of(NameHash::Fnv, url(number), 10)] += 1);
    assert!(counts.iter().all(|count| (880..1120).contains(count)), "{counts:?}");
}

#[test]
fn lard_keeps_a_name_where_it_is_until_that_instance_is_overloaded() {
    let mut dispatcher = dispatcher(DispatchPolicy::Lard, 1, &[0, 1, 2]);
    dispatcher.set_rules(&dispatcher.rules.clone(), Some(20));
    // 20 seats: T_high = 21 / (2 + 25/65) = 8.8, T_low = 3.4.
    let home = served_by(&mut dispatcher, at(0), named(1));
    let held: Vec<String> = (0..9)
        .map(|_| dispatcher.handle_dispatch(at(0), named(1), &[]).map(|index| name_of(&dispatcher, index)).unwrap())
        .collect();
    assert!(held.iter().all(|name| *name == home), "{held:?}");
    let moved = dispatcher.handle_dispatch(at(0), named(1), &[]).unwrap();
    assert_ne!(name_of(&dispatcher, moved), home, "nine are more than 8.8, and others have none");
    assert_eq!(dispatcher.handle_dispatch(at(0), named(1), &[]), Some(moved), "it stays where it moved to");
}

/// Tsai 4.3.2: an instance that died finds nothing in its cache when it is back, so it counts as a new one.
#[test]
fn lards_entries_of_an_instance_that_died_are_void_when_it_is_back() {
    let mut dispatcher = dispatcher(DispatchPolicy::Lard, 1, &[0, 1, 2]);
    let homes: BTreeMap<u64, String> = (0..300).map(|name| (name, served_by(&mut dispatcher, at(0), named(name)))).collect();
    let of_bad: Vec<u64> = homes.iter().filter(|(_, home)| *home == "a-1").map(|(&name, _)| name).collect();
    assert!(of_bad.len() > 50, "{homes:?}");
    let bad = dispatcher.handle_dispatch(at(1), named(of_bad[0]), &[]).unwrap();
    dispatcher.handle_end(at(1), bad, Attempt::Refused);
    for &name in &of_bad[..of_bad.len() / 2] {
        assert_ne!(served_by(&mut dispatcher, at(2), named(name)), "a-1", "it is out");
    }
    // Back: its probation ends with an answer.
    let probe = RequestKey { name: None, prefers: Some(bad) };
    assert_eq!(served_by(&mut dispatcher, at(600), probe), "a-1");
    for &name in &of_bad[..of_bad.len() / 2] {
        assert_ne!(served_by(&mut dispatcher, at(601), named(name)), "a-1", "what moved while it was out stays where it is");
    }
    let looked_up: Vec<String> =
        of_bad[of_bad.len() / 2..].iter().map(|&name| served_by(&mut dispatcher, at(602), named(name))).collect();
    assert!(looked_up.iter().any(|home| home != "a-1"), "its old entries are void: {looked_up:?}");
    for (name, home) in homes.iter().filter(|(_, home)| *home != "a-1") {
        assert_eq!(&served_by(&mut dispatcher, at(603), named(*name)), home, "nothing else has moved");
    }
}

#[test]
fn a_set_of_replicas_grows_with_the_load_and_shrinks_when_it_is_gone() {
    let mut dispatcher = dispatcher(DispatchPolicy::LardR, 3, &[0, 1, 2, 3]);
    dispatcher.set_rules(&dispatcher.rules.clone(), Some(12));
    // T_high = 13 / (3 + 25/65) = 3.8.
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(dispatcher.handle_dispatch(at(0), named(1), &[]).unwrap());
        assert!(dispatcher.table.servers_of(1) <= 3, "{held:?}");
    }
    assert_eq!(dispatcher.table.servers_of(1), 3, "at most three serve one name at a time");
    held.into_iter().for_each(|index| dispatcher.handle_end(at(1), index, Attempt::Answered));
    let later = at(2) + SHRINKS_AFTER;
    let mut homes: Vec<String> =
        (0..3).map(|turn| served_by(&mut dispatcher, later + SHRINKS_AFTER * 2 * turn, named(1))).collect();
    homes.drain(..2);
    for _ in 0..9 {
        homes.push(served_by(&mut dispatcher, later + SHRINKS_AFTER * 7, named(1)));
    }
    homes.dedup();
    assert_eq!(homes.len(), 1, "one is enough again: {homes:?}");
}

#[test]
fn the_table_of_names_is_bounded_and_keeps_what_is_asked_for() {
    let mut dispatcher = dispatcher(DispatchPolicy::Lard, 1, &[0, 1, 2]);
    let home = served_by(&mut dispatcher, at(0), named(u64::MAX));
    for name in 0..3 * MOST_NAMES as u64 {
        served_by(&mut dispatcher, at(1), named(name));
        if name % 1000 == 0 {
            assert_eq!(served_by(&mut dispatcher, at(1), named(u64::MAX)), home);
        }
    }
    assert!(dispatcher.table.names() <= MOST_NAMES);
}

#[test]
fn bounded_loads_keep_names_together_and_every_load_near_the_mean() {
    let mut dispatcher = dispatcher(DispatchPolicy::BoundedLoad, 1, &[0, 1, 2, 3, 4]);
    let home = served_by(&mut dispatcher, at(0), named(url(1)));
    assert_eq!(served_by(&mut dispatcher, at(0), named(url(1))), home);
    for count in 1..=200u32 {
        // All ask for the same.
        dispatcher.handle_dispatch(at(0), named(url(1)), &[]).unwrap();
        let most = dispatcher.counts().map(|counts| counts.outstanding).max().unwrap();
        assert!(f64::from(most) <= (MOST_OVER_MEAN * f64::from(count) / 5.0).ceil(), "{most} of {count}");
    }
}

#[test]
fn round_robin_takes_turns_whatever_is_outstanding() {
    let mut dispatcher = dispatcher(DispatchPolicy::RoundRobin, 1, &[0, 1, 2]);
    dispatcher.handle_dispatch(at(0), RequestKey::default(), &[]).unwrap();
    let order: Vec<String> = (0..6).map(|_| served_by(&mut dispatcher, at(0), RequestKey::default())).collect();
    assert_eq!(order, ["a-1", "a-2", "a-0", "a-1", "a-2", "a-0"]);
}

#[test]
fn a_session_stays_with_its_instance_while_that_takes_requests() {
    let mut dispatcher = dispatcher(DispatchPolicy::LeastLoaded, 1, &[0, 1, 2]);
    let home = dispatcher.find(&"a-1".into()).unwrap();
    let session = RequestKey { name: None, prefers: Some(home) };
    for _ in 0..20 {
        assert_eq!(dispatcher.handle_dispatch(at(0), session, &[]), Some(home), "whatever its load is");
    }
    dispatcher.handle_end(at(0), home, Attempt::Refused);
    assert_ne!(dispatcher.handle_dispatch(at(1), session, &[]), Some(home), "it is out");
    assert_ne!(dispatcher.handle_dispatch(at(700), session, &[home]), Some(home), "it has failed this very request");
}

#[test]
fn every_policy_finds_an_instance_while_one_is_left_and_none_after_that() {
    for policy in DispatchPolicy::ALL {
        for key in [RequestKey::default(), named(url(3))] {
            let mut dispatcher = dispatcher(policy, 2, &[0, 1, 2]);
            let mut failed = Vec::new();
            for _ in 0..3 {
                let index = dispatcher.handle_dispatch(at(0), key, &failed).unwrap_or_else(|| panic!("{policy:?}"));
                assert!(!failed.contains(&index), "{policy:?}");
                dispatcher.handle_end(at(0), index, Attempt::Refused);
                failed.push(index);
            }
            assert_eq!(dispatcher.handle_dispatch(at(0), key, &failed), None, "{policy:?}");
            dispatcher.configure(at(1), &[]);
            assert_eq!(dispatcher.handle_dispatch(at(1), key, &[]), None, "{policy:?}");
        }
    }
}
