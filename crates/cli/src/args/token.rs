//! Arguments about who may call the API.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::PoolArgs;
use crate::values::{ValueError, long_span};

/// `weal token`.
#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Make a token and print its secret, this once.
    Create {
        /// Which pool.
        #[command(flatten)]
        target: PoolArgs,
        /// What it is called: lower-case letters, digits and hyphens.
        name: String,
        /// What it lets its holder do [default: `jobs` with a limit for jobs, otherwise `all`].
        #[arg(long, value_enum, value_name = "SCOPE")]
        scope: Option<Scope>,
        /// The same as `--scope read`.
        #[arg(long, conflicts_with = "scope")]
        read_only: bool,
        /// How long it is worth something, as in `30d` [default: for ever].
        #[arg(long, value_name = "DURATION", value_parser = lasts)]
        lasts: Option<Duration>,
        /// What the jobs submitted by it may be together.
        #[command(flatten)]
        quota: Quota,
    },
    /// List the tokens.
    List {
        /// Which pool.
        #[command(flatten)]
        target: PoolArgs,
    },
    /// Give a token another secret; the former is worth nothing from then on.
    Rotate {
        /// Which pool.
        #[command(flatten)]
        target: PoolArgs,
        /// Which; `operator` is the one in controller/token.
        #[arg(default_value = "operator")]
        name: String,
    },
    /// End a token.
    Revoke {
        /// Which pool.
        #[command(flatten)]
        target: PoolArgs,
        /// Which.
        name: String,
    },
}

/// What a token lets its holder do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// See how the pool is (status, metrics, events), and neither give orders nor read configs and logs.
    Read,
    /// The same, and submit jobs, and see and order those that were submitted by it.
    Jobs,
    /// Give every order, and read configs and logs.
    All,
}

/// What the jobs of a token that are not over may be together.
#[derive(Debug, Clone, Args)]
pub struct Quota {
    /// How many of its jobs may wait and run [default: no limit].
    #[arg(long, value_name = "N")]
    pub max_jobs: Option<u32>,
    /// CPU time of its jobs that wait and run, as in `10h` [default: no limit].
    #[arg(long, value_name = "TIME")]
    pub max_work: Option<String>,
    /// Memory of its jobs that wait and run, as in `4GiB` [default: no limit].
    #[arg(long, value_name = "SIZE")]
    pub max_memory: Option<String>,
}

/// `weal audit`.
#[derive(Debug, Clone, Args)]
pub struct Audit {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// How many of the last entries.
    #[arg(short = 'n', long, value_name = "ENTRIES", default_value_t = 50)]
    pub limit: u32,
    /// Only those since then: `30m`, `18:00`, `2026-11-26 18:00`.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
}

fn lasts(text: &str) -> Result<Duration, ValueError> {
    Duration::try_from_secs_f64(long_span(text)?).map_err(|_| ValueError::Long(text.to_owned()))
}
