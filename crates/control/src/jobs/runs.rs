//! How much work a job is that does not say it, or that has done all it said and still runs: from earlier runs, or from how far it got.
//!
//! Jobs whose names differ only in what stands behind their last word (`report-2026-11-20`, `report-7`) are one family. Of a job that has
//! done `x`, those runs of its family tell something that took longer than `x`: the estimate is their mean, and its range holds all
//! of them. Without any such run the lifetimes of processes tell something: of those that have used `x`, half use `2x`, and one in
//! twenty `20x`, whatever `x` is from a second on (Harchol-Balter and Downey, "Exploiting process lifetime distributions", 1997, section 3).
//!
//! Of a family of which no run was ever done, the run that is under way and got farthest is the *pilot* of the others. What it tells of itself, by its
//! progress or by what it has used, is what is expected of those that wait or have just begun. A job of which nothing is known counts as short, so
//! one of them is soon a pilot.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use weal_model::{JobCommand, JobName, JobObservation, Stage, Work, fnv1a};

use super::family::{Families, MOST_FAMILIES, family};
use super::{Changes, Peaks};

/// Runs remembered of each family. More follow a family that grows too slowly, fewer forget its rare long runs.
const REMEMBERED: usize = 64;

/// A pilot that is so many times larger or smaller than it was before is news for the others.
const NEWS: f64 = 1.25;

/// Work of a job about which nothing at all is known, in CPU-seconds: short, so that it starts and shows what it is.
const UNKNOWN: f64 = 60.0;

/// Below so many CPU-seconds, what a job has used tells nothing: the rule holds for processes that live longer.
const YOUNG: f64 = 1.0;

/// What was learnt from jobs that are done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// Work per task of runs that are done, the newest at the end.
    #[serde(flatten)]
    families: Families<VecDeque<f64>>,
    /// Cores that helped a task of the commands that were run last, by [`key`], the newest at the end.
    #[serde(default)]
    speeds: VecDeque<(u64, f64)>,
    /// What changes to jobs took.
    #[serde(default)]
    pub changes: Changes,
    /// The most memory that jobs used.
    #[serde(default)]
    pub peaks: Peaks,
    /// What runs that are under way tell of their families. The next controller sees these runs too.
    #[serde(skip)]
    pilots: BTreeMap<String, Pilot>,
}

/// The run of a family that is under way and got farthest.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pilot {
    estimate: Estimate,
    /// Work done per task.
    done: f64,
}

/// The work of one task of a job, with what it is known from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimate, done and left together. Invariant: positive and finite.
    pub work: Work,
    /// Nineteen in twenty lie between these.
    pub range: (Work, Work),
    /// Where it comes from.
    pub source: Source,
}

impl Estimate {
    /// Whether nobody has said the work and nothing has shown it.
    pub fn is_guess(&self) -> bool {
        matches!(self.source, Source::PilotUse | Source::Progress | Source::Nothing)
    }
}

/// Where an [`Estimate`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The job says it.
    Stated,
    /// So many earlier runs of its family.
    EarlierRuns(usize),
    /// Another run of its family that is under way and tells how far it is.
    Pilot,
    /// Another run of its family that is under way, by what it has used.
    PilotUse,
    /// How far it got.
    Progress,
    /// Nothing yet.
    Nothing,
}

impl Runs {
    /// Takes in the work per task of a job that is done; what is no positive number is skipped.
    pub fn learn(&mut self, name: &JobName, work: Work) {
        if !(work.0.is_finite() && work.0 > 0.0) {
            return;
        }
        let runs = self.families.learn(name);
        runs.push_back(work.0);
        if runs.len() > REMEMBERED {
            runs.pop_front();
        }
    }

    /// Takes in how many cores helped a task of a job that is done.
    pub fn learn_speed(&mut self, command: &JobCommand, speed: f64) {
        if !(speed.is_finite() && speed > 0.0) {
            return;
        }
        let Some(key) = key(command) else { return };
        self.speeds.retain(|(known, _)| *known != key);
        self.speeds.push_back((key, speed));
        if self.speeds.len() > MOST_FAMILIES {
            self.speeds.pop_front();
        }
    }

    /// How many cores helped a task of the last job with the same program and arguments.
    pub fn speed(&self, command: &JobCommand) -> Option<f64> {
        let key = key(command)?;
        self.speeds.iter().rev().find(|(known, _)| *known == key).map(|(_, speed)| *speed)
    }

    /// Takes in the runs that are under way: the estimate of each by itself ([`Runs::alone`], or its progress), and the work that each task has done.
    /// True when that is news for others of their families.
    pub fn watch<'j>(&mut self, runs: impl Iterator<Item = (&'j JobName, Estimate, f64)>) -> bool {
        let mut pilots: BTreeMap<String, Pilot> = BTreeMap::new();
        for (name, estimate, done) in runs {
            let pilot = Pilot { estimate: of_pilot(&estimate), done };
            let goes_before = |other: &Pilot| (other.estimate.is_guess(), done) > (pilot.estimate.is_guess(), other.done);
            let known = pilots.entry(family(name.as_str()).to_owned()).or_insert(pilot);
            if goes_before(known) {
                *known = pilot;
            }
        }
        let is_news = |(family, pilot): (&String, &Pilot)| {
            let ratio = self.pilots.get(family).map_or(0.0, |before| pilot.estimate.work.0 / before.estimate.work.0);
            !(NEWS.recip()..=NEWS).contains(&ratio)
        };
        let is_changed = pilots.iter().any(is_news);
        // What is no news is kept as it is, so that small steps add up.
        for (family, pilot) in &mut pilots {
            if let Some(before) = self.pilots.get(family).filter(|_| !is_changed) {
                *pilot = *before;
            }
        }
        self.pilots = pilots;
        is_changed
    }

    /// The work of one task of a job.
    pub fn estimate(&self, job: &JobObservation) -> Estimate {
        let alone = self.alone(job);
        let pilot = self.pilots.get(family(job.spec.name.as_str())).filter(|_| alone.is_guess());
        let tells_more = |pilot: &&Pilot| match alone.source {
            Source::Nothing => true,
            _ if pilot.estimate.is_guess() => pilot.estimate.work.0 > alone.work.0,
            _ => pilot.estimate.work.0 > job.done.0,
        };
        pilot.filter(tells_more).map_or(alone, |pilot| {
            let Estimate { work, range, source } = pilot.estimate;
            Estimate { work, range: (Work(range.0.0.max(alone.range.0.0).min(work.0)), range.1), source }
        })
    }

    /// The same, whatever others of its family do just now.
    pub fn alone(&self, job: &JobObservation) -> Estimate {
        let stated: f64 = job.spec.stages.iter().map(|stage| stage.work.0).filter(|work| work.is_finite() && *work > 0.0).sum();
        let done = if job.done.0.is_finite() { job.done.0.max(0.0) } else { 0.0 };
        if stated > done {
            return Estimate { work: Work(stated), range: (Work(stated), Work(stated)), source: Source::Stated };
        }
        let longer = || self.families.get(&job.spec.name).into_iter().flatten().copied().filter(|work| *work > done);
        let count = longer().count();
        if count > 0 {
            let (least, most) = longer().fold((f64::INFINITY, 0.0_f64), |(least, most), work| (least.min(work), most.max(work)));
            // One run tells the size and nothing of how it varies.
            let range = if count == 1 { (0.5 * least, 2.0 * most) } else { (least, most) };
            let work = Work(longer().sum::<f64>() / count as f64);
            return Estimate { work, range: (Work(range.0.max(done)), Work(range.1)), source: Source::EarlierRuns(count) };
        }
        if done > 0.0 {
            let age = done.max(YOUNG);
            return Estimate { work: Work(2.0 * age), range: (Work(done), Work(20.0 * age)), source: Source::Progress };
        }
        Estimate { work: Work(UNKNOWN), range: (Work(0.0), Work(f64::INFINITY)), source: Source::Nothing }
    }

    /// The job with a profile: its own, or one stage of the estimated work with the needs of the stage it is in.
    pub fn profiled(&self, job: &JobObservation) -> JobObservation {
        let estimate = self.estimate(job);
        let mut job = job.clone();
        if estimate.source != Source::Stated {
            let states_work = job.spec.stages.iter().any(|stage| stage.work.0 > 0.0);
            let stage = if states_work { job.spec.stages.last() } else { job.spec.stages.first() }.copied();
            job.spec.stages = stage.map(|stage| Stage { work: estimate.work, ..stage }).into_iter().collect();
        }
        job
    }
}

/// What a run under way that takes `estimate` tells of others.
fn of_pilot(estimate: &Estimate) -> Estimate {
    let Estimate { work, range, source } = *estimate;
    match source {
        // One run tells the size and nothing of how it varies.
        Source::Stated => Estimate { work, range: (Work(0.5 * work.0), Work(2.0 * work.0)), source: Source::Pilot },
        _ => Estimate { work, range, source: Source::PilotUse },
    }
}

/// Tells commands apart by their words. Two jobs of one name may do very different things (`sh -c ...`), and CPU that a job is not
/// given on a full node is missing for a while. So for its speed only the same words count. `None` of a job without any, as simulated ones are.
fn key(command: &JobCommand) -> Option<u64> {
    let bytes = || command.run.iter().flat_map(|word| word.bytes().chain([0]));
    (!command.run.is_empty()).then(|| fnv1a(bytes()))
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, Cpu, Importance, JobSpec, JobState, Time};

    use super::*;

    fn job(name: &str, done: f64) -> JobObservation {
        let stage = Stage { work: Work(0.0), max_speed: Cpu(2.0), min_speed: Cpu(0.0), memory: Bytes::mib(100) };
        let spec = JobSpec {
            name: name.into(),
            submitted: Time::ZERO,
            desired_start: Time::ZERO,
            deadline: Time(3_600_000_000_000),
            importance: Importance::NORMAL,
            priority: 0,
            stages: vec![stage],
            tasks: 1,
        };
        JobObservation { spec, state: JobState::Running, done: Work(done), nodes: Vec::new(), cpu: None }
    }

    #[test]
    fn earlier_runs_of_the_family_say_how_long_it_takes() {
        let mut runs = Runs::default();
        for (name, work) in
            [("report-2026-11-19", 100.0), ("report-2026-11-20", 140.0), ("report-3", f64::NAN), ("import-1", 7.0)]
        {
            runs.learn(&name.into(), Work(work));
        }
        let fresh = runs.estimate(&job("report-2026-11-21", 0.0));
        assert_eq!((fresh.work, fresh.range, fresh.source), (Work(120.0), (Work(100.0), Work(140.0)), Source::EarlierRuns(2)));
        let late = runs.estimate(&job("report-2026-11-21", 120.0));
        assert_eq!((late.work, late.source), (Work(140.0), Source::EarlierRuns(1)), "only what took longer counts");
        assert_eq!(runs.profiled(&job("report-9", 0.0)).spec.stages[0].work, Work(120.0));
    }

    #[test]
    fn without_earlier_runs_its_progress_says_something() {
        let runs = Runs::default();
        let estimate = runs.estimate(&job("first", 30.0));
        assert_eq!((estimate.work, estimate.range, estimate.source), (Work(60.0), (Work(30.0), Work(600.0)), Source::Progress));
        let young = runs.estimate(&job("first", 0.01));
        assert_eq!((young.work, young.range), (Work(2.0), (Work(0.01), Work(20.0))), "a moment tells nothing");
        assert_eq!(runs.estimate(&job("first", f64::NAN)).source, Source::Nothing);
    }

    #[test]
    fn a_run_under_way_is_the_pilot_of_those_that_wait() {
        let mut runs = Runs::default();
        let known = |work: f64| Estimate { work: Work(work), range: (Work(work), Work(work)), source: Source::Stated };
        let (first, second, other) = ("a-7.1".into(), "a-7.2".into(), "b-1".into());
        let guess = |runs: &Runs, done: f64| runs.alone(&job("a-7.1", done));
        assert!(runs.watch([(&first, guess(&Runs::default(), 30.0), 30.0)].into_iter()), "the first pilot is news");
        let waits = runs.estimate(&job("a-7.9", 0.0));
        assert_eq!((waits.work, waits.source, waits.is_guess()), (Work(60.0), Source::PilotUse, true));
        assert_eq!(runs.estimate(&job("b-2", 0.0)).source, Source::Nothing, "it tells nothing of others");
        assert_eq!(runs.estimate(&job("a-7.1", 40.0)).source, Source::Progress, "one that got farther tells more of itself");
        // One of them tells how far it is.
        let both = [(&first, guess(&runs, 31.0), 31.0), (&second, known(600.0), 6.0), (&other, known(5.0), 1.0)];
        assert!(runs.watch(both.into_iter()));
        let waits = runs.estimate(&job("a-7.9", 0.0));
        assert_eq!((waits.work, waits.range, waits.is_guess()), (Work(600.0), (Work(300.0), Work(1200.0)), false));
        assert_eq!(runs.profiled(&job("a-7.9", 2.0)).spec.stages[0].work, Work(600.0), "plans know it too");
        assert!(!runs.watch([(&second, known(610.0), 7.0), (&other, known(5.0), 2.0)].into_iter()));
        assert_eq!(runs.estimate(&job("a-7.9", 0.0)).work, Work(600.0), "no news");
        // What was done is believed before what is under way.
        runs.learn(&second, Work(580.0));
        assert_eq!(runs.estimate(&job("a-7.9", 0.0)).source, Source::EarlierRuns(1));
    }

    #[test]
    fn the_speed_of_a_command_is_that_of_its_last_run() {
        let command =
            |words: &[&str]| JobCommand { run: words.iter().map(|word| (*word).to_owned()).collect(), ..JobCommand::default() };
        let (one, other) = (command(&["sh", "-c", "a"]), command(&["sh", "-ca"]));
        let mut runs = Runs::default();
        for (command, speed) in [(&one, 0.5), (&one, 0.75), (&other, 2.0), (&other, f64::NAN)] {
            runs.learn_speed(command, speed);
        }
        assert_eq!((runs.speed(&one), runs.speed(&other), runs.speed(&command(&["sh"]))), (Some(0.75), Some(2.0), None));
        (0..MOST_FAMILIES).for_each(|at| runs.learn_speed(&command(&[&at.to_string()]), 1.0));
        assert_eq!((runs.speed(&one), runs.speeds.len()), (None, MOST_FAMILIES));
        runs.learn_speed(&JobCommand::default(), 1.0);
        assert_eq!(runs.speed(&JobCommand::default()), None);
    }

    #[test]
    fn only_the_families_that_were_learnt_of_last_are_remembered() {
        let mut runs = Runs::default();
        let name = |at: usize| JobName::from(format!("job{}x", "i".repeat(at)));
        runs.learn(&name(0), Work(1.0));
        for at in 1..=MOST_FAMILIES {
            runs.learn(&name(0), Work(1.0));
            runs.learn(&name(at), Work(1.0));
        }
        assert_eq!(runs.families.len(), MOST_FAMILIES);
        assert!(runs.families.get(&name(0)).is_some() && runs.families.get(&name(1)).is_none());
        let old: Runs = serde_json::from_str(r#"{"families":{"a":[1.0]}}"#).unwrap();
        assert_eq!(old.estimate(&job("a-1", 0.0)).work, Work(1.0), "what a former version has left");
    }

    #[test]
    fn what_a_job_says_itself_is_believed() {
        let mut told = job("told", 5.0);
        told.spec.stages[0].work = Work(50.0);
        assert_eq!(Runs::default().estimate(&told).source, Source::Stated);
        assert_eq!(Runs::default().profiled(&told), told);
        told.done = Work(60.0);
        let overdue = Runs::default().profiled(&told);
        assert_eq!(overdue.spec.stages[0].work, Work(120.0), "it runs on, so it is more than it said");
    }

    #[test]
    fn only_the_last_runs_are_remembered() {
        let mut runs = Runs::default();
        for run in 0..200 {
            runs.learn(&"job-1".into(), Work(1.0 + f64::from(run)));
        }
        assert_eq!(runs.estimate(&job("job-2", 0.0)).range.0, Work(137.0));
    }
}
