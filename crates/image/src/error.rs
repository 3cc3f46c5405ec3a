//! Why an image cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::{BadDigest, Digest};

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Its file or folder cannot be read, or the place where it is unpacked cannot be written.
    #[error("{}: {source}", .path.display())]
    System {
        /// What could not be read or written.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no image: it holds neither an `index.json` (OCI) nor a `manifest.json` (`docker save`)", .0.display())]
    NotAnImage(PathBuf),
    /// It is an archive that was compressed as a whole.
    #[error("{} is compressed as a whole: unpack it once, for example with gunzip", .0.display())]
    Compressed(PathBuf),
    /// A file that it names is not in it.
    #[error("it names {name}, which it does not hold")]
    Missing {
        /// The file.
        name: String,
    },
    /// A document of it is longer than any that is honest.
    #[error("its {name} is longer than {most} bytes")]
    TooLong {
        /// The document.
        name: String,
        /// What is taken at most.
        most: u64,
    },
    /// A document of it cannot be understood.
    #[error("its {name} cannot be understood: {source}")]
    Document {
        /// The document.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
    /// It names something by a digest that is none.
    #[error(transparent)]
    Digest(#[from] BadDigest),
    /// A part of it is not what it says.
    #[error("its {name} was changed or is damaged: its digest is {found}, and it should be {expected}")]
    Changed {
        /// The part.
        name: String,
        /// What the image says.
        expected: Digest,
        /// What the part has.
        found: Digest,
    },
    /// It has more or fewer layers than it says, or more than any that is honest.
    #[error("it has {layers} layers, and its config says {said}")]
    Layers {
        /// Those that it holds.
        layers: usize,
        /// Those that its config says.
        said: usize,
    },
    /// It holds several images, and nothing tells which is meant.
    #[error("it holds several images ({}): keep one of them in it", .names.join(", "))]
    Several {
        /// What they are called.
        names: Vec<String>,
    },
    /// It is for other machines.
    #[error("it has nothing for linux/{wanted}, only for {}", if .there.is_empty() { "nobody".to_owned() } else { .there.join(", ") })]
    OtherMachine {
        /// This machine's architecture.
        wanted: &'static str,
        /// For which it is.
        there: Vec<String>,
    },
    /// A setting of it can be given to no process.
    #[error("its {what} holds a zero byte")]
    ZeroByte {
        /// Which.
        what: &'static str,
    },
    /// A layer of it cannot be unpacked.
    #[error("its layer {number} cannot be unpacked: {source}")]
    Layer {
        /// Which, from 1.
        number: usize,
        /// Why.
        source: LayerError,
    },
}

impl ImageError {
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        move |source| Self::System { path: path.to_owned(), source }
    }
}

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// It is no archive, or a file cannot be written.
    #[error(transparent)]
    System(#[from] io::Error),
    /// An entry would be outside of the image.
    #[error("{path} leads out of the image")]
    LeadsOut {
        /// The entry.
        path: String,
    },
    /// An entry cannot be called so.
    #[error("an entry is called {path}, which no file can be")]
    BadName {
        /// The entry.
        path: String,
    },
    /// An entry is a device, a pipe or something unknown.
    #[error("{path} is {what}: an image has files, folders and links only")]
    Kind {
        /// The entry.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// An entry of this kind has no such description.
    #[error("{path} is described in a way that is not known here")]
    Description {
        /// The entry.
        path: String,
    },
    /// A hard link leads to nothing that was unpacked before.
    #[error("{path} is a link to {target}, which is no file of the image")]
    NoTarget {
        /// The link.
        path: String,
        /// What it leads to.
        target: String,
    },
    /// An entry is longer than what is left of the archive.
    #[error("{path} is cut off")]
    CutOff {
        /// The entry.
        path: String,
    },
    /// It is more than is unpacked of any image.
    #[error("the image unpacks to more than {0}")]
    TooMuch(&'static str),
}

impl From<rustix::io::Errno> for LayerError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::System(error.into())
    }
}
