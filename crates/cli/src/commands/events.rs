//! `weal events`: what happened, with reasons.

use std::time::Duration;

use weal_model::{Event, Time};

use super::{app_of, json_text};
use crate::args;
use crate::client::{Client, block_on};
use crate::output;
use crate::state::StateDir;
use crate::supervisor::dated_event_line;
use crate::values;

/// Between two questions with `--watch`.
const AGAIN: Duration = Duration::from_millis(500);
/// So many are asked for where only some of them are shown: as many as the controller hands out at once.
const MOST: u32 = 1000;

/// Runs it.
pub fn run(order: &args::Events, json: bool) -> anyhow::Result<()> {
    let wanted = Wanted::of(order)?;
    let client = Client::new(&StateDir::find(&order.target)?);
    block_on(async {
        let asked = if wanted.is_all() { order.limit } else { MOST };
        let mut events = client.events(None, asked).await.map_err(|error| error.into_failure())?;
        let newest = events.iter().map(|event| event.id).max().unwrap_or(0);
        events.retain(|event| wanted.has(event));
        events.drain(..events.len().saturating_sub(order.limit as usize));
        // One that has left the pool may have events; without any, the name is most likely a slip.
        if let Some(app) = order.app.as_ref().filter(|_| events.is_empty()) {
            app_of(&client.status().await.map_err(|error| error.into_failure())?, app)?;
        }
        if json && !order.watch {
            return output::json(&events, false);
        }
        let mut last = newest;
        loop {
            for event in &events {
                last = last.max(event.id);
                if wanted.has(event) {
                    output::print(&line(event, json));
                }
            }
            if !order.watch {
                return Ok(());
            }
            tokio::time::sleep(AGAIN).await;
            events = match client.events(Some(last), MOST).await {
                Ok(events) => events,
                Err(error) if error.is_passing() => Vec::new(),
                Err(error) => return Err(error.into_failure().into()),
            };
        }
    })
}

/// Which events are shown.
struct Wanted<'o> {
    order: &'o args::Events,
    since: Option<Time>,
}

impl<'o> Wanted<'o> {
    fn of(order: &'o args::Events) -> anyhow::Result<Self> {
        let since = order.since.as_deref().map(|text| values::since(text, output::now(), output::zone())).transpose()?;
        Ok(Self { order, since })
    }

    fn is_all(&self) -> bool {
        self.since.is_none() && self.order.app.is_none() && self.order.severity.is_none()
    }

    fn has(&self, event: &Event) -> bool {
        let is_of_app = |app: &String| event.app.as_ref().is_some_and(|of| of.as_str() == app);
        self.since.is_none_or(|since| event.time >= since)
            && self.order.app.as_ref().is_none_or(is_of_app)
            && self.order.severity.is_none_or(|least| event.severity >= least.into())
    }
}

fn line(event: &Event, json: bool) -> String {
    if json { json_text(event, true) } else { dated_event_line(event) + "\n" }
}
