//! Names of nodes, classes, applications and jobs.

use std::ops::Range;

use toml::de::DeTable;

use weal_model::naming::{LONGEST_NAME, RULE_OF_NAMES, is_name};

use crate::section::{Item, Reading};

/// Names stand in paths, in variables (`NAME_ADDR`) and in ids of instances: lower-case letters, digits and inner dashes.
pub(super) fn check_name(reading: &mut Reading, kind: &str, name: &str, span: Range<usize>, taken: &[&str]) {
    if is_name(name) {
        return;
    }
    let right = as_name(name);
    let help = if is_name(&right) && !taken.contains(&right.as_str()) {
        format!("did you mean `{right}`? Names have {RULE_OF_NAMES}")
    } else {
        format!("names have {RULE_OF_NAMES}")
    };
    reading.findings.error(span, format!("`{name}` cannot be the name of {}", article(kind)), help);
}

/// The nearest name that is allowed; may still be none (`""`, `"42"`).
pub(crate) fn as_name(text: &str) -> String {
    let dashed: String = text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    dashed.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-").chars().take(LONGEST_NAME).collect()
}

/// The first of `candidates` of which an application's name can be made; `app` where there is none.
pub fn app_name<'n>(candidates: impl IntoIterator<Item = &'n str>) -> String {
    let made = candidates.into_iter().map(as_name);
    made.map(|name| name.trim_start_matches(|c: char| !c.is_ascii_lowercase()).to_owned())
        .find(|name| is_name(name))
        .unwrap_or_else(|| "app".to_owned())
}

fn article(kind: &str) -> &str {
    match kind {
        "app" => "an application",
        "class" => "a class",
        "job" => "a job",
        _ => "a node",
    }
}

/// The tables of `[kind.NAME]`, their names checked and their places remembered.
pub(super) fn named<'a>(reading: &mut Reading, kind: &str, tables: &'a DeTable<'a>) -> Vec<(&'a str, &'a DeTable<'a>)> {
    let names: Vec<&str> = tables.keys().map(|key| key.get_ref().as_ref()).collect();
    let mut found = Vec::new();
    for (key, value) in tables {
        let name: &str = key.get_ref();
        let path = format!("{kind}.{name}");
        reading.places.remember(path.clone(), key.span(), value.span());
        check_name(reading, kind, name, key.span(), &names);
        let item = Item { path, span: value.span(), value: value.get_ref() };
        if let Some(table) = item.table(reading) {
            found.push((name, table));
        }
    }
    found
}
