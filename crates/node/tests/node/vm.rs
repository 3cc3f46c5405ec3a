//! The same cases on a kernel with cgroup v2 and swap, in a virtual machine, where this machine has them not; and those that
//! need a machine for themselves, because they fill its swap or use up its memory.
//!
//! Debian's cloud kernel is downloaded once into `target/vm` and booted by qemu. There is no disk but for swap: the initial RAM
//! disk holds the fixture as `init`, this test program, a shell, and the libraries that they need.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::bench::{Bench, fixture};

/// A boot with all cases takes five minutes on an idle machine; emulated processors on a busy one are slow.
const PATIENCE: Duration = Duration::from_secs(900);

/// Vector instructions are emulated one element after the other, so that the C library's copies by AVX take longer than those without.
const PROCESSOR: &str = "max,-avx,-avx2,-erms,-fsrm";
/// No detours against attacks on real processors, which an emulated one takes hard; the processor's own clock, since every other is emulated
/// hardware, and is read for each of the program's timers; and no waiting for the kernel's grace periods.
const KERNEL: &str = "mitigations=off tsc=reliable clocksource=tsc rcupdate.rcu_expedited=1";

/// Where such a machine swaps to.
pub enum Swap {
    /// A RAM disk: what matters is what the node agent does, not how fast the disk is.
    Memory,
    /// A disk of so many bytes, which takes and gives at most so many in a second; `None` is as many as this machine's.
    Disk {
        /// Its size in bytes.
        bytes: u64,
        /// Bytes in a second, in both directions together.
        bytes_per_second: Option<u64>,
    },
}

/// A machine to boot.
pub struct VirtualMachine {
    /// How its control groups are laid out: `unified` or `hybrid`.
    pub layout: &'static str,
    /// Its memory in MiB. The initial disk takes about a hundred of it.
    pub memory_mib: u64,
    /// Its swap.
    pub swap: Swap,
}

/// Runs `case`, which is the test called `name`, on a machine of its own.
pub fn alone(name: &str, machine: &VirtualMachine, case: fn(&Bench)) {
    if std::env::var_os("WEAL_VM").is_none() {
        return boot(machine, name);
    }
    let bench = Bench::new("cgroup-v2").or_else(|| Bench::new("cgroup-hybrid"));
    case(&bench.expect("one of them is what it was booted for"));
}

/// Boots `machine` and runs the cases that match `tests` in it.
pub fn boot(machine: &VirtualMachine, tests: &str) {
    if std::env::var_os("WEAL_VM").is_some() {
        return;
    }
    let Some(qemu) = in_path("qemu-system-x86_64").filter(|_| cfg!(target_arch = "x86_64")) else {
        return say("skipped: qemu-system-x86_64 is not installed (apt-get install qemu-system-x86)");
    };
    let kernel = match kernel() {
        Ok(kernel) => kernel,
        Err(reason) => return say(&format!("skipped: no kernel to boot: {reason}")),
    };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("initrd");
    fs::write(&image, initial_disk(&kernel)).unwrap();
    let mut command = Command::new(qemu);
    command.args([
        "-accel",
        "tcg",
        "-cpu",
        PROCESSOR,
        "-smp",
        "2",
        "-nographic",
        "-no-reboot",
        "-nodefaults",
        "-serial",
        "stdio",
    ]);
    command.args(["-m", &machine.memory_mib.to_string()]);
    command.arg("-kernel").arg(kernel.join("vmlinuz")).arg("-initrd").arg(image);
    let swap = attach_swap(&mut command, &machine.swap, folder.path());
    let words = format!("weal.layout={} weal.swap={swap} weal.tests={tests}", machine.layout);
    let words = format!("console=ttyS0 quiet panic=-1 {KERNEL} {words}");
    command.args(["-append", &words]);
    let (mut output, mut seconds) = run(&mut command);
    if summary(&output).is_none() {
        // An emulated machine has stood still, once, and not again in fifty boots. A case of ours that hangs does so again.
        say(&format!("a virtual machine stood still for {seconds:.0} s and is booted once more; it said:\n{output}"));
        (output, seconds) = run(&mut command);
    }
    let summary = summary(&output).unwrap_or("no summary");
    say(&format!("{} in a virtual machine: {summary} ({seconds:.0} s with boot)", machine.layout));
    assert!(output.contains("WEAL-VM result 0") && !summary.contains(" 0 passed"), "{output}");
    assert!(!output.contains("skipped:") && !output.contains("has no swap"), "a case was skipped there:\n{output}");
}

/// What the tests in the machine ended with.
fn summary(output: &str) -> Option<&str> {
    output.lines().find(|line| line.starts_with("test result:"))
}

/// Past the capture of the test harness: what was skipped shall be seen.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Gives the machine a disk to swap to; the device that `swap` will be there.
fn attach_swap(command: &mut Command, swap: &Swap, folder: &Path) -> &'static str {
    let Swap::Disk { bytes, bytes_per_second } = swap else { return "/dev/ram0" };
    let file = folder.join("swap");
    fs::File::create(&file).unwrap().set_len(*bytes).unwrap();
    let limit = bytes_per_second.map(|rate| format!(",throttling.bps-total={rate}")).unwrap_or_default();
    command.arg("-drive").arg(format!("if=none,id=swap,format=raw,cache=unsafe,file={}{limit}", file.display()));
    command.args(["-device", "nvme,drive=swap,serial=weal"]);
    "/dev/nvme0n1"
}

fn run(command: &mut Command) -> (String, f64) {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let began = Instant::now();
    let mut stdout = child.stdout.take().unwrap();
    let said = Mutex::new(Vec::new());
    let text = || String::from_utf8_lossy(&said.lock().unwrap()).replace('\r', "");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut piece) {
                said.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        while child.try_wait().unwrap().is_none() && began.elapsed() < PATIENCE && !stands_still(&text()) {
            std::thread::sleep(Duration::from_millis(100));
        }
        // It is over, or takes too long.
        let _ = child.kill();
        child.wait().unwrap();
    });
    (text(), began.elapsed().as_secs_f64())
}

/// Both emulated processors have been in the kernel, without a way out, for a minute and a half: its watchdog tells it of each after 26 s and
/// every 28 s from then on.
fn stands_still(output: &str) -> bool {
    output.matches("watchdog: BUG: soft lockup").count() >= 8
}

/// A folder with `vmlinuz` and `brd.ko` of Debian's cloud kernel.
fn kernel() -> Result<PathBuf, String> {
    let tests = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = tests.ancestors().nth(3).ok_or("this test runs outside of a target folder")?;
    let folder = target.join("vm");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    // Both tests may come here at once.
    let lock = fs::File::create(folder.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    if folder.join("vmlinuz").exists() && folder.join("brd.ko").exists() {
        return Ok(folder);
    }
    let depends = output(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).ok_or("apt knows no kernel")?.to_owned();
    output(Command::new("apt-get").args(["download", "-q", &package]).current_dir(&folder))?;
    let archive = find(&folder, &|name| name.ends_with(".deb")).ok_or("apt-get download left no package")?;
    output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(folder.join("unpacked")))?;
    for (name, matches) in [("brd.ko", "brd.ko"), ("vmlinuz", "vmlinuz-")] {
        let file = find(&folder.join("unpacked"), &|found| found.starts_with(matches)).ok_or(format!("no {matches} in it"))?;
        fs::copy(file, folder.join(name)).map_err(|error| error.to_string())?;
    }
    let _ = fs::remove_dir_all(folder.join("unpacked"));
    let _ = fs::remove_file(archive);
    Ok(folder)
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
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

fn in_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Everything that runs in there, as a cpio archive.
fn initial_disk(kernel: &Path) -> Vec<u8> {
    let own = std::env::current_exe().unwrap();
    let programs = [
        ("init".to_owned(), fixture()),
        ("weal/tests".to_owned(), own),
        ("weal/node_fixture".to_owned(), fixture()),
        ("bin/sh".to_owned(), fs::canonicalize("/bin/sh").unwrap()),
        ("bin/true".to_owned(), fs::canonicalize("/bin/true").unwrap()),
    ];
    let mut files = programs.to_vec();
    for (_, program) in &programs {
        for library in libraries(program) {
            let name = library.display().to_string().trim_start_matches('/').to_owned();
            if !files.iter().any(|(known, _)| *known == name) {
                files.push((name, library));
            }
        }
    }
    files.push(("weal/brd.ko".to_owned(), kernel.join("brd.ko")));
    let mut archive = Archive::default();
    for (name, path) in files {
        archive.add_file(&name, &fs::read(&path).unwrap());
    }
    archive.add_file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n");
    archive.add_file("etc/group", b"root:x:0:\nnogroup:x:65534:\n");
    archive.finish()
}

fn libraries(program: &Path) -> Vec<PathBuf> {
    let text = output(Command::new("ldd").arg(program)).unwrap_or_default();
    let words = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.map(PathBuf::from).collect()
}

/// A cpio archive in the `newc` format, which the kernel unpacks (Documentation/driver-api/early-userspace/buffer-format).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: Vec<String>,
    next: u32,
}

impl Archive {
    fn add_file(&mut self, name: &str, content: &[u8]) {
        let mut parents: Vec<&str> = name.match_indices('/').map(|(at, _)| &name[..at]).collect();
        parents.retain(|parent| !self.folders.iter().any(|known| known == parent));
        for parent in parents {
            self.add(parent, 0o040_755, &[]);
            self.folders.push(parent.to_owned());
        }
        self.add(name, 0o100_755, content);
    }

    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.next += 1;
        let (size, name_size) = (u32::try_from(content.len()).unwrap(), u32::try_from(name.len() + 1).unwrap());
        let fields = [self.next, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}
