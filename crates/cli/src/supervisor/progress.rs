//! What happens after `weal up`: each application's way to ready, then events, and on a terminal lines that change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weal_model::{AppName, AppState, AppStatus, Event, EventKind, Severity, Status};

use super::console::Console;
use crate::client::{Client, escape};
use crate::lines::LineBuffer;
use crate::output::{Stream, Tone, clock, moment, now, paint, span, utility_tone};
use crate::terminal;

/// Between two looks while applications start: what a person takes for immediate.
const LOOK: Duration = Duration::from_millis(200);
/// Between two looks afterwards.
const CALM: Duration = Duration::from_secs(1);
/// After so long, whoever waits is told what is missing.
const REMIND: Duration = Duration::from_secs(10);

/// So many lines are shown of what a guest wrote before it was ready.
const FIRST_LINES: usize = 100;
/// So many lines are shown of what an application wrote before it failed: a stack trace's end.
const LAST_LINES: usize = 10;

/// How the way to ready ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// Every application is ready.
    Ready,
    /// These failed, each with its reason; the others are ready.
    Failed(Vec<String>),
}

/// Follows one pool.
#[derive(Clone)]
pub struct Progress {
    client: Client,
    console: Console,
    /// The one application whose output is shown; then only warnings are told of the pool's events.
    guest: Option<AppName>,
    states: BTreeMap<String, String>,
    last_event: u64,
    started: Instant,
}

impl Progress {
    /// Follows the pool of `client`.
    pub fn new(client: Client, console: Console, guest: Option<AppName>) -> Self {
        Self { client, console, guest, states: BTreeMap::new(), last_event: 0, started: Instant::now() }
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
                self.console.live(&waiting_lines(&status, self.started.elapsed()));
                if reminded.elapsed() >= REMIND && !self.console.is_live() {
                    reminded = Instant::now();
                    self.console.say(&waiting_line(&status, self.started.elapsed()));
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Shows what the guest writes until dropped; nothing without a guest.
    pub async fn pass_on_output(&self) {
        let Some(app) = &self.guest else { return };
        let path = |tail: usize| format!("/v1/apps/{}/logs?tail={tail}&follow=true", escape(app.as_str()));
        let mut tail = FIRST_LINES;
        loop {
            let mut lines = LineBuffer::default();
            // A controller that is started anew ends the stream.
            let _ = self
                .client
                .stream(&path(tail), |piece| lines.take(piece, |line| self.console.pass_on(&String::from_utf8_lossy(line))))
                .await;
            tail = 0;
            tokio::time::sleep(CALM).await;
        }
    }

    /// Shows events and the live line until dropped.
    pub async fn follow(&mut self) {
        self.skip_events().await;
        loop {
            tokio::time::sleep(CALM).await;
            for event in self.client.events(Some(self.last_event), 100).await.unwrap_or_default() {
                self.last_event = self.last_event.max(event.id);
                if worth_a_line(&event) && (self.guest.is_none() || event.severity > Severity::Info) {
                    self.console.say(&event_line(&event));
                }
            }
            match self.client.status().await {
                Ok(_) if self.guest.is_some() => {}
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
            // On a terminal, what is on its way has a line that changes.
            if !self.console.is_live() || stays(app) {
                self.console.say(&app_line(app, &state));
            }
            for (instance, lines) in self.client.last_lines(app, LAST_LINES).await {
                self.show_last(instance.as_str(), &lines);
            }
        }
    }

    fn show_last(&self, instance: &str, lines: &[String]) {
        let (last, before) = lines.split_last().map_or((None, &[][..]), |(last, before)| (Some(last.as_str()), before));
        for line in before {
            self.console.say(&format!("  {:<16} {instance} | {}", "", terminal::visible(line)));
        }
        self.console.say(&format!("  {:<16} {}", "", wrote_last(instance, last)));
    }
}

fn app_line(app: &AppStatus, state: &str) -> String {
    format!("  {:<16} {}", app.name.as_str(), paint(state, state_tone(app.state), Stream::Out))
}

/// Whether it will stay as it is.
fn stays(app: &AppStatus) -> bool {
    app.state.is_settled() || app.state == AppState::Failed
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
    match (app.state, app.detail.as_str()) {
        (AppState::Ready, _) => format!("ready ({ready} of {}..{})", app.min, app.max),
        (state, "") => state.to_string(),
        (state, detail) => format!("{state}: {detail}"),
    }
}

/// The colour of an application's state.
pub fn state_tone(state: AppState) -> Tone {
    match state {
        AppState::Ready | AppState::Done => Tone::Good,
        AppState::Failed => Tone::Bad,
        AppState::Degraded => Tone::Warn,
        AppState::Starting | AppState::Waiting | AppState::Asleep | AppState::Running | AppState::Stopped => Tone::Dim,
    }
}

/// `None` while some application is on its way.
pub fn arrival(status: &Status) -> Option<Arrival> {
    if !status.apps.iter().all(|app| stays(app) || app.min == 0) {
        return None;
    }
    let failed = status.apps.iter().filter(|app| app.state == AppState::Failed);
    let failed: Vec<String> = failed.map(|app| format!("{}: {}", app.name, app.detail)).collect();
    Some(if failed.is_empty() { Arrival::Ready } else { Arrival::Failed(failed) })
}

/// What is not ready yet, and since when it is waited for.
pub fn waiting_line(status: &Status, waited: Duration) -> String {
    let missing = status.apps.iter().filter(|app| !app.state.is_settled());
    let missing: Vec<String> = missing.map(|app| format!("{} ({})", app.name, describe(app))).collect();
    format!("waiting for {} - {}", missing.join(", "), span(waited.as_secs()))
}

/// One line for each application that is on its way, and how long that has taken.
fn waiting_lines(status: &Status, waited: Duration) -> String {
    let missing = status.apps.iter().filter(|app| !stays(app) && app.min > 0);
    let lines = missing.map(|app| format!("{} - {}", app_line(app, &describe(app)), span(waited.as_secs())));
    lines.collect::<Vec<_>>().join("\n")
}

/// The pool in one line: rate, who is worst off, how busy the nodes are.
fn calm_line(status: &Status) -> String {
    let ready = status.apps.iter().filter(|app| app.state == AppState::Ready).count();
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

/// An event in one line, with its time of day.
pub fn event_line(event: &Event) -> String {
    timed_line(event, &clock(event.time))
}

/// An event in one line, with its date.
pub fn dated_event_line(event: &Event) -> String {
    timed_line(event, &moment(event.time))
}

fn timed_line(event: &Event, time: &str) -> String {
    let tone = match event.severity {
        Severity::Info => Tone::Dim,
        Severity::Warning => Tone::Warn,
        Severity::Error => Tone::Bad,
    };
    format!("{} {}", paint(time, tone, Stream::Out), paint(&event_text(event), tone, Stream::Out))
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
