//! What was found out about a program.

/// How one program is started.
pub(super) struct Program {
    /// The file that says so.
    pub source: String,
    /// What it is called there.
    pub name: Option<String>,
    /// Program and arguments; `$PORT` is filled in.
    pub run: Vec<String>,
    /// What one instance of such a program takes.
    pub memory: &'static str,
    /// What somebody has to do or to look at, in sentences.
    pub notes: Vec<String>,
}

impl Program {
    pub(super) fn new(source: &str, run: Vec<String>) -> Self {
        let mut program = Self { source: source.to_owned(), name: None, run, memory: "256MiB", notes: Vec::new() };
        if !program.run.iter().any(|word| word.contains("$PORT")) {
            program.notes.push("the program must listen on 127.0.0.1 at $PORT, which is in its environment".to_owned());
        }
        program
    }

    pub(super) fn named(self, name: Option<String>) -> Self {
        Self { name, ..self }
    }

    pub(super) fn with_memory(self, memory: &'static str) -> Self {
        Self { memory, ..self }
    }

    pub(super) fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

/// The words of a command line without quotes in it.
pub(super) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}
