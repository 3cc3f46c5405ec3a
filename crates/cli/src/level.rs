//! How bad a line is that a program writes: every word that weal knows for it, and what each is elsewhere.

use crate::output::Tone;

/// A level, by all of its names.
#[derive(Debug)]
pub struct Level {
    /// In lower case.
    words: &'static [&'static str],
    /// How a terminal shows it.
    pub tone: Tone,
    /// OpenTelemetry's `SeverityNumber`; 0 is unspecified.
    pub number: u8,
    /// The severity of syslog(3), which the journal keeps.
    pub priority: u8,
}

static LEVELS: [Level; 9] = [
    Level { words: &["trace"], tone: Tone::Dim, number: 1, priority: 7 },
    Level { words: &["debug"], tone: Tone::Dim, number: 5, priority: 7 },
    Level { words: &["info"], tone: Tone::Strong, number: 9, priority: 6 },
    Level { words: &["notice"], tone: Tone::Strong, number: 10, priority: 5 },
    Level { words: &["warn", "warning"], tone: Tone::Warn, number: 13, priority: 4 },
    Level { words: &["error", "err"], tone: Tone::Bad, number: 17, priority: 3 },
    Level { words: &["fatal", "critical", "crit"], tone: Tone::Bad, number: 21, priority: 2 },
    Level { words: &["alert"], tone: Tone::Bad, number: 22, priority: 1 },
    Level { words: &["emergency", "emerg", "panic"], tone: Tone::Bad, number: 24, priority: 0 },
];
/// Of a line that does not say how bad it is, or says it by a word of its own.
static UNKNOWN: Level = Level { words: &[], tone: Tone::Strong, number: 0, priority: 6 };

impl Level {
    /// What a program means by `word`, which is in lower case; `None` is a line without one.
    pub fn of(word: Option<&str>) -> &'static Self {
        let known = word.and_then(|word| LEVELS.iter().find(|level| level.words.contains(&word)));
        known.unwrap_or(&UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_stands_once_and_worse_levels_are_worse_everywhere() {
        let mut words: Vec<&str> = LEVELS.iter().flat_map(|level| level.words).copied().collect();
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all);
        for pair in LEVELS.windows(2) {
            assert!(pair[0].number < pair[1].number && pair[0].priority >= pair[1].priority, "{pair:?}");
        }
    }

    #[test]
    fn words_that_are_not_known_are_shown_and_count_as_information() {
        let of = |word| (Level::of(word).number, Level::of(word).priority);
        assert_eq!(
            [Some("crit"), Some("err"), Some("verbose"), Some("ERROR"), None].map(of),
            [(21, 2), (17, 3), (0, 6), (0, 6), (0, 6)]
        );
        assert_eq!(Level::of(Some("emerg")).tone, Tone::Bad);
    }
}
