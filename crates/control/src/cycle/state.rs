//! All parts of the loop, and what goes out. What the loop does with several parts is in files of their own, each an `impl State`. A file
//! calls only those in the rows above it:
//!
//! ```text
//! state, quotas
//! acting, job_limits, nodes, seating, telling
//! between, jobs, sleep
//! keeping_awake, placing, submissions
//! forecast, looks, scheduling, verbs
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weal_model::{AppName, AppSpec, EventKind, InstanceState, NodeName, NodeSpec, PoolSpec, Snapshot, Time};
use weal_protocol::node::InstanceEvent;
use weal_protocol::{NodeOrigin, Refusal};

use super::app_orders::AppOrders;
use super::awake::Awake;
use super::effect::{Config, Effect, Kept, Note, Start};
use super::learned::Learned;
use super::observe::{self, Observer};
use super::operations::Operations;
use super::peers::{Engine, Gateway, Ticket};
use super::plans::Placing;
use super::problems::Problems;
use super::put_off::PutOff;
use super::queue::Queue;
use super::recent::Recent;
use super::rest::Sleep;
use super::schedules::Schedules;
use super::seats::Seating;
use super::timers::Timers;

/// All of it.
#[derive(Debug)]
pub(super) struct State {
    /// What the loop works by: what is written, as people ordered it.
    pub config: Option<Config>,
    /// The config as it is written.
    pub written: Option<Config>,
    pub orders: AppOrders,
    /// [`Self::orders`] as it is stored.
    pub kept_orders: AppOrders,
    pub awake: Awake,
    /// When the next application begins or ceases to be kept awake, on the loop's clock.
    pub next_awake: Option<Time>,
    pub engine: Engine,
    pub gateway: Gateway,
    pub timers: Timers,
    pub measured: Measured,
    pub learned: Learned,
    pub seating: Seating,
    pub placing: Placing,
    pub operations: Operations,
    pub sleep: Sleep,
    pub queue: Queue,
    pub schedules: Schedules,
    /// When the next date of a schedule comes, on the loop's clock.
    pub next_date: Option<Time>,
    pub problems: Problems,
    pub waiting: Waiting,
    pub counts: Counts,
    /// Instance events up to here were noted by an earlier controller.
    pub noted_until: Time,
    pub outbox: VecDeque<Effect>,
}

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub observer: Observer,
    pub snapshot: Option<Snapshot>,
    pub recent: Recent,
}

/// What waits for a look at the engine or at the gateway.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub flow_cycle: Option<FlowCycle>,
    pub plan: Option<Ticket>,
    /// Instances that got ready want seats.
    pub ready: Option<(Ticket, Vec<InstanceEvent>)>,
    /// Running instances may have to be told of a new config.
    pub update: Option<Ticket>,
}

/// A flow cycle between its beginning and its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowCycle {
    pub engine: Ticket,
    pub gateway: Ticket,
    /// False for the very first look, which measures nothing.
    pub decides: bool,
}

/// What is counted for the metrics.
#[derive(Debug, Default, Clone)]
pub struct Counts {
    /// Placement actions that were begun.
    pub actions: u64,
    /// Instances that entered each state, by application.
    pub transitions: BTreeMap<(AppName, InstanceState), u64>,
    /// Actions that a plan wanted and that were not begun then, by the reason.
    pub put_off: BTreeMap<PutOff, u64>,
}

impl State {
    /// Goes on from `start`.
    pub fn new(now: Time, start: Start) -> Self {
        let mut state = Self {
            config: None,
            written: None,
            kept_orders: start.orders.clone(),
            orders: start.orders,
            awake: Awake::default(),
            next_awake: None,
            engine: Engine::new(start.engine),
            gateway: Gateway::default(),
            timers: Timers::default(),
            measured: Measured::default(),
            learned: Learned::new(start.profiles, start.job_costs),
            seating: Seating::new(start.gateway),
            placing: Placing::default(),
            operations: Operations::default(),
            sleep: Sleep::with_resting(start.resting),
            next_date: None,
            schedules: Schedules::new(start.jobs.schedules.clone(), start.jobs.records.iter()),
            queue: Queue::new(start.jobs),
            problems: Problems::default(),
            waiting: Waiting::default(),
            counts: Counts::default(),
            noted_until: start.noted_until,
            outbox: VecDeque::new(),
        };
        if let Some(config) = start.config {
            state.put_in_force(config);
        }
        state.timers.restart(now, state.config.as_ref().map(|config| &*config.pool));
        state
    }

    /// Works by `config` from now on, as people ordered it.
    pub(super) fn put_in_force(&mut self, config: Config) {
        self.orders.retain(&config.pool);
        self.gateway.ask_where_calls_go(config.pool.needed().into_iter());
        self.written = Some(config);
        self.awake.handle_changed();
        self.follow_orders();
    }

    /// Takes over what people ordered beside the config, and has it kept.
    pub(super) fn follow_orders(&mut self) {
        let Some(written) = &self.written else { return };
        let mut pool = self.orders.applied(&written.pool);
        self.awake.apply(&mut pool);
        self.config = Some(Config { pool: Arc::new(pool), ..written.clone() });
        self.follow_inner_addresses();
        if self.orders != self.kept_orders {
            self.kept_orders.clone_from(&self.orders);
            self.push(Effect::Keep(Kept::Orders(self.orders.clone())));
        }
    }

    /// Takes over where the gateway listens for calls between applications. An instance that was told another address is replaced.
    pub(super) fn follow_inner_addresses(&mut self) {
        let (Some(config), Some(inner)) = (&mut self.config, &self.gateway.inner) else { return };
        let is_known = |app: &AppSpec| app.inner == inner.get(&app.name).copied();
        if config.pool.apps.values().all(is_known) {
            return;
        }
        for app in Arc::make_mut(&mut config.pool).apps.values_mut() {
            app.inner = inner.get(&app.name).copied();
        }
    }

    /// Begins to observe both sides.
    pub(super) fn begin_flow_cycle(&mut self, now: Time, decides: bool) {
        if self.waiting.flow_cycle.is_some() {
            // The last one's patience ends within this cycle.
            return;
        }
        let (engine, gateway) = (self.engine.look.want(), self.gateway.look.want());
        self.waiting.flow_cycle = Some(FlowCycle { engine, gateway, decides });
        self.timers.handle_flow_cycle_begun(now);
        self.look(now);
    }

    /// Makes the calls that somebody waits for.
    pub(super) fn look(&mut self, now: Time) {
        if self.gateway.look.poll(now) {
            self.push(Effect::ObserveGateway);
        }
        if self.engine.look.poll(now) {
            self.push(Effect::ObserveEngine);
        }
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.outbox.push_back(effect);
    }

    pub(super) fn note(&mut self, note: Note) {
        self.push(Effect::Note(note));
    }

    /// What people are shown has changed; said once however often it changes before it is shown.
    pub(super) fn show(&mut self, sample: bool) {
        if !matches!(self.outbox.back(), Some(Effect::Show { sample: shown }) if *shown || !sample) {
            self.push(Effect::Show { sample });
        }
    }

    /// Something is wrong with weal itself: said once.
    pub(super) fn raise_problem(&mut self, what: &'static str, text: String) {
        if self.problems.raise(what, text.clone()) {
            self.note(Note::warning(EventKind::Role, text));
        }
    }

    pub(super) fn clear_problem(&mut self, what: &'static str, text: &str) {
        if self.problems.clear(what) {
            self.note(Note::info(EventKind::Role, text));
        }
    }

    /// The config's pool; on nodes that the engine finds itself, with those.
    pub(super) fn pool(&self) -> Option<Arc<PoolSpec>> {
        let config = self.config.as_ref()?;
        let discovered = self.engine.seen.as_ref().filter(|seen| seen.capabilities.nodes == NodeOrigin::Discovered);
        let Some(seen) = discovered else { return Some(Arc::clone(&config.pool)) };
        let mut pool = (*config.pool).clone();
        pool.nodes = observe::discovered_nodes(seen, &config.pool);
        Some(Arc::new(pool))
    }

    /// Why an application may not be asked about; `None` when the pool has it.
    pub(super) fn no_such(&self, app: &AppName) -> Option<Refusal> {
        let known = self.config.as_ref().is_some_and(|config| config.pool.apps.contains_key(app));
        (!known).then(|| Refusal::NoApplication { app: app.clone() })
    }
}

/// A node of a pool, by name.
pub(super) fn node_of<'a>(pool: &'a PoolSpec, name: &NodeName) -> Option<&'a NodeSpec> {
    pool.nodes.iter().find(|node| node.name == *name)
}
