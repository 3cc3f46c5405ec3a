//! Accepting clients, spreading them over workers, watching over them, and closing them.
//!
//! Each worker is a thread with a single-threaded runtime: a connection stays on its thread with its instances' connections,
//! so nothing is handed between cores for a request.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use weal_model::{AppName, ListenScheme};

use crate::clock::Clock;
use crate::http::answer_body::AnswerBody;
use crate::http::exchange::Exchange;
use crate::http::h2;
use crate::http::incoming::Incoming;
use crate::http::session::{Gateway, Session};
use crate::limits::{FIELDS_ON_STACK, Limits};
use crate::listen::accepting::Accepted;
use crate::listen::client::{Client, Order, Phase};
use crate::listen::guard::TooMany;
use crate::listen::line::Line;
use crate::listen::named::named;
use crate::listen::patience::Patience;
use crate::listen::refusal::{send_error_response, send_error_response_to_new};
use crate::listen::registry::{Entry, Registry};
use crate::listen::stream::ClientStream;
use crate::listen::transport::Transport;
use crate::listen::{handshake, preface};
use crate::upstream::speech::Ends;

/// How often connections are looked at: how late a slow head may be noticed.
const SWEEP: Duration = Duration::from_millis(250);

/// Connections at most that were accepted and that their worker has not looked at. It looks each time it has done what was ready before, so
/// this many more come in while it does that once. More would pile up faster than they are served (Carrera 4.4.1); fewer would let a worker
/// run out of new ones.
const UNSEEN: usize = 32;

/// The workers' inboxes and loads.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    /// A worker has looked at a connection.
    seen: Arc<Notify>,
}

/// A connection that comes in.
struct Arrival {
    accepted: Accepted,
    scheme: ListenScheme,
    /// The application that is called, when it came through an inner address.
    inner: Option<AppName>,
}

struct Worker {
    inbox: mpsc::UnboundedSender<Arrival>,
    connections: Arc<AtomicUsize>,
    unseen: Arc<AtomicUsize>,
}

impl Worker {
    fn has_room(&self) -> bool {
        self.unseen.load(Ordering::Relaxed) < UNSEEN
    }
}

impl Workers {
    /// Starts one thread per worker. They end when this is dropped and their connections have ended.
    pub fn start(gateway: &Arc<Gateway>, registry: &Arc<Registry>, clock: Clock) -> std::io::Result<Self> {
        let (mut workers, seen) = (Vec::new(), Arc::new(Notify::new()));
        for index in 0..gateway.limits.workers.max(1) {
            let (inbox, arrivals) = mpsc::unbounded_channel();
            let (connections, unseen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let line = Arc::new(Line::new(clock, gateway.limits.orders_handshakes));
            let host = Arc::new(Host {
                gateway: Arc::clone(gateway),
                registry: Arc::clone(registry),
                connections: Arc::clone(&connections),
                unseen: Arc::clone(&unseen),
                seen: Arc::clone(&seen),
                line: Arc::clone(&line),
                clock,
                index,
            });
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().on_thread_park(move || line.handle_idle()).build()?;
            std::thread::Builder::new().name(format!("gateway-{index}")).spawn(move || runtime.block_on(host.work(arrivals)))?;
            workers.push(Worker { inbox, connections, unseen });
        }
        Ok(Self { workers, seen })
    }

    /// Completes as soon as some worker has looked at nearly all that it was handed.
    pub async fn room(&self) {
        loop {
            let mut seen = pin!(self.seen.notified());
            seen.as_mut().enable();
            if self.workers.iter().any(Worker::has_room) {
                return;
            }
            seen.await;
        }
    }

    /// Hands a connection to the worker that has the fewest. `inner` is the application that is called, when it came through an inner address.
    pub fn hand_over(&self, accepted: Accepted, scheme: ListenScheme, inner: Option<AppName>) {
        let load = |worker: &&Worker| (!worker.has_room(), worker.connections.load(Ordering::Relaxed));
        let worker = self.workers.iter().min_by_key(load).expect("there is at least one worker");
        worker.connections.fetch_add(1, Ordering::Relaxed);
        worker.unseen.fetch_add(1, Ordering::Relaxed);
        if worker.inbox.send(Arrival { accepted, scheme, inner }).is_err() {
            tracing::error!("a worker has ended; its connection is closed");
        }
    }
}

/// What a worker knows.
struct Host {
    gateway: Arc<Gateway>,
    registry: Arc<Registry>,
    connections: Arc<AtomicUsize>,
    unseen: Arc<AtomicUsize>,
    seen: Arc<Notify>,
    line: Arc<Line>,
    clock: Clock,
    index: usize,
}

impl Host {
    /// Serves what comes until nothing more can.
    async fn work(self: Arc<Self>, mut arrivals: mpsc::UnboundedReceiver<Arrival>) {
        let welcome = async {
            while let Some(arrival) = arrivals.recv().await {
                self.unseen.fetch_sub(1, Ordering::Relaxed);
                self.seen.notify_waiters();
                self.welcome(arrival);
            }
        };
        tokio::select! {
            () = welcome => {}
            () = self.line.serve() => {}
        }
    }

    fn welcome(self: &Arc<Self>, Arrival { accepted: Accepted { stream, ends }, scheme, inner }: Arrival) {
        let count = CountDown(Arc::clone(&self.connections));
        if !self.registry.has_room(&self.gateway.limits, self.clock) {
            return refuse(stream, scheme);
        }
        let stream = match TcpStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => return tracing::warn!(%error, "cannot serve a connection"),
        };
        // Calls between applications come from this machine, and no proxy is between.
        if inner.is_none() && self.gateway.tables.current().expects_proxy_header(scheme, ends.client.ip()) {
            let host = Arc::clone(self);
            tokio::spawn(async move {
                if let Some((stream, ends)) = named(stream, ends, &host.gateway, &host.registry, host.clock, None).await {
                    host.begin(stream, ends, scheme, None, count);
                }
            });
        } else {
            self.begin(stream, ends, scheme, inner, count);
        }
    }

    /// Serves a connection of which it is known whose it is.
    fn begin(self: &Arc<Self>, stream: TcpStream, ends: Ends, scheme: ListenScheme, inner: Option<AppName>, count: CountDown) {
        let (hold, counted) = match self.gateway.hold(self.clock.now(), ends, inner.as_ref()) {
            Ok(held) => held,
            Err(TooMany { .. }) => {
                if scheme == ListenScheme::Http
                    && let Ok(stream) = stream.into_std()
                {
                    send_error_response_to_new(
                        &stream,
                        "429 Too Many Requests\r\nretry-after: 1",
                        "too many connections from this address\n",
                    );
                }
                return;
            }
        };
        let client = Arc::new(Client::new(ends, self.clock).with_inner(inner).with_counted(counted));
        let entry = self.registry.enter(&client, hold);
        let gateway = Arc::clone(&self.gateway);
        let (index, line) = (self.index, Arc::clone(&self.line));
        // Two kinds of tasks: what TLS needs is several times what the others do, and each task is as large as the most that it may need.
        match scheme {
            ListenScheme::Http => tokio::spawn(async move {
                serve(stream, client, entry, gateway, index).await;
                drop(count);
            }),
            ListenScheme::Https => tokio::spawn(async move {
                serve_over_tls(stream, client, entry, gateway, (index, &line)).await;
                drop(count);
            }),
        };
    }
}

struct CountDown(Arc<AtomicUsize>);

impl Drop for CountDown {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection over TLS, which begins with a handshake.
async fn serve_over_tls(stream: TcpStream, client: Arc<Client>, entry: Entry, gateway: Arc<Gateway>, worker: (usize, &Line)) {
    let (worker, line) = worker;
    // Boxed: it is large, and over soon.
    let shaken = Box::pin(handshake::shake(stream, &gateway.tls, line, &client, &gateway.limits)).await;
    if let Some(stream) = shaken {
        serve(stream, client, entry, gateway, worker).await;
    }
}

/// One connection from its first byte to its last.
async fn serve<T: Transport>(mut stream: T, client: Arc<Client>, entry: Entry, gateway: Arc<Gateway>, worker: usize) {
    let (is_h2, first) = match stream.speaks_h2() {
        Some(is_h2) => (is_h2, Bytes::new()),
        None => match preface::read(&mut stream, &client).await {
            Some(read) => read,
            None => return,
        },
    };
    let session = Arc::new(Session::new(gateway, client, entry, worker, T::SCHEME));
    if is_h2 {
        // Much larger than what HTTP/1 needs, which most connections speak.
        Box::pin(h2::serve(stream, first, session)).await;
    } else {
        serve_h1(stream, first, session).await;
    }
}

/// One connection over HTTP/1, of which `first` was read before. While it is idle for long, only its stream is kept.
async fn serve_h1<T: Transport>(stream: T, first: Bytes, session: Arc<Session>) {
    let patience = Patience::new(session.gateway.limits.stalled_write);
    let mut stream = ClientStream::new(stream, first, Arc::clone(&session.client), patience);
    loop {
        // Boxed, so that nothing of it is kept while the connection rests.
        match Box::pin(serve_busy(stream, &session)).await {
            Some(resting) => stream = resting,
            None => return,
        }
        session.forget();
        if !stream.rest().await {
            return;
        }
    }
}

/// Serves requests until the connection ends, or rests: then it is given back.
async fn serve_busy<T: Transport>(stream: ClientStream<T>, session: &Arc<Session>) -> Option<ClientStream<T>> {
    let (gateway, client) = (&session.gateway, &session.client);
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        if !request.body().is_end_stream() {
            client.forbid_rest();
        }
        let (exchange, request, routed) = Exchange::begin(Arc::clone(session), request.map(Incoming::H1), None);
        let answer = exchange.answer(request, routed);
        async move { answer.await.map(|response| response.map(AnswerBody::told_by_connection)) }
    });
    let mut connection = Some(h1_builder(&gateway.limits).serve_connection(TokioIo::new(stream), service).with_upgrades());
    let mut closing = false;
    let ended = poll_fn(|cx| {
        let running = connection.as_mut().expect("polled no more once it has ended");
        match client.poll_order(cx) {
            Order::GoOn => {}
            Order::TooSlow if client.phase() == Phase::Head => return Poll::Ready(H1End::TooSlow),
            _ if closing => {}
            // The next answer that begins says that it closes. One that has begun did not say so, and a client may send its next request
            // as soon as that answer ends.
            Order::Leave => {}
            // A head that became complete as the order came is still answered.
            Order::Close | Order::TooSlow | Order::Abuse => {
                closing = true;
                Pin::new(&mut *running).graceful_shutdown();
            }
        }
        match Pin::new(running).poll(cx) {
            Poll::Ready(ended) => Poll::Ready(H1End::Ended(ended)),
            Poll::Pending if client.can_rest() && !closing => Poll::Ready(H1End::Rests),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    let stream = || connection.and_then(http1::UpgradeableConnection::into_parts).map(|parts| parts.io.into_inner());
    match ended {
        H1End::Ended(Ok(())) => {}
        H1End::Ended(Err(error)) if error.is_parse() => {
            gateway.malformed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, client = %client.peer, "malformed request");
        }
        H1End::Ended(Err(error)) => tracing::debug!(%error, client = %client.peer, "a client broke off"),
        H1End::TooSlow => {
            if let Some(stream) = stream() {
                send_error_response(stream.into_inner(), "408 Request Timeout", "the request's head took too long\n");
            }
        }
        H1End::Rests => return stream(),
    }
    None
}

/// Why a connection over HTTP/1 is served no longer.
enum H1End {
    Ended(Result<(), hyper::Error>),
    /// The head of its request takes too long.
    TooSlow,
    /// It has been idle for a while.
    Rests,
}

fn h1_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    if limits.head_fields != FIELDS_ON_STACK {
        builder.max_headers(limits.head_fields);
    }
    builder.half_close(true).header_read_timeout(None);
    builder.max_header_size(limits.head_bytes).max_buf_size(limits.head_bytes.max(MIN_BUFFER));
    builder
}

/// hyper's least buffer for a connection.
const MIN_BUFFER: usize = 8192;

fn refuse(stream: std::net::TcpStream, scheme: ListenScheme) {
    // In the middle of an overload nobody shakes hands to say so.
    if scheme == ListenScheme::Http {
        send_error_response_to_new(&stream, "503 Service Unavailable", "too many connections\n");
    }
}

/// When so many connections have begun to rest, what they held is handed back to the machine: some MiB.
const MANY: usize = 256;
/// Not more often: allocations wait meanwhile.
const GIVES_BACK_EACH: Duration = Duration::from_secs(10);

/// Looks after connections, and closes idle ones to instances, until it is dropped.
pub(crate) async fn sweep(gateway: Arc<Gateway>, registry: Arc<Registry>, clock: Clock) {
    let mut interval = tokio::time::interval(SWEEP);
    let sweeps = gateway.limits.idle_upstream.div_duration_f64(SWEEP).ceil() as u32;
    // How many rest now whose memory was not handed back, and when memory was last.
    let (mut resting, mut gave_back) = (0, clock.now());
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = registry.crowded() => {
                resting += registry.sweep(clock, &gateway.limits);
                continue;
            }
        }
        if resting >= MANY && clock.now().since(gave_back) >= GIVES_BACK_EACH {
            tokio::task::spawn_blocking(weal_host::allocator::give_back);
            (resting, gave_back) = (0, clock.now());
        }
        resting += registry.sweep(clock, &gateway.limits);
        for cluster in gateway.tables.clusters() {
            cluster.sweep(sweeps);
        }
        gateway.tables.clear_dead();
    }
}
