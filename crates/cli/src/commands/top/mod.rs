//! `weal top`: the pool live in the terminal.
//!
//! | file | what it is |
//! | --- | --- |
//! | `state` | what is selected, opened and asked for: a state machine of keys and answers |
//! | `pages` | the page of one application, node or job |
//! | `sorted` | in which order the rows of each part stand |
//! | `screen`, `overview`, `app`, `node`, `job` | what is drawn |
//! | `draw` | what all of it is drawn with |
//!
//! This file has the terminal and the calls, and decides nothing.

mod app;
mod draw;
mod job;
mod node;
mod overview;
mod pages;
mod screen;
mod sorted;
mod state;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::crossterm::event;

use self::pages::{Detail, Wanted};
use self::state::{Look, Top};
use crate::args::PoolArgs;
use crate::client::{Client, Error, block_on};
use crate::failure::{Exit, Failure};
use crate::output::{Stream, is_terminal};
use crate::state::StateDir;
use crate::terminal;

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks at the keyboard: keys feel immediate.
const KEYS: Duration = Duration::from_millis(100);
/// Events that are shown, of all or of one application.
const EVENTS: u32 = 200;
/// Lines of output that are asked for: more than a screen has.
const TAIL: u32 = 500;

/// Runs it.
///
/// # Errors
/// No terminal (exit code 2), no pool (4).
pub fn run(target: &PoolArgs, json: bool) -> anyhow::Result<()> {
    if json || !is_terminal(Stream::Out) {
        return Err(Failure::new(Exit::Usage, "weal top needs a terminal: use weal status --watch -o json").into());
    }
    let client = Client::new(&StateDir::find(target)?).with_timeout(Duration::from_secs(2));
    block_on(async {
        let mut top = Top::default();
        let first = look(&client, &top.wanted()).await.map_err(Error::into_failure)?;
        top.handle_look(first);
        let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
        let ended = watch(&client, &mut top, &mut terminal).await;
        ratatui::restore();
        ended
    })
}

async fn watch(client: &Client, top: &mut Top, terminal: &mut ratatui::DefaultTerminal) -> anyhow::Result<()> {
    let mut looked = Instant::now();
    while !top.is_over() {
        terminal.draw(|frame| screen::draw(frame, top))?;
        if event::poll(KEYS)? {
            top.handle_event(&event::read()?);
        }
        if looked.elapsed() >= LOOK || top.asks_at_once() {
            looked = Instant::now();
            match look(client, &top.wanted()).await {
                Ok(look) => top.handle_look(look),
                Err(error) => top.handle_problem(error.to_string()),
            }
        }
    }
    Ok(())
}

async fn look(client: &Client, wanted: &Wanted) -> Result<Look, Error> {
    let (status, events) = (client.status().await?, client.events(None, EVENTS).await?);
    Ok(Look { status, events, detail: detail(client, wanted).await? })
}

async fn detail(client: &Client, wanted: &Wanted) -> Result<Option<Detail>, Error> {
    Ok(Some(match wanted {
        Wanted::Nothing => return Ok(None),
        Wanted::App { app, instance } => {
            let why = client.why(app.as_str(), None, 0).await?;
            // One that never started has no log, and that is no problem.
            let lines = client.log_lines(app, instance.as_ref(), TAIL).await.unwrap_or_default();
            Detail::App { why: Box::new(why), lines }
        }
        Wanted::Job(id) => {
            let job = client.job(id.as_str()).await?;
            // One that has not begun has no output.
            let bytes = client.job_output(id.as_str(), TAIL as usize).await.unwrap_or_default();
            let output = String::from_utf8_lossy(&bytes).lines().map(|line| terminal::visible(line).into_owned()).collect();
            Detail::Job { job: Box::new(job), output }
        }
    }))
}
