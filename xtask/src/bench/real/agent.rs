//! A node agent of its own for the measurement, and instances on it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weal_model::{Bytes, Cpu, InstanceState, NodeName, NodeSpec, Rung};
use weal_protocol::Refusal;
use weal_protocol::node::{self, CommandOutcome, InstanceCounters, InstanceSpec, WakeAnswer, WakeRequest};
use weal_rpc::{Client, Method};

use super::machine::{self, MemoryGroup};

const PATIENCE: Duration = Duration::from_secs(300);

/// Wakes from which the agent learns what is needed before they are measured: as many as it remembers, so that what is measured is what lasts.
pub const LESSONS: usize = 8;

/// An agent with one node, ended with all its instances when dropped.
pub struct Agent {
    state: PathBuf,
    child: Child,
    runtime: tokio::runtime::Runtime,
}

impl Agent {
    /// Starts the fixture's agent in `state`, in release form, with `more` arguments; its node is the machine.
    pub fn start(program: &Path, state: &Path, more: &[&str]) -> Result<Self> {
        fs::create_dir_all(state)?;
        let child = Self::spawn(program, state, more)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let agent = Self { state: state.to_owned(), child, runtime };
        agent.wait_for_answer()?;
        let cpus = machine::cpus()? as f64;
        let node = NodeSpec { name: NodeName::from("n1"), cpu: Cpu(cpus), memory: Bytes::gib(16), utilization_limit: 0.9 };
        agent.call("node.sock", node::CONFIGURE, &vec![node])?;
        Ok(agent)
    }

    fn spawn(program: &Path, state: &Path, more: &[&str]) -> Result<Child> {
        let log = fs::File::options().append(true).create(true).open(state.join("agent.log"))?;
        let mut command = Command::new(program);
        command.arg("agent").arg("--state").arg(state).args(["--isolation", "best"]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().context("cannot start the agent")
    }

    fn wait_for_answer(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.call("node.sock", node::OBSERVE, &()).is_err() {
            ensure!(Instant::now() < deadline, "the agent does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
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

    fn apply(&self, command: node::Command) -> Result<f64> {
        done(self.outcome(command)?)
    }

    fn outcome(&self, command: node::Command) -> Result<CommandOutcome> {
        Ok(self.call("node.sock", node::APPLY, &vec![command])?.remove(0))
    }

    /// Another agent in its place, with that prefetch; the instances go on.
    pub fn replaced(mut self, program: &Path, prefetch: &str) -> Result<Self> {
        self.child.kill()?;
        self.child.wait()?;
        let more: &[&str] = if prefetch.is_empty() { &[] } else { &["--prefetch", prefetch] };
        self.child = Self::spawn(program, &self.state, more)?;
        self.wait_for_answer()?;
        Ok(self)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU-seconds that it has used itself.
    pub fn cpu_seconds(&self) -> Result<f64> {
        machine::cpu_seconds(self.child.id())
    }

    /// How instances are kept apart.
    pub fn isolation(&self) -> Result<String> {
        Ok(self.call("node.sock", node::OBSERVE, &())?.capabilities.isolation)
    }

    /// What the kernel bounds the memory of an instance with.
    pub fn memory_group(&self, id: &str) -> Result<MemoryGroup> {
        MemoryGroup::of(self.instance(id)?.pid.context("it has a process")?)
    }

    /// Starts it and waits until it is ready.
    pub fn start_ready(&self, spec: &InstanceSpec) -> Result<InstanceCounters> {
        self.apply(node::Command::Start { spec: Box::new(spec.clone()) })?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let instance = self.instance(spec.id.as_str())?;
            if instance.state == InstanceState::Ready {
                return Ok(instance);
            }
            ensure!(Instant::now() < deadline && instance.state == InstanceState::Starting, "{}: {}", spec.id, instance.detail);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it.
    pub fn stop(&self, id: &str) -> Result<()> {
        self.apply(node::Command::Stop { instance: id.into() }).map(drop)
    }

    /// Puts it to sleep; seconds that it took.
    pub fn sleep(&self, id: &str, rung: Rung) -> Result<f64> {
        // One that was woken a moment ago is left awake for a while.
        loop {
            let outcome = self.outcome(node::Command::Sleep { instance: id.into(), rung })?;
            match outcome.refusal {
                Some(Refusal::AskedFor { .. }) => std::thread::sleep(Duration::from_millis(100)),
                _ => return done(outcome),
            }
        }
    }

    /// Wakes an instance of `app`.
    pub fn wake(&self, app: &str) -> Result<WakeAnswer> {
        self.call("wake.sock", node::WAKE, &WakeRequest { app: app.into(), wait_s: 60.0, instances: Vec::new() })
    }

    /// How it is.
    pub fn instance(&self, id: &str) -> Result<InstanceCounters> {
        let all = self.call("node.sock", node::OBSERVE, &())?.instances;
        all.into_iter().find(|instance| instance.spec.id.as_str() == id).with_context(|| format!("there is no {id}"))
    }

    /// All of them.
    pub fn instances(&self) -> Result<Vec<InstanceCounters>> {
        Ok(self.call("node.sock", node::OBSERVE, &())?.instances)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        match weal_node::stop_all(&self.state) {
            Ok(left) if left.is_empty() => {}
            left => eprintln!("error: instances are left: {left:?}"),
        }
    }
}

/// `GET path`: the seconds until the first byte. The answer is read to its end.
pub fn first_byte_s(address: SocketAddr, path: &str) -> Result<f64> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    // In one go, as in `serve_requests`.
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut head = [0u8; 12];
    stream.read_exact(&mut head)?;
    let took_s = began.elapsed().as_secs_f64();
    ensure!(head.ends_with(b"200"), "{path}: {}", String::from_utf8_lossy(&head));
    std::io::copy(&mut stream, &mut std::io::sink())?;
    Ok(took_s)
}

/// Seconds that a command took; an error when it was refused.
fn done(outcome: CommandOutcome) -> Result<f64> {
    match outcome.refusal {
        Some(refusal) => bail!("{}: {refusal}", outcome.instance),
        None => Ok(outcome.took_s),
    }
}

/// Lets `address` answer `count` requests over one connection, one after the other.
pub fn serve_requests(address: SocketAddr, count: usize) -> Result<()> {
    let mut stream = BufReader::new(TcpStream::connect(address)?);
    stream.get_ref().set_read_timeout(Some(Duration::from_secs(60)))?;
    // In one go: a request in several segments waits for an acknowledgement that the other side delays by 40 ms.
    let question = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
    for _ in 0..count {
        stream.get_mut().write_all(question.as_bytes())?;
        let (mut line, mut length) = (String::new(), 0u64);
        while line != "\r\n" {
            line.clear();
            ensure!(stream.read_line(&mut line)? > 0, "{address} has closed the connection");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink())?;
    }
    Ok(())
}
