//! The pool: `weal up` in a folder of its own, whose state directory is a small disk where this user may mount one.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use weal_host::Proc;
use weal_host::cgroup::Group;
use weal_model::HistorySample;
use weal_node::isolation::ROLES_GROUP;

use super::held::OpenFiles;
use super::machine;

/// The roles, as their command lines name them.
pub const ROLES: [&str; 3] = ["gateway", "controller", "node"];
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A pool that runs.
pub struct Pool {
    weal: PathBuf,
    folder: PathBuf,
    listen: SocketAddr,
    api: SocketAddr,
    supervisor: Child,
    has_own_disk: bool,
}

impl Pool {
    /// Starts one with two applications from the programs in `programs`, and waits until it serves.
    pub fn start(programs: &Path, folder: &Path) -> Result<Self> {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
        let echo = folder.join("echo");
        fs::copy(programs.join("examples/echo"), &echo)?;
        fs::set_permissions(echo, fs::Permissions::from_mode(0o755))?;
        let state = folder.join("state");
        fs::create_dir(&state)?;
        let has_own_disk = machine::mount_disk(folder, &state) || mount_memory(&state);
        let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
        let (listen, api) = (free()?, free()?);
        let weal = folder.join("weal");
        install(&programs.join("weal"), folder)?;
        let supervisor = Command::new("true").spawn()?;
        let mut pool = Self { weal, folder: folder.to_owned(), listen, api, supervisor, has_own_disk };
        pool.write(&pool.config(""))?;
        pool.supervisor = pool.spawn()?;
        pool.wait("the pool to serve", |pool| pool.status().is_some_and(|status| is_ready(&status)))?;
        Ok(pool)
    }

    fn spawn(&self) -> Result<Child> {
        let log = File::options().append(true).create(true).open(self.folder.join("up.log"))?;
        let mut command = self.prepared(&["up"]);
        command.stdout(log.try_clone()?).stderr(log);
        command.spawn().context("cannot start weal up")
    }

    fn prepared(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.weal);
        command.args(words).stdin(Stdio::null()).env("WEAL_FILE", self.folder.join("weal.toml")).env("WEAL_STATE", self.state());
        command
    }

    fn weal(&self, words: &[&str]) -> Result<Output> {
        self.prepared(words).output().context("cannot run weal")
    }

    /// Where the gateway listens.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Whether it can be filled without harm to others.
    pub fn has_own_disk(&self) -> bool {
        self.has_own_disk
    }

    /// The config, with `more` for the first application.
    pub fn config(&self, more: &str) -> String {
        let echo = self.folder.join("echo");
        let app = |name: &str, instances: u32, more: &str| {
            format!(
                "[app.{name}]\nrun = [\"{}\", \"--port\", \"$PORT\"]\nhealth = {{ http = \"/healthz\", timeout = \"1s\", interval = \"1s\", failures = 2, replace-after = 4 }}\nstop-timeout = \"2s\"\nmemory = \"64MiB\"\n\
                 instances = {{ min = {instances}, max = {instances} }}\nroutes = [{{ host = \"{name}.localhost\" }}]\n{more}\n",
                echo.display()
            )
        };
        let (listen, api) = (self.listen, self.api);
        let pool = format!("[pool]\nlisten = \"{listen}\"\napi = \"{api}\"\nflow-cycle = \"1s\"\nwatch = true\n\n");
        pool + &app("front", 2, more) + &app("back", 1, "")
    }

    /// Replaces the config, whole, as an editor does.
    pub fn write(&self, text: &str) -> Result<()> {
        let new = self.folder.join("weal.toml.new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, self.folder.join("weal.toml"))?)
    }

    /// What `weal status` shows; `None` when it shows nothing.
    pub fn status(&self) -> Option<Value> {
        let output = self.weal(&["status", "-o", "json"]).ok()?;
        output.status.success().then(|| serde_json::from_slice(&output.stdout).ok())?
    }

    /// The samples of the last so many seconds, as the API tells them.
    pub fn history(&self, since: Duration) -> Result<Vec<HistorySample>> {
        let mut api = TcpStream::connect(self.api)?;
        let since_s = since.as_secs_f64();
        // A client of this version gets its answer in one piece.
        write!(api, "GET /v1/history?since_s={since_s} HTTP/1.0\r\nhost: {}\r\n\r\n", self.api)?;
        let mut answer = String::new();
        api.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("the API broke off")?;
        ensure!(head.contains(" 200 "), "the API answers {head}");
        Ok(serde_json::from_str(body)?)
    }

    /// Does something to it while nothing of it runs.
    pub fn while_down(&mut self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let left = self.end()?;
        ensure!(left.is_empty(), "{}", left.join("\n"));
        act()?;
        self.supervisor = self.spawn()?;
        self.wait("the pool to serve again", |pool| pool.status().is_some_and(|status| is_ready(&status)))
    }

    /// The living processes of a role.
    pub fn roles(&self, role: &str) -> Vec<u32> {
        let start = format!("weal role {role} --state {} ", self.state().display());
        self.processes(|line| line.starts_with(&start))
    }

    /// The living processes of the applications.
    pub fn instances(&self) -> Vec<u32> {
        let start = format!("{} --port ", self.folder.join("echo").display());
        self.processes(|line| line.starts_with(&start))
    }

    /// The living shims.
    pub fn shims(&self) -> Vec<u32> {
        let start = format!("weal-shim shim --dir {}", self.state().display());
        self.processes(|line| line.starts_with(&start))
    }

    fn processes(&self, is_meant: impl Fn(&str) -> bool) -> Vec<u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| is_alive(*pid) && is_meant(&command_line(*pid))).collect()
    }

    /// All processes of weal's own that the pool runs in, without the shims.
    pub fn own_processes(&self) -> Vec<u32> {
        ROLES.into_iter().flat_map(|role| self.roles(role)).chain([self.supervisor()]).collect()
    }

    /// How many files each role and the supervisor have open: of several looks the least, since connections come and go.
    pub fn open_files(&self) -> OpenFiles {
        const LOOKS: u32 = 5;
        let mut least = OpenFiles::new();
        for _ in 0..LOOKS {
            let roles = ROLES.into_iter().flat_map(|role| self.roles(role).into_iter().map(move |pid| (role, pid)));
            for (name, pid) in roles.chain([("supervisor", self.supervisor())]) {
                let Some(identity) = Proc::system().identity(pid) else { continue };
                let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
                let known = least.get(name).filter(|(known, _)| *known == identity).map_or(files, |(_, known)| *known);
                least.insert(name, (identity, files.min(known)));
            }
            std::thread::sleep(PAUSE);
        }
        least
    }

    /// The folder that the state directory is in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The process that the record names for a role.
    pub fn recorded(&self, role: &str) -> Option<u32> {
        let record: Value = serde_json::from_slice(&fs::read(self.state().join("supervisor.json")).ok()?).ok()?;
        let entry = record["roles"].as_array()?.iter().find(|one| one["role"] == role)?.clone();
        u32::try_from(entry["pid"].as_u64()?).ok()
    }

    /// `kill -9` of these roles at once.
    pub fn kill(&mut self, roles: &[&str]) {
        let pids: Vec<u32> = roles.iter().flat_map(|role| self.roles(role)).collect();
        pids.into_iter().for_each(|pid| send(pid, Signal::KILL));
    }

    /// `kill -9` of the supervisor, and of these roles with it; then the next one.
    pub fn replace_supervisor(&mut self, roles: &[&str]) -> Result<()> {
        self.supervisor.kill()?;
        self.supervisor.wait()?;
        self.kill(roles);
        self.supervisor = self.spawn()?;
        let pid = u64::from(self.supervisor.id());
        self.wait("the next supervisor", |pool| pool.is_recorded(pid))
    }

    fn is_recorded(&self, pid: u64) -> bool {
        let record = fs::read(self.state().join("supervisor.json")).unwrap_or_default();
        serde_json::from_slice::<Value>(&record).is_ok_and(|record| record["pid"].as_u64() == Some(pid))
    }

    /// Lets a role stand still until another one has its place.
    pub fn stop_until_replaced(&mut self, role: &str) -> Result<()> {
        let stopped = self.roles(role);
        stopped.iter().for_each(|pid| send(*pid, Signal::STOP));
        self.wait(&format!("another {role}"), |pool| pool.roles(role).iter().any(|pid| !stopped.contains(pid)))
    }

    /// The supervisor's process.
    pub fn supervisor(&self) -> u32 {
        self.supervisor.id()
    }

    /// Sends the supervisor a signal.
    pub fn signal_supervisor(&self, signal: Signal) {
        send(self.supervisor.id(), signal);
    }

    /// Does something while the supervisor stands still, so that nothing is started meanwhile.
    pub fn stop_supervisor_while(&mut self, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.signal_supervisor(Signal::STOP);
        let done = act(self);
        self.signal_supervisor(Signal::CONT);
        done
    }

    /// Waits until there is one of each role.
    pub fn wait_for_roles(&self) -> Result<()> {
        self.wait("all roles", |pool| ROLES.into_iter().all(|role| pool.roles(role).len() == 1))
    }

    /// The ports of the instances.
    pub fn ports(&self) -> Vec<u16> {
        self.instances().into_iter().filter_map(port_of).collect()
    }

    /// Lets the pool go on with the other build, and then with the one that it was started from.
    pub fn upgrade_and_back(&self) -> Result<()> {
        for build in BUILDS.into_iter().rev() {
            let next = self.folder.join("weal.next");
            fs::hard_link(self.folder.join(build), &next)?;
            fs::rename(next, &self.weal)?;
            let upgrade = self.weal(&["upgrade"])?;
            ensure!(upgrade.status.success(), "weal upgrade: {}", String::from_utf8_lossy(&upgrade.stderr));
        }
        Ok(())
    }

    /// `kill -9` of an instance; returns its port.
    pub fn kill_instance(&self) -> Result<u16> {
        let pid = self.instances().into_iter().next().context("no instance runs")?;
        let port = port_of(pid);
        send(pid, Signal::KILL);
        self.wait_for_end(pid)?;
        port.context("an instance has no port")
    }

    /// Lets an instance stand still until weal ends it.
    pub fn stop_instance_until_replaced(&self) -> Result<()> {
        let pid = self.instances().into_iter().next().context("no instance runs")?;
        send(pid, Signal::STOP);
        self.wait_for_end(pid)
    }

    /// An instance that runs, and the folder in which the node agent keeps its record.
    pub fn instance_with_folder(&self) -> Result<(u32, PathBuf)> {
        let found = self.instances().into_iter().find_map(|pid| {
            let environment = fs::read_to_string(format!("/proc/{pid}/environ")).ok()?;
            let name = environment.split('\0').find_map(|variable| variable.strip_prefix("INSTANCE="))?;
            let folder = self.state().join("node/instances").join(name);
            folder.is_dir().then_some((pid, folder))
        });
        found.context("no instance has a folder")
    }

    /// Waits until a process has ended.
    pub fn wait_for_end(&self, pid: u32) -> Result<()> {
        self.wait("the end of an instance", |_| !is_alive(pid))
    }

    /// Lets the roles open no more files than they have open, for `time`; false where this user may limit none of them.
    pub fn without_files(&self, time: Duration) -> Result<bool> {
        let mut limits = Vec::new();
        for pid in ROLES.iter().flat_map(|role| self.roles(role)).filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
            let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid()))?.count() as u64;
            let limit = limit_of(pid)?;
            // Another user's process needs a capability that even root may lack.
            if prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(open), ..limit }).is_ok() {
                limits.push((pid, limit));
            }
        }
        std::thread::sleep(time);
        for &(pid, limit) in &limits {
            // It may have died of it, and been replaced.
            let _ = prlimit(Some(pid), Resource::Nofile, limit);
        }
        Ok(!limits.is_empty())
    }

    /// `weal sleep`. That somebody asks for it at the same time is no fault.
    pub fn tell_to_sleep(&self, app: &str) -> Result<()> {
        self.weal(&["sleep", app, "--timeout", "2"]).map(drop)
    }

    /// Waits until the first application's instances have another environment, or the one of the beginning.
    pub fn wait_for_another_generation(&self, is_other: bool) -> Result<()> {
        self.wait("a rollout", |pool| {
            let environments = pool.instances().into_iter().map(|pid| fs::read_to_string(format!("/proc/{pid}/environ")));
            let of_first = environments.flatten().filter(|text| text.contains("INSTANCE=front-"));
            let others: Vec<bool> = of_first.map(|text| text.contains("GENERATION=2")).collect();
            others.len() == 2 && others.into_iter().all(|other| other == is_other)
        })
    }

    /// `kill -9` of a shim.
    pub fn kill_shim(&self) -> Result<()> {
        send(self.shims().into_iter().next().context("no shim runs")?, Signal::KILL);
        Ok(())
    }

    /// Ends it. Returns what is left of it.
    pub fn end(&mut self) -> Result<Vec<String>> {
        let groups: Vec<Group> = self.roles("node").into_iter().flat_map(groups).collect();
        let down = self.weal(&["down"])?;
        ensure!(down.status.success(), "weal down: {}", String::from_utf8_lossy(&down.stderr));
        self.supervisor.wait()?;
        let name = self.folder.display().to_string();
        let left = self.processes(|line| line.contains(&name));
        let groups = groups.iter().filter(|group| group.exists()).map(|group| group.path().display().to_string());
        Ok(left
            .into_iter()
            .map(command_line)
            .chain(groups)
            .map(|left| format!("after weal down, there still is {left}"))
            .collect())
    }

    fn wait(&self, what: &str, mut is_there: impl FnMut(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_there(self) {
            if Instant::now() >= deadline {
                bail!("waited in vain for {what}; weal up said:\n{}", fs::read_to_string(self.folder.join("up.log"))?);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // After `end` nothing is left; otherwise this is the way out of a failed run.
        let _ = self.weal(&["down", "--timeout", "20"]);
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        if self.has_own_disk {
            let _ = unmount(self.state(), UnmountFlags::DETACH);
        }
    }
}

/// Two builds of weal, which differ in what stands behind their code. The first one is installed.
const BUILDS: [&str; 2] = ["weal-1", "weal-2"];

fn install(built: &Path, folder: &Path) -> Result<()> {
    for build in BUILDS {
        let program = folder.join(build);
        fs::copy(built, &program)?;
        fs::OpenOptions::new().append(true).open(&program)?.write_all(build.as_bytes())?;
    }
    Ok(fs::hard_link(folder.join(BUILDS[0]), folder.join("weal"))?)
}

fn port_of(instance: u32) -> Option<u16> {
    command_line(instance).split_whitespace().last().and_then(|port| port.parse().ok())
}

/// What does as a disk where no image can be mounted.
fn mount_memory(at: &Path) -> bool {
    mount("none", at, "tmpfs", MountFlags::empty(), Some(c"size=32m,mode=0711")).is_ok()
}

fn is_ready(status: &Value) -> bool {
    status["apps"].as_array().is_some_and(|apps| !apps.is_empty() && apps.iter().all(|app| app["state"] == "ready"))
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

pub fn command_line(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

fn limit_of(pid: Pid) -> Result<Rlimit> {
    let text = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_pid()))?;
    let line = text.lines().find(|line| line.starts_with("Max open files")).context("no limit of open files is shown")?;
    let mut numbers = line.split_whitespace().skip(3).map(|number| number.parse().ok());
    Ok(Rlimit { current: numbers.next().flatten(), maximum: numbers.next().flatten() })
}

/// Sends a process a signal.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

/// The control groups of that pool, of which all others are parts: one in each hierarchy in which its roles have a place.
pub fn groups(agent: u32) -> Vec<Group> {
    let proc = Proc::system();
    let own = proc.group_directories(agent, &proc.cgroup_mounts(std::process::id())).into_iter();
    own.filter(|group| group.ends_with(ROLES_GROUP)).filter_map(|group| group.parent().map(Group::new)).collect()
}
