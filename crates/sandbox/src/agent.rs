//! What the node agent gives up, although it is root. It makes mounts and control groups, starts programs as other users, and looks into their
//! memory to page it out, so it keeps what that takes. What changes the machine itself it never needs, and neither does what it starts.
//!
//! No filter of system calls: all that the agent starts would inherit it, and a filter ends programs of another architecture. Without these
//! capabilities the calls fail as they do for a user.

use rustix::thread::{CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs};

use crate::exposure::{ConfinedAs, Exposure};
use crate::failure::{Failure, during};
use crate::plan::SandboxPlan;
use crate::rights::leave_keyring;

/// Capabilities that change the machine: its kernel, its hardware, its clock, its audit and its mandatory access control.
const NEEDLESS: [CapabilitySet; 16] = [
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_BOOT,
    CapabilitySet::SYS_TIME,
    CapabilitySet::SYS_TTY_CONFIG,
    CapabilitySet::SYS_PACCT,
    CapabilitySet::LINUX_IMMUTABLE,
    CapabilitySet::AUDIT_WRITE,
    CapabilitySet::AUDIT_CONTROL,
    CapabilitySet::AUDIT_READ,
    CapabilitySet::MAC_OVERRIDE,
    CapabilitySet::MAC_ADMIN,
    CapabilitySet::SYSLOG,
    CapabilitySet::WAKE_ALARM,
    CapabilitySet::BLOCK_SUSPEND,
    CapabilitySet::BPF,
];

/// Settings of systemd's that come to the same, for [`Exposure`].
const CLOSED: [&str; 19] = [
    "NoNewPrivileges=",
    "KeyringMode=",
    "UMask=",
    "ProtectClock=",
    "ProtectKernelLogs=",
    "ProtectKernelModules=",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_BOOT",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_SYS_PACCT",
    "CAP_LINUX_IMMUTABLE",
    "CAP_AUDIT_*",
    "CAP_MAC_*",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_BPF",
];

/// Gives up what the agent does not need, for itself and for all that it starts. To be called while there is one thread.
///
/// # Errors
/// The kernel refuses.
pub fn confine_agent() -> Result<(), Failure> {
    let step = || {
        let mut sets = capabilities(None)?;
        for needless in NEEDLESS {
            if sets.permitted.contains(needless) {
                remove_capability_from_bounding_set(needless)?;
            }
            for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
                set.remove(needless);
            }
        }
        set_capabilities(None, sets)?;
        set_no_new_privs(true)
    };
    step().map_err(during("give up what the node agent does not need"))?;
    leave_keyring()
}

impl Exposure {
    /// Of the node agent of a pool that root started.
    pub fn of_agent() -> Self {
        let mut exposure = Self::of(&SandboxPlan::default(), ConfinedAs::Root);
        let closed = exposure.items.iter_mut().filter(|item| CLOSED.contains(&item.setting));
        closed.for_each(|item| item.open = 0.0);
        exposure
    }
}
