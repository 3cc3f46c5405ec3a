//! What the loop shows and the API reads: the current view, and the events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{broadcast, watch};
use weal_control::cycle::{Note, PutOff};
use weal_model::{AppName, Event, InstanceId, InstanceState, NodeName, Severity, Status};
use weal_protocol::gateway::GatewayCounters;

use crate::clock;
use crate::store::{CONFIGS_KEPT, Store};
use weal_protocol::controller::{ConfigView, PlanView};

/// Events kept in memory, so that readers need no disk; older ones come from the store.
const EVENTS_IN_MEMORY: usize = 1000;
/// What the store keeps the versions under that did not come up.
pub(crate) const FAILED_VERSIONS: &str = "failed-versions";
/// Messages that a slow reader of the stream may lag behind before it misses some.
const STREAM_BACKLOG: usize = 256;

/// Everything that readers see, put together once per cycle.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub status: Arc<Status>,
    pub plan: Arc<PlanView>,
    pub config: Arc<ConfigView>,
    /// The gateway's counters of the last cycle, for the metrics.
    pub counters: Option<Arc<GatewayCounters>>,
    /// Placement actions carried out since the controller started.
    pub actions_total: u64,
    /// Instances that entered each state since then, by application.
    pub transitions: BTreeMap<(AppName, InstanceState), u64>,
    /// Actions that a plan wanted since then and that were not begun at that time.
    pub put_off: BTreeMap<PutOff, u64>,
}

/// A message of `GET /v1/stream`: its event name and its JSON, made once for all readers.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub name: &'static str,
    pub json: Arc<str>,
}

/// Where the loop writes and the API reads.
#[derive(Debug)]
pub(crate) struct Board {
    view: watch::Sender<View>,
    events: Mutex<Events>,
    stream: broadcast::Sender<Message>,
    /// Versions of the config that did not come up, by generation, with the reason.
    failed: Mutex<BTreeMap<u64, String>>,
    pub store: Store,
}

#[derive(Debug)]
struct Events {
    newest_id: u64,
    /// Invariant: ids without gaps, ending with `newest_id`.
    recent: VecDeque<Event>,
}

impl Board {
    /// Shows `view`; goes on counting events after `recent`, what the store kept of them.
    pub fn new(store: Store, recent: Vec<Event>, view: View) -> Self {
        let newest_id = recent.last().map_or(0, |event| event.id);
        let events = Mutex::new(Events { newest_id, recent: recent.into() });
        let stream = broadcast::Sender::new(STREAM_BACKLOG);
        Self { view: watch::Sender::new(view), events, stream, failed: Mutex::default(), store }
    }

    /// Goes on with the versions that had failed before.
    pub fn recall_failed(&self, failed: BTreeMap<u64, String>) {
        *self.failed() = failed;
    }

    /// The version `generation` did not come up.
    pub fn fail_version(&self, generation: u64, why: String) {
        let mut failed = self.failed();
        failed.insert(generation, why);
        failed.retain(|one, _| one + CONFIGS_KEPT > generation);
        self.store.save_value(FAILED_VERSIONS, &*failed);
    }

    /// Why that version did not come up.
    pub fn failed_version(&self, generation: u64) -> Option<String> {
        self.failed().get(&generation).cloned()
    }

    fn failed(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is shown now.
    pub fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// Shows another view.
    pub fn show(&self, view: View) {
        if self.stream.receiver_count() > 0
            && let Ok(json) = serde_json::to_string(&*view.status)
        {
            // Fails only when the last reader left just now.
            let _ = self.stream.send(Message { name: "status", json: json.into() });
        }
        self.view.send_replace(view);
    }

    /// Makes an event of `note`: logged, kept, streamed.
    pub fn note(&self, note: Note) {
        let event = {
            let mut events = self.events();
            events.newest_id += 1;
            let Note { severity, kind, app, instance, node, action: _, text } = note;
            let event = Event { id: events.newest_id, time: clock::now(), severity, kind, app, instance, node, text };
            events.recent.push_back(event.clone());
            if events.recent.len() > EVENTS_IN_MEMORY {
                events.recent.pop_front();
            }
            event
        };
        log(&event);
        if let Ok(json) = serde_json::to_string(&event) {
            let _ = self.stream.send(Message { name: "event", json: json.into() });
        }
        self.store.save_event(event);
    }

    /// At most `limit` events after `after`, oldest first; without `after`, the newest ones.
    pub async fn events_after(&self, after: Option<u64>, limit: u32) -> Vec<Event> {
        let limit_in_memory = limit as usize;
        {
            let events = self.events();
            let Some(after) = after else {
                let skip = events.recent.len().saturating_sub(limit_in_memory);
                return events.recent.iter().skip(skip).cloned().collect();
            };
            if events.recent.front().is_none_or(|oldest| oldest.id <= after.saturating_add(1)) {
                return events.recent.iter().filter(|event| event.id > after).take(limit_in_memory).cloned().collect();
            }
        }
        self.store.events(after.unwrap_or(0), limit).await
    }

    /// The last events about `app`, newest first.
    pub fn events_of(&self, app: &AppName, limit: usize) -> Vec<Event> {
        let events = self.events();
        events.recent.iter().rev().filter(|event| event.app.as_ref() == Some(app)).take(limit).cloned().collect()
    }

    /// The stream from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Message> {
        self.stream.subscribe()
    }

    /// How many read the stream.
    pub fn readers(&self) -> usize {
        self.stream.receiver_count()
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        // No code panics while it holds the lock in the middle of a change.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(event: &Event) {
    let Event { kind, app, instance, node, text, .. } = event;
    let show = |name: Option<&str>| name.unwrap_or("").to_owned();
    let (app, instance, node) = (
        show(app.as_ref().map(AppName::as_str)),
        show(instance.as_ref().map(InstanceId::as_str)),
        show(node.as_ref().map(NodeName::as_str)),
    );
    match event.severity {
        Severity::Info => tracing::info!(id = event.id, ?kind, app, instance, node, "{text}"),
        Severity::Warning => tracing::warn!(id = event.id, ?kind, app, instance, node, "{text}"),
        Severity::Error => tracing::error!(id = event.id, ?kind, app, instance, node, "{text}"),
    }
}
