//! Threads that come before or after others, for work that wakes an instance or that nobody waits for. The others are those of the same control
//! group: weal's own roles where they have one ([`crate::isolation::roles`]), else everybody.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

/// How urgent a piece of work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A request waits for it.
    High,
    /// It comes after others, and gets on all the same.
    Low,
    /// It has a core only while nobody else wants it, and leaves at once. Where every core is taken it stands still, so that it is to be
    /// [raised](Worker::raise) when that lasts. Only with the right to raise it.
    Idle,
}

/// From `linux/ioprio.h`: the class in the upper bits, the level in it below.
const IOPRIO_BEST_EFFORT: libc::c_int = 2 << 13;
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// A thread that works in the background, from outside.
#[derive(Debug, Clone, Default)]
pub struct Worker(Arc<Mutex<Standing>>);

/// What is known of it.
#[derive(Debug, Default)]
struct Standing {
    /// Once it runs.
    thread: Option<libc::pid_t>,
    /// What it was given from outside, which may be before it runs.
    raised: Option<Priority>,
}

impl Worker {
    /// Gives it another priority: a higher one when somebody has come to wait for it. Behind all others it might not even notice that it
    /// is to stop.
    pub fn raise(&self, priority: Priority) {
        let mut standing = self.0.lock().expect("nothing panics while it is held");
        standing.raised = Some(priority);
        if let Some(thread) = standing.thread {
            // If it has ended, the worst is that nobody is preferred.
            set(thread, priority);
        }
    }

    /// Makes this thread the one, with `priority` or what it was given meanwhile.
    fn begin(&self, priority: Priority) {
        let mut standing = self.0.lock().expect("nothing panics while it is held");
        // SAFETY: it takes nothing.
        standing.thread = Some(unsafe { libc::gettid() });
        take(standing.raised.unwrap_or(priority));
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

/// The same, with a handle to raise it.
pub async fn run_as<T: Send + 'static>(
    worker: &Worker,
    priority: Priority,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    let own = worker.clone();
    std::thread::Builder::new().name("weal-paging".to_owned()).spawn(move || {
        own.begin(priority);
        // Nobody waits for it any more, perhaps; it was done all the same.
        let _ = done.send(work());
    })?;
    result.await.map_err(|_| io::Error::other("it panicked"))
}

/// Gives this thread that priority, as far as it may have it.
pub fn take(priority: Priority) {
    set(0, priority);
}

/// `struct sched_attr` of the kernel, in its first version (48 bytes).
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    /// Of real-time policies.
    priority: u32,
    /// The slice in nanoseconds; 0 is the kernel's own. Linux before 6.12 passes over it.
    slice: u64,
    /// Of the deadline policy, as what follows.
    deadline: u64,
    period: u64,
}

/// The shortest that there is. Who has it comes before those whose slice has just begun: between two reads this work takes a core for some 10 us at a time,
/// and would wait for a core for milliseconds each time where all are taken.
const SHORT: u64 = 100_000;

/// Of `thread`; 0 is the calling one. Who may not have it stays as it is.
fn set(thread: libc::pid_t, priority: Priority) {
    let (policy, (nice, level), slice) = match priority {
        Priority::High => (libc::SCHED_OTHER, HIGH, SHORT),
        Priority::Low => (libc::SCHED_OTHER, LOW, 0),
        Priority::Idle => (libc::SCHED_IDLE, LOW, 0),
    };
    let size = size_of::<Attributes>() as u32;
    let attributes =
        Attributes { size, policy: policy.cast_unsigned(), flags: 0, nice, priority: 0, slice, deadline: 0, period: 0 };
    // SAFETY: the kernel reads `size` bytes of what lives during the call; the second has plain numbers.
    unsafe {
        libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0);
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, IOPRIO_BEST_EFFORT | level);
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
        // SAFETY: it takes nothing.
        if unsafe { libc::geteuid() } == 0 {
            assert_eq!(run(Priority::High, nice).await.unwrap(), -20);
        }
        assert!(run(Priority::High, || -> u32 { panic!("on purpose") }).await.is_err());
    }

    #[tokio::test]
    async fn a_short_slice_goes_when_its_priority_does() {
        let slice = || {
            let mut seen = Attributes { size: 0, policy: 0, flags: 0, nice: 0, priority: 0, slice: 0, deadline: 0, period: 0 };
            let size = size_of::<Attributes>() as u32;
            // SAFETY: the kernel writes at most `size` bytes to it.
            assert_eq!(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut seen, size, 0) }, 0);
            seen.slice
        };
        let (before, high, after) = run(Priority::Low, move || {
            let before = slice();
            take(Priority::High);
            let high = slice();
            take(Priority::Low);
            (before, high, slice())
        })
        .await
        .unwrap();
        assert_eq!(after, before);
        // 0 where the kernel has no slices of threads' own, and the same where this process may not come before others.
        assert!(high == SHORT || high == before, "{high}");
    }

    #[tokio::test]
    async fn what_has_only_idle_cores_can_be_raised_from_outside() {
        // SAFETY: 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let worker = Worker::default();
        let raised = worker.clone();
        let seen = run_as(&worker, Priority::Idle, move || {
            let before = policy();
            raised.raise(Priority::Low);
            (before, policy())
        });
        assert_eq!(seen.await.unwrap(), (libc::SCHED_IDLE, libc::SCHED_OTHER));
        // Raised before the thread runs, it begins like that.
        let worker = Worker::default();
        worker.raise(Priority::Low);
        assert_eq!(run_as(&worker, Priority::Idle, policy).await.unwrap(), libc::SCHED_OTHER);
    }
}
