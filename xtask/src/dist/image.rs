//! An OCI image without any other tool: a layout in a tar archive (OCI image specification 1.1, image-layout.md).
//!
//! The image has the program and nothing else, so it runs as it is, or is the `FROM` of an image with applications. The same
//! program gives the same image, to the last bit.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::program::Program;
use super::tree::CONFIG;
use crate::programs::root;

/// Whom weal runs as in it: nobody whom another image would use.
const USER: u64 = 65532;

/// One entry of the layer.
struct Entry<'a> {
    path: &'a str,
    mode: u32,
    owner: u64,
    /// `None` is a folder.
    content: Option<&'a [u8]>,
}

/// Blobs by their digest.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Keeps `content`. Returns its descriptor.
    fn add(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let digest = sha256(&content);
        let descriptor = json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": content.len() });
        self.0.insert(digest, content);
        descriptor
    }
}

/// Makes the image in `to`. Returns its path.
///
/// # Errors
/// The program cannot be read, or the image not be written.
pub fn make(program: &Program, version: &str, to: &Path) -> Result<PathBuf> {
    let content = fs::read(&program.path)?;
    let config = fs::read(root().join("packaging/weal.toml"))?;
    let archive = layout(&layer(&content, &config)?, program.architecture, version)?;
    let path = to.join(format!("weal-{version}-{}.oci.tar", program.architecture));
    fs::write(&path, archive).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The only layer, not packed yet.
fn layer(program: &[u8], config: &[u8]) -> Result<Vec<u8>> {
    let users = format!("root:x:0:0:root:/:/sbin/nologin\nweal:x:{USER}:{USER}:weal:/var/lib/weal:/sbin/nologin\n");
    let groups = format!("root:x:0:\nweal:x:{USER}:\n");
    let folder = |path, mode, owner| Entry { path, mode, owner, content: None };
    let file = |path, mode, content| Entry { path, mode, owner: 0, content: Some(content) };
    archive(&[
        folder("etc/", 0o755, 0),
        file("etc/passwd", 0o644, users.as_bytes()),
        file("etc/group", 0o644, groups.as_bytes()),
        folder("etc/weal/", 0o755, 0),
        file(&CONFIG[1..], 0o644, config),
        folder("tmp/", 0o1777, 0),
        folder("usr/", 0o755, 0),
        folder("usr/bin/", 0o755, 0),
        file("usr/bin/weal", 0o755, program),
        folder("var/", 0o755, 0),
        folder("var/lib/", 0o755, 0),
        folder("var/lib/weal/", 0o700, USER),
    ])
}

/// The whole layout around `layer`.
fn layout(layer: &[u8], architecture: &str, version: &str) -> Result<Vec<u8>> {
    let mut blobs = Blobs::default();
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    packed.write_all(layer)?;
    let layer_blob = blobs.add("application/vnd.oci.image.layer.v1.tar+gzip", packed.finish()?);
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": USER.to_string(),
            "Env": ["PATH=/usr/bin", "XDG_STATE_HOME=/var/lib"],
            "Entrypoint": ["/usr/bin/weal"],
            "Cmd": ["up", "--file", CONFIG],
            "StopSignal": "SIGTERM",
            "Labels": { "org.opencontainers.image.title": "weal", "org.opencontainers.image.version": version },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(layer))] },
        "history": [{ "created_by": "cargo xtask dist" }],
    });
    let config_blob = blobs.add("application/vnd.oci.image.config.v1+json", serde_json::to_vec(&config)?);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config_blob,
        "layers": [layer_blob],
    });
    let mut manifest_blob = blobs.add(MANIFEST, serde_json::to_vec(&manifest)?);
    manifest_blob["platform"] = json!({ "architecture": architecture, "os": "linux" });
    manifest_blob["annotations"] = json!({ "org.opencontainers.image.ref.name": format!("weal:{version}") });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [manifest_blob] }))?;
    let named: Vec<(String, &[u8])> =
        blobs.0.iter().map(|(digest, content)| (format!("blobs/sha256/{digest}"), content.as_slice())).collect();
    let files = [("oci-layout", &br#"{"imageLayoutVersion":"1.0.0"}"#[..]), ("index.json", &index)];
    let files = files.into_iter().chain(named.iter().map(|(path, content)| (path.as_str(), *content)));
    archive(&files.map(|(path, content)| Entry { path, mode: 0o644, owner: 0, content: Some(content) }).collect::<Vec<_>>())
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn archive(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for entry in entries {
        let content = entry.content.unwrap_or_default();
        let mut header = Header::new_ustar();
        header.set_entry_type(if entry.content.is_some() { EntryType::Regular } else { EntryType::Directory });
        header.set_mode(entry.mode);
        header.set_uid(entry.owner);
        header.set_gid(entry.owner);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, entry.path, content)?;
    }
    Ok(archive.into_inner()?)
}

fn sha256(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let read = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        });
        read.collect()
    }

    /// Follows a descriptor, and checks what it says of its blob.
    fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let content = &files[&format!("blobs/sha256/{digest}")];
        assert_eq!((sha256(content).as_str(), descriptor["size"].as_u64()), (digest, Some(content.len() as u64)));
        content
    }

    #[test]
    fn from_the_index_every_blob_is_found_under_its_digest_and_the_layer_holds_the_program() {
        let made = layout(&layer(b"program", b"config").unwrap(), "amd64", "1.2.3").unwrap();
        let files = files(&made);
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let manifest = json(blob(&files, &json(&files["index.json"])["manifests"][0]));
        let config = json(blob(&files, &manifest["config"]));
        let mut layer = Vec::new();
        GzDecoder::new(blob(&files, &manifest["layers"][0])).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
        assert_eq!(config["config"]["User"], "65532");
        assert_eq!(self::files(&layer)["usr/bin/weal"], b"program");
        assert_eq!(files.len(), 5, "{:?}", files.keys());
    }

    #[test]
    fn the_same_program_gives_the_same_image() {
        let make = || layout(&layer(b"program", b"config").unwrap(), "arm64", "1").unwrap();
        assert_eq!(make(), make());
    }
}
