//! Signals to processes.

use rustix::process::{Pid, Signal};

/// Sends `signal` to `pid`. That it is gone already is no error.
pub fn signal(pid: u32, signal: Signal) -> std::io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
