//! `GET /v1/apps/{app}/logs`: lines of one or of all instances of an application, until now or for ever.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use weal_model::{AppName, InstanceId};
use weal_protocol::node::LogsRequest;

use super::answer::{Parameters, refusal};
use super::handlers::unknown_app;
use super::state::{Api, ApiState, ReadLogs};

/// What one wait for more lines takes at most; a reader that left is noticed after it.
const WAIT_S: f64 = 10.0;
/// How soon an instance that is new is followed, too.
const NEW_INSTANCES: Duration = Duration::from_secs(1);
const MOST_LINES: u32 = 100_000;

#[derive(Deserialize)]
pub(super) struct LogsQuery {
    instance: Option<InstanceId>,
    tail: Option<u32>,
    #[serde(default)]
    follow: bool,
}

pub(super) async fn logs(api: ApiState, Path(app): Path<AppName>, Parameters(query): Parameters<LogsQuery>) -> Response {
    let instances = instances(&api, &app);
    let Some(instances) = instances else { return unknown_app(&app, &api.board.view().status) };
    let wanted = match &query.instance {
        Some(wanted) if !instances.contains(wanted) => {
            let names: Vec<&str> = instances.iter().map(InstanceId::as_str).collect();
            return refusal(StatusCode::NOT_FOUND, format!("{app} has no instance `{wanted}`, but {}", names.join(", ")));
        }
        Some(wanted) => BTreeSet::from([wanted.clone()]),
        None => instances,
    };
    let named = query.instance.is_none() && (wanted.len() > 1 || query.follow);
    let (lines, receiver) = mpsc::channel(16);
    let tail_lines = query.tail.unwrap_or(100).min(MOST_LINES);
    let api = api.0.clone();
    tokio::spawn(async move {
        if query.follow {
            follow(api, &app, query.instance.is_none(), wanted, named, tail_lines, lines).await;
        } else {
            for instance in wanted {
                copy(&api.read_logs, instance, named, tail_lines, false, &lines).await;
            }
        }
    });
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")], body).into_response()
}

fn instances(api: &Api, app: &AppName) -> Option<BTreeSet<InstanceId>> {
    let view = api.board.view();
    let app = view.status.apps.iter().find(|status| status.name == *app)?;
    Some(app.instances.iter().map(|instance| instance.id.clone()).collect())
}

/// Follows `wanted`, and with `all` every instance that joins later, until the reader leaves.
async fn follow(
    api: Api,
    app: &AppName,
    all: bool,
    mut wanted: BTreeSet<InstanceId>,
    named: bool,
    tail_lines: u32,
    lines: mpsc::Sender<Bytes>,
) {
    let start = |instance: InstanceId, tail_lines: u32| {
        let (read_logs, lines) = (api.read_logs.clone(), lines.clone());
        tokio::spawn(async move { copy(&read_logs, instance, named, tail_lines, true, &lines).await });
    };
    for instance in &wanted {
        start(instance.clone(), tail_lines);
    }
    while all && !lines.is_closed() {
        tokio::time::sleep(NEW_INSTANCES).await;
        for instance in instances(&api, app).unwrap_or_default() {
            if wanted.insert(instance.clone()) {
                start(instance, MOST_LINES);
            }
        }
    }
}

/// Copies an instance's lines to the reader: up to now, or until the instance or the reader is gone.
async fn copy(
    read_logs: &ReadLogs,
    instance: InstanceId,
    named: bool,
    tail_lines: u32,
    follow: bool,
    lines: &mpsc::Sender<Bytes>,
) {
    let mut cursor = None;
    while !lines.is_closed() {
        let wait_s = if follow && cursor.is_some() { WAIT_S } else { 0.0 };
        let request = LogsRequest { instance: instance.clone(), cursor: cursor.clone(), tail_lines, wait_s };
        let chunk = match read_logs(request).await {
            Ok(chunk) => chunk,
            Err(error) => {
                let _ = lines.send(Bytes::from(format!("[{instance}: no more lines: {error}]\n"))).await;
                return;
            }
        };
        let over = chunk.text.is_empty() && !follow;
        if !chunk.text.is_empty() {
            let text = if named { prefixed(&instance, &chunk.text) } else { chunk.text };
            if lines.send(Bytes::from(text)).await.is_err() {
                return;
            }
        }
        if over || (!follow && cursor.as_ref() == Some(&chunk.next)) {
            return;
        }
        cursor = Some(chunk.next);
    }
}

fn prefixed(instance: &InstanceId, text: &str) -> String {
    text.lines().map(|line| format!("{instance} | {line}\n")).collect()
}
