//! Which file a command's first word is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why a program cannot be run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProgram {
    /// It is a folder.
    #[error("cannot run {}: it is a folder", .path.display())]
    Folder {
        /// Where it is.
        path: PathBuf,
    },
    /// Nobody may execute it.
    #[error("cannot run {}: it is not executable (chmod +x?)", .path.display())]
    NotExecutable {
        /// Where it is.
        path: PathBuf,
    },
    /// There is none.
    #[error("cannot run {}: there is no such file", .path.display())]
    NoFile {
        /// Where it should be.
        path: PathBuf,
    },
    /// No folder of the search path holds it.
    #[error("cannot run `{program}`: there is no such program in PATH ({path}); write ./{program} for one in {}", .cwd.display())]
    NotInPath {
        /// Its name.
        program: String,
        /// The search path.
        path: String,
        /// The working directory.
        cwd: PathBuf,
    },
}

/// The path of a program, as a shell would find it in `path`; relative to `cwd` where it has a slash.
///
/// # Errors
/// There is none that can be run: says what is there instead.
pub fn find_program(program: &str, cwd: &Path, path: &str) -> Result<String, NoProgram> {
    let is_executable =
        |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        let full = cwd.join(program);
        return match () {
            () if is_executable(&full) => Ok(full.display().to_string()),
            () if full.is_dir() => Err(NoProgram::Folder { path: full }),
            () if full.exists() => Err(NoProgram::NotExecutable { path: full }),
            () => Err(NoProgram::NoFile { path: full }),
        };
    }
    let folders = path.split(':').map(|folder| cwd.join(folder).join(program));
    let found = folders.into_iter().find(|candidate| is_executable(candidate));
    found.map(|found| found.display().to_string()).ok_or_else(|| NoProgram::NotInPath {
        program: program.to_owned(),
        path: path.to_owned(),
        cwd: cwd.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_it_is_said_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path();
        fs::write(cwd.join("tool"), "#!/bin/sh\n").unwrap();
        assert_eq!(find_program("./tool", cwd, "").unwrap_err(), NoProgram::NotExecutable { path: cwd.join("./tool") });
        fs::set_permissions(cwd.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(find_program("./tool", cwd, "").unwrap().ends_with("/tool"));
        assert!(find_program("tool", cwd, &format!("/nowhere:{}", cwd.display())).is_ok());
        let error = find_program("tool", cwd, "/nowhere").unwrap_err().to_string();
        assert!(error.contains("no such program in PATH (/nowhere)"), "{error}");
        assert_eq!(find_program("./none", cwd, "").unwrap_err(), NoProgram::NoFile { path: cwd.join("./none") });
        assert_eq!(find_program("/", cwd, "").unwrap_err(), NoProgram::Folder { path: "/".into() });
    }
}
