//! What is written to a control group: the operations that v1 and v2 share.

use std::fs;
use std::io;

use weal_host::cgroup::Group;

use super::Occupied;
use crate::files::at;

/// Changing a group. Reading one is [`Group`]'s own.
pub trait GroupChange {
    /// Makes it, with its parents; true when it was not there.
    fn create(&self) -> io::Result<bool>;

    /// Takes it away if it is empty of processes and groups. That it is gone already is no error.
    fn remove(&self) -> io::Result<()>;

    /// Takes away every empty group below it, and itself.
    fn remove_empty(&self);

    /// Writes to one of its files.
    fn write(&self, name: &str, value: &str) -> io::Result<()>;
}

impl GroupChange for Group {
    fn create(&self) -> io::Result<bool> {
        if self.exists() {
            return Ok(false);
        }
        fs::create_dir_all(self.path()).map_err(at(self.path()))?;
        Ok(true)
    }

    fn remove(&self) -> io::Result<()> {
        match fs::remove_dir(self.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(self.path())(error)),
            _ => Ok(()),
        }
    }

    fn remove_empty(&self) {
        for child in self.children() {
            child.remove_empty();
        }
        // A group that still holds processes stays, and so do its parents.
        let _ = self.remove();
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.file(name);
        fs::write(&path, value).map_err(at(&path))
    }
}

/// The instances below `top` that hold processes, as groups are laid out: `NODE/INSTANCE`. What begins with a point is weal's own.
pub fn occupied(top: &Group) -> Vec<Occupied> {
    let name = |group: &Group| Some(group.path().file_name()?.to_str()?.to_owned());
    let is_node = |group: &Group| name(group).is_some_and(|name| !name.starts_with('.'));
    let mut places = Vec::new();
    for node in top.children().into_iter().filter(is_node) {
        let instances = node.children().into_iter().filter(|instance| !instance.processes().is_empty());
        places.extend(instances.filter_map(|instance| Some(Occupied { node: name(&node)?, instance: name(&instance)? })));
    }
    places
}

/// CPU as a share relative to siblings: `per_core` for one core, within what the kernel takes.
pub fn weight(share: f64, per_core: f64, range: std::ops::RangeInclusive<u64>) -> u64 {
    let weight = (share.max(0.0) * per_core).round() as u64;
    weight.clamp(*range.start(), *range.end())
}

/// The value of `pids.max`, which v1 and v2 have in common.
pub fn processes(limit: Option<u32>) -> String {
    limit.map_or_else(|| "max".to_owned(), |most| most.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_groups_are_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let top = Group::new(folder.path().join("weal"));
        assert!(top.child("n1/a-1").create().unwrap());
        assert!(!top.child("n1/a-1").create().unwrap());
        top.child("n2").create().unwrap();
        // A directory with a file in it cannot be removed, like a group with a process.
        top.child("n1/a-1").write("busy", "").unwrap();
        top.remove_empty();
        assert!(top.child("n1/a-1").exists());
        assert!(!top.child("n2").exists());
    }

    #[test]
    fn weights_stay_within_what_the_kernel_takes() {
        assert_eq!(weight(1.0, 100.0, 1..=10_000), 100);
        assert_eq!(weight(0.0, 100.0, 1..=10_000), 1);
        assert_eq!(weight(1e9, 100.0, 1..=10_000), 10_000);
        assert_eq!(weight(f64::NAN, 1024.0, 2..=262_144), 2);
    }
}
