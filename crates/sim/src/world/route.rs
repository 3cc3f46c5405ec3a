//! Carries what one part emits to whoever takes it: the ends of tasks to the gateway and to what waits for them, answers of the node agent to
//! the gateway, and what happens to instances and jobs to the controller.

use weal_control::cycle::{Done, Input};
use weal_control::dispatch::Attempt;
use weal_control::flow::pipeline::RequestOutcome;
use weal_model::{Action, InstanceState, naming};
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
        let time = self.its_time();
        let entry = &self.instances[instance];
        self.controller.events += 1;
        let event = InstanceEvent {
            id: self.controller.events,
            time,
            instance: entry.id.clone(),
            app: self.apps[entry.app].name.clone(),
            node: self.nodes[entry.node].name.clone(),
            state,
            detail: String::new(),
            job: None,
        };
        if self.controller.cycle.is_some() {
            self.controller.noted_until = time;
        }
        self.controller.hear(Input::Events(vec![event]));
    }

    /// The run of a job has changed: the controller hears of it.
    fn push_job(&mut self, job: usize) {
        let (time, job) = (self.its_time(), &self.jobs[job]);
        let node = job.nodes.first().map_or_else(|| "".into(), |&node| self.nodes[node].name.clone());
        self.controller.events += 1;
        let event = InstanceEvent {
            id: self.controller.events,
            time,
            instance: naming::task_id(&job.spec.name, job.attempt, 0),
            app: naming::job_account(&job.spec.name),
            node,
            state: InstanceState::Ready,
            detail: String::new(),
            job: Some(job.spec.name.clone()),
        };
        self.controller.hear(Input::Events(vec![event]));
    }

    /// The controller hears what became of an action that it had ordered.
    fn push_outcome(&mut self, action: Action, took_s: f64, refusal: Option<Refusal>) {
        self.controller.hear(Input::Done(Done::Acted(ActionOutcome { action, took_s, refusal })));
    }
}
