//! `weal restart`, `stop`, `start`, `scale` and `keep-awake`: an order about one application, and the wait until it is carried out.

use weal_model::{AppState, AppStatus, AwakeBy, InstanceState};
use weal_protocol::controller::{AppOrdered, AppVerb};

use super::json_text;
use super::sleep::until;
use crate::args::deploy::{AppTarget, KeepAwake, Scale, Wanted};
use crate::client::{Client, block_on};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::state::StateDir;
use crate::values::long_span;

/// Runs `weal restart`.
///
/// # Errors
/// The new instances do not get ready; the old ones stay then.
pub fn restart(order: &AppTarget, json: bool) -> anyhow::Result<()> {
    carry_out(order, AppVerb::Restart, "restart", json, |app, ordered| {
        let is_old = |id| ordered.instances.contains(id);
        app.instances.iter().all(|instance| !is_old(&instance.id) || instance.state == InstanceState::Draining)
            && (has_enough(app) || app.state == AppState::Asleep)
    })
}

/// Runs `weal stop`.
pub fn stop(order: &AppTarget, json: bool) -> anyhow::Result<()> {
    carry_out(order, AppVerb::Stop, "stop", json, |app, _| app.instances.is_empty())
}

/// Runs `weal start`.
///
/// # Errors
/// It does not get ready.
pub fn start(order: &AppTarget, json: bool) -> anyhow::Result<()> {
    carry_out(order, AppVerb::Start, "start", json, |app, _| has_enough(app))
}

/// Runs `weal scale`.
///
/// # Errors
/// There is no room for so many, or they do not get ready.
pub fn scale(order: &Scale, json: bool) -> anyhow::Result<()> {
    let instances = match order.instances {
        Wanted::Config => None,
        Wanted::Range(range) => Some(range),
    };
    carry_out(&order.app, AppVerb::Scale { instances }, "scale", json, |app, ordered| {
        let is_known = (app.min, app.max) == (ordered.range.min, ordered.range.max);
        let running = app.instances.iter().filter(|instance| instance.state.is_active()).count();
        is_known && has_enough(app) && running <= app.max as usize
    })
}

/// Runs `weal keep-awake`.
///
/// # Errors
/// The duration is none, or no instance gets ready.
pub fn keep_awake(order: &KeepAwake, json: bool) -> anyhow::Result<()> {
    let for_s = if order.end { None } else { Some(long_span(&order.span)?.ceil() as u64) };
    carry_out(&order.app, AppVerb::KeepAwake { for_s }, "stay awake", json, |app, _| match for_s {
        Some(_) => app.kept_awake.is_some() && has_enough(app),
        None => app.kept_awake.is_none_or(|kept| kept.by != AwakeBy::Order),
    })
}

/// As many are ready as must be; an application that may have none needs none.
fn has_enough(app: &AppStatus) -> bool {
    let ready = app.instances.iter().filter(|instance| instance.state == InstanceState::Ready).count();
    app.rollout.is_none() && ready >= app.min as usize
}

fn carry_out(
    order: &AppTarget,
    verb: AppVerb,
    what: &str,
    json: bool,
    there: impl Fn(&AppStatus, &AppOrdered) -> bool,
) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    block_on(async {
        let ordered = client.order(&order.app, verb).await.map_err(|error| error.into_failure())?;
        let is_over = |_, app: &AppStatus| there(app, &ordered) || is_hopeless(app, verb);
        let app = until(&client, &order.app, order.timeout, what, is_over).await?;
        if !there(&app, &ordered) {
            return Err(Failure::new(Exit::Failed, format!("{} does not {what}: {}", app.name, reason(&app))).into());
        }
        output::print(&if json { json_text(&app, false) } else { said(&app) });
        Ok(())
    })
}

/// Waiting any longer is in vain. While instances are replaced, a failed one may be an old one.
fn is_hopeless(app: &AppStatus, verb: AppVerb) -> bool {
    let has_failed = match &app.rollout {
        Some(rollout) => rollout.phase == weal_model::RolloutPhase::Stuck,
        None => app.state == AppState::Failed,
    };
    verb != AppVerb::Stop && has_failed
}

/// Why it is as it is: while instances are replaced, what holds that up.
fn reason(app: &AppStatus) -> &str {
    app.rollout.as_ref().map_or(&app.detail, |rollout| &rollout.detail)
}

fn said(app: &AppStatus) -> String {
    let ids: Vec<&str> =
        app.instances.iter().filter(|instance| instance.state.is_active()).map(|instance| instance.id.as_str()).collect();
    let ids = if ids.is_empty() { String::new() } else { format!(" ({})", ids.join(", ")) };
    let awake = if app.kept_awake.is_some() { format!(": {}", app.detail) } else { String::new() };
    format!("{} {}{ids}{awake}\n", app.name, app.state.phrase())
}
