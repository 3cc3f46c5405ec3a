//! How far an application is confined.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far each instance of an application is confined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SandboxSpec {
    /// Whether at all.
    pub mode: SandboxMode,
    /// Folders and files that it may write besides its data; absolute.
    pub write: BTreeSet<String>,
    /// Devices that it may open besides those that hold nothing; absolute, below /dev.
    pub devices: BTreeSet<String>,
    /// What it may do that no ordinary service does.
    pub permit: BTreeSet<Permit>,
    /// Whether /tmp and /var/tmp are its own.
    pub private_tmp: bool,
    /// Processes and threads at most, of an instance.
    pub processes: u32,
    /// Files that each process may have open.
    pub open_files: u64,
    /// Whether a crash may write the memory to a file.
    pub core_dumps: bool,
}

/// Whether an application is confined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// In all that the machine can do, but for what is opened by name.
    #[default]
    Strict,
    /// Not at all: its user's rights are its only bounds.
    Off,
}

/// Something that no ordinary service does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Permit {
    /// Make namespaces: container engines, sandboxes of browsers.
    Namespaces,
    /// Look into other processes: debuggers, crash reporters.
    Debugging,
    /// Real-time scheduling.
    Realtime,
    /// Every system call, also those of 32-bit programs.
    SystemCalls,
}

impl Permit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Namespaces, Self::Debugging, Self::Realtime, Self::SystemCalls];

    /// Its word in a config.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Debugging => "debugging",
            Self::Realtime => "realtime",
            Self::SystemCalls => "system-calls",
        }
    }
}

impl SandboxSpec {
    /// Processes and threads of an instance, unless the config says otherwise.
    pub const PROCESSES: u32 = 256;
    /// Open files of a process, unless the config says otherwise.
    pub const OPEN_FILES: u64 = 65_536;

    /// Without any bounds.
    pub fn off() -> Self {
        Self { mode: SandboxMode::Off, ..Self::default() }
    }
}

impl Default for SandboxSpec {
    fn default() -> Self {
        Self {
            mode: SandboxMode::Strict,
            write: BTreeSet::new(),
            devices: BTreeSet::new(),
            permit: BTreeSet::new(),
            private_tmp: true,
            processes: Self::PROCESSES,
            open_files: Self::OPEN_FILES,
            core_dumps: false,
        }
    }
}
