//! Processes as `/proc` shows them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// A process that is not mistaken for another one that got its number later.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

/// One line of `/proc/PID/stat`, as far as it is used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its number.
    pub pid: u32,
    /// `R`, `S`, `T`, `Z`, ...
    pub state: char,
    /// Its parent.
    pub parent: u32,
    /// Its session.
    pub session: u32,
    /// User and system time of its own, in clock ticks.
    pub own_ticks: u64,
    /// User and system time of its children that it has waited for, in clock ticks.
    pub waited_ticks: u64,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Resident pages.
    pub resident_pages: u64,
}

/// A `/proc` file system.
#[derive(Debug, Clone)]
pub struct Proc {
    root: PathBuf,
}

impl Proc {
    /// The one at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// `/proc`.
    pub fn system() -> Self {
        Self::new("/proc")
    }

    /// Where it is.
    pub fn root(&self) -> &std::path::Path {
        &self.root
    }

    /// The file `name` of `pid`.
    pub fn path(&self, pid: u32, name: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(name)
    }

    /// What it says about `pid`; `None` when there is no such process.
    pub fn stat(&self, pid: u32) -> Option<Stat> {
        parse_stat(&fs::read_to_string(self.root.join(format!("{pid}/stat"))).ok()?)
    }

    /// All processes.
    pub fn all(&self) -> Vec<Stat> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter_map(|pid| self.stat(pid)).collect()
    }

    /// The identity of a living process; zombies are not.
    pub fn identity(&self, pid: u32) -> Option<Identity> {
        let stat = self.stat(pid)?;
        (stat.state != 'Z' && stat.state != 'X').then_some(Identity { pid, start_ticks: stat.start_ticks })
    }

    /// True while the very same process runs.
    pub fn is_alive(&self, identity: Identity) -> bool {
        self.identity(identity.pid) == Some(identity)
    }

    /// Bytes that `pid` has read from and written to disk.
    pub fn disk_bytes(&self, pid: u32) -> Option<u64> {
        let text = fs::read_to_string(self.root.join(format!("{pid}/io"))).ok()?;
        Some(field(&text, "read_bytes:")? + field(&text, "write_bytes:")?)
    }

    /// The memory that `pid` has for itself plus its part of what it shares, in bytes.
    pub fn proportional_memory(&self, pid: u32) -> Option<u64> {
        let text = fs::read_to_string(self.root.join(format!("{pid}/smaps_rollup"))).ok()?;
        Some(field(&text, "Pss:")? * 1024)
    }

    /// Bytes of `pid` in swap.
    pub fn swapped(&self, pid: u32) -> Option<u64> {
        let text = fs::read_to_string(self.root.join(format!("{pid}/status"))).ok()?;
        Some(field(&text, "VmSwap:")? * 1024)
    }

    /// True when the environment that `pid` was started with holds `variable=value`.
    pub fn has_variable(&self, pid: u32, variable: &str) -> bool {
        let environ = fs::read(self.root.join(format!("{pid}/environ"))).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    }

    /// `roots` that live, and all that descend from them or share one of `sessions`.
    pub fn family(&self, roots: &[Identity], sessions: &[u32]) -> Vec<Stat> {
        let all = self.all();
        let mut members: BTreeSet<u32> = BTreeSet::new();
        loop {
            let before = members.len();
            for stat in &all {
                let is_root = roots.contains(&Identity { pid: stat.pid, start_ticks: stat.start_ticks });
                if is_root || members.contains(&stat.parent) || sessions.contains(&stat.session) {
                    members.insert(stat.pid);
                }
            }
            if members.len() == before {
                break;
            }
        }
        all.into_iter().filter(|stat| members.contains(&stat.pid)).collect()
    }
}

/// The value after `name` at the beginning of a line.
pub fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Sends `signal` to `pid`. That it is gone already is no error.
pub fn signal(pid: u32, signal: Signal) -> std::io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Clock ticks as seconds.
pub fn ticks_to_seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The name may hold anything, spaces and brackets included: fields are counted from its last bracket.
fn parse_stat(text: &str) -> Option<Stat> {
    let pid = text.split_once(' ')?.0.parse().ok()?;
    let rest: Vec<&str> = text.rsplit_once(") ")?.1.split_whitespace().collect();
    let number = |index: usize| rest.get(index)?.parse::<u64>().ok();
    Some(Stat {
        pid,
        state: rest.first()?.chars().next()?,
        parent: u32::try_from(number(1)?).ok()?,
        session: u32::try_from(number(3)?).ok()?,
        own_ticks: number(11)? + number(12)?,
        waited_ticks: number(13)? + number(14)?,
        start_ticks: number(19)?,
        resident_pages: number(21)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(root: &std::path::Path, pid: u32, name: &str, parent: u32, session: u32, start: u64) {
        let folder = root.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let line = format!("{pid} ({name}) S {parent} {pid} {session} 0 -1 0 0 0 0 0 7 3 20 10 20 0 1 0 {start} 0 55 0");
        fs::write(folder.join("stat"), line).unwrap();
    }

    #[test]
    fn a_name_with_brackets_and_spaces_shifts_no_field() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), 42, "a) Z (b c", 7, 9, 1234);
        let stat = Proc::new(root.path()).stat(42).unwrap();
        assert_eq!((stat.state, stat.parent, stat.session, stat.start_ticks), ('S', 7, 9, 1234));
        assert_eq!((stat.own_ticks, stat.waited_ticks, stat.resident_pages), (10, 30, 55));
    }

    #[test]
    fn a_family_holds_descendants_and_the_session_but_not_who_reuses_a_number() {
        let root = tempfile::tempdir().unwrap();
        for (pid, parent, session, start) in
            [(10, 1, 10, 100), (11, 10, 10, 101), (12, 11, 12, 102), (13, 1, 10, 103), (20, 1, 20, 50)]
        {
            fake(root.path(), pid, "x", parent, session, start);
        }
        let proc = Proc::new(root.path());
        let pids = |roots: &[Identity], sessions: &[u32]| -> Vec<u32> {
            let mut pids: Vec<u32> = proc.family(roots, sessions).iter().map(|stat| stat.pid).collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(&[Identity { pid: 10, start_ticks: 100 }], &[]), [10, 11, 12]);
        assert_eq!(pids(&[Identity { pid: 10, start_ticks: 100 }], &[10]), [10, 11, 12, 13]);
        assert!(pids(&[Identity { pid: 10, start_ticks: 99 }], &[]).is_empty());
    }

    #[test]
    fn this_process_is_alive_and_an_impostor_is_not() {
        let proc = Proc::system();
        let me = proc.identity(std::process::id()).unwrap();
        assert!(proc.is_alive(me));
        assert!(!proc.is_alive(Identity { start_ticks: me.start_ticks + 1, ..me }));
    }
}
