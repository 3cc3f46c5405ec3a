//! `metrics-to` and `traces-to`: what the controller measures and what gateways saw of requests is pushed to collectors.
//!
//! The supervisor fetches both and posts them, because neither role may reach others. The controller always has the newest metrics, so that a push
//! that is not taken is replaced by the next one. A gateway keeps spans until they are fetched, as many as have room. So nothing waits for a
//! collector, and what is held for one that is away is bounded: a batch here, and the gateway's queue.

use std::time::Duration;

use tokio::sync::watch;
use weal_model::{CollectorUrl, PoolSpec};
use weal_protocol::spans::{SPANS, SpansQuery, SpansTaken};

use super::console::Console;
use super::otlp::{self, Collector, Signal};
use super::outlet::{Outlet, changes};
use crate::client::Client;
use crate::role_name::RoleName;
use crate::state::StateDir;

/// Between two pushes of metrics. Shorter than a goal is missed before anybody is told; longer makes coarse charts.
const METRICS_EVERY: Duration = Duration::from_secs(15);
/// Between two looks for spans, while fewer wait than fill a batch.
const LOOK: Duration = Duration::from_secs(1);
/// Spans in one post, as many as OpenTelemetry's own exporters put into one.
const BATCH: u32 = 512;
/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pushes the metrics and spans of one pool.
pub struct Telemetry {
    console: Console,
    controller: Client,
    gateway: weal_rpc::Client,
}

impl Telemetry {
    /// Pushes those of the pool in `state`.
    pub fn new(state: &StateDir, controller: Client, console: Console) -> Self {
        let gateway = weal_rpc::Client::new(state.socket(RoleName::Gateway), PATIENCE);
        Self { console, controller, gateway }
    }

    /// Runs for as long as the supervisor does. `specs` tells the config in force.
    pub async fn run(self, specs: watch::Receiver<PoolSpec>) {
        tokio::join!(
            while_asked(specs.clone(), |spec| &spec.metrics_to, |to, pool| self.push_metrics(to, pool)),
            while_asked(specs, |spec| &spec.traces_to, |to, pool| self.push_spans(to, pool)),
        );
    }

    async fn push_metrics(&self, to: CollectorUrl, pool: String) {
        let mut collector = Collector::new(to.as_str(), Signal::Metrics);
        let mut outlet = Outlet::new(&self.console, "metrics-to:", "metrics");
        loop {
            // While the controller is started anew there is nothing to push.
            let pause = match self.controller.metrics().await {
                Err(_) => None,
                Ok(metrics) => {
                    let untaken = collector.send(&otlp::metrics::request(&pool, &metrics)).await.err();
                    outlet.handle_attempt(metrics.families.len(), untaken.as_ref())
                }
            };
            tokio::time::sleep(pause.unwrap_or(METRICS_EVERY).min(METRICS_EVERY)).await;
        }
    }

    async fn push_spans(&self, to: CollectorUrl, pool: String) {
        let mut collector = Collector::new(to.as_str(), Signal::Traces);
        let mut outlet = Outlet::new(&self.console, "traces-to:", "spans");
        loop {
            // A gateway that is started anew is asked at the next look.
            let taken = self.gateway.call(SPANS, &SpansQuery { most: BATCH }).await.ok();
            if let Some(taken) = taken.as_ref().filter(|taken| !taken.spans.is_empty()) {
                deliver(&mut collector, &mut outlet, &pool, taken).await;
            }
            if !taken.is_some_and(|taken| taken.has_more) {
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// Sends spans until they are taken, or refused for good.
async fn deliver(collector: &mut Collector, outlet: &mut Outlet, pool: &str, taken: &SpansTaken) {
    let body = otlp::spans::request(pool, taken);
    loop {
        let untaken = collector.send(&body).await.err();
        let Some(pause) = outlet.handle_attempt(taken.spans.len(), untaken.as_ref()) else { return };
        tokio::time::sleep(pause).await;
    }
}

/// Does `work` for the collector that the config names, anew with each other one.
async fn while_asked<F: Future<Output = ()>>(
    mut specs: watch::Receiver<PoolSpec>,
    of: fn(&PoolSpec) -> &Option<CollectorUrl>,
    work: impl Fn(CollectorUrl, String) -> F,
) {
    loop {
        let (to, pool) = {
            let spec = specs.borrow_and_update();
            (of(&spec).clone(), spec.name.clone())
        };
        let goes_on = match to.clone() {
            Some(url) => tokio::select! {
                goes_on = changes(&mut specs, of, &to) => goes_on,
                () = work(url, pool) => true,
            },
            None => changes(&mut specs, of, &to).await,
        };
        if !goes_on {
            return;
        }
    }
}
