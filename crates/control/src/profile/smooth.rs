//! A running mean that knows how sure it is and notices jumps.

use serde::{Deserialize, Serialize};

/// Exponentially weighted mean and variance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Smooth {
    mean: f64,
    variance: f64,
    /// Observations so far, as far as they are remembered: at most `1 / (1 - KEEP)`.
    weight: f64,
    /// Jumps in a row, with their sign.
    jumps: i32,
}

/// Share of memory kept per observation: five cycles, the time in which a change of load should show.
const KEEP: f64 = 0.8;
/// Off by more than this share of the mean, twice in a row to the same side, is a jump: the past is forgotten.
const JUMP: f64 = 0.3;

impl Smooth {
    /// Takes one observation in; ignores what is not finite.
    pub fn observe(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        let off = value - self.mean;
        let near = (JUMP * self.mean.abs()).max(3.0 * self.variance.sqrt());
        let far = off.abs() > near;
        let sign = if off > 0.0 { 1 } else { -1 };
        self.jumps = match far && self.weight > 1.0 {
            false => 0,
            true if self.jumps.signum() == sign => self.jumps + sign,
            true => sign,
        };
        // Until the next observation tells an outlier from a jump, it counts only as far as it is plausible.
        let value = if self.jumps.abs() == 1 { self.mean + off.clamp(-near, near) } else { value };
        if self.jumps.abs() >= 2 {
            *self = Self::default();
        }
        self.weight = self.weight * KEEP + 1.0;
        let gain = 1.0 / self.weight;
        let off = value - self.mean;
        self.mean += gain * off;
        self.variance = (1.0 - gain) * (self.variance + gain * off * off);
    }

    /// The mean; `None` before the first observation.
    pub fn get(&self) -> Option<f64> {
        (self.weight > 0.0).then_some(self.mean)
    }

    /// The mean, or zero before the first observation.
    pub fn or_zero(&self) -> f64 {
        self.mean
    }

    /// Half-width of the mean's 95% interval; `None` before the second observation.
    pub fn plus_minus(&self) -> Option<f64> {
        (self.weight > 1.0).then(|| 1.96 * (self.variance / (self.weight - 1.0)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_followed_at_once_and_an_outlier_is_not() {
        let mut smooth = Smooth::default();
        (0..20).for_each(|i| smooth.observe(10.0 + f64::from(i % 2)));
        smooth.observe(40.0);
        assert!(smooth.or_zero() < 18.0);
        smooth.observe(f64::NAN);
        smooth.observe(40.0);
        assert_eq!(smooth.or_zero(), 40.0);
        smooth.observe(40.2);
        assert!(smooth.plus_minus().unwrap() < 0.5);
    }
}
