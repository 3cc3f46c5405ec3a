//! Carries what one part emits to the part that takes it: the ends of tasks to the gateway and to what waits for them, answers of the node agent to
//! the gateway, and what happens to instances and jobs to the controller.

use weal_control::cycle::{Done, Input};
use weal_control::dispatch::Attempt;
use weal_control::flow::pipeline::RequestOutcome;
use weal_model::{Action, AppName, InstanceId, InstanceState, JobName, NodeName, naming};
use weal_protocol::Refusal;
use weal_protocol::engine::ActionOutcome;
use weal_protocol::node::InstanceEvent;

use super::parts::event::TaskId;
use super::parts::signal::Signal;
use super::parts::tasks::Owner;
use super::state::World;

impl World<'_> {
    /// Carries all that was emitted; what follows from one signal comes before the next.
    pub fn carry(&mut self) {
        let mut open = Vec::new();
        loop {
            open.extend(self.signals.drain(..).rev());
            let Some(signal) = open.pop() else { return };
            self.carry_one(signal);
        }
    }

    fn carry_one(&mut self, signal: Signal) {
        match signal {
            Signal::Stepped(task) => self.step(task),
            Signal::Ended(task) => self.handle_ended(task),
            Signal::Broken(task) => self.break_off(task),
            Signal::Changed { app } => self.go_on_waking(app),
            Signal::Woken { app, instance } => self.handle_woken(app, instance),
            Signal::WakeRefused { app } => self.handle_wake_refused(app),
            Signal::State { instance, state } => self.push_state(instance, state),
            Signal::Acted { action, took_s, refusal } => self.push_outcome(action, took_s, refusal),
            Signal::Job { job } => self.push_job(job),
        }
    }

    /// What a task was for is done.
    fn handle_ended(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let home = task.home;
        match task.owner {
            Owner::Request(_) => self.end(id, RequestOutcome::Served, Attempt::Answered),
            Owner::Housekeeping => drop(self.tasks.remove(id)),
            Owner::Job { job, task } => self.thread_is_done(id, job, task),
            Owner::Start => {
                self.tasks.remove(id);
                self.started(home);
            }
        }
    }

    /// An instance has entered a state: the controller hears of it.
    fn push_state(&mut self, instance: usize, state: InstanceState) {
        let entry = &self.instances[instance];
        let (app, node) = (self.apps[entry.app].name.clone(), self.nodes[entry.node].name.clone());
        self.push_event(entry.id.clone(), app, node, state, None);
        if self.controller.cycle.is_some() {
            self.controller.noted_until = self.its_time();
        }
    }

    /// The run of a job has changed: the controller hears of it.
    fn push_job(&mut self, job: usize) {
        let job = &self.jobs[job];
        let (name, node) = (job.spec.name.clone(), job.nodes.first());
        let node = node.map_or_else(|| "".into(), |&node| self.nodes[node].name.clone());
        let (task, account) = (naming::task_id(&name, job.attempt, 0), naming::job_account(&name));
        self.push_event(task, account, node, InstanceState::Ready, Some(name));
    }

    fn push_event(&mut self, instance: InstanceId, app: AppName, node: NodeName, state: InstanceState, job: Option<JobName>) {
        let time = self.its_time();
        self.controller.events += 1;
        let (id, detail) = (self.controller.events, String::new());
        self.controller.hear(Input::Events(vec![InstanceEvent { id, time, instance, app, node, state, detail, job }]));
    }

    /// The controller hears what became of an action that it had ordered.
    fn push_outcome(&mut self, action: Action, took_s: f64, refusal: Option<Refusal>) {
        self.controller.hear(Input::Done(Done::Acted(ActionOutcome { action, took_s, refusal })));
    }
}
