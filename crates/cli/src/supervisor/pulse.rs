//! Whether a role still answers. A process can live and do nothing: it was stopped, or it hangs.

use std::time::{Duration, Instant};

use hyper::Method;
use tokio::sync::mpsc;
use weal_rpc::http::HttpClient;

use crate::role_name::RoleName;
use crate::state::StateDir;

/// How long a role may take for an answer. Any answer will do, also that there is no such call.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two calls.
const PAUSE: Duration = Duration::from_secs(1);
/// So many calls in a row without an answer, over at least [`STUCK_AFTER`], and the role is stuck. Counting calls keeps a role alive when it was
/// the supervisor or the whole machine that stood still.
const MOST_SILENT: u32 = 3;
/// A role that answers nothing for so long is replaced.
pub const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Whether `role` answers within `patience`.
pub async fn answers(state: &StateDir, role: RoleName, patience: Duration) -> bool {
    let client = HttpClient::new(state.socket(role));
    let call = client.send(Method::GET, "/", Vec::new());
    tokio::time::timeout(patience, call).await.is_ok_and(|answer| answer.is_ok())
}

/// The outcome of one call of the watchdog.
#[derive(Debug, Clone, Copy)]
pub struct Beat {
    /// Whom it called.
    pub role: RoleName,
    /// When the call began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Whether anything came back.
    pub has_answer: bool,
}

/// Calls every role each second, until the receiver is dropped.
pub fn watch(state: &StateDir) -> mpsc::UnboundedReceiver<Beat> {
    let (beats, receiver) = mpsc::unbounded_channel();
    for role in RoleName::ALL {
        let (state, beats) = (state.clone(), beats.clone());
        tokio::spawn(async move {
            while !beats.is_closed() {
                let began = Instant::now();
                let has_answer = answers(&state, role, PATIENCE).await;
                // Its receiver was dropped meanwhile, perhaps.
                let _ = beats.send(Beat { role, began, ended: Instant::now(), has_answer });
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    receiver
}

/// What is known of a role's answers.
#[derive(Debug, Default)]
pub struct Pulse {
    silent: u32,
    since: Option<Instant>,
}

impl Pulse {
    /// Takes the outcome of a call. True when the role is stuck; that is said once, and counted anew.
    pub fn handle(&mut self, beat: &Beat) -> bool {
        if beat.has_answer {
            *self = Self::default();
            return false;
        }
        self.silent += 1;
        let since = *self.since.get_or_insert(beat.began);
        let is_stuck = self.silent >= MOST_SILENT && beat.ended.duration_since(since) >= STUCK_AFTER;
        if is_stuck {
            *self = Self::default();
        }
        is_stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silence(start: Instant, from: u64, to: u64) -> Beat {
        let at = |seconds| start + Duration::from_secs(seconds);
        Beat { role: RoleName::Gateway, began: at(from), ended: at(to), has_answer: false }
    }

    #[test]
    fn a_role_is_stuck_when_it_answers_nothing_for_ten_seconds() {
        let (mut pulse, start) = (Pulse::default(), Instant::now());
        let found: Vec<bool> = [2, 5, 8, 11].into_iter().map(|end| pulse.handle(&silence(start, end - 2, end))).collect();
        assert_eq!(found, [false, false, false, true]);
    }

    #[test]
    fn an_answer_or_a_machine_that_stood_still_makes_no_role_stuck() {
        let (mut pulse, start) = (Pulse::default(), Instant::now());
        assert!([2, 5, 8].into_iter().all(|end| !pulse.handle(&silence(start, end - 2, end))));
        assert!(!pulse.handle(&Beat { has_answer: true, ..silence(start, 9, 10) }));
        assert!(!pulse.handle(&silence(start, 11, 13)) && !pulse.handle(&silence(start, 14, 500)), "two calls are not enough");
    }
}
