//! Where an image's files are: in a folder, or in an archive of one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use tar::{Archive, EntryType};

use crate::error::ImageError;

/// Files in one archive. An image of 128 layers has some hundreds.
const MOST_FILES: usize = 10_000;

/// Where an image's files are.
pub(crate) enum Source {
    /// In a folder.
    Folder(OwnedFd),
    /// In an archive, by their names: the first byte of each, and the first one behind it.
    Archive(Arc<File>, BTreeMap<String, (u64, u64)>),
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self, ImageError> {
        let failed = |error: Errno| ImageError::at(path)(error.into());
        // What is no file and no folder must not hold anybody up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        match FileType::from_raw_mode(fstat(&opened).map_err(failed)?.st_mode) {
            FileType::Directory => Ok(Self::Folder(opened)),
            FileType::RegularFile => {
                let file = File::from(opened);
                if is_compressed(&file) {
                    return Err(ImageError::Compressed(path.to_owned()));
                }
                let files = index(&file).map_err(ImageError::at(path))?;
                Ok(Self::Archive(Arc::new(file), files))
            }
            _ => Err(ImageError::NotAnImage(path.to_owned())),
        }
    }

    /// The file `name`; `None` where there is none.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Piece>, ImageError> {
        match self {
            Self::Archive(file, files) => Ok(files.get(name).map(|&(at, end)| Piece { file: Arc::clone(file), at, end })),
            Self::Folder(folder) => {
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let failed = |error: Errno| ImageError::at(Path::new(name))(error.into());
                let opened = match openat2(folder, name, flags, Mode::empty(), resolve) {
                    Err(Errno::NOENT) => return Ok(None),
                    opened => opened.map_err(failed)?,
                };
                let found = fstat(&opened).map_err(failed)?;
                if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
                    return Ok(None);
                }
                let end = u64::try_from(found.st_size).unwrap_or(0);
                Ok(Some(Piece { file: Arc::new(File::from(opened)), at: 0, end }))
            }
        }
    }

    /// The same, which has to be there.
    pub(crate) fn get(&self, name: &str) -> Result<Piece, ImageError> {
        self.find(name)?.ok_or_else(|| ImageError::Missing { name: name.to_owned() })
    }

    /// What stands in a document, which is not longer than `most`.
    pub(crate) fn document(&self, name: &str, most: u64) -> Result<Vec<u8>, ImageError> {
        let piece = self.get(name)?;
        if piece.len() > most {
            return Err(ImageError::TooLong { name: name.to_owned(), most });
        }
        let mut text = Vec::new();
        piece.take(most).read_to_end(&mut text).map_err(ImageError::at(Path::new(name)))?;
        Ok(text)
    }
}

/// A part of a file. Several may read the same file at once.
#[derive(Clone)]
pub(crate) struct Piece {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Piece {
    pub(crate) fn len(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }
}

impl Read for Piece {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.len()).unwrap_or(usize::MAX).min(buffer.len());
        let length = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}

/// The files of an archive. Names of layouts are short, so that no extension of the format is needed to say them.
fn index(file: &File) -> io::Result<BTreeMap<String, (u64, u64)>> {
    let mut archive = Archive::new(file);
    let mut files = BTreeMap::new();
    for entry in archive.entries_with_seek()?.raw(true) {
        let entry = entry?;
        if files.len() == MOST_FILES {
            return Err(io::Error::other("it holds more files than any image"));
        }
        if !matches!(entry.header().entry_type(), EntryType::Regular | EntryType::Continuous) {
            continue;
        }
        let path = entry.path_bytes();
        let Ok(name) = std::str::from_utf8(&path) else { continue };
        let (at, size) = (entry.raw_file_position(), entry.size());
        let end = at.checked_add(size).ok_or(io::ErrorKind::InvalidData)?;
        files.insert(name.strip_prefix("./").unwrap_or(name).to_owned(), (at, end));
    }
    Ok(files)
}

fn is_compressed(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok_and(|()| Packing::of(&magic) != Packing::Plain)
}

/// How a layer is packed, which its first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    pub(crate) fn of(magic: &[u8]) -> Self {
        match magic {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }
}
