//! What a process may do beyond its user's rights: capabilities, kernel keys, how much it may open.

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, during};

/// Limits that the kernel keeps for each process (setrlimit(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Open files (RLIMIT_NOFILE).
    pub open_files: u64,
    /// Whether a crash writes the memory to a file (RLIMIT_CORE).
    pub core_dumps: bool,
}

impl ProcessLimits {
    /// Sets them. A limit that is lower already stays where the process may not raise it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set(self) -> Result<(), Failure> {
        let files = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
        let highest = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        setrlimit(Resource::Nofile, files(self.open_files))
            // Who may not raise the limit keeps the one that there is.
            .or_else(|_| setrlimit(Resource::Nofile, files(self.open_files.min(highest))))
            .map_err(during("limit its open files"))?;
        if !self.core_dumps {
            setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
                .map_err(during("switch off its core dumps"))?;
        }
        Ok(())
    }
}

/// Gives up every capability also for what is run later, set-user-ID programs and files with capabilities among it. Needs CAP_SETPCAP.
///
/// # Errors
/// The kernel refuses.
pub fn drop_bounding_set() -> Result<(), Failure> {
    let step = || {
        clear_ambient_capability_set()?;
        // The kernel tells by an error where its capabilities end.
        for number in 0..64u32 {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            match capability_is_in_bounding_set(capability) {
                Ok(true) => remove_capability_from_bounding_set(capability)?,
                Ok(false) => {}
                Err(_) => break,
            }
        }
        rustix::io::Result::Ok(())
    };
    step().map_err(during("empty its bounding set of capabilities"))
}

/// Gives up what capabilities are left.
///
/// # Errors
/// The kernel refuses.
pub fn drop_capabilities() -> Result<(), Failure> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(during("give up its capabilities"))
}

/// Leaves the kernel's keys of the session that weal was started in.
///
/// # Errors
/// The kernel refuses; one without keys is no error.
pub fn leave_keyring() -> Result<(), Failure> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: without a name the call reads no memory.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
    match std::io::Error::last_os_error() {
        error if result < 0 && error.raw_os_error() != Some(libc::ENOSYS) => {
            Err(Failure::new("leave the session's keys".to_owned(), error))
        }
        _ => Ok(()),
    }
}
