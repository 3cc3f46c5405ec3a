//! One client connection's part in its requests: what it remembers from one to the next, and where each of them goes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use http_body::Body as _;
use tokio::sync::Semaphore;
use weal_control::clients::client_of;
use weal_host::listening::connected_at;
use weal_model::{AccessLog, AppName, ClientPolicy, ListenScheme, Network, OwnAnswer, Time};

use super::check::{self, KnownHost, Malformed};
use super::compression::Wish;
use super::deadline::{Deadline, Deadlines};
use super::error_response::ErrorResponse;
use super::forward;
use super::origin::{self, Origin, RequestIds, forwarded_client};
use super::present::Present;
use super::remarks::Remarks;
use super::request_body::RequestBody;
use super::trace::TraceContext;
use crate::limits::Limits;
use crate::listen::client::Client;
use crate::listen::guard::{Guard, Hold, TooMany};
use crate::listen::own::{Counted, counted};
use crate::listen::proxy::ProxyError;
use crate::listen::registry::Entry;
use crate::routing::extras::Extras;
use crate::routing::marks;
use crate::routing::table::{Destination, Tables, View};
use crate::telemetry::ended::Ended;
use crate::telemetry::record::Traced;
use crate::telemetry::refused::Refused;
use crate::tls::{Tls, challenges};
use crate::upstream::speech::Ends;

/// What all connections of a gateway share.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub tables: Tables,
    pub limits: Arc<Limits>,
    pub ids: RequestIds,
    /// What clients take of it.
    pub guard: Guard,
    pub ended: Arc<Ended>,
    pub refused: Refused,
    pub tls: Tls,
    /// Answers that may be compressed at once.
    pub compressions: Arc<Semaphore>,
    /// Requests that may wait at once for their bodies without a seat.
    pub gathers: Semaphore,
    pub deadlines: Deadlines,
    pub unrouted: AtomicU64,
    pub malformed: AtomicU64,
    /// Connections that were cut off because of what their clients sent over HTTP/2.
    pub abusive: AtomicU64,
    /// Where it listens for calls between applications.
    pub inner: Mutex<BTreeMap<AppName, SocketAddr>>,
}

/// One client connection's part in its requests.
#[derive(Debug)]
pub(crate) struct Session {
    pub gateway: Arc<Gateway>,
    pub client: Arc<Client>,
    /// Shared with the tunnel that the connection may become.
    pub entry: Arc<Entry>,
    pub worker: usize,
    scheme: ListenScheme,
    /// Never waited for: the requests of a connection come one after the other.
    memory: Mutex<Memory>,
}

/// What a connection remembers from one request to the next.
#[derive(Debug)]
struct Memory {
    view: View,
    origin: Origin,
    known_host: KnownHost,
    /// Requests so far. Invariant: each was counted before anything was decided about it, or a later one would pass for it.
    requests: u64,
}

/// A request with its head written anew for an instance.
#[derive(Debug)]
pub(crate) struct Routed {
    pub destination: Destination,
    /// The protocols that it asks for, of those that may be granted.
    pub upgrade: Option<HeaderValue>,
    /// True for HTTP/1.0, whose requests need not name a host.
    pub is_old: bool,
    /// How its answer may be compressed; `None` where the route does not compress.
    pub wish: Option<Wish>,
    /// What the instance is told besides.
    pub remarks: Remarks,
}

/// What is known of a request before it is looked at.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Its client, as far as trusted proxies say it.
    pub client: IpAddr,
    pub access_log: AccessLog,
    /// Of which trace it is; `None` when it gets no `traceparent` of the gateway's.
    pub trace: Option<TraceContext>,
    /// What its span says; `None` keeps none.
    pub traced: Option<Traced>,
    /// Whose part of a gateway it takes; `None` where that has no bounds.
    pub counted: Option<Network>,
    /// It comes too early, by so long.
    pub early: Option<Duration>,
    /// A second reader is sure where its body ends.
    pub is_framed: bool,
}

/// A request that no instance gets, and why.
#[derive(Debug)]
pub(crate) struct Dismissed {
    pub answer: ErrorResponse,
    /// Where it was to go, when that is known.
    pub destination: Option<Destination>,
}

impl From<ErrorResponse> for Dismissed {
    fn from(answer: ErrorResponse) -> Self {
        Self { answer, destination: None }
    }
}

impl Gateway {
    /// Counts a connection as one of its client's, until what it returns is dropped. `None`: it does not count. With it, how the client is counted.
    /// `inner` is the application through whose inner address it came.
    pub fn hold(&self, now: Time, ends: Ends, inner: Option<&AppName>) -> Result<(Option<Hold>, Counted), TooMany> {
        let table = self.tables.current();
        let is_trusted = table.is_trusted(ends.client.ip());
        if is_trusted && inner.is_none() {
            return Ok((None, Counted::Address));
        }
        let counted = counted(&table, (ends.client, ends.server), inner, connected_at);
        let address = match counted {
            Counted::Not => return Ok((None, counted)),
            Counted::Address if is_trusted => return Ok((None, counted)),
            Counted::Address => ends.client.ip(),
            Counted::As(address) => address,
        };
        let most = if table.is_unlimited(address) { 0 } else { table.clients.client_connections };
        Ok((self.guard.hold(now, address, most)?, counted))
    }

    /// A client was cut off because it sends too much of what only costs work.
    pub fn note_abuse(&self, client: &Client) {
        self.abusive.fetch_add(1, Ordering::Relaxed);
        tracing::info!(client = %client.peer, "cut off a client that floods its connection");
    }

    /// A proxy does not say whose connection it passes on, as it has to.
    pub fn note_bad_proxy(&self, proxy: SocketAddr, error: &ProxyError, destination: Option<&Destination>) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
        let refusal = ErrorResponse::closed(OwnAnswer::ProxyHeader, format!("a connection from {}: {error}", proxy.ip()));
        self.note_closed(&refusal, destination);
    }

    /// Remembers why a connection was closed that has no request.
    pub fn note_closed(&self, refusal: &ErrorResponse, destination: Option<&Destination>) {
        self.refused.note(&self.ids.choose(&HeaderMap::new(), Present::default()), refusal, destination);
        if let Some(destination) = destination {
            destination.cluster.ports().note_refused();
        }
    }
}

impl Session {
    pub fn new(gateway: Arc<Gateway>, client: Arc<Client>, entry: Entry, worker: usize, scheme: ListenScheme) -> Self {
        let mut view = gateway.tables.view();
        let is_trusted = view.table(&gateway.tables).is_trusted(client.peer.ip());
        let origin = Origin::new(client.peer, scheme, is_trusted);
        let memory = Memory { view, origin, known_host: KnownHost::default(), requests: 0 };
        Self { gateway, client, entry: Arc::new(entry), worker, scheme, memory: Mutex::new(memory) }
    }

    /// Who sends a request, and whether there is room for it. Called once for each request, whatever becomes of it.
    pub fn admit<B>(&self, request: &Request<B>) -> Admitted {
        let headers = request.headers();
        let mut memory = self.memory();
        let Memory { view, origin, requests, .. } = &mut *memory;
        *requests += 1;
        // HTTP/2 frames bodies itself.
        let is_framed = request.version() == Version::HTTP_2 || *requests <= self.client.requests();
        let table = view.table(&self.gateway.tables);
        let named = if origin.is_trusted() { forwarded_client(headers, |address| table.is_trusted(address)) } else { None };
        let client = named.unwrap_or(self.client.peer.ip());
        let counted = named.unwrap_or(self.client.counted_as());
        let ClientPolicy { access_log, client_rate, trace_ratio, spans, .. } = table.clients;
        let trace = table.clients.is_traced().then(|| TraceContext::of(headers, &self.gateway.ids, trace_ratio));
        let traced = trace.filter(|trace| spans && trace.is_sampled).map(|context| Traced {
            context,
            peer: self.client.peer,
            is_secure: self.is_secure() || (origin.is_trusted() && origin::came_over_tls(headers)),
        });
        // A proxy that names no client is not limited: all clients behind it would be.
        let is_counted = self.client.is_counted()
            && !table.is_unlimited(counted)
            && (!origin.is_trusted() || named.is_some_and(|client| !table.is_trusted(client)));
        let is_limited = is_counted && client_rate > 0;
        let early =
            is_limited.then(|| self.gateway.guard.handle_request(self.client.now(), counted, client_rate).err()).flatten();
        Admitted { client, access_log, trace, traced, counted: is_counted.then(|| client_of(counted)), early, is_framed }
    }

    /// Frees what is remembered of former requests, and can be found out again.
    pub fn forget(&self) {
        let mut memory = self.memory();
        memory.known_host = KnownHost::default();
        memory.origin.forget();
    }

    /// True when its client speaks TLS with this gateway.
    pub fn is_secure(&self) -> bool {
        self.scheme == ListenScheme::Https
    }

    /// Checks a request, finds where it goes, and writes its head anew.
    pub fn route(
        &self,
        request: &mut Request<RequestBody>,
        present: Present,
        is_framed: bool,
        id: &HeaderValue,
        trace: Option<&TraceContext>,
    ) -> Result<Routed, Dismissed> {
        let mut memory = self.memory();
        let Memory { view, origin, known_host, .. } = &mut *memory;
        let host = check::check(request, present, is_framed, self.gateway.limits.head_fields, known_host)
            .map_err(|malformed| self.malformed(&malformed))?;
        if challenges::is_asked_for(request.uri().path())
            && let Some(proof) = self.gateway.tls.shown().answer(request.uri().path())
        {
            return Err(ErrorResponse::challenge(proof).into());
        }
        if let Some(secure) = self.secure_location(request, &host, origin.is_trusted()) {
            // It keeps the method and the body (RFC 9110 section 15.4.9).
            return Err(ErrorResponse::redirect(StatusCode::PERMANENT_REDIRECT, secure).into());
        }
        let table = view.table(&self.gateway.tables);
        let found = match self.client.inner() {
            Some(app) => table.inner.get(app).map(|inner| inner.destination(request.headers().get(marks::FIELD))).cloned(),
            None => table.routes.find(&host, request.uri().path(), request.headers()).cloned(),
        };
        let Some(destination) = found else {
            self.gateway.unrouted.fetch_add(1, Ordering::Relaxed);
            return Err(ErrorResponse::unrouted(&host, request.uri().path()).into());
        };
        if let Some(extras) = &destination.rules.extras
            && let Some(answer) = self.dismiss(extras, destination.rules.is_normalized, &host, request)
        {
            return Err(Dismissed { answer, destination: Some(destination) });
        }
        let wants_upgrade = present.has(Present::UPGRADE);
        let upgrade = if wants_upgrade { forward::wanted_upgrade(request, &destination.rules.upgrades) } else { None };
        if matches!(*request.method(), Method::OPTIONS | Method::TRACE) && !forward::count_hop(request.headers_mut()) {
            return Err(Dismissed { answer: ErrorResponse::last_hop(request.method()), destination: Some(destination) });
        }
        forward::origin_form(request).map_err(|malformed| self.malformed(&malformed))?;
        let extras = destination.rules.extras.as_deref();
        if let Some(stripped) = extras.and_then(|extras| extras.strip(request.uri(), destination.rules.is_normalized)) {
            *request.uri_mut() = stripped;
        }
        let length = request.body().size_hint().exact();
        let received = std::mem::replace(request.version_mut(), Version::HTTP_11);
        let has_content = received == Version::HTTP_2 && forward::expects_content(request.method());
        let headers = request.headers_mut();
        if forward::remove_hop_by_hop(headers, present) {
            forward::take_trailers(headers);
        }
        if received == Version::HTTP_2 {
            if !forward::set_length(headers, present, has_content, length) {
                return Err(self.malformed(&Malformed::Framing).into());
            }
        } else if present.has(Present::TRANSFER_ENCODING) {
            // Some servers do not know that its case does not matter, and would find no body.
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let mut remarks = origin.announce(headers, present, received, id.clone());
        match &destination.rules.mark {
            Some(mark) => drop(headers.insert(marks::FIELD, mark.clone())),
            // What a client says there means nothing, and an instance shall not take it for a word of ours.
            None if present.has(Present::MARK) => drop(headers.remove(marks::FIELD)),
            None => {}
        }
        if let Some(trace) = trace {
            trace.pass_on(headers);
        }
        // What the client takes, whatever the instance is told of it.
        let wish = destination.rules.compresses.then(|| Wish::of(request));
        if let Some(extras) = extras {
            remarks.move_into(request.headers_mut());
            extras.edit_request(request.headers_mut());
        }
        Ok(Routed { destination, upgrade, is_old: received == Version::HTTP_10, wish, remarks })
    }

    /// What a route answers by itself.
    fn dismiss(&self, extras: &Extras, is_normalized: bool, host: &str, request: &Request<RequestBody>) -> Option<ErrorResponse> {
        if extras.is_closed {
            return Some(ErrorResponse::maintenance());
        }
        let stripped = extras.strip(request.uri(), is_normalized);
        if let Some((status, location)) = extras.redirect(host, stripped.as_ref().unwrap_or(request.uri())) {
            return Some(ErrorResponse::redirect(status, location));
        }
        let limit = extras.body_limit?;
        let is_too_large = request.body().size_hint().lower() > limit;
        is_too_large.then(|| ErrorResponse::too_large(limit))
    }

    /// Where a request without TLS is sent on to; `None` when it is answered. Not those that prove to a certificate authority whose host
    /// this is (RFC 8555 section 8.3), nor what a trusted proxy received over TLS.
    fn secure_location(&self, request: &Request<RequestBody>, host: &str, is_trusted: bool) -> Option<HeaderValue> {
        let port = self.gateway.tls.redirect_port().filter(|_| self.scheme == ListenScheme::Http && !host.is_empty())?;
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        if challenges::is_asked_for(path) || (is_trusted && origin::came_over_tls(request.headers())) {
            return None;
        }
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        HeaderValue::try_from(format!("https://{host}{port}{path}")).ok()
    }

    /// The answer to a request that is not as it has to be.
    pub fn malformed(&self, malformed: &Malformed) -> ErrorResponse {
        self.gateway.malformed.fetch_add(1, Ordering::Relaxed);
        ErrorResponse::malformed(malformed)
    }

    /// A deadline that a former request of this worker has used.
    pub fn take_deadline(&self) -> Option<Deadline> {
        self.gateway.deadlines.take(self.worker)
    }

    /// Keeps a deadline for the next request.
    pub fn keep_deadline(&self, deadline: Deadline) {
        self.gateway.deadlines.keep(self.worker, deadline);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
