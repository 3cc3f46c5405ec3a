//! Processes that applications left behind.
//!
//! Without control groups a process can leave its instance: it detaches itself and clears its environment. What it cannot change is the user that
//! it runs as. An application's own number is nobody else's on this machine, so every process that runs as it is the application's.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weal_host::{Identity, Proc};

use crate::accounts::numbers::Numbers;
use crate::shim::marked_in;
use crate::signals::send;

/// How long killed processes may take to go. Each round also meets what was forked meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A process that an application left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// What became of the processes that were left behind.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Strays {
    /// They ran as an application's own user, and were killed.
    pub ended: Vec<Stray>,
    /// They run on: they do not go, or another user than an application's own runs them too, so that the environment they were started with is
    /// all that tells of this pool.
    pub left: Vec<Stray>,
}

/// Ends what the applications of the pool in `state` left behind and says what it cannot end. Only for when no instance of the pool is to run.
///
/// # Errors
/// The applications' users cannot be read.
pub fn end_strays(state: &Path) -> io::Result<Strays> {
    let proc = Proc::system();
    let is_root = rustix::process::geteuid().is_root();
    let numbers = if is_root { Numbers::new(Path::new("/"), state).held()? } else { BTreeSet::new() };
    let mut strays = Strays::default();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let own = running_as(&proc, &numbers);
        if own.is_empty() || Instant::now() >= deadline {
            strays.left = own.iter().map(|identity| stray(&proc, identity.pid)).collect();
            break;
        }
        for identity in own {
            let stray = stray(&proc, identity.pid);
            if !strays.ended.contains(&stray) {
                strays.ended.push(stray);
            }
            if let Some(handle) = proc.open(identity) {
                send(&handle, Signal::KILL)?;
            }
        }
        std::thread::sleep(PAUSE);
    }
    strays.ended.retain(|stray| !strays.left.contains(stray));
    strays.left.extend(marked(&proc, state));
    Ok(strays)
}

/// The living processes of users with these numbers.
fn running_as(proc: &Proc, numbers: &BTreeSet<u32>) -> Vec<Identity> {
    if numbers.is_empty() {
        return Vec::new();
    }
    // Who they are is read first: one that gets the number of a process that ended has another identity.
    let all = proc.all().into_iter().filter(weal_host::Stat::is_alive).map(|stat| stat.identity());
    all.filter(|identity| proc.users(identity.pid).iter().any(|uid| numbers.contains(uid))).collect()
}

/// The processes that still say in their environment which instance of this pool they belong to.
fn marked(proc: &Proc, state: &Path) -> Vec<Stray> {
    let instances = state.join("node/instances");
    let is_ours = |pid: u32| marked_in(proc, pid, &instances).is_some();
    proc.all().into_iter().filter(|stat| stat.is_alive() && is_ours(stat.pid)).map(|stat| stray(proc, stat.pid)).collect()
}

fn stray(proc: &Proc, pid: u32) -> Stray {
    Stray { pid, name: proc.name(pid).unwrap_or_else(|| "a process".to_owned()) }
}
