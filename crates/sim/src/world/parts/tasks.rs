//! Everything that takes time on the way: requests, starts, resumes, housekeeping. Each is a list of steps, done one after the other.

use std::rc::Rc;

use weal_control::admission::MOST_ATTEMPTS;
use weal_control::dispatch::InstanceIndex;
use weal_control::flow::pipeline;
use weal_model::Bytes;

use super::event::TaskId;
use weal_scenario::{Behaviour, RequestCost, Scenario, WorkDistribution};

/// One thing under way.
#[derive(Debug, Clone)]
pub struct Task {
    pub owner: Owner,
    pub steps: Rc<[TaskStep]>,
    /// The step that it is at.
    pub at: usize,
    /// Whose it is.
    pub home: usize,
    /// The instance that computes for it now.
    pub computes_at: Option<usize>,
    /// The link that it leaves through now.
    pub leaves_by: Option<usize>,
    /// The instance of another application that it calls or called last.
    pub callee: Option<usize>,
}

impl Task {
    /// At the first of its steps.
    pub fn new(owner: Owner, steps: Rc<[TaskStep]>, home: usize) -> Self {
        Self { owner, steps, at: 0, home, computes_at: None, leaves_by: None, callee: None }
    }
}

/// What a task is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Owner {
    Request(Request),
    /// The instance becomes ready when it is done.
    Start,
    Housekeeping,
    /// A thread of a task of a job.
    Job {
        job: usize,
        task: usize,
    },
}

/// A request on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    pub flow: usize,
    pub session: Option<u32>,
    pub app: usize,
    /// Its place in the gateway; `None` once the gateway has given up on it, while an instance still works on it.
    pub place: Option<pipeline::Ticket>,
    /// False while the request waits.
    pub is_at_instance: bool,
    /// Instances that have failed it since it was last taken from its queue.
    pub failed: [Option<InstanceIndex>; MOST_ATTEMPTS],
    /// How often it was sent again although an instance may have begun with it.
    pub replays: u32,
}

impl Request {
    /// An instance has failed it.
    pub fn note_failed(&mut self, instance: InstanceIndex) {
        if let Some(free) = self.failed.iter_mut().find(|failed| failed.is_none()) {
            *free = Some(instance);
        }
    }

    /// Who has failed it.
    pub fn failed(&self) -> Vec<InstanceIndex> {
        self.failed.iter().flatten().copied().collect()
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TaskStep {
    /// Seconds that are not CPU.
    Wait(f64),
    /// CPU-seconds on the task's own instance; those of requests vary with the load.
    Own { work_s: f64, spread: WorkDistribution },
    /// Seconds at full bandwidth on a link.
    Send { from: Sender, seconds: f64 },
    /// CPU-seconds on some instance of another application.
    Other { app: usize, work_s: f64, spread: WorkDistribution },
}

/// Whose link something leaves through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The gateway's: the request.
    Gateway,
    /// That of the task's own node: a call to this application, unless who is called is on the same node.
    Caller { app: usize },
    /// That of the node of who was called: what it answers, unless that is the caller's own.
    Callee,
    /// That of the task's own node: the answer.
    Home,
}

/// The steps of a request to `app` of `class`: the way there and back, calls, own work, own waiting.
pub fn steps_of_request(scenario: &Scenario, app: &str, class: &str) -> Rc<[TaskStep]> {
    let latency_s = scenario.surroundings.latency.0;
    let cost = scenario.behaviours[app].request(class);
    let send = |from: Sender, size: Bytes| {
        let seconds = scenario.surroundings.bandwidth.map_or(0.0, |bandwidth| size.0 as f64 / bandwidth.0);
        TaskStep::Send { from, seconds }
    };
    let mut steps = vec![TaskStep::Wait(2.0 * latency_s), send(Sender::Gateway, cost.request)];
    for call in &cost.calls {
        let index = scenario.pool.apps.keys().position(|name| name.as_str() == call.app).expect("calls are checked when read");
        let called: &RequestCost = &scenario.behaviours[&call.app].request;
        for _ in 0..call.count {
            let work_s = call.work_s.unwrap_or(called.work_s);
            steps.push(TaskStep::Wait(2.0 * latency_s));
            steps.push(send(Sender::Caller { app: index }, called.request));
            steps.push(TaskStep::Other { app: index, work_s, spread: called.spread });
            steps.push(TaskStep::Wait(called.delay_s));
            steps.push(send(Sender::Callee, called.response));
        }
    }
    steps.push(TaskStep::Own { work_s: cost.work_s, spread: cost.spread });
    steps.push(TaskStep::Wait(cost.delay_s));
    steps.push(send(Sender::Home, cost.response));
    steps.retain(|step| !matches!(step, TaskStep::Wait(0.0) | TaskStep::Send { seconds: 0.0, .. }));
    steps.into()
}

/// The steps from a start to readiness.
pub fn steps_of_start(behaviour: &Behaviour) -> Rc<[TaskStep]> {
    let changes = behaviour.changes;
    let work_s = changes.start_work_s.min(changes.start_s);
    Rc::new([TaskStep::Wait(changes.start_s - work_s), TaskStep::Own { work_s, spread: WorkDistribution::Constant }])
}

/// Tasks by id: a slab whose ids are never valid twice.
#[derive(Debug, Default)]
pub struct Tasks {
    slots: Vec<(u32, Option<Task>)>,
    free: Vec<u32>,
}

impl Tasks {
    pub fn insert(&mut self, task: Task) -> TaskId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.1 = Some(task);
        u64::from(entry.0) << 32 | u64::from(slot)
    }

    pub fn get(&self, id: TaskId) -> Option<&Task> {
        let (generation, task) = self.slots.get(id as u32 as usize)?;
        task.as_ref().filter(|_| u64::from(*generation) == id >> 32)
    }

    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        let (generation, task) = self.slots.get_mut(id as u32 as usize)?;
        task.as_mut().filter(|_| u64::from(*generation) == id >> 32)
    }

    pub fn remove(&mut self, id: TaskId) -> Option<Task> {
        self.get(id)?;
        let slot = id as u32;
        let entry = &mut self.slots[slot as usize];
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(slot);
        entry.1.take()
    }

    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        let present =
            self.slots.iter().enumerate().filter_map(|(slot, (generation, task))| Some((slot, generation, task.as_ref()?)));
        present.map(|(slot, generation, task)| (u64::from(*generation) << 32 | slot as u64, task))
    }
}
