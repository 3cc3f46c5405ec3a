//! Tokens, and who ordered what.

use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use weal_control::cycle::Note;
use weal_model::EventKind;
use weal_protocol::controller::{TokenOrder, TokenRevoked};

use super::answer::{Body, Parameters, refusal};
use super::state::ApiState;
use super::tokens::TokenError;
use crate::clock;

/// Entries of the audit log when a caller does not say how many.
const ENTRIES: usize = 100;
const MOST_ENTRIES: usize = 10_000;

pub(super) async fn tokens(api: ApiState) -> Response {
    Json(api.tokens.list()).into_response()
}

pub(super) async fn create(api: ApiState, Body(order): Body<TokenOrder>) -> Response {
    match api.tokens.create(&order, clock::now()) {
        Ok(made) => told(&api, format!("a token `{}` was made", made.name), Json(made).into_response()),
        Err(error) => refused(&error),
    }
}

pub(super) async fn rotate(api: ApiState, Path(name): Path<String>) -> Response {
    match api.tokens.rotate(&name, clock::now()) {
        Ok(made) => told(&api, format!("the token `{name}` has another secret"), Json(made).into_response()),
        Err(error) => refused(&error),
    }
}

pub(super) async fn revoke(api: ApiState, Path(name): Path<String>) -> Response {
    match api.tokens.revoke(&name) {
        Ok(()) => told(&api, format!("the token `{name}` was revoked"), Json(TokenRevoked {}).into_response()),
        Err(error) => refused(&error),
    }
}

#[derive(Deserialize)]
pub(super) struct AuditQuery {
    limit: Option<usize>,
}

pub(super) async fn audit(api: ApiState, Parameters(query): Parameters<AuditQuery>) -> Response {
    let (audit, limit) = (Arc::clone(&api.audit), query.limit.unwrap_or(ENTRIES).min(MOST_ENTRIES));
    match tokio::task::spawn_blocking(move || audit.last(limit)).await {
        Ok(entries) => Json(entries).into_response(),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("the audit log cannot be read: {error}")),
    }
}

/// Everybody sees in the events that rights have changed.
fn told(api: &ApiState, text: String, answer: Response) -> Response {
    api.board.note(Note::info(EventKind::Config, text));
    answer
}

fn refused(error: &TokenError) -> Response {
    let status = match error {
        TokenError::Name(_) | TokenError::ReadWithQuota => StatusCode::BAD_REQUEST,
        TokenError::Unknown(_) => StatusCode::NOT_FOUND,
        TokenError::Taken(_) | TokenError::Operator | TokenError::Many => StatusCode::CONFLICT,
        TokenError::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refusal(status, error.to_string())
}
