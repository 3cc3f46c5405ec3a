//! The certificate of the API on its way to the controller: read at its every start, handed over in memory that has no name.
//!
//! Only the supervisor reads the private key. What changes of its files is taken by the next controller, which begins at once.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use weal_model::ApiTls;
use weal_protocol::tls::ApiCertificate;

use super::stamp::{Stamp, stamp};
use crate::certificate::open_mode;

/// The files of one pool's API.
pub struct ApiTlsFiles {
    spec: ApiTls,
    /// What can be used, as it was read last.
    good: ApiCertificate,
    seen: Vec<Option<Stamp>>,
    changing: Vec<Option<Stamp>>,
}

impl ApiTlsFiles {
    /// Those that `spec` names.
    ///
    /// # Errors
    /// They cannot be used: the pool shall not start then.
    pub fn new(spec: &ApiTls) -> anyhow::Result<Self> {
        // The stamps come first: what is written while they are read changes them.
        let seen = stamps(spec);
        let good = read(spec)?;
        Ok(Self { spec: spec.clone(), good, changing: seen.clone(), seen })
    }

    /// Takes what has changed. `None` while nothing has, or it is being written; otherwise whether it can be used.
    pub fn look(&mut self) -> Option<anyhow::Result<()>> {
        let now = stamps(&self.spec);
        let is_settled = now == self.changing;
        self.changing.clone_from(&now);
        if now == self.seen || !is_settled {
            return None;
        }
        self.seen = now;
        Some(read(&self.spec).map(|good| self.good = good))
    }

    /// For the next controller: a file without a name, which ends with the processes that hold it.
    ///
    /// # Errors
    /// The system gives no memory for it.
    pub fn for_start(&self) -> anyhow::Result<OwnedFd> {
        let mut memory = File::from(memfd_create(c"weal-api-tls", MemfdFlags::CLOEXEC)?);
        memory.write_all(&serde_json::to_vec(&self.good)?)?;
        memory.rewind()?;
        Ok(memory.into())
    }
}

fn paths(spec: &ApiTls) -> impl Iterator<Item = &String> {
    [&spec.certificate, &spec.key].into_iter().chain(&spec.client_ca)
}

fn stamps(spec: &ApiTls) -> Vec<Option<Stamp>> {
    paths(spec).map(|path| stamp(Path::new(path))).collect()
}

fn read(spec: &ApiTls) -> anyhow::Result<ApiCertificate> {
    let text = |path: &String| fs::read_to_string(path).with_context(|| format!("api-tls in [pool]: cannot read {path}"));
    let key = &spec.key;
    let open = open_mode(Path::new(key)).with_context(|| format!("api-tls in [pool]: cannot read {key}"))?;
    if let Some(mode) = open {
        bail!("api-tls in [pool]: everybody may read the private key {key} (mode {mode:o}): chmod o-rwx {key}");
    }
    let client_ca = spec.client_ca.as_ref().map(text).transpose()?;
    let certificate = ApiCertificate { chain: text(&spec.certificate)?, key: text(&spec.key)?, client_ca };
    weal_controller::acceptor(&certificate).context("api-tls in [pool]")?;
    Ok(certificate)
}
