//! The shim: a small process between the agent and one instance.
//!
//! It is the parent that an instance keeps when the agent or all of weal dies: session leader, subreaper of what the
//! instance forks, reader of its output, and witness of its end. It lives in no instance's control group, so freezing and
//! killing the instance leaves it alone, and it ends when the last of its children has.
//!
//! Files in the instance's folder:
//!
//! | file | content | written by |
//! | --- | --- | --- |
//! | `spec.json` | [`Record`]: all that is needed to start it again | agent |
//! | `pid` | [`Started`] | shim |
//! | `exit` | [`Exit`] | shim |
//! | `results` | nothing: it is there once this shim has put the job's results in place | shim |
//! | `output` | a named pipe: its stdout and stderr | the instance |
//! | `private/` | its own `/tmp` and `/var/tmp` | the instance |
//! | `logs/` | what came through the pipe and when, see [`logs`] | shim |
//!
//! The pipe has a name so that the instance survives the death of its shim: it holds the pipe open for reading too, hence
//! never gets SIGPIPE, and the agent starts another shim (`--adopt`) that goes on reading. While there is none, an
//! instance that writes more than the pipe holds (64 KiB) waits. How such an instance ended cannot be told afterwards: only
//! a parent is told.

pub(crate) mod carry;
mod gang;
pub mod logs;
mod pace;
mod resources;
mod signals;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};
use weal_host::users::User;
use weal_host::{Identity, Proc};
use weal_model::{LimitValue, ProcessSignal, ResourceLimit};
use weal_protocol::node::InstanceSpec;
use weal_sandbox::SandboxPlan;

use self::pace::Pace;
pub(crate) use self::resources::limit_resources;
use self::signals::{block_signals, child_signals, unblock_signals};
use crate::clock::now;
use crate::files::{at, read_json, write_json};
use crate::given;
use crate::privileges::{become_user, close_descriptors, keep_descriptors_back};

/// All that is needed to start an instance.
pub const SPEC_FILE: &str = "spec.json";
/// Who runs.
pub const PID_FILE: &str = "pid";
/// How it ended.
pub const EXIT_FILE: &str = "exit";
/// There once the shim has put the results of its job in place.
pub const RESULTS_FILE: &str = "results";
/// Locked by the living shim.
pub const LOCK_FILE: &str = "shim.lock";
/// Locked, by several at once, from a shim's beginning until it has written down whom it started.
pub const STARTING_FILE: &str = "starting.lock";
/// The pipe.
pub const OUTPUT_FILE: &str = "output";
/// The folder that holds what is /tmp and /var/tmp for the instance.
pub const TMP_FOLDER: &str = "private";
/// The folder of logs.
pub const LOGS_FOLDER: &str = "logs";

/// Content of [`SPEC_FILE`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was asked.
    pub spec: InstanceSpec,
    /// Its port.
    pub port: u16,
    /// What the shim executes: everything filled in.
    pub launch: Launch,
}

/// A process to start, with nothing left to find out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The program, as a path, and its arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: PathBuf,
    /// The user; `None` changes nothing.
    pub user: Option<User>,
    /// The instance writes `0` to these before it becomes the program.
    pub entrances: Vec<PathBuf>,
    /// The shim writes `0` to these.
    pub side_entrances: Vec<PathBuf>,
    /// How far it is confined.
    #[serde(default)]
    pub sandbox: SandboxPlan,
    /// The bits that files of its making do not get; `None` is 022.
    #[serde(default)]
    pub umask: Option<u32>,
    /// What it may use at most.
    #[serde(default)]
    pub limits: BTreeMap<ResourceLimit, LimitValue>,
    /// What it reads from its standard input; `None` is empty.
    #[serde(default)]
    pub stdin: Option<PathBuf>,
    /// True: it is given the socket that this shim has, see [`given`].
    #[serde(default)]
    pub socket: bool,
    /// The signal that its image says asks it to end.
    #[serde(default)]
    pub stop_signal: Option<ProcessSignal>,
}

/// Content of [`PID_FILE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The instance's main process.
    pub main: Identity,
    /// Its shim.
    pub shim: Identity,
    /// The session that both began in.
    pub session: u32,
}

/// Content of [`EXIT_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Exit {
    /// By itself.
    Code {
        /// Its status.
        code: i32,
    },
    /// By a signal.
    Signal {
        /// Which.
        signal: i32,
    },
    /// By itself with 0, and its results could not be copied.
    NoResults {
        /// Why.
        why: String,
    },
    /// Nobody who was told is left.
    Unknown,
}

/// The entry of an instance's environment by which its processes are known.
pub fn mark(dir: &Path) -> String {
    format!("{MARK}={}", dir.display())
}

/// The instance that a process belongs to by that entry, as the name of its folder in `instances`; `None` for one of another pool, or of none.
pub fn marked_in(proc: &Proc, pid: u32, instances: &Path) -> Option<PathBuf> {
    let dir = proc.variable(pid, MARK)?;
    Some(Path::new(&dir).strip_prefix(instances).ok()?.to_owned())
}

/// The folder of the instance whose shim has this command line; `None` for another program's.
pub fn folder_of(arguments: &[String]) -> Option<&Path> {
    match arguments {
        [_, command, option, dir, ..] if command == "shim" && option == "--dir" => Some(Path::new(dir)),
        _ => None,
    }
}

/// The variable of that entry.
pub const MARK: &str = "WEAL_INSTANCE_DIR";

/// While this is there, no shim starts the instance: one that was forked and has not got so far when everything is stopped would start it
/// after that.
pub const STOP_FILE: &str = "stop";

/// True while a shim is about to start the instance in `dir`, or waits until the one before it has ended.
pub fn is_starting(dir: &Path) -> bool {
    File::open(dir.join(STARTING_FILE)).is_ok_and(|file| file.try_lock().is_err())
}

/// `weal shim --dir DIR`: runs the instance in `dir` until it and all its children have ended. With `adopt`, takes the
/// place of a shim that was killed.
///
/// Says on stdout, once, that the instance runs (`started`) or why it does not.
pub fn main(dir: &Path, adopt: bool) -> io::Result<()> {
    // The agent may have had something open that it was started with.
    close_descriptors()?;
    let socket = given::take_standard_input()?;
    block_signals()?;
    // The agent may be the leader of a process group; a shim that it has just forked is not.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    // Before it waits for anything: between two holders the other lock is free for a moment.
    let starting = open_lock(&dir.join(STARTING_FILE))?;
    if !adopt {
        starting.lock_shared()?;
    }
    // One shim at a time: a former one may still be about to start or about to end.
    let only = open_lock(&dir.join(LOCK_FILE))?;
    only.lock()?;
    if !adopt && dir.join(STOP_FILE).exists() {
        report_to_agent("everything is being stopped");
        return Ok(());
    }
    let record: Record = read_json(&dir.join(SPEC_FILE))?.ok_or(io::ErrorKind::NotFound)?;
    // Kept for the next agent as well.
    let _socket = record.launch.socket.then_some(socket);
    for entrance in &record.launch.side_entrances {
        // Where it cannot leave the agent's group, it stays there.
        let _ = fs::write(entrance, "0");
    }
    // The kernel shall rather kill the instance than the witness of its end. Needs root; without, both are equal.
    let _ = fs::write("/proc/self/oom_score_adj", "-900");
    let result = if adopt { adopt_instance(dir) } else { start_instance(dir, &record) };
    drop(starting);
    match result {
        Ok(watch) => {
            report_to_agent("started");
            Watch { tells: record.spec.job.is_none(), record: Some(record), ..watch }.run()
        }
        Err(error) => {
            report_to_agent(&error.to_string());
            Ok(())
        }
    }
}

/// Who may read a file may lock it: another instance would keep this one from starting.
fn open_lock(path: &Path) -> io::Result<File> {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

fn start_instance(dir: &Path, Record { spec, launch, .. }: &Record) -> io::Result<Watch> {
    carry::bring_inputs(spec, data_of(launch), becoming(launch, None)?)?;
    let output = open_output(dir)?;
    let child_output = fs::OpenOptions::new().read(true).write(true).open(dir.join(OUTPUT_FILE))?;
    let child = spawn(launch, &child_output)?;
    drop(child_output);
    let watching = watch_started(dir, child, output);
    if watching.is_err() {
        // The folder may have been taken away meanwhile: what nobody can find again must not run.
        // It has not been waited for, so that its number is still its own.
        let _ = Pid::from_raw(child.cast_signed()).map(|child| rustix::process::kill_process(child, Signal::KILL));
    }
    watching
}

fn watch_started(dir: &Path, child: u32, output: File) -> io::Result<Watch> {
    let proc = Proc::system();
    let me = std::process::id();
    // It is not waited for yet, so that it is there even if it has ended already.
    let main = proc.stat(child).map(|stat| stat.identity()).ok_or(io::ErrorKind::NotFound)?;
    let shim = proc.identity(me).ok_or(io::ErrorKind::NotFound)?;
    write_json(&dir.join(PID_FILE), &Started { main, shim, session: proc.stat(child).map_or(me, |stat| stat.session) })?;
    Watch::new(dir, main, true, output)
}

fn adopt_instance(dir: &Path) -> io::Result<Watch> {
    let proc = Proc::system();
    let before: Started = read_json(&dir.join(PID_FILE))?.ok_or(io::ErrorKind::NotFound)?;
    let shim = proc.identity(std::process::id()).ok_or(io::ErrorKind::NotFound)?;
    write_json(&dir.join(PID_FILE), &Started { shim, ..before })?;
    Watch::new(dir, before.main, false, open_output(dir)?)
}

/// The pipe's reading end. It does not wait for a writer, and reading from it never waits either.
fn open_output(dir: &Path) -> io::Result<File> {
    const O_NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let path = dir.join(OUTPUT_FILE);
    fs::OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(&path).map_err(at(&path))
}

fn spawn(launch: &Launch, output: &File) -> io::Result<u32> {
    let (program, arguments) = launch.argv.split_first().ok_or_else(|| io::Error::other("there is no program to run"))?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&launch.env).process_group(0);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    let (entrances, user, cwd) = (launch.entrances.clone(), launch.user.clone(), launch.cwd.clone());
    let sandbox = launch.sandbox.clone().prepare().map_err(io::Error::other)?;
    let next = launch.socket.then(|| (launch.argv.clone(), launch.env.clone()));
    let (failure, complaint) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // Only the number of an error comes through to the parent by itself.
    let say = move |text: &str| {
        let _ = rustix::io::write(&complaint, text.as_bytes());
    };
    let (umask, limits, stdin) = (launch.umask, launch.limits.clone(), launch.stdin.clone());
    let is_image = launch.sandbox.has_own_root();
    let prepare = move || {
        let complain = |failure: weal_sandbox::Failure| {
            say(&failure.to_string());
            failure.into_io()
        };
        for entrance in &entrances {
            // Only the number of an error comes through to the parent; this one is given by nothing else here.
            fs::write(entrance, "0").map_err(|_| io::Error::from_raw_os_error(libc::ESTALE))?;
        }
        // It would inherit the shim's protection.
        let _ = fs::write("/proc/self/oom_score_adj", "0");
        unblock_signals()?;
        limit_resources(&limits).inspect_err(|error| say(&format!("its `limits` cannot be set: {error}")))?;
        sandbox.enter().map_err(complain)?;
        become_user(user.as_ref())?;
        if let Some(mask) = umask {
            rustix::process::umask(Mode::from_raw_mode(mask));
        }
        if let Some(path) = &stdin {
            // As that user: root could read more.
            read_from(path).inspect_err(|error| say(&format!("cannot read `stdin` {}: {error}", path.display())))?;
        }
        keep_descriptors_back()?;
        // As that user: root could enter a folder in which the program then finds nothing.
        std::env::set_current_dir(&cwd).inspect_err(|error| {
            if is_image {
                say(&format!("cannot work in {} of its image: {error}", cwd.display()));
            }
        })?;
        sandbox.confine().map_err(complain)?;
        next.as_ref().map_or(Ok(()), |(argv, env)| become_given(argv, env))
    };
    // SAFETY: the shim has a single thread, so the forked child may allocate and open files before it becomes the program.
    unsafe { command.pre_exec(prepare) };
    let spawned = command.spawn();
    // The closure holds this process' end of the pipe.
    drop(command);
    match spawned {
        Ok(child) => Ok(child.id()),
        Err(error) => {
            let mut told = String::new();
            File::from(failure).read_to_string(&mut told)?;
            Err(if told.is_empty() { explain(error, program, launch) } else { io::Error::new(error.kind(), told) })
        }
    }
}

/// A job's own folder.
fn data_of(launch: &Launch) -> &Path {
    Path::new(launch.env.get("DATA").map_or("/", String::as_str))
}

/// What a child does to copy files where the instance runs: in its control groups, as its user and confined as it is, but that it has no mounts
/// of its own and may write in `to`.
fn becoming(launch: &Launch, to: Option<PathBuf>) -> io::Result<impl Fn() -> io::Result<()> + Send + Sync + 'static + use<>> {
    let (entrances, user, umask) = (launch.entrances.clone(), launch.user.clone(), launch.umask);
    let mut sandbox = SandboxPlan { mounts: None, ..launch.sandbox.clone() };
    sandbox.landlock.iter_mut().for_each(|rules| rules.write.extend(to.clone()));
    let sandbox = sandbox.prepare().map_err(io::Error::other)?;
    Ok(move || {
        entrances.iter().try_for_each(|entrance| fs::write(entrance, "0"))?;
        unblock_signals()?;
        sandbox.enter().map_err(weal_sandbox::Failure::into_io)?;
        become_user(user.as_ref())?;
        if let Some(mask) = umask {
            rustix::process::umask(Mode::from_raw_mode(mask));
        }
        sandbox.confine().map_err(weal_sandbox::Failure::into_io)
    })
}

/// Becomes the program, with the socket. Here, because only now its own process number is known, which it is to be told.
fn become_given(argv: &[String], env: &BTreeMap<String, String>) -> io::Result<()> {
    // SAFETY: nothing in this process closes the shim's descriptor before the program has it.
    let socket = unsafe { BorrowedFd::borrow_raw(given::DESCRIPTOR) };
    rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty())?;
    let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let own = std::process::id().to_string();
    Err(Command::new(program).args(arguments).env_clear().envs(env).env(given::FOR_WHOM, own).exec())
}

fn read_from(path: &Path) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::stdio::dup2_stdin(&file)?)
}

/// Says what `execve` meant.
fn explain(error: io::Error, program: &str, launch: &Launch) -> io::Error {
    let cwd = &launch.cwd;
    let text = match error.kind() {
        io::ErrorKind::NotFound if launch.sandbox.has_own_root() => {
            format!("cannot run {program}: its image lacks the interpreter or loader that it names")
        }
        io::ErrorKind::NotFound if !cwd.is_dir() => format!("the working directory {} does not exist", cwd.display()),
        io::ErrorKind::NotFound if Path::new(program).exists() => {
            format!("cannot run {program}: the interpreter or loader that it names does not exist")
        }
        io::ErrorKind::NotFound => format!("cannot run {program}: there is no such file"),
        io::ErrorKind::PermissionDenied => {
            format!("cannot run {program} in {}: permission denied (is it executable for this user?)", cwd.display())
        }
        _ if error.raw_os_error() == Some(libc::ESTALE) => "cannot join its control group".to_owned(),
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            format!("cannot run {program}: not a program for this machine (a script needs a `#!` line)")
        }
        _ => format!("cannot run {program}: {error}"),
    };
    io::Error::new(error.kind(), text)
}

/// One line to the agent, if it still listens.
fn report_to_agent(line: &str) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if let Ok(null) = fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Reads of the pipe between two looks at everything else.
const PIECES: usize = 64;
/// Written to the log of who writes too much of it.
const TOO_FAST: &str = "[weal: it writes more than 8 MiB a second for long, and waits until that much is read]\n";

/// The shim's main loop.
struct Watch {
    dir: PathBuf,
    main: Identity,
    /// Tells the end of a main process that is not our child.
    main_fd: OwnedFd,
    children: OwnedFd,
    /// Whether this shim started the main process and so is told how it ends.
    is_parent: bool,
    output: Option<File>,
    logs: logs::Writer,
    pace: Pace,
    /// True when lines of ours may stand in its log. What a job wrote is kept byte for byte.
    tells: bool,
    is_over: bool,
    /// What was started.
    record: Option<Record>,
}

impl Watch {
    fn new(dir: &Path, main: Identity, is_parent: bool, output: File) -> io::Result<Self> {
        let pid = rustix::process::Pid::from_raw(main.pid.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        let main_fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        let logs = logs::Writer::open(&dir.join(LOGS_FOLDER))?;
        Ok(Self {
            dir: dir.to_owned(),
            main,
            main_fd,
            children: child_signals()?,
            is_parent,
            output: Some(output),
            logs,
            pace: Pace::new(Instant::now()),
            tells: false,
            is_over: false,
            record: None,
        })
    }

    fn run(mut self) -> io::Result<()> {
        if self.is_parent {
            self.end_line();
        }
        loop {
            // Seen before: one that ends in between is reaped with its status.
            let is_gone = !Proc::system().is_alive(self.main);
            let has_children = self.reap();
            // A child of ours is reaped with its status: as long as one of its threads has not ended it looks gone and cannot be reaped yet.
            if !self.is_over && is_gone && (!self.is_parent || !has_children) {
                self.finish(Exit::Unknown);
            }
            if self.is_over && !has_children {
                // Nobody writes any more: this is all.
                self.copy_output();
                self.end_line();
                return Ok(());
            }
            let pause = self.copy_paced();
            self.wait(pause);
        }
    }

    /// Waits for output, for a child's end, or for the end of an adopted main process. During `pause` output is left in the pipe.
    fn wait(&self, pause: Duration) {
        let mut fds = vec![PollFd::new(&self.children, PollFlags::IN)];
        if !self.is_over {
            fds.push(PollFd::new(&self.main_fd, PollFlags::IN));
        }
        if let Some(output) = self.output.as_ref().filter(|_| pause.is_zero()) {
            fds.push(PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN));
        }
        let pause = rustix::event::Timespec::try_from(pause).ok().filter(|_| !pause.is_zero());
        let _ = poll(&mut fds, pause.as_ref());
        let mut buffer = [0u8; 1024];
        // Only that it was readable matters.
        while rustix::io::read(&self.children, &mut buffer).is_ok_and(|length| length > 0) {}
    }

    /// Collects ended children; false when none is left.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid().cast_unsigned() == self.main.pid => {
                    self.copy_output();
                    let status = ExitStatus::from_raw(status.as_raw());
                    self.finish(match (status.code(), status.signal()) {
                        (Some(0), _) => self.take_results(),
                        (Some(code), _) => Exit::Code { code },
                        (None, Some(signal)) => Exit::Signal { signal },
                        (None, None) => Exit::Unknown,
                    });
                }
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// What is written next is a line of its own. What a job wrote stays as it is.
    fn end_line(&mut self) {
        if self.tells {
            self.logs.end_line(now());
        }
    }

    /// It has ended with 0: a job is done when its results are on the disk.
    fn take_results(&self) -> Exit {
        let take = |Record { spec, launch, .. }: &Record| {
            let are_in_place = carry::take_results(spec, data_of(launch), becoming(launch, carry::destination(spec))?)?;
            if are_in_place { fs::write(self.dir.join(RESULTS_FILE), "") } else { Ok(()) }
        };
        let taken = self.record.as_ref().map_or(Ok(()), take);
        taken.map_or_else(|error| Exit::NoResults { why: error.to_string() }, |()| Exit::Code { code: 0 })
    }

    fn finish(&mut self, exit: Exit) {
        self.is_over = true;
        if let Err(error) = write_json(&self.dir.join(EXIT_FILE), &exit) {
            // The same disk may be too full for this as well, and a panic would leave the instance's other processes without a shim.
            let _ = writeln!(io::stderr(), "the end of the instance ({exit:?}) is not written down: {error}");
        }
    }

    /// Moves what is in the pipe to the log, as fast as the instance may write; returns how long to wait for the rest.
    fn copy_paced(&mut self) -> Duration {
        // Bounded: a flood of output must not keep the shim from its other duties.
        for _ in 0..PIECES {
            let pause = self.pace.poll_wait(Instant::now());
            if !pause.is_zero() {
                if self.tells && self.pace.poll_told(Instant::now()) {
                    self.logs.note_at_line_end(TOO_FAST);
                }
                return pause;
            }
            let Some(length) = self.copy_piece() else { break };
            self.pace.handle_read(Instant::now(), length);
        }
        Duration::ZERO
    }

    /// Moves what is in the pipe to the log.
    fn copy_output(&mut self) {
        for _ in 0..PIECES {
            if self.copy_piece().is_none() {
                return;
            }
        }
    }

    /// Moves some bytes from the pipe to the log; `None` when nothing is there. Forgets the pipe when its last writer is gone.
    fn copy_piece(&mut self) -> Option<usize> {
        let mut buffer = [0u8; 64 << 10];
        match self.output.as_mut()?.read(&mut buffer) {
            Ok(0) => {
                self.output = None;
                None
            }
            Ok(length) => {
                self.logs.append(&buffer[..length], now());
                Some(length)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Some(0),
            Err(_) => None,
        }
    }
}
