//! Recorded job logs as jobs with goals, and web load that follows the hours of the day.
//!
//! Logs tell what ran, not by when it had to be done. The rule here: each job's goal is its run time times a factor drawn from
//! 1.5, 3 and 10 (30, 40 and 30%), as Carrera draws them in Experiment Three, plus a minute for jobs that take seconds.

use rand::RngExt;
use weal_control::jobs::AppCurve;
use weal_control::utility::Curve;
use weal_model::{Bytes, Cpu, Utility, Work};

use weal_rng as random;

use weal_scenario::workload::{JobArrival, JobKind, SwfJob};

/// Goal factors with their probabilities.
const FACTORS: [(f64, f64); 3] = [(0.3, 1.5), (0.4, 3.0), (0.3, 10.0)];
/// Seconds that every goal allows on top.
const GRACE_S: f64 = 60.0;

/// The jobs of a log: a processor becomes a task that uses up to one CPU and `memory` bytes. Those with more than `most_tasks`
/// are left out, as no pool of that size could ever run them.
pub fn jobs_of(log: &[SwfJob], most_tasks: u32, memory: u64, seed: u64) -> Vec<JobArrival> {
    let mut rng = random::stream(seed, "goals");
    let weights = FACTORS.map(|(share, _)| share);
    let mut jobs = Vec::with_capacity(log.len());
    for job in log {
        let factor = FACTORS[random::weighted(&mut rng, &weights)].1;
        if job.processors > most_tasks {
            continue;
        }
        let kind = JobKind {
            work: Work(job.run_s),
            max_speed: Cpu(1.0),
            min_speed: Cpu(0.0),
            memory: Bytes(memory),
            tasks: job.processors,
        };
        jobs.push(JobArrival { at_s: job.submit_s, kind, relative_goal_s: factor * job.run_s + GRACE_S });
    }
    jobs
}

/// A made log: `per_day` jobs a day for so many days, most of them short and narrow, some long and wide (powers of two up to
/// `widest`), as the logs of the Parallel Workloads Archive have them; twice as many come by day as by night.
pub fn made_log(days: u32, per_day: u32, widest: u32, seed: u64) -> Vec<SwfJob> {
    let mut rng = random::stream(seed, "log");
    let mut jobs = Vec::new();
    let mut now_s = 0.0;
    while now_s < f64::from(days) * DAY_S {
        now_s += random::exponential(&mut rng, DAY_S / f64::from(per_day) / by_hour(now_s));
        // Log-uniform from 10 s to 10 h.
        let run_s = 10f64 * 3600f64.powf(rng.random::<f64>());
        let doublings = (rng.random::<f64>().powi(2) * (f64::from(widest).log2() + 1.0)) as u32;
        let processors = (1 << doublings).min(widest);
        jobs.push(SwfJob { number: jobs.len() as u64 + 1, submit_s: now_s, run_s, processors });
    }
    jobs
}

const DAY_S: f64 = 86_400.0;

/// Load relative to its mean over the day: two thirds at night, four thirds by day.
pub fn by_hour(now_s: f64) -> f64 {
    1.0 - (2.0 * std::f64::consts::PI * now_s / DAY_S).cos() / 3.0
}

/// A web application on all nodes whose demand is `mean_cpu` over the day; its best utility is 0.66 (eq. 5.6 without think
/// time below that).
pub fn web_app(mean_cpu: f64, nodes: usize, now_s: f64) -> AppCurve {
    let (best, demand) = (0.66, mean_cpu * by_hour(now_s));
    let cpu = |utility: Utility| Cpu(demand * (1.0 - best) / (1.0 - utility.0));
    AppCurve { curve: Curve::from_inverse(Utility(-4.0), Utility(best), cpu), nodes: (0..nodes).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_becomes_jobs_with_goals_by_the_rule() {
        let log = made_log(10, 100, 64, 1);
        assert!((log.len() as f64 - 1000.0).abs() < 120.0, "{}", log.len());
        assert!(log.windows(2).all(|pair| pair[0].submit_s <= pair[1].submit_s));
        let jobs = jobs_of(&log, 32, 1, 1);
        assert_eq!(jobs.len(), log.iter().filter(|job| job.processors <= 32).count());
        for job in &jobs {
            let factor = (job.relative_goal_s - GRACE_S) / job.kind.best_s();
            assert!(FACTORS.iter().any(|(_, known)| (factor - known).abs() < 1e-9), "{factor}");
        }
    }

    #[test]
    fn the_hours_average_to_one() {
        let mean = (0..24).map(|hour| by_hour(f64::from(hour) * 3600.0)).sum::<f64>() / 24.0;
        assert!((mean - 1.0).abs() < 1e-9);
        assert!((web_app(60.0, 4, 0.0).curve.demand().0 - 40.0).abs() < 1e-6);
    }
}
