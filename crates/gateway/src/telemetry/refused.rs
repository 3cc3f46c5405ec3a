//! The last requests that this gateway answered itself with an error, for whoever asks why.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use weal_model::{AppName, ClassName, OwnAnswer, RefusedRequest};

use crate::clock::Clock;
use crate::http::error_response::ErrorResponse;
use crate::routing::table::Destination;
use weal_protocol::gateway::{ErrorCounter, RefusedQuery};

/// How many are remembered: some seconds of a flow that is rejected a thousand times a second; about a megabyte.
const REMEMBERED: usize = 4096;

/// What is remembered.
#[derive(Debug)]
pub(crate) struct Refused {
    clock: Clock,
    /// In order of time.
    last: Mutex<VecDeque<RefusedRequest>>,
    /// All so far, by where they were to go and why they did not. There are some twenty reasons.
    counts: Mutex<BTreeMap<(Option<AppName>, OwnAnswer), u64>>,
}

impl Refused {
    pub fn new(clock: Clock) -> Self {
        Self { clock, last: Mutex::default(), counts: Mutex::default() }
    }

    /// Remembers a refusal, with how crowded it is where the request was to go.
    pub fn note(&self, id: &HeaderValue, refusal: &ErrorResponse, destination: Option<&Destination>) {
        let class = destination.and_then(|to| to.rules.flow.split_once('/')).map(|(_, class)| ClassName::from(class));
        let request = RefusedRequest {
            id: String::from_utf8_lossy(id.as_bytes()).into_owned(),
            time: self.clock.now(),
            app: destination.map(|to| to.cluster.app().clone()),
            class,
            status: refusal.status.as_u16(),
            reason: refusal.why,
            text: refusal.reason.clone(),
            crowd: destination.map(|to| to.cluster.crowd(to.class)),
        };
        *self.counts().entry((request.app.clone(), refusal.why)).or_default() += 1;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= REMEMBERED {
            last.pop_front();
        }
        last.push_back(request);
    }

    /// How many there were, by application and reason.
    pub fn counters(&self) -> Vec<ErrorCounter> {
        let counts = self.counts();
        counts.iter().map(|((app, reason), &count)| ErrorCounter { app: app.clone(), reason: *reason, count }).collect()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<(Option<AppName>, OwnAnswer), u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are asked for, newest first.
    pub fn last(&self, query: &RefusedQuery) -> Vec<RefusedRequest> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |request: &&RefusedRequest| {
            (query.app.is_none() || request.app == query.app) && query.id.as_ref().is_none_or(|id| request.id == *id)
        };
        last.iter().rev().filter(wanted).take(query.limit as usize).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_remembered_and_all_are_counted() {
        let refused = Refused::new(Clock::new());
        let count = REMEMBERED as u64 + 100;
        for number in 0..count {
            refused.note(&HeaderValue::from(number), &ErrorResponse::closed(OwnAnswer::ClientGone, "a test".to_owned()), None);
        }
        let last = refused.last(&RefusedQuery { limit: u32::MAX, ..RefusedQuery::default() });
        assert_eq!((last.len(), last[0].id.as_str()), (REMEMBERED, (count - 1).to_string().as_str()));
        assert_eq!(last[REMEMBERED - 1].id, "100", "the oldest make room");
        assert_eq!(refused.counters()[0].count, count);
    }
}
