//! `weal sleep APP`: lets an application sleep until somebody asks for it, once its requests are done.

use std::time::{Duration, Instant};

use weal_model::{AppStatus, Time};
use weal_protocol::controller::SleepOrder;

use super::json_text;
use crate::args;
use crate::client::{Client, block_on};
use crate::failure::{Exit, Failure};
use crate::output::{self, now};
use crate::state::StateDir;
use crate::supervisor::event_text;

/// Between two looks: a request's drain ends within this more often than not.
const AGAIN: Duration = Duration::from_millis(100);

/// Runs it.
pub fn run(order: &args::Sleep, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    let rung = order.rung.map(weal_model::Rung::from);
    block_on(async {
        let last = client.newest_event().await;
        client.sleep(&order.app, &SleepOrder { rung }).await.map_err(|error| error.into_failure())?;
        let told = now();
        let there = |app: &AppStatus| {
            let deep = |state: weal_model::InstanceState| state.rung().is_some_and(|now| rung.is_none_or(|rung| now >= rung));
            app.instances.iter().all(|instance| deep(instance.state))
        };
        // A status of before the order knows nothing of it.
        let is_over = |time: Time, app: &AppStatus| there(app) || (time > told && !app.told_to_sleep);
        let app = until(&client, &order.app, order.timeout, "sleep", is_over).await?;
        if !there(&app) {
            return Err(Failure::new(Exit::Failed, given_up(&client, &app, last).await).into());
        }
        let how = if app.instances.is_empty() { "it has no instances" } else { &app.detail };
        output::print(&if json { json_text(&app.instances, false) } else { format!("{} sleeps: {how}\n", app.name) });
        Ok(())
    })
}

/// Why the order is void: the last that was told of `app` since the event `last`.
async fn given_up(client: &Client, app: &AppStatus, last: u64) -> String {
    let events = client.events(Some(last), 100).await.unwrap_or_default();
    let told = events.iter().rev().find(|event| event.app.as_ref() == Some(&app.name)).map(event_text);
    match told {
        Some(told) => format!("the order is given up: {told}"),
        None => format!("the order is given up: a request came for {}", app.name),
    }
}

/// The application's status once `there` holds of it.
///
/// # Errors
/// Not within `timeout_s`; says how it is instead.
pub async fn until(
    client: &Client,
    name: &str,
    timeout_s: u64,
    what: &str,
    there: impl Fn(Time, &AppStatus) -> bool,
) -> Result<AppStatus, Failure> {
    let deadline = Instant::now() + Duration::from_secs(timeout_s);
    loop {
        let status = client.status().await.map_err(|error| error.into_failure())?;
        let time = status.time;
        let app = status.apps.into_iter().find(|app| app.name.as_str() == name);
        let Some(app) = app else { return Err(Failure::new(Exit::Failed, format!("`{name}` has left the pool"))) };
        if there(time, &app) {
            return Ok(app);
        }
        if Instant::now() >= deadline {
            let how = if app.detail.is_empty() { app.state.to_string() } else { format!("{}: {}", app.state, app.detail) };
            return Err(Failure::new(Exit::TimedOut, format!("{name} does not {what} within {timeout_s} s; it is {how}")));
        }
        tokio::time::sleep(AGAIN).await;
    }
}
