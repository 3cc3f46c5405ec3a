//! A request waits until its client's address may hold one more of the application's seats ([`weal_control::admission::addresses`]).

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use weal_model::Time;

use super::error_response::ErrorResponse;
use super::exchange::Exchange;
use super::gather::LONGEST;
use crate::routing::cluster::{ClientPlace, Cluster, Expired, Turn};

impl Exchange {
    /// Its part of what its address may hold, once there is one; `None` where nothing bounds that.
    pub(super) async fn place(&self, cluster: &Arc<Cluster>, end: Option<Time>) -> Result<Option<ClientPlace>, ErrorResponse> {
        let Some(address) = self.counted else { return Ok(None) };
        let Some((place, turn)) = cluster.begin_client(address).map_err(|_| ErrorResponse::too_many_seats(None))? else {
            return Ok(None);
        };
        if let Some(turn) = turn {
            Box::pin(self.wait_for_turn(turn, self.at_most(cluster.request_timeout(), end))).await?;
        }
        Ok(Some(place))
    }

    async fn wait_for_turn(&self, turn: Turn, timeout: Duration) -> Result<(), ErrorResponse> {
        let client = &self.session.client;
        client.watch_for_leaving(true);
        let mut turn = pin!(turn);
        let granted = std::future::poll_fn(|cx| match turn.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(Ok(())),
            Poll::Pending if client.has_left() => Poll::Ready(Err(ErrorResponse::expired(&Expired::CLIENT_GONE, timeout))),
            Poll::Pending => Poll::Pending,
        });
        let waited = tokio::time::timeout(timeout.min(LONGEST), granted).await;
        client.watch_for_leaving(false);
        waited.unwrap_or_else(|_| Err(ErrorResponse::too_many_seats(Some(timeout))))
    }
}
