//! One cluster as this gateway serves it: the pure pipeline and dispatcher behind one lock, and the seats that requests hold.
//!
//! One lock per cluster keeps `N` exact over all threads. It is held for the few hundred nanoseconds of a decision and never
//! while waiting.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use weal_control::dispatch::{Attempt, Candidate, Dispatcher, InstanceIndex};
use weal_control::flow::crowd;
use weal_control::flow::pipeline::{ClassIndex, ClassLimits, Limits, Outcome, Pipeline, Rejection, Ticket};
use weal_model::{AppName, ClassName, Crowd, FlowId, GatewayName, InstanceId, LatencyHistogram, Time};
use weal_protocol::node::WakeAnswer;

use crate::clock::Clock;
use crate::upstream::Upstream;
use crate::wake::Wakes;
use weal_protocol::gateway::{ClusterConfig, ClusterCounters, EndpointCounters, FlowCounters};

/// One cluster. Lives as long as any request of it does.
#[derive(Debug)]
pub(crate) struct Cluster {
    app: AppName,
    clock: Clock,
    workers: usize,
    wakes: Wakes,
    /// Told when a config came: whoever waits for an instance may have one.
    changed: Arc<Notify>,
    core: Mutex<Core>,
}

#[derive(Debug)]
struct Core {
    /// What the pipeline works by.
    limits: Limits,
    pipeline: Pipeline,
    crowd: crowd::Watch,
    dispatcher: Dispatcher,
    /// Those of the last config, and those woken since.
    candidates: Vec<Candidate>,
    /// By [`InstanceIndex::slot`].
    upstreams: Vec<Option<Arc<Upstream>>>,
    /// By [`Ticket::slot`].
    places: Vec<Place>,
    /// Requests sent again, of the classes that have any.
    retries: Vec<(ClassIndex, u64)>,
    request_timeout: Duration,
    /// Who may be woken, unless all may.
    wakeable: Option<Vec<InstanceId>>,
    waking: Waking,
}

/// What is being done about requests that wait for an instance.
#[derive(Debug, Default)]
struct Waking {
    /// Who sees to those who wait, which several requests need only once.
    care: Care,
    /// Since when none is open for those who wait.
    since: Option<Time>,
    wakes: u64,
    crowd_wakes: u64,
    failures: u64,
    /// From the first request that found nothing open until something was.
    waits: LatencyHistogram,
}

/// Whether somebody sees to those who wait.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Care {
    #[default]
    Nobody,
    /// They are looked at again later. What comes or ends meanwhile may show that they need an instance now.
    Looks,
    /// An instance is asked for.
    Asks,
}

impl Care {
    fn of(need: Option<&Need>) -> Self {
        match need {
            None => Self::Nobody,
            Some(Need::Later(_)) => Self::Looks,
            Some(Need::Any(_) | Need::OneMore(_)) => Self::Asks,
        }
    }
}

/// What would help those who wait.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Need {
    /// One of these, or any where none is named: no instance is open.
    Any(Vec<InstanceId>),
    /// One of these, beside those that are open.
    OneMore(Vec<InstanceId>),
    /// Nothing yet: to be looked at again after so long.
    Later(Duration),
}

/// What is known of a request beside its ticket.
#[derive(Debug, Default)]
struct Place {
    waker: Option<Waker>,
    instance: Option<InstanceIndex>,
}

/// Where a request goes.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub index: InstanceIndex,
    pub upstream: Arc<Upstream>,
}

/// The request waited in its queue until its time was up.
#[derive(Debug)]
pub(crate) struct Expired {
    /// False: there was no instance at all that could have taken it.
    pub any_open: bool,
}

/// A request's place: in a queue at first, then in a seat until this is dropped. Dropping it before [`Seat::finish`] counts
/// the request as broken off.
#[derive(Debug)]
pub(crate) struct Seat {
    cluster: Arc<Cluster>,
    class: ClassIndex,
    ticket: Ticket,
    ended: bool,
}

impl Cluster {
    pub fn new(config: &ClusterConfig, clock: Clock, workers: usize, wakes: Wakes) -> Arc<Self> {
        let core = Core {
            limits: Limits::default(),
            pipeline: Pipeline::default(),
            crowd: crowd::Watch::default(),
            dispatcher: Dispatcher::new(clock.now().0),
            candidates: Vec::new(),
            upstreams: Vec::new(),
            places: Vec::new(),
            retries: Vec::new(),
            request_timeout: Duration::ZERO,
            wakeable: None,
            waking: Waking::default(),
        };
        let (app, changed) = (config.app.clone(), Arc::default());
        let cluster = Arc::new(Self { app, clock, workers, wakes, changed, core: Mutex::new(core) });
        cluster.configure(config);
        cluster
    }

    /// Works by `config` from now on; no request is lost.
    pub fn configure(self: &Arc<Self>, config: &ClusterConfig) {
        let mut core = self.lock();
        let class_limits = |(name, flow): (&ClassName, &weal_protocol::gateway::FlowConfig)| {
            (name.clone(), ClassLimits { weight: flow.weight, size: flow.size, queue_limit: flow.queue_limit })
        };
        core.limits = Limits { seats: config.seats, classes: config.flows.iter().map(class_limits).collect() };
        core.put_limits_in_force(self.clock.now());
        core.crowd.configure(config.standby.as_ref());
        core.wakeable.clone_from(&config.wakeable);
        core.request_timeout = Duration::try_from_secs_f64(config.request_timeout_s).unwrap_or(Duration::MAX);
        core.candidates = config
            .endpoints
            .iter()
            .map(|endpoint| Candidate {
                instance: endpoint.instance.clone(),
                weight: endpoint.weight,
                draining: endpoint.draining,
            })
            .collect();
        core.put_candidates_in_force();
        for endpoint in &config.endpoints {
            if let Some(index) = core.dispatcher.find(&endpoint.instance) {
                core.set_upstream(index, endpoint.address, endpoint.draining, self.workers);
            }
        }
        self.pump(core, self.clock.now());
        self.changed.notify_one();
    }

    /// What those who wait need, and what tells of a change; `None` ends the care for them until others come.
    pub fn wants_instance(&self) -> Option<(Need, Arc<Notify>)> {
        let mut core = self.lock();
        let now = self.clock.now();
        let need = core.need(now);
        core.note(need.as_ref(), now);
        Some((need?, Arc::clone(&self.changed)))
    }

    /// An instance was woken: it takes what waits, and all that comes until a config says otherwise. Its former connections are
    /// not used again: they are as old as its sleep, and it may close them just now. False when it is not used, because a config came
    /// meanwhile by which it is about to be stopped.
    pub fn handle_woken(self: &Arc<Self>, need: &Need, answer: &WakeAnswer) -> bool {
        let mut core = self.lock();
        let now = self.clock.now();
        if core.wakeable.as_ref().is_some_and(|wakeable| !wakeable.contains(&answer.instance)) {
            core.waking.failures += 1;
            return false;
        }
        core.waking.wakes += 1;
        match (need, core.waking.since) {
            (Need::Any(_), Some(since)) => core.waking.waits.record(now.since(since)),
            (Need::Any(_), None) | (Need::Later(_), _) => {}
            (Need::OneMore(_), _) => {
                core.waking.crowd_wakes += 1;
                core.crowd.handle_woken(now, &answer.instance);
                core.add_seats(now);
            }
        }
        core.candidates.retain(|candidate| candidate.instance != answer.instance);
        core.candidates.push(Candidate { instance: answer.instance.clone(), weight: WOKEN_WEIGHT, draining: false });
        core.put_candidates_in_force();
        if let Some(index) = core.dispatcher.find(&answer.instance) {
            *core.upstream_mut(index) = Some(Arc::new(Upstream::new(answer.address, self.workers)));
        }
        self.pump(core, now);
        true
    }

    pub fn handle_wake_failure(&self, need: &Need) {
        let mut core = self.lock();
        core.waking.failures += 1;
        if matches!(need, Need::OneMore(_)) {
            core.crowd.handle_failure(self.clock.now());
        }
    }

    /// Where `class` is among this cluster's classes.
    pub fn class(&self, class: &ClassName) -> Option<ClassIndex> {
        self.lock().pipeline.class(class)
    }

    pub fn app(&self) -> &AppName {
        &self.app
    }

    /// How crowded it is now for `class`.
    pub fn crowd(&self, class: ClassIndex) -> Crowd {
        let core = self.lock();
        let (queued, queue_limit, seats) = core.pipeline.limits_of(class);
        let any_open = core.dispatcher.has_candidate();
        Crowd { queued, queue_limit, in_service: core.pipeline.in_service(), seats, any_open }
    }

    /// A request comes in. With a target, it may go there at once; without one it waits: poll [`Seat::poll_target`].
    pub fn arrive(self: &Arc<Self>, class: ClassIndex) -> Result<(Seat, Option<Target>, Duration), Rejection> {
        let mut core = self.lock();
        let now = self.clock.now();
        let timeout = core.request_timeout;
        let ticket = core.pipeline.handle_arrival(now, class, now + timeout)?;
        if core.places.len() <= ticket.slot() {
            core.places.resize_with(ticket.slot() + 1, Place::default);
        }
        core.places[ticket.slot()] = Place::default();
        let seat = Seat { cluster: Arc::clone(self), class, ticket, ended: false };
        let wake = core.dispatch(now);
        let target = core.target(ticket);
        let before = core.waking.care;
        let care = if target.is_none() { core.look(now) } else { before };
        drop(core);
        wake.into_iter().for_each(Waker::wake);
        self.see_to(before, care);
        Ok((seat, target, timeout))
    }

    /// Ends what has waited for too long. Whoever waits with a timer calls this when it fires.
    pub fn expire(&self) {
        let mut core = self.lock();
        let expired = core.pipeline.handle_timeout(self.clock.now());
        let wake: Vec<Waker> = expired.iter().filter_map(|ticket| core.places[ticket.slot()].waker.take()).collect();
        drop(core);
        wake.into_iter().for_each(Waker::wake);
    }

    /// Closes connections that nothing has used for `sweeps` calls of this.
    pub fn sweep(&self, sweeps: u32) {
        let upstreams: Vec<Arc<Upstream>> = self.lock().upstreams.iter().flatten().cloned().collect();
        for upstream in upstreams {
            upstream.sweep(sweeps);
        }
    }

    /// True when nothing waits and nothing is outstanding.
    pub fn is_idle(&self) -> bool {
        let core = self.lock();
        core.pipeline.queued() == 0 && core.pipeline.in_service() == 0
    }

    pub fn observe(
        &self,
        gateway: &GatewayName,
        flows: &mut Vec<FlowCounters>,
        instances: &mut Vec<EndpointCounters>,
    ) -> ClusterCounters {
        let mut core = self.lock();
        let Core { pipeline, dispatcher, retries, .. } = &mut *core;
        flows.extend(pipeline.observe(self.clock.now()).map(|class| {
            let counters = class.counters;
            FlowCounters {
                id: FlowId { gateway: gateway.clone(), app: self.app.clone(), class: class.name.clone() },
                arrivals: counters.arrivals,
                completions: counters.completions,
                rejections: counters.rejections,
                errors: counters.errors,
                retries: retries.iter().find(|(index, _)| *index == class.index).map_or(0, |&(_, count)| count),
                response_time: counters.response_time.clone(),
                service_time: counters.service_time.clone(),
                queue_integral_s: counters.queue_integral_s,
                in_service_integral_s: counters.in_service_integral_s,
                queued: class.queued,
                in_service: class.in_service,
                oldest_wait_s: class.oldest_wait.as_secs_f64(),
            }
        }));
        instances.extend(dispatcher.counts().map(|counts| EndpointCounters {
            instance: counts.instance.clone(),
            open: counts.open,
            in_flight: counts.outstanding,
            completions: counts.completions,
            failures: counts.failures,
        }));
        let Waking { wakes, crowd_wakes, failures, waits, .. } = &core.waking;
        ClusterCounters {
            app: self.app.clone(),
            wakes: *wakes,
            crowd_wakes: *crowd_wakes,
            wake_failures: *failures,
            wake_wait: waits.clone(),
        }
    }

    /// A panic elsewhere leaves the numbers as they are after one step of pure code: usable.
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Dispatches what can go, then unlocks and wakes it.
    fn pump(self: &Arc<Self>, mut core: MutexGuard<'_, Core>, now: Time) {
        let wake = core.dispatch(now);
        let before = core.waking.care;
        let care = core.look(now);
        drop(core);
        wake.into_iter().for_each(Waker::wake);
        self.see_to(before, care);
    }

    /// Hands those who wait over to who sees to them, or says that they cannot be left until later.
    fn see_to(self: &Arc<Self>, before: Care, care: Care) {
        match (before, care) {
            (Care::Nobody, Care::Looks | Care::Asks) => self.wakes.ask(self),
            (Care::Looks, Care::Asks) => self.changed.notify_one(),
            _ => {}
        }
    }
}

/// The share of the load of an instance that no config has spoken of yet, relative to one that was given a whole core.
const WOKEN_WEIGHT: f64 = 1.0;

impl Core {
    fn dispatch(&mut self, now: Time) -> Vec<Waker> {
        let mut wake = Vec::new();
        while self.dispatcher.has_candidate() {
            let Some(dispatch) = self.pipeline.poll_dispatch(now) else { break };
            let place = &mut self.places[dispatch.ticket.slot()];
            place.instance = self.dispatcher.handle_dispatch(now, &[]);
            wake.extend(place.waker.take());
        }
        wake
    }

    /// Whether somebody must see to those who wait, after something has come or ended. Who looks at them finds out himself that nobody waits.
    fn look(&mut self, now: Time) -> Care {
        if self.waking.care == Care::Asks {
            return Care::Asks;
        }
        let need = self.need(now);
        if self.waking.care == Care::Nobody || Care::of(need.as_ref()) == Care::Asks {
            self.note(need.as_ref(), now);
        }
        self.waking.care
    }

    /// Notes what those who wait need, and since when, if none is open.
    fn note(&mut self, need: Option<&Need>, now: Time) {
        let none_is_open = matches!(need, Some(Need::Any(_)));
        self.waking.since = none_is_open.then(|| self.waking.since.unwrap_or(now));
        self.waking.care = Care::of(need);
    }

    fn need(&self, now: Time) -> Option<Need> {
        if self.pipeline.queued() == 0 {
            return None;
        }
        if !self.dispatcher.has_candidate() {
            return match &self.wakeable {
                None => Some(Need::Any(Vec::new())),
                Some(wakeable) => (!wakeable.is_empty()).then(|| Need::Any(wakeable.clone())),
            };
        }
        let oldest_wait = || self.pipeline.oldest_wait(now);
        if let Some(sleepers) = self.crowd.poll(now, oldest_wait) {
            return Some(Need::OneMore(sleepers.to_vec()));
        }
        self.crowd.poll_timeout(now, oldest_wait).map(|at| Need::Later(at.since(now)))
    }

    /// As many seats for one more instance as each that is open has, until a config says better.
    fn add_seats(&mut self, now: Time) {
        self.limits.add_instance(self.candidates.iter().filter(|candidate| !candidate.draining).count());
        self.put_limits_in_force(now);
    }

    fn put_limits_in_force(&mut self, now: Time) {
        self.pipeline.configure(now, &self.limits);
    }

    fn put_candidates_in_force(&mut self) {
        self.dispatcher.configure(&self.candidates);
    }

    fn target(&self, ticket: Ticket) -> Option<Target> {
        let index = self.places[ticket.slot()].instance?;
        let upstream = self.upstreams.get(index.slot())?.clone()?;
        Some(Target { index, upstream })
    }

    fn upstream_mut(&mut self, index: InstanceIndex) -> &mut Option<Arc<Upstream>> {
        if self.upstreams.len() <= index.slot() {
            self.upstreams.resize(index.slot() + 1, None);
        }
        &mut self.upstreams[index.slot()]
    }

    /// An instance that drains may be frozen next: its idle connections are closed now, while it can still take note.
    fn set_upstream(&mut self, index: InstanceIndex, address: SocketAddr, draining: bool, workers: usize) {
        let slot = self.upstream_mut(index);
        let usable = |upstream: &Arc<Upstream>| upstream.address() == address && (draining || !upstream.is_closed());
        if !slot.as_ref().is_some_and(usable) {
            *slot = Some(Arc::new(Upstream::new(address, workers)));
        }
        if let Some(upstream) = slot.as_ref().filter(|_| draining) {
            upstream.close_idle();
        }
    }
}

impl Seat {
    /// Where the request goes, once it has a seat.
    pub fn poll_target(&self, cx: &mut Context<'_>) -> Poll<Result<Target, Expired>> {
        let mut core = self.cluster.lock();
        if let Some(target) = core.target(self.ticket).filter(|_| core.pipeline.is_in_service(self.ticket)) {
            return Poll::Ready(Ok(target));
        }
        if !core.pipeline.is_queued(self.ticket) {
            return Poll::Ready(Err(Expired { any_open: core.dispatcher.has_candidate() }));
        }
        let place = &mut core.places[self.ticket.slot()];
        match &mut place.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => place.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// The attempt has failed; the seat is kept and another instance chosen. `None` when none is left.
    pub fn redispatch(&self, attempt: Attempt, failed: &[InstanceIndex]) -> Option<Target> {
        let mut core = self.cluster.lock();
        let now = self.cluster.clock.now();
        let index = core.places[self.ticket.slot()].instance.take()?;
        core.dispatcher.handle_end(now, index, attempt);
        let index = core.dispatcher.handle_dispatch(now, failed)?;
        core.places[self.ticket.slot()].instance = Some(index);
        match core.retries.iter_mut().find(|(class, _)| *class == self.class) {
            Some((_, count)) => *count += 1,
            None => core.retries.push((self.class, 1)),
        }
        core.target(self.ticket)
    }

    /// The request has ended; its seat is free.
    pub fn finish(mut self, attempt: Attempt, outcome: Outcome) {
        self.end(attempt, Some(outcome));
    }

    /// The connection is no longer HTTP: the request counts as served and its seat is free, but the instance counts the
    /// connection as outstanding until the result is dropped. A tunnel may last for days; were it to keep its seat, a few of
    /// them would starve all requests.
    pub fn into_tunnel(mut self) -> TunnelSeat {
        self.ended = true;
        let mut core = self.cluster.lock();
        let instance = core.places[self.ticket.slot()].instance.take();
        let now = self.cluster.clock.now();
        core.pipeline.handle_completion(now, self.ticket, Outcome::Served);
        self.cluster.pump(core, now);
        TunnelSeat { cluster: Arc::clone(&self.cluster), instance }
    }

    fn end(&mut self, attempt: Attempt, outcome: Option<Outcome>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut core = self.cluster.lock();
        let now = self.cluster.clock.now();
        // An expired ticket's slot may already be another request's place.
        let valid = core.pipeline.is_in_service(self.ticket) || core.pipeline.is_queued(self.ticket);
        if !valid {
            return;
        }
        if let Some(index) = core.places[self.ticket.slot()].instance.take() {
            core.dispatcher.handle_end(now, index, attempt);
        }
        match outcome {
            Some(outcome) => core.pipeline.handle_completion(now, self.ticket, outcome),
            None => core.pipeline.handle_cancel(now, self.ticket),
        };
        self.cluster.pump(core, now);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.end(Attempt::Abandoned, None);
    }
}

/// An instance's share in a tunnel.
#[derive(Debug)]
pub(crate) struct TunnelSeat {
    cluster: Arc<Cluster>,
    instance: Option<InstanceIndex>,
}

impl Drop for TunnelSeat {
    fn drop(&mut self) {
        if let Some(index) = self.instance {
            let mut core = self.cluster.lock();
            core.dispatcher.handle_end(self.cluster.clock.now(), index, Attempt::Answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use weal_protocol::gateway::Standby;

    use super::*;
    use weal_protocol::gateway::{Endpoint, FlowConfig};

    /// One instance with one seat, and one that stands by for who has waited for a minute.
    fn config() -> ClusterConfig {
        let open = Endpoint { instance: "shop-1".into(), address: ([127, 0, 0, 1], 1).into(), weight: 1.0, draining: false };
        ClusterConfig {
            app: "shop".into(),
            routes: Vec::new(),
            seats: Some(1),
            flows: [("gold".into(), FlowConfig { weight: 1.0, seats: 1, size: 1.0, queue_limit: 9 })].into(),
            endpoints: vec![open],
            request_timeout_s: 600.0,
            standby: Some(Standby { after_s: 60.0, instances: vec!["shop-2".into()] }),
            wakeable: None,
        }
    }

    #[test]
    fn what_comes_or_ends_shows_a_crowd_before_the_timer_does_and_ends_its_wait() {
        let (wakes, mut asked) = Wakes::new();
        let cluster = Cluster::new(&config(), Clock::new(), 1, wakes);
        let class = cluster.class(&"gold".into()).unwrap();
        let seats = [(); 2].map(|()| cluster.arrive(class).unwrap().0);
        assert!(asked.try_recv().is_ok(), "somebody sees to the second");
        let (need, changed) = cluster.wants_instance().unwrap();
        assert!(matches!(need, Need::Later(span) if span > Duration::from_secs(100)), "{need:?}");

        let look_after = |s| cluster.lock().look(cluster.clock.now() + Duration::from_secs(s));
        assert_eq!(look_after(59), Care::Looks);
        assert_eq!(look_after(60), Care::Asks);
        cluster.see_to(Care::Looks, Care::Asks);
        assert!(pin!(changed.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(asked.try_recv().is_err(), "by the same, who waits until it is late");
        drop(seats);
    }
}
