//! `weal logs APP`: what an application, or a role of weal, wrote.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use crate::args::{Logs, Target};
use crate::client::{Client, block_on, escape};
use crate::lines::LineBuffer;
use crate::output;
use crate::state::StateDir;
use crate::terminal;

/// Names that mean weal's own processes.
const OWN: [&str; 4] = ["gateway", "controller", "node", "supervisor"];
/// Between two looks at a role's log with `--follow`.
const AGAIN: Duration = Duration::from_millis(250);

/// Runs it.
pub fn run(order: &Logs, json: bool) -> anyhow::Result<()> {
    let target = Target { file: order.file.clone(), state: order.state.clone() };
    let state = StateDir::find(&target)?;
    if OWN.contains(&order.app.as_str()) {
        return own(&state.log(&order.app), order, json);
    }
    let client = Client::new(&state);
    let mut query = format!("/v1/apps/{}/logs?tail={}&follow={}", escape(&order.app), order.tail, order.follow);
    if let Some(instance) = &order.instance {
        query.push_str(&format!("&instance={}", escape(instance)));
    }
    let mut lines = Lines::new(json);
    block_on(async { client.stream(&query, |piece| lines.take(piece)).await.map_err(|error| error.into_failure().into()) })?;
    lines.end();
    Ok(())
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
    lines.take(tail(&text, order.tail as usize));
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
