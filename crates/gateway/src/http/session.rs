//! One request: find its flow, wait for a seat, send it to an instance, and to another one if that fails.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use weal_control::dispatch::{Attempt, InstanceIndex};
use weal_control::flow::pipeline::Outcome;

use crate::http::answer_body::{AnswerBody, Relay};
use crate::http::deadline::Deadline;
use crate::http::error_response::{ErrorResponse, note_id};
use crate::http::forward::{self, Malformed, Origin, RequestIds};
use crate::http::request_body::RequestBody;
use crate::http::tunnel;
use crate::limits::Limits;
use crate::listen::client::{Busy, Client, Record};
use crate::listen::registry::Entry;
use crate::routing::cluster::{Cluster, Expired, Seat, Target};
use crate::routing::table::{Destination, Tables, View};
use crate::telemetry::refused::Refused;
use crate::upstream::pool::{ExchangeError, Link};

/// What all connections of a gateway share.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub tables: Tables,
    pub limits: Arc<Limits>,
    pub ids: RequestIds,
    pub access_log: bool,
    pub refused: Refused,
    pub unrouted: AtomicU64,
    pub malformed: AtomicU64,
}

/// One client connection's part in its requests.
#[derive(Debug)]
pub(crate) struct Session {
    gateway: Arc<Gateway>,
    client: Arc<Client>,
    /// Shared with the tunnel that the connection may become.
    entry: Arc<Entry>,
    worker: usize,
    /// Never waited for: the requests of a connection come one after the other.
    memory: Mutex<Memory>,
}

/// What a connection remembers from one request to the next.
#[derive(Debug)]
struct Memory {
    view: View,
    origin: Origin,
    /// `None` before the first request and during one.
    deadline: Option<Deadline>,
}

/// A request that has begun: admitted to a flow or refused.
pub(crate) struct Admission {
    busy: Busy,
    id: HeaderValue,
    result: Result<(Request<Incoming>, Destination), ErrorResponse>,
}

/// A response that an instance has begun.
struct Begun {
    response: Response<Incoming>,
    /// `None` when a task of its own drives the connection.
    link: Option<Link>,
    target: Target,
}

/// Why one attempt brought no response.
struct AttemptFailure {
    attempt: Attempt,
    reason: String,
    /// The request, when it may be sent again.
    request: Option<Request<RequestBody>>,
}

impl Session {
    pub fn new(gateway: Arc<Gateway>, client: Arc<Client>, entry: Entry, worker: usize) -> Self {
        let memory = Memory { view: gateway.tables.view(), origin: Origin::new(client.peer), deadline: None };
        Self { gateway, client, entry: Arc::new(entry), worker, memory: Mutex::new(memory) }
    }

    /// Begins a request: everything that needs no waiting.
    pub fn admit(&self, mut request: Request<Incoming>) -> Admission {
        let mut busy = self.client.begin();
        let id = self.gateway.ids.assign(request.headers_mut());
        if self.gateway.access_log {
            busy.record = Some(Box::new(Record::new(&request, self.client.now())));
        }
        let result = self.route(&mut request).map(|destination| (request, destination));
        if let (Some(record), Ok((_, destination))) = (&mut busy.record, &result) {
            record.flow = Some(Arc::clone(&destination.flow));
        }
        Admission { busy, id, result }
    }

    /// Answers an admitted request. Whatever goes wrong becomes an answer.
    pub async fn answer(self: Arc<Self>, admission: Admission) -> Result<Response<AnswerBody>, Infallible> {
        let Admission { mut busy, id, result } = admission;
        let passed = match result {
            Ok((request, destination)) => {
                let passed = self.pass(request, &destination).await;
                passed.inspect_err(|refusal| self.gateway.refused.note(&id, refusal, Some(&destination)))
            }
            Err(refusal) => {
                self.gateway.refused.note(&id, &refusal, None);
                Err(refusal)
            }
        };
        let status = passed.as_ref().map_or_else(|refusal| refusal.status, |(parts, _)| parts.status);
        busy.note_status(status);
        let mut response = match passed {
            Ok((parts, Some(relay))) => Response::from_parts(parts, AnswerBody::relay(relay, busy)),
            Ok((parts, None)) => Response::from_parts(parts, AnswerBody::empty(busy)),
            Err(refusal) => refusal.into_response(busy),
        };
        note_id(response.headers_mut(), id);
        Ok(response)
    }

    /// Checks a request and rewrites its head for an instance.
    fn route(&self, request: &mut Request<Incoming>) -> Result<Destination, ErrorResponse> {
        let checked = forward::check(request, || self.client.with_head(forward::names_content_length));
        checked.and_then(|()| forward::check_target(request.uri())).map_err(|malformed| self.malformed(&malformed))?;
        let host = forward::host_of(request.headers(), request.uri().authority());
        let mut memory = self.memory();
        let Memory { view, origin, .. } = &mut *memory;
        let table = view.table(&self.gateway.tables);
        let found = table.routes.find(&host, request.uri().path(), request.headers()).cloned();
        let Some(destination) = found else {
            self.gateway.unrouted.fetch_add(1, Ordering::Relaxed);
            return Err(ErrorResponse::unrouted(&host, request.uri().path()));
        };
        forward::origin_form(request).map_err(|malformed| self.malformed(&malformed))?;
        origin.announce(request.headers_mut());
        Ok(destination)
    }

    fn malformed(&self, malformed: &Malformed) -> ErrorResponse {
        self.gateway.malformed.fetch_add(1, Ordering::Relaxed);
        ErrorResponse::malformed(malformed)
    }

    /// Waits for a seat and brings the response's head, with its body unless it is a tunnel's.
    async fn pass(
        &self,
        request: Request<Incoming>,
        destination: &Destination,
    ) -> Result<(http::response::Parts, Option<Relay>), ErrorResponse> {
        let cluster = &destination.cluster;
        let (seat, target, timeout) =
            cluster.arrive(destination.class).map_err(|rejection| ErrorResponse::rejected(&rejection))?;
        let deadline = self.memory().deadline.take();
        let mut deadline = Deadline::set(deadline, timeout);
        let target = match target {
            Some(target) => target,
            None => {
                wait_for_seat(cluster, &seat, &mut deadline).await.map_err(|expired| ErrorResponse::expired(&expired, timeout))?
            }
        };
        if forward::wants_upgrade(&request) {
            return self.pass_upgrade(request, seat, target, &mut deadline, timeout).await;
        }
        let request = outgoing(request, &target);
        let result = deadline.within(pin!(self.exchange(&seat, target, request))).await;
        self.memory().deadline = Some(deadline);
        let begun = match result {
            Some(Ok(begun)) => begun,
            Some(Err((attempt, refusal))) => {
                seat.finish(attempt, Outcome::Failed);
                return Err(refusal);
            }
            None => {
                seat.finish(Attempt::Abandoned, Outcome::Failed);
                return Err(ErrorResponse::timed_out(timeout));
            }
        };
        let (mut parts, incoming) = begun.response.into_parts();
        incoming_head(&mut parts);
        Ok((parts, Some(self.relay(incoming, begun.link, seat, begun.target))))
    }

    /// Sends a request to `target`, and to others as long as that may help.
    async fn exchange(
        &self,
        seat: &Seat,
        mut target: Target,
        mut request: Request<RequestBody>,
    ) -> Result<Begun, (Attempt, ErrorResponse)> {
        let mut failed: Vec<InstanceIndex> = Vec::new();
        loop {
            let AttemptFailure { attempt, reason, request: again } = match self.attempt(&target, request).await {
                Ok((response, link)) => return Ok(Begun { response, link: Some(link), target }),
                Err(failure) => failure,
            };
            failed.push(target.index);
            let refusal = ErrorResponse::failed(attempt, &reason);
            let Some(again) = again else { return Err((attempt, refusal)) };
            let Some(next) = seat.retry(attempt, &failed) else { return Err((attempt, refusal)) };
            (target, request) = (next, again);
        }
    }

    /// Sends a request to one instance: over a connection that is there, and if the instance has closed that one just then,
    /// over a new one.
    async fn attempt(
        &self,
        target: &Target,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Link), AttemptFailure> {
        let limits = &self.gateway.limits;
        let mut idle = target.upstream.take_idle(self.worker);
        loop {
            let mut link = match idle.take() {
                Some(link) => link,
                None => match target.upstream.connect(limits).await {
                    Ok(link) => link,
                    Err(error) => {
                        let reason = error.to_string();
                        return Err(AttemptFailure { attempt: Attempt::Refused, reason, request: Some(request) });
                    }
                },
            };
            let spare = replay_of(&request);
            match link.exchange(request).await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    let reason = "it switched protocols unasked".to_owned();
                    return Err(AttemptFailure { attempt: Attempt::Broken, reason, request: None });
                }
                Ok(response) => return Ok((response, link)),
                Err(ExchangeError { unsent, source }) => match unsent.or(spare) {
                    Some(again) if link.was_used() => request = again,
                    again => {
                        let reason = source.to_string();
                        return Err(AttemptFailure { attempt: Attempt::Broken, reason, request: again });
                    }
                },
            }
        }
    }

    /// A request that asks for another protocol: if the instance agrees, the connection becomes a tunnel.
    async fn pass_upgrade(
        &self,
        mut request: Request<Incoming>,
        seat: Seat,
        target: Target,
        deadline: &mut Deadline,
        timeout: Duration,
    ) -> Result<(http::response::Parts, Option<Relay>), ErrorResponse> {
        let protocol = request.headers().get(header::UPGRADE).cloned();
        let client_side = hyper::upgrade::on(&mut request);
        let mut request = outgoing(request, &target);
        tunnel::ask(request.headers_mut(), protocol);
        let exchange = tunnel::exchange(&target.upstream, request, &self.gateway.limits);
        let mut response = match deadline.within(pin!(exchange)).await {
            Some(Ok(response)) => response,
            Some(Err((attempt, reason))) => {
                seat.finish(attempt, Outcome::Failed);
                return Err(ErrorResponse::failed(attempt, &reason));
            }
            None => {
                seat.finish(Attempt::Abandoned, Outcome::Failed);
                return Err(ErrorResponse::timed_out(timeout));
            }
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (mut parts, incoming) = response.into_parts();
            incoming_head(&mut parts);
            return Ok((parts, Some(self.relay(incoming, None, seat, target))));
        }
        let instance_side = hyper::upgrade::on(&mut response);
        let (client, entry) = (Arc::clone(&self.client), Arc::clone(&self.entry));
        tunnel::spawn(client_side, instance_side, seat.into_tunnel(), client, entry);
        let mut parts = response.into_parts().0;
        let protocol = parts.headers.get(header::UPGRADE).cloned();
        forward::remove_hop_by_hop(&mut parts.headers);
        tunnel::ask(&mut parts.headers, protocol);
        Ok((parts, None))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn relay(&self, incoming: Incoming, link: Option<Link>, seat: Seat, target: Target) -> Relay {
        Relay {
            incoming,
            link,
            seat: Some(seat),
            upstream: target.upstream,
            worker: self.worker,
            limits: Arc::clone(&self.gateway.limits),
            stall: None,
        }
    }
}

/// Waits until the pipeline gives a seat. At the deadline it is the pipeline that says what has expired.
async fn wait_for_seat(cluster: &Arc<Cluster>, seat: &Seat, deadline: &mut Deadline) -> Result<Target, Expired> {
    let granted = || std::future::poll_fn(|cx| seat.poll_target(cx));
    match deadline.within(granted()).await {
        Some(granted) => granted,
        None => {
            cluster.expire();
            granted().now_or_never().unwrap_or(Err(Expired { any_open: true }))
        }
    }
}

/// A request as an instance gets it.
fn outgoing(request: Request<Incoming>, target: &Target) -> Request<RequestBody> {
    let (mut parts, incoming) = request.into_parts();
    forward::remove_hop_by_hop(&mut parts.headers);
    parts.extensions.clear();
    // Only HTTP/1.0 may leave it out.
    if std::mem::replace(&mut parts.version, Version::HTTP_11) != Version::HTTP_11 && !parts.headers.contains_key(header::HOST) {
        let host = HeaderValue::try_from(target.upstream.address().to_string());
        parts.headers.insert(header::HOST, host.expect("an address is made of visible characters"));
    }
    let body = if incoming.is_end_stream() { RequestBody::Empty } else { RequestBody::Client(incoming) };
    Request::from_parts(parts, body)
}

/// The same request once more, if it may be sent twice: idempotent (RFC 9110 section 9.2.2) and without a body.
fn replay_of(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    const IDEMPOTENT: [Method; 6] = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE];
    if !matches!(request.body(), RequestBody::Empty) || !IDEMPOTENT.contains(request.method()) {
        return None;
    }
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// A response's head as a client gets it: hyper frames the body anew.
fn incoming_head(parts: &mut http::response::Parts) {
    forward::remove_hop_by_hop(&mut parts.headers);
    if parts.headers.remove(header::TRANSFER_ENCODING).is_some() {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
}
