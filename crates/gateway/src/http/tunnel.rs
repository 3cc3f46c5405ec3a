//! Connections that stop being HTTP: WebSockets and other protocols that a client upgrades to.
//!
//! Only an instance's `101` makes a tunnel; until it has come, not a byte of the client beyond its request is passed on.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::http::request_body::RequestBody;
use crate::listen::client::Client;
use crate::listen::registry::Entry;
use crate::routing::cluster::TunnelSeat;

/// Puts the request for another protocol, or the consent to it, back into a head without hop-by-hop headers.
pub(crate) fn ask(headers: &mut HeaderMap, protocol: Option<HeaderValue>) {
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
}

/// An exchange over a connection of its own, which a task drives because a tunnel may come of it.
pub(crate) async fn exchange(stream: TcpStream, request: Request<RequestBody>) -> Result<Response<Incoming>, hyper::Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to an instance broke off");
        }
    });
    sender.send_request(request).await
}

/// Passes bytes both ways until both sides have closed or one breaks off.
pub(crate) fn spawn(client_side: OnUpgrade, instance_side: OnUpgrade, seat: TunnelSeat, client: Arc<Client>, entry: Arc<Entry>) {
    client.enter_tunnel();
    tokio::spawn(async move {
        let (from_client, from_instance) = match tokio::try_join!(client_side, instance_side) {
            Ok(sides) => sides,
            Err(error) => return tracing::debug!(%error, "a tunnel did not come about"),
        };
        let ended = tokio::io::copy_bidirectional(&mut TokioIo::new(from_client), &mut TokioIo::new(from_instance)).await;
        if let Err(error) = ended {
            tracing::debug!(%error, client = %client.peer, "a tunnel broke off");
        }
        drop((seat, entry));
    });
}
