//! Where an instance belongs that had no request lately: awake, asleep on some rung, or ended.
//!
//! # Derivation
//!
//! Place `i` costs `f_i` seconds to go there and to come back when a request comes, and `r_i` seconds of waiting per second of
//! staying: its rent, the share of its node that it keeps from others there. An idle time of `t` seconds, spent at `i`, costs
//!
//! ```text
//! c_i(t) = f_i + r_i t
//! ```
//!
//! and a plan that knew `t` beforehand would pay `OPT(t) = min_i c_i(t)`. No plan knows it. What is known is that no request came for `t`
//! seconds, of which the natural estimate is that the next one comes at the rate `1 / t`: the chance that it comes within the next
//! second, times what it would wait for, plus a second's rent, is `f_i / t + r_i`. The place where that is least is the one where
//! `c_i(t)` is least. So the instance stands on the lower envelope: at each moment where it would have been best to be all along.
//!
//! That is never worse than twice the best in hindsight (Irani, Shukla, Gupta 2003): the rents along the envelope sum up to
//! `OPT(t) - OPT(0)`, and coming back from where it ends costs at most `OPT(t)`.

use weal_model::{Enactment, Rung, RungCost};

use crate::placement::policy::Policy;
use crate::placement::problem::translate::Translation;

/// An instance is never taken for idle sooner, however large it is: two requests of one visitor lie further apart.
pub(super) const SHORTEST_IDLE_S: f64 = 15.0;
/// What being awake uses at least, in cores: it answers health checks.
const AWAKE_CPU: f64 = 0.001;
/// The rent of memory that nobody else wants, relative to that of a node that is full. 0 would keep idle instances awake for ever
/// in an empty pool; much more would put them to sleep for nobody's good.
const LEAST_PRICE: f64 = 0.05;

/// Where an instance can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::placement) enum Place {
    /// Takes requests.
    Awake,
    /// Stands by.
    Asleep(Rung),
    /// Is no more.
    Ended,
}

/// A place with its price.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stand {
    place: Place,
    /// `f`: seconds to go there and to come back.
    fixed_s: f64,
    /// `r`: seconds of waiting per second.
    rent: f64,
}

/// The places of one application on one node.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::placement) struct Ladder {
    /// From awake to the deepest. Invariant: begins with [`Place::Awake`].
    stands: Vec<Stand>,
    /// Awake until then, asleep from then on, whatever it costs.
    asleep_after_s: Option<f64>,
}

impl Ladder {
    /// The places of `m` on `n` under this policy.
    pub fn of(translation: &Translation, policy: &Policy, m: u32, n: u32) -> Self {
        let (spec, node) = (translation.apps[m as usize], &translation.problem.nodes[n as usize]);
        let costs = policy.costs.get(&spec.name).copied().unwrap_or_default();
        let memory = |bytes: u64| bytes as f64 / node.memory.max(1) as f64;
        let price = translation.taken(n).max(LEAST_PRICE);
        let here = translation.active.get(&(m, n)).into_iter().flatten();
        let cpu = here.filter_map(|instance| instance.cpu_used).map(|cpu| cpu.0).filter(|cpu| cpu.is_finite());
        let cpu = cpu.fold(AWAKE_CPU, f64::max) / node.cpu.max(1e-3);
        let mut stands = vec![Stand { place: Place::Awake, fixed_s: 0.0, rent: price * (memory(spec.memory.0) + cpu) }];
        let enactment = policy.pool.enactment;
        stands.extend(policy.rungs(&spec.name).map(|rung| {
            let Known { sleep_s, wake_s, held } = known(costs.sleep.of(rung), rung, spec.memory.0);
            Stand { place: Place::Asleep(rung), fixed_s: sleep_s + wake_s, rent: price * memory(held) }
        }));
        if enactment == Enactment::StartStop {
            stands.push(Stand { place: Place::Ended, fixed_s: costs.start_s + costs.remove_s, rent: 0.0 });
        }
        Self { stands, asleep_after_s: spec.sleep_after_s }
    }

    /// Where to be after `idle_s` seconds without a request.
    pub fn at(&self, idle_s: f64) -> Place {
        let awake = idle_s < self.asleep_after_s.unwrap_or(SHORTEST_IDLE_S) || idle_s.is_nan();
        if awake {
            return Place::Awake;
        }
        self.cheapest(idle_s, self.asleep_after_s.is_some()).unwrap_or(Place::Awake)
    }

    /// Where to stand by after `idle_s` seconds: as [`Ladder::at`], but not awake.
    pub fn asleep_at(&self, idle_s: f64) -> Option<Place> {
        self.cheapest(idle_s.max(0.0), true)
    }

    /// Idle seconds from which `place` is no worse than all that is lighter.
    pub fn begins(&self, place: Place) -> f64 {
        let Some(own) = self.stands.iter().find(|stand| stand.place == place) else { return 0.0 };
        let lighter = self.stands.iter().filter(|stand| stand.place < place && stand.rent > own.rent);
        let crossings = lighter.map(|other| (own.fixed_s - other.fixed_s) / (other.rent - own.rent));
        crossings.fold(0.0, f64::max)
    }

    fn cheapest(&self, idle_s: f64, not_awake: bool) -> Option<Place> {
        let stands = self.stands.iter().filter(|stand| !(not_awake && stand.place == Place::Awake));
        let cost = |stand: &Stand| stand.fixed_s + stand.rent * idle_s.min(1e12);
        stands.min_by(|a, b| cost(a).total_cmp(&cost(b)).then(a.place.cmp(&b.place))).map(|stand| stand.place)
    }
}

/// A rung's costs, measured or guessed.
struct Known {
    sleep_s: f64,
    wake_s: f64,
    held: u64,
}

/// Guesses, until it was measured, go by the memory of an instance: paging 340 MB out took 0.4 s, back in (what is used of it)
/// 0.04 s, and its working set was a twentieth.
fn known(measured: &RungCost, rung: Rung, memory: u64) -> Known {
    let gib = memory as f64 / (1u64 << 30) as f64;
    let (sleep_s, wake_s, held) = match rung {
        Rung::Suspended => (0.002, 0.003, memory),
        Rung::Warm => (1.2 * gib, 0.006, memory / 20),
        Rung::Parked => (1.2 * gib, 0.01 + 0.12 * gib, memory / 100),
    };
    let sane = |measured: Option<f64>, guess: f64| measured.filter(|seconds| seconds.is_finite()).unwrap_or(guess).max(0.0);
    Known {
        sleep_s: sane(measured.sleep_s, sleep_s),
        wake_s: sane(measured.wake_s, wake_s),
        held: measured.memory.map_or(held, |bytes| bytes.0).min(memory),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ladder(costs: &[(f64, f64)]) -> Ladder {
        let places =
            [Place::Awake, Place::Asleep(Rung::Suspended), Place::Asleep(Rung::Warm), Place::Asleep(Rung::Parked), Place::Ended];
        let stands = places.into_iter().zip(costs).map(|(place, &(fixed_s, rent))| Stand { place, fixed_s, rent });
        Ladder { stands: stands.collect(), asleep_after_s: None }
    }

    #[test]
    fn the_longer_nobody_asks_the_deeper_it_stands() {
        // A 340 MB server on a full node of 4 GB, by the measurements of issue 5.
        let ladder = ladder(&[(0.0, 0.088), (0.005, 0.083), (0.41, 0.0045), (0.44, 0.0003)]);
        let places: Vec<Place> = [1.0, 14.9, 15.0, 100.0, 1e9].map(|idle_s| ladder.at(idle_s)).into();
        let (warm, parked) = (Place::Asleep(Rung::Warm), Place::Asleep(Rung::Parked));
        assert_eq!(places, [Place::Awake, Place::Awake, parked, parked, parked]);
        assert_eq!([5.3, 7.0, 8.0].map(|idle_s| ladder.asleep_at(idle_s).unwrap()), [warm, warm, parked]);
        assert_eq!(ladder.asleep_at(0.0), Some(Place::Asleep(Rung::Suspended)), "nothing is paged out for a pause");
        assert!((ladder.begins(warm) - 5.16).abs() < 0.01, "{}", ladder.begins(warm));
        assert_eq!(ladder.at(f64::NAN), Place::Awake);
    }

    #[test]
    fn who_says_when_is_believed() {
        let ladder = Ladder { asleep_after_s: Some(2.0), ..ladder(&[(0.0, 1e-9), (0.005, 1e-9), (10.0, 0.0)]) };
        assert_eq!(ladder.at(1.9), Place::Awake);
        assert_eq!(ladder.at(2.0), Place::Asleep(Rung::Suspended));
    }

    proptest! {
        /// The envelope's promise, summed up over small steps of idle time.
        #[test]
        fn no_idle_time_costs_more_than_twice_what_it_would_have_in_hindsight(
            costs in prop::collection::vec((0.0..10.0f64, 0.0..1.0f64), 1..5),
            idle_s in 0.0..200.0f64,
        ) {
            let mut costs = costs;
            costs[0].0 = 0.0;
            let ladder = ladder(&costs);
            let stand = |idle_s: f64| {
                let place = ladder.cheapest(idle_s, false).unwrap();
                *ladder.stands.iter().find(|stand| stand.place == place).unwrap()
            };
            let steps = 4000;
            let step = idle_s / f64::from(steps);
            let rents: f64 = (0..steps).map(|i| stand((f64::from(i) + 0.5) * step).rent * step).sum();
            let paid = rents + stand(idle_s).fixed_s;
            let best = costs.iter().map(|(fixed_s, rent)| fixed_s + rent * idle_s).fold(f64::INFINITY, f64::min);
            prop_assert!(paid <= 2.0 * best + 1e-3, "paid {paid}, best {best}");
        }

        #[test]
        fn it_only_ever_goes_deeper_where_deeper_is_cheaper_to_stay(
            costs in prop::collection::vec((0.0..10.0f64, 0.0..1.0f64), 5),
        ) {
            let mut costs = costs;
            costs.sort_by(|a, b| b.1.total_cmp(&a.1));
            let ladder = ladder(&costs);
            let places: Vec<Place> = (0..400).map(|i| ladder.cheapest(f64::from(i), false).unwrap()).collect();
            prop_assert!(places.is_sorted(), "{places:?}");
        }
    }
}
