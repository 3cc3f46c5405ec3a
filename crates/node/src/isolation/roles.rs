//! weal's own processes come before the instances.
//!
//! Every request passes the gateway and every wake the agent: where instances and others take all cores, a role that waits for its turn among
//! them makes every instance late. Their group stands beside the nodes' in the pool's own and weighs as much as the kernel allows.

use std::fs;
use std::io;
use std::path::PathBuf;

use weal_host::Proc;

use super::{Isolation, detect};
use crate::files::at;

/// Puts a process of weal's own there. An error for any other: who may call the agent shall not place whom he likes before all instances.
pub fn prefer(isolation: &dyn Isolation, pid: u32) -> io::Result<()> {
    let proc = Proc::system();
    let program = |pid: u32| proc.program(pid).map_err(|error| at(&proc.path(pid, "exe"))(error));
    if program(pid)? != program(proc.own_pid())? {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("process {pid} is none of weal's")));
    }
    isolation.role_entrances().iter().try_for_each(|entrance| fs::write(entrance, pid.to_string()).map_err(at(entrance)))
}

/// The agent's own place there.
pub struct RolePlace {
    /// Files of the groups that it came from.
    back: Vec<PathBuf>,
}

impl RolePlace {
    /// Takes it, where there is one.
    pub fn take(isolation: &dyn Isolation) -> Self {
        let back = detect::own_groups_beside(&isolation.role_entrances());
        if let Err(error) = prefer(isolation, std::process::id()) {
            tracing::warn!(%error, "the node agent could not be put before instances for CPU");
        }
        Self { back }
    }

    /// Leaves it, so that it can be taken away. If it may not, an empty group is left until the next agent ends.
    pub fn leave(self) {
        for group in self.back {
            if let Err(error) = fs::write(&group, "0") {
                tracing::debug!(%error, group = %group.display(), "the agent stays in its group");
            }
        }
    }
}
