//! What the ports of a gateway have in common.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use weal_model::OwnAnswer;
use weal_protocol::gateway::Listener;

use crate::clock::Clock;
use crate::http::error_response::ErrorResponse;
use crate::http::session::Gateway;
use crate::listen::registry::Registry;
use crate::listen::workers::Workers;
use crate::routing::table::Destination;

/// What all ports of a gateway share.
pub(crate) struct Ports {
    pub gateway: Arc<Gateway>,
    pub registry: Arc<Registry>,
    pub workers: Arc<Workers>,
    pub clock: Clock,
    /// How long clients wait for the first config.
    pub first_config: Duration,
}

impl Ports {
    /// Waits until there is a config to go by, or for as long as clients may wait for it.
    pub(super) async fn configured(&self) {
        let _ = tokio::time::timeout(self.first_config, self.gateway.tables.ready()).await;
    }

    /// Where what comes in at a listener goes now. `None`: it speaks HTTP.
    pub(super) fn destination(&self, listener: &Listener) -> Result<Option<Destination>, ErrorResponse> {
        let table = self.gateway.tables.current();
        let found = match listener {
            Listener::Port(port) => table.ports.get(port).cloned().map(Some),
            Listener::Inner { app, .. } => {
                table.inner.get(app).map(|inner| (!inner.http).then(|| inner.destination(None).clone()))
            }
        };
        found.ok_or_else(|| ErrorResponse::closed(OwnAnswer::NoRoute, format!("no route for {}", listener.port())))
    }

    /// Remembers where calls between applications come in.
    pub(super) fn note_listeners(&self, listeners: &[Listener]) {
        let inner = listeners.iter().filter_map(|listener| match listener {
            Listener::Port(_) => None,
            Listener::Inner { app, address } => Some((app.clone(), *address)),
        });
        *self.gateway.inner.lock().unwrap_or_else(PoisonError::into_inner) = inner.collect();
    }

    /// Remembers why something was closed.
    pub(super) fn note(&self, refusal: &ErrorResponse, destination: Option<&Destination>) {
        self.gateway.note_closed(refusal, destination);
    }
}
