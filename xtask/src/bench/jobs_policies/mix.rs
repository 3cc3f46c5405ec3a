//! The jobs: what they take, when they come, and by when they should be done.

use weal_model::{Bytes, Cpu, Work};
use weal_scenario::workload::{JobKind, JobMix};

/// Jobs that are submitted.
pub(super) const JOBS: usize = 200;
/// The slices, and what each has.
pub(super) const SLICES: usize = 2;
pub(super) const SLICE_CPU: f64 = 0.8;
pub(super) const SLICE_MEMORY: Bytes = Bytes::mib(400);
/// CPU that is asked for, over what there is.
pub(super) const LOADS: [f64; 3] = [0.7, 0.9, 1.1];
/// Platinum, gold and silver (Carrera 5.7.3), with their shares.
pub(super) const GOAL_FACTORS: [(f64, f64); 3] = [(0.1, 1.5), (0.3, 3.0), (0.6, 10.0)];

/// The jobs that come in at this load.
pub(super) fn mix(load: f64) -> JobMix {
    let kind = |seconds: f64, cpu: f64| JobKind {
        work: Work(seconds * cpu),
        max_speed: Cpu(cpu),
        min_speed: Cpu(0.0),
        memory: Bytes::mib(120),
        tasks: 1,
    };
    let kinds = vec![(0.1, kind(5.0, SLICE_CPU)), (0.4, kind(10.0, 0.5 * SLICE_CPU)), (0.5, kind(2.0, 0.5 * SLICE_CPU))];
    let mean_work: f64 = kinds.iter().map(|(share, kind)| share * kind.work.0).sum();
    JobMix { kinds, factors: GOAL_FACTORS.to_vec(), mean_gap_s: mean_work / (load * SLICES as f64 * SLICE_CPU) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_work_comes_in_as_the_load_says() {
        let jobs: Vec<_> = mix(0.5).stream(1, "jobs").take(20_000).collect();
        let asked: f64 = jobs.iter().map(|job| job.kind.work.0).sum::<f64>() / jobs.last().unwrap().at_s;
        assert!((asked / (SLICES as f64 * SLICE_CPU) - 0.5).abs() < 0.02, "{asked}");
    }
}
