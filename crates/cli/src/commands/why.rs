//! `weal why APP`: what the last plan decided, and which number made it so.

use weal_model::Why;

use super::{json_text, show};
use crate::args;
use crate::client::{Client, block_on};
use crate::output::{Stream, Tone, paint};
use crate::state::StateDir;
use crate::supervisor::event_line;

/// Runs it.
pub fn run(order: &args::Why, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    block_on(show(order.watch, json, async || {
        let why = client.why(&order.app).await?;
        Ok(if json { json_text(&why, order.watch) } else { render(&why) })
    }))
}

fn render(why: &Why) -> String {
    let head = format!("{} is {}", why.app, why.status.state);
    let detail = if why.status.detail.is_empty() { String::new() } else { format!(": {}", why.status.detail) };
    let mut text = format!("{}{detail}\n\n", paint(&head, Tone::Strong, Stream::Out));
    for sentence in &why.sentences {
        text.push_str(&format!("- {sentence}\n"));
    }
    if !why.events.is_empty() {
        text.push_str("\nlast events:\n");
        why.events.iter().take(8).for_each(|event| text.push_str(&format!("  {}\n", event_line(event))));
    }
    text
}
