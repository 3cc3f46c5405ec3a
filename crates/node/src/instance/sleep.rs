//! Going to sleep, from one rung to another, and waking up.
//!
//! What is wanted is written down before it is begun, so an agent that is killed in between leaves an instance that the next
//! one finishes to put to sleep or to wake: never one that stays half-frozen.

use std::fs;
use std::time::{Duration, Instant};

use weal_model::{Bytes, HealthProbe, InstanceState, Rung, RungCost};
use weal_protocol::{InstanceCommand, Refusal};

use super::running::{Running, asking};
use super::{Order, Reply, Task, Wish, until};
use crate::clock::now;
use crate::costs::learn;
use crate::ports::address;
use crate::probe::{self, Beside, Unwell};
use crate::shim::Record;

/// There while the instance is being woken: the next agent finishes it. A file without content, because it is made while a request
/// waits, and replacing one with content makes the file system write it out at once.
pub(super) const WAKING_FILE: &str = "waking";
/// How long freezing may take. A process in the middle of a slow system call freezes when that returns.
const FREEZE_PATIENCE: Duration = Duration::from_secs(5);
/// How long after a wake its working set is recorded: the request that woke it has been answered by then, and housekeeping has not
/// touched much yet. After 300 ms the set of a WildFly is half as large again, after 2 s twice as large.
const RECORD_AFTER: Duration = Duration::from_millis(20);
/// Who maps more than this in that time is still at it, and the recording waits as long again: 50 MiB in a second are less than what is
/// read from a disk by faults alone, and more than housekeeping takes.
const STILL_AT_IT: u64 = 1 << 20;
/// The recording waits no longer than this: who takes new memory all the time would never be recorded.
const RECORD_WITHIN: Duration = Duration::from_secs(2);
/// How long one that is to be parked may take to answer when it is learnt what it needs.
const REHEARSAL_PATIENCE: Duration = Duration::from_secs(2);
/// How long saving a job's state may take. The order to save it waits for two minutes.
const SAVE_PATIENCE: Duration = Duration::from_secs(100);
/// The pause before the second question to an instance that wakes; the next ones grow.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two questions to an instance that wakes.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A working set that is to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct Recording {
    /// When it is looked whether that can be done.
    pub(super) at: tokio::time::Instant,
    /// When it is done whatever is seen.
    until: tokio::time::Instant,
    /// Bytes that the instance had mapped when that was looked at last.
    mapped: u64,
}

impl Recording {
    /// Of an instance that has just been woken.
    fn of_woken(now: tokio::time::Instant, mapped: u64) -> Self {
        Self { at: now + RECORD_AFTER, until: now + RECORD_WITHIN, mapped }
    }

    /// Goes on waiting while the instance still takes in much, and time is left; `None`: it is recorded now.
    fn wait_on(self, now: tokio::time::Instant, mapped: u64) -> Option<Self> {
        let still_at_it = now < self.until && mapped.saturating_sub(self.mapped) > STILL_AT_IT;
        still_at_it.then(|| Self { at: now + RECORD_AFTER, mapped, ..self })
    }
}

/// How a wake went.
struct Woken {
    took_s: f64,
    detail: String,
}

impl Task {
    /// Sleeps on `rung`: freezes, and pages in or out what differs. With `why`, memory is short for that reason: it hurries, and who is told of
    /// it is told that.
    pub(super) async fn sleep(&mut self, rung: Rung, why: &str, running: &mut Running) -> Result<(), Refusal> {
        let state = self.memory().state;
        match state {
            InstanceState::Ready | InstanceState::Unhealthy => {}
            state if state.is_asleep() => {}
            _ => return Err(self.wrong_state(InstanceCommand::Sleep)),
        }
        if state == rung.state() {
            return Ok(());
        }
        let began = Instant::now();
        self.remember(|memory| memory.wish = Some(Wish::Sleep(rung)));
        let result = self.sleep_down(state, rung, why, running, began).await;
        self.remember(|memory| memory.wish = None);
        if let Err(refusal) = &result {
            let state = self.memory().state;
            self.enter(state, why_not(state, refusal));
        }
        result
    }

    async fn sleep_down(
        &mut self,
        state: InstanceState,
        rung: Rung,
        why: &str,
        running: &mut Running,
        began: Instant,
    ) -> Result<(), Refusal> {
        if let Err(error) = self.freeze().await {
            // One that slept before goes on sleeping.
            if !state.is_asleep() {
                let _ = self.isolated(|isolation, member| isolation.thaw(member));
            }
            return Err(error);
        }
        if !state.is_asleep() {
            self.enter(InstanceState::Suspended, format!("frozen in {:.1} ms", milliseconds(began)));
            self.learn(Rung::Suspended, &self.measured(began));
            if running.recording.take().is_some() {
                self.note_working_set().await;
            }
        }
        match rung {
            Rung::Suspended if !state.is_asleep() => Ok(()),
            Rung::Suspended => {
                self.prefetch(Rung::Parked).await;
                self.enter(InstanceState::Suspended, "");
                Ok(())
            }
            Rung::Warm | Rung::Parked => self.sleep_paged_out(rung, why, running, began).await,
        }
    }

    async fn sleep_paged_out(&mut self, rung: Rung, why: &str, running: &Running, began: Instant) -> Result<(), Refusal> {
        // A run of a job answers nobody, so that there is nothing to learn.
        let learns = !self.is_run() && self.working_set().is_empty() && (rung == Rung::Warm || self.reads_ahead());
        if learns && let Some(silence) = self.rehearse(rung, !why.is_empty(), running).await? {
            // Parked, it only wakes slower for not being known.
            if rung == Rung::Warm {
                return Err(Refusal::NotLearnt { detail: silence.to_string() });
            }
            tracing::debug!(instance = %self.spec().id, %silence, "parked, although what it needs could not be learnt");
        }
        let before = self.used();
        self.page_out(rung, !why.is_empty()).await?;
        let mut detail = format!("paged out in {:.0} ms, {before} in memory before, {} now", milliseconds(began), self.used());
        if !why.is_empty() {
            detail = format!("{detail}: {why}");
        }
        self.enter(rung.state(), detail);
        self.learn(rung, &self.measured(began));
        Ok(())
    }

    /// Finds out what it needs to answer, without a request: pages it out, lets it answer its health check, freezes it again. Gives why it
    /// did not answer, if so.
    async fn rehearse(&mut self, rung: Rung, in_haste: bool, running: &Running) -> Result<Option<Unwell>, Refusal> {
        self.page_out(Rung::Parked, in_haste).await?;
        self.isolated(|isolation, member| isolation.thaw(member))?;
        // Kept warm, it must be known; parked, it is not worth a long time.
        let answered = match rung {
            Rung::Warm => self.answers(None, running).await,
            _ => tokio::time::timeout(REHEARSAL_PATIENCE, self.answers(None, running))
                .await
                .unwrap_or(Err(Unwell::Late { within: REHEARSAL_PATIENCE })),
        };
        self.freeze().await?;
        match answered {
            Ok(()) => Ok(self.record_working_set().await.map(|()| None)?),
            Err(silence) => Ok(Some(silence)),
        }
    }

    async fn freeze(&self) -> Result<(), Refusal> {
        let again = || {
            // Without a freezer, a process forked in between was not stopped: once more, until none runs.
            let asked = self.isolated(|isolation, member| isolation.freeze(member));
            asked.is_ok() && self.isolated(|isolation, member| isolation.is_frozen(member))
        };
        if until(FREEZE_PATIENCE, again).await {
            return Ok(());
        }
        Err(Refusal::NotFrozen { seconds: FREEZE_PATIENCE.as_secs_f64() })
    }

    /// What getting here since `began` has cost.
    fn measured(&self, began: Instant) -> RungCost {
        let usage = self.isolated(|isolation, member| isolation.usage(member));
        RungCost {
            sleep_s: Some(began.elapsed().as_secs_f64()),
            wake_s: None,
            memory: usage.memory.map(Bytes),
            swap: usage.swap.map(Bytes),
        }
    }

    fn learn(&self, rung: Rung, cost: &RungCost) {
        self.remember(|memory| learn(memory.costs.of_mut(rung), cost));
        self.site.costs.note(&self.spec().app, self.memory().costs);
    }

    /// Prefetches what was paged out, thaws, and waits until the instance answers its health check.
    pub(super) async fn wake(&mut self, running: &mut Running, reply: Reply) {
        let state = self.memory().state;
        let Some(rung) = state.rung() else {
            let awake = state == InstanceState::Ready;
            let _ = reply.send(if awake { Ok(()) } else { Err(self.wrong_state(InstanceCommand::Wake)) });
            return;
        };
        let cores_awake = self.site.idle.put_off();
        let marker = self.dir.join(WAKING_FILE);
        // Beside the wake: a busy file system must not keep a request waiting. Without it an agent that is killed leaves it asleep.
        let made = marker.clone();
        let marking = tokio::task::spawn_blocking(move || fs::File::create(made).map(drop));
        let result = self.wake_up(rung, running, Instant::now()).await;
        // Whoever waits for it goes on now. What was learnt is written down afterwards: a busy disk must not keep a request waiting.
        let _ = reply.send(result.as_ref().map(drop).map_err(Clone::clone));
        // Until the request that woke it is answered.
        tokio::spawn(async move {
            tokio::time::sleep(RECORD_AFTER).await;
            drop(cores_awake);
        });
        // The reply's way to the caller is often on this very thread.
        tokio::task::yield_now().await;
        match result {
            Ok(woken) => {
                let recording = || Recording::of_woken(tokio::time::Instant::now(), self.mapped());
                running.recording = (rung != Rung::Suspended && !self.is_run()).then(recording);
                self.note_wake(rung, &woken);
            }
            Err(refusal) => self.enter(InstanceState::Unhealthy, refusal.to_string()),
        }
        let _ = marking.await;
        let _ = fs::remove_file(&marker);
    }

    async fn wake_up(&mut self, rung: Rung, running: &mut Running, began: Instant) -> Result<Woken, Refusal> {
        let mut reading = tokio::spawn(self.prefetch(rung));
        let mut prefetched = None;
        let asked = self.ask_ahead().await;
        // On the other rungs there is mostly nothing to read, and that is not looked for before it takes long.
        if rung == Rung::Parked {
            prefetched = (&mut reading).await.ok().flatten();
        }
        self.isolated(|isolation, member| isolation.thaw(member))?;
        let thawed_ms = milliseconds(began);
        self.run_hook().await.map_err(|why| {
            self.log_complaint(&why);
            Refusal::HookFailed { thawed_ms, detail: why.to_string() }
        })?;
        self.answers(asked, running).await.map_err(|why| Refusal::NoAnswer { thawed_ms, detail: why.to_string() })?;
        let took_s = began.elapsed().as_secs_f64();
        if rung != Rung::Parked {
            reading.abort();
            prefetched = reading.await.ok().flatten();
        }
        running.ready_since = Some(Instant::now());
        running.failures = 0;
        let read = prefetched.map(|bytes| format!(", {bytes} prefetched")).unwrap_or_default();
        let detail = format!("woken from {} in {:.1} ms, thawed after {thawed_ms:.1}{read}", rung.as_str(), took_s * 1e3);
        // All at once: who sees it ready asks how long that took.
        let memory = &mut self.view.lock().expect("nothing panics while it is held").memory;
        (memory.state, memory.since, memory.last_wake_s) = (InstanceState::Ready, now(), Some(took_s));
        memory.detail.clone_from(&detail);
        Ok(Woken { took_s, detail })
    }

    fn note_wake(&self, rung: Rung, woken: &Woken) {
        self.learn(rung, &RungCost { wake_s: Some(woken.took_s), ..RungCost::default() });
        self.tell(InstanceState::Ready, woken.detail.clone());
    }

    /// What the application wants to renew after a sleep, before it is asked whether it is ready.
    async fn run_hook(&self) -> Result<(), Unwell> {
        let record = self.record();
        if record.spec.on_resume.is_empty() {
            return Ok(());
        }
        let hook = HealthProbe::Command { argv: record.spec.on_resume.clone() };
        let patience = super::running::seconds(record.spec.health.timeout_s, Duration::from_millis(10));
        probe::ask(&hook, address(record.port), patience, self.beside(&record)).await
    }

    /// Whether an order is carried out by saving the state of a job that can do so.
    pub(super) fn is_saved_by(&self, order: &Order) -> bool {
        let can = self.spec().job.is_some_and(|run| !run.checkpoint.is_empty());
        can && matches!(order, Order::Sleep(Rung::Parked))
    }

    /// Runs the command that saves a job's state, as the job and beside it.
    pub(super) async fn save(&self) -> Result<(), Refusal> {
        if self.is_asleep() {
            // What is frozen cannot save anything, nor could a command that joins it.
            return Err(self.wrong_state(InstanceCommand::Save));
        }
        let record = self.record();
        let argv = record.spec.job.as_ref().map(|run| run.checkpoint.clone()).unwrap_or_default();
        let hook = HealthProbe::Command { argv };
        let saved = probe::ask(&hook, address(record.port), SAVE_PATIENCE, self.beside(&record)).await;
        saved.map_err(|why| {
            self.log_complaint(&why);
            Refusal::failed(format!("its state could not be saved: {why}"))
        })
    }

    fn beside<'r>(&self, record: &'r Record) -> Beside<'r> {
        Beside { launch: &record.launch, main: self.started().map(|started| started.main) }
    }

    /// Its health check, asked while it is frozen: thawed, dozens of threads run at once, and who asks only then takes turns with them. Not
    /// where something is to be renewed first.
    async fn ask_ahead(&self) -> Option<probe::Asked> {
        let record = self.record();
        let may = record.spec.on_resume.is_empty() && record.spec.job.is_none();
        if may { probe::ask_ahead(&record.spec.health.probe, asking(&record)).await } else { None }
    }

    /// Asks until there is a good answer, as long as a check may take; `asked` already. Connections of its own that died in its sleep show here,
    /// and not at the first request.
    async fn answers(&self, mut asked: Option<probe::Asked>, running: &Running) -> Result<(), Unwell> {
        let record = self.record();
        if record.spec.job.is_some() {
            return Ok(());
        }
        let (to, health) = (asking(&record), &record.spec.health);
        let patience = super::running::seconds(health.timeout_s, Duration::from_millis(10));
        let deadline = tokio::time::Instant::now() + patience * health.failures.max(1);
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = asked.take();
            let asking = async {
                match asked {
                    Some(asked) => asked.answer(patience).await,
                    None => probe::ask(&health.probe, to.clone(), patience, self.beside(&record)).await,
                }
            };
            let answer = tokio::select! {
                _ = running.main_fd.readable() => return Err(Unwell::Ended),
                answer = asking => answer,
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(reason) if tokio::time::Instant::now() >= deadline => return Err(reason),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Records what it has touched since it woke, once it has come to an end with that.
    pub(super) async fn go_on_recording(&mut self, running: &mut Running) {
        let Some(recording) = running.recording.take() else { return };
        running.recording = recording.wait_on(tokio::time::Instant::now(), self.mapped());
        if running.recording.is_none() {
            self.note_working_set().await;
        }
    }

    /// Bytes that its processes have mapped and in memory.
    fn mapped(&self) -> u64 {
        let pids = self.isolated(|isolation, member| isolation.processes(member));
        let pages: u64 = pids.into_iter().filter_map(|pid| Some(self.site.proc.stat(pid)?.resident_pages)).sum();
        pages * rustix::param::page_size() as u64
    }

    /// A working set that is not recorded costs a slower wake, no more.
    pub(super) async fn note_working_set(&mut self) {
        if let Err(error) = self.record_working_set().await {
            tracing::warn!(instance = %self.spec().id, %error, "its working set is not recorded");
        }
    }

    /// After an adoption: makes true what was written down.
    pub(super) async fn finish_sleep(&mut self, running: &mut Running) {
        let (memory, marker) = (self.memory(), self.dir.join(WAKING_FILE));
        let result = match (memory.wish, memory.state.rung()) {
            (_, Some(_)) if marker.exists() => {
                let (reply, answer) = tokio::sync::oneshot::channel();
                self.wake(running, reply).await;
                answer.await.unwrap_or(Ok(()))
            }
            (Some(Wish::Sleep(rung)), _) => self.sleep(rung, "", running).await,
            (None, Some(_)) => self.freeze().await,
            (None, None) => self.isolated(|isolation, member| isolation.thaw(member)).map_err(Refusal::from),
        };
        if let Err(error) = result {
            tracing::warn!(pid = running.main.pid, %error, "an adopted instance could not be brought to its state");
        }
        // Left behind by who died after the wake, it would wake the next sleep.
        let _ = fs::remove_file(&marker);
    }
}

fn milliseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// What became of an order to sleep, for people: an instance that was not wanted awake stays where it came to.
fn why_not(state: InstanceState, refusal: &Refusal) -> String {
    match state.rung() {
        Some(rung) if !refusal.is_wanted() => format!("it stays {}: {refusal}", rung.as_str()),
        _ => refusal.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_set_is_recorded_when_all_of_it_was_taken_in() {
        let began = tokio::time::Instant::now();
        let mut now = began;
        // A request reads 150 MiB from a disk, 2 MiB between two looks, then no more than housekeeping does.
        let mut mapped = 10 << 20;
        let mut recording = Recording::of_woken(now, mapped);
        for read in (0..75).map(|_| 2u64 << 20) {
            (now, mapped) = (recording.at, mapped + read);
            recording = recording.wait_on(now, mapped).expect("it is still at it");
        }
        assert_eq!(mapped, 160 << 20);
        assert!(recording.wait_on(recording.at, mapped + (100 << 10)).is_none(), "it has come to an end");
        // One that takes in more and more is recorded all the same.
        let last = (0..1000).find(|_| {
            mapped += 4 << 20;
            match recording.wait_on(recording.at, mapped) {
                Some(next) => recording = next,
                None => return true,
            }
            false
        });
        assert!(last.is_some() && recording.at < began + RECORD_WITHIN + 2 * RECORD_AFTER, "{last:?}");
    }
}
