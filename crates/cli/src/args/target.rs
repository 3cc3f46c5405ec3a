//! Which pool a command is about.

use std::path::PathBuf;

use clap::Args;

/// Which pool is meant.
#[derive(Debug, Clone, Args)]
pub struct PoolArgs {
    /// The config file [default: weal.toml].
    #[arg(short, long, value_name = "FILE", env = "WEAL_FILE")]
    pub file: Option<PathBuf>,
    /// The state directory, in place of the one that belongs to the config file.
    #[arg(long, value_name = "DIR", env = "WEAL_STATE")]
    pub state: Option<PathBuf>,
}
