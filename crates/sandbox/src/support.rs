//! What the machine can do to confine a program.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::landlock_rules;
use crate::mounts::{Mounts, Tmp};

/// What can be done here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfinementSupport {
    /// Whether weal's agent is root, and can give up capabilities for others.
    pub is_root: bool,
    /// A file system for each program: Linux 5.12, and the right to mount, which containers seldom have.
    pub mounts: bool,
    /// The version of Landlock, from Linux 5.13 on; 0 where it is missing or switched off. Signals to others are kept back from version 6 on.
    pub landlock_version: u32,
    /// Filters of system calls, on this architecture.
    pub filter: bool,
}

impl ConfinementSupport {
    /// Tries it, in a process that ends at once; only the first time that this process asks.
    pub fn probe() -> Self {
        static PROBED: LazyLock<ConfinementSupport> = LazyLock::new(ConfinementSupport::try_all);
        *PROBED
    }

    fn try_all() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            is_root,
            mounts: is_root && can_mount(),
            landlock_version: landlock_rules::version(),
            filter: crate::Filter::default().compile().is_ok() && has_seccomp(),
        }
    }

    /// What is missing, in sentences.
    pub fn missing(self) -> Vec<&'static str> {
        [
            (
                self.mounts || self.landlock_version > 0,
                "applications can write wherever their user may: there are no mounts of their own and no Landlock here",
            ),
            (
                self.mounts,
                "applications share /tmp, /dev and the list of processes: mounts of their own need root, outside of a container",
            ),
            (self.filter, "applications can make every system call: there are no filters (seccomp) here"),
        ]
        .into_iter()
        .filter(|(is_there, _)| !is_there)
        .map(|(_, text)| text)
        .collect()
    }
}

/// Whether a process with mounts of its own can be made.
fn can_mount() -> bool {
    let mounts =
        Mounts { write: Vec::new(), tmp: Tmp::Shared, hide: Vec::new(), keep: Vec::new(), devices: Vec::new(), root: None };
    let mut command = Command::new("/proc/self/exe");
    // It never gets to run that program: the child ends before.
    command.arg0("weal-probe").env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let try_it = move || match mounts.enter() {
        // SAFETY: ends the child without running what the parent left to be run at its end.
        Ok(()) => unsafe { libc::_exit(0) },
        // SAFETY: the same.
        Err(_) => unsafe { libc::_exit(1) },
    };
    // SAFETY: the child allocates and opens files before it ends; the C library restores its allocator's locks in a forked child.
    unsafe { command.pre_exec(try_it) };
    // The standard library waits for the end of a child that never runs its program, and takes it for started.
    let Ok(mut child) = command.spawn() else { return false };
    let mut nothing = Vec::new();
    let _ = child.stdout.take().map(|mut out| out.read_to_end(&mut nothing));
    child.wait().is_ok_and(|status| status.success())
}

fn has_seccomp() -> bool {
    const GET_ACTION_AVAIL: libc::c_long = 2;
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads one number.
    unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}
