//! What a measurement takes of the machine, and gives back: swap on a file or in compressed memory, and CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weal_host::Proc;
use weal_host::machine::CpuTimes;

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
        let present = weal_host::swap::of_this_machine();
        ensure!(present.is_empty(), "this machine has swap already: swapoff it for the measurement ({present:?})");
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
    let proc = Proc::system();
    let (model, cores) = (proc.cpu_model(), std::thread::available_parallelism()?);
    let virtual_one = if model.is_virtual { "a virtual machine, " } else { "" };
    let memory = proc.memory().total.context("the kernel does not tell how much memory there is")?;
    Ok(format!("{virtual_one}{cores} CPUs ({}), {} GiB, Linux {}", model.name, memory.0 >> 30, proc.kernel_release()))
}

/// So many CPUs.
pub fn cpus() -> Result<usize> {
    Ok(std::thread::available_parallelism()?.get())
}

/// CPU-seconds that `pid` has used: user and system.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = Proc::system().stat(pid).with_context(|| format!("process {pid} is gone"))?;
    Ok(stat.own_seconds())
}

/// What all CPUs have done since the machine came up.
pub fn cpu_times() -> Result<CpuTimes> {
    Proc::system().cpu_times().context("/proc/stat")
}

/// Where the hierarchy that `controller` is in is mounted, and the control group of `pid` in it: v1 where it is there, else v2.
fn group_of(pid: u32, controller: &str) -> Result<(PathBuf, String)> {
    let groups = Proc::system().cgroups(pid)?;
    let top = Path::new("/sys/fs/cgroup");
    let (base, path) = match groups.v1(controller) {
        Some(path) => (top.join(controller), path),
        None => (top.to_owned(), groups.v2().context("no control group")?),
    };
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
