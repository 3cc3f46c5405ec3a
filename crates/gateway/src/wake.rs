//! Waking instances: requests wait in their queues because none of the cluster's instances is open, or for too long although some are,
//! and one is asleep.
//!
//! The gateway asks the node agent itself, so that neither the controller's cycle nor its life is between a request and an
//! instance. However many requests wait, one call is under way per cluster: whoever notices that something waits hands the cluster
//! over here once, and the call is repeated for as long as something waits. What the agent answers with is used at once, until
//! the controller's next config says where everything is. Where an instance is open and another stands by, what waits is looked at again when
//! it has waited for too long: with all seats taken, no request may come or end until then.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use weal_protocol::node::{WAKE, WakeRequest};

use crate::cluster::{Cluster, Need};

/// How long one call waits. A start may take longer; then the call is repeated, and meanwhile something else may have helped.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a call may take beyond that.
const MARGIN: Duration = Duration::from_secs(2);
/// Between a refusal and the next call, doubled with each further one: there may be nothing to wake until the controller has
/// started an instance, and that takes longer than this.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// A second of waiting more is little against a start, and a call a second is nothing for the agent.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Where clusters that need an instance are handed over.
#[derive(Debug, Clone)]
pub(crate) struct Wakes(mpsc::UnboundedSender<Arc<Cluster>>);

impl Wakes {
    /// The sender, and what [`serve`] serves.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Arc<Cluster>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sees to those who wait at `cluster`, soon, until nobody does.
    pub fn ask(&self, cluster: &Arc<Cluster>) {
        // The gateway ends when nobody receives any more.
        let _ = self.0.send(Arc::clone(cluster));
    }
}

/// Asks the agent at `socket` for what is handed over, each cluster in a task of its own, until the gateway ends.
pub(crate) async fn serve(socket: &Path, mut asked: mpsc::UnboundedReceiver<Arc<Cluster>>) {
    let agent = weal_rpc::Client::new(socket, PATIENCE + MARGIN);
    while let Some(cluster) = asked.recv().await {
        tokio::spawn(wake(cluster, agent.clone()));
    }
}

async fn wake(cluster: Arc<Cluster>, agent: weal_rpc::Client) {
    let mut pause = FIRST_PAUSE;
    while let Some((need, changed)) = cluster.wants_instance() {
        let (instances, why) = match &need {
            Need::Any(instances) => (instances.clone(), "a request"),
            Need::OneMore(instances) => (instances.clone(), "a crowd"),
            Need::Later(span) => {
                pause = FIRST_PAUSE;
                // A config may close the last instance meanwhile.
                let _ = tokio::time::timeout(*span, changed.notified()).await;
                continue;
            }
        };
        let request = WakeRequest { app: cluster.app().clone(), wait_s: PATIENCE.as_secs_f64(), instances };
        match agent.call(WAKE, &request).await {
            Ok(answer) => {
                if cluster.handle_woken(&need, &answer) {
                    tracing::info!(app = %request.app, instance = %answer.instance, took_s = answer.took_s, "woken for {why}");
                }
                pause = FIRST_PAUSE;
            }
            Err(error) => {
                tracing::debug!(app = %request.app, %error, "nothing could be woken");
                cluster.handle_wake_failure(&need);
                // A config may bring an instance meanwhile.
                let _ = tokio::time::timeout(pause, changed.notified()).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
