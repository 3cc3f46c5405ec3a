//! The file that `--stages` names: the phases of a job.
//!
//! ```toml
//! [[stage]]
//! work = "30s"          # CPU time
//! cpus = 1              # the most CPU that helps it
//! memory = "200MiB"
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use weal_model::written::parse_size;
use weal_protocol::controller::StageWish;

use crate::values;

/// The largest file that is read: ten times what as many phases take as a job may have.
const LARGEST: u64 = 64 << 10;

/// Why a file of stages cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StagesError {
    /// It cannot be read.
    #[error("{path} cannot be read: {error}")]
    Unread {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// It is no table of stages.
    #[error("{path}: {why}; a stage is written `[[stage]]` with `work = \"30s\"`, `cpus = 1` and `memory = \"200MiB\"`")]
    Shape {
        /// The file.
        path: String,
        /// What is wrong, with its line.
        why: String,
    },
    /// It has none.
    #[error("{path} has no `[[stage]]`")]
    Empty {
        /// The file.
        path: String,
    },
    /// A value of one of them is none.
    #[error("{path}: `{key}` of stage {stage}: {why}")]
    Value {
        /// The file.
        path: String,
        /// Which, from 1.
        stage: usize,
        /// Which key.
        key: &'static str,
        /// What is wrong.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    stage: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    work: String,
    cpus: Option<f64>,
    memory: Option<String>,
}

/// The stages that a file lists, in their order.
pub fn read(path: &Path) -> Result<Vec<StageWish>, StagesError> {
    let name = path.display().to_string();
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(StagesError::Unread { path: name, error }),
        Ok(bytes) if bytes as u64 > LARGEST => {
            Err(StagesError::Shape { path: name, why: format!("it has more than {LARGEST} bytes") })
        }
        Ok(_) => parse(&name, &text),
    }
}

fn parse(path: &str, text: &str) -> Result<Vec<StageWish>, StagesError> {
    let path = || path.to_owned();
    let page: Page = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        StagesError::Shape { path: path(), why: format!("line {line}: {}", error.message()) }
    })?;
    if page.stage.is_empty() {
        return Err(StagesError::Empty { path: path() });
    }
    let wish = |(index, row): (usize, Row)| {
        row.wish().map_err(|(key, why)| StagesError::Value { path: path(), stage: index + 1, key, why })
    };
    page.stage.into_iter().enumerate().map(wish).collect()
}

impl Row {
    fn wish(self) -> Result<StageWish, (&'static str, String)> {
        let work_s = values::long_span(&self.work).map_err(|error| ("work", error.to_string()))?;
        let memory = self.memory.as_deref().map(parse_size).transpose().map_err(|error| ("memory", error.to_string()))?;
        Ok(StageWish { work_s, cpus: self.cpus, memory })
    }
}

#[cfg(test)]
mod tests {
    use weal_model::Bytes;

    use super::*;

    #[test]
    fn stages_are_read_in_their_order() {
        let text = "[[stage]]\nwork = \"30s\"\nmemory = \"200MiB\"\n[[stage]]\nwork = \"2m\"\ncpus = 4\n";
        let first = StageWish { work_s: 30.0, cpus: None, memory: Some(Bytes::mib(200)) };
        let second = StageWish { work_s: 120.0, cpus: Some(4.0), memory: None };
        assert_eq!(parse("s.toml", text).unwrap(), [first, second]);
    }

    #[test]
    fn a_bad_file_of_stages_is_refused_with_its_place() {
        for (text, part) in [
            ("", "s.toml has no `[[stage]]`"),
            ("[[stage]]\nwork = \"1s\"\n[[stage]]\nwrok = \"1s\"\n", "line 4: unknown field `wrok`"),
            ("[[stage]]\nwork = 3\n", "line 2: invalid type"),
            ("[[stage]]\nwork = \"1s\"\n[[stage]]\nwork = \"soon\"\n", "`work` of stage 2: "),
            ("[[stage]]\nwork = \"1s\"\nmemory = \"much\"\n", "`memory` of stage 1: "),
            ("stage", "line 1: "),
        ] {
            let error = parse("s.toml", text).unwrap_err().to_string();
            assert!(error.starts_with("s.toml") && error.contains(part), "{error}");
        }
        assert!(read(Path::new("/nowhere/s.toml")).unwrap_err().to_string().starts_with("/nowhere/s.toml cannot be read: "));
    }
}
