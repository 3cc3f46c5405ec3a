//! An agent in a process of its own, and what is needed to talk about it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use weal_model::{
    AppName, AppSpec, Bytes, Cpu, HealthCheck, HealthProbe, InstanceId, InstanceState, NodeName, NodeSpec, PoolSpec,
    RestartPolicy, Rung,
};
use weal_protocol::Refusal;
use weal_protocol::node::{self, AgentObservation, CommandOutcome, InstanceCounters, InstanceEvent, InstanceSpec};
use weal_rpc::{Client, Method};

/// Nothing here takes that long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An agent with one node `n1`.
pub struct Bench {
    folder: tempfile::TempDir,
    agent: Mutex<Option<Child>>,
    runtime: tokio::runtime::Runtime,
    kind: String,
}

impl Bench {
    /// `None` when the machine does not offer `kind`.
    pub fn new(kind: &str) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::Builder::new().prefix("weal-node-").tempdir().unwrap();
        // Instances of other users reach their data through it.
        open_up(folder.path());
        let bench = Self { folder, agent: Mutex::new(None), runtime, kind: kind.to_owned() };
        bench.start_agent();
        if bench.observe().capabilities.isolation != kind {
            return None;
        }
        let node = NodeSpec { name: NodeName::from("n1"), cpu: Cpu(2.0), memory: Bytes::gib(1), utilization_limit: 0.9 };
        bench.call(node::CONFIGURE, &vec![node]);
        Some(bench)
    }

    /// Which isolation is tested.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The state directory.
    pub fn state(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of an instance.
    pub fn dir(&self, id: &str) -> PathBuf {
        self.state().join("node/instances").join(id)
    }

    pub fn start_agent(&self) {
        let log = fs::OpenOptions::new().append(true).create(true).open(self.state().join("agent.log")).unwrap();
        let mut command = Command::new(fixture());
        command.arg("agent").arg("--state").arg(self.state()).args(["--isolation", &self.kind]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        *self.agent.lock().unwrap() = Some(child);
        wait_for("the agent's socket", || {
            let called = self.runtime.block_on(self.client().call(node::OBSERVE, &()));
            called.ok()
        });
    }

    /// `kill -9`.
    pub fn kill_agent(&self) {
        if let Some(mut child) = self.agent.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// SIGTERM, and the wait until it is gone.
    pub fn end_agent(&self) {
        signal(self.agent_pid(), Signal::TERM);
        let mut agent = self.agent.lock().unwrap().take().unwrap();
        assert!(agent.wait().unwrap().success());
    }

    /// The agent's process.
    pub fn agent_pid(&self) -> u32 {
        self.agent.lock().unwrap().as_ref().unwrap().id()
    }

    /// Holds the agent where it is.
    pub fn stop_agent(&self) {
        signal(self.agent_pid(), Signal::STOP);
    }

    /// Lets it go on.
    pub fn continue_agent(&self) {
        signal(self.agent_pid(), Signal::CONT);
    }

    fn client(&self) -> Client {
        Client::new(self.state().join("run/node.sock"), PATIENCE)
    }

    pub fn call<Q: serde::Serialize, A: serde::de::DeserializeOwned>(&self, method: Method<Q, A>, request: &Q) -> A {
        self.runtime.block_on(self.client().call(method, request)).unwrap()
    }

    /// Has these processes put before instances; what is wrong with that.
    pub fn prefer(&self, pids: &[u32]) -> Option<String> {
        let called = self.runtime.block_on(self.client().call(node::PREFER, &pids.to_vec()));
        called.err().map(|error| error.to_string())
    }

    pub fn observe(&self) -> AgentObservation {
        self.call(node::OBSERVE, &())
    }

    pub fn instance(&self, id: &str) -> Option<InstanceCounters> {
        self.observe().instances.into_iter().find(|instance| instance.spec.id.as_str() == id)
    }

    pub fn apply(&self, command: node::Command) -> CommandOutcome {
        self.call(node::APPLY, &vec![command]).remove(0)
    }

    /// Lets these applications run as these users, as root's config does.
    pub fn allow(&self, users: &[(&str, &str)]) {
        let app = |(name, user): &(&str, &str)| {
            let app = AppSpec { user: Some((*user).to_owned()), ..AppSpec::example(name) };
            (app.name.clone(), app)
        };
        let pool = PoolSpec { apps: users.iter().map(app).collect(), ..PoolSpec::example() };
        weal_node::Permits::of(&pool).write(self.state()).unwrap();
    }

    /// Lets the application of `spec` be confined as that says, as root's config does.
    pub fn allow_sandbox(&self, spec: &InstanceSpec) {
        let app = AppSpec { user: spec.user.clone(), sandbox: spec.sandbox.clone(), ..AppSpec::example(spec.app.as_str()) };
        let pool = PoolSpec { apps: [(app.name.clone(), app)].into(), ..PoolSpec::example() };
        weal_node::Permits::of(&pool).write(self.state()).unwrap();
    }

    pub fn start(&self, spec: &InstanceSpec) -> Option<Refusal> {
        self.apply(node::Command::Start { spec: Box::new(spec.clone()) }).refusal
    }

    /// Starts it by an agent that may be killed meanwhile.
    pub fn start_and_ignore(&self, spec: &InstanceSpec) {
        self.apply_and_ignore(node::Command::Start { spec: Box::new(spec.clone()) });
    }

    /// Does it by an agent that may be killed meanwhile.
    pub fn apply_and_ignore(&self, command: node::Command) {
        let command = vec![command];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = runtime.block_on(self.client().call(node::APPLY, &command));
    }

    /// Wakes an instance of `app` over the socket that the gateway has.
    pub fn wake(&self, app: &str) -> Result<node::WakeAnswer, weal_rpc::Error> {
        self.wake_one_of(app, &[])
    }

    /// As [`Bench::wake`], one of these only.
    pub fn wake_one_of(&self, app: &str, only: &[&str]) -> Result<node::WakeAnswer, weal_rpc::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let instances = only.iter().map(|id| (*id).into()).collect();
        let request = node::WakeRequest { app: AppName::from(app), wait_s: PATIENCE.as_secs_f64(), instances };
        runtime.block_on(self.wake_client().call(node::WAKE, &request))
    }

    /// Who calls the wake socket.
    pub fn wake_client(&self) -> Client {
        Client::new(self.state().join("run/wake.sock"), PATIENCE)
    }

    /// Puts it to sleep; what is wrong with that. One that was woken a moment ago is left awake for a while: that is waited for.
    pub fn sleep(&self, id: &str, rung: Rung) -> Option<Refusal> {
        wait_for("it to be left alone", || {
            let refusal = self.apply(node::Command::Sleep { instance: InstanceId::from(id), rung }).refusal;
            (!matches!(refusal, Some(Refusal::AskedFor { .. }))).then_some(refusal)
        })
    }

    pub fn stop(&self, id: &str) {
        assert_eq!(self.apply(node::Command::Stop { instance: InstanceId::from(id) }).refusal, None);
    }

    pub fn suspend(&self, id: &str) {
        assert_eq!(self.sleep(id, Rung::Suspended), None);
    }

    pub fn resume(&self, id: &str) {
        assert_eq!(self.apply(node::Command::Resume { instance: InstanceId::from(id) }).refusal, None);
    }

    /// Starts it and waits until it is ready.
    pub fn start_ready(&self, spec: &InstanceSpec) -> InstanceCounters {
        assert_eq!(self.start(spec), None);
        self.wait_state(spec.id.as_str(), InstanceState::Ready)
    }

    pub fn wait_state(&self, id: &str, state: InstanceState) -> InstanceCounters {
        wait_for(&format!("{id} to be {state:?}"), || self.instance(id).filter(|instance| instance.state == state))
    }

    pub fn events(&self, after: u64) -> Vec<InstanceEvent> {
        self.call(node::EVENTS, &node::EventsAfter { after, wait_s: 0.0 })
    }

    /// The detail of an event later than `after` that begins with `begins`. Waits for it: who asked for a wake is answered before its event
    /// is written.
    pub fn said(&self, after: u64, begins: &str) -> String {
        let details = || self.events(after).into_iter().map(|event| event.detail);
        wait_for(begins, || details().find(|detail| detail.starts_with(begins)))
    }

    /// An instance of the fixture, with a health check over HTTP.
    pub fn spec(&self, id: &str, arguments: &[&str]) -> InstanceSpec {
        let run = std::iter::once(fixture().display().to_string()).chain(arguments.iter().map(|word| (*word).to_owned()));
        InstanceSpec {
            id: InstanceId::from(id),
            app: AppName::from(id.split('-').next().unwrap()),
            node: NodeName::from("n1"),
            run: run.collect(),
            env: BTreeMap::new(),
            process: weal_model::ProcessSpec::default(),
            cwd: "/".into(),
            user: None,
            sandbox: weal_model::SandboxSpec::default(),
            memory: Bytes::mib(100),
            cpu_limit: None,
            health: HealthCheck {
                probe: HealthProbe::Http { path: "/healthz".into() },
                interval_s: 0.2,
                timeout_s: 20.0,
                start_timeout_s: 30.0,
                failures: 3,
                replace_after: 0,
                send_proxy: None,
                host: None,
            },
            restart: RestartPolicy::Always,
            stop_timeout_s: 10.0,
            on_resume: Vec::new(),
            pass_socket: false,
            datagrams: false,
            needs: BTreeMap::new(),
            revision: "f".into(),
            job: None,
            step_of: None,
        }
    }

    /// Where each thread of the agent and of its instances stands, how long it ran and waited for a core (in ns), and what the instances'
    /// groups say.
    fn standing(&self) -> String {
        let agent = self.agent.lock().unwrap().as_ref().map(Child::id);
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let mut said = String::new();
        for pid in agent.into_iter().chain(self.marked("")) {
            let process = Path::new("/proc").join(pid.to_string());
            for task in fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
                said.extend(["stat", "schedstat", "stack"].map(|file| read(task.path().join(file))));
            }
            let groups = read(process.join("cgroup"));
            let group =
                groups.lines().find_map(|line| line.strip_prefix("0::/")).map(|group| Path::new("/sys/fs/cgroup").join(group));
            let files =
                ["cgroup.freeze", "cgroup.events", "memory.events", "memory.current", "memory.swap.current", "memory.pressure"];
            for (group, file) in group.iter().flat_map(|group| files.map(|file| (group, file))) {
                said.push_str(&format!("{}: {}\n", group.join(file).display(), read(group.join(file)).trim_end()));
            }
        }
        said + &read("/proc/meminfo".into())
    }

    /// All living processes that carry the mark of an instance; the empty id means any.
    pub fn marked(&self, id: &str) -> Vec<u32> {
        let mark = format!("WEAL_INSTANCE_DIR={}", self.dir(id).display());
        let is_marked = |entry: &[u8]| if id.is_empty() { entry.starts_with(mark.as_bytes()) } else { entry == mark.as_bytes() };
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let has_mark = |pid: &u32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(is_marked)
        };
        pids.filter(has_mark).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the agent's log\n{}", fs::read_to_string(self.state().join("agent.log")).unwrap_or_default());
            eprintln!("--- where all stand\n{}", self.standing());
        }
        self.kill_agent();
        match weal_node::stop_all(self.state()) {
            Ok(failed) if failed.is_empty() => {}
            other => eprintln!("instances are left: {other:?}"),
        }
        let left = self.marked("");
        assert!(left.is_empty() || std::thread::panicking(), "instances are left: {left:?}");
    }
}

/// `GET path`, and the body; `None` when there is no answer within `patience`.
pub fn get(address: SocketAddr, path: &str, patience: Duration) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text.split_once("\r\n\r\n")?.1.trim().to_owned())
}

pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

pub fn signal(pid: u32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Polls until there is something.
pub fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The fixture, where every user may run it: instances of a root agent run as users of their own, which may not enter root's folders.
pub fn fixture() -> PathBuf {
    static FIXTURE: OnceLock<PathBuf> = OnceLock::new();
    FIXTURE.get_or_init(|| open_to_all(built())).clone()
}

/// `program`, or a copy of it if it lies where others may not look.
fn open_to_all(program: PathBuf) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let lets_through = |part: &Path| fs::metadata(part).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0);
    if program.ancestors().all(lets_through) {
        return program;
    }
    let folder = std::env::temp_dir().join(format!("weal-node-fixture-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    open_up(&folder);
    let copy = folder.join("node_fixture");
    // In another process: what this one has open for writing is open for a moment in whatever other tests start meanwhile, and the kernel
    // runs such a file for nobody.
    assert!(Command::new("cp").arg(&program).arg(&copy).status().unwrap().success());
    open_up(&copy);
    copy
}

/// Cargo builds it with the tests; a virtual machine has it beside the tests.
fn built() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().unwrap();
    let candidates = [folder.join("node_fixture"), folder.parent().unwrap().join("examples/node_fixture")];
    candidates
        .iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("none of {candidates:?} exists: cargo build --package weal-node --examples"))
        .clone()
}

fn open_up(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}
