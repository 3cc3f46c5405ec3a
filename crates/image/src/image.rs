//! One image: what it says of itself, checked, and how it is unpacked.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::digest::{Digest, Hashing};
use crate::documents::{Config, Descriptor, Index, Manifest, Platform, Saved, understand};
use crate::error::{ImageError, LayerError};
use crate::layer::{self, Room};
use crate::settings::Settings;
use crate::source::{Packing, Piece, Source};
use crate::tree::Tree;

/// The longest document that is read. Registries take no longer manifest either.
const LONGEST_DOCUMENT: u64 = 4 << 20;
/// Layers of an image at most: as many as Docker makes.
const MOST_LAYERS: usize = 128;
/// Indices and manifests that are read to find the one for this machine.
const MOST_DOCUMENTS: usize = 200;
/// An index may name others, which may name others again.
const DEEPEST_INDEX: u32 = 3;

/// An image that was looked at and not unpacked. All that it says of itself is there, and nothing of its layers was read.
pub struct Image {
    path: PathBuf,
    source: Source,
    id: Digest,
    settings: Settings,
    layers: Vec<Layer>,
}

/// A layer, not read yet.
struct Layer {
    /// Its file.
    name: String,
    /// Its digest and length as it is packed; `docker save` does not say them.
    packed: Option<(Digest, u64)>,
    /// Its digest once it is unpacked.
    unpacked: Digest,
}

impl Image {
    /// Looks at the image in the archive or folder at `path`.
    ///
    /// # Errors
    /// It is none, it is damaged, or it is not for this machine.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let source = Source::open(path)?;
        let (text, layers) = if source.find("index.json")?.is_some() {
            of_oci(&source)?
        } else if source.find("manifest.json")?.is_some() {
            of_docker(&source)?
        } else {
            return Err(ImageError::NotAnImage(path.to_owned()));
        };
        let config: Config = understand("config", &text)?;
        if !is_of_this_machine(&config.os, &config.architecture) {
            return Err(other_machine([format!("{}/{}", config.os, config.architecture)]));
        }
        let said = config.rootfs.diff_ids;
        if layers.len() != said.len() || layers.len() > MOST_LAYERS {
            return Err(ImageError::Layers { layers: layers.len(), said: said.len() });
        }
        let layers = layers
            .into_iter()
            .zip(said)
            .map(|((name, packed), unpacked)| Ok(Layer { name, packed, unpacked: unpacked.parse()? }));
        Ok(Self {
            path: path.to_owned(),
            id: Digest::of(&text),
            settings: Settings::of(config.config.unwrap_or_default())?,
            layers: layers.collect::<Result<_, ImageError>>()?,
            source,
        })
    }

    /// The digest of its config, which names the content of every layer.
    pub fn id(&self) -> Digest {
        self.id
    }

    /// How its program is run.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Unpacks it into the folder `to`, which is empty. What was unpacked before a mistake was found stays there.
    ///
    /// # Errors
    /// A layer is not what the image says, or cannot be unpacked into `room`.
    pub fn unpack(&self, to: &Path, room: &mut Room) -> Result<(), ImageError> {
        let tree = Tree::open(to).map_err(ImageError::at(to))?;
        for (number, layer) in (1..).zip(&self.layers) {
            self.unpack_layer(layer, &tree, room).map_err(|error| match error {
                Refused::Image(error) => error,
                Refused::Layer(source) => ImageError::Layer { number, source },
            })?;
        }
        tree.sync().map_err(ImageError::at(to))
    }

    /// Its digests are compared before anything but the hash function sees what is in it, and again for what was unpacked.
    fn unpack_layer(&self, layer: &Layer, tree: &Tree, room: &mut Room) -> Result<(), Refused> {
        let piece = self.source.get(&layer.name)?;
        if let Some((digest, length)) = layer.packed {
            // It may be shorter than an archive says; then its digest differs.
            let (_, found) = Hashing::new(piece.clone().take(length)).finish().map_err(ImageError::at(&self.path))?;
            check(&layer.name, digest, found)?;
        }
        let length = layer.packed.map_or(u64::MAX, |(_, length)| length);
        let mut unpacked = Hashing::new(room.bounded(open(piece, length)?));
        layer::apply(&mut unpacked, tree, room.entries()).map_err(Refused::Layer)?;
        let (_, found) = unpacked.finish().map_err(LayerError::System).map_err(Refused::Layer)?;
        Ok(check(&layer.name, layer.unpacked, found)?)
    }
}

/// Why a layer is refused.
enum Refused {
    Image(ImageError),
    Layer(LayerError),
}

impl From<ImageError> for Refused {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        Self::Layer(error.into())
    }
}

fn check(name: &str, expected: Digest, found: Digest) -> Result<(), ImageError> {
    if expected == found { Ok(()) } else { Err(ImageError::Changed { name: name.to_owned(), expected, found }) }
}

/// What is in a layer, however it is packed.
fn open(piece: Piece, length: u64) -> std::io::Result<Box<dyn Read>> {
    let mut magic = Vec::new();
    piece.clone().take(4).read_to_end(&mut magic)?;
    let packed = BufReader::new(piece.take(length));
    Ok(match Packing::of(&magic) {
        Packing::Plain => Box::new(packed),
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        Packing::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
    })
}

/// A config's text, and the files of its layers with their digests and lengths.
type Found = (Vec<u8>, Vec<(String, Option<(Digest, u64)>)>);

fn of_oci(source: &Source) -> Result<Found, ImageError> {
    let index: Index = understand("index.json", &source.document("index.json", LONGEST_DOCUMENT)?)?;
    let mut candidates = Vec::new();
    let mut left = MOST_DOCUMENTS;
    collect(source, &index, DEEPEST_INDEX, &mut left, &mut candidates)?;
    let manifest = choose(candidates)?;
    let manifest: Manifest = understand("manifest", &blob(source, &manifest)?)?;
    let layers = manifest.layers.iter().map(|layer| {
        let digest: Digest = layer.digest.parse()?;
        Ok((file_of(digest), Some((digest, layer.size))))
    });
    Ok((blob(source, &manifest.config)?, layers.collect::<Result<_, ImageError>>()?))
}

fn file_of(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A document that is named by its digest.
fn blob(source: &Source, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
    let digest: Digest = descriptor.digest.parse()?;
    let name = file_of(digest);
    let text = source.document(&name, LONGEST_DOCUMENT)?;
    check(&name, digest, Digest::of(&text))?;
    Ok(text)
}

/// All manifests that an index leads to.
fn collect(source: &Source, index: &Index, depth: u32, left: &mut usize, found: &mut Vec<Descriptor>) -> Result<(), ImageError> {
    for descriptor in &index.manifests {
        let too_many = || ImageError::TooLong { name: "list of images".to_owned(), most: MOST_DOCUMENTS as u64 };
        *left = left.checked_sub(1).ok_or_else(too_many)?;
        let is_index = descriptor
            .media_type
            .as_deref()
            .is_some_and(|kind| kind.starts_with("application/vnd.oci.image.index.") || kind.contains("manifest.list"));
        if !is_index {
            found.push(descriptor.clone());
        } else if let Some(depth) = depth.checked_sub(1) {
            collect(source, &understand("index", &blob(source, descriptor)?)?, depth, left, found)?;
        }
    }
    Ok(())
}

/// The one for this machine. One that does not say for which machines it is says so in its config.
fn choose(candidates: Vec<Descriptor>) -> Result<Descriptor, ImageError> {
    let fits = |descriptor: &&Descriptor| {
        descriptor.platform.as_ref().is_none_or(|Platform { os, architecture }| is_of_this_machine(os, architecture))
    };
    let mut fitting: Vec<&Descriptor> = candidates.iter().filter(fits).collect();
    if fitting.iter().any(|descriptor| descriptor.platform.is_some()) {
        fitting.retain(|descriptor| descriptor.platform.is_some());
    }
    match fitting.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let platforms = candidates.iter().filter_map(|one| one.platform.as_ref());
            Err(other_machine(platforms.map(|Platform { os, architecture }| format!("{os}/{architecture}"))))
        }
        [first, rest @ ..] if rest.iter().all(|other| other.digest == first.digest) => Ok((*first).clone()),
        several => Err(ImageError::Several { names: several.iter().map(|one| name_of(one)).collect() }),
    }
}

fn name_of(descriptor: &Descriptor) -> String {
    let name = descriptor.annotations.as_ref().and_then(|said| said.get("org.opencontainers.image.ref.name"));
    name.unwrap_or(&descriptor.digest).clone()
}

/// `docker save`: a config is named by its digest, and names what its layers hold.
fn of_docker(source: &Source) -> Result<Found, ImageError> {
    let mut saved: Vec<Saved> = understand("manifest.json", &source.document("manifest.json", LONGEST_DOCUMENT)?)?;
    let one = match saved.len() {
        1 => saved.remove(0),
        _ => {
            let names = saved.into_iter().map(|one| one.repo_tags.and_then(|tags| tags.into_iter().next()).unwrap_or(one.config));
            return Err(ImageError::Several { names: names.collect() });
        }
    };
    let text = source.document(&one.config, LONGEST_DOCUMENT)?;
    let hex = one.config.rsplit('/').next().unwrap_or_default();
    check("config", Digest::from_hex(hex.strip_suffix(".json").unwrap_or(hex))?, Digest::of(&text))?;
    Ok((text, one.layers.into_iter().map(|name| (name, None)).collect()))
}

fn is_of_this_machine(os: &str, architecture: &str) -> bool {
    os == "linux" && architecture == ARCHITECTURE
}

fn other_machine(there: impl IntoIterator<Item = String>) -> ImageError {
    ImageError::OtherMachine { wanted: ARCHITECTURE, there: there.into_iter().collect() }
}

/// This machine's architecture, as images call it.
const ARCHITECTURE: &str = match std::env::consts::ARCH.as_bytes() {
    b"x86_64" => "amd64",
    b"aarch64" => "arm64",
    _ => std::env::consts::ARCH,
};
