//! What processes get besides their command: `env-file`, `secrets`, `group`, `umask`, `limits`, `stop-signal`,
//! `reload-signal`, `time-zone`, `stdin`, `image`.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeValue;
use weal_model::naming::is_reserved_variable;
use weal_model::written::parse_size;
use weal_model::{EnvFile, LimitValue, ProcessSignal, ProcessSpec, ResourceLimit, Schedule, Secret, SecretSource};

use super::image;
use super::paths::{below, is_literal, read_file};
use crate::env_file::{RESERVED, is_variable};
use crate::section::{Item, Reading, Section};

/// Limits that the sandbox sets, with its keys.
const OF_SANDBOX: [(&str, &str); 3] = [("nofile", "open-files"), ("nproc", "processes"), ("core", "core-dumps")];

/// `given` are the variables that weal itself sets.
pub(super) fn read(reading: &mut Reading, section: &Section, folder: &Path, given: &[&str]) -> ProcessSpec {
    ProcessSpec {
        env_files: read_env_files(reading, section, folder),
        secrets: read_secrets(reading, section, folder, given),
        group: section.text(reading, "group"),
        umask: read_umask(reading, section),
        limits: read_limits(reading, section),
        stop_signal: section.word(reading, "stop-signal", ProcessSignal::ALL, ProcessSignal::as_str, "signals"),
        reload_signal: section.word(reading, "reload-signal", ProcessSignal::ALL, ProcessSignal::as_str, "signals"),
        time_zone: read_time_zone(reading, section),
        stdin: section.item("stdin").and_then(|_| read_file(reading, section, folder, "stdin")),
        image: image::read(reading, section, folder),
        entrypoint: image::read_entrypoint(reading, section),
    }
}

/// `".env"` or a list; a dash before a path means that the file need not be there, as in systemd.
fn read_env_files(reading: &mut Reading, section: &Section, folder: &Path) -> Vec<EnvFile> {
    let Some(item) = section.item("env-file") else { return Vec::new() };
    let items = if let DeValue::String(_) = item.value { vec![item] } else { item.list(reading).unwrap_or_default() };
    let files = items.into_iter().filter_map(|item| {
        let text = item.text(reading)?;
        let (path, required) = text.strip_prefix('-').map_or((text.as_str(), true), |path| (path, false));
        if path.is_empty() || !is_literal(path) {
            let help = "write a path without `~` and `$`; it is relative to the config's folder";
            reading.findings.error(item.span, format!("`{path}` cannot be a file"), help);
            return None;
        }
        Some(EnvFile { path: below(folder, path), required })
    });
    files.collect()
}

/// Variables that say where a process finds itself, its programs and its language.
const NO_SECRETS: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME"];

fn read_secrets(reading: &mut Reading, section: &Section, folder: &Path, given: &[&str]) -> BTreeMap<String, Secret> {
    let Some(table) = section.table(reading, "secrets") else { return BTreeMap::new() };
    let names: Vec<&str> = table.keys().map(|key| key.get_ref().as_ref()).collect();
    let secrets = Section::open(reading, &section.at("secrets"), table, &names);
    let mut read = BTreeMap::new();
    for name in names {
        let path = secrets.at(name);
        if !is_variable(name) {
            let help = "names have letters, digits and `_`, and do not begin with a digit";
            reading.findings.error(reading.places.key(&path), format!("`{name}` cannot be a variable"), help);
        } else if given.contains(&name) || reading.places.has(&format!("{}.{name}", section.at("env"))) {
            let help = "leave one of them out: each variable has one value";
            reading.findings.error(reading.places.key(&path), format!("`{name}` is set elsewhere too"), help);
        }
        if is_reserved_variable(name) || NO_SECRETS.contains(&name) {
            let help =
                if is_reserved_variable(name) { RESERVED } else { "set it in `env`: it is no secret, and each process has one" };
            reading.findings.error(reading.places.key(&path), format!("`{name}` cannot be a secret"), help);
        }
        let secret = secrets.item(name).and_then(|item| read_secret(reading, &item, folder));
        read.extend(secret.map(|secret| (name.to_owned(), secret)));
    }
    read
}

/// `"file:PATH"`, or `{ from = "file:PATH", as = "file" }`.
fn read_secret(reading: &mut Reading, item: &Item, folder: &Path) -> Option<Secret> {
    let DeValue::Table(table) = item.value else {
        return Some(Secret { from: read_source(reading, item, folder)?, as_file: false });
    };
    let section = Section::open(reading, &item.path, table, &["from", "as"]);
    let as_file = section.word(reading, "as", ["variable", "file"], |word| word, "words") == Some("file");
    let Some(from) = section.item("from") else {
        reading.findings.error(item.span.clone(), "this secret comes from nowhere", "add `from = \"file:PATH\"`");
        return None;
    };
    Some(Secret { from: read_source(reading, &from, folder)?, as_file })
}

fn read_source(reading: &mut Reading, item: &Item, folder: &Path) -> Option<SecretSource> {
    let text = item.text(reading)?;
    match text.split_once(':') {
        Some(("file", path)) if !path.is_empty() && is_literal(path) => Some(SecretSource::File(below(folder, path))),
        Some(("variable", name)) if is_variable(name) => Some(SecretSource::Variable(name.to_owned())),
        Some(("credential", name)) if !name.is_empty() && !name.contains(['/', '\0']) => {
            Some(SecretSource::Credential(name.to_owned()))
        }
        _ => {
            // The text may be the secret: it is shown where it stands, and nowhere else.
            let help = "write where it is, not what it is: `\"file:PATH\"`, `\"variable:NAME\"` or `\"credential:NAME\"`";
            reading.findings.error(item.span.clone(), "this is no place of a secret", help);
            None
        }
    }
}

/// Octal, in quotes, as `umask` itself writes it.
fn read_umask(reading: &mut Reading, section: &Section) -> Option<u32> {
    let text = section.text(reading, "umask")?;
    let mask = u32::from_str_radix(&text, 8).ok().filter(|mask| *mask <= 0o777 && text.starts_with(|c: char| c.is_ascii_digit()));
    if mask.is_none() {
        let help = "write three octal digits in quotes: with `\"027\"` others read nothing";
        reading.findings.error(reading.places.value(&section.at("umask")), format!("`{text}` is no mask"), help);
    }
    mask
}

fn read_limits(reading: &mut Reading, section: &Section) -> BTreeMap<ResourceLimit, LimitValue> {
    let Some(table) = section.table(reading, "limits") else { return BTreeMap::new() };
    let theirs = OF_SANDBOX.map(|(limit, _)| limit);
    let known: Vec<&str> = ResourceLimit::ALL.iter().map(|limit| limit.as_str()).chain(theirs).collect();
    let limits = Section::open(reading, &section.at("limits"), table, &known);
    for (limit, key) in OF_SANDBOX {
        if let Some(item) = limits.item(limit) {
            let help = format!("write `sandbox = {{ {key} = .. }}`");
            reading.findings.error(item.span, format!("`{limit}` is a matter of the sandbox"), help);
        }
    }
    let read = |limit: ResourceLimit| Some((limit, read_limit(reading, &limits.item(limit.as_str())?, limit)?));
    ResourceLimit::ALL.into_iter().filter_map(read).collect()
}

fn read_limit(reading: &mut Reading, item: &Item, limit: ResourceLimit) -> Option<LimitValue> {
    if let DeValue::String(text) = item.value
        && text == "infinity"
    {
        return Some(LimitValue::Infinity);
    }
    if limit.is_size() {
        return Some(LimitValue::AtMost(item.with_unit(reading, "a size", "64MiB", parse_size)?.0));
    }
    item.count(reading, 0..u32::MAX).map(|count| LimitValue::AtMost(u64::from(count)))
}

fn read_time_zone(reading: &mut Reading, section: &Section) -> Option<String> {
    let zone = section.text(reading, "time-zone")?;
    if Schedule::new("0 0 * * *", &zone).is_err() {
        let help = "write a name such as `Europe/Berlin` or `UTC`";
        reading.findings.error(reading.places.value(&section.at("time-zone")), format!("there is no time zone `{zone}`"), help);
    }
    Some(zone)
}
