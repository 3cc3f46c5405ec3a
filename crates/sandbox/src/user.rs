//! Which user a program is in its own eyes. To the machine it stays the user that weal gave it.

use std::fs;
use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, during};

/// Which user a program is in its own eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenAs {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl SeenAs {
    /// Enters a user namespace in which this process, which is its user already, has these numbers, and in which nobody else has any. False where
    /// the machine lets nobody make such namespaces: then the program finds the machine's numbers.
    ///
    /// # Errors
    /// The kernel refuses the numbers.
    pub(crate) fn enter(self) -> Result<bool, Failure> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // Whoever changes its user cannot write to its own files in /proc, unless it lets others of this user look at it: all of them are the
        // application's, and the program that comes next lets them, too.
        set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(during("open its own /proc"))?;
        // SAFETY: the process has a single thread, and no file descriptor table is unshared.
        if unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.is_err() {
            return Ok(false);
        }
        let write = || {
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/gid_map", format!("{} {gid} 1", self.gid))?;
            fs::write("/proc/self/uid_map", format!("{} {uid} 1", self.uid))
        };
        write().map_err(|error: io::Error| Failure::new("be seen as the user of its image".to_owned(), error))?;
        Ok(true)
    }
}
