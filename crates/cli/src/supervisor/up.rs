//! The supervisor's own loop: what it waits for, and what it does about it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::sync::{mpsc, watch};
use weal_model::{AppName, Severity};
use weal_protocol::node::PREFER;

use super::acme::Acme;
use super::api_tls::ApiTlsFiles;
use super::background;
use super::console::Console;
use super::feed::{Feed, Wish};
use super::identity::{say_isolation, say_users};
use super::leftovers;
use super::logs::{cut_long, last_lines};
use super::notify::Notify;
use super::ports::Ports;
use super::progress::{Arrival, Progress};
use super::pulse::{self, Beat};
use super::role::{Role, RoleEnd};
use super::secure::SecureFeed;
use super::ship::Ship;
use super::shutdown::{Needs, Shutdown, needs_of};
use super::signals::{Asked, Signals};
use super::telemetry::Telemetry;
use super::upgrade::OwnProgram;
use super::urls;
use crate::allowed;
use crate::args;
use crate::client::{Client, block_on};
use crate::config_file::{self, Loaded};
use crate::found;
use crate::output::{Stream, Tone, paint};
use crate::process::ProcessId;
use crate::role_name::RoleName;
use crate::state::{DEFAULT_FILE, Lock, Record, StateDir};
use crate::users::RoleUsers;

/// A role that ends so often, each time soon after its start and before the pool was ever ready, will not come up.
const HOPELESS: u32 = 6;
/// How long to wait for a role of an earlier supervisor, whose sockets cannot be taken over, to let go of them.
const HANDOVER: Duration = Duration::from_secs(20);
/// Between two looks at what should be there. Documentation promises that a removed state directory is noticed within a second.
const LOOK: Duration = Duration::from_millis(500);
const _: () = assert!(LOOK.as_millis() * 2 <= 1000);
/// How long the agent may take to come up.
const AGENT_PATIENCE: Duration = Duration::from_secs(30);

/// Runs `weal up`.
pub fn up(order: &args::Up) -> anyhow::Result<()> {
    keep_to_itself()?;
    let file = order.target.file.clone().unwrap_or_else(|| DEFAULT_FILE.into());
    let loaded = config_file::load_trusted(&file)?;
    let state = StateDir::of(order.target.state.as_deref(), &loaded.path)?;
    if order.detach {
        return background::start(&loaded, &state, Duration::from_secs(order.timeout));
    }
    if order.background {
        // A session of its own: the terminal's end is not ours. Fails only for a process group's leader, which it is not.
        let _ = rustix::process::setsid();
    }
    hold(loaded, state, if order.background { Manner::Background } else { Manner::Foreground })
}

/// Runs the pool of `config` for its one application `app`: shows what that writes, and ends when it does not come up.
///
/// # Errors
/// As [`up`], and when the application does not come up.
pub fn host(config: &Path, state: &StateDir, app: &str) -> anyhow::Result<()> {
    keep_to_itself()?;
    hold(config_file::load_trusted(config)?, state.clone(), Manner::Guest(AppName::from(app)))
}

/// Roles and applications shall get nothing that the operator had open, and write nothing that others can read.
fn keep_to_itself() -> anyhow::Result<()> {
    weal_node::close_descriptors()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    Ok(())
}

fn hold(loaded: Loaded, state: StateDir, manner: Manner) -> anyhow::Result<()> {
    let users = RoleUsers::of_this_machine()?;
    state.prepare(users.as_ref())?;
    let lock = state.lock()?;
    allowed::widen(&state, &loaded.spec, loaded.own_text())?;
    let console = Console::new((manner != Manner::Background).then(|| state.log("supervisor")).as_deref());
    block_on(async { Supervisor::new(state, lock, console, users.as_ref(), &loaded)?.run(loaded, manner).await })
}

/// For whom a pool is held.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Manner {
    /// `weal up`.
    Foreground,
    /// The process behind `weal up -d`.
    Background,
    /// `weal run`: for one application, whose output is shown.
    Guest(AppName),
}

/// Everything that `weal up` holds.
struct Supervisor {
    state: StateDir,
    /// Held, so that no other supervisor takes the directory.
    lock: Lock,
    users: Option<RoleUsers>,
    client: Client,
    console: Console,
    config: PathBuf,
    program: OwnProgram,
    roles: Vec<Role>,
    ports: Ports,
    ends: (mpsc::UnboundedSender<RoleEnd>, mpsc::UnboundedReceiver<RoleEnd>),
    needs: Needs,
    was_ready: bool,
    /// Whether the record on disk is not what runs.
    is_record_old: bool,
    /// What was wrong with the state directory when it was made anew last.
    problem: String,
    /// Counts the gateway's starts.
    gateway_starts: watch::Sender<u64>,
    /// The application without which there is nothing to do.
    guest: Option<AppName>,
    /// What ended the pool, if that is a failure.
    failure: Option<String>,
}

/// Why the supervisor stops waiting.
enum Turn {
    Ended(RoleEnd),
    Due,
    Tidy,
    Look,
    Beat(Beat),
    Asked(Asked),
    Arrived(Arrival),
}

impl Supervisor {
    fn new(state: StateDir, lock: Lock, console: Console, users: Option<&RoleUsers>, loaded: &Loaded) -> anyhow::Result<Self> {
        let spec = &loaded.spec;
        let ports = Ports::new(&state, spec);
        let mut api_tls = spec.api_tls.as_ref().map(ApiTlsFiles::new).transpose()?;
        let roles = RoleName::ALL
            .iter()
            .map(|name| match name {
                RoleName::Node => Role::new(*name, None, users.cloned()),
                RoleName::Gateway => Role::new(*name, Some((spec.listen, "listen")), users.cloned())
                    .with_tls(spec.tls.as_ref().map(|tls| tls.listen))
                    .with_ports(ports.clone()),
                RoleName::Controller => Role::new(*name, Some((spec.api, "api")), users.cloned()).with_api_tls(api_tls.take()),
            })
            .collect();
        let (config, needs) = (loaded.path.clone(), needs_of(spec));
        let client = Client::new(&state);
        let program = OwnProgram::at_start().context("cannot find the path of this program")?;
        Ok(Self {
            state,
            lock,
            users: users.cloned(),
            client,
            console,
            config,
            program,
            roles,
            ports,
            ends: mpsc::unbounded_channel(),
            needs,
            was_ready: false,
            is_record_old: false,
            problem: String::new(),
            gateway_starts: watch::Sender::new(0),
            guest: None,
            failure: None,
        })
    }

    async fn run(mut self, loaded: Loaded, manner: Manner) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        self.warn(&loaded);
        let secure = SecureFeed::new(&self.state, &self.console, &loaded.spec)?;
        if let Manner::Guest(app) = &manner {
            self.guest = Some(app.clone());
        }
        self.start_roles().await?;
        if manner == Manner::Background {
            background::say_started();
        }
        self.greet(&loaded);
        let client = self.client.clone();
        let (generation, taken) = watch::channel(None);
        let (wishes, wished) = mpsc::unbounded_channel();
        let (in_force, specs) = watch::channel(loaded.spec.clone());
        let (shows, shown) = mpsc::channel(1);
        tokio::spawn(Acme::new(&self.state, &self.console, shows).run(in_force.subscribe()));
        tokio::spawn(Notify::new(&self.state, client.clone(), self.console.clone()).run(specs.clone()));
        tokio::spawn(Ship::new(&self.state, self.console.clone()).run(specs.clone()));
        tokio::spawn(Telemetry::new(&self.state, client.clone(), self.console.clone()).run(specs.clone()));
        tokio::spawn(secure.run(specs, self.gateway_starts.subscribe(), shown));
        let (state, console, ports) = (self.state.clone(), self.console.clone(), self.ports.clone());
        tokio::spawn(Feed::new(state, client.clone(), console, ports, &loaded, (generation, in_force)).run(wished));
        let progress = Progress::new(client, self.console.clone(), self.guest.clone());
        let why = self.attend(&mut signals, &wishes, progress, taken).await?;
        self.finish(&mut signals, why).await
    }

    /// The main loop: returns the reason to stop.
    async fn attend(
        &mut self,
        signals: &mut Signals,
        wishes: &mpsc::UnboundedSender<Wish>,
        mut progress: Progress,
        taken: watch::Receiver<Option<u64>>,
    ) -> anyhow::Result<&'static str> {
        let (arrived, mut arrival) = mpsc::unbounded_channel();
        let follower = tokio::spawn(async move {
            let _ = arrived.send(progress.until_ready(taken).await);
            let output = progress.clone();
            tokio::join!(output.pass_on_output(), progress.follow());
        });
        let mut beats = pulse::watch(&self.state);
        let mut tidy = tokio::time::interval(Duration::from_secs(60));
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while self.failure.is_none() {
            let turn = tokio::select! {
                Some(end) = self.ends.1.recv() => Turn::Ended(end),
                () = until(self.roles.iter().filter_map(|role| role.restart_at).min()) => Turn::Due,
                Some(beat) = beats.recv() => Turn::Beat(beat),
                asked = signals.next() => Turn::Asked(asked),
                Some(arrival) = arrival.recv() => Turn::Arrived(arrival),
                _ = tidy.tick() => Turn::Tidy,
                _ = look.tick() => Turn::Look,
            };
            match turn {
                Turn::Ended(end) => self.handle_end(&end)?,
                Turn::Due => self.restart_due(wishes),
                Turn::Tidy => self.cut_logs(),
                Turn::Look => self.look(),
                Turn::Beat(beat) => self.handle_beat(&beat),
                Turn::Arrived(arrival) => self.handle_arrival(arrival),
                Turn::Asked(Asked::Reload) => {
                    self.upgrade().await;
                    self.console.say("reloading the config");
                    // The feed lives as long as this end of the channel.
                    let _ = wishes.send(Wish::Reload);
                }
                Turn::Asked(Asked::Stop(why)) => {
                    follower.abort();
                    return Ok(why);
                }
            }
        }
        follower.abort();
        Ok("the program did not come up")
    }

    /// Becomes the program that took the place of this one, if there is one. Returns where that fails: this one goes on then.
    async fn upgrade(&self) {
        if self.guest.is_some() || !self.program.is_replaced() {
            return;
        }
        let path = self.program.path().display();
        let error = match self.program.check_new(&self.config).await {
            Ok(()) => {
                self.console.say(&format!("{path} is another program now: going on as that"));
                anyhow::Error::from(self.program.become_new())
            }
            Err(error) => error,
        };
        let text = format!("{path} is another program now, but this one goes on: {error:#}");
        self.console.tell(Tone::Bad, "upgrade:", &text);
        let client = self.client.clone();
        tokio::spawn(async move { client.note_until_taken(Severity::Error, text).await });
    }

    async fn start_roles(&mut self) -> anyhow::Result<()> {
        let replaced = self.take_over_roles().await;
        let deadline = Instant::now() + if replaced { HANDOVER } else { Duration::ZERO };
        // All sockets before the first process, so that a port in use leaves nothing behind.
        for role in &mut self.roles {
            while let Err(error) = role.bind(&self.state) {
                if Instant::now() >= deadline {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        for index in 0..self.roles.len() {
            while self.roles[index].record.is_none()
                && let Err(error) = self.roles[index].start(&self.state, &self.ends.0)
            {
                if Instant::now() >= deadline {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        // One that was taken over may know those of another config.
        self.ports.send().context("cannot hand the ports over")?;
        self.prefer_roles();
        self.keep_record();
        Ok(())
    }

    /// Goes on with the roles that a former supervisor left: of each the newest, while older ones end. True when one has to let go of its sockets
    /// before another can begin.
    async fn take_over_roles(&mut self) -> bool {
        let mut replaced = false;
        let left = leftovers::settled(&self.state).await;
        for role in &mut self.roles {
            let name = role.name();
            let mut of_name = left.iter().filter(|one| one.role == name).rev();
            if let Some(found) = of_name.next().and_then(|newest| role.take_over(newest, &self.ends.0)) {
                self.console.say(&found);
                replaced |= role.record.is_none();
            }
            for older in of_name {
                let process = older.process;
                self.console.tell(
                    Tone::Warn,
                    name.name(),
                    &format!("pid {} is a second {} and is ended", process.pid(), name.name()),
                );
                tokio::spawn(async move { process.end(HANDOVER).await && process.reap().await });
            }
        }
        replaced
    }

    /// Has the agent put the other roles before all instances. Its socket takes the call before it is up; where it cannot do so, its log says why.
    fn prefer_roles(&self) {
        let others = self.roles.iter().filter(|role| role.name() != RoleName::Node);
        let pids = others.filter_map(|role| Some(role.record.as_ref()?.process.pid())).collect();
        let agent = weal_rpc::Client::new(self.state.socket(RoleName::Node), AGENT_PATIENCE);
        tokio::spawn(async move { agent.call(PREFER, &pids).await });
    }

    /// Writes the record down; what finds no place now is tried again. Nothing depends on it: whoever looks for this pool finds its processes.
    fn keep_record(&mut self) {
        let written = self.write_record();
        if let (Err(error), false) = (&written, self.is_record_old) {
            self.console.tell(Tone::Warn, "state:", &format!("{error:#}; the pool goes on, and this is tried again"));
        }
        if written.is_ok() && self.is_record_old {
            self.console.tell(Tone::Good, "state:", "can be written again");
        }
        self.is_record_old = written.is_err();
    }

    fn write_record(&self) -> anyhow::Result<()> {
        let roles = self.roles.iter().filter_map(|role| role.record.clone()).collect();
        let supervisor = ProcessId::me().context("cannot read /proc/self/stat")?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let program = self.guest.is_none().then(|| self.program.path().to_owned());
        self.state.write_record(&Record { supervisor, config: self.config.clone(), version, program, roles })
    }

    fn handle_end(&mut self, end: &RoleEnd) -> anyhow::Result<()> {
        let Some(role) = self.roles.iter_mut().find(|role| role.record.as_ref().is_some_and(|one| one.process == end.process))
        else {
            return Ok(());
        };
        let pause = role.plan_restart();
        let when = if pause.is_zero() { "at once".to_owned() } else { format!("in {:.1}s", pause.as_secs_f64()) };
        self.console.tell(Tone::Warn, end.role.name(), &format!("{}; it is started again {when}", end.how));
        if role.quick_ends >= HOPELESS && !self.was_ready {
            let log = self.state.log(end.role.name());
            let tail = last_lines(&std::fs::read_to_string(&log).unwrap_or_default(), 10);
            self.roles.iter().for_each(Role::terminate);
            bail!("the {} does not come up. The end of {}:\n{tail}", end.role.name(), log.display());
        }
        Ok(())
    }

    fn restart_due(&mut self, wishes: &mpsc::UnboundedSender<Wish>) {
        let now = Instant::now();
        let mut started = false;
        for role in &mut self.roles {
            if role.restart_at.is_none_or(|at| at > now) {
                continue;
            }
            if let Err(error) = role.start(&self.state, &self.ends.0) {
                let pause = role.plan_restart().max(Duration::from_millis(200));
                role.restart_at = Some(now + pause);
                self.console.tell(Tone::Bad, role.name().name(), &format!("{error:#}; trying again"));
                continue;
            }
            started = true;
            match role.name() {
                RoleName::Controller => drop(wishes.send(Wish::Check)),
                RoleName::Gateway => self.gateway_starts.send_modify(|starts| *starts += 1),
                RoleName::Node => {}
            }
        }
        if started {
            self.prefer_roles();
        }
        self.keep_record();
    }

    /// Replaces a role that lives and does nothing: its end brings the next one.
    fn handle_beat(&mut self, beat: &Beat) {
        let Some(role) = self.roles.iter_mut().find(|role| role.name() == beat.role) else { return };
        if !role.handle_beat(beat) {
            return;
        }
        let text = format!("the {} answered nothing for {} s and is replaced", beat.role.name(), pulse::STUCK_AFTER.as_secs());
        self.console.tell(Tone::Bad, "stuck:", &text);
        role.kill();
        let client = self.client.clone();
        tokio::spawn(async move { client.note_until_taken(Severity::Error, text).await });
    }

    /// Sees to what others may have taken away, or what found no place before.
    fn look(&mut self) {
        for looked in self.roles.iter_mut().filter_map(Role::look_at_certificate) {
            match looked {
                Ok(()) => self.console.tell(Tone::Good, "https:", "took the changed certificate of the API"),
                Err(error) => {
                    self.console.tell(Tone::Bad, "https:", &format!("{error:#}; the certificate before stays in force"))
                }
            }
        }
        if !self.state.is_whole()
            && let Err(error) = self.restore()
        {
            self.raise_problem(&format!("{error:#}; trying again"));
        } else if self.is_record_old || !self.state.has_record() {
            self.keep_record();
        }
    }

    /// Says once what goes on being wrong.
    fn raise_problem(&mut self, text: &str) {
        if self.problem != text {
            self.console.tell(Tone::Bad, "state:", text);
            text.clone_into(&mut self.problem);
        }
    }

    /// Makes anew what somebody removed of the state directory. A role whose socket is gone ends, and the next one gets the new socket; the node
    /// agent writes down before its end which instances run.
    fn restore(&mut self) -> anyhow::Result<()> {
        self.state.prepare(self.users.as_ref())?;
        if !self.state.has_lock() {
            self.lock = self.state.lock()?;
        }
        if let Ok(loaded) = config_file::load_trusted(&self.config) {
            allowed::widen(&self.state, &loaded.spec, loaded.own_text())?;
        }
        let mut replaced = Vec::new();
        for role in &mut self.roles {
            if role.rebind(&self.state)? {
                role.replace();
                replaced.push(role.name().name());
            }
        }
        self.keep_record();
        let roles = if replaced.is_empty() { String::new() } else { format!("; started again for it: {}", replaced.join(", ")) };
        let text = format!("something of the state directory was removed and is made anew{roles}");
        self.console.tell(Tone::Warn, "state:", &text);
        let client = self.client.clone();
        tokio::spawn(async move { client.note_until_taken(Severity::Warning, text).await });
        Ok(())
    }

    fn handle_arrival(&mut self, arrival: Arrival) {
        self.was_ready = true;
        match arrival {
            Arrival::Ready => self.console.tell(Tone::Good, "ready:", "every application takes requests"),
            Arrival::Failed(failed) if self.guest.is_some() => self.failure = Some(failed.join("; ")),
            Arrival::Failed(failed) => {
                for app in failed {
                    self.console.tell(Tone::Bad, "not ready:", &format!("{app} (see weal logs and weal why)"));
                }
            }
        }
    }

    fn warn(&self, loaded: &Loaded) {
        let rendered = weal_config::render_all(&loaded.warnings, &loaded.text, crate::output::colored(Stream::Out));
        rendered.lines().for_each(|line| self.console.say(line));
        say_users(&self.console, &loaded.spec);
        say_isolation(&self.console);
    }

    fn greet(&self, loaded: &Loaded) {
        let spec = &loaded.spec;
        self.console.say(&format!("{} {}", paint("weal", Tone::Strong, Stream::Out), spec.name));
        urls::of_apps(spec).iter().for_each(|line| self.console.say(line));
        for (port, app) in self.ports.named() {
            self.console.say(&format!("  {:<13} {port}", app.as_str()));
        }
        self.console.say(&format!("  dashboard     {}", spec.api_url()));
        self.console.say(&format!("  state         {}", self.state.root.display()));
    }

    fn cut_logs(&self) {
        let names = RoleName::ALL.map(RoleName::name).into_iter().chain(["supervisor"]);
        for log in names.map(|name| self.state.log(name)) {
            if let Err(error) = cut_long(&log) {
                self.console.tell(Tone::Warn, "logs:", &format!("cannot cut {}: {error}", log.display()));
            }
        }
    }

    /// Ends everything; a second signal ends the gateway without waiting for its requests.
    async fn finish(self, signals: &mut Signals, why: &'static str) -> anyhow::Result<()> {
        self.console.live("");
        self.console.say(&format!("{why}: stopping"));
        // Not only those of the record: a gateway that was replaced may still end.
        let mut living = BTreeMap::<_, Vec<_>>::new();
        let recorded = self.roles.iter().filter_map(|role| role.record.clone());
        for role in recorded.chain(found::roles(&self.state)) {
            let processes = living.entry(role.role).or_default();
            if !processes.contains(&role.process) {
                processes.push(role.process);
            }
        }
        let (state, console, needs) = (self.state.clone(), self.console.clone(), self.needs.clone());
        let shutdown = Shutdown { state, console, roles: living, needs };
        let mut ending = tokio::spawn(shutdown.run());
        let left = loop {
            tokio::select! {
                left = &mut ending => break left?,
                asked = signals.next() => if let Asked::Stop(_) = asked {
                    self.console.say("again: no longer waiting for requests");
                    self.roles.iter().filter(|role| role.name() == RoleName::Gateway).for_each(Role::kill);
                },
            }
        };
        self.console.live("");
        if !left.is_empty() {
            bail!("not everything ended: {}", left.join(", "));
        }
        self.state.forget_record();
        self.console.say("stopped");
        match self.failure {
            None => Ok(()),
            Some(failure) => bail!("{failure}"),
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
