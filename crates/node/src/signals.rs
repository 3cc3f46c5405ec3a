//! Signals to processes. They go to a handle, never to a number: the process may have ended, and its number may be another's by now.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use weal_model::ProcessSignal;

/// The signal that a config names.
pub fn number(signal: ProcessSignal) -> Signal {
    match signal {
        ProcessSignal::Hup => Signal::HUP,
        ProcessSignal::Int => Signal::INT,
        ProcessSignal::Quit => Signal::QUIT,
        ProcessSignal::Term => Signal::TERM,
        ProcessSignal::Usr1 => Signal::USR1,
        ProcessSignal::Usr2 => Signal::USR2,
        ProcessSignal::Winch => Signal::WINCH,
    }
}

/// Sends `signal` to the process that `handle` stands for. That it is gone already is no error.
pub fn send(handle: impl AsFd, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(handle, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends `signal` to the processes that `list` names. It is asked again once their handles are open, and only who is still named is meant.
pub fn send_to_all(list: impl Fn() -> Vec<u32>, signal: Signal) -> io::Result<()> {
    let open = |pid: u32| Some((pid, pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()?));
    let handles: Vec<_> = list().into_iter().filter_map(open).collect();
    if handles.is_empty() {
        return Ok(());
    }
    let named = list();
    handles.iter().filter(|(pid, _)| named.contains(pid)).try_for_each(|(_, handle)| send(handle, signal))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_is_no_longer_named_gets_no_signal() {
        let mut children = [0; 2].map(|_| Command::new("sleep").arg("1000").spawn().unwrap());
        let pids = children.each_ref().map(std::process::Child::id);
        let asked = Cell::new(0);
        let list = || if asked.replace(asked.get() + 1) == 0 { pids.to_vec() } else { vec![pids[1]] };
        send_to_all(list, Signal::KILL).unwrap();
        children[1].wait().unwrap();
        assert!(children[0].try_wait().unwrap().is_none(), "it was named the first time only");
        children[0].kill().unwrap();
        children[0].wait().unwrap();
    }
}
