//! `weal reload APP`: its reload signal to each instance, so that the program reads its own config anew. Nothing is started or stopped.

use serde_json::json;
use weal_model::{AppStatus, InstanceId, InstanceState, ProcessSignal};

use super::app_of;
use crate::args::deploy::Reload;
use crate::client::{Client, Error, block_on};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::state::StateDir;

/// Runs it.
///
/// # Errors
/// No pool runs (4); there is no such application, it has no `reload-signal`, or nothing of it runs (1).
pub fn run(order: &Reload, json: bool) -> anyhow::Result<()> {
    let state = StateDir::find(&order.target)?;
    let client = Client::new(&state);
    block_on(async {
        let status = client.status().await.map_err(Error::into_failure)?;
        let app = app_of(&status, &order.app)?;
        let signal = signal_of(&client, app).await?;
        let told = chosen(app, order.instance.as_deref())?;
        client.note_done_here(app.name.as_str(), "reload").await.map_err(Error::into_failure)?;
        for (instance, _) in &told {
            weal_node::signal_instance(&state.root, &app.name, instance, signal)?;
        }
        if json {
            let instances: Vec<&InstanceId> = told.iter().map(|(instance, _)| instance).collect();
            return output::json(&json!({ "app": app.name, "signal": signal, "instances": instances }), false);
        }
        output::print(&said(app, signal, &told));
        Ok(())
    })
}

/// # Errors
/// Its config has none.
async fn signal_of(client: &Client, app: &AppStatus) -> anyhow::Result<ProcessSignal> {
    let config = client.config().await.map_err(Error::into_failure)?;
    let spec = config.spec.as_ref().and_then(|spec| spec.apps.get(&app.name));
    let name = &app.name;
    spec.and_then(|spec| spec.process.reload_signal).ok_or_else(|| {
        let message = format!(
            "{name} has no `reload-signal` in its config: name the signal there, such as \"SIGHUP\", or `weal restart {name}` replaces its instances"
        );
        Failure::new(Exit::Failed, message).into()
    })
}

/// The instances that get the signal, each with whether it takes it at once. One that starts reads its config anyway, and a program that
/// has no handler yet would be ended; one that ends has no use for it.
fn chosen(app: &AppStatus, wanted: Option<&str>) -> Result<Vec<(InstanceId, bool)>, Failure> {
    let running = app.instances.iter().filter_map(|instance| match instance.state {
        InstanceState::Ready | InstanceState::Unhealthy => Some((instance.id.clone(), true)),
        state if state.rung().is_some() => Some((instance.id.clone(), false)),
        _ => None,
    });
    let told: Vec<_> = running.filter(|(id, _)| wanted.is_none_or(|wanted| id.as_str() == wanted)).collect();
    if told.is_empty() {
        let whom = wanted.map_or_else(|| "no instance".to_owned(), |wanted| format!("no instance {wanted}"));
        return Err(Failure::new(Exit::Failed, format!("{} has {whom} that runs (it is {})", app.name, app.state)));
    }
    Ok(told)
}

fn said(app: &AppStatus, signal: ProcessSignal, told: &[(InstanceId, bool)]) -> String {
    let list = |awake: bool| -> Vec<&str> {
        told.iter().filter(|(_, is_awake)| *is_awake == awake).map(|(id, _)| id.as_str()).collect()
    };
    let (awake, asleep) = (list(true), list(false));
    let mut text = String::new();
    if !awake.is_empty() {
        text.push_str(&format!("{}: {} sent to {}\n", app.name, signal.as_str(), awake.join(", ")));
    }
    if !asleep.is_empty() {
        text.push_str(&format!("{}: {} waits for {} to wake\n", app.name, signal.as_str(), asleep.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(states: &[&str]) -> AppStatus {
        let instance = |(number, state): (usize, &&str)| {
            serde_json::json!({
                "id": format!("shop-{}", number + 1), "node": "n1", "state": state, "detail": "", "since": 0, "pid": 1, "address": "",
                "cpu_used": 0.0, "cpu_allocated": 0.0, "memory_used": 0, "swap_used": 0, "in_flight": 0, "restarts": 0, "last_wake_ms": null
            })
        };
        let instances: Vec<_> = states.iter().enumerate().map(instance).collect();
        serde_json::from_value(serde_json::json!({
            "name": "shop", "state": "ready", "detail": "", "min": 1, "max": 4, "cpu_used": 0.0, "cpu_demand": 0.0, "cpu_allocated": 0.0,
            "utility": null, "instances": instances
        }))
        .unwrap()
    }

    #[test]
    fn who_runs_gets_the_signal_and_who_starts_or_ends_does_not() {
        let shop = app(&["ready", "starting", "parked", "stopping", "unhealthy"]);
        let told = chosen(&shop, None).unwrap();
        assert_eq!(
            said(&shop, ProcessSignal::Hup, &told),
            "shop: SIGHUP sent to shop-1, shop-5\nshop: SIGHUP waits for shop-3 to wake\n"
        );
        assert_eq!(chosen(&shop, Some("shop-5")).unwrap(), [("shop-5".into(), true)]);
        let refused = |wanted| chosen(&shop, wanted).unwrap_err().to_string();
        assert_eq!(refused(Some("shop-2")), "shop has no instance shop-2 that runs (it is ready)");
        assert_eq!(chosen(&app(&[]), None).unwrap_err().to_string(), "shop has no instance that runs (it is ready)");
    }
}
