//! Threads that come before or after everybody else, for work that wakes an instance or that nobody waits for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tokio::sync::oneshot;

/// How urgent a piece of work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A request waits for it.
    High,
    /// It may take the CPU and the disk only while nobody else wants them.
    Low,
}

/// From `linux/ioprio.h`: the class in the upper bits, the level in it below.
const IOPRIO_BEST_EFFORT: libc::c_int = 2 << 13;
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// A thread that works in the background, from outside.
#[derive(Debug, Clone, Default)]
pub struct Worker(Arc<AtomicI32>);

impl Worker {
    /// Somebody waits for it now: it comes before others from here on. Behind all others it might not even notice that it is to stop.
    pub fn hurry(&self) {
        let thread = self.0.load(Ordering::Relaxed);
        if let Ok(thread @ 1..) = u32::try_from(thread) {
            // SAFETY: plain numbers. If the thread has ended, the worst is that nobody is preferred.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, HIGH.0) };
        }
    }
}

/// Niceness and level of disk priority: before everybody else.
const HIGH: (i32, libc::c_int) = (-20, 0);
/// A tenth of the CPU of somebody with ordinary priority who wants all of it. At the lowest, on a machine whose cores are taken, a
/// purge of a few hundred milliseconds takes minutes, and the memory that it is to free is missing for as long.
const LOW: (i32, libc::c_int) = (10, 7);

/// Nanoseconds that a thread of low priority runs at a time. The kernel lets a thread finish its slice, of 3 ms unless it is asked for
/// another, before one that has just woken gets the core: a running instance's requests would wait that long.
const LOW_SLICE_NS: u64 = 100_000;

/// From `linux/sched/types.h`, as far as the first version of `sched_setattr` goes.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of an ordinary thread, its slice in nanoseconds; kernels before 6.12 take no notice.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Runs `work` on a thread of its own with that priority. Without the right to be preferred, it runs like others.
pub async fn run<T: Send + 'static>(priority: Priority, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    run_as(&Worker::default(), priority, work).await
}

/// The same, with a handle to hurry it.
pub async fn run_as<T: Send + 'static>(
    worker: &Worker,
    priority: Priority,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    let own = worker.clone();
    std::thread::Builder::new().name("weal-paging".to_owned()).spawn(move || {
        // SAFETY: it takes nothing.
        own.0.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        take(priority);
        // Nobody waits for it any more, perhaps; it was done all the same.
        let _ = done.send(work());
    })?;
    result.await.map_err(|_| io::Error::other("it panicked"))
}

/// Gives this thread that priority, as far as it may have it.
pub fn take(priority: Priority) {
    let (nice, level) = match priority {
        Priority::High => HIGH,
        Priority::Low => LOW,
    };
    // SAFETY: both calls take plain numbers; 0 is the calling thread.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_BEST_EFFORT | level);
    }
    if priority == Priority::Low {
        let attr = SchedAttr {
            size: size_of::<SchedAttr>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags: 0,
            nice,
            priority: 0,
            runtime: LOW_SLICE_NS,
            deadline: 0,
            period: 0,
        };
        // SAFETY: the kernel reads `size` bytes of `attr`, which lives during the call; 0 is the calling thread.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_elsewhere_with_its_own_priority() {
        // SAFETY: plain numbers; 0 is the calling thread.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let own = nice();
        assert_eq!(run(Priority::Low, nice).await.unwrap(), 10);
        let slice_ns = || {
            let mut attr = [0u64; 6];
            // SAFETY: the kernel writes at most 48 bytes into `attr`, which has as many.
            let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attr.as_mut_ptr(), 48, 0) };
            (result, attr[3])
        };
        let (result, slice_ns) = run(Priority::Low, slice_ns).await.unwrap();
        assert!(result == 0 && [0, LOW_SLICE_NS].contains(&slice_ns), "kernels before 6.12 know of no slice: {slice_ns}");
        assert_eq!(nice(), own);
        assert!(run(Priority::High, || -> u32 { panic!("on purpose") }).await.is_err());
    }
}
