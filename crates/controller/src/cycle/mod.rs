//! The loop: observe -> profile -> plan -> check -> apply, on the clock and on events.
//!
//! One task owns everything that is decided; what takes time (starting, stopping) runs beside it and reports back.
//!
//! | what happens | what follows |
//! | --- | --- |
//! | the flow cycle's timer | observe, learn, new seats and weights, status, one sample of history; a placement plan when a goal is missed |
//! | the placement cycle's timer | a placement plan, checked, applied |
//! | an instance changed its state | seats for one that got ready, endpoints to the gateway at once, then a placement plan |
//! | a new config | checked, stored, endpoints and routes at once, then a placement plan |
//! | an action is done | its outcome is an event, then a placement plan |
//!
//! | file | part |
//! | --- | --- |
//! | `observe` | counters -> snapshot |
//! | `recent` | flows over the last few cycles, for people |
//! | `decide` | the pure decisions and the state they carry |
//! | `place` | from plan to actions |
//! | `operations` | draining, and actions under way |
//! | `roll` | replacing instances of an old config |
//! | `sleep` | who was told to sleep, and who was asked for meanwhile |
//! | `gateway` | what the gateway is told |
//! | `notes` | events about seats and instances |
//! | `status` | what users are shown |

mod decide;
mod gateway;
mod notes;
mod observe;
mod operations;
mod place;
mod recent;
mod roll;
mod sleep;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use weal_control::flow::controller::Decision;
use weal_control::flow::loads::Loads;
use weal_control::profile::Profiles;
use weal_engine::Engine;
use weal_model::{
    Action, AppName, EventKind, FlowExplanation, InstanceId, InstanceState, NodeName, Plan, PlanSummary, PoolSpec, Report, Rung,
    SeatPlan, Snapshot, Status, Time, WhyNode,
};
use weal_protocol::gateway::GatewayCounters;
use weal_protocol::node::{AgentObservation, InstanceEvent};
use weal_rpc::Client;

use crate::board::{Board, Note, View};
use crate::clock;
use crate::desired::{self, Desired};
use decide::Decider;
use gateway::GatewayLink;
use observe::{Known, Observer};
use operations::Operations;
use recent::Recent;
use roll::Roll;
pub(crate) use sleep::RESTING;
use sleep::Sleep;
use weal_protocol::controller::{ApiError, ConfigRefused, ConfigTaken, ConfigUpdate, PlanView, SleepTaken, WakeTaken};

/// The agent reads a few hundred small files at most; longer than this it is stuck or away.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks at what is draining: short against a stop, long against a call of 1 ms.
const DRAIN_POLL: Duration = Duration::from_millis(100);
/// Events that come together make one plan.
const PLAN_DELAY: Duration = Duration::from_millis(50);
/// Between two placement plans, however many events there are: a crash loop must not keep the planner busy.
const PLAN_PAUSE: Duration = Duration::from_millis(500);
/// How often what was learnt is kept: a crash loses at most this much of it.
const PROFILES_PERIOD: Duration = Duration::from_secs(30);
/// What waiting for instance events takes at most before it is asked again.
const EVENTS_WAIT: Duration = Duration::from_secs(30);

/// What the API asks of the loop.
#[derive(Debug)]
pub(crate) enum Order {
    /// Take this config.
    Config { update: ConfigUpdate, reply: oneshot::Sender<Result<ConfigTaken, ConfigRefused>> },
    /// Say why an application is on a node or not.
    WhyNode { app: AppName, node: NodeName, reply: oneshot::Sender<Option<WhyNode>> },
    /// Let this application sleep until somebody asks for it.
    Sleep { app: AppName, rung: Option<Rung>, reply: oneshot::Sender<Result<SleepTaken, ApiError>> },
    /// Wake it.
    Wake { app: AppName, reply: oneshot::Sender<Result<WakeTaken, ApiError>> },
}

/// What a loop goes on from.
#[derive(Debug, Default)]
pub(crate) struct Start {
    /// The config in force; without one, the loop waits for it.
    pub desired: Option<Desired>,
    /// What an earlier controller had learnt.
    pub profiles: Profiles,
    /// Applications that were told to sleep, and how deep at most.
    pub resting: BTreeMap<AppName, Option<Rung>>,
    /// Instance events up to here were noted by an earlier controller.
    pub noted_until: Time,
}

/// An action that was carried out, or could not be.
#[derive(Debug)]
struct Done {
    instance: InstanceId,
    action: Action,
    took_s: f64,
    error: Option<String>,
    /// When it was over.
    at: Instant,
}

/// All that the loop knows.
pub(crate) struct Loop<E> {
    board: Arc<Board>,
    engine: Arc<E>,
    gateway: GatewayLink,
    desired: Option<Desired>,
    config_error: Option<String>,
    observer: Observer,
    agent: Option<AgentObservation>,
    agent_up: bool,
    counters: Option<Arc<GatewayCounters>>,
    snapshot: Option<Snapshot>,
    recent: Recent,
    decider: Decider,
    seats: SeatPlan,
    /// Applications that had a ready instance when the seats were planned.
    seated: BTreeSet<AppName>,
    sleep: Sleep,
    /// Instances that entered each state, by application.
    transitions: BTreeMap<(AppName, InstanceState), u64>,
    /// Why each flow has its seats.
    flow_report: Vec<FlowExplanation>,
    plan: Plan,
    plan_report: Report,
    plan_summary: Option<PlanSummary>,
    /// What each instance was given, and what the engine was told of it.
    loads: Loads,
    operations: Operations,
    roll: Roll,
    starts: place::Starts,
    /// What is wrong with weal itself: by what it concerns.
    problems: BTreeMap<&'static str, String>,
    actions_total: u64,
    plan_due: Option<Instant>,
    last_plan: Option<Instant>,
    /// Instance events up to here were noted by an earlier controller.
    noted_until: Time,
    profiles_kept: Instant,
    done: (mpsc::UnboundedSender<Done>, mpsc::UnboundedReceiver<Done>),
}

impl<E: Engine> Loop<E> {
    /// A loop that goes on from `start`.
    pub fn new(board: Arc<Board>, engine: Arc<E>, gateway: &Client, start: Start) -> Self {
        Self {
            board,
            engine,
            gateway: GatewayLink::new(gateway),
            desired: start.desired,
            config_error: None,
            observer: Observer::default(),
            agent: None,
            agent_up: false,
            counters: None,
            snapshot: None,
            recent: Recent::default(),
            decider: Decider::with_profiles(start.profiles),
            seats: SeatPlan::default(),
            seated: BTreeSet::new(),
            sleep: Sleep::with_resting(start.resting),
            transitions: BTreeMap::new(),
            flow_report: Vec::new(),
            plan: Plan::default(),
            plan_report: Report::default(),
            plan_summary: None,
            loads: Loads::default(),
            operations: Operations::default(),
            roll: Roll::default(),
            starts: place::Starts::default(),
            problems: BTreeMap::new(),
            actions_total: 0,
            plan_due: None,
            last_plan: None,
            noted_until: start.noted_until,
            profiles_kept: Instant::now(),
            done: mpsc::unbounded_channel(),
        }
    }

    /// Runs until `orders` closes.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut instance_events = watch_instances(Arc::clone(&self.engine));
        let mut flow_cycle = timer(self.timing().0);
        let mut placement_cycle = timer(self.timing().1);
        let mut drain_poll = timer(DRAIN_POLL);
        self.flow_cycle(false).await;
        self.want_plan();
        loop {
            let plan_due = self.plan_due;
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Config { update, reply }) => {
                        let answer = self.take_config(update).await;
                        // Whoever asked may have gone.
                        let _ = reply.send(answer);
                        (flow_cycle, placement_cycle) = (timer(self.timing().0), timer(self.timing().1));
                    }
                    Some(Order::WhyNode { app, node, reply }) => {
                        // Whoever asked may have gone.
                        let _ = reply.send(self.why_node(&app, &node));
                    }
                    Some(Order::Sleep { app, rung, reply }) => {
                        let _ = reply.send(self.take_sleep(&app, rung).await);
                    }
                    Some(Order::Wake { app, reply }) => {
                        let _ = reply.send(self.take_wake(&app).await);
                    }
                    None => return,
                },
                Some(events) = instance_events.recv() => self.handle_instance_events(&events).await,
                Some(done) = self.done.1.recv() => self.handle_done(done).await,
                () = sleep_until(plan_due), if plan_due.is_some() => self.placement_cycle().await,
                _ = drain_poll.tick(), if self.operations.any_draining() => self.poll_drains().await,
                _ = flow_cycle.tick() => self.flow_cycle(true).await,
                _ = placement_cycle.tick() => self.want_plan(),
            }
        }
    }

    fn timing(&self) -> (Duration, Duration) {
        let timing = self.desired.as_ref().map(|desired| desired.spec.timing);
        let seconds = |value: Option<f64>, default| Duration::from_secs_f64(value.unwrap_or(default).clamp(0.1, 3600.0));
        (seconds(timing.map(|t| t.flow_cycle_s), 2.0), seconds(timing.map(|t| t.placement_cycle_s), 15.0))
    }

    /// Observe, learn, decide seats, tell the gateway, show. `decides` is false for the very first look.
    async fn flow_cycle(&mut self, decides: bool) {
        let counters = self.observe_gateway().await;
        if self.observe_agent().await
            && let Some(agent) = self.agent.clone()
        {
            let closed = self.operations.closed();
            let known = Known { closed: &closed, seats: &self.seats };
            if let Some(snapshot) = self.observer.observe(counters.clone(), agent, &known) {
                self.recent.handle_snapshot(&snapshot);
                if decides && !snapshot.flows.is_empty() {
                    self.decide_seats(&snapshot);
                }
                self.snapshot = Some(snapshot);
            }
        }
        self.counters = counters.map(Arc::new);
        self.heed_requests();
        self.hand_over_drained().await;
        self.tell_gateway().await;
        if self.somebody_waits_for_an_instance() || self.somebody_may_sleep() {
            self.want_plan();
        }
        if let Some(desired) = self.desired.clone() {
            self.tell_loads(&desired.spec).await;
        }
        self.keep_resting();
        self.keep_profiles();
        self.note_store();
        self.show(true);
    }

    fn keep_profiles(&mut self) {
        if self.profiles_kept.elapsed() >= PROFILES_PERIOD {
            self.profiles_kept = Instant::now();
            self.board.store.save_value("profiles", self.decider.profiles());
        }
    }

    /// Seats and CPU for those that run now, by what was measured last: who has just got ready is not to wait for a flow cycle.
    async fn reseat(&mut self) {
        let (Some(desired), Some(agent), Some(snapshot)) = (self.desired.clone(), &self.agent, &self.snapshot) else { return };
        let closed = self.operations.closed();
        let snapshot = self.observer.refresh(snapshot, agent, &Known { closed: &closed, seats: &self.seats });
        if !snapshot.flows.is_empty() {
            let decision = self.decider.reseat(&snapshot, &desired.spec, &self.seats);
            self.take_seats(&snapshot, decision, &desired.spec);
            self.tell_loads(&desired.spec).await;
        }
        self.snapshot = Some(snapshot);
    }

    fn decide_seats(&mut self, snapshot: &Snapshot) {
        let Some(desired) = self.desired.clone() else { return };
        let decision = self.decider.seats(snapshot, &desired.spec, &self.seats);
        self.take_seats(snapshot, decision, &desired.spec);
    }

    fn take_seats(&mut self, snapshot: &Snapshot, decision: Decision, pool: &PoolSpec) {
        let Decision { plan, explanations, loads, misses, .. } = decision;
        self.loads.handle_seats(&loads, pool);
        for (app, text) in notes::seats(&self.seats, &plan, &explanations) {
            self.board.note(Note::info(EventKind::Seats, text).app(&app));
        }
        let ready = snapshot.instances.iter().filter(|instance| instance.state == InstanceState::Ready);
        self.seated = ready.map(|instance| instance.app.clone()).collect();
        self.seats = plan;
        self.flow_report = explanations;
        if misses {
            self.want_plan();
        }
    }

    /// Requests wait for an application that has nothing ready: the next placement cycle may be far.
    fn somebody_waits_for_an_instance(&self) -> bool {
        let (Some(counters), Some(agent)) = (&self.counters, &self.agent) else { return false };
        let live = |app: &AppName| agent.instances.iter().any(|i| i.spec.app == *app && i.state.is_active());
        counters.flows.iter().any(|flow| flow.queued > 0 && !live(&flow.id.app))
    }

    async fn observe_gateway(&mut self) -> Option<GatewayCounters> {
        match self.gateway.observe().await {
            Ok(counters) => {
                self.well("gateway", "the gateway answers again");
                Some(counters)
            }
            Err(error) => {
                self.trouble("gateway", format!("the gateway does not answer: {error}"));
                None
            }
        }
    }

    /// Looks at what runs. False, and the former observation kept, when the agent does not answer.
    async fn observe_agent(&mut self) -> bool {
        let observed = tokio::time::timeout(OBSERVE_TIMEOUT, self.engine.observe()).await;
        let error = match observed {
            Ok(Ok(agent)) => {
                self.well("agent", "the node agent answers again");
                self.decider.handle_agent(&agent);
                let began_again = self.agent.as_ref().is_none_or(|before| before.started != agent.started);
                self.agent = Some(agent);
                self.agent_up = true;
                self.configure_nodes(began_again).await;
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", OBSERVE_TIMEOUT.as_secs()),
        };
        self.agent_up = false;
        self.trouble("agent", format!("the node agent does not answer: {error}"));
        false
    }

    /// Makes the agent's nodes those of the config.
    async fn configure_nodes(&mut self, began_again: bool) {
        let (Some(desired), Some(agent)) = (&self.desired, &self.agent) else { return };
        let nodes = &desired.spec.nodes;
        let differs = nodes.len() != agent.nodes.len()
            || nodes.iter().any(|node| {
                let same = |seen: &&weal_protocol::node::NodeCounters| {
                    seen.name == node.name && seen.memory_capacity == node.memory && seen.cpu_capacity == node.cpu
                };
                agent.nodes.iter().find(same).is_none()
            });
        if !(differs || began_again) {
            return;
        }
        if let Err(error) = self.engine.configure(nodes).await {
            self.trouble("nodes", format!("the nodes cannot be set up: {error}"));
            return;
        }
        self.well("nodes", "the nodes are set up");
        if began_again {
            self.loads.handle_forgotten();
        }
        if let Ok(agent) = self.engine.observe().await {
            self.agent = Some(agent);
        }
    }

    /// Tells the gateway what it does not know yet. Before the first look at the instances there is nothing to say: an empty
    /// list would stop what runs.
    async fn tell_gateway(&mut self) {
        let (Some(desired), Some(agent)) = (&self.desired, &self.agent) else { return };
        let clusters = gateway::clusters(&gateway::Inputs {
            pool: &desired.spec,
            instances: &agent.instances,
            draining: &self.operations.closed(),
            stopping: &self.operations.stopping(),
            seats: &self.seats,
            loads: &self.loads,
            seated: &self.seated,
            standbys: &self.standbys(),
        });
        match self.gateway.tell(clusters).await {
            Ok(version) => {
                self.well("gateway", "the gateway answers again");
                self.operations.handle_told(version);
            }
            Err(error) => self.trouble("gateway", format!("the gateway took no parameters: {error}")),
        }
    }

    async fn handle_instance_events(&mut self, events: &[InstanceEvent]) {
        // A new controller is told once more what an earlier one has heeded.
        let new: Vec<&InstanceEvent> = events.iter().filter(|event| event.time > self.noted_until).collect();
        for event in &new {
            self.board.note(notes::instance(event));
            *self.transitions.entry((event.app.clone(), event.state)).or_default() += 1;
        }
        self.sleep.handle_events(new.iter().copied());
        self.keep_resting();
        self.observe_agent().await;
        let ready: Vec<&InstanceEvent> = new.into_iter().filter(|event| event.state == InstanceState::Ready).collect();
        if !ready.is_empty() {
            self.heed_crowds(&ready);
            self.reseat().await;
        }
        self.tell_gateway().await;
        self.want_plan();
        self.show(false);
    }

    async fn poll_drains(&mut self) {
        self.counters = self.observe_gateway().await.map(Arc::new);
        self.heed_requests();
        self.tell_gateway().await;
        self.hand_over_drained().await;
    }

    /// Takes a config as a whole or not at all.
    async fn take_config(&mut self, update: ConfigUpdate) -> Result<ConfigTaken, ConfigRefused> {
        let (spec, mut warnings) = match desired::read(&update.text, &update.path) {
            Ok(read) => read,
            Err(refused) => {
                if !update.dry_run {
                    self.board.note(Note::error(EventKind::Config, format!("the config was not taken: {}", refused.error)));
                    self.config_error = Some(refused.error.clone());
                    self.show(false);
                }
                return Err(refused);
            }
        };
        let changes = desired::changes(self.desired.as_ref().map(|desired| &*desired.spec), &spec);
        let generation = self.desired.as_ref().map_or(0, |desired| desired.generation);
        let same = self.desired.as_ref().is_some_and(|now| *now.spec == spec && now.text == update.text);
        if update.dry_run || same {
            if !update.dry_run {
                self.config_error = None;
                self.show(false);
            }
            return Ok(ConfigTaken { generation, changes, warnings });
        }
        let desired = Desired { generation: generation + 1, text: update.text, path: update.path, spec: Arc::new(spec) };
        if let Err(error) = self.board.store.save_config(desired.stored()).await {
            warnings.push(format!("the config is in force but not stored yet: {error}"));
        }
        let generation = desired.generation;
        let count = changes.len();
        self.desired = Some(desired);
        self.config_error = None;
        let text = match changes.as_slice() {
            [] => format!("config {generation} is in force; nothing that runs changes"),
            [only] => format!("config {generation} is in force: {only}"),
            [first, ..] => format!("config {generation} is in force: {first}, and {} more changes", count - 1),
        };
        self.board.note(Note::info(EventKind::Config, text));
        self.starts.forget();
        if self.observe_agent().await {
            self.configure_nodes(false).await;
            self.update_running().await;
        }
        self.tell_gateway().await;
        self.want_plan();
        self.show(false);
        Ok(ConfigTaken { generation, changes, warnings })
    }

    /// Soon, and not too often.
    fn want_plan(&mut self) {
        let earliest = self.last_plan.map_or_else(Instant::now, |last| last + PLAN_PAUSE);
        let due = earliest.max(Instant::now() + PLAN_DELAY);
        self.plan_due = Some(self.plan_due.map_or(due, |already| already.min(due)));
    }

    fn note_store(&mut self) {
        match self.board.store.trouble().borrow().clone() {
            Some(error) => self.trouble("store", error),
            None => self.well("store", "the store writes again"),
        }
    }

    /// Something is wrong with weal itself: said once.
    fn trouble(&mut self, what: &'static str, text: String) {
        if self.problems.insert(what, text.clone()).is_none() {
            self.board.note(Note::warning(EventKind::Role, text));
        }
    }

    fn well(&mut self, what: &'static str, text: &str) {
        if self.problems.remove(what).is_some() {
            self.board.note(Note::info(EventKind::Role, text));
        }
    }

    /// Puts the current view on the board.
    fn show(&mut self, sample: bool) {
        let Some(desired) = &self.desired else {
            let problems = self.problems.values().cloned().collect();
            let mut view = self.board.view();
            view.status = Arc::new(Status {
                problems,
                config_error: self.config_error.clone(),
                time: clock::now(),
                ..(*view.status).clone()
            });
            self.board.show(view);
            return;
        };
        let mut report = self.plan_report.clone();
        report.flows.clone_from(&self.flow_report);
        let loads = status::fitted(&self.loads, self.agent.as_ref());
        let status = status::status(&status::Inputs {
            pool: &desired.spec,
            time: clock::now(),
            config_generation: desired.generation,
            config_error: self.config_error.as_deref(),
            problems: self.problems.values().cloned().collect(),
            agent: self.agent.as_ref(),
            agent_up: self.agent_up,
            snapshot: self.snapshot.as_ref(),
            recent: &self.recent,
            closed: &self.operations.closed(),
            seats: &self.seats,
            report: &report,
            work_factors: self.decider.work_factors(),
            loads: &loads,
            plan: self.plan_summary.as_ref(),
            failures: self.starts.failures(),
        });
        if sample {
            self.board.store.save_sample(status::sample(&status, self.timing().0.as_secs_f64()));
        }
        self.board.show(View {
            status: Arc::new(status),
            plan: Arc::new(PlanView { plan: self.plan.clone(), report, seats: self.seats.clone() }),
            config: Arc::new(desired.view()),
            counters: self.counters.clone(),
            actions_total: self.actions_total,
            transitions: self.transitions.clone(),
        });
    }
}

/// Asks for instance events for ever, in a task of its own that ends with the receiver.
fn watch_instances<E: Engine>(engine: Arc<E>) -> mpsc::Receiver<Vec<InstanceEvent>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut after = 0;
        while !sender.is_closed() {
            match engine.events(after, EVENTS_WAIT).await {
                Ok(events) => {
                    let Some(last) = events.last() else { continue };
                    after = last.id;
                    if sender.send(events).await.is_err() {
                        return;
                    }
                }
                // The agent is away; the loop says so. Asked again soon, for it is back within a second.
                Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
            }
        }
    });
    receiver
}

fn timer(period: Duration) -> tokio::time::Interval {
    let mut timer = interval_at(Instant::now() + period, period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

async fn sleep_until(when: Option<Instant>) {
    if let Some(when) = when {
        tokio::time::sleep_until(when).await;
    }
}

/// The instances that a set of actions concerns.
fn concerned(action: &Action) -> Option<&InstanceId> {
    match action {
        Action::Start { instance, .. }
        | Action::Stop { instance, .. }
        | Action::Sleep { instance, .. }
        | Action::Resume { instance, .. } => Some(instance),
        _ => None,
    }
}

/// Ids of instances.
type Names = BTreeSet<InstanceId>;
