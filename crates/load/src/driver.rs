//! Sends requests when they are due.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use weal_scenario::workload::access_log::Entry;
use weal_scenario::workload::{Page, Walk, Workload};

use crate::connections::{Connections, Message};
use crate::tally::{Ending, FlowResult, LoadResult, Progress, Tally};

/// One kind of request and when it comes.
#[derive(Debug, Clone)]
pub struct LoadFlow {
    /// For people, and the name of its stream of random numbers.
    pub name: String,
    /// What is asked.
    pub request: Request,
    /// When.
    pub source: Source,
    /// For sessions: pages that they walk through, each with its own path; empty asks for the same again and again.
    pub pages: Vec<Page>,
    /// What counts as within the goal.
    pub target: Option<Duration>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where to connect.
    pub address: SocketAddr,
    /// The `Host` header.
    pub host: String,
    /// The method.
    pub method: String,
    /// Path and query. `{n}` is replaced by the request's number, for servers that cache.
    pub path: String,
    /// Further headers.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Bytes,
}

/// When requests are due.
#[derive(Debug, Clone)]
pub enum Source {
    /// As a workload says.
    Workload(Workload),
    /// As a log says, this many times as fast; each entry with its own method and path.
    Log {
        /// The entries, in order of time.
        entries: Arc<[Entry]>,
        /// 60 plays an hour in a minute.
        speed: f64,
    },
}

/// How long, and within what bounds.
#[derive(Debug, Clone)]
pub struct Options {
    /// The seed of everything random.
    pub seed: u64,
    /// When to stop sending. Answers are waited for.
    pub duration: Duration,
    /// How long one request may take.
    pub timeout: Duration,
    /// Requests that may be outstanding in all. Further ones are counted as not sent, and mark the result.
    pub most_outstanding: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, duration: Duration::from_secs(10), timeout: Duration::from_secs(30), most_outstanding: 4096 }
    }
}

/// Why no load could be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request that HTTP cannot carry.
    #[error("flow {flow}: {source}")]
    BadRequest {
        /// The flow.
        flow: String,
        /// What is wrong.
        source: http::Error,
    },
}

/// Makes the load of all `flows` at once. `progress` is told about twice a second; dropping the future stops everything.
pub async fn drive(flows: &[LoadFlow], options: &Options, progress: &watch::Sender<Vec<Progress>>) -> Result<LoadResult, Error> {
    let start = Instant::now() + Duration::from_millis(20);
    let outstanding = Arc::new(AtomicUsize::new(0));
    let mut lanes = Vec::new();
    for flow in flows {
        message(&flow.request, &flow.request.method, &flow.request.path, 0)
            .map_err(|source| Error::BadRequest { flow: flow.name.clone(), source })?;
        lanes.push(Arc::new(Lane {
            flow: flow.clone(),
            options: options.clone(),
            start,
            outstanding: Arc::clone(&outstanding),
            connections: Connections::new(flow.request.address),
            tally: Mutex::default(),
        }));
    }
    let mut tasks: JoinSet<()> = lanes.iter().map(|lane| Arc::clone(lane).run()).collect();
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    loop {
        tokio::select! {
            ended = tasks.join_next() => if ended.is_none() { break },
            _ = tick.tick() => {
                let now = lanes.iter().map(|lane| lane.tally().progress(&lane.flow.name)).collect();
                progress.send_replace(now);
            }
        }
    }
    let took_s = start.elapsed().as_secs_f64();
    let finish = |lane: Arc<Lane>| -> FlowResult { std::mem::take(&mut *lane.tally()).finish(&lane.flow.name, lane.flow.target) };
    Ok(LoadResult { took_s, flows: lanes.into_iter().map(finish).collect() })
}

/// One flow while it runs.
struct Lane {
    flow: LoadFlow,
    options: Options,
    start: Instant,
    outstanding: Arc<AtomicUsize>,
    connections: Connections,
    tally: Mutex<Tally>,
}

impl Lane {
    async fn run(self: Arc<Self>) {
        match &self.flow.source {
            Source::Workload(workload @ Workload::Sessions { .. }) => self.run_sessions(workload).await,
            Source::Workload(workload) => {
                let until_s = self.options.duration.as_secs_f64();
                let request = &self.flow.request;
                let arrivals = workload.arrivals(self.options.seed, &self.flow.name, until_s);
                self.run_open(arrivals.map(|at_s| (at_s, &*request.method, &*request.path))).await;
            }
            Source::Log { entries, speed } => {
                let until_s = self.options.duration.as_secs_f64();
                let due = entries.iter().map(|entry| (entry.at_s as f64 / speed, &*entry.method, &*entry.path));
                self.run_open(due.take_while(|(at_s, ..)| *at_s < until_s)).await;
            }
        }
    }

    /// Sends each request when it is due, however many are outstanding.
    async fn run_open<'a>(self: &Arc<Self>, due: impl Iterator<Item = (f64, &'a str, &'a str)>) {
        let mut requests = JoinSet::new();
        for (number, (at_s, method, path)) in due.enumerate() {
            let due = Duration::from_secs_f64(at_s);
            sleep_until(self.start + due).await;
            while requests.try_join_next().is_some() {}
            let Ok(message) = message(&self.flow.request, method, path, number) else {
                self.tally().count_ending(due, Duration::ZERO, Ending::NotSent, None);
                continue;
            };
            let lane = Arc::clone(self);
            requests.spawn(async move { lane.ask(due, message).await });
        }
        while requests.join_next().await.is_some() {}
    }

    /// Keeps as many sessions as the workload says, each asking, waiting and thinking.
    async fn run_sessions(self: &Arc<Self>, workload: &Workload) {
        let most = workload.changes().into_iter().map(|at_s| workload.sessions_at(at_s)).max().unwrap_or(0);
        let mut sessions = JoinSet::new();
        for number in 0..most {
            let lane = Arc::clone(self);
            let workload = workload.clone();
            sessions.spawn(async move { lane.run_session(&workload, number).await });
        }
        while sessions.join_next().await.is_some() {}
    }

    async fn run_session(&self, workload: &Workload, number: u32) {
        let mut thoughts = workload.thoughts(self.options.seed, &self.flow.name, number);
        let mut walk = Walk::new(self.options.seed, &self.flow.name, number);
        let changes = workload.changes();
        let mut due = Duration::ZERO;
        for request_number in 0.. {
            while workload.sessions_at(due.as_secs_f64()) <= number {
                let next = changes.iter().find(|&&at_s| at_s > due.as_secs_f64());
                let Some(&next) = next else { return };
                due = Duration::from_secs_f64(next);
            }
            if due >= self.options.duration {
                return;
            }
            sleep_until(self.start + due).await;
            let page = self.flow.pages.get(walk.step(&self.flow.pages));
            let path = page.map_or(&self.flow.request.path, |page| &page.path);
            if let Ok(message) = message(&self.flow.request, &self.flow.request.method, path, request_number) {
                self.ask(due, message).await;
            }
            due = self.start.elapsed() + Duration::from_secs_f64(thoughts.next().unwrap_or(0.0));
        }
    }

    async fn ask(&self, due: Duration, message: Message) {
        let late = self.start.elapsed().saturating_sub(due);
        if self.outstanding.fetch_add(1, Ordering::Relaxed) >= self.options.most_outstanding {
            self.outstanding.fetch_sub(1, Ordering::Relaxed);
            self.tally().count_ending(due, Duration::ZERO, Ending::NotSent, None);
            return;
        }
        self.tally().count_sent(due, late);
        let ending = match timeout(self.options.timeout, self.connections.exchange(message)).await {
            Ok(Ok(status)) => Ending::Status(status),
            Ok(Err(_)) => Ending::Broken,
            Err(_) => Ending::TimedOut,
        };
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
        let response = self.start.elapsed().saturating_sub(due);
        self.tally().count_ending(due, response, ending, self.flow.target);
        if ending == Ending::Broken {
            // A server that is gone refuses at once: without a pause, sessions would ask a hundred thousand times a second.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn message(request: &Request, method: &str, path: &str, number: usize) -> Result<Message, http::Error> {
    let mut builder =
        hyper::Request::builder().method(method).uri(path.replace("{n}", &number.to_string())).header("host", &request.host);
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    builder.body(Full::new(request.body.clone()))
}
