//! Certificates and keys on their way to the gateway: at its every start, and whenever a file, the config or the key for tickets changes.
//!
//! Only the supervisor reads private keys. They go over the gateway's local socket, which nobody but the gateway's user and root may call.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use weal_model::PoolSpec;
use weal_protocol::tls::{CERTIFY, Challenges, TlsConfig};

use super::acme::Show;
use super::console::Console;
use super::stamp::{LOOK, Stamp, stamp};
use super::tickets::TicketKeys;
use crate::certificate::{files, make_missing, read_all};
use crate::output::Tone;
use crate::role_name::RoleName;
use crate::state::StateDir;

/// Between two attempts while the gateway does not answer.
const RETRY: Duration = Duration::from_millis(50);
/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Feeds the gateway of one pool.
pub struct SecureFeed {
    state: StateDir,
    console: Console,
    folder: PathBuf,
    tickets: TicketKeys,
    spec: PoolSpec,
    /// What authorities are to be shown now.
    challenges: Challenges,
    gateway: weal_rpc::Client,
}

type Stamps = BTreeMap<PathBuf, Option<Stamp>>;

impl SecureFeed {
    /// Checks what `spec` names.
    ///
    /// # Errors
    /// Something cannot be used: the pool shall not start then.
    pub fn new(state: &StateDir, console: &Console, spec: &PoolSpec) -> anyhow::Result<Self> {
        let folder = state.tls();
        let mut tickets = TicketKeys::open(&folder);
        if spec.tls.is_some() {
            tickets.rotate().context("cannot make a key for TLS session tickets")?;
        }
        let gateway = weal_rpc::Client::new(state.socket(RoleName::Gateway), PATIENCE);
        let feed = Self {
            state: state.clone(),
            console: console.clone(),
            folder,
            tickets,
            spec: spec.clone(),
            challenges: Challenges::default(),
            gateway,
        };
        feed.read()?;
        Ok(feed)
    }

    /// Runs for as long as the supervisor does. `specs` tells the config in force, `starts` counts the gateway's starts, and `shows` says what
    /// authorities are to be shown.
    pub async fn run(
        mut self,
        mut specs: watch::Receiver<PoolSpec>,
        mut starts: watch::Receiver<u64>,
        mut shows: mpsc::Receiver<Show>,
    ) {
        let (mut seen, mut changing) = (self.stamps(), None);
        self.push().await;
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                changed = specs.changed() => {
                    if changed.is_err() { return }
                    self.spec = specs.borrow_and_update().clone();
                    seen = self.stamps();
                    self.push().await;
                }
                changed = starts.changed() => {
                    if changed.is_err() { return }
                    self.push().await;
                }
                Some(Show { challenges, done }) = shows.recv() => {
                    self.challenges = challenges;
                    let is_shown = self.push().await;
                    // The one who asked may have given up meanwhile.
                    let _ = done.send(is_shown);
                }
                _ = look.tick() => {
                    let now = self.stamps();
                    if now != seen && changing.as_ref() == Some(&now) {
                        seen = now.clone();
                        if self.push().await {
                            self.console.tell(Tone::Good, "https:", "took the changed certificates");
                        }
                    } else if self.is_time_for_tickets() {
                        self.push().await;
                    }
                    changing = Some(now);
                }
            }
        }
    }

    fn is_time_for_tickets(&mut self) -> bool {
        self.spec.tls.is_some() && self.tickets.rotate().unwrap_or_default()
    }

    fn stamps(&self) -> Stamps {
        let all = self.spec.tls.iter().flat_map(|tls| &tls.certificates);
        let paths = all.flat_map(|(name, source)| files(name, source, &self.folder));
        paths.map(|path| (path.clone(), stamp(&path))).collect()
    }

    /// What the gateway needs; `None` without https.
    fn read(&self) -> anyhow::Result<Option<TlsConfig>> {
        let Some(tls) = &self.spec.tls else { return Ok(None) };
        make_missing(&self.spec, &self.folder)?;
        let read = read_all(&self.spec, &self.folder)?;
        for warning in read.iter().filter_map(|one| one.warning()) {
            self.console.tell(Tone::Warn, "https:", &warning);
        }
        Ok(Some(TlsConfig {
            certificates: read.into_iter().map(|one| one.certificate).collect(),
            ticket_keys: self.tickets.keys(),
            min_version: tls.min_version,
            redirect_port: tls.redirects.then_some(tls.listen.port()),
            challenges: self.challenges.clone(),
        }))
    }

    /// True when the gateway has taken it. What cannot be used leaves the former in force.
    async fn push(&self) -> bool {
        let config = match self.read() {
            Ok(Some(config)) => config,
            Ok(None) => return false,
            Err(error) => return self.say_refused(&format!("{error:#}")),
        };
        loop {
            match self.gateway.call(CERTIFY, &config).await {
                Ok(()) => return true,
                Err(weal_rpc::Error::Unreachable { .. } | weal_rpc::Error::TimedOut { .. }) => tokio::time::sleep(RETRY).await,
                Err(error) => return self.say_refused(&format!("{error} (see {})", self.state.log("gateway").display())),
            }
        }
    }

    fn say_refused(&self, why: &str) -> bool {
        self.console.tell(Tone::Bad, "https:", &format!("{why}; the certificates before stay in force"));
        false
    }
}
