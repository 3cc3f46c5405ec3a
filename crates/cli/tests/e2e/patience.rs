//! Patience that ends where a machine has time, and that others who need its CPUs do not use up.

use std::time::{Duration, Instant};

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
    spent: Option<CpuTime>,
}

/// What all CPUs of a machine have spent together, in its own unit.
#[derive(Debug, Clone, Copy, PartialEq)]
struct CpuTime {
    idle: u64,
    total: u64,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self { left: limit, looked: Instant::now(), spent: CpuTime::now() }
    }

    /// To be asked again and again.
    pub fn is_over(&mut self) -> bool {
        let passed = self.looked.elapsed();
        if passed >= LOOK {
            let spent = CpuTime::now();
            let share = self.spent.zip(spent).map_or(1.0, |(before, now)| before.idle_share(now));
            self.left = self.left.saturating_sub(passed.mul_f64(share.max(LEAST)));
            (self.looked, self.spent) = (Instant::now(), spent);
        }
        self.left.is_zero()
    }
}

impl CpuTime {
    fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Of the first line of /proc/stat, which is of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal, and two that the first two contain.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> = fields.split_ascii_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        Some(Self { idle: *times.get(3)?, total: times.iter().sum() })
    }

    fn idle_share(self, later: Self) -> f64 {
        let (idle, total) = (later.idle.saturating_sub(self.idle), later.total.saturating_sub(self.total));
        if total == 0 { 1.0 } else { idle as f64 / total as f64 }
    }
}

#[test]
fn time_in_which_others_had_the_machine_hardly_counts() {
    let at = |idle: u64, busy: u64| CpuTime::parse(&format!("cpu  {busy} 0 0 {idle} 0 0 0 0 77 77\ncpu0 1 1\n")).unwrap();
    assert_eq!(at(100, 0), CpuTime { idle: 100, total: 100 });
    for (before, later, share) in [(at(0, 0), at(200, 0), 1.0), (at(50, 50), at(100, 100), 0.5), (at(9, 9), at(9, 99), 0.0)] {
        assert!((before.idle_share(later) - share).abs() < 1e-9, "{before:?} {later:?}");
    }
    assert_eq!((CpuTime::parse(""), CpuTime::parse("cpu  1 2 3")), (None, None));
    let mut none = Patience::new(Duration::ZERO);
    assert!(none.is_over() && !Patience::new(Duration::from_secs(3600)).is_over());
}
