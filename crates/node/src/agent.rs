//! The agent: all instances of this machine, and the calls it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use weal_model::{AppName, Bytes, InstanceId, InstanceState, NodeName, NodeSpec, Time, naming};
use weal_protocol::Refusal;
use weal_protocol::engine::{OutputPiece, OutputRequest};
use weal_rpc::{Callers, Router, RpcRefusal};

use crate::archive;
use crate::awake;
use crate::capabilities;
use crate::clock::now;
use crate::events::Events;
use crate::files::{at, read_json, write_json, write_missing_json};
use crate::instance::{self, Handle, MEMORY_FILE, Order, RunRecord};
use crate::isolation::{Kind, Member, Occupied, Usage, roles};
use crate::logbook::LogError;
use crate::lost;
use crate::ports::address;
use crate::progress;
use crate::reserve::Reserves;
use crate::shim::{LOGS_FOLDER, Record, SPEC_FILE, logs};
use crate::shim_work::ShimWork;
use crate::site::Site;
use crate::sleepers::Sleepers;
use weal_protocol::node::{
    self, AgentObservation, Command, CommandOutcome, InstanceCounters, InstanceSpec, LogsChunk, LogsRequest, NodeCounters,
    NodeReserve,
};

/// The nodes, as last configured.
const NODES_FILE: &str = "nodes.json";
/// How often a log is looked at while a caller waits for more of it.
const LOG_POLL: Duration = Duration::from_millis(200);

/// The agent.
pub struct Agent {
    pub(crate) site: Arc<Site>,
    started: Time,
    /// `node` in the state directory.
    pub(crate) dir: PathBuf,
    instances: Mutex<BTreeMap<InstanceId, Handle>>,
    nodes: Mutex<BTreeMap<NodeName, NodeSpec>>,
    /// CPU-seconds of stopped instances per node, where no group keeps them, as far as they had been seen.
    stopped_cpu: Mutex<BTreeMap<NodeName, f64>>,
    /// CPU-seconds of all of a node's instances that were told last, there. Invariant: they never fall, since who reads a counter takes a fall
    /// for a new beginning.
    told_cpu: Mutex<BTreeMap<NodeName, f64>>,
    shim_work: ShimWork,
    sleepers: Sleepers,
    /// What each node keeps free.
    pub(crate) reserves: Reserves,
    /// One lock per application that is asked for: its first caller wakes an instance, the others find it awake.
    pub(crate) waking: Mutex<BTreeMap<AppName, Arc<tokio::sync::Mutex<()>>>>,
    /// When each instance was last named to who asked for its application.
    pub(crate) asked: Mutex<BTreeMap<InstanceId, Instant>>,
}

impl Agent {
    /// An agent for `site` that goes on with what it finds in `dir`.
    pub fn new(site: Site, dir: PathBuf) -> Arc<Self> {
        let nodes: Vec<NodeSpec> = read_json(&dir.join(NODES_FILE)).ok().flatten().unwrap_or_default();
        let reserves = Reserves::load(&dir);
        let agent = Self {
            site: Arc::new(site),
            started: now(),
            dir,
            instances: Mutex::default(),
            nodes: Mutex::default(),
            stopped_cpu: Mutex::default(),
            told_cpu: Mutex::default(),
            shim_work: ShimWork::default(),
            sleepers: Sleepers::default(),
            reserves,
            waking: Mutex::default(),
            asked: Mutex::default(),
        };
        if let Err(error) = agent.configure(nodes) {
            tracing::warn!(error = error.message, "the nodes of the agent before this one cannot be set up");
        }
        agent.adopt_all();
        agent.end_unknown();
        Arc::new(agent)
    }

    /// The calls it answers: to `callers`, and the one that moves processes of weal's own to nobody but its own user and root.
    pub fn router(self: &Arc<Self>, callers: Callers) -> Router {
        let call = || Arc::clone(self);
        let (configure, reserve, apply, observe) = (call(), call(), call(), call());
        let (events, logs, sources, output, prefer) = (call(), call(), call(), call(), call());
        Router::new(callers)
            .on(node::CONFIGURE, move |nodes| {
                let agent = Arc::clone(&configure);
                async move { agent.configure(nodes) }
            })
            .on(node::RESERVE, move |reserves: Vec<NodeReserve>| {
                let agent = Arc::clone(&reserve);
                async move { agent.reserves.set(&reserves).map_err(|error| RpcRefusal::internal(error.to_string())) }
            })
            .on(node::APPLY, move |commands| {
                let agent = Arc::clone(&apply);
                // In a task of its own: what was begun is finished even if the caller dies.
                async move { tokio::spawn(agent.apply(commands)).await.map_err(|error| RpcRefusal::internal(error.to_string())) }
            })
            .on(node::OBSERVE, move |()| {
                let agent = Arc::clone(&observe);
                async move {
                    let observing = tokio::task::spawn_blocking(move || agent.observe());
                    observing.await.map_err(|error| RpcRefusal::internal(error.to_string()))
                }
            })
            .on(node::EVENTS, move |wanted| {
                let agent = Arc::clone(&events);
                async move { Ok(agent.events().after(wanted).await) }
            })
            .on(node::LOGS, move |request| {
                let agent = Arc::clone(&logs);
                async move { agent.logs(request).await }
            })
            .on(node::LOG_SOURCES, move |name: String| {
                let agent = Arc::clone(&sources);
                async move { Ok(agent.site.logbook.sources(&name)) }
            })
            .on(node::OUTPUT, move |request| {
                let agent = Arc::clone(&output);
                async move { agent.output(request).await }
            })
            .callers(Callers::own())
            .on(node::PREFER, move |pids: Vec<u32>| {
                let agent = Arc::clone(&prefer);
                let put = move |pid| roles::prefer(agent.site.isolation.as_ref(), pid);
                async move { pids.into_iter().try_for_each(put).map_err(|error| RpcRefusal::bad_request(error.to_string())) }
            })
    }

    fn events(&self) -> &Events {
        &self.site.events
    }

    fn configure(&self, wanted: Vec<NodeSpec>) -> Result<(), RpcRefusal> {
        if let Some(bad) = wanted.iter().find(|node| !is_safe_name(node.name.as_str())) {
            return Err(RpcRefusal::refused(400, bad_name("a node", bad.name.as_str())));
        }
        let mut nodes = self.nodes.lock().expect("nothing panics while it is held");
        for node in &wanted {
            self.site.isolation.set_node(node).map_err(|error| RpcRefusal::internal(format!("node `{}`: {error}", node.name)))?;
        }
        let fresh: BTreeMap<NodeName, NodeSpec> = wanted.iter().map(|node| (node.name.clone(), node.clone())).collect();
        for gone in nodes.keys().filter(|name| !fresh.contains_key(*name)) {
            self.site.isolation.remove_node(gone.as_str());
        }
        *nodes = fresh;
        write_json(&self.dir.join(NODES_FILE), &wanted).map_err(|error| RpcRefusal::internal(error.to_string()))
    }

    /// Finds what a former agent left, alive or not.
    fn adopt_all(&self) {
        let Ok(entries) = fs::read_dir(&self.site.instances) else { return };
        for dir in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
            if let Err(error) = self.adopt(&dir) {
                tracing::error!(folder = %dir.display(), %error, "cannot adopt an instance");
            }
        }
    }

    fn adopt(&self, dir: &Path) -> std::io::Result<()> {
        let record = match read_json::<Record>(&dir.join(SPEC_FILE)) {
            Ok(Some(record)) => record,
            // It was about to begin and never ran, or nobody can tell any more what it was.
            unreadable => {
                if let Err(error) = unreadable {
                    tracing::error!(folder = %dir.display(), %error, "an instance is unknown and is ended");
                }
                return instance::discard(self.site.isolation.as_ref(), &node_names(&self.dir), dir);
            }
        };
        let memory: Option<RunRecord> = read_json(&dir.join(MEMORY_FILE))?;
        if record.spec.job.is_none() {
            self.site.ports.lock().expect("nothing panics while it is held").adopt(record.port);
        }
        let id = record.spec.id.clone();
        let handle = match memory {
            Some(memory) => instance::adopt(Arc::clone(&self.site), record, memory),
            None => instance::begin(Arc::clone(&self.site), record).0,
        };
        self.instances.lock().expect("nothing panics while it is held").insert(id, handle);
        Ok(())
    }

    /// Ends what runs in the place of an instance that has no folder: somebody removed it, and nobody can tell any more what it was.
    fn end_unknown(&self) {
        let site = &self.site;
        for Occupied { node, instance } in site.isolation.places(&site.instances) {
            let dir = site.dir(&instance);
            if !is_safe_name(&instance) || dir.exists() {
                continue;
            }
            tracing::error!(instance, "an instance runs whose record was removed, and is ended");
            if let Err(error) = instance::discard(site.isolation.as_ref(), &[node], &dir) {
                tracing::error!(instance, %error, "it cannot be ended");
            }
        }
    }

    /// Carries commands out: neighbours of the same kind side by side, each such group after the one before it.
    async fn apply(self: Arc<Self>, commands: Vec<Command>) -> Vec<CommandOutcome> {
        let mut outcomes = Vec::with_capacity(commands.len());
        for alike in commands.chunk_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b)) {
            let running: Vec<_> =
                alike.iter().map(|command| tokio::spawn(Arc::clone(&self).carry_out(command.clone()))).collect();
            for (task, command) in running.into_iter().zip(alike) {
                outcomes.push(task.await.unwrap_or_else(|error| CommandOutcome {
                    instance: instance_of(command),
                    took_s: 0.0,
                    refusal: Some(Refusal::failed(format!("the agent failed: {error}"))),
                }));
            }
        }
        outcomes
    }

    async fn carry_out(self: Arc<Self>, command: Command) -> CommandOutcome {
        let (instance, began) = (instance_of(&command), Instant::now());
        let result = match command {
            Command::Start { spec } => self.start(*spec).await,
            Command::Stop { instance } => self.stop(&instance).await,
            Command::Sleep { instance, rung } => self.put_to_sleep(&instance, rung).await,
            Command::Resume { instance } => self.order(&instance, Order::Resume).await,
            Command::SetCpu { instance, share, limit, memory } => {
                self.order(&instance, Order::SetCpu { share, limit, memory }).await
            }
        };
        CommandOutcome { instance, took_s: began.elapsed().as_secs_f64(), refusal: result.err() }
    }

    async fn start(&self, spec: InstanceSpec) -> Result<(), Refusal> {
        check(&spec)?;
        self.site.accounts.check(&spec)?;
        if !self.nodes.lock().expect("nothing panics while it is held").contains_key(&spec.node) {
            return Err(Refusal::NoNode { node: spec.node });
        }
        if spec.job.is_some() && archive::has(&self.site, spec.id.as_str()) {
            // It has ended and was taken away: an order that comes late must not do its work again.
            return Err(Refusal::Gone { instance: spec.id });
        }
        let answer = {
            let mut instances = self.instances.lock().expect("nothing panics while it is held");
            match instances.get(&spec.id).filter(|handle| !handle.is_gone()) {
                Some(handle) => Err(handle.clone()),
                None => {
                    let (handle, answer) = self.begin(&spec)?;
                    instances.insert(spec.id.clone(), handle);
                    Ok(answer)
                }
            }
        };
        match answer {
            Ok(answer) => answer.await.unwrap_or(Err(Refusal::Gone { instance: spec.id })),
            Err(handle) => handle.order(Order::Start(Box::new(spec))).await,
        }
    }

    fn begin(&self, spec: &InstanceSpec) -> Result<(Handle, tokio::sync::oneshot::Receiver<Result<(), Refusal>>), Refusal> {
        // A run of a job listens nowhere.
        let listens = spec.job.is_none();
        let taken = || self.site.ports.lock().expect("nothing panics while it is held").take().ok_or(Refusal::NoPort);
        let port = if listens { taken()? } else { 0 };
        let dir = self.site.dir(spec.id.as_str());
        let record = instance::first_record(spec.clone(), port);
        let written = fs::create_dir_all(dir.join(LOGS_FOLDER)).and_then(|()| write_json(&dir.join(SPEC_FILE), &record));
        if let Err(error) = written {
            if !listens {
                return Err(at(&dir)(error).into());
            }
            self.site.ports.lock().expect("nothing panics while it is held").give_back(port);
            return Err(at(&dir)(error).into());
        }
        Ok(instance::begin(Arc::clone(&self.site), record))
    }

    async fn stop(&self, instance: &InstanceId) -> Result<(), Refusal> {
        let Some(handle) = self.find(instance) else { return Ok(()) };
        let view = handle.view();
        let used = || self.cpu_seconds(&view, &self.usage(&view.record.spec));
        let used = (self.site.isolation.kind() == Kind::None).then(used).flatten();
        handle.order(Order::Stop).await?;
        let mut instances = self.instances.lock().expect("nothing panics while it is held");
        if instances.get(instance).is_some_and(|now| now.is_gone() || now.view().record.port == view.record.port) {
            instances.remove(instance);
            let mut stopped = self.stopped_cpu.lock().expect("nothing panics while it is held");
            *stopped.entry(view.record.spec.node.clone()).or_default() += used.unwrap_or(0.0);
        }
        self.shim_work.forget(instance);
        self.sleepers.forget(instance);
        if view.record.spec.job.is_some() {
            return Ok(());
        }
        self.site.ports.lock().expect("nothing panics while it is held").give_back(view.record.port);
        Ok(())
    }

    async fn order(&self, instance: &InstanceId, order: Order) -> Result<(), Refusal> {
        let handle = self.find(instance).ok_or_else(|| no_instance(instance))?;
        handle.order(order).await
    }

    /// The instances of `app` that are not gone.
    pub(crate) fn instances_of(&self, app: &AppName) -> Vec<Handle> {
        let instances = self.instances.lock().expect("nothing panics while it is held");
        let of_app = |handle: &&Handle| !handle.is_gone() && handle.view().record.spec.app == *app;
        instances.values().filter(of_app).cloned().collect()
    }

    pub(crate) fn find(&self, instance: &InstanceId) -> Option<Handle> {
        self.instances.lock().expect("nothing panics while it is held").get(instance).cloned()
    }

    /// What the instance has used, with what its shims have done for it.
    fn cpu_seconds(&self, view: &instance::View, usage: &Usage) -> Option<f64> {
        let of_shims = self.shim_work.cpu_seconds(&self.site.proc, &view.record.spec.id, view.shim, view.sleeps_on());
        Some(usage.cpu_seconds? + view.memory.cpu_before_s + of_shims)
    }

    /// All instances that are not gone.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let instances = self.instances.lock().expect("nothing panics while it is held");
        instances.values().filter(|handle| !handle.is_gone()).cloned().collect()
    }

    fn observe(&self) -> AgentObservation {
        // Looked at first: who is stopped meanwhile is missing once, and not counted twice.
        let stopped = self.stopped_cpu.lock().expect("nothing panics while it is held").clone();
        let stopped_on = |node: &NodeSpec| stopped.get(&node.name).copied().unwrap_or(0.0);
        let instances: Vec<InstanceCounters> = self.handles().iter().map(|handle| self.observe_instance(handle)).collect();
        let nodes = self.nodes.lock().expect("nothing panics while it is held");
        let mut capabilities = capabilities::of(self.site.isolation.as_ref(), self.site.confinement, &self.site.proc);
        capabilities.losses.extend(self.run_as_root());
        AgentObservation {
            started: self.started,
            time: now(),
            capabilities,
            nodes: nodes.values().map(|node| self.observe_node(node, &instances, stopped_on(node))).collect(),
            instances,
        }
    }

    /// A sentence for each application that has all rights of this machine.
    fn run_as_root(&self) -> Vec<String> {
        if !rustix::process::geteuid().is_root() {
            return Vec::new();
        }
        let records = self.handles().into_iter().map(|handle| handle.view().record);
        let apps: BTreeSet<AppName> = records
            .filter(|record| record.launch.user.is_none() && !record.launch.argv.is_empty())
            .map(|record| record.spec.app)
            .collect();
        apps.into_iter().map(|app| format!("{app} runs as root: it can do anything on this machine")).collect()
    }

    fn observe_instance(&self, handle: &Handle) -> InstanceCounters {
        let view = handle.view();
        let asleep = view.sleeps_on().then_some(view.memory.since);
        let usage = self.sleepers.usage(&view.record.spec.id, asleep, Instant::now(), || self.usage(&view.record.spec));
        let progress = reported_progress(&view.record, &self.site.dir(view.record.spec.id.as_str()));
        let keeps_awake = keeps_awake(&view.record);
        let cpu_seconds = self.cpu_seconds(&view, &usage);
        let listener = view.listener();
        let (spec, memory) = (view.record.spec, view.memory);
        InstanceCounters {
            state: memory.state,
            detail: memory.detail,
            since: memory.since,
            pid: view.pid,
            address: address(view.record.port),
            cpu_seconds,
            memory_used: usage.memory.map(Bytes),
            disk_bytes: usage.disk_bytes,
            restarts: memory.restarts,
            start_took_s: memory.start_took_s,
            swap_used: usage.swap.map(Bytes),
            last_wake_s: memory.last_wake_s,
            costs: memory.costs.or(&self.site.costs.of(&spec.app)),
            end: memory.end,
            progress,
            keeps_awake,
            listener,
            spec,
        }
    }

    /// With what `instances` use, and where that is summed up here, `stopped_cpu` seconds of those that are gone.
    fn observe_node(&self, node: &NodeSpec, instances: &[InstanceCounters], stopped_cpu: f64) -> NodeCounters {
        let usage = self.site.isolation.node_usage(node.name.as_str());
        let own = || instances.iter().filter(|instance| instance.spec.node == node.name);
        let summed_cpu = || {
            let now = own().filter_map(|instance| instance.cpu_seconds).sum::<f64>() + stopped_cpu;
            let mut told = self.told_cpu.lock().expect("nothing panics while it is held");
            let told = told.entry(node.name.clone()).or_default();
            *told = told.max(now);
            *told
        };
        let summed_memory = || own().filter_map(|instance| instance.memory_used).sum::<Bytes>();
        let reserve = self.reserves.of(&node.name);
        NodeCounters {
            name: node.name.clone(),
            cpu_capacity: node.cpu,
            is_slice: node.cpu < weal_host::machine::cpus(),
            memory_capacity: node.memory,
            cpu_seconds: usage.cpu_seconds.unwrap_or_else(summed_cpu),
            memory_used: usage.memory.map_or_else(summed_memory, Bytes),
            cpu_pressure_seconds: usage.cpu_pressure_seconds,
            memory_reserve: reserve.memory,
            parked_for_reserve: reserve.parked,
        }
    }

    /// What instances leave of a node's memory; `None` when there is no such node.
    pub(crate) fn unused(&self, node: &NodeName) -> Option<Bytes> {
        let capacity = self.nodes.lock().expect("nothing panics while it is held").get(node)?.memory;
        let used = self.site.isolation.node_usage(node.as_str()).memory.unwrap_or_else(|| {
            let on_node = self.handles().into_iter().map(|handle| handle.view().record.spec).filter(|spec| spec.node == *node);
            on_node.filter_map(|spec| self.usage(&spec).memory).sum()
        });
        Some(capacity - Bytes(used))
    }

    fn usage(&self, spec: &InstanceSpec) -> Usage {
        let dir = self.site.dir(spec.id.as_str());
        self.site.isolation.usage(Member { node: spec.node.as_str(), instance: spec.id.as_str(), dir: &dir })
    }

    async fn output(&self, request: OutputRequest) -> Result<OutputPiece, RpcRefusal> {
        let (run, name) = (naming::task_id(&request.job, request.attempt, request.task), request.job.as_str());
        if !is_safe_name(name) {
            return Err(RpcRefusal::refused(400, bad_name("a job", name)));
        }
        let failed = |error: std::io::Error| RpcRefusal::internal(error.to_string());
        let wait = Duration::try_from_secs_f64(request.wait_s.clamp(0.0, 60.0)).unwrap_or_default();
        let deadline = tokio::time::Instant::now() + wait;
        let parsed = request.cursor.as_ref().map(|cursor| cursor.parse()).transpose();
        let mut cursor = parsed.map_err(|error: logs::BadCursor| RpcRefusal::bad_request(error.to_string()))?;
        loop {
            // Looked at first: what it writes before it ends is there when it has ended.
            let is_over = self.find(&run).is_none_or(|handle| handle.is_gone() || handle.view().memory.end.is_some());
            let Some(folder) = archive::logs_of(&self.site, run.as_str()) else {
                return Err(RpcRefusal::refused(404, Refusal::NoJob { job: request.job }));
            };
            let begin = match cursor {
                Some(cursor) => cursor,
                None => {
                    request.tail_lines.map_or(Ok(logs::Cursor::default()), |lines| logs::tail(&folder, lines)).map_err(failed)?
                }
            };
            let (bytes, next) = logs::read_bytes(&folder, begin).map_err(failed)?;
            if !bytes.is_empty() || is_over || tokio::time::Instant::now() >= deadline {
                let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
                return Ok(OutputPiece { data, next: next.to_string(), is_over: is_over && bytes.is_empty() });
            }
            cursor = Some(begin);
            tokio::time::sleep(LOG_POLL).await;
        }
    }

    async fn logs(&self, request: LogsRequest) -> Result<LogsChunk, RpcRefusal> {
        if !is_safe_name(request.instance.as_str()) {
            return Err(RpcRefusal::refused(400, bad_name("an instance", request.instance.as_str())));
        }
        let wait = Duration::try_from_secs_f64(request.wait_s.clamp(0.0, 60.0)).unwrap_or_default();
        let deadline = tokio::time::Instant::now() + wait;
        let mut request = request;
        loop {
            let chunk = self.site.logbook.read(&request).map_err(unreadable)?;
            if !chunk.text.is_empty() || chunk.is_over || tokio::time::Instant::now() >= deadline {
                return Ok(chunk);
            }
            request.cursor = Some(chunk.next);
            tokio::time::sleep(LOG_POLL).await;
        }
    }

    /// Writes down again what was removed of the state directory, all of it or a part, so that the next agent finds every instance that runs. One
    /// that is being stopped is left out: what it leaves is ended by the next agent.
    pub fn restore_files(&self) {
        let views = self.handles().into_iter().map(|handle| handle.view());
        let views: Vec<_> = views.filter(|view| view.memory.state != InstanceState::Stopping).collect();
        let nodes: Vec<NodeSpec> = self.nodes.lock().expect("nothing panics while it is held").values().cloned().collect();
        let written = lost::write_down(&self.site, &self.dir, &views);
        match written.and_then(|count| write_missing_json(&self.dir.join(NODES_FILE), &nodes).map(|()| count)) {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "the records of instances were removed: what runs is written down again"),
            Err(error) => tracing::error!(%error, "the records of instances were removed, and what runs cannot be written down"),
        }
    }

    /// Takes away the groups that hold nothing any more.
    pub fn clear(&self) {
        self.site.isolation.clear();
    }
}

/// The nodes that an agent was last told, whose folder is `dir`.
pub(crate) fn node_names(dir: &Path) -> Vec<String> {
    let nodes: Vec<NodeSpec> = read_json(&dir.join(NODES_FILE)).ok().flatten().unwrap_or_default();
    nodes.into_iter().map(|node| node.name.to_string()).collect()
}

fn instance_of(command: &Command) -> InstanceId {
    match command {
        Command::Start { spec } => spec.id.clone(),
        Command::Stop { instance }
        | Command::Sleep { instance, .. }
        | Command::Resume { instance }
        | Command::SetCpu { instance, .. } => instance.clone(),
    }
}

pub(crate) fn no_instance(instance: &InstanceId) -> Refusal {
    Refusal::NoInstance { instance: instance.clone() }
}

/// How far a run of a job says it is, whose folder is `dir`.
fn reported_progress(record: &Record, dir: &Path) -> Option<f64> {
    record.spec.job.as_ref()?;
    let written = record.launch.env.get(progress::VARIABLE).and_then(|path| progress::read(Path::new(path)));
    written.or_else(|| progress::said(&dir.join(LOGS_FOLDER)))
}

/// Whether an instance says that it must not sleep.
fn keeps_awake(record: &Record) -> bool {
    record.launch.env.get(awake::VARIABLE).is_some_and(|path| awake::is_wanted(Path::new(path), std::time::SystemTime::now()))
}

fn bad_name(what: &str, name: &str) -> Refusal {
    Refusal::BadName { what: what.to_owned(), name: name.to_owned() }
}

/// What comes over the socket becomes names of folders and groups, and the agent may be root.
fn check(spec: &InstanceSpec) -> Result<(), Refusal> {
    let job = spec.job.as_ref().map_or("job", |run| run.job.as_str());
    let names = [
        ("an instance", spec.id.as_str()),
        ("an application", spec.app.as_str()),
        ("an application", spec.owner().as_str()),
        ("a node", spec.node.as_str()),
        ("a job", job),
    ];
    if let Some((what, name)) = names.into_iter().find(|(_, name)| !is_safe_name(name)) {
        return Err(bad_name(what, name));
    }
    let has_own_folder = (spec.job.is_some() || spec.process.image.is_some()) && spec.cwd.is_empty();
    if !has_own_folder && !Path::new(&spec.cwd).is_absolute() {
        return Err(Refusal::RelativeFolder { folder: spec.cwd.clone() });
    }
    Ok(())
}

fn unreadable(error: LogError) -> RpcRefusal {
    match error {
        LogError::Unknown(instance) => RpcRefusal::refused(404, no_instance(&instance)),
        LogError::Cursor(error) => RpcRefusal::bad_request(error.to_string()),
        LogError::Io(error) => RpcRefusal::internal(error.to_string()),
    }
}

/// Whether a name that somebody else gave leads nowhere when it becomes that of a folder.
pub(crate) fn is_safe_name(name: &str) -> bool {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= 100 && !name.starts_with(['.', '-']) && name.chars().all(is_safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for bad in ["", ".", "..", "../x", "a/b", ".shims", "-x", "a b", "a\0"] {
            assert!(!is_safe_name(bad), "{bad:?}");
        }
        for good in ["shop-1", "a.b_c-22"] {
            assert!(is_safe_name(good));
        }
    }
}
