//! Images of this machine's own programs, made without any other tool.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
pub use tar::EntryType;

/// This machine's architecture, as images call it.
pub const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// A layer that is being made.
#[derive(Default)]
pub struct Layer(Vec<u8>);

impl Layer {
    /// With these programs and all that they are linked with, at the paths that they have here. `None` where that cannot be told.
    pub fn of_programs(programs: &[&Path]) -> Option<Self> {
        let ldd = Command::new("ldd").args(programs).output().ok()?;
        let said = String::from_utf8_lossy(&ldd.stdout).into_owned();
        let libraries = said.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
        let mut layer = Self::default();
        let all: BTreeSet<&Path> = libraries.map(Path::new).chain(programs.iter().copied()).collect();
        for path in all {
            layer.add(path.strip_prefix("/").ok()?.to_str()?, &fs::read(path).ok()?);
        }
        Some(layer)
    }

    /// Adds a file that its owner may run.
    pub fn add(&mut self, path: &str, content: &[u8]) {
        self.add_entry(path, EntryType::Regular, "", content);
    }

    /// Adds an entry, called whatever is said: an archiver refuses some names.
    pub fn add_entry(&mut self, path: &str, kind: EntryType, target: &str, content: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o750);
        header.set_size(content.len() as u64);
        let old = header.as_old_mut();
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    /// The archive.
    pub fn done(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

/// The files of an image in the layout of OCI, by their names.
#[derive(Debug, Clone, Default)]
pub struct Image(pub BTreeMap<String, Vec<u8>>);

impl Image {
    /// Of these layers, which are not packed; `run` says how its program is run, in the words of its config.
    pub fn new(layers: Vec<Vec<u8>>, run: &Value) -> Self {
        let mut image = Self::default();
        let rootfs = json!({ "type": "layers", "diff_ids": layers.iter().map(|layer| digest(layer)).collect::<Vec<_>>() });
        let config = json!({ "os": "linux", "architecture": ARCHITECTURE, "config": run, "rootfs": rootfs });
        let config = image.add(config.to_string().into_bytes());
        let layers: Vec<Value> = layers.into_iter().map(|layer| image.add(layer)).collect();
        let manifest = image.add(json!({ "schemaVersion": 2, "config": config, "layers": layers }).to_string().into_bytes());
        image.0.insert("index.json".to_owned(), json!({ "manifests": [manifest] }).to_string().into_bytes());
        image
    }

    fn add(&mut self, content: Vec<u8>) -> Value {
        let (digest, size) = (digest(&content), content.len());
        self.0.insert(format!("blobs/{}", digest.replace(':', "/")), content);
        json!({ "digest": digest, "size": size })
    }

    /// Writes it into an archive.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn write(&self, to: &Path) -> PathBuf {
        let mut archive = tar::Builder::new(fs::File::create(to).expect("the archive can be written"));
        for (name, content) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content.as_slice()).expect("the archive can be written");
        }
        archive.into_inner().expect("the archive can be written");
        to.to_owned()
    }
}

fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
