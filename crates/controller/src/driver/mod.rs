//! The I/O around [`Cycle`]: one task hands it what happens and has its effects carried out, each in a task of its own.
//!
//! Nothing here waits for a peer. An effect's answer comes back over a channel when it is there; until then the loop goes on, takes configs
//! and answers orders by what it knows. Planning runs on a thread for blocking work.
//!
//! | file | part |
//! | --- | --- |
//! | `orders` | what the API asks |
//! | `beside` | what is computed for an answer |
//! | `kept` | orders that wait until something is on disk |
//! | `perform` | effects carried out |
//! | `record` | inputs and effects written down, for a replay |

mod beside;
mod kept;
mod orders;
mod perform;
pub mod record;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use weal_control::cycle::{Config, Cycle, Done, Effect, Input, Kept, Start};
use weal_engine::Engine;
use weal_model::{AppKind, AppSpec, PoolSpec, Status, Time};
use weal_protocol::controller::PlanView;
use weal_protocol::node::InstanceEvent;

use crate::board::{Board, View};
use crate::clock::{self, Clock};
use crate::desired::Desired;
use beside::Beside;
pub(crate) use kept::NotTaken;
use kept::WaitingOrder;
pub(crate) use orders::Order;
use perform::Hands;
pub(crate) use record::{Error as RecordError, Recorder};

/// Under which key the store has who was told to sleep.
pub(crate) const RESTING: &str = "resting";
/// Under which key it has what people ordered about applications.
pub(crate) const APP_ORDERS: &str = "app-orders";
/// Under which key it has what was learnt.
pub(crate) const PROFILES: &str = "profiles";
/// Under which key it has what was learnt from jobs that are done.
pub(crate) const JOB_RUNS: &str = "job-runs";
/// Under which key it has how far schedules are.
pub(crate) const SCHEDULES: &str = "schedules";
/// What waiting for instance events takes at most before they are asked for again.
const EVENTS_WAIT: Duration = Duration::from_secs(30);
/// The agent is away; the loop says so. Asked again soon, for it is back within a second.
const EVENTS_RETRY: Duration = Duration::from_millis(250);
/// Batches of events that may wait for the loop.
const EVENTS_QUEUE: usize = 16;

/// A loop and its surroundings.
pub(crate) struct Driver<E> {
    cycle: Cycle,
    clock: Clock,
    board: Arc<Board>,
    hands: Hands<E>,
    beside: Beside,
    desired: Option<Desired>,
    config_error: Option<String>,
    recorder: Recorder,
    answers: mpsc::UnboundedReceiver<Input>,
    /// Orders about jobs that wait for a write, by its number.
    waiting: BTreeMap<u64, Vec<WaitingOrder>>,
    /// The store could not be read at the start: the loop does not know its jobs.
    unread: bool,
}

impl<E: Engine> Driver<E> {
    /// A loop that goes on from `start`, over `engine` and `gateway`.
    pub fn new(
        board: Arc<Board>,
        engine: Arc<E>,
        gateway: &weal_rpc::Client,
        desired: Option<Desired>,
        start: Start,
        recorder: Recorder,
    ) -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        let clock = Clock::new();
        let hands = Hands::new(engine, gateway, sender);
        let config = desired.as_ref().map(|desired| hands.config(desired));
        let unread = start.jobs.unread;
        let start = Start { config, ..start };
        let mut recorder = recorder;
        recorder.handle_start(clock.now(), &start);
        let cycle = Cycle::new(clock.now(), start);
        let (waiting, beside) = (BTreeMap::new(), Beside::new());
        Self { cycle, clock, board, hands, beside, desired, config_error: None, recorder, answers, waiting, unread }
    }

    /// Runs until `orders` closes.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut events = watch_instances(self.hands.engine());
        let mut store = self.board.store.problem();
        // A store that cannot be opened has its problem from the beginning.
        if store.borrow().is_some() {
            store.mark_changed();
        }
        self.carry_out();
        loop {
            let timeout = self.clock.instant(self.cycle.poll_timeout());
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.handle_order(order),
                    None => return,
                },
                Some(answer) = self.answers.recv() => self.handle(answer),
                Some(events) = events.recv() => self.handle(Input::Events(events)),
                Ok(()) = store.changed() => {
                    let problem = store.borrow_and_update().clone();
                    if self.unread && problem.is_none() {
                        tracing::warn!("the store can be read now: the controller starts anew to know its jobs");
                        return;
                    }
                    self.handle(Input::Store(problem.map_or(Ok(()), Err)));
                }
                () = tokio::time::sleep_until(timeout) => self.handle(Input::Timeout),
            }
            self.carry_out();
        }
    }

    fn handle(&mut self, input: Input) {
        let now = self.clock.now();
        self.recorder.handle_input(now, &input);
        let kept = match &input {
            Input::Done(Done::JobsKept { write, result, .. }) => Some((*write, result.clone())),
            _ => None,
        };
        self.cycle.handle(now, input);
        if let Some((write, result)) = kept {
            self.handle_kept(write, &result);
        }
    }

    /// Has everything begun that the loop asks for now.
    fn carry_out(&mut self) {
        while let Some(effect) = self.cycle.poll_effect() {
            self.recorder.handle_effect(&effect);
            match effect {
                Effect::Note(note) => self.board.note(note),
                Effect::Keep(kept) => self.keep(kept),
                Effect::Show { sample } => self.show(sample),
                effect => self.hands.perform(effect),
            }
        }
    }

    fn keep(&self, kept: Kept) {
        match kept {
            Kept::Profiles(profiles) => self.board.store.save_value(PROFILES, &profiles),
            Kept::Resting(resting) => self.board.store.save_value(RESTING, &resting),
            Kept::Orders(orders) => self.board.store.save_value(APP_ORDERS, &orders),
            Kept::Schedules(marks) => self.board.store.save_value(SCHEDULES, &marks),
            Kept::Runs(runs) => self.board.store.save_value(JOB_RUNS, &runs),
            Kept::Jobs { records, write, is_submission } => {
                let board = Arc::clone(&self.board);
                self.hands.answer(async move {
                    let jobs = records.iter().map(|record| record.spec.name.clone()).collect();
                    let result = board.store.save_jobs(records, is_submission).await;
                    Input::Done(Done::JobsKept { jobs, write, result })
                });
            }
            Kept::Plan(plan) => {
                self.board.store.save_value("plan", &plan.0);
                self.board.store.save_value("report", &plan.1);
            }
        }
    }

    /// Puts what people are shown on the board.
    fn show(&mut self, sample: bool) {
        let now = self.clock.now();
        let config_error = self.config_error.as_deref();
        let (Some(desired), Some(status)) = (&self.desired, self.cycle.status(now, config_error)) else {
            let mut view = self.board.view();
            let (problems, config_error) = (self.cycle.problems(), self.config_error.clone());
            view.status = Arc::new(Status { problems, config_error, time: clock::now(), ..(*view.status).clone() });
            return self.board.show(view);
        };
        let status = Status { version: env!("CARGO_PKG_VERSION").to_owned(), ..status };
        if sample {
            self.board.store.save_sample(self.cycle.sample(&status));
        }
        let (plan, report, seats) = (self.cycle.plan().clone(), self.cycle.report(), self.cycle.seats().clone());
        let counts = self.cycle.counts();
        self.board.show(View {
            status: Arc::new(status),
            plan: Arc::new(PlanView { plan, report, seats }),
            config: Arc::new(desired.view()),
            counters: self.cycle.counters(),
            actions_total: counts.actions,
            transitions: counts.transitions.clone(),
            put_off: counts.put_off.clone(),
        });
    }

    fn now(&self) -> Time {
        self.clock.now()
    }
}

impl<E: Engine> Hands<E> {
    /// `desired` as the loop takes it: with what the engine would start each application from.
    fn config(&self, desired: &Desired) -> Config {
        let engine = self.engine();
        let pool = with_deploy(&desired.spec, desired.generation);
        let revisions = pool.apps.values().map(|app| (app.name.clone(), engine.revision(app))).collect();
        Config { generation: desired.generation, pool, revisions }
    }
}

/// The pool with the deploy that its tasks run for.
fn with_deploy(spec: &Arc<PoolSpec>, generation: u64) -> Arc<PoolSpec> {
    let is_task = |app: &AppSpec| app.kind == AppKind::Task;
    let mut pool = Arc::clone(spec);
    if pool.apps.values().any(is_task) {
        let tasks = Arc::make_mut(&mut pool).apps.values_mut().filter(|app| is_task(app));
        tasks.for_each(|task| task.deploy = generation);
    }
    pool
}

/// Asks for instance events for ever, in a task of its own that ends with the receiver.
fn watch_instances<E: Engine>(engine: Arc<E>) -> mpsc::Receiver<Vec<InstanceEvent>> {
    let (sender, receiver) = mpsc::channel(EVENTS_QUEUE);
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
                Err(_) => tokio::time::sleep(EVENTS_RETRY).await,
            }
        }
    });
    receiver
}
