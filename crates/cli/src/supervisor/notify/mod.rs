//! `[[notify]]`: looks at the pool, and tells receivers what [`Watcher`] decides.
//!
//! Each receiver has a queue of its own, so that one which does not answer delays no other. Nothing that a receiver's address holds is logged
//! but its host: the rest may be a secret.

mod command;
mod message;
mod post;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use weal_control::notify::{Notice, Watcher};
use weal_model::{NotifyBy, NotifySpec, PoolSpec};

use message::{DeliveryError, Message};

use super::console::Console;
use crate::client::Client;
use crate::output::{self, Tone};
use crate::state::StateDir;

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_secs(1);
/// Notices that may wait for one receiver. What finds no place is lost, and said to be.
const MOST_WAITING: usize = 64;
/// How often a receiver is tried, with pauses of 1, 2, 4 and 8 seconds between.
const ATTEMPTS: u32 = 5;

/// Tells the receivers of one pool.
pub struct Notify {
    client: Client,
    console: Console,
    state: PathBuf,
    queues: HashMap<usize, mpsc::Sender<Message>>,
}

impl Notify {
    /// Tells of the pool that `client` calls.
    pub fn new(state: &StateDir, client: Client, console: Console) -> Self {
        Self { client, console, state: state.root.clone(), queues: HashMap::new() }
    }

    /// Runs for as long as the supervisor does. `specs` tells the config in force.
    pub async fn run(mut self, mut specs: watch::Receiver<PoolSpec>) {
        let mut watcher = Watcher::default();
        let mut receivers: Vec<NotifySpec> = Vec::new();
        loop {
            let wanted = specs.borrow_and_update().notify.clone();
            if wanted != receivers {
                // Their queues are worked off.
                self.queues.clear();
                receivers = wanted;
            }
            watcher.handle_receivers(&receivers);
            // A controller that is being started shows nothing: what lasts is told afterwards.
            if !receivers.is_empty()
                && let Ok(status) = self.client.status().await
            {
                watcher.handle_status(output::now(), &status, used_share(&self.state));
                while let Some(notice) = watcher.poll_notice() {
                    self.queue(&receivers, notice, &status.pool);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                changed = specs.changed() => if changed.is_err() { return },
            }
        }
    }

    fn queue(&mut self, receivers: &[NotifySpec], notice: Notice, pool: &str) {
        let Some(receiver) = receivers.get(notice.receiver) else { return };
        let console = self.console.clone();
        let queue = self.queues.entry(notice.receiver).or_insert_with(|| {
            let (queue, messages) = mpsc::channel(MOST_WAITING);
            tokio::spawn(deliver_all(receiver.by.clone(), messages, console));
            queue
        });
        let since = output::moment(notice.since);
        let Notice { occasion: event, subject, text, is_over: resolved, .. } = notice;
        let message = Message { event, pool: pool.to_owned(), subject, text, since, resolved };
        if queue.try_send(message).is_err() {
            let what = format!("{} is not told of {}: too much waits for it", shown(&receiver.by), event.as_str());
            self.console.tell(Tone::Warn, "notify:", &what);
        }
    }
}

async fn deliver_all(by: NotifyBy, mut messages: mpsc::Receiver<Message>, console: Console) {
    while let Some(message) = messages.recv().await {
        if let Err(why) = deliver(&by, &message).await {
            let what = format!("{} was not told of {} in {ATTEMPTS} attempts: {why}", shown(&by), message.event.as_str());
            console.tell(Tone::Warn, "notify:", &what);
        }
    }
}

async fn deliver(by: &NotifyBy, message: &Message) -> Result<(), DeliveryError> {
    let body = serde_json::to_vec(message).expect("texts are JSON");
    let mut attempt = 0;
    loop {
        let told = match by {
            NotifyBy::Url(url) => post::post(url, body.clone()).await,
            NotifyBy::Run(argv) => command::run(argv, message, &body).await,
        };
        attempt += 1;
        match told {
            Err(_) if attempt < ATTEMPTS => tokio::time::sleep(Duration::from_secs(1 << (attempt - 1))).await,
            other => return other,
        }
    }
}

/// Who it is, without what may be secret.
fn shown(by: &NotifyBy) -> String {
    match by {
        NotifyBy::Url(url) => post::host_of(url),
        NotifyBy::Run(argv) => argv.first().cloned().unwrap_or_default(),
    }
}

/// The used share of the disk that holds `path`, of what others than root may use.
fn used_share(path: &std::path::Path) -> Option<f64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let used = stat.f_blocks.saturating_sub(stat.f_bfree) as f64;
    let usable = used + stat.f_bavail as f64;
    (usable > 0.0).then(|| used / usable)
}
