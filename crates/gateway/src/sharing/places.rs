//! Who is there: one lock for each place, which its gateway holds as long as it lives, and one for the door.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use weal_control::flow::sharing::Place;

/// The places of the gateways of one pool.
#[derive(Debug)]
pub(super) struct Places {
    folder: PathBuf,
}

/// A place that is held until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    place: Place,
    _lock: File,
}

impl Held {
    pub fn place(&self) -> Place {
        self.place
    }
}

impl Places {
    /// Those whose locks are in `folder`, which is made if need be.
    pub fn below(folder: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Waits at the door: one gateway at a time comes in, or clears away what dead ones have left.
    pub fn lock_door(&self) -> io::Result<File> {
        let door = self.file("door")?;
        door.lock()?;
        Ok(door)
    }

    /// The door, unless somebody else is there.
    pub fn try_lock_door(&self) -> io::Result<Option<File>> {
        try_lock(self.file("door")?)
    }

    /// A place that nobody has. To be called at the door.
    pub fn take_any(&self) -> io::Result<Option<Held>> {
        for place in Place::all() {
            if let Some(held) = self.try_take(place)? {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    /// The places that nobody has. To be called at the door.
    pub fn vacant(&self, mine: &Held) -> io::Result<Vec<Place>> {
        let mut vacant = Vec::new();
        for place in Place::all().filter(|place| *place != mine.place) {
            vacant.extend(self.try_take(place)?.map(|held| held.place));
        }
        Ok(vacant)
    }

    fn try_take(&self, place: Place) -> io::Result<Option<Held>> {
        let lock = try_lock(self.file(&format!("place-{}", place.at()))?)?;
        Ok(lock.map(|lock| Held { place, _lock: lock }))
    }

    fn file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.folder.join(name))
    }
}

fn try_lock(file: File) -> io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
