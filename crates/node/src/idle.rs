//! Cores that stay awake while an instance wakes.
//!
//! A wake is a chain of short steps, of reads from the disk and of threads that hand on to each other, and between two of them a core has nothing
//! to do. One that goes to sleep there takes its time to come back: a quarter of what a page takes that is read from swap (measured in a virtual
//! machine; physical cores have deeper sleeps). The kernel has a request for such times, "power management quality of service": as long as
//! a process holds it, cores without work wait in a loop. It ends with the process.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Where the kernel takes the request. It is root's.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Microseconds that a core may take to come back: none.
const AT_ONCE: i32 = 0;
/// As many as it likes (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const WHENEVER: i32 = 2_000_000_000;

/// The request, for all who wait.
#[derive(Debug)]
pub struct Idle {
    /// `None` where we may not ask: waking takes a little longer then, no more.
    device: Option<File>,
    /// How many wait at present.
    waiting: Mutex<usize>,
}

impl Idle {
    /// Nobody waits yet.
    pub fn of_this_machine() -> Arc<Self> {
        Self::at(Path::new(DEVICE))
    }

    fn at(device: &Path) -> Arc<Self> {
        let device = File::options().write(true).open(device);
        let device = device.inspect_err(|error| tracing::debug!(%error, "cores go to sleep during a wake")).ok();
        Arc::new(Self { device, waiting: Mutex::default() })
    }

    /// Cores stay awake until what this gives is dropped.
    pub fn put_off(self: &Arc<Self>) -> PutOff {
        self.count(|waiting| *waiting += 1);
        PutOff(Arc::clone(self))
    }

    fn count(&self, change: impl FnOnce(&mut usize)) {
        let mut waiting = self.waiting.lock().expect("nothing panics while it is held");
        let before = *waiting;
        change(&mut waiting);
        let allowed = match (before, *waiting) {
            (0, 1) => AT_ONCE,
            (1, 0) => WHENEVER,
            _ => return,
        };
        if let Some(Err(error)) = self.device.as_ref().map(|mut device| device.write_all(&allowed.to_ne_bytes())) {
            tracing::debug!(%error, "cores sleep as they like");
        }
    }
}

/// That cores stay awake, as long as it lives.
#[derive(Debug)]
pub struct PutOff(Arc<Idle>);

impl Drop for PutOff {
    fn drop(&mut self) {
        self.0.count(|waiting| *waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_waits_keeps_cores_awake_and_the_last_lets_them_sleep() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let idle = Idle::at(file.path());
        let asked = || -> Vec<i32> {
            let bytes = std::fs::read(file.path()).unwrap();
            bytes.chunks(4).map(|number| i32::from_ne_bytes(number.try_into().unwrap())).collect()
        };
        let first = idle.put_off();
        let second = idle.put_off();
        assert_eq!(asked(), [AT_ONCE]);
        drop(first);
        assert_eq!(asked(), [AT_ONCE], "one still waits");
        drop(second);
        assert_eq!(asked(), [AT_ONCE, WHENEVER]);
        drop(idle.put_off());
        assert_eq!(asked(), [AT_ONCE, WHENEVER, AT_ONCE, WHENEVER]);
    }

    #[test]
    fn who_may_not_ask_wakes_all_the_same() {
        let idle = Idle::at(Path::new("/nonexistent/cpu_dma_latency"));
        drop((idle.put_off(), idle.put_off()));
        assert_eq!(*idle.waiting.lock().unwrap(), 0);
    }
}
