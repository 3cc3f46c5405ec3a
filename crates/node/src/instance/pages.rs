//! What is done to an instance's memory: out to swap, in again, and what is remembered about it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use weal_host::ranges::Ranges;
use weal_host::swap::{self, Kind};
use weal_host::{Identity, Proc, pagemap};
use weal_model::{Bytes, Rung};
use weal_protocol::Refusal;

use super::{Order, Task};
use crate::blocking::aside;
use crate::files::{at, read_json, write_json};
use crate::isolation::{Member, RECLAIM_SLACK};
use crate::ladder::Missing;
use crate::paging::working_set::{Kept, WorkingSet};
use crate::paging::{self, Advice};
use crate::priority::{self, Priority, Worker};
use crate::site::{Prefetch, Site};

/// The working set, beside the instance.
pub(super) const WORKING_SET_FILE: &str = "working-set.json";
/// How long what was written to swap may take to reach the disk; then it is reclaimed as far as it did.
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);
/// So much may be on its way to the disk at once: more fills the device's queue, and a running instance's reads wait behind it.
const MOST_UNDERWAY: u64 = 8 << 20;
/// Bytes between two looks at what is on its way, or is left: the kernel adds a group's figures up for each, which takes longer than a piece.
const LOOKED_AT_EVERY: u64 = 4 << 20;
/// Bytes that are reclaimed between two pauses: the kernel takes no fewer at once.
const RECLAIMED_AT_ONCE: u64 = 128 << 10;
/// So many requests in which it frees nothing are enough.
const RECLAIM_ATTEMPTS: u32 = 8;
/// And when somebody waits for the memory. A wake that comes meanwhile waits for one of these.
const RECLAIMED_IN_HASTE: u64 = 64 << 20;
/// Swap with less than this left is full.
const HARDLY_ANY: Bytes = Bytes::mib(4);
/// A purge that nobody waits for has only idle cores, and for so long, and a second more for each so many bytes. On a machine whose cores are
/// all taken the memory would not be free for minutes; with idle cores 300 MiB took 4.3 s on one machine and 11.6 on another.
const MEEK_FOR: Duration = Duration::from_secs(10);
const MEEK_BYTES_A_SECOND: u64 = 32 << 20;
/// It pauses so many times as long as it works. Longer pauses are no better (measured).
const MEEK_PAUSES: u32 = 16;
/// The longest pause between two pieces: it does not pause for the time that others had the CPU.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// So many reads at once are as many as a disk takes in before it makes them wait.
const TOUCHING_THREADS: u64 = 8;
/// To ask for a page takes the kernel a microsecond of CPU, which several cores share.
const ASKING_THREADS: u64 = 4;
/// Below this, what is in swap costs less to fault in than to ask for.
const WORTH_PREFETCHING: u64 = 1 << 20;
/// An instance that was not parked has what it needs in memory, unless the machine has become short of it since. That it has not answered for so
/// long is the sign to look: at once, it takes one of the cores that it needs for a third of a millisecond.
const DOUBTED_AFTER: Duration = Duration::from_millis(10);
/// So many pages of a process are looked at to see whether what it needs is in memory.
const SAMPLED: u64 = 64;

/// What background work on an instance's memory needs.
struct Work {
    site: Arc<Site>,
    spec: weal_protocol::node::InstanceSpec,
    dir: std::path::PathBuf,
    /// Set when it shall let go: somebody waits for the instance.
    cancelled: Arc<AtomicBool>,
    /// Set when it shall get on: somebody waits for the memory, or it has taken long.
    in_haste: Arc<AtomicBool>,
}

impl Task {
    /// Pages everything out, and in again what `rung` keeps; `in_haste` when memory is short. Lets go at once when the instance is to wake or
    /// to stop; an error then.
    pub(super) async fn page_out(&mut self, rung: Rung, in_haste: bool) -> Result<(), Refusal> {
        self.has_room(rung)?;
        // Somebody may have come while it was frozen.
        while let Ok(order) = self.orders.try_recv() {
            self.deferred.push_back(order);
        }
        if self.deferred.iter().any(|(order, _)| matches!(order, Order::Resume | Order::Stop)) {
            return Err(Refusal::Woken);
        }
        self.reading.store(true, Ordering::Relaxed);
        let work = self.work();
        let in_haste = in_haste || self.deferred.iter().any(|(order, _)| matches!(order, Order::Park(_)));
        work.in_haste.store(in_haste, Ordering::Relaxed);
        let (cancelled, in_haste) = (Arc::clone(&work.cancelled), Arc::clone(&work.in_haste));
        let hurry = |worker: &Worker| {
            in_haste.store(true, Ordering::Relaxed);
            worker.raise(Priority::Low);
        };
        let set = self.working_set();
        let worker = Worker::default();
        // Who may not advise may not be preferred again either.
        let is_meek = paging::may_advise() && !in_haste.load(Ordering::Relaxed);
        let priority = if is_meek { Priority::Idle } else { Priority::Low };
        let mut purge = Box::pin(priority::run_as(&worker, priority, move || work.page_out(rung, WorkingSet::clone(&set))));
        let insists = tokio::time::sleep(MEEK_FOR + Duration::from_secs(self.used().0 / MEEK_BYTES_A_SECOND));
        tokio::pin!(insists);
        loop {
            tokio::select! {
                done = &mut purge => {
                    let set = done.map_err(io::Error::other)??;
                    return Ok(self.keep_working_set(set)?);
                }
                Some(order) = self.orders.recv() => {
                    match order.0 {
                        Order::Resume | Order::Stop => {
                            cancelled.store(true, Ordering::Relaxed);
                            worker.raise(Priority::High);
                        }
                        Order::Park(_) if !cancelled.load(Ordering::Relaxed) => hurry(&worker),
                        _ => {}
                    }
                    self.deferred.push_back(order);
                }
                () = &mut insists, if !insists.is_elapsed() && !cancelled.load(Ordering::Relaxed) => hurry(&worker),
            }
        }
    }

    /// Nothing is begun that would stop half-way for want of swap or of the right to do it.
    fn has_room(&self, rung: Rung) -> Result<(), Refusal> {
        let (needs, free) = (self.used(), swap::free(&swap::of_this_machine()));
        if free < needs || free == Bytes(0) {
            return Err(Refusal::NoSwap { needs, free });
        }
        if !paging::may_advise() && !self.isolated(|isolation, member| isolation.can_reclaim(member)) {
            return Err(Refusal::NoRung { rung, missing: Missing::Right.to_string() });
        }
        Ok(())
    }

    pub(super) fn used(&self) -> Bytes {
        Bytes(self.usage().memory.unwrap_or(0))
    }

    pub(super) fn usage(&self) -> crate::isolation::Usage {
        self.isolated(|isolation, member| isolation.usage(member))
    }

    /// Reads what the instance will need, beside whoever polls this, who has waited long enough when it has what the instance cannot do without:
    /// what else is not in memory is read meanwhile. Only a head start: what cannot be prefetched is read when it is touched.
    pub(super) fn prefetch(&mut self, rung: Rung) -> impl Future<Output = Option<Bytes>> + Send + use<> {
        let (set, work) = (self.working_set(), self.work());
        self.reading = Arc::clone(&work.cancelled);
        async move {
            if rung != Rung::Parked {
                tokio::time::sleep(DOUBTED_AFTER).await;
            }
            let what = what_is_read_ahead(&work.site);
            if what == Prefetch::Nothing || what == Prefetch::WorkingSet && set.is_empty() {
                return None;
            }
            let (told, enough) = oneshot::channel();
            let read = move || {
                let bytes = (!work.is_in_memory(rung, &set)).then(|| work.page_in(what, &set));
                // Nobody may wait any more.
                let _ = told.send(bytes);
                if bytes.is_some() && what == Prefetch::WorkingSet {
                    work.page_in_rest(&set);
                }
            };
            tokio::spawn(async move {
                let done = priority::run(Priority::High, read).await;
                done.inspect_err(|error| tracing::warn!(%error, "nothing was prefetched"))
            });
            enough.await.ok().flatten()
        }
    }

    /// Whether a wake is quicker when it is known what the instance needs.
    pub(super) fn reads_ahead(&self) -> bool {
        what_is_read_ahead(&self.site) == Prefetch::WorkingSet
    }

    /// After a wake: records what was touched.
    pub(super) async fn record_working_set(&mut self) -> io::Result<()> {
        let mut set = WorkingSet::clone(&self.working_set());
        let pids = self.isolated(|isolation, member| isolation.processes(member));
        let recorded = priority::run(Priority::Low, move || {
            let changed = set.handle_awake(&Proc::system(), &pids);
            changed.then_some(set)
        });
        match recorded.await.map_err(io::Error::other)? {
            Some(set) => self.keep_working_set(set),
            None => Ok(()),
        }
    }

    pub(super) fn working_set(&mut self) -> Arc<WorkingSet> {
        let read = || Arc::new(read_json(&self.dir.join(WORKING_SET_FILE)).ok().flatten().unwrap_or_default());
        Arc::clone(self.working_set.get_or_insert_with(read))
    }

    fn keep_working_set(&mut self, set: WorkingSet) -> io::Result<()> {
        let file = self.dir.join(WORKING_SET_FILE);
        let written = aside(|| write_json(&file, &set));
        self.working_set = Some(Arc::new(set));
        written.map_err(at(&file))
    }

    fn work(&self) -> Work {
        let (cancelled, in_haste) = Default::default();
        Work { site: Arc::clone(&self.site), spec: self.spec(), dir: self.dir.clone(), cancelled, in_haste }
    }
}

fn what_is_read_ahead(site: &Site) -> Prefetch {
    site.prefetch.unwrap_or_else(|| policy(swap::next_kind(&swap::of_this_machine())))
}

/// What is worth reading ahead (measured): from compressed memory a fault is as cheap as asking; a disk is quicker when it is
/// asked for the working set at once. Everything is never worth it.
fn policy(kind: Option<Kind>) -> Prefetch {
    if kind == Some(Kind::Zram) { Prefetch::Nothing } else { Prefetch::WorkingSet }
}

impl Work {
    fn member(&self) -> Member<'_> {
        Member { node: self.spec.node.as_str(), instance: self.spec.id.as_str(), dir: &self.dir }
    }

    fn pids(&self) -> Vec<u32> {
        self.site.isolation.processes(self.member())
    }

    fn processes(&self) -> Vec<Identity> {
        self.pids().into_iter().filter_map(|pid| self.site.proc.identity(pid)).collect()
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Blocks until it is done.
    fn page_out(&self, rung: Rung, mut set: WorkingSet) -> Result<WorkingSet, Refusal> {
        let _open = OpenSwap::of(self)?;
        let kept = set.keep_on(rung);
        let mut files = Vec::new();
        for process in self.processes() {
            let memory =
                paging::memory_of(&self.site.proc, process.pid).map_err(about(process.pid, "does not show its memory"))?;
            let stays = set.kept_of(process);
            let there = paging::present(&self.site.proc, process.pid, &memory.own);
            let needed = set.of(process).intersection(&there).minus(&stays);
            // What is needed together is to lie together on the disk, as far as the kernel finds it new places (al-Qudah table 1).
            if kept != Kept::All {
                self.write_out(process.pid, &needed)?;
            }
            self.write_out(process.pid, &there.minus(&needed).minus(&stays))?;
            files.push((process.pid, memory.files.minus(&memory.own)));
        }
        self.settle();
        // Reclaim has no eye for single pages, but the kernel puts those first that were used twice lately.
        for process in self.processes() {
            let stays = set.kept_of(process);
            (0..2).for_each(|_| paging::touch(process.pid, &stays));
        }
        self.reclaim(set.bytes_kept())?;
        if self.is_cancelled() {
            return Err(Refusal::Woken);
        }
        // From compressed memory nothing takes long enough to stay for that alone.
        let waits_for_disk = swap::next_kind(&swap::of_this_machine()) != Some(Kind::Zram);
        if kept == Kept::Costly && waits_for_disk {
            set.handle_paged_out(&self.site.proc);
        }
        // What was to stay and is gone all the same is read in again.
        self.read_back(&set);
        // With a page of a file that is touched the kernel reads its neighbours on the disk. Told to take as much again, it takes what was to stay,
        // too.
        self.reclaim(set.bytes_kept())?;
        self.read_back(&set);
        set.handle_asleep(&self.site.proc, &self.pids(), kept);
        self.is_out()?;
        // Files' pages are the page cache's, and the first to go from now on: not before, or the reclaim would have taken them instead. A
        // kernel that cannot be told so drops them a little later.
        for (pid, pages) in files {
            let _ = paging::advise(pid, &pages, Advice::Cold, || true);
        }
        for process in self.processes().into_iter().filter(|_| kept == Kept::All || waits_for_disk) {
            self.read_ahead(process.pid, &set.unmapped_of(process, kept));
        }
        Ok(set)
    }

    fn read_back(&self, set: &WorkingSet) {
        for process in self.processes() {
            let stays = set.kept_of(process);
            self.read_ahead(process.pid, &stays);
            if !self.is_cancelled() {
                paging::touch(process.pid, &stays);
            }
        }
    }

    /// Only a help: what is out by now is out, and that is no reason to fail.
    fn read_ahead(&self, pid: u32, ranges: &Ranges) {
        if let Err(error) = paging::advise(pid, ranges, Advice::WillNeed, || !self.is_cancelled()) {
            tracing::debug!(%error, pid, "cannot read ahead");
        }
    }

    /// Others may have filled the swap meanwhile: what does not fit stays in memory, and that is said.
    fn is_out(&self) -> Result<(), Refusal> {
        let (usage, free) = (self.site.isolation.usage(self.member()), swap::free(&swap::of_this_machine()));
        let left = Bytes(usage.memory.unwrap_or(0));
        if free < HARDLY_ANY && left.0 > usage.swap.unwrap_or(0) {
            return Err(Refusal::SwapFilled { left });
        }
        Ok(())
    }

    /// As fast as its part of the time and the disk allow: it pauses after every piece, in haste after many.
    fn write_out(&self, pid: u32, ranges: &Ranges) -> Result<(), Refusal> {
        let (mut began, mut unseen) = (Instant::now(), 0);
        let go_on = || {
            unseen += paging::PAGED_OUT_AT_ONCE;
            let looks = unseen >= LOOKED_AT_EVERY;
            if self.in_haste.load(Ordering::Relaxed) && !looks {
                return !self.is_cancelled();
            }
            self.pause(began);
            while looks && !self.is_cancelled() && self.underway() > MOST_UNDERWAY {
                std::thread::sleep(Duration::from_millis(1));
            }
            unseen %= LOOKED_AT_EVERY;
            began = Instant::now();
            !self.is_cancelled()
        };
        match paging::advise(pid, ranges, Advice::PageOut, go_on) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::Woken),
            // The group's own reclaim does it then.
            Err(error) if self.site.isolation.can_reclaim(self.member()) => {
                tracing::debug!(%error, pid, "cannot advise");
                Ok(())
            }
            Err(error) => Err(about(pid, "cannot be paged out")(error).into()),
        }
    }

    /// Bytes on their way to the disk.
    fn underway(&self) -> u64 {
        self.site.isolation.writeback(self.member()).unwrap_or(0)
    }

    /// Pages that are still being written cannot be reclaimed.
    fn settle(&self) {
        let deadline = Instant::now() + SETTLE_PATIENCE;
        while self.underway() > 0 && !self.is_cancelled() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// On disk swap, pages stay in the swap cache, charged to the group, until they are reclaimed from there too; so do pages that
    /// several processes share, which advice passes over.
    fn reclaim(&self, keep: u64) -> io::Result<()> {
        let too_much = || self.site.isolation.reclaimable(self.member()).saturating_sub(keep);
        let (mut left, mut stuck) = (too_much(), false);
        while !self.is_cancelled() && left >= RECLAIM_SLACK {
            let in_haste = stuck || self.in_haste.load(Ordering::Relaxed);
            self.reclaim_some(left.min(if in_haste { RECLAIMED_IN_HASTE } else { LOOKED_AT_EVERY }), in_haste)?;
            let before = std::mem::replace(&mut left, too_much());
            let goes_on = left < before;
            if stuck && !goes_on {
                break;
            }
            // A little may be found among pages of files, or be lost in counters that lag: then once more, with more.
            stuck = !goes_on;
        }
        Ok(())
    }

    /// A piece at a time while nobody waits: it holds others up.
    fn reclaim_some(&self, bytes: u64, in_haste: bool) -> io::Result<()> {
        let charged = || self.site.isolation.charged(self.member());
        let (mut left, mut in_vain) = (bytes, 0);
        let goal = charged().saturating_sub(bytes);
        // The kernel gives up when it finds nothing at once.
        while left > 0 && in_vain < RECLAIM_ATTEMPTS && !self.is_cancelled() {
            let began = Instant::now();
            let piece = if in_haste { left } else { left.min(RECLAIMED_AT_ONCE) };
            self.site.isolation.reclaim(self.member(), piece)?;
            let before = std::mem::replace(&mut left, charged().saturating_sub(goal));
            in_vain += u32::from(left >= before);
            self.pause(began);
        }
        Ok(())
    }

    /// After work that began then: most of the time is others' while nobody waits, in haste half of it.
    fn pause(&self, began: Instant) {
        let pauses = if self.in_haste.load(Ordering::Relaxed) { 1 } else { MEEK_PAUSES };
        std::thread::sleep((began.elapsed() * pauses).min(LONGEST_PAUSE));
    }

    /// Whether most of what it needs is there. A machine short of memory may have paged out what was only suspended, or kept warm. A sample
    /// tells: the group's figures take as long as a third of a wake, on one of the cores that it needs.
    fn is_in_memory(&self, rung: Rung, set: &WorkingSet) -> bool {
        let is_there = |process: Identity| {
            let sample = set.of(process).sample(SAMPLED);
            let swapped = pagemap::swapped_of(&self.site.proc, process.pid, &sample).unwrap_or(0);
            swapped <= sample.len() / 2
        };
        rung != Rung::Parked && self.processes().into_iter().all(is_there)
    }

    /// Reads what the instance cannot do without, or everything.
    fn page_in(&self, what: Prefetch, set: &WorkingSet) -> Bytes {
        let mut bytes = 0;
        for process in self.processes() {
            let wanted = match what {
                Prefetch::Nothing => continue,
                Prefetch::WorkingSet => set.core_of(process),
                Prefetch::Everything => {
                    paging::memory_of(&self.site.proc, process.pid).map(|all| all.own.union(&all.files)).unwrap_or_default()
                }
            };
            bytes += wanted.bytes();
            let changed = if what == Prefetch::WorkingSet { set.changed_of(process) } else { Ranges::default() };
            std::thread::scope(|scope| {
                // These are read by being touched, one after the other, so several threads do.
                for some in changed.pieces(changed.bytes().div_ceil(TOUCHING_THREADS).next_multiple_of(4096).max(4096)) {
                    scope.spawn(move || {
                        priority::take(Priority::High);
                        paging::touch(process.pid, &some.into());
                    });
                }
                ask_for(process.pid, &wanted, &self.cancelled, scope);
            });
        }
        Bytes(bytes)
    }

    /// Reads what the instance is likely to touch besides.
    fn page_in_rest(&self, set: &WorkingSet) {
        for process in self.processes() {
            std::thread::scope(|scope| ask_for(process.pid, &set.rest_of(process), &self.cancelled, scope));
        }
    }
}

/// Has the kernel read `wanted` of `pid`, by several threads, until it is `cancelled`.
fn ask_for<'scope>(pid: u32, wanted: &Ranges, cancelled: &'scope AtomicBool, scope: &'scope std::thread::Scope<'scope, '_>) {
    for some in wanted.pieces(wanted.bytes().div_ceil(ASKING_THREADS).next_multiple_of(4096).max(WORTH_PREFETCHING)) {
        scope.spawn(move || {
            priority::take(Priority::High);
            if let Err(error) = paging::advise(pid, &some.into(), Advice::WillNeed, || !cancelled.load(Ordering::Relaxed)) {
                tracing::debug!(%error, pid, "cannot prefetch");
            }
        });
    }
}

/// Says of an error which process it was about.
fn about(pid: u32, what: &str) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("process {pid} {what}: {error}"))
}

/// Swap is open to the instance only while it is paged out: it would hide from its limit what a leak takes.
struct OpenSwap<'a>(&'a Work);

impl<'a> OpenSwap<'a> {
    fn of(work: &'a Work) -> io::Result<Self> {
        work.site.isolation.allow_swap(work.member(), true)?;
        Ok(Self(work))
    }
}

impl Drop for OpenSwap<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.site.isolation.allow_swap(self.0.member(), false) {
            tracing::warn!(%error, "an instance could not be kept out of swap");
        }
    }
}
