//! `weal why`: what was decided about an application, a node or a request, and which number made it so.

use std::collections::BTreeMap;

use weal_model::{OwnAnswer, RefusedRequest, Why};

use super::{json_text, show};
use crate::args;
use crate::client::{Client, Error, block_on};
use crate::output::{Stream, Tone, paint};
use crate::state::StateDir;
use crate::supervisor::event_line;

/// Refused requests that are counted; so many are shown one by one.
const REFUSED: u32 = 500;
const SHOWN: usize = 5;

/// Runs it.
pub fn run(order: &args::Why, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    block_on(show(order.watch, json, async || answer(&client, order, json).await))
}

async fn answer(client: &Client, order: &args::Why, json: bool) -> Result<String, Error> {
    if let Some(id) = &order.request {
        let why = client.why_request(id).await?;
        return Ok(if json { json_text(&why, order.watch) } else { list(&why.sentences) });
    }
    // The parser lets nobody come here without one.
    let app = order.app.as_deref().unwrap_or_default();
    let why = client.why(app, order.node.as_deref(), if order.rejected { REFUSED } else { 0 }).await?;
    if json {
        return Ok(json_text(&why, order.watch));
    }
    Ok(match (&why.node, order.rejected) {
        (None, false) if order.more => render(&why),
        (None, false) => why.answer.join("\n") + "\n",
        (Some(node), false) => list(&node.sentences),
        (None, true) => refused(&why),
        (Some(node), true) => list(&node.sentences) + &refused(&why),
    })
}

fn list(sentences: &[String]) -> String {
    sentences.iter().map(|sentence| format!("- {sentence}\n")).collect()
}

fn render(why: &Why) -> String {
    let head = format!("{} {}", why.app, why.status.state.phrase());
    let detail = if why.status.detail.is_empty() { String::new() } else { format!(": {}", why.status.detail) };
    let mut text = format!("{}{detail}\n\n{}", paint(&head, Tone::Strong, Stream::Out), list(&why.sentences));
    if !why.events.is_empty() {
        text.push_str("\nlast events:\n");
        why.events.iter().take(8).for_each(|event| text.push_str(&format!("  {}\n", event_line(event))));
    }
    text
}

fn refused(why: &Why) -> String {
    let requests = &why.refused;
    let Some(last) = requests.first() else {
        return format!("- The gateway has refused no request of {} lately.\n", why.app);
    };
    let mut by_reason: BTreeMap<(OwnAnswer, u16), u32> = BTreeMap::new();
    for request in requests {
        *by_reason.entry((request.reason, request.status)).or_default() += 1;
    }
    let counts: Vec<String> = by_reason.iter().map(|((reason, status), count)| format!("{count} {reason} ({status})")).collect();
    let mut text = format!(
        "- Of the last requests that the gateway refused, {} {} for {}: {}.\n",
        requests.len(),
        if requests.len() == 1 { "was" } else { "were" },
        why.app,
        counts.join(", ")
    );
    text.extend(requests.iter().take(SHOWN).map(|request| format!("- {}\n", one(request))));
    text.push_str(&format!("\nweal why --request {} says more about the last one\n", last.id));
    text
}

fn one(request: &RefusedRequest) -> String {
    let class = request.class.as_ref().map(|class| format!(" ({class})")).unwrap_or_default();
    let crowd = request.crowd.map_or_else(String::new, |crowd| {
        let seats = crowd.seats.map_or_else(|| "no limit".to_owned(), |seats| seats.to_string());
        format!("; {} of {} waited, {} outstanding, seats: {seats}", crowd.queued, crowd.queue_limit, crowd.in_service)
    });
    format!("{}{class}: {}{crowd}", request.id, request.text)
}
