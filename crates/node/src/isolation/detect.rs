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
use weal_host::Proc;
use weal_host::cgroup::{Group, Membership, Mount};

use super::group::GroupChange;
use super::hybrid::{Bases, Hybrid};
use super::plain::{self, Plain};
use super::unified::{self, CONTROLLERS, Unified};
use super::{Isolation, Kind, Loss};
use crate::files::{read_json, write_json};

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
    /// What is lost with it, as far as that shows before it is used.
    pub fn losses(&self) -> Vec<Loss> {
        match self {
            Self::Unified { controllers, .. } => unified::losses(controllers),
            Self::Hybrid { .. } => vec![Loss::DiskOfLivingOnly],
            Self::None { why } => plain::losses(why),
        }
    }

    /// True when the kernel can be asked to page out groups there.
    pub fn reclaims(&self) -> bool {
        match self {
            // The top of the hierarchy has no such file, but its children have, where the kernel has it.
            Self::Unified { base, .. } => Group::new(base).children().iter().any(|group| group.file("memory.reclaim").exists()),
            Self::Hybrid { bases } => bases.memory.join("memory.swappiness").exists(),
            Self::None { .. } => false,
        }
    }

    /// Which isolation it makes.
    pub fn kind(&self) -> Kind {
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

/// What detection looks at: what is mounted, and who we are.
#[derive(Debug, Clone)]
pub struct System {
    /// The mounted hierarchies.
    pub mounts: Vec<Mount>,
    /// The groups that we are in.
    pub own_groups: Membership,
    /// Our effective user.
    pub uid: u32,
}

impl Default for System {
    fn default() -> Self {
        let proc = Proc::system();
        let own = proc.own_pid();
        Self {
            mounts: proc.cgroup_mounts(own),
            own_groups: proc.cgroups(own).unwrap_or_default(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

/// Why a layout cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Nobody has mounted v2.
    #[error("cgroup v2 is not mounted")]
    NoV2,
    /// v2 has nothing that could limit anything.
    #[error("cgroup v2 has neither a cpu nor a memory controller here")]
    NoControllers,
    /// This user may not make groups.
    #[error("no cgroup is delegated to this user")]
    NotDelegated,
    /// The base holds processes of others, so it can give no controllers to its children.
    #[error("{} gives no controllers to its children: other processes are in it", .base.display())]
    Occupied {
        /// The base.
        base: PathBuf,
    },
    /// Nobody has mounted the v1 hierarchy of a controller.
    #[error("no {controller} controller is mounted")]
    NoV1 {
        /// The controller.
        controller: &'static str,
    },
    /// This user may not make groups in the v1 hierarchy of a controller.
    #[error("the {controller} controller is not delegated to this user")]
    V1NotDelegated {
        /// The controller.
        controller: &'static str,
    },
    /// The group of weal's own processes cannot be made.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The best layout that can be used, or `wanted` if it can. Has controllers given to the children of the base.
pub fn detect(system: &System, wanted: Option<Kind>) -> Layout {
    choose_layout(system, wanted, |candidate| {
        let controllers = enable(&Group::new(&candidate.base), &candidate.own, candidate.controllers)?;
        Ok(Layout::Unified { base: candidate.base, controllers })
    })
}

/// The layout that [`detect`] most likely finds. Changes nothing.
pub fn foresee(system: &System) -> Layout {
    choose_layout(system, None, |UnifiedBase { base, controllers, .. }| Ok(Layout::Unified { base, controllers }))
}

fn choose_layout(system: &System, wanted: Option<Kind>, take: impl Fn(UnifiedBase) -> Result<Layout, Unusable>) -> Layout {
    if wanted == Some(Kind::None) {
        return Layout::None { why: "switched off".into() };
    }
    let mut reasons = Vec::new();
    if wanted != Some(Kind::CgroupHybrid) {
        match find_unified(system).and_then(&take) {
            Ok(layout) => return layout,
            Err(reason) => reasons.push(reason.to_string()),
        }
    }
    if wanted != Some(Kind::CgroupV2) {
        match use_hybrid(system) {
            Ok(layout) => return layout,
            Err(reason) => reasons.push(reason.to_string()),
        }
    }
    Layout::None { why: reasons.join("; ") }
}

/// A place for our groups on v2.
struct UnifiedBase {
    base: PathBuf,
    /// The group that we are in.
    own: PathBuf,
    /// What the base may give to its children.
    controllers: Vec<String>,
}

fn find_unified(system: &System) -> Result<UnifiedBase, Unusable> {
    let mount = system.mounts.iter().find(|mount| mount.is_v2).ok_or(Unusable::NoV2)?;
    let own = mount.path_of(system.own_groups.v2().unwrap_or("/"));
    if !Group::new(&mount.at).controllers().iter().any(|name| name == "cpu" || name == "memory") {
        return Err(Unusable::NoControllers);
    }
    let base = base(system, mount, &own, &mount.at).ok_or(Unusable::NotDelegated)?;
    let mut controllers = Group::new(&base).controllers();
    controllers.retain(|name| CONTROLLERS.contains(&name.as_str()));
    Ok(UnifiedBase { base, own, controllers })
}

/// Gives controllers to the children of `base`, and says which could be given.
///
/// v2 gives none while the group itself holds processes. Ours are moved into a group of their own then; if others
/// are there too, the group is not ours to change.
fn enable(base: &Group, own: &Path, controllers: Vec<String>) -> Result<Vec<String>, Unusable> {
    let give = |name: &String| base.write("cgroup.subtree_control", &format!("+{name}"));
    let mut given: Vec<String> = controllers.iter().filter(|name| give(name).is_ok()).cloned().collect();
    if !given.iter().any(|name| name == "cpu" || name == "memory") && base.path() == own {
        let roles = base.child("weal-roles");
        roles.create()?;
        for pid in our_processes(base) {
            // One that ended meanwhile cannot be moved and need not be.
            let _ = roles.write("cgroup.procs", &pid.to_string());
        }
        given = controllers.iter().filter(|name| give(name).is_ok()).cloned().collect();
    }
    if given.is_empty() {
        return Err(Unusable::Occupied { base: base.path().to_owned() });
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
    base.own_processes().into_iter().filter(|pid| ours.contains(pid)).collect()
}

fn use_hybrid(system: &System) -> Result<Layout, Unusable> {
    let find = |controller: &'static str| -> Result<PathBuf, Unusable> {
        let mount = system.mounts.iter().find(|mount| mount.has(controller)).ok_or(Unusable::NoV1 { controller })?;
        let own = mount.path_of(system.own_groups.v1(controller).unwrap_or("/"));
        base(system, mount, &own, &own).ok_or(Unusable::V1NotDelegated { controller })
    };
    let unified = system.mounts.iter().find(|mount| mount.is_v2).and_then(|mount| {
        let own = mount.path_of(system.own_groups.v2().unwrap_or("/"));
        base(system, mount, &own, &own)
    });
    let (cpu, cpuacct, memory) = (find("cpu")?, find("cpuacct")?, find("memory")?);
    Ok(Layout::Hybrid { bases: Bases { cpu, cpuacct, memory, pids: find("pids").ok(), unified } })
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

/// The files that this process writes to in order to return to where it is now, in the hierarchies of `entrances`.
pub fn own_groups_beside(entrances: &[PathBuf]) -> Vec<PathBuf> {
    let system = System::default();
    let own = |entrance: &PathBuf| {
        let around = system.mounts.iter().filter(|mount| entrance.starts_with(&mount.at));
        let mount = around.max_by_key(|mount| mount.at.as_os_str().len())?;
        Some(mount.path_of(system.own_groups.in_mount(mount)?).join("cgroup.procs"))
    };
    entrances.iter().filter_map(own).collect()
}

#[cfg(test)]
mod tests {
    use weal_host::cgroup::parse_mounts;

    use super::*;

    #[test]
    fn without_any_mount_the_reason_is_said() {
        let system = System { mounts: Vec::new(), own_groups: Membership::default(), uid: 1000 };
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
            mounts: parse_mounts(&format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw", at.display())),
            own_groups: Membership::parse("0::/user/app\n"),
            uid: rustix::process::geteuid().as_raw(),
        };
        let layout = detect(&system, None);
        assert_eq!(layout, Layout::Unified { base: at.to_owned(), controllers: vec!["cpu".into(), "memory".into()] });
        assert_eq!(detect(&system, Some(Kind::None)).kind(), Kind::None);
    }
}
