//! Locality-aware request distribution (Pai et al. 1998; Tsai 2.4 and 4.3.2): a table says which instances serve a name.
//!
//! A name's first request goes to the least loaded instance, and so do the next ones, until that one is overloaded:
//!
//! ```text
//! load(n) > T_high and some load(m) < T_low,  or  load(n) >= 2 T_high:   the least loaded serves the name from now on
//! ```
//!
//! `T_low / T_high` is 25/65, as published. With `S` seats over `n` instances, `S = (n - 1) T_high + T_low - 1` keeps all of them from
//! reaching `T_high` at once (Pai et al. section 2.4), which gives `T_high`. Without a limit it is 65.
//!
//! With replication, the least loaded of a name's set is taken, and an overloaded set gets one more. A full one gives up its oldest for
//! that, as an overloaded instance does without replication. A set that has not changed for [`SHRINKS_AFTER`] loses its most loaded.
//!
//! An entry names an instance's life. One that died and came back finds nothing of what its predecessor had read, so its entries are
//! void. They are replaced when they are looked up (Tsai 4.3.2, the second approach).
//!
//! The table holds at most [`MOST_NAMES`] names in two generations. A name that is looked up moves to the young one. When that is half of
//! the table, it becomes the old one, and what was old is forgotten: the names that no request had since.

use std::collections::BTreeMap;
use std::time::Duration;

use weal_model::Time;

/// Names in the table. An entry takes about a hundred bytes, so a full table takes some 6 MB.
pub const MOST_NAMES: usize = 1 << 16;

/// `K` of the paper: a set that has been overloaded keeps its instances at least for so long.
pub const SHRINKS_AFTER: Duration = Duration::from_secs(20);

/// Instances in one set at most: a bound on the memory of an entry.
const MOST_REPLICAS: usize = 16;

/// `T_low` and `T_high` as published, in outstanding requests.
const PUBLISHED: (f64, f64) = (25.0, 65.0);

/// Loads by which instances count as idle and as overloaded, in outstanding requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Thresholds {
    pub low: f64,
    pub high: f64,
}

impl Thresholds {
    /// Those of `instances` that share `seats`; `None` knows no limit.
    pub fn of(seats: Option<u32>, instances: usize) -> Self {
        let ratio = PUBLISHED.0 / PUBLISHED.1;
        let high = seats.map_or(PUBLISHED.1, |seats| (f64::from(seats) + 1.0) / (instances.max(1) as f64 - 1.0 + ratio));
        let high = high.max(1.0);
        Self { low: high * ratio, high }
    }

    fn is_overloaded(&self, load: f64, least: f64) -> bool {
        (load > self.high && least < self.low) || load >= 2.0 * self.high
    }
}

/// An instance as an entry knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Server {
    pub slot: u32,
    pub life: u32,
}

/// What there is to choose from.
pub(super) trait Servers {
    /// The load of a server in outstanding requests; `None` when it is gone, has died since, or may not be taken.
    fn load(&self, server: Server) -> Option<f64>;
    /// The least loaded that may be taken.
    fn least_loaded(&self) -> Option<Server>;
}

/// Which instances serve which names.
#[derive(Debug, Default)]
pub(super) struct Table {
    young: BTreeMap<u64, Entry>,
    old: BTreeMap<u64, Entry>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Invariant: at most [`MOST_REPLICAS`]; empty where none could be taken when it was looked up.
    servers: Vec<Server>,
    changed: Time,
}

impl Table {
    /// The server for a name. `replicas` is the most that may serve it: 1 is LARD without replication. `None` when nothing may be taken.
    pub fn choose(
        &mut self,
        now: Time,
        name: u64,
        replicas: usize,
        thresholds: Thresholds,
        servers: &impl Servers,
    ) -> Option<Server> {
        let entry = self.entry(name);
        let before = entry.servers.len();
        entry.servers.retain(|&server| servers.load(server).is_some());
        if entry.servers.len() != before {
            entry.changed = now;
        }
        let by_load = |a: &&Server, b: &&Server| servers.load(**a).unwrap_or(0.0).total_cmp(&servers.load(**b).unwrap_or(0.0));
        let chosen = entry.servers.iter().min_by(by_load).copied();
        let load = chosen.map_or(f64::INFINITY, |server| servers.load(server).unwrap_or(0.0));
        let chosen = match chosen {
            // Mostly: there is no need to look at all the others.
            Some(server) if load <= thresholds.high => server,
            _ => {
                let idlest = servers.least_loaded()?;
                let least = servers.load(idlest)?;
                let stays = chosen.filter(|&server| server == idlest || !thresholds.is_overloaded(load, least));
                stays.unwrap_or_else(|| entry.add(now, idlest, replicas))
            }
        };
        if entry.servers.len() > 1 && now.since(entry.changed) > SHRINKS_AFTER {
            let most = entry.servers.iter().filter(|server| **server != chosen).max_by(by_load).copied();
            entry.servers.retain(|server| Some(*server) != most);
            entry.changed = now;
        }
        Some(chosen)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    #[cfg(test)]
    pub fn names(&self) -> usize {
        self.young.len() + self.old.len()
    }

    #[cfg(test)]
    pub fn servers_of(&self, name: u64) -> usize {
        self.young.get(&name).map_or(0, |entry| entry.servers.len())
    }

    fn entry(&mut self, name: u64) -> &mut Entry {
        if !self.young.contains_key(&name) {
            if self.young.len() >= MOST_NAMES / 2 {
                self.old = std::mem::take(&mut self.young);
            }
            let known = self.old.remove(&name).unwrap_or_default();
            self.young.insert(name, known);
        }
        self.young.entry(name).or_default()
    }
}

impl Entry {
    /// One more serves the name, in the place of all others where only one may.
    fn add(&mut self, now: Time, server: Server, replicas: usize) -> Server {
        let most = replicas.clamp(1, MOST_REPLICAS);
        if self.servers.len() >= most {
            self.servers.remove(0);
        }
        self.servers.push(server);
        self.changed = now;
        server
    }
}
