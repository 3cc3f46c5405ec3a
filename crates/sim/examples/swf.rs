//! Runs a job log of the Parallel Workloads Archive under each policy, in fluid mode:
//!
//! ```text
//! zcat ../shared/data/nasa-ipsc-1993.swf.gz | cargo run --release -p weal-sim --example swf -- --nodes 128 --days 14
//! ```
//!
//! A processor becomes a task that uses one CPU; goals follow the rule of `weal_sim::fluid::log`. Nodes have one CPU and room for two
//! tasks, so that a suspended job's image does not keep a node.

use std::io::Read;

use weal_control::jobs::{Costs, EarliestDeadlineFirst, FirstComeFirstServed, Scheduler, Site, WealScheduler};
use weal_model::Bytes;
use weal_sim::batch::{Batch, Until, run};
use weal_sim::fluid::log::jobs_of;
use weal_sim::workload::read_swf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut nodes, mut days) = (128usize, 14.0f64);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
        match word.as_str() {
            "--nodes" => nodes = value.parse()?,
            "--days" => days = value.parse()?,
            _ => return Err(format!("{word} is not known: --nodes N, --days D").into()),
        }
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let log = read_swf(&text)?;
    let first_s = log.first().ok_or("the log on standard input has no job that ran")?.submit_s;
    let log: Vec<_> = log.into_iter().filter(|job| job.submit_s < first_s + 86_400.0 * days).collect();
    let jobs = jobs_of(&log, nodes as u32, Bytes::gib(1).0, 1);
    let sites = vec![Site { cpu: 1.0, memory: Bytes::gib(2).0 }; nodes];
    println!("{} jobs of {} in {days} days on {nodes} nodes", jobs.len(), log.len());
    println!("{:6} {:>12} {:>13} {:>15} {:>8}", "policy", "goals met, %", "mean utility", "lowest utility", "changes");
    for scheduler in [&WealScheduler as &dyn Scheduler, &EarliestDeadlineFirst, &FirstComeFirstServed] {
        let batch = Batch {
            nodes: &sites,
            apps: &[],
            apps_at: None,
            costs: Costs::THESIS,
            cycle_s: 600.0,
            scheduler,
            sample_every_s: f64::INFINITY,
        };
        let outcome = run(&batch, jobs.iter().copied(), Until::Submitted(jobs.len()));
        assert!(outcome.violations.is_empty(), "{}: {:?}", scheduler.name(), outcome.violations);
        println!(
            "{:6} {:12.2} {:13.3} {:15.2} {:8}",
            scheduler.name(),
            100.0 * outcome.met(),
            outcome.mean_utility(),
            outcome.lowest_utility(),
            outcome.placement_changes()
        );
    }
    Ok(())
}
