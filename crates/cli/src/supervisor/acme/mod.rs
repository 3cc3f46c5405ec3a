//! Certificates that an authority gives (ACME, RFC 8555): when one is asked for, how the hosts are proven, and where it is kept.
//!
//! The supervisor asks, because it alone may hold private keys. The gateway shows the proofs.

mod error;
mod https;
mod order;
mod proofs;
mod schedule;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use weal_host::files::replace;
use weal_model::{AcmeSpec, CertificateSource, PoolSpec};
use weal_protocol::tls::Challenges;

use super::console::Console;
use crate::certificate::{self, Validity, WARN_DAYS, now_s, own_files};
use crate::output::Tone;
use crate::state::StateDir;

use error::AcmeError;
use order::{Given, Order};
use proofs::Proofs;
pub use proofs::Show;
use schedule::Schedule;

/// Between two looks at what is due.
const LOOK: Duration = Duration::from_secs(1);
/// How long one certificate may take: an authority's checks from several places take up to a minute.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often an authority is asked again at once that has forgotten its nonce.
const AGAIN: u32 = 5;

/// Asks authorities for the certificates of one pool.
pub struct Acme {
    folder: PathBuf,
    console: Console,
    proofs: Proofs,
    /// By the certificates' names.
    schedules: BTreeMap<String, Schedule>,
}

impl Acme {
    /// Keeps certificates and accounts in the state directory. Proofs go to `shows`.
    pub fn new(state: &StateDir, console: &Console, shows: mpsc::Sender<Show>) -> Self {
        Self { folder: state.tls(), console: console.clone(), proofs: Proofs::new(shows), schedules: BTreeMap::new() }
    }

    /// Runs for as long as the supervisor does. `specs` tells the config in force.
    pub async fn run(mut self, specs: watch::Receiver<PoolSpec>) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let wanted = wanted(&specs.borrow());
            self.schedules.retain(|name, _| wanted.iter().any(|(wanted, _)| wanted == name));
            for (name, spec) in wanted {
                if self.is_due(&name, &spec) {
                    self.renew(&name, &spec).await;
                }
            }
        }
    }

    fn is_due(&mut self, name: &str, spec: &AcmeSpec) -> bool {
        // Files are not read each second of a pause.
        if self.schedules.get(name).is_some_and(|schedule| schedule.pauses(now_s(), spec)) {
            return false;
        }
        let held = self.held(name, spec);
        self.schedules.entry(name.to_owned()).or_default().is_due(now_s(), spec, held.as_ref())
    }

    /// The certificate on disk, if it is one of these hosts.
    fn held(&self, name: &str, spec: &AcmeSpec) -> Option<Validity> {
        let read = certificate::read(name, own_files(name, &self.folder)).ok()?;
        let has = |host: &String| read.certificate.hosts.contains(host);
        spec.hosts.iter().all(has).then_some(read.validity)
    }

    async fn renew(&mut self, name: &str, spec: &AcmeSpec) {
        let asked = tokio::time::timeout(PATIENCE, self.ask(name, spec)).await.unwrap_or(Err(AcmeError::TooSlow(PATIENCE)));
        // Whatever came of it, nobody asks for these proofs any more.
        let _ = self.proofs.show(Challenges::default()).await;
        let Some(schedule) = self.schedules.get_mut(name) else { return };
        match asked {
            Ok(()) => {
                schedule.handle_success();
                self.console.tell(Tone::Good, "https:", &format!("[tls.{name}]: {} gave a certificate", authority(spec)));
            }
            Err(error) => {
                let wait = schedule.handle_failure(now_s(), spec);
                let tone = if self.held(name, spec).is_some_and(|held| held.days_left(now_s()) >= WARN_DAYS) {
                    Tone::Warn
                } else {
                    Tone::Bad
                };
                let text = format!(
                    "[tls.{name}]: no certificate from {}: {error}; trying again in {} s",
                    authority(spec),
                    wait.as_secs()
                );
                self.console.tell(tone, "https:", &text);
            }
        }
    }

    /// Gets a certificate and keeps it.
    async fn ask(&self, name: &str, spec: &AcmeSpec) -> Result<(), AcmeError> {
        let order = Order { spec, folder: &self.folder, proofs: &self.proofs };
        let mut given = order.run().await;
        for _ in 0..AGAIN {
            if !given.as_ref().is_err_and(AcmeError::is_nonce) {
                break;
            }
            given = order.run().await;
        }
        let Given { chain, key } = given?;
        let [chain_file, key_file] = own_files(name, &self.folder);
        let kept = replace(&key_file, key.as_bytes()).and_then(|()| replace(&chain_file, chain.as_bytes()));
        kept.map_err(|source| AcmeError::Kept { path: chain_file, source })
    }
}

/// The certificates that authorities give.
fn wanted(spec: &PoolSpec) -> Vec<(String, AcmeSpec)> {
    let all = spec.tls.iter().flat_map(|tls| &tls.certificates);
    let of_authorities = all.filter_map(|(name, source)| match source {
        CertificateSource::Acme(spec) => Some((name.clone(), spec.clone())),
        _ => None,
    });
    of_authorities.collect()
}

/// Who gives the certificate, for people.
fn authority(spec: &AcmeSpec) -> &str {
    let rest = spec.directory.strip_prefix("https://").unwrap_or(&spec.directory);
    rest.split('/').next().unwrap_or(rest)
}
