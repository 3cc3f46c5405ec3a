//! Finding out which isolation this machine offers, and where our groups may be.
//!
//! The base of our groups, in this order: the one that a former agent used, if it still holds our groups (they hold what
//! is adopted); the nearest ancestor of our own group that was delegated (systemd marks it with an attribute); as another
//! user than root, the highest ancestor that we may write to; as root, the top of the hierarchy on v2 and our own group on
//! v1, where limits of a container bind us anyway.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::group::Group;
use super::hybrid::{Bases, Hybrid};
use super::plain::Plain;
use super::unified::{CONTROLLERS, Unified};
use super::{Isolation, Kind};
use crate::files::{read_json, write_json};
use crate::process::Proc;

/// What a former agent chose, kept beside the instances.
pub const RECORD: &str = "isolation.json";

/// Where groups are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Layout {
    /// v2.
    Unified {
        /// The base of our groups.
        base: PathBuf,
        /// The group that `base` must not pass, for looking up what is mounted where.
        controllers: Vec<String>,
    },
    /// v1 and v2 side by side.
    Hybrid {
        /// The bases of our groups.
        bases: Bases,
    },
    /// None.
    None {
        /// Why.
        why: String,
    },
}

/// Chooses the isolation for the agent whose state is in `dir`, and writes the choice down. `wanted` is for tests and for
/// users who want less than what the machine offers.
pub fn choose(dir: &Path, name: &str, wanted: Option<Kind>) -> Box<dyn Isolation> {
    let recorded: Option<Layout> = read_json(&dir.join(RECORD)).ok().flatten();
    let recorded = recorded.filter(|layout| layout.still_holds(name) && wanted.is_none_or(|kind| kind == layout.kind()));
    let layout = recorded.unwrap_or_else(|| detect(&System::default(), wanted));
    let isolation = open(&layout, name).unwrap_or_else(|error| {
        tracing::warn!(%error, "control groups cannot be used");
        Box::new(Plain::new(Proc::system(), &error.to_string()))
    });
    let layout = if isolation.kind() == layout.kind() { layout } else { Layout::None { why: "they could not be used".into() } };
    if let Err(error) = write_json(&dir.join(RECORD), &layout) {
        tracing::warn!(%error, "the choice of isolation is not written down");
    }
    isolation
}

/// Opens what [`choose`] wrote down; plain processes if nothing was.
pub fn recorded(dir: &Path, name: &str) -> Box<dyn Isolation> {
    let layout: Option<Layout> = read_json(&dir.join(RECORD)).ok().flatten();
    let layout = layout.unwrap_or_else(|| Layout::None { why: "nothing is recorded".into() });
    open(&layout, name).unwrap_or_else(|error| Box::new(Plain::new(Proc::system(), &error.to_string())))
}

impl Layout {
    fn kind(&self) -> Kind {
        match self {
            Self::Unified { .. } => Kind::CgroupV2,
            Self::Hybrid { .. } => Kind::CgroupHybrid,
            Self::None { .. } => Kind::None,
        }
    }

    /// True while groups of ours are there. Instances without groups are found anyhow.
    fn still_holds(&self, name: &str) -> bool {
        match self {
            Self::Unified { base, .. } => base.join(name).is_dir(),
            Self::Hybrid { bases } => [&bases.cpu, &bases.memory].iter().all(|base| base.join(name).is_dir()),
            Self::None { .. } => false,
        }
    }
}

fn open(layout: &Layout, name: &str) -> io::Result<Box<dyn Isolation>> {
    Ok(match layout {
        Layout::Unified { base, controllers } => Box::new(Unified::new(base.clone(), name, controllers)?),
        Layout::Hybrid { bases } => Box::new(Hybrid::new(bases, name, Proc::system())?),
        Layout::None { why } => Box::new(Plain::new(Proc::system(), why)),
    })
}

/// What detection reads: files of `/proc/self`, and who we are.
#[derive(Debug, Clone)]
pub struct System {
    /// `/proc/self/mountinfo`.
    pub mountinfo: String,
    /// `/proc/self/cgroup`.
    pub own_groups: String,
    /// Our effective user.
    pub uid: u32,
}

impl Default for System {
    fn default() -> Self {
        Self {
            mountinfo: fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
            own_groups: fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

/// The best layout that can be used, or `wanted` if it can.
pub fn detect(system: &System, wanted: Option<Kind>) -> Layout {
    if wanted == Some(Kind::None) {
        return Layout::None { why: "switched off".into() };
    }
    let mounts = parse_mounts(&system.mountinfo);
    let unified = mounts.iter().find(|mount| mount.is_v2);
    let mut reasons = Vec::new();
    if wanted != Some(Kind::CgroupHybrid) {
        match unified.ok_or_else(|| "cgroup v2 is not mounted".to_owned()).and_then(|mount| use_unified(system, mount)) {
            Ok(layout) => return layout,
            Err(reason) => reasons.push(reason),
        }
    }
    if wanted != Some(Kind::CgroupV2) {
        match use_hybrid(system, &mounts) {
            Ok(layout) => return layout,
            Err(reason) => reasons.push(reason),
        }
    }
    Layout::None { why: reasons.join("; ") }
}

fn use_unified(system: &System, mount: &Mount) -> Result<Layout, String> {
    let own = mount.path_of(own_group(&system.own_groups, "").unwrap_or("/"));
    let offered = Group::new(&mount.at).read("cgroup.controllers").unwrap_or_default();
    if !offered.split_whitespace().any(|name| name == "cpu" || name == "memory") {
        return Err("cgroup v2 has neither a cpu nor a memory controller here".to_owned());
    }
    let base = base(system, mount, &own, &mount.at).ok_or("no cgroup is delegated to this user")?;
    let available = Group::new(&base).read("cgroup.controllers").unwrap_or_default();
    let controllers: Vec<String> =
        available.split_whitespace().filter(|name| CONTROLLERS.contains(name)).map(str::to_owned).collect();
    let controllers = enable(&Group::new(&base), &own, controllers)?;
    Ok(Layout::Unified { base, controllers })
}

/// Gives controllers to the children of `base`, and says which could be given.
///
/// v2 gives none while the group itself holds processes. Ours are moved into a group of their own then; if others
/// are there too, the group is not ours to change.
fn enable(base: &Group, own: &Path, controllers: Vec<String>) -> Result<Vec<String>, String> {
    let give = |name: &String| base.write("cgroup.subtree_control", &format!("+{name}"));
    let mut given: Vec<String> = controllers.iter().filter(|name| give(name).is_ok()).cloned().collect();
    if !given.iter().any(|name| name == "cpu" || name == "memory") && base.path() == own {
        let roles = base.child("weal-roles");
        roles.create().map_err(|error| error.to_string())?;
        for pid in our_processes(base) {
            // One that ended meanwhile cannot be moved and need not be.
            let _ = roles.write("cgroup.procs", &pid.to_string());
        }
        given = controllers.iter().filter(|name| give(name).is_ok()).cloned().collect();
    }
    if given.is_empty() {
        return Err(format!("{} gives no controllers to its children: other processes are in it", base.path().display()));
    }
    Ok(given)
}

/// This process, its parent (the supervisor) and what descends from that, as far as they are in `base` itself.
fn our_processes(base: &Group) -> Vec<u32> {
    let proc = Proc::system();
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid().unsigned_abs());
    let roots: Vec<_> =
        [std::process::id(), parent].into_iter().filter(|pid| *pid > 1).filter_map(|pid| proc.identity(pid)).collect();
    let ours: Vec<u32> = proc.family(&roots, &[]).iter().map(|stat| stat.pid).collect();
    let inside = base.read("cgroup.procs").unwrap_or_default();
    inside.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| ours.contains(pid)).collect()
}

fn use_hybrid(system: &System, mounts: &[Mount]) -> Result<Layout, String> {
    let find = |controller: &str| -> Result<PathBuf, String> {
        let mount = mounts
            .iter()
            .find(|mount| mount.controllers.iter().any(|name| name == controller))
            .ok_or_else(|| format!("no {controller} controller is mounted"))?;
        let own = mount.path_of(own_group(&system.own_groups, controller).unwrap_or("/"));
        base(system, mount, &own, &own).ok_or_else(|| format!("the {controller} controller is not delegated to this user"))
    };
    let unified = mounts.iter().find(|mount| mount.is_v2).and_then(|mount| {
        let own = mount.path_of(own_group(&system.own_groups, "").unwrap_or("/"));
        base(system, mount, &own, &own)
    });
    Ok(Layout::Hybrid { bases: Bases { cpu: find("cpu")?, cpuacct: find("cpuacct")?, memory: find("memory")?, unified } })
}

/// Where our groups may be in one hierarchy; `for_root` is what root takes when nothing was delegated.
fn base(system: &System, mount: &Mount, own: &Path, for_root: &Path) -> Option<PathBuf> {
    let ancestors: Vec<&Path> = own.ancestors().take_while(|path| path.starts_with(&mount.at)).collect();
    if let Some(delegated) = ancestors.iter().find(|path| is_delegated(path) && is_writable(path, system.uid)) {
        return Some(delegated.to_path_buf());
    }
    if system.uid == 0 {
        return is_writable(for_root, 0).then(|| for_root.to_owned());
    }
    ancestors.iter().rev().find(|path| is_writable(path, system.uid)).map(|path| path.to_path_buf())
}

/// systemd marks what it gives away.
fn is_delegated(path: &Path) -> bool {
    let mut value = [0u8; 8];
    ["trusted.delegate", "user.delegate"]
        .iter()
        .any(|name| rustix::fs::getxattr(path, *name, &mut value[..]).is_ok_and(|length| &value[..length] == b"1"))
}

/// True when `uid` may make groups in `path` and move processes through it.
fn is_writable(path: &Path, uid: u32) -> bool {
    use rustix::fs::{Access, access};
    let owned = |path: &Path| fs::metadata(path).is_ok_and(|metadata| uid == 0 || metadata.uid() == uid);
    let procs = path.join("cgroup.procs");
    owned(path) && owned(&procs) && access(path, Access::WRITE_OK).is_ok() && access(&procs, Access::WRITE_OK).is_ok()
}

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    at: PathBuf,
    /// The group that is seen at `at`: not `/` in a container without a namespace of its own.
    root: String,
    is_v2: bool,
    controllers: Vec<String>,
}

impl Mount {
    /// The directory of the group `name`.
    fn path_of(&self, name: &str) -> PathBuf {
        let inside = name.strip_prefix(self.root.as_str()).unwrap_or(name);
        self.at.join(inside.trim_start_matches('/'))
    }
}

/// The cgroup mounts among `/proc/self/mountinfo` (see proc(5)): fields up to a lone `-`, then type, source and options.
fn parse_mounts(mountinfo: &str) -> Vec<Mount> {
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
            controllers: options.split(',').map(str::to_owned).collect(),
        })
    };
    mountinfo.lines().filter_map(parse).collect()
}

/// The files that this process writes to in order to return to where it is now, in the hierarchies of `entrances`.
pub fn own_groups_beside(entrances: &[PathBuf]) -> Vec<PathBuf> {
    let system = System::default();
    let mounts = parse_mounts(&system.mountinfo);
    let own = |entrance: &PathBuf| {
        let mount =
            mounts.iter().filter(|mount| entrance.starts_with(&mount.at)).max_by_key(|mount| mount.at.as_os_str().len())?;
        let group = match mount.is_v2 {
            true => own_group(&system.own_groups, ""),
            false => mount.controllers.iter().find_map(|controller| own_group(&system.own_groups, controller)),
        };
        Some(mount.path_of(group?).join("cgroup.procs"))
    };
    entrances.iter().filter_map(own).collect()
}

/// Our own group in the hierarchy of `controller`; the empty name is v2.
fn own_group<'a>(own_groups: &'a str, controller: &str) -> Option<&'a str> {
    own_groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
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
        let mounts = parse_mounts(HYBRID);
        assert_eq!(mounts.len(), 3);
        assert!(mounts[0].controllers.contains(&"cpuacct".to_owned()));
        assert!(mounts[2].is_v2);
        assert_eq!(mounts[1].path_of("/docker/abc/x"), Path::new("/sys/fs/cgroup/memory/x"));
    }

    #[test]
    fn our_own_group_is_found_per_hierarchy() {
        let groups = "4:memory:/a/b\n2:cpu,cpuacct:/c\n1:name=systemd:/d\n0::/user.slice/x:y";
        assert_eq!(own_group(groups, "memory"), Some("/a/b"));
        assert_eq!(own_group(groups, "cpuacct"), Some("/c"));
        assert_eq!(own_group(groups, ""), Some("/user.slice/x:y"));
        assert_eq!(own_group(groups, "io"), None);
    }

    #[test]
    fn without_any_mount_the_reason_is_said() {
        let system = System { mountinfo: String::new(), own_groups: String::new(), uid: 1000 };
        let Layout::None { why } = detect(&system, None) else { panic!("there is nothing to use") };
        assert!(why.contains("cgroup v2 is not mounted") && why.contains("no cpu controller"), "{why}");
    }

    #[test]
    fn a_directory_that_we_own_serves_as_base_with_what_it_offers() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::write(at.join("cgroup.controllers"), "cpuset cpu memory hugetlb\n").unwrap();
        for path in [at.to_owned(), at.join("user/app")] {
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), "").unwrap();
        }
        let system = System {
            mountinfo: format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw", at.display()),
            own_groups: "0::/user/app\n".into(),
            uid: rustix::process::geteuid().as_raw(),
        };
        let layout = detect(&system, None);
        assert_eq!(layout, Layout::Unified { base: at.to_owned(), controllers: vec!["cpu".into(), "memory".into()] });
        assert_eq!(detect(&system, Some(Kind::None)).kind(), Kind::None);
    }
}
