//! `weal wake APP`: wakes an application before anybody asks for it.

use weal_model::{AppState, AppStatus, InstanceState, Time};

use super::json_text;
use super::sleep::until;
use crate::args;
use crate::client::{Client, block_on};
use crate::failure::{Exit, Failure};
use crate::output::{self, now};
use crate::state::StateDir;

/// Runs it.
///
/// # Errors
/// Its instances do not get ready.
pub fn run(order: &args::Wake, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    block_on(async {
        let taken = client.wake(&order.app).await.map_err(|error| error.into_failure())?;
        let told = now();
        let ready = |app: &AppStatus| app.instances.iter().any(|instance| instance.state == InstanceState::Ready);
        // A status of before the order knows nothing of it.
        let is_over = |time: Time, app: &AppStatus| ready(app) || (time > told && app.state == AppState::Failed);
        let app = until(&client, &order.app, order.timeout, "wake", is_over).await?;
        if !ready(&app) {
            return Err(Failure::new(Exit::Failed, format!("{} does not wake: {}", app.name, app.detail)).into());
        }
        let woken = app.instances.iter().find(|instance| Some(&instance.id) == taken.instance.as_ref());
        let text = match (taken.from, woken.and_then(|instance| Some((instance, instance.last_wake_ms?)))) {
            (Some(rung), Some((instance, ms))) => {
                format!("{} is ready: woken from {} in {ms:.1} ms\n", instance.id, rung.as_str())
            }
            _ => format!("{} is ready\n", app.name),
        };
        output::print(&if json { json_text(&app.instances, false) } else { text });
        Ok(())
    })
}
