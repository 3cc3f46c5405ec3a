//! The first process of the virtual machine that the tests boot: sets it up, runs the tests, says how they ended.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, WaitOptions};

/// The RAM disk, and its size: swap enough for what the tests park.
const RAM_DISK: (&str, u64) = ("/dev/ram0", 256 << 20);

/// Tests that still run then hang: those who wait outside lose patience a minute later.
const HANGS_AFTER: Duration = Duration::from_secs(350);

/// Never returns: the machine is switched off.
pub fn run() -> ! {
    if let Err(error) = set_up_and_test() {
        println!("WEAL-VM cannot test: {error}");
    }
    let _ = io::stdout().flush();
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}

fn set_up_and_test() -> io::Result<()> {
    for folder in ["/proc", "/sys", "/dev", "/tmp"] {
        fs::create_dir_all(folder)?;
    }
    put("proc", "/proc", "proc", "")?;
    put("sysfs", "/sys", "sysfs", "")?;
    put("devtmpfs", "/dev", "devtmpfs", "")?;
    put("tmpfs", "/tmp", "tmpfs", "mode=1777")?;
    let console = OpenOptions::new().read(true).write(true).open("/dev/console")?;
    rustix::stdio::dup2_stdout(&console)?;
    rustix::stdio::dup2_stderr(&console)?;
    let told = fs::read_to_string("/proc/cmdline")?;
    let word = |name: &str| told.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap_or("").to_owned();
    match word("weal.layout=").as_str() {
        "hybrid" => mount_hybrid()?,
        _ => put("cgroup2", "/sys/fs/cgroup", "cgroup2", "")?,
    }
    loopback_up()?;
    if let Err(error) = swap_on(&word("weal.swap=")) {
        println!("WEAL-VM has no swap: {error}");
    }
    let filters = word("weal.tests=");
    let mut tests = Command::new("/weal/tests");
    tests.args(filters.split(',')).args(["--test-threads", "4"]).env("WEAL_VM", "1").env("PATH", "/bin").stdin(Stdio::null());
    let child = tests.spawn()?;
    // What says why the machine hangs must not be paged out by it.
    // SAFETY: it changes nothing but where pages of this process may be.
    unsafe { libc::mlockall(libc::MCL_CURRENT) };
    std::thread::spawn(|| {
        std::thread::sleep(HANGS_AFTER);
        say_where_everyone_is();
    });
    println!("WEAL-VM result {}", wait_for(child.id())?);
    Ok(())
}

/// The status of `pid`; other children are orphans that only need to be taken in.
fn wait_for(pid: u32) -> io::Result<i32> {
    loop {
        let Some((ended, status)) = rustix::process::wait(WaitOptions::empty())? else { continue };
        if Some(ended) == Pid::from_raw(pid.cast_signed()) {
            return Ok(status.exit_status().unwrap_or(-1));
        }
    }
}

/// What each process waits for, and how memory and time are used.
fn say_where_everyone_is() {
    println!("WEAL-VM hangs");
    for file in ["meminfo", "loadavg", "pressure/cpu", "pressure/memory", "pressure/io", "interrupts"] {
        println!("{file}: {}", fs::read_to_string(format!("/proc/{file}")).unwrap_or_default());
    }
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        for thread in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            let read = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            if !read("cmdline").is_empty() {
                println!("{}{}{}", read("stat"), read("cgroup"), read("stack"));
            }
        }
    }
}

fn mount_hybrid() -> io::Result<()> {
    put("tmpfs", "/sys/fs/cgroup", "tmpfs", "mode=755")?;
    for controllers in ["cpu,cpuacct", "memory"] {
        let at = format!("/sys/fs/cgroup/{controllers}");
        fs::create_dir_all(&at)?;
        put("cgroup", &at, "cgroup", controllers)?;
    }
    fs::create_dir_all("/sys/fs/cgroup/unified")?;
    put("cgroup2", "/sys/fs/cgroup/unified", "cgroup2", "")
}

fn put(source: &str, at: &str, kind: &str, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    mount(source, at, kind, MountFlags::empty(), options.as_c_str())
        .map_err(|error| io::Error::other(format!("mount {kind} at {at}: {error}")))
}

fn loopback_up() -> io::Result<()> {
    // SAFETY: the request is plain data with a name that ends in zero, and the call reads it only.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        libc::ioctl(socket, libc::SIOCSIFFLAGS, &request)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Swaps to `device`.
fn swap_on(device: &str) -> io::Result<()> {
    if device == RAM_DISK.0 {
        let module = File::open("/weal/brd.ko")?;
        let parameters = CString::new(format!("rd_nr=1 rd_size={}", RAM_DISK.1 / 1024))?;
        rustix::system::finit_module(&module, &parameters, 0)?;
    }
    let mut disk = OpenOptions::new().write(true).open(device)?;
    let bytes = disk.seek(SeekFrom::End(0))?;
    // What mkswap(8) writes: version 1 and the last page's number at 1024, the signature at the end of the first page.
    let last_page = u32::try_from(bytes / 4096 - 1).map_err(io::Error::other)?;
    disk.seek(SeekFrom::Start(1024))?;
    disk.write_all(&1u32.to_le_bytes())?;
    disk.write_all(&last_page.to_le_bytes())?;
    disk.seek(SeekFrom::Start(4096 - 10))?;
    disk.write_all(b"SWAPSPACE2")?;
    disk.sync_all()?;
    let path = CString::new(device)?;
    // SAFETY: the path is a string that ends in zero and lives during the call.
    if unsafe { libc::swapon(path.as_ptr(), 0) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
