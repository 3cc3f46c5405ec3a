//! When to ask the node agent for an instance, and for which.
//!
//! ```text
//! something waits, nothing is open:             ask for one of those that may be woken, or for any
//! something has waited for too long (a crowd):  ask for one of those that stand by
//! a call is under way, or a pause lasts:        ask for nothing
//! refused:                                      pause; pause <- min(2 pause, LONGEST_PAUSE)
//! answered, or nothing needs an instance:       pause <- FIRST_PAUSE
//! a config comes:                               the pause is over, for the config may have changed what the agent can do
//! ```

use std::time::Duration;

use weal_model::{AppName, InstanceId, LatencyHistogram, Time};
use weal_protocol::gateway::{ClusterCounters, PortCounters, Standby};

use crate::flow::crowd;

/// How long the node agent may take for one call. A start may take longer: then the call is repeated, and meanwhile something else may
/// have helped. Much shorter would repeat calls for nothing.
pub const CALL_WAIT: Duration = Duration::from_secs(10);
/// Between a refusal and the next call, doubled with each further refusal: there may be nothing to wake until the controller has started
/// an instance, and that takes longer than this.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// A second of waiting more is little against a start, and a call a second is nothing for the agent.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What an instance is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeReason {
    /// Requests wait, and no instance is open.
    NothingOpen,
    /// Requests have waited for too long, although instances are open.
    Crowd,
}

impl WakeReason {
    /// For people: who is waiting.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NothingOpen => "a request",
            Self::Crowd => "a crowd",
        }
    }
}

/// What is being done about requests that wait for an instance.
#[derive(Debug)]
pub(super) struct Wakes {
    crowd: crowd::Watch,
    /// The instances that may be woken, unless all may.
    wakeable: Option<Vec<InstanceId>>,
    /// The call that is under way.
    call: Option<Call>,
    /// Nothing is asked for before: a call was refused.
    not_before: Time,
    /// How long nothing is asked for after the next refusal. Invariant: from [`FIRST_PAUSE`] to [`LONGEST_PAUSE`].
    pause: Duration,
    /// Since when nothing is open for those who wait.
    nothing_open_since: Option<Time>,
    wakes: u64,
    crowd_wakes: u64,
    failures: u64,
    waits: LatencyHistogram,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    reason: WakeReason,
    /// A config came since: a refusal says nothing about what may be woken now.
    outdated: bool,
}

impl Wakes {
    pub fn new() -> Self {
        Self {
            crowd: crowd::Watch::default(),
            wakeable: None,
            call: None,
            not_before: Time::ZERO,
            pause: FIRST_PAUSE,
            nothing_open_since: None,
            wakes: 0,
            crowd_wakes: 0,
            failures: 0,
            waits: LatencyHistogram::default(),
        }
    }

    pub fn configure(&mut self, standby: Option<&Standby>, wakeable: Option<&[InstanceId]>) {
        self.crowd.configure(standby);
        self.wakeable = wakeable.map(<[_]>::to_vec);
        self.not_before = Time::ZERO;
        if let Some(call) = &mut self.call {
            call.outdated = true;
        }
    }

    /// A call is under way, or a pause lasts.
    pub fn is_busy(&self, now: Time) -> bool {
        self.call.is_some() || now < self.not_before
    }

    /// The instances of which one is needed now, where none stands for any. The call counts as under way from now on. Only to be asked
    /// when it is not busy.
    pub fn poll(
        &mut self,
        now: Time,
        any_waits: bool,
        any_open: bool,
        oldest_wait: impl FnOnce() -> Duration,
    ) -> Option<Vec<InstanceId>> {
        let need = if any_waits { self.need(now, any_open, oldest_wait) } else { None };
        let Some((reason, instances)) = need else {
            (self.nothing_open_since, self.pause) = (None, FIRST_PAUSE);
            return None;
        };
        let nothing_open = reason == WakeReason::NothingOpen;
        self.nothing_open_since = nothing_open.then(|| self.nothing_open_since.unwrap_or(now));
        self.call = Some(Call { reason, outdated: false });
        Some(instances)
    }

    fn need(&self, now: Time, any_open: bool, oldest_wait: impl FnOnce() -> Duration) -> Option<(WakeReason, Vec<InstanceId>)> {
        if any_open {
            return Some((WakeReason::Crowd, self.crowd.poll(now, oldest_wait)?.to_vec()));
        }
        match &self.wakeable {
            None => Some((WakeReason::NothingOpen, Vec::new())),
            Some(wakeable) => (!wakeable.is_empty()).then(|| (WakeReason::NothingOpen, wakeable.clone())),
        }
    }

    /// When to look at those who wait although nothing has come in. `can_be_late`: some wait although an instance is open.
    pub fn poll_timeout(&self, now: Time, can_be_late: bool, oldest_wait: impl FnOnce() -> Duration) -> Option<Time> {
        if self.call.is_some() {
            return None;
        }
        if now < self.not_before {
            return Some(self.not_before);
        }
        if can_be_late { self.crowd.poll_timeout(now, oldest_wait) } else { None }
    }

    /// The call was answered. What it was for, when the instance may be used.
    pub fn handle_woken(&mut self, now: Time, instance: &InstanceId) -> Option<WakeReason> {
        if self.wakeable.as_ref().is_some_and(|wakeable| !wakeable.contains(instance)) {
            self.handle_refused(now);
            return None;
        }
        let Call { reason, .. } = self.call.take()?;
        self.pause = FIRST_PAUSE;
        self.wakes += 1;
        match reason {
            WakeReason::NothingOpen => {
                if let Some(since) = self.nothing_open_since {
                    self.waits.record(now.since(since));
                }
            }
            WakeReason::Crowd => {
                self.crowd_wakes += 1;
                self.crowd.handle_woken(now, instance);
            }
        }
        Some(reason)
    }

    pub fn handle_refused(&mut self, now: Time) {
        let Some(call) = self.call.take() else { return };
        self.failures += 1;
        if call.reason == WakeReason::Crowd {
            self.crowd.handle_failure(now);
        }
        if !call.outdated {
            self.not_before = now + self.pause;
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    pub fn counters(&self, app: &AppName) -> ClusterCounters {
        ClusterCounters {
            ports: PortCounters::default(),
            seats_lent: 0,
            app: app.clone(),
            wakes: self.wakes,
            crowd_wakes: self.crowd_wakes,
            wake_failures: self.failures,
            wake_wait: self.waits.clone(),
        }
    }
}
