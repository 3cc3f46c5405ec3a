//! v1 controllers for CPU and memory; v2, mounted beside them, for freeze, kill and pressure.

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use weal_host::Proc;
use weal_host::cgroup::Group;
use weal_model::{Cpu, NodeSpec};

use super::group::{GroupChange, occupied, processes, weight};
use super::{CPU_PERIOD_US, GroupLimits, Isolation, Kind, Loss, Member, NodeUsage, Occupied, ROLES_GROUP, Usage};
use crate::signals::send_to_all;

/// The limit of memory and swap together; not where the kernel does not count swap.
const MEMORY_AND_SWAP: &str = "memory.memsw.limit_in_bytes";
/// How readily the kernel pages out instead of dropping pages of files.
const SWAPPINESS: &str = "memory.swappiness";

/// Where the hierarchies are: our base in each. Two of them may be the same directory (`cpu,cpuacct`).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Bases {
    /// v1 `cpu`.
    pub cpu: PathBuf,
    /// v1 `cpuacct`.
    pub cpuacct: PathBuf,
    /// v1 `memory`.
    pub memory: PathBuf,
    /// v1 `pids`; `None` where it is not mounted.
    #[serde(default)]
    pub pids: Option<PathBuf>,
    /// v2 without controllers; `None` where it is not mounted.
    pub unified: Option<PathBuf>,
}

/// Isolation by the hybrid layout.
#[derive(Debug)]
pub struct Hybrid {
    cpu: Group,
    cpuacct: Group,
    memory: Group,
    pids: Option<Group>,
    unified: Option<Group>,
    proc: Proc,
    losses: Vec<Loss>,
}

impl Hybrid {
    /// Groups named `name` below `bases`.
    pub fn new(bases: &Bases, name: &str, proc: Proc) -> io::Result<Self> {
        let top = |base: &PathBuf| Group::new(base).child(name);
        let unified = bases.unified.as_ref().map(top).filter(|group| group.create().is_ok());
        let lacks = |file: &str| !unified.as_ref().is_some_and(|group| group.file(file).exists());
        let of_v2 = [("cgroup.freeze", Loss::NoFreezer), ("cgroup.kill", Loss::NoKill), ("cpu.pressure", Loss::NoPressure)];
        let missing = of_v2.into_iter().filter(|(file, _)| lacks(file)).map(|(_, loss)| loss);
        let pids = bases.pids.as_ref().map(top).filter(|group| group.create().is_ok());
        let uncounted = pids.is_none().then_some(Loss::NoProcessController);
        let losses = std::iter::once(Loss::DiskOfLivingOnly).chain(uncounted).chain(missing).collect();
        let (cpu, cpuacct, memory) = (top(&bases.cpu), top(&bases.cpuacct), top(&bases.memory));
        let hybrid = Self { cpu, cpuacct, memory, pids, unified, proc, losses };
        for group in hybrid.tops() {
            group.create()?;
            group.child(".shims").create()?;
        }
        let roles = hybrid.cpu.child(ROLES_GROUP);
        roles.create()?;
        for preferred in [&hybrid.cpu, &roles] {
            preferred.write("cpu.shares", "262144")?;
        }
        Ok(hybrid)
    }

    /// Each hierarchy once.
    fn tops(&self) -> Vec<&Group> {
        let mut tops = vec![&self.cpu, &self.cpuacct, &self.memory];
        tops.extend(&self.pids);
        tops.extend(&self.unified);
        tops.dedup();
        tops
    }

    fn groups(&self, member: Member<'_>) -> Vec<Group> {
        self.tops().into_iter().map(|top| place(top, member)).collect()
    }

    /// The v2 group of an instance, if it offers `file`.
    fn unified_with(&self, member: Member<'_>, file: &str) -> Option<Group> {
        let group = place(self.unified.as_ref()?, member);
        group.file(file).exists().then_some(group)
    }

    fn signal_all(&self, member: Member<'_>, what: Signal) -> io::Result<()> {
        send_to_all(|| self.processes(member), what)
    }
}

impl Isolation for Hybrid {
    fn kind(&self) -> Kind {
        Kind::CgroupHybrid
    }

    fn losses(&self) -> &[Loss] {
        &self.losses
    }

    fn reclaims(&self) -> bool {
        self.memory.file(SWAPPINESS).exists()
    }

    fn set_node(&self, node: &NodeSpec) -> io::Result<()> {
        let name = node.name.as_str();
        for top in self.tops() {
            top.child(name).create()?;
        }
        set_cpu(&self.cpu.child(name), Some(node.cpu), Some(node.cpu))?;
        // What sleeps in swap takes nothing of the node's memory; each instance has a limit to both of its own.
        set_memory(&self.memory.child(name), node.memory.0, None)
    }

    fn remove_node(&self, node: &str) {
        self.tops().into_iter().for_each(|top| top.child(node).remove_empty());
    }

    fn node_usage(&self, node: &str) -> NodeUsage {
        NodeUsage {
            cpu_seconds: cpu_seconds(&self.cpuacct.child(node)),
            memory: memory(&self.memory.child(node)),
            cpu_pressure_seconds: self.unified.as_ref().and_then(|top| top.child(node).cpu_pressure_seconds()),
        }
    }

    fn create(&self, member: Member<'_>, limits: &GroupLimits) -> io::Result<()> {
        for group in self.groups(member) {
            group.create()?;
        }
        self.limit(member, limits)
    }

    fn limit(&self, member: Member<'_>, limits: &GroupLimits) -> io::Result<()> {
        // v1 refuses a limit beyond the parent's.
        let node: Option<i64> =
            self.cpu.child(member.node).read("cpu.cfs_quota_us").ok().and_then(|quota| quota.trim().parse().ok());
        let most = node.filter(|quota| *quota > 0).map_or(f64::INFINITY, |quota| quota as f64 / CPU_PERIOD_US as f64);
        set_cpu(&place(&self.cpu, member), limits.cpu.map(|cpu| Cpu(cpu.0.min(most))), limits.share)?;
        self.allow_swap(member, false)?;
        if let Some(pids) = &self.pids {
            place(pids, member).write("pids.max", &processes(limits.processes))?;
        }
        // Memory and swap together are bound to the same: swap would hide what a leak takes.
        set_memory(&place(&self.memory, member), limits.memory.0, Some(limits.memory.0))
    }

    fn entrances(&self, member: Member<'_>) -> Vec<PathBuf> {
        self.groups(member).iter().map(|group| group.file("cgroup.procs")).collect()
    }

    fn side_entrances(&self) -> Vec<PathBuf> {
        self.tops().iter().map(|top| top.child(".shims").file("cgroup.procs")).collect()
    }

    fn role_entrances(&self) -> Vec<PathBuf> {
        vec![self.cpu.child(ROLES_GROUP).file("cgroup.procs")]
    }

    fn places(&self, _: &Path) -> Vec<Occupied> {
        occupied(&self.cpu)
    }

    fn processes(&self, member: Member<'_>) -> Vec<u32> {
        place(self.unified.as_ref().unwrap_or(&self.memory), member).processes()
    }

    fn usage(&self, member: Member<'_>) -> Usage {
        let in_memory = place(&self.memory, member);
        let disk: Vec<u64> = self.processes(member).into_iter().filter_map(|pid| self.proc.disk_bytes(pid)).collect();
        Usage {
            cpu_seconds: cpu_seconds(&place(&self.cpuacct, member)),
            memory: memory(&in_memory),
            swap: in_memory.keyed("memory.stat", "total_swap"),
            disk_bytes: (!disk.is_empty()).then(|| disk.iter().sum()),
            oom_kills: in_memory.keyed("memory.oom_control", "oom_kill").unwrap_or(0),
        }
    }

    fn freeze(&self, member: Member<'_>) -> io::Result<()> {
        match self.unified_with(member, "cgroup.freeze") {
            Some(group) => group.write("cgroup.freeze", "1"),
            None => self.signal_all(member, Signal::STOP),
        }
    }

    fn is_frozen(&self, member: Member<'_>) -> bool {
        match self.unified_with(member, "cgroup.freeze") {
            Some(group) => group.keyed("cgroup.events", "frozen") == Some(1),
            None => stand_still(&self.proc, &self.processes(member)),
        }
    }

    fn thaw(&self, member: Member<'_>) -> io::Result<()> {
        match self.unified_with(member, "cgroup.freeze") {
            Some(group) => group.write("cgroup.freeze", "0"),
            None => self.signal_all(member, Signal::CONT),
        }
    }

    fn kill(&self, member: Member<'_>) -> io::Result<()> {
        match self.unified_with(member, "cgroup.kill") {
            Some(group) => kill_group(&group),
            None => self.signal_all(member, Signal::KILL),
        }
    }

    fn can_reclaim(&self, member: Member<'_>) -> bool {
        place(&self.memory, member).file(SWAPPINESS).exists()
    }

    /// v1 has no limit for swap alone. The one for memory with swap is what a leak runs into, and without swappiness a node that is full
    /// pages nobody out.
    fn allow_swap(&self, member: Member<'_>, allowed: bool) -> io::Result<()> {
        if !self.can_reclaim(member) {
            return Ok(());
        }
        place(&self.memory, member).write(SWAPPINESS, if allowed { "60" } else { "0" })
    }

    fn writeback(&self, member: Member<'_>) -> Option<u64> {
        place(&self.memory, member).keyed("memory.stat", "total_writeback")
    }

    fn reclaimable(&self, member: Member<'_>) -> u64 {
        if self.can_reclaim(member) { place(&self.memory, member).own_pages() } else { 0 }
    }

    fn charged(&self, member: Member<'_>) -> u64 {
        place(&self.memory, member).number("memory.usage_in_bytes").unwrap_or(0)
    }

    /// v1 cannot be asked for so many bytes, but a lower limit for a moment has the same effect. Files' pages stay: without them each wake
    /// would read libraries and classes from the disk again, and they cost nothing to drop when somebody wants the memory.
    fn reclaim(&self, member: Member<'_>, bytes: u64) -> io::Result<()> {
        let group = place(&self.memory, member);
        let Some(limit) = group.number("memory.limit_in_bytes") else { return Ok(()) };
        let swappiness = group.read(SWAPPINESS);
        // Anonymous pages first, as far as v1 goes. A kernel without it takes both alike.
        let _ = group.write(SWAPPINESS, "200");
        let shrunk = group.write("memory.limit_in_bytes", &self.charged(member).saturating_sub(bytes).to_string());
        let restored = group.write("memory.limit_in_bytes", &limit.to_string());
        if let Ok(before) = swappiness {
            group.write(SWAPPINESS, before.trim())?;
        }
        restored?;
        match shrunk {
            // It found less.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            outcome => outcome,
        }
    }

    fn remove(&self, member: Member<'_>) -> io::Result<()> {
        for group in self.groups(member) {
            group.children().iter().for_each(GroupChange::remove_empty);
            group.remove()?;
        }
        Ok(())
    }

    fn clear(&self) {
        self.tops().into_iter().for_each(GroupChange::remove_empty);
    }
}

/// Kills a v2 group with all below it, one process at a time where the kernel is too old for `cgroup.kill` (before 5.14).
pub fn kill_group(group: &Group) -> io::Result<()> {
    if group.file("cgroup.kill").exists() {
        return group.write("cgroup.kill", "1");
    }
    send_to_all(|| group.processes(), Signal::KILL)
}

/// True when each of them is stopped by a signal or gone.
pub fn stand_still(proc: &Proc, pids: &[u32]) -> bool {
    pids.iter().all(|pid| proc.stat(*pid).is_none_or(|stat| matches!(stat.state, 'T' | 't' | 'Z' | 'X')))
}

fn place(top: &Group, member: Member<'_>) -> Group {
    top.child(member.node).child(member.instance)
}

fn set_cpu(group: &Group, limit: Option<Cpu>, share: Option<Cpu>) -> io::Result<()> {
    group.write("cpu.cfs_period_us", &CPU_PERIOD_US.to_string())?;
    // The kernel refuses quotas under 1 ms.
    let quota = limit.map_or(-1, |cpu| ((cpu.0 * CPU_PERIOD_US as f64) as i64).max(1000));
    group.write("cpu.cfs_quota_us", &quota.to_string())?;
    group.write("cpu.shares", &weight(share.unwrap_or(Cpu(1.0)).0, 1024.0, 2..=262_144).to_string())
}

/// Limits memory, and memory with swap to `with_swap` or not at all.
fn set_memory(group: &Group, bytes: u64, with_swap: Option<u64>) -> io::Result<()> {
    let hierarchy = group.file("memory.use_hierarchy");
    if hierarchy.exists() && group.number("memory.use_hierarchy") == Some(0) {
        group.write("memory.use_hierarchy", "1")?;
    }
    let limit = || group.write("memory.limit_in_bytes", &bytes.to_string());
    let most = with_swap.map_or("-1".to_owned(), |most| most.to_string());
    let limit_both = || if group.file(MEMORY_AND_SWAP).exists() { group.write(MEMORY_AND_SWAP, &most) } else { Ok(()) };
    // The kernel wants the first to be no larger than the second at any time, so the order depends on whether they grow or shrink.
    if limit().is_err() {
        limit_both()?;
        limit()?;
    }
    limit_both()
}

fn cpu_seconds(group: &Group) -> Option<f64> {
    group.number("cpuacct.usage").map(|ns| ns as f64 / 1e9)
}

fn memory(group: &Group) -> Option<u64> {
    let all = group.number("memory.usage_in_bytes")?;
    Some(all.saturating_sub(group.keyed("memory.stat", "total_inactive_file").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weal_model::{Bytes, NodeName};

    use super::*;

    fn member() -> Member<'static> {
        Member { node: "n1", instance: "shop-1", dir: Path::new("/nowhere") }
    }

    fn hybrid(root: &Path) -> Hybrid {
        let base = |name: &str| root.join(name);
        let bases = Bases {
            cpu: base("cpu"),
            cpuacct: base("cpu"),
            memory: base("memory"),
            pids: Some(base("pids")),
            unified: Some(base("unified")),
        };
        Hybrid::new(&bases, "weal-1", Proc::new(root.join("proc"))).unwrap()
    }

    #[test]
    fn a_node_and_an_instance_become_groups_in_each_hierarchy() {
        let folder = tempfile::tempdir().unwrap();
        let hybrid = hybrid(folder.path());
        let node = NodeSpec { name: NodeName::from("n1"), cpu: Cpu(0.5), memory: Bytes::gib(1), utilization_limit: 0.9 };
        hybrid.set_node(&node).unwrap();
        hybrid
            .create(member(), &GroupLimits { memory: Bytes::mib(50), cpu: None, share: Some(Cpu(0.5)), processes: Some(256) })
            .unwrap();
        let group = |path: &str| Group::new(folder.path().join(path));
        assert_eq!(group("cpu/weal-1/n1").read("cpu.cfs_quota_us").unwrap(), "50000");
        assert_eq!(group("cpu/weal-1/n1/shop-1").read("cpu.cfs_quota_us").unwrap(), "-1");
        assert_eq!(group("cpu/weal-1/n1/shop-1").read("cpu.shares").unwrap(), "512");
        assert_eq!(group("memory/weal-1/n1/shop-1").number("memory.limit_in_bytes"), Some(50 << 20));
        assert_eq!(group("cpu/weal-1/.roles").read("cpu.shares").unwrap(), "262144");
        assert_eq!(hybrid.role_entrances(), [group("cpu/weal-1/.roles").file("cgroup.procs")]);
        let entrances = hybrid.entrances(member());
        assert_eq!(group("pids/weal-1/n1/shop-1").read("pids.max").unwrap(), "256");
        assert_eq!(entrances.len(), 4, "cpu and cpuacct are one hierarchy here: {entrances:?}");
        assert!(group("unified/weal-1/n1/shop-1").exists());
    }

    #[test]
    fn what_sleeps_in_swap_takes_nothing_of_its_nodes_memory() {
        let folder = tempfile::tempdir().unwrap();
        let hybrid = hybrid(folder.path());
        let group = |path: &str| Group::new(folder.path().join("memory/weal-1").join(path));
        for (path, file) in [("n1", MEMORY_AND_SWAP), ("n1/shop-1", MEMORY_AND_SWAP), ("n1/shop-1", SWAPPINESS)] {
            group(path).create().unwrap();
            group(path).write(file, "60").unwrap();
        }
        let node = NodeSpec { name: NodeName::from("n1"), cpu: Cpu(0.5), memory: Bytes::gib(1), utilization_limit: 0.9 };
        hybrid.set_node(&node).unwrap();
        hybrid.create(member(), &GroupLimits { memory: Bytes::mib(50), cpu: None, share: None, processes: None }).unwrap();
        assert_eq!(group("n1").read("memory.limit_in_bytes").unwrap(), (1u64 << 30).to_string());
        assert_eq!(group("n1").read(MEMORY_AND_SWAP).unwrap(), "-1");
        assert_eq!(group("n1/shop-1").number(MEMORY_AND_SWAP), Some(50 << 20), "a leak does not hide in swap");
        assert_eq!(group("n1/shop-1").number(SWAPPINESS), Some(0));
        hybrid.allow_swap(member(), true).unwrap();
        assert_eq!(group("n1/shop-1").number(SWAPPINESS), Some(60));
    }

    #[test]
    fn usage_comes_from_the_v1_files() {
        let folder = tempfile::tempdir().unwrap();
        let hybrid = hybrid(folder.path());
        for (path, file, text) in [
            ("cpu/weal-1/n1/shop-1", "cpuacct.usage", "1500000000\n"),
            ("memory/weal-1/n1/shop-1", "memory.usage_in_bytes", "1000\n"),
            ("memory/weal-1/n1/shop-1", "memory.stat", "cache 1\ntotal_inactive_file 400\ntotal_swap 70\n"),
            ("memory/weal-1/n1/shop-1", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
        ] {
            let group = Group::new(folder.path().join(path));
            group.create().unwrap();
            group.write(file, text).unwrap();
        }
        let usage = hybrid.usage(member());
        assert_eq!(usage, Usage { cpu_seconds: Some(1.5), memory: Some(600), swap: Some(70), disk_bytes: None, oom_kills: 3 });
    }

    #[test]
    fn what_the_kernel_lacks_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let hybrid = hybrid(folder.path());
        assert_eq!(hybrid.losses(), [Loss::DiskOfLivingOnly, Loss::NoFreezer, Loss::NoKill, Loss::NoPressure]);
    }
}
