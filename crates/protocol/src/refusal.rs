//! Why something that was asked for is not done. Code that decides matches on the variant; the sentence is for people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weal_model::{AppName, Bytes, InstanceId, InstanceState, JobName, JobPhase, NodeName, QuotaLimit, Rung};

use crate::controller::JobVerb;

/// What an instance is told to do, where its state may not allow that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceCommand {
    /// Sleep.
    Sleep,
    /// Go on.
    Wake,
    /// Save the state of its job.
    Save,
    /// End.
    Stop,
}

/// Why a command or an action was refused, or failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "kebab-case")]
pub enum Refusal {
    /// A sleep is refused because a request asked for the instance a moment before.
    #[error("a request asked for it {ago_s:.3} s ago")]
    AskedFor {
        /// Seconds since the node agent named the instance to whoever asked.
        ago_s: f64,
    },
    /// A sleep was broken off because a request asked for the instance.
    #[error("a request woke it while it was paged out")]
    Woken,
    /// The machine cannot bring an instance to this rung.
    #[error("no instance can be {} here: {missing}", .rung.as_str())]
    NoRung {
        /// The rung.
        rung: Rung,
        /// What is missing, for people.
        missing: String,
    },
    /// Swap is full or missing.
    #[error("it needs {needs} of swap, and {free} is free")]
    NoSwap {
        /// What would be paged out.
        needs: Bytes,
        /// Free swap.
        free: Bytes,
    },
    /// Others filled the swap while an instance was paged out.
    #[error("the swap filled up while it was paged out, which left {left} of it in memory")]
    SwapFilled {
        /// What did not fit.
        left: Bytes,
    },
    /// Memory does not suffice.
    #[error("it needs {needs} of memory, and {free} is free")]
    NoMemory {
        /// What it needs.
        needs: Bytes,
        /// Free memory.
        free: Bytes,
    },
    /// There is no such instance.
    #[error("there is no instance {instance}")]
    NoInstance {
        /// Its id.
        instance: InstanceId,
    },
    /// There is no such node.
    #[error("there is no node {node}")]
    NoNode {
        /// Its name.
        node: NodeName,
    },
    /// There is no such application.
    #[error("there is no application `{app}`")]
    NoApplication {
        /// Its name.
        app: AppName,
    },
    /// Nothing has been observed yet.
    #[error("the controller has not observed this pool's nodes yet")]
    NotObserved,
    /// The pool's config lets nothing sleep.
    #[error("no instance sleeps in this pool, because its config says `{setting}`")]
    SleepIsOff {
        /// The key and the value that decide it: `control = "off"`.
        setting: String,
    },
    /// Its config says that it never sleeps.
    #[error("the config of `{app}` says `sleep = false`")]
    NeverSleeps {
        /// Which.
        app: AppName,
    },
    /// An order or its schedule keeps it awake.
    #[error("`{app}` is {how}")]
    KeptAwake {
        /// Which.
        app: AppName,
        /// `kept awake`, by what and for how long.
        how: String,
    },
    /// A task runs once.
    #[error("`{app}` is a task: it runs once per deploy and is never kept awake")]
    IsTask {
        /// Which.
        app: AppName,
    },
    /// Nobody keeps an application awake for so long.
    #[error("an order keeps an application awake for at least a second and at most {most_s} s: write `sleep = false` for longer")]
    BadSpan {
        /// The most seconds.
        most_s: u64,
    },
    /// An application that is awake needs it.
    #[error("`{by}` is awake and needs it")]
    StillNeeded {
        /// Which.
        by: AppName,
    },
    /// Somebody ordered it to stop.
    #[error("`{app}` was stopped by an order: `weal start {app}` brings it back")]
    Halted {
        /// Which.
        app: AppName,
    },
    /// It has nothing to restart.
    #[error("`{app}` has no instance to restart: `weal status` says why")]
    NothingRuns {
        /// Which.
        app: AppName,
    },
    /// It may have one instance only.
    #[error("`{app}` is a singleton: it cannot have {max} instances")]
    Singleton {
        /// Which.
        app: AppName,
        /// How many were asked for.
        max: u32,
    },
    /// No such number of instances.
    #[error(
        "{min} to {max} instances are not possible: give a number from 1 to 10000, or a range whose first number is not larger"
    )]
    BadRange {
        /// Fewest.
        min: u32,
        /// Most.
        max: u32,
    },
    /// The pool has no memory for so many.
    #[error("the pool has memory for {fit} instances of `{app}`, each of {memory}, and not for {min}")]
    TooMany {
        /// Which.
        app: AppName,
        /// Memory of one.
        memory: Bytes,
        /// So many fit.
        fit: u64,
        /// So many were asked for.
        min: u32,
    },
    /// There is no instance that it could be done to.
    #[error("`{app}` has no instance that could sleep")]
    NoInstances {
        /// Its application.
        app: AppName,
    },
    /// An application that is needed has no ready instance.
    #[error("`{app}` needs `{needed}`, which has no ready instance")]
    NeedNotReady {
        /// Whose start is refused.
        app: AppName,
        /// What it needs.
        needed: AppName,
    },
    /// The engine runs no jobs.
    #[error("this engine runs no jobs, so it cannot run `{job}`")]
    NoJobs {
        /// The job.
        job: JobName,
    },
    /// The job that was submitted cannot be run.
    #[error("{detail}")]
    BadJob {
        /// Why, for people.
        detail: String,
    },
    /// The jobs of a token would be more than they may be together.
    #[error("the token `{token}` may have `{limit} = {most}`: its open jobs take {used}, and this asks for {asked}")]
    OverQuota {
        /// The token's name.
        token: Box<str>,
        /// Which limit.
        limit: QuotaLimit,
        /// What it is, with its unit.
        most: Box<str>,
        /// What is taken of it.
        used: Box<str>,
        /// What was asked for.
        asked: Box<str>,
    },
    /// A token for jobs reaches those alone that were submitted by it.
    #[error("the token `{token}` reaches only jobs that were submitted with it, and {job} was not")]
    JobOfOthers {
        /// The job.
        job: JobName,
        /// The token's name.
        token: Box<str>,
    },
    /// The store could not be read, so nobody knows which jobs there are.
    #[error("the controller could not read the jobs from its store; it starts again once the store can be read")]
    JobsUnread,
    /// There is no such job.
    #[error("there is no job `{job}`: weal jobs lists them")]
    NoJob {
        /// Its name.
        job: JobName,
    },
    /// A job's state allows no such order.
    #[error("job {job} {}, so it {}", .state.phrase(), no_order(*.order))]
    JobState {
        /// The job.
        job: JobName,
        /// What it does.
        state: JobPhase,
        /// The order; `None` from a role of a version that did not say it.
        #[serde(default)]
        order: Option<JobVerb>,
    },
    /// Nothing can be paged out here, so that a job cannot leave memory.
    #[error(
        "job {job} cannot leave memory: this machine cannot page anything out (`weal doctor` says what is missing); pause it instead"
    )]
    NoParking {
        /// The job.
        job: JobName,
    },
    /// A name leads elsewhere when it becomes that of a folder.
    #[error("`{name}` cannot be the name of {what}: letters, digits, `-`, `_` and `.` only")]
    BadName {
        /// What is named: `an instance`.
        what: String,
        /// The name.
        name: String,
    },
    /// A working directory is not absolute.
    #[error("the working directory `{folder}` is not absolute")]
    RelativeFolder {
        /// The folder.
        folder: String,
    },
    /// All ports for instances are taken.
    #[error("all ports for instances are taken")]
    NoPort,
    /// The instance runs from another revision of its configuration.
    #[error("it was started from another configuration; stop it first")]
    OtherRevision {
        /// The instance.
        instance: InstanceId,
    },
    /// The instance's state allows no such command.
    #[error("it {}, so {}", .state.phrase(), cannot(*.command))]
    WrongState {
        /// The instance.
        instance: InstanceId,
        /// What it does now.
        state: InstanceState,
        /// The command; `None` from a role of a version that did not say it.
        #[serde(default)]
        command: Option<InstanceCommand>,
    },
    /// The process could not be started.
    #[error("{detail}")]
    StartFailed {
        /// Why, for people.
        detail: String,
    },
    /// Some process of an instance did not stand still in time.
    #[error("not all of its processes could be frozen within {seconds} s")]
    NotFrozen {
        /// How long was waited.
        seconds: f64,
    },
    /// An instance was woken, and what it runs after a sleep failed.
    #[error("it was thawed after {thawed_ms:.1} ms, but its `on-resume` command failed: {detail}")]
    HookFailed {
        /// Milliseconds until it ran again.
        thawed_ms: f64,
        /// What went wrong, for people.
        detail: String,
    },
    /// An instance was woken, and does not answer its health check.
    #[error("it was thawed after {thawed_ms:.1} ms, but it does not answer its health check: {detail}")]
    NoAnswer {
        /// Milliseconds until it ran again.
        thawed_ms: f64,
        /// What was asked and what came back, for people.
        detail: String,
    },
    /// An instance was woken to learn what it needs, so that it can sleep warm, and did not answer.
    #[error("it was woken to learn its working set, and did not answer its health check: {detail}")]
    NotLearnt {
        /// What was asked and what came back, for people.
        detail: String,
    },
    /// Processes do not end.
    #[error("processes {pids:?} do not end after SIGKILL; they wait for the kernel, perhaps for a broken disk or mount")]
    Stuck {
        /// Their numbers.
        pids: Vec<u32>,
    },
    /// No instance of an application is there to be woken.
    #[error("no instance of `{app}` can be woken{}", each(.failed))]
    NobodyToWake {
        /// The application.
        app: AppName,
        /// Why each of its instances could not be woken.
        failed: Vec<(InstanceId, Refusal)>,
    },
    /// It ended meanwhile.
    #[error("{instance} ended meanwhile")]
    Gone {
        /// The instance.
        instance: InstanceId,
    },
    /// A role does not know a call, or only in another version.
    #[error("unknown method {method}: {}", version(.speaks.as_deref()))]
    UnknownMethod {
        /// What was called: `node.v2/apply`.
        method: String,
        /// What the same call is named there; `None` if there is no such call.
        speaks: Option<String>,
    },
    /// The kernel says that the caller runs as a user that may not call this.
    #[error("user {uid} may not call {method}")]
    CallerNotAllowed {
        /// The user's number.
        uid: u32,
        /// What was called.
        method: String,
    },
    /// No config of root's lets this application run as this user.
    #[error("`{app}` may not run as `{user}`: the config that root gave to this pool does not allow it")]
    UserNotAllowed {
        /// The application.
        app: AppName,
        /// The user.
        user: String,
    },
    /// Root's config lets this application run as root, but not with this command, folder, environment or health check.
    #[error(
        "`{app}` may run as root only as the config says that root gave to this pool; its command, folder, environment or health check differs"
    )]
    OtherProgramAsRoot {
        /// The application.
        app: AppName,
    },
    /// Root's config does not open the sandbox of this application so far.
    #[error("the sandbox of `{app}` may differ from the default only as root's config says")]
    SandboxNotAllowed {
        /// The application.
        app: AppName,
    },
    /// An application may not have secrets, another group, limits of its own or an image.
    #[error(
        "root's config does not give `{app}` the secrets, group, limits or image that it asks for, or gives them to another program"
    )]
    ProcessNotAllowed {
        /// The application.
        app: AppName,
    },
    /// What is in the folder of an application that runs as root, or that has secrets, is for that application alone.
    #[error(
        "`{app}` may not have the folder and the user of `{owner}`: root's config gives them to another program, which runs as root or has secrets"
    )]
    FolderNotAllowed {
        /// The application.
        app: AppName,
        /// Whose folder and user it would have.
        owner: AppName,
    },
    /// One of weal's own roles runs as this user.
    #[error("`{app}` may not run as `{user}`: one of weal's own roles runs as that user")]
    UserOfWeal {
        /// The application.
        app: AppName,
        /// The user.
        user: String,
    },
    /// A role or a cluster does not answer.
    #[error("{peer} does not answer: {detail}")]
    Away {
        /// Which.
        peer: String,
        /// What the system said.
        detail: String,
    },
    /// It took too long.
    #[error("not done within {seconds} s")]
    TimedOut {
        /// How long was waited.
        seconds: f64,
    },
    /// The operating system or another program refused.
    #[error("{detail}")]
    Failed {
        /// What went wrong, for people. Nothing is decided by it.
        detail: String,
    },
    /// A refusal that a later version knows, and this one does not.
    #[error("it was refused for a reason that only a later version of weal knows")]
    #[serde(other)]
    Unknown,
}

impl From<std::io::Error> for Refusal {
    /// What the operating system said. Its error says what it was about.
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl Refusal {
    /// What the operating system or another program said.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self::Failed { detail: detail.into() }
    }

    /// True when a sleep was refused because somebody wants the instance: that says nothing about the rung.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        matches!(self, Self::AskedFor { .. } | Self::Woken)
    }
}

impl Refusal {
    /// True when the same start would be refused again, whenever and wherever it is tried.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::StartFailed { .. }
                | Self::BadName { .. }
                | Self::RelativeFolder { .. }
                | Self::NoJobs { .. }
                | Self::UserNotAllowed { .. }
                | Self::OtherProgramAsRoot { .. }
                | Self::SandboxNotAllowed { .. }
                | Self::ProcessNotAllowed { .. }
                | Self::FolderNotAllowed { .. }
                | Self::UserOfWeal { .. }
        )
    }
}

/// What an unknown method means.
fn version(speaks: Option<&str>) -> String {
    match speaks {
        Some(name) => format!("this role speaks {name}, so the two run different versions of weal"),
        None => "this role may run another version of weal".to_owned(),
    }
}

/// What is not done to a job.
fn no_order(order: Option<JobVerb>) -> String {
    order.map_or_else(|| "takes no such order".to_owned(), |order| format!("cannot be {}", order.participle()))
}

/// What is not done to an instance.
fn cannot(command: Option<InstanceCommand>) -> &'static str {
    match command {
        Some(InstanceCommand::Sleep) => "it cannot be put to sleep",
        Some(InstanceCommand::Wake) => "it cannot be woken",
        Some(InstanceCommand::Save) => "it cannot save its state",
        Some(InstanceCommand::Stop) => "it cannot be stopped",
        None => "it takes no such command",
    }
}

/// What became of each instance, in brackets; nothing when there was none.
fn each(failed: &[(InstanceId, Refusal)]) -> String {
    let each: Vec<String> = failed.iter().map(|(instance, why)| format!("{instance}: {why}")).collect();
    if each.is_empty() { String::new() } else { format!(" ({})", each.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_goes_over_the_wire_as_a_type_and_reads_as_a_sentence() {
        let refusal = Refusal::AskedFor { ago_s: 0.25 };
        let sent = serde_json::to_string(&refusal).unwrap();
        assert_eq!(sent, r#"{"refusal":"asked-for","ago_s":0.25}"#);
        assert_eq!(serde_json::from_str::<Refusal>(&sent).unwrap(), refusal);
        assert_eq!(refusal.to_string(), "a request asked for it 0.250 s ago");
        assert!(refusal.is_wanted() && !Refusal::failed("no").is_wanted());
    }

    #[test]
    fn a_refusal_of_a_later_version_is_still_a_refusal() {
        let known = r#"{"refusal": "asked-for", "ago_s": 1.0, "by": "a field of a later version"}"#;
        assert_eq!(serde_json::from_str::<Refusal>(known).unwrap(), Refusal::AskedFor { ago_s: 1.0 });
        let unknown = r#"{"refusal": "no-moon", "phase": 0.5}"#;
        assert_eq!(serde_json::from_str::<Refusal>(unknown).unwrap(), Refusal::Unknown);
    }

    #[test]
    fn a_refusal_for_a_state_names_the_state_and_what_was_asked_for() {
        let job = Refusal::JobState { job: "x-1".into(), state: JobPhase::Done, order: Some(JobVerb::Pause) };
        assert_eq!(job.to_string(), "job x-1 is done, so it cannot be paused");
        let instance = |command| Refusal::WrongState { instance: "shop-1".into(), state: InstanceState::Backoff, command };
        assert_eq!(instance(Some(InstanceCommand::Sleep)).to_string(), "it backs off, so it cannot be put to sleep");
        let former: Refusal =
            serde_json::from_str(r#"{"refusal": "wrong-state", "instance": "shop-1", "state": "backoff"}"#).unwrap();
        assert_eq!(former, instance(None));
    }

    #[test]
    fn nobody_to_wake_says_what_became_of_each_instance() {
        let nobody = |failed| Refusal::NobodyToWake { app: "web".into(), failed }.to_string();
        assert_eq!(nobody(Vec::new()), "no instance of `web` can be woken");
        let failed = vec![("web-1".into(), Refusal::NotFrozen { seconds: 5.0 }), ("web-2".into(), Refusal::Woken)];
        let text = nobody(failed);
        assert!(
            text.ends_with(
                "(web-1: not all of its processes could be frozen within 5 s; web-2: a request woke it while it was paged out)"
            ),
            "{text}"
        );
    }
}
