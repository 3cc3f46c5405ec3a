//! The machine as a whole: its memory, its CPUs and its kernel.

use std::io;

use weal_model::{Bytes, Cpu};

use crate::process::Proc;
use crate::read::{LIST, SMALL, field, text};

/// The memory of a machine.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All of it; `None` if the kernel does not tell.
    pub total: Option<Bytes>,
    /// What it can give without paging anything out; `None` if the kernel does not tell.
    pub available: Option<Bytes>,
}

/// What all CPUs have done since the machine came up, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    /// Busy.
    pub busy: u64,
    /// Idle, with a disk read outstanding.
    pub waiting: u64,
    /// Both, and idle.
    pub all: u64,
}

impl CpuTimes {
    /// Percent of the time since `before` in which CPUs were busy, and in which they were idle with a disk read outstanding.
    pub fn percent_since(&self, before: &Self) -> (f64, f64) {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let percent = |now: u64, before: u64| 100.0 * now.saturating_sub(before) as f64 / all;
        (percent(self.busy, before.busy), percent(self.waiting, before.waiting))
    }
}

/// The CPUs of a machine as they describe themselves.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CpuModel {
    /// The name of the first one; empty if the kernel does not tell.
    pub name: String,
    /// True in a virtual machine.
    pub is_virtual: bool,
}

/// How many CPUs this process may run on: those that are online, less what an affinity or a quota takes. At least one.
pub fn cpus() -> Cpu {
    Cpu(std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64))
}

impl Proc {
    /// The machine's memory, from `meminfo`.
    pub fn memory(&self) -> Memory {
        let text = text(&self.root().join("meminfo"), SMALL).unwrap_or_default();
        let kib = |name| field(&text, name).map(|kib| Bytes(kib.saturating_mul(1024)));
        Memory { total: kib("MemTotal:"), available: kib("MemAvailable:") }
    }

    /// What the machine's CPUs have done so far, from `stat`.
    ///
    /// # Errors
    /// The file cannot be read, or has no line for all CPUs.
    pub fn cpu_times(&self) -> io::Result<CpuTimes> {
        let text = text(&self.root().join("stat"), LIST)?;
        parse_cpu_times(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has no times of all CPUs"))
    }

    /// What the CPUs call themselves, from `cpuinfo`.
    pub fn cpu_model(&self) -> CpuModel {
        let text = text(&self.root().join("cpuinfo"), LIST).unwrap_or_default();
        let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("", |(_, name)| name);
        CpuModel { name: name.to_owned(), is_virtual: text.contains(" hypervisor ") }
    }

    /// The kernel's release, such as `6.12.9`; empty if it does not tell.
    pub fn kernel_release(&self) -> String {
        text(&self.root().join("sys/kernel/osrelease"), SMALL).unwrap_or_default().trim().to_owned()
    }

    /// True when the kernel tells how long processes wait for CPU ("pressure stall information").
    pub fn tells_pressure(&self) -> bool {
        self.root().join("pressure/cpu").exists()
    }
}

fn parse_cpu_times(stat: &str) -> Option<CpuTimes> {
    // User, nice, system, idle, waiting for the disk, interrupts, their second halves, taken by the hypervisor.
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
    let [_, _, _, idle, waiting, ..] = ticks[..] else { return None };
    let all = ticks.iter().sum::<u64>();
    Some(CpuTimes { busy: all - idle - waiting, waiting, all })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn proc(files: &[(&str, &str)]) -> (tempfile::TempDir, Proc) {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        let proc = Proc::new(root.path());
        (root, proc)
    }

    #[test]
    fn memory_is_read_as_far_as_the_kernel_tells_it() {
        let (_root, new) = proc(&[("meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\nMemAvailable:     100 kB\n")]);
        assert_eq!(new.memory(), Memory { total: Some(Bytes::mib(2)), available: Some(Bytes(102_400)) });
        let (_root, old) = proc(&[("meminfo", "MemTotal: 9 kB\n")]);
        assert_eq!(old.memory().available, None);
        assert_eq!(Proc::new("/nowhere").memory(), Memory::default());
    }

    #[test]
    fn busy_and_waiting_are_shares_of_all_time() {
        let at = |stat| proc(&[("stat", stat)]).1.cpu_times();
        let (_root, before) = proc(&[("stat", "cpu  10 0 10 100 0 0 0 0 0 0\n")]);
        let (_root2, after) = proc(&[("stat", "cpu  30 0 20 150 20 0 0 0 0 0\ncpu0 1\n")]);
        assert_eq!(after.cpu_times().unwrap().percent_since(&before.cpu_times().unwrap()), (30.0, 20.0));
        assert!(at("").is_err());
    }

    #[test]
    fn cpus_and_kernel_say_what_they_are() {
        let cpuinfo = "processor\t: 0\nmodel name\t: An 8-bit CPU\nflags\t\t: fpu hypervisor lahf\n";
        let (_root, proc) = proc(&[("cpuinfo", cpuinfo), ("sys/kernel/osrelease", "6.1.2-x\n"), ("pressure/cpu", "")]);
        assert_eq!(proc.cpu_model(), CpuModel { name: "An 8-bit CPU".into(), is_virtual: true });
        assert_eq!(proc.kernel_release(), "6.1.2-x");
        assert!(proc.tells_pressure() && !Proc::new("/nowhere").tells_pressure());
    }

    #[test]
    fn this_machine_can_be_read() {
        assert!(cpus().0 >= 1.0 && Proc::system().memory().total.unwrap() > Bytes::mib(16));
    }
}
