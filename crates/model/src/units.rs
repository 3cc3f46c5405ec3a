//! Units are types; a raw number carries its unit at the end of its name.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A moment, in nanoseconds since the Unix epoch in a running pool and since the start in a simulation.
///
/// Pure code never asks for it: whoever calls passes it in.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The moment that all others are counted from.
    pub const ZERO: Self = Self(0);

    /// The moment `seconds` after [`Time::ZERO`]; negative and non-finite inputs give `ZERO`.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds.max(0.0) * 1e9) as u64)
    }

    /// Seconds since [`Time::ZERO`].
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long ago `earlier` was; zero when a clock jumped and it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Computing power: CPU-seconds per second, so `1.0` is one core of the standard kind.
///
/// The papers speak of MHz; every formula here holds in any unit that is used throughout.
#[derive(Debug, Default, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Cpu(pub f64);

/// An amount of computing, in CPU-seconds of a standard core.
#[derive(Debug, Default, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Work(pub f64);

/// How well a goal is met: 1 is the best, 0 exactly at the goal, negative when missed.
///
/// Comparable across kinds of goal, which is what lets web applications and jobs share one pool.
#[derive(Debug, Default, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Utility(pub f64);

impl Utility {
    /// The best there is.
    pub const BEST: Self = Self(1.0);
    /// Exactly at the goal.
    pub const AT_GOAL: Self = Self(0.0);
}

impl fmt::Display for Utility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.2}", self.0)
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nothing_has_no_sign = self.0 + 0.0; // the sum of no numbers at all is -0.0
        write!(f, "{nothing_has_no_sign:.2} CPU")
    }
}

macro_rules! arithmetic {
    ($type:ty) => {
        impl Add for $type {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $type {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $type {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl Mul<f64> for $type {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }
        impl Div<f64> for $type {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }
        impl Sum for $type {
            fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
                values.fold(Self::default(), Add::add)
            }
        }
    };
}
arithmetic!(Cpu);
arithmetic!(Work);

/// An amount of memory or disk, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// One mebibyte.
    pub const MIB: u64 = 1 << 20;
    /// One gibibyte.
    pub const GIB: u64 = 1 << 30;

    /// `count` mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count * Self::MIB)
    }

    /// `count` gibibytes.
    pub const fn gib(count: u64) -> Self {
        Self(count * Self::GIB)
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Bytes {
    type Output = Self;
    /// Saturates at zero: memory that is over-committed leaves nothing, not a huge number.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
        values.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(Self::GIB, "GiB"), (Self::MIB, "MiB"), (1 << 10, "KiB")];
        for (size, name) in units {
            if self.0 >= size {
                let value = self.0 as f64 / size as f64;
                return if value.fract() < 0.05 { write!(f, "{value:.0}{name}") } else { write!(f, "{value:.1}{name}") };
            }
        }
        write!(f, "{}B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_at_all_has_no_sign() {
        let nothing: f64 = [].iter().sum();
        assert!(nothing.is_sign_negative());
        assert_eq!(Cpu(nothing).to_string(), "0.00 CPU");
    }
}
