//! `weal logs APP`: what an application, a job or a role of weal wrote.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use weal_controller::logs::{Begin, MOST_LINES, Reading, merged};
use weal_model::Time;
use weal_node::logbook::{LogError, Logbook};
use weal_protocol::controller::LogLine;
use weal_protocol::node::LogsRequest;

use super::json_text;
use crate::args::{Logs, PoolArgs};
use crate::client::{Client, Error, block_on, escape};
use crate::failure::{Exit, Failure};
use crate::lines::LineBuffer;
use crate::log_entry::Entry;
use crate::output;
use crate::state::StateDir;
use crate::terminal;
use crate::values;

/// Names that mean weal's own processes.
const OWN: [&str; 4] = ["gateway", "controller", "node", "supervisor"];
/// Between two looks at a role's log with `--follow`.
const AGAIN: Duration = Duration::from_millis(250);
/// Lines to begin with when nobody says how many or since when.
const USUAL_LINES: u32 = 100;

/// Runs it.
pub fn run(order: &Logs, json: bool) -> anyhow::Result<()> {
    let target = PoolArgs { file: order.file.clone(), state: order.state.clone() };
    let since = order.since.as_deref().map(|text| values::since(text, output::now(), output::zone())).transpose()?;
    let state = StateDir::find(&target)?;
    if OWN.contains(&order.app.as_str()) {
        return own(&state.log(&order.app), order, json);
    }
    let tail = order.tail.unwrap_or(if since.is_some() { MOST_LINES } else { USUAL_LINES });
    let (begin, shape) = (Begin { tail, since }, Shape { json, raw: order.raw });
    block_on(async {
        match from_controller(&Client::new(&state), order, begin, shape).await {
            Err(error @ Error::NotRunning { .. }) if !order.follow => kept(&state, order, begin, shape, error).await,
            other => other.map_err(|error| error.into_failure().into()),
        }
    })
}

async fn from_controller(client: &Client, order: &Logs, begin: Begin, shape: Shape) -> Result<(), Error> {
    let mut query = format!("/v1/apps/{}/logs?json=true&tail={}&follow={}", escape(&order.app), begin.tail, order.follow);
    query.extend(begin.since.map(|Time(nanoseconds)| format!("&since_ms={}", nanoseconds / 1_000_000)));
    query.extend(order.instance.as_ref().map(|instance| format!("&instance={}", escape(instance))));
    let (mut buffer, mut any) = (LineBuffer::default(), false);
    let mut print = |line: &[u8]| {
        any = true;
        shape.print_line(line);
    };
    client.stream(&query, |piece| buffer.take(piece, &mut print)).await?;
    if !any && !order.follow {
        say_nothing_came(order);
    }
    Ok(())
}

/// An empty answer could also be a mistake: says on standard error that there is nothing.
fn say_nothing_came(order: &Logs) {
    let who = order.instance.as_ref().unwrap_or(&order.app);
    let since = order.since.as_ref().map_or_else(String::new, |since| format!(" since {since}"));
    output::complain(&format!("{who} wrote nothing{since}"));
}

/// Reads what is on disk: no pool runs, or it cannot say anything at the moment.
async fn kept(state: &StateDir, order: &Logs, begin: Begin, shape: Shape, error: Error) -> anyhow::Result<()> {
    let book = Logbook::of_pool(&state.root);
    let mut sources = book.sources(&order.app);
    if sources.is_empty() {
        return Err(error.into_failure().into());
    }
    if let Some(instance) = &order.instance {
        let names: BTreeSet<String> = sources.iter().map(|source| source.instance.to_string()).collect();
        sources.retain(|source| source.instance.as_str() == instance);
        if sources.is_empty() {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!("{} has no log of an instance `{instance}`, but of {names}", order.app);
            return Err(Failure::new(Exit::Failed, message).into());
        }
    }
    let read = move |request: LogsRequest| -> Reading<LogError> { Box::pin(std::future::ready(book.read(&request))) };
    let lines = merged(&read, sources, begin).await.lines;
    lines.iter().for_each(|line| shape.print(line));
    if lines.is_empty() {
        say_nothing_came(order);
    }
    Ok(())
}

/// How lines are printed.
#[derive(Clone, Copy)]
struct Shape {
    json: bool,
    /// Nothing but what was written.
    raw: bool,
}

impl Shape {
    /// Prints what the controller sent as one line. It sends nothing but [`LogLine`]s; another version's are shown as they are.
    fn print_line(self, text: &[u8]) {
        match serde_json::from_slice::<LogLine>(text) {
            Ok(line) => self.print(&line),
            Err(_) => print(self.json, text),
        }
    }

    /// A person's terminal is sent nothing that would command it; a file or another program gets what was written as it is.
    fn print(self, line: &LogLine) {
        if self.json {
            output::write(terminal::json(&json_text(&Entry::of(line), true)).as_bytes());
        } else {
            let shown = if output::is_terminal(output::Stream::Out) { terminal::visible } else { terminal::unchanged };
            let text = if self.raw { shown(&line.line).into_owned() } else { Entry::of(line).text(shown) };
            output::write(format!("{text}\n").as_bytes());
        }
    }
}

/// Prints whole lines as pieces of them come; with `json` each as `{"line": …}`.
struct Lines {
    json: bool,
    buffer: LineBuffer,
}

impl Lines {
    fn new(json: bool) -> Self {
        Self { json, buffer: LineBuffer::default() }
    }

    fn take(&mut self, piece: &[u8]) {
        let json = self.json;
        self.buffer.take(piece, |line| print(json, line));
    }

    fn end(&mut self) {
        self.buffer.rest().iter().for_each(|line| print(self.json, line));
    }
}

/// A person's terminal is sent nothing that would command it; a file or another program gets the bytes as they are.
fn print(json: bool, line: &[u8]) {
    let text = String::from_utf8_lossy(line);
    if json {
        output::line(&terminal::json(&json!({ "line": text }).to_string()));
    } else if output::is_terminal(output::Stream::Out) {
        output::line(&terminal::visible(&text));
    } else {
        output::write(&[line, b"\n"].concat());
    }
}

fn own(path: &Path, order: &Logs, json: bool) -> anyhow::Result<()> {
    let mut file =
        std::fs::File::open(path).with_context(|| format!("cannot open {}: has this pool ever run?", path.display()))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let mut lines = Lines::new(json);
    lines.take(tail(&text, order.tail.unwrap_or(USUAL_LINES) as usize));
    if !order.follow {
        lines.end();
        return Ok(());
    }
    loop {
        std::thread::sleep(AGAIN);
        if file.metadata()?.len() < file.stream_position()? {
            // The supervisor cut it.
            file.seek(SeekFrom::Start(0))?;
        }
        text.clear();
        file.read_to_end(&mut text)?;
        lines.take(&text);
    }
}

/// The last `count` lines.
fn tail(text: &[u8], count: usize) -> &[u8] {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let mut ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    match count {
        0 => &[],
        count => &text[ends.nth(count - 1).unwrap_or(0)..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_counted_in_whole_lines() {
        assert_eq!(tail(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(tail(b"a\nb\nc", 1), b"c");
        assert_eq!(tail(b"a\n", 5), b"a\n");
        assert_eq!(tail(b"a\n", 0), b"");
    }
}
