//! Whole images, made here: as a folder, as an archive, and as `docker save` writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weal_image::{Cache, Digest, Image, ImageError, Room};

const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// A layer with these files.
fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// The files of an image.
#[derive(Clone, Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    fn add(&mut self, content: Vec<u8>) -> Value {
        let digest = Digest::of(&content);
        let descriptor = json!({ "digest": digest.to_string(), "size": content.len() });
        self.0.insert(format!("blobs/sha256/{}", digest.hex()), content);
        descriptor
    }

    fn config(layers: &[Vec<u8>], architecture: &str) -> Vec<u8> {
        let digests: Vec<String> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
        let run = json!({
            "User": "app", "Env": ["PATH=/bin", "MODE=fast"], "Entrypoint": ["/bin/serve"], "Cmd": ["--all"],
            "WorkingDir": "/srv", "StopSignal": "SIGQUIT", "ExposedPorts": { "8080/tcp": {} }, "Volumes": null,
        });
        let rootfs = json!({ "type": "layers", "diff_ids": digests });
        serde_json::to_vec(&json!({ "os": "linux", "architecture": architecture, "config": run, "rootfs": rootfs })).unwrap()
    }

    /// Adds an image of these layers, packed; returns what names it.
    fn image(&mut self, layers: &[Vec<u8>], pack: impl Fn(&[u8]) -> Vec<u8>, architecture: &str) -> Value {
        let config = self.add(Self::config(layers, architecture));
        let layers: Vec<Value> = layers.iter().map(|layer| self.add(pack(layer))).collect();
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
        self.add(serde_json::to_vec(&manifest).unwrap())
    }

    fn index(&mut self, manifests: &[Value]) {
        self.0.insert("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
        self.0.insert("index.json".to_owned(), serde_json::to_vec(&json!({ "manifests": manifests })).unwrap());
    }

    /// A layout of one image.
    fn layout(layers: &[Vec<u8>], pack: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let mut files = Self::default();
        let image = files.image(layers, pack, ARCHITECTURE);
        files.index(&[image]);
        files
    }

    fn write(&self, to: &Path) -> PathBuf {
        for (name, content) in &self.0 {
            fs::create_dir_all(to.join(name).parent().unwrap()).unwrap();
            fs::write(to.join(name), content).unwrap();
        }
        to.to_owned()
    }

    fn archive(&self, to: &Path) -> PathBuf {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content.as_slice()).unwrap();
        }
        fs::write(to, archive.into_inner().unwrap()).unwrap();
        to.to_owned()
    }
}

fn two_layers() -> [Vec<u8>; 2] {
    [layer(&[("bin/serve", "one"), ("old", "1")]), layer(&[("bin/serve", "two"), (".wh.old", "")])]
}

/// Unpacks what is at `path`, and says what `bin/serve` is then.
fn unpacked(path: &Path) -> Result<String, ImageError> {
    let place = tempfile::tempdir().unwrap();
    Image::open(path)?.unpack(place.path(), &mut Room::default())?;
    assert!(!place.path().join("old").exists());
    Ok(fs::read_to_string(place.path().join("bin/serve")).unwrap())
}

#[test]
fn an_image_is_the_same_in_a_folder_and_in_archives_however_its_layers_are_packed() {
    let place = tempfile::tempdir().unwrap();
    let (layers, path) = (two_layers(), |name: &str| place.path().join(name));
    let zstd = |bytes: &[u8]| zstd::stream::encode_all(bytes, 1).unwrap();
    let plain = Files::layout(&layers, <[u8]>::to_vec).write(&path("plain"));
    let packed = Files::layout(&layers, gzip).archive(&path("packed.tar"));
    let other = Files::layout(&layers, zstd).archive(&path("other.tar"));
    let (mut saved, config) = (Files::default(), Files::config(&layers, ARCHITECTURE));
    let name = format!("{}.json", Digest::of(&config).hex());
    let names = ["0a/layer.tar", "0b/layer.tar"];
    let manifest = json!([{ "Config": name, "RepoTags": ["shop:1"], "Layers": names }]);
    saved.0.insert(name, config);
    saved.0.extend(names.map(str::to_owned).into_iter().zip(layers.clone()));
    saved.0.insert("manifest.json".to_owned(), serde_json::to_vec(&manifest).unwrap());
    let saved = saved.archive(&path("saved.tar"));
    let first = Image::open(&plain).unwrap().id();
    for path in [plain, packed, other, saved] {
        assert_eq!(unpacked(&path).unwrap(), "two", "{}", path.display());
        let image = Image::open(&path).unwrap();
        assert_eq!(image.id(), first);
        let settings = image.settings();
        assert_eq!((settings.user.as_str(), settings.cwd.as_str(), settings.env["MODE"].as_str()), ("app", "/srv", "fast"));
        assert_eq!(
            (settings.command(None, &[]).join(" ").as_str(), settings.ports.as_slice()),
            ("/bin/serve --all", &["8080/tcp".to_owned()][..])
        );
    }
}

#[test]
fn a_part_that_was_changed_is_refused_before_it_is_unpacked() {
    let place = tempfile::tempdir().unwrap();
    let whole = Files::layout(&two_layers(), gzip);
    for (name, content) in &whole.0 {
        if !name.starts_with("blobs/") {
            continue;
        }
        let mut changed = whole.clone();
        let mut content = content.clone();
        let last = content.len() - 1;
        content[last] ^= 1;
        changed.0.insert(name.clone(), content);
        let folder = changed.write(&place.path().join("image"));
        let error = unpacked(&folder).unwrap_err();
        assert!(matches!(&error, ImageError::Changed { name: part, .. } if part == name), "{name}: {error}");
        fs::remove_dir_all(folder).unwrap();
    }
    // What is packed is right, and what comes out is not what the config says.
    let (mut files, layers) = (Files::default(), two_layers());
    let config = files.add(Files::config(&[layers[1].clone(), layers[0].clone()], ARCHITECTURE));
    let packed: Vec<Value> = layers.iter().map(|layer| files.add(gzip(layer))).collect();
    let manifest = files.add(serde_json::to_vec(&json!({ "config": config, "layers": packed })).unwrap());
    files.index(&[manifest]);
    let swapped = Image::open(&files.archive(&place.path().join("swapped.tar"))).unwrap();
    let to = tempfile::tempdir().unwrap();
    let error = swapped.unpack(to.path(), &mut Room::default()).unwrap_err();
    assert!(matches!(error, ImageError::Changed { .. }), "{error}");
}

#[test]
fn the_image_for_this_machine_is_chosen_and_others_are_named() {
    let place = tempfile::tempdir().unwrap();
    let with = |image: Value, os: &str, architecture: &str| {
        let mut image = image;
        image["platform"] = json!({ "os": os, "architecture": architecture });
        image
    };
    let mut files = Files::default();
    let ours = files.image(&two_layers(), gzip, ARCHITECTURE);
    let theirs = files.image(&[layer(&[("x", "1")])], gzip, "s390x");
    let (ours, theirs) = (with(ours, "linux", ARCHITECTURE), with(theirs, "linux", "s390x"));
    let list = json!({ "manifests": [theirs.clone(), ours.clone(), with(ours.clone(), "unknown", "unknown")] });
    let mut list = files.add(serde_json::to_vec(&list).unwrap());
    list["mediaType"] = json!("application/vnd.oci.image.index.v1+json");
    files.index(&[list]);
    assert_eq!(unpacked(&files.archive(&place.path().join("many.tar"))).unwrap(), "two");
    files.index(std::slice::from_ref(&theirs));
    let error = unpacked(&files.archive(&place.path().join("theirs.tar"))).unwrap_err().to_string();
    assert_eq!(error, format!("it has nothing for linux/{ARCHITECTURE}, only for linux/s390x"));
    let mut other = files.image(&[layer(&[("y", "1")])], gzip, ARCHITECTURE);
    other["annotations"] = json!({ "org.opencontainers.image.ref.name": "shop:2" });
    files.index(&[with(other.clone(), "linux", ARCHITECTURE), with(other, "linux", ARCHITECTURE)]);
    assert!(Image::open(&files.archive(&place.path().join("same.tar"))).is_ok(), "twice the same");
    let mut other = files.image(&two_layers(), gzip, ARCHITECTURE);
    other["annotations"] = json!({ "org.opencontainers.image.ref.name": "shop:1" });
    let third = files.image(&[layer(&[("z", "1")])], gzip, ARCHITECTURE);
    files.index(&[other, third]);
    let error = unpacked(&files.archive(&place.path().join("several.tar"))).unwrap_err().to_string();
    assert!(error.starts_with("it holds several images (shop:1, sha256:"), "{error}");
}

#[test]
fn what_is_no_image_is_said_to_be_none() {
    let place = tempfile::tempdir().unwrap();
    let say = |path: &Path| Image::open(path).err().unwrap().to_string();
    assert!(say(&place.path().join("nothing")).contains("No such file"));
    assert!(say(place.path()).contains("is no image"));
    assert!(say(Path::new("/dev/null")).contains("is no image"));
    let path = place.path().join("image.tar.gz");
    fs::write(&path, gzip(b"x")).unwrap();
    assert!(say(&path).contains("compressed as a whole"));
    let mut files = Files::layout(&two_layers(), gzip);
    let blob = files.0.keys().find(|name| files.0[*name].starts_with(b"\x1f\x8b")).unwrap().clone();
    files.0.remove(&blob);
    let error = unpacked(&files.archive(&path)).unwrap_err().to_string();
    assert_eq!(error, format!("it names {blob}, which it does not hold"));
    files.0.insert("index.json".to_owned(), vec![b' '; 5 << 20]);
    assert_eq!(say(&files.archive(&path)), "its index.json is longer than 4194304 bytes");
    files.0.insert("index.json".to_owned(), br#"{"manifests":[{"digest":"sha256:../../etc/passwd","size":1}]}"#.to_vec());
    assert_eq!(say(&files.write(&place.path().join("folder"))), "`sha256:../../etc/passwd` is no SHA-256 digest");
}

#[test]
fn a_folder_whose_files_are_links_out_of_it_is_not_read() {
    let place = tempfile::tempdir().unwrap();
    let folder = Files::layout(&two_layers(), gzip).write(&place.path().join("image"));
    fs::rename(folder.join("index.json"), place.path().join("index.json")).unwrap();
    std::os::unix::fs::symlink("../index.json", folder.join("index.json")).unwrap();
    assert!(Image::open(&folder).is_err());
}

#[test]
fn an_image_is_unpacked_once_and_removed_when_nobody_names_or_runs_it() {
    let place = tempfile::tempdir().unwrap();
    let cache = Cache::new(place.path().join("images"));
    let none = || cache.sweep(&BTreeSet::new(), &BTreeSet::new()).unwrap();
    assert_eq!(none(), 0);
    let path = Files::layout(&two_layers(), gzip).archive(&place.path().join("image.tar"));
    let first = cache.provide(&path).unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(first.root.join("bin/serve")).unwrap());
    let again = cache.provide(&path).unwrap();
    assert!(first.is_new && !again.is_new && again.root == first.root);
    assert_eq!(std::os::unix::fs::MetadataExt::ino(&fs::metadata(first.root.join("bin/serve")).unwrap()), inode);
    let named = BTreeSet::from([path.display().to_string()]);
    assert_eq!(cache.sweep(&BTreeSet::new(), &named).unwrap(), 0);
    // Another image at the same path: the former one is kept for who runs it.
    Files::layout(&[layer(&[("bin/serve", "three")])], gzip).archive(&path);
    let second = cache.provide(&path).unwrap();
    assert_eq!(cache.sweep(&BTreeSet::from([first.root.clone()]), &named).unwrap(), 0);
    assert_eq!(cache.sweep(&BTreeSet::new(), &named).unwrap(), 1);
    assert!(!first.root.exists() && second.root.exists());
    assert_eq!((none(), second.root.exists()), (1, false));
    let mut broken = Files::layout(&two_layers(), gzip);
    broken.0.values_mut().filter(|content| content.starts_with(b"\x1f\x8b")).for_each(|content| content[20] ^= 1);
    let error = cache.provide(&broken.archive(&path)).unwrap_err();
    assert!(matches!(error, ImageError::Changed { .. }), "{error}");
    assert!(!place.path().join("images/new").exists() && cache.provide(&path).is_err(), "a part is never taken for the whole");
}
