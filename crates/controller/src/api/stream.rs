//! `GET /v1/stream`.

use std::convert::Infallible;

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::BroadcastStream;

use super::answer::refusal;
use super::serve::CONNECTIONS;
use super::state::ApiState;

/// Readers at most: half of a listener's connections, so that orders find room beside them.
const READERS: usize = CONNECTIONS / 2;

/// The current status at once, then everything as it comes. Who reads too slowly misses messages and goes on with the next:
/// a status is whole, and events that are missing can be had from `/v1/events`.
pub(super) async fn stream(api: ApiState) -> Response {
    if api.board.readers() >= READERS {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many read the stream of this pool: close one, or ask again later");
    }
    let messages = BroadcastStream::new(api.board.subscribe());
    let status = serde_json::to_string(&*api.board.view().status).unwrap_or_default();
    let first = tokio_stream::once(Ok::<_, Infallible>(Event::default().event("status").data(status)));
    let rest = messages.filter_map(|message| {
        let message = message.ok()?;
        Some(Ok(Event::default().event(message.name).data(&*message.json)))
    });
    // `retry`: back within a second after the controller was restarted.
    let hello = tokio_stream::once(Ok(Event::default().retry(std::time::Duration::from_secs(1)).comment("weal")));
    Sse::new(hello.chain(first).chain(rest)).keep_alive(KeepAlive::default()).into_response()
}
