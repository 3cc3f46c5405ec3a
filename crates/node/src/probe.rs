//! Asking an instance whether it is well.

use std::ffi::{CStr, CString};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weal_host::Identity;
use weal_model::{HealthProbe, ProxyVersion};
use weal_sandbox::SandboxPlan;

use crate::blocking::aside;
use crate::privileges::{become_user, keep_descriptors_back};
use crate::shim::{Launch, limit_resources};
use crate::variables::{UnknownVariable, fill_in};

/// The longest head of a response that is waited for; a health check that answers more is broken.
const LONGEST_HEAD: usize = 16 << 10;
/// How long the rest of a response is taken in, so that the instance does not log a broken connection. Nobody waits for that.
const REST: Duration = Duration::from_millis(20);
/// How long a connection to an instance that does not run may take. The kernel makes it in microseconds, or never if too many wait.
const AT_ONCE: Duration = Duration::from_millis(5);

/// Why an instance does not count as well.
#[derive(Debug, thiserror::Error)]
pub enum Unwell {
    /// It was asked, and nothing came back in time.
    #[error("{question}: no answer within {} s", .within.as_secs_f64())]
    Silent {
        /// What was asked.
        question: String,
        /// How long was waited.
        within: Duration,
    },
    /// It was asked, and the answer is no good one.
    #[error("{question}: {why}")]
    Bad {
        /// What was asked.
        question: String,
        /// What came back.
        why: BadAnswer,
    },
    /// It gave no good answer to any question in time.
    #[error("no answer within {} s", .within.as_secs())]
    Late {
        /// How long was waited.
        within: Duration,
    },
    /// Its main process has ended.
    #[error("it ended")]
    Ended,
}

impl Unwell {
    /// The last line that a health command wrote before it failed.
    pub fn complaint(&self) -> Option<&str> {
        match self {
            Self::Bad { why: BadAnswer::Failed { complaint, .. }, .. } if !complaint.is_empty() => Some(complaint),
            _ => None,
        }
    }
}

/// What came back instead of a good answer.
#[derive(Debug, thiserror::Error)]
pub enum BadAnswer {
    /// An error of the system.
    #[error("{}", in_short(.0))]
    System(#[from] io::Error),
    /// Something else than HTTP.
    #[error("the answer is not HTTP")]
    NotHttp,
    /// A status that means that it is not well.
    #[error("status {0}")]
    Status(u16),
    /// The command cannot be filled in.
    #[error(transparent)]
    Variable(#[from] UnknownVariable),
    /// There is no command.
    #[error("the command is empty")]
    EmptyCommand,
    /// The command's control group has no name that the system takes.
    #[error("a group with a NUL in its name")]
    BadGroup,
    /// The command failed.
    #[error("{status}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// The last line that it wrote; may be empty. It is not part of the message, which anybody may read.
        complaint: String,
    },
}

/// What a command runs beside.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'i> {
    /// How the instance was started.
    pub launch: &'i Launch,
    /// Its main process; `None` while it is not known.
    pub main: Option<Identity>,
}

/// Where an instance is asked, and what it expects there.
#[derive(Debug, Clone)]
pub struct Asking {
    /// Its address.
    pub address: SocketAddr,
    /// The header that it expects at the start of each connection.
    pub send_proxy: Option<ProxyVersion>,
    /// The host that it is asked for; `None` is its address.
    pub host: Option<String>,
}

impl From<SocketAddr> for Asking {
    /// It expects no header.
    fn from(address: SocketAddr) -> Self {
        Self { address, send_proxy: None, host: None }
    }
}

/// Asks once.
///
/// # Errors
/// There was no good answer: says what was asked and what came back.
pub async fn ask(probe: &HealthProbe, to: impl Into<Asking>, timeout: Duration, beside: Beside<'_>) -> Result<(), Unwell> {
    let to = to.into();
    let address = to.address;
    match probe {
        HealthProbe::Http { path } => {
            let asking = async { receive(send(path, &to).await?).await };
            in_time(question(path, address), timeout, asking).await
        }
        HealthProbe::Tcp => in_time(format!("a connection to {address}"), timeout, tcp(&to)).await,
        HealthProbe::Command { argv } => in_time(program(argv), timeout, command(argv, beside)).await,
    }
}

/// Asks an instance that does not run yet: the kernel takes the connection and the question for it, and the thread that accepts it finds both
/// the moment that it runs. `None` for probes that are no HTTP request, and when the connection is not taken at once.
pub async fn ask_ahead(probe: &HealthProbe, to: impl Into<Asking>) -> Option<Asked> {
    let to = to.into();
    let HealthProbe::Http { path } = probe else { return None };
    let stream = tokio::time::timeout(AT_ONCE, send(path, &to)).await.ok()?.ok()?;
    Some(Asked { stream, question: question(path, to.address) })
}

/// An HTTP request that is on its way.
pub struct Asked {
    stream: TcpStream,
    question: String,
}

impl Asked {
    /// What comes back, as [`ask`] says it.
    pub async fn answer(self, timeout: Duration) -> Result<(), Unwell> {
        in_time(self.question, timeout, receive(self.stream)).await
    }
}

/// Without the query, which may hold a secret.
fn question(path: &str, address: SocketAddr) -> String {
    format!("GET {} on {address}", path.split('?').next().unwrap_or_default())
}

/// A command without its arguments, which may hold a secret.
fn program(argv: &[String]) -> String {
    format!("the command `{}`", argv.first().map_or("", String::as_str))
}

async fn in_time(question: String, within: Duration, asking: impl Future<Output = Result<(), BadAnswer>>) -> Result<(), Unwell> {
    match tokio::time::timeout(within, asking).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(Unwell::Bad { question, why }),
        Err(_) => Err(Unwell::Silent { question, within }),
    }
}

async fn send(path: &str, to: &Asking) -> io::Result<TcpStream> {
    let mut stream = connect(to).await?;
    let host = to.host.clone().unwrap_or_else(|| to.address.to_string());
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weal-health\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

async fn receive(mut stream: TcpStream) -> Result<(), BadAnswer> {
    let mut head = Vec::new();
    let mut buffer = [0u8; 4096];
    let ends = |head: &[u8]| head.windows(4).any(|four| four == b"\r\n\r\n");
    while !ends(&head) && head.len() < LONGEST_HEAD {
        match stream.read(&mut buffer).await? {
            0 => break,
            length => head.extend_from_slice(&buffer[..length]),
        }
    }
    tokio::spawn(async move {
        let rest = async { while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {} };
        let _ = tokio::time::timeout(REST, rest).await;
    });
    let status = status(&head).ok_or(BadAnswer::NotHttp)?;
    if (200..400).contains(&status) { Ok(()) } else { Err(BadAnswer::Status(status)) }
}

async fn tcp(to: &Asking) -> Result<(), BadAnswer> {
    Ok(connect(to).await.map(drop)?)
}

/// A connection of the agent's own, which says so where the instance expects a header.
async fn connect(to: &Asking) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(to.address).await?;
    if let Some(version) = to.send_proxy {
        stream.write_all(&version.own_header()).await?;
    }
    Ok(stream)
}

fn status(head: &[u8]) -> Option<u16> {
    let line = String::from_utf8_lossy(head.split(|byte| *byte == b'\n').next()?).into_owned();
    let mut words = line.split_whitespace();
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

/// Runs as the instance's user, in its folder and environment and within its limits, and is killed with all that it started when time is up.
async fn command(argv: &[String], Beside { launch, main }: Beside<'_>) -> Result<(), BadAnswer> {
    let argv = argv.iter().map(|word| fill_in(word, &launch.env)).collect::<Result<Vec<_>, _>>()?;
    let (program, arguments) = argv.split_first().ok_or(BadAnswer::EmptyCommand)?;
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).env_clear().envs(&launch.env).current_dir(first_folder(launch)).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let prepare = joining(Beside { launch, main })?;
    // SAFETY: only system calls are made between fork and exec; the groups that they need were allocated before, except for
    // one small list, and no lock of the allocator is held then: glibc and musl restore theirs in the forked child.
    unsafe { command.pre_exec(prepare) };
    // To enter a group takes the kernel some ten milliseconds.
    let mut family = Family::of(aside(|| command.spawn())?)?;
    let mut complaint = Vec::new();
    if let Some(stderr) = family.leader.stderr.take() {
        // It may leave a child behind that holds the pipe open: its own end counts.
        let mut limited = stderr.take(4096);
        let ended = tokio::select! {
            _ = limited.read_to_end(&mut complaint) => false,
            () = family.ended() => true,
        };
        if ended {
            // What it wrote before is still in the pipe.
            let _ = tokio::time::timeout(REST, limited.read_to_end(&mut complaint)).await;
        }
    }
    let status = family.finish().await?;
    if status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&complaint);
    let last = complaint.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("").trim();
    Err(BadAnswer::Failed { status, complaint: last.to_owned() })
}

/// The folder in which a process is before it joins an instance: that of an image is not among the machine's.
pub fn first_folder(launch: &Launch) -> &Path {
    if launch.sandbox.has_own_root() { Path::new("/") } else { &launch.cwd }
}

/// What a process does between fork and exec to run where an instance runs: in its control groups and its file system, as its user, and as
/// limited and confined as it is.
pub fn joining(
    Beside { launch, main }: Beside<'_>,
) -> Result<impl Fn() -> io::Result<()> + Send + Sync + 'static + use<>, BadAnswer> {
    let user = launch.user.clone();
    let as_path = |entrance: &PathBuf| CString::new(entrance.as_os_str().as_bytes()).map_err(|_| BadAnswer::BadGroup);
    let entrances = launch.entrances.iter().map(as_path).collect::<Result<Vec<_>, _>>()?;
    let process = if launch.sandbox.mounts.is_some() { main.map(open_process).transpose()? } else { None };
    let (umask, limits) = (launch.umask, launch.limits.clone());
    let folder = CString::new(launch.cwd.as_os_str().as_bytes()).map_err(io::Error::from)?;
    let sandbox = SandboxPlan { mounts: None, ..launch.sandbox.clone() }.prepare().map_err(weal_sandbox::Failure::into_io)?;
    Ok(move || {
        entrances.iter().try_for_each(|entrance| enter(entrance))?;
        if let Some(process) = &process {
            weal_sandbox::join(process.as_fd()).map_err(weal_sandbox::Failure::into_io)?;
        }
        limit_resources(&limits)?;
        sandbox.enter().map_err(weal_sandbox::Failure::into_io)?;
        become_user(user.as_ref())?;
        if process.is_some() {
            // Whoever joins another file system stands at its root.
            rustix::process::chdir(folder.as_c_str())?;
        }
        if let Some(mask) = umask {
            rustix::process::umask(Mode::from_raw_mode(mask));
        }
        keep_descriptors_back()?;
        sandbox.confine().map_err(weal_sandbox::Failure::into_io)
    })
}

/// The process, held so that it cannot be taken for another one that gets its number.
fn open_process(main: Identity) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(main.pid.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    if weal_host::Proc::system().is_alive(main) { Ok(process) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Takes this process into a control group: in the agent's it would come before all instances, and nothing would limit it.
fn enter(entrance: &CStr) -> io::Result<()> {
    let file = rustix::fs::open(entrance, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, b"0")?;
    Ok(())
}

/// A command with all that it started in its process group, which is killed when this is dropped.
///
/// Invariant: the leader is waited for after its group was killed. Until then the group's number is its own; afterwards it may be another's, and
/// root would kill strangers.
struct Family {
    leader: tokio::process::Child,
    handle: AsyncFd<OwnedFd>,
    group: Option<Pid>,
}

impl Family {
    fn of(leader: tokio::process::Child) -> io::Result<Self> {
        let group = leader.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or(io::ErrorKind::NotFound)?;
        let handle = pidfd_open(group, PidfdFlags::NONBLOCK)?;
        // SAFETY: the descriptor is owned by what is returned, and nobody closes it before that is dropped.
        let handle = unsafe { AsyncFd::register_with_interest(handle, tokio::io::Interest::READABLE)? };
        Ok(Self { leader, handle, group: Some(group) })
    }

    /// Waits until the leader has ended, and leaves its number to it.
    async fn ended(&self) {
        // Fails only where nothing can be waited for any more: then the next step says why.
        let _ = self.handle.readable().await;
    }

    /// How the leader ended, once all that it left in its group is killed.
    async fn finish(mut self) -> io::Result<ExitStatus> {
        self.ended().await;
        self.kill();
        self.leader.wait().await
    }

    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            // Usually nothing but the leader is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.kill();
    }
}

fn in_short(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset".to_owned(),
        io::ErrorKind::NotFound => "not found".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::net::TcpListener;

    use super::*;

    fn launch() -> Launch {
        Launch {
            argv: Vec::new(),
            env: BTreeMap::from([("PORT".to_owned(), "7".to_owned()), ("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            cwd: "/".into(),
            user: None,
            entrances: Vec::new(),
            side_entrances: Vec::new(),
            sandbox: SandboxPlan::default(),
            umask: None,
            limits: BTreeMap::new(),
            stdin: None,
            socket: false,
            stop_signal: None,
        }
    }

    async fn answer_with(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0u8; 1024];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        address
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn an_http_probe_takes_2xx_and_3xx_only() {
        let probe = HealthProbe::Http { path: "/healthz".into() };
        for (answer, expected) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", None),
            ("HTTP/1.0 302 Found\r\nLocation: /\r\n\r\n", None),
            ("HTTP/1.1 503 Busy\r\n\r\n", Some("status 503")),
            ("SSH-2.0\r\n\r\n", Some("not HTTP")),
            ("", Some("not HTTP")),
        ] {
            let address = answer_with(answer).await;
            let result = ask(&probe, address, PATIENCE, Beside { launch: &launch(), main: None }).await;
            match expected {
                None => result.unwrap(),
                Some(part) => {
                    let error = result.unwrap_err().to_string();
                    assert!(error.starts_with("GET /healthz on 127.0.0.1:") && error.contains(part), "{error}");
                }
            }
        }
    }

    #[tokio::test]
    async fn who_does_not_run_yet_is_asked_ahead_and_answers_when_it_does() {
        let probe = HealthProbe::Http { path: "/healthz".into() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = ask_ahead(&probe, address).await.expect("the backlog takes it");
        // Only now does somebody accept.
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut question = [0u8; 1024];
        let length = stream.read(&mut question).await.unwrap();
        assert!(question[..length].starts_with(b"GET /healthz HTTP/1.1\r\n"));
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        asked.answer(PATIENCE).await.unwrap();
        let unanswered = ask_ahead(&probe, address).await.expect("the backlog takes it");
        let error = unanswered.answer(Duration::from_millis(50)).await.unwrap_err().to_string();
        assert_eq!(error, format!("GET /healthz on {address}: no answer within 0.05 s"));
        drop(listener);
        assert!(ask_ahead(&probe, address).await.is_none(), "nobody listens");
        assert!(ask_ahead(&HealthProbe::Tcp, address).await.is_none());
    }

    #[tokio::test]
    async fn nobody_listening_is_said_in_short() {
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error =
            ask(&HealthProbe::Tcp, address, PATIENCE, Beside { launch: &launch(), main: None }).await.unwrap_err().to_string();
        assert_eq!(error, format!("a connection to {address}: connection refused"));
    }

    #[tokio::test]
    async fn a_command_gets_the_variables_and_says_why_it_fails() {
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let probe = |script: &str| HealthProbe::Command { argv: vec!["sh".into(), "-c".into(), script.into()] };
        ask(&probe("test $PORT = 7"), address, PATIENCE, Beside { launch: &launch(), main: None }).await.unwrap();
        let unwell = ask(&probe("echo no table >&2; exit 3"), address, PATIENCE, Beside { launch: &launch(), main: None })
            .await
            .unwrap_err();
        assert_eq!(unwell.to_string(), "the command `sh`: exit status: 3", "arguments and output may hold a secret");
        assert_eq!(unwell.complaint(), Some("no table"));
    }

    #[tokio::test]
    async fn the_number_of_a_commands_group_stays_its_own_until_the_group_is_killed() {
        let proc = weal_host::Proc::system();
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!"]).process_group(0).stdout(Stdio::piped());
        let mut family = Family::of(command.spawn().unwrap()).unwrap();
        let (leader, mut said) = (family.leader.id().unwrap(), vec![0; 32]);
        let length = family.leader.stdout.take().unwrap().read(&mut said).await.unwrap();
        let left: u32 = String::from_utf8_lossy(&said[..length]).trim().parse().unwrap();
        family.ended().await;
        let stat = proc.stat(leader).expect("it has ended and nobody has waited for it");
        assert!(!stat.is_alive() && proc.identity(left).is_some());
        assert!(family.finish().await.unwrap().success());
        assert!(proc.stat(leader).is_none_or(|stat| stat.is_alive()), "it was waited for in the end");
        let deadline = std::time::Instant::now() + PATIENCE;
        while proc.identity(left).is_some() {
            assert!(std::time::Instant::now() < deadline, "what it left is still there");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_cut_off_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $$! > {}; wait", file.display());
        let probe = HealthProbe::Command { argv: vec!["sh".into(), "-c".into(), script] };
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let error = ask(&probe, address, Duration::from_millis(500), Beside { launch: &launch(), main: None })
            .await
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("no answer within 0.5 s"), "{error}");
        let pid: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let proc = weal_host::Proc::system();
        let deadline = std::time::Instant::now() + PATIENCE;
        while proc.identity(pid).is_some() {
            assert!(std::time::Instant::now() < deadline, "the sleeping child is still there");
            tokio::task::yield_now().await;
        }
    }
}
