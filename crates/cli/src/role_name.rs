//! The roles, by name.

use serde::{Deserialize, Serialize};

/// The three roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleName {
    /// Faces clients.
    Gateway,
    /// Decides.
    Controller,
    /// Runs instances.
    Node,
}

impl RoleName {
    /// All of them, in the order of their start.
    pub const ALL: [Self; 3] = [Self::Node, Self::Gateway, Self::Controller];

    /// Its name on the command line and in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Controller => "controller",
            Self::Node => "node",
        }
    }
}
