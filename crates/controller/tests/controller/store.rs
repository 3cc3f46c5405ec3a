//! The store: what was acknowledged survives, whatever happens to the file or the disk.

use std::fs;
use std::ops::Range;
use std::path::Path;

use weal_controller::store::{EVENTS_KEPT, MINUTES_KEPT_S, RAW_KEPT_S, Store, StoredConfig};
use weal_model::{
    AppSample, Bytes, Cpu, Event, EventKind, FlowSample, HistorySample, Importance, JobCommand, JobEnd, JobOutcome, JobRecord,
    JobSpec, NodeSample, Severity, Stage, Time, Utility, Work,
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
        priority: 0,
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

/// A number as one measures it: with all its digits.
fn measured(of: u64) -> f64 {
    (of.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64
}

/// What the controller keeps of a cycle of two applications under load on two nodes.
fn cycle(second: u64) -> HistorySample {
    let number = |of: u64| 100.0 * measured(second * 100 + of);
    let flow = |(app, of): (&str, u64)| FlowSample {
        app: app.into(),
        class: "standard".into(),
        achieved: Some(number(of)),
        utility: Some(Utility(number(of + 1))),
        seats: 12.0,
        queue_mean: number(of + 2),
        arrival_per_s: number(of + 3),
        throughput_per_s: number(of + 4),
        rejected_per_s: 0.0,
        cpu_allocated: Cpu(number(of + 5)),
    };
    let app = |(name, of): (&str, u64)| AppSample {
        name: name.into(),
        ready: 2.0,
        cpu_used: Cpu(number(of)),
        cpu_allocated: Cpu(number(of + 1)),
    };
    let node = |(name, of): (&str, u64)| NodeSample {
        name: name.into(),
        cpu_capacity: Cpu(1.0),
        cpu_used: Cpu(number(of)),
        cpu_allocated: Cpu(number(of + 1)),
    };
    HistorySample {
        time: Time(second * 1_000_000_000),
        span_s: CYCLE_S as f64,
        flows: [("front", 0), ("back", 10)].map(flow).to_vec(),
        nodes: [("n1", 20), ("n2", 30)].map(node).to_vec(),
        apps: [("front", 40), ("back", 50)].map(app).to_vec(),
        jobs: vec![],
    }
}

/// Longer than a pool's, so that the test is quick.
const CYCLE_S: u64 = 20;

/// Keeps of these seconds what the controller does, and returns how large the file is afterwards, with its journal worked off.
async fn keep_seconds(path: &Path, seconds: Range<u64>) -> u64 {
    let (store, ..) = Store::open(path).unwrap();
    for second in seconds.step_by(CYCLE_S as usize) {
        store.save_sample(cycle(second));
        store.save_event(event(second / CYCLE_S));
        if second % 60 == 0 {
            store.save_value("plan", &vec![measured(second); 100]);
        }
        if second % 600 == 0 {
            // The store takes no more than some thousand writes at once, and answers this after all of them.
            assert!(store.history(Time(u64::MAX / 2)).await.is_empty());
        }
    }
    drop(store);
    fs::metadata(path).unwrap().len()
}

/// From then on the file is as large as it gets: what is new takes the pages of what is dropped.
#[tokio::test]
async fn when_its_thirty_six_hours_are_full_the_store_grows_no_more() {
    const PAGE: u64 = 4096;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut pages = Vec::new();
    for period in 0..6 {
        let size = keep_seconds(&path, period * MINUTES_KEPT_S..(period + 1) * MINUTES_KEPT_S).await;
        pages.push(size / PAGE);
    }
    println!("pages of {PAGE} bytes after each 36 hours: {pages:?}");
    // The first periods fill it, and leave the gaps between rows that there are from then on. How many depends on how many samples a write has,
    // which a busy machine changes; a store that forgot nothing would grow by hundreds of pages each time.
    let (full, later) = (pages[2], &pages[3..]);
    assert!(later.iter().all(|now| now.abs_diff(full) <= 20), "{pages:?}");
    let (store, ..) = Store::open(&path).unwrap();
    let history = store.history(Time(0)).await;
    let covered_s: f64 = history.iter().map(|sample| sample.span_s).sum();
    assert!((covered_s - MINUTES_KEPT_S as f64).abs() <= 1800.0, "{covered_s} s are kept");
    let (minutes, cycles) = ((MINUTES_KEPT_S - RAW_KEPT_S) / 60, RAW_KEPT_S / CYCLE_S);
    assert!((history.len() as u64).abs_diff(minutes + cycles) <= 120, "{} samples", history.len());
}
