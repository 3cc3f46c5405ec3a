//! Processes that applications left behind.
//!
//! Without control groups a process can leave its instance: it detaches itself and clears its environment. What it cannot change is the user that
//! it runs as. An application's own number is nobody else's on this machine, so every process that runs as it is the application's.
//!
//! A process is found by one of three signs:
//!
//! - It descends from a shim of this pool. Nobody but the pool's own user can run one.
//! - It runs as an application's own number.
//! - It says in the environment that it was started with which instance it belongs to. Anybody can write that, so it counts only of users
//!   that this pool runs programs as.
//!
//! The processes also show where the pool's control groups are. Where the state directory was removed, nothing else does.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weal_host::cgroup::{Group, Mount};
use weal_host::users::Users;
use weal_host::{Identity, Proc};

use crate::accounts::numbers::Numbers;
use crate::accounts::permits::Permits;
use crate::isolation::group::GroupChange;
use crate::shim::{folder_of, marked_in};
use crate::signals::send;
use crate::site::group_name;

/// How long killed processes may take to go. Each round also meets what was forked meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// So long a shim whose last child has ended may take to write down what it has read. One that somebody stopped never gets there.
const SHIM_PATIENCE: Duration = Duration::from_secs(2);

/// A process that an application left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// What became of the processes that were left behind.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Strays {
    /// They ran as an application's own user, and were killed.
    pub ended: Vec<Stray>,
    /// They run on: they do not go, or another user than an application's own runs them too, so that the environment they were started with is
    /// all that tells of this pool.
    pub left: Vec<Stray>,
}

/// What runs of the instances of the pool in `state`, whatever its records say.
///
/// # Errors
/// The applications' users cannot be read.
pub fn living(state: &Path) -> io::Result<Vec<Stray>> {
    let proc = Proc::system();
    let family = family(&proc, &shims(&proc, state));
    let own = running_as(&proc, &numbers(state)?);
    let mut found: Vec<Stray> = family.into_iter().chain(own).map(|identity| stray(&proc, identity.pid)).collect();
    found.extend(marked(&proc, state)?);
    found.sort_by_key(|stray| stray.pid);
    found.dedup();
    Ok(found)
}

/// Ends what the applications of the pool in `state` left behind and says what it cannot end. Takes away the control groups that hold nothing
/// then. Only for when no instance of the pool is to run.
///
/// # Errors
/// The applications' users cannot be read.
pub fn end_strays(state: &Path) -> io::Result<Strays> {
    let proc = Proc::system();
    let numbers = numbers(state)?;
    let (mounts, name) = (proc.cgroup_mounts(proc.own_pid()), group_name(state));
    let (mut strays, mut groups) = (Strays::default(), BTreeSet::new());
    let (began, mut is_over) = (Instant::now(), false);
    let mut busy = began;
    loop {
        let shims = shims(&proc, state);
        let is_shim = |identity: &Identity| shims.contains(identity);
        let mut found = family(&proc, &shims);
        if !found.iter().all(is_shim) {
            busy = Instant::now();
        }
        // A shim goes by itself when the last of its children has ended.
        found.retain(|identity| !is_shim(identity) || busy.elapsed() >= SHIM_PATIENCE);
        found.extend(running_as(&proc, &numbers));
        groups.extend(found.iter().chain(&shims).flat_map(|identity| groups_of(&proc, &mounts, &name, identity.pid)));
        found.sort_by_key(|identity| identity.pid);
        found.dedup();
        if is_over || (found.is_empty() && shims.is_empty()) {
            strays.left = found.iter().map(|identity| stray(&proc, identity.pid)).collect();
            break;
        }
        is_over = began.elapsed() >= PATIENCE;
        for identity in found {
            end(&proc, identity, &mut strays)?;
        }
        std::thread::sleep(PAUSE);
    }
    strays.ended.retain(|stray| !strays.left.contains(stray));
    let known: Vec<u32> = strays.left.iter().map(|stray| stray.pid).collect();
    strays.left.extend(marked(&proc, state)?.into_iter().filter(|stray| !known.contains(&stray.pid)));
    groups.into_iter().map(Group::new).for_each(|group| group.remove_empty());
    Ok(strays)
}

/// The groups called `name` that the process `pid` is in or below: one for each of the mounted hierarchies.
fn groups_of(proc: &Proc, mounts: &[Mount], name: &str, pid: u32) -> Vec<PathBuf> {
    let own = proc.group_directories(pid, mounts).into_iter();
    own.filter_map(|group| Some(group.ancestors().find(|above| above.ends_with(name))?.to_owned())).collect()
}

fn end(proc: &Proc, identity: Identity, strays: &mut Strays) -> io::Result<()> {
    let stray = stray(proc, identity.pid);
    if !strays.ended.contains(&stray) {
        strays.ended.push(stray);
    }
    proc.open(identity).map_or(Ok(()), |handle| send(&handle, Signal::KILL))
}

/// The numbers that applications of the pool in `state` have.
fn numbers(state: &Path) -> io::Result<BTreeSet<u32>> {
    let is_root = rustix::process::geteuid().is_root();
    if is_root { Numbers::new(Path::new("/"), state).held() } else { Ok(BTreeSet::new()) }
}

/// The living shims of the pool in `state`, by their command lines, which nobody else could have written for this user.
fn shims(proc: &Proc, state: &Path) -> Vec<Identity> {
    let (own, instances) = (rustix::process::geteuid().as_raw(), state.join("node/instances"));
    // Two spellings of one folder are the same; one that was removed is known by its name.
    let resolved = instances.canonicalize().ok();
    let is_same = |folder: &Path| folder == instances || (resolved.is_some() && folder.canonicalize().ok() == resolved);
    let is_ours = |pid: u32| {
        let arguments = proc.arguments(pid);
        folder_of(&arguments).and_then(Path::parent).is_some_and(is_same) && runs_as(proc, pid, |uid| uid == own)
    };
    let all = proc.all().into_iter().filter(weal_host::Stat::is_alive).map(|stat| stat.identity());
    all.filter(|identity| is_ours(identity.pid)).collect()
}

/// `shims`, and the living processes that descend from them.
fn family(proc: &Proc, shims: &[Identity]) -> Vec<Identity> {
    let family = proc.family(shims, &[]).into_iter();
    family.filter(weal_host::Stat::is_alive).map(|stat| stat.identity()).collect()
}

/// The living processes of users with these numbers.
fn running_as(proc: &Proc, numbers: &BTreeSet<u32>) -> Vec<Identity> {
    if numbers.is_empty() {
        return Vec::new();
    }
    // Who they are is read first: one that gets the number of a process that ended has another identity.
    let all = proc.all().into_iter().filter(weal_host::Stat::is_alive).map(|stat| stat.identity());
    all.filter(|identity| proc.users(identity.pid).iter().any(|uid| numbers.contains(uid))).collect()
}

/// The processes that still say in their environment which instance of this pool they belong to, and whose users this pool runs programs as.
fn marked(proc: &Proc, state: &Path) -> io::Result<Vec<Stray>> {
    let (instances, users) = (state.join("node/instances"), users(state)?);
    let is_ours = |pid: u32| marked_in(proc, pid, &instances).is_some() && runs_as(proc, pid, |uid| users.contains(&uid));
    Ok(proc.all().into_iter().filter(|stat| stat.is_alive() && is_ours(stat.pid)).map(|stat| stray(proc, stat.pid)).collect())
}

/// The users that the pool in `state` runs programs as.
pub fn users(state: &Path) -> io::Result<BTreeSet<u32>> {
    let mut users = numbers(state)?;
    users.insert(rustix::process::geteuid().as_raw());
    users.extend(named(state));
    Ok(users)
}

/// The users that root's config names.
fn named(state: &Path) -> Vec<u32> {
    // A list that cannot be read allows nobody to run anything.
    let permits = Permits::read(state).unwrap_or_default();
    let Ok(users) = Users::read(Path::new("/etc")) else { return Vec::new() };
    permits.users().filter_map(|name| Some(users.find(name).ok()?.uid)).collect()
}

/// Whether each user that the living process `pid` runs as is one of those.
pub fn runs_as(proc: &Proc, pid: u32, is_one: impl Fn(u32) -> bool) -> bool {
    let users = proc.users(pid);
    !users.is_empty() && users.into_iter().all(is_one)
}

fn stray(proc: &Proc, pid: u32) -> Stray {
    Stray { pid, name: proc.name(pid).unwrap_or_else(|| "a process".to_owned()) }
}

#[cfg(test)]
mod tests {
    use weal_host::cgroup::parse_mounts;

    use super::*;

    #[test]
    fn the_groups_of_a_pool_are_found_by_what_runs_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let groups = "4:cpu,cpuacct:/weal-0a/n/a-1\n3:memory:/box/weal-0a/.shims\n2:pids:/weal-0b/n/a-1\n0::/\n";
        std::fs::create_dir(folder.path().join("7")).unwrap();
        std::fs::write(folder.path().join("7/cgroup"), groups).unwrap();
        let mounts = parse_mounts(
            "1 0 0:1 / /c/cpu rw - cgroup c rw,cpu,cpuacct\n2 0 0:2 /box /c/memory rw - cgroup c rw,memory\n\
             3 0 0:3 / /c/pids rw - cgroup c rw,pids\n4 0 0:4 / /c/unified rw - cgroup2 c rw",
        );
        let found = |pid: u32| groups_of(&Proc::new(folder.path()), &mounts, "weal-0a", pid);
        assert_eq!(found(7), ["/c/cpu/weal-0a", "/c/memory/weal-0a"].map(PathBuf::from));
        assert_eq!(found(8), [] as [PathBuf; 0], "it has ended");
    }
}
