//! The keys of `[app.NAME]` that say which instance a request goes to.

use weal_model::{DispatchPolicy, DispatchRules, NameHash};

use super::class::read_cookie;
use crate::section::{Reading, Section};
use crate::suggest;

/// More copies than this of each part are no longer locality.
const MOST_REPLICAS: u32 = 16;

pub(super) fn read(reading: &mut Reading, section: &Section) -> DispatchRules {
    let default = DispatchRules::default();
    let policy = read_word(reading, section, "dispatch", &DispatchPolicy::ALL.map(|policy| (policy.as_str(), policy)));
    let policy = policy.unwrap_or(default.policy);
    let by_name = "`url-hash`, `lard`, `lard-r` and `bounded-load` do";
    let by_set = "`url-hash` and `lard-r` do";
    let has_sets = matches!(policy, DispatchPolicy::UrlHash | DispatchPolicy::LardR);
    for (key, is_used, who) in [
        ("replication", has_sets, by_set),
        ("hash", policy.reads_names(), by_name),
        ("hash-query", policy.reads_names(), by_name),
    ] {
        if section.item(key).is_some() && !is_used {
            let message = format!("`dispatch = \"{}\"` makes no use of `{key}`", policy.as_str());
            reading.findings.error(
                reading.places.key(&section.at(key)),
                message,
                format!("{who}: leave `{key}` out, or choose one of them"),
            );
        }
    }
    DispatchRules {
        policy,
        replication: section.count(reading, "replication", 1..MOST_REPLICAS + 1).unwrap_or(default.replication),
        hash: read_word(reading, section, "hash", &NameHash::ALL.map(|hash| (hash.as_str(), hash))).unwrap_or(default.hash),
        hash_query: section.flag(reading, "hash-query").unwrap_or(default.hash_query),
        affinity: read_cookie(reading, section, "affinity"),
    }
}

fn read_word<T: Copy>(reading: &mut Reading, section: &Section, key: &str, known: &[(&'static str, T)]) -> Option<T> {
    let word = section.text(reading, key)?;
    let found = known.iter().find(|(name, _)| *name == word);
    if found.is_none() {
        let help = suggest::help(&word, known.iter().map(|(name, _)| *name), "words");
        reading.findings.error(reading.places.value(&section.at(key)), format!("`{key}` cannot be `{word}`"), help);
    }
    found.map(|(_, value)| *value)
}
