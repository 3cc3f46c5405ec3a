//! The config file: reading, checking, and what cannot change while a pool runs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use weal_config::{Diagnostic, Level, MachineSize, render_all};
use weal_host::Proc;
use weal_host::machine::cpus;
use weal_model::{Bytes, PoolSpec};

use weal_protocol::controller::{ConfigTaken, ConfigUpdate};

use crate::allowed::{self, OwnText};
use crate::args::PoolArgs;
use crate::client::{Client, Error};
use crate::failure::{Exit, Failure};
use crate::machine_check;
use crate::output::{self, Stream, colored};
use crate::state::{DEFAULT_FILE, StateDir, absolute_config};
use crate::trust;

/// A config file that can be used.
pub struct Loaded {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// What it says.
    pub spec: PoolSpec,
    /// What somebody should look at.
    pub warnings: Vec<Diagnostic>,
}

impl Loaded {
    /// Its text, with where it was read.
    pub fn own_text(&self) -> OwnText<'_> {
        OwnText { text: &self.text, path: &self.path }
    }
}

/// A config that somebody means to bring out.
#[derive(Debug)]
pub struct Change {
    /// Of the pool that it is for.
    pub state: StateDir,
    /// Where it was read.
    pub path: PathBuf,
    /// The same as it was named, with the links on the way.
    named: PathBuf,
    /// Its text.
    pub text: String,
    /// What it says.
    pub spec: PoolSpec,
    warnings: Vec<Diagnostic>,
    origin: String,
}

impl Change {
    /// The config file of `target`; `origin` says what brings it.
    ///
    /// # Errors
    /// As [`load`].
    pub fn of_file(target: &PoolArgs, origin: &str) -> anyhow::Result<Self> {
        let named = target.file.clone().unwrap_or_else(|| DEFAULT_FILE.into());
        let Loaded { path, text, spec, warnings } = load(&named)?;
        Ok(Self { state: StateDir::find(target)?, path, named, text, spec, warnings, origin: origin.to_owned() })
    }

    /// A text that was read at `path` once.
    ///
    /// # Errors
    /// [`Exit::ConfigInvalid`] when this version of weal does not take it any more.
    pub fn of_text(state: StateDir, text: String, path: &Path, origin: &str) -> anyhow::Result<Self> {
        let Loaded { path, text, spec, warnings } = parsed(path.to_owned(), text)?;
        Ok(Self { state, named: path.clone(), path, text, spec, warnings, origin: origin.to_owned() })
    }

    /// Says what is allowed but probably not meant.
    pub fn warn(&self) {
        if !self.warnings.is_empty() {
            output::complain(render_all(&self.warnings, &self.text, colored(Stream::Err)).trim_end());
        }
    }

    /// What would change.
    ///
    /// # Errors
    /// The pool would have to be restarted for it, or the controller does not take it.
    pub async fn rehearse(&self, client: &Client) -> anyhow::Result<ConfigTaken> {
        let in_force = client.config().await.map_err(Error::into_failure)?;
        if let Some(why) = in_force.spec.as_ref().and_then(|spec| needs_restart(spec, &self.spec)) {
            return Err(Failure::new(Exit::ConfigInvalid, format!("{}: {why}", self.path.display())).into());
        }
        Ok(client.put_config(&self.update(true)).await.map_err(Error::into_failure)?)
    }

    /// Puts it in force.
    ///
    /// # Errors
    /// As [`Self::rehearse`]; others than root could change its file.
    pub async fn put(&self, client: &Client) -> anyhow::Result<ConfigTaken> {
        // First whether a pool runs at all: without one there is no folder to be trusted.
        self.rehearse(client).await?;
        trust::check(&self.named).and_then(|()| trust::check(&self.state.root)).context("the config cannot be used")?;
        allowed::widen(&self.state, &self.spec, self.own_text())?;
        let taken = client.put_config(&self.update(false)).await.map_err(Error::into_failure)?;
        allowed::settle(&self.state, &self.spec)?;
        Ok(taken)
    }

    /// Its text, with where it was read.
    pub fn own_text(&self) -> OwnText<'_> {
        OwnText { text: &self.text, path: &self.path }
    }

    fn update(&self, dry_run: bool) -> ConfigUpdate {
        let path = self.path.to_string_lossy().into_owned();
        ConfigUpdate { text: self.text.clone(), path, dry_run, refused: String::new(), origin: self.origin.clone() }
    }
}

/// Reads and checks `file`.
///
/// # Errors
/// [`Exit::ConfigInvalid`] with every diagnostic; [`Exit::Failed`] when there is no such file.
pub fn load(file: &Path) -> anyhow::Result<Loaded> {
    let path = absolute_config(file)?;
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}: name a config file with --file, or make one with weal init", path.display()))?;
    parsed(path, text)
}

fn parsed(path: PathBuf, text: String) -> anyhow::Result<Loaded> {
    match weal_config::parse(&text, &path.to_string_lossy(), &machine()) {
        Ok(parsed) => {
            let missing = machine_check::check(&parsed, (&text, &path.to_string_lossy()));
            let warnings = [parsed.warnings, missing].concat();
            Ok(Loaded { path, text, spec: parsed.spec, warnings })
        }
        Err(diagnostics) => Err(invalid(&path, &text, &diagnostics).into()),
    }
}

/// As [`load`], for what a pool is run by: when root does that, nobody else may be able to change the file.
///
/// # Errors
/// As [`load`], and when others could change the file.
pub fn load_trusted(file: &Path) -> anyhow::Result<Loaded> {
    // As it is named: a link on the way may be a stranger's. A file that is not there is named by `load`.
    trust::check_way(file).context("the config cannot be used")?;
    load(file)
}

fn invalid(path: &Path, text: &str, diagnostics: &[Diagnostic]) -> Failure {
    let count = diagnostics.iter().filter(|one| one.level == Level::Error).count();
    let noun = if count == 1 { "mistake" } else { "mistakes" };
    Failure {
        exit: Exit::ConfigInvalid,
        message: format!("{} has {count} {noun}: nothing was changed", path.display()),
        rendered: render_all(diagnostics, text, colored(Stream::Err)),
        diagnostics: diagnostics.iter().filter_map(|one| serde_json::to_value(one).ok()).collect(),
    }
}

/// This machine, as far as configs depend on it.
pub fn machine() -> MachineSize {
    MachineSize { cpus: cpus().0, memory: Proc::system().memory().total.unwrap_or(Bytes::gib(1)) }
}

/// What of `new` takes a restart of the whole pool, in words; `None` when everything can change as it runs.
///
/// The addresses are fixed when the supervisor binds the sockets.
pub fn needs_restart(old: &PoolSpec, new: &PoolSpec) -> Option<String> {
    let mut changes = Vec::new();
    if old.listen != new.listen {
        changes.push(format!("listen from {} to {}", old.listen, new.listen));
    }
    let tls = |spec: &PoolSpec| spec.tls.as_ref().map_or_else(|| "none".to_owned(), |tls| tls.listen.to_string());
    if tls(old) != tls(new) {
        changes.push(format!("the address for https from {} to {}", tls(old), tls(new)));
    }
    if old.api != new.api {
        changes.push(format!("api from {} to {}", old.api, new.api));
    }
    if old.api_tls != new.api_tls {
        changes.push("api-tls".to_owned());
    }
    (!changes.is_empty()).then(|| format!("it changes {}, which takes a restart: weal down, then weal up", changes.join(" and ")))
}
