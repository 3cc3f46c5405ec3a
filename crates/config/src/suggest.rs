//! Did you mean?

use strsim::osa_distance;

/// What people who come from elsewhere write, and what it is called here.
const SYNONYMS: [(&str, &str); 24] = [
    ("command", "run"),
    ("cmd", "run"),
    ("exec", "run"),
    ("entrypoint", "run"),
    ("replicas", "instances"),
    ("scale", "instances"),
    ("environment", "env"),
    ("depends-on", "needs"),
    ("requires", "needs"),
    ("healthcheck", "health"),
    ("health-check", "health"),
    ("workdir", "cwd"),
    ("working-dir", "cwd"),
    ("directory", "cwd"),
    ("mem", "memory"),
    ("ram", "memory"),
    ("cpus", "cpu"),
    ("timeout", "request-timeout"),
    ("grace-period", "stop-timeout"),
    ("domain", "host"),
    ("hostname", "host"),
    ("url", "path"),
    ("priority", "importance"),
    ("slo", "goal"),
];

/// The one of `known` that was most likely meant by `word`, if any is near enough.
pub(crate) fn meant<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let known: Vec<&str> = known.into_iter().collect();
    let plain = word.to_lowercase().replace('_', "-");
    let synonym = SYNONYMS.iter().find(|(theirs, _)| *theirs == plain).map(|&(_, ours)| ours);
    if let Some(same) = known.iter().find(|name| name.to_lowercase() == plain.as_str() || Some(**name) == synonym) {
        return Some(same);
    }
    let allowed = (plain.chars().count() / 3).max(1);
    known
        .iter()
        .map(|name| (osa_distance(&plain, &name.to_lowercase().replace('_', "-")), *name))
        .filter(|&(distance, name)| distance <= allowed || (plain.len() >= 3 && name.starts_with(&plain)))
        .min()
        .map(|(_, name)| name)
}

/// A sentence that says what would be right: the nearest of `known`, or all of them.
pub(crate) fn help<'k>(word: &str, known: impl IntoIterator<Item = &'k str>, what: &str) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match meant(word, known.iter().copied()) {
        Some(right) => format!("did you mean `{right}`?"),
        None if known.is_empty() => format!("there are no {what}"),
        None => format!("{what} are {}", list(&known)),
    }
}

/// A sentence that says what would be right: the nearest of `known`, or `otherwise`.
pub(crate) fn help_or<'k>(word: &str, known: impl IntoIterator<Item = &'k str>, otherwise: &str) -> String {
    meant(word, known).map_or_else(|| otherwise.to_owned(), |right| format!("did you mean `{right}`?"))
}

/// `a`, `b` and `c`.
pub(crate) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_foreign_words_and_beginnings_are_recognised() {
        let keys = ["run", "memory", "instances", "request-timeout", "stop-timeout"];
        for (word, right) in [
            ("memroy", Some("memory")),
            ("instnaces", Some("instances")),
            ("replicas", Some("instances")),
            ("request_timeout", Some("request-timeout")),
            ("req", Some("request-timeout")),
            ("zebra", None),
        ] {
            assert_eq!(meant(word, keys), right, "{word}");
        }
        assert_eq!(help("zebra", keys[..2].iter().copied(), "keys"), "keys are `run` and `memory`");
    }
}
