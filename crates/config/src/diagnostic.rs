//! What is wrong with a config, where, and what would be right.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Renderer, Snippet};
use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The config is refused.
    Error,
    /// The config is taken; somebody should look at it.
    Warning,
}

/// One finding. All of a file's findings are reported together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Whether the config is refused for it.
    pub level: Level,
    /// The file, as it was named.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many characters are wrong, within that line.
    pub length: usize,
    /// What is wrong: a lower-case fragment.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
    /// The same place in bytes, for [`Diagnostic::render`].
    #[serde(skip)]
    pub(crate) span: Range<usize>,
    /// Another place that matters, with what it is.
    #[serde(skip)]
    pub(crate) other: Option<(Range<usize>, String)>,
}

impl Diagnostic {
    /// The finding as a person reads it in a terminal: the lines around it, the wrong word underlined, what would be right.
    ///
    /// `text` is the config that was parsed; `color` adds ANSI colours.
    pub fn render(&self, text: &str, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let level = match self.level {
            Level::Error => annotate_snippets::Level::ERROR,
            Level::Warning => annotate_snippets::Level::WARNING,
        };
        let mut snippet = Snippet::source(text)
            .path(&self.path)
            .annotation(AnnotationKind::Primary.span(self.span.clone()).label("here"))
            .annotation(AnnotationKind::Visible.span(with_neighbours(text, &self.span)));
        if let Some((span, what)) = &self.other {
            snippet = snippet.annotation(AnnotationKind::Context.span(span.clone()).label(what));
        }
        let mut shown = level.primary_title(&self.message).element(snippet);
        if let Some(help) = &self.help {
            shown = shown.element(annotate_snippets::Level::HELP.message(help));
        }
        renderer.decor_style(DecorStyle::Unicode).render(&[shown]) + "\n"
    }
}

/// `span` with the line before it and the line after it, which show a reader where it is.
fn with_neighbours(text: &str, span: &Range<usize>) -> Range<usize> {
    let line_start = |at: usize| text[..at].rfind('\n').map_or(0, |at| at + 1);
    let line_end = |at: usize| text[at..].find('\n').map_or(text.len(), |length| at + length);
    let (start, end) = (line_start(span.start), line_end(span.end));
    line_start(start.saturating_sub(1))..line_end((end + 1).min(text.len()))
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: {}", self.path, self.line, self.column, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// Renders all findings, one after the other.
pub fn render_all(diagnostics: &[Diagnostic], text: &str, color: bool) -> String {
    diagnostics.iter().map(|diagnostic| diagnostic.render(text, color)).collect::<Vec<_>>().join("\n")
}

/// Collects findings while a text is read.
pub(crate) struct Findings<'t> {
    text: &'t str,
    path: &'t str,
    found: Vec<Diagnostic>,
}

impl<'t> Findings<'t> {
    pub(crate) fn new(text: &'t str, path: &'t str) -> Self {
        Self { text, path, found: Vec::new() }
    }

    /// The source at `span`.
    pub(crate) fn source(&self, span: &Range<usize>) -> &'t str {
        self.text.get(span.clone()).unwrap_or("")
    }

    pub(crate) fn error(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.push(Level::Error, span, message.into(), help.into(), None);
    }

    pub(crate) fn error_with(&mut self, span: Range<usize>, message: String, help: String, other: (Range<usize>, String)) {
        self.push(Level::Error, span, message, help, Some(other));
    }

    pub(crate) fn warning(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.push(Level::Warning, span, message.into(), help.into(), None);
    }

    fn push(&mut self, level: Level, span: Range<usize>, message: String, help: String, other: Option<(Range<usize>, String)>) {
        let span = self.on_one_line(span);
        let before = &self.text[..span.start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        self.found.push(Diagnostic {
            level,
            path: self.path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            length: self.text[span.clone()].chars().count(),
            message,
            help: (!help.is_empty()).then_some(help),
            span,
            other,
        });
    }

    /// Cuts `span` at the end of its first line and moves it onto character boundaries, so that it can be underlined.
    fn on_one_line(&self, span: Range<usize>) -> Range<usize> {
        let floor = |at: usize| (0..=at.min(self.text.len())).rev().find(|&at| self.text.is_char_boundary(at)).unwrap_or(0);
        let start = floor(span.start);
        let end = floor(span.end).max(start);
        let line = self.text[start..end].lines().next().unwrap_or("");
        start..start + line.trim_end().len()
    }

    /// Errors and warnings, each in the order of the text.
    pub(crate) fn finish(mut self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        self.found.sort_by_key(|found| (found.span.start, found.level));
        self.found.dedup();
        self.found.into_iter().partition(|found| found.level == Level::Error)
    }
}
