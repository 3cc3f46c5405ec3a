//! A newer weal in the place of this one: the supervisor becomes the program that now lies where it was started from.
//!
//! It keeps its process number, so that systemd and everybody else who waits for it see no end. Roles and instances go on
//! meanwhile. The new supervisor takes the roles over as after a death (`role.rs`), and replaces those that run the former
//! program: the listening sockets stay open, and a gateway that ends finishes its requests beside the next one.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::process::Command;
use weal_host::Proc;

/// How long the new program may take to read the config.
const CHECK_LIMIT: Duration = Duration::from_secs(30);

/// The file that this process was started from.
pub struct OwnProgram {
    path: PathBuf,
}

impl OwnProgram {
    /// As it is now. To be asked for at the start: once the file was replaced, the system names it no more.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn at_start() -> io::Result<Self> {
        Ok(Self { path: std::env::current_exe()? })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether another program lies there now.
    pub fn is_replaced(&self) -> bool {
        let proc = Proc::system();
        let (own, there) = (proc.program(proc.own_pid()), weal_host::files::file_id(&self.path));
        matches!((own, there), (Ok(own), Ok(there)) if own != there)
    }

    /// Has the new program read the config, because a supervisor that ended over it would be missed.
    ///
    /// # Errors
    /// The program cannot be run, or refuses the config, in its own words.
    pub async fn check_new(&self, config: &Path) -> anyhow::Result<()> {
        let mut command = Command::new(&self.path);
        command.args(["validate", "--color", "never", "--file"]).arg(config).kill_on_drop(true);
        let answer = tokio::time::timeout(CHECK_LIMIT, command.output()).await;
        let answer = answer.map_err(|_| anyhow::anyhow!("it does not end within {} s", CHECK_LIMIT.as_secs()))?;
        let answer = answer.context("it cannot be run")?;
        if !answer.status.success() {
            bail!("it does not take {}: {}", config.display(), String::from_utf8_lossy(&answer.stderr).trim());
        }
        Ok(())
    }

    /// Becomes the new program, with the arguments and variables of this one. Returns only when that fails.
    pub fn become_new(&self) -> io::Error {
        let mut words = std::env::args_os();
        let mut command = std::process::Command::new(&self.path);
        command.arg0(words.next().unwrap_or_else(|| "weal".into())).args(words);
        let ignored = IgnoredHangup::begin();
        let error = command.exec();
        drop(ignored);
        error
    }
}

/// A second SIGHUP would end a program that does not listen to signals yet. It is ignored instead, which outlives becoming another
/// program: that reads the config at its start anyway.
struct IgnoredHangup {
    before: libc::sigaction,
}

impl IgnoredHangup {
    fn begin() -> Self {
        // SAFETY: both structures are plain data for which all zeros are valid, and live through the call; ignoring runs no handler.
        unsafe {
            let (mut ignore, mut before): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
            ignore.sa_sigaction = libc::SIG_IGN;
            libc::sigaction(libc::SIGHUP, &raw const ignore, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for IgnoredHangup {
    fn drop(&mut self) {
        // SAFETY: `before` is what the system gave for this very signal.
        unsafe { libc::sigaction(libc::SIGHUP, &raw const self.before, std::ptr::null_mut()) };
    }
}
