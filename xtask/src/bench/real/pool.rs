//! A whole pool for the measurement: `weal up` with a config of its own, stopped when it is dropped.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weal_protocol::Refusal;
use weal_protocol::node::{self, AgentObservation, CommandOutcome, WakeAnswer, WakeRequest};
use weal_rpc::{Client, Method};

use super::agent::first_byte_s;

const PATIENCE: Duration = Duration::from_secs(120);

/// A pool that runs.
pub struct Pool {
    program: PathBuf,
    config: PathBuf,
    head: String,
    state: PathBuf,
    listen: SocketAddr,
    runtime: tokio::runtime::Runtime,
}

impl Pool {
    /// Starts `program`, weal's own, in `folder`. `config` is its file but for `listen` and `api`, which its `[pool]` begins with.
    pub fn start(program: &Path, folder: &Path, config: &str) -> Result<Self> {
        let listen = free_address()?;
        Self::start_at(program, folder, config, listen, &format!("\"{listen}\""))
    }

    /// The same with a second address, where it speaks TLS; `config` says with which certificate.
    pub fn start_with_tls(program: &Path, folder: &Path, config: &str) -> Result<(Self, SocketAddr)> {
        let (listen, secure) = (free_address()?, free_address()?);
        let addresses = format!("[\"http://{listen}\", \"https://{secure}\"]");
        Ok((Self::start_at(program, folder, config, listen, &addresses)?, secure))
    }

    fn start_at(program: &Path, folder: &Path, config: &str, listen: SocketAddr, addresses: &str) -> Result<Self> {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
        let api = free_address()?;
        let file = folder.join("weal.toml");
        let head = format!("[pool]\nlisten = {addresses}\napi = \"{api}\"\n");
        fs::write(&file, format!("{head}{config}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let pool = Self { program: program.to_owned(), config: file, head, state: folder.join("state"), listen, runtime };
        let started = pool.weal(&["up", "--detach"])?;
        ensure!(started.status.success(), "the pool does not come up: {}", String::from_utf8_lossy(&started.stderr));
        Ok(pool)
    }

    /// Gives it another config, as `config` was.
    pub fn apply(&self, config: &str) -> Result<()> {
        fs::write(&self.config, format!("{}{config}", self.head))?;
        let output = self.weal(&["apply"])?;
        ensure!(output.status.success(), "the config is not taken: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Its state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Where its gateway listens.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Runs a command against it.
    pub fn weal(&self, words: &[&str]) -> Result<Output> {
        self.prepared(words).output().context("cannot run weal")
    }

    /// A command against it, to be run.
    pub fn prepared(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null()).env("WEAL_FILE", &self.config).env("WEAL_STATE", &self.state);
        command
    }

    /// Waits until a request for `path` is answered.
    pub fn wait_for_answer(&self, path: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while first_byte_s(self.listen, path).is_err() {
            ensure!(Instant::now() < deadline, "the pool does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// What its node agent says.
    pub fn observe(&self) -> Result<AgentObservation> {
        self.call("node.sock", node::OBSERVE, &())
    }

    /// The processes of its roles.
    pub fn roles(&self) -> Result<Vec<u32>> {
        self.record()?.iter().map(process).collect()
    }

    /// The process of its node agent.
    pub fn agent(&self) -> Result<u32> {
        let roles = self.record()?;
        process(roles.iter().find(|role| role["role"] == "node").context("supervisor.json names no node agent")?)
    }

    fn record(&self) -> Result<Vec<serde_json::Value>> {
        let record: serde_json::Value = serde_json::from_str(&fs::read_to_string(self.state.join("supervisor.json"))?)?;
        Ok(record["roles"].as_array().context("supervisor.json names no roles")?.clone())
    }

    /// Orders its node agent about, behind its controller's back.
    pub fn command(&self, command: node::Command) -> Result<()> {
        let outcome = self.outcome(command)?;
        outcome.refusal.map_or(Ok(()), |error| bail!("{}: {error}", outcome.instance))
    }

    /// The same; why it was not done.
    pub fn refusal(&self, command: node::Command) -> Result<Option<Refusal>> {
        Ok(self.outcome(command)?.refusal)
    }

    fn outcome(&self, command: node::Command) -> Result<CommandOutcome> {
        self.call("node.sock", node::APPLY, &vec![command])?.pop().context("the node agent did not say what became of it")
    }

    /// Asks its node agent to wake an instance of `app`.
    pub fn wake(&self, app: &str) -> Result<WakeAnswer> {
        self.call("wake.sock", node::WAKE, &WakeRequest { app: app.into(), wait_s: 60.0, instances: Vec::new() })
    }

    fn call<Q: serde::Serialize, A: serde::de::DeserializeOwned>(
        &self,
        socket: &str,
        method: Method<Q, A>,
        asked: &Q,
    ) -> Result<A> {
        let client = Client::new(self.state.join("run").join(socket), PATIENCE);
        Ok(self.runtime.block_on(client.call(method, asked))?)
    }
}

/// The process of a role, as the supervisor has written it down.
fn process(role: &serde_json::Value) -> Result<u32> {
    u32::try_from(role["pid"].as_u64().context("a role without a process")?).context("the number of a process")
}

/// An address of this machine that nothing listens at.
pub fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

impl Drop for Pool {
    fn drop(&mut self) {
        match self.weal(&["down"]) {
            Ok(output) if output.status.success() => {}
            other => eprintln!("error: the pool is not stopped: {other:?}"),
        }
    }
}
