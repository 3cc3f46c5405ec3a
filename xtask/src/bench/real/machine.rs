//! What a measurement takes of the machine, and gives back: swap on a file or in compressed memory, and CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Where pages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SwapOn {
    /// A file on this machine's disk.
    Disk,
    /// Compressed memory.
    Zram,
}

/// Swap that is taken away when this is dropped.
pub struct Swap {
    device: PathBuf,
    is_zram: bool,
}

impl Swap {
    /// Makes `gib` of swap. Needs root, and that there is no other swap, or the measurement would not be of this one.
    pub fn make(on: SwapOn, gib: u64, folder: &Path) -> Result<Self> {
        let present = fs::read_to_string("/proc/swaps")?;
        ensure!(present.lines().count() <= 1, "this machine has swap already: swapoff it for the measurement\n{present}");
        match on {
            SwapOn::Disk => Self::on_disk(gib, folder),
            SwapOn::Zram => Self::in_memory(gib),
        }
    }

    fn on_disk(gib: u64, folder: &Path) -> Result<Self> {
        let device = folder.join("swapfile");
        call("fallocate", &["-l", &format!("{gib}G"), &device.display().to_string()])?;
        let swap = Self { device, is_zram: false };
        swap.switch_on()?;
        Ok(swap)
    }

    fn in_memory(gib: u64) -> Result<Self> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").context("the kernel has no zram")?;
        let number = number.trim().to_owned();
        let swap = Self { device: PathBuf::from(format!("/dev/zram{number}")), is_zram: true };
        fs::write(format!("/sys/block/zram{number}/disksize"), format!("{gib}G"))?;
        swap.switch_on()?;
        Ok(swap)
    }

    fn switch_on(&self) -> Result<()> {
        let device = self.device.display().to_string();
        if !self.is_zram {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&self.device, fs::Permissions::from_mode(0o600))?;
        }
        call("mkswap", &[&device])?;
        call("swapon", &[&device])
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        if let Err(error) = call("swapoff", &[&self.device.display().to_string()]) {
            eprintln!("error: the swap stays on: {error:#}");
            return;
        }
        let removed = if self.is_zram {
            let number = self.device.display().to_string().replace("/dev/zram", "");
            fs::write("/sys/class/zram-control/hot_remove", number)
        } else {
            fs::remove_file(&self.device)
        };
        if let Err(error) = removed {
            eprintln!("error: {} is left: {error}", self.device.display());
        }
    }
}

/// The machine that numbers are of, in a line.
pub fn describe() -> Result<String> {
    let (cpus, memory) = (fs::read_to_string("/proc/cpuinfo")?, fs::read_to_string("/proc/meminfo")?);
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("", |(_, name)| name);
    let virtual_one = if cpus.contains(" hypervisor ") { "a virtual machine, " } else { "" };
    let kib: u64 = memory.split_whitespace().nth(1).context("/proc/meminfo")?.parse()?;
    let (cores, kernel) = (std::thread::available_parallelism()?, fs::read_to_string("/proc/sys/kernel/osrelease")?);
    Ok(format!("{virtual_one}{cores} CPUs ({model}), {} GiB, Linux {}", kib >> 20, kernel.trim()))
}

/// So many CPUs.
pub fn cpus() -> Result<usize> {
    Ok(std::thread::available_parallelism()?.get())
}

/// `USER_HZ`: 100 on every architecture that Linux reports these times on.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU-seconds that `pid` has used: user and system.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} is gone"))?;
    // The name in parentheses may contain anything; fields are counted from what follows it.
    let fields: Vec<&str> = stat.rsplit_once(')').context("unreadable stat")?.1.split_whitespace().collect();
    let (user, system) = (fields.get(11), fields.get(12));
    let ticks = user.context("no utime")?.parse::<u64>()? + system.context("no stime")?.parse::<u64>()?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// What all CPUs have done since the machine came up, in ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuTimes {
    busy: f64,
    waiting: f64,
    all: f64,
}

impl CpuTimes {
    /// As they are now.
    pub fn now() -> Result<Self> {
        Self::parse(&fs::read_to_string("/proc/stat")?).context("/proc/stat")
    }

    fn parse(text: &str) -> Option<Self> {
        let ticks: Vec<f64> =
            text.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let [_, _, _, idle, waiting, ..] = ticks[..] else { return None };
        let all = ticks.iter().sum::<f64>();
        Some(Self { busy: all - idle - waiting, waiting, all })
    }

    /// Percent of the time since `before` in which CPUs were busy, and in which they were idle with a disk read outstanding.
    pub fn percent_since(&self, before: &Self) -> (f64, f64) {
        let all = (self.all - before.all).max(1.0);
        (100.0 * (self.busy - before.busy) / all, 100.0 * (self.waiting - before.waiting) / all)
    }
}

/// Where the hierarchy that `controller` is in is mounted, and the control group of `pid` in it: v1 where it is there, else v2.
fn group_of(pid: u32, controller: &str) -> Result<(PathBuf, String)> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let lines = || groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let v1 = lines().find(|(names, _)| names.split(',').any(|name| name == controller));
    let (_, path) = v1.or_else(|| lines().find(|(names, _)| names.is_empty())).context("no control group")?;
    let base = if v1.is_some() { Path::new("/sys/fs/cgroup").join(controller) } else { PathBuf::from("/sys/fs/cgroup") };
    Ok((base, path.trim_start_matches('/').to_owned()))
}

/// The memory control group of a process, to put it under pressure.
pub struct MemoryGroup {
    folder: PathBuf,
    limit: &'static str,
}

impl MemoryGroup {
    /// The one that `pid` is in: v1 where its controller is mounted, else v2.
    pub fn of(pid: u32) -> Result<Self> {
        let (base, path) = group_of(pid, "memory")?;
        let limit = if base.ends_with("memory") { "memory.limit_in_bytes" } else { "memory.high" };
        Ok(Self { folder: base.join(path), limit })
    }

    /// The group around it.
    pub fn parent(&self) -> Result<Self> {
        Ok(Self { folder: self.folder.parent().context("it is the root")?.to_owned(), limit: self.limit })
    }

    /// Has the kernel page it out like any other, with swap's default readiness. Whoever weal runs is not: it opens swap only while it pages out
    /// itself, until it sets the instance's limits the next time.
    pub fn open_swap(&self) -> Result<()> {
        let v1 = self.folder.join("memory.swappiness");
        let (file, open) = if v1.exists() { (v1, "60") } else { (self.folder.join("memory.swap.max"), "max") };
        fs::write(&file, open).with_context(|| format!("cannot write to {}", file.display()))
    }

    /// Sets how much memory it may have; the kernel pages out what is more, the least recently used first.
    pub fn limit(&self, bytes: u64) -> Result<()> {
        let file = self.folder.join(self.limit);
        fs::write(&file, bytes.to_string()).with_context(|| format!("cannot write {bytes} to {}", file.display()))
    }
}

/// Drops what the machine has cached of files, so that the next reads come from the disk.
pub fn drop_file_cache() -> Result<()> {
    rustix_sync();
    fs::write("/proc/sys/vm/drop_caches", "1").context("cannot drop the page cache")
}

fn rustix_sync() {
    // What is dirty cannot be dropped.
    let _ = Command::new("sync").status();
}

/// How long a competitor spins and rests.
const SPIN_PERIOD: Duration = Duration::from_millis(10);

/// Processes that spin until this is dropped, in the control groups that the measurement is in when they start.
pub struct Competitors(Vec<Child>);

impl Competitors {
    /// Starts so many.
    pub fn start(count: usize) -> Result<Self> {
        Self::start_at(count, 1.0)
    }

    /// Starts so many, which spin for `share` of each 10 ms only.
    pub fn start_at(count: usize, share: f64) -> Result<Self> {
        let mut started = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(std::env::current_exe()?);
            started.0.push(command.arg("spin").arg(share.to_string()).spawn().context("cannot start a competitor")?);
        }
        Ok(started)
    }
}

impl Drop for Competitors {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that is gone has ended with an error of its own.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a competitor does, until the measurement ends it or has ended itself.
pub fn spin(share: f64) {
    let parent = std::os::unix::process::parent_id();
    let mut next = Instant::now();
    while std::os::unix::process::parent_id() == parent {
        let until = Instant::now() + SPIN_PERIOD.mul_f64(share);
        while Instant::now() < until {}
        next = (next + SPIN_PERIOD).max(Instant::now());
        std::thread::sleep(if share < 1.0 { next - Instant::now() } else { Duration::ZERO });
    }
}

/// The file through which processes enter the control group that divides CPU for `pid`: v1 where its controller is mounted, else v2.
fn cpu_entrance(pid: u32) -> Result<PathBuf> {
    let (base, path) = group_of(pid, "cpu")?;
    Ok(base.join(path).join("cgroup.procs"))
}

/// Processes that share the CPU as another one does, until this is dropped: in the control group that divides it.
pub struct Moved {
    /// Where each of them was.
    places: Vec<(u32, PathBuf)>,
}

impl Moved {
    /// Brings them where `other` is.
    pub fn beside(other: u32, pids: &[u32]) -> Result<Self> {
        let (there, mut moved) = (cpu_entrance(other)?, Self { places: Vec::new() });
        for pid in pids {
            moved.places.push((*pid, cpu_entrance(*pid)?));
            move_to(&there, *pid)?;
        }
        Ok(moved)
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        for (pid, place) in &self.places {
            if let Err(error) = move_to(place, *pid) {
                eprintln!("error: process {pid} is not where it was: {error:#}");
            }
        }
    }
}

fn move_to(entrance: &Path, pid: u32) -> Result<()> {
    fs::write(entrance, pid.to_string()).with_context(|| format!("cannot move process {pid} to {}", entrance.display()))
}

/// Runs a program that must succeed.
pub fn call(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_and_waiting_are_shares_of_all_time() {
        let at = |text| CpuTimes::parse(text).unwrap();
        let (before, after) = (at("cpu  10 0 10 100 0 0 0 0 0 0\n"), at("cpu  30 0 20 150 20 0 0 0 0 0\ncpu0 1\n"));
        assert_eq!(after.percent_since(&before), (30.0, 20.0));
        assert!(CpuTimes::parse("").is_none());
    }
}
