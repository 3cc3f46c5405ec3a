//! Requests: from a client through the gateway's queue to an instance, and back.

use std::rc::Rc;

use weal_control::admission::Dispatched;
use weal_control::dispatch::Attempt;
use weal_control::flow::pipeline::Outcome;
use weal_model::InstanceState;

use super::clients::Answer;
use super::tasks::{Owner, Request, Sender, Step, Task};
use super::{Event, TaskId, World, machine};
use weal_rng as random;
use weal_scenario::Spread;

impl World<'_> {
    /// A request comes in at the gateway.
    pub(super) fn arrive(&mut self, load: usize, session: Option<u32>) {
        let number = self.next_flow(load, session);
        let flow = &mut self.flows[number];
        flow.told.sent += 1;
        let (index, class, steps) = (flow.app, flow.index, Rc::clone(&flow.steps));
        let Some(class) = class.filter(|_| self.gateway_up) else {
            return self.answer_client(number, session, Answer::Failed);
        };
        let (now, now_s) = (self.now(), self.now_s());
        let app = &mut self.apps[index];
        let Ok(place) = app.admission.handle_arrival(now, class) else {
            return self.answer_client(number, session, Answer::Rejected);
        };
        let request = Request { flow: number, session, app: index, place: Some(place), is_at_instance: false };
        let id = self.tasks.insert(Task::new(Owner::Request(request), steps, usize::MAX));
        app.waiting.insert(place, id);
        while app.deadlines.front().is_some_and(|&(_, task)| self.tasks.get(task).is_none()) {
            app.deadlines.pop_front();
        }
        app.deadlines.push_back((now_s + app.config.request_timeout_s, id));
        self.watch_deadlines(index);
        self.dispatch(index);
    }

    /// Sends what may go to instances, and has another one woken where that is needed.
    pub(super) fn dispatch(&mut self, app: usize) {
        let now = self.now();
        self.oracle.touch(app);
        while let Some(next) = self.apps[app].admission.poll_dispatch(now) {
            let id = self.apps[app].waiting.remove(&next.ticket).expect("the gateway hands out what it was given");
            self.send(app, id, next);
        }
        self.look(app);
    }

    /// Sends one request to its instance, or to another when that one refuses.
    fn send(&mut self, app: usize, id: TaskId, Dispatched { ticket, instance: mut at }: Dispatched) {
        let now = self.now();
        let mut failed = Vec::new();
        let found = loop {
            let entry = &mut self.apps[app];
            // A gateway that began again may know an instance by its config that is gone: nobody answers there.
            let instance = entry.behind.get(&at.slot()).copied();
            if let Some(instance) = instance.filter(|&instance| self.instances[instance].answers()) {
                break Some(instance);
            }
            failed.push(at);
            match entry.admission.handle_retry(now, ticket, Attempt::Refused, &failed) {
                Some(other) => at = other,
                None => break None,
            }
        };
        let Some(task) = self.tasks.get_mut(id) else { return };
        let Owner::Request(request) = &mut task.owner else { return };
        match found {
            Some(instance) => {
                request.is_at_instance = true;
                task.home = instance;
                self.instances[instance].in_flight += 1;
                self.begin_step(id);
            }
            None => self.end(id, Outcome::Failed, Attempt::Refused),
        }
    }

    /// A step is over: on to the next.
    pub(super) fn step(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.at += 1;
        (task.computes_at, task.leaves_by) = (None, None);
        self.begin_step(id);
    }

    /// Begins the step that a task is at; at the end of its steps it has ended.
    pub(super) fn begin_step(&mut self, id: TaskId) {
        let now_s = self.now_s();
        let Some(task) = self.tasks.get(id) else { return };
        let (home, callee, flow) =
            (task.home, task.callee, if let Owner::Request(request) = task.owner { Some(request.flow) } else { None });
        let (instance, work_s) = match task.steps.get(task.at) {
            None => return self.end_of_steps(id),
            Some(&Step::Wait(seconds)) => return self.agenda.enter(now_s + seconds, Event::Waited { task: id }),
            Some(&Step::Send { from, seconds }) => return self.begin_sending(id, from, seconds),
            Some(&Step::Own { work_s, spread }) => {
                // Who goes on after a call does not come in now.
                if let (Some(_), None, Some(cores)) = (flow, callee, &mut self.cores) {
                    cores.handle_arrival();
                }
                let factor = flow.map_or(1.0, |flow| self.flows[flow].factor);
                (Some(home), self.draw_work(flow, self.instances[home].app, work_s * factor, spread))
            }
            Some(&Step::Other { app, work_s, spread }) => {
                let chosen = callee.filter(|&callee| self.is_callee(callee, app)).or_else(|| self.next_callee(app));
                (chosen, self.draw_work(flow, app, work_s, spread))
            }
        };
        let begun = instance.is_some_and(|instance| {
            let node = self.instances[instance].node;
            self.soil(node);
            self.nodes[node].machine.begin(now_s, instance, id, work_s)
        });
        if !begun {
            return self.end(id, Outcome::Failed, Attempt::Broken);
        }
        if let Some(task) = self.tasks.get_mut(id) {
            task.computes_at = instance;
            task.callee = instance;
        }
    }

    /// Something leaves through a link. What stays on its node passes none.
    fn begin_sending(&mut self, id: TaskId, from: Sender, seconds: f64) {
        let now_s = self.now_s();
        let Some(task) = self.tasks.get(id) else { return };
        let (home, called) = (task.home, task.callee);
        let callee = if let Sender::Caller { app } = from { self.next_callee(app) } else { called };
        let node_of = |instance: usize| self.instances[instance].node;
        let link = match from {
            Sender::Gateway => self.gateway_link(),
            Sender::Callee => callee.map_or(node_of(home), node_of),
            Sender::Caller { .. } | Sender::Home => node_of(home),
        };
        let is_call = matches!(from, Sender::Caller { .. } | Sender::Callee);
        let stays = is_call && callee.is_some_and(|callee| node_of(callee) == node_of(home));
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.callee = callee;
        if stays {
            return self.step(id);
        }
        task.leaves_by = Some(link);
        self.links[link].machine.begin(now_s, machine::EVERYBODY, id, seconds);
        self.enter_link(link);
    }

    fn enter_link(&mut self, link: usize) {
        let entry = &mut self.links[link];
        entry.version += 1;
        let (at_s, version) = (entry.machine.next_s(), entry.version);
        self.agenda.enter(at_s, Event::Link { link, version });
    }

    /// Goes on with what has left through a link.
    pub(super) fn deliver(&mut self, link: usize) {
        let now_s = self.now_s();
        let mut done = std::mem::take(&mut self.done);
        self.links[link].machine.take_done(now_s, &mut done);
        self.enter_link(link);
        done.drain(..).for_each(|task| self.step(task));
        self.done = done;
    }

    /// What is on its way through a link is lost.
    pub(super) fn cut(&mut self, link: usize) {
        let lost = self.tasks.iter().filter(|(_, task)| task.leaves_by == Some(link)).map(|(id, _)| id);
        let lost: Vec<TaskId> = lost.collect();
        self.links[link].machine = machine::link();
        self.enter_link(link);
        lost.into_iter().for_each(|id| self.end(id, Outcome::Failed, Attempt::Broken));
    }

    fn draw_work(&mut self, flow: Option<usize>, app: usize, mean_s: f64, spread: Spread) -> f64 {
        let Some(flow) = flow else { return mean_s };
        let mean_s = mean_s * self.scenario.behaviours[self.apps[app].name.as_str()].factor_at(self.now_s());
        match spread {
            Spread::Constant => mean_s,
            Spread::Exponential => random::exponential(&mut self.flows[flow].work, mean_s),
        }
    }

    fn is_callee(&self, instance: usize, app: usize) -> bool {
        self.instances[instance].app == app && self.instances[instance].state == InstanceState::Ready
    }

    /// The instance of `app` whose turn it is to be called by others.
    fn next_callee(&mut self, app: usize) -> Option<usize> {
        let ready: Vec<usize> = (0..self.instances.len()).filter(|&i| self.is_callee(i, app)).collect();
        let turn = self.apps[app].next_callee;
        self.apps[app].next_callee = turn.wrapping_add(1);
        (!ready.is_empty()).then(|| ready[turn % ready.len()])
    }

    /// Goes on with what is done on a node.
    pub(super) fn collect(&mut self, node: usize) {
        let now_s = self.now_s();
        self.soil(node);
        let mut done = std::mem::take(&mut self.done);
        self.nodes[node].machine.take_done(now_s, &mut done);
        done.drain(..).for_each(|task| self.step(task));
        self.done = done;
    }

    fn end_of_steps(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let home = task.home;
        match task.owner {
            Owner::Request(_) => self.end(id, Outcome::Served, Attempt::Answered),
            Owner::Housekeeping => drop(self.tasks.remove(id)),
            Owner::Job { job, task } => self.thread_is_done(id, job, task),
            Owner::Start => {
                self.tasks.remove(id);
                self.changed(home);
            }
        }
    }

    /// A request that an instance worked on ends. What the gateway has given up on ends unnoticed.
    pub(super) fn end(&mut self, id: TaskId, outcome: Outcome, attempt: Attempt) {
        let Some(Task { owner: Owner::Request(request), home, .. }) = self.tasks.remove(id) else { return };
        let Some(place) = request.place else { return };
        let now = self.now();
        let app = &mut self.apps[request.app];
        let ended = app.admission.handle_end(now, place, attempt, outcome);
        self.oracle.answered_once(now, ended);
        if request.is_at_instance {
            self.left(home);
        }
        let answer = if outcome == Outcome::Served { Answer::Served } else { Answer::Failed };
        self.answer_client(request.flow, request.session, answer);
        self.dispatch(request.app);
    }

    /// One request less is outstanding at an instance.
    fn left(&mut self, instance: usize) {
        self.instances[instance].in_flight -= 1;
    }

    fn watch_deadlines(&mut self, app: usize) {
        let entry = &mut self.apps[app];
        if let Some(&(at_s, _)) = entry.deadlines.front().filter(|_| !entry.watched) {
            entry.watched = true;
            // A little later, for the gateway counts in whole nanoseconds.
            self.agenda.enter(at_s + 1e-6, Event::Deadline { app });
        }
    }

    /// Requests that have been there for too long: those that wait are rejected, the others given up.
    pub(super) fn expire(&mut self, app: usize) {
        let (now, now_s) = (self.now(), self.now_s());
        self.apps[app].watched = false;
        for place in self.apps[app].admission.handle_timeout(now) {
            let Some(id) = self.apps[app].waiting.remove(&place) else { continue };
            if let Some(Task { owner: Owner::Request(request), .. }) = self.tasks.remove(id) {
                self.answer_client(request.flow, request.session, Answer::Rejected);
            }
        }
        while let Some(&(at_s, id)) = self.apps[app].deadlines.front() {
            let waits = self.tasks.get(id).is_some_and(|task| task.home == usize::MAX);
            if at_s > now_s || waits {
                break;
            }
            self.apps[app].deadlines.pop_front();
            self.give_up(id, Attempt::Abandoned);
        }
        self.watch_deadlines(app);
        self.dispatch(app);
    }

    /// The gateway answers 504 and hangs up; the instance does not notice.
    pub(super) fn give_up(&mut self, id: TaskId, attempt: Attempt) {
        let now = self.now();
        let Some(task) = self.tasks.get_mut(id) else { return };
        let home = task.home;
        let Owner::Request(request) = &mut task.owner else { return };
        let Some(place) = request.place.take() else { return };
        let request = *request;
        let app = &mut self.apps[request.app];
        let ended = app.admission.handle_end(now, place, attempt, Outcome::Failed);
        self.oracle.answered_once(now, ended);
        if request.is_at_instance {
            self.left(home);
        }
        self.answer_client(request.flow, request.session, Answer::Failed);
    }
}
