//! The text of a file, to tell where in it a mistake is.

use std::ops::Range;

use crate::error::{Mistake, ScenarioError};

/// Turns byte ranges into lines and columns.
pub(super) struct Source<'a>(pub &'a str);

impl Source<'_> {
    pub fn error(&self, span: &Range<usize>, mistake: Mistake) -> ScenarioError {
        let before = &self.0[..span.start.min(self.0.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        ScenarioError { line, column, mistake }
    }
}
