//! Ends: by itself, by order, and what comes after.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use weal_host::Proc;
use weal_model::{InstanceId, InstanceState, ProcessSignal, RestartPolicy, RunEnd, SandboxMode, restart_pause};
use weal_protocol::{InstanceCommand, Refusal};

use super::launch::SHIM_PATIENCE;
use super::running::Running;
use super::{Order, Phase, Reply, Task, until};
use crate::archive;
use crate::clock::now;
use crate::files::read_json;
use crate::folder::remove_tree;
use crate::isolation::{Isolation, Member};
use crate::logbook::Logbook;
use crate::shim::{self, EXIT_FILE, Exit, LOGS_FOLDER, PID_FILE, RESULTS_FILE, Record, STOP_FILE, Started, carry, logs};
use crate::signals::{number, send, send_to_all};

/// How long a shim that lives may take to write down how the instance ended. It takes a moment of a core and of the disk: longer means that
/// one of them hangs, and shorter would call a shim dead on a machine that is only busy.
const WITNESS_PATIENCE: Duration = Duration::from_secs(30);
/// Who waits longer than this for that word is told that the instance has ended: until then it would be taken for what it was.
const SOON: Duration = Duration::from_millis(500);
/// So many of its last lines are searched for the reason of an end.
const LAST_LINES: u32 = 20;
/// How long killed processes may take to go. Only one that waits for a broken disk takes longer.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How an instance ended.
pub struct End {
    /// In a sentence.
    pub(super) text: String,
    /// By itself, with 0.
    pub(super) is_success: bool,
    /// Told before, by a former agent.
    is_old: bool,
    /// The same for a run of a job.
    pub(super) run: RunEnd,
}

impl End {
    pub(super) fn failure(text: String) -> Self {
        Self { text, is_success: false, is_old: false, run: RunEnd::Lost }
    }

    /// A failure that means `run` to a run of a job.
    pub(super) fn of_run(run: RunEnd, text: String) -> Self {
        Self { run, ..Self::failure(text) }
    }

    pub(super) fn old(text: String) -> Self {
        Self { text, is_success: false, is_old: true, run: RunEnd::Lost }
    }
}

impl Task {
    /// The main process is gone: finds out how, and clears away what it left.
    pub(super) async fn after_end(&mut self) -> Phase {
        let exit_file = self.dir.join(EXIT_FILE);
        let shim = self.started().map(|started| started.shim);
        let is_told = || exit_file.exists() || !shim.is_some_and(|shim| self.site.proc.is_alive(shim));
        // What a job leaves is copied before its end is told.
        let patience = if carry::has_results(&self.spec()) { carry::PATIENCE } else { SOON };
        let is_told_soon = until(patience, is_told).await;
        let left = self.isolated(|isolation, member| isolation.processes(member)).len();
        if !is_told_soon {
            self.set_pid(None);
            self.enter(InstanceState::Unhealthy, "it has ended; its exit status is not known yet");
            // A shim without children ends by itself, whether it could write or not.
            self.clear_away().await;
            until(WITNESS_PATIENCE, is_told).await;
        }
        let oom_kills = self.isolated(|isolation, member| isolation.usage(member)).oom_kills;
        let end = self.describe_end(left, oom_kills > self.memory().oom_kills);
        self.kill_and_end(end).await
    }

    /// How it ended, leaving `left` of its processes.
    fn describe_end(&self, left: usize, has_oom_kills: bool) -> End {
        let exit: Option<Exit> = read_json(&self.dir.join(EXIT_FILE)).ok().flatten();
        // Some child may have been killed for it long ago, and the main process gone on; its own end is by SIGKILL then.
        let is_out_of_memory =
            has_oom_kills && matches!(exit, None | Some(Exit::Unknown | Exit::Signal { signal: libc::SIGKILL }));
        let left = match left {
            0 => String::new(),
            count => format!(", leaving {count} of its processes, which were killed: it must stay in the foreground"),
        };
        let limit = self.memory_limit();
        let text = match &exit {
            _ if is_out_of_memory => format!("ran out of memory: its limit is {limit}"),
            Some(Exit::Code { code: 0 }) => format!("ended by itself with status 0{left}"),
            Some(Exit::Code { code }) => format!("ended by itself with status {code}{left}{}", self.sandbox_hint(false)),
            Some(Exit::Signal { signal }) => {
                format!("was killed by {}{left}{}", signal_name(*signal), self.sandbox_hint(*signal == libc::SIGSYS))
            }
            None if self.started().is_some_and(|started| self.site.proc.is_alive(started.shim)) => {
                let waited = WITNESS_PATIENCE.as_secs();
                format!("ended with an unknown status: its shim did not report it within {waited} s{left}")
            }
            Some(Exit::NoResults { why }) => format!("ended by itself with status 0, but its results are not in place: {why}"),
            Some(Exit::Unknown) | None => {
                format!("ended with an unknown status: its shim was killed too or could not write{left}")
            }
        };
        let is_success = exit == Some(Exit::Code { code: 0 }) && !is_out_of_memory;
        let was_stopped = self.dir.join(STOP_FILE).exists();
        let run = match exit {
            _ if is_out_of_memory => RunEnd::OutOfMemory,
            Some(Exit::Code { code: 0 }) => RunEnd::Code { code: 0 },
            Some(Exit::NoResults { .. }) => RunEnd::NoResults,
            // Ended by weal, whatever it made of that.
            _ if was_stopped => RunEnd::Lost,
            Some(Exit::Code { code }) => RunEnd::Code { code },
            Some(Exit::Signal { signal }) => RunEnd::Signal { signal },
            Some(Exit::Unknown) | None => RunEnd::Lost,
        };
        End { text, is_success, is_old: false, run }
    }

    /// Says so where its sandbox may be why it ended: it was killed for a system call, or its last lines tell of something that was refused. Those
    /// lines themselves are for who may read its log.
    fn sandbox_hint(&self, was_filtered: bool) -> &'static str {
        if self.spec().sandbox.mode == SandboxMode::Off {
            return "";
        }
        let folder = self.dir.join(LOGS_FOLDER);
        let last = logs::tail(&folder, LAST_LINES).and_then(|cursor| logs::read(&folder, cursor, true));
        let last = last.map_or_else(|_| String::new(), |piece| piece.text);
        if was_filtered || tells_of_refusal(&last) {
            "; its sandbox may have refused what it needs: docs/sandbox.md says how `write`, `devices` and `permit` open it"
        } else {
            ""
        }
    }

    /// Leaves nothing of the instance running.
    pub(super) async fn kill_and_end(&mut self, end: End) -> Phase {
        self.clear_away().await;
        self.set_pid(None);
        Phase::Ended(end)
    }

    /// Ends what an instance that has ended left behind.
    async fn clear_away(&self) {
        if let Err(error) = self.sweep().await {
            tracing::error!(instance = %self.spec().id, %error, "an ended instance left processes behind");
        }
        // One that died in its sleep leaves a frozen group, and the next process would never begin in it.
        let _ = self.isolated(|isolation, member| isolation.thaw(member));
    }

    /// Kills whatever runs in the instance.
    async fn sweep(&self) -> Result<(), Refusal> {
        let is_empty = || self.isolated(|isolation, member| isolation.processes(member)).is_empty();
        // What is being forked while it is killed is killed in the next round.
        let gone = until(KILL_PATIENCE, || {
            is_empty() || {
                let _ = self.isolated(|isolation, member| isolation.kill(member));
                false
            }
        });
        if gone.await {
            return Ok(());
        }
        Err(Refusal::Stuck { pids: self.isolated(|isolation, member| isolation.processes(member)) })
    }

    /// After its end: waits for its restart if there is to be one, and for orders.
    pub(super) async fn rest(&mut self, end: End) -> Phase {
        if self.is_run() && !end.is_old {
            self.remember(|memory| memory.end = Some(end.run));
        }
        let restart = match self.spec().restart {
            _ if end.is_old => false,
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => !end.is_success,
            RestartPolicy::Never => false,
        };
        let mut wake = None;
        if restart {
            let attempt = self.memory().failed_in_a_row;
            let pause = restart_pause(attempt);
            self.remember(|memory| {
                memory.failed_in_a_row = attempt.saturating_add(1);
                memory.ended = Some(end.text.clone());
            });
            self.enter(InstanceState::Backoff, format!("{}; starts again in {} s", end.text, pause.as_secs_f64()));
            wake = Some(tokio::time::Instant::now() + pause);
        } else if !end.is_old {
            self.enter(if end.is_success { InstanceState::Stopped } else { InstanceState::Failed }, end.text);
        }
        loop {
            let deadline = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = deadline => {
                    self.remember(|memory| memory.restarts = memory.restarts.saturating_add(1));
                    return Phase::Launch(None);
                }
                order = self.next_order() => match order {
                    None => return Phase::Gone,
                    Some((Order::Stop, reply)) => {
                        let _ = reply.send(self.remove().await);
                        return Phase::Gone;
                    }
                    // A run ends once.
                    Some((Order::Start(_), reply)) if self.is_run() => {
                        let _ = reply.send(Ok(()));
                    }
                    // Its folder, its port and its group are those of what it was.
                    Some((Order::Start(spec), reply)) if !self.spec().is_in_place_of(&spec) => {
                        let _ = reply.send(Err(Refusal::OtherRevision { instance: spec.id.clone() }));
                    }
                    Some((Order::Start(spec), reply)) => {
                        self.view.lock().expect("nothing panics while it is held").record.spec = *spec;
                        self.remember(|memory| memory.restarts = memory.restarts.saturating_add(1));
                        return Phase::Launch(Some(reply));
                    }
                    Some((Order::SetCpu { share, limit, memory }, reply)) => {
                        self.remember_limits(share, limit, memory);
                        let _ = reply.send(Ok(()));
                    }
                    Some((Order::Sleep(_) | Order::Park(_), reply)) => {
                        let _ = reply.send(Err(self.wrong_state(InstanceCommand::Sleep)));
                    }
                    Some((Order::Resume, reply)) => {
                        let _ = reply.send(Err(self.wrong_state(InstanceCommand::Wake)));
                    }
                }
            }
        }
    }

    /// Carries a stop out: SIGTERM to the main process, then to what it leaves, SIGKILL to all when time is up.
    pub(super) async fn stop(&mut self, running: Running, reply: Option<Reply>) -> Phase {
        let patience = Duration::try_from_secs_f64(self.spec().stop_timeout_s).unwrap_or(KILL_PATIENCE);
        let deadline = tokio::time::Instant::now() + patience;
        self.enter(InstanceState::Stopping, "");
        let signal = number(asked_by(&self.record()));
        let _ = send(running.main_fd.get_ref(), signal);
        // A frozen process takes no signals.
        let _ = self.isolated(|isolation, member| isolation.thaw(member));
        if tokio::time::timeout_at(deadline, running.main_fd.readable()).await.is_ok() {
            let _ = send_to_all(|| self.isolated(|isolation, member| isolation.processes(member)), Signal::TERM);
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            until(left, || self.isolated(|isolation, member| isolation.processes(member)).is_empty()).await;
        } else {
            let name = asked_by(&self.record()).as_str();
            tracing::warn!(instance = %self.spec().id, "it ignored {name} for {patience:?} and is killed");
        }
        let result = match self.sweep().await {
            Ok(()) => self.remove().await,
            error => error,
        };
        if result.is_ok() {
            self.set_pid(None);
        }
        let is_gone = result.is_ok();
        if let Err(error) = &result {
            self.enter(InstanceState::Failed, error.to_string());
        }
        if let Some(reply) = reply {
            // Who asked may be gone; the instance is too.
            let _ = reply.send(result);
        }
        if is_gone { Phase::Gone } else { Phase::Ended(End::old(self.memory().detail)) }
    }

    /// Takes away the place and the files of an instance that has no process left.
    pub(super) async fn remove(&self) -> Result<(), Refusal> {
        self.sweep().await?;
        if let Some(started) = self.started() {
            // It ends by itself once its children have; an adopting one when it sees that the main process is gone.
            until(KILL_PATIENCE, || !self.site.proc.is_alive(started.shim)).await;
        }
        until(KILL_PATIENCE, || self.isolated(|isolation, member| isolation.remove(member)).is_ok()).await;
        self.tell(InstanceState::Stopped, "stopped".to_owned());
        if self.is_run() {
            archive::keep(&self.site, &self.record(), &self.dir)?;
            self.scrub().await;
        } else {
            keep_log(&self.site.logbook, &self.spec().id, &self.dir);
        }
        let dir = self.dir.clone();
        // What it left in its `/tmp` may take a while.
        Ok(tokio::task::spawn_blocking(move || remove_tree(&dir)).await.map_err(io::Error::other)??)
    }
}

impl Task {
    /// The folder of a job whose results are where they were to go holds nothing that anybody wants. Of a gang, the task that has copied them
    /// says so: where another one has failed, somebody may want to look.
    async fn scrub(&self) {
        if !self.dir.join(RESULTS_FILE).exists() {
            return;
        }
        let data = self.site.data_of(&self.spec());
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || remove_tree(&data)).await {
            tracing::warn!(%error, "the folder of a job that is done cannot be taken away");
        }
    }
}

/// Whether a program says that the system refused it something (EACCES, EPERM, EROFS, in its own words or the system's).
fn tells_of_refusal(text: &str) -> bool {
    const WORDS: [&str; 6] =
        ["permission denied", "operation not permitted", "read-only file system", "permissionerror", "eacces", "eperm"];
    let text = text.to_ascii_lowercase();
    WORDS.iter().any(|word| text.contains(word))
}

/// What asks an instance to end: what its config says, or else its image.
fn asked_by(record: &Record) -> ProcessSignal {
    record.spec.process.stop_signal.or(record.launch.stop_signal).unwrap_or(ProcessSignal::Term)
}

fn signal_name(number: i32) -> String {
    match Signal::from_named_raw(number) {
        Some(Signal::KILL) => "SIGKILL".to_owned(),
        Some(Signal::TERM) => "SIGTERM".to_owned(),
        Some(Signal::SEGV) => "SIGSEGV (it accessed memory it does not have)".to_owned(),
        Some(Signal::ABORT) => "SIGABRT (it gave up)".to_owned(),
        Some(Signal::BUS) => "SIGBUS".to_owned(),
        Some(Signal::ILL) => "SIGILL".to_owned(),
        Some(Signal::FPE) => "SIGFPE".to_owned(),
        Some(Signal::PIPE) => "SIGPIPE".to_owned(),
        Some(Signal::INT) => "SIGINT".to_owned(),
        Some(Signal::HUP) => "SIGHUP".to_owned(),
        _ => format!("signal {number}"),
    }
}

/// Stops the instance in `dir` without an agent: for [`crate::stop_all`]. Blocks up to its stop timeout.
pub fn finish_off(isolation: &dyn Isolation, logbook: &Logbook, record: &Record, dir: &Path) -> std::io::Result<()> {
    let (node, instance) = (record.spec.node.as_str(), record.spec.id.as_str());
    let member = Member { node, instance, dir };
    let proc = Proc::system();
    let wait = |patience: Duration, done: &dyn Fn() -> bool| {
        let deadline = std::time::Instant::now() + patience;
        while !done() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        done()
    };
    std::fs::write(dir.join(STOP_FILE), "")?;
    wait(SHIM_PATIENCE, &|| !shim::is_starting(dir));
    let started: Option<Started> = read_json(&dir.join(PID_FILE))?;
    if let Some(started) = started.filter(|started| proc.is_alive(started.main)) {
        proc.open(started.main).map_or(Ok(()), |main| send(main, number(asked_by(record))))?;
        isolation.thaw(member)?;
        let patience = Duration::try_from_secs_f64(record.spec.stop_timeout_s).unwrap_or(KILL_PATIENCE);
        wait(patience, &|| !proc.is_alive(started.main));
    }
    let is_empty = || isolation.processes(member).is_empty();
    let gone = wait(KILL_PATIENCE, &|| is_empty() || (isolation.kill(member).is_err() && is_empty()));
    if !gone {
        return Err(std::io::Error::other(format!("{instance} did not end after SIGKILL")));
    }
    if let Some(started) = started {
        wait(KILL_PATIENCE, &|| !proc.is_alive(started.shim));
    }
    wait(KILL_PATIENCE, &|| isolation.remove(member).is_ok());
    // What a run of a job came to is for the next agent to tell.
    if record.spec.job.is_some() {
        return Ok(());
    }
    keep_log(logbook, &record.spec.id, dir);
    remove_tree(dir)
}

/// A log that cannot be kept (the disk is full) must not keep an instance from going.
fn keep_log(logbook: &Logbook, instance: &InstanceId, dir: &Path) {
    if let Err(error) = logbook.keep(instance, dir, now()) {
        tracing::warn!(%instance, %error, "its log is lost");
    }
}

/// Ends whatever runs in the instance whose folder is, or was, `dir` and whose record nobody can read, on whichever of `nodes` it is, and takes it away.
pub fn discard(isolation: &dyn Isolation, nodes: &[String], dir: &Path) -> std::io::Result<()> {
    let instance = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let members = || nodes.iter().map(|node| Member { node, instance, dir });
    let deadline = std::time::Instant::now() + KILL_PATIENCE;
    while members().any(|member| !isolation.processes(member).is_empty()) {
        if std::time::Instant::now() >= deadline {
            return Err(std::io::Error::other(format!("{instance} did not end after SIGKILL")));
        }
        // One that has just gone is no failure.
        members().for_each(|member| drop(isolation.kill(member)));
        std::thread::sleep(Duration::from_millis(10));
    }
    members().for_each(|member| drop(isolation.remove(member)));
    remove_tree(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_found_in_what_a_program_wrote() {
        assert!(tells_of_refusal("PermissionError: [Errno 13] Permission denied: '/srv/x'"));
        assert!(tells_of_refusal("open /etc/app: read-only file system"));
        assert!(!tells_of_refusal("no such table"));
    }
}
