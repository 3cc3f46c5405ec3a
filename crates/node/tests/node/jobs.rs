//! Runs of jobs: they end, and how is told until they are taken away.

use weal_model::{InstanceState, RestartPolicy, RunEnd};
use weal_protocol::Refusal;
use weal_protocol::engine::{OutputPiece, OutputRequest};
use weal_protocol::node::{self, InstanceSpec, JobRun};

use crate::bench::{Bench, wait_for};

/// The first run of a job that is this script.
fn run(bench: &Bench, job: &str, script: &str) -> InstanceSpec {
    let id = format!("job.{job}.1");
    InstanceSpec {
        id: id.as_str().into(),
        app: "job.test".into(),
        run: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        cwd: String::new(),
        restart: RestartPolicy::Never,
        job: Some(JobRun {
            job: job.into(),
            attempt: 1,
            task: 0,
            files: weal_model::JobFiles::default(),
            checkpoint: Vec::new(),
        }),
        ..bench.spec("job-1", &[])
    }
}

fn output(bench: &Bench, job: &str) -> OutputPiece {
    let request = OutputRequest { job: job.into(), attempt: 1, task: 0, cursor: None, tail_lines: None, wait_s: 0.0 };
    bench.call(node::OUTPUT, &request)
}

pub fn a_run_ends_once_and_its_output_outlives_it(bench: &Bench) {
    let spec = run(bench, "sum-1", "echo $JOB $ATTEMPT; pwd; printf '\\377\\000x'; exit 3");
    assert_eq!(bench.start(&spec), None);
    let ended = bench.wait_state("job.sum-1.1", InstanceState::Failed);
    assert_eq!(ended.end, Some(RunEnd::Code { code: 3 }));
    let before = output(bench, "sum-1");
    let folder = bench.state().join("data/job.sum-1");
    let expected = [format!("sum-1 1\n{}\n", folder.display()).as_bytes(), b"\xff\0x"].concat();
    use base64::Engine;
    assert_eq!(base64::engine::general_purpose::STANDARD.decode(&before.data).unwrap(), expected);
    assert_eq!(bench.start(&spec), None, "a start that is repeated is no second run");
    assert_eq!(bench.instance("job.sum-1.1").unwrap().end, Some(RunEnd::Code { code: 3 }));
    bench.kill_agent();
    bench.start_agent();
    assert_eq!(bench.wait_state("job.sum-1.1", InstanceState::Failed).end, Some(RunEnd::Code { code: 3 }));
    bench.stop("job.sum-1.1");
    assert!(bench.instance("job.sum-1.1").is_none() && !bench.dir("job.sum-1.1").exists());
    assert_eq!(output(bench, "sum-1").data, before.data);
    assert_eq!(bench.start(&spec), Some(Refusal::Gone { instance: "job.sum-1.1".into() }), "an order that comes late");
}

pub fn a_run_that_ends_while_no_agent_is_there_is_told_by_the_next(bench: &Bench) {
    // The shell's own words only: a small machine has no `sleep`.
    let spec = run(bench, "late-1", "until [ -e go ]; do :; done; echo $((6 * 7)); : > done");
    assert_eq!(bench.start(&spec), None);
    bench.kill_agent();
    let folder = bench.state().join("data/job.late-1");
    std::fs::write(folder.join("go"), "").unwrap();
    wait_for("the end of the run", || folder.join("done").exists().then_some(()));
    bench.start_agent();
    assert_eq!(bench.wait_state("job.late-1.1", InstanceState::Stopped).end, Some(RunEnd::Code { code: 0 }));
    assert_eq!(output(bench, "late-1").data, "NDIK");
}

pub fn a_program_that_cannot_be_run_is_the_jobs_own_fault(bench: &Bench) {
    let spec = InstanceSpec { run: vec!["/no/such".into()], ..run(bench, "none-1", "") };
    assert!(matches!(bench.start(&spec), Some(Refusal::StartFailed { .. })));
    assert_eq!(bench.wait_state("job.none-1.1", InstanceState::Failed).end, Some(RunEnd::NotStarted));
}
