//! What the way through the gateway adds to a wake: the same application, woken by a request and woken directly, in turns.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use weal_protocol::node::InstanceSpec;

use crate::bench::real::agent::{first_byte_s, serve_requests};
use crate::bench::real::pool::Pool;

const PATIENCE: Duration = Duration::from_secs(120);
/// An instance is not put to sleep within two seconds after it was asked for.
const JUST_ASKED: Duration = Duration::from_millis(2100);

/// A pool with one application named `server` that sleeps when it is told to.
pub struct Sleeper(Pool);

impl Sleeper {
    /// Starts it in `folder`, with what `spec` runs, and lets it answer `count` requests. `others` are more sections of its config.
    pub fn start(program: &Path, folder: &Path, spec: &InstanceSpec, count: usize, others: &str) -> Result<Self> {
        let run: Vec<String> = spec.run.iter().map(|word| format!("{word:?}")).collect();
        let config = format!(
            "\n[app.server]\nrun = [{}]\nhealth = \"/\"\nmemory = \"1GiB\"\ninstances = {{ min = 0, max = 1 }}\nsleep-after = \"1h\"\n\
             routes = [{{ host = \"127.0.0.1\" }}]\n{others}",
            run.join(", ")
        );
        let pool = Pool::start(program, folder, &config)?;
        pool.wait_for_answer("/")?;
        serve_requests(pool.listen(), count)?;
        Ok(Self(pool))
    }

    /// The processes of the pool's roles.
    pub fn roles(&self) -> Result<Vec<u32>> {
        self.0.roles()
    }

    /// Parks it.
    pub fn park(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        std::thread::sleep(JUST_ASKED);
        loop {
            let output = self.0.weal(&["sleep", "server", "--rung", "parked", "--timeout", "5"])?;
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
        first_byte_s(self.0.listen(), "/")
    }

    /// Seconds from the order to wake it to the first byte, without the gateway.
    pub fn wake_and_ask(&self) -> Result<f64> {
        let began = Instant::now();
        let answer = self.0.wake("server")?;
        first_byte_s(answer.address, "/")?;
        Ok(began.elapsed().as_secs_f64())
    }
}
