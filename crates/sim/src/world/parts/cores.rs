//! The cores of one machine whose slices are the nodes: shared among the slices by their sizes, as they are busy now.
//!
//! The kernel does not use them perfectly. A request reaches the thread that works on it over several others (the gateway's, the one that takes
//! connections), which have run one after the other on the core that was idle until then; when all others compute, the kernel often puts it on
//! one of those, which it shares, and moves it to the idle one some ticks later. Who goes on after a call to another application is woken by one
//! that sleeps at once, and is put on the idle core. How long it takes is the mean of 121 such moves on two cores with Linux 6.18. How often it
//! happens depends on how a request reaches its thread: a trace of an earlier gateway had 0.74. The figure below is what the response times of
//! three slices under a steady load show, before anything is compared with them (`docs/benchmarks/fidelity.md`).

use rand::RngExt;

use super::processor::{self, Processor};
use weal_rng::{self as random, Rng};

/// How often a request that comes in while one core is idle is put on a busy one.
const BESIDE: f64 = 0.3;
/// How long until it is moved to the idle one, in seconds on average.
const MOVED_S: f64 = 0.0097;

/// The cores, and who is still in whose way.
#[derive(Debug)]
pub struct Cores {
    cores: f64,
    /// Cores that all slices together would have used when last asked.
    wished: f64,
    /// A request has come in since.
    has_arrival: bool,
    /// One core stays idle until then.
    unsettled_until_s: f64,
    chance: Rng,
}

impl Cores {
    pub fn new(cores: u32, seed: u64) -> Self {
        Self {
            cores: f64::from(cores),
            wished: 0.0,
            has_arrival: false,
            unsettled_until_s: 0.0,
            chance: random::stream(seed, "cores"),
        }
    }

    /// A request begins to compute, coming from the gateway.
    pub fn handle_arrival(&mut self) {
        self.has_arrival = true;
    }

    /// Divides them among the slices; which of those can use another number of cores than before.
    pub fn share<'a>(&mut self, now_s: f64, slices: impl Iterator<Item = &'a mut Processor>) -> Vec<usize> {
        let mut slices: Vec<&mut Processor> = slices.collect();
        slices.iter_mut().for_each(|slice| slice.advance(now_s));
        let wishes: Vec<(f64, f64)> = slices.iter().map(|slice| (slice.wish().min(self.cores), slice.size())).collect();
        let usable = self.usable(now_s, wishes.iter().map(|(wish, _)| wish).sum());
        let given = processor::divide(usable, wishes.into_iter());
        let changed = slices.into_iter().zip(given).enumerate().filter_map(|(number, (slice, given))| {
            // Who is idle keeps what it had until it is not.
            (given > 0.0 && slice.set_cores(given)).then_some(number)
        });
        changed.collect()
    }

    /// When they are to be shared anew although nothing has happened.
    pub fn settled_s(&self, now_s: f64) -> Option<f64> {
        (self.unsettled_until_s > now_s).then_some(self.unsettled_until_s)
    }

    fn usable(&mut self, now_s: f64, wished: f64) -> f64 {
        let (busy, has_arrival) = (std::mem::replace(&mut self.wished, wished), std::mem::take(&mut self.has_arrival));
        let one_idle = self.cores - 1.0;
        if wished <= one_idle {
            self.unsettled_until_s = now_s;
        } else if has_arrival && busy == one_idle && busy > 0.0 && self.chance.random_bool(BESIDE) {
            self.unsettled_until_s = now_s + random::exponential(&mut self.chance, MOVED_S);
        }
        if now_s < self.unsettled_until_s { one_idle } else { self.cores }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices_of(sizes: &[f64]) -> Vec<Processor> {
        sizes
            .iter()
            .map(|&size| {
                let mut slice = Processor::slice(size, 2);
                slice.add(0);
                slice
            })
            .collect()
    }

    fn done_by(processor: &mut Processor, now_s: f64) -> Vec<u64> {
        let mut done = Vec::new();
        processor.take_done(now_s, &mut done);
        done
    }

    #[test]
    fn slices_share_them_by_their_sizes() {
        let mut slices = slices_of(&[0.8, 0.8, 0.4]);
        let mut cores = Cores::new(2, 1);
        for (number, slice) in slices.iter_mut().enumerate() {
            assert!(slice.begin(0.0, 0, number as u64, 0.02));
        }
        assert_eq!(cores.share(0.0, slices.iter_mut()), [0, 1, 2]);
        // 20 ms of work.
        assert!(
            slices.iter().zip([0.8, 0.8, 0.4]).all(|(slice, cores)| (slice.next_s() - 0.02 / cores).abs() < 1e-9),
            "{slices:?}"
        );
        assert_eq!(done_by(&mut slices[0], 0.0251), [0], "at 0.8 cores");
        assert_eq!(done_by(&mut slices[1], 0.0251), [1]);
        cores.share(0.0251, slices.iter_mut());
        assert!((slices[2].next_s() - 0.0351).abs() < 1e-4, "half is left, at a whole core: {}", slices[2].next_s());
    }

    #[test]
    fn a_request_that_comes_in_beside_a_running_one_shares_its_core_often_and_for_a_while() {
        let (mut beside, mut spans_s) = (0, 0.0);
        for seed in 0..1_000 {
            let mut cores = Cores::new(2, seed);
            let mut slices = slices_of(&[1.0, 1.0]);
            slices[0].begin(0.0, 0, 1, 0.05);
            cores.share(0.0, slices.iter_mut());
            assert_eq!(cores.settled_s(0.0), None, "alone it has a core");
            slices[1].begin(0.01, 0, 2, 0.05);
            cores.handle_arrival();
            cores.share(0.01, slices.iter_mut());
            if let Some(at_s) = cores.settled_s(0.01) {
                (beside, spans_s) = (beside + 1, spans_s + at_s - 0.01);
                assert!(
                    (slices[0].next_s() - 0.09).abs() < 1e-9,
                    "40 ms of work are left, at half a core: {}",
                    slices[0].next_s()
                );
                cores.share(at_s, slices.iter_mut());
                assert!(slices[0].next_s() < 0.09, "both have a core from then on");
            }
        }
        assert!((beside as f64 / 1_000.0 - BESIDE).abs() < 0.05, "{beside}");
        assert!((spans_s / beside as f64 / MOVED_S - 1.0).abs() < 0.15, "{spans_s}");
    }

    #[test]
    fn what_comes_in_to_an_idle_machine_or_a_full_one_is_not_put_beside_another() {
        for seed in 0..100 {
            let mut cores = Cores::new(2, seed);
            let mut slices = slices_of(&[1.0, 1.0, 1.0]);
            slices[0].begin(0.0, 0, 1, 0.05);
            slices[1].begin(0.0, 0, 1, 0.05);
            cores.handle_arrival();
            cores.share(0.0, slices.iter_mut());
            assert_eq!(cores.settled_s(0.0), None, "both at once have a core each");
            slices[2].begin(0.01, 0, 1, 0.05);
            cores.handle_arrival();
            cores.share(0.01, slices.iter_mut());
            assert_eq!(cores.settled_s(0.01), None, "no core was idle");
        }
    }

    #[test]
    fn who_goes_on_after_a_call_has_the_idle_core() {
        for seed in 0..100 {
            let mut cores = Cores::new(2, seed);
            let mut slices = slices_of(&[1.0, 1.0]);
            for slice in 0..2 {
                slices[slice].begin(0.01 * slice as f64, 0, 1, 0.05);
                cores.share(0.01 * slice as f64, slices.iter_mut());
            }
            assert_eq!(cores.settled_s(0.01), None);
        }
    }
}
