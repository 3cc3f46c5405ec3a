//! Another time of day for some processes of this machine, and for no others.
//!
//! The kernel has one clock for all: setting it would hurt whatever else runs, and a time namespace has no time of day of its own. But programs
//! do not ask the kernel: they call `clock_gettime` in the page of code that the kernel maps into each of them, the vDSO (vdso(7)). Each process
//! has a copy of its own of what is written there, as a debugger's breakpoints need it. So the function is replaced, in the processes
//! that are meant, by one that asks the kernel and adds to the answer. All other clocks stay as they are.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::pool::send;
use crate::elf::number;

/// How long threads may take to stand still outside of the function.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Processes whose time of day is another one, until this is dropped.
pub struct OtherTime {
    changed: Vec<Changed>,
}

struct Changed {
    pid: u32,
    at: u64,
    before: Vec<u8>,
}

impl OtherTime {
    /// True where the function can be replaced.
    pub fn is_possible() -> bool {
        cfg!(target_arch = "x86_64") && function().is_ok()
    }

    /// Puts the clock of each of `pids` ahead by so many seconds, or back.
    pub fn begin(pids: &[u32], ahead_s: i32) -> Result<Self> {
        let function = function()?;
        let code = code(ahead_s);
        ensure!(code.len() as u64 <= function.end - function.start, "the function is too short to be replaced");
        let mut time = Self { changed: Vec::new() };
        for &pid in pids {
            let at = vdso(pid)?.start + function.start;
            let before = while_it_stands(pid, || replace(pid, at, &code))?;
            time.changed.push(Changed { pid, at, before });
        }
        Ok(time)
    }
}

impl Drop for OtherTime {
    fn drop(&mut self) {
        for one in &self.changed {
            // A process that has ended meanwhile has no clock any more.
            let _ = while_it_stands(one.pid, || replace(one.pid, one.at, &one.before));
        }
    }
}

/// `clock_gettime(clock in edi, time in rsi)` for x86-64: the system call, and then more seconds, if the clock is the time of day and the call
/// did not fail.
fn code(ahead_s: i32) -> Vec<u8> {
    let mut code = vec![0xb8, 228, 0, 0, 0]; // mov eax, SYS_clock_gettime
    code.extend([0x0f, 0x05]); // syscall
    code.extend([0x85, 0xff, 0x75, 0x0b]); // test edi, edi; jne to the end
    code.extend([0x85, 0xc0, 0x75, 0x07]); // test eax, eax; jne to the end
    code.extend([0x48, 0x81, 0x06]); // add qword [rsi], ahead_s
    code.extend(ahead_s.to_le_bytes());
    code.push(0xc3); // ret
    code
}

fn replace(pid: u32, at: u64, code: &[u8]) -> Result<Vec<u8>> {
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    let mut before = vec![0; code.len()];
    memory.read_exact_at(&mut before, at)?;
    memory.write_all_at(code, at)?;
    Ok(before)
}

/// Acts while no thread of the process runs and none of them is within the vDSO.
fn while_it_stands<T>(pid: u32, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let vdso = vdso(pid)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        send(pid, Signal::STOP);
        let stands = stands_outside_of(pid, &vdso);
        if stands {
            let done = act();
            send(pid, Signal::CONT);
            return done;
        }
        send(pid, Signal::CONT);
        ensure!(Instant::now() < deadline, "process {pid} cannot be stopped outside of its vDSO");
        std::thread::sleep(PAUSE);
    }
}

fn stands_outside_of(pid: u32, vdso: &Range<u64>) -> bool {
    std::thread::sleep(PAUSE);
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.into_iter().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        // The last field is the instruction pointer; a thread that runs has none.
        let at = call.split_whitespace().next_back().and_then(|field| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok());
        stat.contains(") T ") && at.is_some_and(|at| !vdso.contains(&at))
    })
}

/// Where the vDSO of a process is.
fn vdso(pid: u32) -> Result<Range<u64>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).context("a process has no vDSO")?;
    let (start, end) =
        line.split_whitespace().next().and_then(|range| range.split_once('-')).context("a strange line of maps")?;
    Ok(u64::from_str_radix(start, 16)?..u64::from_str_radix(end, 16)?)
}

/// Where in the vDSO `clock_gettime` is. All processes have the same one.
fn function() -> Result<Range<u64>> {
    let place = vdso(std::process::id())?;
    let mut image = vec![0; usize::try_from(place.end - place.start)?];
    File::open("/proc/self/mem")?.read_exact_at(&mut image, place.start)?;
    symbol(&image, b"__vdso_clock_gettime\0")
}

/// A function's place in an ELF image (elf(5)): the section of dynamic symbols, and the strings that it names.
fn symbol(image: &[u8], name: &[u8]) -> Result<Range<u64>> {
    const DYNAMIC_SYMBOLS: u64 = 11;
    let field = |at: u64, bytes: usize| number(image, at, bytes);
    let (sections, size, count) = (field(40, 8)?, field(58, 2)?, field(60, 2)?);
    for section in (0..count).map(|number| sections + number * size) {
        if field(section + 4, 4)? != DYNAMIC_SYMBOLS {
            continue;
        }
        let names = field(sections + field(section + 40, 4)? * size + 24, 8)?;
        let (first, bytes) = (field(section + 24, 8)?, field(section + 32, 8)?);
        for symbol in (first..first + bytes).step_by(24) {
            let its_name = usize::try_from(names + field(symbol, 4)?)?;
            if image.get(its_name..).is_some_and(|rest| rest.starts_with(name)) {
                let start = field(symbol + 8, 8)?;
                return Ok(start..start + field(symbol + 16, 8)?);
            }
        }
    }
    bail!("the vDSO has no such function")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::time::SystemTime;

    const CHILD: &str = "chaos::clock::tests::child_that_says_its_time";

    const IS_CHILD: &str = "WEAL_TEST_IS_CHILD";

    fn now_s() -> u64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
    }

    /// The other process of the next test; nothing by itself.
    #[test]
    fn child_that_says_its_time() {
        if std::env::var_os(IS_CHILD).is_none() {
            return;
        }
        std::io::stdin().lines().for_each(|_| println!("time {}", now_s()));
    }

    #[test]
    fn one_process_has_another_time_of_day_and_gets_its_own_back() {
        if !OtherTime::is_possible() {
            return;
        }
        let mut child = Command::new(std::env::current_exe().expect("this test"));
        child.args(["--exact", CHILD, "--nocapture"]).env(IS_CHILD, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().expect("this test runs again");
        let (mut asks, answers) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut answers = BufReader::new(answers).lines().map_while(Result::ok);
        let mut ask = || {
            asks.write_all(b"\n").expect("it reads");
            let answer = answers.find_map(|line| line.rsplit_once("time ")?.1.parse::<u64>().ok());
            answer.expect("it says its time")
        };
        let began = now_s();
        assert!((began..began + 3600).contains(&ask()));
        let time = OtherTime::begin(&[child.id()], 86_400).expect("a child can be changed");
        assert!(ask() >= began + 86_400);
        assert!(now_s() < began + 3600, "all others keep their time");
        drop(time);
        assert!((began..began + 3600).contains(&ask()));
        drop(asks);
        child.wait().expect("it ends with its input");
    }
}
