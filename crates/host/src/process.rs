//! Processes as `/proc` shows them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};

use crate::read::{LIST, SMALL, bytes, field, text};

/// A process that is not mistaken for another one that got its number later.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot: field 22 of `/proc/PID/stat`.
    #[serde(alias = "start_time_ticks")]
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

impl Stat {
    /// Who this is.
    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// False when it has ended and only its parent does not know yet.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// CPU-seconds of its own: user and system.
    pub fn own_seconds(&self) -> f64 {
        ticks_to_seconds(self.own_ticks)
    }
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
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file `name` of `pid`.
    pub fn path(&self, pid: u32, name: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(name)
    }

    /// The number of this process there: in a process namespace of its own, it may have another one than it knows.
    pub fn own_pid(&self) -> u32 {
        let link = fs::read_link(self.root.join("self")).ok();
        link.and_then(|link| link.to_str()?.parse().ok()).unwrap_or_else(std::process::id)
    }

    /// What it says about `pid`; `None` when there is no such process.
    pub fn stat(&self, pid: u32) -> Option<Stat> {
        parse_stat(&text(&self.path(pid, "stat"), SMALL).ok()?)
    }

    /// The numbers of all processes.
    pub fn pids(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Vec::new() };
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// All processes.
    pub fn all(&self) -> Vec<Stat> {
        self.pids().into_iter().filter_map(|pid| self.stat(pid)).collect()
    }

    /// The identity of a living process; zombies are not.
    pub fn identity(&self, pid: u32) -> Option<Identity> {
        self.stat(pid).filter(Stat::is_alive).map(|stat| stat.identity())
    }

    /// True while the very same process runs.
    pub fn is_alive(&self, identity: Identity) -> bool {
        self.identity(identity.pid) == Some(identity)
    }

    /// A handle to a process that stays its own whatever becomes of its number; `None` when it has ended.
    pub fn open(&self, identity: Identity) -> Option<OwnedFd> {
        let pid = Pid::from_raw(identity.pid.cast_signed())?;
        // Opened before the start time is compared, so that it cannot be mistaken.
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.is_alive(identity).then_some(handle)
    }

    /// The children of the main thread of `pid`.
    pub fn children(&self, pid: u32) -> Vec<u32> {
        let children = text(&self.path(pid, &format!("task/{pid}/children")), LIST).unwrap_or_default();
        children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
    }

    /// The name of `pid`, at most 15 bytes of it; `None` when there is no such process.
    pub fn name(&self, pid: u32) -> Option<String> {
        Some(text(&self.path(pid, "comm"), SMALL).ok()?.trim().to_owned())
    }

    /// The command line of `pid`, word by word; one empty word when there is no such process.
    pub fn arguments(&self, pid: u32) -> Vec<String> {
        let line = bytes(&self.path(pid, "cmdline"), LIST).unwrap_or_default();
        let words = line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// The file that `pid` executes, as device and number: the same for two processes of one program, whatever it is called.
    ///
    /// # Errors
    /// There is no such process, or it belongs to another user.
    pub fn program(&self, pid: u32) -> io::Result<(u64, u64)> {
        crate::files::file_id(&self.path(pid, "exe"))
    }

    /// Bytes that `pid` has read from and written to disk.
    pub fn disk_bytes(&self, pid: u32) -> Option<u64> {
        let text = text(&self.path(pid, "io"), SMALL).ok()?;
        Some(field(&text, "read_bytes:")? + field(&text, "write_bytes:")?)
    }

    /// The memory that `pid` has for itself plus its part of what it shares, in bytes.
    pub fn proportional_memory(&self, pid: u32) -> Option<u64> {
        Some(field(&text(&self.path(pid, "smaps_rollup"), SMALL).ok()?, "Pss:")? * 1024)
    }

    /// Bytes of `pid` in memory, with all that it shares.
    pub fn resident(&self, pid: u32) -> Option<u64> {
        Some(field(&text(&self.path(pid, "status"), SMALL).ok()?, "VmRSS:")? * 1024)
    }

    /// Bytes of `pid` in swap.
    pub fn swapped(&self, pid: u32) -> Option<u64> {
        Some(field(&text(&self.path(pid, "status"), SMALL).ok()?, "VmSwap:")? * 1024)
    }

    /// The users that `pid` runs as: real, effective, saved, and that of its file accesses. Empty when there is no such process.
    pub fn users(&self, pid: u32) -> Vec<u32> {
        let status = text(&self.path(pid, "status"), SMALL).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        line.split_whitespace().filter_map(|uid| uid.parse().ok()).collect()
    }

    /// True when the environment that `pid` was started with holds `variable=value`.
    pub fn has_variable(&self, pid: u32, variable: &str) -> bool {
        let environ = bytes(&self.path(pid, "environ"), LIST).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    }

    /// The value of `name` in the environment that `pid` was started with; `None` where it is not set.
    pub fn variable(&self, pid: u32, name: &str) -> Option<String> {
        let environ = bytes(&self.path(pid, "environ"), LIST).ok()?;
        let value = |entry: &[u8]| Some(entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
        String::from_utf8(environ.split(|byte| *byte == 0).find_map(value)?).ok()
    }

    /// `roots` that live, and all that descend from them or share one of `sessions`.
    pub fn family(&self, roots: &[Identity], sessions: &[u32]) -> Vec<Stat> {
        let all = self.all();
        let mut members: BTreeSet<u32> = BTreeSet::new();
        loop {
            let before = members.len();
            for stat in &all {
                let is_root = roots.contains(&stat.identity());
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

    fn fake(root: &Path, pid: u32, name: &str, parent: u32, session: u32, start: u64) {
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
        assert!(proc.is_alive(me) && proc.open(me).is_some());
        let impostor = Identity { start_ticks: me.start_ticks + 1, ..me };
        assert!(!proc.is_alive(impostor) && proc.open(impostor).is_none());
        assert_eq!(proc.program(me.pid).unwrap(), proc.program(me.pid).unwrap());
    }

    #[test]
    fn what_a_process_has_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), 7, "web", 1, 7, 100);
        for (name, content) in [
            ("io", "rchar: 9\nread_bytes: 4096\nwrite_bytes: 512\n"),
            ("smaps_rollup", "55-66 ---p [rollup]\nRss: 9 kB\nPss: 3 kB\n"),
            ("status", "Name:\tweb\nUid:\t0\t33\t0\t33\nVmSwap:\t  2 kB\n"),
            ("environ", "A=1\0B=2\0"),
            ("comm", "web\n"),
            ("cmdline", "web\0\0--port\0x\0"),
            ("task/7/children", "8 9 "),
        ] {
            let file = root.path().join("7").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        let proc = Proc::new(root.path());
        assert_eq!((proc.disk_bytes(7), proc.proportional_memory(7), proc.swapped(7)), (Some(4608), Some(3072), Some(2048)));
        assert_eq!((proc.variable(7, "B").as_deref(), proc.variable(7, "C"), proc.variable(8, "B")), (Some("2"), None, None));
        assert_eq!((proc.users(7), proc.users(8)), (vec![0, 33, 0, 33], Vec::new()));
        assert!(proc.has_variable(7, "B=2") && !proc.has_variable(7, "B=") && !proc.has_variable(8, "B=2"));
        assert_eq!(
            (proc.arguments(7), proc.arguments(8)),
            (["web", "", "--port", "x"].map(str::to_owned).to_vec(), vec![String::new()])
        );
        assert_eq!((proc.name(7).as_deref(), proc.name(8), proc.children(7)), (Some("web"), None, vec![8, 9]));
    }

    #[test]
    fn an_identity_written_down_by_an_earlier_version_is_read() {
        let old: Identity = serde_json::from_str(r#"{"pid": 7, "start_time_ticks": 9}"#).unwrap();
        assert_eq!(old, Identity { pid: 7, start_ticks: 9 });
    }
}
