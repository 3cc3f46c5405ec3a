//! The local engine against an agent that only writes down what it is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use weal_engine::Engine;
use weal_engine_local::{Local, instance_spec, revision};
use weal_model::{
    Action, AppName, AppSpec, Bytes, Cpu, CpuShare, InstanceId, InstanceRange, InstanceState, NodeName, NodeSpec, PoolSpec, Time,
    TimingSpec,
};
use weal_protocol::node::{self, AgentObservation, Command, CommandOutcome, InstanceCounters};
use weal_protocol::{Capabilities, Refusal};

fn app(name: &str, needs: &[&str]) -> AppSpec {
    AppSpec {
        run: vec![format!("./{name}"), "$PORT".into()],
        cpu_limit: Some(Cpu(0.5)),
        instances: InstanceRange { min: 1, max: 2 },
        needs: needs.iter().map(|name| AppName::from(*name)).collect(),
        env: BTreeMap::from([("MODE".to_owned(), "fast".to_owned())]),
        cwd: "/srv".into(),
        ..AppSpec::example(name)
    }
}

fn pool() -> PoolSpec {
    let apps = [app("shop", &["my-db"]), app("my-db", &[])].map(|app| (app.name.clone(), app));
    PoolSpec {
        name: "p".into(),
        listen: "127.0.0.1:1".parse().unwrap(),
        tls: None,
        api: "127.0.0.1:2".parse().unwrap(),
        api_tls: None,
        api_insecure: false,
        watch: false,
        control: true,
        placement: Default::default(),
        autoscaler_speed: 1.0,
        enactment: weal_model::Enactment::default(),
        overload_limit: weal_model::OverloadLimit::default(),
        clients: weal_model::ClientPolicy::default(),
        timing: TimingSpec { flow_cycle_s: 1.0, placement_cycle_s: 10.0 },
        nodes: vec![NodeSpec { name: NodeName::from("n1"), cpu: Cpu(1.0), memory: Bytes::gib(1), utilization_limit: 0.9 }],
        classes: BTreeMap::new(),
        apps: BTreeMap::from(apps),
        jobs: BTreeMap::new(),
        notify: Vec::new(),
        logs_to: None,
        metrics_to: None,
        traces_to: None,
    }
}

type Told = Arc<Mutex<Vec<Command>>>;

/// An agent on a socket in `folder` that runs `running` and refuses to stop anything.
fn agent(folder: &std::path::Path, running: Vec<InstanceCounters>) -> (Local, Told) {
    let told = Told::default();
    let path = folder.join("node.sock");
    let listener = tokio::net::UnixListener::from_std(weal_rpc::bind(&path).unwrap()).unwrap();
    let write_down = Arc::clone(&told);
    let router = weal_rpc::Router::new(weal_rpc::Callers::own())
        .on(node::APPLY, move |commands: Vec<Command>| {
            write_down.lock().unwrap().extend(commands.clone());
            async move { Ok(commands.iter().map(outcome).collect::<Vec<_>>()) }
        })
        .on(node::OBSERVE, move |()| {
            let instances = running.clone();
            async move {
                let (started, time, capabilities) = (Time::ZERO, Time::ZERO, Capabilities::all("none"));
                Ok(AgentObservation { started, time, capabilities, nodes: Vec::new(), instances })
            }
        });
    tokio::spawn(weal_rpc::serve(listener, router));
    (Local::new(path), told)
}

fn outcome(command: &Command) -> CommandOutcome {
    let (instance, refusal) = match command {
        Command::Stop { instance } => (instance.clone(), Some(Refusal::Stuck { pids: vec![7] })),
        Command::Start { spec } => (spec.id.clone(), None),
        _ => (InstanceId::from("?"), None),
    };
    CommandOutcome { instance, took_s: 0.5, refusal }
}

fn running(id: &str, app_name: &str, state: InstanceState, port: u16) -> InstanceCounters {
    let spec = instance_spec(&app(app_name, &[]), &InstanceId::from(id), &NodeName::from("n1"), &BTreeMap::new());
    InstanceCounters {
        spec,
        state,
        detail: String::new(),
        since: Time::ZERO,
        pid: None,
        address: ([127, 0, 0, 1], port).into(),
        cpu_seconds: None,
        memory_used: None,
        disk_bytes: None,
        restarts: 0,
        start_took_s: None,
        swap_used: None,
        last_wake_s: None,
        costs: weal_model::SleepCosts::default(),
        end: None,
        progress: None,
        keeps_awake: false,
        listener: None,
    }
}

fn start(instance: &str, app: &str) -> Action {
    Action::Start { instance: InstanceId::from(instance), app: AppName::from(app), node: NodeName::from("n1") }
}

#[tokio::test]
async fn actions_become_commands_in_their_order_and_outcomes_come_back_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, told) = agent(
        folder.path(),
        vec![running("my-db-1", "my-db", InstanceState::Starting, 4001), running("my-db-2", "my-db", InstanceState::Ready, 4002)],
    );
    let stop = Action::Stop { instance: InstanceId::from("shop-1"), app: AppName::from("shop") };
    let job = Action::SuspendJob { job: "nightly".into() };
    let actions = [stop, job, start("ghost-1", "ghost"), start("shop-2", "shop")];
    let outcomes = engine.apply(&pool(), &actions).await.unwrap();
    assert_eq!(outcomes.iter().map(|outcome| outcome.action.clone()).collect::<Vec<_>>(), actions);
    let refusals: Vec<Option<Refusal>> = outcomes.into_iter().map(|outcome| outcome.refusal).collect();
    let expected = [
        Some(Refusal::Stuck { pids: vec![7] }),
        Some(Refusal::NoJobs { job: "nightly".into() }),
        Some(Refusal::NoApplication { app: "ghost".into() }),
        None,
    ];
    assert_eq!(refusals, expected);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2);
    let Command::Start { spec } = &told[1] else { panic!("{told:?}") };
    let entry = |name: &str| spec.env.get(name).map(String::as_str);
    assert_eq!(entry("MY_DB_ADDR"), Some("127.0.0.1:4002"), "the ready one");
    assert_eq!((entry("MY_DB_HOST"), entry("MY_DB_PORT"), entry("MODE")), (Some("127.0.0.1"), Some("4002"), Some("fast")));
    assert_eq!(spec.revision, revision(&pool().apps["shop"]).start);
}

#[tokio::test]
async fn what_needs_an_application_that_is_not_ready_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, told) = agent(folder.path(), vec![running("my-db-1", "my-db", InstanceState::Starting, 4001)]);
    let outcomes = engine.apply(&pool(), &[start("shop-1", "shop")]).await.unwrap();
    let refused = outcomes[0].refusal.as_ref().map(ToString::to_string);
    assert_eq!(refused.as_deref(), Some("`shop` needs `my-db`, which has no ready instance"));
    assert!(told.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_instances_get_becomes_shares_and_limits() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, told) = agent(folder.path(), Vec::new());
    engine
        .set_cpu_shares(&[CpuShare { instance: InstanceId::from("my-db-3"), cpu: Cpu(0.7), limit: Some(Cpu(0.5)) }])
        .await
        .unwrap();
    let expected =
        Command::SetCpu { instance: InstanceId::from("my-db-3"), share: Cpu(0.7), limit: Some(Cpu(0.5)), memory: None };
    assert_eq!(*told.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn an_agent_that_does_not_answer_is_an_error_with_its_socket() {
    let error = Local::new("/nowhere/node.sock").observe().await.unwrap_err().to_string();
    assert!(error.starts_with("the node agent does not answer: /nowhere/node.sock: cannot connect"), "{error}");
    assert_eq!(error.matches("does not answer").count(), 1, "{error}");
}
