//! Machines that qemu emulates, for tests that need another kernel than this machine's: control groups of v2 alone, swap of their own.
//!
//! Debian's cloud kernel is downloaded once into `target/vm`. What runs in a machine is the caller's: an initial RAM disk, or a disk.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Vector instructions are emulated one element after the other, so that the C library's copies by AVX take longer than those without.
const PROCESSOR: &str = "max,-avx,-avx2,-erms,-fsrm";
/// No detours against attacks on real processors, which an emulated one takes hard; the processor's own clock, since every other is emulated
/// hardware, and is read for each of the program's timers; and no waiting for the kernel's grace periods.
const WORDS: &str = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable clocksource=tsc rcupdate.rcu_expedited=1";
/// What is taken from the package of the kernel: the kernel, and the module for RAM disks.
const PARTS: [(&str, &str); 2] = [("brd.ko", "brd.ko"), ("vmlinuz", "vmlinuz-")];

/// Why no machine can be emulated here.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// The emulator.
    #[error("qemu-system-x86_64 is not installed (apt-get install qemu-system-x86)")]
    Qemu,
    /// Something else than an x86-64.
    #[error("only an x86-64 is emulated here")]
    Architecture,
    /// A command that fetches or unpacks the kernel failed.
    #[error("no kernel to boot: {command}: {detail}")]
    Command {
        /// Which.
        command: String,
        /// What it said.
        detail: String,
    },
    /// A package without what it should hold.
    #[error("no kernel to boot: there is no {0}")]
    Part(&'static str),
    /// The folder for it cannot be used.
    #[error("no kernel to boot: {0}")]
    Io(#[from] io::Error),
}

/// What it takes to emulate a machine.
#[derive(Debug, Clone)]
pub struct Emulator {
    qemu: PathBuf,
    kernel: PathBuf,
}

impl Emulator {
    /// Fetches the kernel into the folder `vm` of `target`, unless it is there.
    ///
    /// # Errors
    /// What is missing.
    pub fn prepare(target: &Path) -> Result<Self, Missing> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Missing::Architecture);
        }
        let qemu = in_path("qemu-system-x86_64").ok_or(Missing::Qemu)?;
        Ok(Self { qemu, kernel: kernel(&target.join("vm"))? })
    }

    /// A file of the kernel's package: `brd.ko`.
    pub fn module(&self, name: &str) -> PathBuf {
        self.kernel.join(name)
    }

    /// The command that runs a machine with two processors, `memory_mib` MiB, and `words` for the kernel. Its console is the command's output.
    pub fn machine(&self, memory_mib: u64, words: &str) -> Command {
        let mut command = Command::new(&self.qemu);
        command.args(["-accel", "tcg", "-cpu", PROCESSOR, "-smp", "2"]);
        command.args(["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]);
        command.args(["-m", &memory_mib.to_string()]).arg("-kernel").arg(self.kernel.join("vmlinuz"));
        command.args(["-append", &format!("{WORDS} {words}")]);
        command
    }
}

/// A machine's life.
#[derive(Debug)]
pub struct Run {
    /// What its console showed.
    pub output: String,
    /// How long it took.
    pub seconds: f64,
}

/// Runs a machine until it ends by itself, stands still, or has taken `patience`. `tell` gets each piece of its console as it comes.
///
/// # Errors
/// The emulator cannot be started.
pub fn run(command: &mut Command, patience: Duration, tell: impl Fn(&str) + Sync) -> io::Result<Run> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
    let began = Instant::now();
    let mut stdout = child.stdout.take();
    let said = Mutex::new(Vec::new());
    let text = || String::from_utf8_lossy(&locked(&said)).replace('\r', "");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut piece = [0; 4096];
            while let Some(Ok(count @ 1..)) = stdout.as_mut().map(|stdout| stdout.read(&mut piece)) {
                locked(&said).extend_from_slice(&piece[..count]);
                tell(&String::from_utf8_lossy(&piece[..count]).replace('\r', ""));
            }
        });
        while child.try_wait()?.is_none() && began.elapsed() < patience && !stands_still(&text()) {
            std::thread::sleep(Duration::from_millis(100));
        }
        // It is over, or takes too long.
        let _ = child.kill();
        child.wait()
    })?;
    Ok(Run { output: text(), seconds: began.elapsed().as_secs_f64() })
}

fn locked(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both emulated processors have been in the kernel, without a way out, for a minute and a half: its watchdog tells it of each after 26 s and
/// every 28 s from then on.
fn stands_still(output: &str) -> bool {
    output.matches("watchdog: BUG: soft lockup").count() >= 8
}

/// The libraries that a program is linked to.
pub fn libraries(program: &Path) -> Vec<PathBuf> {
    let text = output(Command::new("ldd").arg(program)).unwrap_or_default();
    let words = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.map(PathBuf::from).collect()
}

/// Where a program is, by `$PATH`.
pub fn in_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A folder with the [`PARTS`] of Debian's cloud kernel.
fn kernel(folder: &Path) -> Result<PathBuf, Missing> {
    fs::create_dir_all(folder)?;
    // Several tests may come here at once.
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock()?;
    if PARTS.iter().all(|(name, _)| folder.join(name).exists()) {
        return Ok(folder.to_owned());
    }
    let depends = output(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.ok_or(Missing::Part("package linux-image-cloud-amd64"))?.to_owned();
    output(Command::new("apt-get").args(["download", "-q", &package]).current_dir(folder))?;
    let archive = find(folder, &|name| name.ends_with(".deb")).ok_or(Missing::Part("package after apt-get download"))?;
    output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(folder.join("unpacked")))?;
    for (name, begin) in PARTS {
        let file = find(&folder.join("unpacked"), &|found| found.starts_with(begin)).ok_or(Missing::Part(name))?;
        fs::copy(file, folder.join(name))?;
    }
    let _ = fs::remove_dir_all(folder.join("unpacked"));
    let _ = fs::remove_file(archive);
    Ok(folder.to_owned())
}

fn output(command: &mut Command) -> Result<String, Missing> {
    let text = format!("{command:?}").replace('"', "");
    let failed = |detail: String| Missing::Command { command: text, detail };
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn find(folder: &Path, matches: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let kind = entry.file_type().ok()?;
        if kind.is_dir() {
            if let Some(found) = find(&path, matches) {
                return Some(found);
            }
        } else if kind.is_file() && entry.file_name().to_str().is_some_and(matches) {
            return Some(path);
        }
    }
    None
}
