//! What happens after `weal up`: each application's way to ready, then events, and on a terminal one live line.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weal_model::{AppStatus, Event, EventKind, Severity, Status};

use super::console::Console;
use crate::client::Client;
use crate::output::{Stream, Tone, clock, now, paint, span, utility_tone};
use crate::terminal;

/// Between two looks while applications start: what a person takes for immediate.
const LOOK: Duration = Duration::from_millis(200);
/// Between two looks afterwards.
const CALM: Duration = Duration::from_secs(1);
/// After so long, whoever waits is told what is missing.
const REMIND: Duration = Duration::from_secs(10);

/// How the way to ready ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// Every application is ready.
    Ready,
    /// These failed, each with its reason; the others are ready.
    Failed(Vec<String>),
}

/// Follows one pool.
pub struct Progress {
    client: Client,
    console: Console,
    states: BTreeMap<String, String>,
    last_event: u64,
    started: Instant,
}

impl Progress {
    /// Follows the pool of `client`.
    pub fn new(client: Client, console: Console) -> Self {
        Self { client, console, states: BTreeMap::new(), last_event: 0, started: Instant::now() }
    }

    /// Returns when every application is ready or has failed. `generation` is that of the config that is waited for.
    pub async fn until_ready(&mut self, mut generation: watch::Receiver<Option<u64>>) -> Arrival {
        // An error means that the feed ended, and with it the supervisor.
        let _ = generation.wait_for(Option::is_some).await;
        let mut reminded = Instant::now();
        loop {
            if let Ok(status) = self.client.status().await {
                self.show_changes(&status).await;
                if let Some(arrival) = arrival(&status) {
                    self.console.live("");
                    return arrival;
                }
                self.console.live(&waiting_line(&status, self.started.elapsed()));
                if reminded.elapsed() >= REMIND && !self.console.is_live() {
                    reminded = Instant::now();
                    self.console.say(&waiting_line(&status, self.started.elapsed()));
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Shows events and the live line until dropped.
    pub async fn follow(&mut self) {
        self.skip_events().await;
        loop {
            tokio::time::sleep(CALM).await;
            for event in self.client.events(Some(self.last_event), 100).await.unwrap_or_default() {
                self.last_event = self.last_event.max(event.id);
                if worth_a_line(&event) {
                    self.console.say(&event_line(&event));
                }
            }
            match self.client.status().await {
                Ok(status) => self.console.live(&calm_line(&status)),
                Err(error) => self.console.live(&format!("{}", error)),
            }
        }
    }

    async fn skip_events(&mut self) {
        self.last_event = self.client.newest_event().await;
    }

    async fn show_changes(&mut self, status: &Status) {
        for app in &status.apps {
            let state = describe(app);
            if self.states.insert(app.name.to_string(), state.clone()).as_ref() == Some(&state) {
                continue;
            }
            let name = format!("{:<16}", app.name.as_str());
            self.console.say(&format!("  {name} {}", paint(&state, state_tone(&app.state), Stream::Out)));
            for (instance, line) in self.client.last_lines(app).await {
                self.console.say(&format!("  {:<16} {}", "", wrote_last(instance.as_str(), line.as_deref())));
            }
        }
    }
}

/// What an instance wrote last, as a sentence. Its text may hold anything: nothing in it commands the terminal.
pub fn wrote_last(instance: &str, line: Option<&str>) -> String {
    match line {
        Some(line) => format!("{instance} last wrote: {}", terminal::visible(line)),
        None => format!("{instance} wrote nothing"),
    }
}

/// The state of an application in a few words.
fn describe(app: &AppStatus) -> String {
    let ready = app.instances.iter().filter(|instance| instance.state == weal_model::InstanceState::Ready).count();
    match (app.state.as_str(), app.detail.as_str()) {
        ("ready", _) => format!("ready ({ready} of {}..{})", app.min, app.max),
        (state, "") => state.to_owned(),
        (state, detail) => format!("{state}: {detail}"),
    }
}

/// The colour of an application's state.
pub fn state_tone(state: &str) -> Tone {
    match state {
        "ready" => Tone::Good,
        "failed" => Tone::Bad,
        "degraded" => Tone::Warn,
        _ => Tone::Dim,
    }
}

/// `None` while some application is on its way.
pub fn arrival(status: &Status) -> Option<Arrival> {
    let settled = |app: &AppStatus| matches!(app.state.as_str(), "ready" | "failed" | "stopped" | "asleep");
    if !status.apps.iter().all(|app| settled(app) || app.min == 0) {
        return None;
    }
    let failed = status.apps.iter().filter(|app| app.state == "failed");
    let failed: Vec<String> = failed.map(|app| format!("{}: {}", app.name, app.detail)).collect();
    Some(if failed.is_empty() { Arrival::Ready } else { Arrival::Failed(failed) })
}

/// What is not ready yet, and since when it is waited for.
pub fn waiting_line(status: &Status, waited: Duration) -> String {
    let missing = status.apps.iter().filter(|app| !matches!(app.state.as_str(), "ready" | "stopped" | "asleep"));
    let missing: Vec<String> = missing.map(|app| format!("{} ({})", app.name, describe(app))).collect();
    format!("waiting for {} - {}", missing.join(", "), span(waited.as_secs()))
}

/// The pool in one line: rate, who is worst off, how busy the nodes are.
fn calm_line(status: &Status) -> String {
    let ready = status.apps.iter().filter(|app| app.state == "ready").count();
    let rate: f64 = status.flows.iter().map(|flow| flow.throughput_per_s).sum();
    let mut parts = vec![clock(now()), format!("{ready}/{} apps ready", status.apps.len()), format!("{rate:.0} req/s")];
    let known = status.flows.iter().filter_map(|flow| Some((flow, flow.utility?)));
    if let Some((flow, utility)) = known.min_by(|a, b| a.1.0.total_cmp(&b.1.0)) {
        parts.push(format!("worst {} {}", flow.id, paint(&utility.to_string(), utility_tone(utility), Stream::Out)));
    }
    for node in &status.nodes {
        let share = if node.cpu_capacity.0 > 0.0 { node.cpu_used.0 / node.cpu_capacity.0 * 100.0 } else { 0.0 };
        parts.push(format!("{} {share:.0}%", node.name));
    }
    parts.join("  ")
}

/// Seats change all the time, and instances' steps stand in the plan's event: the terminal shows what a person acts on.
fn worth_a_line(event: &Event) -> bool {
    event.severity > Severity::Info || !matches!(event.kind, EventKind::Seats | EventKind::Config)
}

/// An event in one line.
pub fn event_line(event: &Event) -> String {
    let tone = match event.severity {
        Severity::Info => Tone::Dim,
        Severity::Warning => Tone::Warn,
        Severity::Error => Tone::Bad,
    };
    format!("{} {}", paint(&clock(event.time), tone, Stream::Out), paint(&event_text(event), tone, Stream::Out))
}

/// What happened, led by whom it concerns unless the sentence names them itself.
pub fn event_text(event: &Event) -> String {
    let instance = event.instance.as_ref().map(ToString::to_string);
    let what =
        instance.or_else(|| event.app.as_ref().map(ToString::to_string)).or_else(|| event.node.as_ref().map(ToString::to_string));
    match what {
        Some(what) if !event.text.contains(&what) => format!("{what}: {}", event.text),
        _ => event.text.clone(),
    }
}
