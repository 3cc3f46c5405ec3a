//! Requests: from a client through the gateway's queue to an instance, and back.

use std::rc::Rc;

use weal_control::admission::{Dispatched, IncomingRequest};
use weal_control::dispatch::Attempt;
use weal_control::flow::pipeline::{RequestOutcome, Ticket};

use super::parts::clients::RequestEnd;
use super::parts::event::{Event, TaskId};
use super::parts::tasks::{Owner, Request, Task};
use super::state::World;

impl World<'_> {
    /// A request comes in at the gateway.
    pub fn arrive(&mut self, load: usize, session: Option<u32>) {
        let number = self.next_flow(load, session);
        let flow = &mut self.flows[number];
        flow.client_counters.sent += 1;
        let (index, class, steps) = (flow.app, flow.index, Rc::clone(&flow.steps));
        let Some(class) = class.filter(|_| self.gateway_up) else {
            return self.answer_client(number, session, RequestEnd::Failed);
        };
        let (now, now_s) = (self.now(), self.now_s());
        let in_session = self.is_under_way(number, session);
        let app = &mut self.apps[index];
        let incoming = IncomingRequest { in_session, ..class.into() };
        let Ok(place) = app.admission.handle_arrival(now, incoming) else {
            return self.answer_client(number, session, RequestEnd::Rejected);
        };
        let (failed, replays) = Default::default();
        let request = Request { flow: number, session, app: index, place: Some(place), is_at_instance: false, failed, replays };
        let id = self.tasks.insert(Task::new(Owner::Request(request), steps, usize::MAX));
        app.waiting.insert(place, id);
        while app.deadlines.front().is_some_and(|&(_, task)| self.tasks.get(task).is_none()) {
            app.deadlines.pop_front();
        }
        app.deadlines.push_back((now_s + app.config.request_timeout_s, id));
        self.schedule_deadline(index);
        self.dispatch(index);
    }

    /// Whether a request shows that its session is under way, which it does where its class asks for that.
    fn is_under_way(&self, flow: usize, session: Option<u32>) -> bool {
        let flow = &self.flows[flow];
        let shows = self.apps[flow.app].config.flows.get(&flow.class).is_some_and(|flow| flow.session_cookie.is_some());
        shows && session.is_some_and(|number| self.clients[flow.load].sessions[number as usize].is_under_way)
    }

    /// Sends what may go to instances, and has another one woken where that is needed.
    pub fn dispatch(&mut self, app: usize) {
        // What waited at a gateway that is gone is lost with it.
        if !self.gateway_up {
            return;
        }
        let now = self.now();
        self.oracle.touch(app);
        while let Some(next) = self.apps[app].admission.poll_dispatch(now) {
            let id = self.apps[app].waiting.remove(&next.ticket).expect("the gateway hands out what it was given");
            self.send(app, id, next);
        }
        while let Some(dropped) = self.apps[app].admission.poll_dropped(now) {
            self.reject(app, dropped.ticket);
        }
        self.check_wake(app);
    }

    /// Sends one request to its instance, or to another when that one refuses.
    fn send(&mut self, app: usize, id: TaskId, Dispatched { ticket, instance: mut at }: Dispatched) {
        let now = self.now();
        let Some(Owner::Request(mut request)) = self.tasks.get(id).map(|task| task.owner) else { return };
        let found = loop {
            let entry = &mut self.apps[app];
            // A gateway that began again may know an instance by its config that is gone: nobody answers there.
            let instance = entry.behind.get(&at.slot()).copied();
            if let Some(instance) = instance.filter(|&instance| self.instances[instance].answers()) {
                break Some(instance);
            }
            request.note_failed(at);
            match entry.admission.handle_retry(now, ticket, Attempt::Refused, &request.failed()) {
                Some(other) => at = other,
                None => break None,
            }
        };
        request.is_at_instance = found.is_some();
        let waits = found.is_none() && self.apps[app].admission.handle_refused(now, ticket, request.replays);
        if waits {
            request.failed = Default::default();
        }
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.owner = Owner::Request(request);
        match found {
            Some(instance) => {
                task.home = instance;
                self.instances[instance].in_flight += 1;
                self.begin_step(id);
            }
            None if waits => drop(self.apps[app].waiting.insert(ticket, id)),
            None => self.end(id, RequestOutcome::Failed, Attempt::Refused),
        }
    }

    /// An instance has broken off in the middle of a request. The gateway sends it to another one, as it does with requests without side effects.
    /// Where it is an instance behind that one which has gone, the one in front answers with an error.
    pub fn break_off(&mut self, id: TaskId) {
        let Some((Owner::Request(mut request), home)) = self.tasks.get(id).map(|task| (task.owner, task.home)) else { return };
        let (now, entry) = (self.now(), &mut self.apps[request.app]);
        let before = request.place.and_then(|place| Some((place, entry.admission.instance_of(place)?)));
        let next = before.filter(|_| self.gateway_up && !self.instances[home].answers()).and_then(|(place, instance)| {
            request.note_failed(instance);
            let next = entry.admission.handle_retry(now, place, Attempt::Broken, &request.failed())?;
            Some(Dispatched { ticket: place, instance: next })
        });
        let Some(next) = next else { return self.end(id, RequestOutcome::Failed, Attempt::Broken) };
        self.left(home);
        self.tasks.remove(id);
        (request.is_at_instance, request.replays) = (false, request.replays + 1);
        let steps = Rc::clone(&self.flows[request.flow].steps);
        let again = self.tasks.insert(Task::new(Owner::Request(request), steps, usize::MAX));
        // It keeps its deadline.
        if let Some((_, known)) = self.apps[request.app].deadlines.iter_mut().find(|(_, known)| *known == id) {
            *known = again;
        }
        self.send(request.app, again, next);
        self.dispatch(request.app);
    }

    /// A request that an instance worked on ends. What the gateway has given up on ends unnoticed.
    pub fn end(&mut self, id: TaskId, outcome: RequestOutcome, attempt: Attempt) {
        let Some(Task { owner: Owner::Request(request), home, .. }) = self.tasks.remove(id) else { return };
        let Some(place) = request.place else { return };
        let now = self.now();
        let app = &mut self.apps[request.app];
        let ended = app.admission.handle_end(now, place, attempt, outcome);
        self.oracle.answered_once(now, ended);
        if request.is_at_instance {
            self.left(home);
        }
        let answer = if outcome == RequestOutcome::Served { RequestEnd::Served } else { RequestEnd::Failed };
        self.answer_client(request.flow, request.session, answer);
        self.dispatch(request.app);
    }

    /// One request less is outstanding at an instance.
    fn left(&mut self, instance: usize) {
        self.instances[instance].in_flight -= 1;
    }

    fn schedule_deadline(&mut self, app: usize) {
        let entry = &mut self.apps[app];
        if let Some(&(at_s, _)) = entry.deadlines.front().filter(|_| !entry.watched) {
            entry.watched = true;
            // A little later, for the gateway counts in whole nanoseconds.
            self.agenda.enter(at_s + 1e-6, Event::Deadline { app });
        }
    }

    /// Requests that have been there for too long: those that wait are rejected, the others given up.
    pub fn expire(&mut self, app: usize) {
        let (now, now_s) = (self.now(), self.now_s());
        self.apps[app].watched = false;
        for place in self.apps[app].admission.handle_timeout(now) {
            self.reject(app, place);
        }
        while let Some(&(at_s, id)) = self.apps[app].deadlines.front() {
            let waits = self.tasks.get(id).is_some_and(|task| task.home == usize::MAX);
            if at_s > now_s || waits {
                break;
            }
            self.apps[app].deadlines.pop_front();
            self.give_up(id, Attempt::Abandoned);
        }
        self.schedule_deadline(app);
        self.dispatch(app);
    }

    /// A request that waited gets no seat.
    fn reject(&mut self, app: usize, place: Ticket) {
        let Some(id) = self.apps[app].waiting.remove(&place) else { return };
        if let Some(Task { owner: Owner::Request(request), .. }) = self.tasks.remove(id) {
            self.answer_client(request.flow, request.session, RequestEnd::Rejected);
        }
    }

    /// The gateway answers 504 and hangs up; the instance does not notice.
    pub fn give_up(&mut self, id: TaskId, attempt: Attempt) {
        let now = self.now();
        let Some(task) = self.tasks.get_mut(id) else { return };
        let home = task.home;
        let Owner::Request(request) = &mut task.owner else { return };
        let Some(place) = request.place.take() else { return };
        let request = *request;
        let app = &mut self.apps[request.app];
        let ended = app.admission.handle_end(now, place, attempt, RequestOutcome::Failed);
        self.oracle.answered_once(now, ended);
        if request.is_at_instance {
            self.left(home);
        }
        self.answer_client(request.flow, request.session, RequestEnd::Failed);
    }

    /// Has an instance woken where the gateway needs one, and enters when to check again.
    pub fn check_wake(&mut self, app: usize) {
        if !self.gateway_up {
            return;
        }
        let now = self.now();
        let entry = &mut self.apps[app];
        if let Some(request) = entry.admission.poll_wake(now) {
            return self.call_agent(app, request);
        }
        let Some(at) = entry.admission.poll_wake_timeout(now) else { return };
        // A little later, for the gateway counts in whole nanoseconds.
        let at_s = at.as_secs_f64() + 1e-6;
        if at_s < entry.wake_check_s {
            entry.wake_check_s = at_s;
            self.agenda.enter(at_s, Event::WakeCheck { app });
        }
    }

    /// A check that was entered is due, unless an earlier one has taken its place.
    pub fn handle_wake_check(&mut self, app: usize) {
        let now_s = self.now_s();
        if now_s >= self.apps[app].wake_check_s {
            self.apps[app].wake_check_s = f64::INFINITY;
            self.dispatch(app);
        }
    }

    /// The gateway hears of an instance that is awake, before the controller does.
    pub fn handle_woken(&mut self, app: usize, instance: usize) {
        let now = self.now();
        let id = self.instances[instance].id.clone();
        let woken = self.apps[app].admission.handle_woken(now, &id);
        if let Some(woken) = woken {
            self.apps[app].behind.insert(woken.instance.slot(), instance);
        }
        self.dispatch(app);
    }

    /// The gateway hears that nothing could be woken.
    pub fn handle_wake_refused(&mut self, app: usize) {
        let now = self.now();
        self.apps[app].admission.handle_wake_refused(now);
        self.dispatch(app);
    }
}
