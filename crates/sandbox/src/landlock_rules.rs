//! Landlock: what a process may do with files and other processes, decided without privileges. It serves where mounts cannot: a pool that does
//! not run as root.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
    path_beneath_rules,
};
use serde::{Deserialize, Serialize};

/// What a program may change. It reads and runs what file permissions let it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landlock {
    /// Folders and files that it may write.
    pub write: Vec<PathBuf>,
}

/// The newest rules that are known here; of these a kernel applies what it knows.
const KNOWN: ABI = ABI::V6;
/// Where any program may write: what it writes there goes nowhere, or to a terminal of its own.
const DEVICES: [&str; 8] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts", "/dev/ptmx"];

impl Landlock {
    /// Puts this process, and all that it starts, under the rules for good. Without new privileges being ruled out before, it fails.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn restrict(&self) -> Result<(), RulesetError> {
        let all = AccessFs::from_all(KNOWN);
        let devices = DEVICES.iter().map(PathBuf::from).filter(|path| path.exists());
        let writable = self.write.iter().cloned().chain(devices);
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all)?
            .scope(Scope::from_all(KNOWN))?
            .create()?
            .add_rules(path_beneath_rules(["/"], AccessFs::from_read(KNOWN)))?
            .add_rules(path_beneath_rules(writable, all))?
            .restrict_self()?;
        Ok(())
    }
}

/// The version of Landlock that the kernel has; 0 without it, or switched off.
pub fn version() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call reads no memory and makes nothing.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    u32::try_from(version).unwrap_or(0)
}
