//! Arguments about a pool as a service of systemd.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::PoolArgs;

/// `weal service`.
#[derive(Debug, Subcommand)]
pub enum ServiceAction {
    /// Make a service of the pool, and start it now and at each boot.
    Install {
        /// Which pool.
        #[command(flatten)]
        target: PoolArgs,
        /// Where.
        #[command(flatten)]
        place: TargetSystem,
        /// Start it at the next boot only.
        #[arg(long)]
        no_start: bool,
    },
    /// Print the unit, for packages.
    Unit {
        /// Which pool.
        #[command(flatten)]
        target: PoolArgs,
        /// Where weal will lie [default: where it lies].
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Stop the service and remove it; state and data stay.
    Uninstall {
        /// Which pool.
        #[command(flatten)]
        target: PoolArgs,
        /// Where.
        #[command(flatten)]
        place: TargetSystem,
    },
}

/// Whose systemd.
#[derive(Debug, Clone, Args)]
pub struct TargetSystem {
    /// The root of another system, such as an image: nothing is started there.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

impl TargetSystem {
    /// Whether it is this machine, which runs systemd.
    pub fn is_this_machine(&self) -> bool {
        self.root == Path::new("/")
    }
}
