//! `weal sleep` and `weal wake`.

use clap::{Args, ValueEnum};

use super::PoolArgs;

/// `weal sleep`.
#[derive(Debug, Clone, Args)]
pub struct Sleep {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// The application.
    pub app: String,
    /// How deep [default: as deep as pays].
    #[arg(long, value_enum)]
    pub rung: Option<RungWord>,
    /// Seconds to wait until it sleeps.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
}

/// `weal wake`.
#[derive(Debug, Clone, Args)]
pub struct Wake {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// The application.
    pub app: String,
    /// Seconds to wait until it answers.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
}

/// How deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RungWord {
    /// Frozen, all in memory.
    Suspended,
    /// Frozen, all but the working set paged out.
    Warm,
    /// Frozen and paged out.
    Parked,
}

impl From<RungWord> for weal_model::Rung {
    fn from(word: RungWord) -> Self {
        match word {
            RungWord::Suspended => Self::Suspended,
            RungWord::Warm => Self::Warm,
            RungWord::Parked => Self::Parked,
        }
    }
}
