//! The connections of a listener, each served by a task of its own; [`super::room`] decides which of them is ended for another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::room::{Owner, Room};

/// The connections of a listener, and the task of each.
#[derive(Debug)]
pub(super) struct Connections(Mutex<(Room, BTreeMap<u64, AbortHandle>)>);

impl Connections {
    pub fn at_most(most: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new((Room::new(most), BTreeMap::new()))))
    }

    /// Waits until there is room for another connection, for which one may be closed.
    pub async fn enter(self: &Arc<Self>, owner: &Owner) -> Arc<ConnectionSlot> {
        loop {
            let opened = self.lock().0.handle_open(Instant::now(), owner);
            match opened {
                Ok(opened) => {
                    let task = opened.closed.and_then(|id| self.lock().1.remove(&id));
                    if let Some(task) = task {
                        task.abort();
                    }
                    return Arc::new(ConnectionSlot { connections: Arc::clone(self), id: opened.id });
                }
                Err(until) => tokio::time::sleep_until(until).await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Room, BTreeMap<u64, AbortHandle>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection, until this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connections: Arc<Connections>,
    id: u64,
}

impl ConnectionSlot {
    /// A valid token was shown here. False: it has been on as many connections as it may.
    pub fn show(&self, token: &str) -> bool {
        self.connections.lock().0.handle_token(self.id, token)
    }

    /// A stream is carried here from now on.
    pub fn carry_stream(&self) {
        self.connections.lock().0.handle_stream(self.id);
    }

    /// Serves the connection by a task that may be ended when there is no room for another.
    pub fn keep<T: Future<Output = ()> + Send + 'static>(self: Arc<Self>, serve: impl FnOnce(Arc<Self>) -> T) {
        let (connections, id) = (Arc::clone(&self.connections), self.id);
        let task = tokio::spawn(serve(self)).abort_handle();
        let mut held = connections.lock();
        // It may have ended already.
        if held.0.has(id) {
            held.1.insert(id, task);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut held = self.connections.lock();
        held.0.handle_closed(self.id);
        held.1.remove(&self.id);
    }
}
