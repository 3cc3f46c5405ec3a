//! Runs of jobs: they end, and how is told until they are taken away.

use std::os::unix::fs::PermissionsExt;

use weal_model::naming::task_id;
use weal_model::{InstanceState, JobFiles, RestartPolicy, RunEnd};
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
            addresses: Vec::new(),
            files: JobFiles::default(),
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

pub fn the_tasks_of_a_gang_share_their_inputs_and_the_last_brings_the_results(bench: &Bench) {
    let (data, to) = (bench.state().join("data.txt"), bench.state().join("results"));
    std::fs::write(&data, "3\n").unwrap();
    std::fs::create_dir(&to).unwrap();
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o777)).unwrap();
    let id = |task: u32| task_id(&"gang-1".into(), 1, task);
    let start = |task: u32| {
        let script = format!(
            "read line < data.txt; : > read-{task}; while read host; do line=\"$line $host\"; done < $WEAL_HOSTFILE; \
             until [ -e go-{task} ]; do :; done; echo $line > out-{task}"
        );
        let mut spec = InstanceSpec { id: id(task), ..run(bench, "gang-1", &script) };
        let job = spec.job.as_mut().unwrap();
        (job.task, job.addresses) = (task, vec!["127.0.0.1".to_owned(); 2]);
        let (inputs, to) = (vec![data.display().to_string()], Some(to.display().to_string()));
        job.files = JobFiles { inputs, outputs: vec!["out-*".to_owned()], to };
        assert_eq!(bench.start(&spec), None);
    };
    let ends = |task: u32| {
        std::fs::write(bench.state().join(format!("data/job.gang-1/go-{task}")), "").unwrap();
        let end = bench.wait_state(id(task).as_str(), InstanceState::Stopped).end;
        assert_eq!(end, Some(RunEnd::Code { code: 0 }));
    };
    start(0);
    let read = bench.state().join("data/job.gang-1/read-0");
    wait_for("the first task has read", || read.exists().then_some(()));
    // A second copy would take that back.
    std::fs::write(bench.state().join("data/job.gang-1/data.txt"), "4\n").unwrap();
    start(1);
    ends(1);
    assert!(!to.join("out-1").exists(), "the other task may still write");
    ends(0);
    let result = |task: u32| std::fs::read_to_string(to.join(format!("out-{task}"))).unwrap();
    assert_eq!([result(0), result(1)], ["3 127.0.0.1 127.0.0.1\n", "4 127.0.0.1 127.0.0.1\n"]);
    bench.stop(id(1).as_str());
    assert!(bench.state().join("data/job.gang-1").exists(), "only the task that has copied them takes the folder away");
    bench.stop(id(0).as_str());
    assert!(!bench.state().join("data/job.gang-1").exists());
}
