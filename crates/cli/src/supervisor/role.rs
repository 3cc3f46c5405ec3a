//! One role as the supervisor sees it: its sockets, its process, and when to start it again.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::api_tls::ApiTlsFiles;
use super::ports::Ports;
use super::pulse::{Beat, Pulse};
use super::sockets::{bind_tcp, bind_unix, inheritable, number, taken_over};
use rustix::process::{Gid, Uid};
use weal_host::users::User;
use weal_sandbox::{ConfinementSupport, Failure, SandboxPlan};

use crate::process::ProcessId;
use crate::role_name::RoleName;
use crate::state::{RoleRecord, StateDir};
use crate::users::RoleUsers;

/// A role that lives longer than this was well; one that dies sooner is started again after a pause.
const STABLE: Duration = Duration::from_secs(5);
/// The first pause. Short, as clients wait in the backlog meanwhile.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause: a role that cannot start costs little, and is back soon once its cause is gone.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a gateway that is replaced may finish its requests.
const LAST_REQUESTS: Duration = Duration::from_secs(15);

/// Variables that a role gets of the supervisor's environment: what it reads itself, and what the node agent hands on to instances. The rest may
/// hold an operator's secrets.
const KEPT: [&str; 9] =
    ["PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "WEAL_LOG", "WEAL_RECORD_DECISIONS", "RUST_BACKTRACE"];

/// Where a controller finds what it needs for TLS at the API.
const API_TLS: &str = "--api-tls-fd";

/// A role's end, as its watcher reports it.
#[derive(Debug)]
pub struct RoleEnd {
    /// Which.
    pub role: RoleName,
    /// Which process of it.
    pub process: ProcessId,
    /// How, in words.
    pub how: String,
}

/// One role.
pub struct Role {
    name: RoleName,
    address: Option<(SocketAddr, &'static str)>,
    tcp: Option<TcpListener>,
    /// Where the gateway speaks TLS.
    tls_address: Option<SocketAddr>,
    tls: Option<TcpListener>,
    /// What the controller needs to speak TLS at the API; no other role has any.
    api_tls: Option<ApiTlsFiles>,
    unix: Option<UnixListener>,
    /// The node agent's second one, on which it answers nothing but wakes.
    wake: Option<UnixListener>,
    /// What the gateway listens at besides; no other role has any.
    ports: Option<Ports>,
    /// Where the gateway shares seats with its successor; no other role has any.
    seats: Option<OwnedFd>,
    /// Whom each role runs as; `None` when all run as the supervisor's user.
    users: Option<RoleUsers>,
    /// The living process.
    pub record: Option<RoleRecord>,
    started: Instant,
    pulse: Pulse,
    /// Ends in a row, each soon after its start.
    pub quick_ends: u32,
    /// When to start it again; `None` while it lives.
    pub restart_at: Option<Instant>,
}

impl Role {
    /// A role that has neither sockets nor a process yet. `address` is its TCP address with its key in the config.
    pub fn new(name: RoleName, address: Option<(SocketAddr, &'static str)>, users: Option<RoleUsers>) -> Self {
        let (record, tcp, tls, api_tls, unix, wake, ports, seats) = (None, None, None, None, None, None, None, None);
        let tls_address = None;
        Self {
            name,
            address,
            tcp,
            tls_address,
            tls,
            api_tls,
            unix,
            wake,
            ports,
            seats,
            users,
            record,
            started: Instant::now(),
            pulse: Pulse::default(),
            quick_ends: 0,
            restart_at: None,
        }
    }

    /// It listens at `ports` too.
    #[must_use]
    pub fn with_ports(self, ports: Ports) -> Self {
        Self { ports: Some(ports), ..self }
    }

    /// The same, which listens at `address` for TLS too.
    #[must_use]
    pub fn with_tls(mut self, address: Option<SocketAddr>) -> Self {
        self.tls_address = address;
        self
    }

    /// The same, which speaks TLS at the API.
    #[must_use]
    pub fn with_api_tls(mut self, files: Option<ApiTlsFiles>) -> Self {
        self.api_tls = files;
        self
    }

    /// Replaces its process where the certificate of the API has changed. `None` while it has not; otherwise whether it can be used.
    pub fn look_at_certificate(&mut self) -> Option<anyhow::Result<()>> {
        let looked = self.api_tls.as_mut()?.look()?;
        if looked.is_ok() {
            self.terminate();
        }
        Some(looked)
    }

    /// Whom it runs as; `None` is the supervisor's user.
    fn user(&self) -> Option<&User> {
        self.users.as_ref()?.of(self.name)
    }

    /// Who may open its first socket, besides the supervisor's user: the controller calls the others. Operators call the controller.
    fn caller(&self) -> Option<&User> {
        self.users.as_ref().filter(|_| self.name != RoleName::Controller).map(|users| &users.controller)
    }

    /// Its name.
    pub fn name(&self) -> RoleName {
        self.name
    }

    /// Makes the sockets that it does not have.
    pub fn bind(&mut self, state: &StateDir) -> anyhow::Result<()> {
        if let (None, Some((address, key))) = (&self.tcp, self.address) {
            self.tcp = Some(bind_tcp(address, key, "[pool]")?);
        }
        if let (None, Some(address)) = (&self.tls, self.tls_address) {
            self.tls = Some(bind_tcp(address, "listen", "[pool]")?);
        }
        if self.unix.is_none() {
            self.unix = Some(bind_unix(&state.socket(self.name), self.caller())?);
        }
        if self.name == RoleName::Node && self.wake.is_none() {
            let gateway = self.users.as_ref().map(|users| &users.gateway);
            self.wake = Some(bind_unix(&state.wake_socket(), gateway)?);
        }
        if self.name == RoleName::Gateway && self.seats.is_none() {
            self.seats = Some(weal_gateway::seats_memory().context("no memory for the seats that gateways share")?);
        }
        self.ports.as_ref().map_or(Ok(()), Ports::bind)
    }

    /// Puts it before other processes of its group: every request passes the gateway, and a controller without CPU time decides nothing.
    /// Not the node agent, whose instances would inherit it. Without the right to do so it stays as it is. The agent puts the group before
    /// the instances' ([`weal_protocol::node::PREFER`]).
    fn prefer(&self, process: ProcessId) {
        const PREFERRED: i32 = -10;
        let preferred = matches!(self.name, RoleName::Gateway | RoleName::Controller);
        if let Some(pid) = rustix::process::Pid::from_raw(process.pid().cast_signed()).filter(|_| preferred) {
            let _ = rustix::process::setpriority_process(Some(pid), PREFERRED);
        }
    }

    /// Starts its process, which reports its end to `ends`.
    ///
    /// # Errors
    /// It cannot be started, or another process of this role still lives.
    pub fn start(&mut self, state: &StateDir, ends: &mpsc::UnboundedSender<RoleEnd>) -> anyhow::Result<()> {
        self.bind(state)?;
        let lock = state.lock_role(self.name)?;
        let lock = lock.with_context(|| format!("another {} of this pool still lives", self.name.name()))?;
        let held = inheritable(&lock)?;
        let tcp = self.tcp.as_ref().map(inheritable).transpose()?;
        let tls = self.tls.as_ref().map(inheritable).transpose()?;
        let unix = self
            .unix
            .as_ref()
            .map(inheritable)
            .transpose()?
            .with_context(|| format!("there is no socket for the {}", self.name.name()))?;
        let wake = self.wake.as_ref().map(inheritable).transpose()?;
        let ports = self.ports.as_ref().map(Ports::for_start).transpose().context("cannot hand the ports over")?;
        let mut command = self.command(state, [tcp.as_ref(), tls.as_ref(), wake.as_ref()], &unix, &held)?;
        ports.iter().for_each(|socket| {
            command.args(["--ports-fd", &number(socket).to_string()]);
        });
        let seats = self.seats.as_ref().map(|memory| inheritable(&weal_gateway::seats_of_another(memory)?)).transpose()?;
        seats.iter().for_each(|memory| {
            command.args(["--seats-fd", &number(memory).to_string()]);
        });
        let certificate = self.api_tls.as_ref().map(|files| inheritable(&files.for_start()?).map_err(anyhow::Error::from));
        let certificate = certificate.transpose().context("cannot hand the certificate of the API over")?;
        certificate.iter().for_each(|memory| {
            command.args([API_TLS, &number(memory).to_string()]);
        });
        let mut child = command.spawn().with_context(|| format!("cannot start the {}", self.name.name()))?;
        let process = child.id().and_then(ProcessId::of).context("it ended at once")?;
        self.prefer(process);
        let [tcp_fd, tls_fd, wake_fd] = [&tcp, &tls, &wake].map(|socket| socket.as_ref().map(number));
        let [ports_fd, seats_fd] = [&ports, &seats].map(|inherited| inherited.as_ref().map(number));
        let unix_fd = number(&unix);
        self.record = Some(RoleRecord { role: self.name, process, tcp_fd, tls_fd, unix_fd, wake_fd, ports_fd, seats_fd });
        self.started = Instant::now();
        self.pulse = Pulse::default();
        self.restart_at = None;
        let (role, ends) = (self.name, ends.clone());
        tokio::spawn(async move {
            let how = wait_for_child(&mut child).await;
            // The receiver is gone only when the supervisor ends.
            let _ = ends.send(RoleEnd { role, process, how });
        });
        Ok(())
    }

    /// The program is this very one, even if its file was replaced meanwhile or lies where the role's user cannot go.
    fn command(
        &self,
        state: &StateDir,
        [tcp, tls, wake]: [Option<&OwnedFd>; 3],
        unix: &OwnedFd,
        lock: &OwnedFd,
    ) -> anyhow::Result<Command> {
        let log = open_log(&state.log(self.name.name()))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("weal").arg("role").arg(self.name.name()).arg("--state").arg(&state.root);
        let unix = number(unix).to_string();
        let [tcp, tls, wake] = [tcp, tls, wake].map(|socket| socket.map(|socket| number(socket).to_string()));
        let (tcp, wake) = (tcp.unwrap_or_default(), wake.unwrap_or_default());
        match self.name {
            RoleName::Gateway => command.args(["--name", "gw", "--clients-fd", &tcp, "--rpc-fd", &unix]),
            RoleName::Controller => command.args(["--api-fd", &tcp, "--local-fd", &unix]),
            RoleName::Node => command.args(["--rpc-fd", &unix, "--wake-fd", &wake]),
        };
        command.arg("--lock-fd").arg(number(lock).to_string());
        tls.map(|socket| command.args(["--tls-fd", &socket]));
        self.name_callers(&mut command);
        command.env_clear().envs(KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        // A group of its own: Ctrl-C in the terminal is for the supervisor, which then stops the roles in order.
        command.process_group(0).current_dir("/").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        if let Some(user) = self.user() {
            confine(&mut command, user, state)?;
        }
        Ok(command)
    }

    /// Tells it whom the kernel must name for a connection to be answered.
    fn name_callers(&self, command: &mut Command) {
        let controller = self.caller().map(|user| user.uid.to_string());
        let gateway = self.users.as_ref().filter(|_| self.name == RoleName::Node).map(|users| users.gateway.uid.to_string());
        let operator = (self.name == RoleName::Controller).then(|| rustix::process::geteuid().as_raw().to_string());
        for (option, uid) in [("--controller-uid", controller), ("--gateway-uid", gateway), ("--operator-uid", operator)] {
            uid.map(|uid| command.arg(option).arg(uid));
        }
    }

    /// Takes over what an earlier supervisor left: its sockets, where the system allows it, and its process, if that runs
    /// this very program. Returns what was found, in words.
    pub fn take_over(&mut self, old: &RoleRecord, ends: &mpsc::UnboundedSender<RoleEnd>) -> Option<String> {
        let handle = old.process.open()?;
        let name = self.name.name();
        self.tcp = old.tcp_fd.and_then(|fd| taken_over(old.process, fd)).map(TcpListener::from).filter(|tcp| self.is_mine(tcp));
        let tls = old.tls_fd.and_then(|fd| taken_over(old.process, fd)).map(TcpListener::from);
        self.tls = tls.filter(|tls| tls.local_addr().ok() == self.tls_address);
        self.unix = taken_over(old.process, old.unix_fd).map(UnixListener::from);
        self.wake = old.wake_fd.and_then(|fd| taken_over(old.process, fd)).map(UnixListener::from);
        let seats = old.seats_fd.and_then(|fd| taken_over(old.process, fd));
        self.seats = seats.and_then(|memory| weal_gateway::seats_of_another(memory).ok());
        let has_ports = self.ports.as_ref().is_none_or(|ports| ports.take_over(old.process, old.ports_fd));
        let has_all = self.unix.is_some() && has_ports && (self.name != RoleName::Node || self.wake.is_some());
        let same_tls = self.tls_address.is_some() == self.tls.is_some() && self.tls.is_some() == old.tls_fd.is_some();
        // Nobody knows which certificate it has.
        let same_tls = same_tls && self.api_tls.is_none() && !old.process.was_told(API_TLS);
        let same_address = same_tls && (self.address.is_none() || self.tcp.is_some());
        let user = self.user().map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
        if !same_address || !has_all || !old.process.runs_this_program() || !old.process.runs_as(user) {
            let process = old.process;
            tokio::spawn(async move { process.end(LAST_REQUESTS).await && process.reap().await });
            if self.name == RoleName::Gateway {
                // It answers calls while it ends. The next one gets a socket of its own, so that none of its calls goes astray.
                self.unix = None;
            }
            return Some(format!("replacing the {name} that was left (pid {})", old.process.pid()));
        }
        self.record = Some(old.clone());
        self.started = Instant::now();
        self.pulse = Pulse::default();
        let (role, process, ends) = (self.name, old.process, ends.clone());
        tokio::spawn(async move {
            wait_for_other(handle).await;
            process.reap().await;
            let _ = ends.send(RoleEnd { role, process, how: "ended".to_owned() });
        });
        Some(format!("took over the {name} (pid {})", old.process.pid()))
    }

    fn is_mine(&self, tcp: &TcpListener) -> bool {
        tcp.local_addr().ok() == self.address.map(|(address, _)| address)
    }

    /// Plans the next start after an end: at once if it had been well, otherwise after a growing pause, which is returned.
    pub fn plan_restart(&mut self) -> Duration {
        self.record = None;
        self.quick_ends = if self.started.elapsed() >= STABLE { 0 } else { self.quick_ends + 1 };
        let pause = pause_after(self.quick_ends);
        self.restart_at = Some(Instant::now() + pause);
        pause
    }

    /// Makes its Unix sockets anew where somebody removed them. True when its process listens where nobody comes any more.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn rebind(&mut self, state: &StateDir) -> anyhow::Result<bool> {
        let is_lost = !state.socket(self.name).exists() || (self.name == RoleName::Node && !state.wake_socket().exists());
        let is_lost = is_lost || self.ports.as_ref().is_some_and(Ports::is_lost);
        if is_lost {
            // All of them: the process that ends must take nothing that is meant for the next one.
            (self.unix, self.wake) = (None, None);
            self.ports.iter().for_each(Ports::let_go);
            self.bind(state)?;
        }
        Ok(is_lost)
    }

    /// Takes what the watchdog found. True when its process is stuck.
    pub fn handle_beat(&mut self, beat: &Beat) -> bool {
        // A call that began before the process tells nothing of it.
        self.record.is_some() && beat.began >= self.started && self.pulse.handle(beat)
    }

    /// Asks its process to end.
    pub fn terminate(&self) {
        if let Some(record) = &self.record {
            record.process.signal(rustix::process::Signal::TERM);
        }
    }

    /// Asks its process to end, because the next one listens elsewhere. Two gateways may live at once, so the next one begins while the requests
    /// of this one end; of the other roles it begins afterwards.
    pub fn replace(&mut self) {
        // An end that was asked for is no sign that it cannot run: the next one is not to wait.
        self.quick_ends = 0;
        self.terminate();
        if self.name == RoleName::Gateway {
            self.record = None;
            self.restart_at = Some(Instant::now());
        }
    }

    /// Ends its process.
    pub fn kill(&self) {
        if let Some(record) = &self.record {
            record.process.signal(rustix::process::Signal::KILL);
        }
    }
}

/// A full disk must not keep a role from running: it runs without a log then.
fn open_log(path: &Path) -> io::Result<File> {
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    log.or_else(|_| OpenOptions::new().write(true).open("/dev/null"))
}

/// Has the process become `user` and confine itself before it becomes the role.
fn confine(command: &mut Command, user: &User, state: &StateDir) -> Result<(), Failure> {
    let sandbox = SandboxPlan::of_role(ConfinementSupport::probe(), &state.root).prepare()?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let become_role = move || {
        sandbox.enter().map_err(Failure::into_io)?;
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        rustix::thread::set_no_new_privs(true)?;
        sandbox.confine().map_err(Failure::into_io)
    };
    // SAFETY: the supervisor has one thread that allocates, so the forked child may allocate and open files before it becomes the role.
    unsafe { command.pre_exec(become_role) };
    Ok(())
}

/// No pause after the first quick end: one kill must cost nothing.
fn pause_after(quick_ends: u32) -> Duration {
    match quick_ends {
        0 | 1 => Duration::ZERO,
        n => FIRST_PAUSE.saturating_mul(1 << (n - 2).min(10)).min(LONGEST_PAUSE),
    }
}

async fn wait_for_child(child: &mut Child) -> String {
    match child.wait().await {
        Ok(status) => describe(status),
        Err(error) => format!("cannot be waited for: {error}"),
    }
}

async fn wait_for_other(handle: OwnedFd) {
    // A pidfd becomes readable when its process ends.
    // SAFETY: the handle is moved in and stays the same open descriptor until the registration is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) };
    if let Ok(handle) = registered {
        let _ = handle.readable().await;
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended".to_owned(),
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_quick_end_costs_no_pause_and_later_ones_grow_to_a_bound() {
        let pauses: Vec<u64> = (0..9).map(|ends| pause_after(ends).as_millis() as u64).collect();
        assert_eq!(pauses, [0, 0, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(pause_after(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn an_end_is_described() {
        assert_eq!(describe(ExitStatus::from_raw(9)), "was ended by signal 9");
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "ended with code 3");
    }
}
