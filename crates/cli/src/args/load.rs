//! Arguments of `weal load`.

use std::path::PathBuf;

use clap::Args;

use super::PoolArgs;

/// `weal load`: one of `--rate`, `--sessions`, `--trace`, `--log`, or a scenario.
#[derive(Debug, Clone, Args)]
pub struct Load {
    /// What to ask for: an application of the running pool, or `http://HOST[:PORT]/PATH`, where HOST may end in `.localhost`. An n in
    /// braces in the path is replaced by the number of the request.
    #[arg(value_name = "APP|URL", required_unless_present = "scenario", conflicts_with = "scenario")]
    pub url: Option<String>,
    /// Make the load of a scenario file against the running pool.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Open: so many requests come in, whatever becomes of those before; `50/s`, `1200/min`.
    #[arg(long, group = "source")]
    pub rate: Option<String>,
    /// Closed: so many sessions ask, wait and think.
    #[arg(long, group = "source")]
    pub sessions: Option<u32>,
    /// Mean think time of a session.
    #[arg(long, value_name = "TIME", default_value = "0s", requires = "sessions")]
    pub think: String,
    /// Open: a CSV file of `period,requests` per minute.
    #[arg(long, value_name = "FILE", group = "source")]
    pub trace: Option<PathBuf>,
    /// Where in the trace to begin, as its first column says it.
    #[arg(long, value_name = "PERIOD", requires = "trace")]
    pub from: Option<String>,
    /// How many minutes of the trace.
    #[arg(long, value_name = "N", requires = "trace")]
    pub minutes: Option<usize>,
    /// Share of the trace's volume.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, requires = "trace")]
    pub volume: f64,
    /// An access log (Common or Combined Log Format), each request with its own method and path.
    #[arg(long, value_name = "FILE", group = "source")]
    pub log: Option<PathBuf>,
    /// How many times as fast as recorded, for --trace and --log.
    #[arg(long, value_name = "TIMES", default_value_t = 1.0)]
    pub speed: f64,
    /// How long.
    #[arg(short, long, value_name = "TIME", default_value = "10s")]
    pub duration: String,
    /// What counts as within the goal.
    #[arg(long, value_name = "TIME")]
    pub within: Option<String>,
    /// How long one request may take.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: String,
    /// The seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The method.
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// A header, `name: value`; may be given again.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// Which pool, with --scenario or an application.
    #[command(flatten)]
    pub target: PoolArgs,
}
