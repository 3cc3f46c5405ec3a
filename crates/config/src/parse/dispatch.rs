//! The keys of `[app.NAME]` that say which instance a request goes to.

use weal_model::{DispatchPolicy, DispatchRules, NameHash};

use super::class::read_cookie;
use crate::section::{Reading, Section};

pub(super) fn read(reading: &mut Reading, section: &Section) -> DispatchRules {
    let default = DispatchRules::default();
    let policy =
        section.word(reading, "dispatch", DispatchPolicy::ALL, DispatchPolicy::as_str, "words").unwrap_or(default.policy);
    let by_name = "`url-hash`, `lard`, `lard-r` and `bounded-load` do";
    let by_set = "`url-hash` and `lard-r` do";
    for (key, is_used, who) in [
        ("replication", policy.has_sets(), by_set),
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
        replication: section.count(reading, "replication", 1..DispatchRules::MOST_REPLICAS + 1).unwrap_or(default.replication),
        hash: section.word(reading, "hash", NameHash::ALL, NameHash::as_str, "words").unwrap_or(default.hash),
        hash_query: section.flag(reading, "hash-query").unwrap_or(default.hash_query),
        affinity: read_cookie(reading, section, "affinity"),
    }
}
