//! Actions of a plan that are not begun now. A later plan asks for them again, if it still wants them.

use std::collections::BTreeMap;

use weal_model::{Action, AppName};

/// Why an action is left to a later plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PutOff {
    /// What leaves its place is not gone yet.
    PlaceTaken,
    /// Whatever makes room for it has not freed its memory yet.
    NoRoom,
    /// What its application needs is not ready, or a task that it waits for is not done.
    NeedNotReady,
    /// The gateway has not said yet where calls to what it needs go.
    NoInnerAddress,
    /// Its application pauses after a start that failed.
    Pauses,
    /// Somebody has just asked for the instance that was to go.
    JustWoken,
    /// Something else is being done to its target.
    UnderWay,
    /// Its target is not there, or not in a state for it.
    NotThere,
    /// Jobs do not move between these nodes.
    CannotMove,
}

impl PutOff {
    /// In a word, as a label of the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PlaceTaken => "place-taken",
            Self::NoRoom => "no-room",
            Self::NeedNotReady => "need-not-ready",
            Self::NoInnerAddress => "no-inner-address",
            Self::Pauses => "pauses",
            Self::JustWoken => "just-woken",
            Self::UnderWay => "under-way",
            Self::NotThere => "not-there",
            Self::CannotMove => "cannot-move",
        }
    }

    /// Why an instance that a plan wants is not being started.
    fn of_a_start(self) -> Option<&'static str> {
        match self {
            Self::PlaceTaken => Some("its place is not free yet: an instance that leaves it still has requests or is ending"),
            Self::NoRoom => Some("the plan wants it, and whatever makes room for it has not freed its memory yet"),
            Self::NoInnerAddress => Some("the gateway has not said yet where calls to what it needs go"),
            // The status says these by itself.
            Self::NeedNotReady | Self::Pauses => None,
            Self::JustWoken | Self::UnderWay | Self::NotThere | Self::CannotMove => None,
        }
    }
}

/// Starts of the last plan that were put off, by application.
#[derive(Debug, Default)]
pub(super) struct PutOffs(BTreeMap<AppName, PutOff>);

impl PutOffs {
    /// Another plan begins.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn note(&mut self, action: &Action, why: PutOff) {
        if let Action::Start { app, .. } = action {
            self.0.insert(app.clone(), why);
        }
    }

    /// Why the last plan's start of each application was not begun, in a sentence.
    pub fn reasons(&self) -> BTreeMap<AppName, &'static str> {
        self.0.iter().filter_map(|(app, why)| Some((app.clone(), why.of_a_start()?))).collect()
    }
}
