//! The tables, and what is read from and written to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, params};
use serde::de::DeserializeOwned;
use weal_model::{Event, HistorySample, JobName, JobRecord, Time};

use super::error::Error;
use super::records::{CONFIGS_KEPT, EVENTS_KEPT, JOBS_KEPT, MINUTES_KEPT_S, RAW_KEPT_S, Saved, StoredConfig, WhichJob, Write};

/// The schema that this version reads and writes, kept in `user_version`.
const SCHEMA: u32 = 3;

const TABLES: &str = "
    CREATE TABLE config (generation INTEGER PRIMARY KEY, time INTEGER NOT NULL, path TEXT NOT NULL, text TEXT NOT NULL);
    CREATE TABLE event (id INTEGER PRIMARY KEY, body TEXT NOT NULL);
    CREATE TABLE sample (time INTEGER PRIMARY KEY, merged INTEGER NOT NULL, body TEXT NOT NULL);
    CREATE TABLE value (key TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
";

/// What schema 2 adds to schema 1.
const JOBS: &str = "
    CREATE TABLE job (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT, over INTEGER NOT NULL, body TEXT NOT NULL);
    CREATE INDEX job_over ON job (over, number);
    CREATE INDEX job_key ON job (key) WHERE key IS NOT NULL;
";

/// What schema 3 adds to schema 2.
const CONFIG_ORIGINS: &str = "
    ALTER TABLE config ADD COLUMN who TEXT;
    ALTER TABLE config ADD COLUMN origin TEXT NOT NULL DEFAULT '';
";

/// Jobs that are over and known to a new controller without asking the store.
const JOBS_RECALLED: u32 = 50;

/// Damaged files that are kept; the newest one replaces the last of them.
const MOST_ASIDE: u32 = 9;

/// So long the journal becomes before its pages go over to the database. SQLite's own 4 MiB would be longer than the database of most pools.
const JOURNAL_BYTES: u64 = 1 << 20;
/// SQLite's default.
const PAGE_BYTES: u64 = 4096;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

/// An open database.
pub(super) struct Database {
    connection: Connection,
}

impl Database {
    /// Opens it and reads what is kept; a damaged file is moved aside and a new one made.
    pub(super) fn open_or_set_aside(path: &Path, notes: &mut Vec<String>) -> Result<(Self, Saved), Error> {
        let open = || -> Result<(Self, Saved), Error> {
            let database = Self::open(path)?;
            let saved = database.saved().map_err(|source| Error::sqlite(path, source))?;
            Ok((database, saved))
        };
        match open() {
            Err(error) if error.is_damage() => {
                notes.push(set_aside(path, &error));
                open()
            }
            other => other,
        }
    }

    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let fail = |source| Error::sqlite(path, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(fail)?;
        connection.busy_timeout(Duration::from_secs(2)).map_err(fail)?;
        // EXCLUSIVE: without it SQLite maps a file for other processes, of which there are none, and a full disk under it ends this one (SIGBUS).
        // FULL: an acknowledged config survives a power cut. One fsync per turn of the thread is all that it costs.
        let journal =
            format!("PRAGMA wal_autocheckpoint = {}; PRAGMA journal_size_limit = {JOURNAL_BYTES};", JOURNAL_BYTES / PAGE_BYTES);
        connection
            .execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
            .and_then(|()| connection.execute_batch(&journal))
            .map_err(fail)?;
        let found: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail)?;
        match found {
            SCHEMA => {}
            0 => migrate(&mut connection, &[TABLES, JOBS, CONFIG_ORIGINS]).map_err(fail)?,
            1 => migrate(&mut connection, &[JOBS, CONFIG_ORIGINS]).map_err(fail)?,
            2 => migrate(&mut connection, &[CONFIG_ORIGINS]).map_err(fail)?,
            _ => return Err(Error::Newer { path: path.display().to_string(), found, known: SCHEMA }),
        }
        // It names damage in a row of text, not by an error.
        let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(fail)?;
        if finding != "ok" {
            return Err(Error::Damaged { path: path.display().to_string(), finding });
        }
        Ok(Self { connection })
    }

    pub(super) fn saved(&self) -> rusqlite::Result<Saved> {
        let config = self.configs(u64::MAX, 1)?.into_iter().next();
        let newest: u64 = self.connection.query_row("SELECT coalesce(max(id), 0) FROM event", [], |row| row.get(0))?;
        let events = self.events(newest.saturating_sub(500), 500)?;
        let highest_job = self.connection.query_row("SELECT coalesce(max(number), 0) FROM job", [], |row| row.get(0))?;
        Ok(Saved { config, events, jobs: self.recalled_jobs()?, highest_job, is_read: true, values: self.values()? })
    }

    /// At most `limit` configs up to the generation `upto`, the newest first.
    pub(super) fn configs(&self, upto: u64, limit: u32) -> rusqlite::Result<Vec<StoredConfig>> {
        let sql = "SELECT generation, time, path, text, who, origin FROM config \
            WHERE generation <= ?1 ORDER BY generation DESC LIMIT ?2";
        let read = |row: &rusqlite::Row<'_>| {
            let who: Option<String> = row.get(4)?;
            let who = who.and_then(|who| serde_json::from_str(&who).ok());
            let (generation, time) = (row.get(0)?, Time(row.get(1)?));
            Ok(StoredConfig { generation, time, path: row.get(2)?, text: row.get(3)?, who, origin: row.get(5)? })
        };
        let upto = i64::try_from(upto).unwrap_or(i64::MAX);
        self.connection.prepare_cached(sql)?.query_map(params![upto, limit], read)?.collect()
    }

    pub(super) fn events(&self, after: u64, limit: u32) -> rusqlite::Result<Vec<Event>> {
        let mut statement = self.connection.prepare_cached("SELECT body FROM event WHERE id > ?1 ORDER BY id LIMIT ?2")?;
        bodies(statement.query_map(params![after, limit], |row| row.get(0))?)
    }

    pub(super) fn history(&self, since: Time) -> rusqlite::Result<Vec<HistorySample>> {
        let mut statement = self.connection.prepare_cached("SELECT body FROM sample WHERE time > ?1 ORDER BY time")?;
        bodies(statement.query_map([since.0], |row| row.get(0))?)
    }

    /// Those that are not over, those that one of them waits for, and the last that are over. One that cannot be read is an error: a job is
    /// not lost in silence.
    fn recalled_jobs(&self) -> rusqlite::Result<Vec<JobRecord>> {
        let mut open = self.connection.prepare("SELECT body FROM job WHERE over = 0 ORDER BY number")?;
        let mut jobs = records(open.query_map([], |row| row.get(0))?)?;
        jobs.extend(self.jobs_over(u64::MAX, JOBS_RECALLED)?);
        let known: BTreeSet<&JobName> = jobs.iter().map(|job| &job.spec.name).collect();
        let waited_for: BTreeSet<JobName> =
            jobs.iter().flat_map(|job| &job.after).filter(|job| !known.contains(job)).cloned().collect();
        for job in waited_for {
            jobs.extend(self.job(&WhichJob::Name(job.to_string()))?);
        }
        Ok(jobs)
    }

    /// At most `limit` jobs that are over with a number below `before`, the newest first.
    pub(super) fn jobs_over(&self, before: u64, limit: u32) -> rusqlite::Result<Vec<JobRecord>> {
        let sql = "SELECT body FROM job WHERE over = 1 AND number < ?1 ORDER BY number DESC LIMIT ?2";
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        records(self.connection.prepare_cached(sql)?.query_map(params![before, limit], |row| row.get(0))?)
    }

    /// The job of this name, or of this key.
    pub(super) fn job(&self, which: &WhichJob) -> rusqlite::Result<Option<JobRecord>> {
        let (sql, text) = match which {
            WhichJob::Name(name) => ("SELECT body FROM job WHERE name = ?1", name),
            WhichJob::Key { key, .. } => ("SELECT body FROM job WHERE key = ?1 ORDER BY number DESC", key),
        };
        let is_it = |record: &JobRecord| match which {
            WhichJob::Name(_) => true,
            WhichJob::Key { submitter, .. } => record.submitter == *submitter,
        };
        Ok(records(self.connection.prepare_cached(sql)?.query_map([text], |row| row.get(0))?)?.into_iter().find(is_it))
    }

    fn values(&self) -> rusqlite::Result<BTreeMap<String, String>> {
        let mut statement = self.connection.prepare("SELECT key, body FROM value")?;
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// Writes all of them or none.
    pub(super) fn write<'a>(&mut self, writes: impl Iterator<Item = &'a Write>) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for write in writes {
            put(&transaction, write)?;
        }
        transaction.commit()
    }

    /// Drops what is beyond the bounds and replaces old samples by one per minute. `now` is the newest sample's time.
    pub(super) fn tidy(&mut self, now: Time) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let newest = |sql| transaction.query_row(sql, [], |row| row.get::<_, u64>(0));
        let config = newest("SELECT coalesce(max(generation), 0) FROM config")?;
        transaction.execute("DELETE FROM config WHERE generation <= ?1", [config.saturating_sub(CONFIGS_KEPT)])?;
        let event = newest("SELECT coalesce(max(id), 0) FROM event")?;
        transaction.execute("DELETE FROM event WHERE id <= ?1", [event.saturating_sub(EVENTS_KEPT)])?;
        transaction.execute("DELETE FROM sample WHERE time < ?1", [now.0.saturating_sub(MINUTES_KEPT_S * SECOND)])?;
        let job = newest("SELECT coalesce(max(number), 0) FROM job")?;
        transaction.execute("DELETE FROM job WHERE over = 1 AND number <= ?1", [job.saturating_sub(JOBS_KEPT)])?;
        merge_minutes(&transaction, now.0.saturating_sub(RAW_KEPT_S * SECOND) / MINUTE * MINUTE)?;
        transaction.commit()
    }
}

/// Replaces the samples before `until` (a whole minute) by one per minute.
fn merge_minutes(transaction: &Transaction<'_>, until: u64) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached("SELECT body FROM sample WHERE time < ?1 AND NOT merged ORDER BY time")?;
    let samples: Vec<HistorySample> = bodies(statement.query_map([until], |row| row.get(0))?)?;
    transaction.execute("DELETE FROM sample WHERE time < ?1 AND NOT merged", [until])?;
    for minute in samples.chunk_by(|a, b| a.time.0 / MINUTE == b.time.0 / MINUTE) {
        if let Some(mean) = HistorySample::mean_of(minute) {
            put_sample(transaction, &mean, true)?;
        }
    }
    Ok(())
}

fn put(transaction: &Transaction<'_>, write: &Write) -> rusqlite::Result<()> {
    match write {
        Write::Config(config) => {
            let sql = "INSERT OR REPLACE INTO config (generation, time, path, text, who, origin) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let who = config.who.as_ref().map(json);
            let values = params![config.generation, config.time.0, config.path, config.text, who, config.origin];
            transaction.prepare_cached(sql)?.execute(values).map(|_| ())
        }
        Write::Event(event) => {
            let sql = "INSERT OR REPLACE INTO event (id, body) VALUES (?1, ?2)";
            transaction.prepare_cached(sql)?.execute(params![event.id, json(event)]).map(|_| ())
        }
        Write::Sample(sample) => put_sample(transaction, sample, false),
        Write::Jobs(records) => records.iter().try_for_each(|record| put_job(transaction, record)),
        Write::NoJobs { numbers } => numbers.iter().try_for_each(|number| {
            transaction.prepare_cached("DELETE FROM job WHERE number = ?1")?.execute([number]).map(|_| ())
        }),
        Write::Value { key, body } => {
            let sql = "INSERT OR REPLACE INTO value (key, body) VALUES (?1, ?2)";
            transaction.prepare_cached(sql)?.execute(params![key, body]).map(|_| ())
        }
    }
}

fn put_job(transaction: &Transaction<'_>, record: &JobRecord) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO job (number, name, key, over, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    let (name, over) = (record.spec.name.as_str(), record.end.is_some());
    transaction.prepare_cached(sql)?.execute(params![record.number, name, record.key, over, json(record)]).map(|_| ())
}

/// Makes the tables of this schema of those of a former one, all of them or none.
fn migrate(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for step in steps {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit()
}

/// Rows of which each must be readable.
fn records(rows: impl Iterator<Item = rusqlite::Result<String>>) -> rusqlite::Result<Vec<JobRecord>> {
    let unreadable =
        |error: serde_json::Error| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error));
    rows.map(|row| serde_json::from_str(&row?).map_err(unreadable)).collect()
}

fn put_sample(transaction: &Transaction<'_>, sample: &HistorySample, merged: bool) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO sample (time, merged, body) VALUES (?1, ?2, ?3)";
    transaction.prepare_cached(sql)?.execute(params![sample.time.0, merged, json(sample)]).map(|_| ())
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("the model's types have string keys and finite depth")
}

/// Rows that another version wrote in another shape are left out: a gap in the history beats no history.
fn bodies<T: DeserializeOwned>(rows: impl Iterator<Item = rusqlite::Result<String>>) -> rusqlite::Result<Vec<T>> {
    let parsed = rows.map(|row| row.map(|body| serde_json::from_str(&body).ok()));
    parsed.filter_map(Result::transpose).collect()
}

/// Moves a damaged database away, beside those that were moved before, and says so.
pub(super) fn set_aside(path: &Path, error: &Error) -> String {
    let numbered =
        |number: u32| path.with_extension(if number == 0 { "db.broken".to_owned() } else { format!("db.broken-{number}") });
    let aside = (0..MOST_ASIDE).map(numbered).find(|aside| !aside.exists()).unwrap_or_else(|| numbered(MOST_ASIDE));
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix));
    }
    format!("the store is damaged ({error}): moved to {}; weal goes on with the config file and a new store", aside.display())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
