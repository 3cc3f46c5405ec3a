//! `GET /v1/apps/{app}/logs`: lines of all instances of an application, or of the runs of a job, by time: until now or for ever.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use weal_model::{AppName, InstanceId, Time};
use weal_protocol::controller::LogLine;
use weal_protocol::node::{LogSource, LogsRequest};

use super::answer::{Parameters, refusal};
use super::handlers::unknown_app;
use super::state::{Api, ApiState};
use crate::logs::{Begin, MOST_LINES, lines_of, merged};

/// What one wait for more lines takes at most; a reader that left is noticed after it.
const WAIT_S: f64 = 10.0;
/// How soon an instance that is new is followed, too.
const NEW_INSTANCES: Duration = Duration::from_secs(1);
/// Lines to begin with when nobody says how many.
const USUAL_LINES: u32 = 100;

#[derive(Deserialize)]
pub(super) struct LogsQuery {
    instance: Option<InstanceId>,
    tail: Option<u32>,
    since_ms: Option<u64>,
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    json: bool,
}

pub(super) async fn logs(api: ApiState, Path(app): Path<AppName>, Parameters(query): Parameters<LogsQuery>) -> Response {
    let known = api.board.view().status.apps.iter().any(|status| status.name == app);
    let sources = match (api.list_logs)(app.to_string()).await {
        Ok(sources) if sources.is_empty() && !known => return unknown_app(&app, &api.board.view().status),
        Ok(sources) => sources,
        Err(error) => return refusal(StatusCode::BAD_GATEWAY, error.to_string()),
    };
    let wanted = match chosen(&app, sources, query.instance.as_ref()) {
        Ok(wanted) => wanted,
        Err(error) => return refusal(StatusCode::NOT_FOUND, error.to_string()),
    };
    let named = query.instance.is_none() && (wanted.len() > 1 || query.follow);
    let since = query.since_ms.map(|ms| Time(ms.saturating_mul(1_000_000)));
    let tail = query.tail.unwrap_or(if since.is_some() { MOST_LINES } else { USUAL_LINES });
    let (lines, receiver) = mpsc::channel(16);
    let reader = Reader { api: api.0.clone(), app, shape: Shape { json: query.json, named }, lines };
    let all = query.instance.is_none() && known;
    tokio::spawn(async move { reader.copy_all(wanted, Begin { tail, since }, query.follow, all).await });
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    let kind = if query.json { "application/x-ndjson" } else { "text/plain; charset=utf-8" };
    ([(header::CONTENT_TYPE, kind), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")], body).into_response()
}

/// An instance of which no log is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{app} has no log of an instance `{wanted}`{}", beside(.known))]
struct NoLog {
    app: AppName,
    wanted: InstanceId,
    /// The instances that have one.
    known: BTreeSet<InstanceId>,
}

fn beside(known: &BTreeSet<InstanceId>) -> String {
    let names: Vec<&str> = known.iter().map(InstanceId::as_str).collect();
    if names.is_empty() { ", and of no other one".to_owned() } else { format!(", but of {}", names.join(", ")) }
}

fn chosen(app: &AppName, sources: Vec<LogSource>, instance: Option<&InstanceId>) -> Result<Vec<LogSource>, NoLog> {
    let Some(wanted) = instance else { return Ok(sources) };
    let known: BTreeSet<InstanceId> = sources.iter().map(|source| source.instance.clone()).collect();
    if !known.contains(wanted) {
        return Err(NoLog { app: app.clone(), wanted: wanted.clone(), known });
    }
    Ok(sources.into_iter().filter(|source| source.instance == *wanted).collect())
}

/// How lines are written.
#[derive(Clone, Copy)]
struct Shape {
    /// Each as a [`LogLine`].
    json: bool,
    /// With the instance in front.
    named: bool,
}

impl Shape {
    fn write(self, line: &LogLine) -> String {
        match (self.json, self.named) {
            (true, _) => serde_json::to_string(line).expect("strings and numbers are JSON") + "\n",
            (false, true) => format!("{} | {}\n", line.instance, line.line),
            (false, false) => format!("{}\n", line.line),
        }
    }
}

/// Who reads.
#[derive(Clone)]
struct Reader {
    api: Api,
    app: AppName,
    shape: Shape,
    lines: mpsc::Sender<Bytes>,
}

impl Reader {
    /// Copies what `sources` have up to now; with `follow` what comes too, and with `all` what instances write that join later.
    async fn copy_all(self, sources: Vec<LogSource>, begin: Begin, follow: bool, all: bool) {
        let merged = merged(&*self.api.read_logs, sources, begin).await;
        for line in &merged.lines {
            if !self.send(line).await {
                return;
            }
        }
        if follow {
            self.follow(merged.places, all).await;
        }
    }

    async fn follow(self, places: Vec<(LogSource, Option<String>)>, all: bool) {
        let mut known: BTreeSet<InstanceId> = places.iter().map(|(source, _)| source.instance.clone()).collect();
        let mut copies = JoinSet::new();
        for (source, cursor) in places.into_iter().filter(|(source, _)| source.ended.is_none()) {
            copies.spawn(self.clone().copy(source.instance, cursor));
        }
        while !self.lines.is_closed() && (all || !copies.is_empty()) {
            tokio::select! {
                Some(_) = copies.join_next() => {}
                () = tokio::time::sleep(NEW_INSTANCES) => {}
            }
            let sources = if all { (self.api.list_logs)(self.app.to_string()).await.unwrap_or_default() } else { Vec::new() };
            for source in sources.into_iter().filter(|source| source.ended.is_none()) {
                if known.insert(source.instance.clone()) {
                    copies.spawn(self.clone().copy(source.instance, None));
                }
            }
        }
    }

    /// Copies an instance's lines until the instance or the reader is gone. A log that cannot be read for a while, because the agent is started
    /// anew, is read on from the same place.
    async fn copy(self, instance: InstanceId, mut cursor: Option<String>) {
        while !self.lines.is_closed() {
            let (wait_s, tail_lines) = (if cursor.is_some() { WAIT_S } else { 0.0 }, MOST_LINES);
            let request =
                LogsRequest { instance: instance.clone(), cursor: cursor.clone(), tail_lines, wait_s, since: None, ended: None };
            let chunk = match (self.api.read_logs)(request).await {
                Ok(chunk) => chunk,
                Err(weal_engine::Error::Away { .. }) => {
                    tokio::time::sleep(NEW_INSTANCES).await;
                    continue;
                }
                Err(_) => return,
            };
            for line in lines_of(&instance, &chunk) {
                if !self.send(&line).await {
                    return;
                }
            }
            if chunk.is_over {
                return;
            }
            cursor = Some(chunk.next);
        }
    }

    /// False when nobody reads any more.
    async fn send(&self, line: &LogLine) -> bool {
        self.lines.send(Bytes::from(self.shape.write(line))).await.is_ok()
    }
}
