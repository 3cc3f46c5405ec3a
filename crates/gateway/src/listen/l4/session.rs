//! The way of a connection, or of a UDP client's session, to an instance.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weal_control::dispatch::{Attempt, InstanceIndex};
use weal_control::flow::pipeline::RequestOutcome;

use crate::http::choice::unread;
use crate::http::error_response::ErrorResponse;
use crate::routing::cluster::{Target, TunnelSeat};
use crate::routing::table::Destination;

/// A month: beyond it a moment may not be representable, and nobody waits for so long.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Waits for a seat and an instance, and makes the connection to it with `connect`, to another instance if that fails.
pub(super) async fn reach<S, F: Future<Output = io::Result<S>>>(
    destination: &Destination,
    client: IpAddr,
    connect: impl Fn(Target) -> F,
) -> Result<(S, TunnelSeat), ErrorResponse> {
    let arrived = destination.cluster.arrive(unread(client, destination));
    let (seat, target, timeout) = arrived.map_err(|rejection| ErrorResponse::rejected(&rejection))?;
    let mut target = match target {
        Some(target) => target,
        None => seat.target_within(timeout).await.map_err(|expired| ErrorResponse::expired(&expired, timeout))?,
    };
    let end = Instant::now() + timeout.min(LONGEST);
    let mut failed: Vec<InstanceIndex> = Vec::new();
    loop {
        let index = target.index;
        let error = match connect(target).await {
            Ok(stream) => {
                seat.note_connection();
                return Ok((stream, seat.into_tunnel()));
            }
            Err(error) => error,
        };
        failed.push(index);
        target = if let Some(next) = seat.retry(Attempt::Refused, &failed) {
            next
        } else if seat.wait_again(0) {
            failed.clear();
            let left = end.saturating_duration_since(Instant::now());
            seat.target_within(left).await.map_err(|expired| ErrorResponse::expired(&expired, timeout))?
        } else {
            seat.finish(Attempt::Refused, RequestOutcome::Failed);
            return Err(ErrorResponse::no_connection(&error.to_string()));
        };
    }
}
