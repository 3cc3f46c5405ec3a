//! From `[[node]]`, `[class]` and `[app]` to the pool.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use weal_model::{
    AppName, AppSpec, ClassName, Cpu, HealthCheck, HealthProbe, Importance, InstanceRange, NodeName, NodeSpec, PoolSpec,
    RestartPolicy, ServiceClass, TimingSpec,
};

use super::source::Source;
use crate::error::{Mistake, ScenarioError};
use crate::tables::{AppTable, InstancesText, ScenarioFile};

/// The share of a node's CPU that plans may fill when the file says nothing, as in `weal.toml`.
const UTILIZATION_LIMIT: f64 = 0.95;
/// Waiting requests per flow before new ones are rejected when simulating, as in `weal.toml`.
const QUEUE_LIMIT: u32 = 1000;

pub(super) fn pool(source: &Source, file: &ScenarioFile) -> Result<PoolSpec, ScenarioError> {
    let mut nodes: Vec<NodeSpec> = Vec::new();
    for table in &file.nodes {
        let name: NodeName = table.name.get_ref().as_str().into();
        if nodes.iter().any(|node| node.name == name) {
            return Err(source.error(&table.name.span(), Mistake::NodeTwice { node: name.to_string() }));
        }
        let cpu = *table.cpu.get_ref();
        if !(cpu.is_finite() && cpu >= 0.0) {
            return Err(source.error(&table.cpu.span(), Mistake::Cores));
        }
        let utilization_limit = table.utilization_limit.unwrap_or(UTILIZATION_LIMIT);
        nodes.push(NodeSpec { name, cpu: Cpu(cpu), memory: table.memory.0, utilization_limit });
    }
    let classes = file.classes.iter().map(|(name, table)| {
        let importance = match &table.importance {
            None => Importance::NORMAL,
            Some(word) => Importance::from_word(word.get_ref()).ok_or_else(|| source.error(&word.span(), Mistake::Importance))?,
        };
        let name: ClassName = name.as_str().into();
        let rate_limit_per_s = match &table.rate_limit {
            Some(rate) if rate.get_ref().0 <= 0.0 => return Err(source.error(&rate.span(), Mistake::Rate)),
            rate => rate.as_ref().map(|rate| rate.get_ref().0),
        };
        let class = ServiceClass {
            late: table.late.unwrap_or_default(),
            rate_limit_per_s,
            // No cookies are simulated: a client knows whether its session is under way.
            session_cookie: table.sessions_first.then(|| "session".to_owned()),
            ..ServiceClass::new(name.clone(), table.goal.map(|goal| goal.0), importance)
        };
        Ok((name, class))
    });
    let classes = classes.collect::<Result<BTreeMap<_, _>, _>>()?;
    let apps = file.apps.iter().map(|(name, table)| {
        let spec = app_spec(source, file, name, table)?;
        Ok((spec.name.clone(), spec))
    });
    Ok(PoolSpec {
        name: "scenario".to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        tls: None,
        api: ([127, 0, 0, 1], 0).into(),
        api_tls: None,
        api_insecure: false,
        watch: false,
        control: file.pool.control,
        placement: file.pool.placement,
        autoscaler_speed: 1.0,
        enactment: weal_model::Enactment::default(),
        overload_limit: weal_model::OverloadLimit::default(),
        clients: weal_model::ClientPolicy::default(),
        timing: TimingSpec { flow_cycle_s: file.pool.flow_cycle.0, placement_cycle_s: file.pool.placement_cycle.0 },
        nodes,
        classes,
        apps: apps.collect::<Result<BTreeMap<_, _>, _>>()?,
        jobs: BTreeMap::new(),
        notify: Vec::new(),
        logs_to: None,
        metrics_to: None,
        traces_to: None,
    })
}

fn app_spec(source: &Source, file: &ScenarioFile, name: &str, table: &Spanned<AppTable>) -> Result<AppSpec, ScenarioError> {
    let (app, span) = (table.get_ref(), table.span());
    let known_node = |node: &String| file.nodes.iter().any(|known| known.name.get_ref() == node);
    if let Some(unknown) = app.nodes.iter().flatten().chain(&app.initially).find(|node| !known_node(node)) {
        return Err(source.error(&span, Mistake::AppNamesNode { app: name.to_owned(), node: unknown.clone() }));
    }
    if let Some(unknown) = app.together.iter().chain(&app.apart).chain(&app.needs).find(|other| !file.apps.contains_key(*other)) {
        return Err(source.error(&span, Mistake::AppNamesApp { app: name.to_owned(), other: unknown.clone() }));
    }
    let names = |list: &[String]| list.iter().map(|name| AppName::from(name.as_str())).collect::<BTreeSet<_>>();
    Ok(AppSpec {
        name: name.into(),
        run: vec!["simulated".to_owned()],
        kind: weal_model::AppKind::Service,
        step_of: None,
        health: HealthCheck {
            probe: HealthProbe::Tcp,
            interval_s: 1.0,
            timeout_s: 1.0,
            start_timeout_s: 10.0 * app.start.0.max(1.0),
            failures: 3,
            replace_after: 9,
            send_proxy: None,
            host: None,
        },
        memory: app.memory.0,
        cpu_limit: app.cpu.map(Cpu),
        instances: instances(app.instances.as_ref()).map_err(|mistake| source.error(&span, mistake))?,
        per_node: app.per_node.unwrap_or(1),
        routes: Vec::new(),
        needs: names(&app.needs),
        after: BTreeSet::new(),
        user: None,
        sandbox: weal_model::SandboxSpec::default(),
        env: BTreeMap::new(),
        process: weal_model::ProcessSpec::default(),
        cwd: "/".to_owned(),
        stop_timeout_s: 10.0,
        on_resume: Vec::new(),
        singleton: app.singleton,
        drain_timeout_s: None,
        pass_socket: false,
        nodes: app.nodes.as_ref().map(|nodes| nodes.iter().map(|node| NodeName::from(node.as_str())).collect()),
        together: names(&app.together),
        apart: names(&app.apart),
        pinned: app.pinned,
        manual: false,
        restart: RestartPolicy::Always,
        queue_limit: QUEUE_LIMIT,
        request_timeout_s: 60.0,
        http: weal_model::HttpRules::default(),
        sleep_after_s: None,
        sleep: true,
        keep_awake: None,
        inner: None,
        halted: false,
        awake: None,
        deploy: 0,
    })
}

fn instances(text: Option<&InstancesText>) -> Result<InstanceRange, Mistake> {
    let wrong = |text: &str| Mistake::Instances { text: text.to_owned() };
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
