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
        assert_eq!(nice(), own);
        assert!(run(Priority::High, || -> u32 { panic!("on purpose") }).await.is_err());
    }
}
