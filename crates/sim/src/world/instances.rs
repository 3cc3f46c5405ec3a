//! Instances: their states, and what actions and accidents make of them.

use weal_control::dispatch::Attempt;
use weal_control::flow::pipeline::Outcome;
use weal_model::{Action, Bytes, InstanceId, InstanceState, Rung};
use weal_protocol::Refusal;

use super::tasks::{Owner, Task, steps_of_start};
use super::wakes::JUST_NAMED_S;
use super::{Event, TaskId, World};
use weal_scenario::Spread;

/// Before an instance that ended by itself is started again.
const BACKOFF_S: f64 = 1.0;

/// An instance, as long as anything of it is there.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    pub id: InstanceId,
    pub app: usize,
    pub node: usize,
    pub state: InstanceState,
    pub since_s: f64,
    /// When it was last started.
    pub started_s: f64,
    /// Requests that the gateway has outstanding at it.
    pub in_flight: u32,
    /// Counts what happens to it, so that a stop overtakes a start.
    pub version: u64,
    /// What is being done to it.
    pub operation: Option<Operation>,
    /// What its last wake took; infinite when it was never woken.
    pub last_wake_s: f64,
    /// When the node agent last named it to the gateway.
    pub named_s: f64,
    /// From its start to ready.
    pub start_took_s: Option<f64>,
    /// How often it was started again.
    pub restarts: u32,
}

/// What the engine is doing to an instance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Operation {
    pub change: Change,
    /// It will fail.
    pub fails: bool,
    /// When it began.
    began_s: f64,
    /// The controller's order, which hears what becomes of it; `None` when the gateway has asked for it.
    pub ordered: Option<Action>,
}

/// An action on an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Start,
    Stop,
    Sleep(Rung),
    Resume,
}

impl Instance {
    /// What is being done to it.
    pub fn change(&self) -> Option<Change> {
        self.operation.as_ref().map(|operation| operation.change)
    }

    /// Its process takes connections.
    pub fn answers(&self) -> bool {
        matches!(self.state, InstanceState::Ready | InstanceState::Stopping)
    }
}

impl World<'_> {
    /// A new instance, starting but with nothing under way.
    pub(super) fn add_instance(&mut self, app: usize, node: usize, id: InstanceId) -> usize {
        let index = self.instances.len();
        self.nodes[node].machine.add(index);
        let (since_s, state) = (self.now_s(), InstanceState::Starting);
        self.instances.push(Instance {
            id,
            app,
            node,
            state,
            since_s,
            started_s: since_s,
            in_flight: 0,
            version: 0,
            operation: None,
            last_wake_s: f64::INFINITY,
            named_s: f64::NEG_INFINITY,
            start_took_s: None,
            restarts: 0,
        });
        self.oracle_memory(node);
        index
    }

    pub(super) fn set_state(&mut self, instance: usize, state: InstanceState) {
        let since_s = self.now_s();
        let entry = &mut self.instances[instance];
        entry.version += 1;
        (entry.state, entry.since_s) = (state, since_s);
        let (app, node) = (entry.app, entry.node);
        self.oracle_memory(node);
        if state == InstanceState::Ready {
            self.watch_housekeeping(instance);
        }
        // The gateway hears of who is awake from the node agent first, if it has asked.
        self.go_on_waking(app);
        self.push_state(instance);
    }

    /// The engine is ordered to do something to an instance or a job. What cannot be done is refused at once.
    pub(super) fn act(&mut self, action: Action) {
        match &action {
            Action::Start { instance, app, node } => {
                let app = self.apps.iter().position(|entry| entry.name == *app);
                let node = self.nodes.iter().position(|entry| entry.name == *node);
                let (Some(app), Some(node)) = (app, node) else {
                    return self.push_outcome(action, 0.0, Some(Refusal::failed("there is no such application or node")));
                };
                let index = self.add_instance(app, node, instance.clone());
                self.operate(index, Change::Start, Some(action));
            }
            Action::Stop { instance, .. } => self.act_on(instance.clone(), Change::Stop, action),
            Action::Sleep { instance, rung, .. } => self.act_on(instance.clone(), Change::Sleep(*rung), action),
            Action::Resume { instance, .. } => self.act_on(instance.clone(), Change::Resume, action),
            Action::StartJob { .. }
            | Action::SuspendJob { .. }
            | Action::ResumeJob { .. }
            | Action::MigrateJob { .. }
            | Action::SetJobCpu { .. } => self.act_on_job(action),
        }
    }

    fn act_on(&mut self, id: InstanceId, change: Change, action: Action) {
        let now_s = self.now_s();
        let found = self.instances.iter().rposition(|entry| entry.id == id && entry.state != InstanceState::Stopped);
        let Some(index) = found else { return self.push_outcome(action, 0.0, None) };
        let entry = &mut self.instances[index];
        let refusal = match (change, &mut entry.operation) {
            // One that is being woken for the gateway is woken for the controller too.
            (Change::Resume, Some(operation)) if operation.change == Change::Resume => {
                operation.ordered = Some(action);
                return;
            }
            (Change::Sleep(_) | Change::Resume, Some(_)) => Some(Refusal::WrongState { instance: id, state: entry.state }),
            (Change::Sleep(_), None) if now_s - entry.named_s < JUST_NAMED_S => {
                Some(Refusal::AskedFor { ago_s: now_s - entry.named_s })
            }
            _ => None,
        };
        match refusal {
            Some(refusal) => self.push_outcome(action, 0.0, Some(refusal)),
            None => self.operate(index, change, Some(action)),
        }
    }

    pub(super) fn room(&self, node: usize) -> Bytes {
        self.scenario.pool.nodes[node].memory - self.memory_held(node)
    }

    /// Memory that the instances and jobs of a node hold, by what each may use.
    pub(super) fn memory_held(&self, node: usize) -> Bytes {
        let here = self.instances.iter().filter(|i| i.node == node && i.state.holds_memory());
        let instances: Bytes = here.map(|i| self.scenario.pool.apps[&self.apps[i.app].name].memory).sum();
        instances + self.jobs.iter().map(|job| job.memory_on(node)).sum()
    }

    /// Begins a change, whether or not the controller has ordered it.
    pub(super) fn operate(&mut self, instance: usize, change: Change, ordered: Option<Action>) {
        let now_s = self.now_s();
        let (takes_s, fails) = self.draw_failure(self.takes_s(instance, change));
        let (app, state) = (self.instances[instance].app, self.instances[instance].state);
        let costs = &mut self.sleep_costs[app];
        match (change, state.rung()) {
            (Change::Sleep(rung), _) if !fails => costs.of_mut(rung).sleep_s = Some(takes_s),
            (Change::Resume, Some(rung)) if !fails => costs.of_mut(rung).wake_s = Some(takes_s),
            _ => {}
        }
        let starts = change == Change::Start && !fails;
        // A start is done when its process runs; that it is ready is an event.
        let (told, ordered) = if starts { (ordered, None) } else { (None, ordered) };
        self.instances[instance].operation = Some(Operation { change, fails, began_s: now_s, ordered });
        if change == Change::Resume {
            // From here on it holds its memory again.
            self.set_state(instance, InstanceState::Starting);
        }
        if starts {
            if let Some(action) = told {
                self.push_outcome(action, 0.0, None);
            }
            self.push_state(instance);
            return self.begin_start(instance);
        }
        let entry = &mut self.instances[instance];
        entry.version += 1;
        let version = entry.version;
        if change == Change::Stop && entry.state != InstanceState::Starting {
            entry.state = InstanceState::Stopping;
            self.push_state(instance);
        }
        self.agenda.enter(now_s + takes_s, Event::Changed { instance, version });
    }

    /// How long a change takes.
    fn takes_s(&self, instance: usize, change: Change) -> f64 {
        let name = &self.apps[self.instances[instance].app].name;
        let changes = self.scenario.behaviours[name.as_str()].changes;
        let image_mib = self.scenario.pool.apps[name].memory.0 as f64 / Bytes::MIB as f64;
        match change {
            Change::Start => changes.start_s,
            Change::Stop => changes.stop_s,
            Change::Sleep(Rung::Suspended) => changes.suspend_s + changes.suspend_s_per_mib * image_mib,
            Change::Sleep(_) => changes.park_s + changes.suspend_s_per_mib * image_mib,
            Change::Resume if self.instances[instance].state == InstanceState::Parked => {
                changes.resume_s + changes.page_in_s + changes.resume_s_per_mib * image_mib
            }
            Change::Resume => changes.resume_s + changes.resume_s_per_mib * image_mib,
        }
    }

    fn begin_start(&mut self, instance: usize) {
        let now_s = self.now_s();
        let entry = &mut self.instances[instance];
        entry.started_s = now_s;
        let steps = steps_of_start(&self.scenario.behaviours[self.apps[entry.app].name.as_str()]);
        let task = self.tasks.insert(Task::new(Owner::Start, steps, instance));
        self.begin_step(task);
    }

    /// What was being done to an instance is done, or has failed. Without an operation it is a restart that is due.
    pub(super) fn changed(&mut self, instance: usize) {
        let now_s = self.now_s();
        let node = self.instances[instance].node;
        let Some(Operation { change, fails, began_s, ordered }) = self.instances[instance].operation.take() else {
            return match self.instances[instance].state {
                InstanceState::Backoff => {
                    self.instances[instance].restarts += 1;
                    self.set_state(instance, InstanceState::Starting);
                    self.begin_start(instance);
                }
                _ => self.set_state(instance, InstanceState::Ready),
            };
        };
        match (change, fails) {
            (Change::Start, false) => {
                self.instances[instance].start_took_s = Some(now_s - self.instances[instance].started_s);
                self.set_state(instance, InstanceState::Ready);
            }
            (Change::Start, true) | (Change::Stop, false) => self.remove(instance),
            (Change::Resume, false) | (Change::Stop, true) => {
                if change == Change::Resume {
                    self.instances[instance].last_wake_s = now_s - began_s;
                }
                self.nodes[node].machine.freeze(now_s, instance, false);
                self.soil(node);
                self.set_state(instance, InstanceState::Ready);
            }
            (Change::Resume, true) => self.set_state(instance, InstanceState::Suspended),
            (Change::Sleep(rung), false) => {
                self.nodes[node].machine.freeze(now_s, instance, true);
                self.soil(node);
                self.set_state(instance, rung.state());
            }
            (Change::Sleep(_), true) => self.go_on_waking(self.instances[instance].app),
        }
        if let Some(action) = ordered {
            let refusal = fails.then(|| Refusal::failed("the simulated machine failed"));
            self.push_outcome(action, now_s - began_s, refusal);
        }
    }

    /// Its process is gone, and the requests that it had with it.
    fn remove(&mut self, instance: usize) {
        self.set_state(instance, InstanceState::Stopped);
        self.forget_operation(instance);
        self.lose_work(instance);
        let (now_s, node) = (self.now_s(), self.instances[instance].node);
        self.nodes[node].machine.remove(now_s, instance);
        self.soil(node);
    }

    /// An instance is gone with its node.
    pub(super) fn lose(&mut self, instance: usize) {
        if self.instances[instance].state != InstanceState::Stopped {
            self.remove(instance);
        }
    }

    /// What was being done to an instance ends with it: it is gone.
    fn forget_operation(&mut self, instance: usize) {
        let now_s = self.now_s();
        if let Some(Operation { began_s, ordered: Some(action), .. }) = self.instances[instance].operation.take() {
            let id = self.instances[instance].id.clone();
            self.push_outcome(action, now_s - began_s, Some(Refusal::Gone { instance: id }));
        }
    }

    /// An instance ends by itself; it is started again after a pause.
    pub(super) fn crash(&mut self, instance: usize) {
        self.set_state(instance, InstanceState::Backoff);
        self.lose_work(instance);
        let (now_s, node, version) = (self.now_s(), self.instances[instance].node, self.instances[instance].version);
        self.nodes[node].machine.remove(now_s, instance);
        self.nodes[node].machine.add(instance);
        self.soil(node);
        self.agenda.enter(now_s + BACKOFF_S, Event::Changed { instance, version });
    }

    fn lose_work(&mut self, instance: usize) {
        let lost = self.tasks.iter().filter(|(_, task)| task.home == instance || task.computes_at == Some(instance));
        let lost: Vec<TaskId> = lost.map(|(id, _)| id).collect();
        for id in lost {
            match self.tasks.get(id).map(|task| task.owner) {
                Some(Owner::Request(_)) => self.end(id, Outcome::Failed, Attempt::Broken),
                _ => drop(self.tasks.remove(id)),
            }
        }
    }

    fn watch_housekeeping(&mut self, instance: usize) {
        let entry = &self.instances[instance];
        let Some(house) = self.scenario.behaviours[self.apps[entry.app].name.as_str()].housekeeping else { return };
        let version = entry.version;
        self.agenda.enter(self.now_s() + house.every.0.max(0.01), Event::Housekeeping { instance, version });
    }

    pub(super) fn keep_house(&mut self, instance: usize) {
        let app = self.instances[instance].app;
        let Some(house) = self.scenario.behaviours[self.apps[app].name.as_str()].housekeeping else { return };
        let steps = [super::Step::Own { work_s: house.work.0, spread: Spread::Constant }].into();
        let task = self.tasks.insert(Task::new(Owner::Housekeeping, steps, instance));
        self.begin_step(task);
        self.watch_housekeeping(instance);
    }
}
