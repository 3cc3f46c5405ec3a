//! One request: wait for a seat, send it to an instance, and to another one if that fails, and bring its answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use weal_control::dispatch::{Attempt, InstanceIndex};
use weal_control::flow::pipeline::RequestOutcome;
use weal_model::{AccessLog, InstanceProtocol, Network, Time};

use super::answer_body::AnswerBody;
use super::between::{Between, EXPECT_WAIT};
use super::check::Malformed;
use super::choice;
use super::compression::{Encoded, Wish};
use super::deadline::Deadline;
use super::error_response::{ErrorResponse, note_id};
use super::incoming::Incoming;
use super::interim::Interims;
use super::present::Present;
use super::relay::Relay;
use super::request_body::{RequestBody, Upload};
use super::resume::Resume;
use super::session::{Admitted, Dismissed, Gateway, Routed, Session};
use super::tunnel::Tunnel;
use super::{forward, grpc, tunnel};
use crate::limits::Limits;
use crate::listen::client::Busy;
use crate::routing::cluster::{Cluster, Expired, Seat, Target};
use crate::routing::table::{Destination, Rules};
use crate::telemetry::record::Record;
use crate::upstream::attempt::{Failed, Outbound, SENDABLE, Sendable, is_idempotent};
use crate::upstream::claims;
use crate::upstream::error::InstanceError;
use crate::upstream::lease::Lease;
use crate::upstream::speech::{Announced, Ends, Speech};

/// A request from the end of its head to the end of its answer.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) session: Arc<Session>,
    /// Whose part of the seats it takes; `None` where that has no bounds.
    pub(super) counted: Option<Network>,
    busy: Busy,
    id: HeaderValue,
    /// `None` when it has no body.
    upload: Option<Arc<Upload>>,
    /// True when its client waits to be told to go on.
    expects: bool,
    /// True when its client understands interim responses.
    takes_interim: bool,
    /// Where they go; `None` is before the response on the client's connection.
    pub(super) interims: Option<Arc<Interims>>,
    /// True when its client reads refusals as gRPC says them.
    is_grpc: bool,
}

/// A response that an instance has begun.
struct Begun {
    response: Response<()>,
    lease: Lease,
    target: Target,
    /// How another instance can go on with it.
    resume: Option<Box<Resume>>,
}

/// Why one attempt brought no response.
struct AttemptFailure {
    attempt: Attempt,
    /// What its client is told, unless another attempt is better.
    refusal: ErrorResponse,
}

/// How a request is sent.
#[derive(Clone, Copy)]
struct How {
    speech: Speech,
    /// It asks for another protocol, which may be granted.
    may_switch: bool,
}

/// What came of a request that no instance has answered.
enum Unanswered {
    Failed(Attempt, ErrorResponse),
    /// All refused the connection, and it waits for one that does not.
    Waits,
}

/// What an attempt brought, what brings its body, and how another instance can go on with it.
type Answered = (Response<()>, Lease, Option<Box<Resume>>);

/// The head of an answer, with its body.
type Passed = (http::response::Parts, Brought);

/// What an instance has brought behind a head.
enum Brought {
    /// Nothing, because a tunnel begins there.
    Nothing,
    /// All of the body: it was short enough to come with its head.
    Whole(Bytes),
    /// A body that is still to come, or to be compressed.
    Relay(Box<Relay>),
}

impl Exchange {
    /// Begins a request: everything that needs no waiting. Interim responses go to `interims`, if there is such a place.
    pub fn begin(
        session: Arc<Session>,
        request: Request<Incoming>,
        interims: Option<Arc<Interims>>,
    ) -> (Self, Sendable, Result<Routed, Dismissed>) {
        let mut busy = session.client.begin();
        let present = Present::of(request.headers());
        let id = session.gateway.ids.choose(request.headers(), present);
        let Admitted { client, access_log, trace, traced, counted, early, is_framed } = session.admit(&request);
        if access_log != AccessLog::Off || traced.is_some() {
            let mut record = Box::new(Record::new(access_log, &request, client, session.client.now(), &id));
            record.traced = traced;
            busy.record = Some((record, Arc::clone(&session.gateway.ended)));
        }
        let takes_interim = request.version() >= Version::HTTP_11;
        let is_grpc = request.version() == Version::HTTP_2 && grpc::is_call(request.headers());
        // An HTTP/1.0 client's expectation is ignored (RFC 9110 section 10.1.1).
        let expects = takes_interim && present.has(Present::EXPECT);
        let (parts, incoming) = request.into_parts();
        let (body, upload) = RequestBody::new(incoming, expects, session.client.clock());
        let mut request = Request::from_parts(parts, body);
        let mut routed = match early {
            // What is not framed is malformed, which ends its connection.
            Some(wait) if is_framed => Err(ErrorResponse::too_many(wait).into()),
            _ => session.route(&mut request, present, is_framed, &id, trace.as_ref()),
        };
        if let Ok(Routed { destination, .. }) = &routed {
            let Rules { min_rate, extras, .. } = &*destination.rules;
            extras.iter().filter_map(|extras| extras.body_limit).for_each(|limit| request.body_mut().limit(limit));
            request.body_mut().pace(*min_rate, session.gateway.limits.slow_body);
            session.client.note_min_rate(*min_rate);
        }
        if let Some((record, _)) = &mut busy.record {
            let destination = match &routed {
                Ok(routed) => Some(&routed.destination),
                Err(dismissed) => dismissed.destination.as_ref(),
            };
            record.flow = destination.map(|destination| Arc::clone(&destination.rules.flow));
        }
        let expects = expects && upload.is_some();
        let exchange = Self { session, counted, busy, id, upload, expects, takes_interim, interims, is_grpc };
        let remarks = routed.as_mut().map(|routed| std::mem::take(&mut routed.remarks)).unwrap_or_default();
        (exchange, Some(Outbound { request, remarks }), routed)
    }

    /// Answers it. Whatever goes wrong becomes an answer. Boxed, because a connection keeps room for what its service returns.
    pub fn answer(
        self,
        mut request: Sendable,
        routed: Result<Routed, Dismissed>,
    ) -> Pin<Box<impl Future<Output = Result<Response<AnswerBody>, Infallible>>>> {
        // An `async fn` would keep its arguments twice.
        Box::pin(async move {
            let (passed, destination, wish) = match routed {
                Ok(Routed { destination, upgrade, is_old, wish, .. }) => {
                    (self.pass(&mut request, &destination, upgrade, is_old).await, Some(destination), wish)
                }
                Err(Dismissed { answer, destination }) => (Err(answer), destination, None),
            };
            Ok(self.finish(passed, destination.as_ref(), wish.as_ref()))
        })
    }

    /// The answer as its client gets it.
    fn finish(
        mut self,
        passed: Result<Passed, ErrorResponse>,
        destination: Option<&Destination>,
        wish: Option<&Wish>,
    ) -> Response<AnswerBody> {
        if let Err(refusal) = &passed
            && refusal.is_refusal()
        {
            self.session.gateway.refused.note(&self.id, refusal, destination);
        }
        let extras = destination.and_then(|destination| destination.rules.extras.as_deref());
        let (status, own) = passed
            .as_ref()
            .map_or_else(|refusal| (refusal.status, Some(refusal.why.as_str())), |(parts, _)| (parts.status, None));
        self.busy.note_answer(status, own);
        let mut response = match passed {
            Ok((parts, Brought::Whole(body))) => Response::from_parts(parts, AnswerBody::text(body, self.busy)),
            Ok((parts, Brought::Relay(relay))) => relayed(parts, relay, wish, &self.session.gateway, self.busy),
            Ok((parts, Brought::Nothing)) => Response::from_parts(parts, AnswerBody::empty(self.busy)),
            Err(refusal) if self.is_grpc => grpc::refusal(&refusal, self.busy),
            Err(refusal) => refusal.into_response(self.busy, extras),
        };
        if let Some(extras) = extras {
            extras.response_headers.apply(response.headers_mut());
        }
        if self.session.client.has_order() || self.upload.is_some_and(|upload| upload.ends_connection()) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        note_id(response.headers_mut(), self.id);
        response
    }

    /// Waits for a seat and brings the response's head.
    async fn pass(
        &self,
        sendable: &mut Sendable,
        destination: &Destination,
        upgrade: Option<HeaderValue>,
        is_old: bool,
    ) -> Result<Passed, ErrorResponse> {
        let (cluster, rules) = (&destination.cluster, &destination.rules);
        // Over HTTP/2 nothing is upgraded.
        let upgrade = upgrade.filter(|_| rules.protocol == InstanceProtocol::Http1);
        let end = rules.total.map(|total| self.session.client.now() + total);
        if let Some(upload) = self.upload.as_ref().filter(|_| rules.min_rate > 0) {
            Box::pin(self.gather(upload, sendable, cluster, end)).await?;
        }
        let place = self.place(cluster, end).await?;
        let incoming = choice::incoming(&sendable.as_ref().expect(SENDABLE).request, destination);
        let arrived = cluster.arrive(incoming);
        let (mut seat, target, timeout) = arrived.map_err(|rejection| ErrorResponse::rejected(&rejection))?;
        seat.hold(place);
        let seat_end = self.session.client.now() + timeout;
        self.upload.iter().for_each(|upload| upload.attach(seat.handle()));
        let mut deadline = Deadline::set(self.session.take_deadline(), self.at_most(timeout, end));
        let mut target = match target {
            Some(target) => target,
            None => Box::pin(self.wait_for_seat(cluster, &seat, &mut deadline, timeout)).await?,
        };
        let client_side = sendable.as_mut().and_then(|to| self.address(&mut to.request, &target, upgrade, is_old));
        let idle = rules.idle.unwrap_or(timeout);
        let mut replays = 0;
        let result = loop {
            if let Some(idle) = rules.idle {
                deadline.restart(self.at_most(idle, end));
            }
            let how = How { speech: self.speech(rules), may_switch: client_side.is_some() };
            let exchange = pin!(self.exchange(&seat, target, sendable, how, &mut replays));
            let result = self.within(&mut deadline, idle, end, exchange).await;
            if !matches!(result, Some(Err(Unanswered::Waits))) {
                break result;
            }
            deadline.restart(self.at_most(seat_end.since(self.session.client.now()), end));
            target = Box::pin(self.wait_for_seat(cluster, &seat, &mut deadline, timeout)).await?;
        };
        self.session.keep_deadline(deadline);
        match result {
            Some(Ok(begun)) => {
                let cookie = choice::new_cookie(destination, incoming.key.prefers, begun.target.index, self.session.is_secure());
                let (mut parts, relay) = self.receive(begun, seat, client_side, rules, end)?;
                if let Some(cookie) = cookie {
                    parts.headers.append(header::SET_COOKIE, cookie);
                }
                Ok((parts, relay))
            }
            Some(Err(Unanswered::Failed(attempt, refusal))) => {
                seat.finish(attempt, RequestOutcome::Failed);
                Err(refusal)
            }
            Some(Err(Unanswered::Waits)) | None => {
                seat.finish(Attempt::Abandoned, RequestOutcome::Failed);
                Err(self.timed_out(idle))
            }
        }
    }

    /// Its time is up: who took it.
    fn timed_out(&self, time: Duration) -> ErrorResponse {
        let waits_for_client = self.upload.as_ref().is_some_and(|upload| upload.waits_for_client());
        if waits_for_client { ErrorResponse::stalled(time) } else { ErrorResponse::timed_out(time) }
    }

    /// Writes what depends on the instance. Returns the client's connection, if that is to be upgraded.
    fn address(
        &self,
        request: &mut Request<RequestBody>,
        target: &Target,
        upgrade: Option<HeaderValue>,
        is_old: bool,
    ) -> Option<OnUpgrade> {
        if is_old && !request.headers().contains_key(header::HOST) {
            let host = HeaderValue::try_from(target.upstream.address().to_string());
            request.headers_mut().insert(header::HOST, host.expect("an address is made of visible characters"));
        }
        if self.upload.as_ref().is_some_and(|upload| upload.is_held()) {
            request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        }
        let client_side = upgrade.is_some().then(|| hyper::upgrade::on(&mut *request));
        request.extensions_mut().clear();
        tunnel::ask(request.headers_mut(), upgrade);
        client_side
    }

    /// Waits until the pipeline gives a seat. At the deadline it is the pipeline that says what has expired.
    async fn wait_for_seat(
        &self,
        cluster: &Arc<Cluster>,
        seat: &Seat,
        deadline: &mut Deadline,
        timeout: Duration,
    ) -> Result<Target, ErrorResponse> {
        let client = &self.session.client;
        client.watch_for_leaving(true);
        let granted = || {
            std::future::poll_fn(|cx| {
                let target = seat.poll_target(cx);
                if target.is_pending() && client.has_left() { Poll::Ready(Err(Expired::CLIENT_GONE)) } else { target }
            })
        };
        let granted = match deadline.within(granted()).await {
            Some(granted) => granted,
            None => {
                cluster.expire();
                granted().now_or_never().unwrap_or(Err(Expired::TIME_UP))
            }
        };
        client.watch_for_leaving(false);
        granted.map_err(|expired| ErrorResponse::expired(&expired, timeout))
    }

    /// What `exchange` gives within the time that a request has. While bytes of its body flow, that time begins anew, up to `end`.
    async fn within<F: Future>(
        &self,
        deadline: &mut Deadline,
        idle: Duration,
        end: Option<Time>,
        mut exchange: Pin<&mut F>,
    ) -> Option<F::Output> {
        loop {
            if let Some(output) = deadline.within(exchange.as_mut()).await {
                return Some(output);
            }
            let left = self.at_most(idle.saturating_sub(self.upload.as_ref()?.stillness()), end);
            if left.is_zero() {
                return None;
            }
            deadline.restart(left);
        }
    }

    /// How instances of a route are spoken to for this client.
    fn speech(&self, rules: &Rules) -> Speech {
        let client = &self.session.client;
        let ends = Ends { client: client.peer, server: client.server };
        Speech { protocol: rules.protocol, announced: rules.send_proxy.map(|version| Announced { version, ends }) }
    }

    /// `time` from now, but not beyond `end`.
    pub(super) fn at_most(&self, time: Duration, end: Option<Time>) -> Duration {
        end.map_or(time, |end| time.min(end.since(self.session.client.now())))
    }

    /// Takes over a response that an instance has begun.
    fn receive(
        &self,
        begun: Begun,
        mut seat: Seat,
        client_side: Option<OnUpgrade>,
        rules: &Rules,
        end: Option<Time>,
    ) -> Result<Passed, ErrorResponse> {
        let Begun { response, mut lease, target, resume } = begun;
        let (mut parts, ()) = response.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(parts, lease, seat, client_side, rules);
        }
        match forward::incoming_head(&mut parts) {
            Ok(true) => {}
            Ok(false) => lease.note_doubt(),
            Err(bad) => return Err(refuse(seat, &bad)),
        }
        seat.note_status(parts.status);
        if self.upload.is_none()
            && !rules.compresses
            && let Some(body) = lease.take_whole()
        {
            seat.finish(Attempt::Answered, RequestOutcome::Served);
            target.upstream.put_back(self.session.worker, lease, &self.session.gateway.limits);
            return Ok((parts, Brought::Whole(body)));
        }
        let relay = Relay {
            lease: Some(lease),
            seat: Some(seat),
            resume,
            upstream: target.upstream,
            worker: self.session.worker,
            idle: rules.idle.unwrap_or(self.session.gateway.limits.stalled_response),
            limits: Arc::clone(&self.session.gateway.limits),
            stall: None,
            is_alive: false,
            end: end.map(|end| Box::pin(tokio::time::sleep(self.at_most(Duration::MAX, Some(end))))),
            upload: self.upload.clone(),
            takes_rest: parts.status.is_success(),
        };
        Ok((parts, Brought::Relay(Box::new(relay))))
    }

    /// Makes a tunnel of an exchange, where the instance has switched to what was asked for and may be granted.
    fn switch(
        &self,
        mut parts: http::response::Parts,
        lease: Lease,
        mut seat: Seat,
        client_side: Option<OnUpgrade>,
        rules: &Rules,
    ) -> Result<Passed, ErrorResponse> {
        let client_side = client_side.filter(|_| forward::grants_upgrade(&parts.headers, &rules.upgrades));
        let sides = client_side.and_then(|client_side| Some((client_side, lease.into_stream()?)));
        let Some((client_side, instance_side)) = sides else { return Err(refuse(seat, &forward::BadResponse::Switch)) };
        seat.note_status(parts.status);
        let (client, entry) = (Arc::clone(&self.session.client), Arc::clone(&self.session.entry));
        let tunnel = Tunnel { seat: seat.into_tunnel(), client, entry, idle: rules.tunnel_idle };
        tunnel::spawn(client_side, instance_side, tunnel);
        let protocol = parts.headers.get(header::UPGRADE).cloned();
        let present = Present::of(&parts.headers);
        forward::remove_hop_by_hop(&mut parts.headers, present);
        tunnel::ask(&mut parts.headers, protocol);
        Ok((parts, Brought::Nothing))
    }

    /// Sends a request to `target`, and to others as long as that may help. `replays` counts how often it was sent again although an instance may
    /// have begun with it: a request that ends each instance it comes to is not kept for the next one.
    async fn exchange(
        &self,
        seat: &Seat,
        mut target: Target,
        sendable: &mut Sendable,
        how: How,
        replays: &mut u32,
    ) -> Result<Begun, Unanswered> {
        let mut failed: Vec<InstanceIndex> = Vec::new();
        loop {
            let AttemptFailure { attempt, refusal } = match self.attempt(seat, &target, how, sendable, replays).await {
                Ok((response, lease, resume)) => return Ok(Begun { response, lease, target, resume }),
                Err(failure) => failure,
            };
            if self.upload.as_ref().is_some_and(|upload| upload.is_broken()) {
                // It is the client that broke off, or sent what it may not: nothing is wrong with the instance.
                return Err(Unanswered::Failed(Attempt::Abandoned, self.broken_upload()));
            }
            failed.push(target.index);
            *replays += u32::from(attempt == Attempt::Broken);
            let next = if sendable.is_some() { seat.retry(attempt, &failed) } else { None };
            match next {
                Some(next) => target = next,
                None if attempt == Attempt::Refused && seat.wait_again(*replays) => return Err(Unanswered::Waits),
                None => return Err(Unanswered::Failed(attempt, refusal)),
            }
        }
    }

    /// Why a request whose body came to a bad end is refused.
    pub(super) fn broken_upload(&self) -> ErrorResponse {
        let upload = self.upload.as_ref();
        let too_large = upload.and_then(|upload| upload.exceeded()).map(ErrorResponse::too_large);
        let too_slow = || upload.and_then(|upload| upload.missed_rate()).map(ErrorResponse::too_slow);
        too_large.or_else(too_slow).unwrap_or_else(|| self.session.malformed(&Malformed::Body))
    }

    /// Sends a request to one instance: over a connection that is there, and if the instance has closed that one just then,
    /// over a new one.
    async fn attempt(
        &self,
        seat: &Seat,
        target: &Target,
        How { speech, may_switch }: How,
        sendable: &mut Sendable,
        replays: &mut u32,
    ) -> Result<Answered, AttemptFailure> {
        let (worker, limits) = (self.session.worker, &self.session.gateway.limits);
        let may_be_repeated = sendable.as_ref().is_some_and(Outbound::may_be_repeated);
        // What may become a tunnel has a connection of its own from the start.
        let mut idle = if may_switch { None } else { target.upstream.take(worker, speech, may_be_repeated) };
        loop {
            let mut lease = match idle.take() {
                Some(lease) => lease,
                None => Box::pin(connect(seat, target, worker, speech, limits)).await?,
            };
            let may_wait = !lease.was_used() && lease.is_alone();
            let exchanged = if may_wait {
                Box::pin(self.exchange_anew(&mut lease, target, sendable)).await
            } else {
                lease.exchange(sendable, &mut self.between()).await
            };
            match exchanged {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS && !may_switch => {
                    return Err(malformed(&forward::BadResponse::Switch));
                }
                Ok(response) => {
                    let again = sendable.as_ref().filter(|_| !may_switch);
                    let resume = Resume::of(again, &response, target.index, speech);
                    if let Some(outbound) = sendable.take() {
                        lease.keep_map(outbound.request);
                    }
                    return Ok((response, lease, resume));
                }
                Err(Failed { error, is_untouched }) => {
                    if !is_untouched {
                        sendable.take_if(|outbound| !is_idempotent(outbound.request.method()));
                    }
                    if sendable.is_none() || !lease.was_used() {
                        return Err(unanswered(&error));
                    }
                    *replays += u32::from(!is_untouched);
                }
            }
        }
    }

    /// Sends a request over a new connection, which may wait for a thread that an idle one has.
    async fn exchange_anew(&self, lease: &mut Lease, target: &Target, sendable: &mut Sendable) -> Result<Response<()>, Failed> {
        let mut between = self.between();
        let mut exchange = pin!(lease.exchange(sendable, &mut between));
        if let Ok(answered) = tokio::time::timeout(claims::WAIT, &mut exchange).await {
            target.upstream.note_unclaimed();
            return answered;
        }
        let _claim = target.upstream.make_room();
        exchange.await
    }

    fn between(&self) -> Between<'_> {
        let held = self.upload.as_deref().filter(|upload| upload.is_held());
        Between {
            client: &self.session.client,
            interims: self.interims.as_deref(),
            upload: held,
            wait: held.map(|_| Box::pin(tokio::time::sleep(EXPECT_WAIT))),
            expects: self.expects,
            takes_interim: self.takes_interim,
        }
    }
}

/// The instance's answer cannot be passed on.
fn refuse(seat: Seat, bad: &forward::BadResponse) -> ErrorResponse {
    seat.finish(Attempt::Broken, RequestOutcome::Failed);
    ErrorResponse::bad_answer(&bad.to_string())
}

/// A new connection, which shows that the instance listens.
async fn connect(seat: &Seat, target: &Target, worker: usize, speech: Speech, limits: &Limits) -> Result<Lease, AttemptFailure> {
    let lease = target.upstream.connect(worker, speech, limits).await.map_err(|error| no_connection(&error))?;
    seat.note_connection();
    Ok(lease)
}

/// The instance takes no connection.
fn no_connection(reason: &impl ToString) -> AttemptFailure {
    AttemptFailure { attempt: Attempt::Refused, refusal: ErrorResponse::no_connection(&reason.to_string()) }
}

/// The instance has a connection, and no answer came over it.
fn unanswered(error: &InstanceError) -> AttemptFailure {
    if error.is_nonsense() {
        return malformed(error);
    }
    AttemptFailure { attempt: Attempt::Broken, refusal: ErrorResponse::broken_off(&error.to_string()) }
}

/// The instance answers what cannot be passed on.
fn malformed(reason: &impl ToString) -> AttemptFailure {
    AttemptFailure { attempt: Attempt::Broken, refusal: ErrorResponse::bad_answer(&reason.to_string()) }
}

/// The answer of an instance, compressed where its client takes that and the gateway has room for it.
fn relayed(
    mut parts: http::response::Parts,
    relay: Box<Relay>,
    wish: Option<&Wish>,
    gateway: &Gateway,
    busy: Busy,
) -> Response<AnswerBody> {
    let Some(wish) = wish else { return Response::from_parts(parts, AnswerBody::relay(relay, busy)) };
    let room = || Arc::clone(&gateway.compressions).try_acquire_owned().ok();
    let (is_empty, length) = (relay.is_end_stream(), relay.size_hint().exact());
    let body = match wish.apply(&mut parts, is_empty, length, room) {
        Some((coding, permit)) if !is_empty => AnswerBody::encoded(Encoded::new(relay, coding, permit), busy),
        _ => AnswerBody::relay(relay, busy),
    };
    Response::from_parts(parts, body)
}
