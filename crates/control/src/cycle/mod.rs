//! The control loop: observe -> profile -> plan -> check -> apply, as a state machine without I/O.
//!
//! ```text
//! cycle.handle_config(now, config);          // what happened: handle_*
//! while let Some(effect) = cycle.poll_effect() { … }   // what is to be done: carried out beside the loop
//! cycle.poll_timeout()                       // when handle_timeout must be called
//! ```
//!
//! The controller does the I/O around it; the simulator drives it in virtual time; a recorded pool's [`Input`]s replay it. It never waits:
//! a peer that does not answer costs nothing but its own answers, and orders are answered by what is known.
//!
//! | what happens | what follows |
//! | --- | --- |
//! | the flow cycle's timer | observe, learn, new seats and weights, status, one sample of history; a placement plan when a goal is missed |
//! | the placement cycle's timer | a placement plan, checked, applied |
//! | an instance changed its state | seats for one that got ready, endpoints to the gateway at once, then a placement plan |
//! | a new config | endpoints and routes at once, then a placement plan |
//! | an action is done | its outcome is an event, then a placement plan |
//!
//! | file | part |
//! | --- | --- |
//! | `effect` | what goes in and out |
//! | `peers` | the engine and the gateway: what they said and were told, whether they answer |
//! | `timers` | what is due when |
//! | `observe` | counters -> snapshot |
//! | `learned` | what is known from earlier cycles: profiles, costs of changes, who was asked for when |
//! | `seating` | seats, weights and CPU in force |
//! | `placing` | from a plan to operations |
//! | `starts` | failed starts, and numbers of instances |
//! | `operations` | draining, and actions under way |
//! | `rollout` | replacing instances of an old config |
//! | `sleep` | who was told to sleep, and who was asked for meanwhile |
//! | `gateway` | what the gateway is told |
//! | `recent` | flows over the last few cycles, for people |
//! | `notes` | events about seats, instances and plans |
//! | `problems` | what is wrong with weal itself |
//! | `status` | what people are shown |

mod effect;
mod gateway;
mod learned;
mod notes;
mod observe;
mod operations;
mod peers;
mod placing;
mod problems;
mod recent;
mod rollout;
mod seating;
mod sleep;
mod starts;
mod status;
mod timers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weal_model::{
    AppName, Cpu, EventKind, GatewayName, HistorySample, InstanceId, InstanceState, NodeName, Plan, PoolSpec, Report, Rung,
    SeatPlan, Snapshot, Status, Time,
};
use weal_protocol::Refusal;
use weal_protocol::controller::{SleepTaken, WakeTaken};
use weal_protocol::engine::Observation;
use weal_protocol::gateway::GatewayCounters;
use weal_protocol::node::InstanceEvent;

use crate::jobs::Costs;
use crate::profile::Profiles;
pub use effect::{Config, Done, Effect, Input, Kept, Note, Order, PlanRequest, Planned};
use learned::Learned;
pub use observe::flow_between;
use observe::{Known, Observer};
use operations::Operations;
use peers::{Engine, Gateway, Telling, Ticket};
use placing::Placing;
use problems::Problems;
use recent::Recent;
use seating::Seating;
use sleep::Sleep;
use timers::Timers;

/// What a loop goes on from.
#[derive(Debug)]
pub struct Start {
    /// The gateway, by its name.
    pub gateway: GatewayName,
    /// The config in force; without one, the loop waits for it.
    pub config: Option<Config>,
    /// What an earlier controller had learnt.
    pub profiles: Profiles,
    /// Applications that were told to sleep, and how deep at most.
    pub resting: BTreeMap<AppName, Option<Rung>>,
    /// Instance events up to here were noted by an earlier controller.
    pub noted_until: Time,
    /// What changes to jobs cost.
    pub job_costs: Costs,
}

/// The loop.
#[derive(Debug)]
pub struct Cycle {
    config: Option<Config>,
    engine: Engine,
    gateway: Gateway,
    timers: Timers,
    measured: Measured,
    learned: Learned,
    seating: Seating,
    placing: Placing,
    operations: Operations,
    sleep: Sleep,
    problems: Problems,
    waiting: Waiting,
    counts: Counts,
    /// Instance events up to here were noted by an earlier controller.
    noted_until: Time,
    outbox: VecDeque<Effect>,
}

/// What was measured.
#[derive(Debug, Default)]
struct Measured {
    observer: Observer,
    snapshot: Option<Snapshot>,
    recent: Recent,
}

/// What waits for a look at the engine or at the gateway.
#[derive(Debug, Default)]
struct Waiting {
    flow_cycle: Option<FlowCycle>,
    plan: Option<Ticket>,
    /// Instances that got ready want seats.
    ready: Option<(Ticket, Vec<InstanceEvent>)>,
    /// Running instances may have to be told of a new config.
    update: Option<Ticket>,
}

/// A flow cycle between its beginning and its end.
#[derive(Debug, Clone, Copy)]
struct FlowCycle {
    engine: Ticket,
    gateway: Ticket,
    /// False for the very first look, which measures nothing.
    decides: bool,
}

/// What is counted for the metrics.
#[derive(Debug, Default, Clone)]
pub struct Counts {
    /// Placement actions that were begun.
    pub actions: u64,
    /// Instances that entered each state, by application.
    pub transitions: BTreeMap<(AppName, InstanceState), u64>,
}

impl Cycle {
    /// A loop that goes on from `start`. It looks at once.
    pub fn new(now: Time, start: Start) -> Self {
        let mut cycle = Self {
            config: start.config,
            engine: Engine::default(),
            gateway: Gateway::default(),
            timers: Timers::default(),
            measured: Measured::default(),
            learned: Learned::new(start.profiles, start.job_costs),
            seating: Seating::new(start.gateway),
            placing: Placing::default(),
            operations: Operations::default(),
            sleep: Sleep::with_resting(start.resting),
            problems: Problems::default(),
            waiting: Waiting::default(),
            counts: Counts::default(),
            noted_until: start.noted_until,
            outbox: VecDeque::new(),
        };
        cycle.timers.restart(now, cycle.config.as_ref().map(|config| &*config.pool));
        cycle.begin_flow_cycle(now, false);
        cycle.timers.schedule_plan(now);
        cycle
    }

    /// What is to be done next; `None` when nothing is until something happens.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.outbox.pop_front()
    }

    /// When [`Cycle::handle_timeout`] is to be called at the latest.
    pub fn poll_timeout(&self) -> Time {
        self.timers.next(self.operations.any_draining(), self.waiting.flow_cycle.is_some())
    }

    /// Any of what may happen; for replays. An order's answer is lost.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Timeout => self.handle_timeout(now),
            Input::Config(config) => self.handle_config(now, config),
            Input::Gateway(answer) => self.handle_gateway(now, answer),
            Input::Engine(answer) => self.handle_engine(now, answer),
            Input::Events(events) => self.handle_events(now, &events),
            Input::Jobs => self.handle_jobs(now),
            Input::Order(Order::Sleep { app, rung }) => drop(self.handle_sleep(now, &app, rung)),
            Input::Order(Order::Wake { app }) => drop(self.handle_wake(now, &app)),
            Input::Done(done) => self.handle_done(now, done),
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        let due = self.timers.poll_due(now, self.operations.any_draining());
        // The last cycle first: its patience is no longer the next one's.
        if due.patience_is_over && self.waiting.flow_cycle.is_some() {
            self.end_flow_cycle(now);
        }
        if due.flow_cycle {
            self.begin_flow_cycle(now, true);
        }
        if due.drains {
            self.gateway.look.want();
            // What has drained for as long as it may goes on, whether or not the gateway says anything.
            self.on_counters(now);
        }
        if due.placement_cycle {
            self.timers.schedule_plan(now);
        }
        if due.plan {
            self.begin_plan(now);
        }
        self.look(now);
    }

    /// Works by `config` from now on.
    pub fn handle_config(&mut self, now: Time, config: Config) {
        self.timers.restart(now, Some(&config.pool));
        self.config = Some(config);
        self.placing.starts.forget();
        self.engine.retry_nodes = now;
        self.waiting.update = Some(self.engine.look.want());
        self.push_gateway_config();
        self.timers.schedule_plan(now);
        self.look(now);
        self.show(false);
    }

    /// The gateway's counters, or why there are none.
    pub fn handle_gateway(&mut self, now: Time, answer: Result<GatewayCounters, Refusal>) {
        match &answer {
            Ok(_) => self.clear_problem("gateway", "the gateway answers again"),
            Err(error) => self.raise_problem("gateway", format!("the gateway does not answer: {error}")),
        }
        self.gateway.handle_counters(answer.ok());
        if !self.end_flow_cycle_if_seen(now) {
            self.on_counters(now);
        }
        self.look(now);
    }

    /// What runs, or why nobody says so.
    pub fn handle_engine(&mut self, now: Time, answer: Result<Observation, Refusal>) {
        self.engine.look.handle_end();
        match answer {
            Ok(seen) => {
                self.clear_problem("agent", "the node agent answers again");
                self.learned.handle_seen(&seen);
                self.engine.handle_seen(now, seen);
                if !self.configure_nodes(now) {
                    self.serve_waiting(now);
                }
            }
            Err(error) => {
                self.engine.is_up = false;
                self.raise_problem("agent", format!("the node agent does not answer: {error}"));
                self.waiting.plan.take_if(|ticket| self.engine.look.has_ended(*ticket));
                self.end_flow_cycle_if_seen(now);
                self.show(false);
            }
        }
        self.look(now);
    }

    /// Instances changed their states.
    pub fn handle_events(&mut self, now: Time, events: &[InstanceEvent]) {
        // A new controller is told once more what an earlier one has heeded.
        let new: Vec<&InstanceEvent> = events.iter().filter(|event| event.time > self.noted_until).collect();
        for event in &new {
            self.note(notes::instance(event));
            *self.counts.transitions.entry((event.app.clone(), event.state)).or_default() += 1;
        }
        self.sleep.handle_events(new.iter().copied());
        self.keep_resting();
        let ticket = self.engine.look.want();
        let ready: Vec<InstanceEvent> = new.into_iter().filter(|event| event.state == InstanceState::Ready).cloned().collect();
        if !ready.is_empty() {
            let mut waiting = self.waiting.ready.take().map_or_else(Vec::new, |(_, waiting)| waiting);
            waiting.extend(ready);
            self.waiting.ready = Some((ticket, waiting));
        }
        self.timers.schedule_plan(now);
        self.look(now);
    }

    /// Jobs came, went on or ended.
    pub fn handle_jobs(&mut self, now: Time) {
        self.timers.schedule_plan(now);
    }

    /// An effect was carried out, or could not be.
    pub fn handle_done(&mut self, now: Time, done: Done) {
        match done {
            Done::Gateway(result) => self.handle_gateway_told(result),
            Done::Nodes(result) => self.handle_nodes_configured(now, result),
            Done::Acted(outcome) => self.handle_acted(now, outcome),
            Done::Updated(result) => self.handle_updated(result),
            Done::Loads(result) => self.handle_loads_set(result),
            Done::Reserves(result) => self.handle_reserves_set(result),
            Done::Planned(planned) => self.handle_planned(now, *planned),
        }
        self.look(now);
    }

    /// Puts an application to sleep until somebody asks for it.
    ///
    /// # Errors
    /// When it cannot sleep.
    pub fn handle_sleep(&mut self, now: Time, app: &AppName, rung: Option<Rung>) -> Result<SleepTaken, Refusal> {
        let taken = self.take_sleep(now, app, rung);
        self.look(now);
        taken
    }

    /// Wakes the cheapest sleeping instance of an application.
    ///
    /// # Errors
    /// When nothing can be woken now.
    pub fn handle_wake(&mut self, now: Time, app: &AppName) -> Result<WakeTaken, Refusal> {
        let taken = self.take_wake(now, app);
        self.look(now);
        taken
    }

    /// Something that the loop cannot see is wrong, or `None`: it is well again.
    pub fn handle_problem(&mut self, what: &'static str, problem: Result<&str, String>) {
        match problem {
            Ok(well) => self.clear_problem(what, well),
            Err(text) => self.raise_problem(what, text),
        }
    }

    /// What a plan would be made from now, to ask why it is as it is; `None` before anything was measured.
    pub fn question(&self, now: Time) -> Option<PlanRequest> {
        let snapshot = self.measured.snapshot.as_ref()?;
        let pool = self.pool()?;
        Some(self.plan_request(now, &pool, snapshot, BTreeMap::new(), Default::default()))
    }

    /// The whole pool, as people are shown it; `None` before the first config.
    pub fn status(&self, now: Time, config_error: Option<&str>) -> Option<Status> {
        let config = self.config.as_ref()?;
        let mut report = self.placing.report.clone();
        report.flows.clone_from(&self.seating.explanations);
        Some(status::status(&status::Inputs {
            pool: &config.pool,
            time: now,
            config_generation: config.generation,
            config_error,
            problems: self.problems.texts(),
            engine: self.engine.seen.as_deref(),
            engine_up: self.engine.is_up && self.engine.look.stuck_for(now).is_none(),
            snapshot: self.measured.snapshot.as_ref(),
            recent: &self.measured.recent,
            closed: &self.operations.closed(),
            gateway: &self.seating.gateway,
            seats: &self.seating.plan,
            report: &report,
            work_factors: self.learned.work_factors(),
            loads: &status::fitted(&self.seating.loads, self.engine.seen.as_deref()),
            plan: self.placing.summary.as_ref(),
            failures: self.placing.starts.failures(),
        }))
    }

    /// `status` as a sample for the history.
    pub fn sample(&self, status: &Status) -> HistorySample {
        status::sample(status, self.timers.flow_cycle().as_secs_f64())
    }

    /// What is wrong with weal itself, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        self.problems.texts()
    }

    /// The last plan.
    pub fn plan(&self) -> &Plan {
        &self.placing.plan
    }

    /// Why the last plan and the seats in force are as they are.
    pub fn report(&self) -> Report {
        Report { flows: self.seating.explanations.clone(), ..self.placing.report.clone() }
    }

    /// The seats in force.
    pub fn seats(&self) -> &SeatPlan {
        &self.seating.plan
    }

    /// CPU that an instance was given.
    pub fn cpu(&self, instance: &InstanceId) -> Option<Cpu> {
        self.seating.loads.cpu(instance)
    }

    /// The gateway's counters, as it said them last.
    pub fn counters(&self) -> Option<Arc<GatewayCounters>> {
        self.gateway.counters.clone()
    }

    /// What is counted for the metrics.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Begins to observe both sides.
    fn begin_flow_cycle(&mut self, now: Time, decides: bool) {
        if self.waiting.flow_cycle.is_some() {
            // The last one's patience ends within this cycle.
            return;
        }
        let (engine, gateway) = (self.engine.look.want(), self.gateway.look.want());
        self.waiting.flow_cycle = Some(FlowCycle { engine, gateway, decides });
        self.timers.handle_flow_cycle_begun(now);
        self.look(now);
    }

    fn end_flow_cycle_if_seen(&mut self, now: Time) -> bool {
        let seen = |cycle: &FlowCycle| {
            self.engine.look.has_ended(cycle.engine) && self.gateway.look.has_ended(cycle.gateway) && !self.engine.configuring
        };
        let is_over = self.waiting.flow_cycle.as_ref().is_some_and(seen);
        if is_over {
            self.end_flow_cycle(now);
        }
        is_over
    }

    /// Learn, decide seats, tell the gateway, show: by what has been answered.
    fn end_flow_cycle(&mut self, now: Time) {
        let Some(FlowCycle { engine, decides, .. }) = self.waiting.flow_cycle.take() else { return };
        let counters = self.gateway.fresh_counters(now);
        if let Some(seen) = self.engine.seen.clone().filter(|_| self.engine.is_up && self.engine.look.has_ended(engine)) {
            let closed = self.operations.closed();
            let known = Known { closed: &closed, seats: &self.seating.plan };
            if let Some(snapshot) = self.measured.observer.observe(counters, seen, &known) {
                self.measured.recent.handle_snapshot(&snapshot);
                if decides && !snapshot.flows.is_empty() {
                    self.decide_seats(now, &snapshot);
                }
                if self.measured.snapshot.is_none() {
                    self.timers.schedule_plan(now);
                }
                self.measured.snapshot = Some(snapshot);
            }
        }
        self.on_counters(now);
        if self.somebody_waits_for_an_instance() || self.somebody_may_sleep() {
            self.timers.schedule_plan(now);
        }
        self.push_loads();
        self.keep_resting();
        if self.timers.poll_keep(now) {
            self.push(Effect::Keep(Kept::Profiles(Box::new(self.learned.profiles().clone()))));
        }
        self.show(true);
    }

    /// What follows from the gateway's counters: who is asked for, who has drained.
    fn on_counters(&mut self, now: Time) {
        self.on_requests(now);
        self.hand_over_drained(now);
        self.push_gateway_config();
    }

    /// The engine has said what runs, on the nodes of the config: whoever waited for that goes on.
    fn serve_waiting(&mut self, now: Time) {
        if let Some((_, ready)) = self.waiting.ready.take_if(|(ticket, _)| self.engine.look.has_ended(*ticket)) {
            self.on_woken(now, &ready);
            self.reseat(now);
        }
        if self.waiting.update.take_if(|ticket| self.engine.look.has_ended(*ticket)).is_some() {
            self.update_running();
        }
        if !self.end_flow_cycle_if_seen(now) {
            self.push_gateway_config();
            self.push_loads();
            self.show(false);
        }
        if self.waiting.plan.take_if(|ticket| self.engine.look.has_ended(*ticket)).is_some() {
            self.request_plan(now);
        }
    }

    /// Makes the calls that somebody waits for.
    fn look(&mut self, now: Time) {
        if self.gateway.look.poll(now) {
            self.push(Effect::ObserveGateway);
        }
        if self.engine.look.poll(now) {
            self.push(Effect::ObserveEngine);
        }
    }

    /// Tells the gateway what it does not know yet. Before the first look at the instances there is nothing to say: an empty
    /// list would stop what runs.
    fn push_gateway_config(&mut self) {
        let (Some(config), Some(seen)) = (&self.config, &self.engine.seen) else { return };
        let clusters = gateway::clusters(&gateway::Inputs {
            pool: &config.pool,
            gateway: &self.seating.gateway,
            instances: &seen.instances,
            draining: &self.operations.closed(),
            stopping: &self.operations.stopping(),
            seats: &self.seating.plan,
            loads: &self.seating.loads,
            seated: &self.seating.seated,
            standbys: &self.standbys(),
        });
        match self.gateway.poll_config(clusters) {
            Telling::Known(version) => self.operations.handle_told(version),
            Telling::Tell(config) => {
                self.operations.handle_told(config.version);
                self.push(Effect::ConfigureGateway(config));
            }
            Telling::UnderWay => {}
        }
    }

    fn handle_gateway_told(&mut self, result: Result<u64, Refusal>) {
        match &result {
            Ok(_) => self.clear_problem("gateway", "the gateway answers again"),
            Err(error) => self.raise_problem("gateway", format!("the gateway took no parameters: {error}")),
        }
        let answered = result.is_ok();
        self.gateway.handle_told(result.ok());
        if answered {
            // What has changed while it was being told.
            self.push_gateway_config();
        }
    }

    /// Makes the engine's nodes those of the config. True when that is under way: what runs is to be looked at afterwards.
    fn configure_nodes(&mut self, now: Time) -> bool {
        let Some(config) = &self.config else { return false };
        let capabilities = self.engine.capabilities();
        let are_ours = capabilities.is_some_and(|can| can.nodes == weal_protocol::NodeOrigin::Configured);
        if self.engine.configuring {
            return true;
        }
        let must = are_ours && (self.engine.nodes_differ(&config.pool) || self.engine.has_forgotten);
        if !must || now < self.engine.retry_nodes {
            return false;
        }
        let nodes = config.pool.nodes.clone();
        self.engine.configuring = true;
        self.push(Effect::ConfigureNodes(nodes));
        true
    }

    fn handle_nodes_configured(&mut self, now: Time, result: Result<(), Refusal>) {
        self.engine.configuring = false;
        match result {
            Ok(()) => {
                self.clear_problem("nodes", "the nodes are set up");
                if std::mem::take(&mut self.engine.has_forgotten) {
                    self.seating.loads.handle_forgotten();
                }
            }
            Err(error) => self.raise_problem("nodes", format!("the nodes cannot be set up: {error}")),
        }
        // The next cycle tries again what did not help.
        self.engine.retry_nodes = now + self.timers.flow_cycle();
        self.engine.look.want();
    }

    fn push(&mut self, effect: Effect) {
        self.outbox.push_back(effect);
    }

    fn note(&mut self, note: Note) {
        self.push(Effect::Note(note));
    }

    /// What people are shown has changed; said once however often it changes before it is shown.
    fn show(&mut self, sample: bool) {
        if !matches!(self.outbox.back(), Some(Effect::Show { sample: shown }) if *shown || !sample) {
            self.push(Effect::Show { sample });
        }
    }

    /// Something is wrong with weal itself: said once.
    fn raise_problem(&mut self, what: &'static str, text: String) {
        if self.problems.raise(what, text.clone()) {
            self.note(Note::warning(EventKind::Role, text));
        }
    }

    fn clear_problem(&mut self, what: &'static str, text: &str) {
        if self.problems.clear(what) {
            self.note(Note::info(EventKind::Role, text));
        }
    }

    /// The config's pool; on nodes that the engine finds itself, with those.
    fn pool(&self) -> Option<Arc<PoolSpec>> {
        let config = self.config.as_ref()?;
        let discovered =
            self.engine.seen.as_ref().filter(|seen| seen.capabilities.nodes == weal_protocol::NodeOrigin::Discovered);
        let Some(seen) = discovered else { return Some(Arc::clone(&config.pool)) };
        let mut pool = (*config.pool).clone();
        pool.nodes = observe::discovered_nodes(seen, &config.pool);
        Some(Arc::new(pool))
    }

    /// Why an application may not be asked about; `None` when the pool has it.
    fn no_such(&self, app: &AppName) -> Option<Refusal> {
        let known = self.config.as_ref().is_some_and(|config| config.pool.apps.contains_key(app));
        (!known).then(|| Refusal::NoApplication { app: app.clone() })
    }

    /// Requests wait for an application that has nothing running: the next placement cycle may be far.
    fn somebody_waits_for_an_instance(&self) -> bool {
        let (Some(counters), Some(seen)) = (&self.gateway.counters, &self.engine.seen) else { return false };
        let live = |app: &AppName| seen.instances.iter().any(|instance| instance.app == *app && instance.state.is_active());
        counters.flows.iter().any(|flow| flow.queued > 0 && !live(&flow.id.app))
    }
}

/// A node of a pool, by name.
fn node_of<'a>(pool: &'a PoolSpec, name: &NodeName) -> Option<&'a weal_model::NodeSpec> {
    pool.nodes.iter().find(|node| node.name == *name)
}
