//! Threads that come before or after everybody else, for work that wakes an instance or that nobody waits for.

use std::io;

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

/// Runs `work` on a thread of its own with that priority. Without the right to be preferred, it runs like others.
pub async fn run<T: Send + 'static>(priority: Priority, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    std::thread::Builder::new().name("weal-paging".to_owned()).spawn(move || {
        let (nice, level) = match priority {
            Priority::High => (-20, 0),
            Priority::Low => (19, 7),
        };
        // SAFETY: both calls take plain numbers; 0 is the calling thread.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, nice);
            libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_BEST_EFFORT | level);
        }
        // Nobody waits for it any more, perhaps; it was done all the same.
        let _ = done.send(work());
    })?;
    result.await.map_err(|_| io::Error::other("it panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_elsewhere_with_its_own_priority() {
        // SAFETY: plain numbers; 0 is the calling thread.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let own = nice();
        assert_eq!(run(Priority::Low, nice).await.unwrap(), 19);
        assert_eq!(nice(), own);
        assert!(run(Priority::High, || -> u32 { panic!("on purpose") }).await.is_err());
    }
}
