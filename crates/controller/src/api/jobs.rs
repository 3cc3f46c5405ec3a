//! Jobs: handed in, looked at, ordered about, read.

use std::convert::Infallible;

use axum::body::{Body as AnswerBody, Bytes};
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine;
use http::{StatusCode, header};
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use weal_model::{JobName, JobRecord, JobStatus, Submitter};
use weal_protocol::Refusal;
use weal_protocol::controller::{Caller, JobSubmission, JobTaken, JobVerb};
use weal_protocol::engine::OutputRequest;

use super::answer::{Body, Parameters, refusal};
use super::state::{Api, ApiState, ReadOutput};
use crate::driver::{NotTaken, Order};
use crate::store::WhichJob;

/// What one wait for more output takes at most; a reader that left is noticed after it.
const WAIT_S: f64 = 10.0;
/// Jobs in one answer.
const MOST_JOBS: u32 = 10_000;
/// Jobs in an answer to who says nothing.
const JOBS: u32 = 200;

pub(super) async fn submit(api: ApiState, Extension(who): Extension<Caller>, Body(submission): Body<JobSubmission>) -> Response {
    if let Some(known) = known_by_key(&api, &submission).await {
        return known;
    }
    let (reply, answer) = oneshot::channel();
    let order = Order::Submit { submission: Box::new(submission), submitter: submitter(&api, who), reply };
    taken(&api, order, answer).await
}

/// Whose quota counts: a token's. Users of this machine's socket may do everything anyway.
fn submitter(api: &Api, who: Caller) -> Option<Submitter> {
    let Caller::Token { name: token, .. } = who else { return None };
    Some(Submitter { quota: api.tokens.quota(&token), token })
}

/// The answer when an earlier submission with this key is over by now and only the store knows its job.
async fn known_by_key(api: &Api, submission: &JobSubmission) -> Option<Response> {
    let record = api.board.store.job(WhichJob::Key(submission.key.clone()?)).await.filter(|record| record.end.is_some())?;
    if record.command != submission.command() {
        let text = format!("the key belongs to {}, which runs another command", record.spec.name);
        return Some(refusal(StatusCode::UNPROCESSABLE_ENTITY, text));
    }
    let job = over(api, record).await?;
    Some(Json(JobTaken { job, is_new: false, warnings: Vec::new() }).into_response())
}

pub(super) async fn forecast(api: ApiState, Body(submission): Body<JobSubmission>) -> Response {
    let (reply, answer) = oneshot::channel();
    if api.orders.send(Order::Forecast { submission: Box::new(submission), reply }).await.is_err() {
        return stopping();
    }
    match answer.await {
        Ok(Ok(forecast)) => Json(forecast).into_response(),
        Ok(Err(why)) => refusal(status_of(&why), why.to_string()),
        Err(_) => stopping(),
    }
}

pub(super) async fn cancel(api: ApiState, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Cancel).await
}

pub(super) async fn pause(api: ApiState, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Pause).await
}

pub(super) async fn suspend(api: ApiState, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Suspend).await
}

pub(super) async fn resume(api: ApiState, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Resume).await
}

pub(super) async fn requeue(api: ApiState, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Requeue).await
}

async fn order(api: &Api, job: JobName, verb: JobVerb) -> Response {
    let (reply, answer) = oneshot::channel();
    taken(api, Order::Job { job, verb, reply }, answer).await
}

async fn taken(api: &Api, order: Order, answer: oneshot::Receiver<Result<JobTaken, NotTaken>>) -> Response {
    if api.orders.send(order).await.is_err() {
        return stopping();
    }
    match answer.await {
        Ok(Ok(taken)) => Json(taken).into_response(),
        Ok(Err(NotTaken::Refused(why))) => refusal(status_of(&why), why.to_string()),
        Ok(Err(NotTaken::NotKept(problem))) => {
            refusal(StatusCode::SERVICE_UNAVAILABLE, format!("nothing is done, because it cannot be written down: {problem}"))
        }
        Err(_) => stopping(),
    }
}

fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::NoJob { .. } => StatusCode::NOT_FOUND,
        Refusal::OverQuota { .. } => StatusCode::TOO_MANY_REQUESTS,
        Refusal::BadJob { .. } | Refusal::BadName { .. } | Refusal::RelativeFolder { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::CONFLICT,
    }
}

fn stopping() -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping")
}

#[derive(Deserialize)]
pub(super) struct JobsQuery {
    limit: Option<u32>,
    #[serde(default)]
    all: bool,
}

pub(super) async fn list(api: ApiState, Parameters(query): Parameters<JobsQuery>) -> Response {
    let limit = query.limit.unwrap_or(JOBS).min(MOST_JOBS);
    let (reply, answer) = oneshot::channel();
    if api.orders.send(Order::Jobs { limit: limit as usize, reply }).await.is_err() {
        return stopping();
    }
    let Ok(mut jobs) = answer.await else { return stopping() };
    if query.all {
        let open = jobs.iter().filter(|job| !job.state.is_over()).count();
        jobs.truncate(open);
        for record in api.board.store.jobs_over(u64::MAX, limit.saturating_sub(open as u32)).await {
            jobs.extend(over(&api, record).await);
        }
    }
    Json(jobs).into_response()
}

pub(super) async fn schedules(api: ApiState) -> Response {
    let (reply, answer) = oneshot::channel();
    if api.orders.send(Order::Schedules { reply }).await.is_err() {
        return stopping();
    }
    answer.await.map_or_else(|_| stopping(), |schedules| Json(schedules).into_response())
}

pub(super) async fn show(api: ApiState, Path(job): Path<JobName>) -> Response {
    match find(&api, &job).await {
        Some(job) => Json(job).into_response(),
        None => no_job(&job),
    }
}

/// A job, whether the loop knows it or only the store.
async fn find(api: &Api, job: &JobName) -> Option<JobStatus> {
    let (reply, answer) = oneshot::channel();
    api.orders.send(Order::OneJob { job: job.clone(), reply }).await.ok()?;
    if let Some(status) = answer.await.ok()? {
        return Some(status);
    }
    over(api, api.board.store.job(WhichJob::Name(job.to_string())).await?).await
}

async fn over(api: &Api, record: JobRecord) -> Option<JobStatus> {
    let (reply, answer) = oneshot::channel();
    api.orders.send(Order::Over { record: Box::new(record), reply }).await.ok()?;
    answer.await.ok()
}

fn no_job(job: &JobName) -> Response {
    refusal(StatusCode::NOT_FOUND, format!("there is no job `{job}`: weal jobs lists them"))
}

#[derive(Deserialize)]
pub(super) struct OutputQuery {
    tail: Option<u32>,
    attempt: Option<u32>,
    #[serde(default)]
    task: u32,
    #[serde(default)]
    follow: bool,
}

pub(super) async fn output(api: ApiState, Path(job): Path<JobName>, Parameters(query): Parameters<OutputQuery>) -> Response {
    let Some(status) = find(&api, &job).await else { return no_job(&job) };
    let (bytes, receiver) = mpsc::channel(16);
    let request = OutputRequest {
        job,
        attempt: query.attempt.unwrap_or(status.attempt),
        task: query.task,
        cursor: None,
        tail_lines: query.tail,
        wait_s: 0.0,
    };
    let read = api.read_output.clone();
    tokio::spawn(copy(read, request, query.follow, bytes));
    let body = AnswerBody::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    ([(header::CONTENT_TYPE, "application/octet-stream"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")], body).into_response()
}

/// Copies output to the reader: up to now, or until the run has ended and all of it was read.
async fn copy(read: ReadOutput, mut request: OutputRequest, follow: bool, bytes: mpsc::Sender<Bytes>) {
    while !bytes.is_closed() {
        request.wait_s = if follow && request.cursor.is_some() { WAIT_S } else { 0.0 };
        let Ok(piece) = read(request.clone()).await else {
            // A run that has not begun, or whose output is kept no more, has nothing to read; a follower waits for it.
            if !follow {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            continue;
        };
        let data = base64::engine::general_purpose::STANDARD.decode(&piece.data).unwrap_or_default();
        let is_end = piece.is_over || (data.is_empty() && !follow);
        if !data.is_empty() && bytes.send(Bytes::from(data)).await.is_err() {
            return;
        }
        if is_end {
            return;
        }
        request.cursor = Some(piece.next);
    }
}
