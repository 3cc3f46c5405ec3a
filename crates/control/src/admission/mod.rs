//! One cluster at one gateway: which request goes next, to which instance, and when to have another instance woken.
//!
//! [`Admission`] is a pure state machine. It owns the queues and seats ([`pipeline`]), the choice of an instance
//! ([`crate::dispatch`]), the watch for crowds ([`crate::flow::crowd`]) and the calls to the node agent that wake instances. The caller
//! does what it says: the gateway with sockets and timers, the simulator in virtual time.
//!
//! | comes in | call |
//! | --- | --- |
//! | a config of the controller | [`Admission::handle_config`] |
//! | a request | [`Admission::handle_arrival`] |
//! | a failed attempt that another instance may make good | [`Admission::handle_retry`] |
//! | a refused connection where no other instance is left | [`Admission::handle_refused`] |
//! | a new connection to an instance | [`Admission::handle_connection`] |
//! | a request whose body has not all come, and the end of that | [`Admission::handle_upload`], [`Admission::handle_upload_end`] |
//! | a request with a seat waits for its client to send, or no longer | [`Admission::handle_client_wait`] |
//! | the same for a client that is to take more of its answer | [`Admission::handle_reading`] |
//! | how many seats are this gateway's, where others share them | [`Admission::handle_share`] |
//! | the end of a request | [`Admission::handle_end`], [`Admission::handle_cancel`], [`Admission::handle_upgrade`] |
//! | the end of a tunnel | [`Admission::handle_tunnel_end`] |
//! | the moment that [`Admission::poll_timeout`] names, and a config by which [`Admission::unavailable`] | [`Admission::handle_timeout`] |
//! | the node agent's answer | [`Admission::handle_woken`], [`Admission::handle_wake_refused`] |
//!
//! After each of them the caller asks [`Admission::poll_dispatch`], [`Admission::poll_dropped`] and [`Admission::poll_cut`] until they give nothing, then
//! [`Admission::poll_wake`] and
//! [`Admission::poll_wake_timeout`].
//!
//! # What holds
//!
//! - Once `poll_dispatch` gives nothing, no request waits while a seat is free, its class's rate lets it go, and an instance is open that did not
//!   refuse a connection [a moment ago](crate::dispatch#when-all-refuse).
//! - A request whose connection was refused is not lost while the instance may come back: it waits again, before all others.
//! - Each ticket ends exactly once: by its end, by a cancellation, by its time-out or by being dropped. A ticket that has ended changes nothing any more.
//! - Requests whose bodies have not all come hold at most half of the seats, so that clients that send slowly cannot take them all.
//! - Clients that take their answers slowly never hold all seats while others wait, so long as one of them may be cut off
//!   ([how](crate::flow::pipeline#time-that-clients-take)).
//! - At most one call to the node agent is under way. Between a refusal and the next call there is a pause, which grows with each
//!   refusal in a row.

pub mod addresses;
pub mod handshakes;
mod wakes;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::time::Duration;

use weal_model::{AppName, ClassName, Crowd, FlowId, GatewayName, InstanceId, Time};
use weal_protocol::gateway::{ClusterConfig, ClusterCounters, EndpointCounters, FlowCounters, Unavailable};
use weal_protocol::node::WakeRequest;

use crate::dispatch::{Attempt, Candidate, Dispatcher, InstanceIndex, RequestKey};
use crate::flow::pipeline::{
    self, Arrival, ClassIndex, ClassLimits, Dropped, Pipeline, PipelineLimits, Reading, Rejection, RequestOutcome, Ticket,
};
use crate::flow::sharing::Need;

use wakes::Wakes;
pub use wakes::{CALL_WAIT, WakeReason};

/// Instances that one request may be sent to. A third failure says more about the request or the network than about the instances.
pub const MOST_ATTEMPTS: usize = 3;
/// A request that was sent again more often than that, although an instance may have begun with it, is not kept for one that comes back: it may
/// be what ends each instance that it comes to.
const MOST_REPLAYS: u32 = 1;

/// The share of the load of an instance that no config has spoken of yet, relative to one that was given a whole core.
const WOKEN_WEIGHT: f64 = 1.0;

/// The decisions about the requests of one cluster.
#[derive(Debug)]
pub struct Admission {
    app: AppName,
    /// What the pipeline works by: the last config's, with the seats of instances woken since.
    limits: PipelineLimits,
    pipeline: Pipeline,
    dispatcher: Dispatcher,
    /// Those of the last config, and those woken since.
    candidates: Vec<Candidate>,
    /// By [`Ticket::slot`]: where a request is outstanding. Invariant: `None` for tickets that wait or have ended.
    instances: Vec<Option<InstanceIndex>>,
    /// By [`Ticket::slot`]: what its instance is chosen by.
    keys: Vec<RequestKey>,
    /// Requests sent again, of the classes that have any.
    retries: Vec<(ClassIndex, u64)>,
    /// Requests that were let go on although their bodies had not all come.
    uploads: u32,
    request_timeout: Duration,
    /// Why no instance will take requests soon.
    unavailable: Option<Unavailable>,
    wakes: Wakes,
}

/// A request that comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncomingRequest {
    /// Its class.
    pub class: ClassIndex,
    /// It goes on with a session that was begun before.
    pub in_session: bool,
    /// What its instance is chosen by.
    pub key: RequestKey,
}

impl From<ClassIndex> for IncomingRequest {
    fn from(class: ClassIndex) -> Self {
        Self { class, in_session: false, key: RequestKey::default() }
    }
}

/// A request that goes to an instance now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatched {
    /// Which.
    pub ticket: Ticket,
    /// Where.
    pub instance: InstanceIndex,
}

/// An instance that takes requests since the node agent has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Woken {
    /// Where it is from now on.
    pub instance: InstanceIndex,
    /// What it was asked for.
    pub reason: WakeReason,
}

impl Admission {
    /// The cluster of `app`, which takes nothing before its first config. The seed only serves choices among many instances.
    pub fn new(app: AppName, seed: u64) -> Self {
        Self {
            app,
            limits: PipelineLimits::default(),
            pipeline: Pipeline::default(),
            dispatcher: Dispatcher::new(seed),
            candidates: Vec::new(),
            instances: Vec::new(),
            keys: Vec::new(),
            retries: Vec::new(),
            uploads: 0,
            request_timeout: Duration::ZERO,
            unavailable: None,
            wakes: Wakes::new(),
        }
    }

    /// Works by `config` from now on. No request is lost, whatever it says.
    pub fn handle_config(&mut self, now: Time, config: &ClusterConfig) {
        self.limits = limits_of(config);
        self.pipeline.configure(now, &self.limits);
        self.request_timeout = Duration::try_from_secs_f64(config.request_timeout_s).unwrap_or(Duration::MAX);
        self.unavailable = config.unavailable;
        self.candidates = candidates_of(config);
        self.dispatcher.set_rules(&config.http.dispatch, config.seats);
        self.dispatcher.configure(now, &self.candidates);
        self.wakes.configure(config.standby.as_ref(), config.wakeable.as_deref());
    }

    /// A request comes in. It waits until [`Admission::poll_dispatch`] names its ticket.
    ///
    /// # Errors
    /// When as many wait as may, or waiting is in vain.
    pub fn handle_arrival(&mut self, now: Time, request: impl Into<IncomingRequest>) -> Result<Ticket, Rejection> {
        let IncomingRequest { class, in_session, key } = request.into();
        if let Some(reason) = self.unavailable() {
            self.pipeline.handle_refusal(now, class);
            return Err(Rejection::Unavailable(reason));
        }
        // What comes while all instances sleep waits for a wake, and who wakes them is not to be turned away for that.
        let can_be_late = self.dispatcher.can_dispatch(now);
        let arrival = Arrival { class, in_session, can_be_late };
        let ticket = self.pipeline.handle_arrival(now, arrival, now + self.request_timeout)?;
        if self.instances.len() <= ticket.slot() {
            self.instances.resize(ticket.slot() + 1, None);
            self.keys.resize(ticket.slot() + 1, RequestKey::default());
        }
        self.keys[ticket.slot()] = key;
        Ok(ticket)
    }

    /// Whether a request may arrive of whose body more is to come. If so, it counts until [`Admission::handle_upload_end`]. If not, the caller
    /// waits for the body first. A body that `has_flowed` has shown that it comes, as far as the caller has room for it; one of those may go
    /// on even where half of the seats are none.
    pub fn handle_upload(&mut self, has_flowed: bool) -> bool {
        let most = self.limits.seats.map_or(u32::MAX, |seats| (seats / 2).max(u32::from(has_flowed)));
        let may = self.uploads < most;
        self.uploads += u32::from(may);
        may
    }

    /// A body that had not all come is there, or will not come.
    pub fn handle_upload_end(&mut self) {
        self.uploads = self.uploads.saturating_sub(1);
    }

    /// Of the planned seats, `held` are this gateway's now; `None` when it shares them with none.
    pub fn handle_share(&mut self, held: Option<u32>) {
        self.pipeline.handle_share(held);
    }

    /// What the requests that can go need of the seats, with one more of the class `expecting`; to be asked before
    /// [`Admission::poll_dispatch`] and after it, where gateways share seats ([`crate::flow::sharing`]).
    pub fn need(&mut self, now: Time, expecting: Option<ClassIndex>) -> Need {
        let need = self.pipeline.need(now, expecting);
        if self.dispatcher.can_dispatch(now) { need } else { Need { wanted: need.occupied, ..need } }
    }

    /// Seats over all flows, as planned; `None` does not limit.
    pub fn seats(&self) -> Option<u32> {
        self.limits.seats
    }

    /// A request with a seat waits for its client from now on, to send more; or no longer.
    pub fn handle_client_wait(&mut self, now: Time, ticket: Ticket, waits: bool) {
        self.pipeline.handle_client_wait(now, ticket, waits);
    }

    /// The client of a request with a seat is to take more of its answer.
    pub fn handle_reading(&mut self, now: Time, ticket: Ticket, reading: Reading) {
        self.pipeline.handle_reading(now, ticket, reading);
    }

    /// A request whose client takes its answer so slowly that others wait for its seat: the caller ends it. Each is named once.
    pub fn poll_cut(&mut self, now: Time) -> Option<Ticket> {
        // While no instance is open, no seat helps anybody.
        if self.dispatcher.can_dispatch(now) { self.pipeline.poll_cut(now) } else { None }
    }

    /// The next request that has a seat, and where it goes. It is outstanding there until its end. `None` when nothing can go.
    pub fn poll_dispatch(&mut self, now: Time) -> Option<Dispatched> {
        if !self.dispatcher.can_dispatch(now) {
            return None;
        }
        let ticket = self.pipeline.poll_dispatch(now)?.ticket;
        let key = self.keys[ticket.slot()];
        let instance = self.dispatcher.handle_dispatch(now, key, &[]).expect("an instance is open and none is excluded");
        self.instances[ticket.slot()] = Some(instance);
        Some(Dispatched { ticket, instance })
    }

    /// A request that has left its queue without a seat, by its class's policy. Its ticket has ended.
    pub fn poll_dropped(&mut self, now: Time) -> Option<Dropped> {
        self.pipeline.poll_dropped(now)
    }

    /// A request that is outstanding has shown a sign of life.
    pub fn handle_sign_of_life(&mut self, ticket: Ticket) {
        self.pipeline.handle_sign_of_life(ticket);
    }

    /// A request that is outstanding has a response with this status code.
    pub fn handle_status(&mut self, ticket: Ticket, status: u16) {
        self.pipeline.handle_status(ticket, status);
    }

    /// An attempt has failed, and the request can be sent again. It keeps its seat and goes to another instance than those in `failed`.
    /// `None` when no other is left, or enough were tried: then the request ends.
    pub fn handle_retry(
        &mut self,
        now: Time,
        ticket: Ticket,
        attempt: Attempt,
        failed: &[InstanceIndex],
    ) -> Option<InstanceIndex> {
        let class = self.pipeline.class_in_service(ticket)?;
        let before = self.instances[ticket.slot()].take()?;
        self.dispatcher.handle_end(now, before, attempt);
        if failed.len() >= MOST_ATTEMPTS {
            return None;
        }
        let instance = self.dispatcher.handle_dispatch(now, self.keys[ticket.slot()], failed)?;
        self.instances[ticket.slot()] = Some(instance);
        match self.retries.iter_mut().find(|(known, _)| *known == class) {
            Some((_, count)) => *count += 1,
            None => self.retries.push((class, 1)),
        }
        Some(instance)
    }

    /// After [`Admission::handle_retry`] has found no other instance: no instance has begun with the request, as each refused the connection.
    /// True: one of them may be there again in a moment, and the request waits for that, first of all, without its seat. False: it ends.
    /// `replays` counts how often it was sent again although an instance may have begun with it.
    pub fn handle_refused(&mut self, now: Time, ticket: Ticket, replays: u32) -> bool {
        if replays > MOST_REPLAYS {
            return false;
        }
        let is_at_instance = self.instances.get(ticket.slot()).is_some_and(Option::is_some);
        !is_at_instance && self.dispatcher.may_come_back(now) && self.pipeline.handle_return(now, ticket, self.request_timeout)
    }

    /// A request that is outstanding has a new connection to its instance.
    pub fn handle_connection(&mut self, ticket: Ticket) {
        if let Some(instance) = self.instance_of(ticket) {
            self.dispatcher.handle_connection(instance);
        }
    }

    /// A request that was dispatched has ended: its seat is free. False when it had ended before, or waits.
    pub fn handle_end(&mut self, now: Time, ticket: Ticket, attempt: Attempt, outcome: RequestOutcome) -> bool {
        let ended = self.pipeline.handle_completion(now, ticket, outcome);
        self.release(now, ticket, attempt, ended)
    }

    /// Nobody wants the answer any more, whether the request waits or is at an instance. False when it had ended before.
    pub fn handle_cancel(&mut self, now: Time, ticket: Ticket) -> bool {
        let ended = self.pipeline.handle_cancel(now, ticket);
        self.release(now, ticket, Attempt::Abandoned, ended)
    }

    /// The connection is no longer HTTP: the request counts as served and its seat is free, but the tunnel stays outstanding at the
    /// instance until [`Admission::handle_tunnel_end`]. A tunnel may last for days; were it to keep its seat, a few of them would
    /// starve all requests.
    pub fn handle_upgrade(&mut self, now: Time, ticket: Ticket) -> Option<InstanceIndex> {
        let ended = self.pipeline.handle_completion(now, ticket, RequestOutcome::Served);
        self.instances.get_mut(ticket.slot()).filter(|_| ended)?.take()
    }

    /// A tunnel to `instance` has ended.
    pub fn handle_tunnel_end(&mut self, now: Time, instance: InstanceIndex) {
        self.dispatcher.handle_end(now, instance, Attempt::Answered);
    }

    /// When [`Admission::handle_timeout`] has something to do next; `None` when nothing waits.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.pipeline.poll_timeout()
    }

    /// Ends what has waited for too long, or waits in vain, and says what that was.
    pub fn handle_timeout(&mut self, now: Time) -> Vec<Ticket> {
        match self.unavailable() {
            Some(_) => self.pipeline.handle_close(now),
            None => self.pipeline.handle_timeout(now),
        }
    }

    /// Why waiting is in vain; `None` when it is not.
    pub fn unavailable(&self) -> Option<Unavailable> {
        self.unavailable.filter(|_| !self.dispatcher.has_candidate())
    }

    /// What to ask of the node agent now; `None` while nothing is needed, a call is under way or a pause lasts. The caller makes the call
    /// and hands its answer to [`Admission::handle_woken`] or [`Admission::handle_wake_refused`].
    pub fn poll_wake(&mut self, now: Time) -> Option<WakeRequest> {
        let Self { wakes, pipeline, dispatcher, .. } = self;
        if wakes.is_busy(now) {
            return None;
        }
        let any_waits = pipeline.queued() > 0;
        let instances = wakes.poll(now, any_waits, dispatcher.has_candidate(), || pipeline.oldest_wait(now))?;
        Some(WakeRequest { app: self.app.clone(), wait_s: CALL_WAIT.as_secs_f64(), instances })
    }

    /// When to ask [`Admission::poll_dispatch`], [`Admission::poll_dropped`], [`Admission::poll_cut`] and [`Admission::poll_wake`] although nothing has come in;
    /// `None` when something else comes first. To be asked after them.
    pub fn poll_wake_timeout(&self, now: Time) -> Option<Time> {
        let can_be_late = self.pipeline.queued() > 0 && self.dispatcher.has_candidate();
        let wake = self.wakes.poll_timeout(now, can_be_late, || self.pipeline.oldest_wait(now));
        let next_try = self.dispatcher.poll_try(now).filter(|_| self.pipeline.queued() > 0);
        wake.into_iter().chain(self.pipeline.poll_wait()).chain(next_try).min()
    }

    /// The node agent names an instance that answers. It takes what waits, and all that comes until a config says otherwise. `None` when
    /// it is not used, because a config came meanwhile by which it is about to be stopped.
    pub fn handle_woken(&mut self, now: Time, instance: &InstanceId) -> Option<Woken> {
        let reason = self.wakes.handle_woken(now, instance)?;
        if reason == WakeReason::Crowd {
            self.limits.add_instance(self.candidates.iter().filter(|candidate| !candidate.draining).count());
            self.pipeline.configure(now, &self.limits);
        }
        self.candidates.retain(|candidate| candidate.instance != *instance);
        self.candidates.push(Candidate { instance: instance.clone(), weight: WOKEN_WEIGHT, draining: false });
        self.dispatcher.configure(now, &self.candidates);
        let woken = self.find(instance)?;
        self.dispatcher.handle_connection(woken);
        Some(Woken { instance: woken, reason })
    }

    /// The node agent could wake none, or did not answer.
    pub fn handle_wake_refused(&mut self, now: Time) {
        self.wakes.handle_refused(now);
    }

    /// Its application.
    pub fn app(&self) -> &AppName {
        &self.app
    }

    /// Where `class` is among the cluster's classes. Valid for the life of this.
    pub fn class(&self, class: &ClassName) -> Option<ClassIndex> {
        self.pipeline.class(class)
    }

    /// Where an instance is. Valid until the config leaves it out and nothing is outstanding there.
    pub fn find(&self, instance: &InstanceId) -> Option<InstanceIndex> {
        self.dispatcher.find(instance)
    }

    /// The instance in a slot, which is that of [`InstanceIndex::slot`].
    pub fn instance_at(&self, slot: usize) -> Option<InstanceIndex> {
        self.dispatcher.at(slot)
    }

    /// Where a request is outstanding; `None` when it waits or has ended.
    pub fn instance_of(&self, ticket: Ticket) -> Option<InstanceIndex> {
        if !self.pipeline.is_in_service(ticket) {
            return None;
        }
        self.instances[ticket.slot()]
    }

    /// True while a request waits.
    pub fn is_queued(&self, ticket: Ticket) -> bool {
        self.pipeline.is_queued(ticket)
    }

    /// Requests that wait.
    pub fn queued(&self) -> u32 {
        self.pipeline.queued()
    }

    /// True when some instance is there to take requests, even if it refuses connections for the moment.
    pub fn any_open(&self) -> bool {
        self.dispatcher.has_candidate()
    }

    /// True while [`Admission::poll_dispatch`] has something to give.
    pub fn can_dispatch(&self, now: Time) -> bool {
        self.dispatcher.can_dispatch(now) && self.pipeline.can_dispatch()
    }

    /// True when nothing waits and nothing is outstanding.
    pub fn is_idle(&self) -> bool {
        self.pipeline.queued() == 0 && self.pipeline.in_service() == 0
    }

    /// How long a request may take in all, its wait included.
    pub fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// How crowded it is now for `class`.
    pub fn crowd(&self, class: ClassIndex) -> Crowd {
        let (queued, queue_limit, seats) = self.pipeline.limits_of(class);
        let any_open = self.dispatcher.has_candidate();
        Crowd { queued, queue_limit, in_service: self.pipeline.seated(), seats, any_open }
    }

    /// What happened so far, as `gateway` tells it: adds one entry per flow and one per instance.
    pub fn observe(
        &mut self,
        now: Time,
        gateway: &GatewayName,
        flows: &mut Vec<FlowCounters>,
        instances: &mut Vec<EndpointCounters>,
    ) -> ClusterCounters {
        let (app, retries) = (&self.app, &self.retries);
        flows.extend(self.pipeline.observe(now).map(|class| {
            let id = FlowId { gateway: gateway.clone(), app: app.clone(), class: class.name.clone() };
            let retries = retries.iter().find(|(index, _)| *index == class.index).map_or(0, |&(_, count)| count);
            flow_counters(id, retries, &class)
        }));
        instances.extend(self.dispatcher.counts().map(|counts| EndpointCounters {
            instance: counts.instance.clone(),
            open: counts.open,
            in_flight: counts.outstanding,
            completions: counts.completions,
            failures: counts.failures,
        }));
        self.wakes.counters(app)
    }

    /// A request that has `ended` is no longer outstanding at its instance. Otherwise its slot may already be another's.
    fn release(&mut self, now: Time, ticket: Ticket, attempt: Attempt, ended: bool) -> bool {
        if ended && let Some(instance) = self.instances[ticket.slot()].take() {
            self.dispatcher.handle_end(now, instance, attempt);
        }
        ended
    }
}

fn limits_of(config: &ClusterConfig) -> PipelineLimits {
    let classes = config.flows.iter().map(|(name, flow)| (name.clone(), ClassLimits::of(flow)));
    let inner = config.inner.iter().flat_map(|inner| &inner.flows);
    let inner = inner.map(|(name, flow)| (inner_class(name), ClassLimits::of(flow)));
    PipelineLimits { seats: config.seats, classes: classes.chain(inner).collect() }
}

/// What ends the name of a class of calls from other applications. No class of a config has it.
const INNER: &str = "@inner";

/// The class in which calls of other applications wait that belong to `class`. They have a queue of their own beside that of requests from
/// outside, and share the instances and seats with them.
pub fn inner_class(class: &ClassName) -> ClassName {
    ClassName::from(format!("{class}{INNER}"))
}

/// The class that calls in the queue `name` belong to; `None` for the queue of requests from outside.
pub fn class_of_inner(name: &ClassName) -> Option<ClassName> {
    name.as_str().strip_suffix(INNER).map(ClassName::from)
}

fn candidates_of(config: &ClusterConfig) -> Vec<Candidate> {
    let endpoints = config.endpoints.iter();
    let candidates = endpoints.map(|endpoint| Candidate {
        instance: endpoint.instance.clone(),
        weight: endpoint.weight,
        draining: endpoint.draining,
    });
    candidates.collect()
}

fn flow_counters(id: FlowId, retries: u64, class: &pipeline::ClassObservation<'_>) -> FlowCounters {
    let counters = class.counters;
    FlowCounters {
        id,
        arrivals: counters.arrivals,
        completions: counters.completions,
        rejections: counters.rejections,
        errors: counters.errors,
        retries,
        response_time: counters.response_time.clone(),
        service_time: counters.service_time.clone(),
        queue_integral_s: counters.queue_integral_s,
        in_service_integral_s: counters.in_service_integral_s,
        queued: class.queued,
        in_service: class.in_service,
        late: counters.late,
        hanging: class.hanging,
        at_clients: class.at_clients,
        oldest_wait_s: class.oldest_wait.as_secs_f64(),
        responses: counters.responses,
    }
}
