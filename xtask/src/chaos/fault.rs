//! What goes wrong.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use rustix::process::Signal;

use super::pool::Pool;

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
    KillControllerAndAgent,
    /// The supervisor is killed, and the next one takes over.
    KillSupervisor,
    /// All of weal is killed at once, and the next supervisor finds what runs.
    KillAll,
    /// A role stands still until the watchdog replaces it.
    StopController,
    /// The same.
    StopAgent,
    /// The supervisor stands still for a while.
    StopSupervisor,
    /// The disk of the state directory is full for a while, and roles die meanwhile.
    FullDisk,
    /// The store's pages are damaged while the controller is away.
    DamagedStore,
    /// The record of processes is removed.
    LostRecord,
    /// All that is in the state directory is removed.
    LostState,
    /// An instance is killed.
    KillInstance,
    /// An instance's shim is killed.
    KillShim,
    /// Ten configs within a second, every other one with a mistake.
    ConfigStorm,
    /// The config is read again and again.
    Reloads,
}

/// The faults in the order that `seed` gives: all of them, then all of them in another order, and so on.
pub fn order(seed: u64, only: Option<Fault>) -> impl Iterator<Item = Fault> {
    let mut rng = weal_rng::stream(seed, "chaos");
    let mut left: Vec<Fault> = Vec::new();
    std::iter::from_fn(move || {
        if left.is_empty() {
            left = only.map_or_else(|| Fault::value_variants().to_vec(), |fault| vec![fault]);
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
            Self::KillControllerAndAgent => "kill-controller-and-agent",
            Self::KillSupervisor => "kill-supervisor",
            Self::KillAll => "kill-all",
            Self::StopController => "stop-controller",
            Self::StopAgent => "stop-agent",
            Self::StopSupervisor => "stop-supervisor",
            Self::FullDisk => "full-disk",
            Self::DamagedStore => "damaged-store",
            Self::LostRecord => "lost-record",
            Self::LostState => "lost-state",
            Self::KillInstance => "kill-instance",
            Self::KillShim => "kill-shim",
            Self::ConfigStorm => "config-storm",
            Self::Reloads => "reloads",
        }
    }

    /// Whether requests that are under way may be cut: those that a killed gateway or a killed instance held.
    pub fn may_cut(self) -> bool {
        // Without the state directory a new gateway has no config for some milliseconds (docs/robustness.md, open).
        matches!(self, Self::KillGateway | Self::KillGatewayAndController | Self::KillAll | Self::KillInstance | Self::LostState)
    }

    /// Lets it happen. False where this machine does not let it.
    pub fn strike(self, pool: &mut Pool) -> Result<bool> {
        match self {
            Self::KillGateway => pool.kill(&["gateway"]),
            Self::KillController => pool.kill(&["controller"]),
            Self::KillAgent => pool.kill(&["node"]),
            Self::KillGatewayAndController => pool.kill(&["gateway", "controller"]),
            Self::KillControllerAndAgent => pool.kill(&["controller", "node"]),
            Self::KillSupervisor => pool.replace_supervisor(&[])?,
            Self::KillAll => pool.replace_supervisor(&["gateway", "controller", "node"])?,
            Self::StopController => pool.stop_until_replaced("controller")?,
            Self::StopAgent => pool.stop_until_replaced("node")?,
            Self::StopSupervisor => {
                pool.signal_supervisor(Signal::STOP);
                std::thread::sleep(Duration::from_secs(3));
                pool.signal_supervisor(Signal::CONT);
            }
            Self::FullDisk => return full_disk(pool),
            Self::DamagedStore => damage_store(pool)?,
            Self::LostRecord => fs::remove_file(pool.state().join("supervisor.json"))?,
            Self::LostState => {
                for entry in fs::read_dir(pool.state())? {
                    let path = entry?.path();
                    // What is written there meanwhile may stay: the rest of the pool must get over a part that is missing as well.
                    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
                }
            }
            Self::KillInstance => pool.kill_instance()?,
            Self::KillShim => pool.kill_shim()?,
            Self::ConfigStorm => config_storm(pool)?,
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

fn damage_store(pool: &mut Pool) -> Result<()> {
    pool.stop_supervisor_while(|pool| {
        pool.kill(&["controller"]);
        let path = pool.state().join("controller/store.db");
        let file = OpenOptions::new().write(true).open(path)?;
        for page in 1..file.metadata()?.len() / 4096 {
            file.write_all_at(&[0x5a; 4096], page * 4096)?;
        }
        Ok(())
    })
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
