//! Jobs: acknowledged when on disk, begun once, their ends counted once, whoever dies in between.

use serde_json::json;
use weal_controller::store::Store;
use weal_model::{Action, JobPhase, JobStatus, RunEnd};
use weal_protocol::controller::JobTaken;
use weal_protocol::engine::RunState;

use crate::fake::{CONFIG, Pool};

async fn pool() -> Pool {
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

async fn until(pool: &Pool, job: &str, state: JobPhase) -> JobStatus {
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
    assert_eq!((status, text.contains("is cancelled")), (409, true), "{text}");
    assert_eq!(order(&pool, "no-7", "cancel").await.0, 404);
    assert_eq!(order(&pool, &job, "requeue").await.0, 200);
    until(&pool, &job, JobPhase::Running).await;
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_with_the_reason() {
    let pool = pool().await;
    let huge = json!({ "memory": 1_u64 << 50 });
    for (extra, part) in [
        (json!({ "run": [] }), "it has no command"),
        (json!({ "run": ["a\0b"] }), "NUL"),
        (json!({ "done_within_s": -1.0 }), "must lie in the future"),
        (json!({ "done_within_s": null, "done_by": 5 }), "in the past"),
        (json!({ "done_within_s": null }), "it has no goal"),
        (json!({ "done_within_s": null, "class": "gold" }), "nobody knows its work"),
        (huge, "the largest node has"),
        (json!({ "cpus": 0.0 }), "more than nothing"),
        (json!({ "work_s": -3.0 }), "more than nothing"),
        (json!({ "name": "../x" }), "cannot be the name of a job"),
        (json!({ "cwd": "here" }), "not absolute"),
        (json!({ "env": { "A=B": "" } }), "cannot be the name of a variable"),
    ] {
        let (status, text) = submit(&pool, extra).await;
        assert!(status == 422 && text.contains(part), "{status} {text}, expected {part}");
    }
    assert_eq!(submit(&pool, json!({ "after": ["no-9"] })).await.0, 404);
    let (status, text) = submit(&pool, json!({ "done_within_s": 1.0, "work_s": 60.0 })).await;
    assert!(status == 200 && text.contains("its goal cannot be met"), "{text}");
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
