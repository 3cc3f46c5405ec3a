//! One cluster as this gateway serves it: the decisions of [`Admission`] behind one lock, and around them what they are about: the tasks of
//! requests that wait, and the connections to instances.
//!
//! One lock per cluster keeps `N` exact over all threads. It is held for the few hundred nanoseconds of a decision and never
//! while waiting. Over all gateways that live at once, [`super::share`] does.

mod addresses;
mod clients;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::StatusCode;
use tokio::sync::{Notify, mpsc};
use weal_control::admission::{Admission, IncomingRequest, WakeReason};
use weal_control::dispatch::{Attempt, InstanceIndex};
use weal_control::flow::pipeline::{ClassIndex, DropReason, Dropped, Reading, Rejection, RequestOutcome, Ticket};
use weal_model::{AppName, ClassName, Crowd, GatewayName, InstanceId, Time};
use weal_protocol::gateway::{ClusterConfig, ClusterCounters, Endpoint, EndpointCounters, FlowCounters, Unavailable};
use weal_protocol::node::{WakeAnswer, WakeRequest};

use crate::clock::Clock;
use crate::http::request_body::NotesClientWait;
use crate::routing::affinity::Tokens;
use crate::routing::port_stats::PortStats;
use crate::routing::share::Share;
use crate::sharing::SeatRoom;
use crate::upstream::pool::Upstream;

use addresses::Addresses;
pub(crate) use clients::{ClientPlace, Turn};

/// One cluster. Lives as long as any request of it does.
#[derive(Debug)]
pub(crate) struct Cluster {
    app: AppName,
    clock: Clock,
    workers: usize,
    errands: Errands,
    ports: PortStats,
    /// Told when a request may go on whose body has not all come.
    uploads_changed: Notify,
    core: Mutex<Core>,
}

#[derive(Debug)]
struct Core {
    admission: Admission,
    /// By [`InstanceIndex::slot`].
    upstreams: Vec<Option<Arc<Upstream>>>,
    /// By [`InstanceIndex::slot`]: what stands for it in cookies.
    tokens: Vec<Option<Arc<str>>>,
    /// Makes them.
    affinity: Option<Tokens>,
    /// True when clients get such cookies.
    has_affinity: bool,
    /// Requests that were dropped from their queue and have not been told.
    dropped: BTreeMap<Ticket, DropReason>,
    /// Requests that have to end because their clients read too slowly, and have not been told.
    cut: BTreeSet<Ticket>,
    /// By [`Ticket::slot`]: of requests that wait, for a seat or for clients that are to read on.
    wakers: Vec<Option<Waker>>,
    /// The next moment at which an errand looks at those who wait.
    looked_at: Option<Time>,
    /// Where other gateways may use its seats too.
    share: Option<Share>,
    /// What of its seats clients' addresses hold.
    addresses: Addresses,
}

/// What a cluster needs done that takes time. [`crate::wake`] does it.
#[derive(Debug)]
pub(crate) enum Errand {
    /// Ask the node agent, and hand over the answer: [`Cluster::handle_woken`] or [`Cluster::handle_wake_refused`].
    Wake(Arc<Cluster>, WakeRequest),
    /// Call [`Cluster::look`] with `at` after so long, if the cluster is still there: whatever waits keeps it.
    Look { cluster: Weak<Cluster>, at: Time, after: Duration },
}

/// Where clusters hand over their errands.
pub(crate) type Errands = mpsc::UnboundedSender<Errand>;

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
    /// Why there will be none soon, so that it did not wait any longer.
    pub unavailable: Option<Unavailable>,
    /// Why it was dropped before its time was up.
    pub dropped: Option<DropReason>,
    /// Its client has gone, or at least will send no more.
    pub is_abandoned: bool,
}

impl Expired {
    /// The time was up, and nothing else is known.
    pub const TIME_UP: Self = Self { any_open: true, unavailable: None, dropped: None, is_abandoned: false };

    /// Nobody waits any more for the answer.
    pub const CLIENT_GONE: Self = Self { is_abandoned: true, ..Self::TIME_UP };
}

/// A request's place: in a queue at first, then in a seat until this is dropped. Dropping it before [`Seat::finish`] counts
/// the request as broken off.
#[derive(Debug)]
pub(crate) struct Seat {
    cluster: Arc<Cluster>,
    ticket: Ticket,
    ended: bool,
    /// Its response's status code, once that has come.
    status: Option<u16>,
    /// Its part of what its client's address may hold.
    place: Option<ClientPlace>,
}

/// What says of a request whether it waits for its client, and is told when it waits for too long. After the request's end it says nothing.
#[derive(Debug, Clone)]
pub(crate) struct SeatHandle {
    cluster: Arc<Cluster>,
    ticket: Ticket,
}

impl Cluster {
    pub fn new(
        config: &ClusterConfig,
        clock: Clock,
        workers: usize,
        errands: Errands,
        affinity: Option<Tokens>,
        room: Option<&SeatRoom>,
    ) -> Arc<Self> {
        let core = Core {
            admission: Admission::new(config.app.clone(), clock.now().0),
            upstreams: Vec::new(),
            tokens: Vec::new(),
            affinity,
            has_affinity: false,
            dropped: BTreeMap::new(),
            cut: BTreeSet::new(),
            wakers: Vec::new(),
            looked_at: None,
            share: Share::of(&config.app, room),
            addresses: Addresses::default(),
        };
        let cluster = Arc::new(Self {
            app: config.app.clone(),
            clock,
            workers,
            errands,
            ports: PortStats::default(),
            uploads_changed: Notify::new(),
            core: Mutex::new(core),
        });
        cluster.configure(config);
        cluster
    }

    /// Works by `config` from now on; no request is lost.
    pub fn configure(self: &Arc<Self>, config: &ClusterConfig) {
        let mut core = self.lock();
        let now = self.clock.now();
        core.admission.handle_config(now, config);
        core.has_affinity = config.http.dispatch.affinity.is_some();
        for endpoint in &config.endpoints {
            if let Some(index) = core.admission.find(&endpoint.instance) {
                core.set_upstream(index, endpoint, self.workers);
                core.set_token(&self.app, index, &endpoint.instance);
            }
        }
        let is_unavailable = core.admission.unavailable().is_some();
        self.pump(core, now);
        self.uploads_changed.notify_waiters();
        if is_unavailable {
            self.expire();
        }
    }

    /// An instance was woken: says what for, when it is used. Its former connections are not used again: they are as old as its sleep, and
    /// it may close them just now.
    pub fn handle_woken(self: &Arc<Self>, answer: &WakeAnswer) -> Option<WakeReason> {
        let mut core = self.lock();
        let now = self.clock.now();
        let woken = core.admission.handle_woken(now, &answer.instance);
        if let Some(woken) = woken {
            core.set_token(&self.app, woken.instance, &answer.instance);
            let upstream = Upstream::new(answer.instance.clone(), answer.address, self.workers);
            upstream.note_listed(answer.listener);
            *core.upstream_mut(woken.instance) = Some(Arc::new(upstream));
        }
        self.pump(core, now);
        woken.map(|woken| woken.reason)
    }

    /// The node agent woke none, or did not answer.
    pub fn handle_wake_refused(self: &Arc<Self>) {
        let mut core = self.lock();
        let now = self.clock.now();
        core.admission.handle_wake_refused(now);
        self.pump(core, now);
    }

    /// Looks at those who wait, as was said for the moment `at`.
    pub fn look(self: &Arc<Self>, at: Time) {
        let mut core = self.lock();
        core.looked_at.take_if(|next| *next == at);
        self.pump(core, self.clock.now());
    }

    /// Where `class` is among this cluster's classes.
    pub fn class(&self, class: &ClassName) -> Option<ClassIndex> {
        self.lock().admission.class(class)
    }

    pub fn app(&self) -> &AppName {
        &self.app
    }

    /// How crowded it is now for `class`.
    pub fn crowd(&self, class: ClassIndex) -> Crowd {
        self.lock().admission.crowd(class)
    }

    /// A request comes in. With a target, it may go there at once; without one it waits: poll [`Seat::poll_target`].
    pub fn arrive(self: &Arc<Self>, request: impl Into<IncomingRequest>) -> Result<(Seat, Option<Target>, Duration), Rejection> {
        let mut core = self.lock();
        let now = self.clock.now();
        let timeout = core.admission.request_timeout();
        let request = request.into();
        core.balance(now, Some(request.class));
        let ticket = core.admission.handle_arrival(now, request).inspect_err(|_| core.settle(now))?;
        // First of all: one that was dropped to make room may have had the slot that is the new one's now.
        let mut wake = core.take_dropped(now);
        if core.wakers.len() <= ticket.slot() {
            core.wakers.resize(ticket.slot() + 1, None);
        }
        core.wakers[ticket.slot()] = None;
        let seat = Seat { cluster: Arc::clone(self), ticket, ended: false, status: None, place: None };
        wake.extend(core.dispatch(now));
        let target = core.target(ticket);
        let errand = if target.is_none() { core.poll_errand(self, now) } else { None };
        drop(core);
        self.release(wake, errand);
        Ok((seat, target, timeout))
    }

    /// How long a request may take in all, its wait included.
    pub fn request_timeout(&self) -> Duration {
        self.lock().admission.request_timeout()
    }

    /// The instance that a cookie's value stands for.
    pub fn instance_of_token(&self, token: &str) -> Option<InstanceIndex> {
        let core = self.lock();
        let slot = core.tokens.iter().position(|known| known.as_deref() == Some(token))?;
        core.admission.instance_at(slot)
    }

    /// What stands for an instance in the cookies of its clients.
    pub fn token_of(&self, instance: InstanceIndex) -> Option<Arc<str>> {
        self.lock().tokens.get(instance.slot())?.clone()
    }

    /// Ends what has waited for too long or waits in vain. Whoever waits with a timer calls this when it fires.
    pub fn expire(&self) {
        let mut core = self.lock();
        let now = self.clock.now();
        let expired = core.admission.handle_timeout(now);
        let wake: Vec<Waker> = expired.iter().filter_map(|ticket| core.wakers[ticket.slot()].take()).collect();
        core.settle(now);
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
        self.lock().admission.is_idle()
    }

    pub fn observe(
        &self,
        gateway: &GatewayName,
        flows: &mut Vec<FlowCounters>,
        instances: &mut Vec<EndpointCounters>,
    ) -> ClusterCounters {
        let mut core = self.lock();
        let counters = core.admission.observe(self.clock.now(), gateway, flows, instances);
        let seats_lent = core.share.as_ref().map_or(0, Share::lent);
        ClusterCounters { ports: self.ports.counters(), seats_lent, ..counters }
    }

    /// What passes through its ports.
    pub fn ports(&self) -> &PortStats {
        &self.ports
    }

    /// A panic elsewhere leaves the numbers as they are after one step of pure code: usable.
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is to be done after something has come in, then unlocks.
    fn pump(self: &Arc<Self>, mut core: MutexGuard<'_, Core>, now: Time) {
        core.bound_addresses();
        let wake = core.dispatch(now);
        let errand = core.poll_errand(self, now);
        drop(core);
        self.release(wake, errand);
    }

    fn release(&self, wake: Vec<Waker>, errand: Option<Errand>) {
        wake.into_iter().for_each(Waker::wake);
        if let Some(errand) = errand {
            // The gateway ends when nobody receives any more.
            let _ = self.errands.send(errand);
        }
    }
}

impl Core {
    fn dispatch(&mut self, now: Time) -> Vec<Waker> {
        let mut wake = Vec::new();
        self.balance(now, None);
        while let Some(dispatched) = self.admission.poll_dispatch(now) {
            wake.extend(self.wakers[dispatched.ticket.slot()].take());
        }
        wake.extend(self.take_dropped(now));
        while let Some(ticket) = self.admission.poll_cut(now) {
            self.cut.insert(ticket);
            wake.extend(self.wakers[ticket.slot()].take());
        }
        self.settle(now);
        wake
    }

    fn balance(&mut self, now: Time, expecting: Option<ClassIndex>) {
        if let Some(share) = &mut self.share {
            share.balance(now, &mut self.admission, expecting);
        }
    }

    fn settle(&mut self, now: Time) {
        if let Some(share) = &mut self.share {
            share.settle(now, &mut self.admission);
        }
    }

    fn take_dropped(&mut self, now: Time) -> Vec<Waker> {
        let mut wake = Vec::new();
        while let Some(Dropped { ticket, reason }) = self.admission.poll_dropped(now) {
            self.dropped.insert(ticket, reason);
            wake.extend(self.wakers[ticket.slot()].take());
        }
        wake
    }

    fn poll_errand(&mut self, cluster: &Arc<Cluster>, now: Time) -> Option<Errand> {
        if let Some(request) = self.admission.poll_wake(now) {
            return Some(Errand::Wake(Arc::clone(cluster), request));
        }
        let of_others = self.share.as_ref().and_then(|share| share.poll_timeout(now));
        let at = self.admission.poll_wake_timeout(now).into_iter().chain(of_others).min()?;
        if self.looked_at.is_some_and(|next| next <= at) {
            return None;
        }
        self.looked_at = Some(at);
        Some(Errand::Look { cluster: Arc::downgrade(cluster), at, after: at.since(now) })
    }

    fn target(&self, ticket: Ticket) -> Option<Target> {
        let index = self.admission.instance_of(ticket)?;
        let upstream = self.upstreams.get(index.slot())?.clone()?;
        Some(Target { index, upstream })
    }

    /// The task of `cx` is woken when something is decided about a request.
    fn wake_when_told(&mut self, ticket: Ticket, cx: &Context<'_>) {
        match &mut self.wakers[ticket.slot()] {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn set_token(&mut self, app: &AppName, index: InstanceIndex, instance: &InstanceId) {
        let Some(affinity) = self.affinity.as_ref().filter(|_| self.has_affinity) else { return };
        if self.tokens.len() <= index.slot() {
            self.tokens.resize(index.slot() + 1, None);
        }
        self.tokens[index.slot()] = Some(affinity.token(app, instance));
    }

    fn upstream_mut(&mut self, index: InstanceIndex) -> &mut Option<Arc<Upstream>> {
        if self.upstreams.len() <= index.slot() {
            self.upstreams.resize(index.slot() + 1, None);
        }
        &mut self.upstreams[index.slot()]
    }

    /// An instance that drains may be frozen next: its idle connections are closed now, while it can still take note.
    fn set_upstream(&mut self, index: InstanceIndex, endpoint: &Endpoint, workers: usize) {
        let Endpoint { instance, address, draining, listener, .. } = endpoint;
        let slot = self.upstream_mut(index);
        let is_same = |upstream: &Upstream| upstream.instance() == instance && upstream.address() == *address;
        let usable = |upstream: &Arc<Upstream>| is_same(upstream) && (*draining || !upstream.is_closed());
        match slot {
            Some(upstream) if usable(&*upstream) => upstream.note_listed(*listener),
            _ => {
                let upstream = Upstream::new(instance.clone(), *address, workers);
                upstream.note_listed(*listener);
                *slot = Some(Arc::new(upstream));
            }
        }
        if let Some(upstream) = slot.as_ref().filter(|_| *draining) {
            upstream.close_idle();
        }
    }
}

impl Seat {
    /// Where the request goes, once it has a seat.
    pub fn poll_target(&self, cx: &mut Context<'_>) -> Poll<Result<Target, Expired>> {
        let mut core = self.cluster.lock();
        if let Some(target) = core.target(self.ticket) {
            return Poll::Ready(Ok(target));
        }
        if !core.admission.is_queued(self.ticket) {
            let (any_open, unavailable) = (core.admission.any_open(), core.admission.unavailable());
            let dropped = core.dropped.remove(&self.ticket);
            return Poll::Ready(Err(Expired { any_open, unavailable, dropped, is_abandoned: false }));
        }
        core.wake_when_told(self.ticket, cx);
        Poll::Pending
    }

    /// Where the request goes, once it has a seat within `limit`.
    pub async fn target_within(&self, limit: Duration) -> Result<Target, Expired> {
        let granted = || std::future::poll_fn(|cx| self.poll_target(cx));
        if let Ok(granted) = tokio::time::timeout(limit, granted()).await {
            return granted;
        }
        self.cluster.expire();
        granted().now_or_never().unwrap_or(Err(Expired::TIME_UP))
    }

    /// What says of the request whether it waits for its client.
    pub fn handle(&self) -> SeatHandle {
        SeatHandle { cluster: Arc::clone(&self.cluster), ticket: self.ticket }
    }

    /// The instance has shown that it works on the request.
    pub fn note_life(&self) {
        self.cluster.lock().admission.handle_sign_of_life(self.ticket);
    }

    /// The instance's response has this status code. It is counted at the request's end.
    pub fn note_status(&mut self, status: StatusCode) {
        self.status = Some(status.as_u16());
    }

    /// The attempt has failed; the seat is kept and another instance chosen. `None` when none is left, or enough were tried.
    pub fn retry(&self, attempt: Attempt, failed: &[InstanceIndex]) -> Option<Target> {
        let mut core = self.cluster.lock();
        core.admission.handle_retry(self.cluster.clock.now(), self.ticket, attempt, failed)?;
        core.target(self.ticket)
    }

    /// After [`Seat::retry`] has found no other instance: no instance has begun with the request, as each refused the connection. True: it waits
    /// for one again, without its seat: poll [`Seat::poll_target`].
    pub fn wait_again(&self, replays: u32) -> bool {
        let mut core = self.cluster.lock();
        let now = self.cluster.clock.now();
        let waits = core.admission.handle_refused(now, self.ticket, replays);
        if waits {
            self.cluster.pump(core, now);
        }
        waits
    }

    /// The request holds this part of what its client's address may hold, to its end.
    pub fn hold(&mut self, place: Option<ClientPlace>) {
        self.place = place;
    }

    /// The request has a new connection to its instance.
    pub fn note_connection(&self) {
        self.cluster.lock().admission.handle_connection(self.ticket);
    }

    /// The request has ended; its seat is free.
    pub fn finish(mut self, attempt: Attempt, outcome: RequestOutcome) {
        self.end(|admission, now, ticket| admission.handle_end(now, ticket, attempt, outcome));
    }

    /// The connection is no longer HTTP: the request's seat is free, but the instance counts the connection as outstanding until the
    /// result is dropped.
    pub fn into_tunnel(mut self) -> TunnelSeat {
        let instance = self.end(|admission, now, ticket| admission.handle_upgrade(now, ticket)).flatten();
        TunnelSeat { cluster: Arc::clone(&self.cluster), instance }
    }

    /// Ends the request once, and lets the next one go.
    fn end<R>(&mut self, end: impl FnOnce(&mut Admission, Time, Ticket) -> R) -> Option<R> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        let mut core = self.cluster.lock();
        let now = self.cluster.clock.now();
        if let Some(status) = self.status {
            core.admission.handle_status(self.ticket, status);
        }
        let ended = end(&mut core.admission, now, self.ticket);
        core.dropped.remove(&self.ticket);
        core.cut.remove(&self.ticket);
        self.cluster.pump(core, now);
        self.place = None;
        Some(ended)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.end(|admission, now, ticket| admission.handle_cancel(now, ticket));
    }
}

impl SeatHandle {
    /// The client is to take more of the answer.
    pub fn note_reading(&self, reading: Reading) {
        let mut core = self.cluster.lock();
        let now = self.cluster.clock.now();
        core.admission.handle_reading(now, self.ticket, reading);
        // Once it has been waited for long enough, those who wait may go on.
        if reading.waits && core.admission.queued() > 0 {
            self.cluster.pump(core, now);
        }
    }

    /// Ready when its client reads so slowly that others wait for its seat: then its answer ends here.
    pub fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        let mut core = self.cluster.lock();
        if core.cut.contains(&self.ticket) {
            return Poll::Ready(());
        }
        // After its end, the slot is another request's.
        if core.admission.instance_of(self.ticket).is_some() {
            core.wake_when_told(self.ticket, cx);
        }
        Poll::Pending
    }
}

impl NotesClientWait for SeatHandle {
    fn note_client_wait(&self, waits: bool) {
        self.cluster.lock().admission.handle_client_wait(self.cluster.clock.now(), self.ticket, waits);
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
        if let Some(instance) = self.instance {
            self.cluster.lock().admission.handle_tunnel_end(self.cluster.clock.now(), instance);
        }
    }
}

#[cfg(test)]
mod tests;
