//! What is imported is a config that weal takes.

use std::collections::BTreeMap;

use weal_config::import::{ImportError, Imported, compose, compose_beside, pm2, procfile, systemd};
use weal_config::{MachineSize, parse, render_all};
use weal_model::{AppKind, Bytes};

const MACHINE: MachineSize = MachineSize { cpus: 4.0, memory: Bytes::gib(8) };

fn show(imported: &Imported) -> String {
    match parse(&imported.text, "/srv/pool/weal.toml", &MACHINE) {
        Ok(parsed) => assert!(parsed.warnings.is_empty(), "{}", render_all(&parsed.warnings, &imported.text, false)),
        Err(found) => panic!("{}", render_all(&found, &imported.text, false)),
    }
    let notes: Vec<String> = imported.notes.iter().map(|note| format!("- {note}\n")).collect();
    format!("{}\nnotes:\n{}", imported.text, notes.concat())
}

#[test]
fn a_procfile_becomes_a_config() {
    let text = "# a Rails application\nweb: bundle exec puma -p $PORT -C \"config/puma.rb\"\n\
                Work_er: QUEUE=high bundle exec sidekiq -q $QUEUE\nrelease: rake db:migrate\napi: ./api --port ${PORT:-3000}\n";
    insta::assert_snapshot!("procfile", show(&procfile(text).unwrap()));
    let line = ImportError::Line { line: 2, text: "nonsense".to_owned() };
    assert_eq!(procfile("web: x\nnonsense\n"), Err(line));
    assert_eq!(procfile("# nothing\n"), Err(ImportError::Nothing("process")));
}

#[test]
fn what_runs_once_before_a_deploy_becomes_a_step_or_a_task() {
    let spec = |imported: Imported| {
        show(&imported);
        parse(&imported.text, "/srv/pool/weal.toml", &MACHINE).unwrap().spec
    };
    let alone = spec(procfile("release: rake db:migrate\nweb: puma -p $PORT\n").unwrap());
    assert_eq!(alone.apps["web-release"].step_of.as_ref().unwrap().as_str(), "web");
    let both = spec(procfile("web: puma -p $PORT\nworker: sidekiq\nrelease: rake db:migrate\n").unwrap());
    for name in ["web", "worker"] {
        assert!(both.apps[name].after.iter().any(|task| task.as_str() == "release"), "{name}");
    }
    let unit = "[Service]\nType=oneshot\nRestart=no\nExecStart=/usr/bin/migrate --all\n";
    assert_eq!(spec(systemd(unit, "migrate.service").unwrap()).apps["migrate"].kind, AppKind::Task);
    let text = "services:\n  db: { command: db, expose: [5432] }\n  shop: { command: shop, expose: [80], depends_on: { db: {}, \
                migrate: { condition: service_completed_successfully } } }\n  migrate: { command: migrate --to db, restart: always, \
                depends_on: [db], healthcheck: { test: [CMD, x] } }\n";
    let compose = spec(compose(text, &BTreeMap::new()).unwrap());
    assert_eq!(compose.apps["migrate"].kind, AppKind::Task);
    assert!(compose.apps["shop"].after.iter().any(|task| task.as_str() == "migrate"));
}

#[test]
fn the_common_subset_of_a_compose_file_becomes_a_config() {
    let text = r#"
version: "3.9"
x-common: &common
  restart: unless-stopped
  environment: &env
    LOG: "${LOG_LEVEL:-info}"
    SECRET: ${SECRET}
services:
  shop_web:
    <<: *common
    image: shop:1.2
    command: gunicorn shop:app --bind 0.0.0.0:8000 --name "my shop"
    ports: ["8080:8000"]
    depends_on:
      db: { condition: service_healthy }
      cache: { condition: service_started }
    healthcheck:
      test: ["CMD", "curl", "-f", "http://localhost:8000/up"]
      interval: 1m30s
      timeout: 500ms
      retries: 5
      start_period: 40s
    deploy:
      replicas: 2
      resources: { limits: { cpus: "0.50", memory: 512M } }
    user: "1000:1000"
    working_dir: /app
    stop_grace_period: 1m
    volumes: ["./data:/data"]
  db:
    image: postgres:16
    environment: [POSTGRES_PASSWORD=s3cret, "MONEY=$$5", FROM_SHELL]
    ports: ["127.0.0.1:5432:5432"]
    healthcheck: { test: pg_isready -U postgres && exit 0 }
    mem_limit: 1g
  cache:
    entrypoint: ["memcached", "-p", "11211"]
    expose: ["11211"]
    restart: "no"
  worker:
    command: ["sh", "-c", "echo $$HOME | ./work"]
networks:
  default: {}
"#;
    insta::assert_snapshot!("compose", show(&compose(text, &BTreeMap::new()).unwrap()));
}

#[test]
fn what_is_no_compose_file_is_refused() {
    assert!(matches!(compose("a: [1, 2", &BTreeMap::new()), Err(ImportError::Yaml(_))));
    assert_eq!(compose("version: '3'\n", &BTreeMap::new()), Err(ImportError::Nothing("service")));
    assert_eq!(compose("services: {}\n", &BTreeMap::new()), Err(ImportError::Nothing("service")));
}

/// A corpus of what other tools allow and an import could lose: each file with what becomes of it.
#[test]
fn nothing_of_the_corpus_is_lost_without_a_note() {
    let env = BTreeMap::from([("API_TOKEN".to_owned(), "abc".to_owned())]);
    for (name, text) in [
        ("names", include_str!("imports/names.yaml")),
        ("values", include_str!("imports/values.yaml")),
        ("keys", include_str!("imports/keys.yaml")),
    ] {
        insta::assert_snapshot!(format!("corpus-{name}"), show(&compose(text, &env).unwrap()));
    }
    insta::assert_snapshot!("corpus-procfile", show(&procfile(include_str!("imports/Procfile")).unwrap()));
    insta::assert_snapshot!("corpus-systemd", show(&systemd(include_str!("imports/shop.service"), "shop.service").unwrap()));
    insta::assert_snapshot!("corpus-limits", show(&systemd(include_str!("imports/limits.service"), "limits.service").unwrap()));
    insta::assert_snapshot!("corpus-types", show(&pm2(include_str!("imports/types.json")).unwrap()));
    insta::assert_snapshot!("corpus-pm2", show(&pm2(include_str!("imports/ecosystem.json")).unwrap()));
}

#[test]
fn each_limit_is_in_the_config_or_in_a_note() {
    let values = ["512M", "1.5G", "64K", "65536", "2T", "infinity", "25%", "300MB", "10X", "0", "90", "1min 30s", "150%", "0.1%"];
    for value in values {
        for (key, ours) in [("MemoryMax", "memory ="), ("CPUQuota", "cpu ="), ("TimeoutStopSec", "stop-timeout =")] {
            let unit = format!("[Service]\nExecStart=/bin/app $PORT\n{key}={value}\n");
            let imported = systemd(&unit, "app.service").unwrap();
            assert_ne!(imported.text.contains(ours), !imported.notes.is_empty(), "{key}={value}: {imported:?}");
        }
        for (key, ours) in [("max_memory_restart", "memory ="), ("kill_timeout", "stop-timeout =")] {
            let imported = pm2(&format!(r#"[{{ "script": "a.js", "env": {{ "PORT": 1 }}, "{key}": "{value}" }}]"#)).unwrap();
            let noted = imported.notes.iter().any(|note| note.contains(key));
            assert_ne!(imported.text.contains(ours), noted, "{key}={value}: {imported:?}");
        }
    }
}

#[test]
fn what_starts_nothing_is_refused() {
    assert_eq!(systemd("[Service]\nType=oneshot\n", "x.service"), Err(ImportError::Nothing("ExecStart")));
    assert!(matches!(pm2("module.exports = {}"), Err(ImportError::Json(_))));
    assert_eq!(pm2("{}"), Err(ImportError::Nothing("application with a `script`")));
}

#[test]
fn a_service_whose_image_lies_beside_the_file_is_run_from_it() {
    let text = "services:\n  shop:\n    image: host/shop:1.2\n    command: --port 8000\n    entrypoint: [/bin/serve]\n    \
                ports: [\"80:8000\"]\n    user: \"1000\"\n    working_dir: /app\n  plain:\n    image: plain\n    expose: [80]\n";
    let archives = ["shop-1.2.tar".to_owned(), "plain.oci.tar".to_owned()].into();
    insta::assert_snapshot!("compose-images", show(&compose_beside(text, &BTreeMap::new(), &archives).unwrap()));
}
