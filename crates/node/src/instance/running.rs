//! While the process runs: health, memory, orders.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;
use weal_host::{Identity, Proc};
use weal_model::{HealthProbe, InstanceState, RECOVERED_AFTER, RunEnd};
use weal_protocol::{InstanceCommand, Refusal};

use super::ending::End;
use super::launch::start_shim;
use super::sleep::Recording;
use super::{Order, Phase, Reply, Task};
use crate::listener::{Own, Stranger, elsewhere};
use crate::ports::address;
use crate::probe::{self, Asking, Beside, Unwell};
use crate::shim::Started;
use crate::shim::{LOGS_FOLDER, Record, logs};

/// Pause between two questions to a starting instance: from this, growing, so that a fast one is ready at once and a slow
/// one is not disturbed.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause between two questions to a starting instance.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How often memory is looked at. Without cgroups this is how long an instance may exceed its limit.
const TICK: Duration = Duration::from_secs(1);

/// A process that runs.
pub struct Running {
    pub(super) main: Identity,
    pub(super) main_fd: AsyncFd<OwnedFd>,
    pub(super) shim_fd: Option<AsyncFd<OwnedFd>>,
    pub(super) began: Instant,
    pub(super) ready_since: Option<Instant>,
    pub(super) failures: u32,
    pub(super) oom_kills_told: u64,
    pub(super) pause: Duration,
    /// The sockets at its port that were found to be its own.
    pub(super) listening: Own,
    /// What it touches since it woke shall be recorded.
    pub(super) recording: Option<Recording>,
}

type Question = Pin<Box<dyn Future<Output = Result<(), Unwell>> + Send>>;

impl Task {
    /// Watches `started`; `None` when it has ended and is forgotten already.
    pub(super) fn running(&self, started: Started) -> Option<Running> {
        let main_fd = watch(started.main)?;
        self.set_pid(Some(started.main.pid));
        self.set_shim(started.shim);
        let shim_fd = watch(started.shim);
        let ready_since = (self.memory().state == InstanceState::Ready).then(Instant::now);
        let began = Instant::now();
        Some(Running {
            main: started.main,
            main_fd,
            shim_fd,
            began,
            ready_since,
            failures: 0,
            oom_kills_told: 0,
            pause: FIRST_PAUSE,
            listening: Own::default(),
            recording: None,
        })
    }

    /// Stays with the process until it ends or is told to.
    pub(super) async fn attend(&mut self, mut running: Running) -> Phase {
        let mut question = self.next_question(&running);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = running.main_fd.readable() => {
                    // Its health check is not what it left behind.
                    drop(question);
                    return self.after_end().await;
                }
                order = self.next_order() => {
                    let Some((order, reply)) = order else { return Phase::Gone };
                    // A check that is underway has nobody who listens meanwhile. Left open, it would keep busy who serves one connection after
                    // the other: to learn what it needs, and to end in peace. A share of the CPU is given at once and leaves it alone.
                    if !matches!(order, Order::SetCpu { .. }) {
                        question = None;
                    }
                    if matches!(order, Order::Stop) {
                        return self.stop(running, Some(reply)).await;
                    }
                    if self.is_saved_by(&order) {
                        let saved = self.save().await;
                        let is_saved = saved.is_ok();
                        let _ = reply.send(saved);
                        if is_saved {
                            return self.kill_and_end(End::of_run(RunEnd::Saved, "its state is saved".to_owned())).await;
                        }
                        question = self.next_question(&running);
                        continue;
                    }
                    self.obey(order, reply, &mut running).await;
                    question = question.or_else(|| self.next_question(&running));
                }
                () = shim_ends(running.shim_fd.as_ref()) => self.replace_shim(&mut running).await,
                answer = pending_or(question.as_mut()) => {
                    if let Some(end) = self.judge(answer, &mut running) {
                        return self.kill_and_end(end).await;
                    }
                    question = self.next_question(&running);
                }
                () = due(running.recording.map(|recording| recording.at)) => self.go_on_recording(&mut running).await,
                _ = tick.tick(), if !self.is_asleep() || running.shim_fd.is_none() => {
                    if running.shim_fd.is_none() {
                        self.regain_shim(&mut running).await;
                    }
                    // Who is frozen takes no more. What the kernel kills of it for its node's sake is told when it is awake again.
                    if !self.is_asleep() && let Some(end) = self.check_memory(&mut running) {
                        return self.kill_and_end(end).await;
                    }
                }
            }
        }
    }

    async fn obey(&mut self, order: Order, reply: Reply, running: &mut Running) {
        let result = match order {
            Order::Start(spec) => self.update(&spec),
            Order::SetCpu { share, limit, memory } => self.set_cpu(share, limit, memory),
            Order::Sleep(rung) => self.sleep(rung, "", running).await,
            Order::Park(_) if !self.is_asleep() => Err(Refusal::Woken),
            Order::Park(why) => self.sleep(weal_model::Rung::Parked, &why, running).await,
            Order::Resume => return self.wake(running, reply).await,
            Order::Stop => Err(self.wrong_state(InstanceCommand::Stop)),
        };
        // Who asked may be gone; what was asked is done.
        let _ = reply.send(result);
    }

    /// The next health check, with the pause before it; `None` while asleep.
    fn next_question(&self, running: &Running) -> Option<Question> {
        let (record, state) = (self.record(), self.memory().state);
        let pause = match state {
            state if state.is_asleep() => return None,
            InstanceState::Starting => running.pause,
            _ => seconds(record.spec.health.interval_s, Duration::from_millis(100)),
        };
        let to = asking(&record);
        let timeout = seconds(record.spec.health.timeout_s, Duration::from_millis(10));
        if record.spec.job.is_some() {
            // A run of a job listens nowhere: that its process runs is all there is to know.
            let is_new = state == InstanceState::Starting;
            return is_new.then(|| Box::pin(async { Ok(()) }) as Question);
        }
        let main = self.started().map(|started| started.main);
        Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            probe::ask(&record.spec.health.probe, to, timeout, Beside { launch: &record.launch, main }).await
        }))
    }

    /// What an answer means; an end when the instance had its time to become ready.
    fn judge(&self, answer: Result<(), Unwell>, running: &mut Running) -> Option<End> {
        let health = self.spec().health;
        let state = self.memory().state;
        match answer {
            Ok(()) => {
                if let Err(stranger) = self.check_listener(running) {
                    return Some(End::failure(stranger.to_string()));
                }
                running.failures = 0;
                if state == InstanceState::Starting {
                    let took = running.began.elapsed().as_secs_f64();
                    self.remember(|memory| memory.start_took_s = Some(took));
                    let text = if self.is_run() { String::new() } else { format!("ready {took:.2} s after its start") };
                    self.enter(InstanceState::Ready, text);
                } else {
                    self.enter(
                        InstanceState::Ready,
                        if state == InstanceState::Ready { self.memory().detail } else { String::new() },
                    );
                }
                let since = *running.ready_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= RECOVERED_AFTER && self.memory().failed_in_a_row > 0 {
                    self.remember(|memory| memory.failed_in_a_row = 0);
                }
            }
            Err(reason) if state == InstanceState::Starting => {
                running.pause = (running.pause * 3 / 2).min(LONGEST_PAUSE);
                // One that begins quickly is not looked at.
                let hint = if running.pause == LONGEST_PAUSE { self.port_hint() } else { None };
                if running.began.elapsed().as_secs_f64() > health.start_timeout_s {
                    self.log_complaint(&reason);
                    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
                    return Some(End::failure(format!("not ready within {} s: {reason}{hint}", health.start_timeout_s)));
                }
                if let Some(hint) = hint {
                    self.enter(InstanceState::Starting, hint);
                }
            }
            Err(reason) => {
                running.failures += 1;
                if running.failures >= health.failures.max(1) {
                    running.ready_since = None;
                    let is_last = health.replace_after > 0 && running.failures >= health.replace_after;
                    // Once for each time that it is unhealthy: the log is for what the instance says.
                    if is_last || state != InstanceState::Unhealthy {
                        self.log_complaint(&reason);
                    }
                    if is_last {
                        let failures = running.failures;
                        return Some(End::failure(format!("replaced after {failures} failed health checks in a row: {reason}")));
                    }
                    self.enter(InstanceState::Unhealthy, reason.to_string());
                }
            }
        }
        None
    }

    /// What an application is told that listens, but not where it should.
    fn port_hint(&self) -> Option<String> {
        if self.is_run() || matches!(self.spec().health.probe, HealthProbe::Command { .. }) {
            return None;
        }
        let (port, processes) = (self.record().port, self.isolated(|isolation, member| isolation.processes(member)));
        let found: Vec<String> = elsewhere(&self.site.proc, port, &processes).iter().map(u16::to_string).collect();
        let ports = if found.len() == 1 { "port" } else { "ports" };
        (!found.is_empty()).then(|| format!("listens on {ports} {}, and not on $PORT, which is {port}", found.join(", ")))
    }

    /// Whether what listens at its port is its own. A stranger would get its requests: it is ended, and begins anew at another port.
    fn check_listener(&self, running: &mut Running) -> Result<(), Stranger> {
        if self.is_run() {
            return Ok(());
        }
        let processes = || self.isolated(|isolation, member| isolation.processes(member));
        let Record { port, spec, .. } = self.record();
        running.listening.check(&self.site.proc, port, spec.datagrams, processes)?;
        let user = running.listening.user();
        if self.memory().listener != user {
            self.remember(|memory| memory.listener = user);
        }
        Ok(())
    }

    /// Looks for processes killed for want of memory, and does the killing where the kernel does not.
    fn check_memory(&self, running: &mut Running) -> Option<End> {
        let (usage, limit) = (self.isolated(|isolation, member| isolation.usage(member)), self.memory_limit());
        if self.is_plain() {
            let used = weal_model::Bytes(usage.memory.unwrap_or(0));
            let text = || format!("killed for using {used} of memory, more than its limit of {limit}");
            return (used > limit).then(|| End::of_run(RunEnd::OutOfMemory, text()));
        }
        let told = running.oom_kills_told.max(self.memory().oom_kills);
        if usage.oom_kills > told && self.site.proc.is_alive(running.main) {
            let count = usage.oom_kills - told;
            running.oom_kills_told = usage.oom_kills;
            let state = self.memory().state;
            self.tell(state, format!("the kernel killed {count} of its processes: it reached its memory limit of {limit}"));
        }
        None
    }

    /// What a health check or a hook wrote goes to the instance's log: it may hold a secret, and anybody may read an instance's state.
    pub(super) fn log_complaint(&self, reason: &Unwell) {
        if let Some(complaint) = reason.complaint() {
            logs::note(&self.dir.join(LOGS_FOLDER), &format!("a command of its config failed and wrote: {complaint}"));
        }
    }

    /// Watches the shim again, or gives the instance another one, where that was not possible before.
    async fn regain_shim(&self, running: &mut Running) {
        let Some(started) = self.started() else { return };
        if self.site.proc.is_alive(started.shim) {
            running.shim_fd = watch(started.shim);
        } else {
            self.replace_shim(running).await;
        }
    }

    /// Gives the instance another shim after its own was killed.
    pub(super) async fn replace_shim(&self, running: &mut Running) {
        running.shim_fd = None;
        if !self.site.proc.is_alive(running.main) {
            return;
        }
        match start_shim(&self.site, &self.dir, self.socket.as_ref(), None).await {
            Ok(()) => {
                if let Some(started) = self.started() {
                    running.shim_fd = watch(started.shim);
                    self.set_shim(started.shim);
                }
                tracing::warn!(instance = %self.spec().id, "its shim had been killed and was replaced");
            }
            Err(error) => tracing::error!(instance = %self.spec().id, %error, "its shim was killed and cannot be replaced"),
        }
    }
}

/// Where the instance of `record` is asked whether it is well.
pub(super) fn asking(record: &Record) -> Asking {
    let health = &record.spec.health;
    Asking { address: address(record.port), send_proxy: health.send_proxy, host: health.host.clone() }
}

pub(super) fn seconds(seconds: f64, least: Duration) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(least).max(least)
}

/// Becomes readable when the process ends; `None` when it has, or when its number belongs to another one now.
pub(super) fn watch(process: Identity) -> Option<AsyncFd<OwnedFd>> {
    let pid = Pid::from_raw(process.pid.cast_signed())?;
    let fd = pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
    let stat = Proc::system().stat(process.pid)?;
    // A zombie is fine: its end is what shall be told.
    (stat.start_ticks == process.start_ticks).then_some(())?;
    // SAFETY: the descriptor is owned by what is returned, and nobody closes it before that is dropped.
    unsafe { AsyncFd::register_with_interest(fd, tokio::io::Interest::READABLE).ok() }
}

async fn shim_ends(shim: Option<&AsyncFd<OwnedFd>>) {
    match shim {
        Some(fd) => drop(fd.readable().await),
        None => std::future::pending().await,
    }
}

async fn due(when: Option<tokio::time::Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

async fn pending_or(question: Option<&mut Question>) -> Result<(), Unwell> {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
}
