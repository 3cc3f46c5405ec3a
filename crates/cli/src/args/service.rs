//! Arguments about a pool as a service of systemd.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::Target;

/// `weal service`.
#[derive(Debug, Subcommand)]
pub enum ServiceAction {
    /// Make a service of the pool, and start it now and at each boot.
    Install {
        /// Which pool.
        #[command(flatten)]
        target: Target,
        /// Where.
        #[command(flatten)]
        place: Place,
        /// Start it at the next boot only.
        #[arg(long)]
        no_start: bool,
    },
    /// Print the unit, for packages.
    Unit {
        /// Which pool.
        #[command(flatten)]
        target: Target,
        /// Where weal will lie [default: where it lies].
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Stop the service and remove it; state and data stay.
    Uninstall {
        /// Which pool.
        #[command(flatten)]
        target: Target,
        /// Where.
        #[command(flatten)]
        place: Place,
    },
}

/// Whose systemd.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The root of another system, such as an image: nothing is started there.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

impl Place {
    /// Whether it is this machine, which runs systemd.
    pub fn is_this_machine(&self) -> bool {
        self.root == Path::new("/")
    }
}
