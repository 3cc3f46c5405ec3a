//! What a gateway puts up with. Each protects the process from one kind of client or instance.

use std::time::Duration;

/// Fields of a head that hyper has room for unless it is told otherwise. With any other limit it allocates that room anew for each
/// head, two blocks of several kilobytes.
pub(crate) const FIELDS_ON_STACK: usize = 100;

/// The limits of one gateway process. The defaults are for a gateway that faces the internet.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Open client connections. One costs about 25 kB and a file descriptor; when the limit is reached, the connections that
    /// have been idle the longest are closed, and if none is idle the new one is refused.
    pub connections: usize,
    /// Connections that have sent a part of a request's head and not yet the rest. One costs about 70 kB; beyond, those that have taken the
    /// longest are closed.
    pub half_heads: usize,
    /// From the first byte of a request's head to its last. Too short cuts slow phones off, too long lets a few clients hold
    /// many connections with a byte a second.
    pub head: Duration,
    /// Between two requests of a connection. Longer than the 60 s after which some browsers drop theirs.
    pub idle: Duration,
    /// The same of a connection that rests, while fewer than half of all that may be are open. Clients think, and the longest think time costs
    /// them less than another handshake (Carrera 4.4.2.2, Figure 4.13).
    pub resting: Duration,
    /// How long a connection over HTTP/1 is idle before it rests: what HTTP's machinery holds for it is freed, about 20 kB. Shorter, and that is
    /// made anew for requests that follow each other; longer, and a crowd that thinks fills the memory.
    pub rests_after: Duration,
    /// Connections over HTTP/1 that are idle and do not rest yet: beyond so many, those that have been idle the longest rest at once. Each holds
    /// about 20 kB, and what many hold at the same time lies between what they keep: freed later, its pages are of use to nobody else. Fewer,
    /// and connections that are used every second rest in between.
    pub awake: usize,
    /// What a client that reads slowly may let pass in all beyond what the least rate allows. Its request keeps its seat meanwhile. Without
    /// a least rate, the time without the client taking a single byte.
    pub stalled_write: Duration,
    /// The same for a client that sends the body of a request. A phone that changes its network is away for some seconds.
    pub slow_body: Duration,
    /// Requests that wait at once for their bodies without a seat. Each holds [`Limits::gathered_bytes`] at most.
    pub gathers: usize,
    /// Bytes of a request's body that the gateway reads before the request has a seat. Forms and messages are shorter; more costs memory.
    pub gathered_bytes: usize,
    /// Without the instance sending a single byte of a response that it has begun. Longer than the pauses of event streams.
    pub stalled_response: Duration,
    /// Until a connection to an instance stands. Instances are near; a full backlog drops the attempt and the kernel would
    /// try again after 1 s, so this allows one such repetition.
    pub connect: Duration,
    /// Bytes of a request's head, all lines together. Cookies of 8 kB are common, 64 kB never.
    pub head_bytes: usize,
    /// Requests that one client may have under way over one connection of HTTP/2. Browsers are content with 100.
    pub streams: u32,
    /// Bytes of one request's body that may be on their way over HTTP/2 while nobody takes them.
    pub stream_window: u32,
    /// As for one request, but of all requests of a connection: 16 may stand still before the others do.
    pub connection_window: u32,
    /// As for one connection of a client, for one to an instance over HTTP/2. It carries answers to many clients, and slow ones must not
    /// hold up the others.
    pub upstream_window: u32,
    /// Bytes of one answer that wait for a client to take them, over HTTP/2. Less, and a fast client waits.
    pub stream_buffer: usize,
    /// Fields of a request's head. As many as Apache and HAProxy take; up to 100, reading a head allocates nothing.
    pub head_fields: usize,
    /// From SIGTERM to the end of what is still running then.
    pub drain: Duration,
    /// How long a connection has had no request when it is closed at the end without an answer to say so first. Shorter, and requests that are
    /// on their way are lost; longer, and the end takes longer.
    pub quiet: Duration,
    /// How long clients wait at the start of a gateway that has no config. The controller brings it within a fraction of a second.
    pub first_config: Duration,
    /// Connections kept open to one instance by each worker while nothing uses them.
    pub idle_upstreams: usize,
    /// How long such a connection is kept. Shorter than the keep-alive of common servers (node: 5 s), which would
    /// otherwise close it just as it is used.
    pub idle_upstream: Duration,
    /// UDP sessions of one port that are open at once. Each takes a file descriptor, and anybody can forge the addresses of some.
    pub udp_sessions: usize,
    /// From a connection's acceptance to the end of its TLS handshake. A slow phone needs two or three round trips.
    pub handshake: Duration,
    /// From a connection's acceptance to the end of the header with which a proxy begins it. Section 2 of the PROXY protocol asks for 3 s
    /// at least, so that one lost segment costs no connection.
    pub proxy_header: Duration,
    /// TLS handshakes that are under way at once, from the client's first word that was understood. Those beyond wait, within the same time:
    /// each holds about 40 kB.
    pub handshakes: usize,
    /// Whether new TLS sessions wait for those under way, and are turned away when they would wait too long. Off only to measure what it does.
    pub orders_handshakes: bool,
    /// Answers that are compressed at once. Each takes about a MiB; those beyond go out as they are.
    pub compressions: usize,
    /// Threads that serve requests.
    pub workers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            half_heads: 2000,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            resting: Duration::from_secs(900),
            rests_after: Duration::from_secs(2),
            awake: 1000,
            stalled_write: Duration::from_secs(30),
            slow_body: Duration::from_secs(10),
            gathers: 1024,
            gathered_bytes: 64 << 10,
            stalled_response: Duration::from_secs(300),
            connect: Duration::from_millis(1500),
            head_bytes: 32 << 10,
            streams: 128,
            stream_window: 64 << 10,
            connection_window: 1 << 20,
            upstream_window: 4 << 20,
            stream_buffer: 64 << 10,
            head_fields: FIELDS_ON_STACK,
            drain: Duration::from_secs(25),
            quiet: Duration::from_secs(2),
            first_config: Duration::from_secs(5),
            idle_upstreams: 256,
            idle_upstream: Duration::from_secs(4),
            udp_sessions: 4096,
            handshake: Duration::from_secs(10),
            proxy_header: Duration::from_secs(5),
            handshakes: 1024,
            orders_handshakes: true,
            compressions: 128,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
