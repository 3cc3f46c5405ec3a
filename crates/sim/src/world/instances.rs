//! Instances: what actions and accidents make of them.

use weal_model::{Action, Bytes, InstanceId, InstanceState, JUST_NAMED, RECOVERED_AFTER, Rung, Time, parked_next, restart_pause};
use weal_protocol::{InstanceCommand, Refusal};
use weal_scenario::WorkDistribution;

use super::parts::event::{Event, TaskId};
use super::parts::instance::{Instance, InstanceOperation, OperationKind};
use super::parts::signal::Signal;
use super::parts::tasks::{Owner, Task, TaskStep, steps_of_start};
use super::state::World;

impl World<'_> {
    /// A new instance, starting but with nothing under way.
    pub fn add_instance(&mut self, app: usize, node: usize, id: InstanceId) -> usize {
        let index = self.instances.len();
        self.nodes[node].processor.add(index);
        let revision = self.controller.revision(&self.apps[app].name);
        let (since_s, state) = (self.now_s(), InstanceState::Starting);
        self.instances.push(Instance {
            id,
            app,
            node,
            revision,
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
            failed_in_a_row: 0,
        });
        self.oracle_memory(node);
        self.uphold_reserve(node);
        index
    }

    /// Parks who has slept longest where less memory is free than is to be, one after the other.
    pub fn uphold_reserve(&mut self, node: usize) {
        let parks = |entry: &Instance| entry.change() == Some(OperationKind::Sleep(Rung::Parked));
        let mut here = self.instances.iter().enumerate().filter(|(_, entry)| entry.node == node);
        if self.room(node) >= self.nodes[node].reserve || here.clone().any(|(_, entry)| parks(entry)) {
            return;
        }
        let idle = here.by_ref().filter(|(_, entry)| entry.operation.is_none());
        let coldest = parked_next(idle.map(|(index, entry)| (index, entry.state, Time::from_secs_f64(entry.since_s))));
        if let Some(instance) = coldest {
            self.nodes[node].parked_for_reserve += 1;
            self.operate(instance, OperationKind::Sleep(Rung::Parked), None);
        }
    }

    pub fn set_state(&mut self, instance: usize, state: InstanceState) {
        let since_s = self.now_s();
        let entry = &mut self.instances[instance];
        entry.version += 1;
        (entry.state, entry.since_s) = (state, since_s);
        let (app, node) = (entry.app, entry.node);
        self.oracle_memory(node);
        if state == InstanceState::Ready {
            self.schedule_housekeeping(instance);
        }
        // The gateway hears of who is awake from the node agent first, if it has asked.
        self.emit(Signal::Changed { app });
        self.emit(Signal::State { instance, state });
    }

    /// The engine is ordered to do something to an instance. What cannot be done is refused at once.
    pub fn act(&mut self, action: Action) {
        match &action {
            Action::Start { instance, app, node } => {
                let app = self.apps.iter().position(|entry| entry.name == *app);
                let node = self.nodes.iter().position(|entry| entry.name == *node);
                let (Some(app), Some(node)) = (app, node) else {
                    return self.answer_at_once(action, Some(Refusal::failed("there is no such application or node")));
                };
                let index = self.add_instance(app, node, instance.clone());
                self.operate(index, OperationKind::Start, Some(action));
            }
            Action::Stop { instance, .. } => self.act_on(instance.clone(), OperationKind::Stop, action),
            Action::Sleep { instance, rung, .. } => self.act_on(instance.clone(), OperationKind::Sleep(*rung), action),
            Action::Resume { instance, .. } => self.act_on(instance.clone(), OperationKind::Resume, action),
            Action::StartJob { .. }
            | Action::PauseJob { .. }
            | Action::EndJob { .. }
            | Action::SuspendJob { .. }
            | Action::ResumeJob { .. }
            | Action::MigrateJob { .. }
            | Action::SetJobCpu { .. } => {
                self.answer_at_once(action, Some(Refusal::failed("the controller has no such job")));
            }
        }
    }

    fn act_on(&mut self, id: InstanceId, change: OperationKind, action: Action) {
        let now_s = self.now_s();
        let found = self.instances.iter().rposition(|entry| entry.id == id && entry.state != InstanceState::Stopped);
        let Some(index) = found else { return self.answer_at_once(action, None) };
        let entry = &mut self.instances[index];
        let refusal = match (change, &mut entry.operation) {
            // One that is being woken for the gateway is woken for the controller too.
            (OperationKind::Resume, Some(operation)) if operation.change == OperationKind::Resume => {
                operation.ordered = Some(action);
                return;
            }
            (OperationKind::Sleep(_), Some(_)) => {
                Some(Refusal::WrongState { instance: id, state: entry.state, command: Some(InstanceCommand::Sleep) })
            }
            (OperationKind::Resume, Some(_)) => {
                Some(Refusal::WrongState { instance: id, state: entry.state, command: Some(InstanceCommand::Wake) })
            }
            // Its stop failed, or it begins anew: it does not sleep before it has begun.
            (OperationKind::Sleep(_), None) if matches!(entry.state, InstanceState::Starting | InstanceState::Backoff) => {
                Some(Refusal::WrongState { instance: id, state: entry.state, command: Some(InstanceCommand::Sleep) })
            }
            (OperationKind::Sleep(_), None) if now_s - entry.named_s < JUST_NAMED.as_secs_f64() => {
                Some(Refusal::AskedFor { ago_s: now_s - entry.named_s })
            }
            _ => None,
        };
        match refusal {
            Some(refusal) => self.answer_at_once(action, Some(refusal)),
            None => self.operate(index, change, Some(action)),
        }
    }

    /// Begins a change, whether or not the controller has ordered it.
    pub fn operate(&mut self, instance: usize, change: OperationKind, ordered: Option<Action>) {
        let now_s = self.now_s();
        let (takes_s, fails) = self.draw_failure(self.takes_s(instance, change));
        let (app, state) = (self.instances[instance].app, self.instances[instance].state);
        let costs = &mut self.sleep_costs[app];
        match (change, state.rung()) {
            (OperationKind::Sleep(rung), _) if !fails => costs.of_mut(rung).sleep_s = Some(takes_s),
            (OperationKind::Resume, Some(rung)) if !fails => costs.of_mut(rung).wake_s = Some(takes_s),
            _ => {}
        }
        let starts = change == OperationKind::Start && !fails;
        // A start is done when its process runs; that it is ready is an event.
        let (told, ordered) = if starts { (ordered, None) } else { (None, ordered) };
        self.instances[instance].operation = Some(InstanceOperation { change, fails, began_s: now_s, ordered });
        if change == OperationKind::Resume {
            // From here on it holds its memory again.
            self.set_state(instance, InstanceState::Starting);
        }
        if starts {
            if let Some(action) = told {
                self.answer_at_once(action, None);
            }
            self.emit(Signal::State { instance, state });
            return self.begin_start(instance);
        }
        let entry = &mut self.instances[instance];
        entry.version += 1;
        let version = entry.version;
        if change == OperationKind::Stop && entry.state != InstanceState::Starting {
            entry.state = InstanceState::Stopping;
            self.emit(Signal::State { instance, state: InstanceState::Stopping });
        }
        self.agenda.enter(now_s + takes_s, Event::Changed { instance, version });
    }

    /// How long a change takes.
    fn takes_s(&self, instance: usize, change: OperationKind) -> f64 {
        let name = &self.apps[self.instances[instance].app].name;
        let changes = self.scenario.behaviours[name.as_str()].changes;
        let image_mib = self.scenario.pool.apps[name].memory.0 as f64 / Bytes::MIB as f64;
        match change {
            OperationKind::Start => changes.start_s,
            OperationKind::Stop => changes.stop_s,
            OperationKind::Sleep(Rung::Suspended) => changes.suspend_s + changes.suspend_s_per_mib * image_mib,
            OperationKind::Sleep(_) => changes.park_s + changes.suspend_s_per_mib * image_mib,
            OperationKind::Resume if self.instances[instance].state == InstanceState::Parked => {
                changes.resume_s + changes.page_in_s + changes.resume_s_per_mib * image_mib
            }
            OperationKind::Resume => changes.resume_s + changes.resume_s_per_mib * image_mib,
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

    /// Its process is ready. One that is being stopped meanwhile is stopped all the same.
    pub fn started(&mut self, instance: usize) {
        let entry = &mut self.instances[instance];
        let begins = entry.operation.as_ref().is_none_or(|operation| operation.change == OperationKind::Start);
        if entry.is_broken() && begins {
            entry.operation = None;
            return self.crash(instance);
        }
        match &entry.operation {
            Some(InstanceOperation { change: OperationKind::Start, .. }) => self.changed(instance),
            None if entry.state == InstanceState::Starting => self.set_state(instance, InstanceState::Ready),
            _ => {}
        }
    }

    fn is_beginning(&self, instance: usize) -> bool {
        self.tasks.iter().any(|(_, task)| matches!(task.owner, Owner::Start) && task.home == instance)
    }

    /// What was being done to an instance is done, or has failed. Without an operation it is a restart that is due.
    pub fn changed(&mut self, instance: usize) {
        let now_s = self.now_s();
        let node = self.instances[instance].node;
        let Some(InstanceOperation { change, fails, began_s, ordered }) = self.instances[instance].operation.take() else {
            if self.instances[instance].state == InstanceState::Backoff {
                self.instances[instance].restarts += 1;
                self.set_state(instance, InstanceState::Starting);
                self.begin_start(instance);
            }
            return;
        };
        match (change, fails) {
            (OperationKind::Start, false) => {
                self.instances[instance].start_took_s = Some(now_s - self.instances[instance].started_s);
                self.set_state(instance, InstanceState::Ready);
            }
            (OperationKind::Start, true) | (OperationKind::Stop, false) => self.remove(instance),
            (OperationKind::Stop, true) if self.is_beginning(instance) => self.set_state(instance, InstanceState::Starting),
            (OperationKind::Resume, false) | (OperationKind::Stop, true) => {
                if change == OperationKind::Resume {
                    self.instances[instance].last_wake_s = now_s - began_s;
                }
                self.nodes[node].processor.freeze(now_s, instance, false);
                self.mark_dirty(node);
                self.set_state(instance, InstanceState::Ready);
            }
            (OperationKind::Resume, true) => self.set_state(instance, InstanceState::Suspended),
            (OperationKind::Sleep(rung), false) => {
                self.nodes[node].processor.freeze(now_s, instance, true);
                self.mark_dirty(node);
                self.set_state(instance, rung.state());
            }
            (OperationKind::Sleep(_), true) => self.emit(Signal::Changed { app: self.instances[instance].app }),
        }
        if let Some(action) = ordered {
            let refusal = fails.then(|| Refusal::failed("the simulated machine failed"));
            self.emit(Signal::Acted { action, took_s: now_s - began_s, refusal });
        }
        if !fails {
            self.uphold_reserve(node);
        }
    }

    /// Its process is gone, and the requests that it had with it.
    fn remove(&mut self, instance: usize) {
        self.set_state(instance, InstanceState::Stopped);
        self.forget_operation(instance);
        self.lose_work(instance);
        let (now_s, node) = (self.now_s(), self.instances[instance].node);
        self.nodes[node].processor.remove(now_s, instance);
        self.mark_dirty(node);
    }

    /// An instance is gone with its node.
    pub fn lose(&mut self, instance: usize) {
        if self.instances[instance].state != InstanceState::Stopped {
            self.remove(instance);
        }
    }

    /// What was being done to an instance ends with it: it is gone.
    fn forget_operation(&mut self, instance: usize) {
        let now_s = self.now_s();
        if let Some(InstanceOperation { began_s, ordered: Some(action), .. }) = self.instances[instance].operation.take() {
            let id = self.instances[instance].id.clone();
            self.emit(Signal::Acted { action, took_s: now_s - began_s, refusal: Some(Refusal::Gone { instance: id }) });
        }
    }

    /// An instance ends by itself; it is started again after a pause.
    pub fn crash(&mut self, instance: usize) {
        let now_s = self.now_s();
        let entry = &mut self.instances[instance];
        if entry.state == InstanceState::Ready && now_s - entry.since_s >= RECOVERED_AFTER.as_secs_f64() {
            entry.failed_in_a_row = 0;
        }
        let pause_s = restart_pause(entry.failed_in_a_row).as_secs_f64();
        entry.failed_in_a_row = entry.failed_in_a_row.saturating_add(1);
        self.set_state(instance, InstanceState::Backoff);
        self.lose_work(instance);
        let (now_s, node, version) = (self.now_s(), self.instances[instance].node, self.instances[instance].version);
        self.nodes[node].processor.remove(now_s, instance);
        self.nodes[node].processor.add(instance);
        self.mark_dirty(node);
        self.agenda.enter(now_s + pause_s, Event::Changed { instance, version });
    }

    fn lose_work(&mut self, instance: usize) {
        let lost = self.tasks.iter().filter(|(_, task)| task.home == instance || task.computes_at == Some(instance));
        let lost: Vec<TaskId> = lost.map(|(id, _)| id).collect();
        for id in lost {
            match self.tasks.get(id).map(|task| task.owner) {
                Some(Owner::Request(_)) => self.emit(Signal::Broken(id)),
                _ => drop(self.tasks.remove(id)),
            }
        }
    }

    fn schedule_housekeeping(&mut self, instance: usize) {
        let entry = &self.instances[instance];
        let Some(house) = self.scenario.behaviours[self.apps[entry.app].name.as_str()].housekeeping else { return };
        let version = entry.version;
        self.agenda.enter(self.now_s() + house.every.0.max(0.01), Event::Housekeeping { instance, version });
    }

    pub fn begin_housekeeping(&mut self, instance: usize) {
        let app = self.instances[instance].app;
        let Some(house) = self.scenario.behaviours[self.apps[app].name.as_str()].housekeeping else { return };
        let steps = [TaskStep::Own { work_s: house.work.0, spread: WorkDistribution::Constant }].into();
        let task = self.tasks.insert(Task::new(Owner::Housekeeping, steps, instance));
        self.begin_step(task);
        self.schedule_housekeeping(instance);
    }
}
