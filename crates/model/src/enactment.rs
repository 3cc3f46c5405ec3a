//! How placement is enacted: what becomes of an instance that is not needed now.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a pool enacts its placement. The first three are those that Al-Qudah et al. (2009, section 4) compare.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Enactment {
    /// Instances end when they are not needed and start when they are.
    StartStop,
    /// Instances run wherever memory allows, needed or not.
    RunEverywhere,
    /// Instances stand by frozen wherever memory allows, and are paged out whole when memory is wanted.
    SuspendResume,
    /// As suspend-resume, and each instance that stands by is on the rung that its chance of use and the cost of waking it say.
    #[default]
    Ladder,
}

impl Enactment {
    /// All of them, in the order in which they were thought of.
    pub const ALL: [Self; 4] = [Self::StartStop, Self::RunEverywhere, Self::SuspendResume, Self::Ladder];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StartStop => "start-stop",
            Self::RunEverywhere => "run-everywhere",
            Self::SuspendResume => "suspend-resume",
            Self::Ladder => "ladder",
        }
    }

    /// The one that is written so.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|enactment| enactment.as_str() == word)
    }

    /// True when instances that are not needed sleep.
    pub fn sleeps(self) -> bool {
        matches!(self, Self::SuspendResume | Self::Ladder)
    }

    /// True when more instances are brought up than run: where memory allows, for the next time that they are needed.
    pub fn starts_ahead(self) -> bool {
        self != Self::StartStop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_written_as_it_is_read() {
        for enactment in Enactment::ALL {
            assert_eq!(Enactment::from_word(enactment.as_str()), Some(enactment));
            assert_eq!(serde_json::to_value(enactment).unwrap(), enactment.as_str());
        }
        assert_eq!(Enactment::from_word("hope"), None);
    }
}
