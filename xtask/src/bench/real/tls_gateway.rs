//! A gateway that speaks TLS, as a process of its own on CPUs of its own.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::pool::free_address;
use crate::programs::release;

/// The programs, built, and a folder for what they need. It is removed when this is dropped.
pub struct TlsPrograms {
    examples: PathBuf,
    folder: PathBuf,
}

/// A running gateway. It ends when this is dropped.
pub struct TlsGateway {
    process: Child,
    pub address: SocketAddr,
    pub plain: SocketAddr,
    pub authority: PathBuf,
    pub socket: PathBuf,
}

/// Another process of the programs. It ends when this is dropped.
pub struct Running(Child);

impl TlsPrograms {
    /// Builds them.
    pub fn build() -> Result<Self> {
        for (tool, flag, package) in [("openssl", "version", "openssl"), ("taskset", "--version", "util-linux")] {
            let found = Command::new(tool).arg(flag).stdout(Stdio::null()).status().is_ok();
            ensure!(found, "{tool} is not installed: run `apt-get install {package}`");
        }
        let examples = release(&[
            "--package",
            "weal-gateway",
            "--example",
            "sessions-bench",
            "--example",
            "idle-bench",
            "--example",
            "held-bench",
        ])?
        .join("examples");
        let folder = std::env::temp_dir().join(format!("weal-bench-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self { examples, folder })
    }

    /// One of them.
    pub fn program(&self, name: &str) -> PathBuf {
        self.examples.join(name)
    }

    /// The same on these CPUs only.
    pub fn on(&self, cpus: Range<usize>, name: &str) -> Command {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(format!("{}-{}", cpus.start, cpus.end - 1)).arg(self.program(name));
        command
    }

    /// An instance on these CPUs, as `words` say.
    pub fn instance(&self, cpus: Range<usize>, words: &[&str]) -> Result<Running> {
        Ok(Running(
            self.on(cpus, "sessions-bench").args(words).stdin(Stdio::null()).spawn().context("cannot start the instance")?,
        ))
    }

    /// A gateway before `instance` with a certificate for a key that openssl makes by `key`. With `orders`, its handshakes wait in order.
    pub fn start(&self, key: &[&str], cpus: Range<usize>, orders: bool, instance: SocketAddr) -> Result<TlsGateway> {
        let [authority, key] = self.certificate(key)?;
        let (address, plain) = (free_address()?, free_address()?);
        let workers = cpus.len().to_string();
        let mut command = self.on(cpus, "sessions-bench");
        command.args(["serve", &address.to_string(), &plain.to_string(), &instance.to_string()]).args([&authority, &key]);
        command.args([workers.as_str(), if orders { "ordered" } else { "unordered" }]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start the gateway")?;
        let mut socket = String::new();
        BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut socket)?;
        ensure!(!socket.is_empty(), "the gateway ended at once");
        Ok(TlsGateway { process, address, plain, authority, socket: socket.trim().into() })
    }

    /// A certificate that is its own authority, and its key.
    fn certificate(&self, key: &[&str]) -> Result<[PathBuf; 2]> {
        let files = ["pem", "key"].map(|ending| self.folder.join(format!("{}.{ending}", key[0].replace(':', "-"))));
        if !files[0].exists() {
            make_certificate(key, &self.folder, &files)?;
        }
        Ok(files)
    }
}

/// A certificate for `bench.test` that is its own authority, and its key of a `kind` that openssl has. `folder` is for its config.
pub fn make_certificate(kind: &[&str], folder: &Path, [certificate, key]: &[PathBuf; 2]) -> Result<()> {
    let config = folder.join("openssl.cnf");
    let text = "[req]\nprompt = no\ndistinguished_name = name\nx509_extensions = more\n[name]\nCN = bench.test\n\
                [more]\nsubjectAltName = DNS:bench.test\nbasicConstraints = critical, CA:FALSE\n";
    std::fs::write(&config, text)?;
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-days", "2", "-newkey"]).args(kind).arg("-config").arg(&config);
    let made = command.arg("-keyout").arg(key).arg("-out").arg(certificate).output()?;
    ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr).trim());
    Ok(())
}

impl TlsGateway {
    /// Where it is, as the program's other commands want it.
    pub fn words(&self) -> [String; 3] {
        [self.address.to_string(), self.authority.display().to_string(), self.socket.display().to_string()]
    }

    /// `taskset` becomes the program: this is the gateway's own.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for TlsPrograms {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for TlsGateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(folder) = self.socket.parent() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
