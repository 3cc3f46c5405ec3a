//! `[[notify]]`: who is told when something happens.

use toml::de::DeValue;
use weal_model::{NotifyBy, NotifySpec, Occasion};

use super::argv::check_argv;
use crate::section::{Item, Reading, Section};
use crate::{defaults, suggest};

/// Every key of `[[notify]]`.
const KEYS: [&str; 4] = ["on", "after", "url", "run"];
/// What has lasted longer than a day is no news.
const LONGEST_S: f64 = 86_400.0;
/// More receivers than anybody needs would only be a mistake.
const MOST: usize = 20;

/// All `[[notify]]`s, in their order.
pub(super) fn read_all(reading: &mut Reading, root: &Section) -> Vec<NotifySpec> {
    let Some(item) = root.item("notify") else { return Vec::new() };
    if let DeValue::Table(_) = item.value {
        let help = "write `[[notify]]` with double brackets, once for each receiver";
        reading.findings.error(reading.places.key("notify"), "`notify` is a list of tables", help);
        return Vec::new();
    }
    let entries = item.list(reading).unwrap_or_default();
    if entries.len() > MOST {
        reading.findings.error(reading.places.key("notify"), "there are too many receivers", format!("write at most {MOST}"));
    }
    entries.iter().filter_map(|entry| read(reading, entry)).collect()
}

fn read(reading: &mut Reading, entry: &Item) -> Option<NotifySpec> {
    let table = entry.table(reading)?;
    let section = Section::open(reading, &entry.path, table, &KEYS);
    let on = read_occasions(reading, &section, entry);
    let after_s = section.span(reading, "after", (0.0, LONGEST_S)).unwrap_or(defaults::NOTIFY_AFTER_S);
    let by = read_target(reading, &section, entry)?;
    Some(NotifySpec { on, after_s, by })
}

fn read_occasions(reading: &mut Reading, section: &Section, entry: &Item) -> Vec<Occasion> {
    if section.item("on").is_none() {
        return Occasion::ALL.to_vec();
    }
    let words = section.texts(reading, "on").unwrap_or_default();
    if words.is_empty() {
        reading.findings.error(entry.span.clone(), "this names nothing to be told of", "leave `on` out for all, or name some");
    }
    let mut occasions = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let Some(occasion) = Occasion::ALL.into_iter().find(|occasion| occasion.as_str() == word) else {
            let place = reading.places.value(&format!("{}.on.{index}", section.path));
            let help = suggest::help(word, Occasion::ALL.map(Occasion::as_str), "occasions");
            reading.findings.error(place, format!("`on` cannot be `{word}`"), help);
            continue;
        };
        occasions.push(occasion);
    }
    occasions
}

fn read_target(reading: &mut Reading, section: &Section, entry: &Item) -> Option<NotifyBy> {
    match (section.item("url").is_some(), section.item("run").is_some()) {
        (true, false) => {
            let url = section.text(reading, "url")?;
            check_url(reading, section, "url", &url);
            Some(NotifyBy::Url(url))
        }
        (false, true) => {
            let argv = section.texts(reading, "run")?;
            check_argv(reading, &argv, reading.places.value(&section.at("run")));
            Some(NotifyBy::Run(argv))
        }
        (is_both, _) => {
            let (message, help) = if is_both {
                ("this has `url` and `run`", "keep one of them; write another `[[notify]]` for the other")
            } else {
                ("this tells nobody", "add `url = \"https://…\"` or `run = [\"./program\"]`")
            };
            reading.findings.error(entry.span.clone(), message, help);
            None
        }
    }
}

/// An address that can be called: scheme, host, and nothing that would make two lines of a request.
pub(super) fn check_url(reading: &mut Reading, section: &Section, key: &str, url: &str) {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
    let is_plain = url.len() <= 2000 && url.chars().all(|c| c.is_ascii_graphic());
    if url.contains('…') {
        let help = "write the whole address: `weal config show` shows only its host";
        reading.findings.error(reading.places.value(&section.at(key)), "the rest of this address is hidden", help);
    } else if !is_plain || host.is_none_or(|host| host.is_empty() || host.contains('@')) {
        let help = "write `http://HOST/PATH` or `https://HOST/PATH`, without a user, spaces or letters beyond ASCII";
        reading.findings.error(reading.places.value(&section.at(key)), "this address cannot be called", help);
    }
}
