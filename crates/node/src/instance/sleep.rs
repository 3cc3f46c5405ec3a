//! Suspending, parking and resuming.
//!
//! The wanted state is written down before it is enacted, so an agent that is killed in between leaves an instance that
//! the next one finishes to freeze or to thaw: never one that stays half-frozen.

use std::time::{Duration, Instant};

use weal_model::{Bytes, InstanceState};

use super::running::Running;
use super::{Task, until};
use crate::paging;

/// How long freezing may take. A process in the middle of a slow system call freezes when that returns.
const FREEZE_PATIENCE: Duration = Duration::from_secs(5);

impl Task {
    /// Freezes, and waits until everything stands still.
    pub(super) async fn suspend(&mut self) -> Result<(), String> {
        let state = self.memory().state;
        match state {
            InstanceState::Suspended | InstanceState::Parked => return Ok(()),
            InstanceState::Ready | InstanceState::Unhealthy => {}
            _ => return Err(format!("it is {} and cannot be suspended", name(state))),
        }
        let began = Instant::now();
        self.remember(|memory| memory.state = InstanceState::Suspended);
        if let Err(error) = self.freeze().await {
            let _ = self.isolated(|isolation, member| isolation.thaw(member));
            self.remember(|memory| memory.state = state);
            return Err(error);
        }
        self.remember(|memory| memory.state = state);
        self.enter(InstanceState::Suspended, format!("frozen in {:.1} ms", milliseconds(began)));
        Ok(())
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

    /// Freezes and pages out.
    pub(super) async fn park(&mut self) -> Result<(), String> {
        if self.memory().state == InstanceState::Parked {
            return Ok(());
        }
        self.suspend().await?;
        let swap = paging::free_swap(&std::fs::read_to_string("/proc/swaps").unwrap_or_default());
        let used = Bytes(self.isolated(|isolation, member| isolation.usage(member)).memory.unwrap_or(0));
        if swap.0 == 0 {
            return Err(format!("it stays suspended with {used} in memory: this machine has no swap to page out to"));
        }
        if swap < used {
            return Err(format!("it stays suspended with {used} in memory: only {swap} of swap are free"));
        }
        let began = Instant::now();
        self.page_out().await?;
        let left = Bytes(self.isolated(|isolation, member| isolation.usage(member)).memory.unwrap_or(0));
        let detail = format!("paged out in {:.0} ms, {used} in memory before, {left} now", milliseconds(began));
        self.enter(InstanceState::Parked, detail);
        Ok(())
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

    /// Prefetches what was paged out, then thaws.
    pub(super) async fn resume(&mut self, running: &mut Running) -> Result<(), String> {
        let state = self.memory().state;
        match state {
            InstanceState::Ready => return Ok(()),
            InstanceState::Suspended | InstanceState::Parked => {}
            _ => return Err(format!("it is {} and cannot be resumed", name(state))),
        }
        let began = Instant::now();
        if state == InstanceState::Parked {
            let pids = self.isolated(|isolation, member| isolation.processes(member));
            // Only a head start: what cannot be prefetched is read when it is touched.
            let prefetch = move || pids.into_iter().try_for_each(|pid| paging::advise(pid, paging::Advice::WillNeed));
            let _ = tokio::task::spawn_blocking(prefetch).await;
        }
        self.remember(|memory| memory.state = InstanceState::Ready);
        if let Err(error) = self.isolated(|isolation, member| isolation.thaw(member)) {
            self.remember(|memory| memory.state = state);
            return Err(error.to_string());
        }
        self.remember(|memory| memory.state = state);
        running.ready_since = Some(Instant::now());
        self.enter(InstanceState::Ready, format!("resumed in {:.1} ms", milliseconds(began)));
        Ok(())
    }

    /// After an adoption: makes true what was written down.
    pub(super) async fn finish_sleep(&self, running: &Running) {
        let result = match self.memory().state {
            InstanceState::Suspended | InstanceState::Parked => self.freeze().await,
            _ => self.isolated(|isolation, member| isolation.thaw(member)).map_err(|error| error.to_string()),
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
