//! From the file's tables to a [`Scenario`], with every mistake at its line and column.

mod jobs;
mod load;
mod names;
mod pool;
mod source;

use std::collections::BTreeMap;
use std::io;

use toml::Spanned;
use weal_model::{AppName, PoolSpec, RouteSpec};

use crate::behaviour::Behaviour;
use crate::error::{Lacking, Mistake, ScenarioError};
use crate::jobs::JobSource;
use crate::scenario::{Fault, LoadSource, Scenario};
use crate::tables::{ExpectTable, FaultKind, FaultTable, Measure, ScenarioFile, SimulateTable};
use jobs::read_jobs;
use load::read_load;
use names::check_names;
use pool::pool;
use source::Source;

impl Scenario {
    /// Reads a scenario. `read_file` gives the text of a file named in it (a recording), relative to the scenario file.
    ///
    /// # Errors
    /// The first mistake, with its line and column.
    pub fn parse(text: &str, read_file: impl FnMut(&str) -> io::Result<String>) -> Result<Self, ScenarioError> {
        read(text, read_file)
    }

    /// The scenario with the pool that its `config` describes, so that it can be simulated.
    ///
    /// # Errors
    /// The first thing that the scenario names and the pool does not have.
    pub fn with_pool(mut self, pool: PoolSpec) -> Result<Self, Lacking> {
        let control = self.pool.control && pool.control;
        self.pool = PoolSpec { control, ..pool };
        for app in self.pool.apps.keys() {
            self.behaviours.entry(app.to_string()).or_default();
        }
        check_names(&self)?;
        Ok(self)
    }
}

/// For [`Scenario::parse`], where a scenario comes without a folder: it can name no file.
///
/// # Errors
/// Always.
pub fn no_files(name: &str) -> io::Result<String> {
    Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no file `{name}`")))
}

fn read(text: &str, mut read_file: impl FnMut(&str) -> io::Result<String>) -> Result<Scenario, ScenarioError> {
    let source = Source(text);
    let file: ScenarioFile = toml::from_str(text).map_err(|error| {
        let message = error.message().trim().to_owned();
        source.error(&error.span().unwrap_or(0..0), Mistake::Toml { message })
    })?;
    check_head(&source, &file)?;
    let mut pool = pool(&source, &file)?;
    let mut loads = Vec::new();
    for (index, load) in file.loads.iter().enumerate() {
        loads.push(read_load(&source, &pool, &file, index, load, &mut read_file)?);
    }
    route(&mut pool, &loads);
    let jobs = read_jobs(&source, &file.jobs, &mut read_file)?;
    let mut faults = file.faults.iter().map(|fault| read_fault(&source, &pool, fault)).collect::<Result<Vec<_>, _>>()?;
    faults.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    for expectation in &file.expectations {
        check_expectation(&source, &pool, &file, expectation)?;
        check_order(&source, &jobs, expectation)?;
    }
    let scenario = Scenario {
        intent: file.intent.get_ref().clone(),
        seed: file.seed,
        duration_s: file.duration.get_ref().0,
        warm_up_s: file.warm_up.0,
        config: file.config.clone(),
        behaviours: behaviours(&source, &file)?,
        surroundings: file.simulation,
        pool,
        loads,
        jobs,
        faults,
        expectations: file.expectations.into_iter().map(Spanned::into_inner).collect(),
    };
    if !scenario.pool.nodes.is_empty() {
        check_names(&scenario).map_err(|lacking| source.error(&(0..0), lacking.into()))?;
    }
    Ok(scenario)
}

/// A route per class that an application of the scenario's own gets requests of, as a config has them.
fn route(pool: &mut PoolSpec, loads: &[LoadSource]) {
    for load in loads {
        let Some(app) = pool.apps.get_mut(load.app.as_str()) else { continue };
        for class in load.classes() {
            if !app.routes.iter().any(|route| route.class.as_str() == class) {
                let host = Some(format!("{class}.{}", load.app));
                app.routes.push(RouteSpec { host, ..RouteSpec::any(class.into()) });
            }
        }
    }
}

/// What is said about applications, those of the scenario and those of its config.
fn behaviours(source: &Source, file: &ScenarioFile) -> Result<BTreeMap<String, Behaviour>, ScenarioError> {
    let own = file.apps.iter().map(|(name, app)| (name.clone(), Behaviour::of_app(app.get_ref())));
    let mut behaviours: BTreeMap<String, Behaviour> = own.collect();
    let mut tables: Vec<&SimulateTable> = file.simulate.iter().collect();
    tables.sort_by_key(|table| table.class.is_some());
    for table in tables {
        let name = table.app.get_ref();
        if !file.apps.is_empty() && !file.apps.contains_key(name) {
            return Err(source.error(&table.app.span(), Mistake::NoApp { app: name.clone() }));
        }
        behaviours.entry(name.clone()).or_default().take(table);
    }
    Ok(behaviours)
}

fn check_head(source: &Source, file: &ScenarioFile) -> Result<(), ScenarioError> {
    if file.intent.get_ref().trim().is_empty() {
        return Err(source.error(&file.intent.span(), Mistake::Intent));
    }
    if file.duration.get_ref().0 <= 0.0 {
        return Err(source.error(&file.duration.span(), Mistake::Duration));
    }
    let has_work = !file.apps.is_empty() || !file.jobs.is_empty();
    let is_whole = if file.nodes.is_empty() { file.apps.is_empty() && file.config.is_some() } else { has_work };
    if !is_whole {
        return Err(source.error(&(0..0), Mistake::NoPool));
    }
    Ok(())
}

fn read_fault(source: &Source, pool: &PoolSpec, table: &Spanned<FaultTable>) -> Result<Fault, ScenarioError> {
    let fault = table.get_ref();
    // Without nodes of its own, the scenario names those of its config.
    if let Some(node) = &fault.node
        && !pool.nodes.is_empty()
        && !pool.nodes.iter().any(|known| known.name.as_str() == node)
    {
        return Err(source.error(&table.span(), Mistake::NoNode { node: node.clone() }));
    }
    if fault.node.is_none() && matches!(fault.kind, FaultKind::NodeDown | FaultKind::SlowNode) {
        return Err(source.error(&table.span(), Mistake::FaultNode));
    }
    let of_app = [FaultKind::InstanceDown, FaultKind::Deploy, FaultKind::BadDeploy];
    if fault.app.is_none() && of_app.contains(&fault.kind) {
        return Err(source.error(&table.span(), Mistake::FaultApp));
    }
    if let Some(app) = fault.app.as_ref().filter(|app| !pool.apps.is_empty() && !pool.apps.contains_key(app.as_str())) {
        return Err(source.error(&table.span(), Mistake::NoApp { app: app.clone() }));
    }
    let whole = [FaultKind::NodeDown, FaultKind::ControllerDown, FaultKind::GatewayDown];
    let amount = match (fault.kind, fault.amount) {
        (kind, _) if whole.contains(&kind) || of_app.contains(&kind) => 0.0,
        (_, Some(amount)) if amount.is_finite() => amount,
        _ => return Err(source.error(&table.span(), Mistake::FaultAmount)),
    };
    let until_s = fault.lasts.map_or(f64::INFINITY, |span| fault.at.0 + span.0);
    Ok(Fault { kind: fault.kind, at_s: fault.at.0, until_s, node: fault.node.clone(), app: fault.app.clone(), amount })
}

fn check_expectation(
    source: &Source,
    pool: &PoolSpec,
    file: &ScenarioFile,
    table: &Spanned<ExpectTable>,
) -> Result<(), ScenarioError> {
    let expectation = table.get_ref();
    let known = |name: &String| pool.apps.contains_key(&AppName::from(name.as_str()));
    if let Some(app) = expectation.app.as_ref().filter(|app| !file.apps.is_empty() && !known(app)) {
        return Err(source.error(&table.span(), Mistake::NoApp { app: app.clone() }));
    }
    let is_range = expectation.at_least.is_some() || expectation.at_most.is_some();
    if !is_range && expectation.what != Measure::JobOrder {
        return Err(source.error(&table.span(), Mistake::ExpectedRange));
    }
    Ok(())
}

/// Steps are expected of jobs that come.
fn check_order(source: &Source, jobs: &[JobSource], table: &Spanned<ExpectTable>) -> Result<(), ScenarioError> {
    let expectation = table.get_ref();
    let comes = |name: &str| {
        let of_it = |job: &JobSource| name == job.name || name.strip_prefix(&job.name).is_some_and(|rest| rest.starts_with('-'));
        jobs.iter().any(of_it)
    };
    let is_order = expectation.what == Measure::JobOrder;
    let is_sound = expectation.order.is_empty() != is_order && expectation.order.iter().all(|step| comes(&step.job));
    match is_sound {
        true => Ok(()),
        false => {
            let job = jobs.first().map_or("NAME", |job| &job.name).to_owned();
            Err(source.error(&table.span(), Mistake::ExpectedOrder { job }))
        }
    }
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, InstanceRange};

    use super::*;
    use crate::workload::Workload;

    const GOOD: &str = r#"
intent = "Two flows share a node."
duration = "120s"
warm-up = "40s"

[[node]]
name = "n1"
cpu = 2.0
memory = "2GiB"

[class.gold]
goal = "mean < 200ms"
importance = "high"

[app.shop]
memory = "300MiB"
instances = "1..2"
work = "20ms"
initially = ["n1"]

[[load]]
app = "shop"
class = "gold"
sessions = 10
think = "1s"
steps = [{ at = "60s", sessions = 40 }]

[[load]]
app = "shop"
class = "gold"
trace = { file = "trace.csv", time-scale = 60.0 }

[[fault]]
kind = "noise"
at = "10s"
for = "5s"
amount = 0.3

[[expect]]
what = "utility"
app = "shop"
class = "gold"
at-least = 0.0
"#;

    fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        Scenario::parse(text, |name| match name {
            "trace.csv" => Ok("period,count\n1998,60\n".to_owned()),
            name => no_files(name),
        })
    }

    #[test]
    fn a_scenario_is_read_with_its_defaults() {
        let scenario = parse(GOOD).unwrap();
        assert_eq!((scenario.seed, scenario.duration_s, scenario.warm_up_s), (1, 120.0, 40.0));
        let shop = &scenario.pool.apps[&AppName::from("shop")];
        assert_eq!((shop.memory, shop.instances), (Bytes::mib(300), InstanceRange { min: 1, max: 2 }));
        assert_eq!(scenario.loads[0].workload.sessions_at(61.0), 40);
        assert_eq!(scenario.loads[1].workload, Workload::Counts { counts: vec![1.0], period_s: 1.0 });
        assert_eq!(scenario.faults[0].until_s, 15.0);
        assert_eq!(scenario.expectations[0].what, Measure::Utility);
        assert_eq!(scenario.pool.timing.placement_cycle_s, 10.0);
    }

    #[test]
    fn sizes_and_times_are_written_as_in_the_config() {
        let text =
            GOOD.replacen("memory = \"300MiB\"", "memory = \"750MB\"", 1).replacen("duration = \"120s\"", "duration = \"2m\"", 1);
        let scenario = parse(&text).unwrap();
        assert_eq!(scenario.pool.apps[&AppName::from("shop")].memory, Bytes(750_000_000));
        assert_eq!(scenario.duration_s, 120.0);
    }

    #[test]
    fn every_mistake_has_its_place_and_says_what_would_be_right() {
        let cases = [
            ("cpu = 2.0", "cpu = -1.0", 8, "zero or more"),
            ("warm-up = \"40s\"", "warm-up = \"40\"", 4, "`40` has no unit: did you mean `40s`?"),
            ("warm-up", "warmup", 4, "unknown field `warmup`"),
            ("importance = \"high\"", "importance = \"urgent\"", 13, "importance is"),
            (
                "app = \"shop\"\nclass = \"gold\"\nsessions = 10",
                "app = \"shp\"\nclass = \"gold\"\nsessions = 10",
                22,
                "no `[app.shp]`",
            ),
            ("sessions = 10", "sessions = 10\nrate = \"5/s\"", 21, "exactly one of"),
            ("steps = [{ at = \"60s\", sessions = 40 }]", "steps = [{ at = \"60s\", rate = \"4/s\" }]", 26, "a step changes"),
            ("trace.csv", "gone.csv", 28, "no file `gone.csv`"),
            ("amount = 0.3", "node = \"n9\"", 33, "no node `n9`"),
            ("at-least = 0.0", "", 39, "`at-least`, `at-most`"),
            ("goal = \"mean < 200ms\"", "goal = \"mean > 200ms\"", 12, "`mean` takes `<`"),
            ("\"1..2\"", "\"2..1\"", 15, "not a number of instances"),
        ];
        for (right, wrong, line, part) in cases {
            let text = GOOD.replacen(right, wrong, 1);
            assert_ne!(text, GOOD, "{right}");
            let error = parse(&text).unwrap_err();
            assert!(error.mistake.to_string().contains(part), "{wrong}: {error}");
            assert_eq!(error.line, line, "{wrong}: {error}");
        }
    }

    /// Jobs need no application; their order names those that come.
    #[test]
    fn an_order_is_one_of_jobs_that_come() {
        let with = |expect: &str| {
            parse(&format!(
                "intent = \"A test.\"\nduration = \"9s\"\n[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n\
                 [[job]]\nname = \"report\"\nwork = \"1s\"\nmemory = \"1MiB\"\ngoal = \"9s\"\n[[expect]]\n{expect}\n"
            ))
        };
        let read = with("what = \"job-order\"\norder = [\"report starts\", \"report-2 is done\"]").unwrap();
        assert_eq!(read.expectations[0].order[1].to_string(), "report-2 is done");
        for (expect, part) in [
            ("what = \"job-order\"", "`job-order` has an `order` of steps of the scenario's jobs, such as `[\"report starts\""),
            ("what = \"job-order\"\norder = [\"nobody starts\"]", "`job-order` has an `order`"),
            ("what = \"jobs-done\"\nat-least = 1\norder = [\"report starts\"]", "`job-order` has an `order`"),
            ("what = \"job-order\"\norder = [\"report ends\"]", "`report ends` is a job's name and then `starts`"),
        ] {
            let error = with(expect).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("line "), "{expect}: {error}");
        }
    }

    #[test]
    fn fuzz_scenarios() {
        weal_fuzz::target("scenario", |bytes| {
            if let Err(error) = Scenario::parse(&String::from_utf8_lossy(bytes), no_files) {
                assert!(!error.to_string().is_empty());
            }
        });
    }
}
