//! Who is told of each request's end.

use std::sync::Arc;

use super::access_log::AccessLogWriter;
use super::record::Record;
use super::spans::Spans;

/// The access log and the spans of one gateway.
#[derive(Debug)]
pub(crate) struct Ended {
    pub access_log: AccessLogWriter,
    pub spans: Spans,
}

impl Ended {
    /// Tells those whom the record is for. None of them is waited for.
    pub fn push(&self, record: Box<Record>) {
        match (record.is_logged(), record.traced.is_some()) {
            (true, true) => {
                self.spans.push(record.clone());
                self.access_log.push(record);
            }
            (true, false) => self.access_log.push(record),
            (false, true) => self.spans.push(record),
            (false, false) => {}
        }
    }
}

/// A request's record, and who gets it at the end.
pub(crate) type Recorded = (Box<Record>, Arc<Ended>);
