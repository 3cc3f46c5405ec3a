//! One module per command, or per family of commands. Each answers as text or, with `-o json`, in the shapes of
//! `weal_model`.

pub mod about;
pub mod config;
pub mod deploy;
pub mod doctor;
pub mod down;
pub mod events;
pub mod exec;
pub mod init;
pub mod instances;
pub mod jobs;
pub mod load;
pub mod logs;
pub mod recording;
pub mod rehearse;
mod rehearsed_jobs;
pub mod reload;
pub mod reproduce;
pub mod run;
mod script;
pub mod service;
pub mod simulate;
pub mod sleep;
mod stages;
pub mod stand_in;
pub mod status;
pub mod submit;
pub mod token;
pub mod top;
pub mod upgrade;
pub mod verbs;
pub mod wake;
pub mod what_if;
pub mod why;

use std::time::Duration;

use weal_model::{AppStatus, Status};

use crate::failure::{Exit, Failure};
use crate::output;

/// Between two showings with `--watch`: a flow cycle is at least as long.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs `once` and prints what it returns, each second anew with `watch`. On a terminal each showing takes the place of the
/// one before. A controller that is being started anew does not end the watch.
pub async fn show<F>(watch: bool, json: bool, once: impl Fn() -> F) -> anyhow::Result<()>
where
    F: Future<Output = Result<String, crate::client::Error>>,
{
    let in_place = watch && !json && output::is_terminal(output::Stream::Out);
    loop {
        let text = match once().await {
            Ok(text) => text,
            Err(error) if watch && error.is_passing() => format!("{error}\n"),
            Err(error) => return Err(error.into_failure().into()),
        };
        if in_place {
            output::clear();
        }
        output::print(&text);
        if !watch {
            return Ok(());
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The application of that name.
///
/// # Errors
/// There is none; says which there are.
pub fn app_of<'s>(status: &'s Status, name: &str) -> Result<&'s AppStatus, Failure> {
    status.apps.iter().find(|app| app.name.as_str() == name).ok_or_else(|| {
        let known: Vec<&str> = status.apps.iter().map(|app| app.name.as_str()).collect();
        let there = if known.is_empty() { "the pool has none".to_owned() } else { format!("there are {}", known.join(", ")) };
        Failure::new(Exit::Failed, format!("there is no application `{name}`: {there}"))
    })
}

/// `value` as JSON with a newline: on one line when more will follow.
pub fn json_text<T: serde::Serialize>(value: &T, compact: bool) -> String {
    let text = if compact { serde_json::to_string(value) } else { serde_json::to_string_pretty(value) };
    // The model's types have string keys only, which always become JSON.
    text.map_or_else(|error| format!("{{\"error\":\"{error}\"}}\n"), |text| crate::terminal::json(&text).into_owned() + "\n")
}
