//! The short handlers; logs and the stream have files of their own.

use std::time::Duration;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{StatusCode, header};
use serde::Deserialize;
use tokio::sync::oneshot;
use weal_control::cycle::Note;
use weal_model::{AppName, EventKind, NodeName};
use weal_protocol::gateway::{PEER, REFUSED, RefusedQuery};

use super::answer::{Body, Parameters, refusal};
use super::state::{Api, ApiState};
use crate::driver::Order;
use crate::store::{CONFIGS_KEPT, StoredConfig};
use crate::{clock, metrics, why};
use weal_protocol::Refusal;
use weal_protocol::controller::{
    AppVerb, Caller, ConfigUpdate, ConfigVersion, KeepAwakeOrder, NoteOrder, NoteTaken, ScaleOrder, SleepOrder,
};

/// How long a caller may wait for another config, in seconds: less than an answer may take.
const LONGEST_CONFIG_WAIT_S: u64 = 25;
/// Between two looks for another config.
const CONFIG_LOOK: Duration = Duration::from_millis(200);
const MOST_EVENTS: u32 = 1000;
const LONGEST_HISTORY_S: f64 = 7.0 * 86_400.0;

pub(super) async fn status(api: ApiState) -> Response {
    Json(&*api.board.view().status).into_response()
}

#[derive(Deserialize)]
pub(super) struct WhyQuery {
    node: Option<NodeName>,
    refused: Option<u32>,
}

pub(super) async fn why(api: ApiState, Path(app): Path<AppName>, Parameters(query): Parameters<WhyQuery>) -> Response {
    let view = api.board.view();
    let Some(mut why) = why::why(&app, &view, api.board.events_of(&app, 20)) else { return unknown_app(&app, &view.status) };
    if let Some(node) = query.node {
        let (reply, answer) = oneshot::channel();
        if api.orders.send(Order::WhyNode { app: app.clone(), node, reply }).await.is_err() {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping");
        }
        match answer.await {
            Ok(Some(node)) => why.node = Some(why::beside_measured(node, &why.flows)),
            _ => return refusal(StatusCode::SERVICE_UNAVAILABLE, "weal has not measured anything yet: ask again in a moment"),
        }
    }
    if let Some(limit) = query.refused {
        let query = RefusedQuery { app: Some(app), id: None, limit: limit.min(MOST_EVENTS) };
        match api.gateway.call(REFUSED, &query).await {
            Ok(refused) => why.refused = refused,
            Err(error) => return unanswered(error),
        }
    }
    Json(why).into_response()
}

pub(super) async fn why_request(api: ApiState, Path(id): Path<String>) -> Response {
    let query = RefusedQuery { app: None, id: Some(id.clone()), limit: 1 };
    match api.gateway.call(REFUSED, &query).await {
        Ok(refused) => match refused.into_iter().next() {
            Some(request) => Json(why::why_request(request, &api.board.view())).into_response(),
            None => refusal(
                StatusCode::NOT_FOUND,
                format!(
                    "request `{id}` is not among those that the gateway refused lately: an instance answered it, or the gateway has forgotten it"
                ),
            ),
        },
        Err(error) => unanswered(error),
    }
}

fn unanswered(error: weal_rpc::Error) -> Response {
    refusal(StatusCode::BAD_GATEWAY, error.into_refusal(PEER).to_string())
}

pub(super) fn unknown_app(app: &AppName, status: &weal_model::Status) -> Response {
    let names: Vec<&str> = status.apps.iter().map(|app| app.name.as_str()).collect();
    let known = if names.is_empty() { "there are none yet".to_owned() } else { format!("there are {}", names.join(", ")) };
    refusal(StatusCode::NOT_FOUND, format!("there is no application `{app}`: {known}"))
}

#[derive(Deserialize)]
pub(super) struct EventsQuery {
    after: Option<u64>,
    limit: Option<u32>,
}

pub(super) async fn events(api: ApiState, Parameters(query): Parameters<EventsQuery>) -> Response {
    let limit = query.limit.unwrap_or(100).min(MOST_EVENTS);
    Json(api.board.events_after(query.after, limit).await).into_response()
}

/// Makes an event of what the supervisor saw.
pub(super) async fn note(api: ApiState, Body(order): Body<NoteOrder>) -> Response {
    if order.text.len() > NoteOrder::LONGEST {
        return refusal(StatusCode::BAD_REQUEST, format!("the text is longer than {} bytes", NoteOrder::LONGEST));
    }
    api.board.note(Note { severity: order.severity, ..Note::info(EventKind::Role, order.text) });
    Json(NoteTaken {}).into_response()
}

#[derive(Deserialize)]
pub(super) struct ConfigQuery {
    after: Option<u64>,
    wait_s: Option<u64>,
}

/// The config in force; with `after`, once it is another one, for as long as the caller waits.
pub(super) async fn config(api: ApiState, Parameters(query): Parameters<ConfigQuery>) -> Response {
    let looks = Duration::from_secs(query.wait_s.unwrap_or(0).min(LONGEST_CONFIG_WAIT_S)).as_millis() / CONFIG_LOOK.as_millis();
    for _ in 0..looks {
        if query.after != Some(api.board.view().config.generation) {
            break;
        }
        tokio::time::sleep(CONFIG_LOOK).await;
    }
    Json(&*api.board.view().config).into_response()
}

/// The configs that were in force, the newest first.
pub(super) async fn configs(api: ApiState) -> Response {
    let kept = u32::try_from(CONFIGS_KEPT).unwrap_or(u32::MAX);
    let configs = api.board.store.configs(u64::MAX, kept).await;
    Json(configs.into_iter().map(|config| version(&api, config, false)).collect::<Vec<_>>()).into_response()
}

fn version(api: &Api, config: StoredConfig, with_text: bool) -> ConfigVersion {
    let failed = api.board.failed_version(config.generation);
    ConfigVersion { failed, ..config.version(with_text) }
}

/// One config that was in force.
pub(super) async fn config_of(api: ApiState, Path(generation): Path<u64>) -> Response {
    let found = api.board.store.configs(generation, 1).await.into_iter().next();
    match found.filter(|config| config.generation == generation) {
        Some(config) => Json(version(&api, config, true)).into_response(),
        None => {
            let text =
                format!("there is no version {generation}: weal keeps the last {CONFIGS_KEPT}, and `weal history` lists them");
            refusal(StatusCode::NOT_FOUND, text)
        }
    }
}

pub(super) async fn put_config(api: ApiState, Extension(who): Extension<Caller>, Body(update): Body<ConfigUpdate>) -> Response {
    let (reply, answer) = oneshot::channel();
    if api.orders.send(Order::Config { update, who, reply }).await.is_err() {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping");
    }
    match answer.await {
        Ok(Ok(taken)) => Json(taken).into_response(),
        Ok(Err(refused)) => (StatusCode::UNPROCESSABLE_ENTITY, Json(refused)).into_response(),
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping"),
    }
}

pub(super) async fn sleep(api: ApiState, Path(app): Path<AppName>, Body(order): Body<SleepOrder>) -> Response {
    let (reply, answer) = oneshot::channel();
    give_order(&api, &app.clone(), Order::Sleep { app, rung: order.rung, reply }, answer).await
}

pub(super) async fn wake(api: ApiState, Path(app): Path<AppName>) -> Response {
    let (reply, answer) = oneshot::channel();
    give_order(&api, &app.clone(), Order::Wake { app, reply }, answer).await
}

/// A command is about to be run beside an instance: the guard before each route writes down who says so. It is not run here, so what it is and
/// whether it may be run are not asked.
pub(super) async fn exec(api: ApiState, Path(app): Path<AppName>) -> Response {
    let view = api.board.view();
    if view.status.apps.iter().any(|known| known.name == app) {
        Json(NoteTaken {}).into_response()
    } else {
        unknown_app(&app, &view.status)
    }
}

/// The instances of an application are about to get its reload signal, from whoever says so. Others are told by an event.
pub(super) async fn reload(api: ApiState, Path(app): Path<AppName>) -> Response {
    let view = api.board.view();
    if !view.status.apps.iter().any(|known| known.name == app) {
        return unknown_app(&app, &view.status);
    }
    let text = format!("the instances of {app} are told to read their config anew, by an order");
    api.board.note(Note::info(EventKind::Plan, text).app(&app));
    Json(NoteTaken {}).into_response()
}

pub(super) async fn restart(api: ApiState, Path(app): Path<AppName>) -> Response {
    give_verb(&api, app, AppVerb::Restart).await
}

pub(super) async fn stop(api: ApiState, Path(app): Path<AppName>) -> Response {
    give_verb(&api, app, AppVerb::Stop).await
}

pub(super) async fn start(api: ApiState, Path(app): Path<AppName>) -> Response {
    give_verb(&api, app, AppVerb::Start).await
}

pub(super) async fn scale(api: ApiState, Path(app): Path<AppName>, Body(order): Body<ScaleOrder>) -> Response {
    give_verb(&api, app, AppVerb::Scale { instances: order.instances }).await
}

pub(super) async fn keep_awake(api: ApiState, Path(app): Path<AppName>, Body(order): Body<KeepAwakeOrder>) -> Response {
    give_verb(&api, app, AppVerb::KeepAwake { for_s: order.for_s }).await
}

async fn give_verb(api: &ApiState, app: AppName, verb: AppVerb) -> Response {
    let (reply, answer) = oneshot::channel();
    give_order(api, &app.clone(), Order::App { app, verb, reply }, answer).await
}

async fn give_order<T: serde::Serialize>(
    api: &ApiState,
    app: &AppName,
    order: Order,
    answer: oneshot::Receiver<Result<T, Refusal>>,
) -> Response {
    let status = api.board.view().status;
    if !status.apps.iter().any(|known| known.name == *app) {
        return unknown_app(app, &status);
    }
    if api.orders.send(order).await.is_err() {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping");
    }
    match answer.await {
        Ok(Ok(taken)) => Json(taken).into_response(),
        Ok(Err(refused)) => refusal(StatusCode::CONFLICT, refused.to_string()),
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping"),
    }
}

pub(super) async fn plan(api: ApiState) -> Response {
    Json(&*api.board.view().plan).into_response()
}

#[derive(Deserialize)]
pub(super) struct HistoryQuery {
    since_s: Option<f64>,
}

pub(super) async fn history(api: ApiState, Parameters(query): Parameters<HistoryQuery>) -> Response {
    let since_s = query.since_s.filter(|s| s.is_finite()).unwrap_or(900.0).clamp(0.0, LONGEST_HISTORY_S);
    Json(api.board.store.history(clock::now() - Duration::from_secs_f64(since_s)).await).into_response()
}

pub(super) async fn metrics(api: ApiState) -> Response {
    match metrics::text(&api.board.view()) {
        Ok(text) => {
            ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub(super) async fn metrics_as_data(api: ApiState) -> Response {
    Json(metrics::metrics(&api.board.view(), api.started, clock::now())).into_response()
}

pub(super) async fn openapi(api: ApiState) -> Response {
    Json(&*api.document).into_response()
}

pub(super) async fn healthz(_: ApiState) -> &'static str {
    "ok\n"
}
