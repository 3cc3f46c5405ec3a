//! `routes` of an application.

use std::path::Path;

use toml::de::DeValue;
use weal_model::{ClassName, HeaderMatch, RouteSpec, host};

use super::route_keys::KEYS;
use super::{extras, port};
use crate::defaults;
use crate::section::{Item, Reading, Section};

pub(super) fn read(reading: &mut Reading, app: &Section, folder: &Path) -> Vec<RouteSpec> {
    let Some(item) = app.item("routes") else { return Vec::new() };
    if let DeValue::Table(_) = item.value {
        let _: Option<()> =
            item.wrong_type(reading, "a list", "put it in brackets: `routes = [ { host = \"shop.localhost\" } ]`");
        return Vec::new();
    }
    let entries = item.list(reading).unwrap_or_default();
    entries.iter().filter_map(|entry| read_route(reading, entry, folder)).collect()
}

fn read_route(reading: &mut Reading, entry: &Item, folder: &Path) -> Option<RouteSpec> {
    let table = match entry.value {
        DeValue::Table(table) => table,
        DeValue::String(text) => {
            let help = match text.find('/') {
                None => format!("write `{{ host = \"{text}\" }}`"),
                Some(0) => format!("write `{{ path = \"{text}\" }}`"),
                Some(at) => format!("write `{{ host = \"{}\", path = \"{}\" }}`", &text[..at], &text[at..]),
            };
            return entry.wrong_type(reading, "a list of tables", &help);
        }
        _ => return entry.wrong_type(reading, "a list of tables", "write `{ host = \"shop.localhost\", class = \"gold\" }`"),
    };
    let section = Section::open(reading, &entry.path, table, &KEYS);
    let port = port::read(reading, &section);
    Some(RouteSpec {
        port,
        host: read_host(reading, &section),
        path: read_path(reading, &section),
        header: read_header(reading, &section),
        class: ClassName::from(section.text(reading, "class").unwrap_or_else(|| defaults::CLASS.to_owned())),
        idle_timeout_s: section.span(reading, "idle-timeout", (0.001, 86_400.0)),
        total_timeout_s: section.span(reading, "total-timeout", (0.001, 2_592_000.0)),
        tunnel_idle_timeout_s: section.span(reading, "tunnel-idle-timeout", (0.001, 2_592_000.0)),
        extras: extras::read(reading, &section, folder),
    })
}

/// A host, whole or with a leading `*.`, in the one spelling that requests are compared with.
fn read_host(reading: &mut Reading, section: &Section) -> Option<String> {
    let written = section.text(reading, "host")?;
    let (wildcard, name) = written.strip_prefix("*.").map_or(("", written.as_str()), |name| ("*.", name));
    match host::read_host(name) {
        Ok(name) if wildcard.is_empty() || !name.starts_with('[') => return Some(format!("{wildcard}{name}")),
        _ => {}
    }
    let lower = written.to_lowercase();
    let bare = lower.split_once("://").map_or(lower.as_str(), |(_, rest)| rest);
    let (bare, path) = bare.split_once('/').map_or((bare, None), |(bare, path)| (bare, Some(path)));
    let bare = host::read_authority(bare).map(|(bare, _)| bare);
    let help = match (path.filter(|path| !path.is_empty()), bare) {
        _ if written == "*" => "leave `host` out to match every host".to_owned(),
        (Some(path), Ok(bare)) => format!("did you mean `host = \"{bare}\", path = \"/{path}\"`?"),
        (None, Ok(bare)) => format!("did you mean `{bare}`? Scheme and port do not belong here"),
        _ => "write a host name, `shop.example`, or all names below one, `*.shop.example`".to_owned(),
    };
    reading.findings.error(reading.places.value(&section.at("host")), format!("`{written}` is not a host"), help);
    None
}

/// `/exact` or `/prefix/*`.
fn read_path(reading: &mut Reading, section: &Section) -> Option<String> {
    let path = section.text(reading, "path")?;
    let stem = path.strip_suffix("/*").unwrap_or(&path);
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '*' | '?' | '#');
    if path.starts_with('/') && stem.chars().all(fits) {
        return Some(path);
    }
    let right = if path.starts_with('/') { path.clone() } else { format!("/{path}") };
    let stem = right.trim_end_matches('*').trim_end_matches('/');
    let help = if path.contains(['?', '#']) {
        "routes look at the path only: leave out what follows `?` or `#`".to_owned()
    } else if !stem.contains('*') && stem.chars().all(fits) {
        let right = if right.ends_with('*') { format!("{stem}/*") } else { right.clone() };
        format!("did you mean `{right}`?")
    } else {
        "write `/exact` or `/prefix/*`: a `*` stands only at the end, for whole segments".to_owned()
    };
    reading.findings.error(reading.places.value(&section.at("path")), format!("`{path}` is not a path pattern"), help);
    None
}

/// `header = "x-tier"` or `header = { name = "x-tier", value = "gold" }`.
fn read_header(reading: &mut Reading, section: &Section) -> Option<HeaderMatch> {
    let item = section.item("header")?;
    let (name, value, place) = match item.value {
        DeValue::Table(table) => {
            let header = Section::open(reading, &item.path, table, &["name", "value"]);
            let Some(name) = header.text(reading, "name") else {
                if header.item("name").is_none() {
                    reading.findings.error(item.span, "this header has no `name`", "add `name = \"x-tier\"`");
                }
                return None;
            };
            (name, header.text(reading, "value"), header.at("name"))
        }
        DeValue::String(name) => (name.clone().into_owned(), None, item.path.clone()),
        _ => return item.wrong_type(reading, "a name or a table", "write `{ name = \"x-tier\", value = \"gold\" }`"),
    };
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) {
        let help = match name.split_once(['=', ':']) {
            Some((name, value)) => format!("did you mean `{{ name = \"{}\", value = \"{}\" }}`?", name.trim(), value.trim()),
            None => "a header's name has letters, digits and dashes".to_owned(),
        };
        reading.findings.error(reading.places.value(&place), format!("`{name}` cannot be a header"), help);
        return None;
    }
    if value.as_ref().is_some_and(|value| value.trim() != value || !value.chars().all(|c| (' '..='~').contains(&c))) {
        let place = reading.places.value(&format!("{}.value", item.path));
        reading.findings.error(place, "no header can have this value", "leave out spaces at its ends and what is not ASCII");
        return None;
    }
    Some(HeaderMatch { name: name.to_lowercase(), value })
}
