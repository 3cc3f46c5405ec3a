//! TCP: one connection of a client, one to an instance.

use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::TcpStream;
use weal_model::{AppName, ListenScheme, OwnAnswer};
use weal_protocol::gateway::Listener;

use super::ports::Ports;
use super::relay::Relay;
use super::session::reach;
use crate::http::error_response::ErrorResponse;
use crate::listen::accepting::{Accepted, Entrance};
use crate::listen::client::Client;
use crate::listen::guard::TooMany;
use crate::listen::named::named;
use crate::listen::registry::Entry;
use crate::routing::cluster::Target;
use crate::routing::table::{Destination, TUNNEL_IDLE};
use crate::upstream::speech::{Announced, Ends};

/// Accepts connections until this is dropped.
pub(super) async fn accept(entrance: Entrance, listener: Listener, ports: Arc<Ports>) {
    entrance.accept_each(|| room(&listener, &ports), |accepted| welcome(accepted, &listener, &ports)).await;
}

/// Completes when a connection can be served that comes in now.
async fn room(listener: &Listener, ports: &Ports) {
    if let Listener::Inner { .. } = listener {
        ports.workers.room().await;
    }
}

/// Begins to serve a connection, or closes it at once.
fn welcome(accepted: Accepted, listener: &Listener, ports: &Arc<Ports>) {
    let limits = &ports.gateway.limits;
    let destination = match ports.destination(listener) {
        Ok(Some(destination)) => destination,
        Ok(None) => return hand_over(accepted, listener, ports),
        Err(refusal) => return ports.note(&refusal, None),
    };
    if !ports.registry.has_room(limits, ports.clock) {
        let reason = format!("{} connections are open, and none of them is idle", limits.connections);
        return ports.note(&ErrorResponse::closed(OwnAnswer::TooManyConnections, reason), Some(&destination));
    }
    let Accepted { stream, ends } = accepted;
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => return tracing::warn!(%error, "cannot serve a connection"),
    };
    let inner = match listener {
        Listener::Inner { app, .. } => Some(app),
        Listener::Port(_) => None,
    };
    if destination.rules.accepts_proxy && ports.gateway.tables.current().is_trusted(ends.client.ip()) {
        let ports = Arc::clone(ports);
        tokio::spawn(async move {
            let read = named(stream, ends, &ports.gateway, &ports.registry, ports.clock, Some(&destination)).await;
            if let Some((stream, ends)) = read {
                begin(stream, ends, None, destination, ports);
            }
        });
    } else {
        begin(stream, ends, inner, destination, Arc::clone(ports));
    }
}

/// Passes a connection on of which it is known whose it is.
fn begin(stream: TcpStream, ends: Ends, inner: Option<&AppName>, destination: Destination, ports: Arc<Ports>) {
    let hold = match ports.gateway.hold(ports.clock.now(), ends, inner) {
        Ok((hold, _)) => hold,
        Err(TooMany { most }) => {
            let reason = format!("one address has {most} connections open");
            return ports.note(&ErrorResponse::closed(OwnAnswer::ClientConnections, reason), Some(&destination));
        }
    };
    let client = Arc::new(Client::new(ends, ports.clock));
    // Not HTTP: the sweeper leaves it alone.
    client.enter_tunnel();
    let entry = ports.registry.enter(&client, hold);
    tokio::spawn(async move {
        if let Err(refusal) = pass(stream, ends, &destination, &ports, entry).await {
            ports.note(&refusal, Some(&destination));
        }
    });
}

/// Has a worker serve a connection whose requests are HTTP.
fn hand_over(accepted: Accepted, listener: &Listener, ports: &Ports) {
    let Listener::Inner { app, .. } = listener else { return };
    ports.workers.hand_over(accepted, ListenScheme::Http, Some(app.clone()));
}

/// One connection from its first byte to its last.
async fn pass(
    client: TcpStream,
    ends: Ends,
    destination: &Destination,
    ports: &Ports,
    _entry: Entry,
) -> Result<(), ErrorResponse> {
    let limits = &ports.gateway.limits;
    let announced = destination.rules.send_proxy.map(|version| Announced { version, ends });
    let connect = |target: Target| async move { target.upstream.connect_stream(announced, limits).await };
    let reached = tokio::select! {
        reached = reach(destination, ends.client.ip(), connect) => reached?,
        // It has broken off. That a client has sent all that it has to say is no reason not to pass it on.
        _ = client.ready(Interest::ERROR) => return Err(ErrorResponse::closed(OwnAnswer::ClientGone, "the client broke off".to_owned())),
    };
    let (instance, seat) = reached;
    let rules = &destination.rules;
    let stats = destination.cluster.ports();
    let open = stats.open();
    let relay = Relay { stats, clock: ports.clock, idle: rules.idle.unwrap_or(TUNNEL_IDLE), total: rules.total };
    if let Err(error) = relay.run(client, instance).await {
        tracing::debug!(%error, flow = %rules.flow, "a connection broke off");
    }
    drop((open, seat));
    Ok(())
}
