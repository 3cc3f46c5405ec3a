//! Control groups: where their hierarchies are mounted, which group a process is in, and what a group's files say.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::Proc;
use crate::read::{LIST, SMALL, text};

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub at: PathBuf,
    /// The group that is seen at `at`: not `/` in a container without a namespace of its own.
    pub root: String,
    /// True for v2, which is one hierarchy for all controllers.
    pub is_v2: bool,
    /// The options it was mounted with: on v1, its controllers are among them.
    pub options: Vec<String>,
}

impl Mount {
    /// The directory of the group `name`.
    pub fn path_of(&self, name: &str) -> PathBuf {
        let inside = name.strip_prefix(self.root.as_str()).unwrap_or(name);
        self.at.join(inside.trim_start_matches('/'))
    }

    /// True for the v1 hierarchy of `controller`.
    pub fn has(&self, controller: &str) -> bool {
        !self.is_v2 && self.options.iter().any(|option| option == controller)
    }
}

/// The groups that a process is in: one per hierarchy.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Membership(Vec<(Vec<String>, String)>);

impl Membership {
    /// Its v2 group, by its path from the top of the hierarchy.
    pub fn v2(&self) -> Option<&str> {
        self.v1("")
    }

    /// Its v1 group in the hierarchy of `controller`.
    pub fn v1(&self, controller: &str) -> Option<&str> {
        let of = |(controllers, _): &&(Vec<String>, String)| controllers.iter().any(|name| name == controller);
        self.0.iter().find(of).map(|(_, path)| path.as_str())
    }

    /// Its group in the hierarchy that is mounted at `mount`.
    pub fn in_mount(&self, mount: &Mount) -> Option<&str> {
        if mount.is_v2 { self.v2() } else { mount.options.iter().find_map(|option| self.v1(option)) }
    }

    /// From the lines of `/proc/PID/cgroup` (see cgroups(7)): a number, controllers and a path, with colons between them.
    pub fn parse(lines: &str) -> Self {
        let parse = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?.split(',').map(str::to_owned).collect(), parts.next()?.to_owned()))
        };
        Self(lines.lines().filter_map(parse).collect())
    }
}

/// The cgroup mounts among the lines of `/proc/PID/mountinfo` (see proc(5)): fields up to a lone `-`, then type, source and options.
pub fn parse_mounts(mountinfo: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, at) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let (name, _, options) = (kind.next()?, kind.next()?, kind.next()?);
        let is_v2 = name == "cgroup2";
        (is_v2 || name == "cgroup").then(|| Mount {
            at: PathBuf::from(at.replace("\\040", " ")),
            root: root.to_owned(),
            is_v2,
            options: options.split(',').map(str::to_owned).collect(),
        })
    };
    mountinfo.lines().filter_map(parse).collect()
}

impl Proc {
    /// The control group hierarchies that `pid` sees.
    pub fn cgroup_mounts(&self, pid: u32) -> Vec<Mount> {
        parse_mounts(&text(&self.path(pid, "mountinfo"), LIST).unwrap_or_default())
    }

    /// The control groups that `pid` is in.
    ///
    /// # Errors
    /// There is no such process, or no control group at all.
    pub fn cgroups(&self, pid: u32) -> io::Result<Membership> {
        Ok(Membership::parse(&text(&self.path(pid, "cgroup"), SMALL)?))
    }

    /// The directories of the control groups that `pid` is in, one for each of the hierarchies mounted at `mounts`; of a process that has ended, none.
    pub fn group_directories(&self, pid: u32, mounts: &[Mount]) -> Vec<PathBuf> {
        let membership = self.cgroups(pid).unwrap_or_default();
        mounts.iter().filter_map(|mount| Some(mount.path_of(membership.in_mount(mount)?))).collect()
    }
}

/// A group, by its directory. Any directory will do, so it is tested in a temporary one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// The group at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The group `name` in it.
    pub fn child(&self, name: &str) -> Self {
        Self::new(self.path.join(name))
    }

    /// One of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// True when it is there.
    pub fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// The groups in it.
    pub fn children(&self) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| Self::new(entry.path()))
            .collect()
    }

    /// Reads one of its files.
    ///
    /// # Errors
    /// It cannot be read: the error says which.
    pub fn read(&self, name: &str) -> io::Result<String> {
        let path = self.file(name);
        text(&path, LIST).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Reads one number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.read(name).ok()?.trim().parse().ok()
    }

    /// Reads the number after `key` in a file of `key value` lines.
    pub fn keyed(&self, name: &str, key: &str) -> Option<u64> {
        keyed(&self.read(name).ok()?, key)
    }

    /// The controllers that it may use on v2.
    pub fn controllers(&self) -> Vec<String> {
        self.read("cgroup.controllers").unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    /// Bytes in memory that only swap can take, pages in the swap cache included; v1 prefixes what counts the groups below, too.
    pub fn own_pages(&self) -> u64 {
        let Ok(text) = self.read("memory.stat") else { return 0 };
        let of = |list: &str| keyed(&text, &format!("total_{list}")).or_else(|| keyed(&text, list));
        ["inactive_anon", "active_anon"].into_iter().filter_map(of).sum()
    }

    /// The processes in it and in the groups below it.
    pub fn processes(&self) -> Vec<u32> {
        let mut pids = self.own_processes();
        for child in self.children() {
            pids.extend(child.processes());
        }
        pids
    }

    /// The processes in it alone.
    pub fn own_processes(&self) -> Vec<u32> {
        self.read("cgroup.procs").unwrap_or_default().lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Seconds in which some process of it waited for CPU (PSI).
    pub fn cpu_pressure_seconds(&self) -> Option<f64> {
        let text = self.read("cpu.pressure").ok()?;
        let line = text.lines().find(|line| line.starts_with("some "))?;
        let total: u64 = line.split("total=").nth(1)?.trim().parse().ok()?;
        Some(total as f64 / 1e6)
    }

    /// Bytes that v2 has counted as read from and written to disks.
    pub fn disk_bytes(&self) -> Option<u64> {
        let text = self.read("io.stat").ok()?;
        let fields = text.split_whitespace();
        let bytes =
            fields.filter_map(|field| field.strip_prefix("rbytes=").or(field.strip_prefix("wbytes="))?.parse::<u64>().ok());
        Some(bytes.sum())
    }
}

/// The number after `key` in lines of `key value`.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(' ')?;
        (found == key).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn mounts_are_found_with_their_controllers() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("7")).unwrap();
        fs::write(root.path().join("7/mountinfo"), HYBRID).unwrap();
        let mounts = Proc::new(root.path()).cgroup_mounts(7);
        assert_eq!(mounts.len(), 3);
        assert!(mounts[0].has("cpuacct") && !mounts[1].has("cpuacct"));
        assert!(mounts[2].is_v2);
        assert_eq!(mounts[1].path_of("/docker/abc/x"), Path::new("/sys/fs/cgroup/memory/x"));
    }

    #[test]
    fn the_group_of_a_process_is_found_per_hierarchy() {
        let groups = Membership::parse("4:memory:/a/b\n2:cpu,cpuacct:/c\n1:name=systemd:/d\n0::/user.slice/x:y");
        assert_eq!(groups.v1("memory"), Some("/a/b"));
        assert_eq!(groups.v1("cpuacct"), Some("/c"));
        assert_eq!(groups.v2(), Some("/user.slice/x:y"));
        assert_eq!(groups.v1("io"), None);
        let mounts = parse_mounts(HYBRID);
        assert_eq!(
            mounts.iter().map(|mount| groups.in_mount(mount)).collect::<Vec<_>>(),
            [Some("/c"), Some("/a/b"), Some("/user.slice/x:y")]
        );
        assert_eq!(Membership::parse("").v2(), None);
    }

    #[test]
    fn files_of_a_group_are_read_by_key_and_as_pressure() {
        let folder = tempfile::tempdir().unwrap();
        let group = Group::new(folder.path().join("a/b"));
        assert!(!group.exists());
        fs::create_dir_all(group.path()).unwrap();
        for (file, content) in [
            ("cpu.stat", "usage_usec 12\nuser_usec 7\n"),
            ("cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull total=1\n"),
            ("cgroup.procs", "3\n5\n"),
            ("cgroup.controllers", "cpu memory\n"),
            ("io.stat", "8:0 rbytes=100 wbytes=20 rios=3\n8:16 rbytes=1 wbytes=2 rios=3\n"),
        ] {
            fs::write(group.file(file), content).unwrap();
        }
        assert_eq!(group.keyed("cpu.stat", "user_usec"), Some(7));
        assert_eq!(group.keyed("cpu.stat", "user"), None);
        assert_eq!(group.cpu_pressure_seconds(), Some(2.5));
        assert_eq!(group.controllers(), ["cpu", "memory"]);
        assert_eq!(group.disk_bytes(), Some(123));
        let top = Group::new(folder.path());
        assert_eq!((top.processes(), top.own_processes()), (vec![3, 5], vec![]));
        assert!(group.read("missing").unwrap_err().to_string().contains("a/b/missing"));
    }
}
