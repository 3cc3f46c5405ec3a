//! What can be wrong with a scenario.

use std::io;

use weal_model::Bytes;
use weal_model::naming::RULE_OF_NAMES;

use crate::workload::{SwfError, TraceError};

/// A mistake in a scenario file, with its place.
#[derive(Debug, thiserror::Error)]
#[error("line {line}, column {column}: {mistake}")]
pub struct ScenarioError {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// What is wrong and what would be right.
    pub mistake: Mistake,
}

/// What is wrong in a file, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum Mistake {
    /// It is not TOML, or a value or key is none that a table takes.
    #[error("{message}")]
    Toml {
        /// As the reader of TOML says it.
        message: String,
    },
    /// Nothing says what it is for.
    #[error("say in a sentence what the scenario is there to show")]
    Intent,
    /// It is over at once.
    #[error("a scenario lasts longer than nothing")]
    Duration,
    /// There is nothing to run it on.
    #[error("give `[[node]]` and `[app.NAME]` or `[[job]]` tables to simulate, or `config` to rehearse")]
    NoPool,
    /// Two nodes have one name.
    #[error("node `{node}` is there twice")]
    NodeTwice {
        /// The name.
        node: String,
    },
    /// A node's cores are no amount.
    #[error("cores are a number, zero or more")]
    Cores,
    /// A word that is none.
    #[error("importance is `lowest`, `low`, `normal`, `high` or `highest`")]
    Importance,
    /// A limit that lets nothing through.
    #[error("a rate is above zero")]
    Rate,
    /// An application names a node that is not there.
    #[error("app `{app}` names node `{node}`, which is not there")]
    AppNamesNode {
        /// The application.
        app: String,
        /// The node.
        node: String,
    },
    /// An application names another that is not there.
    #[error("app `{app}` names app `{other}`, which is not there")]
    AppNamesApp {
        /// The application.
        app: String,
        /// The other.
        other: String,
    },
    /// Neither a count nor a range.
    #[error("`{text}` is not a number of instances: write `3` or `\"1..4\"`")]
    Instances {
        /// What stands there.
        text: String,
    },
    /// A table names an application that is not there.
    #[error("there is no `[app.{app}]`")]
    NoApp {
        /// The application.
        app: String,
    },
    /// A load or a page names a class that is not there.
    #[error("there is no `[class.{class}]`")]
    NoClass {
        /// The class.
        class: String,
    },
    /// A fault names a node that is not there.
    #[error("there is no node `{node}`")]
    NoNode {
        /// The node.
        node: String,
    },
    /// A file that the scenario names is of no use.
    #[error("`{file}`: {problem}")]
    File {
        /// As the scenario names it.
        file: String,
        /// Why.
        problem: FileProblem,
    },
    /// None of the kinds of load, or several.
    #[error("a load has exactly one of `sessions`, `rate`, `bursts`, `trace` and `log`")]
    LoadKind,
    /// A burst that is over at once.
    #[error("a burst lasts longer than nothing")]
    Burst,
    /// A crowd on top of nothing.
    #[error("`flash` comes on top of a `rate`")]
    Flash,
    /// A step changes something else, or nothing.
    #[error("a step changes what its load has: `sessions` or `rate`")]
    Step,
    /// A step that is earlier than the one before.
    #[error("steps go forward in time")]
    StepOrder,
    /// Nobody walks through the pages.
    #[error("`pages` are walked through by `sessions`")]
    PagesWithoutSessions,
    /// A page that is not there follows.
    #[error("page `{page}` leads to `{to}`, which is not there")]
    PageLeads {
        /// The page.
        page: String,
        /// What follows.
        to: String,
    },
    /// Probabilities that are none.
    #[error("what follows page `{page}` has probabilities of {sum} in sum")]
    PageSum {
        /// The page.
        page: String,
        /// Their sum.
        sum: f64,
    },
    /// A name that no job of a pool can have.
    #[error("`{name}` cannot be the name of a job: names have {RULE_OF_NAMES}")]
    BadJobName {
        /// The name.
        name: String,
    },
    /// A job's name is taken.
    #[error("job `{name}` is there twice")]
    JobName {
        /// The name.
        name: String,
    },
    /// No goal, or two.
    #[error("a job has exactly one of `goal` (a time) and `goal-factor` (a multiple of its time at full speed)")]
    JobGoal,
    /// A way back to a state that nothing saves.
    #[error("what restores a job's state needs a `checkpoint` that saves it")]
    JobRestore,
    /// A count without a gap, or a gap of nothing.
    #[error("`every` says how far apart jobs come in the mean; `count` says how many of them")]
    JobEvery,
    /// No tasks, or too many.
    #[error("`tasks` is a number from 1 to 10000")]
    JobTasks,
    /// What is stated is no multiple of what is true.
    #[error("`stated-factor` is a number from 0.001 to 1000, or 0 of a job without `stages`")]
    JobStated,
    /// Nothing says what there is to do.
    #[error("say how much `work` a task is and how much `memory` it takes, or give `stages`, or a `log`")]
    JobWork,
    /// Both the job and its stages say it.
    #[error("`work`, `cpu`, `min-cpu` and `memory` are said in each of the `stages`")]
    JobStages,
    /// A stage with nothing to do.
    #[error("`work` is more than nothing")]
    StageWork,
    /// A stage's cores are no amounts, or in the wrong order.
    #[error("`cpu` is a number of cores above 0, up to 1024, and `min-cpu` at most that")]
    StageCpu,
    /// The table says what its log says.
    #[error("a `log` says itself how much work its jobs are, of how many tasks, and when they come")]
    JobOfLog,
    /// A log cannot be played so fast.
    #[error("`speed` is a positive number")]
    Speed,
    /// A fault of a node, without one.
    #[error("say which `node`")]
    FaultNode,
    /// A fault of an application, without one.
    #[error("say of which `app`")]
    FaultApp,
    /// A fault without a size.
    #[error("say how much: `amount`")]
    FaultAmount,
    /// An order of steps without any, or with a job that does not come.
    #[error("`job-order` has an `order` of steps of the scenario's jobs, such as `[\"{job} starts\", \"{job} is done\"]`")]
    ExpectedOrder {
        /// A job that the scenario has.
        job: String,
    },
    /// Nothing is expected.
    #[error("an expectation has `at-least`, `at-most` or both")]
    ExpectedRange,
    /// The pool lacks what the scenario names.
    #[error(transparent)]
    Lacking(#[from] Lacking),
}

/// Why a recording or a log is of no use.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is no recording of requests per minute.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It is no log of jobs.
    #[error(transparent)]
    Swf(#[from] SwfError),
    /// It is no access log.
    #[error("it has no line in Common or Combined Log Format")]
    NoLine,
    /// One of its lines has a wrong date.
    #[error("it covers {seconds} s, more than a year")]
    TooLong {
        /// From its first line to its last.
        seconds: u64,
    },
    /// All of its jobs are left out.
    #[error("no job in it is left")]
    NoJob,
    /// It cannot be played so fast.
    #[error("`speed` is a positive number")]
    Speed,
}

/// What a scenario names and its pool does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lacking {
    /// An application.
    #[error("the pool has no application `{0}`")]
    App(String),
    /// A class.
    #[error("the pool has no class `{0}`")]
    Class(String),
    /// A node.
    #[error("the pool has no node `{0}`")]
    Node(String),
    /// A node that a job's task fits on.
    #[error("job `{job}` takes {task} a task, and no node has more than {roomiest}")]
    Memory {
        /// The job.
        job: String,
        /// Memory of a task.
        task: Bytes,
        /// Memory of the largest node.
        roomiest: Bytes,
    },
}
