//! Going to sleep, from one rung to another, and waking up.
//!
//! What is wanted is written down before it is begun, so an agent that is killed in between leaves an instance that the next
//! one finishes to put to sleep or to wake: never one that stays half-frozen.

use std::time::{Duration, Instant};

use weal_model::{Bytes, InstanceState, Rung, RungCost};

use super::running::Running;
use super::{Task, Wish, until};
use crate::costs::learn;
use crate::{paging, probe};

/// How long freezing may take. A process in the middle of a slow system call freezes when that returns.
const FREEZE_PATIENCE: Duration = Duration::from_secs(5);
/// The pause before the second question to an instance that wakes; the next ones grow.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two questions to an instance that wakes.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

impl Task {
    /// Sleeps on `rung`: freezes, and pages in or out what differs.
    pub(super) async fn sleep(&mut self, rung: Rung) -> Result<(), String> {
        let state = self.memory().state;
        match state {
            InstanceState::Ready | InstanceState::Unhealthy => {}
            state if state.is_asleep() => {}
            _ => return Err(format!("it is {} and cannot be put to sleep", name(state))),
        }
        if state == rung.state() {
            return Ok(());
        }
        let began = Instant::now();
        self.remember(|memory| memory.wish = Some(Wish::Sleep(rung)));
        let result = self.sleep_down(state, rung, began).await;
        self.remember(|memory| memory.wish = None);
        result
    }

    async fn sleep_down(&self, state: InstanceState, rung: Rung, began: Instant) -> Result<(), String> {
        if !state.is_asleep() {
            if let Err(error) = self.freeze().await {
                let _ = self.isolated(|isolation, member| isolation.thaw(member));
                return Err(error);
            }
            self.enter(InstanceState::Suspended, format!("frozen in {:.1} ms", milliseconds(began)));
            self.learn(Rung::Suspended, &self.measured(began));
        }
        match rung {
            Rung::Suspended if !state.is_asleep() => Ok(()),
            Rung::Suspended => {
                self.prefetch().await;
                self.enter(InstanceState::Suspended, "");
                Ok(())
            }
            Rung::Warm => Err("it stays suspended: its working set is not known yet".to_owned()),
            Rung::Parked => self.park(began).await,
        }
    }

    async fn freeze(&self) -> Result<(), String> {
        let again = || {
            // Without a freezer, a process forked in between was not stopped: once more, until none runs.
            let asked = self.isolated(|isolation, member| isolation.freeze(member));
            asked.is_ok() && self.isolated(|isolation, member| isolation.is_frozen(member))
        };
        if until(FREEZE_PATIENCE, again).await {
            return Ok(());
        }
        Err(format!("not all of its processes could be frozen within {} s", FREEZE_PATIENCE.as_secs()))
    }

    async fn park(&self, began: Instant) -> Result<(), String> {
        let swap = paging::free_swap(&std::fs::read_to_string("/proc/swaps").unwrap_or_default());
        let used = self.used();
        if swap.0 == 0 {
            return Err(format!("it stays suspended with {used} in memory: this machine has no swap to page out to"));
        }
        if swap < used {
            return Err(format!("it stays suspended with {used} in memory: only {swap} of swap are free"));
        }
        self.page_out().await?;
        let detail = format!("paged out in {:.0} ms, {used} in memory before, {} now", milliseconds(began), self.used());
        self.enter(InstanceState::Parked, detail);
        self.learn(Rung::Parked, &self.measured(began));
        Ok(())
    }

    fn used(&self) -> Bytes {
        Bytes(self.isolated(|isolation, member| isolation.usage(member)).memory.unwrap_or(0))
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

    async fn page_out(&self) -> Result<(), String> {
        let (site, spec, dir) = (std::sync::Arc::clone(&self.site), self.spec(), self.dir.clone());
        let work = move || -> Result<(), String> {
            let member = crate::isolation::Member { node: spec.node.as_str(), instance: spec.id.as_str(), dir: &dir };
            if site.isolation.kind() != crate::isolation::Kind::CgroupV2 {
                for pid in site.isolation.processes(member) {
                    paging::advise(pid, paging::Advice::PageOut).map_err(|error| format!("cannot page out {pid}: {error}"))?;
                }
            }
            // On disk swap, pages stay in the swap cache, charged to the group, until they are reclaimed from there too.
            site.isolation.reclaim(member).map_err(|error| error.to_string())?;
            Ok(())
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
    }

    /// Only a head start: what cannot be prefetched is read when it is touched.
    async fn prefetch(&self) {
        let pids = self.isolated(|isolation, member| isolation.processes(member));
        let prefetch = move || pids.into_iter().try_for_each(|pid| paging::advise(pid, paging::Advice::WillNeed));
        let _ = tokio::task::spawn_blocking(prefetch).await;
    }

    /// Prefetches what was paged out, thaws, and waits until the instance answers its health check.
    pub(super) async fn wake(&mut self, running: &mut Running) -> Result<(), String> {
        let state = self.memory().state;
        let rung = match (state, state.rung()) {
            (InstanceState::Ready, _) => return Ok(()),
            (_, Some(rung)) => rung,
            _ => return Err(format!("it is {} and cannot be woken", name(state))),
        };
        let began = Instant::now();
        self.remember(|memory| memory.wish = Some(Wish::Wake));
        let result = self.wake_up(rung, running, began).await;
        self.remember(|memory| memory.wish = None);
        result
    }

    async fn wake_up(&self, rung: Rung, running: &mut Running, began: Instant) -> Result<(), String> {
        if rung != Rung::Suspended {
            self.prefetch().await;
        }
        self.isolated(|isolation, member| isolation.thaw(member)).map_err(|error| error.to_string())?;
        let thawed = milliseconds(began);
        if let Err(reason) = self.answers(running).await {
            let detail = format!("thawed after {thawed:.1} ms, but it does not answer: {reason}");
            self.enter(InstanceState::Unhealthy, detail.clone());
            return Err(detail);
        }
        let took_s = began.elapsed().as_secs_f64();
        running.ready_since = Some(Instant::now());
        running.failures = 0;
        self.remember(|memory| memory.last_wake_s = Some(took_s));
        self.learn(rung, &RungCost { wake_s: Some(took_s), ..RungCost::default() });
        let detail = format!("woken from {} in {:.1} ms, thawed after {thawed:.1}", rung.as_str(), took_s * 1e3);
        self.enter(InstanceState::Ready, detail);
        Ok(())
    }

    /// Asks until there is a good answer, as long as a check may take. Connections of its own that died in its sleep show here,
    /// and not at the first request.
    async fn answers(&self, running: &Running) -> Result<(), String> {
        let record = self.record();
        let (address, health) = (crate::agent::address(record.port), &record.spec.health);
        let patience = super::running::seconds(health.timeout_s, Duration::from_millis(10));
        let deadline = tokio::time::Instant::now() + patience * health.failures.max(1);
        let mut pause = FIRST_PAUSE;
        loop {
            let answer = tokio::select! {
                _ = running.main_fd.readable() => return Err("it ended".to_owned()),
                answer = probe::ask(&health.probe, address, patience, &record.launch) => answer,
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(reason) if tokio::time::Instant::now() >= deadline => return Err(reason),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// After an adoption: makes true what was written down.
    pub(super) async fn finish_sleep(&mut self, running: &mut Running) {
        let memory = self.memory();
        let result = match (memory.wish, memory.state.rung()) {
            (Some(Wish::Wake), Some(_)) => self.wake(running).await,
            (Some(Wish::Sleep(rung)), _) => self.sleep(rung).await,
            (_, Some(_)) => self.freeze().await,
            (_, None) => self.isolated(|isolation, member| isolation.thaw(member)).map_err(|error| error.to_string()),
        };
        if let Err(error) = result {
            tracing::warn!(pid = running.main.pid, error, "an adopted instance could not be brought to its state");
        }
    }
}

fn milliseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

fn name(state: InstanceState) -> String {
    format!("{state:?}").to_lowercase()
}
