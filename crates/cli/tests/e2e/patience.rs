//! Patience that ends where a machine has time, and that others who need its CPUs do not use up.

use std::time::{Duration, Instant};

use weal_host::Proc;
use weal_host::machine::CpuTimes;

/// Of what time passes, so much counts at least. Less, and what hangs on a busy machine is waited for longer than anybody does; more, and what only
/// waits for a CPU is taken for hanging.
const LEAST: f64 = 0.1;
/// How often the machine is asked how busy it is: in less time its counters hardly move.
const LOOK: Duration = Duration::from_millis(500);

/// Runs out after so much time in which the machine was idle, and after ten times as much in any case.
pub struct Patience {
    left: Duration,
    looked: Instant,
    /// What the machine's CPUs had spent by then; `None` where that cannot be read.
    spent: Option<CpuTimes>,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self { left: limit, looked: Instant::now(), spent: Proc::system().cpu_times().ok() }
    }

    /// To be asked again and again.
    pub fn is_over(&mut self) -> bool {
        let passed = self.looked.elapsed();
        if passed >= LOOK {
            let spent = Proc::system().cpu_times().ok();
            let share = self.spent.zip(spent).map_or(1.0, |(before, now)| idle_share(before, now));
            self.left = self.left.saturating_sub(passed.mul_f64(share.max(LEAST)));
            (self.looked, self.spent) = (Instant::now(), spent);
        }
        self.left.is_zero()
    }
}

/// The share of the time between two looks in which CPUs had nothing to do.
fn idle_share(before: CpuTimes, later: CpuTimes) -> f64 {
    let (busy, waiting) = later.percent_since(&before);
    1.0 - (busy + waiting) / 100.0
}

#[test]
fn time_in_which_others_had_the_machine_hardly_counts() {
    let root = tempfile::tempdir().unwrap();
    let read = |stat: &str| {
        std::fs::write(root.path().join("stat"), stat).unwrap();
        Proc::new(root.path()).cpu_times().ok()
    };
    let at = |idle: u64, busy: u64| read(&format!("cpu  {busy} 0 0 {idle} 0 0 0 0 77 77\ncpu0 1 1\n")).unwrap();
    assert_eq!(at(100, 0), CpuTimes { busy: 0, waiting: 0, all: 100 });
    for (before, later, share) in [(at(0, 0), at(200, 0), 1.0), (at(50, 50), at(100, 100), 0.5), (at(9, 9), at(9, 99), 0.0)] {
        assert!((idle_share(before, later) - share).abs() < 1e-9, "{before:?} {later:?}");
    }
    assert_eq!((read(""), read("cpu  1 2 3")), (None, None));
    let mut none = Patience::new(Duration::ZERO);
    assert!(none.is_over() && !Patience::new(Duration::from_secs(3600)).is_over());
}
