//! Spans of requests that have ended, until the supervisor fetches them for a collector.
//!
//! A request hands its span over and waits for nothing. When nobody fetches, as many wait as have room; what ends after them is dropped and
//! counted. So a collector that is away costs no request anything but the time to see that there is no room.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weal_model::{AppName, ClassName, GatewayName};
use weal_protocol::spans::{RequestSpan, SpanCounters, SpansQuery, SpansTaken};

use super::record::Record;

/// Spans that may wait: a second of a busy gateway whose every trace is sampled.
const MOST_WAITING: usize = 8192;
/// Bytes that they may hold together. Most spans hold a few hundred bytes; clients may send fields as long as to fill kilobytes.
const MOST_BYTES: usize = 8 << 20;
/// Bytes of spans in one answer, beyond which no further one is added. In JSON, none takes more than six times as many.
const MOST_TAKEN: usize = 2 << 20;

/// A queue with bounds.
#[derive(Debug)]
struct SpanQueue {
    waiting: VecDeque<Box<Record>>,
    /// Invariant: the sizes of those that wait.
    bytes: usize,
    most_waiting: usize,
    most_bytes: usize,
    counters: SpanCounters,
}

impl SpanQueue {
    fn new(most_waiting: usize, most_bytes: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, most_waiting, most_bytes, counters: SpanCounters::default() }
    }

    /// A request of a sampled trace has ended. Returns what finds no room.
    fn handle_ended(&mut self, record: Box<Record>) -> Option<Box<Record>> {
        self.counters.ended += 1;
        let size = record.size();
        if self.waiting.len() >= self.most_waiting || self.bytes + size > self.most_bytes {
            self.counters.dropped += 1;
            return Some(record);
        }
        self.bytes += size;
        self.waiting.push_back(record);
        None
    }

    /// The oldest: at most so many, and so many bytes with one more.
    fn poll_oldest(&mut self, most: usize, most_bytes: usize) -> VecDeque<Box<Record>> {
        let (mut count, mut bytes) = (0, 0);
        for record in self.waiting.iter().take(most) {
            if bytes >= most_bytes {
                break;
            }
            bytes += record.size();
            count += 1;
        }
        self.bytes -= bytes;
        self.waiting.drain(..count).collect()
    }
}

/// The queue of one gateway.
#[derive(Debug)]
pub(crate) struct Spans(Mutex<SpanQueue>);

impl Default for Spans {
    fn default() -> Self {
        Self(Mutex::new(SpanQueue::new(MOST_WAITING, MOST_BYTES)))
    }
}

impl Spans {
    /// Keeps a request's span, if there is room.
    pub fn push(&self, record: Box<Record>) {
        // What is dropped is freed when nobody waits for the queue any more.
        let dropped = self.queue().handle_ended(record);
        drop(dropped);
    }

    /// Hands the oldest over.
    pub fn take(&self, gateway: &GatewayName, query: SpansQuery) -> SpansTaken {
        let (taken, has_more) = {
            let mut queue = self.queue();
            (queue.poll_oldest(query.most as usize, MOST_TAKEN), !queue.waiting.is_empty())
        };
        let spans = taken.iter().filter_map(|record| span(record)).collect();
        SpansTaken { gateway: gateway.clone(), spans, has_more }
    }

    /// How many there were.
    pub fn counters(&self) -> SpanCounters {
        self.queue().counters
    }

    fn queue(&self) -> MutexGuard<'_, SpanQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a record says, of which a span was to be kept.
fn span(record: &Record) -> Option<RequestSpan> {
    let traced = record.traced.as_ref()?;
    let (trace, id, parent) = traced.context.digits();
    let flow = record.flow.as_deref().and_then(|flow| flow.split_once('/'));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(RequestSpan {
        trace,
        id,
        parent,
        begun: record.begun,
        ended: record.ended,
        app: flow.map(|(app, _)| AppName::from(app)),
        class: flow.map(|(_, class)| ClassName::from(class)),
        method: record.method.as_str().to_owned(),
        secure: traced.is_secure,
        host: text(&record.host),
        target: text(&record.target),
        version: version(record.version).to_owned(),
        status: record.status,
        reason: record.reason.map(str::to_owned),
        sent: record.sent,
        client: record.client,
        peer: traced.peer,
        agent: text(&record.agent),
        request_id: text(&record.id),
    })
}

fn version(version: http::Version) -> &'static str {
    match version {
        http::Version::HTTP_10 => "1.0",
        http::Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use weal_model::{AccessLog, Time};

    use super::*;
    use crate::http::origin::RequestIds;
    use crate::http::trace::TraceContext;
    use crate::telemetry::record::Traced;

    fn record(path: &str) -> Box<Record> {
        let request = http::Request::get(path).header("host", "shop.example:8080").body(()).unwrap();
        let id = HeaderValue::from_static("7");
        let mut record = Record::new(AccessLog::Off, &request, [192, 0, 2, 1].into(), Time(5), &id);
        let context = TraceContext::of(request.headers(), &RequestIds::new(7), 1.0);
        record.traced = Some(Traced { context, peer: ([192, 0, 2, 9], 4000).into(), is_secure: true });
        Box::new(record)
    }

    fn paths(records: &VecDeque<Box<Record>>) -> Vec<String> {
        records.iter().map(|record| span(record).unwrap().target).collect()
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_counted_and_the_oldest_are_taken_first() {
        let mut queue = SpanQueue::new(2, usize::MAX);
        let dropped: Vec<bool> = ["/1", "/2", "/3"].map(|path| queue.handle_ended(record(path)).is_some()).into();
        assert_eq!(dropped, [false, false, true]);
        assert_eq!(queue.counters, SpanCounters { ended: 3, dropped: 1 });
        assert_eq!(paths(&queue.poll_oldest(1, usize::MAX)), ["/1"]);
        assert!(queue.handle_ended(record("/4")).is_none(), "there is room again");
        assert_eq!(paths(&queue.poll_oldest(9, usize::MAX)), ["/2", "/4"]);
        assert_eq!((queue.bytes, paths(&queue.poll_oldest(9, usize::MAX))), (0, vec![]));
    }

    #[test]
    fn bytes_are_bounded_in_the_queue_and_in_what_is_taken_at_once() {
        let long = format!("/{}", "x".repeat(1000));
        let mut queue = SpanQueue::new(usize::MAX, 3 * record(&long).size());
        for _ in 0..5 {
            queue.handle_ended(record(&long));
        }
        assert_eq!((queue.waiting.len(), queue.counters.dropped), (3, 2));
        assert_eq!(queue.poll_oldest(9, 1000).len(), 1, "one that is larger than is asked for comes all the same");
        assert_eq!(queue.bytes, 2 * record(&long).size());
        assert!(queue.handle_ended(record("/")).is_none());
    }

    #[test]
    fn a_span_says_what_was_asked_and_what_came_of_it() {
        let mut one = record("/a?b");
        (one.status, one.sent, one.ended, one.flow, one.reason) = (503, 4, Time(9), Some("shop/gold".into()), Some("queue-full"));
        let span = span(&one).unwrap();
        assert_eq!((span.begun, span.ended, span.status, span.sent), (Time(5), Time(9), 503, 4));
        assert_eq!((span.host.as_str(), span.target.as_str(), span.version.as_str()), ("shop.example:8080", "/a?b", "1.1"));
        assert_eq!((span.app, span.class), (Some("shop".into()), Some("gold".into())));
        assert_eq!((span.reason.as_deref(), span.secure, span.parent), (Some("queue-full"), true, None));
    }
}
