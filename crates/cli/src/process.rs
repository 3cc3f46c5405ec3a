//! What the supervisor does with processes that it knows by identity.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use weal_host::{Identity, Proc};

/// A process that may or may not live any more. It is never mistaken for another one that got its number later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcessId(Identity);

impl ProcessId {
    /// The living process that now has number `pid`; `None` when there is none.
    pub fn of(pid: u32) -> Option<Self> {
        Proc::system().identity(pid).map(Self)
    }

    /// This process.
    pub fn me() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Its number.
    pub fn pid(self) -> u32 {
        self.0.pid
    }

    /// A handle to it; `None` when it has ended.
    pub fn open(self) -> Option<OwnedFd> {
        Proc::system().open(self.0)
    }

    /// Whether it lives.
    pub fn is_alive(self) -> bool {
        Proc::system().is_alive(self.0)
    }

    /// Whether it runs as the user `uid` and no other.
    pub fn runs_as(self, uid: u32) -> bool {
        let users = Proc::system().users(self.pid());
        self.is_alive() && !users.is_empty() && users.iter().all(|one| *one == uid)
    }

    /// Whether it runs the same program as this process.
    pub fn runs_this_program(self) -> bool {
        let proc = Proc::system();
        let theirs = proc.program(self.pid()).ok();
        theirs.is_some() && theirs == proc.program(proc.own_pid()).ok()
    }

    /// Whether `word` is on its command line.
    pub fn was_told(self, word: &str) -> bool {
        let line = std::fs::read(Proc::system().path(self.pid(), "cmdline")).unwrap_or_default();
        self.is_alive() && line.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
    }

    /// Sends `signal`; false when it has ended.
    pub fn signal(self, signal: Signal) -> bool {
        self.open().is_some_and(|handle| rustix::process::pidfd_send_signal(handle, signal).is_ok())
    }

    /// Asks it to end, also if it was stopped, and kills it after `limit`. False when not even that ends it.
    pub async fn end(self, limit: Duration) -> bool {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        self.ended_within(limit).await || self.kill().await
    }

    /// Lets go of what the system keeps of it after its end, if it is a child of this process; true when it was. A supervisor that became another
    /// program has children that it did not start. The first thread of a program may have ended before the others; only then there is
    /// something to let go of, so that it is waited for.
    pub async fn reap(self) -> bool {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid().cast_signed()) else { return false };
        loop {
            match rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG) {
                Ok(Some(_)) => return true,
                Ok(None) if !self.is_alive() => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// Kills it. False when it does not go within five seconds: it hangs in the kernel.
    pub async fn kill(self) -> bool {
        self.signal(Signal::KILL);
        self.ended_within(Duration::from_secs(5)).await
    }

    /// Waits for its end, at most `limit`; true when it came.
    pub async fn ended_within(self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }
}

/// Who listens at a TCP address: `nginx (pid 12)`, or a weal pool by its state directory; `None` when it cannot be told (another user's
/// process).
pub fn holder_of(address: SocketAddr) -> Option<String> {
    let holders = Proc::system().listeners(address);
    // Its supervisor holds the socket as well.
    let pool = holders.iter().find_map(|holder| pool_of(&std::fs::read(Proc::system().path(holder.pid, "cmdline")).ok()?));
    if let Some(state) = pool {
        return Some(format!("another weal pool (weal status --state {state})"));
    }
    let first = holders.first().map(|holder| format!("{} (pid {})", holder.name, holder.pid))?;
    Some(if holders.len() == 1 { first } else { format!("{first} and {} more", holders.len() - 1) })
}

/// The state directory of the pool whose role has this command line.
fn pool_of(command_line: &[u8]) -> Option<String> {
    let mut words = command_line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let is_role = words.next()? == "weal" && words.next()? == "role";
    if !is_role {
        return None;
    }
    words.find(|word| word == "--state")?;
    words.next().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_its_own_program_and_its_parent_another() {
        let me = ProcessId::me().unwrap();
        assert!(me.is_alive() && me.runs_this_program());
        let own = rustix::process::geteuid().as_raw();
        assert!(me.runs_as(own) && !me.runs_as(own + 1));
        let parent = rustix::process::getppid().and_then(|pid| ProcessId::of(pid.as_raw_pid().unsigned_abs()));
        assert!(parent.is_none_or(|parent| !parent.runs_this_program()));
    }

    #[test]
    fn a_role_of_a_pool_is_known_by_its_state_directory() {
        assert_eq!(
            pool_of(b"weal\0role\0gateway\0--state\0/var/lib/weal/a-1\0--name\0gw\0").as_deref(),
            Some("/var/lib/weal/a-1")
        );
        assert_eq!(pool_of(b"weal\0up\0--state\0/var/lib/weal/a-1\0"), None);
        assert_eq!(pool_of(b""), None);
    }

    #[test]
    fn whoever_listens_at_a_port_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = holder_of(listener.local_addr().unwrap()).unwrap();
        assert!(holder.contains(&format!("(pid {})", std::process::id())), "{holder}");
    }
}
