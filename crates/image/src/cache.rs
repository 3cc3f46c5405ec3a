//! Images that are unpacked, each once, under the digest of its config. All instances of an image read the same files.
//!
//! | in the folder | is |
//! | --- | --- |
//! | `roots/HEX/` | an image, whole |
//! | `names/HEX` | the path that it was last asked for by; without it, only instances that run keep it |
//! | `new/` | one that is being unpacked, or was when its agent died |

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::digest::Digest;
use crate::error::ImageError;
use crate::image::Image;
use crate::layer::Room;
use crate::settings::Settings;

/// A folder of images that are unpacked. One process at a time uses it.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    /// One is unpacked at a time.
    busy: Mutex<()>,
}

/// An image that is unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// The digest of its config.
    pub id: Digest,
    /// Its files.
    pub root: PathBuf,
    /// How its program is run.
    pub settings: Settings,
    /// Whether that was done just now.
    pub is_new: bool,
}

impl Cache {
    /// The cache in `folder`, which is made where somebody first needs it.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, busy: Mutex::new(()) }
    }

    /// The image at `path`, unpacked.
    ///
    /// # Errors
    /// See [`Image::open`] and [`Image::unpack`].
    pub fn provide(&self, path: &Path) -> Result<Unpacked, ImageError> {
        let image = Image::open(path)?;
        let _busy = self.busy.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let root = self.roots().join(image.id().hex());
        self.make().map_err(ImageError::at(&self.folder))?;
        let is_new = !root.exists();
        if is_new {
            let new = self.folder.join("new");
            remove(&new).map_err(ImageError::at(&new))?;
            fs::create_dir(&new).map_err(ImageError::at(&new))?;
            let unpacked = image.unpack(&new, &mut Room::default());
            if unpacked.is_err() {
                let _ = remove(&new);
            }
            unpacked?;
            // Everybody reads it, whatever the umask is. Who gets there decides the folder above.
            let shown = fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).and_then(|()| fs::rename(&new, &root));
            shown.map_err(ImageError::at(&root))?;
        }
        self.name(image.id(), path).map_err(ImageError::at(&self.folder))?;
        Ok(Unpacked { id: image.id(), root, settings: image.settings().clone(), is_new })
    }

    /// Removes every image that is neither `in_use`, by its folder, nor at one of the paths that are `named`. Returns how many.
    ///
    /// # Errors
    /// One cannot be removed.
    pub fn sweep(&self, in_use: &BTreeSet<PathBuf>, named: &BTreeSet<String>) -> io::Result<usize> {
        let _busy = self.busy.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let entries = match fs::read_dir(self.roots()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut removed = 0;
        for entry in entries {
            let entry = entry?;
            let name = self.names().join(entry.file_name());
            let is_named = fs::read_to_string(&name).is_ok_and(|path| named.contains(&path));
            if is_named || in_use.contains(&entry.path()) {
                continue;
            }
            // A part of it must never be taken for the whole.
            let old = self.folder.join("new");
            remove(&old)?;
            fs::rename(entry.path(), &old)?;
            remove(&old)?;
            let _ = fs::remove_file(name);
            removed += 1;
        }
        Ok(removed)
    }

    fn roots(&self) -> PathBuf {
        self.folder.join("roots")
    }

    fn names(&self) -> PathBuf {
        self.folder.join("names")
    }

    fn make(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(self.roots())?;
        builder.create(self.names())
    }

    /// Writes down that this is now the image at `path`, and no other.
    fn name(&self, id: Digest, path: &Path) -> io::Result<()> {
        let path = path.to_string_lossy();
        for entry in fs::read_dir(self.names())? {
            let entry = entry?;
            if entry.file_name().to_str() != Some(id.hex().as_str()) && fs::read_to_string(entry.path())? == path {
                fs::remove_file(entry.path())?;
            }
        }
        fs::write(self.names().join(id.hex()), path.as_bytes())
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
