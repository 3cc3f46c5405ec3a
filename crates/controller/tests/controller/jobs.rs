//! Jobs: acknowledged when on disk, begun once, their ends counted once, whoever dies in between.

use std::time::Duration;

use serde_json::json;
use weal_controller::store::Store;
use weal_model::{Action, JobName, JobPhase, JobStatus, RunEnd, ScheduleStatus};
use weal_protocol::controller::{JobForecast, JobTaken};
use weal_protocol::engine::RunState;

use crate::fake::{CONFIG, Pool};

pub async fn pool() -> Pool {
    let pool = Pool::start().await;
    pool.engine.lock().agent.capabilities.jobs = true;
    pool.apply(CONFIG).await;
    pool.until_status("nodes are known", |status| status.nodes.iter().any(|node| node.up)).await;
    pool
}

async fn submit(pool: &Pool, extra: serde_json::Value) -> (u16, String) {
    let mut body = json!({ "run": ["work"], "done_within_s": 600.0, "memory": 1 << 20 });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    pool.local("POST", "/v1/jobs", body.to_string()).await
}

async fn taken(pool: &Pool, extra: serde_json::Value) -> String {
    let (status, text) = submit(pool, extra).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<JobTaken>(&text).unwrap().job.id.to_string()
}

async fn order(pool: &Pool, job: &str, verb: &str) -> (u16, String) {
    pool.local("POST", &format!("/v1/jobs/{job}/{verb}"), "").await
}

pub async fn until(pool: &Pool, job: &str, state: JobPhase) -> JobStatus {
    pool.until_status(&format!("{job} is {}", state.as_str()), |status| {
        status.jobs.iter().any(|shown| shown.id.as_str() == job && shown.state == state)
    })
    .await;
    pool.get(&format!("/v1/jobs/{job}")).await
}

/// Kills the controller, does `meanwhile`, and starts another once the killed one's store is free, as the end of a process frees it.
async fn restart(pool: &mut Pool, meanwhile: impl FnOnce(&Pool)) {
    pool.kill_controller().await;
    meanwhile(pool);
    let path = pool.path("controller/store.db");
    pool.until("the store is free", |_| Store::open(&path).is_ok_and(|(_, saved, _)| saved.is_read)).await;
    pool.start_controller();
}

fn starts(pool: &Pool) -> usize {
    pool.engine.lock().actions.iter().filter(|action| matches!(action, Action::StartJob { .. })).count()
}

fn has_run(pool: &Pool, job: &str) -> bool {
    pool.engine.lock().agent.runs.iter().any(|run| run.job.as_str() == job)
}

#[tokio::test]
async fn a_job_runs_and_its_end_is_kept_before_its_run_is_taken_away() {
    let pool = pool().await;
    let job = taken(&pool, json!({ "name": "report", "env": { "MODE": "fast" } })).await;
    assert_eq!(job, "report-1");
    until(&pool, &job, JobPhase::Running).await;
    pool.engine.lock().set_run(&job.as_str().into(), RunState::Ended, Some(RunEnd::Code { code: 0 }));
    let done = until(&pool, &job, JobPhase::Done).await;
    assert_eq!((done.end, done.progress, done.attempt), (Some(RunEnd::Code { code: 0 }), 1.0, 1));
    assert!(done.utility.is_some_and(|utility| utility.0 > 0.9));
    pool.until("its run is taken away", |pool| !has_run(pool, "report-1")).await;
    assert_eq!(starts(&pool), 1);
    let (status, output) = pool.local("GET", "/v1/jobs/report-1/output", "").await;
    assert_eq!((status, output.as_bytes().starts_with(b"hello")), (200, true));
}

#[tokio::test]
async fn no_job_is_lost_or_begun_twice_when_the_controller_dies() {
    let mut pool = pool().await;
    pool.engine.lock().up = false;
    let waiting = taken(&pool, json!({ "name": "waiting" })).await;
    restart(&mut pool, |pool| pool.engine.lock().up = true).await;
    until(&pool, &waiting, JobPhase::Running).await;
    restart(&mut pool, |_| {}).await;
    until(&pool, &waiting, JobPhase::Running).await;
    let end = |pool: &Pool| {
        pool.engine.lock().set_run(&"waiting-1".into(), RunState::Ended, Some(RunEnd::Code { code: 0 }));
    };
    restart(&mut pool, end).await;
    until(&pool, &waiting, JobPhase::Done).await;
    pool.until("its run is taken away", |pool| !has_run(pool, "waiting-1")).await;
    restart(&mut pool, |_| {}).await;
    until(&pool, &waiting, JobPhase::Done).await;
    assert_eq!(starts(&pool), 1);
    assert_eq!(taken(&pool, json!({ "name": "next" })).await, "next-2", "numbers are not used twice");
}

#[tokio::test]
async fn a_run_that_is_gone_is_begun_anew_and_one_that_failed_is_run_again_as_asked() {
    let pool = pool().await;
    let lost = taken(&pool, json!({ "name": "lost" })).await;
    until(&pool, &lost, JobPhase::Running).await;
    pool.engine.lock().agent.runs.clear();
    pool.until("it runs again", |pool| pool.engine.lock().agent.runs.iter().any(|run| run.attempt == 2)).await;
    let weak = taken(&pool, json!({ "name": "weak", "retries": 1 })).await;
    until(&pool, &weak, JobPhase::Running).await;
    for attempt in 1..=2 {
        pool.until("the run", |pool| {
            let machine = pool.engine.lock();
            machine.agent.runs.iter().any(|run| run.job.as_str() == weak && run.attempt == attempt)
        })
        .await;
        pool.engine.lock().set_run(&weak.as_str().into(), RunState::Ended, Some(RunEnd::Code { code: 7 }));
    }
    let failed = until(&pool, &weak, JobPhase::Failed).await;
    assert_eq!((failed.end, failed.attempt), (Some(RunEnd::Code { code: 7 }), 2));
}

#[tokio::test]
async fn orders_bring_a_run_to_what_was_asked() {
    let pool = pool().await;
    let job = taken(&pool, json!({})).await;
    until(&pool, &job, JobPhase::Running).await;
    for (verb, state) in [("pause", JobPhase::Paused), ("resume", JobPhase::Running), ("suspend", JobPhase::Suspended)] {
        assert_eq!(order(&pool, &job, verb).await.0, 200, "{verb}");
        until(&pool, &job, state).await;
    }
    assert_eq!(order(&pool, &job, "resume").await.0, 200);
    until(&pool, &job, JobPhase::Running).await;
    assert_eq!(order(&pool, &job, "cancel").await.0, 200);
    until(&pool, &job, JobPhase::Cancelled).await;
    pool.until("its run is taken away", |pool| !has_run(pool, "work-1")).await;
    let (status, text) = order(&pool, &job, "pause").await;
    assert_eq!((status, text.contains("was cancelled, so it cannot be ")), (409, true), "{text}");
    assert_eq!(order(&pool, "no-7", "cancel").await.0, 404);
    assert_eq!(order(&pool, &job, "requeue").await.0, 200);
    until(&pool, &job, JobPhase::Running).await;
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_with_the_reason() {
    let pool = pool().await;
    let huge = json!({ "memory": 1_u64 << 50 });
    for (extra, part) in [
        (json!({ "run": [] }), "the job has no command"),
        (json!({ "run": ["a\0b"] }), "NUL"),
        (json!({ "done_within_s": -1.0 }), "must lie in the future"),
        (json!({ "done_within_s": null, "done_by": 5 }), "in the past"),
        (json!({ "done_within_s": null }), "the job has no goal"),
        (json!({ "done_within_s": null, "class": "gold" }), "its work is not known yet"),
        (huge, "the largest node has"),
        (json!({ "cpus": 0.0 }), "must be above 0"),
        (json!({ "work_s": -3.0 }), "must be above 0"),
        (json!({ "name": "../x" }), "cannot be the name of a job"),
        (json!({ "cwd": "here" }), "not absolute"),
        (json!({ "env": { "A=B": "" } }), "cannot be the name of a variable"),
    ] {
        let (status, text) = submit(&pool, extra).await;
        assert!(status == 422 && text.contains(part), "{status} {text}, expected {part}");
    }
    assert_eq!(submit(&pool, json!({ "after": ["no-9"] })).await.0, 404);
    let (status, text) = submit(&pool, json!({ "done_within_s": 1.0, "work_s": 60.0 })).await;
    assert!(status == 200 && text.contains("the job's goal cannot be met"), "{text}");
    let missing = taken(&pool, json!({ "run": ["missing"] })).await;
    let failed = until(&pool, &missing, JobPhase::Failed).await;
    assert_eq!(failed.detail, "cannot run missing: there is no such file");
}

#[tokio::test]
async fn one_key_is_one_job_also_when_it_is_over() {
    let mut pool = pool().await;
    let key = || json!({ "key": "monday" });
    let (first, second) = tokio::join!(taken(&pool, key()), taken(&pool, key()));
    assert_eq!(first, second);
    let (status, text) = submit(&pool, json!({ "key": "monday", "run": ["other"] })).await;
    assert!(status == 422 && text.contains("belongs to work-1"), "{text}");
    until(&pool, &first, JobPhase::Running).await;
    pool.engine.lock().set_run(&first.as_str().into(), RunState::Ended, Some(RunEnd::Code { code: 0 }));
    until(&pool, &first, JobPhase::Done).await;
    restart(&mut pool, |_| {}).await;
    assert_eq!(taken(&pool, key()).await, first);
    assert_eq!(starts(&pool), 1);
}

#[tokio::test]
async fn a_job_waits_for_those_before_it_and_ends_with_one_that_fails() {
    let pool = pool().await;
    let first = taken(&pool, json!({ "name": "first" })).await;
    let second = taken(&pool, json!({ "name": "second", "after": [first] })).await;
    let third = taken(&pool, json!({ "name": "third", "after": [second] })).await;
    let shown = until(&pool, &second, JobPhase::Waiting).await;
    assert_eq!(shown.detail, "waits until first-1 is done");
    until(&pool, &first, JobPhase::Running).await;
    pool.engine.lock().set_run(&first.as_str().into(), RunState::Ended, Some(RunEnd::Code { code: 0 }));
    until(&pool, &second, JobPhase::Running).await;
    pool.engine.lock().set_run(&second.as_str().into(), RunState::Ended, Some(RunEnd::Signal { signal: 11 }));
    until(&pool, &second, JobPhase::Failed).await;
    until(&pool, &third, JobPhase::Cancelled).await;
}

#[tokio::test]
async fn an_array_is_submitted_ordered_about_and_waited_for_as_a_whole() {
    let pool = pool().await;
    let whole = json!({ "name": "frame", "array": { "first": 2, "last": 6, "step": 4 } });
    assert_eq!(taken(&pool, whole).await, "frame-1.2");
    let after = taken(&pool, json!({ "name": "film", "after": ["frame-1"] })).await;
    assert_eq!(after, "film-3", "each part has a number");
    for part in ["frame-1.2", "frame-1.6"] {
        until(&pool, part, JobPhase::Running).await;
    }
    assert_eq!(order(&pool, "frame-1", "pause").await.0, 200);
    until(&pool, "frame-1.6", JobPhase::Paused).await;
    pool.engine.lock().set_run(&"frame-1.2".into(), RunState::Ended, Some(RunEnd::Code { code: 0 }));
    until(&pool, "frame-1.2", JobPhase::Done).await;
    assert_eq!(order(&pool, "frame-1", "cancel").await.0, 200, "one part is over, the other is not");
    until(&pool, "frame-1.6", JobPhase::Cancelled).await;
    until(&pool, &after, JobPhase::Cancelled).await;
    assert_eq!(order(&pool, "frame-1", "cancel").await.0, 404);
    for (first, last, part) in [(5, 1, "to a larger one"), (0, 5000, "at most 1000 jobs")] {
        let (status, text) = submit(&pool, json!({ "array": { "first": first, "last": last } })).await;
        assert!(status == 422 && text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_dry_run_says_what_would_become_of_a_job_and_runs_nothing() {
    let pool = pool().await;
    let body = json!({ "run": ["work"], "done_within_s": 600.0, "memory": 1 << 20, "work_s": 60.0 }).to_string();
    let (status, text) = pool.local("POST", "/v1/jobs/dry-run", body.clone()).await;
    let forecast: JobForecast = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status} {text}"));
    assert!(forecast.node.is_some() && forecast.changes.is_empty(), "{forecast:?}");
    let job = forecast.job;
    let takes_s = job.expected_end.unwrap().since(job.submitted).as_secs_f64();
    assert!((59.0..90.0).contains(&takes_s) && job.utility.unwrap().0 > 0.8, "{takes_s} {:?}", job.utility);
    assert_eq!(pool.get::<Vec<JobStatus>>("/v1/jobs").await, []);
    // Others that need all of the CPU have to give some away.
    let nodes = pool.status().await.nodes.iter().map(|node| node.cpu_capacity.0.ceil() as usize).sum::<usize>();
    for _ in 0..2 * nodes {
        taken(&pool, json!({ "work_s": 60.0, "done_within_s": 100.0 })).await;
    }
    pool.until_status("all are planned", |status| status.jobs.iter().all(|job| job.utility.is_some())).await;
    let (_, text) = pool.local("POST", "/v1/jobs/dry-run", body).await;
    let forecast: JobForecast = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    assert!(forecast.changes.iter().all(|change| change.is_job) && !forecast.changes.is_empty(), "{forecast:?}");
    let (status, text) = pool.local("POST", "/v1/jobs/dry-run", json!({ "run": [] }).to_string()).await;
    assert!(status == 422 && text.contains("no command"), "{text}");
}

const NIGHTLY: &str = "\n[job.nightly]\nschedule = \"0 3 * * *\"\nrun = [\"work\"]\ndone-by = \"2h\"\nmemory = \"1MiB\"\n";
const DAY: Duration = Duration::from_secs(86_400);

/// The job of the schedule's last date, once there is another one than `before`.
async fn next_job(pool: &Pool, before: Option<&JobName>) -> ScheduleStatus {
    let deadline = std::time::Instant::now() + crate::fake::DEADLINE;
    loop {
        let schedules: Vec<ScheduleStatus> = pool.get("/v1/schedules").await;
        if let Some(schedule) =
            schedules.into_iter().next().filter(|one| one.last_job.is_some() && one.last_job.as_ref() != before)
        {
            return schedule;
        }
        assert!(std::time::Instant::now() < deadline, "no job of the schedule");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_schedule_hands_one_job_in_per_date_whoever_dies() {
    let mut pool = pool().await;
    pool.apply(&format!("{CONFIG}{NIGHTLY}")).await;
    pool.until_status("the config is in force", |status| status.config_generation == 2).await;
    pool.engine.lock().ahead = DAY;
    let first = next_job(&pool, None).await;
    let (job, date) = (first.last_job.unwrap(), first.last.unwrap());
    assert_eq!(date.0 % 86_400_000_000_000, 3 * 3_600_000_000_000, "3:00 UTC");
    assert_eq!(first.next.unwrap().since(date), DAY);
    let shown = until(&pool, job.as_str(), JobPhase::Running).await;
    assert_eq!(shown.scheduled.map(|scheduled| scheduled.date), Some(date));
    restart(&mut pool, |_| {}).await;
    // The next date comes while the job runs: it is left out. So is one that comes after the clock was set back.
    pool.until_status("nodes are known", |status| status.nodes.iter().any(|node| node.up)).await;
    pool.engine.lock().ahead = 2 * DAY;
    pool.until_status("an event", |_| pool.engine.lock().up).await;
    let deadline = std::time::Instant::now() + crate::fake::DEADLINE;
    loop {
        let schedules: Vec<ScheduleStatus> = pool.get("/v1/schedules").await;
        if schedules[0].detail.contains("is not over, and overlap") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{schedules:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pool.engine.lock().set_run(&job, RunState::Ended, Some(RunEnd::Code { code: 0 }));
    until(&pool, job.as_str(), JobPhase::Done).await;
    pool.engine.lock().ahead = DAY;
    restart(&mut pool, |pool| pool.engine.lock().ahead = 9 * DAY).await;
    let second = next_job(&pool, Some(&job)).await;
    assert!(second.last.unwrap().since(date) >= 7 * DAY, "the last of those that nobody saw");
    let running = until(&pool, second.last_job.unwrap().as_str(), JobPhase::Running).await;
    assert_eq!(running.deadline.since(running.submitted).as_secs(), 7200, "its goal counts from when it was submitted");
    assert_eq!(starts(&pool), 2);
}

#[tokio::test]
async fn the_work_of_a_job_is_learnt_from_earlier_ones_of_its_name() {
    let pool = pool().await;
    let first = taken(&pool, json!({ "name": "report" })).await;
    until(&pool, &first, JobPhase::Running).await;
    pool.engine.lock().agent.runs[0].cpu_seconds = Some(12.5);
    pool.engine.lock().set_run(&first.as_str().into(), RunState::Ended, Some(RunEnd::Code { code: 0 }));
    until(&pool, &first, JobPhase::Done).await;
    let (status, text) = submit(&pool, json!({ "name": "report", "done_within_s": null, "class": "gold" })).await;
    assert_eq!(status, 200, "{text}");
    let job = serde_json::from_str::<JobTaken>(&text).unwrap().job;
    assert_eq!((job.work.0, job.work_source.as_str()), (12.5, "from 1 earlier run"));
    assert_eq!(job.deadline.since(job.submitted).as_secs_f64(), 3.0 * 12.5, "gold is three times its work");
}
