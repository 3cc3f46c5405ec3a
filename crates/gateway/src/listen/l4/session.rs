//! The way of a connection, or of a UDP client's session, to an instance.

use std::io;
use std::net::IpAddr;

use weal_control::dispatch::{Attempt, InstanceIndex};
use weal_control::flow::pipeline::RequestOutcome;

use crate::http::choice::unread;
use crate::http::error_response::ErrorResponse;
use crate::routing::cluster::{Target, TunnelSeat};
use crate::routing::table::Destination;

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
    let mut failed: Vec<InstanceIndex> = Vec::new();
    loop {
        let index = target.index;
        let error = match connect(target).await {
            Ok(stream) => return Ok((stream, seat.into_tunnel())),
            Err(error) => error,
        };
        failed.push(index);
        let Some(next) = seat.retry(Attempt::Refused, &failed) else {
            seat.finish(Attempt::Refused, RequestOutcome::Failed);
            return Err(ErrorResponse::failed(Attempt::Refused, &error.to_string()));
        };
        target = next;
    }
}
