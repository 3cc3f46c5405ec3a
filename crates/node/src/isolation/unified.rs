//! cgroup v2: one hierarchy for everything.

use std::io;
use std::path::{Path, PathBuf};

use weal_host::cgroup::Group;
use weal_model::{Cpu, NodeSpec};

use super::group::{GroupChange, occupied, processes, weight};
use super::{CPU_PERIOD_US, GroupLimits, Isolation, Kind, Loss, Member, NodeUsage, Occupied, ROLES_GROUP, Usage};

/// The controllers that are used where they can be had.
pub const CONTROLLERS: [&str; 4] = ["cpu", "memory", "io", "pids"];

/// Isolation by cgroup v2.
#[derive(Debug)]
pub struct Unified {
    /// `weal-HASH`.
    top: Group,
    has_cpu: bool,
    has_memory: bool,
    has_pids: bool,
    losses: Vec<Loss>,
}

impl Unified {
    /// Groups below `base`, which belongs to us and gives `controllers` to its children.
    pub fn new(base: PathBuf, name: &str, controllers: &[String]) -> io::Result<Self> {
        let has = |controller: &str| controllers.iter().any(|given| given == controller);
        let unified = Self {
            top: Group::new(base).child(name),
            has_cpu: has("cpu"),
            has_memory: has("memory"),
            has_pids: has("pids"),
            losses: losses(controllers),
        };
        unified.top.create()?;
        unified.top.child(".shims").create()?;
        hand_down(&unified.top, controllers)?;
        if unified.has_cpu {
            let roles = unified.top.child(ROLES_GROUP);
            roles.create()?;
            for preferred in [&unified.top, &roles] {
                preferred.write("cpu.weight", "10000")?;
            }
        }
        Ok(unified)
    }

    fn node(&self, node: &str) -> Group {
        self.top.child(node)
    }

    fn group(&self, member: Member<'_>) -> Group {
        self.node(member.node).child(member.instance)
    }

    /// Swap is for parking only: it would hide from `memory.max` what a leak takes. What is out there already stays.
    fn open_swap(&self, group: &Group, allowed: bool) -> io::Result<()> {
        if !self.has_memory || !group.file("memory.swap.max").exists() {
            return Ok(());
        }
        group.write("memory.swap.max", if allowed { "max" } else { "0" })
    }

    fn handed_down(&self) -> Vec<String> {
        self.top.read("cgroup.subtree_control").unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }
}

impl Isolation for Unified {
    fn kind(&self) -> Kind {
        Kind::CgroupV2
    }

    fn losses(&self) -> &[Loss] {
        &self.losses
    }

    fn reclaims(&self) -> bool {
        self.top.file("memory.reclaim").exists()
    }

    fn set_node(&self, node: &NodeSpec) -> io::Result<()> {
        let group = self.node(node.name.as_str());
        group.create()?;
        hand_down(&group, &self.handed_down())?;
        if self.has_cpu {
            group.write("cpu.max", &cpu_max(Some(node.cpu)))?;
            group.write("cpu.weight", &weight(node.cpu.0, 100.0, 1..=10_000).to_string())?;
        }
        if self.has_memory {
            group.write("memory.max", &node.memory.0.to_string())?;
        }
        Ok(())
    }

    fn remove_node(&self, node: &str) {
        self.node(node).remove_empty();
    }

    fn node_usage(&self, node: &str) -> NodeUsage {
        let group = self.node(node);
        NodeUsage {
            cpu_seconds: group.keyed("cpu.stat", "usage_usec").map(|us| us as f64 / 1e6),
            memory: memory(&group),
            cpu_pressure_seconds: group.cpu_pressure_seconds(),
        }
    }

    fn create(&self, member: Member<'_>, limits: &GroupLimits) -> io::Result<()> {
        self.group(member).create()?;
        self.limit(member, limits)
    }

    fn limit(&self, member: Member<'_>, limits: &GroupLimits) -> io::Result<()> {
        let group = self.group(member);
        if self.has_cpu {
            group.write("cpu.max", &cpu_max(limits.cpu))?;
            let share = limits.share.unwrap_or(Cpu(1.0));
            group.write("cpu.weight", &weight(share.0, 100.0, 1..=10_000).to_string())?;
        }
        if self.has_memory {
            group.write("memory.max", &limits.memory.0.to_string())?;
            self.open_swap(&group, false)?;
            // An instance that lost one of its processes at random is of no use.
            group.write("memory.oom.group", "1")?;
        }
        if self.has_pids {
            group.write("pids.max", &processes(limits.processes))?;
        }
        Ok(())
    }

    fn entrances(&self, member: Member<'_>) -> Vec<PathBuf> {
        vec![self.group(member).file("cgroup.procs")]
    }

    fn side_entrances(&self) -> Vec<PathBuf> {
        vec![self.top.child(".shims").file("cgroup.procs")]
    }

    fn role_entrances(&self) -> Vec<PathBuf> {
        let roles = self.has_cpu.then(|| self.top.child(ROLES_GROUP).file("cgroup.procs"));
        roles.into_iter().collect()
    }

    fn places(&self, _: &Path) -> Vec<Occupied> {
        occupied(&self.top)
    }

    fn processes(&self, member: Member<'_>) -> Vec<u32> {
        self.group(member).processes()
    }

    fn usage(&self, member: Member<'_>) -> Usage {
        let group = self.group(member);
        Usage {
            cpu_seconds: group.keyed("cpu.stat", "usage_usec").map(|us| us as f64 / 1e6),
            memory: memory(&group),
            swap: group.number("memory.swap.current"),
            disk_bytes: group.disk_bytes(),
            oom_kills: group.keyed("memory.events", "oom_kill").unwrap_or(0),
        }
    }

    fn freeze(&self, member: Member<'_>) -> io::Result<()> {
        self.group(member).write("cgroup.freeze", "1")
    }

    fn is_frozen(&self, member: Member<'_>) -> bool {
        self.group(member).keyed("cgroup.events", "frozen") == Some(1)
    }

    fn thaw(&self, member: Member<'_>) -> io::Result<()> {
        self.group(member).write("cgroup.freeze", "0")
    }

    fn kill(&self, member: Member<'_>) -> io::Result<()> {
        let group = self.group(member);
        if !group.exists() {
            return Ok(());
        }
        super::hybrid::kill_group(&group)
    }

    fn can_reclaim(&self, member: Member<'_>) -> bool {
        self.group(member).file("memory.reclaim").exists()
    }

    fn allow_swap(&self, member: Member<'_>, allowed: bool) -> io::Result<()> {
        self.open_swap(&self.group(member), allowed)
    }

    fn writeback(&self, member: Member<'_>) -> Option<u64> {
        self.group(member).keyed("memory.stat", "file_writeback")
    }

    fn reclaimable(&self, member: Member<'_>) -> u64 {
        if self.can_reclaim(member) { self.group(member).own_pages() } else { 0 }
    }

    fn charged(&self, member: Member<'_>) -> u64 {
        self.group(member).number("memory.current").unwrap_or(0)
    }

    fn reclaim(&self, member: Member<'_>, bytes: u64) -> io::Result<()> {
        // Files' pages stay: without them each wake would read libraries and classes from the disk again. Kernels before 6.16 know no such
        // maximum, which leaves them alone, and those before 6.9 no swappiness here.
        let group = self.group(member);
        let ways = [" swappiness=max", " swappiness=200", ""].map(|how| format!("{bytes}{how}"));
        let unknown = |outcome: &io::Result<()>| matches!(outcome, Err(error) if error.kind() == io::ErrorKind::InvalidInput);
        let mut outcomes = ways.iter().map(|way| group.write("memory.reclaim", way));
        match outcomes.find(|outcome| !unknown(outcome)).unwrap_or(Ok(())) {
            // It found less.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            outcome => outcome,
        }
    }

    fn remove(&self, member: Member<'_>) -> io::Result<()> {
        let group = self.group(member);
        // An application may have made groups of its own in there.
        group.children().iter().for_each(GroupChange::remove_empty);
        group.remove()
    }

    fn clear(&self) {
        self.top.remove_empty();
    }
}

/// What is lost where groups have these controllers only.
pub fn losses(controllers: &[String]) -> Vec<Loss> {
    let missing = |controller: &str| !controllers.iter().any(|given| given == controller);
    let losses = [("cpu", Loss::NoCpuController), ("memory", Loss::NoMemoryController), ("pids", Loss::NoProcessController)];
    losses.into_iter().filter(|(controller, _)| missing(controller)).map(|(_, loss)| loss).collect()
}

/// Gives `controllers` to the children of `group`; one that cannot be given is left out.
pub fn hand_down(group: &Group, controllers: &[String]) -> io::Result<()> {
    for controller in controllers.iter().filter(|name| CONTROLLERS.contains(&name.as_str())) {
        group.write("cgroup.subtree_control", &format!("+{controller}"))?;
    }
    Ok(())
}

fn cpu_max(limit: Option<Cpu>) -> String {
    match limit {
        None => format!("max {CPU_PERIOD_US}"),
        // The kernel refuses quotas under 1 ms.
        Some(cpu) => format!("{} {CPU_PERIOD_US}", ((cpu.0 * CPU_PERIOD_US as f64) as u64).max(1000)),
    }
}

fn memory(group: &Group) -> Option<u64> {
    let all = group.number("memory.current")?;
    Some(all.saturating_sub(group.keyed("memory.stat", "inactive_file").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weal_model::{Bytes, NodeName};

    use super::*;

    fn member() -> Member<'static> {
        Member { node: "n1", instance: "shop-1", dir: Path::new("/nowhere") }
    }

    fn node() -> NodeSpec {
        NodeSpec { name: NodeName::from("n1"), cpu: Cpu(1.5), memory: Bytes::gib(1), utilization_limit: 0.9 }
    }

    fn both() -> Vec<String> {
        vec!["cpu".into(), "memory".into(), "pids".into()]
    }

    #[test]
    fn a_node_and_an_instance_become_groups_with_their_limits() {
        let folder = tempfile::tempdir().unwrap();
        let unified = Unified::new(folder.path().to_owned(), "weal-1", &both()).unwrap();
        unified.set_node(&node()).unwrap();
        let limits = GroupLimits { memory: Bytes::mib(50), cpu: Some(Cpu(0.25)), share: Some(Cpu(2.0)), processes: Some(256) };
        unified.create(member(), &limits).unwrap();
        let group = Group::new(folder.path().join("weal-1/n1"));
        assert_eq!(group.read("cpu.max").unwrap(), "150000 100000");
        assert_eq!(group.read("memory.max").unwrap(), (1u64 << 30).to_string());
        let group = group.child("shop-1");
        assert_eq!(group.read("cpu.max").unwrap(), "25000 100000");
        assert_eq!(group.read("cpu.weight").unwrap(), "200");
        assert_eq!(group.read("memory.max").unwrap(), (50u64 << 20).to_string());
        assert_eq!(group.read("pids.max").unwrap(), "256");
        assert_eq!(group.read("memory.oom.group").unwrap(), "1");
        let roles = Group::new(folder.path().join("weal-1/.roles"));
        assert_eq!(roles.read("cpu.weight").unwrap(), "10000");
        assert_eq!(unified.role_entrances(), [roles.file("cgroup.procs")]);
    }

    #[test]
    fn usage_is_read_without_what_the_page_cache_can_give_back() {
        let folder = tempfile::tempdir().unwrap();
        let unified = Unified::new(folder.path().to_owned(), "weal-1", &both()).unwrap();
        let group = Group::new(folder.path().join("weal-1/n1/shop-1"));
        group.create().unwrap();
        for (file, text) in [
            ("cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ("memory.current", "1000\n"),
            ("memory.swap.current", "50\n"),
            ("memory.stat", "anon 600\ninactive_file 300\n"),
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n"),
            ("io.stat", "8:0 rbytes=100 wbytes=20 rios=3\n8:16 rbytes=1 wbytes=2 rios=3\n"),
        ] {
            group.write(file, text).unwrap();
        }
        let usage = unified.usage(member());
        assert_eq!(
            usage,
            Usage { cpu_seconds: Some(2.5), memory: Some(700), swap: Some(50), disk_bytes: Some(123), oom_kills: 1 }
        );
    }

    #[test]
    fn a_missing_controller_is_said_and_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let unified = Unified::new(folder.path().to_owned(), "weal-1", &["memory".to_owned()]).unwrap();
        unified.set_node(&node()).unwrap();
        assert_eq!(unified.losses(), [Loss::NoCpuController, Loss::NoProcessController]);
        assert!(!folder.path().join("weal-1/n1/cpu.max").exists());
        assert!(unified.role_entrances().is_empty(), "there is nothing to come first in");
    }
}
