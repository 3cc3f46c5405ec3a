//! One independent stream of random numbers per purpose, from one seed.
//!
//! Streams are named, so that a new purpose does not shift the numbers that the others draw.

use rand::RngExt;
use rand_distr::{Binomial, Distribution, Poisson};
use rand_pcg::Pcg64;

/// The generator that everything here draws from.
pub type Rng = Pcg64;

/// The stream `name` of `seed`.
pub fn stream(seed: u64, name: &str) -> Rng {
    Pcg64::new(u128::from(seed) ^ 0xcafe_f00d_d15e_a5e5, u128::from(fingerprint(name)))
}

/// FNV-1a: stable over versions and machines, which `std::hash` does not promise.
fn fingerprint(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// An exponential span with this mean; zero for a mean of zero.
pub fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.random::<f64>()).ln()
}

/// How many come where `mean` are expected.
pub fn poisson(rng: &mut Rng, mean: f64) -> f64 {
    Poisson::new(mean).map_or(0.0, |poisson| poisson.sample(rng))
}

/// How many of `count` stay when each does with this probability; the part of one that is left over stays by as much.
pub fn binomial(rng: &mut Rng, count: f64, probability: f64) -> f64 {
    let whole = Binomial::new(count.max(0.0) as u64, probability.clamp(0.0, 1.0)).map_or(0, |binomial| binomial.sample(rng));
    whole as f64 + count.max(0.0).fract() * probability
}

/// The index drawn from these weights. Panics when they are empty: a scenario with an empty mix is refused when read.
pub fn weighted(rng: &mut Rng, weights: &[f64]) -> usize {
    assert!(!weights.is_empty(), "nothing to draw from");
    let mut left = rng.random::<f64>() * weights.iter().sum::<f64>();
    for (index, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return index;
        }
    }
    weights.len() - 1
}

/// `value` rounded up or down so that the expectation is exact.
pub fn round_randomly(rng: &mut Rng, value: f64) -> u64 {
    let floor = value.max(0.0).floor();
    floor as u64 + u64::from(rng.random::<f64>() < value - floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_reproducible_and_differ_by_name_and_seed() {
        let draw = |seed, name| stream(seed, name).random::<u64>();
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
    }

    #[test]
    fn draws_have_the_mean_that_was_asked_for() {
        let mut rng = stream(7, "means");
        let n = 20_000;
        let mean = (0..n).map(|_| exponential(&mut rng, 3.0)).sum::<f64>() / f64::from(n);
        assert!((mean - 3.0).abs() < 0.1, "{mean}");
        let seconds = (0..n).filter(|_| weighted(&mut rng, &[1.0, 3.0]) == 1).count();
        assert!((seconds as f64 / f64::from(n) - 0.75).abs() < 0.02);
        let rounded = (0..n).map(|_| round_randomly(&mut rng, 0.3) as f64).sum::<f64>() / f64::from(n);
        assert!((rounded - 0.3).abs() < 0.02);
    }
}
