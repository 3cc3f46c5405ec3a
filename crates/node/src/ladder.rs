//! Which rungs of sleep this machine has, and what is missing for the others.

use std::fmt;

use weal_host::{Proc, swap};
use weal_model::{Bytes, Rung};

/// How instances can sleep on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder {
    /// What keeps instances from being paged out; `None` when all rungs can be used.
    pub missing: Option<Missing>,
    /// Swap in all.
    pub swap: Bytes,
    /// What would make sleeping better, for people.
    pub advice: Vec<String>,
}

/// What keeps instances from being paged out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// There is no swap.
    Swap,
    /// There is swap, and none of it is free.
    FreeSwap,
    /// Neither may the agent page out others' memory, nor can the kernel be asked to do it.
    Right,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Swap => "there is no swap",
            Self::FreeSwap => "all swap is taken",
            Self::Right => "it needs CAP_SYS_NICE and Linux 5.10, or a control group that can be reclaimed",
        })
    }
}

impl Ladder {
    /// Looks at swap `devices` and at the memory that `proc` tells of; `may_page_out` when there is a way to page others' memory out.
    pub fn look(proc: &Proc, devices: &[swap::Device], may_page_out: bool) -> Self {
        let missing = match (devices.is_empty(), swap::free(devices), may_page_out) {
            (true, ..) => Some(Missing::Swap),
            (_, Bytes(0), _) => Some(Missing::FreeSwap),
            (.., false) => Some(Missing::Right),
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
        Self { missing, swap: total, advice }
    }

    /// The rungs that can be used, the lightest first.
    pub fn rungs(&self) -> Vec<Rung> {
        let needs_no_swap = |rung: &Rung| *rung == Rung::Suspended;
        Rung::ALL.into_iter().filter(|rung| self.missing.is_none() || needs_no_swap(rung)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_leaves_the_rung_that_needs_no_swap() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("meminfo"), "MemTotal:  1048576 kB\n").unwrap();
        let proc = Proc::new(root.path());
        let none = Ladder::look(&proc, &[], true);
        assert_eq!((none.missing, none.rungs()), (Some(Missing::Swap), vec![Rung::Suspended]));
        assert!(none.advice[0].contains("zram of 1GiB"), "{:?}", none.advice);
        let disk = swap::Device {
            path: "/swap".into(),
            kind: swap::Kind::Rotational,
            size: Bytes::gib(2),
            used: Bytes(0),
            priority: -2,
        };
        let some = Ladder::look(&proc, std::slice::from_ref(&disk), true);
        assert!(some.rungs() == Rung::ALL && some.advice[0].contains("rotational"), "{some:?}");
        assert_eq!(Ladder::look(&proc, std::slice::from_ref(&disk), false).missing, Some(Missing::Right));
        let full = swap::Device { used: disk.size, ..disk };
        assert_eq!(Ladder::look(&proc, &[full], true).missing, Some(Missing::FreeSwap));
    }
}
