//! Which faults leave files open in the processes that live through them.
//!
//! Open files come and go with connections, so one look shows nothing. A fault that leaves some leaves them each time: of each kind of fault and each
//! process, the least that came to its open files is kept. What is looked at is how many a process had before a fault and how many before the next one.

use std::collections::BTreeMap;

use weal_host::Identity;

/// So often a process must have lived through a kind of fault until that is judged: within so many times, no process has more open files by chance after
/// each. A run of two hours gets there.
const TIMES: u32 = 20;

/// The open files of each process, by what it is.
pub type OpenFiles = BTreeMap<&'static str, (Identity, usize)>;

/// What came of a kind of fault, for each process.
#[derive(Debug, Default)]
pub struct Held(BTreeMap<&'static str, Growth>);

#[derive(Debug)]
struct Growth {
    times: u32,
    /// Invariant: no time more came to the open files than at the time that counts here.
    least: i64,
}

impl Held {
    /// The fault happened between these two looks. A process that ended meanwhile took its files along.
    pub fn add(&mut self, before: &OpenFiles, after: &OpenFiles) {
        for (name, (identity, files)) in after {
            let Some((_, former)) = before.get(name).filter(|(former, _)| former == identity) else { continue };
            let grown = *files as i64 - *former as i64;
            let growth = self.0.entry(name).or_insert(Growth { times: 0, least: i64::MAX });
            (growth.times, growth.least) = (growth.times + 1, growth.least.min(grown));
        }
    }

    /// The processes that had more files open each time, in words.
    pub fn leaks(&self) -> Vec<String> {
        let leaking = self.0.iter().filter(|(_, growth)| growth.times >= TIMES && growth.least > 0);
        leaking
            .map(|(name, Growth { times, least })| format!("{name} had {least} more files open, or more, each of {times} times"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(pid: u32, files: usize) -> OpenFiles {
        OpenFiles::from([("gateway", (Identity { pid, start_ticks: 1 }, files))])
    }

    /// Of a fault that happens [`TIMES`] times and leaves each time as many files as `left` says of the turn.
    fn of(left: impl Fn(u32) -> usize) -> Held {
        let mut held = Held::default();
        for turn in 0..TIMES {
            held.add(&open(7, 30), &open(7, 30 + left(turn)));
        }
        held
    }

    #[test]
    fn what_a_fault_leaves_open_each_time_is_told() {
        assert_eq!(of(|turn| 1 + turn as usize % 2).leaks(), ["gateway had 1 more files open, or more, each of 20 times"]);
    }

    #[test]
    fn what_comes_and_goes_is_no_leak() {
        assert_eq!(of(|turn| if turn == 11 { 0 } else { 9 }).leaks(), Vec::<String>::new());
    }

    #[test]
    fn a_process_that_was_replaced_tells_nothing() {
        let mut held = of(|_| 0);
        held.add(&open(7, 30), &open(8, 90));
        assert_eq!(held.0["gateway"].times, TIMES);
    }
}
