//! What becomes of a deploy, read from the status until it is done or has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weal_model::{AppKind, AppName, AppState, AppStatus, PoolSpec, RolloutPhase, Status};
use weal_protocol::controller::ConfigTaken;

use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::{self, Stream, Tone, paint};
use crate::terminal;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// So many of the last lines of an instance are shown that does not get ready.
const LAST_LINES: usize = 10;

/// How a deploy stands.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    UnderWay,
    Done,
    /// These do not get ready.
    Failed(Vec<AppName>),
    /// This version took its place.
    Overtaken(u64),
}

/// Applications that `after` has otherwise than `before`.
pub fn touched(before: Option<&PoolSpec>, after: &PoolSpec) -> BTreeSet<AppName> {
    let known = |name: &AppName| before.and_then(|before| before.apps.get(name));
    after.apps.values().filter(|app| known(&app.name) != Some(*app)).map(|app| app.name.clone()).collect()
}

/// Says how the applications come on until all are ready. The answer is the state of each that was touched.
///
/// # Errors
/// It failed, another one took its place (1), or it takes too long (5).
pub async fn until_done(
    client: &Client,
    taken: &ConfigTaken,
    touched: &BTreeSet<AppName>,
    timeout_s: u64,
    json: bool,
) -> anyhow::Result<BTreeMap<AppName, AppState>> {
    let deadline = Instant::now() + Duration::from_secs(timeout_s);
    let mut told: BTreeMap<AppName, String> = BTreeMap::new();
    loop {
        // A controller that is being started anew goes on with the deploy.
        let status = match client.status().await {
            Ok(status) => status,
            Err(error) if error.is_passing() && Instant::now() < deadline => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(error) => return Err(error.into_failure().into()),
        };
        if !json {
            print_changes(&status, touched, &mut told);
        }
        match outcome(&status, taken.generation, touched) {
            Outcome::Done => {
                let of = |app: &AppStatus| (app.name.clone(), app.state);
                return Ok(status.apps.iter().filter(|app| touched.contains(&app.name)).map(of).collect());
            }
            Outcome::Failed(apps) => return Err(failed(client, &status, &apps).await.into()),
            Outcome::Overtaken(by) => {
                let message = format!("version {by} took the place of version {} before it was done", taken.generation);
                return Err(Failure::new(Exit::Failed, message).into());
            }
            Outcome::UnderWay if Instant::now() >= deadline => {
                let message = format!("not done within {timeout_s} s, and still under way: {}", waited_for(&status, touched));
                return Err(Failure::new(Exit::TimedOut, message).into());
            }
            Outcome::UnderWay => tokio::time::sleep(LOOK).await,
        }
    }
}

fn outcome(status: &Status, generation: u64, touched: &BTreeSet<AppName>) -> Outcome {
    if status.config_generation < generation {
        return Outcome::UnderWay;
    }
    if status.config_generation > generation {
        return Outcome::Overtaken(status.config_generation);
    }
    let failed = status.apps.iter().filter(|app| has_failed(app, touched));
    let failed: Vec<AppName> = failed.map(|app| app.name.clone()).collect();
    if !failed.is_empty() {
        return Outcome::Failed(failed);
    }
    if status.apps.iter().all(|app| is_done(app, touched)) { Outcome::Done } else { Outcome::UnderWay }
}

/// While instances are replaced, one that failed may be of the version before.
fn has_failed(app: &AppStatus, touched: &BTreeSet<AppName>) -> bool {
    app.has_failed_deploy() || (touched.contains(&app.name) && app.state == AppState::Failed && app.rollout.is_none())
}

/// An application that was not touched may be as it is, but for a rollout that it is drawn into.
fn is_done(app: &AppStatus, touched: &BTreeSet<AppName>) -> bool {
    let is_out = app.rollout.as_ref().is_none_or(|rollout| rollout.phase == RolloutPhase::Draining);
    is_out && (app.state.is_settled() || (app.kind == AppKind::Service && !touched.contains(&app.name)))
}

fn print_changes(status: &Status, touched: &BTreeSet<AppName>, told: &mut BTreeMap<AppName, String>) {
    for app in status.apps.iter().filter(|app| touched.contains(&app.name) || app.rollout.is_some()) {
        let text = described(app);
        if told.insert(app.name.clone(), text.clone()).as_ref() != Some(&text) {
            output::line(&format!("  {:<16} {}", app.name.as_str(), paint(&text, Tone::Dim, Stream::Out)));
        }
    }
}

fn described(app: &AppStatus) -> String {
    match (&app.rollout, app.detail.as_str()) {
        (Some(rollout), _) => format!("{} new and {} old: {}", rollout.new, rollout.old, rollout.detail),
        (None, "") => app.state.to_string(),
        (None, detail) => format!("{}: {detail}", app.state),
    }
}

fn waited_for(status: &Status, touched: &BTreeSet<AppName>) -> String {
    let open = status.apps.iter().filter(|app| !is_done(app, touched));
    open.map(|app| format!("{} ({})", app.name, described(app))).collect::<Vec<_>>().join(", ")
}

/// Says why, with what the instances wrote last.
async fn failed(client: &Client, status: &Status, apps: &[AppName]) -> Failure {
    let mut rendered = String::new();
    for app in status.apps.iter().filter(|app| apps.contains(&app.name)) {
        rendered.push_str(&format!("{}: {}\n", paint(app.name.as_str(), Tone::Bad, Stream::Err), app.detail));
        for (instance, lines) in client.last_lines(app, LAST_LINES).await {
            rendered.push_str(&format!("  {instance} last wrote:\n"));
            lines.iter().for_each(|line| rendered.push_str(&format!("    {}\n", terminal::visible(line))));
        }
    }
    Failure { rendered, ..Failure::new(Exit::Failed, failure(status, apps)) }
}

fn failure(status: &Status, apps: &[AppName]) -> String {
    let names: Vec<&str> = apps.iter().map(AppName::as_str).collect();
    let is_served = status.apps.iter().filter(|app| apps.contains(&app.name)).all(AppStatus::is_served_by_former);
    let goes_on = if is_served { "; the version before still serves" } else { "" };
    format!("the deploy of {} failed{goes_on}: mend it and deploy again, or `weal rollback`", names.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Generation 4 with one application in this state.
    fn with(state: &str, phase: Option<RolloutPhase>) -> Status {
        let rollout = phase.map(|phase| json!({ "phase": phase, "old": 1, "new": 0, "detail": "why" }));
        let app = json!({ "name": "shop", "state": state, "detail": "", "rollout": rollout, "min": 1, "max": 1, "cpu_used": 0.0,
            "cpu_demand": 0.0, "cpu_allocated": 0.0, "utility": null, "instances": [] });
        let status = json!({ "pool": "p", "version": "0", "time": 0, "config_generation": 4, "config_error": null, "control": true,
            "listen": "", "api": "", "limits": [], "nodes": [], "apps": [app], "flows": [], "plan": null });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn a_deploy_is_done_when_the_new_instances_serve_though_old_ones_still_drain() {
        let touched = BTreeSet::from(["shop".into()]);
        let of = |state, phase| outcome(&with(state, phase), 4, &touched);
        assert_eq!(of("ready", None), Outcome::Done);
        assert_eq!(of("ready", Some(RolloutPhase::Draining)), Outcome::Done);
        assert_eq!(of("ready", Some(RolloutPhase::Starting)), Outcome::UnderWay);
        assert_eq!(of("degraded", Some(RolloutPhase::Stuck)), Outcome::Failed(vec!["shop".into()]));
        assert_eq!(of("failed", None), Outcome::Failed(vec!["shop".into()]));
        assert_eq!(of("failed", Some(RolloutPhase::Starting)), Outcome::UnderWay, "it may be the version before that failed");
        assert_eq!(of("failed", Some(RolloutPhase::Stuck)), Outcome::Failed(vec!["shop".into()]));
        assert_eq!(of("starting", None), Outcome::UnderWay);
    }

    #[test]
    fn a_failed_deploy_says_that_the_version_before_serves_only_while_it_does() {
        let told = |serving: u32| {
            let mut status = with("degraded", Some(RolloutPhase::Stuck));
            status.apps[0].rollout.as_mut().unwrap().serving = serving;
            failure(&status, &["shop".into()])
        };
        assert_eq!(
            told(1),
            "the deploy of shop failed; the version before still serves: mend it and deploy again, or `weal rollback`"
        );
        assert_eq!(told(0), "the deploy of shop failed: mend it and deploy again, or `weal rollback`");
    }

    #[test]
    fn what_was_not_touched_does_not_fail_a_deploy_and_another_deploy_ends_it() {
        let nothing = BTreeSet::new();
        assert_eq!(outcome(&with("failed", None), 4, &nothing), Outcome::Done);
        assert_eq!(outcome(&with("ready", None), 3, &nothing), Outcome::Overtaken(4));
        assert_eq!(outcome(&with("ready", None), 5, &nothing), Outcome::UnderWay);
    }
}
