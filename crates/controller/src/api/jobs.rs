//! Jobs: submitted, looked at, ordered about, read.

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
use weal_protocol::controller::{JobSubmission, JobTaken, JobVerb};
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

/// Whose token was shown. Users of this machine's socket show none: they may do everything anyway.
type By = Extension<Option<Submitter>>;

pub(super) async fn submit(api: ApiState, Extension(submitter): By, Body(submission): Body<JobSubmission>) -> Response {
    if let Some(known) = known_by_key(&api, &submission, submitter.as_ref()).await {
        return known;
    }
    let (reply, answer) = oneshot::channel();
    taken(&api, Order::Submit { submission: Box::new(submission), submitter, reply }, answer).await
}

/// The answer when an earlier submission with this key is over by now and only the store knows its job.
async fn known_by_key(api: &Api, submission: &JobSubmission, by: Option<&Submitter>) -> Option<Response> {
    let which = WhichJob::Key { key: submission.key.clone()?, submitter: by.map(|by| by.token.clone()) };
    let record = api.board.store.job(which).await.filter(|record| record.end.is_some())?;
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

pub(super) async fn cancel(api: ApiState, Extension(by): By, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Cancel, by).await
}

pub(super) async fn pause(api: ApiState, Extension(by): By, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Pause, by).await
}

pub(super) async fn suspend(api: ApiState, Extension(by): By, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Suspend, by).await
}

pub(super) async fn resume(api: ApiState, Extension(by): By, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Resume, by).await
}

pub(super) async fn requeue(api: ApiState, Extension(by): By, Path(job): Path<JobName>) -> Response {
    order(&api, job, JobVerb::Requeue, by).await
}

async fn order(api: &Api, job: JobName, verb: JobVerb, by: Option<Submitter>) -> Response {
    let (reply, answer) = oneshot::channel();
    taken(api, Order::Job { job, verb, by, reply }, answer).await
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
        Refusal::JobOfOthers { .. } => StatusCode::FORBIDDEN,
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

pub(super) async fn list(api: ApiState, Extension(by): By, Parameters(query): Parameters<JobsQuery>) -> Response {
    let limit = query.limit.unwrap_or(JOBS).min(MOST_JOBS) as usize;
    let (reply, answer) = oneshot::channel();
    if api.orders.send(Order::Jobs { limit, by: by.clone(), reply }).await.is_err() {
        return stopping();
    }
    let Ok(mut jobs) = answer.await else { return stopping() };
    if query.all {
        let open = jobs.iter().filter(|job| !job.state.is_over()).count();
        jobs.truncate(open);
        for record in jobs_over(&api, by.as_ref(), limit.saturating_sub(open)).await {
            jobs.extend(over(&api, record).await);
        }
    }
    Json(jobs).into_response()
}

/// The last `most` that are over and that `by` may see, as the store has them.
async fn jobs_over(api: &Api, by: Option<&Submitter>, most: usize) -> Vec<JobRecord> {
    let (mut found, mut before) = (Vec::new(), u64::MAX);
    while found.len() < most {
        let page = api.board.store.jobs_over(before, MOST_JOBS.min(most as u32)).await;
        let Some(last) = page.last() else { break };
        before = last.number;
        found.extend(page.into_iter().filter(|record| by.is_none_or(|by| by.reaches(record.submitter.as_deref()))));
    }
    found.truncate(most);
    found
}

pub(super) async fn schedules(api: ApiState) -> Response {
    let (reply, answer) = oneshot::channel();
    if api.orders.send(Order::Schedules { reply }).await.is_err() {
        return stopping();
    }
    answer.await.map_or_else(|_| stopping(), |schedules| Json(schedules).into_response())
}

pub(super) async fn show(api: ApiState, Extension(by): By, Path(job): Path<JobName>) -> Response {
    match reachable(&api, &job, by).await {
        Ok(job) => Json(job).into_response(),
        Err(refused) => refused,
    }
}

/// A job that `by` may see.
async fn reachable(api: &Api, job: &JobName, by: Option<Submitter>) -> Result<JobStatus, Response> {
    let Some(status) = find(api, job).await else {
        return Err(refusal(StatusCode::NOT_FOUND, Refusal::NoJob { job: job.clone() }.to_string()));
    };
    match by.filter(|by| !by.reaches(status.submitter.as_deref())) {
        None => Ok(status),
        Some(by) => {
            let refused = Refusal::JobOfOthers { job: job.clone(), token: by.token.into() };
            Err(refusal(status_of(&refused), refused.to_string()))
        }
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

#[derive(Deserialize)]
pub(super) struct OutputQuery {
    tail: Option<u32>,
    attempt: Option<u32>,
    #[serde(default)]
    task: u32,
    #[serde(default)]
    follow: bool,
}

pub(super) async fn output(
    api: ApiState,
    Extension(by): By,
    Path(job): Path<JobName>,
    Parameters(query): Parameters<OutputQuery>,
) -> Response {
    let status = match reachable(&api, &job, by).await {
        Ok(status) => status,
        Err(refused) => return refused,
    };
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
