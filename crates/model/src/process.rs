//! What an application's processes get besides their command: more of an environment, secrets, limits. Names are systemd's where it has the same.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What each process of an application is started with. The default changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProcessSpec {
    /// Files with more variables, the later of which win. What they hold is told to the application only.
    pub env_files: Vec<EnvFile>,
    /// Variables whose values are told to the application only, by where they come from.
    pub secrets: BTreeMap<String, Secret>,
    /// The group, in place of the user's main one.
    pub group: Option<String>,
    /// The bits that files of its making do not get; `None` is 022.
    pub umask: Option<u32>,
    /// What it may use of the system's resources at most.
    pub limits: BTreeMap<ResourceLimit, LimitValue>,
    /// The signal that asks it to end; `None` is SIGTERM.
    pub stop_signal: Option<ProcessSignal>,
    /// The signal that asks it to read its own config anew; `None` when it knows none. Not written when there is none: versions before take
    /// a spec without this key for the same one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload_signal: Option<ProcessSignal>,
    /// `TZ` in its environment.
    pub time_zone: Option<String>,
    /// A file that it reads from its standard input, absolute; `None` is empty.
    pub stdin: Option<String>,
    /// The image whose files it sees in the place of the machine's: an archive or a folder, absolute.
    // Left out where there is none: what an instance was started from is compared with what a version before has written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What takes the place of the image's entry point; `None` leaves that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
}

impl ProcessSpec {
    /// Whether it asks for something that not every application may have: what is secret, another group, more of a resource, or an image.
    pub fn is_privileged(&self) -> bool {
        // The node agent reads an image as root.
        self.is_confidential() || self.group.is_some() || !self.limits.is_empty() || self.image.is_some()
    }

    /// Whether it is told what nobody else is.
    pub fn is_confidential(&self) -> bool {
        !self.env_files.is_empty() || !self.secrets.is_empty()
    }
}

/// A file with lines `NAME=value`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvFile {
    /// Absolute.
    pub path: String,
    /// Whether the application is refused without it.
    pub required: bool,
}

/// A secret, by where it comes from and how it is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Secret {
    /// Where its value is.
    pub from: SecretSource,
    /// The variable holds the path of a file with the value, and not the value itself.
    pub as_file: bool,
}

/// Where a secret's value is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SecretSource {
    /// In this file, absolute.
    File(String),
    /// In this variable of whoever runs `weal up`.
    Variable(String),
    /// In this credential that systemd hands over.
    Credential(String),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{path}"),
            Self::Variable(name) => write!(f, "variable:{name}"),
            Self::Credential(name) => write!(f, "credential:{name}"),
        }
    }
}

/// A resource of setrlimit(2). Open files, processes and core dumps are the sandbox's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceLimit {
    /// The address space, in bytes.
    As,
    /// CPU time, in seconds.
    Cpu,
    /// The data segment, in bytes.
    Data,
    /// The size of a file, in bytes.
    Fsize,
    /// Memory that may be locked, in bytes.
    Memlock,
    /// The highest niceness, as 20 minus it.
    Nice,
    /// The highest real-time priority.
    Rtprio,
    /// Signals that may wait.
    Sigpending,
    /// The stack, in bytes.
    Stack,
}

impl ResourceLimit {
    /// All of them.
    pub const ALL: [Self; 9] =
        [Self::As, Self::Cpu, Self::Data, Self::Fsize, Self::Memlock, Self::Nice, Self::Rtprio, Self::Sigpending, Self::Stack];

    /// As a config and systemd's `Limit…=` call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::As => "as",
            Self::Cpu => "cpu",
            Self::Data => "data",
            Self::Fsize => "fsize",
            Self::Memlock => "memlock",
            Self::Nice => "nice",
            Self::Rtprio => "rtprio",
            Self::Sigpending => "sigpending",
            Self::Stack => "stack",
        }
    }

    /// Whether it is counted in bytes.
    pub fn is_size(self) -> bool {
        matches!(self, Self::As | Self::Data | Self::Fsize | Self::Memlock | Self::Stack)
    }
}

/// A limit, soft and hard at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LimitValue {
    /// So much, in the unit of the resource.
    AtMost(u64),
    /// No limit.
    Infinity,
}

/// A signal that weal sends to the main process of an application: to end it, or to have it read its config anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProcessSignal {
    /// Hang up.
    #[serde(rename = "SIGHUP")]
    Hup,
    /// Interrupt, as Ctrl-C.
    #[serde(rename = "SIGINT")]
    Int,
    /// Quit: nginx and Postgres finish what is under way.
    #[serde(rename = "SIGQUIT")]
    Quit,
    /// Terminate.
    #[serde(rename = "SIGTERM")]
    Term,
    /// The first signal of the application's own.
    #[serde(rename = "SIGUSR1")]
    Usr1,
    /// The second one.
    #[serde(rename = "SIGUSR2")]
    Usr2,
    /// The window's size has changed: Apache finishes what is under way.
    #[serde(rename = "SIGWINCH")]
    Winch,
}

impl ProcessSignal {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Hup, Self::Int, Self::Quit, Self::Term, Self::Usr1, Self::Usr2, Self::Winch];

    /// By its name, with or without `SIG`, or by its number, as an image has it. `None` for others.
    pub fn from_image(word: &str) -> Option<Self> {
        const NUMBERS: [u8; 7] = [1, 2, 3, 15, 10, 12, 28];
        let by_name = Self::ALL.into_iter().find(|one| one.as_str() == word || one.as_str().strip_prefix("SIG") == Some(word));
        by_name.or_else(|| Some(Self::ALL[NUMBERS.iter().position(|number| word.parse() == Ok(*number))?]))
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hup => "SIGHUP",
            Self::Int => "SIGINT",
            Self::Quit => "SIGQUIT",
            Self::Term => "SIGTERM",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Winch => "SIGWINCH",
        }
    }
}
