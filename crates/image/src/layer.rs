//! Layers: archives that are put over one another (OCI image specification 1.1, layer.md).
//!
//! An entry replaces what a lower layer had under its name. An entry `.wh.NAME` removes `NAME`, and `.wh..wh..opq` all that lower layers have in
//! its folder. What is unpacked is read by a user who owns nothing of it, so that the rights of a file's owner become those of all; nobody
//! writes it. Owners, set-user-ID bits and extended attributes are left out.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use tar::{Archive, Entry, EntryType, PaxExtensions};

use crate::error::LayerError;
use crate::paths::{self, LONGEST_PATH, Placed, names, shown};
use crate::tree::Tree;

/// What an image may take once it is unpacked: the largest ones in use have some 10 GiB.
const MOST_BYTES: u64 = 16 << 30;
/// Entries of all its layers.
const MOST_ENTRIES: u64 = 1_000_000;
/// What describes an entry beforehand: its path, its target, its attributes.
const LONGEST_DESCRIPTION: u64 = 1 << 20;
/// What a whiteout's name begins with.
const WHITEOUT: &[u8] = b".wh.";
/// Hides all that lower layers have in its folder.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What an image may still take.
#[derive(Debug, Clone)]
pub struct Room {
    bytes: Rc<Cell<u64>>,
    entries: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self::new(MOST_BYTES, MOST_ENTRIES)
    }
}

impl Room {
    /// So many bytes and so many entries.
    pub fn new(bytes: u64, entries: u64) -> Self {
        Self { bytes: Rc::new(Cell::new(bytes)), entries }
    }

    /// What comes out of `reader`, as long as there is room.
    pub(crate) fn bounded<R: Read>(&self, reader: R) -> Bounded<R> {
        Bounded { reader, bytes: Rc::clone(&self.bytes) }
    }

    pub(crate) fn entries(&mut self) -> &mut u64 {
        &mut self.entries
    }
}

/// A reader that ends with an error where there is no more room.
pub(crate) struct Bounded<R> {
    reader: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        let left = self.bytes.get().checked_sub(length as u64);
        self.bytes.set(left.ok_or_else(|| io::Error::other(LayerError::TooMuch("16 GiB")))?);
        Ok(length)
    }
}

/// What comes before an entry and describes it.
#[derive(Default)]
struct Description {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Unpacks a layer over what is in `tree`. `entries` says how many there may be.
///
/// # Errors
/// It is no such archive, or does what none may. What came before that is unpacked.
pub(crate) fn apply(layer: impl Read, tree: &Tree, entries: &mut u64) -> Result<(), LayerError> {
    let mut archive = Archive::new(layer);
    let (mut said, mut placed) = (Description::default(), Placed::default());
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        *entries = entries.checked_sub(1).ok_or(LayerError::TooMuch("a million entries"))?;
        match entry.header().entry_type() {
            EntryType::XHeader => said.handle_pax(&describing(&mut entry)?)?,
            EntryType::XGlobalHeader => drop(describing(&mut entry)?),
            EntryType::GNULongName => said.path = Some(text_of(describing(&mut entry)?)),
            EntryType::GNULongLink => said.target = Some(text_of(describing(&mut entry)?)),
            kind => place(&mut entry, kind, std::mem::take(&mut said), tree, &mut placed)?,
        }
    }
    Ok(())
}

impl Description {
    fn handle_pax(&mut self, records: &[u8]) -> Result<(), LayerError> {
        for record in PaxExtensions::new(records) {
            let record = record?;
            match record.key_bytes() {
                b"path" => self.path = Some(record.value_bytes().to_vec()),
                b"linkpath" => self.target = Some(record.value_bytes().to_vec()),
                b"size" => self.size = Some(record.value().ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)),
                // The content of such a file is not what the archive holds.
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(LayerError::Description { path: shown(self.path.as_deref().unwrap_or(b"a sparse file")) });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What an entry that describes another one says.
fn describing(entry: &mut Entry<impl Read>) -> Result<Vec<u8>, LayerError> {
    if entry.size() > LONGEST_DESCRIPTION {
        return Err(LayerError::Description { path: shown(&entry.path_bytes()) });
    }
    let mut text = Vec::new();
    entry.take(LONGEST_DESCRIPTION).read_to_end(&mut text)?;
    Ok(text)
}

/// Up to the zero byte that ends it.
fn text_of(mut text: Vec<u8>) -> Vec<u8> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.truncate(end);
    text
}

fn place(
    entry: &mut Entry<impl Read>,
    kind: EntryType,
    said: Description,
    tree: &Tree,
    placed: &mut Placed,
) -> Result<(), LayerError> {
    let path = said.path.unwrap_or_else(|| entry.path_bytes().into_owned());
    if said.size.is_some_and(|size| size != entry.size()) {
        return Err(LayerError::Description { path: shown(&path) });
    }
    let names = names(&path)?;
    let Some((last, above)) = names.split_last() else {
        // The root itself, which is ours.
        return Ok(());
    };
    if let Some(hidden) = last.as_bytes().strip_prefix(WHITEOUT) {
        return hide(last.as_bytes(), hidden, above, tree, placed);
    }
    let target = || said.target.clone().or_else(|| entry.link_name_bytes().map(|target| target.into_owned()));
    let mode = widened(entry.header().mode()?);
    match kind {
        EntryType::Directory => tree.make_folder(&names)?,
        EntryType::Symlink => {
            let target = target().unwrap_or_default();
            if target.is_empty() || target.len() > LONGEST_PATH || target.contains(&0) {
                return Err(LayerError::Description { path: shown(&path) });
            }
            tree.make_link(&names, OsStr::from_bytes(&target))?;
        }
        EntryType::Link => {
            let target = target().unwrap_or_default();
            tree.link(&names, &paths::names(&target)?)?;
        }
        EntryType::Regular | EntryType::Continuous => {
            let (size, time) = (entry.size(), entry.header().mtime().unwrap_or(0));
            if tree.make_file(&names, mode, time, entry)? != size {
                return Err(LayerError::CutOff { path: shown(&path) });
            }
        }
        other => return Err(LayerError::Kind { path: shown(&path), what: what(other) }),
    }
    placed.add(&names)
}

/// Hides what lower layers have. `name` is the whole name of the whiteout.
fn hide(name: &[u8], hidden: &[u8], above: &[&OsStr], tree: &Tree, placed: &Placed) -> Result<(), LayerError> {
    if name == OPAQUE {
        return tree.hide_content(above, placed);
    }
    if hidden.starts_with(WHITEOUT) {
        // Marks of a file system that once wrote such layers.
        return Ok(());
    }
    if matches!(hidden, b"" | b"." | b"..") {
        return Err(LayerError::BadName { path: shown(name) });
    }
    let names: Vec<&OsStr> = above.iter().copied().chain([OsStr::from_bytes(hidden)]).collect();
    tree.hide(&names, placed)
}

/// What everybody may do: read and run what the image's own users may, and write nothing.
fn widened(mode: u32) -> u32 {
    let any = (mode >> 6 | mode >> 3 | mode) & 0o5;
    any << 6 | any << 3 | any
}

fn what(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Char | EntryType::Block => "a device",
        EntryType::Fifo => "a pipe",
        EntryType::GNUSparse => "a sparse file",
        _ => "of an unknown kind",
    }
}

#[cfg(test)]
mod tests;
