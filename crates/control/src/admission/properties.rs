//! What must hold whatever comes in, in whatever order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weal_protocol::gateway::Standby;

use super::tests::{at, config};
use super::*;

/// What may come in. Numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Arrive,
    End { which: usize, attempt: Attempt },
    Retry { which: usize },
    Refused { which: usize },
    Connect { which: usize },
    Cancel { which: usize },
    Pass { ms: u64 },
    Configure { seats: Option<u32>, open: BTreeSet<u32>, standby: bool, wakeable: Option<BTreeSet<u32>> },
    Answer { number: u32 },
    Refuse,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let numbers = || proptest::collection::btree_set(1..4u32, 0..3);
    let attempt = prop_oneof![Just(Attempt::Answered), Just(Attempt::Broken), Just(Attempt::Refused)];
    let step = prop_oneof![
        6 => Just(Step::Arrive),
        3 => (any::<usize>(), attempt).prop_map(|(which, attempt)| Step::End { which, attempt }),
        1 => any::<usize>().prop_map(|which| Step::Retry { which }),
        2 => any::<usize>().prop_map(|which| Step::Refused { which }),
        1 => any::<usize>().prop_map(|which| Step::Connect { which }),
        1 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        3 => (1..400u64).prop_map(|ms| Step::Pass { ms }),
        1 => (proptest::option::of(0..5u32), numbers(), any::<bool>(), proptest::option::weighted(0.3, numbers()))
            .prop_map(|(seats, open, standby, wakeable)| Step::Configure { seats, open, standby, wakeable }),
        1 => (1..6u32).prop_map(|number| Step::Answer { number }),
        1 => Just(Step::Refuse),
    ];
    proptest::collection::vec(step, 1..200)
}

/// A caller, with all that it was told.
struct Caller {
    admission: Admission,
    /// What is in force of the last config: when a crowd is late, and whether some may be woken.
    standby: bool,
    ms: u64,
    waiting: BTreeMap<Ticket, u64>,
    /// Of each ticket that was given, when.
    given: BTreeMap<Ticket, u64>,
    outstanding: BTreeMap<Ticket, InstanceIndex>,
    arrived: u64,
    rejected: u64,
    ended: u64,
    /// True once an instance refused a connection: it is tried again without being asked to.
    has_refused: bool,
    calling: bool,
    calls: u64,
    answers: u64,
}

const AFTER_MS: u64 = 100;

impl Caller {
    fn new() -> Self {
        let mut admission = Admission::new("shop".into(), 1);
        admission.handle_config(at(0), &config(Some(2), &[1]));
        Self {
            admission,
            standby: false,
            ms: 0,
            waiting: BTreeMap::new(),
            given: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            arrived: 0,
            rejected: 0,
            ended: 0,
            has_refused: false,
            calling: false,
            calls: 0,
            answers: 0,
        }
    }

    fn now(&self) -> Time {
        at(self.ms)
    }

    fn outstanding(&self, which: usize) -> Option<(Ticket, InstanceIndex)> {
        self.outstanding.iter().nth(which % self.outstanding.len().max(1)).map(|(&ticket, &instance)| (ticket, instance))
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        let now = self.now();
        match step {
            Step::Arrive => {
                let class = self.admission.class(&"gold".into()).unwrap();
                self.arrived += 1;
                match self.admission.handle_arrival(now, class) {
                    Ok(ticket) => {
                        prop_assert!(self.given.insert(ticket, self.ms).is_none(), "a ticket is given once");
                        self.waiting.insert(ticket, self.ms);
                    }
                    Err(_) => self.rejected += 1,
                }
            }
            Step::End { which, attempt } => {
                let Some((ticket, _)) = self.outstanding(which) else { return Ok(()) };
                self.has_refused |= attempt == Attempt::Refused;
                prop_assert!(self.admission.handle_end(now, ticket, attempt, RequestOutcome::Served));
                prop_assert!(!self.admission.handle_end(now, ticket, attempt, RequestOutcome::Served), "never twice");
                self.outstanding.remove(&ticket);
                self.ended += 1;
            }
            Step::Retry { which } => {
                let Some((ticket, instance)) = self.outstanding(which) else { return Ok(()) };
                match self.admission.handle_retry(now, ticket, Attempt::Broken, &[instance]) {
                    Some(other) => {
                        prop_assert_ne!(other, instance);
                        self.outstanding.insert(ticket, other);
                    }
                    None => {
                        prop_assert!(self.admission.handle_end(now, ticket, Attempt::Broken, RequestOutcome::Failed));
                        self.outstanding.remove(&ticket);
                        self.ended += 1;
                    }
                }
            }
            Step::Refused { which } => self.refuse_connection(which)?,
            Step::Connect { which } => {
                if let Some((ticket, _)) = self.outstanding(which) {
                    self.admission.handle_connection(ticket);
                }
            }
            Step::Cancel { which } => {
                let all: Vec<Ticket> = self.waiting.keys().chain(self.outstanding.keys()).copied().collect();
                let Some(&ticket) = all.get(which % all.len().max(1)) else { return Ok(()) };
                prop_assert!(self.admission.handle_cancel(now, ticket));
                prop_assert!(self.waiting.remove(&ticket).is_some() || self.outstanding.remove(&ticket).is_some());
                self.ended += 1;
            }
            Step::Pass { ms } => self.pass(ms)?,
            Step::Configure { seats, open, standby, wakeable } => {
                let mut config = config(seats, &open.into_iter().collect::<Vec<_>>());
                let named = |numbers: BTreeSet<u32>| numbers.into_iter().map(|number| format!("shop-{number}").into()).collect();
                config.request_timeout_s = 1.0;
                config.wakeable = wakeable.map(named);
                config.standby = standby.then(|| Standby { after_s: AFTER_MS as f64 / 1e3, instances: named([4, 5].into()) });
                self.standby = standby;
                self.admission.handle_config(now, &config);
            }
            Step::Answer { number } => {
                if std::mem::take(&mut self.calling) {
                    self.answers += 1;
                    let woken = self.admission.handle_woken(now, &format!("shop-{number}").into());
                    prop_assert!(woken.is_none() || self.admission.any_open());
                }
            }
            Step::Refuse => {
                if std::mem::take(&mut self.calling) {
                    self.answers += 1;
                    self.admission.handle_wake_refused(now);
                }
            }
        }
        Ok(())
    }

    /// An instance refuses the connection, and so do all others that are tried.
    fn refuse_connection(&mut self, which: usize) -> Result<(), TestCaseError> {
        let (now, Some((ticket, instance))) = (self.now(), self.outstanding(which)) else { return Ok(()) };
        prop_assert!(!self.admission.handle_refused(now, ticket, 0), "it is still at an instance");
        self.has_refused = true;
        let mut failed = vec![instance];
        while let Some(next) = self.admission.handle_retry(now, ticket, Attempt::Refused, &failed) {
            failed.push(next);
        }
        self.outstanding.remove(&ticket);
        if self.admission.handle_refused(now, ticket, 0) {
            prop_assert!(self.admission.is_queued(ticket) && self.admission.instance_of(ticket).is_none());
            self.waiting.insert(ticket, self.given[&ticket]);
        } else {
            prop_assert!(self.admission.handle_end(now, ticket, Attempt::Refused, RequestOutcome::Failed));
            self.ended += 1;
        }
        prop_assert!(!self.admission.handle_refused(now, ticket, 0), "it waits, or has ended");
        Ok(())
    }

    /// Time passes, and the caller asks whenever it was told to.
    fn pass(&mut self, ms: u64) -> Result<(), TestCaseError> {
        let until = self.ms + ms;
        loop {
            let now = self.now();
            let next = [self.admission.poll_timeout(), self.admission.poll_wake_timeout(now)].into_iter().flatten().min();
            if let Some(next) = next {
                prop_assert!(next > now, "it would ask again and again");
            }
            let Some(next) = next.filter(|next| *next < at(until)) else { break };
            self.ms = (next.0 - at(0).0).div_ceil(1_000_000);
            self.expire()?;
            self.ask()?;
        }
        self.ms = until;
        self.expire()
    }

    fn expire(&mut self) -> Result<(), TestCaseError> {
        for ticket in self.admission.handle_timeout(self.now()) {
            prop_assert!(self.waiting.remove(&ticket).is_some(), "only waiting requests expire");
            self.ended += 1;
        }
        Ok(())
    }

    /// Asks what goes out, and judges it.
    fn ask(&mut self) -> Result<(), TestCaseError> {
        let now = self.now();
        while let Some(Dispatched { ticket, instance }) = self.admission.poll_dispatch(now) {
            prop_assert!(self.waiting.remove(&ticket).is_some(), "only waiting requests are dispatched");
            prop_assert_eq!(self.admission.instance_of(ticket), Some(instance));
            self.outstanding.insert(ticket, instance);
        }
        prop_assert!(!self.admission.can_dispatch(now), "nothing waits beside a free seat and an open instance");
        if let Some(request) = self.admission.poll_wake(now) {
            prop_assert!(!self.calling, "one call at a time");
            prop_assert!(!self.waiting.is_empty(), "for nobody");
            if self.admission.any_open() {
                let oldest_ms = self.waiting.values().min().copied().unwrap_or(self.ms);
                prop_assert!(self.standby && self.ms - oldest_ms >= AFTER_MS, "a crowd has waited");
                prop_assert!(!request.instances.is_empty());
            }
            (self.calling, self.calls) = (true, self.calls + 1);
            prop_assert!(self.admission.poll_wake(now).is_none());
            prop_assert!(self.has_refused || self.admission.poll_wake_timeout(now).is_none());
        }
        prop_assert_eq!(self.admission.queued() as usize, self.waiting.len());
        prop_assert_eq!(self.admission.is_idle(), self.waiting.is_empty() && self.outstanding.is_empty());
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_ticket_ends_once_nothing_waits_for_nothing_and_one_wake_is_asked_for_at_a_time(steps in steps()) {
        let mut caller = Caller::new();
        for step in steps {
            caller.take(step)?;
            caller.ask()?;
        }
        let open = (caller.waiting.len() + caller.outstanding.len()) as u64;
        prop_assert_eq!(caller.arrived, caller.rejected + caller.ended + open);
        let (mut flows, mut instances) = (Vec::new(), Vec::new());
        let now = caller.now();
        let cluster = caller.admission.observe(now, &"gw".into(), &mut flows, &mut instances);
        let flow = &flows[0];
        prop_assert_eq!(flow.arrivals, flow.completions + flow.rejections + flow.errors + open);
        prop_assert_eq!(cluster.wakes + cluster.wake_failures, caller.answers);
        prop_assert_eq!(caller.calls, caller.answers + u64::from(caller.calling));
        let at_instances: u32 = instances.iter().map(|instance| instance.in_flight).sum();
        prop_assert_eq!(at_instances as usize, caller.outstanding.len());
    }

    #[test]
    fn calls_that_are_all_refused_come_less_and_less_often(span_ms in 0..20_000u64, gap_ms in 1..50u64) {
        let mut admission = Admission::new("shop".into(), 1);
        admission.handle_config(at(0), &config(None, &[]));
        let class = admission.class(&"gold".into()).unwrap();
        let mut calls = Vec::new();
        for ms in (0..=span_ms).step_by(gap_ms as usize) {
            if ms % 500 == 0 {
                let _ = admission.handle_arrival(at(ms), class);
            }
            if admission.poll_wake(at(ms)).is_some() {
                calls.push(ms);
                admission.handle_wake_refused(at(ms));
            }
        }
        let gaps: Vec<u64> = calls.windows(2).map(|pair| pair[1] - pair[0]).collect();
        prop_assert!(gaps.iter().zip([20, 40, 80, 160, 320, 640].into_iter().chain(std::iter::repeat(1000))).all(|(&gap, pause)| {
            gap >= pause && gap <= pause + 2 * gap_ms
        }), "{gaps:?}");
    }
}
