//! `sandbox` of an application.

use std::collections::BTreeSet;
use std::path::Path;

use toml::de::DeValue;
use weal_model::{Permit, SandboxMode, SandboxSpec};

use super::paths::{below, is_literal};
use crate::section::{Reading, Section};
use crate::suggest;

/// Every key of `sandbox = { … }`.
const KEYS: [&str; 7] = ["write", "devices", "permit", "tmp", "processes", "open-files", "core-dumps"];
/// More threads than the kernel numbers by default.
const MOST_PROCESSES: u32 = 4_194_304;

/// `"strict"`, `"off"`, or a table of what is open in the strict one. Without it, only the superuser is not confined.
pub(super) fn read(reading: &mut Reading, app: &Section, folder: &Path, user: Option<&str>) -> SandboxSpec {
    let default = if user == Some("root") { SandboxSpec::off() } else { SandboxSpec::default() };
    let Some(item) = app.item("sandbox") else { return default };
    match item.value {
        DeValue::String(word) => match word.as_ref() {
            "strict" => SandboxSpec::default(),
            "off" => SandboxSpec::off(),
            other => {
                let help = suggest::help_or(other, ["strict", "off"], "write `strict`, `off` or a table");
                reading.findings.error(reading.places.value(&item.path), format!("`sandbox` cannot be `{other}`"), help);
                default
            }
        },
        DeValue::Table(table) => {
            let section = Section::open(reading, &item.path, table, &KEYS);
            read_table(reading, &section, folder)
        }
        _ => item
            .wrong_type(reading, "`\"strict\"`, `\"off\"` or a table", "write `{ write = [\"./cache\"] }` to open a folder")
            .unwrap_or(default),
    }
}

fn read_table(reading: &mut Reading, section: &Section, folder: &Path) -> SandboxSpec {
    let default = SandboxSpec::default();
    SandboxSpec {
        mode: SandboxMode::Strict,
        write: read_write(reading, section, folder),
        devices: read_devices(reading, section),
        permit: read_permit(reading, section),
        private_tmp: read_tmp(reading, section),
        processes: section.count(reading, "processes", 1..MOST_PROCESSES + 1).unwrap_or(default.processes),
        open_files: section.count(reading, "open-files", 16..u32::MAX).map_or(default.open_files, u64::from),
        core_dumps: section.flag(reading, "core-dumps").unwrap_or(default.core_dumps),
    }
}

/// Relative to the config's folder.
fn read_write(reading: &mut Reading, section: &Section, folder: &Path) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for path in section.texts(reading, "write").unwrap_or_default() {
        let whole = below(folder, &path);
        if path.is_empty() || !is_literal(&path) {
            let help =
                "write a folder or a file, absolute or relative to this file: neither `~` nor variables are filled in here";
            reading.findings.error(reading.places.value(&section.at("write")), format!("`{path}` is not a path"), help);
        } else if whole == "/" {
            let help = "name the folders that it writes, or write `sandbox = \"off\"`";
            reading.findings.error(reading.places.value(&section.at("write")), "the whole file system would be open", help);
        } else {
            paths.insert(whole);
        }
    }
    paths
}

fn read_devices(reading: &mut Reading, section: &Section) -> BTreeSet<String> {
    let devices = section.texts(reading, "devices").unwrap_or_default();
    for device in &devices {
        let fits = device
            .strip_prefix("/dev/")
            .is_some_and(|name| !name.is_empty() && !name.split('/').any(|part| part == ".." || part.is_empty()));
        if !fits {
            let help = "name a device below /dev, such as `/dev/dri/renderD128`";
            reading.findings.error(reading.places.value(&section.at("devices")), format!("`{device}` is not a device"), help);
        }
    }
    devices.into_iter().collect()
}

fn read_permit(reading: &mut Reading, section: &Section) -> BTreeSet<Permit> {
    let mut permits = BTreeSet::new();
    for word in section.texts(reading, "permit").unwrap_or_default() {
        match Permit::ALL.into_iter().find(|permit| permit.as_str() == word) {
            Some(permit) => drop(permits.insert(permit)),
            None => {
                let help = suggest::help(&word, Permit::ALL.map(Permit::as_str), "permits");
                reading.findings.error(reading.places.value(&section.at("permit")), format!("there is no permit `{word}`"), help);
            }
        }
    }
    permits
}

fn read_tmp(reading: &mut Reading, section: &Section) -> bool {
    match section.text(reading, "tmp").as_deref() {
        None | Some("private") => true,
        Some("shared") => false,
        Some(other) => {
            let help = suggest::help_or(other, ["private", "shared"], "write `private` or `shared`");
            reading.findings.error(reading.places.value(&section.at("tmp")), format!("`tmp` cannot be `{other}`"), help);
            true
        }
    }
}
