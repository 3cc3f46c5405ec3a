//! TLS towards clients: which certificate a client gets, how sessions are resumed, and what is counted.

mod certificates;
pub(crate) mod challenges;
mod error;
pub(crate) mod hello;
mod tickets;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::{self, cipher_suite};
use tokio_rustls::rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets as _};
use tokio_rustls::rustls::{CipherSuite, ServerConfig, SignatureAlgorithm};
use weal_control::admission::handshakes::Effort;
use weal_model::TlsVersion;
use weal_protocol::gateway::TlsCounters;
use weal_protocol::tls::TlsConfig;

use certificates::Certificates;
use challenges::Shown;
use error::TlsError;
use tickets::Tickets;

/// What is spoken over TLS, best first.
fn protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

/// What keys are agreed on with and bytes are encrypted by, the gateway's choice first: AES where clients have instructions for it, and with the
/// shorter key, which is as safe and cheaper. All have forward secrecy. Which of them clients want is asked where it matters
/// ([`InForce::config`]).
fn provider() -> CryptoProvider {
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    CryptoProvider { cipher_suites, ..ring::default_provider() }
}

/// Those that need no instructions of their own to be fast.
const CHACHA: [CipherSuite; 3] = [
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// A gateway's TLS: what is in force, and what was counted.
#[derive(Debug)]
pub(crate) struct Tls {
    current: watch::Sender<Option<Arc<InForce>>>,
    shown: RwLock<Arc<Shown>>,
    /// 0 redirects nothing.
    redirect_port: AtomicU32,
    /// Handshakes that may be under way at once.
    pub permits: Semaphore,
    full: AtomicU64,
    resumed: AtomicU64,
    failed: AtomicU64,
    turned_away: AtomicU64,
    /// Nanoseconds of CPU.
    full_cpu_ns: AtomicU64,
    resumed_cpu_ns: AtomicU64,
}

/// How hands are shaken now.
#[derive(Debug)]
pub(crate) struct InForce {
    server: Arc<ServerConfig>,
    /// The same, where the client chooses the cipher.
    by_client: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
}

impl InForce {
    /// How hands are shaken with a client that says this. One that wants ChaCha20 before all others has no instructions for AES.
    pub fn config(&self, hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        let known = &self.server.crypto_provider().cipher_suites;
        let first = hello.cipher_suites().iter().find(|wanted| known.iter().any(|known| known.suite() == **wanted));
        let config = if first.is_some_and(|first| CHACHA.contains(first)) { &self.by_client } else { &self.server };
        Arc::clone(config)
    }

    /// What a handshake takes that begins so. Only a ticket that opens counts: nobody gets ahead with one that he has made up.
    pub fn effort(&self, hello: &ClientHello<'_>, ticket: Option<&[u8]>) -> Effort {
        if ticket.is_some_and(|ticket| self.tickets.decrypt(ticket).is_some()) {
            return Effort::Resumed;
        }
        match self.certificates.algorithm(hello.server_name()) {
            Some(SignatureAlgorithm::RSA) => Effort::FullByRsa,
            _ => Effort::FullByCurve,
        }
    }
}

/// How a handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeEnd {
    Full,
    Resumed,
    Failed,
    /// Others wait for too long already.
    TurnedAway,
}

impl Tls {
    /// Nothing is in force yet. At most `handshakes` are under way at once.
    pub fn new(handshakes: usize) -> Self {
        Self {
            current: watch::Sender::new(None),
            shown: RwLock::default(),
            redirect_port: AtomicU32::new(0),
            permits: Semaphore::new(handshakes),
            full: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            full_cpu_ns: AtomicU64::new(0),
            resumed_cpu_ns: AtomicU64::new(0),
        }
    }

    /// Takes `config` for handshakes that begin from now on, as a whole or not at all.
    pub fn configure(&self, config: &TlsConfig) -> Result<(), TlsError> {
        let provider = Arc::new(provider());
        let certificates = Arc::new(Certificates::load(&config.certificates, &provider)?);
        let tickets = Arc::new(Tickets::new(&config.ticket_keys).ok_or(TlsError::NoTicketKey)?);
        let shown = Shown::load(&config.challenges, &provider)?;
        let versions: &[_] = match config.min_version {
            TlsVersion::V12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::V13 => &[&rustls::version::TLS13],
        };
        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).map_err(TlsError::Version)?;
        let mut server = builder.with_no_client_auth().with_cert_resolver(certificates.clone());
        server.alpn_protocols = protocols();
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.ticketer = tickets.clone();
        let by_client = Arc::new(server.clone());
        server.ignore_client_order = true;
        self.redirect_port.store(config.redirect_port.map_or(0, u32::from), Ordering::Release);
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(shown);
        self.current.send_replace(Some(Arc::new(InForce { server: Arc::new(server), by_client, certificates, tickets })));
        Ok(())
    }

    /// What is in force.
    pub fn current(&self) -> Option<Arc<InForce>> {
        self.current.borrow().clone()
    }

    /// What authorities are shown now.
    pub fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something is in force.
    pub async fn ready(&self) {
        let mut current = self.current.subscribe();
        // The sender lives as long as this does.
        let _ = current.wait_for(Option::is_some).await;
    }

    /// Where requests without TLS are sent on to.
    pub fn redirect_port(&self) -> Option<u16> {
        match self.redirect_port.load(Ordering::Acquire) {
            0 => None,
            port => u16::try_from(port).ok(),
        }
    }

    pub fn count(&self, end: HandshakeEnd) {
        let counter = match end {
            HandshakeEnd::Full => &self.full,
            HandshakeEnd::Resumed => &self.resumed,
            HandshakeEnd::Failed => &self.failed,
            HandshakeEnd::TurnedAway => &self.turned_away,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// What the costly part of a handshake took of a CPU.
    pub fn count_cost(&self, effort: Effort, cost: Duration) {
        let counter = if effort == Effort::Resumed { &self.resumed_cpu_ns } else { &self.full_cpu_ns };
        counter.fetch_add(u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn counters(&self) -> TlsCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| Duration::from_nanos(read(counter)).as_secs_f64();
        TlsCounters {
            full: read(&self.full),
            resumed: read(&self.resumed),
            failed: read(&self.failed),
            turned_away: read(&self.turned_away),
            full_cpu_s: seconds(&self.full_cpu_ns),
            resumed_cpu_s: seconds(&self.resumed_cpu_ns),
        }
    }
}
