//! What a check found.

/// One thing that a check found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What names it in the baseline: the check, the file, and what is wrong there; no line numbers, which change all the time.
    pub key: String,
    /// What a person reads.
    pub text: String,
}

impl Finding {
    /// One of them.
    pub fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { key: key.into(), text: text.into() }
    }
}
