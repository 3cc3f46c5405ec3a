use weal_model::{Importance, JobCommand, JobSpec, NodeName, Stage};

use super::*;

pub(in crate::cycle) fn record(name: &str, number: u64, retries: u32) -> JobRecord {
    let stage = Stage { work: Work(0.0), max_speed: Cpu(1.0), min_speed: Cpu(0.0), memory: Bytes::mib(100) };
    let spec = JobSpec {
        name: name.into(),
        submitted: Time::ZERO,
        desired_start: Time::ZERO,
        deadline: Time(1_000_000_000_000),
        importance: Importance::NORMAL,
        priority: 0,
        stages: vec![stage],
        tasks: 1,
    };
    let command = JobCommand { run: vec!["true".into()], ..JobCommand::default() };
    JobRecord { retries, ..JobRecord::new(number, spec, command) }
}

pub(in crate::cycle) fn run(job: &str, attempt: u32, state: RunState) -> RunSeen {
    RunSeen {
        job: job.into(),
        attempt,
        task: 0,
        node: "n1".into(),
        state,
        detail: String::new(),
        since: Time(5),
        cpu_seconds: Some(3.0),
        memory_used: None,
        end: None,
        progress: None,
    }
}

pub(in crate::cycle) fn queue(records: Vec<JobRecord>) -> Queue {
    Queue::new(StoredJobs { records, highest: 9, ..StoredJobs::default() })
}

/// What plans are shown of the queue while `runs` are there.
fn shown(queue: &mut Queue, runs: Vec<RunSeen>) -> Vec<(JobName, JobState)> {
    let seen = Observation { runs, ..Observation::default() };
    queue.handle_seen(Time(10), &seen, &Operations::default());
    queue.planned().iter().map(|job| (job.spec.name.clone(), job.state)).collect()
}

#[test]
fn numbers_go_on_behind_all_that_were_ever_given() {
    assert_eq!(queue(vec![record("a-3", 3, 0)]).next_number(), 10);
    assert_eq!(queue(vec![record("a-30", 30, 0)]).next_number(), 31);
}

#[test]
fn a_plan_decides_only_about_jobs_that_are_on_disk_and_free() {
    let mut queue = queue(vec![record("a-1", 1, 0), record("b-2", 2, 0), record("c-3", 3, 0)]);
    queue.enter(record("d-4", 4, 0), Written::Submission);
    queue.get_mut(&"b-2".into()).unwrap().record.hold = Hold::Paused;
    queue.get_mut(&"c-3".into()).unwrap().record.after = vec!["a-1".into()];
    assert_eq!(shown(&mut queue, Vec::new()), [("a-1".into(), JobState::Pending)]);
    let held = shown(&mut queue, vec![run("a-1", 1, RunState::Running), run("b-2", 1, RunState::Paused)]);
    assert_eq!(held, [("a-1".into(), JobState::Running)]);
    let node: NodeName = "n1".into();
    assert_eq!(queue.withheld(Time(10), &node), Bytes::mib(100), "what is paused keeps its memory");
}

#[test]
fn plans_see_jobs_in_the_order_in_which_they_were_submitted() {
    let mut queue = queue(vec![record("b-2", 2, 0), record("a-10", 10, 0), record("a-9", 9, 0), record("c-1", 1, 0)]);
    let names: Vec<JobName> = shown(&mut queue, Vec::new()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["c-1", "b-2", "a-9", "a-10"].map(JobName::from));
}

#[test]
fn the_next_job_of_a_command_begins_with_the_speed_of_the_last() {
    let (mut first, mut other) = (record("a-1", 1, 0), record("a-3", 3, 0));
    first.spec.stages[0].max_speed = Cpu(4.0);
    let second = JobRecord { number: 2, ..first.clone() };
    other.command.run = vec!["false".into()];
    let mut queue = queue(vec![first]);
    let entry = queue.get_mut(&"a-1".into()).unwrap();
    entry.usable = Usable::expected(Some(0.75));
    entry.conclude(Time(20), RunEnd::Code { code: 0 }, "");
    queue.close(&"a-1".into()).unwrap();
    queue.enter(second, Written::Yes);
    queue.enter(other, Written::Yes);
    let mut speed = |job: &str| {
        let entry = queue.get_mut(&job.into()).unwrap();
        entry.begin_anew();
        entry.spec().stages[0].max_speed
    };
    assert_eq!((speed("a-1"), speed("a-3")), (Cpu(0.75), Cpu(1.0)));
}

#[test]
fn a_run_that_no_open_record_names_is_stale() {
    let mut queue = queue(vec![record("a-1", 1, 0)]);
    let runs = vec![run("a-1", 1, RunState::Running), run("a-1", 0, RunState::Ended), run("b-2", 1, RunState::Running)];
    let seen = Observation { runs, ..Observation::default() };
    let stale = |queue: &Queue| queue.stale(&seen).map(|run| (run.job.clone(), run.attempt)).collect::<Vec<_>>();
    assert_eq!(stale(&queue), [("a-1".into(), 0), ("b-2".into(), 1)]);
    queue.get_mut(&"a-1".into()).unwrap().conclude(Time(20), RunEnd::Code { code: 0 }, "");
    assert_eq!(stale(&queue).len(), 2, "its run stays until it is written down what it came to");
    queue.close(&"a-1".into()).unwrap();
    assert_eq!(stale(&queue).len(), 3);
}

#[test]
fn nothing_is_taken_away_while_the_store_could_not_be_read() {
    let queue = Queue::new(StoredJobs { unread: true, ..StoredJobs::default() });
    let seen = Observation { runs: vec![run("a-1", 1, RunState::Running)], ..Observation::default() };
    assert_eq!(queue.stale(&seen).count(), 0);
}

#[test]
fn a_run_that_began_and_is_missing_is_not_begun_again_by_a_plan() {
    let mut queue = queue(vec![JobRecord { begun: true, ..record("a-1", 1, 0) }]);
    assert_eq!(shown(&mut queue, Vec::new()), []);
}

/// (outcome, run, retries left, lost) after each of `ends`.
fn after(mut record: JobRecord, ends: &[RunEnd]) -> (Option<JobOutcome>, u32, u32, u32) {
    record.begun = true;
    let mut queue = queue(vec![record]);
    let entry = queue.get_mut(&"a-1".into()).unwrap();
    for end in ends {
        entry.conclude(Time(20), *end, "");
        entry.record.begun = true;
    }
    let record = &entry.record;
    (record.end.as_ref().map(|end| end.outcome), record.attempt, record.retries, record.lost)
}

#[test]
fn a_job_fails_by_its_own_fault_and_is_run_again_when_weal_lost_it() {
    let code = |code| RunEnd::Code { code };
    assert_eq!(after(record("a-1", 1, 0), &[code(0)]), (Some(JobOutcome::Done), 1, 0, 0));
    assert_eq!(after(record("a-1", 1, 0), &[code(3)]), (Some(JobOutcome::Failed), 1, 0, 0));
    assert_eq!(after(record("a-1", 1, 2), &[code(3), RunEnd::OutOfMemory]), (None, 3, 0, 0));
    assert_eq!(after(record("a-1", 1, 2), &[RunEnd::NotStarted]), (Some(JobOutcome::Failed), 1, 2, 0));
    assert_eq!(after(record("a-1", 1, 0), &[RunEnd::Lost, code(0)]), (Some(JobOutcome::Done), 2, 0, 1));
    assert_eq!(after(record("a-1", 1, 0), &[RunEnd::Lost; 6]).0, Some(JobOutcome::Failed), "not for ever");
    let cancelled = JobRecord { cancelled: true, ..record("a-1", 1, 5) };
    assert_eq!(after(cancelled, &[code(1)]), (Some(JobOutcome::Cancelled), 1, 5, 0));
}

#[test]
fn a_job_that_waits_for_one_in_vain_is_cancelled_and_names_it() {
    let end =
        JobEnd { outcome: JobOutcome::Failed, time: Time(1), run: None, detail: String::new(), cpu_used: Work(0.0), node: None };
    let failed = JobRecord { end: Some(end), ..record("a-1", 1, 0) };
    let mut queue = queue(vec![failed, JobRecord { after: vec!["a-1".into()], ..record("b-2", 2, 0) }]);
    let waits = &mut queue.get_mut(&"b-2".into()).unwrap().record;
    assert!(waits.cancelled);
    assert_eq!(waits.cancellation(), "`a-1`, which it waits for, was not done");
    waits.cancel(Cancellation::Order);
    assert_eq!(waits.cancellation(), "`a-1`, which it waits for, was not done", "the first reason is kept");
    let kept = serde_json::json!(JobRecord { cancelled: true, ..record("c-3", 3, 0) });
    let former: JobRecord = serde_json::from_value(kept).unwrap();
    assert_eq!(former.cancellation(), "an order cancelled it", "a version that kept no reason knew orders");
}

#[test]
fn a_job_that_failed_waits_before_it_is_run_again() {
    let mut queue = queue(vec![record("a-1", 1, 3)]);
    let entry = queue.get_mut(&"a-1".into()).unwrap();
    entry.conclude(Time(10), RunEnd::Code { code: 1 }, "");
    entry.written = Written::Yes;
    assert_eq!(shown(&mut queue, Vec::new()), []);
    assert!(queue.next_retry(Time(10)).is_some());
}

#[test]
fn a_clock_that_is_set_back_does_not_put_off_the_next_run() {
    let mut queue = queue(vec![record("a-1", 1, 3)]);
    let entry = queue.get_mut(&"a-1".into()).unwrap();
    let noon = Time::from_secs_f64(43_200.0);
    entry.conclude(noon, RunEnd::Code { code: 1 }, "");
    entry.written = Written::Yes;
    let mut planned = |now: Time| {
        let seen = Observation::default();
        queue.handle_seen(now, &seen, &Operations::default());
        (queue.planned().len(), queue.next_retry(now).is_some())
    };
    assert_eq!(planned(noon), (0, true), "it waits two seconds");
    assert_eq!(planned(Time::from_secs_f64(43_203.0)), (1, false));
    assert_eq!(planned(Time::from_secs_f64(39_600.0)), (1, false), "an hour earlier it does not wait for an hour");
}

#[test]
fn progress_that_a_job_writes_tells_its_work_and_a_surprise_is_told_once() {
    let mut queue = queue(vec![record("a-1", 1, 0)]);
    queue.get_mut(&"a-1".into()).unwrap().record.spec.stages[0].work = Work(10.0);
    let mut look = |used: f64, progress: Option<f64>| {
        let run = RunSeen { cpu_seconds: Some(used), progress, ..run("a-1", 1, RunState::Running) };
        let seen = Observation { runs: vec![run], ..Observation::default() };
        let surprise = queue.handle_seen(Time(10), &seen, &Operations::default());
        (surprise.changes_plans, queue.planned()[0].spec.stages[0].work.0)
    };
    assert_eq!(look(1.0, None), (true, 10.0), "plans know nothing before");
    assert_eq!(look(2.0, Some(0.01)), (false, 10.0), "too early to tell");
    assert_eq!(look(10.0, Some(0.1)), (true, 100.0), "ten times as much work as was said");
    assert!(!look(11.0, Some(0.11)).0);
    assert!(look(20.0, Some(0.9)).0, "and then the rest is fast");
    assert_eq!(look(21.0, Some(7.0)).1, 10.0, "nonsense is not believed");
}

/// A run of a gang whose tasks are in these states, each on a node of its own.
fn gang(attempt: u32, states: &[(RunState, Option<RunEnd>)]) -> Vec<RunSeen> {
    let task = |(task, (state, end)): (usize, &(RunState, Option<RunEnd>))| RunSeen {
        task: task as u32,
        node: format!("n{task}").into(),
        end: *end,
        since: Time(5 + task as u64),
        ..run("g-1", attempt, *state)
    };
    states.iter().enumerate().map(task).collect()
}

fn gang_record(tasks: u32) -> JobRecord {
    let mut record = record("g-1", 1, 1);
    record.spec.tasks = tasks;
    record
}

#[test]
fn a_gang_is_what_its_tasks_are_together() {
    const WELL: (RunState, Option<RunEnd>) = (RunState::Ended, Some(RunEnd::Code { code: 0 }));
    const BADLY: (RunState, Option<RunEnd>) = (RunState::Ended, Some(RunEnd::Code { code: 3 }));
    let [runs, stands, starts] = [RunState::Running, RunState::Paused, RunState::Starting].map(|state| (state, None));
    let whole = |hold: Hold, states: &[(RunState, Option<RunEnd>)]| {
        let record = JobRecord { hold, ..gang_record(3) };
        let seen = gang(1, states);
        let (run, _) = super::gang::whole(&record, seen.iter().collect());
        run.map(|run| (run.state, run.end))
    };
    assert_eq!(whole(Hold::None, &[]), None);
    assert_eq!(whole(Hold::None, &[runs, starts, runs]), Some(starts));
    assert_eq!(whole(Hold::None, &[WELL, runs, WELL]), Some(runs));
    assert_eq!(whole(Hold::None, &[WELL, WELL, WELL]), Some(WELL));
    assert_eq!(whole(Hold::None, &[WELL, BADLY, runs]), Some(BADLY));
    assert_eq!(whole(Hold::None, &[runs, runs]), Some((RunState::Ended, Some(RunEnd::Lost))), "one is missing");
    assert_eq!(whole(Hold::None, &[runs, stands, runs]), Some(stands), "it is to run: it is resumed again");
    assert_eq!(whole(Hold::Paused, &[runs, stands, runs]), Some(runs), "it is to stand still: it is paused again");
}

#[test]
fn a_task_that_fails_ends_its_gang_which_is_run_again_as_a_whole() {
    let mut queue = queue(vec![gang_record(2)]);
    let runs = gang(1, &[(RunState::Running, None), (RunState::Ended, Some(RunEnd::Code { code: 3 }))]);
    assert_eq!(shown(&mut queue, runs.clone()), [], "no plan decides about what has ended");
    let entry = queue.get_mut(&"g-1".into()).unwrap();
    let run = entry.run.clone().unwrap();
    assert_eq!((run.end, run.detail.as_str()), (Some(RunEnd::Code { code: 3 }), "task 2 of 2: "));
    assert_eq!((entry.used, entry.nodes.len()), (3.0, 2), "each has used 3 s");
    entry.conclude(Time(20), run.end.unwrap(), &run.detail);
    assert_eq!((entry.record.attempt, entry.record.end.is_none()), (2, true));
    let seen = Observation { runs: runs.clone(), ..Observation::default() };
    assert_eq!(queue.stale(&seen).count(), 2, "what is left of the first run is taken away");
    let order = queue.order(&Action::EndJob { job: "g-1".into(), attempt: 1 }, &runs).unwrap();
    assert_eq!(order.tasks, [0, 1]);
}

#[test]
fn orders_to_a_gang_are_orders_to_each_of_its_tasks() {
    let mut queue = queue(vec![gang_record(3)]);
    let nodes: Vec<NodeName> = ["n0", "n1", "n2"].map(NodeName::from).to_vec();
    let start = Action::StartJob { job: "g-1".into(), nodes: nodes.clone() };
    assert_eq!(queue.order(&start, &[]).unwrap().tasks, [0, 1, 2]);
    let states = [(RunState::Running, None), (RunState::Ended, Some(RunEnd::Code { code: 0 })), (RunState::Running, None)];
    let runs = gang(1, &states);
    let seen = Observation { runs: runs.clone(), ..Observation::default() };
    queue.handle_seen(Time(10), &seen, &Operations::default());
    assert_eq!((queue.planned()[0].nodes.as_slice(), queue.planned()[0].done), (nodes.as_slice(), Work(3.0)));
    for action in [Action::PauseJob { job: "g-1".into() }, Action::SetJobCpu { job: "g-1".into(), cpu: Cpu(0.5) }] {
        assert_eq!(queue.order(&action, &runs).unwrap().tasks, [0, 2], "one has ended and takes no orders");
    }
}

#[test]
fn a_job_whose_state_is_saved_goes_on_from_there_on_any_node() {
    let mut record = record("s-1", 1, 0);
    record.command.checkpoint = vec!["save".into()];
    record.command.restore = vec!["restore".into()];
    let mut queue = queue(vec![record]);
    let start = Action::StartJob { job: "s-1".into(), nodes: vec!["n2".into()] };
    assert_eq!(queue.order(&start, &[]).unwrap().command.run, ["true"], "nothing is saved yet");
    let ended = RunSeen { end: Some(RunEnd::Saved), ..run("s-1", 1, RunState::Ended) };
    shown(&mut queue, vec![ended.clone()]);
    let entry = queue.get_mut(&"s-1".into()).unwrap();
    entry.conclude(Time(20), RunEnd::Saved, &ended.detail);
    entry.written = Written::Yes;
    assert_eq!((entry.record.attempt, entry.record.retries, entry.record.lost), (2, 0, 0), "that was nobody's fault");
    let kept = entry.record.clone();
    let seen = Observation::default();
    queue.handle_seen(Time(30), &seen, &Operations::default());
    assert_eq!((queue.planned()[0].state, queue.planned()[0].done), (JobState::Pending, Work(3.0)), "what it has done counts");
    assert_eq!(queue.order(&start, &[]).unwrap().command.run, ["restore"]);
    let again = RunSeen { cpu_seconds: Some(2.0), ..run("s-1", 2, RunState::Running) };
    let mut next = Queue::new(StoredJobs { records: vec![kept], ..StoredJobs::default() });
    let seen = Observation { runs: vec![again], ..Observation::default() };
    next.handle_seen(Time(40), &seen, &Operations::default());
    assert_eq!(next.planned()[0].done, Work(5.0), "a controller that comes next knows it too");
}
