//! From the config file to the controller: at the start, on SIGHUP, and with `watch = true` when the file changes. A config is taken as a
//! whole or not at all; a bad one leaves the old one in force.
//!
//! Others give the controller a config too (`weal deploy`, the API). The feed follows what is in force, for the sockets of ports are the
//! supervisor's.

use std::path::Path;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use weal_model::{PoolSpec, Severity};
use weal_protocol::controller::{ConfigTaken, ConfigUpdate, ConfigView};

use super::console::Console;
use super::identity::say_users;
use super::ports::Ports;
use super::stamp::{LOOK, Stamp, stamp, stamp_of};
use crate::allowed::{self, OwnText};
use crate::client::{Client, Error};
use crate::config_file::{Loaded, load_trusted, machine, needs_restart};
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

/// How long the controller waits for another config before it answers that there is none.
const FOLLOW_S: u64 = 20;

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
        let seen = stamp_of(&loaded.path, &loaded.text);
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
        self.push(&text, "weal up", false).await;
        let mut look = tokio::time::interval(LOOK);
        let mut others = follow(self.client.clone(), self.generation.subscribe());
        loop {
            tokio::select! {
                Some(view) = others.recv() => self.take_over(view).await,
                wish = wishes.recv() => match wish {
                    None => return,
                    Some(Wish::Reload) => self.reload(true).await,
                    Some(Wish::Check) => self.check().await,
                },
                _ = look.tick() => {
                    let now = stamp(&self.file);
                    if self.spec.watch && now.is_some() && now != self.seen && now == self.changing {
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
            return self.report_refused(&loaded.text, &why).await;
        }
        match allowed::widen(&self.state, &loaded.spec, loaded.own_text()) {
            Ok(()) => {
                if let Err(error) = self.ports.widen(&loaded.spec) {
                    return self.report_refused(&loaded.text, &format!("{error:#}")).await;
                }
                self.spec = loaded.spec;
                self.push(&loaded.text, if asked { "SIGHUP" } else { "the file changed" }, true).await;
            }
            Err(error) => {
                self.report_refused(&loaded.text, &format!("{error:#}")).await;
            }
        }
    }

    /// Somebody else gave the controller this config: opens its ports.
    async fn take_over(&mut self, view: ConfigView) {
        if view.text == self.pushed {
            self.generation.send_replace(Some(view.generation));
            return;
        }
        let (spec, exceptions) = self.understand(&view);
        for what in exceptions {
            self.report_exception(view.generation, &what).await;
        }
        let opened = match self.ports.privileged(&spec).filter(|_| !self.is_of_file(&view)) {
            Some(port) => Err(anyhow::anyhow!("{port} is below 1024, and only the pool's own config file may open it")),
            None => self.ports.widen(&spec),
        };
        if let Err(error) = opened {
            self.report_exception(view.generation, &format!("this: {error:#}")).await;
        }
        (self.spec, self.pushed, self.has_refused) = (spec, view.text, false);
        self.settle();
        self.console.tell(Tone::Good, "config taken:", &format!("generation {}", view.generation));
        self.generation.send_replace(Some(view.generation));
    }

    /// What the supervisor does of a config that the controller says is in force, and what it does not, in words. It reads the text itself: what
    /// the controller makes of it may be something else. Whom applications may run as is not the controller's to say, so whoever deploys as root
    /// allows that. Nor is which files of certificates are read, which authorities asked, who is told of what, and who gets logs, metrics and spans: as whoever runs weal, the
    /// supervisor does that only as that one has said.
    fn understand(&self, view: &ConfigView) -> (PoolSpec, Vec<String>) {
        let Ok(parsed) = weal_config::parse(&view.text, &view.path, &machine()) else {
            return (self.spec.clone(), vec!["all that the supervisor does: it cannot be read as a config".to_owned()]);
        };
        let (mut spec, mut exceptions) = (parsed.spec, Vec::new());
        let text = OwnText { text: &view.text, path: Path::new(&view.path) };
        let own = |spec: &PoolSpec| {
            let outlets = (spec.logs_to.clone(), spec.metrics_to.clone(), spec.traces_to.clone());
            (spec.tls.clone(), spec.notify.clone(), outlets)
        };
        if own(&spec) != own(&self.spec) && !allowed::is_own(&self.state, text) {
            let what = "its certificates, [[notify]], logs-to, metrics-to and traces-to: only who runs weal changes these, by the pool's config file or `weal deploy`";
            exceptions.push(what.to_owned());
            spec.tls.clone_from(&self.spec.tls);
            spec.notify.clone_from(&self.spec.notify);
            spec.logs_to.clone_from(&self.spec.logs_to);
            spec.metrics_to.clone_from(&self.spec.metrics_to);
            spec.traces_to.clone_from(&self.spec.traces_to);
        }
        (spec, exceptions)
    }

    /// Whether the pool's own config file says this.
    fn is_of_file(&self, view: &ConfigView) -> bool {
        load_trusted(&self.file).is_ok_and(|loaded| loaded.text == view.text && loaded.path == Path::new(&view.path))
    }

    /// Tells the person here and the controller what of a config is not done.
    async fn report_exception(&self, generation: u64, what: &str) {
        let text = format!("config {generation} is in force, except {what}");
        self.console.tell(Tone::Bad, "config:", &text);
        self.client.note_until_taken(Severity::Error, text).await;
    }

    /// What only the config before needed is closed, and who shows what is in force is told.
    fn settle(&self) {
        if let Err(error) = self.ports.settle(&self.spec) {
            self.console.tell(Tone::Warn, "ports:", &format!("those of earlier configs stay open: {error}"));
        }
        self.in_force.send_if_modified(|spec| {
            let differs = *spec != self.spec;
            spec.clone_from(&self.spec);
            differs
        });
    }

    /// Tells the person here and the controller, which shows it, why `text` is not taken.
    async fn report_refused(&mut self, text: &str, why: &str) {
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
            return self.report_refused("", &format!("{error:#}")).await;
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
            origin: String::new(),
        }
    }

    fn say_refused(&self, why: &str) {
        self.console.tell(Tone::Bad, "config refused:", &format!("{why}; the one before stays in force"));
    }

    /// Asks until the controller answers: it waits in the backlog while the role is started anew.
    async fn push(&mut self, text: &str, origin: &str, changed: bool) {
        let order = ConfigUpdate { origin: origin.to_owned(), ..self.order(text) };
        loop {
            match self.client.put_config(&order).await {
                Ok(taken) => {
                    self.pushed = text.to_owned();
                    self.has_refused = false;
                    if let Err(error) = allowed::settle(&self.state, &self.spec) {
                        self.console.tell(Tone::Warn, "users:", &format!("those of earlier configs stay allowed: {error:#}"));
                    }
                    self.settle();
                    self.say_taken(&taken, changed);
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
            self.push(&text, "the store was lost", false).await;
        }
    }
}

/// Hands over each config that comes into force, in a task of its own that ends with the receiver.
fn follow(client: Client, mut known: watch::Receiver<Option<u64>>) -> mpsc::Receiver<ConfigView> {
    let (sender, receiver) = mpsc::channel(1);
    let client = client.with_timeout(Duration::from_secs(2 * FOLLOW_S));
    tokio::spawn(async move {
        while !sender.is_closed() {
            let after = known.borrow_and_update().unwrap_or(0);
            match client.config_after(after, FOLLOW_S).await {
                Ok(view) if view.generation > after => {
                    if sender.send(view).await.is_err() {
                        return;
                    }
                    // It is known to the feed soon; a controller that begins anew with a lower one is asked again.
                    let _ = tokio::time::timeout(LOOK, known.changed()).await;
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: &str = "[app.shop]\nrun = [\"/bin/true\"]\nmemory = \"1MiB\"\n";

    /// The feed of a pool below `folder`, whose config is `text`.
    fn feed(folder: &Path, text: &str) -> Feed {
        let (state, path) = (StateDir { root: folder.join("state") }, folder.join("weal.toml"));
        std::fs::create_dir_all(&state.root).unwrap();
        std::fs::write(&path, text).unwrap();
        let loaded = load_trusted(&path).unwrap();
        allowed::widen(&state, &loaded.spec, loaded.own_text()).unwrap();
        let (client, ports) = (Client::new(&state), Ports::new(&state, &loaded.spec));
        let told = (watch::channel(None).0, watch::channel(loaded.spec.clone()).0);
        Feed::new(state, client, Console::new(None), ports, &loaded, told)
    }

    fn certificate(name: &str) -> String {
        format!(
            "[pool]\nlisten = [\"http://127.0.0.1:8088\", \"https://127.0.0.1:8443\"]\n[tls.{name}]\nself-signed = true\nhosts = [\"a.example\"]\n"
        )
    }

    #[test]
    fn what_the_controller_makes_of_a_text_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!("{}{APP}", certificate("main"));
        let feed = feed(folder.path(), &own);
        let path = folder.path().join("weal.toml").display().to_string();
        let mut forged = feed.spec.clone();
        let tls = forged.tls.as_mut().unwrap();
        let source = tls.certificates["main"].clone();
        tls.certificates.insert("../../etc/evil".to_owned(), source);
        forged.notify =
            weal_config::parse(&format!("[[notify]]\nrun = [\"/bin/evil\"]\n{APP}"), &path, &machine()).unwrap().spec.notify;
        let view = |text: &str, path: &str| ConfigView {
            generation: 2,
            text: text.to_owned(),
            path: path.to_owned(),
            spec: Some(forged.clone()),
        };
        assert_eq!(feed.understand(&view(&own, &path)), (feed.spec.clone(), Vec::new()));
        // Where the text is not the owner's, its certificates do not count either; nor where it is read in another folder.
        for (text, path) in [(format!("{}{APP}", certificate("other")), path.as_str()), (own.clone(), "/tmp/evil/weal.toml")] {
            let (spec, exceptions) = feed.understand(&view(&text, path));
            assert_eq!((&spec.tls, &spec.notify), (&feed.spec.tls, &feed.spec.notify));
            let differs = weal_config::parse(&text, path, &machine()).unwrap().spec.tls != feed.spec.tls;
            assert_eq!(exceptions.len(), usize::from(differs), "{exceptions:?}");
        }
        let (spec, exceptions) = feed.understand(&view("nonsense", &path));
        assert_eq!((spec, exceptions.len()), (feed.spec.clone(), 1));
        let evil = format!("{}{APP}", certificate("\"../../etc/evil\""));
        let refused = weal_config::parse(&evil, &path, &machine()).unwrap_err();
        assert!(refused[0].message.contains("`../../etc/evil` cannot be the name"), "such a name becomes no file: {refused:?}");
    }

    #[test]
    fn only_who_runs_weal_says_to_whom_logs_metrics_and_spans_go() {
        let folder = tempfile::tempdir().unwrap();
        let feed = feed(folder.path(), APP);
        let path = folder.path().join("weal.toml").display().to_string();
        for key in ["logs-to", "metrics-to", "traces-to"] {
            let text = format!("[pool]\n{key} = \"http://evil.example\"\n{APP}");
            let (spec, exceptions) = feed.understand(&ConfigView { generation: 2, text, path: path.clone(), spec: None });
            assert_eq!((&spec.logs_to, &spec.metrics_to, &spec.traces_to, exceptions.len()), (&None, &None, &None, 1), "{key}");
        }
    }

    #[test]
    fn only_the_pools_file_opens_low_ports() {
        let folder = tempfile::tempdir().unwrap();
        let feed = feed(folder.path(), APP);
        let path = folder.path().join("weal.toml").display().to_string();
        let view =
            |text: &str, path: &str| ConfigView { generation: 2, text: text.to_owned(), path: path.to_owned(), spec: None };
        assert!(feed.is_of_file(&view(APP, &path)));
        assert!(!feed.is_of_file(&view(APP, "/tmp/evil/weal.toml")));
        let low = format!("{APP}routes = [{{ port = 1023 }}]\n");
        assert!(!feed.is_of_file(&view(&low, &path)));
    }
}
