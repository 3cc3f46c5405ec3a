//! The reserve: memory that is kept free on a node for the next instance that starts, wakes or grows there.
//!
//! The placement controller decides how much and hands it over with its plans; between two plans the agent upholds it, because memory runs
//! short faster than plans come. With
//!
//! - `R` the reserve of a node, `C` its capacity, `U` what its instances use,
//! - `A` what the machine has available, of which each node has the part `R / sum of all R`,
//!
//! a node has `F = min(C - U, A R / sum R)` free, and while `F < R` it parks instances that sleep with their memory, one after the other,
//! those first that have been on their rung the longest (al-Qudah section 3: paged out in bulk, ahead of need).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use weal_model::{Bytes, NodeName};
use weal_protocol::node::NodeReserve;

use crate::files::{read_json, write_json};

/// The reserves, as last handed over.
const FILE: &str = "reserves.json";

/// What a node keeps free, and what that has led to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// What is to be free.
    pub memory: Bytes,
    /// Instances that were parked for it since the agent started.
    pub parked: u64,
}

/// What each node keeps free. A former agent's reserves stand until others are handed over.
#[derive(Debug)]
pub struct Reserves {
    nodes: Mutex<BTreeMap<NodeName, Reserve>>,
    file: PathBuf,
}

impl Reserves {
    /// Those that were handed over last, as `dir` remembers them.
    pub fn load(dir: &Path) -> Self {
        let file = dir.join(FILE);
        let known: Vec<NodeReserve> = read_json(&file).ok().flatten().unwrap_or_default();
        let nodes = known.into_iter().map(|NodeReserve { node, memory }| (node, Reserve { memory, parked: 0 })).collect();
        Self { nodes: Mutex::new(nodes), file }
    }

    /// Takes others over; a node that is not named keeps nothing free.
    ///
    /// # Errors
    /// They are in force and could not be written down.
    pub fn set(&self, wanted: &[NodeReserve]) -> std::io::Result<()> {
        let mut nodes = self.lock();
        let before = nodes.clone();
        nodes.values_mut().for_each(|reserve| reserve.memory = Bytes(0));
        for NodeReserve { node, memory } in wanted {
            nodes.entry(node.clone()).or_default().memory = *memory;
        }
        if *nodes == before { Ok(()) } else { write_json(&self.file, &wanted) }
    }

    /// What `node` keeps free.
    pub fn of(&self, node: &NodeName) -> Reserve {
        self.lock().get(node).copied().unwrap_or_default()
    }

    /// The nodes that keep something free, and how much.
    pub fn all(&self) -> Vec<(NodeName, Bytes)> {
        let nodes = self.lock();
        nodes.iter().filter(|(_, kept)| kept.memory > Bytes(0)).map(|(node, kept)| (node.clone(), kept.memory)).collect()
    }

    /// An instance was parked for the reserve of `node`.
    pub fn note_parked(&self, node: NodeName) {
        self.lock().entry(node).or_default().parked += 1;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeName, Reserve>> {
        self.nodes.lock().expect("nothing panics while it is held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_agent_keeps_the_same_memory_free_until_it_is_told_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = |node: &str, mib: u64| NodeReserve { node: node.into(), memory: Bytes::mib(mib) };
        let first = Reserves::load(dir.path());
        assert_eq!(first.all(), []);
        first.set(&[reserve("a", 10), reserve("b", 20)]).unwrap();
        first.note_parked("a".into());
        assert_eq!(first.of(&"a".into()), Reserve { memory: Bytes::mib(10), parked: 1 });
        let next = Reserves::load(dir.path());
        assert_eq!(next.all(), [("a".into(), Bytes::mib(10)), ("b".into(), Bytes::mib(20))]);
        assert_eq!(next.of(&"a".into()).parked, 0);
        next.set(&[reserve("b", 5)]).unwrap();
        assert_eq!(Reserves::load(dir.path()).all(), [("b".into(), Bytes::mib(5))]);
    }
}
