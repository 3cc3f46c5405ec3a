//! How far each log was sent.
//!
//! A log belongs to an instance, and moves when the instance is taken away: what was sent of it before stays sent. Another instance of the same
//! name, later, has a log of its own. So each log is known by its instance and its end, and the logs of one instance are sent one after the other.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weal_model::{InstanceId, Time};
use weal_protocol::node::{LogSource, LogsChunk, LogsRequest};

/// The end of a run of a job that was taken away: its name is never used again.
const OF_RUN: Time = Time::ZERO;

/// The places.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Where to go on in the log of an instance that is sent now.
    open: BTreeMap<InstanceId, String>,
    /// Logs that were sent to their end.
    done: BTreeSet<(InstanceId, Time)>,
}

impl Places {
    /// Takes all that is there for sent. The answers to these requests say where each log that goes on stands.
    pub fn begin(&mut self, sources: &[LogSource]) -> Vec<LogsRequest> {
        self.done.extend(sources.iter().filter_map(|source| Some((source.instance.clone(), source.ended?))));
        self.requests(sources).into_iter().map(|request| LogsRequest { tail_lines: 0, ..request }).collect()
    }

    /// A request for what comes next in the first log of each instance that was not sent to its end. `sources` has ended ones first, the oldest
    /// first.
    pub fn requests(&self, sources: &[LogSource]) -> Vec<LogsRequest> {
        let mut asked = BTreeSet::new();
        let is_open = |source: &&LogSource| !self.done.contains(&key(&source.instance, source.ended));
        let first = sources.iter().filter(is_open).filter(|source| asked.insert(&source.instance));
        let request = |source: &LogSource| LogsRequest {
            instance: source.instance.clone(),
            cursor: self.open.get(&source.instance).cloned(),
            tail_lines: u32::MAX,
            wait_s: 0.0,
            since: None,
            ended: source.ended,
        };
        first.map(request).collect()
    }

    /// What was answered is sent.
    pub fn handle_sent(&mut self, request: &LogsRequest, chunk: &LogsChunk) {
        if chunk.is_over {
            self.open.remove(&request.instance);
            self.done.insert(key(&request.instance, request.ended));
        } else {
            self.open.insert(request.instance.clone(), chunk.next.clone());
        }
    }

    /// Forgets logs that are kept no more.
    pub fn prune(&mut self, sources: &[LogSource]) {
        let there: BTreeSet<_> = sources.iter().map(|source| key(&source.instance, source.ended)).collect();
        let names: BTreeSet<_> = sources.iter().map(|source| &source.instance).collect();
        self.done.retain(|log| there.contains(log));
        self.open.retain(|instance, _| names.contains(instance));
    }
}

fn key(instance: &InstanceId, ended: Option<Time>) -> (InstanceId, Time) {
    (instance.clone(), ended.unwrap_or(OF_RUN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(instance: &str, ended: Option<u64>) -> LogSource {
        LogSource { instance: instance.into(), ended: ended.map(Time) }
    }

    fn chunk(next: &str, is_over: bool) -> LogsChunk {
        LogsChunk { text: String::new(), next: next.to_owned(), times: Vec::new(), is_over }
    }

    /// Instance, end and place of each request.
    fn asked(places: &Places, sources: &[LogSource]) -> Vec<(String, Option<u64>, Option<String>)> {
        let requests = places.requests(sources).into_iter();
        requests.map(|one| (one.instance.to_string(), one.ended.map(|time| time.0), one.cursor)).collect()
    }

    fn entry(instance: &str, ended: Option<u64>, cursor: Option<&str>) -> (String, Option<u64>, Option<String>) {
        (instance.to_owned(), ended, cursor.map(str::to_owned))
    }

    #[test]
    fn what_was_there_before_is_not_sent_and_what_comes_is() {
        let mut places = Places::default();
        let sources = [source("shop-1", Some(5)), source("shop-2", None)];
        let begun = places.begin(&sources);
        assert_eq!((begun.len(), begun[0].tail_lines), (1, 0), "an ended log is not even read");
        places.handle_sent(&begun[0], &chunk("1:70", false));
        let later = [&sources[..], &[source("shop-3", None)]].concat();
        assert_eq!(asked(&places, &later), [entry("shop-2", None, Some("1:70")), entry("shop-3", None, None)]);
        assert_eq!(places.requests(&later)[1].tail_lines, u32::MAX, "a new one is sent whole");
    }

    #[test]
    fn a_log_is_sent_to_its_end_before_that_of_the_next_instance_of_its_name() {
        let mut places = Places::default();
        let live = [source("shop-1", None)];
        let request = places.requests(&live).remove(0);
        places.handle_sent(&request, &chunk("1:10", false));
        let moved = [source("shop-1", Some(5)), source("shop-1", Some(9)), source("shop-1", None)];
        for (ended, cursor) in [(Some(5), Some("1:10")), (Some(9), None), (None, None)] {
            assert_eq!(asked(&places, &moved), [entry("shop-1", ended, cursor)]);
            let request = places.requests(&moved).remove(0);
            places.handle_sent(&request, &chunk("9:9", ended.is_some()));
        }
        assert_eq!(asked(&places, &moved), [entry("shop-1", None, Some("9:9"))]);
    }

    #[test]
    fn a_run_of_a_job_is_done_with_its_end_and_known_until_it_is_kept_no_more() {
        let mut places = Places::default();
        let run = [source("job.sort-3.1", None)];
        let request = places.requests(&run).remove(0);
        places.handle_sent(&request, &chunk("1:10", false));
        assert_eq!(asked(&places, &run).len(), 1);
        places.handle_sent(&request, &chunk("1:10", true));
        assert_eq!(asked(&places, &run), []);
        let text = serde_json::to_string(&places).unwrap();
        assert_eq!(serde_json::from_str::<Places>(&text).unwrap(), places, "it is known to the next supervisor");
        places.prune(&run);
        assert_eq!(asked(&places, &run), []);
        places.prune(&[]);
        assert_eq!(places, Places::default());
    }
}
