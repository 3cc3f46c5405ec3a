//! What an isolation lacks against control groups of v2 as root.

use std::fmt;

/// One thing that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// There are no control groups to use.
    NoGroups {
        /// Why, for people.
        why: String,
    },
    /// The CPU controller of v2 is not there.
    NoCpuController,
    /// The memory controller of v2 is not there.
    NoMemoryController,
    /// The controller of v1 or v2 that counts processes is not there.
    NoProcessController,
    /// CPU is counted, and nobody is held to any.
    CpuOnlyCounted,
    /// The agent looks at memory itself, and kills.
    MemoryPolled,
    /// v1 counts no disk use that can be told apart.
    DiskOfLivingOnly,
    /// The kernel cannot freeze a group.
    NoFreezer,
    /// The kernel cannot kill a group.
    NoKill,
    /// The kernel does not tell how long a node's processes wait for CPU.
    NoPressure,
}

impl Loss {
    /// True when CPU cannot be limited and shared out.
    pub fn is_of_cpu(&self) -> bool {
        matches!(self, Self::NoCpuController | Self::CpuOnlyCounted)
    }

    /// True when nobody holds an instance to its memory limit.
    pub fn is_of_memory(&self) -> bool {
        matches!(self, Self::NoMemoryController)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoGroups { why } => return write!(f, "no cgroups: {why}"),
            Self::NoCpuController => "no CPU limits and shares: the cpu controller is not delegated to weal",
            Self::NoMemoryController => "no memory limits by the kernel: the memory controller is not delegated to weal",
            Self::NoProcessController => {
                "no limit to an instance's processes: the pids controller is not there or not delegated to weal"
            }
            Self::CpuOnlyCounted => "CPU limits and shares are not enforced, node slices are only counted",
            Self::MemoryPolled => "memory limits are enforced by polling once a second",
            Self::DiskOfLivingOnly => "cgroup v1 controllers: disk use is counted only for processes that still run",
            Self::NoFreezer => "no cgroup freezer: instances are suspended by SIGSTOP, which their parents can see",
            Self::NoKill => "no cgroup.kill: instances are killed process by process",
            Self::NoPressure => "no CPU pressure per node (PSI)",
        })
    }
}
