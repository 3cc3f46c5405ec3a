//! `weal instances`: where each instance is on the ladder, what it holds there, and what its last wake took.

use weal_model::{AppStatus, InstanceStatus, Status};

use super::status::{instance_tone, state_word};
use super::{app_of, json_text, show};
use crate::args;
use crate::client::{Client, Error, block_on};
use crate::output::{Table, cell, milliseconds, now, span, toned};
use crate::state::StateDir;

/// Runs it.
pub fn run(order: &args::Instances, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    block_on(show(order.watch, json, async || {
        let status = client.status().await?;
        let apps = chosen(&status, order.app.as_deref())?;
        let instances: Vec<&InstanceStatus> = apps.iter().flat_map(|app| &app.instances).collect();
        Ok(if json { json_text(&instances, order.watch) } else { render(&instances) })
    }))
}

/// The application that is named, or all.
fn chosen<'a>(status: &'a Status, name: Option<&str>) -> Result<Vec<&'a AppStatus>, Error> {
    let Some(name) = name else { return Ok(status.apps.iter().collect()) };
    app_of(status, name).map(|app| vec![app]).map_err(|failure| Error::Refused {
        status: hyper::StatusCode::NOT_FOUND,
        message: failure.message,
        diagnostics: Vec::new(),
    })
}

fn render(instances: &[&InstanceStatus]) -> String {
    let now = now();
    let mut table = Table::new(&["INSTANCE", "NODE", "STATE", "FOR", "MEMORY", "SWAP", "LAST WAKE", "UNDER WAY", "WHY"]);
    for instance in instances {
        table.row(vec![
            cell(instance.id.as_str()),
            cell(instance.node.as_str()),
            toned(state_word(instance.state), instance_tone(instance.state)),
            cell(span(now.since(instance.since).as_secs())),
            cell(instance.memory_used.to_string()),
            cell(instance.swap_used.to_string()),
            cell(instance.last_wake_ms.map_or_else(|| "-".to_owned(), milliseconds)),
            cell(instance.in_flight.to_string()),
            cell(&instance.detail),
        ]);
    }
    table.render()
}
