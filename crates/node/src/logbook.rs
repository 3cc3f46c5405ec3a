//! Where that stands which instances and runs of jobs have written: while they run, and for a while after.
//!
//! | folder below `node/` | of |
//! | --- | --- |
//! | `instances/ID/logs` | an instance, or a run that was not taken away yet |
//! | `past/ID@NANOSECONDS` | an instance that was taken away then |
//! | `runs/ID/logs` | a run that was taken away ([`crate::archive`]) |
//!
//! It needs no agent: `weal logs` reads here when no pool runs.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use weal_model::{InstanceId, JobName, Time, naming};
use weal_protocol::node::{LogSource, LogsChunk, LogsRequest};

use crate::files::{at, move_into, size};
use crate::shim::logs::{self, BadCursor, Cursor};
use crate::shim::{EXIT_FILE, LOGS_FOLDER};

/// Logs of instances that are gone, of each application: a deploy of ten instances can be looked back at twice.
const KEPT: usize = 20;
/// Bytes of them, of each application: what one instance that runs may have. The newest is kept whatever it wrote.
const BYTES_KEPT: u64 = 50 << 20;
/// Bytes of them, of all applications together.
const BYTES_KEPT_IN_ALL: u64 = 1 << 30;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Nobody of this name has written anything, or it is not kept any more.
    #[error("no log of `{0}` is kept")]
    Unknown(InstanceId),
    /// The place is none.
    #[error(transparent)]
    Cursor(#[from] BadCursor),
    /// The system refuses.
    #[error("its log cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The logs of one pool.
#[derive(Debug, Clone)]
pub struct Logbook {
    node: PathBuf,
}

impl Logbook {
    /// Those below a pool's state directory.
    pub fn of_pool(state_dir: &Path) -> Self {
        Self { node: state_dir.join("node") }
    }

    /// The logs of an application, or, when there are none, of a job: those of ended instances first, oldest first.
    pub fn sources(&self, name: &str) -> Vec<LogSource> {
        let of_app = |id: &InstanceId| naming::parts(id).is_some_and(|(app, _)| app.as_str() == name);
        let mut sources: Vec<LogSource> = self.past().into_iter().filter(|source| of_app(&source.instance)).collect();
        let live = |instance| LogSource { instance, ended: None };
        let instances = self.node.join("instances");
        let writes = |id: &InstanceId| of_app(id) && instances.join(id.as_str()).join(LOGS_FOLDER).is_dir();
        sources.extend(folders(&instances).into_iter().filter(writes).map(live));
        if sources.is_empty() {
            sources = self.runs(&JobName::from(name)).into_iter().map(live).collect();
        }
        sources
    }

    /// All logs: of ended instances, oldest first, then of those that are there, then of runs of jobs that were taken away.
    pub fn all(&self) -> Vec<LogSource> {
        let live = |instance| LogSource { instance, ended: None };
        let instances = self.node.join("instances");
        let writes = |id: &InstanceId| instances.join(id.as_str()).join(LOGS_FOLDER).is_dir();
        let mut sources = self.past();
        sources.extend(folders(&instances).into_iter().filter(writes).map(live));
        sources.extend(folders(&self.node.join("runs")).into_iter().map(live));
        sources
    }

    /// A piece of a log, without waiting for more.
    ///
    /// # Errors
    /// There is no such log, the request's place in it is none, or the system refuses.
    pub fn read(&self, request: &LogsRequest) -> Result<LogsChunk, LogError> {
        let (folder, is_over) = self.find(&request.instance, request.ended)?;
        let begin = match &request.cursor {
            Some(cursor) => cursor.parse()?,
            None => begin(&folder, request, is_over)?,
        };
        let piece = logs::read(&folder, begin, is_over)?;
        let is_over = is_over && piece.text.is_empty();
        Ok(LogsChunk { text: piece.text, next: piece.next.to_string(), times: piece.times, is_over })
    }

    /// Keeps what the instance in `dir` wrote, which ended `now`, and drops the oldest beyond the bounds.
    ///
    /// # Errors
    /// The log cannot be moved.
    pub fn keep(&self, instance: &InstanceId, dir: &Path, now: Time) -> io::Result<()> {
        let past = self.node.join("past");
        DirBuilder::new().recursive(true).mode(0o700).create(&past).map_err(at(&past))?;
        move_into(&dir.join(LOGS_FOLDER), &self.folder_of(instance, now))?;
        self.prune();
        Ok(())
    }

    /// The folder of a log, and whether nothing comes any more.
    fn find(&self, instance: &InstanceId, ended: Option<Time>) -> Result<(PathBuf, bool), LogError> {
        let (live, run) = (self.node.join("instances").join(instance.as_str()), self.node.join("runs").join(instance.as_str()));
        if ended.is_none() && live.join(LOGS_FOLDER).is_dir() {
            // An application's instance may be started again.
            let is_over = naming::parts(instance).is_none() && live.join(EXIT_FILE).exists();
            return Ok((live.join(LOGS_FOLDER), is_over));
        }
        let is_it = |source: &LogSource| source.instance == *instance && (ended.is_none() || source.ended == ended);
        if let Some(LogSource { ended: Some(then), .. }) = self.past().into_iter().rfind(is_it) {
            return Ok((self.folder_of(instance, then), true));
        }
        let kept = run.join(LOGS_FOLDER);
        if kept.is_dir() { Ok((kept, true)) } else { Err(LogError::Unknown(instance.clone())) }
    }

    fn folder_of(&self, instance: &InstanceId, ended: Time) -> PathBuf {
        self.node.join("past").join(format!("{instance}@{}", ended.0))
    }

    /// The instances that are gone and whose logs are kept, by the time of their end.
    fn past(&self) -> Vec<LogSource> {
        let source = |name: InstanceId| {
            let (instance, ended) = name.as_str().rsplit_once('@')?;
            Some(LogSource { instance: instance.into(), ended: Some(Time(ended.parse().ok()?)) })
        };
        let mut past: Vec<LogSource> = folders(&self.node.join("past")).into_iter().filter_map(source).collect();
        past.sort_by_key(|source| source.ended);
        past
    }

    /// The runs of a job with each of their tasks, by their numbers.
    fn runs(&self, job: &JobName) -> Vec<InstanceId> {
        let all = [self.node.join("runs"), self.node.join("instances")];
        let runs = all.iter().flat_map(|folder| folders(folder)).filter_map(|id| Some((naming::task_of(job, &id)?, id)));
        runs.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    fn prune(&self) {
        let mut of_apps: BTreeMap<_, (usize, u64)> = BTreeMap::new();
        let mut in_all = 0;
        for source in self.past().into_iter().rev() {
            let folder = self.folder_of(&source.instance, source.ended.unwrap_or_default());
            let bytes = size(&folder);
            in_all += bytes;
            let app = naming::parts(&source.instance).map(|(app, _)| app);
            let (count, of_app) = of_apps.entry(app).or_default();
            (*count, *of_app) = (*count + 1, *of_app + bytes);
            let is_newest = *count == 1;
            if *count > KEPT || (!is_newest && (*of_app > BYTES_KEPT || in_all > BYTES_KEPT_IN_ALL)) {
                let _ = fs::remove_dir_all(&folder);
            }
        }
    }
}

/// Where to begin: so many lines before the end, but not before the time that is asked for. A last line that may go on is not counted.
fn begin(folder: &Path, request: &LogsRequest, is_over: bool) -> io::Result<Cursor> {
    let open = u32::from(!is_over && logs::is_open(folder));
    let tail = logs::tail(folder, request.tail_lines.saturating_add(open))?;
    Ok(request.since.map_or(tail, |since| tail.max(logs::begin_since(folder, since))))
}

fn folders(folder: &Path) -> Vec<InstanceId> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let name = |entry: fs::DirEntry| Some(InstanceId::from(entry.file_name().to_str()?));
    let mut names: Vec<InstanceId> = entries.flatten().filter_map(name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::logs::Writer;

    fn written(dir: &Path, lines: &[(&str, u64)]) {
        let mut writer = Writer::open(&dir.join(LOGS_FOLDER)).unwrap();
        lines.iter().for_each(|(text, second)| writer.append(text.as_bytes(), at_second(*second)));
    }

    fn at_second(second: u64) -> Time {
        Time(second * 1_000_000_000)
    }

    fn request(instance: &str) -> LogsRequest {
        LogsRequest { instance: instance.into(), cursor: None, tail_lines: 100, wait_s: 0.0, since: None, ended: None }
    }

    #[test]
    fn a_log_is_read_while_its_instance_lives_and_after_it_from_the_same_place() {
        let state = tempfile::tempdir().unwrap();
        let (book, dir) = (Logbook::of_pool(state.path()), state.path().join("node/instances/shop-1"));
        written(&dir, &[("one\n", 1), ("tw", 2)]);
        let first = book.read(&request("shop-1")).unwrap();
        assert_eq!((first.text.as_str(), first.is_over), ("one\n", false));
        written(&dir, &[("o\nlast words", 5)]);
        book.keep(&"shop-1".into(), &dir, at_second(6)).unwrap();
        let rest = book.read(&LogsRequest { cursor: Some(first.next), ..request("shop-1") }).unwrap();
        assert_eq!((rest.text.as_str(), rest.is_over), ("two\nlast words\n", false), "also the line that was never ended");
        let end = book.read(&LogsRequest { cursor: Some(rest.next), ..request("shop-1") }).unwrap();
        assert!(end.text.is_empty() && end.is_over);
        assert_eq!(book.sources("shop"), [LogSource { instance: "shop-1".into(), ended: Some(at_second(6)) }]);
        assert!(matches!(book.read(&request("shop-2")), Err(LogError::Unknown(_))));
        written(&dir, &[("a new life\n", 7)]);
        written(&state.path().join("node/runs/job.sort-3.1"), &[("sorted\n", 8)]);
        let all: Vec<(String, Option<Time>)> =
            book.all().into_iter().map(|source| (source.instance.to_string(), source.ended)).collect();
        let expected = [("shop-1", Some(at_second(6))), ("shop-1", None), ("job.sort-3.1", None)];
        assert_eq!(all, expected.map(|(id, ended)| (id.to_owned(), ended)));
    }

    #[test]
    fn lines_have_the_times_at_which_they_came_and_are_found_by_them() {
        let state = tempfile::tempdir().unwrap();
        let (book, dir) = (Logbook::of_pool(state.path()), state.path().join("node/instances/shop-1"));
        written(&dir, &[("one\ntwo\n", 10), ("three\nfo", 20), ("ur\nfive\n", 30)]);
        let chunk = book.read(&request("shop-1")).unwrap();
        let times: Vec<(u32, u64)> = chunk.times.iter().map(|entry| (entry.line, entry.time.0 / 1_000_000_000)).collect();
        assert_eq!((chunk.text.lines().count(), times), (5, vec![(0, 10), (2, 20), (4, 30)]));
        let since = |second| book.read(&LogsRequest { since: Some(at_second(second)), ..request("shop-1") }).unwrap();
        assert_eq!(since(15).text, "three\nfour\nfive\n");
        assert_eq!((since(30).text.as_str(), since(31).text.as_str()), ("five\n", ""));
        assert_eq!(since(30).times[0].time, at_second(30));
    }

    #[test]
    fn a_line_that_may_go_on_is_none_of_the_last_lines() {
        let state = tempfile::tempdir().unwrap();
        let (book, dir) = (Logbook::of_pool(state.path()), state.path().join("node/instances/shop-1"));
        written(&dir, &[("one\ntwo\n50%", 1)]);
        let last = |tail_lines| book.read(&LogsRequest { tail_lines, ..request("shop-1") }).unwrap();
        assert_eq!((last(1).text.as_str(), last(0).text.as_str()), ("two\n", ""));
        let cursor = Some(last(0).next);
        written(&dir, &[(" 100%\n", 2)]);
        assert_eq!(book.read(&LogsRequest { cursor, ..request("shop-1") }).unwrap().text, "50% 100%\n", "it comes whole");
        assert_eq!(last(1).text, "50% 100%\n");
    }

    #[test]
    fn the_logs_of_the_gone_are_bounded_for_each_application() {
        let state = tempfile::tempdir().unwrap();
        let book = Logbook::of_pool(state.path());
        for number in 0..KEPT as u64 + 5 {
            let dir = state.path().join(format!("node/instances/shop-{number}"));
            written(&dir, &[("x\n", number)]);
            book.keep(&format!("shop-{number}").as_str().into(), &dir, at_second(number)).unwrap();
        }
        let dir = state.path().join("node/instances/other-1");
        written(&dir, &[("x\n", 1)]);
        book.keep(&"other-1".into(), &dir, at_second(1)).unwrap();
        let kept = book.sources("shop");
        assert_eq!((kept.len(), kept[0].instance.as_str()), (KEPT, "shop-5"), "the oldest go first");
        assert_eq!(book.sources("other").len(), 1);
    }

    #[test]
    fn a_job_is_found_by_its_name_with_all_of_its_runs() {
        let state = tempfile::tempdir().unwrap();
        let book = Logbook::of_pool(state.path());
        written(&state.path().join("node/runs/job.sort-3.1"), &[("first\n", 1)]);
        written(&state.path().join("node/instances/job.sort-3.2"), &[("second\nunended", 2)]);
        let runs: Vec<InstanceId> = book.sources("sort-3").into_iter().map(|source| source.instance).collect();
        assert_eq!(runs, ["job.sort-3.1".into(), "job.sort-3.2".into()]);
        assert_eq!(book.read(&request("job.sort-3.1")).unwrap().text, "first\n");
        assert_eq!(book.read(&request("job.sort-3.2")).unwrap().text, "second\n", "it may go on with its last line");
    }
}
