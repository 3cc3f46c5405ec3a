//! From the config file to the controller: at the start, when the file changes, and on SIGHUP. A config is taken as a whole
//! or not at all; a bad one leaves the old one in force.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use weal_model::PoolSpec;
use weal_protocol::controller::{ConfigTaken, ConfigUpdate};

use super::console::Console;
use super::identity::say_users;
use super::ports::Ports;
use super::stamp::{LOOK, Stamp, stamp};
use crate::allowed;
use crate::client::{Client, Error};
use crate::config_file::{Loaded, load_trusted, needs_restart};
use crate::failure::{Exit, Failure};
use crate::output::Tone;
use crate::state::StateDir;

/// Why the feed should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Somebody asked (SIGHUP): say something even if nothing changed.
    Reload,
    /// The controller was started anew: it may have lost its store.
    Check,
}

/// Between two attempts while the controller does not answer.
const RETRY: Duration = Duration::from_millis(100);

/// Feeds one controller from one file.
pub struct Feed {
    state: StateDir,
    client: Client,
    console: Console,
    ports: Ports,
    fixed: PoolSpec,
    file: std::path::PathBuf,
    pushed: String,
    spec: PoolSpec,
    /// Whether the controller shows that it refused the newest config.
    has_refused: bool,
    seen: Option<Stamp>,
    changing: Option<Stamp>,
    generation: watch::Sender<Option<u64>>,
    in_force: watch::Sender<PoolSpec>,
}

impl Feed {
    /// Feeds `client` with `loaded` first. `generation` tells when that was taken, `in_force` what was.
    pub fn new(
        state: StateDir,
        client: Client,
        console: Console,
        ports: Ports,
        loaded: &Loaded,
        (generation, in_force): (watch::Sender<Option<u64>>, watch::Sender<PoolSpec>),
    ) -> Self {
        let seen = stamp(&loaded.path);
        let (fixed, file, pushed) = (loaded.spec.clone(), loaded.path.clone(), loaded.text.clone());
        let spec = loaded.spec.clone();
        Self {
            state,
            client,
            console,
            ports,
            fixed,
            file,
            pushed,
            spec,
            has_refused: false,
            seen,
            changing: None,
            generation,
            in_force,
        }
    }

    /// Runs until the supervisor drops the other end of `wishes`.
    pub async fn run(mut self, mut wishes: mpsc::UnboundedReceiver<Wish>) {
        let text = self.pushed.clone();
        self.push(&text, false).await;
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                wish = wishes.recv() => match wish {
                    None => return,
                    Some(Wish::Reload) => self.reload(true).await,
                    Some(Wish::Check) => self.check().await,
                },
                _ = look.tick() => {
                    let now = stamp(&self.file);
                    if now.is_some() && now != self.seen && now == self.changing {
                        self.reload(false).await;
                    }
                    self.changing = now;
                }
            }
        }
    }

    async fn reload(&mut self, asked: bool) {
        self.seen = stamp(&self.file);
        let loaded = match load_trusted(&self.file) {
            Ok(loaded) => loaded,
            Err(error) => return self.refuse(&error).await,
        };
        // The file is as it was: only when another one was refused meanwhile, that must be forgotten.
        if loaded.text == self.pushed && !asked && !self.has_refused {
            return;
        }
        if let Some(why) = needs_restart(&self.fixed, &loaded.spec) {
            return self.tell_refused(&loaded.text, &why).await;
        }
        match allowed::widen(&self.state, &loaded.spec) {
            Ok(()) => {
                if let Err(error) = self.ports.widen(&loaded.spec) {
                    return self.tell_refused(&loaded.text, &format!("{error:#}")).await;
                }
                self.spec = loaded.spec;
                self.push(&loaded.text, true).await;
            }
            Err(error) => {
                self.tell_refused(&loaded.text, &format!("{error:#}")).await;
            }
        }
    }

    /// Tells the person here and the controller, which shows it, why `text` is not taken.
    async fn tell_refused(&mut self, text: &str, why: &str) {
        self.has_refused = true;
        self.say_refused(why);
        let order = ConfigUpdate { refused: why.to_owned(), ..self.order(text) };
        // Its answer is the refusal that it was asked to show.
        let _ = self.client.put_config(&order).await;
    }

    /// Tells the person here, and the controller too, so that `weal status` says why the newest config is not in force.
    async fn refuse(&mut self, error: &anyhow::Error) {
        let rendered = error.downcast_ref::<Failure>().map(|failure| failure.rendered.as_str()).unwrap_or_default();
        for line in rendered.lines() {
            self.console.say(line);
        }
        let is_read = error.downcast_ref::<Failure>().is_some_and(|failure| failure.exit == Exit::ConfigInvalid);
        let Some(text) = is_read.then(|| std::fs::read_to_string(&self.file).ok()).flatten() else {
            // What others could have written is not passed on: the controller would take it.
            return self.tell_refused("", &format!("{error:#}")).await;
        };
        self.has_refused = true;
        self.say_refused(&format!("{error:#}"));
        let order = self.order(&text);
        // It refuses this text for the same reason, which is already said.
        let _ = self.client.put_config(&order).await;
    }

    fn order(&self, text: &str) -> ConfigUpdate {
        ConfigUpdate {
            text: text.to_owned(),
            path: self.file.to_string_lossy().into_owned(),
            dry_run: false,
            refused: String::new(),
        }
    }

    fn say_refused(&self, why: &str) {
        self.console.tell(Tone::Bad, "config refused:", &format!("{why}; the one before stays in force"));
    }

    /// Asks until the controller answers: it waits in the backlog while the role is started anew.
    async fn push(&mut self, text: &str, changed: bool) {
        let order = self.order(text);
        loop {
            match self.client.put_config(&order).await {
                Ok(taken) => {
                    self.pushed = text.to_owned();
                    self.has_refused = false;
                    if let Err(error) = allowed::settle(&self.state, &self.spec) {
                        self.console.tell(Tone::Warn, "users:", &format!("those of former configs stay allowed: {error:#}"));
                    }
                    if let Err(error) = self.ports.settle(&self.spec) {
                        self.console.tell(Tone::Warn, "ports:", &format!("those of former configs stay open: {error}"));
                    }
                    self.say_taken(&taken, changed);
                    self.in_force.send_if_modified(|spec| {
                        let differs = *spec != self.spec;
                        spec.clone_from(&self.spec);
                        differs
                    });
                    self.generation.send_replace(Some(taken.generation));
                    return;
                }
                Err(error) if error.is_passing() => tokio::time::sleep(RETRY).await,
                Err(error) => {
                    self.has_refused = true;
                    return self.say_refused_by_controller(error);
                }
            }
        }
    }

    fn say_refused_by_controller(&self, error: Error) {
        let failure = error.into_failure();
        for line in failure.rendered.lines() {
            self.console.say(line);
        }
        self.say_refused(&failure.message);
    }

    fn say_taken(&self, taken: &ConfigTaken, changed: bool) {
        for warning in &taken.warnings {
            self.console.tell(Tone::Warn, "config:", warning);
        }
        if changed {
            say_users(&self.console, &self.spec);
            self.console.tell(Tone::Good, "config taken:", &format!("generation {}", taken.generation));
            for change in &taken.changes {
                self.console.say(&format!("  {change}"));
            }
        }
    }

    async fn check(&mut self) {
        let lost = self.client.config().await.is_ok_and(|config| config.spec.is_none());
        if lost {
            let text = self.pushed.clone();
            self.push(&text, false).await;
        }
    }
}
