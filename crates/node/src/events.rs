//! What happened, for callers that wait for it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use weal_protocol::node::{EventsAfter, InstanceEvent};

/// So many events are kept. A caller that was away for longer reads the whole state by `observe` anyway.
const KEPT: usize = 4096;
/// The longest that a call waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The last events, numbered from 1 on.
#[derive(Debug, Default)]
pub struct Events {
    ring: Mutex<(u64, VecDeque<InstanceEvent>)>,
    news: Notify,
}

impl Events {
    /// Adds one; its id is given here.
    pub fn push(&self, event: InstanceEvent) {
        {
            let mut ring = self.ring.lock().expect("nothing panics while it is held");
            ring.0 += 1;
            let id = ring.0;
            if ring.1.len() == KEPT {
                ring.1.pop_front();
            }
            ring.1.push_back(InstanceEvent { id, ..event });
        }
        self.news.notify_waiters();
    }

    /// Those after the wanted one; waits if there is none yet.
    pub async fn after(&self, wanted: EventsAfter) -> Vec<InstanceEvent> {
        let wait = Duration::try_from_secs_f64(wanted.wait_s.max(0.0)).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // From here on nothing is missed, also not between looking and waiting.
            news.as_mut().enable();
            let found = self.now_after(wanted.after);
            if !found.is_empty() || tokio::time::timeout_at(deadline, news).await.is_err() {
                return found;
            }
        }
    }

    fn now_after(&self, after: u64) -> Vec<InstanceEvent> {
        let ring = self.ring.lock().expect("nothing panics while it is held");
        let after = if after > ring.0 { 0 } else { after };
        ring.1.iter().filter(|event| event.id > after).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use weal_model::{AppName, InstanceId, InstanceState, NodeName, Time};

    use super::*;

    fn event(detail: &str) -> InstanceEvent {
        InstanceEvent {
            id: 0,
            time: Time::ZERO,
            instance: InstanceId::from("a-1"),
            app: AppName::from("a"),
            node: NodeName::from("n"),
            state: InstanceState::Ready,
            detail: detail.into(),
            job: None,
        }
    }

    #[tokio::test]
    async fn a_waiting_caller_gets_the_next_event_and_a_future_id_counts_as_none() {
        let events = std::sync::Arc::new(Events::default());
        assert!(events.after(EventsAfter { after: 0, wait_s: 0.0 }).await.is_empty());
        let waiting = tokio::spawn({
            let events = events.clone();
            async move { events.after(EventsAfter { after: 0, wait_s: 60.0 }).await }
        });
        events.push(event("first"));
        let got = waiting.await.unwrap();
        assert_eq!((got[0].id, got[0].detail.as_str()), (1, "first"));
        assert!(events.after(EventsAfter { after: 1, wait_s: 0.0 }).await.is_empty());
        assert_eq!(events.after(EventsAfter { after: 99, wait_s: 0.0 }).await.len(), 1);
    }
}
