//! `weal up -d`: a supervisor in a session of its own, and a wait until it is ready.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

use super::console::Console;
use super::identity::{say_isolation, say_users};
use super::logs::last_lines;
use super::progress::{Arrival, Progress, waiting_line};
use crate::client::{Client, block_on};
use crate::config_file::Loaded;
use crate::failure::{Exit, Failure};
use crate::output::{Stream, Tone, paint};
use crate::state::StateDir;
use crate::users::RoleUsers;

/// Starts the supervisor and waits until every application is ready.
///
/// # Errors
/// The supervisor ended (says why); an application failed (exit code 1) or is not ready after `limit` (exit code 5), in
/// which cases the pool goes on running.
pub fn start(loaded: &Loaded, state: &StateDir, limit: Duration) -> anyhow::Result<()> {
    state.prepare(RoleUsers::of_this_machine()?.as_ref())?;
    drop(state.lock()?);
    let log = state.log("supervisor");
    let before = std::fs::metadata(&log).map_or(0, |meta| meta.len());
    let (mut child, started) = spawn(loaded, state, &log)?;
    let console = Console::new(None);
    say_users(&console, &loaded.spec);
    say_isolation(&console);
    block_on(async {
        let arrival = tokio::select! {
            // Before the child has its roles, a former supervisor's could answer for it.
            arrival = async { started.wait().await?; Ok::<_, std::io::Error>(arrive(state, console.clone(), loaded).await) } => match arrival {
                Ok(arrival) => arrival,
                Err(_) => { ended(&mut child).await; bail!("{}", last_words(&log, before)) }
            },
            () = ended(&mut child) => bail!("{}", last_words(&log, before)),
            () = tokio::time::sleep(limit) => return Err(late(state, limit).await),
        };
        console.live("");
        if !matches!(child.try_wait(), Ok(None)) {
            bail!("{}", last_words(&log, before));
        }
        if let Arrival::Failed(failed) = arrival {
            bail!("the pool runs, but not all of it: {}", failed.join("; "));
        }
        super::urls::of_apps(&loaded.spec).iter().for_each(|line| console.say(line));
        let api = paint(&loaded.spec.api_url(), Tone::Strong, Stream::Out);
        console.tell(Tone::Good, "ready:", &format!("weal runs in the background as pid {}; dashboard {api}", child.id()));
        Ok(())
    })
}

fn spawn(loaded: &Loaded, state: &StateDir, log: &Path) -> anyhow::Result<(Child, Started)> {
    let (ours, its) = UnixStream::pair()?;
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(log)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0("weal").args(["up", "--background", "--color", "never", "--file"]).arg(&loaded.path);
    command.arg("--state").arg(&state.root);
    command.stdin(OwnedFd::from(its)).stdout(log.try_clone()?).stderr(log);
    Ok((command.spawn()?, Started(ours)))
}

/// The other end of the child's standard input, on which it says that its roles run.
struct Started(UnixStream);

impl Started {
    /// # Errors
    /// It ended without having said so.
    async fn wait(self) -> std::io::Result<()> {
        self.0.set_nonblocking(true)?;
        let mut said = [0];
        tokio::net::UnixStream::from_std(self.0)?.read_exact(&mut said).await.map(|_| ())
    }
}

/// Tells whoever started this supervisor in the background that its roles run.
pub fn say_started() {
    let input = std::io::stdin();
    // Whoever waited may be gone.
    let _ = rustix::io::write(&input, b"1");
    if let Ok(null) = std::fs::File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
    }
}

async fn arrive(state: &StateDir, console: Console, loaded: &Loaded) -> Arrival {
    let client = Client::new(state);
    let deadline_free = async {
        loop {
            match client.config().await {
                Ok(config) if config.text == loaded.text => return config.generation,
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let (_sender, generation) = watch::channel(Some(deadline_free.await));
    Progress::new(client.clone(), console, None).until_ready(generation).await
}

async fn ended(child: &mut Child) {
    let started = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        // Quick at first, when mistakes show, then calm.
        let pause = if started.elapsed() < Duration::from_secs(5) { 20 } else { 200 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// What the supervisor wrote since `before`, without the marks of errors, which are printed again.
fn last_words(log: &Path, before: u64) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let from = usize::try_from(before).unwrap_or(0).min(text.len());
    let new = String::from_utf8_lossy(&text[from..]).into_owned();
    match new.lines().rev().find_map(|line| line.strip_prefix("error: ")) {
        Some(error) => error.to_owned(),
        None => format!("the supervisor ended. The end of {}:\n{}", log.display(), last_lines(&new, 10)),
    }
}

async fn late(state: &StateDir, limit: Duration) -> anyhow::Error {
    let waiting = match Client::new(state).status().await {
        Ok(status) => waiting_line(&status, limit),
        Err(error) => error.to_string(),
    };
    Failure::new(Exit::TimedOut, format!("not ready in time, and still running: {waiting}")).into()
}
