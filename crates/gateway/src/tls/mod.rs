//! TLS towards clients: which certificate a client gets, how sessions are resumed, and what is counted.

mod certificates;
pub(crate) mod challenges;
mod error;
mod tickets;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{Semaphore, watch};
use tokio_rustls::rustls;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::NoServerSessionStorage;
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

/// A gateway's TLS: what is in force, and what was counted.
#[derive(Debug)]
pub(crate) struct Tls {
    current: watch::Sender<Option<Arc<ServerConfig>>>,
    shown: RwLock<Arc<Shown>>,
    /// 0 redirects nothing.
    redirect_port: AtomicU32,
    /// Handshakes that may be under way at once.
    pub permits: Semaphore,
    full: AtomicU64,
    resumed: AtomicU64,
    failed: AtomicU64,
}

/// How a handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeEnd {
    Full,
    Resumed,
    Failed,
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
        }
    }

    /// Takes `config` for handshakes that begin from now on, as a whole or not at all.
    pub fn configure(&self, config: &TlsConfig) -> Result<(), TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificates = Certificates::load(&config.certificates, &provider)?;
        let shown = Shown::load(&config.challenges, &provider)?;
        let versions: &[_] = match config.min_version {
            TlsVersion::V12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::V13 => &[&rustls::version::TLS13],
        };
        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).map_err(TlsError::Version)?;
        let mut server = builder.with_no_client_auth().with_cert_resolver(Arc::new(certificates));
        server.alpn_protocols = protocols();
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.ticketer = Arc::new(Tickets::new(&config.ticket_keys).ok_or(TlsError::NoTicketKey)?);
        self.redirect_port.store(config.redirect_port.map_or(0, u32::from), Ordering::Release);
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(shown);
        self.current.send_replace(Some(Arc::new(server)));
        Ok(())
    }

    /// What is in force.
    pub fn current(&self) -> Option<Arc<ServerConfig>> {
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
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn counters(&self) -> TlsCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TlsCounters { full: read(&self.full), resumed: read(&self.resumed), failed: read(&self.failed) }
    }
}
