//! Why something that was asked for is not done. Whoever must decide matches on the variant; the sentence is for people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weal_model::{AppName, Bytes, InstanceId, JobName, NodeName, Rung};

/// Why a command or an action was refused, or failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "kebab-case")]
pub enum Refusal {
    /// A sleep is refused because a request asked for the instance a moment before.
    #[error("it was asked for {ago_s:.3} s ago")]
    AskedFor {
        /// Seconds since the node agent named the instance to whoever asked.
        ago_s: f64,
    },
    /// A sleep was broken off because a request asked for the instance.
    #[error("it was woken while it was paged out")]
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
    #[error("nothing is known of this pool's machines yet")]
    NotObserved,
    /// The pool's config lets nothing sleep.
    #[error("nothing sleeps in this pool (enactment = \"{enactment}\", control, placement)")]
    NothingSleeps {
        /// How the pool enacts its placement.
        enactment: String,
    },
    /// An application that is awake needs it.
    #[error("`{by}` is awake and needs it")]
    StillNeeded {
        /// Which.
        by: AppName,
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
    #[error("this engine runs no jobs, so not `{job}` either")]
    NoJobs {
        /// The job.
        job: JobName,
    },
    /// The instance's state allows no such command.
    #[error("{instance} is {state}")]
    WrongState {
        /// The instance.
        instance: InstanceId,
        /// What it does now.
        state: String,
    },
    /// It ended meanwhile.
    #[error("{instance} ended meanwhile")]
    Gone {
        /// The instance.
        instance: InstanceId,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_goes_over_the_wire_as_a_type_and_reads_as_a_sentence() {
        let refusal = Refusal::AskedFor { ago_s: 0.25 };
        let sent = serde_json::to_string(&refusal).unwrap();
        assert_eq!(sent, r#"{"refusal":"asked-for","ago_s":0.25}"#);
        assert_eq!(serde_json::from_str::<Refusal>(&sent).unwrap(), refusal);
        assert_eq!(refusal.to_string(), "it was asked for 0.250 s ago");
        assert!(refusal.is_wanted() && !Refusal::failed("no").is_wanted());
    }
}
