//! From a spec to a running process.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{CWD, Mode, mkfifoat};
use tokio::io::AsyncReadExt;
use weal_host::users::User;
use weal_model::{InstanceState, ProcessSpec, RunEnd};
use weal_protocol::Refusal;
use weal_protocol::node::InstanceSpec;
use weal_sandbox::SandboxPlan;

use super::ending::End;
use super::pages::WORKING_SET_FILE;
use super::program::find_program;
use super::running::Running;
use super::sleep::WAKING_FILE;
use super::start_error::StartError;
use super::{Phase, Reply, Task, until};
use crate::accounts::NoAccount;
use crate::awake;
use crate::confidential::Hidden;
use crate::files::{at, read_json, write_json};
use crate::folder::{Folder, Owner, give_entry};
use crate::given;
use crate::hosts;
use crate::image::Inside;
use crate::isolation::{Kind, Member};
use crate::ports;
use crate::privileges::{barrier, may_write_in};
use crate::progress;
use crate::shim::{
    self, EXIT_FILE, Launch, OUTPUT_FILE, PID_FILE, RESULTS_FILE, Record, SPEC_FILE, STOP_FILE, Started, TMP_FOLDER, carry, mark,
};
use crate::site::Site;
use crate::variables::{UnknownVariable, fill_in};

/// How long a shim may take to say that the instance runs. It forks and executes: longer means that the disk hangs.
pub(super) const SHIM_PATIENCE: Duration = Duration::from_secs(30);
/// How long a shim that a former agent started may take to begin its work.
const ADOPTION_PATIENCE: Duration = Duration::from_secs(2);
/// Variables of the agent's own environment that instances get too, unless their spec sets them.
const INHERITED: [&str; 6] = ["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME"];
/// Where secrets that are given as files lie, in the instance's folder: the application writes nothing there, so nothing of its own is in
/// the way.
const SECRETS_FOLDER: &str = "secrets";
/// Where versions before kept them, in the application's own folder.
const FORMER_SECRETS_FOLDER: &str = ".weal-secrets";
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Task {
    /// Starts the process. What fails here counts like an end of the instance.
    pub(super) async fn launch(&mut self, reply: Option<Reply>) -> Phase {
        let began = std::time::Instant::now();
        self.enter(InstanceState::Starting, "");
        let result = self.try_launch().await;
        match result {
            Ok(started) => {
                if let Some(reply) = reply {
                    // Nobody waits any more, perhaps; the instance runs all the same.
                    let _ = reply.send(Ok(()));
                }
                match self.running(started) {
                    Some(running) => Phase::Running(Box::new(Running { began, ..running })),
                    None => self.after_end().await,
                }
            }
            Err(error) => {
                let detail = error.to_string();
                if let Some(reply) = reply {
                    let refusal = match &error {
                        StartError::NoAccount(NoAccount::NotAllowed(refusal)) => refusal.clone(),
                        _ if self.is_run() && !error.is_its_own() => Refusal::failed(detail.clone()),
                        _ => Refusal::StartFailed { detail: detail.clone() },
                    };
                    let _ = reply.send(Err(refusal));
                }
                let run = if error.is_its_own() { RunEnd::NotStarted } else { RunEnd::Lost };
                // A shim that was late may have started it all the same.
                self.kill_and_end(End::of_run(run, detail)).await
            }
        }
    }

    async fn try_launch(&mut self) -> Result<Started, StartError> {
        let mut record = self.record();
        record.port = self.listening_port(&record)?;
        let image = self.image(&record.spec.process).await?;
        record.launch = prepare(&self.site, &record.spec, record.port, &self.dir, image.as_ref())?;
        self.warn_of_unwritable(&record);
        self.working_set = None;
        let usage = || self.isolated(|isolation, member| isolation.usage(member));
        let cpu_before_s = if self.is_plain() { usage().cpu_seconds.unwrap_or(0.0) } else { 0.0 };
        for file in [PID_FILE, EXIT_FILE, RESULTS_FILE, WORKING_SET_FILE, WAKING_FILE, STOP_FILE] {
            let _ = fs::remove_file(self.dir.join(file));
        }
        make_output(&self.dir.join(OUTPUT_FILE), record.launch.user.as_ref())?;
        write_json(&self.dir.join(SPEC_FILE), &record)?;
        self.view.lock().expect("nothing panics while it is held").record = record;
        let limits = self.limits();
        self.isolated(|isolation, member| isolation.create(member, &limits))?;
        let oom_kills = usage().oom_kills;
        self.remember(|memory| {
            // Not before it is created anew: it would be counted twice by who looks meanwhile.
            memory.cpu_before_s += cpu_before_s;
            memory.oom_kills = oom_kills;
        });
        let patience = carry::patience_to_start(&self.spec(), SHIM_PATIENCE);
        start_shim(&self.site, &self.dir, self.socket.as_ref(), Some(patience)).await?;
        read_json(&self.dir.join(PID_FILE))?.ok_or(StartError::NoProcessId)
    }

    /// Its image. To unpack one may take long.
    async fn image(&self, process: &ProcessSpec) -> Result<Option<Inside>, StartError> {
        if process.image.is_none() {
            return Ok(None);
        }
        let (site, process) = (Arc::clone(&self.site), process.clone());
        let providing = tokio::task::spawn_blocking(move || Inside::provide(&site, &process));
        Ok(providing.await.map_err(io::Error::other)??)
    }

    /// Tells which folders the sandbox opens in vain: file permissions hold as well.
    fn warn_of_unwritable(&self, record: &Record) {
        let Some(user) = &record.launch.user else { return };
        for path in record.spec.sandbox.write.iter().filter(|path| !may_write_in(Path::new(path), user)) {
            let (name, uid) = (&user.name, user.uid);
            let text =
                format!("user {name} ({uid}) may write nothing in {path}, which `write` opens: chown {uid} {path}, or use $DATA");
            self.tell(InstanceState::Starting, text);
        }
    }

    /// The port of its socket, which is bound here where it is given one.
    fn listening_port(&mut self, record: &Record) -> Result<u16, StartError> {
        if !record.spec.pass_socket {
            self.socket = None;
            return self.free_port(record.port);
        }
        let held = self.socket.as_ref().and_then(|socket| socket.local_addr().ok()).map(|address| address.port());
        if let Some(socket) = self.socket.as_ref().filter(|_| held == Some(record.port)) {
            given::listen(socket)?;
            return Ok(record.port);
        }
        let port = self.free_port(record.port)?;
        self.socket = Some(given::bind(port)?);
        Ok(port)
    }

    /// `port`, or another one where somebody has taken it since the instance had it.
    fn free_port(&self, port: u16) -> Result<u16, StartError> {
        if ports::is_free(port) {
            return Ok(port);
        }
        let mut ports = self.site.ports.lock().expect("nothing panics while it is held");
        let other = ports.take().ok_or(StartError::NoPort)?;
        ports.give_back(port);
        tracing::warn!(instance = %self.spec().id, port, other, "another process has taken its port: it gets another one");
        Ok(other)
    }

    /// Goes on with what a former agent left.
    pub(super) async fn adopt(&mut self) -> Phase {
        let memory = self.memory();
        if memory.state == InstanceState::Starting {
            // Its shim may be about to start it: the former agent died just then.
            until(ADOPTION_PATIENCE, || self.dir.join(PID_FILE).exists()).await;
            until(carry::patience_to_start(&self.spec(), SHIM_PATIENCE), || !shim::is_starting(&self.dir)).await;
        }
        let Some(started) = self.started().filter(|started| self.site.proc.is_alive(started.main)) else {
            return match memory.state {
                InstanceState::Stopped | InstanceState::Failed => Phase::Ended(End::old(memory.detail)),
                InstanceState::Backoff => {
                    // The former agent knew how it ended, and counted this attempt.
                    self.remember(|memory| memory.failed_in_a_row = memory.failed_in_a_row.saturating_sub(1));
                    self.kill_and_end(End::failure(memory.ended.unwrap_or(memory.detail))).await
                }
                InstanceState::Stopping => {
                    if let Err(error) = self.remove().await {
                        tracing::error!(instance = %self.spec().id, %error, "a stopped instance left processes or files behind");
                    }
                    Phase::Gone
                }
                _ => self.after_end().await,
            };
        };
        let record = self.record();
        if record.spec.pass_socket {
            self.socket = given::of_shim(&self.site.proc, started.shim, record.port);
        }
        let Some(mut running) = self.running(started) else { return self.after_end().await };
        if !self.site.proc.is_alive(started.shim) {
            self.replace_shim(&mut running).await;
        }
        if memory.state == InstanceState::Stopping {
            return self.stop(running, None).await;
        }
        // A former agent may have died while it held the memory limit down for a moment.
        let limits = self.limits();
        if let Err(error) = self.isolated(|isolation, member| isolation.limit(member, &limits)) {
            tracing::warn!(instance = %self.spec().id, %error, "the limits of an adopted instance cannot be set");
        }
        self.finish_sleep(&mut running).await;
        Phase::Running(Box::new(running))
    }
}

/// Starts the shim of the instance in `dir`, which gets `socket` as its standard input and starts it within `patience`; without one for a
/// process that runs already. An error is why it does not run.
pub(super) async fn start_shim(
    site: &Site,
    dir: &Path,
    socket: Option<&TcpListener>,
    patience: Option<Duration>,
) -> Result<(), StartError> {
    let (adopt, patience) = (patience.is_none(), patience.unwrap_or(SHIM_PATIENCE));
    let stderr = fs::OpenOptions::new().append(true).create(true).open(dir.join("shim.err"))?;
    let mut command = tokio::process::Command::new(&site.shim_program);
    // The name that `ps` shows, whatever our own program is called by now.
    command.arg0("weal-shim").arg("shim").arg("--dir").arg(dir).current_dir("/").env_clear();
    if adopt {
        command.arg("--adopt");
    }
    let input = match socket {
        Some(socket) => Stdio::from(OwnedFd::from(socket.try_clone()?)),
        None => Stdio::null(),
    };
    command.stdin(input).stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn().map_err(StartError::NoShim)?;
    let mut said = String::new();
    let listen = async {
        match &mut child.stdout {
            Some(stdout) => stdout.read_to_string(&mut said).await,
            None => Ok(0),
        }
    };
    let listening = tokio::time::timeout(patience, listen).await;
    if listening.is_err() {
        // It would start the instance when nobody expects it any more.
        let _ = child.start_kill();
    }
    // The runtime reaps it when it ends; dropping the handle leaves it alone.
    drop(child);
    match (listening, said.trim()) {
        (Ok(Ok(_)), "started") => Ok(()),
        (Ok(_), "") => {
            let complaint = fs::read_to_string(dir.join("shim.err")).unwrap_or_default();
            let complaint = complaint.lines().last().unwrap_or("it said nothing").to_owned();
            Err(StartError::ShimEnded { complaint })
        }
        (Ok(_), why) => Err(StartError::Refused { why: why.to_owned() }),
        (Err(_), _) => Err(StartError::ShimSilent { within: patience }),
    }
}

/// Fills everything in: environment, program, user, data folder.
pub(super) fn prepare(
    site: &Site,
    spec: &InstanceSpec,
    port: u16,
    dir: &Path,
    image: Option<&Inside>,
) -> Result<Launch, StartError> {
    let mut data = site.data_of(spec);
    let cwd = match image {
        Some(image) => image.cwd(&spec.cwd).to_owned(),
        None if spec.cwd.is_empty() => data.display().to_string(),
        None => spec.cwd.clone(),
    };
    // Root allows what was asked for.
    let account = site.accounts.of(spec, &data)?;
    let spec = &InstanceSpec { cwd, ..spec.clone() };
    carry::check_patterns(spec)?;
    make_data(&data, account.owner())?;
    // In an image a path has none of the machine's links on its way.
    let mut known = dir.to_owned();
    if image.is_some() {
        (data, known) = (data.canonicalize().map_err(at(&data))?, dir.canonicalize().map_err(at(dir))?);
    }
    if let Some(run) = spec.job.as_ref().filter(|run| !run.addresses.is_empty()) {
        hosts::write(run, &data, account.owner())?;
    }
    let first = first_environment(&data, account.person(), image);
    let mut env = environment(spec, port, &data, dir, first)?;
    let secrets = add_confidential(site, spec, &mut env, image)?;
    // A job's command is what its shell made of it.
    let fill = |word: &String| if spec.job.is_some() { Ok(word.clone()) } else { fill_in(word, &env) };
    let all = |words: &Vec<String>| words.iter().map(fill).collect::<Result<Vec<_>, _>>();
    let mut argv = all(&spec.run)?;
    if let Some(image) = image {
        // What the image itself says stays as it is.
        let entrypoint = spec.process.entrypoint.as_ref().map(all).transpose()?;
        argv = image.command(entrypoint.as_deref(), &argv);
    }
    // After that: everybody can read a command line.
    remove_former_secrets(&data);
    env.extend(give_secrets(spec, secrets, &known, account.owner())?);
    if spec.job.is_some() && site.isolation.kind() != Kind::None {
        // Its group tells what is part of it.
        env.remove(shim::MARK);
    }
    let program = argv.first().ok_or(StartError::EmptyRun)?;
    let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    argv[0] = match image {
        Some(image) => image.find_program(program, &spec.cwd, path)?,
        None => find_program(program, Path::new(&spec.cwd), path)?,
    };
    if let Some(user) = account.to_become() {
        check_ways(user, spec, image.is_none().then(|| Path::new(&argv[0])))?;
    }
    let member = Member { node: spec.node.as_str(), instance: spec.id.as_str(), dir };
    let (entrances, side_entrances) = (site.isolation.entrances(member), site.isolation.side_entrances());
    let sandbox = match image {
        Some(image) => image.confine(confine(site, spec, &[], data, &known)?, &known)?,
        None => confine(site, spec, &folders_of(spec, Path::new(&argv[0])), data, dir)?,
    };
    let (cwd, user) = (PathBuf::from(&spec.cwd), account.to_become().cloned());
    let ProcessSpec { umask, limits, stdin, .. } = spec.process.clone();
    let (stdin, socket, stop_signal) = (stdin.map(PathBuf::from), spec.pass_socket, image.and_then(Inside::stop_signal));
    Ok(Launch { argv, env, cwd, user, entrances, side_entrances, sandbox, umask, limits, stdin, socket, stop_signal })
}

/// Adds the variables of the application's files, which win over what weal itself has and over nothing that the config says; returns its
/// secrets.
fn add_confidential(
    site: &Site,
    spec: &InstanceSpec,
    env: &mut BTreeMap<String, String>,
    image: Option<&Inside>,
) -> Result<BTreeMap<String, String>, StartError> {
    if !spec.process.is_confidential() {
        return Ok(BTreeMap::new());
    }
    let Hidden { variables, secrets } = site.accounts.confidential()?.of(spec.owner());
    for (name, value) in variables {
        let is_said = spec.env.contains_key(&name) || (name == "TZ" && spec.process.time_zone.is_some());
        let is_weak = |value: &String| match image {
            Some(image) => image.gave(&name, value),
            None => INHERITED.contains(&name.as_str()),
        };
        if env.get(&name).is_none_or(|value| is_weak(value) && !is_said) {
            env.insert(name, value);
        }
    }
    match spec.process.secrets.keys().find(|name| !secrets.contains_key(*name)) {
        Some(missing) => Err(StartError::NoSecret { name: missing.clone() }),
        None => Ok(secrets),
    }
}

/// The variables of the secrets that `spec` names, once those that are given as files lie in the instance's folder `dir`.
fn give_secrets(
    spec: &InstanceSpec,
    values: BTreeMap<String, String>,
    dir: &Path,
    owner: Option<Owner>,
) -> io::Result<Vec<(String, String)>> {
    let mut given = Vec::new();
    let secrets = &spec.process.secrets;
    let is_file = |name: &str| secrets.get(name).is_some_and(|secret| secret.as_file);
    let dir = Folder::open(dir)?;
    if let Some(former) = dir.child(SECRETS_FOLDER)? {
        former.remove_files(|name| !is_file(name))?;
    }
    for (name, value) in values.into_iter().filter(|(name, _)| secrets.contains_key(name)) {
        if !is_file(&name) {
            given.push((name, value));
            continue;
        }
        let folder = dir.make(SECRETS_FOLDER, 0o711)?;
        // The application passes through both: where it sees the machine's own folders, nothing else opens the way.
        [&dir, &folder].into_iter().try_for_each(|folder| folder.set_mode(0o711))?;
        let path = folder.replace_file(&name, value.as_bytes(), owner)?;
        given.push((name, path.display().to_string()));
    }
    Ok(given)
}

/// Removes what a version before left of secrets in the application's own folder. The application may have put anything in its place: then it
/// stays, and keeps nothing from starting.
fn remove_former_secrets(data: &Path) {
    let former = Folder::open(data).and_then(|data| data.child(FORMER_SECRETS_FOLDER));
    if let Ok(Some(former)) = former {
        let _ = former.remove_files(|_| true);
        let _ = fs::remove_dir(data.join(FORMER_SECRETS_FOLDER));
    }
}

/// The folders of the machine that an instance needs.
fn folders_of(spec: &InstanceSpec, program: &Path) -> Vec<PathBuf> {
    let real = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let folders = [Some(Path::new(&spec.cwd)), program.parent(), real.parent()].into_iter().flatten();
    folders.map(Path::to_owned).collect()
}

/// How far the instance is confined, which needs `folders`.
fn confine(site: &Site, spec: &InstanceSpec, folders: &[PathBuf], data: PathBuf, dir: &Path) -> io::Result<SandboxPlan> {
    let secrets = Some(dir.join(SECRETS_FOLDER)).filter(|secrets| secrets.exists());
    let keep = folders.iter().cloned().chain(secrets).collect();
    let paths = weal_sandbox::Paths { data, tmp: make_tmp(dir)?, keep };
    Ok(SandboxPlan::new(&spec.sandbox, site.confinement, &paths))
}

/// Whether `user` gets to all that an instance from `spec` needs of the machine. `program` is `None` for one of an image.
fn check_ways(user: &User, spec: &InstanceSpec, program: Option<&Path>) -> Result<(), StartError> {
    // To write a file, nobody has to run it.
    let folder = |path| if Path::is_dir(path) { path } else { path.parent().unwrap_or(path) };
    let written = spec.sandbox.write.iter().map(|path| folder(Path::new(path)));
    let needed = program.into_iter().flat_map(|program| [Path::new(&spec.cwd), program]).chain(written);
    match needed.into_iter().find_map(|path| barrier(path, user)) {
        None => Ok(()),
        Some(barrier) => Err(StartError::Unreachable { user: user.name.clone(), barrier }),
    }
}

/// The folder that holds an instance's own /tmp and /var/tmp: what it left there stays as long as the instance is known.
fn make_tmp(dir: &Path) -> io::Result<PathBuf> {
    let folder = Folder::open(dir)?.make(TMP_FOLDER, 0o700)?;
    for name in ["tmp", "var-tmp"] {
        folder.make(name, 0o700)?.set_mode(0o1777)?;
    }
    Ok(dir.join(TMP_FOLDER))
}

/// What an environment begins with: what weal's own has, or what an image says.
fn first_environment(data: &Path, user: Option<&User>, image: Option<&Inside>) -> BTreeMap<String, String> {
    if let Some(image) = image {
        return image.environment(data, DEFAULT_PATH);
    }
    let mut env: BTreeMap<String, String> =
        INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
    env.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
    if let Some(User { name, home, .. }) = user {
        env.extend(["USER", "LOGNAME"].map(|variable| (variable.to_owned(), name.clone())));
        env.insert("HOME".to_owned(), home.display().to_string());
    }
    env
}

/// The whole environment, which begins with `env`.
fn environment(
    spec: &InstanceSpec,
    port: u16,
    data: &Path,
    dir: &Path,
    mut env: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, UnknownVariable> {
    let own = match &spec.job {
        Some(run) => [("JOB", run.job.to_string()), ("ATTEMPT", run.attempt.to_string())],
        None => [("PORT", port.to_string()), ("INSTANCE", spec.id.to_string())],
    };
    if spec.job.is_none() {
        env.insert(awake::VARIABLE.to_owned(), data.join(awake::FILE).display().to_string());
    }
    let added = own.into_iter().chain([("DATA", data.display().to_string()), ("NODE", spec.node.to_string())]);
    env.extend(added.map(|(name, value)| (name.to_owned(), value)));
    if let Some(run) = &spec.job {
        env.extend(spec.env.clone());
        let file = data.join(progress::file_name(run.attempt, run.task));
        env.insert(progress::VARIABLE.to_owned(), file.display().to_string());
        if !run.addresses.is_empty() {
            env.insert(hosts::VARIABLE.to_owned(), data.join(hosts::file_name(run)).display().to_string());
        }
    }
    env.extend(spec.process.time_zone.iter().map(|zone| ("TZ".to_owned(), zone.clone())));
    // Values may use what is known so far, and the addresses of what the application needs, which are among them.
    let known: BTreeMap<String, String> = env.iter().chain(&spec.env).map(|(k, v)| (k.clone(), v.clone())).collect();
    for (name, value) in spec.env.iter().filter(|_| spec.job.is_none()) {
        env.insert(name.clone(), fill_in(value, &known)?);
    }
    if spec.pass_socket {
        let (name, value) = given::COUNT;
        env.insert(name.to_owned(), value.to_owned());
    }
    if let Some((name, value)) = mark(dir).split_once('=') {
        env.insert(name.to_owned(), value.to_owned());
    }
    Ok(env)
}

/// The folder of an application's data belongs to whom it runs as, also when that was another before. `owner` is `None` where the agent
/// cannot give anything away.
fn make_data(data: &Path, owner: Option<Owner>) -> io::Result<()> {
    let (Some(parent), Some(name)) = (data.parent(), data.file_name().and_then(|name| name.to_str())) else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o711).create(parent).map_err(at(parent))?;
    let folder = Folder::open(parent)?.make(name, 0o700)?;
    if let Some(owner) = owner
        && folder.give(owner)?
    {
        tracing::info!(folder = %data.display(), uid = owner.uid, "the data folder belongs to another user from now on");
    }
    Ok(())
}

/// The pipe belongs to the instance's user, who may open it by name too (`/dev/stdout`).
fn make_output(path: &Path, user: Option<&User>) -> io::Result<()> {
    // That of a former process may be another user's.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(path)(error)),
        _ => {}
    }
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).map_err(|error| at(path)(error.into()))?;
    user.map_or(Ok(()), |user| give_entry(path, Owner { uid: user.uid, gid: user.gid }))
}

/// What the agent writes down before the first start.
pub fn first_record(spec: InstanceSpec, port: u16) -> Record {
    let launch = Launch {
        argv: Vec::new(),
        env: BTreeMap::new(),
        cwd: PathBuf::from(&spec.cwd),
        user: None,
        entrances: Vec::new(),
        side_entrances: Vec::new(),
        sandbox: SandboxPlan::default(),
        umask: None,
        limits: BTreeMap::new(),
        stdin: None,
        socket: false,
        stop_signal: None,
    };
    Record { spec, port, launch }
}
