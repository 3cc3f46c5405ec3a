//! `cargo xtask machine`: end-to-end tests on a machine with control groups of v2 alone, which qemu emulates.
//!
//! Its disk holds weal, the tests and their programs at the places where they are here, what the tests call of this machine's programs with their
//! libraries, and the few files of `/etc` that these read. Nothing of it comes back but what the console shows.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;
use weal_emulated::Emulator;

use crate::programs;

/// Those of the identities of roles and applications, of attackers, of faults, and of what may lose requests.
const TESTS: [&str; 15] = [
    "identity::",
    "attackers::",
    "confined::",
    "down::",
    "faults::",
    "disk::",
    "roles::",
    "adopt::",
    "environment::",
    "secrets::",
    "examples::the_demo",
    "api_tls::",
    "upgrade::",
    "deploy::a_needed_application_is_replaced",
    "deploy::the_config_of_a_holder_of_a_token",
];
/// What the tests call. Those that this machine lacks are left out, and a test that needs one says so.
const PROGRAMS: [&str; 63] = [
    "awk",
    "bash",
    "cat",
    "chmod",
    "chown",
    "cmp",
    "cp",
    "curl",
    "cut",
    "date",
    "dd",
    "echo",
    "env",
    "expr",
    "false",
    "find",
    "fsfreeze",
    "getent",
    "grep",
    "head",
    "hostname",
    "id",
    "ip",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mkfs.ext4",
    "mknod",
    "mount",
    "mv",
    "nohup",
    "nproc",
    "nsenter",
    "od",
    "openssl",
    "printf",
    "prlimit",
    "ps",
    "rm",
    "sed",
    "seq",
    "setpriv",
    "setsid",
    "sh",
    "sleep",
    "sort",
    "ss",
    "stat",
    "su",
    "sync",
    "tail",
    "test",
    "timeout",
    "touch",
    "tr",
    "true",
    "umount",
    "uname",
    "uniq",
    "unshare",
    "wc",
    "xargs",
];
const ETC: [&str; 7] = ["group", "login.defs", "nsswitch.conf", "passwd", "protocols", "services", "ssl/openssl.cnf"];
const FOLDERS: [&str; 14] = [
    "dev",
    "etc",
    "mnt",
    "proc",
    "root",
    "run",
    "srv",
    "sys",
    "tmp",
    "usr/bin",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "var/lib",
    "var/tmp",
];
const MEMORY_MIB: u64 = 2048;
const DISK_MIB: u64 = 2048;
/// How many times as long a test takes there. The tests wait so many times as long for what they wait for.
const SLOWNESS: u32 = 15;
const PATIENCE: Duration = Duration::from_secs(3600);
const DONE: &str = "weal-machine: tests ended with 0";

#[derive(clap::Args)]
pub struct Arguments {
    /// Tests whose names contain one of these; without any, those of identities, attackers and faults
    tests: Vec<String>,
    /// Instead, the node agent's cases that need a machine for themselves, on the hybrid layout of control groups; `make test` has those on v2
    #[arg(long, conflicts_with = "tests")]
    hybrid: bool,
}

/// Runs the tests there. False when one fails.
pub fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.hybrid {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--workspace", "--test", "node", "--", "on_hybrid::", "--test-threads", "1"]);
        return Ok(cargo.env("WEAL_ALL_MACHINES", "1").current_dir(programs::root()).status()?.success());
    }
    let emulator = Emulator::prepare(&programs::target())?;
    let tests = match arguments.tests.as_slice() {
        [] => TESTS.map(str::to_owned).to_vec(),
        some => some.to_vec(),
    };
    let folder = tempfile::Builder::new().prefix("weal-machine-").tempdir()?;
    let disk = make_disk(folder.path(), &build()?, &tests)?;
    let mut machine = emulator.machine(MEMORY_MIB, "root=/dev/nvme0n1 rw init=/init");
    machine.arg("-drive").arg(format!("if=none,id=disk,format=raw,cache=unsafe,file={}", disk.display()));
    machine.args(["-device", "nvme,drive=disk,serial=weal"]);
    let run = weal_emulated::run(&mut machine, PATIENCE, |piece| print!("{piece}"))?;
    let skipped = run.output.lines().filter(|line| line.starts_with("skipped:")).count();
    let result = run.output.lines().find(|line| line.starts_with("test result:")).unwrap_or("the tests did not end");
    println!("\ncontrol groups of v2 in an emulated machine, {:.0} s, {skipped} skipped: {result}", run.seconds);
    Ok(run.output.contains(DONE))
}

/// Builds as `make test` does; the program with the end-to-end tests.
fn build() -> Result<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--workspace", "--profile", "test", "--bins", "--tests", "--examples"]);
    ensure!(cargo.current_dir(programs::root()).status()?.success(), "cannot build weal");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--quiet", "--workspace", "--test", "e2e", "--no-run", "--message-format", "json"]);
    let output = cargo.current_dir(programs::root()).output()?;
    ensure!(output.status.success(), "cannot build the tests: {}", String::from_utf8_lossy(&output.stderr));
    let messages = Message::parse_stream(output.stdout.as_slice()).filter_map(Result::ok);
    let executables = messages.filter_map(|message| match message {
        Message::CompilerArtifact(artifact) if artifact.target.name == "e2e" => artifact.executable,
        _ => None,
    });
    Ok(executables.last().context("cargo names no program of the end-to-end tests")?.into_std_path_buf())
}

fn make_disk(folder: &Path, tests: &Path, names: &[String]) -> Result<PathBuf> {
    let root = Root(folder.join("root"));
    root.lay_out()?;
    for program in PROGRAMS.into_iter().filter_map(weal_emulated::in_path) {
        root.add_program(&program, &Path::new("/usr/bin").join(program.file_name().context("a program has a name")?))?;
    }
    root.add_python()?;
    for name in ETC.into_iter().filter(|name| Path::new("/etc").join(name).exists()) {
        let to = root.at(Path::new("/etc").join(name));
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::copy(Path::new("/etc").join(name), to)?;
    }
    fs::write(root.at("/etc/hosts"), "127.0.0.1 localhost\n")?;
    let built = programs::target().join("debug");
    for program in [tests.to_owned(), built.join("weal"), built.join("examples/echo"), built.join("examples/attacker")]
        .into_iter()
        .chain(["weal-demo-shop", "weal-demo-search", "weal-demo-feed"].map(|name| built.join(name)))
    {
        root.add_program(&program, &program)?;
    }
    for part in ["crates/cli/tests", "examples"] {
        root.add_folder(&programs::root().join(part))?;
    }
    let script = script(tests, names);
    fs::write(root.at("/init"), script)?;
    fs::set_permissions(root.at("/init"), fs::Permissions::from_mode(0o755))?;
    let disk = folder.join("disk");
    fs::File::create(&disk)?.set_len(DISK_MIB << 20)?;
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(&root.0).arg(&disk).status();
    ensure!(made.context("cannot run mkfs.ext4 (Debian package e2fsprogs)")?.success(), "mkfs.ext4 failed");
    Ok(disk)
}

/// The first process of the machine.
fn script(tests: &Path, names: &[String]) -> String {
    format!(
        "#!/bin/sh\n\
         export PATH=/usr/bin HOME=/root OPENSSL_CONF=/etc/ssl/openssl.cnf WEAL_TEST_SLOWNESS={SLOWNESS}\n\
         mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev\n\
         mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm\n\
         mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /tmp; chmod 1777 /tmp\n\
         mount -t cgroup2 cgroup2 /sys/fs/cgroup\n\
         ip link set lo up; hostname emulated\n\
         cd {folder}\n\
         RUST_TEST_THREADS=2 {tests} --show-output {names}\n\
         echo \"weal-machine: tests ended with $?\"\n\
         sync; echo o >/proc/sysrq-trigger; sleep 60\n",
        folder = programs::root().join("crates/cli").display(),
        tests = tests.display(),
        names = names.join(" "),
    )
}

/// What becomes the machine's root directory.
struct Root(PathBuf);

impl Root {
    /// The place of `path` of the machine.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }

    fn lay_out(&self) -> Result<()> {
        for folder in FOLDERS {
            fs::create_dir_all(self.0.join(folder))?;
        }
        for (link, to) in
            [("bin", "usr/bin"), ("sbin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("usr/sbin", "bin")]
        {
            symlink(to, self.0.join(link))?;
        }
        for folder in ["tmp", "var/tmp"] {
            fs::set_permissions(self.0.join(folder), fs::Permissions::from_mode(0o1777))?;
        }
        Ok(())
    }

    fn add_program(&self, program: &Path, at: &Path) -> Result<()> {
        self.add_file(program, at)?;
        // Most of a program is what only debuggers read.
        let _ = Command::new("strip").arg(self.at(at)).stderr(std::process::Stdio::null()).status();
        for library in weal_emulated::libraries(program) {
            self.add_file(&library, &library)?;
        }
        Ok(())
    }

    /// Debian's Python, where that is installed.
    fn add_python(&self) -> Result<()> {
        let python = Path::new("/usr/bin/python3");
        if python.exists() {
            self.add_program(python, python)?;
        }
        let folders = fs::read_dir("/usr/lib")?.flatten().map(|entry| entry.path());
        let is_library = |folder: &PathBuf| folder.to_string_lossy().starts_with("/usr/lib/python3.") && folder.is_dir();
        folders.filter(is_library).try_for_each(|folder| self.add_folder(&folder))
    }

    fn add_file(&self, file: &Path, at: &Path) -> Result<()> {
        let to = self.at(at);
        if !to.exists() {
            fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
            fs::copy(file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
        }
        Ok(())
    }

    fn add_folder(&self, folder: &Path) -> Result<()> {
        let to = self.at(folder);
        fs::create_dir_all(&to)?;
        let copied = Command::new("cp").args(["-a", "-L"]).arg(folder.join(".")).arg(to).status()?;
        ensure!(copied.success(), "cannot copy {}", folder.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_stands_where_it_is_here() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root(folder.path().join("root"));
        root.lay_out().unwrap();
        root.add_program(Path::new("/bin/true"), Path::new("/usr/bin/true")).unwrap();
        assert!(root.at("/bin/true").is_file());
        let shown = Command::new("ldd").arg("/bin/true").output().unwrap();
        if String::from_utf8_lossy(&shown.stdout).contains("libc.so") {
            assert!(weal_emulated::libraries(Path::new("/bin/true")).iter().all(|library| root.at(library).exists()));
        }
        let script = script(Path::new("target/debug/deps/e2e"), &["identity::".to_owned()]);
        assert!(script.contains("target/debug/deps/e2e --show-output identity::\n"), "{script}");
    }
}
