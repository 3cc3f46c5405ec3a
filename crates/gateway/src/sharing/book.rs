//! The book itself: memory of fixed length that every gateway maps. It is no file of a disk: a step of the book may neither wait for one that
//! hangs nor fail on one that is full.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use weal_control::flow::sharing::{Claim, GatewayIndex, Holdings, MOST_GATEWAYS};
use weal_model::{AppName, fnv1a};

/// Clusters that the book has room for; those beyond are not shared.
pub(super) const PAGES: usize = 1024;

/// What is about one cluster. A cache line of its own, so that clusters do not slow each other down.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Page {
    /// A number that stands for its name; 0 is a page that is free.
    app: AtomicU64,
    holdings: AtomicU64,
    claims: [AtomicU64; MOST_GATEWAYS],
}

/// The pages, in memory that other processes map too.
#[derive(Debug)]
pub(super) struct Book {
    pages: NonNull<[Page; PAGES]>,
}

// SAFETY: the mapping lives as long as the book, belongs to no thread, and all that is in it is atomic.
unsafe impl Send for Book {}
// SAFETY: as above.
unsafe impl Sync for Book {}

/// Bytes of a book. Another layout has another length, so that programs with different ones do not share.
const BYTES: usize = size_of::<[Page; PAGES]>();

/// Empty memory for a book.
pub(super) fn memory() -> io::Result<OwnedFd> {
    let memory = memfd_create("weal-seats", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, BYTES as u64)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// The same memory by an opening of its own.
pub(super) fn open_again(memory: impl AsFd) -> io::Result<OwnedFd> {
    let link = format!("/proc/self/fd/{}", memory.as_fd().as_raw_fd());
    Ok(OpenOptions::new().read(true).write(true).open(link)?.into())
}

impl Book {
    /// Maps `memory`.
    pub fn open(memory: impl AsFd) -> io::Result<Self> {
        if fstat(&memory)?.st_size != BYTES as i64 {
            return Err(io::Error::other("the book of another version of weal"));
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address that nothing else uses.
        let at = unsafe { mmap(std::ptr::null_mut(), BYTES, rights, MapFlags::SHARED, &memory, 0) }?;
        let pages = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { pages })
    }

    pub fn page(&self, index: usize) -> &Page {
        &self.pages()[index]
    }

    /// The page of `app`, which is begun if there is none.
    pub fn find_or_begin(&self, app: &AppName) -> Option<usize> {
        let number = number_of(app);
        let first = number as usize % PAGES;
        (0..PAGES).map(|step| (first + step) % PAGES).find(|&index| self.page(index).belongs_to(number))
    }

    /// True when `gateway` holds seats or waits for some.
    pub fn is_marked_by(&self, gateway: GatewayIndex) -> bool {
        self.begun().any(|page| page.holdings().of(gateway) > 0 || page.claim(gateway) != Claim::NONE)
    }

    /// Gives back all that `gateway` holds.
    pub fn clear(&self, gateway: GatewayIndex) {
        for page in self.begun() {
            page.set_claim(gateway, Claim::NONE);
            let mut seen = page.holdings();
            while seen.of(gateway) > 0 {
                match page.exchange(seen, seen.with(gateway, 0)) {
                    Ok(()) => break,
                    Err(other) => seen = other,
                }
            }
        }
    }

    /// Makes room for other clusters. Only while no gateway uses the book.
    pub fn tear_out_pages(&self) {
        self.pages().iter().for_each(|page| page.app.store(0, Ordering::Relaxed));
    }

    fn begun(&self) -> impl Iterator<Item = &Page> {
        self.pages().iter().filter(|page| page.app.load(Ordering::Acquire) != 0)
    }

    fn pages(&self) -> &[Page; PAGES] {
        // SAFETY: the mapping is as long as this type, aligned to a page of memory, and lives as long as the book. Every value of its bytes is
        // a valid one of these types, and all changes of it are atomic. The memory keeps its length: that is sealed.
        unsafe { self.pages.as_ref() }
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        // SAFETY: nothing borrowed from the book outlives it.
        let _ = unsafe { munmap(self.pages.as_ptr().cast(), BYTES) };
    }
}

impl Page {
    pub fn holdings(&self) -> Holdings {
        Holdings(self.holdings.load(Ordering::Acquire))
    }

    pub fn exchange(&self, seen: Holdings, next: Holdings) -> Result<(), Holdings> {
        let done = self.holdings.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Acquire);
        done.map(|_| ()).map_err(Holdings)
    }

    pub fn claim(&self, gateway: GatewayIndex) -> Claim {
        Claim(self.claims[gateway.at()].load(Ordering::Acquire))
    }

    pub fn set_claim(&self, gateway: GatewayIndex, claim: Claim) {
        self.claims[gateway.at()].store(claim.0, Ordering::Release);
    }

    /// True when it is that of `number`, or was free and is now.
    fn belongs_to(&self, number: u64) -> bool {
        let begun = self.app.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        begun.unwrap_or_else(|app| if app == number { 0 } else { app }) == 0
    }
}

/// Equal names have equal numbers in every process (FNV-1a). Two names of a pool have the same one with a probability of 2^-64 or so; they
/// would share their seats.
fn number_of(app: &AppName) -> u64 {
    fnv1a(app.as_str().bytes()).max(1)
}
