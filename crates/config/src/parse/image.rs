//! `image` and `entrypoint`, and what does not go with an image.

use std::path::Path;

use weal_model::{AppSpec, SandboxMode};

use super::argv::check_argv;
use super::paths::read_file;
use crate::section::{Reading, Section};

/// Where a registry is named, and not a file.
const REGISTRIES: [&str; 3] = ["docker://", "oci://", "registry://"];

/// Whether the application is started from an image.
pub(super) fn is_named(section: &Section) -> bool {
    section.item("image").is_some()
}

/// The path of the image.
pub(super) fn read(reading: &mut Reading, section: &Section, folder: &Path) -> Option<String> {
    section.item("image")?;
    let path = read_file(reading, section, folder, "image")?;
    let written = reading.findings.source(&reading.places.value(&section.at("image"))).trim_matches(['"', '\'']).to_owned();
    if REGISTRIES.iter().any(|scheme| written.starts_with(scheme)) {
        let help =
            format!("copy it into an archive first: `skopeo copy {written} oci-archive:app.tar`, then `image = \"app.tar\"`");
        reading.findings.error(
            reading.places.value(&section.at("image")),
            "images come from files here, not from registries",
            help,
        );
        return None;
    }
    Some(path)
}

/// What takes the place of the image's entry point. An empty one leaves only `run`.
pub(super) fn read_entrypoint(reading: &mut Reading, section: &Section) -> Option<Vec<String>> {
    let argv = section.texts(reading, "entrypoint")?;
    if !argv.is_empty() {
        check_argv(reading, &argv, reading.places.value(&section.at("entrypoint")));
    }
    Some(argv)
}

/// The working directory, which is one of the image; empty is what the image says.
pub(super) fn read_cwd(reading: &mut Reading, section: &Section) -> String {
    let cwd = section.text(reading, "cwd").unwrap_or_default();
    if !cwd.is_empty() && !cwd.starts_with('/') || cwd.contains('\0') {
        let help = "write it from the image's root, such as `/srv`, or leave it out to have what the image says";
        reading.findings.error(reading.places.value(&section.at("cwd")), format!("`{cwd}` is no folder of the image"), help);
    }
    cwd
}

/// What does not go with an image, or only with one.
pub(super) fn check(reading: &mut Reading, section: &Section, spec: &AppSpec) {
    if !is_named(section) {
        if section.item("entrypoint").is_some() {
            let help = "add `image`, or write all of the command in `run`";
            reading.findings.error(
                reading.places.key(&section.at("entrypoint")),
                "there is no image whose entry point it replaces",
                help,
            );
        }
        return;
    }
    let with_sandbox =
        ("sandbox", "an image runs in the strict sandbox only", "leave `sandbox` out, or open what it needs by name");
    let with_root =
        ("user", "an image is not run as root", "leave `user` out: it runs as a user of its own, and sees the one of its image");
    let with_tmp = ("sandbox", "an image has a `/tmp` of its own", "leave `tmp = \"shared\"` out");
    let with_stdin = ("stdin", "an image does not see this machine's files", "leave `stdin` out, or read the file below `$DATA`");
    let is_root = spec.user.as_deref().is_some_and(|user| matches!(user, "root" | "0"));
    let found = [
        (is_root, with_root),
        (!is_root && spec.sandbox.mode == SandboxMode::Off, with_sandbox),
        (!spec.sandbox.private_tmp, with_tmp),
        (section.item("stdin").is_some(), with_stdin),
    ];
    for (_, (key, message, help)) in found.into_iter().filter(|(is_wrong, _)| *is_wrong) {
        reading.findings.error(reading.places.value(&section.at(key)), message, help);
    }
}
