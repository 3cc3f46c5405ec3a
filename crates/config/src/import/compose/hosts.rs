//! Services reach each other by name within compose's network. Here they get an address in a variable: `@db:5432` becomes `@$DB_ADDR`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use weal_model::naming;

use crate::import::app::App;

/// The hosts of compose's network, with what they are called here.
pub(super) struct Hosts(Vec<(String, String)>);

impl Hosts {
    /// Services by their names, and by what else containers call them.
    pub(super) fn of(names: &BTreeMap<String, String>, services: &Map<String, Value>) -> Self {
        let mut hosts = Vec::new();
        for (written, name) in names {
            let service = services.get(written);
            let other = |key: &str| service.and_then(|service| service.get(key)).and_then(Value::as_str).map(str::to_owned);
            let spellings = [Some(written.clone()), other("container_name"), other("hostname")].into_iter().flatten();
            hosts.extend(spellings.map(|spelling| (spelling, name.clone())));
        }
        // The longer first: `db-replica` is not `db`.
        hosts.sort_by_key(|(spelling, _)| std::cmp::Reverse(spelling.len()));
        hosts.dedup();
        Self(hosts)
    }

    /// Rewrites the environments and the commands of `apps`, which then need whom they name.
    pub(super) fn rewrite(&self, apps: &mut [App], notes: &mut Vec<String>) {
        let needs: BTreeMap<String, Vec<String>> = apps.iter().map(|app| (app.name.clone(), app.needs.clone())).collect();
        let mut graph = Graph(needs);
        for app in apps {
            let mut found = Vec::new();
            let texts = app.env.values_mut().chain(app.run.iter_mut().skip(1));
            for text in texts {
                for (spelling, name) in self.0.iter().filter(|(_, name)| *name != app.name && graph.may_need(&app.name, name)) {
                    if let Some(rewritten) = rewrite(text, spelling, name) {
                        *text = rewritten;
                        found.push(name.clone());
                    }
                }
            }
            found.sort();
            found.dedup();
            notes.extend(drop_given(app, &found));
            for name in found {
                notes.push(format!("{}: reaches `{name}` by ${}", app.name, naming::variable(&name.as_str().into(), "ADDR")));
                graph.add(&app.name, &name);
                if !app.needs.contains(&name) {
                    app.needs.push(name);
                    app.needs.sort();
                }
            }
        }
    }
}

/// Removes what weal gives an application anyway for those that it needs: its own `DB_HOST` would stand in the way, and the port is another one.
fn drop_given(app: &mut App, needed: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    for name in needed {
        for part in ["HOST", "PORT", "ADDR"] {
            let variable = naming::variable(&name.as_str().into(), part);
            if app.env.remove(&variable).is_some() {
                notes.push(format!("{}: left out `{variable}` of its environment: weal sets it", app.name));
            }
        }
        let host = format!("${}", naming::variable(&name.as_str().into(), "HOST"));
        for (variable, _) in app.env.iter().filter(|(_, value)| **value == host) {
            let port = naming::variable(&name.as_str().into(), "PORT");
            notes.push(format!("{}: `{variable}` is the host of `{name}`, whose port is ${port} here", app.name));
        }
    }
    notes
}

/// Who needs whom.
struct Graph(BTreeMap<String, Vec<String>>);

impl Graph {
    /// Whether `app` may need `other` without a circle.
    fn may_need(&self, app: &str, other: &str) -> bool {
        let mut open = vec![other];
        let mut seen = Vec::new();
        while let Some(name) = open.pop() {
            if name == app {
                return false;
            }
            if !seen.contains(&name) {
                seen.push(name);
                open.extend(self.0.get(name).into_iter().flatten().map(String::as_str));
            }
        }
        true
    }

    fn add(&mut self, app: &str, other: &str) {
        self.0.entry(app.to_owned()).or_default().push(other.to_owned());
    }
}

/// `text` with variables of `name` in place of the host `spelling`; `None` when it does not name that host. A host alone is the whole value, or
/// stands after `@` or `//`; with a port it may stand after any mark.
fn rewrite(text: &str, spelling: &str, name: &str) -> Option<String> {
    let variable = |part: &str| format!("${}", naming::variable(&name.into(), part));
    if text == spelling {
        return Some(variable("HOST"));
    }
    let (mut out, mut rest, mut changed) = (String::new(), text, false);
    while let Some(at) = rest.find(spelling) {
        let (before, after) = (&rest[..at], &rest[at + spelling.len()..]);
        let start = before.chars().next_back().or_else(|| out.chars().next_back());
        let port =
            after.strip_prefix(':').map(|after| after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())).unwrap_or(0);
        let end = after[if port > 0 { port + 1 } else { 0 }..].chars().next();
        let is_bounded = start.is_none_or(|c| "@/,;= \"'".contains(c)) && end.is_none_or(|c| "/,;? \"'".contains(c));
        let is_authority = before.ends_with('@') || before.ends_with("//");
        out.push_str(before);
        if is_bounded && port > 0 {
            out.push_str(&variable("ADDR"));
            rest = &after[port + 1..];
            changed = true;
        } else if is_bounded && is_authority {
            out.push_str(&variable("ADDR"));
            rest = after;
            changed = true;
        } else {
            out.push_str(spelling);
            rest = after;
        }
    }
    changed.then(|| out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_rewritten_where_they_are_hosts() {
        for (text, expected) in [
            ("postgres://shop:pw@db:5432/shop", Some("postgres://shop:pw@$DB_ADDR/shop")),
            ("db", Some("$DB_HOST")),
            ("http://db/", Some("http://$DB_ADDR/")),
            ("db:5432,db:5433", Some("$DB_ADDR,$DB_ADDR")),
            ("mydb:5432", None),
            ("a db of ours", None),
            ("db-replica:5432", None),
        ] {
            assert_eq!(rewrite(text, "db", "db").as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn nobody_needs_itself_by_way_of_others() {
        let mut graph = Graph(BTreeMap::from([("db".to_owned(), vec!["cache".to_owned()])]));
        assert!(!graph.may_need("cache", "db") && graph.may_need("shop", "db"));
        graph.add("cache", "shop");
        assert!(!graph.may_need("shop", "db"));
    }
}
