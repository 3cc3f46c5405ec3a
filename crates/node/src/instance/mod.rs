//! One instance: a task of its own that owns everything about it, and the handle that the agent keeps.
//!
//! ```text
//! Launch -> Running -> Ended -> Launch ...        (by restart policy, with growing pauses)
//!              |          |
//!              +--- Stop -+--> gone
//! ```

mod ending;
mod launch;
mod pages;
mod program;
mod running;
mod sleep;
mod start_error;

pub use program::{NoProgram, find_program};

use std::collections::VecDeque;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use weal_host::Identity;
use weal_model::{Bytes, Cpu, InstanceId, InstanceState, RunEnd, Rung, SandboxMode, SleepCosts, Time};
use weal_protocol::node::{InstanceEvent, InstanceSpec};
use weal_protocol::{InstanceCommand, Refusal};

use crate::blocking::aside;
use crate::clock::now;
use crate::files::{read_json, write_json};
use crate::isolation::{GroupLimits, Kind, Member};
use crate::paging::working_set::WorkingSet;
use crate::shim::{PID_FILE, Record, Started};
use crate::site::Site;

pub use ending::{discard, finish_off};
pub use launch::first_record;

/// What the agent remembers about an instance besides what it was started from; written with every change.
pub const MEMORY_FILE: &str = "agent.json";

/// Content of [`MEMORY_FILE`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// What it does. Written before it is enacted, so that the next agent finishes what this one began.
    pub state: InstanceState,
    /// Why.
    pub detail: String,
    /// Since when.
    pub since: Time,
    /// How often it was started again.
    pub restarts: u32,
    /// Failed attempts in a row: the pause before the next one grows with it.
    pub failed_in_a_row: u32,
    /// Seconds from start to ready.
    pub start_took_s: Option<f64>,
    /// Its share.
    pub share: Option<Cpu>,
    /// Its CPU limit; that of the spec until another is set.
    pub cpu_limit: Option<Cpu>,
    /// Its memory limit; that of the spec until another is set.
    #[serde(default)]
    pub memory_limit: Option<Bytes>,
    /// How it ended last, while it waits to be started again.
    #[serde(default)]
    pub ended: Option<String>,
    /// CPU-seconds of its former processes that nothing else remembers.
    pub cpu_before_s: f64,
    /// Processes that had been killed for want of memory when it was started last.
    #[serde(default)]
    pub oom_kills: u64,
    /// What is being done to it: the next agent finishes it.
    #[serde(default)]
    pub wish: Option<Wish>,
    /// Seconds that its last wake took.
    #[serde(default)]
    pub last_wake_s: Option<f64>,
    /// What its sleep has cost.
    #[serde(default)]
    pub costs: SleepCosts,
    /// How it ended, if it is a run of a job and has.
    #[serde(default)]
    pub end: Option<RunEnd>,
    /// The user of the socket at its port, as of the last look that found it to be its own.
    #[serde(default)]
    pub listener: Option<u32>,
}

/// A transition that takes a while; written down before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    /// To sleep that deep.
    Sleep(Rung),
}

/// What others may see of an instance.
#[derive(Debug, Clone)]
pub struct View {
    /// What it was started from.
    pub record: Record,
    /// How it is.
    pub memory: RunRecord,
    /// Its main process.
    pub pid: Option<u32>,
    /// Its shim: the last one that was started, or found.
    pub shim: Option<Identity>,
    /// Orders to sleep that it has not answered yet: it is as good as asleep.
    pub bedtimes: u32,
}

impl View {
    /// The user whose sockets are at its port, as far as that is known.
    pub fn listener(&self) -> Option<u32> {
        // One that was not looked at yet has its own user's. One that it was given is this process'.
        let user = self.record.launch.user.as_ref().filter(|_| !self.record.launch.socket).map(|user| user.uid);
        self.memory.listener.or(user)
    }

    /// True when who is sent to it finds it awake.
    pub fn stays_awake(&self) -> bool {
        self.memory.state == InstanceState::Ready && self.memory.wish.is_none() && self.bedtimes == 0
    }

    /// True when it is asleep and nothing is being done to it.
    pub fn sleeps_on(&self) -> bool {
        self.memory.state.is_asleep() && self.memory.wish.is_none()
    }
}

/// What an instance is told.
#[derive(Debug)]
pub enum Order {
    /// Run; if it does, take over what does not need a new process.
    Start(Box<InstanceSpec>),
    /// End, and leave nothing.
    Stop,
    /// Sleep that deep.
    Sleep(Rung),
    /// Give up the memory that it sleeps with; the reason.
    Park(String),
    /// Go on.
    Resume,
    /// Use that much.
    SetCpu {
        /// Share relative to siblings.
        share: Cpu,
        /// The most.
        limit: Option<Cpu>,
        /// The most memory, where that changes.
        memory: Option<Bytes>,
    },
}

/// Where the outcome of an order goes.
pub type Reply = oneshot::Sender<Result<(), Refusal>>;

/// An instance, from outside.
#[derive(Debug, Clone)]
pub struct Handle {
    view: Arc<Mutex<View>>,
    orders: mpsc::Sender<(Order, Reply)>,
}

impl Handle {
    /// What it is and does now.
    pub fn view(&self) -> View {
        self.view.lock().expect("nothing panics while it is held").clone()
    }

    /// Tells it something and waits until that is done.
    pub async fn order(&self, order: Order) -> Result<(), Refusal> {
        self.begin(order).await.outcome().await
    }

    /// Tells it something: what it is told later comes after that.
    pub async fn begin(&self, order: Order) -> Ordered {
        let is_stop = matches!(order, Order::Stop);
        let bedtime = matches!(order, Order::Sleep(_)).then(|| Bedtime::of(&self.view));
        let (reply, answer) = oneshot::channel();
        // One that is gone drops the other end, as one does that goes before it answers.
        let _ = self.orders.send((order, reply)).await;
        Ordered { instance: self.view().record.spec.id, is_stop, answer, _bedtime: bedtime }
    }

    /// True when its task has ended, so that nothing of it is left.
    pub fn is_gone(&self) -> bool {
        self.orders.is_closed()
    }
}

/// Something that an instance was told.
pub struct Ordered {
    instance: InstanceId,
    is_stop: bool,
    answer: oneshot::Receiver<Result<(), Refusal>>,
    _bedtime: Option<Bedtime>,
}

impl Ordered {
    /// Waits until it is done.
    pub async fn outcome(self) -> Result<(), Refusal> {
        match self.answer.await {
            Ok(result) => result,
            Err(_) if self.is_stop => Ok(()),
            Err(_) => Err(Refusal::Gone { instance: self.instance }),
        }
    }
}

/// Counts as one of an instance's `bedtimes` until it is dropped.
struct Bedtime(Arc<Mutex<View>>);

impl Bedtime {
    fn of(view: &Arc<Mutex<View>>) -> Self {
        view.lock().expect("nothing panics while it is held").bedtimes += 1;
        Self(Arc::clone(view))
    }
}

impl Drop for Bedtime {
    fn drop(&mut self) {
        self.0.lock().expect("nothing panics while it is held").bedtimes -= 1;
    }
}

/// Begins a new instance and starts its process. The future says whether it runs.
pub fn begin(site: Arc<Site>, record: Record) -> (Handle, oneshot::Receiver<Result<(), Refusal>>) {
    let memory = RunRecord {
        state: InstanceState::Starting,
        detail: String::new(),
        since: now(),
        restarts: 0,
        failed_in_a_row: 0,
        start_took_s: None,
        share: None,
        cpu_limit: record.spec.cpu_limit,
        memory_limit: None,
        ended: None,
        cpu_before_s: 0.0,
        oom_kills: 0,
        wish: None,
        last_wake_s: None,
        costs: SleepCosts::default(),
        end: None,
        listener: None,
    };
    let (reply, answer) = oneshot::channel();
    let handle = Task::spawn(site, record, memory, Phase::Launch(Some(reply)));
    (handle, answer)
}

/// Takes an instance over that a former agent began.
pub fn adopt(site: Arc<Site>, record: Record, memory: RunRecord) -> Handle {
    Task::spawn(site, record, memory, Phase::Adopt)
}

/// What the task does next.
enum Phase {
    Launch(Option<Reply>),
    Adopt,
    Running(Box<running::Running>),
    Ended(ending::End),
    Gone,
}

/// The task that owns an instance.
struct Task {
    site: Arc<Site>,
    dir: PathBuf,
    view: Arc<Mutex<View>>,
    orders: mpsc::Receiver<(Order, Reply)>,
    /// Orders that came while it could not be turned to them.
    deferred: VecDeque<(Order, Reply)>,
    /// What its processes need when they wake, once it was read.
    working_set: Option<Arc<WorkingSet>>,
    /// Set to end what is still being read ahead since the last wake.
    reading: Arc<AtomicBool>,
    /// The socket that it is given, where it is given one.
    socket: Option<TcpListener>,
}

impl Task {
    fn spawn(site: Arc<Site>, record: Record, memory: RunRecord, first: Phase) -> Handle {
        let (sender, orders) = mpsc::channel(64);
        let dir = site.dir(record.spec.id.as_str());
        let view = Arc::new(Mutex::new(View { record, memory, pid: None, shim: None, bedtimes: 0 }));
        let (deferred, reading, socket) = Default::default();
        let task = Self { site, dir, view: Arc::clone(&view), orders, deferred, working_set: None, reading, socket };
        tokio::spawn(task.run(first));
        Handle { view, orders: sender }
    }

    async fn run(mut self, first: Phase) {
        let mut phase = first;
        loop {
            phase = match phase {
                Phase::Launch(reply) => self.launch(reply).await,
                Phase::Adopt => self.adopt().await,
                Phase::Running(running) => self.attend(*running).await,
                Phase::Ended(end) => self.rest(end).await,
                Phase::Gone => return,
            }
        }
    }

    async fn next_order(&mut self) -> Option<(Order, Reply)> {
        match self.deferred.pop_front() {
            Some(order) => Some(order),
            None => self.orders.recv().await,
        }
    }

    fn record(&self) -> Record {
        self.view.lock().expect("nothing panics while it is held").record.clone()
    }

    fn spec(&self) -> InstanceSpec {
        self.record().spec
    }

    /// Who runs, as its shim wrote it down; `None` when nothing was started yet.
    fn started(&self) -> Option<Started> {
        read_json(&self.dir.join(PID_FILE)).ok().flatten()
    }

    fn memory(&self) -> RunRecord {
        self.view.lock().expect("nothing panics while it is held").memory.clone()
    }

    /// Whether it is a run of a job.
    fn is_run(&self) -> bool {
        self.view.lock().expect("nothing panics while it is held").record.spec.job.is_some()
    }

    fn is_asleep(&self) -> bool {
        self.view.lock().expect("nothing panics while it is held").memory.state.is_asleep()
    }

    /// Changes what is remembered, on disk too.
    fn remember(&self, change: impl FnOnce(&mut RunRecord)) {
        let memory = {
            let mut view = self.view.lock().expect("nothing panics while it is held");
            change(&mut view.memory);
            view.memory.clone()
        };
        if let Err(error) = aside(|| write_json(&self.dir.join(MEMORY_FILE), &memory)) {
            tracing::warn!(instance = %self.spec().id, %error, "the state of an instance is not written down");
        }
    }

    /// Enters a state and tells everybody; the same state with the same reason again is no news.
    fn enter(&self, state: InstanceState, detail: impl Into<String>) {
        let (before, detail) = (self.memory(), detail.into());
        if before.state == state && before.detail == detail {
            return;
        }
        self.remember(|memory| {
            if memory.state != state {
                memory.since = now();
            }
            memory.state = state;
            memory.detail.clone_from(&detail);
        });
        self.tell(state, detail);
    }

    fn tell(&self, state: InstanceState, detail: String) {
        let spec = self.spec();
        tracing::info!(instance = %spec.id, ?state, detail, "instance");
        let job = spec.job.map(|run| run.job);
        let event = InstanceEvent { id: 0, time: now(), instance: spec.id, app: spec.app, node: spec.node, state, detail, job };
        self.site.events.push(event);
    }

    /// The refusal of what its state does not allow.
    fn wrong_state(&self, command: InstanceCommand) -> Refusal {
        let view = self.view.lock().expect("nothing panics while it is held");
        Refusal::WrongState { instance: view.record.spec.id.clone(), state: view.memory.state, command: Some(command) }
    }

    fn set_pid(&self, pid: Option<u32>) {
        self.view.lock().expect("nothing panics while it is held").pid = pid;
    }

    fn set_shim(&self, shim: Identity) {
        self.view.lock().expect("nothing panics while it is held").shim = Some(shim);
    }

    fn limits(&self) -> GroupLimits {
        let (memory, spec) = (self.memory(), self.spec());
        let processes = (spec.sandbox.mode == SandboxMode::Strict).then_some(spec.sandbox.processes);
        GroupLimits { memory: self.memory_limit(), cpu: memory.cpu_limit, share: memory.share, processes }
    }

    /// Does something with this instance's place in the isolation.
    fn isolated<T>(&self, act: impl FnOnce(&dyn crate::isolation::Isolation, Member<'_>) -> T) -> T {
        let spec = self.spec();
        let member = Member { node: spec.node.as_str(), instance: spec.id.as_str(), dir: &self.dir };
        act(self.site.isolation.as_ref(), member)
    }

    fn is_plain(&self) -> bool {
        self.site.isolation.kind() == Kind::None
    }

    /// The most memory that it may use now.
    fn memory_limit(&self) -> Bytes {
        self.memory().memory_limit.unwrap_or_else(|| self.spec().memory)
    }

    fn set_cpu(&self, share: Cpu, limit: Option<Cpu>, most: Option<Bytes>) -> Result<(), Refusal> {
        self.remember_limits(share, limit, most);
        let limits = self.limits();
        Ok(self.isolated(|isolation, member| isolation.limit(member, &limits))?)
    }

    fn remember_limits(&self, share: Cpu, limit: Option<Cpu>, most: Option<Bytes>) {
        self.remember(|memory| {
            (memory.share, memory.cpu_limit) = (Some(share), limit);
            memory.memory_limit = most.or(memory.memory_limit);
        });
    }

    /// Takes over the parts of a spec that need no new process. Commands among them run as the process that is there, so what counts is whether
    /// root allows them to that, and not to what the order says it is.
    fn update(&self, spec: &InstanceSpec) -> Result<(), Refusal> {
        let mut record = self.record();
        if record.spec.revision != spec.revision || !record.spec.is_in_place_of(spec) || !record.spec.has_rights_of(spec) {
            return Err(Refusal::OtherRevision { instance: spec.id.clone() });
        }
        record.spec.health = spec.health.clone();
        record.spec.restart = spec.restart;
        record.spec.stop_timeout_s = spec.stop_timeout_s;
        record.spec.on_resume.clone_from(&spec.on_resume);
        record.spec.datagrams = spec.datagrams;
        self.site.accounts.check(&record.spec)?;
        write_json(&self.dir.join(crate::shim::SPEC_FILE), &record)?;
        self.view.lock().expect("nothing panics while it is held").record = record;
        Ok(())
    }
}

/// Waits until `condition` holds, at most `patience`; says whether it does. For what the kernel does soon but tells nobody.
async fn until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        if condition() {
            return true;
        }
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
