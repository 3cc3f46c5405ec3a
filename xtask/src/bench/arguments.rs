//! What the command line asks of a benchmark.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::real::machine::SwapOn;
use super::real::server::Server;

/// What every benchmark takes.
#[derive(Args)]
pub struct Arguments {
    /// Which one
    pub name: Name,
    /// Print `table` or `json`
    #[arg(short, long, default_value = "table")]
    pub output: Output,
    /// Exit with 1 when a target is missed
    #[arg(long)]
    pub check: bool,
    /// Fewer and shorter rounds: shows that it runs, not what is true
    #[arg(long)]
    pub quick: bool,
    /// Put what is printed into docs/benchmarks/NAME.md, in place of what stands there below the mark
    #[arg(long)]
    pub write: bool,
    /// Only one case of a benchmark that has several
    #[arg(long, value_name = "CASE")]
    pub case: Option<String>,
    /// Show what was measured before under target/ or docs/ instead of measuring it again, where it was (fidelity, al-qudah)
    #[arg(long)]
    pub kept: bool,
    /// A checkout of a former version with its release programs built (house)
    #[arg(long, value_name = "DIR")]
    pub base: Option<PathBuf>,
    /// What `sleep` measures
    #[command(flatten)]
    pub sleep: Sleep,
    /// Seconds that a solver or an older algorithm may take for one problem (control)
    #[arg(long, default_value_t = 60)]
    pub oracle_seconds: u32,
    /// Write the picture of cost against size to this file (control)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// How results are printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// The benchmarks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// The experiments of Al-Qudah et al. with real servers: starts and resumes under load, idle servers, a flash crowd
    AlQudah,
    /// Autobahn's cases of WebSocket at a server, asked at once and through the gateway
    Autobahn,
    /// A site while a build takes every core beside it, in weal and without: growth of its response times
    Build,
    /// The planner on generated problems, the thesis' algorithm, CP-SAT and HiGHS: time and optimality
    Control,
    /// What the choice of an instance costs, by policy and by hash
    Dispatch,
    /// Few clients beside many on eight seats, goodput under overload, and what a refusal takes
    Flows,
    /// This gateway, HAProxy, nginx, Envoy and Caddy: what each does per CPU-second
    Gateway,
    /// h2spec's cases of HTTP/2 against the gateway of `weal up`
    #[value(name = "h2spec")]
    H2spec,
    /// The simulator's engine, a bare binary heap, NeXosim and SimPy: events per second
    Sim,
    /// Crowds under an autoscaler and under weal, simulated: seconds of missed goals
    FlashCrowd,
    /// Scenarios with real processes and simulated: how far the two are apart
    Fidelity,
    /// This tree beside a former one: planning, simulator, gateway
    House,
    /// Connections on which nothing happens: the gateway's memory for each
    Idle,
    /// Instructions that the gateway takes for a request, beside the count that its page has
    Instructions,
    /// Four nginx with small page caches and slow disks, policy by policy, and the death of one
    Locality,
    /// The queue of jobs: submissions beside SQLite's own commits, plans for many jobs, a list with many that are over
    Jobs,
    /// 200 short jobs with mixed goals, policy by policy: goals met, changes, distance to the goal
    JobsPolicies,
    /// Recorded job logs beside a recorded web load, policy by policy: goals met and distance of utilities
    Logs,
    /// A server that is put to sleep and woken: milliseconds, CPU-seconds and memory of each rung
    Sleep,
    /// slowhttptest's attacks on a pool: what good clients see of them
    SlowClients,
    /// What testssl.sh finds at the gateway of `weal up`
    Testssl,
    /// A server with a thread for each connection, alone and behind weal, under clients who think
    Threads,
    /// More new sessions over TLS than there is CPU for, with the order of handshakes and without it
    TlsOverload,
    /// Work factors as learnt online, beside the kernel's count
    Profiles,
}

/// What `sleep` measures.
#[derive(Args)]
pub struct Sleep {
    /// sleep: the server
    #[arg(long, default_value = "wildfly")]
    pub server: Server,
    /// sleep: where pages go
    #[arg(long, default_value = "disk")]
    pub swap: SwapOn,
    /// sleep: instead, so many servers asleep at once
    #[arg(long)]
    pub many: Option<u32>,
    /// sleep: of the ladder only the ways that have this in their name
    #[arg(long, default_value = "")]
    pub way: String,
}
