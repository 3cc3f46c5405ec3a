//! What the benchmark takes of the machine, and gives back: swap on a file or in compressed memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Drops what the machine has cached of files, so that the next reads come from the disk.
pub fn drop_file_cache() -> Result<()> {
    rustix_sync();
    fs::write("/proc/sys/vm/drop_caches", "1").context("cannot drop the page cache")
}

fn rustix_sync() {
    // What is dirty cannot be dropped.
    let _ = Command::new("sync").status();
}

/// Runs a program that must succeed.
pub fn call(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
