//! A first `weal.toml`: guessed from what lies in a program's folder, or made of a command alone.

mod compiled;
mod goal;
mod javascript;
mod look;
mod program;
mod python;
mod ruby;
mod sketch;

use crate::env_file;
use crate::import::{ImportError, Imported, compose, procfile};
pub use crate::parse::app_name;
pub use look::Look;
use program::Program;
pub use sketch::Sketch;

/// The names under which a compose file is looked for, as Compose itself does.
const COMPOSE: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

/// A config to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// A `weal.toml`.
    pub text: String,
    /// The file that it was made of.
    pub source: String,
    /// What somebody has to do or to look at, in sentences.
    pub notes: Vec<String>,
}

/// Why there is no proposal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// Nothing there says how to start a program.
    #[error(
        "nothing here says how to start a program (looked for: Procfile, compose.yaml, manage.py, pyproject.toml, requirements.txt, \
         app.py, Gemfile, go.mod, Cargo.toml, pom.xml, package.json, index.html): name it with weal init -- COMMAND"
    )]
    Nothing,
    /// A file of another tool cannot be read.
    #[error("{file}: {source}")]
    Import {
        /// Its name.
        file: String,
        /// What is wrong with it.
        source: ImportError,
    },
}

/// Looks at `folder` and makes a config of what it finds first: what says most about how a program is run is asked first. `folder_name` names
/// the application where nothing else does.
///
/// # Errors
/// Nothing is found, or a Procfile or a compose file cannot be read.
pub fn propose(folder: &dyn Look, folder_name: &str) -> Result<Proposal, InitError> {
    if let Some(imported) = imported(folder) {
        return imported;
    }
    let detectors =
        [python::detect, ruby::detect, compiled::go, compiled::cargo, compiled::maven, javascript::detect, javascript::pages];
    let program = detectors.iter().find_map(|detect| detect(folder)).ok_or(InitError::Nothing)?;
    Ok(of_program(program, folder_name))
}

/// A config for `run`, called after the program's folder.
pub fn of_command(run: &[String], folder_name: &str) -> Proposal {
    of_program(Program::new("the command line", run.to_vec()), folder_name)
}

fn imported(folder: &dyn Look) -> Option<Result<Proposal, InitError>> {
    let variables = folder.read(".env").and_then(|text| env_file::parse(&text).ok()).unwrap_or_default().into_iter().collect();
    let make = |file: &str, read: &dyn Fn(&str) -> Result<Imported, ImportError>| {
        let text = folder.read(file)?;
        let proposal = |Imported { text, notes }| Proposal { text: goal::with_goal(text, file), source: file.to_owned(), notes };
        Some(read(&text).map(proposal).map_err(|source| InitError::Import { file: file.to_owned(), source }))
    };
    let of_compose = |text: &str| compose(text, &variables);
    make("Procfile", &procfile).or_else(|| COMPOSE.iter().find_map(|file| make(file, &of_compose)))
}

fn of_program(program: Program, folder_name: &str) -> Proposal {
    let name = app_name([program.name.as_deref().unwrap_or_default(), folder_name]);
    let sketch = Sketch { memory: Some(program.memory.to_owned()), run: program.run, ..Sketch::new(&name) };
    Proposal { text: sketch.first_config(&program.source), source: program.source, notes: program.notes }
}
