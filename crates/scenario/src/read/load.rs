//! From a `[[load]]` to a [`LoadSource`].

use std::io;

use toml::Spanned;
use weal_model::{AppName, ClassName, PoolSpec};

use super::source::Source;
use crate::error::{FileProblem, Mistake, ScenarioError};
use crate::scenario::LoadSource;
use crate::tables::{BurstTable, FlashTable, LoadTable, PageTable, ScenarioFile};
use crate::workload::{Flash, Page, Phase, State, Workload, access_log, read_requests_per_minute, with_flashes};

/// A log that covers more is none: one of its lines has a wrong date.
const LONGEST_LOG_S: u64 = 366 * 86_400;

pub(super) fn read_load(
    source: &Source,
    pool: &PoolSpec,
    file: &ScenarioFile,
    index: usize,
    table: &Spanned<LoadTable>,
    read_file: &mut impl FnMut(&str) -> io::Result<String>,
) -> Result<LoadSource, ScenarioError> {
    let load = table.get_ref();
    let (app, class) = (load.app.get_ref(), load.class.get_ref());
    if !file.apps.is_empty() && !pool.apps.contains_key(&AppName::from(app.as_str())) {
        return Err(source.error(&load.app.span(), Mistake::NoApp { app: app.clone() }));
    }
    if !file.apps.is_empty() && !pool.classes.contains_key(&ClassName::from(class.as_str())) {
        return Err(source.error(&load.class.span(), Mistake::NoClass { class: class.clone() }));
    }
    Ok(LoadSource {
        name: format!("{app}/{class}/{index}"),
        app: app.clone(),
        class: class.clone(),
        path: load.path.clone().unwrap_or_else(|| "/".to_owned()),
        host: load.host.clone(),
        headers: load.headers.clone(),
        workload: workload(source, table, read_file)?,
        pages: pages(source, pool, table)?,
        work_factor: load.work_factor.unwrap_or(1.0),
    })
}

fn workload(
    source: &Source,
    table: &Spanned<LoadTable>,
    read_file: &mut impl FnMut(&str) -> io::Result<String>,
) -> Result<Workload, ScenarioError> {
    let load = table.get_ref();
    let wrong = |mistake: Mistake| source.error(&table.span(), mistake);
    let of_file = |file: &str, problem: FileProblem| wrong(Mistake::File { file: file.to_owned(), problem });
    let kinds = [load.sessions.is_some(), load.rate.is_some(), !load.bursts.is_empty(), load.trace.is_some(), load.log.is_some()];
    if kinds.into_iter().filter(|&given| given).count() != 1 {
        return Err(wrong(Mistake::LoadKind));
    }
    if let Some(trace) = &load.trace {
        let text = read_file(&trace.file).map_err(|error| of_file(&trace.file, error.into()))?;
        return read_requests_per_minute(&text, &trace.window()).map_err(|error| of_file(&trace.file, error.into()));
    }
    if let Some(log) = &load.log {
        let text = read_file(&log.file).map_err(|error| of_file(&log.file, error.into()))?;
        return of_log(&text, log.speed).map_err(|problem| of_file(&log.file, problem));
    }
    if !load.bursts.is_empty() {
        let state = |burst: &BurstTable| State { rate: burst.rate.0, mean_s: burst.lasts.0 };
        let states: Vec<State> = load.bursts.iter().map(state).collect();
        let lasting = states.iter().all(|state| state.mean_s > 0.0);
        return if lasting { Ok(Workload::Bursty { states }) } else { Err(wrong(Mistake::Burst)) };
    }
    let phases = phases(source, load)?;
    match load.rate {
        Some(_) => Ok(Workload::Open { phases: with_crowds(phases, &load.flash) }),
        None if load.flash.is_empty() => Ok(Workload::Sessions { phases, think_s: load.think.0 }),
        None => Err(wrong(Mistake::Flash)),
    }
}

fn phases(source: &Source, load: &LoadTable) -> Result<Vec<Phase>, ScenarioError> {
    let closed = load.sessions.is_some();
    let level = load.sessions.map_or(load.rate.unwrap_or_default().0, f64::from);
    let mut phases = vec![Phase { start_s: load.at.0, level }];
    for step in &load.steps {
        let level = match (step.get_ref().sessions, step.get_ref().rate) {
            (Some(sessions), None) if closed => f64::from(sessions),
            (None, Some(rate)) if !closed => rate.0,
            _ => return Err(source.error(&step.span(), Mistake::Step)),
        };
        let start_s = step.get_ref().at.0;
        if phases.last().is_some_and(|last| last.start_s > start_s) {
            return Err(source.error(&step.span(), Mistake::StepOrder));
        }
        phases.push(Phase { start_s, level });
    }
    Ok(phases)
}

fn with_crowds(phases: Vec<Phase>, crowds: &[FlashTable]) -> Vec<Phase> {
    let flash = |crowd: &FlashTable| Flash {
        at_s: crowd.at.0,
        extra: crowd.extra.0,
        rise_s: crowd.rise.0,
        hold_s: crowd.hold.0,
        fall_s: crowd.fall.0,
    };
    let crowds: Vec<Flash> = crowds.iter().map(flash).collect();
    if crowds.is_empty() { phases } else { with_flashes(&phases, &crowds) }
}

/// A log tells whole seconds: its requests are spread at random within each.
fn of_log(text: &str, speed: f64) -> Result<Workload, FileProblem> {
    if !(speed.is_finite() && speed > 0.0) {
        return Err(FileProblem::Speed);
    }
    let log = access_log::read(text.as_bytes())?;
    let last = log.entries.last().ok_or(FileProblem::NoLine)?.at_s;
    if last > LONGEST_LOG_S {
        return Err(FileProblem::TooLong { seconds: last });
    }
    let mut counts = vec![0.0; last as usize + 1];
    log.entries.iter().for_each(|entry| counts[entry.at_s as usize] += 1.0);
    Ok(Workload::Counts { counts, period_s: 1.0 / speed })
}

fn pages(source: &Source, pool: &PoolSpec, table: &Spanned<LoadTable>) -> Result<Vec<Page>, ScenarioError> {
    let load = table.get_ref();
    let wrong = |mistake: Mistake| source.error(&table.span(), mistake);
    if !load.pages.is_empty() && load.sessions.is_none() {
        return Err(wrong(Mistake::PagesWithoutSessions));
    }
    let page = |page: &PageTable| {
        let class = page.class.as_ref().unwrap_or(load.class.get_ref());
        if !pool.classes.is_empty() && !pool.classes.contains_key(class.as_str()) {
            return Err(wrong(Mistake::NoClass { class: class.clone() }));
        }
        if let Some(unknown) = page.next.keys().find(|next| !load.pages.iter().any(|page| page.name == **next)) {
            return Err(wrong(Mistake::PageLeads { page: page.name.clone(), to: unknown.clone() }));
        }
        let sum: f64 = page.next.values().sum();
        if !(sum <= 1.0 + 1e-9 && page.next.values().all(|&share| share >= 0.0)) {
            return Err(wrong(Mistake::PageSum { page: page.name.clone(), sum }));
        }
        let share = |next: &PageTable| page.next.get(&next.name).copied().unwrap_or(0.0);
        Ok(Page {
            name: page.name.clone(),
            path: page.path.clone().or(load.path.clone()).unwrap_or_else(|| "/".to_owned()),
            class: class.clone(),
            work_factor: page.work_factor,
            next: load.pages.iter().map(share).chain([(1.0 - sum).max(0.0)]).collect(),
        })
    };
    load.pages.iter().map(page).collect()
}

#[cfg(test)]
mod tests {
    use crate::workload::Workload;
    use crate::{Scenario, no_files};

    fn load(keys: &str) -> Result<super::LoadSource, String> {
        let text = format!(
            "intent = \"A test.\"\nduration = \"100s\"\n[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n[class.gold]\n[class.tin]\n\
             [app.shop]\nmemory = \"1MiB\"\nwork = \"1ms\"\n[[load]]\napp = \"shop\"\nclass = \"gold\"\n{keys}\n"
        );
        let log = "1.2.3.4 - - [30/Jun/1998:22:00:01 +0000] \"GET / HTTP/1.0\" 200 1\n1.2.3.4 - - [30/Jun/1998:22:00:03 +0000] \"GET /b HTTP/1.0\" 200 1\n";
        let scenario = Scenario::parse(&text, |name| if name == "log" { Ok(log.to_owned()) } else { no_files(name) });
        scenario.map(|mut scenario| scenario.loads.remove(0)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_of_load_is_read() {
        let flash = load("rate = \"10/s\"\nflash = [{ at = \"20s\", extra = \"90/s\", rise = \"5s\", hold = \"10s\" }]").unwrap();
        assert_eq!((flash.workload.rate_at(10.0), flash.workload.rate_at(30.0)), (Some(10.0), Some(100.0)));
        let bursts = load("bursts = [{ rate = \"10/s\", lasts = \"30s\" }, { rate = \"100/s\", lasts = \"10s\" }]").unwrap();
        assert_eq!(bursts.workload.rate_at(0.0), Some(32.5));
        let log = load("log = { file = \"log\", speed = 2.0 }").unwrap();
        assert_eq!(log.workload, Workload::Counts { counts: vec![1.0, 0.0, 1.0], period_s: 0.5 });
        let walk = load(
            "sessions = 3\npages = [{ name = \"home\", next = { buy = 0.4 } }, { name = \"buy\", class = \"tin\", path = \"/buy\" }]",
        );
        let walk = walk.unwrap();
        assert_eq!((walk.pages[0].next.clone(), walk.pages[1].next.clone()), (vec![0.0, 0.4, 0.6], vec![0.0, 0.0, 1.0]));
        assert_eq!(walk.classes().collect::<Vec<_>>(), ["gold", "tin"]);
    }

    #[test]
    fn a_load_that_makes_no_sense_is_refused() {
        for (keys, part) in [
            ("", "exactly one of"),
            ("sessions = 1\nflash = [{ at = \"1s\", extra = \"1/s\", hold = \"1s\" }]", "on top of a `rate`"),
            ("rate = \"1/s\"\npages = [{ name = \"home\" }]", "walked through by `sessions`"),
            ("sessions = 1\npages = [{ name = \"home\", next = { gone = 1.0 } }]", "leads to `gone`"),
            ("sessions = 1\npages = [{ name = \"home\", next = { home = 1.5 } }]", "1.5 in sum"),
            ("log = { file = \"gone\" }", "no file `gone`"),
            ("bursts = [{ rate = \"1/s\", lasts = \"0s\" }]", "longer than nothing"),
        ] {
            let error = load(keys).unwrap_err();
            assert!(error.contains(part), "{keys}: {error}");
        }
    }
}
