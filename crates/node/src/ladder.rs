//! Which rungs of sleep this machine has, and what is missing for the others: the data of `weal doctor`.

use weal_host::Proc;
use weal_host::swap;
use weal_model::{Bytes, Rung};

use crate::paging;

/// What this machine can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder {
    /// Each rung, and why it cannot be used; `None` when it can.
    pub rungs: Vec<(Rung, Option<String>)>,
    /// Swap in all.
    pub swap: Bytes,
    /// What would make sleeping better, in words.
    pub advice: Vec<String>,
}

/// Looks at this machine.
pub fn of_this_machine() -> Ladder {
    look(&Proc::system(), &swap::of_this_machine(), paging::may_advise())
}

fn look(proc: &Proc, devices: &[swap::Device], may_advise: bool) -> Ladder {
    let missing = match (devices.is_empty(), swap::free(devices), may_advise) {
        (true, ..) => Some("there is no swap".to_owned()),
        (_, Bytes(0), _) => Some("all swap is taken".to_owned()),
        (.., false) => Some("paging others' memory needs CAP_SYS_NICE and Linux 5.10".to_owned()),
        _ => None,
    };
    let memory = proc.memory().total.unwrap_or_default();
    let total: Bytes = devices.iter().map(|device| device.size).sum();
    let mut advice = Vec::new();
    if devices.is_empty() {
        advice.push(format!(
            "add zram of {memory} (wakes in 2 to 20 ms, takes a third of that in memory) or a swap file on an SSD"
        ));
    } else if total < memory {
        advice.push(format!("swap of {total} cannot take all that {memory} of memory may hold: make it {memory}"));
    }
    if devices.iter().any(|device| device.kind == swap::Kind::Rotational) {
        let hint = "a swap device calls itself rotational, so the kernel reads ahead at random; if it is none, \
                    echo 0 > /sys/block/DISK/queue/rotational before swapon";
        advice.push(hint.to_owned());
    }
    let rungs = Rung::ALL.map(|rung| (rung, missing.clone().filter(|_| rung != Rung::Suspended)));
    Ladder { rungs: rungs.to_vec(), swap: total, advice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_for_each_rung() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("meminfo"), "MemTotal:  1048576 kB\n").unwrap();
        let proc = Proc::new(root.path());
        let none = look(&proc, &[], true);
        assert_eq!(none.rungs[0], (Rung::Suspended, None));
        assert_eq!(none.rungs[2].1.as_deref(), Some("there is no swap"));
        assert!(none.advice[0].contains("zram of 1GiB"), "{:?}", none.advice);
        let disk = swap::Device {
            path: "/swap".into(),
            kind: swap::Kind::Rotational,
            size: Bytes::gib(2),
            used: Bytes(0),
            priority: -2,
        };
        let some = look(&proc, std::slice::from_ref(&disk), true);
        assert!(some.rungs.iter().all(|(_, missing)| missing.is_none()) && some.advice[0].contains("rotational"), "{some:?}");
        assert!(look(&proc, std::slice::from_ref(&disk), false).rungs[1].1.as_ref().unwrap().contains("CAP_SYS_NICE"));
        let full = swap::Device { used: disk.size, ..disk };
        assert_eq!(look(&proc, &[full], true).rungs[1].1.as_deref(), Some("all swap is taken"));
    }
}
