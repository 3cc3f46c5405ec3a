//! What clusters have done that takes time: calls to the node agent, and looks at requests that wait.
//!
//! The gateway asks the node agent itself, so that neither the controller's cycle nor its life is between a request and an instance. When,
//! and for which instance, is [`weal_control::admission`]'s decision. What the agent answers with is used at once, until the controller's
//! next config says where everything is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use weal_control::admission::CALL_WAIT;
use weal_protocol::node::{WAKE, WakeRequest};

use crate::routing::cluster::{Cluster, Errand};

/// What a call may take beyond the time that the agent was given.
const MARGIN: Duration = Duration::from_secs(2);

/// Does errands, asking the agent at `socket`, each in a task of its own, until the gateway ends.
pub(crate) async fn serve(socket: &Path, mut errands: mpsc::UnboundedReceiver<Errand>) {
    let agent = weal_rpc::Client::new(socket, CALL_WAIT + MARGIN);
    while let Some(errand) = errands.recv().await {
        match errand {
            Errand::Wake(cluster, request) => {
                tokio::spawn(wake(cluster, request, agent.clone()));
            }
            Errand::Look { cluster, at, after } => {
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    if let Some(cluster) = cluster.upgrade() {
                        cluster.look(at);
                    }
                });
            }
        }
    }
}

async fn wake(cluster: Arc<Cluster>, request: WakeRequest, agent: weal_rpc::Client) {
    match agent.call(WAKE, &request).await {
        Ok(answer) => {
            if let Some(reason) = cluster.handle_woken(&answer) {
                let (instance, why) = (&answer.instance, reason.as_str());
                tracing::info!(app = %request.app, %instance, took_s = answer.took_s, "woken for {why}");
            }
        }
        Err(error) => {
            tracing::debug!(app = %request.app, %error, "nothing could be woken");
            cluster.handle_wake_refused();
        }
    }
}
