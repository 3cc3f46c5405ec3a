//! The package for Debian: installed, upgraded under load and removed on a copy of this machine, with this machine's dpkg.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::load::Load;
use crate::pool::{copy_program, copy_program_with, echo_app, echo_program, free_ports, text};

/// This machine's files with all changes in memory, in namespaces of its own. What was started in it ends with it.
struct Copy {
    holder: Child,
    namespaces: &'static [&'static str],
    /// The number of its first process, as seen from here.
    first: String,
    _folder: TempDir,
}

/// `$1` is where its files are mounted meanwhile. Pools of this machine are none of its own, and neither is its systemd. The changes can be seen
/// at `/media`.
const MOUNT: &str = r#"
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
rm -rf var/lib/weal
mount -t proc proc proc
for folder in sys dev; do mount --rbind "/$folder" "$folder"; done
for folder in run tmp; do mount -t tmpfs tmpfs "$folder"; done
mount --bind "$1/upper" media
pivot_root . mnt
umount -l mnt
echo ready
exec sleep 3600
"#;

impl Copy {
    /// Of which kinds it has namespaces of its own, as options of `unshare` and `nsenter` name them. `None` where this user or this machine has
    /// no such thing, which is said.
    fn make(namespaces: &'static [&'static str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut unshare = Command::new("unshare");
        unshare.args(namespaces).args(["--fork", "--kill-child", "sh", "-ec", MOUNT, "sh"]).arg(folder.path());
        let holder = unshare.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut holder) = holder else {
            weal_testing::skip("there is no unshare (Debian package util-linux)");
            return None;
        };
        let mut said = std::io::BufReader::new(holder.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        if line.trim() != "ready" {
            let output = holder.wait_with_output().unwrap();
            weal_testing::skip(format_args!("this user cannot make a copy of this machine: {}", text(&output.stderr).trim()));
            return None;
        }
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.id())).unwrap();
        Some(Self { holder, namespaces, first: children.trim().to_owned(), _folder: folder })
    }

    /// Where its file `path` is for this process.
    fn path(&self, path: &str) -> PathBuf {
        Path::new("/proc").join(&self.first).join("root").join(path.trim_start_matches('/'))
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(self.namespaces).args(["--root", "--wdns=/", "--target", &self.first, "--"]).args(words);
        command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).output().unwrap()
    }

    /// What it prints; it has to succeed.
    fn sure(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Files that are there now and were not, or are not what they were; not dpkg's own books.
    fn changed(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        self.collect("", &mut found);
        found
    }

    fn collect(&self, folder: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(self.path(&format!("media/{folder}"))).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if BOOKS.iter().any(|book| path.starts_with(book)) {
                continue;
            }
            let was_there = Path::new(&path).exists();
            if entry.file_type().unwrap().is_dir() {
                self.collect(&path, found);
                found.extend((!was_there).then(|| path.clone()));
            } else if std::fs::read(&path).ok() != std::fs::read(entry.path()).ok() {
                found.insert(path);
            }
        }
    }
}

/// What dpkg, or programs that it calls, write about themselves; backups of `/etc/passwd`; and the folder that was emptied for the pools.
const BOOKS: [&str; 10] = [
    "/var/lib/dpkg",
    "/var/log",
    "/var/cache",
    "/var/backups",
    "/var/lib/weal",
    "/etc/passwd-",
    "/etc/group-",
    "/etc/shadow-",
    "/etc/gshadow-",
    "/etc/.pwd.lock",
];

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// The package of `program` as `version`, in `folder`; `None`, and said, where the packager cannot be built.
fn package(program: &Path, version: &str, folder: &Path) -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        weal_testing::skip("packages are made by nfpm, and there is no `go` to build it with");
        return None;
    }
    let made = Command::new(xtask())
        .args(["dist", "--format", "deb", "--package-version", version, "--program"])
        .arg(program)
        .arg("--to")
        .arg(folder)
        .output()
        .unwrap();
    let said = text(&made.stderr);
    if said.contains("cannot build github.com/") {
        weal_testing::skip(format_args!("{said}"));
        return None;
    }
    assert!(made.status.success(), "{said}");
    Some(PathBuf::from(text(&made.stdout).trim()))
}

/// Cargo builds it with everything, beside this test's own folder.
fn xtask() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("xtask");
    if !program.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "xtask"]).status();
        assert!(built.unwrap().success(), "cannot build xtask");
    }
    program
}

/// The same code as another file, as another version would be.
fn next_program(folder: &Path) -> PathBuf {
    let next = folder.join("weal");
    copy_program_with(Path::new(env!("CARGO_BIN_EXE_weal")), "next", &next);
    next
}

/// Puts the application in place and the config where the package has it. Returns the port at which the pool listens.
fn write_config(copy: &Copy) -> u16 {
    let [listen, api] = free_ports();
    copy_program(&echo_program(), &copy.path("/srv/echo"));
    let app = echo_app("echo", "").replace(&echo_program().display().to_string(), "/srv/echo");
    let text = format!("[pool]\nlisten = \"127.0.0.1:{listen}\"\napi = \"127.0.0.1:{api}\"\nflow-cycle = \"1s\"\n\n{app}");
    std::fs::write(copy.path("/etc/weal/weal.toml"), text).unwrap();
    listen
}

fn pids(copy: &Copy, state: &str) -> Vec<Value> {
    let record: Value = serde_json::from_slice(&std::fs::read(copy.path(&format!("{state}/supervisor.json"))).unwrap()).unwrap();
    let roles = record["roles"].as_array().unwrap().iter().map(|role| role["pid"].clone());
    std::iter::once(record["pid"].clone()).chain(roles).collect()
}

#[test]
fn the_package_is_installed_upgraded_under_load_without_a_loss_and_removed_without_a_trace() {
    let Some(copy) = Copy::make(&["--mount", "--pid"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (first, next) = (Path::new(env!("CARGO_BIN_EXE_weal")), next_program(folder.path()));
    let Some(first) = package(first, "1.0.0", folder.path()) else { return };
    let next = package(&next, "1.1.0", folder.path()).unwrap();
    std::fs::copy(first, copy.path("/tmp/first.deb")).unwrap();
    std::fs::copy(next, copy.path("/tmp/next.deb")).unwrap();
    let untouched = copy.changed();

    copy.sure(&["dpkg", "--no-triggers", "--install", "/tmp/first.deb"]);
    copy.sure(&["getent", "passwd", "weal-gateway", "weal-controller"]);
    verify_unit(&copy);
    let listen = write_config(&copy);
    copy.sure(&["weal", "up", "--detach", "--file", "/etc/weal/weal.toml"]);
    let state = copy.sure(&["sh", "-c", "echo /var/lib/weal/*"]).trim().to_owned();
    let groups = copy.sure(&["sh", "-c", "cat /proc/[0-9]*/cgroup | grep -o 'weal-[0-9a-f]*' | sort -u"]);
    let before = pids(&copy, &state);
    let load = Load::start(listen, "echo.localhost", "/", 8);
    load.wait_for(200);

    copy.sure(&["dpkg", "--no-triggers", "--install", "/tmp/next.deb"]);
    let after = pids(&copy, &state);
    assert!(before[0] == after[0] && (1..4).all(|role| before[role] != after[role]), "{before:?} {after:?}");
    load.wait_for(200);
    let tally = load.finish();
    assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);

    copy.sure(&["dpkg", "--no-triggers", "--remove", "weal"]);
    let left = copy.sure(&["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]);
    assert!(!left.contains("weal ") && !left.contains("/srv/echo"), "{left}");
    for group in groups.split_whitespace() {
        let found = copy.sure(&["find", "/sys/fs/cgroup", "-maxdepth", "4", "-type", "d", "-name", group]);
        assert!(found.is_empty(), "{found}");
    }
    assert!(copy.path("/etc/weal/weal.toml").exists() && copy.path(&state).exists(), "config and state are the administrator's");
    assert!(!copy.path("/usr/bin/weal").exists());

    remove_what_no_record_tells_of(&copy, &state, listen);
    copy.sure(&["dpkg", "--no-triggers", "--purge", "weal"]);
    assert!(!copy.path("/var/lib/weal").exists());
    std::fs::remove_file(copy.path("/srv/echo")).unwrap();
    let more: Vec<String> = copy.changed().difference(&untouched).cloned().collect();
    assert!(more.is_empty(), "{more:?}");
}

/// Answers at once, on HTTP/1.1.
const PROGRAM: &str = r#"
import http.server, os

class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Answer).serve_forever()
"#;

/// The commands of the README's first steps. How long they took is said.
#[test]
fn the_package_and_five_commands_lead_from_nothing_to_a_held_goal() {
    let Some(copy) = Copy::make(&["--mount", "--pid", "--net"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(package) = package(Path::new(env!("CARGO_BIN_EXE_weal")), "1.0.0", folder.path()) else { return };
    std::fs::copy(package, copy.path("/tmp/weal.deb")).unwrap();
    std::fs::create_dir(copy.path("/srv/shop")).unwrap();
    std::fs::write(copy.path("/srv/shop/app.py"), PROGRAM).unwrap();
    copy.sure(&["ip", "link", "set", "lo", "up"]);
    let in_shop =
        |command: &str| copy.sure(&["sh", "-c", &format!("cd /srv/shop && PATH=/usr/sbin:/usr/bin:/sbin:/bin {command}")]);

    let began = Instant::now();
    copy.sure(&["dpkg", "--no-triggers", "--install", "/tmp/weal.deb"]);
    in_shop("weal init");
    in_shop("weal validate");
    in_shop("weal up -d");
    in_shop("weal load shop --rate 20/s");
    let why = in_shop("weal why shop");
    assert!(why.starts_with("shop meets its goal"), "{why}");
    println!("from the package to a held goal in {:.1} s of commands: {why}", began.elapsed().as_secs_f64());
    in_shop("weal down");
}

/// Removes the package while an instance runs on whose pool has neither roles nor a record, beside the folder of a pool that does not run.
fn remove_what_no_record_tells_of(copy: &Copy, state: &str, listen: u16) {
    copy.sure(&["dpkg", "--no-triggers", "--install", "/tmp/next.deb"]);
    copy.sure(&["weal", "up", "--detach", "--file", "/etc/weal/weal.toml"]);
    let load = Load::start(listen, "echo.localhost", "/", 1);
    load.wait_for(10);
    drop(load.finish());
    for pid in pids(copy, state) {
        copy.sure(&["kill", "-9", &pid.to_string()]);
    }
    std::fs::remove_file(copy.path(&format!("{state}/supervisor.json"))).unwrap();
    std::fs::create_dir(copy.path("/var/lib/weal/another")).unwrap();
    let runs = || copy.sure(&["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).contains("/srv/echo");
    assert!(runs(), "it hangs on a shim of its own");
    copy.sure(&["dpkg", "--no-triggers", "--remove", "weal"]);
    assert!(!runs() && !copy.path("/usr/bin/weal").exists());
}

fn verify_unit(copy: &Copy) {
    let unit = std::fs::read_to_string(copy.path("/usr/lib/systemd/system/weal.service")).unwrap();
    assert!(
        unit.contains("\nDelegate=yes\n") && unit.contains("ExecStart=/usr/bin/weal up --file /etc/weal/weal.toml\n"),
        "{unit}"
    );
    let verified = copy.run(&["systemd-analyze", "verify", "/usr/lib/systemd/system/weal.service"]);
    if copy.run(&["systemd-analyze", "--version"]).status.success() {
        assert!(verified.status.success(), "{}", text(&verified.stderr));
    } else {
        weal_testing::skip("there is no systemd-analyze to verify the unit with");
    }
}
