//! Figures 3 and 7: what CPUs and disk do during a start and during a resume.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weal_reproduce::{Figure, Record, Reproduction, within};

use super::site::{NULL_PAGE, Site};
use super::ways::{ENHANCED, PARKED, REGULAR, Way, settle};
use crate::bench::real::agent::{Agent, serve_requests};
use crate::bench::real::machine::{cpu_times, drop_file_cache};

const WAYS: [Way; 3] = [REGULAR, ENHANCED, PARKED];

/// CPUs at moments: seconds, percent busy, percent waiting for a disk.
type Course = Vec<(f64, f64, f64)>;

/// Runs both.
pub fn run(site: &Site) -> Result<Reproduction> {
    let spec = site.server("server-1", NULL_PAGE)?;
    let mut agent = site.agent("")?;
    drop_file_cache()?;
    let mut started = None;
    let start = watch(Duration::from_millis(250), 2.0, || {
        started = Some(agent.start_ready(&spec)?);
        Ok(())
    })?;
    let started = started.context("it has been started")?;
    let (start_s, start_cpu_s) = (started.start_took_s.context("it is ready")?, started.cpu_seconds.unwrap_or(f64::NAN));
    serve_requests(started.address, 3000)?;
    let mut record = Record::new(
        "figures-3-and-7",
        "Al-Qudah et al. 4.1 and 4.3, Figures 3 and 7",
        "a start keeps the CPU busy and then the disk, for 90 s; a resume takes hardly any CPU, and an enhanced one the disk for much less time",
        &format!(
            "WildFly 35; the start with nothing of its files in memory, the resumes with swap on a file; otherwise idle; on {}",
            site.machine
        ),
    );
    record.number("start, files cold, s", start_s);
    record.number("start: CPU-seconds", start_cpu_s);
    record.figure(figure("figure-3", "a start", &start));
    let mut cpu_of = Vec::new();
    for (at, way) in WAYS.iter().enumerate() {
        agent = agent.replaced(&site.fixture(), way.prefetch)?;
        for _ in 0..way.lessons() {
            way.put_to_rest(&agent, "server-1")?;
            way.activate_s(&agent, "server-1", NULL_PAGE)?;
            settle();
        }
        let (course, took_s, cpu_s) = resume(&agent, way)?;
        record.number(&format!("{}, ms", way.name), took_s * 1e3);
        record.number(&format!("{}: CPU ms of the server", way.name), cpu_s * 1e3);
        record.number(&format!("{}: ms of waiting for the disk, all CPUs", way.name), waited_ms(&course));
        record.figure(figure(&format!("figure-7-{}", at + 1), way.name, &course));
        cpu_of.push(cpu_s);
    }
    let of_start = |cpu_s: f64| start_cpu_s / cpu_s.max(1e-4);
    record.number("CPU of a start over that of suspend/resume", of_start(cpu_of[0])).paper(within(10.0..=f64::INFINITY));
    let row = record.number("CPU of a start over that of the ladder, parked", of_start(cpu_of[2]));
    row.recalculated(within(100.0..=f64::INFINITY));
    Ok(record.done())
}

fn resume(agent: &Agent, way: &Way) -> Result<(Course, f64, f64)> {
    way.put_to_rest(agent, "server-1")?;
    let before = agent.instance("server-1")?.cpu_seconds.unwrap_or(0.0);
    let (mut took_s, mut after) = (0.0, 0.0);
    let course = watch(Duration::from_millis(20), 0.5, || {
        took_s = way.activate_s(agent, "server-1", NULL_PAGE)?;
        after = agent.instance("server-1")?.cpu_seconds.unwrap_or(0.0);
        Ok(())
    })?;
    settle();
    Ok((course, took_s, after - before))
}

/// Looks at the CPUs from a moment before until a moment after `act`.
fn watch(every: Duration, around_s: f64, act: impl FnOnce() -> Result<()>) -> Result<Course> {
    let done = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&done);
    let looking = std::thread::spawn(move || -> Result<Course> {
        let (began, mut before, mut course) = (Instant::now(), cpu_times()?, Vec::new());
        while !seen.load(Ordering::Relaxed) {
            std::thread::sleep(every);
            let now = cpu_times()?;
            let (busy, waiting) = now.percent_since(&before);
            course.push((began.elapsed().as_secs_f64(), busy, waiting));
            before = now;
        }
        Ok(course)
    });
    std::thread::sleep(Duration::from_secs_f64(around_s));
    let result = act();
    std::thread::sleep(Duration::from_secs_f64(around_s));
    done.store(true, Ordering::Relaxed);
    let course = looking.join().expect("it does not panic")?;
    result.map(|()| course)
}

/// CPU time that was spent waiting for a disk.
fn waited_ms(course: &Course) -> f64 {
    let cpus = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    course.windows(2).map(|pair| (pair[1].0 - pair[0].0) * pair[1].2 / 100.0 * cpus * 1e3).sum()
}

fn figure(name: &str, title: &str, course: &Course) -> Figure {
    let mut figure = Figure::new(
        name,
        &format!("{title}: CPUs and disk over time"),
        ["time, s", "% of all CPUs"],
        &["busy", "waiting for a disk"],
    );
    course.iter().for_each(|(t_s, busy, waiting)| figure.row(*t_s, &[*busy, *waiting]));
    figure
}
