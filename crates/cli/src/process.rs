//! Processes by identity: a pid together with its start time, so that a pid that was given to another process is never
//! taken for the old one.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

/// A process that may or may not live any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// Clock ticks from boot to its start (field 22 of `/proc/PID/stat`).
    pub start_time_ticks: u64,
}

impl ProcessId {
    /// The process that now has number `pid`; `None` when there is none.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { pid, start_time_ticks: start_time(&stat)? })
    }

    /// This process.
    pub fn me() -> Option<Self> {
        Self::of(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// A handle to it; `None` when it has ended. Opened before the start time is compared, so that it cannot be mistaken.
    pub fn open(self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let same = start_time(&stat) == Some(self.start_time_ticks);
        (same && !is_zombie(&stat)).then_some(handle)
    }

    /// Whether it lives.
    pub fn is_alive(self) -> bool {
        self.open().is_some()
    }

    /// Sends `signal`; false when it has ended.
    pub fn signal(self, signal: Signal) -> bool {
        self.open().is_some_and(|handle| rustix::process::pidfd_send_signal(handle, signal).is_ok())
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

/// The command name may hold spaces and parentheses, so fields are counted from its last `)`.
fn after_name(stat: &str) -> Option<std::str::SplitWhitespace<'_>> {
    Some(stat.get(stat.rfind(')')? + 1..)?.split_whitespace())
}

fn start_time(stat: &str) -> Option<u64> {
    after_name(stat)?.nth(19)?.parse().ok()
}

fn is_zombie(stat: &str) -> bool {
    after_name(stat).and_then(|mut fields| fields.next()).is_some_and(|state| state == "Z" || state == "X")
}

/// Who listens at a TCP address: `nginx (pid 12)`; `None` when it cannot be told (another user's process).
pub fn holder_of(address: SocketAddr) -> Option<String> {
    let inodes: Vec<u64> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listening_inodes(&table, address.port()))
        .collect();
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let holders = std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut names: Vec<String> = holders.filter(|pid| holds(*pid, &wanted)).map(name_of).collect();
    let others = names.len().saturating_sub(1);
    names.truncate(1);
    let first = names.pop()?;
    Some(if others == 0 { first } else { format!("{first} and {others} more") })
}

fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = lines.filter(|fields| fields.len() > 9 && fields[3] == LISTEN);
    let here = listening.filter(|fields| fields[1].rsplit_once(':').is_some_and(|(_, hex)| hex == format!("{port:04X}")));
    here.filter_map(|fields| fields[9].parse().ok()).collect()
}

fn holds(pid: i32, wanted: &[String]) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| wanted.iter().any(|name| link == Path::new(name)))
}

fn name_of(pid: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} (pid {pid})", name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_with_another_start_time_is_not() {
        let me = ProcessId::me().unwrap();
        assert!(me.is_alive());
        assert!(!ProcessId { start_time_ticks: me.start_time_ticks + 1, ..me }.is_alive());
    }

    #[test]
    fn the_start_time_is_found_behind_a_name_with_parentheses() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 0 0 0 0 1 2 3 4 20 0 1 0 4242 100 5";
        assert_eq!(start_time(stat), Some(4242));
        assert!(is_zombie("7 (x) Z 1"));
    }

    #[test]
    fn whoever_listens_at_a_port_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = holder_of(listener.local_addr().unwrap()).unwrap();
        assert!(holder.contains(&format!("(pid {})", std::process::id())), "{holder}");
    }
}
