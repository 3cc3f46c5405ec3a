//! How answers look: JSON, and every refusal an [`ApiError`].

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use weal_protocol::controller::ApiError;

/// The largest request body: a config of thousands of applications.
pub(super) const BODY_LIMIT: usize = 1 << 20;

/// A refusal.
pub(super) fn refusal(status: StatusCode, error: impl Into<String>) -> Response {
    (status, Json(ApiError { error: error.into() })).into_response()
}

/// A JSON body; what cannot be read is refused with the reason. The content type does not matter: `curl -d` sends the wrong
/// one, and orders need a token that no foreign page has.
pub(super) struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            let limit = rejection.status() == StatusCode::PAYLOAD_TOO_LARGE;
            let text = if limit { format!("the body is larger than {} bytes", BODY_LIMIT) } else { rejection.to_string() };
            refusal(rejection.status(), text)
        })?;
        let parsed = serde_json::from_slice(&bytes);
        parsed.map(Self).map_err(|error| refusal(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")))
    }
}

/// The query's parameters; what cannot be read is refused with the reason.
pub(super) struct Parameters<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let Query(parameters) = Query::from_request_parts(parts, state).await.map_err(|rejection| {
            refusal(StatusCode::BAD_REQUEST, format!("the query cannot be read: {}", rejection.body_text()))
        })?;
        Ok(Self(parameters))
    }
}
