//! `weal events`: what happened, with reasons.

use std::time::Duration;

use weal_model::Event;

use super::json_text;
use crate::args;
use crate::client::{Client, block_on};
use crate::output;
use crate::state::StateDir;
use crate::supervisor::event_line;

/// Between two questions with `--watch`.
const AGAIN: Duration = Duration::from_millis(500);

/// Runs it.
pub fn run(order: &args::Events, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    block_on(async {
        let mut events = client.events(None, order.limit).await.map_err(|error| error.into_failure())?;
        if json && !order.watch {
            return output::json(&events, false);
        }
        let mut last = 0;
        loop {
            for event in &events {
                last = last.max(event.id);
                output::print(&line(event, json));
            }
            if !order.watch {
                return Ok(());
            }
            tokio::time::sleep(AGAIN).await;
            events = match client.events(Some(last), 1000).await {
                Ok(events) => events,
                Err(error) if error.is_passing() => Vec::new(),
                Err(error) => return Err(error.into_failure().into()),
            };
        }
    })
}

fn line(event: &Event, json: bool) -> String {
    if json { json_text(event, true) } else { event_line(event) + "\n" }
}
