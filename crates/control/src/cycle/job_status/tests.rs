use weal_protocol::engine::RunSeen;

use super::super::queue::tests::{record, run};
use super::*;

/// All that can be true of a job that is not over.
fn entries() -> Vec<Entry> {
    use RunState::{Ended, Paused, Running, Starting, Stopping, Suspended};
    let states = [Starting, Running, Paused, Suspended, Stopping, Ended];
    let runs: Vec<Option<RunSeen>> = std::iter::once(None).chain(states.map(|state| Some(run("a-1", 1, state)))).collect();
    let mut entries = Vec::new();
    for hold in [Hold::None, Hold::Paused, Hold::Suspended] {
        for bits in 0..64_u32 {
            let has = |bit: u32| bits & (1 << bit) != 0;
            let mut record = JobRecord { hold, cancelled: has(0), begun: has(1), saved: has(2), ..record("a-1", 1, 0) };
            if has(3) {
                record.after = vec!["b-2".into()];
            }
            if has(4) {
                (record.not_before, record.attempt) = (Time(7), 2);
            }
            entries.extend(runs.iter().map(|run| Entry { run: run.clone(), moving: has(5), ..Entry::new(record.clone()) }));
        }
    }
    entries
}

#[test]
fn a_job_has_a_reason_exactly_when_it_does_not_run() {
    let planned = |text: &str| JobExplanation { utility: Utility(0.5), text: text.to_owned() };
    let plans = [None, Some(planned("")), Some(planned("it waits"))];
    for entry in entries() {
        for plan in &plans {
            let status = of_open(&entry, &Runs::default(), plan.as_ref(), |_| "between".to_owned());
            let runs = matches!(status.state, JobPhase::Running | JobPhase::Starting | JobPhase::Migrating);
            assert_eq!(status.detail.is_empty(), runs, "{status:?}");
        }
    }
}
