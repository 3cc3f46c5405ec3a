//! The commands about jobs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::target::PoolArgs;

/// `weal submit`.
#[derive(Debug, Clone, Args)]
pub struct Submit {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// What is said about the job.
    #[command(flatten)]
    pub options: JobOptions,
    /// Say when it would be done and who would lose what, and run nothing.
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Wait until it is over, and fail if it is not done.
    #[arg(long)]
    pub wait: bool,
    /// Program and arguments. In a script, lines `#weal --done-by 30m` say what is not said here.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// What a person says about a job, in the command line or in lines `#weal` of a script.
#[derive(Debug, Default, Clone, PartialEq, Args)]
pub struct JobOptions {
    /// When it is to be done: within a duration (`30m`), or at a time (`18:00`, `tomorrow 06:00`, RFC 3339).
    #[arg(long, value_name = "GOAL")]
    pub done_by: Option<String>,
    /// What it is called; its number is added [default: the program].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Its service class: one of the config, or platinum, gold, silver, bronze, which stand for a goal of
    /// 1.5, 3, 10, 30 times its work.
    #[arg(long, value_name = "CLASS")]
    pub class: Option<String>,
    /// Its place among waiting jobs whose classes matter alike, from -100 to 100: a higher one goes first [default: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// So many processes that run at once, all or none: started, paused, suspended and ended together. --cpus and --work are what all of
    /// them have, --memory is what each has [default: 1].
    #[arg(long, value_name = "N")]
    pub tasks: Option<u32>,
    /// The most memory that it may use [default: 256MiB].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// The most CPU that helps it, in cores [default: 1].
    #[arg(long, value_name = "CORES")]
    pub cpus: Option<f64>,
    /// CPU time that it takes [default: learnt from earlier jobs of its name].
    #[arg(long, value_name = "TIME")]
    pub work: Option<String>,
    /// A file with its phases, each with its work, CPU and memory; in place of --work, --cpus and --memory.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["work", "cpus", "memory"])]
    pub stages: Option<PathBuf>,
    /// A variable; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// The working directory [default: a folder of its own].
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// A file or folder that is copied into the job's own folder before it begins; may be given several times.
    #[arg(long, value_name = "PATH")]
    pub input: Vec<PathBuf>,
    /// A pattern of paths in the job's own folder, copied to the folder of --to before the job counts as done; may be given several times.
    #[arg(long, value_name = "GLOB")]
    pub result: Vec<String>,
    /// The folder for the results. The job's user must be able to write in it.
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// A command that saves the job's state in its folder while it runs: weal may then end it, and let it go on later or on another node.
    #[arg(long, value_name = "COMMAND")]
    pub checkpoint: Option<String>,
    /// The command that goes on from the saved state [default: the job's own command].
    #[arg(long, value_name = "COMMAND", requires = "checkpoint")]
    pub restore: Option<String>,
    /// A second submission with the same key is the same job.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// How often it is run again after it fails [default: 0].
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Do not start before this job or array is done; may be given several times.
    #[arg(long, value_name = "ID")]
    pub after: Vec<String>,
    /// One job for each number, `1-20` or `0-100:10`, which it finds as `$ARRAY_INDEX`.
    #[arg(long, value_name = "FIRST-LAST")]
    pub array: Option<String>,
}

impl JobOptions {
    /// What is said here, and where nothing is said what `others` say. Variables, files and jobs to wait for are added up.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            done_by: self.done_by.or(others.done_by),
            name: self.name.or(others.name),
            class: self.class.or(others.class),
            priority: self.priority.or(others.priority),
            tasks: self.tasks.or(others.tasks),
            memory: self.memory.or(others.memory),
            cpus: self.cpus.or(others.cpus),
            work: self.work.or(others.work),
            stages: self.stages.or(others.stages),
            // The last of two values of one variable counts.
            env: [others.env, self.env].concat(),
            cwd: self.cwd.or(others.cwd),
            input: [others.input, self.input].concat(),
            result: [others.result, self.result].concat(),
            to: self.to.or(others.to),
            checkpoint: self.checkpoint.or(others.checkpoint),
            restore: self.restore.or(others.restore),
            idempotency_key: self.idempotency_key.or(others.idempotency_key),
            retries: self.retries.or(others.retries),
            after: [others.after, self.after].concat(),
            array: self.array.or(others.array),
        }
    }
}

/// `weal jobs`.
#[derive(Debug, Clone, Args)]
pub struct ListJobs {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// Show it anew each second.
    #[arg(short, long)]
    pub watch: bool,
    /// The schedules of the config and their next dates, in place of jobs.
    #[arg(long, conflicts_with_all = ["all", "limit"])]
    pub schedules: bool,
    /// Also those that were over long ago.
    #[arg(short, long)]
    pub all: bool,
    /// At most so many.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 200)]
    pub limit: u32,
}

/// `weal job`.
#[derive(Debug, Clone, Subcommand)]
pub enum JobAction {
    /// Show all about a job.
    Show(OneJob),
    /// Write what a job wrote, byte for byte.
    Logs(JobLogs),
    /// End a job.
    Cancel(OneJob),
    /// Let a job stand still; it keeps its memory.
    Pause(OneJob),
    /// Let a job stand still, and its image leave memory.
    Suspend(OneJob),
    /// Let weal decide about a job again.
    Resume(OneJob),
    /// End a job's run and begin it anew; also one that is over.
    Requeue(OneJob),
}

/// One job.
#[derive(Debug, Clone, Args)]
pub struct OneJob {
    /// Which pool.
    #[command(flatten)]
    pub target: PoolArgs,
    /// The job; for orders also an array, which stands for all of its jobs that are not over.
    #[arg(value_name = "ID")]
    pub job: String,
}

/// `weal job logs`.
#[derive(Debug, Clone, Args)]
pub struct JobLogs {
    /// The config file [default: weal.toml].
    #[arg(long, value_name = "FILE", env = "WEAL_FILE")]
    pub file: Option<PathBuf>,
    /// The state directory, in place of the one that belongs to the config file.
    #[arg(long, value_name = "DIR", env = "WEAL_STATE")]
    pub state: Option<PathBuf>,
    /// The job.
    #[arg(value_name = "ID")]
    pub job: String,
    /// Go on with what it writes until it ends.
    #[arg(short, long)]
    pub follow: bool,
    /// So many lines before the end to begin [default: all that is kept].
    #[arg(long, value_name = "N")]
    pub tail: Option<u32>,
    /// Which run of it, from 1 [default: the last].
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
    /// Which task of a job of several, from 0 [default: the first].
    #[arg(long, value_name = "N")]
    pub task: Option<u32>,
}
