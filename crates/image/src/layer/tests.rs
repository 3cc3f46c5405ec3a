use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tar::Header;

use super::*;
use crate::paths::DEEPEST;

/// One entry, called whatever is said.
fn entry(path: &str, kind: EntryType, mode: u32, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    header.set_mtime(1_000_000);
    let old = header.as_old_mut();
    old.name[..path.len()].copy_from_slice(path.as_bytes());
    old.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(path: &str, content: &str) -> Vec<u8> {
    entry(path, EntryType::Regular, 0o644, "", content.as_bytes())
}

fn folder(path: &str) -> Vec<u8> {
    entry(path, EntryType::Directory, 0o755, "", b"")
}

fn link(path: &str, target: &str) -> Vec<u8> {
    entry(path, EntryType::Symlink, 0o777, target, b"")
}

fn hard_link(path: &str, target: &str) -> Vec<u8> {
    entry(path, EntryType::Link, 0o644, target, b"")
}

/// A place to unpack in, beside which something lies that must stay as it is.
struct Bench {
    place: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("image")).unwrap();
        fs::write(place.path().join("secret"), "others'").unwrap();
        Self { place }
    }

    fn image(&self) -> PathBuf {
        self.place.path().join("image")
    }

    fn apply(&self, layer: &[Vec<u8>]) -> Result<(), LayerError> {
        self.apply_within(&layer.concat(), &mut Room::new(1 << 20, 1000))
    }

    fn apply_within(&self, layer: &[u8], room: &mut Room) -> Result<(), LayerError> {
        let tree = Tree::open(&self.image()).unwrap();
        let reader = room.bounded(layer);
        apply(reader, &tree, room.entries())
    }

    fn refusal(&self, layer: &[Vec<u8>]) -> String {
        self.apply(layer).unwrap_err().to_string()
    }

    /// What was unpacked, by its path: content of files, targets of links.
    fn found(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.image(), &mut |path| {
            let name = path.strip_prefix(self.image()).unwrap().display().to_string();
            let meta = fs::symlink_metadata(path).unwrap();
            found.push(match () {
                () if meta.is_dir() => format!("{name}/"),
                () if meta.is_symlink() => format!("{name} -> {}", fs::read_link(path).unwrap().display()),
                () => format!("{name}: {}", fs::read_to_string(path).unwrap_or_default()),
            });
        });
        found.sort();
        found
    }

    fn check_outside(&self) {
        let mut names: Vec<_> = fs::read_dir(self.place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["image", "secret"]);
        let secret = self.place.path().join("secret");
        assert_eq!((fs::read_to_string(&secret).unwrap().as_str(), fs::metadata(&secret).unwrap().nlink()), ("others'", 1));
    }
}

/// All that is in a folder, without following links.
fn walk(folder: &Path, see: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        see(&path);
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            walk(&path, see);
        }
    }
}

#[test]
fn layers_lie_over_one_another_and_whiteouts_hide_what_is_below() {
    let bench = Bench::new();
    bench
        .apply(&[
            folder("./etc/"),
            file("etc/kept", "1"),
            file("etc/changed", "old"),
            file("gone", "1"),
            file("cache/a", "1"),
            file("cache/deep/b", "1"),
            folder("swap"),
            file("swap/inner", "1"),
            file("/plain", "1"),
        ])
        .unwrap();
    bench
        .apply(&[
            file("etc/changed", "new"),
            file(".wh.gone", ""),
            file(".wh.never", ""),
            file("cache/c", "2"),
            file("cache/.wh..wh..opq", ""),
            file("swap", "a file"),
            folder("plain"),
            file("plain/inner", "2"),
            file(".wh..wh.plnk", ""),
        ])
        .unwrap();
    let expected =
        ["cache/", "cache/c: 2", "etc/", "etc/changed: new", "etc/kept: 1", "plain/", "plain/inner: 2", "swap: a file"];
    assert_eq!(bench.found(), expected);
}

#[test]
fn a_whiteout_hides_nothing_of_its_own_layer() {
    let bench = Bench::new();
    bench.apply(&[file("a/old", "1"), file("b/old", "1"), file("c", "1")]).unwrap();
    let empty = folder("b/empty");
    bench
        .apply(&[file("a/new", "2"), file(".wh.a", ""), empty, file("b/.wh..wh..opq", ""), file("c", "2"), file(".wh.c", "")])
        .unwrap();
    assert_eq!(bench.found(), ["a/", "a/new: 2", "b/", "b/empty/", "c: 2"]);
}

#[test]
fn links_are_made_as_they_are_and_relative_ones_are_followed() {
    let bench = Bench::new();
    bench.apply(&[folder("usr/bin"), link("bin", "usr/bin"), link("etc", "/somewhere/else"), file("usr/bin/a", "1")]).unwrap();
    bench
        .apply(&[file("bin/b", "2"), file("bin/deep/c", "3"), hard_link("bin/d", "usr/bin/a"), hard_link("bin/d", "bin/d")])
        .unwrap();
    let expected = ["bin -> usr/bin", "etc -> /somewhere/else", "usr/", "usr/bin/"];
    let expected = expected.iter().chain(&["usr/bin/a: 1", "usr/bin/b: 2", "usr/bin/d: 1", "usr/bin/deep/", "usr/bin/deep/c: 3"]);
    assert_eq!(bench.found(), expected.copied().collect::<Vec<_>>());
    bench.apply(&[file("usr/bin/d", "changed"), file("bin", "no link any more")]).unwrap();
    assert!(bench.found().contains(&"usr/bin/a: 1".to_owned()), "what has two names is not written through one of them");
    assert!(bench.found().contains(&"bin: no link any more".to_owned()));
}

#[test]
fn what_leads_out_of_the_image_is_refused_and_nothing_outside_is_touched() {
    let out = |path: &str| format!("{path} leads out of the image");
    let cases: [(&[Vec<u8>], String); 9] = [
        (&[file("../secret", "mine")], out("../secret")),
        (&[file("a/../../secret", "mine")], out("a/../../secret")),
        (&[file("a/..", "mine")], out("a/..")),
        (&[link("up", ".."), file("up/secret", "mine")], out("up/secret")),
        (&[link("up", "../.."), folder("up/new")], out("up/new")),
        (&[link("root", "/"), file("root/secret", "mine")], out("root/secret")),
        (&[link("up", ".."), hard_link("mine", "up/secret")], out("up/secret")),
        (&[link("up", ".."), file("up/.wh.secret", "")], out("up/secret")),
        (&[hard_link("mine", "../secret")], out("../secret")),
    ];
    for (layer, expected) in cases {
        let bench = Bench::new();
        assert_eq!(bench.refusal(layer), expected);
        bench.check_outside();
    }
    let bench = Bench::new();
    let error = bench.refusal(&[link("up", ".."), file("up/.wh..wh..opq", "")]);
    assert_eq!(error, out("up"));
    bench.check_outside();
}

#[test]
fn a_file_is_not_written_through_a_link_in_its_place() {
    let bench = Bench::new();
    bench.apply(&[link("secret", "../secret"), file("secret", "mine")]).unwrap();
    assert_eq!(bench.found(), ["secret: mine"]);
    bench.check_outside();
    let error = bench.refusal(&[link("loop", "loop"), file("loop/x", "1")]);
    assert_eq!(error, "loop/x leads out of the image");
}

#[test]
fn an_image_has_files_folders_and_links_only() {
    let bench = Bench::new();
    for (kind, what) in [
        (EntryType::Char, "a device"),
        (EntryType::Block, "a device"),
        (EntryType::Fifo, "a pipe"),
        (EntryType::GNUSparse, "a sparse file"),
        (EntryType::new(b'Z'), "of an unknown kind"),
    ] {
        let error = bench.refusal(&[entry("dev/x", kind, 0o666, "", b"")]);
        assert_eq!(error, format!("dev/x is {what}: an image has files, folders and links only"));
    }
    assert_eq!(bench.refusal(&[hard_link("a", "b")]), "a is a link to b, which is no file of the image");
    assert_eq!(bench.refusal(&[folder("b"), hard_link("a", "b")]), "a is a link to b, which is no file of the image");
    assert!(bench.refusal(&[link("empty", "")]).starts_with("empty is described"));
}

#[test]
fn everybody_reads_and_runs_what_an_owner_may_and_nobody_writes_it() {
    let bench = Bench::new();
    for (mode, expected) in [(0o600, 0o444), (0o4711, 0o555), (0o2750, 0o555), (0o777, 0o555), (0o040, 0o444), (0, 0)] {
        bench
            .apply(&[entry("tool", EntryType::Regular, mode, "", b"x"), entry("dir", EntryType::Directory, mode, "", b"")])
            .unwrap();
        let meta = |name: &str| fs::metadata(bench.image().join(name)).unwrap();
        assert_eq!(meta("tool").permissions().mode() & 0o7777, expected, "{mode:o}");
        assert_eq!(meta("dir").permissions().mode() & 0o7777, 0o755);
        assert_eq!(meta("tool").mtime(), 1_000_000);
    }
}

#[test]
fn long_names_are_read_in_both_ways_of_saying_them() {
    let bench = Bench::new();
    let (long, pax) = ("x".repeat(150), "y".repeat(150));
    let record = |key: &str, value: &str| {
        let rest = format!(" {key}={value}\n");
        let length = (1..9999).find(|length: &usize| length.to_string().len() + rest.len() == *length).unwrap();
        format!("{length}{rest}")
    };
    let said = |kind, text: &str| entry("said", kind, 0, "", text.as_bytes());
    bench
        .apply(&[
            said(EntryType::GNULongName, &format!("{long}\0")),
            file("short", "1"),
            said(EntryType::XHeader, &record("path", &pax)),
            file("short", "2"),
            said(EntryType::XGlobalHeader, &record("path", "ignored")),
            said(EntryType::GNULongLink, &long),
            link("link", "short"),
        ])
        .unwrap();
    assert_eq!(bench.found(), [format!("link -> {long}"), format!("{long}: 1"), format!("{pax}: 2")]);
    let lies = |key: &str, value: &str| bench.refusal(&[said(EntryType::XHeader, &record(key, value)), file("short", "2")]);
    assert!(lies("size", "5000000").contains("is described in a way"), "the content of a file is not what its header says");
    assert!(lies("GNU.sparse.major", "1").contains("is described in a way"));
    assert!(lies("path", &"z".repeat(256)).contains("which no file can be"));
    assert!(lies("path", &"d/".repeat(DEEPEST + 1)).contains("which no file can be"));
}

#[test]
fn more_than_there_is_room_for_is_refused() {
    let bench = Bench::new();
    let layer = [file("a", &"x".repeat(4000)), file("b", "")].concat();
    let within = |bytes, entries| bench.apply_within(&layer, &mut Room::new(bytes, entries)).map_err(|error| error.to_string());
    assert_eq!(within(6000, 2), Ok(()));
    assert_eq!(within(3000, 2), Err("the image unpacks to more than 16 GiB".to_owned()));
    assert_eq!(within(6000, 1), Err("the image unpacks to more than a million entries".to_owned()));
    let error = bench.apply_within(&layer[..2048], &mut Room::default()).unwrap_err().to_string();
    assert_eq!(error, "a is cut off");
    let long = Header::new_gnu();
    let mut long = long.clone();
    long.set_entry_type(EntryType::GNULongName);
    long.set_size(LONGEST_DESCRIPTION + 1);
    long.set_cksum();
    assert!(matches!(bench.apply(&[long.as_bytes().to_vec()]), Err(LayerError::Description { .. })), "it is not read at all");
}

#[test]
fn folders_do_not_get_deeper_by_links() {
    let bench = Bench::new();
    let deep = vec!["d"; 40].join("/");
    let mut layer = vec![folder(&deep), link("l0", &deep)];
    // Each goes on where the one before has ended.
    for turn in 1..6 {
        let further = format!("l{}/{deep}", turn - 1);
        layer.extend([folder(&further), link(&format!("l{turn}"), &further)]);
    }
    let error = bench.refusal(&layer);
    assert!(error.ends_with("which no file can be"), "{error}");
    fs::remove_dir_all(bench.image()).unwrap();
}

/// Each header's checksum as it should be: a mutation would end there otherwise.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let (mut bytes, mut at) = (bytes.to_vec(), 0);
    while at + 512 <= bytes.len() {
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(&bytes[at..at + 512]);
        if header.as_bytes().iter().any(|byte| *byte != 0) {
            header.set_cksum();
            bytes[at..at + 512].copy_from_slice(header.as_bytes());
        }
        let content = header.entry_size().unwrap_or(0).min(1 << 20) as usize;
        at += 512 + content.next_multiple_of(512);
    }
    bytes
}

#[test]
fn fuzz_layers() {
    weal_fuzz::target("layer", |bytes| {
        let bench = Bench::new();
        // Whether it is refused or not: twice, so that what is there already is in the way.
        let bytes = mended(bytes);
        for _ in 0..2 {
            let _ = bench.apply_within(&bytes, &mut Room::new(1 << 20, 100));
        }
        bench.check_outside();
        walk(&bench.image(), &mut |path| {
            let meta = fs::symlink_metadata(path).unwrap();
            let may = if meta.is_dir() { 0o755 } else { 0o555 };
            assert!(meta.is_symlink() || meta.mode() & 0o7777 & !may == 0, "{}: {:o}", path.display(), meta.mode());
            assert!(meta.is_file() || meta.is_dir() || meta.is_symlink());
        });
    });
}
