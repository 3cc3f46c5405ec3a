//! Whose connection it is that a proxy passes on.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::client::Client;
use super::proxy;
use super::registry::Registry;
use crate::clock::Clock;
use crate::http::session::Gateway;
use crate::routing::table::Destination;
use crate::upstream::speech::Ends;

/// The connection and its ends, as the proxy at its beginning says them. `None` when it does not say so as it has to, or in time.
pub(super) async fn named(
    mut stream: TcpStream,
    ends: Ends,
    gateway: &Gateway,
    registry: &Arc<Registry>,
    clock: Clock,
    destination: Option<&Destination>,
) -> Option<(TcpStream, Ends)> {
    let client = Arc::new(Client::new(ends, clock));
    let _entry = registry.enter(&client, None);
    let read = tokio::select! {
        read = proxy::read_header(&mut stream, gateway.limits.proxy_header) => read,
        () = client.told_to_close() => return None,
    };
    match read {
        Ok(named) => Some((stream, named.unwrap_or(ends))),
        Err(error) => {
            gateway.note_bad_proxy(ends.client, &error, destination);
            None
        }
    }
}
