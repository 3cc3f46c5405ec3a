//! Recorded job logs beside the World Cup's web load: `logs SWF TRACE FROM_DAY TRACE_FROM DAYS NODES CPUS WEB_SHARE`, policy by policy as JSON, one
//! object a line. `cargo xtask bench logs` runs it on logs of the Parallel Workloads Archive.

use weal_reproduce::fluid::beside_web::{Case, Contender};
use weal_scenario::workload::{SwfJob, TraceWindow, Workload, read_requests_per_minute, read_swf};

/// From the start of a web instance until it serves; the issue of flash crowds has 10 to 90 s.
const START_S: f64 = 30.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [swf, trace, from_day, trace_from, days, nodes, cpus, share] = words.as_slice() else {
        return Err("usage: logs SWF TRACE FROM_DAY TRACE_FROM DAYS NODES CPUS WEB_SHARE".into());
    };
    let (from_s, days): (f64, f64) = (86_400.0 * from_day.parse::<f64>()?, days.parse()?);
    let within = |job: &SwfJob| (from_s..from_s + 86_400.0 * days).contains(&job.submit_s);
    let mut log: Vec<SwfJob> = read_swf(&std::fs::read_to_string(swf)?)?.into_iter().filter(within).collect();
    log.iter_mut().for_each(|job| job.submit_s -= from_s);
    let window = TraceWindow {
        from: Some(trace_from.clone()),
        minutes: Some((1440.0 * days) as usize),
        time_scale: 1.0,
        volume_scale: 1.0,
    };
    let Workload::Counts { counts, .. } = read_requests_per_minute(&std::fs::read_to_string(trace)?, &window)? else {
        return Err("a trace has counts".into());
    };
    let case = Case::new(nodes.parse()?, cpus.parse()?, &log, &counts, share.parse()?, START_S);
    println!("{{\"jobs\":{},\"of\":{},\"load\":{:.4}}}", case.jobs.len(), log.len(), case.load());
    for policy in Contender::ALL {
        let course = case.play(policy);
        println!(
            "{{\"policy\":\"{}\",\"jobs_met\":{:.5},\"job_utility\":{:.4},\"job_deviation\":{:.4},\"web_met\":{:.5},\"web_utility\":{:.4},\
             \"worse_off\":{:.4},\"spread\":{:.4},\"changes\":{},\"violations\":{}}}",
            policy.name(),
            course.jobs_met,
            course.job_utility.0,
            course.job_utility.1,
            course.web_met,
            course.web_utility,
            course.worse_off,
            course.spread,
            course.changes,
            course.violations
        );
    }
    Ok(())
}
