//! Instances: their states, and what actions and accidents make of them.

use weal_control::dispatch::Attempt;
use weal_control::flow::pipeline::Outcome;
use weal_model::{Action, AppName, Bytes, InstanceId, InstanceState, Rung};

use super::tasks::{Owner, Task, steps_of_start};
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
}

/// What is being done to an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation {
    pub change: Change,
    /// It still finishes its requests.
    pub draining: bool,
    /// It will fail.
    pub fails: bool,
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
    /// The gateway must send nothing new to it.
    pub fn is_closed(&self) -> bool {
        self.operation.is_some_and(|operation| matches!(operation.change, Change::Stop | Change::Sleep(_)))
    }

    /// It is to be stopped.
    pub fn is_to_stop(&self) -> bool {
        self.operation.is_some_and(|operation| operation.change == Change::Stop)
    }

    /// Its process takes connections.
    pub fn answers(&self) -> bool {
        matches!(self.state, InstanceState::Ready | InstanceState::Stopping)
    }
}

impl World<'_> {
    /// A new instance, starting but with nothing under way. Without an id it gets the application's next.
    pub(super) fn add_instance(&mut self, app: usize, node: usize, id: Option<InstanceId>) -> usize {
        let name = self.apps[app].name.clone();
        let id = id.unwrap_or_else(|| self.controller.next_id(&name));
        self.controller.use_id(&name, &id);
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
        self.tell_cluster(app);
    }

    /// Begins one action, or leaves it to a later plan when it cannot be done yet. True when it is begun.
    pub(super) fn begin_action(&mut self, action: &Action) -> bool {
        let change = match action {
            Action::Start { instance, app, node } => {
                let app = self.apps.iter().position(|entry| entry.name == *app);
                let node = self.nodes.iter().position(|entry| entry.name == *node);
                let (Some(app), Some(node)) = (app, node) else { return false };
                if !self.may_start(app, node) {
                    return false;
                }
                let index = self.add_instance(app, node, Some(instance.clone()));
                self.operate(index, Change::Start, false);
                return true;
            }
            Action::Stop { .. } => Change::Stop,
            &Action::Sleep { rung, .. } => Change::Sleep(rung),
            Action::Resume { .. } => Change::Resume,
            _ => return self.begin_job_action(action),
        };
        let (Action::Stop { instance, .. } | Action::Sleep { instance, .. } | Action::Resume { instance, .. }) = action else {
            return false;
        };
        let found = self.instances.iter().rposition(|entry| entry.id == *instance && entry.state != InstanceState::Stopped);
        let Some(index) = found.filter(|&index| self.instances[index].operation.is_none()) else { return false };
        let closes = matches!(change, Change::Stop | Change::Sleep(_));
        let flow_cycle_s = self.scenario.pool.timing.flow_cycle_s;
        if closes && self.controller.was_just_woken(instance, self.now_s(), flow_cycle_s) {
            return false;
        }
        let entry = &self.instances[index];
        // Who makes room for it may not be done yet.
        let needs_room = matches!(change, Change::Resume) && !entry.state.holds_memory();
        if needs_room && self.room(entry.node) < self.scenario.pool.apps[&self.apps[entry.app].name].memory {
            return false;
        }
        let routed = !self.scenario.pool.apps[&self.apps[entry.app].name].routes.is_empty();
        let drains = closes && entry.state == InstanceState::Ready && routed;
        self.operate(index, change, drains);
        true
    }

    /// The application and the node that an action is about.
    pub(super) fn place_of(&self, action: &Action) -> Option<(usize, usize)> {
        match action {
            Action::Start { app, node, .. } => Some((
                self.apps.iter().position(|entry| entry.name == *app)?,
                self.nodes.iter().position(|entry| entry.name == *node)?,
            )),
            Action::Stop { instance, .. } | Action::Sleep { instance, .. } | Action::Resume { instance, .. } => {
                self.instances.iter().rev().find(|entry| entry.id == *instance).map(|entry| (entry.app, entry.node))
            }
            _ => None,
        }
    }

    fn may_start(&self, app: usize, node: usize) -> bool {
        let spec = &self.scenario.pool.apps[&self.apps[app].name];
        let ready = |name: &AppName| {
            let is_ready = |i: &Instance| self.apps[i.app].name == *name && i.state == InstanceState::Ready;
            self.instances.iter().any(is_ready)
        };
        self.controller.may_start(&spec.name, self.now_s()) && spec.needs.iter().all(ready) && self.room(node) >= spec.memory
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

    fn operate(&mut self, instance: usize, change: Change, draining: bool) {
        let now_s = self.now_s();
        let entry = &mut self.instances[instance];
        entry.version += 1;
        entry.operation = Some(Operation { change, draining, fails: false });
        if !draining {
            return self.act(instance);
        }
        let timeout_s = self.apps[entry.app].config.request_timeout_s.clamp(0.0, 600.0);
        let (version, app) = (entry.version, entry.app);
        self.agenda.enter(now_s + timeout_s, Event::DrainedLong { instance, version });
        self.tell_cluster(app);
        self.drained(instance);
    }

    /// Nothing is outstanding at an instance: what waited for that goes on.
    pub(super) fn drained(&mut self, instance: usize) {
        let entry = &self.instances[instance];
        if entry.in_flight == 0 && entry.operation.is_some_and(|operation| operation.draining) {
            self.act(instance);
        }
    }

    /// It has drained for as long as it may: a stop goes on, a sleep is given up, because what is frozen answers nobody.
    pub(super) fn drained_long(&mut self, instance: usize) {
        match self.instances[instance].operation {
            Some(Operation { change: Change::Sleep(_), .. }) => self.stay_awake(instance),
            _ => self.act(instance),
        }
    }

    /// The sleep for which it drains is called off.
    pub(super) fn stay_awake(&mut self, instance: usize) {
        let entry = &mut self.instances[instance];
        entry.version += 1;
        entry.operation = None;
        let app = entry.app;
        self.tell_cluster(app);
    }

    /// The engine takes the operation of an instance.
    pub(super) fn act(&mut self, instance: usize) {
        let now_s = self.now_s();
        let Some(mut operation) = self.instances[instance].operation else { return };
        if matches!(operation.change, Change::Sleep(_)) && self.was_just_named(instance) {
            return self.stay_awake(instance);
        }
        operation.draining = false;
        let name = self.apps[self.instances[instance].app].name.clone();
        let changes = self.scenario.behaviours[name.as_str()].changes;
        let image_mib = self.scenario.pool.apps[&name].memory.0 as f64 / Bytes::MIB as f64;
        let state = self.instances[instance].state;
        let mut takes_s = match operation.change {
            Change::Start => changes.start_s,
            Change::Stop => changes.stop_s,
            Change::Sleep(Rung::Suspended) => changes.suspend_s + changes.suspend_s_per_mib * image_mib,
            Change::Sleep(_) => changes.park_s + changes.suspend_s_per_mib * image_mib,
            Change::Resume if state == InstanceState::Parked => {
                changes.resume_s + changes.page_in_s + changes.resume_s_per_mib * image_mib
            }
            Change::Resume => changes.resume_s + changes.resume_s_per_mib * image_mib,
        };
        (takes_s, operation.fails) = self.draw_trouble(takes_s);
        self.instances[instance].operation = Some(operation);
        match (operation.change, state.rung()) {
            (Change::Sleep(rung), _) if !operation.fails => self.controller.handle_slept(&name, rung, takes_s),
            (Change::Resume, Some(rung)) if !operation.fails => self.controller.handle_resumed(&name, rung, takes_s),
            _ => {}
        }
        if operation.change == Change::Resume {
            // From here on it holds its memory again.
            self.set_state(instance, InstanceState::Starting);
        }
        if operation.change == Change::Start && !operation.fails {
            return self.start(instance);
        }
        let entry = &mut self.instances[instance];
        entry.version += 1;
        let version = entry.version;
        if operation.change == Change::Stop && entry.state != InstanceState::Starting {
            entry.state = InstanceState::Stopping;
        }
        self.agenda.enter(now_s + takes_s, Event::Changed { instance, version });
    }

    fn start(&mut self, instance: usize) {
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
        let Some(Operation { change, fails, .. }) = self.instances[instance].operation.take() else {
            return match self.instances[instance].state {
                InstanceState::Backoff => {
                    self.set_state(instance, InstanceState::Starting);
                    self.start(instance);
                }
                _ => self.set_state(instance, InstanceState::Ready),
            };
        };
        let at = self.instances[instance].app;
        let app = self.apps[at].name.clone();
        if fails {
            self.recorder.note(now_s, false, format!("could not {} {}", word(change), self.instances[instance].id));
        }
        match (change, fails) {
            (Change::Start, false) => {
                self.controller.started(&app, now_s - self.instances[instance].started_s);
                self.set_state(instance, InstanceState::Ready);
            }
            (Change::Start, true) => {
                self.controller.start_failed(&app, now_s);
                self.remove(instance);
            }
            (Change::Resume, false) | (Change::Stop, true) => {
                if change == Change::Resume {
                    self.instances[instance].last_wake_s = now_s - self.instances[instance].since_s;
                }
                self.nodes[node].machine.freeze(now_s, instance, false);
                self.soil(node);
                self.set_state(instance, InstanceState::Ready);
            }
            (Change::Resume, true) => self.set_state(instance, InstanceState::Suspended),
            (Change::Stop, false) => self.remove(instance),
            (Change::Sleep(rung), false) => {
                self.nodes[node].machine.freeze(now_s, instance, true);
                self.soil(node);
                self.set_state(instance, rung.state());
            }
            (Change::Sleep(_), true) => {
                self.go_on_waking(at);
                self.tell_cluster(at);
            }
        }
        if self.instances[instance].state == InstanceState::Ready {
            self.reseat();
        }
        self.want_plan();
    }

    /// Its process is gone, and the requests that it had with it.
    fn remove(&mut self, instance: usize) {
        self.set_state(instance, InstanceState::Stopped);
        self.instances[instance].operation = None;
        self.lose_work(instance);
        let (now_s, node) = (self.now_s(), self.instances[instance].node);
        self.nodes[node].machine.remove(now_s, instance);
        self.soil(node);
    }

    /// An instance is gone with its node.
    pub(super) fn lose(&mut self, instance: usize) {
        if self.instances[instance].state != InstanceState::Stopped {
            self.remove(instance);
            self.want_plan();
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
        self.want_plan();
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

fn word(change: Change) -> &'static str {
    match change {
        Change::Start => "start",
        Change::Stop => "stop",
        Change::Sleep(_) => "put to sleep",
        Change::Resume => "resume",
    }
}
