//! `weal record` and `weal replay`: the load of a running pool, kept and driven again (docs/recordings.md).

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use weal_load::{LoadFlow, Options, Recorder, Recording, Request, Source};
use weal_model::{PoolSpec, RouteSpec, Status};
use weal_scenario::workload::Workload;

use crate::args::{Record, Replay};
use crate::client::{Client, block_on};
use crate::commands::load;
use crate::state::StateDir;
use crate::values::span;

/// Between two looks at the pool; a moment of the recording each.
const LOOK: Duration = Duration::from_secs(1);

/// Records until the time is over or Ctrl-C.
pub fn record(order: &Record) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    let until = order.duration.as_deref().map(span).transpose()?.map(|duration| Instant::now() + duration);
    let recorder = block_on(async {
        let mut seen =
            client.events(None, 1).await.map_err(crate::client::Error::into_failure)?.last().map_or(0, |event| event.id);
        // Only now: where no pool runs, the recording that lies there already stays.
        let file = File::create(&order.recording).with_context(|| format!("cannot write {}", order.recording.display()))?;
        let mut recorder = Recorder::new(BufWriter::new(file));
        let mut tick = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = tokio::signal::ctrl_c() => break,
            }
            for event in client.events(Some(seen), 1000).await.unwrap_or_default() {
                seen = seen.max(event.id);
                recorder.handle_event(&event);
            }
            // A controller that is being started anew leaves a gap, not the end.
            if let Ok(status) = client.status().await {
                recorder.handle_status(&status).context("cannot write the recording")?;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        Ok(recorder)
    })?;
    recorder.finish().context("cannot write the recording")?;
    Ok(())
}

/// Drives a recording's load against the running pool.
pub fn replay(order: &Replay, json: bool) -> anyhow::Result<()> {
    let file = File::open(&order.recording).with_context(|| format!("cannot read {}", order.recording.display()))?;
    let recording = Recording::read(BufReader::new(file)).with_context(|| format!("cannot use {}", order.recording.display()))?;
    let client = Client::new(&StateDir::find(&order.target)?);
    let outcome = load::runtime()?.block_on(async {
        let status = client.status().await.map_err(crate::client::Error::into_failure)?;
        let config = client.config().await.map_err(crate::client::Error::into_failure)?;
        let spec = config.spec.context("the pool has no config yet")?;
        let gateway = load::gateway_of(&status.listen)?;
        let mut flows = Vec::new();
        for (name, workload) in &recording.workloads {
            match flow(name, workload, order.volume, gateway, &status, &spec) {
                Some(flow) => flows.push(flow),
                None => crate::output::complain(&format!("{name} has no route in this pool: its requests are left out")),
            }
        }
        let duration = Duration::from_secs_f64(recording.duration_s);
        load::drive_shown(&flows, &Options { seed: order.seed, duration, ..Options::default() }).await
    })?;
    load::show(&outcome, json)
}

fn flow(name: &str, workload: &Workload, volume: f64, gateway: SocketAddr, status: &Status, spec: &PoolSpec) -> Option<LoadFlow> {
    let (app, class) = name.split_once('/')?;
    let route = spec.apps.get(app)?.routes.iter().find(|route| route.class.as_str() == class)?;
    let goal =
        status.flows.iter().find(|flow| flow.app.as_str() == app && flow.class.as_str() == class).and_then(|flow| flow.goal);
    let workload = match workload {
        Workload::Counts { counts, period_s } => {
            Workload::Counts { counts: counts.iter().map(|count| count * volume).collect(), period_s: *period_s }
        }
        other => other.clone(),
    };
    Some(LoadFlow {
        name: name.to_owned(),
        request: request_for(route, gateway),
        source: Source::Workload(workload),
        pages: Vec::new(),
        target: goal.and_then(|goal| goal.target_s()).map(Duration::from_secs_f64),
    })
}

/// A request that `route` matches.
fn request_for(route: &RouteSpec, address: SocketAddr) -> Request {
    let host = route.host.as_deref().unwrap_or("localhost");
    let headers = route.header.iter().map(|header| (header.name.clone(), header.value.clone().unwrap_or("1".into())));
    Request {
        address,
        host: host.replacen('*', "any", 1),
        method: "GET".into(),
        path: route.path.as_deref().unwrap_or("/").trim_end_matches('*').to_owned(),
        headers: headers.collect(),
        body: bytes::Bytes::new(),
    }
}
