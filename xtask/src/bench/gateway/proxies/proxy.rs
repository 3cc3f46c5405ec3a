//! A proxy that runs, and what all proxies of one work have in common.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::real::machine::cpu_seconds;

/// Threads or workers of each proxy.
pub const WORKERS: u32 = 2;

/// How long a proxy may take until it answers, and until it has ended.
const START: Duration = Duration::from_secs(20);
const END: Duration = Duration::from_secs(3);

/// What a proxy speaks with its clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Front {
    Http1,
    /// Without TLS, to clients that know it beforehand.
    Http2,
    /// HTTP/1 over it.
    Tls,
}

impl Front {
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Http1 | Self::Http2 => "http",
            Self::Tls => "https",
        }
    }
}

/// What all proxies of one work have in common.
pub struct Setting<'a> {
    pub front: Front,
    pub instance: SocketAddr,
    /// Its chain and its key.
    pub certificate: &'a [PathBuf; 2],
    /// For configs and logs.
    pub folder: &'a Path,
    /// What a first request asks for, and how many bytes its answer has.
    pub path: &'a str,
    pub bytes: usize,
}

impl Setting<'_> {
    /// Writes a file of a proxy.
    pub fn write(&self, name: &str, config: &str) -> Result<PathBuf> {
        let file = self.folder.join(name);
        std::fs::write(&file, config).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }
}

/// Whether a first request gets the whole answer.
pub fn answers(front: Front, address: SocketAddr, path: &str, bytes: usize) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--max-time", "2", "--noproxy", "*", "--output", "/dev/null"]);
    curl.args(["--write-out", "%{http_code} %{http_version} %{size_download}"]);
    let version = match front {
        Front::Http1 => "1.1",
        Front::Http2 => {
            curl.arg("--http2-prior-knowledge");
            "2"
        }
        Front::Tls => {
            curl.args(["--http1.1", "--insecure", "--tlsv1.3"]);
            "1.1"
        }
    };
    let said = curl.arg(format!("{}://{address}{}", front.scheme(), path)).output();
    said.is_ok_and(|output| output.stdout == format!("200 {version} {bytes}").as_bytes())
}

/// A running proxy, or the instance. It ends with its processes when dropped.
pub struct Proxy {
    pub name: &'static str,
    pub address: SocketAddr,
    process: Child,
    log: PathBuf,
}

impl Proxy {
    /// Starts it.
    pub fn spawn(name: &'static str, mut command: Command, address: SocketAddr, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let written = File::create(&log)?;
        // sessions-bench ends when nobody can write to it any more.
        command.stdin(Stdio::piped()).stdout(written.try_clone()?).stderr(written).env("TMPDIR", folder);
        let process = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, address, process, log })
    }

    /// Waits until it answers.
    pub fn ready(mut self, answers: impl Fn() -> bool) -> Result<Self> {
        let begun = Instant::now();
        while !answers() {
            let said = || std::fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(status) = self.process.try_wait()? {
                bail!("{} ended at once, {status}: {}", self.name, said());
            }
            ensure!(begun.elapsed() < START, "{} does not answer at {}: {}", self.name, self.address, said());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(self)
    }

    /// CPU-seconds used so far, by it and by its living children: user and system.
    pub fn cpu_s(&self) -> Result<f64> {
        let pid = self.process.id();
        let children = weal_host::Proc::system().children(pid);
        std::iter::once(pid).chain(children).map(cpu_seconds).sum()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if !matches!(self.process.try_wait(), Ok(None)) {
            return;
        }
        // SIGTERM, because a killed nginx master leaves its workers behind.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let begun = Instant::now();
        while begun.elapsed() < END {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
