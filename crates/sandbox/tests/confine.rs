//! Real programs in the sandbox. Each says what it can do; as root with mounts of their own, as another user with Landlock alone.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Gid, Uid};
use weal_model::{Permit, SandboxSpec};
use weal_sandbox::{ConfinementSupport, Paths, SandboxPlan};

/// A user that owns nothing.
const STRANGER: u32 = 61_999;

/// The folders of one program, below /var/tmp or /tmp.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("weal-sandbox-").tempdir().unwrap();
        open_up(folder.path(), 0o755);
        let bench = Self { folder };
        for name in ["data", "cache", "private", "private/tmp", "private/var-tmp", "program"] {
            fs::create_dir(bench.path(name)).unwrap();
            open_up(&bench.path(name), 0o755);
        }
        for name in ["data", "cache", "private/tmp", "private/var-tmp"] {
            chown(bench.path(name), Some(STRANGER), Some(STRANGER)).unwrap();
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn plan(&self, spec: &SandboxSpec, machine: ConfinementSupport) -> SandboxPlan {
        let paths = Paths { data: self.path("data"), tmp: self.path("private"), keep: vec![self.path("program")] };
        SandboxPlan::new(spec, machine, &paths)
    }

    /// What a shell prints that runs `script` in the sandbox, errors among it.
    fn say(&self, plan: &SandboxPlan, script: &str) -> String {
        let mut file = fs::File::create(self.path("program/run.sh")).unwrap();
        writeln!(file, "{script}").unwrap();
        self.run(plan, &["sh", "run.sh"])
    }

    fn run(&self, plan: &SandboxPlan, argv: &[&str]) -> String {
        let sandbox = plan.clone().prepare().unwrap();
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]).current_dir(self.path("program")).env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("DATA", self.path("data")).stdin(Stdio::null());
        let enter = move || {
            let say = |error: weal_sandbox::Failure| {
                let _ = std::io::stderr().write_all(error.to_string().as_bytes());
                error.into_io()
            };
            sandbox.enter().map_err(say)?;
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(Gid::from_raw(STRANGER), Gid::from_raw(STRANGER), Gid::from_raw(STRANGER))?;
            rustix::thread::set_thread_res_uid(Uid::from_raw(STRANGER), Uid::from_raw(STRANGER), Uid::from_raw(STRANGER))?;
            rustix::thread::set_no_new_privs(true)?;
            sandbox.confine().map_err(say)
        };
        // SAFETY: the child allocates before it becomes the program; the C library restores its allocator's locks in it.
        unsafe { command.pre_exec(enter) };
        let output = command.output().unwrap_or_else(|error| panic!("{argv:?}: {error}"));
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

fn open_up(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The machine as it is, or the reason why the test cannot say anything.
fn machine() -> Option<ConfinementSupport> {
    let machine = ConfinementSupport::probe();
    if machine.is_root && machine.mounts && machine.filter {
        return Some(machine);
    }
    weal_testing::skip(format_args!(
        "a sandbox's mounts need root outside of a container, and filters of system calls: {machine:?}"
    ));
    None
}

fn skips_without(program: &str) -> bool {
    let is_missing = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err();
    if is_missing {
        weal_testing::skip(format_args!("there is no {program} here"));
    }
    is_missing
}

#[test]
fn it_writes_its_data_and_nothing_else() {
    let Some(machine) = machine() else { return };
    let bench = Bench::new();
    open_up(&bench.path("program"), 0o777);
    let said = bench.say(
        &bench.plan(&SandboxSpec::default(), machine),
        "echo one > $DATA/file && echo wrote data\necho two > /tmp/file && echo wrote tmp\necho x > /dev/null && echo wrote null\n\
         echo three > beside || echo not beside\necho four > /var/lib/file || echo not in var\necho 1 > /dev/shm/file && echo wrote shm\n\
         cat run.sh > /dev/null && echo sees its program",
    );
    for line in ["wrote data", "wrote tmp", "wrote null", "not beside", "not in var", "wrote shm", "sees its program"] {
        assert!(said.lines().any(|one| one == line), "{line}: {said}");
    }
    assert!(said.contains("Read-only file system"), "{said}");
    assert_eq!(fs::read_to_string(bench.path("data/file")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(bench.path("private/tmp/file")).unwrap(), "two\n", "its /tmp is a folder of its own");
}

#[test]
fn it_is_alone_in_what_it_sees() {
    let Some(machine) = machine() else { return };
    let bench = Bench::new();
    let mark = tempfile::Builder::new().prefix("of-others-").tempfile().unwrap();
    let script = format!(
        "test -e {} && echo sees others\nls -d /proc/[0-9]* | grep -vx /proc/$$ | while read p; do test -e $p/status && cat $p/status; done | grep -c '^Uid:.*\\b0\\b'\nls /dev\ngrep -h 'CapBnd\\|CapEff\\|NoNewPrivs\\|Seccomp:' /proc/self/status\necho core $(ulimit -c) $(ulimit -H -c); echo files $(ulimit -n)",
        mark.path().display()
    );
    let said = bench.say(&bench.plan(&SandboxSpec::default(), machine), &script);
    assert!(!said.contains("sees others"), "{said}");
    assert_eq!(said.lines().next(), Some("0"), "no process of root is seen: {said}");
    // As many as the config says by default, or as this machine lets this test have.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.map_or(65_536, |most| most.min(65_536));
    let files = format!("files {files}");
    let without_capabilities = ["CapBnd:\t0000000000000000", "CapEff:\t0000000000000000"];
    for line in without_capabilities.into_iter().chain(["NoNewPrivs:\t1", "Seccomp:\t2", "core 0 0", &files, "null", "urandom"]) {
        assert!(said.lines().any(|one| one == line), "{line}: {said}");
    }
    for device in ["kmsg", "mem", "vda", "sda", "loop0", "kvm"] {
        assert!(!said.lines().any(|one| one == device), "{device}: {said}");
    }
}

#[test]
fn what_no_service_needs_is_refused_as_programs_expect() {
    let Some(machine) = machine() else { return };
    if skips_without("python3") {
        return;
    }
    let script = r#"
import ctypes, errno, os, socket, stat
c = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    print(name, 'ok' if c.syscall(*args) >= 0 else errno.errorcode[ctypes.get_errno()])
is_x86 = os.uname().machine == 'x86_64'
number = lambda x86, other: x86 if is_x86 else other
call('mount', number(165, 40), None, None, None, 0, None)
call('bpf', number(321, 280), 0, None, 0)
call('ptrace', number(101, 117), 0, 0, 0, 0)
call('unshare-user', number(272, 97), 0x10000000)
call('unshare-mounts', number(272, 97), 0x00020000)
call('unshare-files', number(272, 97), 0x00000400)
call('clone3', 435, None, 0)
call('openat2', 437, -100, None, None, 0)
call('io-uring-setup', 425, 8, None); call('io-uring-enter', 426, 0, 0, 0, 0, None, 0); call('io-uring-register', 427, 0, 0, None, 0)
call('unknown', 1000)
call('personality', number(135, 92), 0x0040000)
def kind(name, *args):
    try: socket.socket(*args).close(); print(name, 'ok')
    except OSError as error: print(name, errno.errorcode[error.errno])
kind('inet', socket.AF_INET); kind('inet6', socket.AF_INET6); kind('unix', socket.AF_UNIX)
kind('packet', socket.AF_PACKET, socket.SOCK_RAW); kind('alg', 38, socket.SOCK_SEQPACKET); kind('vsock', 40, socket.SOCK_STREAM)
path = os.environ['DATA'] + '/tool'
def attempt(name, what):
    try: what(); print(name, 'ok')
    except OSError as error: print(name, errno.errorcode[error.errno])
attempt('create', lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755)))
attempt('chmod', lambda: os.chmod(path, 0o700))
attempt('chmod-setuid', lambda: os.chmod(path, 0o4755))
attempt('create-setuid', lambda: os.open(path + '2', os.O_CREAT | os.O_WRONLY, 0o4755))
attempt('fifo', lambda: os.mkfifo(path + '3'))
attempt('realtime', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt('batch', lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)))
attempt('fork', lambda: os._exit(0) if os.fork() == 0 else os.wait())
"#;
    let bench = Bench::new();
    let said = bench.run(&bench.plan(&SandboxSpec::default(), machine), &["python3", "-c", script]);
    let expected = "mount EPERM\nbpf EPERM\nptrace EPERM\nunshare-user EPERM\nunshare-mounts EPERM\nunshare-files ok\nclone3 ENOSYS\nopenat2 ENOSYS\n\
        io-uring-setup ENOSYS\nio-uring-enter ENOSYS\nio-uring-register ENOSYS\n\
        unknown ENOSYS\npersonality EPERM\ninet ok\ninet6 ok\nunix ok\npacket EAFNOSUPPORT\nalg EAFNOSUPPORT\nvsock EAFNOSUPPORT\n\
        create ok\nchmod ok\nchmod-setuid EPERM\ncreate-setuid EPERM\nfifo ok\nrealtime EPERM\nbatch ok\nfork ok\n";
    assert_eq!(said, expected);
}

#[test]
fn what_the_config_opens_is_open() {
    let Some(machine) = machine() else { return };
    let bench = Bench::new();
    let beside = bench.path("cache");
    let spec = SandboxSpec {
        write: [beside.display().to_string()].into(),
        devices: ["/dev/loop-control".to_owned()].into_iter().filter(|path| Path::new(path).exists()).collect(),
        permit: [Permit::Namespaces].into(),
        open_files: 100,
        private_tmp: false,
        ..SandboxSpec::default()
    };
    let script = format!(
        "echo 1 > {}/file && echo wrote\nunshare -U true && echo user namespace\nulimit -n\nls /dev\nls /tmp",
        beside.display()
    );
    let said = bench.say(&bench.plan(&spec, machine), &script);
    for line in ["wrote", "100"] {
        assert!(said.lines().any(|one| one == line), "{line}: {said}");
    }
    assert!(!said.contains("Operation not permitted") || !Path::new("/usr/bin/unshare").exists(), "{said}");
    assert!(spec.devices.is_empty() || said.contains("loop-control"), "{said}");
    let shared = bench.folder.path().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(!bench.folder.path().starts_with("/tmp") || said.contains(&shared), "it sees everybody's /tmp: {said}");
}

#[test]
fn each_permit_opens_what_it_names_and_nothing_else() {
    let Some(machine) = machine() else { return };
    if skips_without("python3") {
        return;
    }
    // What comes through fails for another reason, or not at all. So it needs no right that the user has not.
    let script = r#"
import ctypes, errno, os, resource
c = ctypes.CDLL(None, use_errno=True)
def call(x86, other, *args):
    is_x86 = os.uname().machine == 'x86_64'
    return 'ok' if c.syscall(x86 if is_x86 else other, *args) >= 0 else errno.errorcode[ctypes.get_errno()]
setns = call(308, 268, -1, 0)
pidfd_getfd = call(438, 438, -1, 0, 0)
sched_setattr = call(314, 274, 0, None, 0)
personality = call(135, 92, 0x0040000)
print(setns, pidfd_getfd, sched_setattr, personality, resource.getrlimit(resource.RLIMIT_CORE)[1] == 0)
"#;
    let said = |spec: SandboxSpec| {
        let bench = Bench::new();
        bench.run(&bench.plan(&spec, machine), &["python3", "-c", script])
    };
    let with = |permit| said(SandboxSpec { permit: [permit].into(), ..SandboxSpec::default() });
    assert_eq!(said(SandboxSpec::default()), "EPERM EPERM ENOSYS EPERM True\n");
    assert_eq!(with(Permit::Namespaces), "EBADF EPERM ENOSYS EPERM True\n");
    assert_eq!(with(Permit::Debugging), "EPERM EBADF ENOSYS EPERM True\n");
    assert_eq!(with(Permit::Realtime), "EPERM EPERM EINVAL EPERM True\n");
    assert_eq!(with(Permit::SystemCalls), "EBADF EBADF EINVAL ok True\n");
    let most = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
    if most == Some(0) {
        return weal_testing::skip("nothing on this machine writes its memory to a file");
    }
    assert_eq!(said(SandboxSpec { core_dumps: true, ..SandboxSpec::default() }), "EPERM EPERM ENOSYS EPERM False\n");
}

#[test]
fn what_the_config_names_and_the_machine_has_not_is_named_with_its_key() {
    let Some(machine) = machine() else { return };
    let bench = Bench::new();
    let refusal = |spec: SandboxSpec| {
        let mounts = bench.plan(&spec, machine).mounts.unwrap();
        // In a thread of its own, because the namespaces are the thread's.
        std::thread::spawn(move || mounts.enter().unwrap_err().to_string()).join().unwrap()
    };
    let gone = bench.path("gone").display().to_string();
    let write = refusal(SandboxSpec { write: [gone.clone()].into(), ..SandboxSpec::default() });
    assert_eq!(write, format!("`write` names {gone}, which does not exist: mkdir it, or take it out"));
    let devices = refusal(SandboxSpec { devices: ["/dev/nosuch".to_owned()].into(), ..SandboxSpec::default() });
    assert_eq!(devices, "`devices` names /dev/nosuch, which this machine does not have");
}

#[test]
fn a_link_of_its_own_in_the_place_of_a_folder_leads_nowhere() {
    let Some(machine) = machine() else { return };
    let bench = Bench::new();
    let (inside, aside) = (bench.path("data/cache"), bench.path("program/cache"));
    let secret = tempfile::Builder::new().prefix("of-others-").tempfile().unwrap();
    let link = |at: &Path, to: &Path, owner: u32| {
        let _ = fs::remove_file(at);
        std::os::unix::fs::symlink(to, at).unwrap();
        std::os::unix::fs::lchown(at, Some(owner), Some(owner)).unwrap();
    };
    let enter = |write: &Path| {
        let spec = SandboxSpec { write: [write.display().to_string()].into(), ..SandboxSpec::default() };
        let mounts = bench.plan(&spec, machine).mounts.unwrap();
        let (write, secret) = (write.to_owned(), secret.path().to_owned());
        // In a thread of its own, because the namespaces are the thread's.
        let entered =
            move || mounts.enter().map(|()| write.join(secret.file_name().unwrap()).exists()).map_err(|error| error.to_string());
        std::thread::spawn(entered).join().unwrap()
    };
    let refusal = |path: &Path| {
        let path = path.display();
        format!(
            "{path} cannot be part of its sandbox: others than root can change {path} on the way, which is a link; name the folder that it leads to"
        )
    };
    let others = secret.path().parent().unwrap();
    link(&inside, others, STRANGER);
    assert_eq!(enter(&inside), Err(refusal(&inside)), "it would have everybody's /tmp");
    link(&inside, others, 0);
    assert_eq!(enter(&inside), Err(refusal(&inside)), "it could put another one in the place of root's");
    link(&aside, &bench.path("cache"), 0);
    assert_eq!(enter(&aside), Ok(false), "a link of root's where nobody else writes is followed");
    fs::remove_file(&inside).unwrap();
    fs::create_dir(&inside).unwrap();
    assert_eq!(enter(&inside), Ok(false), "a folder is a folder");
    // What lies below /tmp gets a place in its own /tmp, where it may have put a link before.
    let outside = tempfile::Builder::new().prefix("weal-sandbox-").tempdir_in("/tmp").unwrap();
    let place = bench.path("private/tmp").join(outside.path().file_name().unwrap());
    link(&place, Path::new("/var"), STRANGER);
    assert_eq!(enter(outside.path()), Err(refusal(outside.path())));
}

#[test]
fn without_mounts_landlock_keeps_it_to_its_folders() {
    let machine = ConfinementSupport::probe();
    if !machine.is_root || machine.landlock_version == 0 {
        return weal_testing::skip("the test needs root to be another user, and Landlock");
    }
    let bench = Bench::new();
    let plan = bench.plan(&SandboxSpec::default(), ConfinementSupport { mounts: false, is_root: false, ..machine });
    // Another program of the same user.
    let mut other = Command::new("sleep").arg("1000").uid(STRANGER).stdin(Stdio::null()).spawn().unwrap();
    let script = format!(
        "echo one > $DATA/file && echo wrote data\necho x > /dev/null && echo wrote null\necho three > {}/file || echo not there\n\
         cat /etc/passwd > /dev/null && echo reads\nkill -0 {} && echo can signal",
        bench.path("cache").display(),
        other.id()
    );
    // Below /tmp it may write as everybody may, so this folder is taken from the rules.
    let landlock =
        plan.landlock.clone().map(|rules| weal_sandbox::Landlock { write: vec![bench.path("data"), rules.write[0].clone()] });
    let confined = bench.say(&SandboxPlan { landlock, ..plan }, &script);
    let free = bench.say(&SandboxPlan::default(), &script);
    other.kill().unwrap();
    other.wait().unwrap();
    for line in ["wrote data", "wrote null", "reads", "not there"] {
        assert!(confined.lines().any(|one| one == line), "{line}: {confined}");
    }
    assert!(!free.contains("not there"), "its user may: {free}");
    if machine.landlock_version >= 6 {
        assert!(!confined.contains("can signal") && free.contains("can signal"), "{confined}\n{free}");
    }
}

#[test]
fn what_runs_beside_it_sees_what_it_sees() {
    let Some(machine) = machine() else { return };
    let bench = Bench::new();
    let sandbox = bench.plan(&SandboxSpec::default(), machine).prepare().unwrap();
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null());
    // SAFETY: as above.
    unsafe { command.pre_exec(move || sandbox.enter().map_err(weal_sandbox::Failure::into_io)) };
    let mut child = command.spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let mut beside = Command::new("sh");
    beside.args(["-c", "echo here > /tmp/beside; echo no > /var/lib/weal-sandbox-test"]).stderr(Stdio::null());
    // SAFETY: as above.
    unsafe {
        beside.pre_exec(move || weal_sandbox::join(std::os::fd::AsFd::as_fd(&process)).map_err(weal_sandbox::Failure::into_io))
    };
    let status = beside.status().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!status.success() && !Path::new("/var/lib/weal-sandbox-test").exists());
    assert_eq!(fs::read_to_string(bench.path("private/tmp/beside")).unwrap(), "here\n");
}

/// A folder with `sh` and the libraries that it needs, as an image of it has them.
fn image_of_sh() -> Option<tempfile::TempDir> {
    let ldd = Command::new("ldd").arg("/bin/sh").output().ok()?;
    let said = String::from_utf8_lossy(&ldd.stdout).into_owned();
    let libraries = said.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned);
    let image = tempfile::tempdir().unwrap();
    open_up(image.path(), 0o755);
    for path in libraries.chain(["/bin/sh".to_owned()]) {
        let to = image.path().join(&path[1..]);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&path, to).unwrap();
    }
    fs::create_dir_all(image.path().join("srv/own")).unwrap();
    Some(image)
}

#[test]
fn with_files_of_its_own_it_sees_none_of_the_machines() {
    let Some(machine) = machine() else { return };
    let Some(image) = image_of_sh() else { return weal_testing::skip("there is no ldd here") };
    let bench = Bench::new();
    fs::write(bench.path("data/mine"), "").unwrap();
    fs::create_dir(bench.path("places")).unwrap();
    // An image that puts a link in the place of a mount.
    std::os::unix::fs::symlink("/srv", image.path().join("var")).unwrap();
    let root = weal_sandbox::OtherRoot { files: image.path().to_owned(), places: bench.path("places") };
    let mut plan = bench.plan(&SandboxSpec::default(), machine);
    plan.mounts.as_mut().unwrap().keep.clear();
    let as_seen = |seen_as| plan.clone().with_root(root.clone(), seen_as).unwrap();
    let script = format!(
        "for path in /etc/passwd /root {0} {1}; do [ -e $path ] && echo sees $path; done\n[ -d /srv/own ] && echo sees its own\n\
         for path in / /srv /etc /var {0}; do echo 1 2>/dev/null > $path/file && echo wrote in $path; done\n\
         echo 1 > $DATA/file && echo wrote data\necho 1 > /tmp/file && echo 1 > /var/tmp/file && echo 1 > /dev/shm/file && echo wrote tmp\n\
         echo 1 > /dev/null && [ -d /proc/self ] && [ -d /sys/kernel ] && echo devices\n\
         while read -r a b c; do case $a in Uid:|Gid:|CapBnd:|CapEff:|NoNewPrivs:|Seccomp:) echo $a $b;; esac; done < /proc/self/status\n\
         echo 2>/dev/null 1 > /proc/sys/kernel/hostname && echo changed the machine; for file in $DATA/*; do echo $file; done",
        bench.path("program").display(),
        image.path().display()
    );
    let run = |seen_as| bench.run(&as_seen(seen_as), &["sh", "-c", &script]);
    let said = run(None);
    let lines: Vec<&str> = said.lines().collect();
    for line in ["sees its own", "wrote data", "wrote tmp", "devices", "CapBnd: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2"]
    {
        assert!(lines.contains(&line), "{line}: {said}");
    }
    assert!(!said.contains("sees /") && !said.contains("wrote in") && !said.contains("changed"), "{said}");
    assert!(lines.contains(&format!("Uid: {STRANGER}").as_str()), "{said}");
    assert!(lines.contains(&format!("{}/mine", bench.path("data").display()).as_str()), "{said}");
    assert!(image.path().join("srv").read_dir().unwrap().count() == 1, "nothing was made in the image");
    let said = run(Some(weal_sandbox::SeenAs { uid: 101, gid: 102 }));
    let lines: Vec<&str> = said.lines().collect();
    if lines.contains(&format!("Uid: {STRANGER}").as_str()) {
        return weal_testing::skip("nobody may make user namespaces here");
    }
    for line in ["Uid: 101", "Gid: 102", "wrote data", "CapBnd: 0000000000000000", "CapEff: 0000000000000000", "Seccomp: 2"] {
        assert!(lines.contains(&line), "{line}: {said}");
    }
    let own = std::os::unix::fs::MetadataExt::uid(&fs::metadata(bench.path("data/file")).unwrap());
    assert_eq!(own, STRANGER, "to the machine it is who it was");
}
