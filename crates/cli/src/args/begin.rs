//! Arguments of what makes a config: `weal run`, `weal init`, `weal import`.

use std::path::PathBuf;

use clap::Args;
use weal_model::written::{UnitError, parse_size};
use weal_model::{Bytes, Goal};

/// `weal run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// Program and arguments. `$PORT` in them is the port at which the program must listen; it is also in the program's environment.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Where clients connect on 127.0.0.1 [default: 8080, or the next port that is free].
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// What the application is called [default: as the current folder].
    #[arg(short, long)]
    pub name: Option<String>,
    /// What is asked of response times, such as "p95 < 250ms".
    #[arg(short, long)]
    pub goal: Option<Goal>,
    /// At most so many instances run, more than one only while the goal is missed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub instances: u32,
    /// The memory of each instance, such as 512MiB [default: 256MiB].
    #[arg(short, long, value_parser = size)]
    pub memory: Option<Bytes>,
    /// The user that the program runs as, where root runs weal [default: one of its own].
    #[arg(short, long)]
    pub user: Option<String>,
    /// Keep state and `$DATA` in this directory, beyond the end.
    #[arg(long, value_name = "DIR", env = "WEAL_STATE")]
    pub state: Option<PathBuf>,
}

/// `weal init`.
#[derive(Debug, Clone, Args)]
pub struct Init {
    /// The program's command, in place of what the folder's files say.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// The file to write; what lies beside it is looked at.
    #[arg(short, long, value_name = "FILE", env = "WEAL_FILE", default_value = "weal.toml")]
    pub file: PathBuf,
    /// Only print it.
    #[arg(short, long)]
    pub print: bool,
    /// Write over a file that is there.
    #[arg(long)]
    pub force: bool,
}

/// `weal import`.
#[derive(Debug, Clone, Args)]
pub struct Import {
    /// A Procfile, a compose file (.yaml), a systemd unit (.service) or a file of PM2 (.json).
    #[arg(value_name = "FROM")]
    pub from: PathBuf,
}

fn size(text: &str) -> Result<Bytes, UnitError> {
    parse_size(text)
}
