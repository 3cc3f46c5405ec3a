//! `weal stand-in`: a job whose phases take the CPU time and the memory that they are told, for rehearsals.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::args::StandIn;

/// What the program itself takes of its memory.
const OWN: u64 = 16 << 20;
/// Bytes of the smallest page.
const PAGE: usize = 4096;
/// CPU time between two rests of a job that cannot use a whole core.
const SLICE: Duration = Duration::from_millis(5);

/// Works through its phases.
pub fn run(order: &StandIn) -> anyhow::Result<()> {
    for ((work_s, cpus), memory) in order.work.iter().zip(&order.cpus).zip(&order.memory) {
        let memory = weal_model::written::parse_size(memory)?.0.saturating_sub(OWN);
        phase(*work_s, *cpus, usize::try_from(memory)?);
    }
    Ok(())
}

fn phase(work_s: f64, cpus: f64, memory: usize) {
    let mut held = vec![0_u8; memory];
    held.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let threads = cpus.ceil().max(1.0);
    // Of each thread: CPU time, and rest for each second of it.
    let (work_s, rest) = (work_s / threads, threads / cpus - 1.0);
    thread::scope(|scope| {
        for _ in 0..threads as usize {
            scope.spawn(move || work(Duration::from_secs_f64(work_s), rest));
        }
    });
    black_box(&held);
}

fn work(cpu: Duration, rest: f64) {
    let mut next = SLICE;
    while used() < cpu {
        spin();
        if rest > 0.0 && used() >= next {
            thread::sleep(SLICE.mul_f64(rest));
            next = used() + SLICE;
        }
    }
}

/// Some microseconds.
fn spin() {
    let mut state = 1_u64;
    for _ in 0..4096 {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// CPU time of this thread.
fn used() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
