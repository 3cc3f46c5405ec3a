//! What goes wrong.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use rustix::process::Signal;

use super::clock::OtherTime;
use super::load::{Cuts, ask_for};
use super::machine::{self, Frozen, FullSwap, Slow};
use super::pool::{Pool, send};

const DAY_S: i32 = 86_400;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// A role is killed.
    KillGateway,
    /// The same.
    KillController,
    /// The same.
    KillAgent,
    /// Two at once.
    KillGatewayAndController,
    /// The same.
    KillGatewayAndAgent,
    /// The same.
    KillControllerAndAgent,
    /// The supervisor is killed, and the next one takes over.
    KillSupervisor,
    /// All of weal is killed at once, and the next supervisor finds what runs.
    KillAll,
    /// A role stands still until the watchdog replaces it.
    StopGateway,
    /// The same.
    StopController,
    /// The same.
    StopAgent,
    /// The supervisor stands still for a while.
    StopSupervisor,
    /// The disk of the state directory is full for a while, and roles die meanwhile.
    FullDisk,
    /// The store's pages are damaged while the controller is away.
    DamagedStore,
    /// The store is cut in half while the controller is away.
    TruncatedStore,
    /// The record of processes is removed.
    LostRecord,
    /// The record of an instance is emptied while the node agent is away.
    EmptyInstanceRecord,
    /// The sockets of the roles are removed.
    LostSockets,
    /// All that is in the state directory is removed.
    LostState,
    /// An instance is killed.
    KillInstance,
    /// All instances are killed at once.
    KillInstances,
    /// An instance stands still until it is replaced.
    StopInstance,
    /// An instance's shim is killed.
    KillShim,
    /// An instance is killed, and a stranger has its port at once.
    StolenPort,
    /// The roles may open no more files for a while.
    NoFiles,
    /// Hundreds of clients send half heads and nonsense.
    BadClients,
    /// An application is told to sleep again and again while it is asked.
    SleepOrders,
    /// An application gets another environment, and then the former one: its instances are replaced twice.
    Rollouts,
    /// Ten configs within a second, every other one with a mistake.
    ConfigStorm,
    /// The config is read again and again.
    Reloads,
    /// The clock of all of weal is put ahead by a day, and then back.
    ClockAhead,
    /// The clock of all of weal is put back by a day, and then ahead.
    ClockBehind,
    /// The disk of the state directory does twenty operations a second, and roles die meanwhile.
    SlowDisk,
    /// Nothing can be written to the disk of the state directory for longer than the watchdog waits.
    HungDisk,
    /// The machine's swap is full, and an application is told to sleep.
    FullSwap,
    /// An application wants more memory than it may have.
    NoMemory,
    /// The connections between the gateway and the instances are reset again and again.
    ResetConnections,
    /// The instances stand still for moments, so that their answers come late and all at once, as over a network that stalls.
    Stalls,
    /// The pool goes on with another build of weal, and then with the former one.
    Upgrade,
}

/// Which faults a run has.
#[derive(Debug, Clone, Copy)]
pub enum Selection {
    /// Every one.
    All,
    /// Those that touch nothing but the pool.
    OfThePool,
    /// This one, again and again.
    Only(Fault),
}

impl Selection {
    fn faults(self) -> Vec<Fault> {
        match self {
            Self::All => Fault::value_variants().to_vec(),
            Self::OfThePool => Fault::value_variants().iter().copied().filter(|fault| *fault != Fault::FullSwap).collect(),
            Self::Only(fault) => vec![fault],
        }
    }
}

/// The faults in the order that `seed` gives: all of them, then all of them in another order, and so on.
pub fn order(seed: u64, selection: Selection) -> impl Iterator<Item = Fault> {
    let mut rng = weal_rng::stream(seed, "chaos");
    let mut left: Vec<Fault> = Vec::new();
    std::iter::from_fn(move || {
        if left.is_empty() {
            left = selection.faults();
        }
        let chosen = weal_rng::weighted(&mut rng, &vec![1.0; left.len()]);
        Some(left.swap_remove(chosen))
    })
}

impl Fault {
    /// Its name, as the command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::KillGateway => "kill-gateway",
            Self::KillController => "kill-controller",
            Self::KillAgent => "kill-agent",
            Self::KillGatewayAndController => "kill-gateway-and-controller",
            Self::KillGatewayAndAgent => "kill-gateway-and-agent",
            Self::KillControllerAndAgent => "kill-controller-and-agent",
            Self::KillSupervisor => "kill-supervisor",
            Self::KillAll => "kill-all",
            Self::StopGateway => "stop-gateway",
            Self::StopController => "stop-controller",
            Self::StopAgent => "stop-agent",
            Self::StopSupervisor => "stop-supervisor",
            Self::FullDisk => "full-disk",
            Self::DamagedStore => "damaged-store",
            Self::TruncatedStore => "truncated-store",
            Self::LostRecord => "lost-record",
            Self::EmptyInstanceRecord => "empty-instance-record",
            Self::LostSockets => "lost-sockets",
            Self::LostState => "lost-state",
            Self::KillInstance => "kill-instance",
            Self::KillInstances => "kill-instances",
            Self::StopInstance => "stop-instance",
            Self::KillShim => "kill-shim",
            Self::StolenPort => "stolen-port",
            Self::NoFiles => "no-files",
            Self::BadClients => "bad-clients",
            Self::SleepOrders => "sleep-orders",
            Self::Rollouts => "rollouts",
            Self::ConfigStorm => "config-storm",
            Self::Reloads => "reloads",
            Self::ClockAhead => "clock-ahead",
            Self::ClockBehind => "clock-behind",
            Self::SlowDisk => "slow-disk",
            Self::HungDisk => "hung-disk",
            Self::FullSwap => "full-swap",
            Self::NoMemory => "no-memory",
            Self::ResetConnections => "reset-connections",
            Self::Stalls => "stalls",
            Self::Upgrade => "upgrade",
        }
    }

    /// Which requests may be cut.
    pub fn cuts(self) -> Cuts {
        match self {
            Self::KillGateway | Self::KillGatewayAndController | Self::KillGatewayAndAgent => Cuts::UnderWay,
            // An instance that ends breaks off what it has begun; a stopped one holds what it is given until that is noticed; a gateway that may
            // open no file takes no client; a connection that is reset takes its request along; and once all of weal was killed, nobody
            // listens until the next supervisor does.
            Self::KillAll
            | Self::StopGateway
            | Self::EmptyInstanceRecord
            | Self::KillInstance
            | Self::KillInstances
            | Self::StopInstance
            | Self::StolenPort
            | Self::NoFiles
            | Self::NoMemory
            | Self::ResetConnections => Cuts::UntilWhole,
            _ => Cuts::None,
        }
    }

    /// Lets it happen. False where this machine does not let it.
    pub fn strike(self, pool: &mut Pool) -> Result<bool> {
        match self {
            Self::KillGateway => pool.kill(&["gateway"]),
            Self::KillController => pool.kill(&["controller"]),
            Self::KillAgent => pool.kill(&["node"]),
            Self::KillGatewayAndController => pool.kill(&["gateway", "controller"]),
            Self::KillGatewayAndAgent => pool.kill(&["gateway", "node"]),
            Self::KillControllerAndAgent => pool.kill(&["controller", "node"]),
            Self::KillSupervisor => pool.replace_supervisor(&[])?,
            Self::KillAll => pool.replace_supervisor(&["gateway", "controller", "node"])?,
            Self::StopGateway => pool.stop_until_replaced("gateway")?,
            Self::StopController => pool.stop_until_replaced("controller")?,
            Self::StopAgent => pool.stop_until_replaced("node")?,
            Self::StopSupervisor => {
                pool.signal_supervisor(Signal::STOP);
                std::thread::sleep(Duration::from_secs(3));
                pool.signal_supervisor(Signal::CONT);
            }
            Self::FullDisk => return full_disk(pool),
            Self::DamagedStore => change_store(pool, |file| {
                let pages = file.metadata()?.len() / 4096;
                (1..pages).try_for_each(|page| file.write_all_at(&[0x5a; 4096], page * 4096))
            })?,
            Self::TruncatedStore => change_store(pool, |file| file.set_len(file.metadata()?.len() / 2))?,
            Self::LostRecord => fs::remove_file(pool.state().join("supervisor.json"))?,
            Self::LostState => {
                for entry in fs::read_dir(pool.state())? {
                    let path = entry?.path();
                    // What is written there meanwhile may stay: the rest of the pool must get over a part that is missing as well.
                    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
                }
            }
            Self::EmptyInstanceRecord => empty_record(pool)?,
            Self::LostSockets => {
                for entry in fs::read_dir(pool.state().join("run"))? {
                    fs::remove_file(entry?.path())?;
                }
            }
            Self::KillInstance => drop(pool.kill_instance()?),
            Self::KillInstances => pool.instances().into_iter().for_each(|pid| send(pid, Signal::KILL)),
            Self::StopInstance => pool.stop_instance_until_replaced()?,
            Self::KillShim => pool.kill_shim()?,
            Self::StolenPort => steal_port(pool)?,
            Self::NoFiles => return pool.without_files(Duration::from_secs(3)),
            Self::BadClients => bad_clients(pool)?,
            Self::SleepOrders => (0..5).try_for_each(|_| pool.tell_to_sleep("back"))?,
            Self::Rollouts => roll_out(pool)?,
            Self::ConfigStorm => config_storm(pool)?,
            Self::ClockAhead => return other_time(pool, DAY_S),
            Self::ClockBehind => return other_time(pool, -DAY_S),
            Self::SlowDisk => return slow_disk(pool),
            Self::HungDisk => return Ok(hung_disk(pool)),
            Self::FullSwap => return full_swap(pool),
            Self::NoMemory => return Ok(ask_for(pool.listen(), "front", "/eat").is_err()),
            Self::ResetConnections => return Ok(reset_connections(pool)),
            Self::Stalls => stall(pool),
            Self::Upgrade => pool.upgrade_and_back()?,
            Self::Reloads => (0..20).for_each(|_| pool.signal_supervisor(Signal::HUP)),
        }
        Ok(true)
    }
}

fn full_disk(pool: &mut Pool) -> Result<bool> {
    if !pool.has_own_disk() {
        return Ok(false);
    }
    let path = pool.state().join("ballast");
    let mut ballast = File::create(&path)?;
    for piece in [1 << 20, 4096, 1] {
        while ballast.write_all(&vec![0; piece]).is_ok() {}
    }
    pool.kill(&["controller", "node"]);
    std::thread::sleep(Duration::from_secs(2));
    pool.wait_for_roles()?;
    fs::remove_file(path)?;
    Ok(true)
}

fn other_time(pool: &mut Pool, ahead_s: i32) -> Result<bool> {
    if !OtherTime::is_possible() {
        return Ok(false);
    }
    let time = OtherTime::begin(&pool.own_processes(), ahead_s)?;
    // Long enough for every cycle of the roles to see it.
    std::thread::sleep(Duration::from_secs(5));
    drop(time);
    Ok(true)
}

fn slow_disk(pool: &mut Pool) -> Result<bool> {
    let Some(slow) = Slow::begin(&pool.state(), &pool.own_processes()) else { return Ok(false) };
    pool.kill(&["controller", "node"]);
    pool.wait_for_roles()?;
    std::thread::sleep(Duration::from_secs(5));
    drop(slow);
    Ok(true)
}

fn hung_disk(pool: &Pool) -> bool {
    let Some(frozen) = Frozen::begin(&pool.state()) else { return false };
    std::thread::sleep(Duration::from_secs(15));
    drop(frozen);
    true
}

fn full_swap(pool: &Pool) -> Result<bool> {
    let Some(swap) = FullSwap::begin(pool.folder())? else { return Ok(false) };
    (0..3).try_for_each(|_| pool.tell_to_sleep("back"))?;
    drop(swap);
    Ok(true)
}

/// For three seconds. False where the kernel closes no connections of others.
fn reset_connections(pool: &Pool) -> bool {
    let resets = (0..60).map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        pool.ports().into_iter().map(machine::reset_connections).sum::<usize>()
    });
    resets.sum::<usize>() > 0
}

fn stall(pool: &Pool) {
    for _ in 0..8 {
        for signal in [Signal::STOP, Signal::CONT] {
            pool.instances().into_iter().for_each(|pid| send(pid, signal));
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn change_store(pool: &mut Pool, change: impl FnOnce(&File) -> std::io::Result<()>) -> Result<()> {
    pool.stop_supervisor_while(|pool| {
        pool.kill(&["controller"]);
        let path = pool.state().join("controller/store.db");
        Ok(change(&OpenOptions::new().write(true).open(path)?)?)
    })
}

/// Waits until the next node agent has ended the instance whose record is gone: nothing else shows that the fault has begun.
fn empty_record(pool: &mut Pool) -> Result<()> {
    let (pid, folder) = pool.instance_with_folder()?;
    pool.stop_supervisor_while(|pool| {
        pool.kill(&["node"]);
        File::create(folder.join("spec.json"))?;
        Ok(())
    })?;
    pool.wait_for_end(pid)
}

fn steal_port(pool: &mut Pool) -> Result<()> {
    let port = pool.kill_instance()?;
    // weal may have given it to the next instance already.
    let stranger = std::net::TcpListener::bind(("127.0.0.1", port)).ok();
    std::thread::sleep(Duration::from_secs(3));
    drop(stranger);
    Ok(())
}

/// Clients that hold 300 connections for three seconds: half of them with half a head, the others with bytes that are no request.
fn bad_clients(pool: &mut Pool) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..300 {
        let mut client = std::net::TcpStream::connect(pool.listen())?;
        let bytes: &[u8] =
            if number % 2 == 0 { b"GET / HTTP/1.1\r\nhost: front.loc" } else { &[0x16, 0x00, 0xff, b'\n', 0x80, b'\r'] };
        // It may be cut off at once.
        let _ = client.write_all(bytes);
        clients.push(client);
    }
    std::thread::sleep(Duration::from_secs(3));
    Ok(())
}

fn roll_out(pool: &mut Pool) -> Result<()> {
    for more in ["env = { GENERATION = \"2\" }", ""] {
        pool.write(&pool.config(more))?;
        pool.wait_for_another_generation(!more.is_empty())?;
    }
    Ok(())
}

fn config_storm(pool: &mut Pool) -> Result<()> {
    for round in 0..10 {
        let text = if round % 2 == 0 {
            pool.config(&format!("queue-limit = {}", 400 + round))
        } else {
            "[app.front]\nrnu = 1\n".to_owned()
        };
        pool.write(&text)?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let good = pool.config("");
    pool.write(&good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_every_fault_once_and_a_seed_repeats_the_order() {
        let all = Fault::value_variants().len();
        let names = |seed, selection, many| order(seed, selection).take(many).map(Fault::name).collect::<Vec<_>>();
        let rounds = names(1, Selection::All, 2 * all);
        let (first, second) = rounds.split_at(all);
        for round in [first, second] {
            assert_eq!(round.iter().collect::<std::collections::BTreeSet<_>>().len(), all, "{round:?}");
        }
        assert_ne!(first, second);
        assert_eq!(rounds, names(1, Selection::All, 2 * all));
        assert_ne!(rounds, names(2, Selection::All, 2 * all));
    }

    #[test]
    fn beside_others_the_swap_of_the_machine_is_left_alone() {
        let round: Vec<&str> = order(1, Selection::OfThePool).take(Fault::value_variants().len() - 1).map(Fault::name).collect();
        assert!(!round.contains(&Fault::FullSwap.name()) && round.contains(&Fault::HungDisk.name()), "{round:?}");
    }
}
