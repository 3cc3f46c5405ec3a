//! The shape of the command line. What each command does is in `commands/` and `supervisor/`.

pub mod begin;
pub mod deploy;
#[cfg(test)]
mod documented;
mod format;
pub mod jobs;
mod load;
pub mod service;
mod sleep;
mod target;
pub mod token;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use weal_model::Algorithm;

pub use format::{ColorChoice, Format};
pub use load::Load;
pub use sleep::{Sleep, Wake};
pub use target::PoolArgs;

use crate::values::{Switch, Variation, placement, variation};

/// Hosts applications on a shared pool and keeps every one of them equally close to its goal.
#[derive(Debug, Parser)]
#[command(name = "weal", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 config invalid, 4 not running, 5 timed out.\n\
    Start here: weal run -- COMMAND, or weal init, then weal up.")]
pub struct Cli {
    /// What applies to every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// How answers are printed.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Text)]
    pub output: Format,
    /// When to use colours; NO_COLOR is honoured.
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Host a program at once, without a config file, until Ctrl-C.
    Run(Box<begin::Run>),
    /// Write a first weal.toml for the program in this folder.
    Init(begin::Init),
    /// Start the pool: gateway, controller and node agent on this machine.
    Up(Up),
    /// Make a service of systemd that holds the pool, or remove it.
    Service {
        /// What about it.
        #[command(subcommand)]
        command: service::ServiceAction,
    },
    /// Stop the pool: finish requests, stop applications, then weal itself.
    Down(Down),
    /// Let the running pool go on with the weal that is installed now, without losing a request.
    Upgrade(Upgrade),
    /// Show nodes, applications and flows.
    Status(Watch),
    /// Show the pool live in the terminal.
    Top(PoolArgs),
    /// Show what an application wrote.
    Logs(Logs),
    /// Say why an application has what it has, why it is not on a node, or why a request was rejected.
    Why(Why),
    /// Show instances: state, memory, swap, what their last wake took.
    Instances(Instances),
    /// Put an application to sleep until somebody asks for it.
    Sleep(Sleep),
    /// Wake an application.
    Wake(Wake),
    /// Deploy the config file: say what changes, ask, bring it out, wait until it is done.
    Deploy(deploy::Deploy),
    /// List the versions that were deployed.
    History(PoolArgs),
    /// Deploy a former version again.
    Rollback(deploy::Rollback),
    /// Replace an application's instances by new ones, one after the other.
    Restart(deploy::AppTarget),
    /// Have an application read its own config anew, by its reload signal.
    Reload(deploy::Reload),
    /// Stop an application until it is started again.
    Stop(deploy::AppTarget),
    /// Start an application that was stopped.
    Start(deploy::AppTarget),
    /// Run so many instances of an application, whatever the config says.
    Scale(deploy::Scale),
    /// Keep an application awake for a while, whether or not requests come.
    KeepAwake(deploy::KeepAwake),
    /// Run a command in an application's environment and sandbox, as its user.
    Exec(deploy::Exec),
    /// Run a batch job by a goal for its completion.
    Submit(Box<jobs::Submit>),
    /// Show jobs: how far they are, when they will be done, why they wait.
    Jobs(jobs::ListJobs),
    /// Show, read or order about one job.
    Job {
        /// What about it.
        #[command(subcommand)]
        command: jobs::JobAction,
    },
    /// Show what happened, with reasons.
    Events(Events),
    /// Make, list and end tokens for the API over TCP.
    Token {
        /// What about them.
        #[command(subcommand)]
        command: token::TokenAction,
    },
    /// Show who ordered what, and whose calls were refused.
    Audit(token::Audit),
    /// Check what this machine offers and say what is lost and what to do.
    Doctor(PoolArgs),
    /// Check the config file.
    Validate(PoolArgs),
    /// Show the config.
    Config {
        /// What about it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Give the running pool the config file as it is now, without asking or waiting; `weal deploy` does both.
    Apply(Apply),
    /// Make load and measure what comes back.
    Load(Box<Load>),
    /// Run a scenario with real processes: start them, make the load, check what is expected, write a report.
    Rehearse(Rehearse),
    /// Run a scenario in virtual time: the same control code, simulated applications; seconds for an hour.
    Simulate(Simulate),
    /// Keep what a replay or a simulation needs of the running pool.
    Record(Record),
    /// Drive the load of a recording again.
    Replay(Replay),
    /// Simulate a recording with another goal, node, cost or load, and show before and after.
    WhatIf(WhatIf),
    /// Make a weal.toml of a Procfile, a compose file, a unit of systemd or a file of PM2.
    Import(begin::Import),
    /// Run the papers' cases again and compare the numbers.
    Reproduce(Reproduce),
    /// Write a shell's completion script.
    Completion {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the man pages, one for each command.
    Man {
        /// The folder that they go to.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Write the JSON Schema of weal.toml, for editors.
    Schema,
    /// Show the version.
    Version,
    /// Take so much CPU time and memory; the jobs of a rehearsal.
    #[command(hide = true)]
    StandIn(StandIn),
    /// Run one role; for the supervisor.
    #[command(hide = true)]
    Role {
        /// Which.
        #[command(subcommand)]
        role: RoleCommand,
    },
    /// Keep one instance; for the node agent.
    #[command(hide = true)]
    Shim {
        /// The instance's directory.
        #[arg(long)]
        dir: PathBuf,
        /// Look after a process whose shim was killed.
        #[arg(long)]
        adopt: bool,
    },
}

/// `weal stand-in`.
#[derive(Debug, Clone, Args)]
pub struct StandIn {
    /// CPU-seconds of each phase.
    #[arg(long, required = true)]
    pub work: Vec<f64>,
    /// The most cores that each phase can use.
    #[arg(long, required = true)]
    pub cpus: Vec<f64>,
    /// Memory that each phase holds.
    #[arg(long, required = true)]
    pub memory: Vec<String>,
}

/// `weal up`.
#[derive(Debug, Clone, Args)]
pub struct Up {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// Run in the background; returns when every application is ready.
    #[arg(short, long)]
    pub detach: bool,
    /// Seconds to wait for readiness with --detach.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u64,
    /// Be the process behind --detach.
    #[arg(long, hide = true)]
    pub background: bool,
}

/// `weal down`.
#[derive(Debug, Clone, Args)]
pub struct Down {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// Seconds to wait for the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u64,
}

/// `weal upgrade`.
#[derive(Debug, Clone, Args)]
pub struct Upgrade {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// Seconds to wait until everything runs the new program.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u64,
}

/// Commands that can go on showing.
#[derive(Debug, Clone, Args)]
pub struct Watch {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// Show again each second until interrupted.
    #[arg(short, long)]
    pub watch: bool,
}

/// `weal logs`.
#[derive(Debug, Clone, Args)]
pub struct Logs {
    /// The application, a job, or one of weal's roles: gateway, controller, node, supervisor.
    pub app: String,
    /// Go on showing what comes.
    #[arg(short, long)]
    pub follow: bool,
    /// The config file [default: weal.toml]; without its short form here, where -f means --follow.
    #[arg(long, value_name = "FILE", env = "WEAL_FILE")]
    pub file: Option<PathBuf>,
    /// The state directory, in place of the one that belongs to the config file.
    #[arg(long, value_name = "DIR", env = "WEAL_STATE")]
    pub state: Option<PathBuf>,
    /// Only this instance.
    #[arg(long, value_name = "ID")]
    pub instance: Option<String>,
    /// How many of the last lines of all instances together to begin with [default: 100; with --since all].
    #[arg(short = 'n', long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Only lines since then: `30m`, `18:00`, `2026-11-26 18:00`.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only what was written, without time and instance.
    #[arg(long)]
    pub raw: bool,
}

/// `weal why`.
#[derive(Debug, Clone, Args)]
pub struct Why {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// The application.
    #[arg(required_unless_present = "request")]
    pub app: Option<String>,
    /// Say why it is on this node, or why not.
    #[arg(long, value_name = "NODE", requires = "app")]
    pub node: Option<String>,
    /// Say all that is known: seats, shares of CPU, what the last plan did and expects, the last events.
    #[arg(long, requires = "app")]
    pub more: bool,
    /// Say why the gateway refused its last requests.
    #[arg(long, requires = "app")]
    pub rejected: bool,
    /// Say why the gateway refused this request: the `x-request-id` of its answer.
    #[arg(long, value_name = "ID", conflicts_with_all = ["app", "node", "rejected"])]
    pub request: Option<String>,
    /// Show again each second until interrupted.
    #[arg(short, long)]
    pub watch: bool,
}

/// `weal instances`.
#[derive(Debug, Clone, Args)]
pub struct Instances {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// Only those of this application.
    pub app: Option<String>,
    /// Show again each second until interrupted.
    #[arg(short, long)]
    pub watch: bool,
}

/// `weal events`.
#[derive(Debug, Clone, Args)]
pub struct Events {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// Only those about this application.
    pub app: Option<String>,
    /// Only those since then: `30m`, `18:00`, `2026-11-26 18:00`.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only those that are as bad, or worse.
    #[arg(long, value_enum)]
    pub severity: Option<SeverityWord>,
    /// How many of the last events to begin with.
    #[arg(short = 'n', long, value_name = "EVENTS", default_value_t = 50)]
    pub limit: u32,
    /// Go on showing what comes.
    #[arg(short, long)]
    pub watch: bool,
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeverityWord {
    /// As planned.
    Info,
    /// Somebody may want to know.
    Warning,
    /// Somebody must act.
    Error,
}

impl From<SeverityWord> for weal_model::Severity {
    fn from(word: SeverityWord) -> Self {
        match word {
            SeverityWord::Info => Self::Info,
            SeverityWord::Warning => Self::Warning,
            SeverityWord::Error => Self::Error,
        }
    }
}

/// `weal config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show what the pool runs by, or the file if it does not run.
    Show {
        /// With every default filled in.
        #[arg(long)]
        effective: bool,
        /// Which pool.
        #[command(flatten)]
        target: PoolArgs,
    },
}

/// `weal apply`.
#[derive(Debug, Clone, Args)]
pub struct Apply {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// Only say what would change.
    #[arg(long)]
    pub dry_run: bool,
}

/// `weal reproduce`.
#[derive(Debug, Clone, Args)]
pub struct Reproduce {
    /// Which cases, as in experiments/ [default: all].
    #[arg(value_name = "CASE")]
    pub cases: Vec<String>,
    /// All cases in one table, which is what happens when none is named.
    #[arg(long, conflicts_with = "cases")]
    pub all: bool,
    /// Fewer seeds and jobs where a case is long.
    #[arg(long)]
    pub quick: bool,
    /// Exit with 1 when a number is not within its tolerance.
    #[arg(long)]
    pub check: bool,
    /// Write one self-contained HTML page with tables and figures.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write each case's numbers, curves and plot script into its folder under this one.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
}

/// One role with the sockets that it inherits as file descriptors.
#[derive(Debug, Clone, Subcommand)]
pub enum RoleCommand {
    /// Faces clients.
    Gateway {
        /// Its name.
        #[arg(long)]
        name: String,
        /// The state directory.
        #[arg(long)]
        state: PathBuf,
        /// The role's lock, which it holds to its end.
        #[arg(long)]
        lock_fd: Option<i32>,
        /// Listening TCP socket for clients.
        #[arg(long)]
        clients_fd: i32,
        /// Unix socket through which it is handed the sockets of ports.
        #[arg(long)]
        ports_fd: Option<i32>,
        /// Listening TCP socket for clients that speak TLS.
        #[arg(long)]
        tls_fd: Option<i32>,
        /// Memory in which gateways of the pool share seats.
        #[arg(long)]
        seats_fd: Option<i32>,
        /// Listening Unix socket for calls.
        #[arg(long)]
        rpc_fd: i32,
        /// The user that may call it, besides its own and root.
        #[arg(long)]
        controller_uid: Option<u32>,
    },
    /// Decides.
    Controller {
        /// The state directory.
        #[arg(long)]
        state: PathBuf,
        /// The role's lock, which it holds to its end.
        #[arg(long)]
        lock_fd: Option<i32>,
        /// Listening TCP socket of the API.
        #[arg(long)]
        api_fd: i32,
        /// A file in memory that holds what is needed for TLS there.
        #[arg(long)]
        api_tls_fd: Option<i32>,
        /// Listening Unix socket of the API.
        #[arg(long)]
        local_fd: i32,
        /// The user that may call it, besides root.
        #[arg(long)]
        operator_uid: u32,
    },
    /// Runs instances.
    Node {
        /// The state directory.
        #[arg(long)]
        state: PathBuf,
        /// The role's lock, which it holds to its end.
        #[arg(long)]
        lock_fd: Option<i32>,
        /// Listening Unix socket for calls.
        #[arg(long)]
        rpc_fd: i32,
        /// Listening Unix socket for wakes.
        #[arg(long)]
        wake_fd: i32,
        /// The user that may call the first, besides its own and root.
        #[arg(long)]
        controller_uid: Option<u32>,
        /// The user that may call the second, besides its own and root.
        #[arg(long)]
        gateway_uid: Option<u32>,
    },
}

/// `weal rehearse`.
#[derive(Debug, Clone, Args)]
pub struct Rehearse {
    /// The scenario; its `config` names the weal.toml to start.
    pub scenario: PathBuf,
    /// Where the report goes [default: SCENARIO.html beside where you are].
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// `off` only watches, for comparison.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub control: Switch,
    /// Which algorithm places instances: weal, thesis, demand, static or autoscaler [default: the config's].
    #[arg(long, value_name = "NAME", value_parser = placement)]
    pub placement: Option<Algorithm>,
    /// How many times as fast as Kubernetes' defaults the autoscaler acts [default: the config's].
    #[arg(long, value_name = "TIMES")]
    pub autoscaler_speed: Option<f64>,
    /// Simulate the same afterwards, and show how far that is from what was measured; the report shows both.
    #[arg(long)]
    pub beside_simulation: bool,
    /// Another seed than the scenario's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run it with so many seeds, one after the other, each one more than that before; the report has medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Run it this way as well, and put both into one report: `control=off` or `placement=NAME`. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = variation)]
    pub compare: Vec<Variation>,
    /// Exit with 1 when an expectation is missed.
    #[arg(long)]
    pub check: bool,
}

/// `weal simulate`.
#[derive(Debug, Clone, Args)]
pub struct Simulate {
    /// The scenario; one with a `config` is simulated on the pool of that weal.toml.
    pub scenario: PathBuf,
    /// Write a report, one self-contained page.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write every measured number as tidy CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// `off` only watches, for comparison.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub control: Switch,
    /// Another placement than weal's, for comparison: `thesis`, `demand`, `static` or `autoscaler`.
    #[arg(long, value_name = "NAME", value_parser = placement)]
    pub placement: Option<Algorithm>,
    /// Another seed than the scenario's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Exit with 1 when an expectation is missed.
    #[arg(long)]
    pub check: bool,
}

/// `weal record`.
#[derive(Debug, Clone, Args)]
pub struct Record {
    /// Where the recording goes.
    pub recording: PathBuf,
    /// How long [default: until interrupted].
    #[arg(short, long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
}

/// `weal what-if`.
#[derive(Debug, Clone, Args)]
pub struct WhatIf {
    /// The recording.
    pub recording: PathBuf,
    /// Another goal for a class: `gold="p95 < 150ms"`; may be given again, as the others.
    #[arg(long, value_name = "CLASS=GOAL")]
    pub goal: Vec<String>,
    /// Another node, or other sizes of one: `n5="2.0, 4GiB"`; or one less: `n2=off`.
    #[arg(long, value_name = "NODE=CORES,MEMORY")]
    pub node: Vec<String>,
    /// How many times as much requests of an application cost.
    #[arg(long, value_name = "APP=FACTOR")]
    pub cost: Vec<String>,
    /// How many times as many requests come in, for all or for one application.
    #[arg(long, value_name = "[APP=]FACTOR")]
    pub load: Vec<String>,
    /// The seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Which config the recorded pool had.
    #[command(flatten)]
    pub target: PoolArgs,
}

/// `weal replay`.
#[derive(Debug, Clone, Args)]
pub struct Replay {
    /// The recording.
    pub recording: PathBuf,
    /// Share of the recorded volume.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub volume: f64,
    /// The seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Which pool; its routes say where each flow's requests go.
    #[command(flatten)]
    pub target: PoolArgs,
}
