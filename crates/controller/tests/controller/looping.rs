//! The loop: starts in order, scales and replaces without losing a request, survives the death of each side.

use std::time::Duration;

use weal_model::{Action, AppState, InstanceState, RolloutPhase, Status};

use weal_control::cycle::Input;
use weal_controller::record::Line;
use weal_protocol::gateway::{ClusterConfig, FlowCounters, GatewayConfig};

use crate::fake::{CONFIG, Pool, flow};

fn with_shop_argument(argument: &str) -> String {
    CONFIG.replace(r#"["shop", "--port", "$PORT"]"#, &format!(r#"["shop", "--port", "$PORT", "{argument}"]"#))
}

fn shops_of(config: &GatewayConfig) -> &ClusterConfig {
    config.clusters.iter().find(|cluster| cluster.app.as_str() == "shop").expect("shop has routes")
}

async fn all_ready(pool: &Pool) {
    pool.until_status("everything is ready", |status| {
        status.apps.len() == 2 && status.apps.iter().all(|app| app.state == AppState::Ready)
    })
    .await;
}

#[tokio::test]
async fn an_application_starts_after_what_it_needs_is_ready() {
    let pool = Pool::start().await;
    pool.engine.lock().never_ready.push("db".into());
    pool.apply(CONFIG).await;
    pool.until("the database starts", |pool| pool.engine.lock().states().contains_key("db-1")).await;
    let status = pool.until_status("shop waits", |status| status.apps.iter().any(|app| app.state == AppState::Waiting)).await;
    let shop = status.apps.iter().find(|app| app.name.as_str() == "shop").unwrap();
    assert_eq!(shop.detail, "needs db, which is not ready");
    assert_eq!(pool.engine.lock().starts(), ["db-1"]);
    pool.engine.set_state("db-1", InstanceState::Ready, "");
    all_ready(&pool).await;
    let machine = pool.engine.lock();
    let db = machine.agent.instances.iter().find(|i| i.id.as_str() == "db-1").unwrap().address.to_string();
    let shops: Vec<_> = machine.agent.instances.iter().filter(|i| i.app.as_str() == "shop").collect();
    assert_eq!(shops.len(), 2);
    assert!(shops.iter().all(|shop| machine.specs[&shop.id].env["DB_ADDR"] == db));
    assert_ne!(shops[0].node, shops[1].node, "spread over the nodes");
}

#[tokio::test]
async fn the_gateway_hears_of_a_failed_instance_at_once_and_the_pool_heals() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    pool.until("the gateway has both", |pool| pool.gateway.endpoints("shop").0.len() == 2).await;
    let first = pool.gateway.endpoints("shop").0[0].clone();
    pool.engine.set_state(&first, InstanceState::Backoff, "it ended with 1");
    pool.until("the gateway has one", |pool| pool.gateway.endpoints("shop").0.len() == 1).await;
    let status =
        pool.until_status("shop is degraded", |status| status.apps.iter().any(|app| app.state == AppState::Degraded)).await;
    let shop = status.apps.iter().find(|app| app.name.as_str() == "shop").unwrap();
    assert_eq!(shop.detail, format!("{first}: it ended with 1"));
    pool.engine.set_state(&first, InstanceState::Ready, "");
    pool.until("the gateway has both again", |pool| pool.gateway.endpoints("shop").0.len() == 2).await;
    assert_eq!(pool.engine.lock().starts().len(), 3, "an instance that comes back is not replaced");
}

#[tokio::test]
async fn a_changed_program_is_replaced_one_by_one_and_drained_first() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    pool.until("the gateway has both", |pool| pool.gateway.endpoints("shop").0.len() == 2).await;
    for id in ["shop-1", "shop-2"] {
        let in_flight = weal_protocol::gateway::EndpointCounters {
            instance: id.into(),
            open: false,
            in_flight: 1,
            completions: 0,
            failures: 0,
        };
        pool.gateway.counters().instances.push(in_flight);
    }
    let taken = pool.apply(&with_shop_argument("--new")).await;
    assert!(taken.changes.iter().any(|change| change.contains("shop")), "{taken:?}");
    pool.until("an old one drains", |pool| !pool.gateway.endpoints("shop").1.is_empty()).await;
    let (ready, draining) = pool.gateway.endpoints("shop");
    assert_eq!((ready.len(), draining.len()), (2, 1), "a new one was ready before an old one was closed");
    assert!(pool.engine.lock().states().contains_key(&draining[0]), "a request is outstanding: it must not be stopped");
    for counters in &mut pool.gateway.counters().instances {
        counters.in_flight = 0;
    }
    pool.until("all are new", |pool| {
        let machine = pool.engine.lock();
        let mut shops = machine.agent.instances.iter().filter(|i| i.app.as_str() == "shop");
        shops.clone().count() == 2 && shops.all(|shop| machine.specs[&shop.id].run.contains(&"--new".to_owned()))
    })
    .await;
    let machine = pool.engine.lock();
    let db_actions = machine.actions.iter().filter(|action| format!("{action:?}").contains("db-1")).count();
    assert_eq!(db_actions, 1, "what did not change is not touched");
    for config in
        pool.gateway.told().iter().skip_while(|config| config.clusters.is_empty() || shops_of(config).endpoints.len() < 2)
    {
        let open = shops_of(config).endpoints.iter().filter(|endpoint| !endpoint.draining).count();
        assert!(open >= 2, "never fewer than the minimum takes requests: {config:?}");
    }
}

#[tokio::test]
async fn a_singleton_is_stopped_before_it_is_started_anew() {
    let pool = Pool::start().await;
    let config = CONFIG.replace("[app.db]", "[app.db]\nsingleton = true");
    pool.apply(&config).await;
    all_ready(&pool).await;
    pool.apply(&config.replace(r#"["db", "#, r#"["db2", "#)).await;
    pool.until("the new database runs, and shops that know its address", |pool| {
        let machine = pool.engine.lock();
        let Some(db) = machine.agent.instances.iter().find(|i| i.app.as_str() == "db") else { return false };
        let address = db.address.to_string();
        let mut shops = machine.agent.instances.iter().filter(|i| i.app.as_str() == "shop");
        machine.specs[&db.id].run[0] == "db2"
            && shops.clone().count() == 2
            && shops.all(|shop| machine.specs[&shop.id].env["DB_ADDR"] == address)
    })
    .await;
    let machine = pool.engine.lock();
    let mut running = 0;
    for action in &machine.actions {
        match action {
            Action::Start { app, .. } if app.as_str() == "db" => running += 1,
            Action::Stop { instance, .. } if instance.as_str().starts_with("db-") => running -= 1,
            _ => {}
        }
        assert!(running <= 1, "two databases on the same data: {:?}", machine.actions);
    }
}

#[tokio::test]
async fn nobody_may_wake_an_instance_that_drains_for_its_stop() {
    let pool = Pool::start().await;
    let once = CONFIG.replace("min = 2, max = 4", "min = 1, max = 1").replace("[app.shop]", "[app.shop]\nsingleton = true");
    pool.apply(&once).await;
    all_ready(&pool).await;
    let last = |pool: &Pool| shops_of(pool.gateway.told().last().unwrap()).clone();
    assert_eq!(last(&pool).wakeable, None, "whoever is there");
    let in_flight = weal_protocol::gateway::EndpointCounters {
        instance: "shop-1".into(),
        open: false,
        in_flight: 1,
        completions: 0,
        failures: 0,
    };
    pool.gateway.counters().instances.push(in_flight);
    pool.apply(&once.replace(r#"["shop", "#, r#"["shop", "--new", "#)).await;
    pool.until("the only one drains", |pool| pool.gateway.endpoints("shop") == (vec![], vec!["shop-1".into()])).await;
    for cluster in pool.gateway.told().iter().flat_map(|config| &config.clusters) {
        let drains = cluster.endpoints.iter().any(|endpoint| endpoint.draining);
        assert_eq!(cluster.wakeable, drains.then(Vec::new), "from the first word on");
    }
    pool.gateway.counters().instances.clear();
    pool.until("the new one takes requests", |pool| pool.gateway.endpoints("shop") == (vec!["shop-2".into()], vec![])).await;
    assert_eq!(last(&pool).wakeable, None);
}

#[tokio::test]
async fn an_application_that_leaves_the_config_is_drained_and_stopped() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    let without =
        CONFIG.split("[app.shop]").next().unwrap().replace("[class.gold]\ngoal = \"p95 < 250ms\"\nimportance = \"high\"\n", "");
    pool.apply(&without).await;
    pool.until("only the database is left", |pool| pool.engine.lock().states().keys().eq(["db-1"])).await;
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_said_and_not_hammered() {
    let pool = Pool::start().await;
    pool.engine.lock().unstartable.push("db".into());
    pool.apply(CONFIG).await;
    let status = pool
        .until_status("db has failed", |status| {
            status.apps.iter().any(|app| app.name.as_str() == "db" && app.state == AppState::Failed)
        })
        .await;
    let db = status.apps.iter().find(|app| app.name.as_str() == "db").unwrap();
    assert!(db.detail.contains("there is no such program"), "{}", db.detail);
    let why: weal_model::Why = pool.get("/v1/apps/db/why").await;
    assert!(why.sentences[0].contains("there is no such program"), "{:?}", why.sentences);
    pool.engine.lock().unstartable.clear();
    all_ready(&pool).await;
    assert!(pool.engine.lock().starts().len() < 10, "{:?}", pool.engine.lock().starts());
}

#[tokio::test]
async fn a_controller_that_is_killed_goes_on_from_the_store_without_touching_anything() {
    let mut pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    pool.until("the gateway has both", |pool| pool.gateway.endpoints("shop").0.len() == 2).await;
    let (actions, told) = (pool.engine.lock().actions.len(), pool.gateway.told().len());
    pool.kill_controller().await;
    pool.start_controller();
    let status = pool
        .until_status("it is back", |status| {
            status.apps.iter().all(|app| app.state == AppState::Ready) && !status.apps.is_empty()
        })
        .await;
    assert_eq!(status.config_generation, 1);
    pool.until("it has spoken to the gateway", |pool| pool.gateway.told().len() > told).await;
    assert_eq!(pool.engine.lock().actions.len(), actions);
    for config in &pool.gateway.told()[told..] {
        assert_eq!(shops_of(config).endpoints.len(), 2, "no ready instance is taken from the gateway meanwhile");
        assert!(config.version > told as u64, "versions go on");
    }
}

#[tokio::test]
async fn an_agent_that_is_away_changes_nothing_and_is_said_once() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    pool.until("the gateway has both", |pool| pool.gateway.endpoints("shop").0.len() == 2).await;
    pool.engine.lock().up = false;
    let status = pool.until_status("the problem shows", |status| !status.problems.is_empty()).await;
    assert!(status.problems[0].contains("the fake machine does not answer"), "{:?}", status.problems);
    assert_eq!(pool.gateway.endpoints("shop").0.len(), 2);
    {
        let mut machine = pool.engine.lock();
        machine.up = true;
        machine.agent.began = crate::fake::now();
    }
    pool.until_status("all is well", |status| status.problems.is_empty()).await;
    let events: Vec<weal_model::Event> = pool.get("/v1/events").await;
    let said = events.iter().filter(|event| event.text.contains("machine does not answer")).count();
    assert_eq!(said, 1, "{events:#?}");
    assert_eq!(pool.engine.lock().starts().len(), 3);
}

#[tokio::test]
async fn a_gateway_that_starts_anew_is_told_everything_again() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    pool.until("the gateway has both", |pool| pool.gateway.endpoints("shop").0.len() == 2).await;
    let told = pool.gateway.told().len();
    {
        let mut counters = pool.gateway.counters();
        (counters.started, counters.version) = (crate::fake::now(), 0);
    }
    pool.until("it was told again", |pool| pool.gateway.told().len() > told).await;
    assert_eq!(pool.gateway.endpoints("shop").0.len(), 2);
}

#[tokio::test]
async fn flows_are_measured_and_get_seats() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    let mut count = 0;
    let deadline = std::time::Instant::now() + crate::fake::DEADLINE;
    let status = loop {
        count += 20;
        pool.gateway.counters().flows = vec![flow("shop", "gold", count, Duration::from_millis(100))];
        for instance in &mut pool.engine.lock().agent.instances {
            let cpu = instance.cpu_seconds.get_or_insert(0.0);
            *cpu += 0.02;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let status = pool.status().await;
        if status.flows[0].seats > 0 && status.flows[0].utility.is_some() && !status.flows[0].work_factors.is_empty() {
            break status;
        }
        assert!(std::time::Instant::now() < deadline, "{status:#?}");
    };
    let flow = &status.flows[0];
    assert!((flow.achieved.unwrap() - 100.0).abs() < 2.0, "{flow:?}");
    assert!((flow.utility.unwrap().0 - 0.6).abs() < 0.02, "{flow:?}");
    assert!(flow.throughput_per_s > 10.0);
    pool.until("the gateway limits seats", |pool| shops_of(pool.gateway.told().last().unwrap()).seats.is_some()).await;
    pool.until("instances have shares", |pool| !pool.engine.lock().shares.is_empty()).await;
    let history: Vec<weal_model::HistorySample> = pool.get("/v1/history?since_s=60").await;
    assert!(history.iter().any(|sample| sample.flows.iter().any(|flow| flow.utility.is_some())));
    let why: weal_model::Why = pool.get("/v1/apps/shop/why").await;
    assert!(why.sentences.iter().any(|sentence| sentence.contains("meets its goal p95 < 250ms: 1")), "{:#?}", why.sentences);
}

#[tokio::test]
async fn seats_that_hang_are_told_once_each_time_and_explained_as_long_as_they_do() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    for (round, hanging) in [2, 0, 1].into_iter().enumerate() {
        let count = 20 * (round as u64 + 1);
        pool.gateway.counters().flows = vec![FlowCounters { hanging, ..flow("shop", "gold", count, Duration::from_millis(100)) }];
        pool.until_status("it is seen", |status| status.flows.first().is_some_and(|flow| flow.hanging == hanging)).await;
        let why: weal_model::Why = pool.get("/v1/apps/shop/why").await;
        let explained = why.sentences.iter().any(|sentence| sentence.contains("to which no instance has sent a byte for 30 s"));
        assert_eq!(explained, hanging > 0, "{:#?}", why.sentences);
    }
    let events: Vec<weal_model::Event> = pool.get("/v1/events").await;
    let mut told: Vec<&str> =
        events.iter().map(|event| &*event.text).filter(|text| text.contains("sent nothing for 30 s")).collect();
    told.sort_unstable();
    let [one, two] = told.as_slice() else { panic!("{events:#?}") };
    assert!(one.starts_with("1 of the ") && one.contains("shop/gold is held by a request"), "{one}");
    assert!(two.starts_with("2 of the ") && two.contains("shop/gold are held by requests"), "{two}");
}

#[tokio::test]
async fn without_control_nothing_is_limited() {
    let pool = Pool::start().await;
    pool.apply(&CONFIG.replace("name = \"test\"", "name = \"test\"\ncontrol = \"off\"")).await;
    all_ready(&pool).await;
    pool.gateway.counters().flows = vec![flow("shop", "gold", 100, Duration::from_millis(900))];
    pool.until_status("it is measured", |status| status.flows[0].throughput_per_s > 0.0).await;
    assert!(pool.gateway.told().iter().all(|config| config.clusters.iter().all(|cluster| cluster.seats.is_none())));
    assert!(pool.engine.lock().shares.is_empty());
    assert_eq!(pool.engine.lock().starts().len(), 3);
}

#[tokio::test]
async fn nobody_waits_for_an_agent_that_is_stuck() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    // From here on no call to the agent ever ends: whatever waited for one would wait for ever.
    pool.engine.lock().stuck = true;
    let status = pool.until_status("the nodes are shown as away", |status| status.nodes.iter().all(|node| !node.up)).await;
    assert_eq!(status.config_generation, 1);
    let taken = pool.apply(&CONFIG.replace("max = 4", "max = 3")).await;
    assert_eq!(taken.generation, 2, "a config is taken");
    let (code, body) = pool.local("POST", "/v1/apps/shop/sleep", "{}").await;
    assert_eq!(code, 409, "{body}");
    assert!(body.contains("the fake machine does not answer: a call has been unanswered for"), "{body}");
    pool.engine.lock().stuck = false;
    pool.until_status("all is well", |status| status.nodes.iter().all(|node| node.up) && status.problems.is_empty()).await;
}

#[tokio::test]
async fn a_recording_of_a_running_pool_replays_to_the_same_decisions() {
    let mut pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    pool.engine.set_state("shop-1", InstanceState::Failed, "exit code 1");
    pool.apply(&with_shop_argument("--new")).await;
    pool.until("the new program runs", |pool| {
        let machine = pool.engine.lock();
        let mut shops = machine.agent.instances.iter().filter(|seen| seen.app.as_str() == "shop");
        shops.clone().count() == 2 && shops.all(|shop| machine.specs[&shop.id].run.contains(&"--new".to_owned()))
    })
    .await;
    pool.stop_controller().await;
    let path = pool.folder.path().join("controller").join(weal_controller::RECORDING);
    let lines = weal_controller::record::read(&path).unwrap();
    let same = weal_controller::record::replay(&lines).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(same > 50, "{same} effects of {} lines", lines.len());
    let acts = lines.iter().filter(|line| matches!(line, weal_controller::record::Line::Input { .. })).count();
    assert!(acts > 20, "{acts} inputs");
}

#[tokio::test]
async fn a_recording_in_which_the_store_fails_replays_to_the_same_decisions() {
    let mut pool = Pool::start().await;
    pool.stop_controller().await;
    let store = pool.folder.path().join("controller/store.db");
    std::fs::remove_file(&store).unwrap();
    std::fs::create_dir(&store).unwrap();
    pool.start_controller();
    let status = pool.until_status("the problem shows", |status| !status.problems.is_empty()).await;
    assert!(status.problems[0].starts_with("the store cannot be opened: "), "{:?}", status.problems);
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    std::fs::remove_dir(&store).unwrap();
    // What was stored could not be read at the start: it begins anew with it.
    pool.controller_ends().await;

    let path = pool.folder.path().join("controller").join(weal_controller::RECORDING);
    let lines = weal_controller::record::read(&path).unwrap();
    weal_controller::record::replay(&lines).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    let said = |line: &Line| match line {
        Line::Input { input, .. } => match &**input {
            Input::Store(answer) => Some(answer.is_ok()),
            _ => None,
        },
        _ => None,
    };
    let said: Vec<bool> = lines.iter().filter_map(said).collect();
    assert_eq!(said, [false], "that it is well again ends the controller");
    pool.start_controller();
    pool.until_status("the store is well again", |status| status.problems.is_empty()).await;
}

#[tokio::test]
async fn a_restart_repeats_no_reason_from_before_it() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    all_ready(&pool).await;
    pool.engine.lock().unstartable.push("shop".into());
    pool.apply(&with_shop_argument("--verbose")).await;
    let is_stuck = |status: &Status| {
        let rollouts = status.apps.iter().filter_map(|app| app.rollout.as_ref());
        rollouts.into_iter().any(|rollout| rollout.phase == RolloutPhase::Stuck)
    };
    pool.until_status("it is stuck", is_stuck).await;
    pool.engine.lock().unstartable.clear();
    let (status, text) = pool.local("POST", "/v1/apps/shop/restart", "").await;
    assert_eq!(status, 200, "{text}");
    let after = pool.status().await;
    assert!(!is_stuck(&after), "{:?}", after.apps);
    all_ready(&pool).await;
}
