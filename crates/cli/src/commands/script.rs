//! What a script says about itself: lines such as `#weal --done-by 30m --memory 500MiB` before its first command.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::Parser;

use crate::args::jobs::JobOptions;

/// How far into a script its header may reach, in bytes.
const HEAD: u64 = 64 * 1024;
const MARK: &str = "#weal";

/// The options of one header, read as a command line of their own.
#[derive(Debug, Parser)]
#[command(name = MARK, no_binary_name = true, disable_help_flag = true)]
struct Header {
    #[command(flatten)]
    options: JobOptions,
}

/// Why a script's header cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// Its quotes do not match.
    #[error("{path}:{line}: a quote does not end")]
    Quote {
        /// The script.
        path: String,
        /// Counted from 1.
        line: usize,
    },
    /// What it says are no options of a job.
    #[error("{path}:{line}: {why}")]
    Options {
        /// The script.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// The command to run and what its script says about it. The path of a file is made absolute, since a job runs in another folder; a script
/// that cannot be executed is handed to the interpreter that its first line names.
pub fn read(command: &[String]) -> anyhow::Result<(Vec<String>, JobOptions)> {
    let Some((program, arguments)) = command.split_first() else { return Ok((Vec::new(), JobOptions::default())) };
    let Some(head) = head(program) else { return Ok((command.to_vec(), JobOptions::default())) };
    let path = std::path::absolute(program)?.display().to_string();
    let Some(first) = head.strip_prefix("#!") else {
        let run = std::iter::once(path).chain(arguments.iter().cloned()).collect();
        return Ok((run, JobOptions::default()));
    };
    let mut run = Vec::new();
    if !is_executable(Path::new(program)) {
        run.extend(first.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned));
    }
    run.push(path);
    run.extend_from_slice(arguments);
    Ok((run, options(program, &head)?))
}

/// The beginning of a file; `None` for what is searched for in `PATH`, or is no file.
fn head(program: &str) -> Option<String> {
    let path = Path::new(program);
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let mut bytes = Vec::new();
    File::open(path).ok().filter(|_| is_file)?.take(HEAD).read_to_end(&mut bytes).ok()?;
    // A bare name is the program in `PATH`, unless a script of that name lies here.
    (program.contains('/') || bytes.starts_with(b"#!")).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

/// What the lines of the header say together: those before the first line that is neither empty nor a comment.
fn options(path: &str, head: &str) -> Result<JobOptions, ScriptError> {
    let header = head.lines().enumerate().take_while(|(_, line)| line.trim().is_empty() || line.starts_with('#'));
    let mut all = JobOptions::default();
    for (index, line) in header {
        let Some(said) = line.strip_prefix(MARK).filter(|rest| rest.starts_with(char::is_whitespace)) else { continue };
        let line = index + 1;
        let words = shlex::split(said).ok_or_else(|| ScriptError::Quote { path: path.to_owned(), line })?;
        let header = Header::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            ScriptError::Options { path: path.to_owned(), line, why }
        })?;
        all = all.or(header.options);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_job_scripts() {
        weal_fuzz::target("job-script", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Err(error) = options("x.sh", &text) {
                let (ScriptError::Quote { line, .. } | ScriptError::Options { line, .. }) = &error;
                assert!((1..=text.lines().count()).contains(line), "{error}");
                assert_eq!(error.to_string().lines().count(), 1, "{error}");
            }
        });
    }

    fn said(text: &str) -> Result<JobOptions, ScriptError> {
        options("x.sh", text)
    }

    #[test]
    fn a_header_says_what_the_command_line_does_not() {
        let header = said("#!/bin/sh\n#weal --done-by \"tomorrow 06:00\"\n\n# words\n#weal --cpus 2 --env A=1\n#wealth\necho\n#weal --name no\n").unwrap();
        assert_eq!((header.done_by.as_deref(), header.cpus, header.name.as_deref()), (Some("tomorrow 06:00"), Some(2.0), None));
        let line = JobOptions { cpus: Some(4.0), env: vec!["A=2".to_owned()], ..JobOptions::default() };
        let both = line.or(header);
        assert_eq!((both.cpus, both.env), (Some(4.0), vec!["A=1".to_owned(), "A=2".to_owned()]));
    }

    #[test]
    fn a_bad_header_is_refused_with_its_line() {
        for (text, part) in [
            ("#!/bin/sh\n#weal --memroy 1GiB\n", "x.sh:2: unexpected argument '--memroy'"),
            ("#!/bin/sh\n\n#weal --name \"x\n", "x.sh:3: a quote does not end"),
            ("#weal echo\n", "x.sh:1: unexpected argument 'echo'"),
        ] {
            let error = said(text).unwrap_err().to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }
}
