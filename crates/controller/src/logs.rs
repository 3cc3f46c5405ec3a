//! Lines of several logs as one, by the times at which they came. `weal logs` uses it without a controller when no pool runs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;

use weal_model::{InstanceId, Time};
use weal_protocol::controller::LogLine;
use weal_protocol::node::{LogSource, LogsChunk, LogsRequest};

/// The most lines that are handed out at once.
pub const MOST_LINES: u32 = 100_000;
/// The most bytes of them: what is merged stands in memory.
const MOST_BYTES: usize = 32 << 20;

/// A piece of a log that is being read.
pub type Reading<E> = Pin<Box<dyn Future<Output = Result<LogsChunk, E>> + Send>>;
/// Reads a piece of a log.
pub type ReadPiece<E> = dyn Fn(LogsRequest) -> Reading<E> + Send + Sync;

/// Where to begin in logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// So many lines before the end, of all logs together; at most [`MOST_LINES`].
    pub tail: u32,
    /// With no line that is older.
    pub since: Option<Time>,
}

/// Lines up to now, and from where to go on.
#[derive(Debug)]
pub struct Merged {
    /// Ascending by time.
    pub lines: VecDeque<LogLine>,
    /// Each log that can be read, with the place behind its last line.
    pub places: Vec<(LogSource, Option<String>)>,
}

/// The last lines of all `sources`, as `read` gives them piece by piece. A log that cannot be read says so in a line of its own.
pub async fn merged<E: Display>(read: &ReadPiece<E>, sources: Vec<LogSource>, begin: Begin) -> Merged {
    let begin = Begin { tail: begin.tail.min(MOST_LINES), ..begin };
    let mut logs: Vec<Log> = sources.into_iter().map(Log::new).collect();
    let mut next = BinaryHeap::new();
    for (index, log) in logs.iter_mut().enumerate() {
        next.extend(log.peek(read, begin).await.map(|time| Reverse((time, index))));
    }
    let mut last = LastLines::new(begin.tail);
    while let Some(Reverse((_, index))) = next.pop() {
        let log = &mut logs[index];
        last.push(log.lines.pop_front());
        next.extend(log.peek(read, begin).await.map(|time| Reverse((time, index))));
    }
    let places = logs.into_iter().filter(|log| !log.has_failed).map(|log| (log.source, log.cursor)).collect();
    Merged { lines: last.lines, places }
}

/// The lines of a chunk, each with its time.
pub fn lines_of(instance: &InstanceId, chunk: &LogsChunk) -> Vec<LogLine> {
    let mut times = chunk.times.iter().peekable();
    let mut time = None;
    let line = |(number, text): (usize, &str)| {
        while let Some(entry) = times.next_if(|entry| entry.line as usize <= number) {
            time = Some(entry.time);
        }
        LogLine { time, instance: instance.clone(), line: text.to_owned() }
    };
    if chunk.text.is_empty() {
        return Vec::new();
    }
    // `str::lines` would take a carriage return away.
    let text = chunk.text.strip_suffix('\n').unwrap_or(&chunk.text);
    text.split('\n').enumerate().map(line).collect()
}

/// One log while it is merged.
struct Log {
    source: LogSource,
    cursor: Option<String>,
    lines: VecDeque<LogLine>,
    is_read: bool,
    has_failed: bool,
    /// The time of its last line: clocks are set back, and lines of a log never change their order.
    time: Time,
}

impl Log {
    fn new(source: LogSource) -> Self {
        Self { source, cursor: None, lines: VecDeque::new(), is_read: false, has_failed: false, time: Time::ZERO }
    }

    /// When its next line came; `None` at its end.
    async fn peek<E: Display>(&mut self, read: &ReadPiece<E>, begin: Begin) -> Option<Time> {
        while self.lines.is_empty() && !self.is_read {
            self.read_on(read, begin).await;
        }
        let next = self.lines.front()?;
        self.time = self.time.max(next.time.unwrap_or_default());
        Some(self.time)
    }

    async fn read_on<E: Display>(&mut self, read: &ReadPiece<E>, begin: Begin) {
        let (instance, ended) = (self.source.instance.clone(), self.source.ended);
        let cursor = self.cursor.clone();
        let request = LogsRequest { instance, cursor, tail_lines: begin.tail, wait_s: 0.0, since: begin.since, ended };
        match read(request).await {
            Ok(chunk) => {
                self.is_read = chunk.text.is_empty();
                self.lines.extend(lines_of(&self.source.instance, &chunk));
                self.cursor = Some(chunk.next);
            }
            Err(error) => {
                (self.is_read, self.has_failed) = (true, true);
                let line = format!("[weal: no more lines: {error}]");
                self.lines.push_back(LogLine { time: None, instance: self.source.instance.clone(), line });
            }
        }
    }
}

/// The last so many of the lines that come.
struct LastLines {
    most: usize,
    bytes: usize,
    lines: VecDeque<LogLine>,
}

impl LastLines {
    fn new(most: u32) -> Self {
        Self { most: most as usize, bytes: 0, lines: VecDeque::new() }
    }

    fn push(&mut self, line: Option<LogLine>) {
        self.bytes += line.as_ref().map_or(0, |line| line.line.len());
        self.lines.extend(line);
        while self.lines.len() > self.most || self.bytes > MOST_BYTES {
            self.bytes -= self.lines.pop_front().map_or(self.bytes, |line| line.line.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weal_protocol::node::LineTime;

    use super::*;

    /// Logs of lines with their seconds, of which each read gives two.
    #[derive(Clone)]
    struct Logs(BTreeMap<&'static str, Vec<(&'static str, u64)>>);

    impl Logs {
        fn read(&self, request: LogsRequest) -> Result<LogsChunk, String> {
            let log = self.0.get(request.instance.as_str()).ok_or("gone")?;
            let begin = request.cursor.map_or(0, |cursor| cursor.parse().unwrap());
            let end = log.len().min(begin + 2);
            let text = log[begin..end].iter().map(|(text, _)| format!("{text}\n")).collect();
            let time =
                |(line, (_, second)): (usize, &(_, u64))| LineTime { line: line as u32, time: Time(second * 1_000_000_000) };
            let times = log[begin..end].iter().enumerate().map(time).collect();
            Ok(LogsChunk { text, next: end.to_string(), times, is_over: false })
        }

        async fn merged(&self, names: &[&str], tail: u32) -> Merged {
            let sources = names.iter().map(|name| LogSource { instance: (*name).into(), ended: None }).collect();
            let logs = self.clone();
            let read = move |request| -> Reading<String> { Box::pin(std::future::ready(logs.read(request))) };
            merged(&read, sources, Begin { tail, since: None }).await
        }
    }

    fn texts(merged: &Merged) -> Vec<&str> {
        merged.lines.iter().map(|line| line.line.as_str()).collect()
    }

    fn two() -> Logs {
        Logs(BTreeMap::from([
            ("shop-1", vec![("a", 1), ("d", 4), ("e", 5)]),
            ("shop-2", vec![("b", 2), ("c", 3), ("f", 6), ("set back", 2), ("g", 7)]),
        ]))
    }

    #[tokio::test]
    async fn lines_come_by_time_and_the_tail_is_of_all_logs_together() {
        let all = two().merged(&["shop-1", "shop-2"], 100).await;
        assert_eq!(texts(&all), ["a", "b", "c", "d", "e", "f", "set back", "g"]);
        let last = two().merged(&["shop-1", "shop-2"], 3).await;
        assert_eq!(texts(&last), ["f", "set back", "g"]);
        let places: Vec<&str> = last.places.iter().filter_map(|(_, cursor)| cursor.as_deref()).collect();
        assert_eq!(places, ["3", "5"], "all was read, whatever of it is shown");
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_read_says_so_beside_the_others() {
        let all = two().merged(&["shop-1", "shop-9"], 100).await;
        assert_eq!(texts(&all), ["[weal: no more lines: gone]", "a", "d", "e"]);
        assert_eq!(all.places.len(), 1);
    }
}
