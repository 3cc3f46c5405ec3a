//! Connections to one instance: those that nothing uses now, and new ones.
//!
//! While no request uses a connection, nothing notices that the instance closed it; that shows when it is taken out again.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use weal_model::{InstanceId, InstanceProtocol};

use super::claims::{Claim, Claims};
use super::h1::Link;
use super::lease::Lease;
use super::listener::{Listener, receiving_user_at, user_at};
use super::multiplexed::Multiplexed;
use super::speech::{Announced, Speech};
use crate::limits::Limits;

/// One instance's address with the connections to it that nothing uses now.
#[derive(Debug)]
pub(crate) struct Upstream {
    instance: InstanceId,
    address: SocketAddr,
    listener: Listener,
    /// By worker, so that a connection stays with the reactor that it is registered at, and a lock is never waited for.
    idle: Box<[Mutex<Vec<Idle>>]>,
    /// New connections that wait for a thread of the instance.
    claims: Claims,
    /// By worker too: connections over HTTP/2.
    multiplexed: Box<[Multiplexed]>,
    /// Sweeps so far: a clock that costs nothing to read.
    sweeps: AtomicU32,
    /// True: connections are not kept after their use.
    closed: AtomicBool,
}

#[derive(Debug)]
struct Idle {
    link: Link,
    /// The sweep that it was put back after.
    since: u32,
}

impl Upstream {
    pub fn new(instance: InstanceId, address: SocketAddr, workers: usize) -> Self {
        let idle = (0..workers.max(1)).map(|_| Mutex::default()).collect();
        let multiplexed = (0..workers.max(1)).map(|_| Multiplexed::default()).collect();
        Self {
            instance,
            address,
            listener: Listener::default(),
            idle,
            claims: Claims::default(),
            multiplexed,
            sweeps: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Which instance it is.
    pub fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// A config lists the instance at this address, where user `told` listens if it says so.
    pub fn note_listed(&self, told: Option<u32>) {
        self.listener.note_listed(Instant::now(), told);
    }

    /// Whether who takes datagrams at the address is still the instance.
    ///
    /// # Errors
    /// It is not, or it cannot be told any more.
    pub fn confirm_receiver(&self) -> io::Result<()> {
        self.listener.confirm_receiver(Instant::now(), self.address, receiving_user_at)
    }

    /// An open connection that has room for a request; `None` when there is none. Where the request may not be repeated, it is open for sure as far
    /// as this machine knows.
    pub fn take(&self, worker: usize, speech: Speech, may_be_repeated: bool) -> Option<Lease> {
        if speech.protocol == InstanceProtocol::H2c {
            return self.multiplexed(worker).take().map(|lane| Lease::H2(Box::new(lane)));
        }
        loop {
            let link = self.pop(worker, speech.announced)?;
            if link.is_usable(may_be_repeated) {
                return Some(Lease::H1(link));
            }
        }
    }

    /// The last connection that was put back of those that are of the same client.
    fn pop(&self, worker: usize, announced: Option<Announced>) -> Option<Link> {
        let mut list = self.list(worker);
        // Without announcements it is the last of all.
        let at = list.iter().rposition(|idle| idle.link.announced() == announced)?;
        Some(list.remove(at).link)
    }

    /// A new connection.
    pub async fn connect(&self, worker: usize, speech: Speech, limits: &Limits) -> io::Result<Lease> {
        if speech.protocol == InstanceProtocol::H2c {
            let keep = !self.is_closed();
            return self
                .multiplexed(worker)
                .open(limits, keep, self.connect_stream(None, limits))
                .await
                .map(|lane| Lease::H2(Box::new(lane)));
        }
        let stream = self.connect_stream(speech.announced, limits).await?;
        Ok(Lease::H1(Link::open(stream, speech.announced)))
    }

    /// A new connection, still without protocol, on which the instance has been told whose it is.
    pub async fn connect_stream(&self, announced: Option<Announced>, limits: &Limits) -> io::Result<TcpStream> {
        let connecting = async {
            let mut stream = TcpStream::connect(self.address).await?;
            self.listener.confirm(Instant::now(), self.address, user_at(self.address))?;
            stream.set_nodelay(true)?;
            if let Some(announced) = announced {
                stream.write_all(&announced.header()).await?;
            }
            Ok(stream)
        };
        tokio::time::timeout(limits.connect, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Keeps a connection whose exchange has ended. Whether either side wants it closed shows when it is taken out again.
    pub fn put_back(&self, worker: usize, lease: Lease, limits: &Limits) {
        let Lease::H1(mut link) = lease else { return };
        if !link.is_reusable() || self.is_closed() {
            return;
        }
        if self.claims.meet() {
            return;
        }
        link.note_use();
        let mut list = self.list(worker);
        if list.len() >= limits.idle_upstreams {
            // Those of other clients may never be used again.
            if link.announced().is_none() {
                return;
            }
            list.remove(0);
        }
        list.push(Idle { link, since: self.sweeps.load(Ordering::Relaxed) });
    }

    /// A new connection waits for its first answer, for as long as the result lives: gives up an idle one for it, now or as soon as there is one.
    pub fn make_room(&self) -> Claim {
        // The oldest of a worker: the last ones are used again first.
        let oldest = (0..self.idle.len()).find_map(|worker| {
            let mut list = self.list(worker);
            (!list.is_empty()).then(|| list.remove(0))
        });
        self.claims.make(oldest.is_some())
    }

    /// A new connection was answered without such a claim.
    pub fn note_unclaimed(&self) {
        self.claims.note_unclaimed();
    }

    /// Closes what is idle, and from now on each connection after its use.
    pub fn close_idle(&self) {
        self.closed.store(true, Ordering::Relaxed);
        for worker in 0..self.idle.len() {
            let closed = std::mem::take(&mut *self.list(worker));
            drop(closed);
            self.multiplexed(worker).close();
        }
    }

    /// True once [`Upstream::close_idle`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes what has been idle for `sweeps` calls of this.
    pub fn sweep(&self, sweeps: u32) {
        let now = self.sweeps.fetch_add(1, Ordering::Relaxed);
        for worker in 0..self.idle.len() {
            let mut list = self.list(worker);
            // The last to be put back is the first to be taken, so the old ones are in front.
            let old = list.iter().take_while(|entry| now.wrapping_sub(entry.since) >= sweeps).count();
            let closed: Vec<Idle> = list.drain(..old).collect();
            drop(list);
            drop(closed);
            self.multiplexed(worker).sweep(now, sweeps);
        }
    }

    fn multiplexed(&self, worker: usize) -> &Multiplexed {
        &self.multiplexed[worker % self.multiplexed.len()]
    }

    fn list(&self, worker: usize) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle[worker % self.idle.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::task::Context;

    use http::{Method, Request};

    use super::*;
    use crate::http::interim::Interim;
    use crate::http::request_body::RequestBody;
    use crate::upstream::attempt::{Meanwhile, Outbound};

    const SPEECH: Speech = Speech { protocol: InstanceProtocol::Http1, announced: None };

    struct Nothing;

    impl Meanwhile for Nothing {
        fn handle_interim(&mut self, _: Interim) {}

        fn poll_change(&mut self, _: &mut Context<'_>) -> bool {
            false
        }
    }

    /// An instance that has answered a request with `answer`, and its connection, which was put back. What the instance does afterwards reaches the
    /// gateway's socket at once, and the runtime, which waits for nothing in between, does not learn of it.
    async fn answered(method: Method, answer: &str) -> (Upstream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = Upstream::new("shop-0".into(), listener.local_addr().unwrap(), 1);
        let limits = Limits::default();
        let mut lease = upstream.connect(0, SPEECH, &limits).await.unwrap();
        let mut instance = listener.accept().unwrap().0;
        instance.write_all(answer.as_bytes()).unwrap();
        let mut request = Request::new(RequestBody::Empty);
        *request.method_mut() = method;
        lease.exchange(&mut Some(Outbound::from(request)), &mut Nothing).await.unwrap();
        assert!(lease.is_end_stream());
        upstream.put_back(0, lease, &limits);
        (upstream, instance)
    }

    fn is_taken(upstream: &Upstream, may_be_repeated: bool) -> bool {
        upstream.take(0, SPEECH, may_be_repeated).is_some()
    }

    #[tokio::test]
    async fn what_follows_an_answer_that_has_no_body_answers_nothing() {
        for (method, head) in [
            (Method::HEAD, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"),
            (Method::GET, "HTTP/1.1 204 No Content\r\n\r\n"),
            (Method::GET, "HTTP/1.1 304 Not Modified\r\n\r\n"),
        ] {
            let (upstream, _instance) = answered(method.clone(), head).await;
            assert!(is_taken(&upstream, true), "{head}");
            let (upstream, mut instance) = answered(method, head).await;
            instance.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            assert!(!is_taken(&upstream, true), "{head}");
        }
    }

    #[tokio::test]
    async fn a_connection_whose_answer_said_a_length_that_it_may_not_have_is_not_used_again() {
        for field in ["content-length: 5", "transfer-encoding: chunked"] {
            let (upstream, _instance) = answered(Method::GET, &format!("HTTP/1.1 204 No Content\r\n{field}\r\n\r\n")).await;
            assert!(!is_taken(&upstream, true), "{field}");
        }
        let (upstream, _instance) = answered(Method::GET, "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n").await;
        assert!(is_taken(&upstream, true));
    }

    #[tokio::test]
    async fn what_cannot_be_sent_again_takes_no_connection_that_its_instance_has_closed() {
        let (upstream, instance) = answered(Method::GET, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        drop(instance);
        assert!(!is_taken(&upstream, false));
        let (upstream, _instance) = answered(Method::GET, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        assert!(is_taken(&upstream, false));
    }
}
