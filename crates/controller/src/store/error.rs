//! Why the store cannot be used.

use std::path::Path;

use rusqlite::ErrorCode;

/// Why the store cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Made by a newer weal.
    #[error(
        "{path} was written by a newer weal (its schema is {found}, this one knows {known}): use that one, or move the file away"
    )]
    Newer {
        /// The database.
        path: String,
        /// Its schema's number.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The database said no.
    #[error("{path}: {source}")]
    Sqlite {
        /// The database.
        path: String,
        /// Why.
        source: rusqlite::Error,
    },
    /// Some of its pages do not hold what they should.
    #[error("{path}: {finding}")]
    Damaged {
        /// The database.
        path: String,
        /// What SQLite found first.
        finding: String,
    },
    /// The thread cannot be started.
    #[error("cannot start the store's thread: {0}")]
    Thread(std::io::Error),
}

impl Error {
    /// The database at `path` said no.
    pub(super) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        Self::Sqlite { path: path.display().to_string(), source }
    }

    /// Whether nothing but another file helps.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Sqlite { source, .. } => {
                matches!(source.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
            }
            Self::Newer { .. } | Self::Thread(_) => false,
        }
    }
}
