//! The same cases on a kernel with cgroup v2 and swap, in a virtual machine, where this machine has them not; and those that
//! need a machine for themselves, because they fill its swap or use up its memory.
//!
//! There is no disk but for swap: the initial RAM disk holds the fixture as `init`, this test program, a shell, and the libraries that they need.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weal_emulated::{self as emulated, Emulator, Run};

use crate::bench::{Bench, fixture};

/// A boot with all cases takes five minutes on an idle machine; emulated processors on a busy one are slow.
const PATIENCE: Duration = Duration::from_secs(900);

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

/// Runs `case`, which is the test called `name`, on a machine of its own. One of the hybrid layout is booted only when all are wanted: it differs
/// from the other in its control groups alone, and takes three minutes of `make test`.
pub fn alone(name: &str, machine: &VirtualMachine, case: fn(&Bench)) {
    if std::env::var_os("WEAL_VM").is_none() {
        if machine.layout == "hybrid" && std::env::var_os("WEAL_ALL_MACHINES").is_none() {
            return weal_testing::skip(format_args!("{name} runs with `cargo xtask machine --hybrid`"));
        }
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
    let emulator = match Emulator::prepare(&target()) {
        Ok(emulator) => emulator,
        Err(missing) => return weal_testing::skip(missing),
    };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("initrd");
    fs::write(&image, initial_disk(&emulator)).unwrap();
    let device = if matches!(machine.swap, Swap::Disk { .. }) { "/dev/nvme0n1" } else { "/dev/ram0" };
    let words = format!("weal.layout={} weal.swap={device} weal.tests={tests}", machine.layout);
    let mut command = emulator.machine(machine.memory_mib, &words);
    command.arg("-initrd").arg(image);
    attach_swap(&mut command, &machine.swap, folder.path());
    let mut run = || emulated::run(&mut command, PATIENCE, |_| ()).unwrap();
    let Run { mut output, mut seconds } = run();
    if summary(&output).is_none() {
        // An emulated machine has stood still, once, and not again in fifty boots. A case of ours that hangs does so again.
        say(&format!("a virtual machine stood still for {seconds:.0} s and is booted once more; it said:\n{output}"));
        Run { output, seconds } = run();
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

/// Past the capture of the test runner: whoever waits for minutes shall see for what.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Gives the machine a disk to swap to.
fn attach_swap(command: &mut Command, swap: &Swap, folder: &Path) {
    let Swap::Disk { bytes, bytes_per_second } = swap else { return };
    let file = folder.join("swap");
    fs::File::create(&file).unwrap().set_len(*bytes).unwrap();
    let limit = bytes_per_second.map(|rate| format!(",throttling.bps-total={rate}")).unwrap_or_default();
    command.arg("-drive").arg(format!("if=none,id=swap,format=raw,cache=unsafe,file={}{limit}", file.display()));
    command.args(["-device", "nvme,drive=swap,serial=weal"]);
}

/// The folder that cargo builds in: this program is in `debug/deps` of it.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// Everything that runs in there, as a cpio archive.
fn initial_disk(emulator: &Emulator) -> Vec<u8> {
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
        for library in emulated::libraries(program) {
            let name = library.display().to_string().trim_start_matches('/').to_owned();
            if !files.iter().any(|(known, _)| *known == name) {
                files.push((name, library));
            }
        }
    }
    files.push(("weal/brd.ko".to_owned(), emulator.module("brd.ko")));
    let mut archive = Archive::default();
    for (name, path) in files {
        archive.add_file(&name, &fs::read(&path).unwrap());
    }
    archive.add_file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n");
    archive.add_file("etc/group", b"root:x:0:\nnogroup:x:65534:\n");
    archive.finish()
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
