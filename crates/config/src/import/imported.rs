//! What comes out of an import.

/// The outcome of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// A `weal.toml`.
    pub text: String,
    /// What was left out or has to be looked at, in sentences.
    pub notes: Vec<String>,
}

/// Why nothing could be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The text is no YAML.
    #[error("not a compose file: {0}")]
    Yaml(String),
    /// The text is no JSON.
    #[error("not a list of PM2's in JSON: {0}")]
    Json(String),
    /// There is nothing to run in it.
    #[error("there is no {0} in it")]
    Nothing(&'static str),
    /// A line that cannot be read.
    #[error("line {line} is not `name: command`: `{text}`")]
    Line {
        /// From 1.
        line: usize,
        /// The line.
        text: String,
    },
}
