//! What a machine or a cluster can do. The planner, `weal status` and `weal doctor` read the same.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weal_model::Rung;

/// What an engine can do where it runs. What is missing in a message of an earlier version counts as missing here.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Capabilities {
    /// How instances are kept apart, in the engine's word: `cgroup-v2`, `cgroup-hybrid`, `none`, `kubernetes`.
    pub isolation: String,
    /// Where its nodes come from.
    pub nodes: NodeOrigin,
    /// The rungs that an instance can sleep on, the lightest first; empty when nothing can be frozen.
    pub rungs: Vec<Rung>,
    /// CPU is divided by shares while a node is full.
    pub cpu_shares: bool,
    /// An instance can be held to so much CPU.
    pub cpu_limits: bool,
    /// An instance can be held to so much memory.
    pub memory_limits: bool,
    /// Memory can be kept free on a node at the cost of sleepers.
    pub reserves: bool,
    /// Batch jobs can run.
    pub jobs: bool,
    /// A job can go on at another node than where it was begun.
    pub moves_jobs: bool,
    /// What is lost by what is missing, for people: one sentence each. Nothing is decided by it.
    pub losses: Vec<String>,
}

/// Where an engine's nodes come from.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeOrigin {
    /// The config names them: slices of one machine.
    #[default]
    Configured,
    /// The engine finds them: machines of a cluster.
    Discovered,
}

impl Capabilities {
    /// Of an engine that can do everything: what a simulated pool has unless its scenario says otherwise.
    #[must_use]
    pub fn all(isolation: &str) -> Self {
        Self {
            isolation: isolation.to_owned(),
            nodes: NodeOrigin::Configured,
            rungs: Rung::ALL.to_vec(),
            cpu_shares: true,
            cpu_limits: true,
            memory_limits: true,
            reserves: true,
            jobs: true,
            moves_jobs: true,
            losses: Vec::new(),
        }
    }
}
