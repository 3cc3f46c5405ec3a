//! What shims do for their instances: above all, they write what these print. A shim lives in no instance's control group, so the kernel charges
//! its CPU to nobody that weal knows. It is counted here, and told as the instance's own.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use weal_host::{Identity, Proc};
use weal_model::{InstanceId, NodeName};

/// What the shims of all instances have done, as of the last look at each.
#[derive(Debug, Default)]
pub struct ShimWork(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    instances: BTreeMap<InstanceId, Seen>,
    /// CPU-seconds of all shims that each node has had. Nothing is taken off when an instance is gone.
    nodes: BTreeMap<NodeName, f64>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    shim: Identity,
    /// CPU-seconds of this one.
    own_s: f64,
    /// CPU-seconds of those that it has replaced.
    former_s: f64,
}

impl ShimWork {
    /// CPU-seconds that all shims of the instance `id` on `node` have used up to now. `shim` is the last of them.
    pub fn cpu_seconds(&self, proc: &Proc, id: &InstanceId, node: &NodeName, shim: Option<Identity>) -> f64 {
        let stat = shim.and_then(|shim| proc.stat(shim.pid).filter(|stat| stat.identity() == shim));
        let mut known = self.known();
        let before = known.instances.get(id).copied();
        let Some(stat) = stat else { return before.map_or(0.0, |seen| seen.own_s + seen.former_s) };
        let (own_s, is_same) = (stat.own_seconds(), before.is_some_and(|seen| seen.shim == stat.identity()));
        let former_s = before.map_or(0.0, |seen| if is_same { seen.former_s } else { seen.own_s + seen.former_s });
        let new_s = own_s - before.filter(|_| is_same).map_or(0.0, |seen| seen.own_s);
        *known.nodes.entry(node.clone()).or_default() += new_s;
        known.instances.insert(id.clone(), Seen { shim: stat.identity(), own_s, former_s });
        own_s + former_s
    }

    /// CPU-seconds of all shims of `node`, as far as [`ShimWork::cpu_seconds`] has seen them.
    pub fn of_node(&self, node: &NodeName) -> f64 {
        self.known().nodes.get(node).copied().unwrap_or(0.0)
    }

    /// It is gone.
    pub fn forget(&self, id: &InstanceId) {
        self.known().instances.remove(id);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("nothing panics while it is held")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_work_of_a_replaced_shim_still_counts_and_that_of_a_stranger_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let proc = Proc::new(folder.path());
        let write = |pid: u32, started: u64, user: u64, system: u64| {
            fs::create_dir_all(proc.path(pid, "")).unwrap();
            let before = "S 1 1 1 0 -1 0 0 0 0 0";
            let line = format!("{pid} (weal-shim) {before} {user} {system} 0 0 20 0 1 0 {started} 0 0");
            fs::write(proc.path(pid, "stat"), line).unwrap();
        };
        let (work, id, node) = (ShimWork::default(), InstanceId::from("shop-1"), NodeName::from("n1"));
        let look = |pid, start_ticks| work.cpu_seconds(&proc, &id, &node, Some(Identity { pid, start_ticks }));
        assert_eq!(work.cpu_seconds(&proc, &id, &node, None), 0.0, "nothing was started");
        write(7, 100, 30, 20);
        assert_eq!(look(7, 100), 0.5);
        write(7, 100, 60, 40);
        assert_eq!((look(7, 100), look(7, 100)), (1.0, 1.0));
        write(8, 200, 10, 15);
        assert_eq!((look(8, 200), work.of_node(&node)), (1.25, 1.25), "the former one's second counts on");
        write(8, 300, 900, 0);
        assert_eq!(look(8, 200), 1.25, "another process has its number now");
        work.forget(&id);
        assert_eq!(work.of_node(&node), 1.25, "a node's counter never falls");
    }
}
