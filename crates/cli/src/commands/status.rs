//! `weal status`: the pool as it is now.

use weal_model::{AppStatus, FlowStatus, InstanceState, NodeStatus, Status};

use super::{json_text, show};
use crate::args::Watch;
use crate::client::{Client, block_on};
use crate::output::{Stream, Table, Tone, cell, milliseconds, now, paint, span, toned, utility};
use crate::state::StateDir;
use crate::supervisor::{state_tone, wrote_last};

/// Runs it.
pub fn run(order: &Watch, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    block_on(show(order.watch, json, async || {
        let status = client.status().await?;
        if json {
            return Ok(json_text(&status, order.watch));
        }
        Ok(render(&status) + &written_last(&client, &status).await)
    }))
}

fn render(status: &Status) -> String {
    let mut text = head(status);
    for part in [nodes(&status.nodes), apps(&status.apps), instances(&status.apps), flows(&status.flows)] {
        text.push('\n');
        text.push_str(&part);
    }
    for lent in status.apps.iter().filter_map(AppStatus::lent_seats) {
        text.push_str(&format!("{} {lent}\n", paint("lent:", Tone::Warn, Stream::Out)));
    }
    text
}

/// What those wrote last that do not do as they should.
async fn written_last(client: &Client, status: &Status) -> String {
    let mut text = String::new();
    for app in &status.apps {
        for (instance, line) in client.last_lines(app, 1).await {
            text.push_str(&format!("\n{}", wrote_last(instance.as_str(), line.last().map(String::as_str))));
        }
    }
    if text.is_empty() { text } else { text + "\n" }
}

fn head(status: &Status) -> String {
    let control = if status.control { "" } else { "  (control is off: weal only watches)" };
    let name = paint(&status.pool, Tone::Strong, Stream::Out);
    let mut text = format!("{name}  {}  dashboard {}  config {}{control}\n", status.listen, status.api, status.config_generation);
    if let Some(error) = &status.config_error {
        text.push_str(&format!("{} {error}\n", paint("newest config refused:", Tone::Bad, Stream::Out)));
    }
    for problem in &status.problems {
        text.push_str(&format!("{} {problem}\n", paint("problem:", Tone::Bad, Stream::Out)));
    }
    for limit in &status.limits {
        text.push_str(&format!("{} {limit}\n", paint("limit:", Tone::Warn, Stream::Out)));
    }
    text
}

fn nodes(nodes: &[NodeStatus]) -> String {
    let mut table = Table::new(&["NODE", "UP", "CPU", "OF", "GIVEN", "MEMORY", "OF"]);
    for node in nodes {
        table.row(vec![
            cell(node.name.as_str()),
            if node.up { toned("yes", Tone::Good) } else { toned("no", Tone::Bad) },
            cell(format!("{:.2}", node.cpu_used.0)),
            cell(format!("{:.2}", node.cpu_capacity.0)),
            cell(format!("{:.2}", node.cpu_allocated.0)),
            cell(node.memory_used.to_string()),
            cell(node.memory_capacity.to_string()),
        ]);
    }
    table.render()
}

fn apps(apps: &[AppStatus]) -> String {
    let mut table = Table::new(&["APP", "STATE", "READY", "OF", "UTILITY", "CPU", "GIVEN", "WANTED", "WHY"])
        .sparing(&["OF", "WANTED", "GIVEN"]);
    for app in apps {
        let ready = app.instances.iter().filter(|one| one.state == InstanceState::Ready).count();
        table.row(vec![
            cell(app.name.as_str()),
            toned(app.state.as_str(), state_tone(app.state)),
            cell(ready.to_string()),
            cell(format!("{}..{}", app.min, app.max)),
            utility(app.utility),
            cell(format!("{:.2}", app.cpu_used.0)),
            cell(format!("{:.2}", app.cpu_allocated.0)),
            cell(format!("{:.2}", app.cpu_demand.0)),
            cell(&app.detail),
        ]);
    }
    table.render()
}

fn instances(apps: &[AppStatus]) -> String {
    let now = now();
    let mut table =
        Table::new(&["INSTANCE", "NODE", "STATE", "FOR", "PID", "ADDRESS", "CPU", "MEMORY", "UNDER WAY", "RESTARTS", "WHY"])
            .sparing(&["PID", "ADDRESS", "UNDER WAY", "CPU", "NODE"]);
    for instance in apps.iter().flat_map(|app| &app.instances) {
        table.row(vec![
            cell(instance.id.as_str()),
            cell(instance.node.as_str()),
            toned(state_word(instance.state), instance_tone(instance.state)),
            cell(span(now.since(instance.since).as_secs())),
            cell(instance.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())),
            cell(&instance.address),
            cell(format!("{:.2}", instance.cpu_used.0)),
            cell(instance.memory_used.to_string()),
            cell(instance.in_flight.to_string()),
            cell(instance.restarts.to_string()),
            cell(&instance.detail),
        ]);
    }
    table.render()
}

fn flows(flows: &[FlowStatus]) -> String {
    let mut table = Table::new(&["FLOW", "GOAL", "ACHIEVED", "UTILITY", "REQ/S", "REJECTED/S", "ERRORS/S", "QUEUE", "SEATS"])
        .sparing(&["SEATS", "ERRORS/S", "REJECTED/S"]);
    for flow in flows {
        table.row(vec![
            cell(flow.id.to_string()),
            cell(if flow.goal_text.is_empty() { "best effort" } else { &flow.goal_text }),
            cell(achieved(flow)),
            utility(flow.utility),
            cell(format!("{:.1}", flow.throughput_per_s)),
            cell(format!("{:.1}", flow.rejected_per_s)),
            cell(format!("{:.1}", flow.errors_per_s)),
            cell(format!("{:.1}", flow.queue_mean)),
            cell(flow.seats.to_string()),
        ]);
    }
    table.render()
}

/// What the goal is about, with its unit; the mean response time without a goal.
pub fn achieved(flow: &FlowStatus) -> String {
    match (flow.achieved, &flow.goal) {
        (Some(rate), Some(weal_model::Goal::Throughput { .. })) => format!("{rate:.1}/s"),
        (Some(time), _) => milliseconds(time),
        (None, _) if flow.response.count > 0 => milliseconds(flow.response.mean_ms),
        (None, _) => "-".to_owned(),
    }
}

/// The state as `-o json` spells it.
pub fn state_word(state: InstanceState) -> String {
    serde_json::to_value(state).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The colour of an instance's state.
pub fn instance_tone(state: InstanceState) -> Tone {
    match state {
        InstanceState::Ready => Tone::Good,
        InstanceState::Unhealthy | InstanceState::Backoff => Tone::Warn,
        InstanceState::Failed => Tone::Bad,
        _ => Tone::Dim,
    }
}
