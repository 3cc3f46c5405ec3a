//! What must hold when swap, memory or the disk fails an instance that falls asleep or wakes: each on a machine of its own.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weal_model::{Bytes, Cpu, InstanceState, NodeName, NodeSpec, Rung};
use weal_protocol::Refusal;
use weal_protocol::node::{self, Command, InstanceCounters, InstanceEvent, NodeReserve};

use crate::bench::{Bench, PATIENCE, get, wait_for};
use crate::vm::{Swap, VirtualMachine};

const MIB: u64 = 1 << 20;

/// Room for one instance, and for little else.
pub const SMALL_SWAP: VirtualMachine =
    VirtualMachine { layout: "unified", memory_mib: 1024, swap: Swap::Disk { bytes: 160 * MIB, bytes_per_second: None } };

/// All of its memory is soon taken; there is swap enough.
pub const LITTLE_MEMORY: VirtualMachine =
    VirtualMachine { layout: "unified", memory_mib: 640, swap: Swap::Disk { bytes: 1024 * MIB, bytes_per_second: None } };

/// An instance takes seconds to be written there or to be read.
pub const SLOW_DISK: VirtualMachine = VirtualMachine {
    layout: "unified",
    memory_mib: 1024,
    swap: Swap::Disk { bytes: 256 * MIB, bytes_per_second: Some(12 * MIB) },
};

/// Enough for three instances, and for little more.
pub const SOME_MEMORY: VirtualMachine =
    VirtualMachine { layout: "unified", memory_mib: 1024, swap: Swap::Disk { bytes: 512 * MIB, bytes_per_second: None } };

/// A server that holds `mib` MiB of its own, and their checksum.
fn server(bench: &Bench, id: &str, mib: u64) -> (InstanceCounters, String) {
    let mut spec = bench.spec(id, &["serve", "$PORT"]);
    spec.memory = Bytes(2 * mib * MIB + 60 * MIB);
    let server = bench.start_ready(&spec);
    get(server.address, &format!("/hog/{mib}"), PATIENCE).unwrap();
    let sum = get(server.address, "/sum", PATIENCE).unwrap();
    (server, sum)
}

/// Wakes it as the gateway does. It is the same process and holds what it held.
fn wakes_whole(bench: &Bench, server: &InstanceCounters, sum: &str) {
    let answer = bench.wake(server.spec.app.as_str()).unwrap();
    assert_eq!(get(answer.address, "/sum", PATIENCE).as_deref(), Some(sum), "its memory is what it was");
    let awake = bench.instance(server.spec.id.as_str()).unwrap();
    assert_eq!((awake.state, awake.pid, awake.restarts), (InstanceState::Ready, server.pid, 0), "{awake:?}");
}

/// Asleep on `rung`, all of it: nothing of it answers.
fn sleeps_on(bench: &Bench, server: &InstanceCounters, rung: Rung) -> InstanceCounters {
    let asleep = bench.instance(server.spec.id.as_str()).unwrap();
    assert_eq!(asleep.state, rung.state(), "{asleep:?}");
    assert_eq!(get(server.address, "/", Duration::from_millis(300)), None, "it stands still");
    asleep
}

fn last_event(bench: &Bench) -> InstanceEvent {
    bench.events(0).pop().unwrap()
}

pub fn a_swap_that_fills_up_in_the_middle_of_a_purge_leaves_it_suspended_and_whole(bench: &Bench) {
    let (server, sum) = server(bench, "web-1", 100);
    let (refusal, others) = in_a_purge(
        || bench.sleep("web-1", Rung::Parked),
        || {
            bench.stop_agent();
            let others = Others::fill_the_swap();
            bench.continue_agent();
            others
        },
    );
    let refusal = refusal.unwrap();
    assert!(matches!(refusal, Refusal::SwapFilled { left } if left > Bytes::mib(4)), "{refusal:?}");
    let asleep = sleeps_on(bench, &server, Rung::Suspended);
    let (out, left) = (asleep.swap_used.unwrap(), asleep.memory_used.unwrap());
    assert!(left > Bytes::mib(4), "{asleep:?}");
    // A kernel without free swap reclaims none of what was written to it; v1 counts as out only what was reclaimed.
    assert!(out > Bytes::mib(4) || bench.kind() == "cgroup-hybrid", "some of it is out and some is not: {asleep:?}");
    let told = format!("it stays suspended: {refusal}");
    assert_eq!((last_event(bench).state, last_event(bench).detail), (InstanceState::Suspended, told));

    // While the swap is full, no other attempt is made.
    for rung in [Rung::Parked, Rung::Warm] {
        let refusal = bench.sleep("web-1", rung).unwrap();
        assert!(matches!(refusal, Refusal::NoSwap { .. }), "{refusal:?}");
        assert_eq!(sleeps_on(bench, &server, Rung::Suspended).swap_used, Some(out));
    }
    wakes_whole(bench, &server, &sum);
    drop(others);
    assert_eq!(bench.sleep("web-1", Rung::Parked), None);
    assert!(sleeps_on(bench, &server, Rung::Parked).memory_used.unwrap() < Bytes::mib(30));
    wakes_whole(bench, &server, &sum);
}

pub fn it_sleeps_and_wakes_whole_while_the_machine_is_short_of_memory(bench: &Bench) {
    let servers: Vec<_> = ["a-1", "b-1"].iter().map(|id| server(bench, id, 30)).collect();
    let _pressure = Pressure::start();
    let reclaimed = || kernel_count("pgsteal_kswapd") + kernel_count("pgsteal_direct");
    for rung in [Rung::Suspended, Rung::Warm, Rung::Parked] {
        let before = reclaimed();
        for (server, sum) in &servers {
            assert_eq!(bench.sleep(server.spec.id.as_str(), rung), None, "there is swap for it");
            sleeps_on(bench, server, rung);
            wakes_whole(bench, server, sum);
        }
        // Whoever uses up the memory is a thread beside this one, which a busy machine may have kept waiting meanwhile.
        wait_for("the kernel to look for memory", || (reclaimed() > before).then_some(()));
    }
    assert_eq!(kernel_count("oom_kill"), 0);
}

pub fn a_slow_disk_under_the_swap_makes_it_slow_and_nothing_else(bench: &Bench) {
    let (server, sum) = server(bench, "web-1", 30);
    assert_eq!(bench.sleep("web-1", Rung::Parked), None);
    assert!(sleeps_on(bench, &server, Rung::Parked).memory_used.unwrap() < Bytes::mib(30));
    wakes_whole(bench, &server, &sum);

    // Who asks for it in the middle of a purge does not wait for its end.
    get(server.address, "/dirty", PATIENCE).unwrap();
    let sum = get(server.address, "/sum", PATIENCE).unwrap();
    let (before, order) = (last_event(bench).id, || bench.sleep("web-1", Rung::Parked));
    let (refusal, ()) = in_a_purge(order, || wakes_whole(bench, &server, &sum));
    assert_eq!(refusal, Some(Refusal::Woken));
    bench.said(before, "woken from suspended in ");

    // An agent that dies while it waits for the disk leaves the rest to the next one.
    get(server.address, "/dirty", PATIENCE).unwrap();
    let sum = get(server.address, "/sum", PATIENCE).unwrap();
    bench.suspend("web-1");
    let order = || bench.apply_and_ignore(Command::Sleep { instance: server.spec.id.clone(), rung: Rung::Parked });
    in_a_purge(order, || {
        bench.kill_agent();
        bench.start_agent();
    });
    bench.wait_state("web-1", InstanceState::Parked);
    assert!(sleeps_on(bench, &server, Rung::Parked).memory_used.unwrap() < Bytes::mib(30));
    wakes_whole(bench, &server, &sum);
}

pub fn a_reserve_is_kept_free_by_parking_who_has_slept_longest(bench: &Bench) {
    let name = NodeName::from("n1");
    let capacity = Bytes::mib(400);
    bench.call(node::CONFIGURE, &vec![NodeSpec { name: name.clone(), cpu: Cpu(2.0), memory: capacity, utilization_limit: 0.9 }]);
    let [first, second, awake] = ["a-1", "b-1", "c-1"].map(|id| server(bench, id, 40));
    bench.suspend("b-1");
    bench.suspend("a-1");
    let node = || bench.observe().nodes.remove(0);
    let reserve = capacity - node().memory_used + Bytes::mib(20);
    bench.call(node::RESERVE, &vec![NodeReserve { node: name, memory: reserve }]);
    // One is enough: it frees more than is missing.
    let parked = bench.wait_state("b-1", InstanceState::Parked);
    let why = format!(": the plan keeps {reserve} free on `n1`, which had ");
    assert!(parked.detail.starts_with("paged out in ") && parked.detail.contains(&why), "{parked:?}");
    assert_eq!(last_event(bench).detail, parked.detail);
    wait_for("it to be counted", || (node().parked_for_reserve == 1).then_some(()));
    assert!(node().memory_reserve == reserve && node().memory_used + reserve <= capacity, "{:?}", node());

    // The next agent goes on, and what others on this machine take is missing too.
    bench.kill_agent();
    bench.start_agent();
    assert_eq!(bench.instance("a-1").unwrap().state, InstanceState::Suspended);
    let _others = Others::take(memory("MemAvailable") - reserve.0 + 20 * MIB);
    let parked = bench.wait_state("a-1", InstanceState::Parked);
    assert!(parked.detail.contains(&why), "{parked:?}");
    assert_eq!(bench.instance("c-1").unwrap().state, InstanceState::Ready, "who is awake stays awake");
    for (server, sum) in [first, second, awake] {
        wakes_whole(bench, &server, &sum);
    }
}

/// Does `act` while `order`, which pages an instance out, is in the middle of that.
fn in_a_purge<T: Send, U>(order: impl FnOnce() -> T + Send, act: impl FnOnce() -> U) -> (T, U) {
    let before = kernel_count("pswpout");
    std::thread::scope(|scope| {
        let order = scope.spawn(order);
        while kernel_count("pswpout") - before < 6 * MIB / 4096 {
            assert!(!order.is_finished(), "it is over before anything was paged out");
            std::thread::sleep(Duration::from_micros(200));
        }
        let acted = act();
        (order.join().unwrap(), acted)
    })
}

/// A number of bytes of `/proc/meminfo`.
fn memory(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

fn swap_free() -> u64 {
    memory("SwapFree")
}

/// What the kernel has counted since it came up.
fn kernel_count(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    line.parse().unwrap()
}

/// Memory of others, who are no instances of weal: given back when this is dropped.
struct Others {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is memory of the process, not of a thread.
unsafe impl Send for Others {}

impl Others {
    fn take(bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap();
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping wherever there is room; nobody else knows of it.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let taken = Self { start: start.cast(), bytes };
        taken.touch(|| true);
        taken
    }

    /// Writes to each page, as long as `go_on`.
    fn touch(&self, mut go_on: impl FnMut() -> bool) {
        for at in (0..self.bytes).step_by(4096).take_while(|_| go_on()) {
            // SAFETY: it lies within the mapping, which is writable and lives as long as this.
            unsafe { self.start.add(at).write_volatile(1) };
        }
    }

    /// Until no page goes there any more.
    fn fill_the_swap() -> Self {
        let others = Self::take(swap_free() + 8 * MIB);
        // SAFETY: the mapping is our own.
        assert_eq!(unsafe { libc::madvise(others.start.cast(), others.bytes, libc::MADV_PAGEOUT) }, 0);
        // Each CPU keeps a few places for itself.
        assert!(swap_free() < MIB, "{} bytes of swap are free", swap_free());
        others
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `take`, and nobody has it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Others who use more memory than there is, all the time, until this is dropped.
struct Pressure {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pressure {
    fn start() -> Self {
        let (others, end) = (Others::take(memory("MemAvailable") + 150 * MIB), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                others.touch(|| !seen.load(Ordering::Relaxed));
            }
        });
        Self { end, thread: Some(thread) }
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // A thread that only writes to memory does not panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
