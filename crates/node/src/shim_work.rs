//! What shims do for their instances: above all, they write what these print. A shim lives in no instance's control group, so the kernel charges
//! its CPU to no group that weal knows. It is counted here, and told as the instance's own.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use weal_host::{Identity, Proc};
use weal_model::InstanceId;

/// What the shims of each instance have done, as of the last look at it.
#[derive(Debug, Default)]
pub struct ShimWork(Mutex<BTreeMap<InstanceId, Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    shim: Identity,
    /// CPU-seconds of this one.
    own_s: f64,
    /// CPU-seconds of those that it has replaced.
    former_s: f64,
}

impl ShimWork {
    /// CPU-seconds that all shims of an instance have used up to now, as far as this agent knows them. `shim` is the last of them. While the
    /// instance is `asleep` its shim has nothing to do, and is not looked at again.
    pub fn cpu_seconds(&self, proc: &Proc, id: &InstanceId, shim: Option<Identity>, asleep: bool) -> f64 {
        let mut known = self.known();
        let before = known.get(id).copied();
        let looks = !asleep || before.is_none();
        let stat = shim.filter(|_| looks).and_then(|shim| proc.stat(shim.pid).filter(|stat| stat.identity() == shim));
        let Some(stat) = stat else { return before.map_or(0.0, |seen| seen.own_s + seen.former_s) };
        let is_same = before.is_some_and(|seen| seen.shim == stat.identity());
        let former_s = before.map_or(0.0, |seen| if is_same { seen.former_s } else { seen.own_s + seen.former_s });
        let own_s = stat.own_seconds();
        known.insert(id.clone(), Seen { shim: stat.identity(), own_s, former_s });
        own_s + former_s
    }

    /// It is gone.
    pub fn forget(&self, id: &InstanceId) {
        self.known().remove(id);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Seen>> {
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
        let (work, id) = (ShimWork::default(), InstanceId::from("shop-1"));
        let look = |pid, start_ticks| work.cpu_seconds(&proc, &id, Some(Identity { pid, start_ticks }), false);
        assert_eq!(work.cpu_seconds(&proc, &id, None, false), 0.0, "nothing was started");
        write(7, 100, 30, 20);
        assert_eq!(look(7, 100), 0.5);
        write(7, 100, 60, 40);
        assert_eq!((look(7, 100), look(7, 100)), (1.0, 1.0));
        write(8, 200, 10, 15);
        assert_eq!(look(8, 200), 1.25, "the former one's second counts on");
        write(8, 300, 900, 0);
        assert_eq!(look(8, 200), 1.25, "another process has its number now");
        write(9, 400, 100, 0);
        let asleep = |work: &ShimWork| work.cpu_seconds(&proc, &id, Some(Identity { pid: 9, start_ticks: 400 }), true);
        assert_eq!(asleep(&work), 1.25, "nobody looks at it");
        work.forget(&id);
        assert_eq!(asleep(&work), 1.0, "but the first time");
    }
}
