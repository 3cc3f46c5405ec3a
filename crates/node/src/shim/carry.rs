//! Files of a job that are carried: its inputs into its folder before it begins, its results out of it when it is done.
//!
//! A child of the shim does it as the job's user, in the job's control group and confined as the job is. So nobody has anything read or
//! written by this that the job itself could not, and the job pays for it. Only files and folders are carried, through no symbolic link, and
//! no more than a bound. A file has its name once all of it is on the disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use glob::{MatchOptions, Pattern};
use rustix::fs::OFlags;
use weal_model::JobFiles;
use weal_protocol::node::InstanceSpec;

use super::gang;

/// Files and folders of one job that are carried one way. More come from a wrong path or pattern.
const MOST_FILES: u64 = 100_000;
/// Bytes of one job that are carried one way: some minutes of a disk.
const MOST_BYTES: u64 = 16 << 30;
/// Folders within folders.
const DEEPEST: usize = 64;
/// How long carrying may take: [`MOST_BYTES`] at 30 MiB a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// A pattern means a path: `*` ends at a slash, and what begins with a dot is only meant by name.
const MATCHING: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// Why files are not where they should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CarryError {
    #[error("{} is a symbolic link, which is not followed: name what it leads to", .0.display())]
    Link(PathBuf),
    #[error("{} is neither a file nor a folder", .0.display())]
    Special(PathBuf),
    #[error("{} has no name", .0.display())]
    NoName(PathBuf),
    #[error("there are more than {MOST_FILES} files")]
    Many,
    #[error("there are more than {} GiB", MOST_BYTES >> 30)]
    Large,
    #[error("{} lies more than {DEEPEST} folders deep", .0.display())]
    Deep(PathBuf),
    #[error("`{pattern}` is no pattern: {why}")]
    Pattern { pattern: String, why: &'static str },
    #[error("it has left nothing that `{0}` names")]
    Nothing(String),
    #[error(transparent)]
    Gang(#[from] io::Error),
    #[error("{}: {source}", .path.display())]
    System { path: PathBuf, source: io::Error },
}

/// Copies a job's inputs into its folder `data`, in a child that `becomes` the job before. Of a gang, one task does so.
pub(super) fn bring_inputs(spec: &InstanceSpec, data: &Path, becomes: impl Becomes) -> io::Result<()> {
    let Some(run) = spec.job.clone().filter(|run| !run.files.inputs.is_empty()) else { return Ok(()) };
    let folder = data.to_owned();
    let copied = in_child(becomes, move || {
        gang::first(&run, &folder, || copy_in(&run.files.inputs, &folder))?;
        Ok(true)
    });
    copied.map(drop).map_err(|error| io::Error::other(format!("its inputs cannot be copied: {error}")))
}

/// Copies a job's results from its folder `data` to where they are to go, in a child that `becomes` the job before. Of a gang, the last task
/// does so. Tells whether results of this job are in place now.
pub(super) fn take_results(spec: &InstanceSpec, data: &Path, becomes: impl Becomes) -> io::Result<bool> {
    let run_and_place = spec.job.clone().and_then(|run| run.files.to.clone().map(|to| (run, PathBuf::from(to))));
    let Some((run, to)) = run_and_place else { return Ok(false) };
    let folder = data.to_owned();
    in_child(becomes, move || gang::last(&run, &folder, || copy_out(&folder, &run.files.outputs, &to)))
}

/// What a child does to have the rights of a job and no more.
pub(super) trait Becomes: Fn() -> io::Result<()> + Send + Sync + 'static {}
impl<F: Fn() -> io::Result<()> + Send + Sync + 'static> Becomes for F {}

/// Whether results are copied before the end of an instance is told.
pub(crate) fn has_results(spec: &InstanceSpec) -> bool {
    files(spec).is_some_and(|files| files.to.is_some())
}

/// The folder for the results.
pub(super) fn destination(spec: &InstanceSpec) -> Option<PathBuf> {
    files(spec)?.to.as_ref().map(PathBuf::from)
}

/// How long a shim may take to say that an instance runs.
pub(crate) fn patience_to_start(spec: &InstanceSpec, without: Duration) -> Duration {
    if files(spec).is_some_and(|files| !files.inputs.is_empty()) { PATIENCE } else { without }
}

/// What is wrong with the patterns of a job's results.
pub(crate) fn check_patterns(spec: &InstanceSpec) -> Result<(), CarryError> {
    files(spec).map_or(Ok(()), |files| compiled(&files.outputs).map(drop))
}

fn files(spec: &InstanceSpec) -> Option<&JobFiles> {
    spec.job.as_ref().map(|run| &run.files)
}

/// The status of a child that left the work to another.
const LEFT: i32 = 3;

/// Does `work` in a child that has become the job. Returns what `work` told when the child has ended; its complaint is the error.
fn in_child(becomes: impl Becomes, work: impl Fn() -> Result<bool, CarryError> + Send + Sync + 'static) -> io::Result<bool> {
    let (complaint, say) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut command = Command::new("/");
    command.env_clear().current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let live = move || -> io::Result<()> {
        let result = becomes().map_err(|error| error.to_string());
        let result = result.and_then(|()| work().map_err(|error| error.to_string()));
        let status = match &result {
            Ok(true) => 0,
            Ok(false) => LEFT,
            Err(text) => rustix::io::write(&say, text.as_bytes()).map_or(1, |_| 1),
        };
        // SAFETY: it ends this process, which has nothing to clear up.
        unsafe { libc::_exit(status) }
    };
    // SAFETY: the shim has a single thread, so the forked child may allocate and open files.
    unsafe { command.pre_exec(live) };
    let mut child = command.spawn()?;
    // The closure holds this process' end of the pipe.
    drop(command);
    match child.wait()?.code() {
        Some(0) => return Ok(true),
        Some(LEFT) => return Ok(false),
        _ => {}
    }
    let mut why = String::new();
    File::from(complaint).read_to_string(&mut why)?;
    Err(io::Error::other(if why.is_empty() { "it was ended while its files were copied".to_owned() } else { why }))
}

fn copy_in(inputs: &[String], folder: &Path) -> Result<(), CarryError> {
    let mut carrier = Carrier::default();
    for input in inputs.iter().map(PathBuf::from) {
        let name = input.file_name().ok_or_else(|| CarryError::NoName(input.clone()))?;
        carrier.carry(&input, &folder.join(name), 0)?;
    }
    Ok(())
}

fn copy_out(folder: &Path, patterns: &[String], to: &Path) -> Result<(), CarryError> {
    let mut results = Results { patterns: compiled(patterns)?, found: vec![false; patterns.len()], carrier: Carrier::default() };
    results.visit(folder, Path::new(""), to)?;
    match results.found.iter().position(|found| !found) {
        Some(missing) => Err(CarryError::Nothing(patterns[missing].clone())),
        None => Ok(()),
    }
}

fn compiled(patterns: &[String]) -> Result<Vec<Pattern>, CarryError> {
    let compile = |pattern: &String| {
        Pattern::new(pattern).map_err(|error| CarryError::Pattern { pattern: pattern.clone(), why: error.msg })
    };
    patterns.iter().map(compile).collect()
}

/// What of a job's folder its patterns name.
struct Results {
    patterns: Vec<Pattern>,
    /// Of each pattern, whether it names something.
    found: Vec<bool>,
    carrier: Carrier,
}

impl Results {
    /// Looks at all in the folder `within` of `folder`.
    fn visit(&mut self, folder: &Path, within: &Path, to: &Path) -> Result<(), CarryError> {
        if within.components().count() > DEEPEST {
            return Err(CarryError::Deep(folder.join(within)));
        }
        for name in names(&folder.join(within))? {
            let path = within.join(name);
            let from = folder.join(&path);
            if self.is_named(&path) {
                make_folders(to, within)?;
                self.carrier.carry(&from, &to.join(&path), 0)?;
            } else if metadata(&from)?.is_dir() {
                self.visit(folder, &path, to)?;
            }
        }
        Ok(())
    }

    fn is_named(&mut self, path: &Path) -> bool {
        let mut is_named = false;
        for (pattern, found) in self.patterns.iter().zip(&mut self.found) {
            if pattern.matches_path_with(path, MATCHING) {
                (*found, is_named) = (true, true);
            }
        }
        is_named
    }
}

/// Counts what it copies.
#[derive(Default)]
struct Carrier {
    files: u64,
    bytes: u64,
}

impl Carrier {
    fn carry(&mut self, from: &Path, to: &Path, depth: usize) -> Result<(), CarryError> {
        self.files += 1;
        let kind = metadata(from)?.file_type();
        match () {
            () if self.files > MOST_FILES => Err(CarryError::Many),
            () if depth > DEEPEST => Err(CarryError::Deep(from.to_owned())),
            () if kind.is_symlink() => Err(CarryError::Link(from.to_owned())),
            () if kind.is_file() => self.copy_file(from, to),
            () if kind.is_dir() => self.copy_folder(from, to, depth),
            () => Err(CarryError::Special(from.to_owned())),
        }
    }

    fn copy_folder(&mut self, from: &Path, to: &Path, depth: usize) -> Result<(), CarryError> {
        make_folder(to)?;
        for name in names(from)? {
            self.carry(&from.join(&name), &to.join(&name), depth + 1)?;
        }
        sync_folder(to)
    }

    fn copy_file(&mut self, from: &Path, to: &Path) -> Result<(), CarryError> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let source = fs::OpenOptions::new().read(true).custom_flags(flags).open(from).map_err(at(from))?;
        let (Some(folder), Some(name)) = (to.parent(), to.file_name()) else { return Err(CarryError::NoName(to.to_owned())) };
        let part = folder.join(format!(".{}.weal-part", name.to_string_lossy()));
        // One that a former run has left.
        let _ = fs::remove_file(&part);
        let mode = source.metadata().map_err(at(from))?.permissions().mode() & 0o777;
        let mut copy = fs::OpenOptions::new().write(true).create_new(true).mode(mode | 0o200).open(&part).map_err(at(&part))?;
        let most = MOST_BYTES - self.bytes;
        self.bytes += io::copy(&mut source.take(most + 1), &mut copy).map_err(at(to))?;
        if self.bytes > MOST_BYTES {
            let _ = fs::remove_file(&part);
            return Err(CarryError::Large);
        }
        copy.flush().and_then(|()| copy.sync_all()).map_err(at(to))?;
        fs::rename(&part, to).map_err(at(to))?;
        sync_folder(folder)
    }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<std::ffi::OsString>, CarryError> {
    let entries = fs::read_dir(folder).map_err(at(folder))?.take(MOST_FILES as usize + 1);
    let mut names =
        entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<Vec<_>, _>>().map_err(at(folder))?;
    names.sort();
    Ok(names)
}

fn make_folders(root: &Path, within: &Path) -> Result<(), CarryError> {
    let mut path = root.to_owned();
    for part in within.components() {
        path.push(part);
        make_folder(&path)?;
    }
    Ok(())
}

fn make_folder(path: &Path) -> Result<(), CarryError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && metadata(path)?.is_dir() => Ok(()),
        result => result.map_err(at(path)),
    }
}

fn metadata(path: &Path) -> Result<fs::Metadata, CarryError> {
    fs::symlink_metadata(path).map_err(at(path))
}

fn sync_folder(path: &Path) -> Result<(), CarryError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(at(path))
}

fn at(path: &Path) -> impl Fn(io::Error) -> CarryError {
    move |source| CarryError::System { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn inputs_come_as_files_and_folders_and_links_are_refused() {
        let (outside, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| outside.path().join(name).display().to_string();
        fs::write(path("a.txt"), "a").unwrap();
        fs::create_dir_all(path("tree/deep")).unwrap();
        fs::write(path("tree/deep/run.sh"), "b").unwrap();
        fs::set_permissions(path("tree/deep/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        for _ in 0..2 {
            copy_in(&[path("a.txt"), path("tree")], own.path()).unwrap();
        }
        let copied = own.path().join("tree/deep/run.sh");
        assert_eq!(
            (fs::read_to_string(&copied).unwrap().as_str(), metadata(&copied).unwrap().permissions().mode() & 0o777),
            ("b", 0o755)
        );
        assert_eq!(names(own.path()).unwrap(), ["a.txt", "tree"], "nothing else is left");
        std::os::unix::fs::symlink("/etc/passwd", path("tree/link")).unwrap();
        let refused = copy_in(&[path("tree")], own.path()).unwrap_err();
        assert!(matches!(refused, CarryError::Link(_)), "{refused}");
        let missing = copy_in(&[path("none")], own.path()).unwrap_err().to_string();
        assert!(missing.contains("/none: No such file"), "{missing}");
    }

    #[test]
    fn results_keep_their_paths_and_each_pattern_must_name_something() {
        let (own, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(own.path().join("out/frames")).unwrap();
        for name in ["out/a.png", "out/b.txt", "out/frames/1.png", ".progress-1", "log"] {
            fs::write(own.path().join(name), name).unwrap();
        }
        copy_out(own.path(), &texts(&["out/*.png", "log"]), to.path()).unwrap();
        assert_eq!(names(to.path()).unwrap(), ["log", "out"]);
        assert_eq!(names(&to.path().join("out")).unwrap(), ["a.png"]);
        copy_out(own.path(), &texts(&["out"]), to.path()).unwrap();
        assert_eq!(fs::read_to_string(to.path().join("out/frames/1.png")).unwrap(), "out/frames/1.png");
        let missing = copy_out(own.path(), &texts(&["*", "none/*"]), to.path()).unwrap_err();
        assert_eq!(missing.to_string(), "it has left nothing that `none/*` names");
        assert!(!to.path().join(".progress-1").exists(), "what begins with a dot is only meant by name");
        std::os::unix::fs::symlink("/etc", own.path().join("etc")).unwrap();
        assert!(matches!(copy_out(own.path(), &texts(&["e*"]), to.path()).unwrap_err(), CarryError::Link(_)));
        assert!(compiled(&texts(&["a***"])).is_err());
    }
}
