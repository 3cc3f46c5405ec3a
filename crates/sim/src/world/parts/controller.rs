//! The controller: the very [`Cycle`] of `weal up`, with its mailbox and what it has stored.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weal_control::cycle::{AppOrders, Config, Cycle, Done, Effect, Input, Marks, Order, StoredJobs};
use weal_control::jobs::Runs;
use weal_control::profile::Profiles;
use weal_model::{AppName, Cpu, InstanceId, JobName, JobRecord, Rung, SeatPlan, Time, naming};
use weal_protocol::engine::Revision;

use super::decisions::DecisionStep;

/// Versions whose instances end before they are ready begin so.
pub const BAD: &str = "bad-";

/// The controller, and what outlives it.
pub struct Controller {
    /// None while it is down.
    pub cycle: Option<Cycle>,
    pub config: Config,
    /// What it has stored.
    pub profiles: Profiles,
    pub resting: BTreeMap<AppName, Option<Rung>>,
    pub orders_kept: AppOrders,
    /// All jobs that were ever taken.
    pub records: BTreeMap<JobName, JobRecord>,
    pub runs: Runs,
    pub schedules: Marks,
    /// What each application was before its last deploy.
    before: BTreeMap<AppName, Revision>,
    /// Events up to here were noted by it.
    pub noted_until: Time,
    /// Answers and events that it has not taken yet.
    pub inbox: VecDeque<Input>,
    /// Events so far.
    pub events: u64,
    /// When it is to be called by itself; counts how often that has changed.
    pub wakes_at: Option<Time>,
    pub version: u64,
    /// Numbers of instances used before it ran.
    pub numbers: BTreeMap<AppName, u64>,
    /// Timers ring at multiples of it; zero: whenever they are due.
    pub timer_grain: Duration,
    /// Orders that somebody gives while it runs.
    pub orders: Vec<Order>,
    /// What it asked for before anything happened, and what happened since, where somebody wants to know.
    pub recorded: Option<(Vec<Effect>, Vec<DecisionStep>)>,
}

impl Controller {
    pub fn new(scenario: &weal_scenario::Scenario) -> Self {
        let revision = |app: &AppName| (app.clone(), Revision { start: "1".to_owned(), settings: "1".to_owned() });
        let revisions = scenario.pool.apps.keys().map(revision).collect();
        Self {
            cycle: None,
            config: Config { generation: 1, pool: Arc::new(scenario.pool.clone()), revisions },
            profiles: Profiles::default(),
            resting: BTreeMap::new(),
            orders_kept: AppOrders::default(),
            records: BTreeMap::new(),
            runs: Runs::default(),
            schedules: Marks::default(),
            before: BTreeMap::new(),
            noted_until: Time::ZERO,
            inbox: VecDeque::new(),
            events: 0,
            wakes_at: None,
            version: 0,
            numbers: BTreeMap::new(),
            timer_grain: Duration::ZERO,
            orders: Vec::new(),
            recorded: None,
        }
    }

    /// Its store has these from now on.
    pub fn keep_jobs(&mut self, records: Vec<JobRecord>) {
        self.records.extend(records.into_iter().map(|record| (record.spec.name.clone(), record)));
    }

    /// The jobs, as a controller that begins now finds them.
    pub fn stored_jobs(&self) -> StoredJobs {
        StoredJobs {
            records: self.records.values().cloned().collect(),
            highest: self.records.values().map(|record| record.number).max().unwrap_or(0),
            runs: self.runs.clone(),
            schedules: self.schedules.clone(),
            unread: false,
        }
    }

    /// What instances of an application are started from now.
    pub fn revision(&self, app: &AppName) -> Revision {
        self.config.revisions[app].clone()
    }

    /// Another version of `app` is deployed. A bad one ends before it is ready.
    pub fn deploy(&mut self, app: &AppName, is_bad: bool) {
        let before = self.revision(app);
        let kind = if is_bad { BAD } else { "" };
        let start = format!("{kind}{}", self.config.generation + 1);
        self.before.insert(app.clone(), before.clone());
        self.put_in_force(app, Revision { start, ..before });
    }

    /// The version of `app` from before the last deploy is deployed again.
    pub fn roll_back(&mut self, app: &AppName) {
        if let Some(before) = self.before.remove(app) {
            self.put_in_force(app, before);
        }
    }

    fn put_in_force(&mut self, app: &AppName, revision: Revision) {
        self.config.generation += 1;
        self.config.revisions.insert(app.clone(), revision);
        self.hear(Input::Config(self.config.clone()));
    }

    /// The seats in force.
    pub fn seats(&self) -> Option<&SeatPlan> {
        self.cycle.as_ref().map(Cycle::seats)
    }

    /// CPU that an instance was given.
    pub fn cpu(&self, instance: &InstanceId) -> Option<Cpu> {
        self.cycle.as_ref()?.cpu(instance)
    }

    /// Something has happened that it hears of, if it is up.
    pub fn hear(&mut self, input: Input) {
        if self.cycle.is_some() {
            self.inbox.push_back(input);
        }
    }

    /// The store has answered. It waits for nobody, so this comes before what has happened at the same moment and is not heard yet.
    pub fn hear_store(&mut self, answer: Done) {
        let is_of_store = |input: &&Input| matches!(input, Input::Done(Done::JobsKept { .. }));
        if self.cycle.is_some() {
            let at = self.inbox.iter().take_while(is_of_store).count();
            self.inbox.insert(at, Input::Done(answer));
        }
    }

    /// Writes down what happens from now on.
    pub fn record(&mut self) {
        self.recorded = Some(Default::default());
    }

    /// Writes down what the loop asks for.
    pub fn record_effect(&mut self, effect: &Effect) {
        if let Some((begins, steps)) = &mut self.recorded {
            steps.last_mut().map_or(begins, |step| &mut step.effects).push(effect.clone());
        }
    }

    /// When a timer rings that is to ring at `at`.
    pub fn rings_at(&self, at: Time) -> Time {
        let grain = (self.timer_grain.as_nanos() as u64).max(1);
        Time(at.0.div_ceil(grain) * grain)
    }

    /// What the loop is told next. A timer of a real loop that is due rings before answers come, which take their time.
    pub fn next_input(&mut self, now: Time) -> Option<Input> {
        let timeout = self.cycle.as_ref().map(Cycle::poll_timeout).filter(|_| !self.timer_grain.is_zero());
        let is_due = timeout.is_some_and(|at| self.rings_at(at) <= now);
        if is_due { Some(Input::Timeout) } else { self.inbox.pop_front() }
    }

    /// The next id of an application whose instance runs from the beginning.
    pub fn next_id(&mut self, app: &AppName) -> InstanceId {
        let number = self.numbers.entry(app.clone()).or_default();
        *number += 1;
        naming::instance_id(app, *number)
    }

    /// An id that was used.
    pub fn handle_id(&mut self, app: &AppName, id: &InstanceId) {
        let used = naming::parts(id).map_or(0, |(_, number)| number);
        let highest = self.numbers.entry(app.clone()).or_default();
        *highest = used.max(*highest);
    }
}
