//! The controller: the very [`Cycle`] of `weal up`, with the simulated gateway and engine around it.
//!
//! What the real controller does over sockets happens here at once, in virtual time: an effect is carried out as soon as the loop asks for
//! it, and its answer is the loop's next input.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use weal_control::cycle::{Config, Cycle, Done, Effect, Input, Kept, Note, Order, Start};
use weal_control::flow::controller::demand_curves;
use weal_control::placement::{self, Iterations, Policy};
use weal_control::profile::Profiles;
use weal_model::{
    Action, AppName, Cpu, EventKind, InstanceId, InstanceState, LoadEntry, NodeReserve, Rung, SeatPlan, Time, naming,
};
use weal_protocol::Refusal;
use weal_protocol::engine::{Outcome, Revision};
use weal_protocol::node::InstanceEvent;

use super::decisions::{self, Step};
use super::{Event, GATEWAY, World};

/// The controller, and what outlives it.
pub(super) struct Controller {
    /// None while it is down.
    pub cycle: Option<Cycle>,
    config: Config,
    /// What it has stored.
    profiles: Profiles,
    resting: BTreeMap<AppName, Option<Rung>>,
    /// Events up to here were noted by it.
    noted_until: Time,
    /// Answers and events that it has not taken yet.
    inbox: VecDeque<Input>,
    /// Events so far.
    events: u64,
    /// When it is to be called by itself; counts how often that has changed.
    wakes_at: Option<Time>,
    pub version: u64,
    /// Numbers of instances used before it ran.
    numbers: BTreeMap<AppName, u64>,
    /// Timers ring at multiples of it; zero: whenever they are due.
    pub timer_grain: Duration,
    /// Orders that somebody gives while it runs.
    pub orders: Vec<Order>,
    /// What it asked for before anything happened, and what happened since, where somebody wants to know.
    pub recorded: Option<(Vec<Effect>, Vec<Step>)>,
}

impl Controller {
    pub fn new(scenario: &weal_scenario::Scenario) -> Self {
        // Nothing of a simulated application changes while it runs.
        let revision = |app: &AppName| (app.clone(), Revision { start: "1".to_owned(), settings: "1".to_owned() });
        let revisions = scenario.pool.apps.keys().map(revision).collect();
        Self {
            cycle: None,
            config: Config { generation: 1, pool: Arc::new(scenario.pool.clone()), revisions },
            profiles: Profiles::default(),
            resting: BTreeMap::new(),
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

    /// What every instance of an application is started from.
    pub fn revision(&self, app: &AppName) -> Revision {
        self.config.revisions[app].clone()
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

    /// Writes down what happens from now on.
    pub fn record(&mut self) {
        self.recorded = Some(Default::default());
    }

    /// Writes down what the loop asks for.
    fn record_effect(&mut self, effect: &Effect) {
        if let Some((begins, steps)) = &mut self.recorded {
            steps.last_mut().map_or(begins, |step| &mut step.effects).push(effect.clone());
        }
    }

    /// When a timer rings that is to ring at `at`.
    fn rings_at(&self, at: Time) -> Time {
        let grain = (self.timer_grain.as_nanos() as u64).max(1);
        Time(at.0.div_ceil(grain) * grain)
    }

    /// What the loop is told next. A timer of a real loop that is due rings before answers come, which take their time.
    fn next_input(&mut self, now: Time) -> Option<Input> {
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

impl World<'_> {
    /// What runs before anybody asks: as many instances as must, ready; as after `weal up --detach`.
    pub(super) fn bring_up(&mut self) {
        for app in 0..self.apps.len() {
            for name in self.scenario.behaviours[self.apps[app].name.as_str()].initially.clone() {
                let node = self.nodes.iter().position(|node| node.name.as_str() == name).expect("checked when read");
                let id = self.controller.next_id(&self.apps[app].name);
                self.stand_up(app, node, id);
            }
        }
        // Each round brings up what needs nothing else, or what the round before has brought up; a pool has few such floors.
        for _ in 0..self.apps.len() {
            let mut begun = false;
            for action in self.first_plan() {
                let Action::Start { instance, app, node } = action else { continue };
                let app = self.apps.iter().position(|entry| entry.name == app);
                let node = self.nodes.iter().position(|entry| entry.name == node);
                if let (Some(app), Some(node)) = (app, node) {
                    self.stand_up(app, node, instance);
                    begun = true;
                }
            }
            if !begun {
                break;
            }
        }
    }

    /// What a plan of a pool that nobody has asked anything says.
    fn first_plan(&mut self) -> Vec<Action> {
        let snapshot = self.truth();
        let pool = Arc::clone(&self.controller.config.pool);
        let mut policy = Policy::new(Arc::clone(&pool));
        policy.demands = demand_curves(&snapshot, &pool, &Profiles::default());
        policy.idle_s = policy.demands.keys().map(|app| (app.clone(), 0.0)).collect();
        policy.next_instance = self.controller.numbers.iter().map(|(app, highest)| (app.clone(), highest + 1)).collect();
        policy.job_costs = self.scenario.surroundings.job_costs();
        let (plan, _) = placement::plan(&snapshot, &policy, Iterations::default());
        plan.actions
    }

    /// An instance that was started before the run begins, and what that took.
    fn stand_up(&mut self, app: usize, node: usize, id: InstanceId) {
        self.controller.handle_id(&self.apps[app].name, &id);
        let start_s = self.scenario.behaviours[self.apps[app].name.as_str()].changes.start_s;
        let instance = self.add_instance(app, node, id);
        self.instances[instance].start_took_s = Some(start_s);
        self.set_state(instance, InstanceState::Ready);
    }

    /// A controller begins, with what the former one has stored.
    pub(super) fn start_controller(&mut self) {
        self.controller.cycle = Some(Cycle::new(self.now(), self.start()));
    }

    /// What a controller that begins now goes on from.
    pub(super) fn start(&self) -> Start {
        Start {
            gateway: GATEWAY.into(),
            config: Some(self.controller.config.clone()),
            profiles: self.controller.profiles.clone(),
            resting: self.controller.resting.clone(),
            noted_until: self.controller.noted_until,
            job_costs: self.scenario.surroundings.job_costs(),
        }
    }

    /// The controller is gone with all that it has not stored. What the engine was told goes on.
    pub(super) fn lose_controller(&mut self) {
        self.controller.cycle = None;
        self.controller.inbox.clear();
        self.controller.wakes_at = None;
        for instance in &mut self.instances {
            // Nobody waits for what becomes of it.
            if let Some(operation) = &mut instance.operation {
                operation.ordered = None;
            }
        }
        self.jobs.iter_mut().for_each(super::jobs::Job::forget_order);
    }

    /// The controller's time has come, if nothing has moved it.
    pub(super) fn wake_controller(&mut self) {
        self.controller.wakes_at = None;
        if self.controller.timer_grain.is_zero() {
            self.controller.hear(Input::Timeout);
        }
    }

    /// Hands the controller what has happened, and carries out what it asks for, until there is nothing left of either.
    pub(super) fn settle(&mut self) {
        loop {
            let now = self.now();
            let Some(cycle) = &mut self.controller.cycle else { return };
            if let Some(effect) = cycle.poll_effect() {
                self.controller.record_effect(&effect);
                self.perform(effect);
            } else if let Some(input) = self.controller.next_input(now) {
                let Some(cycle) = &mut self.controller.cycle else { return };
                let told = self.controller.recorded.is_some().then(|| input.clone());
                let answer = decisions::hand(cycle, now, input);
                if let (Some((_, steps)), Some(input)) = (&mut self.controller.recorded, told) {
                    steps.push(Step { at: now, input, answer, effects: Vec::new() });
                }
            } else {
                break;
            }
        }
        let Some(cycle) = &self.controller.cycle else { return };
        let at = cycle.poll_timeout();
        if self.controller.wakes_at != Some(at) {
            self.controller.wakes_at = Some(at);
            self.controller.version += 1;
            let version = self.controller.version;
            // A little later, for the loop counts in whole nanoseconds.
            let rings_at_s = self.controller.rings_at(at).as_secs_f64() + 1e-9;
            self.agenda.enter(rings_at_s, Event::Cycle { version });
        }
    }

    /// Carries out one effect. Its answer is there at once, but for actions, which take their time.
    fn perform(&mut self, effect: Effect) {
        let answer = match effect {
            Effect::ObserveGateway => Input::Gateway(self.counters()),
            Effect::ObserveEngine => Input::Engine(Ok(self.observation())),
            Effect::ConfigureGateway(config) => {
                let version = config.version;
                if self.gateway_up {
                    self.configure_gateway(&config);
                }
                Input::Done(Done::Gateway(self.gateway_up.then_some(version).ok_or_else(gateway_away)))
            }
            Effect::ConfigureNodes(_) => Input::Done(Done::Nodes(Ok(()))),
            Effect::Act { action, .. } => return self.act(action),
            Effect::Update { starts, .. } => Input::Done(Done::Updated(Ok(starts.into_iter().map(done).collect()))),
            Effect::SetLoads(loads) => {
                self.set_loads(&loads);
                Input::Done(Done::Loads(Ok(())))
            }
            Effect::SetReserves(reserves) => {
                self.set_reserves(&reserves);
                Input::Done(Done::Reserves(Ok(())))
            }
            Effect::Plan(request) => {
                let planned = request.run();
                match &planned.result {
                    Ok((plan, _)) => self.recorder.handle_plan(plan),
                    Err(findings) => self.oracle.note(self.agenda.now_s(), format!("a plan is unsound: {findings}")),
                }
                Input::Done(Done::Planned(Box::new(planned)))
            }
            Effect::Keep(Kept::Profiles(profiles)) => return self.controller.profiles = *profiles,
            Effect::Keep(Kept::Resting(resting)) => return self.controller.resting = resting,
            Effect::Note(Note { kind, action, text, .. }) => {
                let now_s = self.agenda.now_s();
                if let Some(action) = action {
                    self.recorder.begin(now_s, action, text.clone());
                }
                // Instances' states are drawn; what was done to them, and why, is told.
                if kind != EventKind::Instance {
                    self.recorder.note(now_s, kind == EventKind::Plan, text);
                }
                return;
            }
            Effect::Keep(Kept::Plan(_)) | Effect::Show { .. } => return,
        };
        self.controller.hear(answer);
    }

    /// Shares and limits to the nodes.
    fn set_loads(&mut self, loads: &[LoadEntry]) {
        let now_s = self.now_s();
        for load in loads {
            let there = self.instances.iter().rposition(|i| i.id == load.instance && i.state != InstanceState::Stopped);
            let Some(index) = there else { continue };
            let node = self.instances[index].node;
            self.nodes[node].machine.set_share(now_s, index, load.cpu.0, load.limit.map(|limit| limit.0));
            self.soil(node);
        }
    }

    fn set_reserves(&mut self, reserves: &[NodeReserve]) {
        for node in &mut self.nodes {
            let wanted = reserves.iter().find(|reserve| reserve.node == node.name);
            node.reserve = wanted.map_or(weal_model::Bytes(0), |reserve| reserve.memory);
        }
    }

    /// An instance has entered a state: the controller hears of it.
    pub(super) fn push_state(&mut self, instance: usize) {
        let time = self.its_time();
        let entry = &self.instances[instance];
        self.controller.events += 1;
        let event = InstanceEvent {
            id: self.controller.events,
            time,
            instance: entry.id.clone(),
            app: self.apps[entry.app].name.clone(),
            node: self.nodes[entry.node].name.clone(),
            state: entry.state,
            detail: String::new(),
        };
        if self.controller.cycle.is_some() {
            self.controller.noted_until = time;
        }
        self.controller.hear(Input::Events(vec![event]));
    }

    /// The controller hears what became of an action that it had ordered.
    pub(super) fn push_outcome(&mut self, action: Action, took_s: f64, refusal: Option<Refusal>) {
        self.controller.hear(Input::Done(Done::Acted(Outcome { action, took_s, refusal })));
    }
}

fn done(action: Action) -> Outcome {
    Outcome { action, took_s: 0.0, refusal: None }
}

pub(super) fn gateway_away() -> Refusal {
    Refusal::Away { peer: "the gateway".to_owned(), detail: "it is down".to_owned() }
}
