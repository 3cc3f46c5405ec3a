//! The ladder of sleep: how deep an instance sleeps, and what each rung costs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, InstanceState};

/// How deep an instance sleeps: the deeper, the less memory it holds and the longer it takes to wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Frozen: no CPU, all its memory.
    Suspended,
    /// Frozen, and all but the working set paged out.
    Warm,
    /// Frozen and paged out.
    Parked,
}

/// What sleeping on each rung has cost when it was last done, of one instance or of its application's other instances.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SleepCosts {
    /// Of [`Rung::Suspended`].
    pub suspended: RungCost,
    /// Of [`Rung::Warm`].
    pub warm: RungCost,
    /// Of [`Rung::Parked`].
    pub parked: RungCost,
}

/// What one rung costs, as measured; `None` before it was.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungCost {
    /// Seconds from the order until it slept there.
    pub sleep_s: Option<f64>,
    /// Seconds from the order to wake it until it answered its health check.
    pub wake_s: Option<f64>,
    /// Memory that it holds there.
    pub memory: Option<Bytes>,
    /// Swap that it fills there.
    pub swap: Option<Bytes>,
}

impl Rung {
    /// From the lightest sleep to the deepest.
    pub const ALL: [Self; 3] = [Self::Suspended, Self::Warm, Self::Parked];

    /// The state of an instance that sleeps there.
    pub fn state(self) -> InstanceState {
        match self {
            Self::Suspended => InstanceState::Suspended,
            Self::Warm => InstanceState::Warm,
            Self::Parked => InstanceState::Parked,
        }
    }

    /// As it is written in commands and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suspended => "suspended",
            Self::Warm => "warm",
            Self::Parked => "parked",
        }
    }
}

impl InstanceState {
    /// The rung that it sleeps on; `None` when it does not sleep.
    pub fn rung(self) -> Option<Rung> {
        Rung::ALL.into_iter().find(|rung| rung.state() == self)
    }

    /// True when it sleeps, on whichever rung.
    pub fn is_asleep(self) -> bool {
        self.rung().is_some()
    }
}

impl SleepCosts {
    /// Those of `rung`.
    pub fn of(&self, rung: Rung) -> &RungCost {
        match rung {
            Rung::Suspended => &self.suspended,
            Rung::Warm => &self.warm,
            Rung::Parked => &self.parked,
        }
    }

    /// Those of `rung`, to be changed.
    pub fn of_mut(&mut self, rung: Rung) -> &mut RungCost {
        match rung {
            Rung::Suspended => &mut self.suspended,
            Rung::Warm => &mut self.warm,
            Rung::Parked => &mut self.parked,
        }
    }

    /// What is known here, and where nothing is, what `other` knows.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let mut both = *self;
        for rung in Rung::ALL {
            let (own, theirs) = (*self.of(rung), other.of(rung));
            *both.of_mut(rung) = RungCost {
                sleep_s: own.sleep_s.or(theirs.sleep_s),
                wake_s: own.wake_s.or(theirs.wake_s),
                memory: own.memory.or(theirs.memory),
                swap: own.swap.or(theirs.swap),
            };
        }
        both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rung_is_a_state_of_its_own_and_they_are_ordered_by_depth() {
        for rung in Rung::ALL {
            assert_eq!(rung.state().rung(), Some(rung));
            assert_eq!(serde_json::to_value(rung).unwrap(), rung.as_str());
        }
        assert_eq!(InstanceState::Ready.rung(), None);
        assert!(Rung::Suspended < Rung::Warm && Rung::Warm < Rung::Parked);
    }

    #[test]
    fn what_one_does_not_know_another_may() {
        let (mut own, mut theirs) = (SleepCosts::default(), SleepCosts::default());
        own.warm.wake_s = Some(0.006);
        theirs.warm = RungCost { wake_s: Some(0.1), sleep_s: Some(0.4), ..RungCost::default() };
        let both = own.or(&theirs);
        assert_eq!((both.warm.wake_s, both.warm.sleep_s, both.parked.wake_s), (Some(0.006), Some(0.4), None));
    }
}
