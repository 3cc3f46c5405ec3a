//! From the file's tables to a [`Scenario`], with every mistake at its line and column.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;
use weal_model::{
    AppName, AppSpec, ClassName, Cpu, HealthCheck, HealthProbe, Importance, InstanceRange, NodeName, NodeSpec, PoolSpec,
    RestartPolicy, RouteSpec, ServiceClass, TimingSpec,
};

use super::file::{AppTable, ExpectTable, FaultTable, InstancesText, ScenarioFile};
use super::jobs::read_jobs;
use super::load::read_load;
use super::{Behaviour, Fault, FaultKind, Load, Scenario, SimulateTable};

/// The share of a node's CPU that plans may fill when the file says nothing, as in `weal.toml`.
const UTILIZATION_LIMIT: f64 = 0.95;
/// Waiting requests per flow before new ones are rejected when simulating, as in `weal.toml`.
const QUEUE_LIMIT: u32 = 1000;

/// A mistake in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ScenarioError {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Turns byte ranges into lines and columns.
pub(super) struct Source<'a>(&'a str);

impl Source<'_> {
    pub(super) fn error(&self, span: &Range<usize>, message: impl Into<String>) -> ScenarioError {
        let before = &self.0[..span.start.min(self.0.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        ScenarioError { line, column, message: message.into() }
    }
}

pub(super) fn read(text: &str, mut read_file: impl FnMut(&str) -> Result<String, String>) -> Result<Scenario, ScenarioError> {
    let source = Source(text);
    let file: ScenarioFile =
        toml::from_str(text).map_err(|error| source.error(&error.span().unwrap_or(0..0), error.message().trim()))?;
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
    if !scenario.pool.apps.is_empty() {
        check_names(&scenario).map_err(|message| source.error(&(0..0), message))?;
    }
    Ok(scenario)
}

/// A route per class that an application of the scenario's own gets requests of, as a config has them.
fn route(pool: &mut PoolSpec, loads: &[Load]) {
    for load in loads {
        let Some(app) = pool.apps.get_mut(load.app.as_str()) else { continue };
        for class in load.classes() {
            if !app.routes.iter().any(|route| route.class.as_str() == class) {
                let host = Some(format!("{class}.{}", load.app));
                app.routes.push(RouteSpec { host, path: None, header: None, class: class.into() });
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
            return Err(source.error(&table.app.span(), format!("there is no `[app.{name}]`")));
        }
        behaviours.entry(name.clone()).or_default().take(table);
    }
    Ok(behaviours)
}

/// Whether the pool has all that the scenario names; the first that it lacks, in words.
pub(super) fn check_names(scenario: &Scenario) -> Result<(), String> {
    let app = |name: &str| match scenario.pool.apps.contains_key(name) {
        true => Ok(()),
        false => Err(format!("the pool has no application `{name}`")),
    };
    for load in &scenario.loads {
        app(&load.app)?;
        if let Some(class) = load.classes().find(|class| !scenario.pool.classes.contains_key(*class)) {
            return Err(format!("the pool has no class `{class}`"));
        }
    }
    let roomiest = scenario.pool.nodes.iter().map(|node| node.memory).max().unwrap_or_default();
    if let Some(job) = scenario.jobs.iter().find(|job| job.largest_memory() > roomiest) {
        return Err(format!("job `{}` takes {} a task, and no node has more than {roomiest}", job.name, job.largest_memory()));
    }
    for (name, behaviour) in &scenario.behaviours {
        app(name)?;
        let costs = behaviour.classes.values().chain([&behaviour.request]);
        costs.flat_map(|cost| &cost.calls).try_for_each(|call| app(&call.app))?;
    }
    for fault in &scenario.faults {
        fault.app.as_deref().map_or(Ok(()), app)?;
        if let Some(node) = fault.node.as_ref().filter(|node| !scenario.pool.nodes.iter().any(|n| n.name.as_str() == **node)) {
            return Err(format!("the pool has no node `{node}`"));
        }
    }
    scenario.expectations.iter().try_for_each(|expectation| expectation.app.as_deref().map_or(Ok(()), app))
}

fn check_head(source: &Source, file: &ScenarioFile) -> Result<(), ScenarioError> {
    if file.intent.get_ref().trim().is_empty() {
        return Err(source.error(&file.intent.span(), "say in a sentence what the scenario is there to show"));
    }
    if file.duration.get_ref().0 <= 0.0 {
        return Err(source.error(&file.duration.span(), "a scenario lasts longer than nothing"));
    }
    if file.nodes.is_empty() != file.apps.is_empty() || (file.nodes.is_empty() && file.config.is_none()) {
        return Err(source.error(&(0..0), "give `[[node]]` and `[app.NAME]` tables to simulate, or `config` to rehearse"));
    }
    Ok(())
}

fn pool(source: &Source, file: &ScenarioFile) -> Result<PoolSpec, ScenarioError> {
    let mut nodes: Vec<NodeSpec> = Vec::new();
    for table in &file.nodes {
        let name: NodeName = table.name.get_ref().as_str().into();
        if nodes.iter().any(|node| node.name == name) {
            return Err(source.error(&table.name.span(), format!("node `{name}` is there twice")));
        }
        let cpu = *table.cpu.get_ref();
        if !(cpu.is_finite() && cpu >= 0.0) {
            return Err(source.error(&table.cpu.span(), "cores are a number, zero or more"));
        }
        let utilization_limit = table.utilization_limit.unwrap_or(UTILIZATION_LIMIT);
        nodes.push(NodeSpec { name, cpu: Cpu(cpu), memory: table.memory.0, utilization_limit });
    }
    let classes = file.classes.iter().map(|(name, table)| {
        let importance = match &table.importance {
            None => Importance::NORMAL,
            Some(word) => Importance::from_word(word.get_ref())
                .ok_or_else(|| source.error(&word.span(), "importance is `lowest`, `low`, `normal`, `high` or `highest`"))?,
        };
        let name: ClassName = name.as_str().into();
        Ok((name.clone(), ServiceClass { name, goal: table.goal.map(|goal| goal.0), importance }))
    });
    let classes = classes.collect::<Result<BTreeMap<_, _>, _>>()?;
    let apps = file.apps.iter().map(|(name, table)| {
        let spec = app_spec(source, file, name, table)?;
        Ok((spec.name.clone(), spec))
    });
    Ok(PoolSpec {
        name: "scenario".to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        api: ([127, 0, 0, 1], 0).into(),
        user: "nobody".to_owned(),
        control: file.pool.control,
        placement: file.pool.placement,
        autoscaler_speed: 1.0,
        enactment: weal_model::Enactment::default(),
        overload_limit: weal_model::OverloadLimit::default(),
        timing: TimingSpec { flow_cycle_s: file.pool.flow_cycle.0, placement_cycle_s: file.pool.placement_cycle.0 },
        nodes,
        classes,
        apps: apps.collect::<Result<BTreeMap<_, _>, _>>()?,
    })
}

fn app_spec(source: &Source, file: &ScenarioFile, name: &str, table: &Spanned<AppTable>) -> Result<AppSpec, ScenarioError> {
    let (app, span) = (table.get_ref(), table.span());
    let known_node = |node: &String| file.nodes.iter().any(|known| known.name.get_ref() == node);
    if let Some(unknown) = app.nodes.iter().flatten().chain(&app.initially).find(|node| !known_node(node)) {
        return Err(source.error(&span, format!("app `{name}` names node `{unknown}`, which is not there")));
    }
    if let Some(unknown) = app.together.iter().chain(&app.apart).chain(&app.needs).find(|other| !file.apps.contains_key(*other)) {
        return Err(source.error(&span, format!("app `{name}` names app `{unknown}`, which is not there")));
    }
    let names = |list: &[String]| list.iter().map(|name| AppName::from(name.as_str())).collect::<BTreeSet<_>>();
    Ok(AppSpec {
        name: name.into(),
        run: vec!["simulated".to_owned()],
        health: HealthCheck {
            probe: HealthProbe::Tcp,
            interval_s: 1.0,
            timeout_s: 1.0,
            start_timeout_s: 10.0 * app.start.0.max(1.0),
            failures: 3,
        },
        memory: app.memory.0,
        cpu_limit: app.cpu.map(Cpu),
        instances: instances(app.instances.as_ref()).map_err(|message| source.error(&span, message))?,
        per_node: app.per_node.unwrap_or(1),
        routes: Vec::new(),
        needs: names(&app.needs),
        user: None,
        env: BTreeMap::new(),
        cwd: "/".to_owned(),
        stop_timeout_s: 10.0,
        on_resume: Vec::new(),
        nodes: app.nodes.as_ref().map(|nodes| nodes.iter().map(|node| NodeName::from(node.as_str())).collect()),
        together: names(&app.together),
        apart: names(&app.apart),
        pinned: app.pinned,
        manual: false,
        restart: RestartPolicy::Always,
        queue_limit: QUEUE_LIMIT,
        request_timeout_s: 60.0,
        sleep_after_s: None,
    })
}

fn instances(text: Option<&InstancesText>) -> Result<InstanceRange, String> {
    let wrong = |text: &str| format!("`{text}` is not a number of instances: write `3` or `\"1..4\"`");
    let range = match text {
        None => InstanceRange { min: 1, max: 1 },
        Some(&InstancesText::Count(count)) => InstanceRange { min: count, max: count },
        Some(InstancesText::Range(text)) => {
            let (min, max) = text.split_once("..").ok_or_else(|| wrong(text))?;
            let number = |part: &str| part.trim().parse().map_err(|_| wrong(text));
            InstanceRange { min: number(min)?, max: number(max)? }
        }
    };
    if range.max >= 1 && range.min <= range.max { Ok(range) } else { Err(wrong(&format!("{}..{}", range.min, range.max))) }
}

fn read_fault(source: &Source, pool: &PoolSpec, table: &Spanned<FaultTable>) -> Result<Fault, ScenarioError> {
    let fault = table.get_ref();
    // Without nodes of its own, the scenario names those of its config.
    if let Some(node) = &fault.node
        && !pool.nodes.is_empty()
        && !pool.nodes.iter().any(|known| known.name.as_str() == node)
    {
        return Err(source.error(&table.span(), format!("there is no node `{node}`")));
    }
    if fault.node.is_none() && matches!(fault.kind, FaultKind::NodeDown | FaultKind::SlowNode) {
        return Err(source.error(&table.span(), "say which `node`"));
    }
    if fault.app.is_none() && fault.kind == FaultKind::InstanceDown {
        return Err(source.error(&table.span(), "say of which `app`"));
    }
    if let Some(app) = fault.app.as_ref().filter(|app| !pool.apps.is_empty() && !pool.apps.contains_key(app.as_str())) {
        return Err(source.error(&table.span(), format!("there is no `[app.{app}]`")));
    }
    let whole = [FaultKind::NodeDown, FaultKind::InstanceDown, FaultKind::ControllerDown, FaultKind::GatewayDown];
    let amount = match (fault.kind, fault.amount) {
        (kind, _) if whole.contains(&kind) => 0.0,
        (_, Some(amount)) if amount.is_finite() => amount,
        _ => return Err(source.error(&table.span(), "say how much: `amount`")),
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
        return Err(source.error(&table.span(), format!("there is no `[app.{app}]`")));
    }
    if expectation.at_least.is_none() && expectation.at_most.is_none() {
        return Err(source.error(&table.span(), "an expectation has `at-least`, `at-most` or both"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weal_model::Bytes;

    use super::*;
    use crate::Measure;
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
            _ => Err("no such file".to_owned()),
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
            ("trace.csv", "gone.csv", 28, "no such file"),
            ("amount = 0.3", "node = \"n9\"", 33, "no node `n9`"),
            ("at-least = 0.0", "", 39, "`at-least`, `at-most`"),
            ("goal = \"mean < 200ms\"", "goal = \"mean > 200ms\"", 12, "`mean` takes `<`"),
            ("\"1..2\"", "\"2..1\"", 15, "not a number of instances"),
        ];
        for (right, wrong, line, part) in cases {
            let text = GOOD.replacen(right, wrong, 1);
            assert_ne!(text, GOOD, "{right}");
            let error = parse(&text).unwrap_err();
            assert!(error.message.contains(part), "{wrong}: {error}");
            assert_eq!(error.line, line, "{wrong}: {error}");
        }
    }
}
