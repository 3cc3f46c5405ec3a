//! What the way through the gateway adds to a wake: the same application, woken by a request and woken directly, in turns.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weal_node::api::{self, InstanceSpec, WakeAnswer, WakeRequest};
use weal_rpc::Client;

use super::agent::{first_byte_s, serve_requests};

const PATIENCE: Duration = Duration::from_secs(120);

/// A pool with one application named `server`, stopped when dropped.
pub struct Pool {
    program: PathBuf,
    config: PathBuf,
    state: PathBuf,
    listen: SocketAddr,
    runtime: tokio::runtime::Runtime,
}

impl Pool {
    /// Starts `program`, weal's own, in `folder`, with what `spec` runs.
    pub fn start(program: &Path, folder: &Path, spec: &InstanceSpec) -> Result<Self> {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
        let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
        let (listen, api) = (free()?, free()?);
        let run: Vec<String> = spec.run.iter().map(|word| format!("{word:?}")).collect();
        let text = format!(
            "[pool]\nlisten = \"{listen}\"\napi = \"{api}\"\n\n[app.server]\nrun = [{}]\nhealth = \"/\"\nmemory = \"1GiB\"\n\
             instances = {{ min = 0, max = 1 }}\nsleep-after = \"1h\"\nroutes = [\"127.0.0.1\"]\n",
            run.join(", ")
        );
        let config = folder.join("weal.toml");
        fs::write(&config, text)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let pool = Self { program: program.to_owned(), config, state: folder.join("state"), listen, runtime };
        let started = pool.weal(&["up", "--detach"])?;
        ensure!(started.status.success(), "the pool does not come up: {}", String::from_utf8_lossy(&started.stderr));
        Ok(pool)
    }

    fn weal(&self, words: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--file").arg(&self.config).arg("--state").arg(&self.state);
        command.output().context("cannot run weal")
    }

    /// Lets it answer `count` requests.
    pub fn warm_up(&self, count: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.ask().is_err() {
            ensure!(Instant::now() < deadline, "the pool does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        serve_requests(self.listen, count)
    }

    /// Parks it.
    pub fn park(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // It is not put to sleep within two seconds after it was asked for.
            let output = self.weal(&["sleep", "server", "--rung", "parked", "--timeout", "20"])?;
            if output.status.success() {
                std::thread::sleep(Duration::from_millis(300));
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "it does not fall asleep: {}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Seconds from a request to its first byte, through the gateway.
    pub fn ask(&self) -> Result<f64> {
        first_byte_s(self.listen, "/")
    }

    /// Seconds from the order to wake it to the first byte, without the gateway.
    pub fn wake_and_ask(&self) -> Result<f64> {
        let client = Client::new(self.state.join("run/wake.sock"), PATIENCE);
        let began = Instant::now();
        let request = WakeRequest { app: "server".into(), wait_s: 60.0 };
        let answer: WakeAnswer = self.runtime.block_on(client.call(api::WAKE, &request))?;
        first_byte_s(answer.address, "/")?;
        Ok(began.elapsed().as_secs_f64())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        match self.weal(&["down"]) {
            Ok(output) if output.status.success() => {}
            other => eprintln!("error: the pool is not stopped: {other:?}"),
        }
    }
}
