//! A pool in a temporary directory, on free ports, that leaves nothing behind.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::patience::Patience;

/// Long enough for an idle machine, and stretched where others have it ([`Patience`]); nothing waits for it in vain.
pub static PATIENCE: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(60) * slowness());

/// What the documentation promises of roles that die.
pub static BACK_WITHIN: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(2) * slowness());

/// How many times as long everything takes on this machine as on one that nobody emulates. `cargo xtask machine` says so.
pub fn slowness() -> u32 {
    std::env::var("WEAL_TEST_SLOWNESS").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// One pool.
pub struct Pool {
    folder: TempDir,
    pub listen: u16,
    pub api: u16,
    supervisor: Option<Child>,
    program: PathBuf,
}

impl Pool {
    /// A pool whose config is `apps` below a `[pool]` of its own.
    pub fn new(apps: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("weal-e2e-").tempdir().unwrap();
        // The unprivileged user of gateway and controller passes through it.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let [listen, api] = free_ports();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_weal"));
        let pool = Self { folder, listen, api, supervisor: None, program };
        pool.write(apps);
        pool
    }

    /// A pool with one echo application of one to two instances.
    pub fn echo() -> Self {
        Self::new(&echo_app("echo", ""))
    }

    /// The same, which is deployed to by order alone, as a pool is unless its config says `watch = true`.
    pub fn unwatched(apps: &str) -> Self {
        let pool = Self::new(apps);
        pool.write_unwatched(apps);
        pool
    }

    /// The same pool, run by the weal at `program`.
    #[must_use]
    pub fn run_by(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// Replaces the config by one without `watch`.
    pub fn write_unwatched(&self, apps: &str) {
        self.write(apps);
        let text = std::fs::read_to_string(self.config()).unwrap();
        self.write_text(&text.replace("watch = true\n", ""));
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("weal.toml")
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Replaces the config, as an editor does: whole.
    pub fn write(&self, apps: &str) {
        let (listen, api) = (self.listen, self.api);
        let text = format!(
            "[pool]\nlisten = \"127.0.0.1:{listen}\"\napi = \"127.0.0.1:{api}\"\nflow-cycle = \"1s\"\nwatch = true\n\n{apps}"
        );
        self.write_text(&text);
    }

    /// Writes the config into the file that is there, which keeps its mode.
    pub fn write_in_place(&self, apps: &str) {
        let before = std::fs::read_to_string(self.config()).unwrap();
        let head = before.split("[app.").next().unwrap().to_owned();
        std::fs::write(self.config(), head + apps).unwrap();
    }

    /// Removes the state directory. A role may write a file into it at that moment: then what is left is removed too.
    pub fn remove_state(&self) {
        while let Err(error) = std::fs::remove_dir_all(self.state()) {
            let is_changing = matches!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::NotFound);
            assert!(is_changing, "{error}");
            if !self.state().exists() {
                return;
            }
        }
    }

    /// Where `name` listens: a role, or `wake`.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.state().join(format!("run/{name}.sock"))
    }

    pub fn write_text(&self, text: &str) {
        let new = self.config().with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.config()).unwrap();
    }

    /// `weal ARGS` for this pool.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("WEAL_STATE", self.state()).env("WEAL_FILE", self.config()).env("NO_COLOR", "1");
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What `weal ARGS -o json` answers.
    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.command(args).args(["-o", "json"]).output().unwrap();
        assert!(output.status.success(), "weal {args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Starts `weal up` in the foreground without waiting.
    pub fn start(&mut self) {
        self.start_by(&[], false);
    }

    /// The same by an operator who has these variables, and, with `has_open`, the config open as a descriptor that programs inherit.
    pub fn start_by(&mut self, variables: &[(&str, &str)], has_open: bool) {
        let out = std::fs::File::create(self.out()).unwrap();
        let open = has_open.then(|| std::fs::File::open(self.config()).unwrap());
        if let Some(file) = &open {
            rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap();
        }
        let mut command = self.command(&["up"]);
        let child = command.envs(variables.iter().copied()).stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        self.supervisor = Some(child);
    }

    /// Starts `weal up` and waits until every application is ready.
    pub fn up(&mut self) {
        self.start();
        self.wait_ready();
    }

    pub fn wait_ready(&self) {
        self.eventually("every application is ready", || {
            let status = self.status()?;
            let apps = status["apps"].as_array()?;
            (!apps.is_empty() && apps.iter().all(|app| app["state"] == "ready")).then_some(())
        });
    }

    /// What `weal up` printed.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(self.out()).unwrap_or_default()
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("up.out")
    }

    /// The status; `None` while the controller does not answer.
    pub fn status(&self) -> Option<Value> {
        let output = self.command(&["status", "-o", "json"]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Polls until `check` gives something; says `what` was waited for when it never does.
    pub fn eventually<T>(&self, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
        let mut patience = Patience::new(*PATIENCE);
        loop {
            if let Some(value) = check() {
                return value;
            }
            if patience.is_over() {
                let status = text(&self.run(&["status"]).stdout);
                let logs: String = ["gateway", "controller", "node"].iter().map(|role| self.log_tail(role)).collect();
                panic!("not seen: {what}\nweal up said:\n{}\nstatus:\n{status}\n{logs}", self.printed());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log_tail(&self, role: &str) -> String {
        let log = std::fs::read_to_string(self.state().join(format!("logs/{role}.log"))).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        format!("{role}:\n{}\n", lines[lines.len().saturating_sub(15)..].join("\n"))
    }

    fn record(&self) -> Option<Value> {
        serde_json::from_slice(&std::fs::read(self.state().join("supervisor.json")).ok()?).ok()
    }

    /// The pid of a role, or of the `supervisor`.
    pub fn pid(&self, role: &str) -> i32 {
        self.recorded(role).expect("a record of the running pool")
    }

    /// The same; `None` while it is not written down.
    pub fn recorded(&self, role: &str) -> Option<i32> {
        let record = self.record()?;
        let roles = record["roles"].as_array()?;
        let entry = if role == "supervisor" { &record } else { roles.iter().find(|one| one["role"] == role)? };
        i32::try_from(entry["pid"].as_i64()?).ok()
    }

    /// The pids of the instances that have one.
    pub fn instance_pids(&self) -> Vec<i64> {
        let status = self.status().expect("the pool runs");
        let instances = status["apps"].as_array().unwrap().iter().flat_map(|app| app["instances"].as_array().unwrap().clone());
        instances.filter_map(|instance| instance["pid"].as_i64()).collect()
    }

    /// The pid of a ready instance of `app`.
    pub fn instance_of(&self, app: &str) -> Option<i64> {
        let status = self.status()?;
        let app = status["apps"].as_array()?.iter().find(|one| one["name"] == app)?.clone();
        app["instances"].as_array()?.iter().find(|instance| instance["state"] == "ready")?["pid"].as_i64()
    }

    /// `kill -9` of a role, and the wait until the supervisor has another one.
    pub fn kill_role(&self, role: &str) {
        let old = self.pid(role);
        kill(old);
        self.eventually(&format!("another {role}"), || (self.pid(role) != old).then_some(()));
    }

    /// Stops a role where it is: it neither answers nor is started anew.
    pub fn pause(&self, role: &str) {
        send(self.pid(role), Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self, role: &str) {
        send(self.pid(role), Signal::CONT);
    }

    /// `kill -9` of the supervisor.
    pub fn kill_supervisor(&mut self) {
        kill(self.pid("supervisor"));
        if let Some(mut child) = self.supervisor.take() {
            child.wait().unwrap();
        }
    }

    /// `kill -9` of the supervisor wherever it is, also before it wrote anything down.
    pub fn kill_started(&mut self) {
        let mut child = self.supervisor.take().expect("a supervisor");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The pids of the living processes of `role`, by their command lines.
    pub fn role_pids(&self, role: &str) -> Vec<i32> {
        let start = format!("weal role {role} --state {} ", self.state().display());
        self.leftovers().into_iter().filter(|pid| command_line(*pid).starts_with(&start)).collect()
    }

    pub fn signal_supervisor(&self, signal: Signal) {
        send(self.pid("supervisor"), signal);
    }

    /// Waits for the supervisor's end and gives its exit code.
    pub fn wait_end(&mut self) -> Option<i32> {
        let mut child = self.supervisor.take().expect("a supervisor");
        let status = self.eventually("the supervisor's end", || child.try_wait().unwrap());
        status.code()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.listen)
    }

    /// Processes that belong to this pool: they name its folder in their arguments or their environment.
    fn leftovers(&self) -> Vec<i32> {
        let name = self.folder.path().to_str().unwrap().as_bytes().to_vec();
        let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let names = |pid: &i32, file: &str| {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            text.windows(name.len()).any(|window| window == name)
        };
        pids.filter(|pid| names(pid, "cmdline") || names(pid, "environ")).collect()
    }

    /// Asserts that nothing of the pool is left.
    pub fn assert_gone(&self) {
        let left: Vec<String> = self.leftovers().into_iter().map(|pid| format!("{pid} {}", command_line(pid))).collect();
        assert!(left.is_empty(), "still there: {left:?}");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(child) = &mut self.supervisor {
            send(i32::try_from(child.id()).unwrap_or(0), Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Some(child) = &mut self.supervisor {
            if Instant::now() > deadline || !matches!(child.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // A test that failed half-way may have left anything.
        let _ = self.command(&["down", "--timeout", "10"]).output();
        self.leftovers().into_iter().for_each(kill);
        if let Some(child) = &mut self.supervisor {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The config of an application that runs the echo example, with `more` lines.
pub fn echo_app(name: &str, more: &str) -> String {
    let program = echo_program();
    format!(
        "[app.{name}]\nrun = [\"{}\", \"--port\", \"$PORT\"]\nhealth = \"/healthz\"\nmemory = \"64MiB\"\n\
         instances = {{ min = 1, max = 1 }}\nroutes = [{{ host = \"{name}.localhost\" }}]\n{more}\n",
        program.display()
    )
}

pub fn echo_program() -> PathBuf {
    example_program("echo")
}

/// Cargo builds examples with the tests, beside this test's own folder.
pub fn example_program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    if !program.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "weal", "--example", name]).status();
        assert!(built.unwrap().success(), "cannot build the example {name}");
    }
    open_to_all(program)
}

/// `program`, or a copy of it if it lies where others may not look: a root pool's applications run as users of their own.
pub fn open_to_all(program: PathBuf) -> PathBuf {
    if is_open_to_all(&program) {
        return program;
    }
    let folder = std::env::temp_dir().join(format!("weal-e2e-programs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.join(program.file_name().unwrap());
    if !copy.exists() {
        // Whole at once: other tests use the same.
        let partial = folder.join(format!("{}-{:?}", copy.file_name().unwrap().display(), std::thread::current().id()));
        copy_program(&program, &partial);
        std::fs::rename(partial, &copy).unwrap();
    }
    copy
}

/// Whether the applications of this user's pools get to `path`.
pub fn is_open_to_all(path: &Path) -> bool {
    let lets_through = |part: &Path| std::fs::metadata(part).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0);
    !rustix::process::geteuid().is_root() || path.ancestors().all(lets_through)
}

/// Copies a program in another process. What this one has open for writing is open for a moment in whatever other tests start meanwhile,
/// and as long as it is, the kernel runs the file for nobody ("text file busy").
pub fn copy_program(program: &Path, to: &Path) {
    copy_program_with(program, "", to);
}

/// The same with `end` behind it, which changes nothing but the file.
pub fn copy_program_with(program: &Path, end: &str, to: &Path) {
    let script = "cp \"$1\" \"$3\" && printf %s \"$2\" >>\"$3\"";
    let copied = Command::new("sh").args(["-c", script, "sh"]).arg(program).arg(end).arg(to).status().unwrap();
    assert!(copied.success(), "cannot copy {} to {}", program.display(), to.display());
}

/// A program of an example, built on demand. With `/work?cpu_ms=N` a request costs N milliseconds of CPU.
pub fn demo_program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join(name);
    if !program.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--workspace", "--bin", name]).status();
        assert!(built.unwrap().success(), "cannot build {name}");
    }
    open_to_all(program)
}

/// A program of a module of Go's, built into `folder`; `None`, and said, where that cannot be had.
pub fn go_program(folder: &str, module: &str, version: &str, name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let program = folder.join(name);
    if !program.exists() {
        let built = Command::new("go").args(["install", &format!("{module}/{name}@{version}")]).env("GOBIN", &folder).output();
        match built {
            Ok(output) if output.status.success() => {}
            Ok(output) => weal_testing::skip(format_args!("cannot build {name} of {module}: {}", text(&output.stderr).trim())),
            Err(error) => weal_testing::skip(format_args!("there is no `go` to build {name} of {module} with: {error}")),
        }
    }
    program.exists().then_some(program)
}

/// Ports that nobody listens at, and that no other test was given: what a pool does not listen at yet is free for whoever asks next.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap();
    // All are held until there are enough, so that the kernel names others.
    let (mut held, mut ports) = (Vec::new(), Vec::new());
    while ports.len() < N {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        ports.extend(given.insert(port).then_some(port));
        held.push(listener);
    }
    std::array::from_fn(|index| ports[index])
}

pub fn kill(pid: i32) {
    send(pid, Signal::KILL);
}

pub fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

pub fn is_alive(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn command_line(pid: i32) -> String {
    std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default().replace('\0', " ")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
