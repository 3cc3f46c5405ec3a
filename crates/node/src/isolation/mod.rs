//! How nodes and instances are kept apart, limited, frozen, killed and measured.
//!
//! | kind | limits and accounting | freeze, kill, pressure |
//! | --- | --- | --- |
//! | [`unified::Unified`] (`cgroup-v2`) | v2 controllers | v2 |
//! | [`hybrid::Hybrid`] (`cgroup-hybrid`) | v1 cpu, cpuacct, memory | v2 where it is mounted beside them, else signals |
//! | [`plain::Plain`] (`none`) | none for CPU; memory is polled | signals |
//!
//! Groups are `weal-HASH/NODE/INSTANCE` below a base that belongs to us; nothing outside of `weal-HASH` is ever written to,
//! but for our own processes moved into it.
//!
//! The pool's own group gets the highest weight that the kernel takes: the nodes' quotas bound what it uses, and up to there
//! a build on the same machine must not take it away. In it, weal's own processes come before the nodes ([`roles`]).

pub mod detect;
pub mod group;
pub mod hybrid;
mod loss;
pub mod plain;
pub mod roles;
pub mod unified;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weal_model::{Bytes, Cpu, NodeSpec};

pub use loss::Loss;

/// The name of the group of weal's own processes.
pub const ROLES_GROUP: &str = ".roles";

/// The length of the period over which CPU limits hold. Shorter ones cost more and cut bursts of a single request;
/// longer ones let a group that used up its quota stand still for longer. 100 ms is the kernel's own default.
pub const CPU_PERIOD_US: u64 = 100_000;

/// Which isolation is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// cgroup v2 with its controllers.
    CgroupV2,
    /// v1 controllers, v2 (if mounted) for freeze, kill and pressure.
    CgroupHybrid,
    /// Plain processes.
    None,
}

impl Kind {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CgroupV2 => "cgroup-v2",
            Self::CgroupHybrid => "cgroup-hybrid",
            Self::None => "none",
        }
    }
}

/// One instance as isolation sees it.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// Its node.
    pub node: &'a str,
    /// Its id.
    pub instance: &'a str,
    /// Its folder on disk: plain processes are found through what the shim wrote there.
    pub dir: &'a Path,
}

/// A place that holds processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occupied {
    /// Its node; empty where processes have none.
    pub node: String,
    /// Its instance.
    pub instance: String,
}

/// What an instance may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupLimits {
    /// The most memory.
    pub memory: Bytes,
    /// The most CPU; `None` is the node's.
    pub cpu: Option<Cpu>,
    /// CPU relative to the node's other instances; `None` is an equal share.
    pub share: Option<Cpu>,
    /// The most processes and threads; `None` is as many as the node takes.
    pub processes: Option<u32>,
}

/// What an instance has used. Counters only grow while its group exists.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Usage {
    /// CPU-seconds.
    pub cpu_seconds: Option<f64>,
    /// Bytes now, page cache that can be dropped at any time left out.
    pub memory: Option<u64>,
    /// Bytes in swap now.
    pub swap: Option<u64>,
    /// Bytes read from and written to disk.
    pub disk_bytes: Option<u64>,
    /// Processes that were killed for want of memory.
    pub oom_kills: u64,
}

/// What may be left of what is [reclaimable](Isolation::reclaimable): the kernel counts per CPU, and lags.
pub const RECLAIM_SLACK: u64 = 1 << 19;

/// What a node has used.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct NodeUsage {
    /// CPU-seconds; `None` when only the sum over its instances tells.
    pub cpu_seconds: Option<f64>,
    /// Bytes now; `None` when only the sum over its instances tells.
    pub memory: Option<u64>,
    /// Seconds in which some process waited for CPU.
    pub cpu_pressure_seconds: Option<f64>,
}

/// One way to keep instances apart. All calls are short and blocking, and repeating one does no harm.
pub trait Isolation: Send + Sync {
    /// Which.
    fn kind(&self) -> Kind;

    /// What is lost against cgroup v2 as root.
    fn losses(&self) -> &[Loss];

    /// True when the kernel can be asked to page out groups here.
    fn reclaims(&self) -> bool;

    /// Sets a node up, or changes its capacity.
    fn set_node(&self, node: &NodeSpec) -> io::Result<()>;

    /// Takes a node away; one that still holds instances stays.
    fn remove_node(&self, node: &str);

    /// What a node has used.
    fn node_usage(&self, node: &str) -> NodeUsage;

    /// Makes a place for an instance.
    fn create(&self, member: Member<'_>, limits: &GroupLimits) -> io::Result<()>;

    /// Changes what an instance may use.
    fn limit(&self, member: Member<'_>, limits: &GroupLimits) -> io::Result<()>;

    /// Files that a process writes `0` to in order to join the instance.
    fn entrances(&self, member: Member<'_>) -> Vec<PathBuf>;

    /// Files that a process writes `0` to in order to leave the agent's groups without joining an instance.
    fn side_entrances(&self) -> Vec<PathBuf>;

    /// Files that the id of one of weal's own processes is written to in order to put it before all instances; none where CPU is not divided.
    fn role_entrances(&self) -> Vec<PathBuf>;

    /// Where processes of instances run: each instance with its node, which is empty where processes have none. `instances` is the folder that
    /// theirs are in.
    fn places(&self, instances: &Path) -> Vec<Occupied>;

    /// The processes of an instance, without its shim.
    fn processes(&self, member: Member<'_>) -> Vec<u32>;

    /// What an instance has used.
    fn usage(&self, member: Member<'_>) -> Usage;

    /// Stops all its processes where they are. May return before the last one stands still.
    fn freeze(&self, member: Member<'_>) -> io::Result<()>;

    /// True when all its processes stand still.
    fn is_frozen(&self, member: Member<'_>) -> bool;

    /// Lets them go on.
    fn thaw(&self, member: Member<'_>) -> io::Result<()>;

    /// Kills all its processes, frozen or not. They may take a moment to go.
    fn kill(&self, member: Member<'_>) -> io::Result<()>;

    /// True when the kernel can be asked to page out a whole group.
    fn can_reclaim(&self, member: Member<'_>) -> bool;

    /// Bytes that swap has taken or can take and that [`Isolation::reclaim`] could free: what lies in the swap cache is among them. The kernel
    /// adds them up for each question. 0 when a group cannot be reclaimed.
    fn reclaimable(&self, member: Member<'_>) -> u64;

    /// Bytes of memory that its group is charged with, which is told at once; 0 without groups.
    fn charged(&self, member: Member<'_>) -> u64;

    /// Asks the kernel once to free `bytes` of what is [reclaimable](Isolation::reclaimable). It may find less.
    fn reclaim(&self, member: Member<'_>, bytes: u64) -> io::Result<()>;

    /// Lets the instance's memory go to swap, or not any more. What is there already stays.
    fn allow_swap(&self, member: Member<'_>, allowed: bool) -> io::Result<()>;

    /// Bytes on their way to the disk; `None` if it cannot be told.
    fn writeback(&self, member: Member<'_>) -> Option<u64>;

    /// Takes away the place of an instance that has no process left.
    fn remove(&self, member: Member<'_>) -> io::Result<()>;

    /// Takes away everything of ours that is empty.
    fn clear(&self);
}
