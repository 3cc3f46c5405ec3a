//! The store: what was acknowledged survives, whatever happens to the file or the disk.

use std::fs;
use std::path::Path;

use weal_controller::store::{EVENTS_KEPT, Store, StoredConfig};
use weal_model::{
    Bytes, Cpu, Event, EventKind, HistorySample, Importance, JobCommand, JobEnd, JobOutcome, JobRecord, JobSpec, NodeSample,
    Severity, Stage, Time, Work,
};
use weal_protocol::controller::Caller;

const MINUTE: u64 = 60_000_000_000;

fn config(generation: u64) -> StoredConfig {
    let (who, origin) = (Some(Caller::User { uid: 7 }), "weal deploy".to_owned());
    StoredConfig { generation, time: Time(generation), path: "weal.toml".into(), text: format!("# {generation}\n"), who, origin }
}

fn event(id: u64) -> Event {
    let text = format!("event {id}");
    Event { id, time: Time(id), severity: Severity::Info, kind: EventKind::Plan, app: None, instance: None, node: None, text }
}

fn sample(time: u64, used: f64) -> HistorySample {
    let node = NodeSample { name: "n1".into(), cpu_capacity: Cpu(1.0), cpu_used: Cpu(used), cpu_allocated: Cpu(0.0) };
    HistorySample { time: Time(time), span_s: 2.0, flows: vec![], nodes: vec![node], apps: vec![], jobs: vec![] }
}

#[tokio::test]
async fn what_is_kept_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (store, saved, notes) = Store::open(&path).unwrap();
    assert_eq!((saved.config, saved.events.len(), notes.len()), (None, 0, 0));
    store.save_config(config(1)).await.unwrap();
    store.save_config(config(2)).await.unwrap();
    (1..=3).for_each(|id| store.save_event(event(id)));
    store.save_value("plan", &vec![1, 2, 3]);
    drop(store);
    let (store, saved, _) = Store::open(&path).unwrap();
    assert_eq!(saved.config, Some(config(2)));
    assert_eq!(saved.events, [event(1), event(2), event(3)]);
    assert_eq!(saved.values["plan"], "[1,2,3]");
    assert_eq!(store.events(1, 1).await, [event(2)]);
}

#[tokio::test]
async fn a_job_that_another_waits_for_comes_back_however_long_it_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (store, ..) = Store::open(&path).unwrap();
    let mut waits = job(1000);
    waits.after = vec!["job-1".into()];
    let end =
        JobEnd { outcome: JobOutcome::Done, time: Time(9), run: None, detail: String::new(), cpu_used: Work(1.0), node: None };
    let over = (1..=200).map(|number| JobRecord { end: Some(end.clone()), ..job(number) });
    store.save_jobs(over.chain([waits]).collect(), false).await.unwrap();
    drop(store);
    let (_, saved, _) = Store::open(&path).unwrap();
    let has = |number: u64| saved.jobs.iter().any(|job| job.number == number);
    assert_eq!([1, 2, 200, 1000].map(has), [true, false, true, true]);
}

fn job(number: u64) -> JobRecord {
    let stage = Stage { work: Work(1.0), max_speed: Cpu(1.0), min_speed: Cpu(0.0), memory: Bytes(1) };
    let spec = JobSpec {
        name: format!("job-{number}").into(),
        submitted: Time(1),
        desired_start: Time(1),
        deadline: Time(2),
        importance: Importance::NORMAL,
        stages: vec![stage],
        tasks: 1,
    };
    let command = JobCommand { run: vec!["true".to_owned()], ..JobCommand::default() };
    JobRecord::new(number, spec, command)
}

#[tokio::test]
async fn a_copy_taken_at_any_moment_opens_with_every_acknowledged_config() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (store, ..) = Store::open(&path).unwrap();
    for generation in 1..=20 {
        (0..50).for_each(|number| store.save_event(event(generation * 100 + number)));
        store.save_config(config(generation)).await.unwrap();
        store.save_event(event(generation * 100 + 60));
        // What a machine finds that lost its power now, in the middle of the next write.
        let copy = folder.path().join(format!("copy-{generation}"));
        fs::create_dir(&copy).unwrap();
        for name in ["store.db-wal", "store.db"] {
            fs::copy(folder.path().join(name), copy.join(name)).unwrap();
        }
        cut(&copy.join("store.db-wal"), generation);
        let (copied, saved, notes) = Store::open(&copy.join("store.db")).unwrap();
        let found = saved.config.map_or(0, |config| config.generation);
        assert!(found >= generation.saturating_sub(1) && notes.is_empty(), "generation {generation}: {found} {notes:?}");
        drop(copied);
    }
}

/// Damages the end of the log as a write cut short does; an acknowledged one before it is not touched.
fn cut(wal: &Path, seed: u64) {
    let length = fs::metadata(wal).unwrap().len();
    let file = fs::OpenOptions::new().append(true).open(wal).unwrap();
    if seed.is_multiple_of(2) {
        use std::io::Write;
        (&file).write_all(&vec![0xa5; (seed * 97 % 4000) as usize]).unwrap();
    } else {
        file.set_len(length).unwrap();
    }
}

#[tokio::test]
async fn a_damaged_file_is_moved_aside_and_a_newer_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    fs::write(&path, "this is no database, but it is long enough to look at it as one".repeat(100)).unwrap();
    let (store, saved, notes) = Store::open(&path).unwrap();
    assert_eq!(saved.config, None);
    assert!(notes[0].contains("moved to"), "{notes:?}");
    assert!(folder.path().join("store.db.broken").exists());
    store.save_config(config(1)).await.unwrap();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let error = Store::open(&path).unwrap_err().to_string();
    assert!(error.contains("written by a newer weal"), "{error}");
}

/// Overwrites pages in the middle, as a disk does that forgets.
fn damage_pages(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    for page in (2..pages).step_by(3) {
        file.write_all_at(&[0x5a; 4096], page * 4096).unwrap();
    }
}

#[tokio::test]
async fn damaged_pages_cost_the_past_and_not_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    for aside in ["store.db.broken", "store.db.broken-1"] {
        let (store, ..) = Store::open(&path).unwrap();
        (1..=2000).for_each(|id| store.save_event(event(id)));
        store.save_config(config(1)).await.unwrap();
        drop(store);
        damage_pages(&path);
        let (store, saved, notes) = Store::open(&path).unwrap();
        assert_eq!((saved.config, saved.events.len()), (None, 0));
        assert!(notes[0].contains("the store is damaged") && notes[0].contains(aside), "{notes:?}");
        assert!(folder.path().join(aside).exists());
        store.save_config(config(2)).await.unwrap();
    }
}

#[tokio::test]
async fn no_file_is_mapped_that_a_full_disk_would_take_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (store, ..) = Store::open(&path).unwrap();
    store.save_config(config(1)).await.unwrap();
    assert!(!folder.path().join("store.db-shm").exists(), "SQLite maps this one, and a full disk under it is a SIGBUS");
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(folder.path().to_str().unwrap()), "{maps}");
    drop(store);
}

#[tokio::test]
async fn history_and_events_stay_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let (store, ..) = Store::open(&folder.path().join("store.db")).unwrap();
    // Two hours of one sample every ten seconds: the first hour becomes minutes.
    for number in 0..720 {
        store.save_sample(sample((number + 1) * MINUTE / 6, (number % 6) as f64 / 10.0));
        if number % 50 == 0 {
            store.history(Time(u64::MAX / 4)).await;
        }
    }
    let history = store.history(Time(0)).await;
    assert!((400..500).contains(&history.len()), "{}", history.len());
    assert!((history[3].nodes[0].cpu_used.0 - 0.25).abs() < 0.02, "{:?}", history[3]);
    assert!(history.is_sorted_by_key(|sample| sample.time));
    for id in 1..=EVENTS_KEPT + 500 {
        store.save_event(event(id));
        if id % 500 == 0 {
            store.events(id, 1).await;
        }
    }
    (0..60).for_each(|number| store.save_sample(sample(120 * MINUTE + number, 0.0)));
    let oldest = &store.events(0, 1).await[0];
    assert!(oldest.id > 1, "{oldest:?}");
}

#[tokio::test]
async fn after_some_days_the_store_grows_no_more() {
    const DAY_S: u64 = 86_400;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let (store, ..) = Store::open(&path).unwrap();
    let mut sizes = Vec::new();
    for (number, second) in (0..6 * DAY_S).step_by(20).enumerate() {
        store.save_sample(sample(second * 1_000_000_000, 0.123_456_789));
        store.save_event(event(number as u64));
        store.save_value("plan", &vec![number; 1000 + number % 100]);
        if second % 3600 == 0 {
            // The store takes no more than some thousand at once, and answers this after all of them.
            assert!(store.history(Time(u64::MAX / 2)).await.is_empty());
            sizes.push(std::fs::metadata(&path).unwrap().len());
        }
    }
    let (day_3, last) = (sizes[3 * 24], *sizes.last().unwrap());
    assert!(last as f64 <= day_3 as f64 * 1.1, "{sizes:?}");
}
