//! From an action to an operation: whether it can be begun now, what drains first, and when the engine gets it.

use std::sync::Arc;
use std::time::Duration;

use weal_model::{Action, AppName, AppSpec, Bytes, InstanceState, JobName, JobObservation, JobState, NodeName, PoolSpec, Time};
use weal_protocol::engine::{InstanceSeen, JobOrder, RunState};

use super::effect::Effect;
use super::notes;
use super::put_off::PutOff;
use super::state::{State, node_of};
use super::status::unready_need;
use super::tasks::undone;
use crate::jobs::Job;
use crate::placement::asleep_memory;

/// As long as a request may take at most: whoever is still there afterwards is a stream without end.
const LONGEST_DRAIN_S: f64 = 600.0;
/// For an application that is not in the config any more.
const DEFAULT_DRAIN_S: f64 = 30.0;

impl State {
    /// Begins a plan's actions. A target that was to go but stays for now, since something else is being done to it, still has its place:
    /// what was to come in its stead, of its application or on its node, is left to a later plan.
    pub(super) fn begin_all(&mut self, now: Time, actions: Vec<(Action, String)>) {
        let mut kept: Vec<(AppName, NodeName)> = Vec::new();
        self.placing.put_off.clear();
        for (action, reason) in actions {
            let place = self.place_of(&action);
            let taken = |place: &(AppName, NodeName)| kept.iter().any(|(app, node)| *app == place.0 || *node == place.1);
            match &action {
                Action::Start { .. } | Action::Resume { .. } if place.as_ref().is_some_and(taken) => {
                    self.put_off(&action, PutOff::PlaceTaken);
                    continue;
                }
                Action::Stop { .. } | Action::Sleep { .. } if self.operations.contains(&action.target()) => kept.extend(place),
                Action::Start { .. }
                | Action::Resume { .. }
                | Action::Stop { .. }
                | Action::Sleep { .. }
                | Action::StartJob { .. }
                | Action::PauseJob { .. }
                | Action::EndJob { .. }
                | Action::SuspendJob { .. }
                | Action::ResumeJob { .. }
                | Action::MigrateJob { .. }
                | Action::SetJobCpu { .. } => {}
            }
            self.begin(now, action, &reason);
        }
    }

    /// The application and the node that an action on an instance is about.
    fn place_of(&self, action: &Action) -> Option<(AppName, NodeName)> {
        match action {
            Action::Start { app, node, .. } => Some((app.clone(), node.clone())),
            Action::Stop { instance, app } | Action::Sleep { instance, app, .. } | Action::Resume { instance, app } => {
                self.engine.instance(instance).map(|seen| (app.clone(), seen.node.clone()))
            }
            Action::StartJob { .. }
            | Action::PauseJob { .. }
            | Action::EndJob { .. }
            | Action::SuspendJob { .. }
            | Action::ResumeJob { .. }
            | Action::MigrateJob { .. }
            | Action::SetJobCpu { .. } => None,
        }
    }

    /// Begins one action, or leaves it to a later plan when it cannot be done yet.
    pub(super) fn begin(&mut self, now: Time, action: Action, reason: &str) {
        let Some(pool) = self.pool() else { return };
        let action = match self.in_place(action) {
            Ok(action) => action,
            Err((action, why)) => return self.put_off(&action, why),
        };
        let target = action.target();
        if self.set_job_speed(&action) {
            return;
        }
        if let Some(why) = self.obstacle(now, &pool, &action) {
            return self.put_off(&action, why);
        }
        let job = self.job_order(&action).map(Box::new);
        if let Action::SetJobCpu { .. } = action {
            // It changes a number and lasts no time, so it is no operation: a job that is being started has its speed set too.
            return self.push(Effect::Act { pool, action, job });
        }
        let drain = self.drain(now, &pool, &action);
        let Some(at_once) = self.operations.begin(action.clone(), drain) else {
            return self.put_off(&action, PutOff::UnderWay);
        };
        if let (Action::Start { .. }, Some(instance)) = (&action, target.instance()) {
            self.placing.starts.handle_begun(instance);
        }
        self.queue.handle_begun(&action);
        self.note(notes::action(&action, reason).begins(&action));
        self.counts.actions += 1;
        if at_once {
            self.push(Effect::Act { pool, action, job });
        }
    }

    fn put_off(&mut self, action: &Action, why: PutOff) {
        *self.counts.put_off.entry(why).or_default() += 1;
        self.placing.put_off.note(action, why);
    }

    /// Why an action cannot be begun now; `None` when it can.
    fn obstacle(&self, now: Time, pool: &PoolSpec, action: &Action) -> Option<PutOff> {
        let no_room = |has_room: bool| (!has_room).then_some(PutOff::NoRoom);
        match action {
            Action::Start { app, node, .. } => match pool.apps.get(app) {
                Some(spec) => self.obstacle_to_start(now, spec).or_else(|| no_room(self.room(pool, node) >= spec.memory)),
                None => Some(PutOff::NotThere),
            },
            // What makes room for a parked one may not be done yet.
            Action::Resume { instance, .. } => match self.engine.instance(instance) {
                Some(seen) => no_room(seen.state.holds_memory() || self.room(pool, &seen.node) >= seen.memory_limit),
                None => Some(PutOff::NotThere),
            },
            Action::Stop { instance, app } | Action::Sleep { instance, app, .. } => {
                let is_told = self.sleep.resting.contains_key(app) || pool.apps.get(app).is_some_and(|app| app.halted);
                let is_needed = !is_told && self.sleep.was_just_woken(now, instance, self.timers.flow_cycle());
                let is_there = self.engine.instance(instance).is_some();
                if is_there { is_needed.then_some(PutOff::JustWoken) } else { Some(PutOff::NotThere) }
            }
            Action::StartJob { job, nodes } | Action::ResumeJob { job, nodes } | Action::MigrateJob { job, nodes } => {
                match self.job(job) {
                    Some(seen) => no_room(self.has_room_for(pool, seen, nodes)),
                    None => Some(PutOff::NotThere),
                }
            }
            Action::PauseJob { .. } | Action::EndJob { .. } => None,
            Action::SuspendJob { job } => {
                let runs = self.job(job).is_some_and(|seen| seen.state == JobState::Running);
                (!runs).then_some(PutOff::NotThere)
            }
            Action::SetJobCpu { job, .. } => self.job(job).is_none().then_some(PutOff::NotThere),
        }
    }

    /// Why an instance cannot be started now, wherever it is.
    fn obstacle_to_start(&self, now: Time, app: &AppSpec) -> Option<PutOff> {
        let instances = self.engine.instances();
        let has_open_task = self.config.as_ref().is_some_and(|config| undone(app, instances, &config.revisions).is_some());
        if unready_need(app, instances).is_some() || has_open_task {
            return Some(PutOff::NeedNotReady);
        }
        // An instance that is started before the gateway has said so calls what it needs directly, and is replaced once the gateway has.
        if !app.needs.iter().all(|needed| self.gateway.has_said_where_calls_go(needed)) {
            return Some(PutOff::NoInnerAddress);
        }
        (!self.placing.starts.may_start(now, &app.name)).then_some(PutOff::Pauses)
    }

    /// `action` as this engine can do it: where jobs do not move, one is resumed where it is. What cannot be done comes back with the reason.
    fn in_place(&self, action: Action) -> Result<Action, (Action, PutOff)> {
        let moves = self.engine.capabilities().is_some_and(|can| can.moves_jobs);
        let run = |job: &JobName| self.queue.get(job).filter(|entry| entry.run.is_some());
        match action {
            Action::ResumeJob { job, nodes } if !moves => {
                let nodes: Vec<NodeName> = run(&job).map_or(nodes, |entry| entry.nodes.clone());
                Ok(Action::ResumeJob { job, nodes })
            }
            Action::MigrateJob { .. } if !moves => Err((action, PutOff::CannotMove)),
            Action::StartJob { ref job, .. } if run(job).is_some() => Err((action, PutOff::UnderWay)),
            action => Ok(action),
        }
    }

    /// What an engine needs for an action on a job of the queue.
    pub(super) fn job_order(&self, action: &Action) -> Option<JobOrder> {
        let seen = self.engine.seen.as_ref();
        self.queue.order(action, seen.map_or(&[], |seen| seen.runs.as_slice()))
    }

    /// What the plan's speed for a job is, if it is one of the queue: told once its run runs.
    fn set_job_speed(&mut self, action: &Action) -> bool {
        let Action::SetJobCpu { job, cpu } = action else { return false };
        let Some(entry) = self.queue.get_mut(job) else { return false };
        entry.speed = Some(*cpu);
        entry.run.as_ref().is_none_or(|run| run.state != RunState::Running)
    }

    /// Until when an action waits for the requests of its instance at most; `None` when it need not.
    fn drain(&self, now: Time, pool: &PoolSpec, action: &Action) -> Option<Time> {
        let (Action::Stop { instance, app } | Action::Sleep { instance, app, .. }) = action else { return None };
        let seen = self.engine.instance(instance)?;
        let serves = matches!(seen.state, InstanceState::Ready | InstanceState::Unhealthy);
        let has_routes = pool.apps.get(app).is_none_or(|spec| !spec.routes.is_empty() || pool.needed().contains(app));
        let is_stop = matches!(action, Action::Stop { .. });
        let stop_s = |app: &AppSpec| app.drain_timeout_s.filter(|_| is_stop);
        let longest_s = pool.apps.get(app).map_or(DEFAULT_DRAIN_S, |app| stop_s(app).unwrap_or(app.request_timeout_s));
        (serves && has_routes).then(|| now + Duration::from_secs_f64(longest_s.clamp(0.0, LONGEST_DRAIN_S)))
    }

    fn job(&self, name: &JobName) -> Option<&JobObservation> {
        self.queue.planned().iter().find(|job| job.spec.name == *name)
    }

    fn has_room_for(&self, pool: &PoolSpec, job: &JobObservation, nodes: &[NodeName]) -> bool {
        nodes.iter().all(|node| self.room(pool, node) >= memory_of_tasks(job, nodes, node))
    }

    /// Memory of `node` that nothing holds, counted as placement counts it: by what each instance and each task may use, and by what was
    /// measured of one that sleeps.
    pub(super) fn room(&self, pool: &PoolSpec, node: &NodeName) -> Bytes {
        self.room_beside(pool, node, None)
    }

    /// The same without what one job holds.
    pub(super) fn room_beside(&self, pool: &PoolSpec, node: &NodeName, without: Option<&JobName>) -> Bytes {
        let capacity = node_of(pool, node).map_or(Bytes(0), |spec| spec.memory);
        let instances = self.engine.instances();
        let here = instances.iter().filter(|seen| seen.node == *node && seen.state.holds_memory());
        let held: Bytes = here.map(|seen| held_by(seen, capacity)).sum();
        let jobs = self.queue.planned().iter().filter(|job| Some(&job.spec.name) != without);
        let jobs: Bytes = jobs.map(|job| memory_on(job, node)).sum();
        let coming: Bytes = self.operations.iter().map(|(_, operation)| self.coming(pool, node, &operation.action)).sum();
        let withheld = self.queue.withheld(self.engine.seen.as_ref().map_or(Time::ZERO, |seen| seen.time), node);
        capacity - held - jobs - withheld - coming
    }

    /// Memory of `node` that an operation will take and that no observation shows yet.
    fn coming(&self, pool: &PoolSpec, node: &NodeName, action: &Action) -> Bytes {
        match action {
            Action::Start { instance, app, node: to } => {
                let is_shown = to != node || self.engine.instance(instance).is_some();
                pool.apps.get(app).filter(|_| !is_shown).map_or(Bytes(0), |app| app.memory)
            }
            Action::StartJob { job, nodes } | Action::ResumeJob { job, nodes } => {
                let seen = self.job(job).filter(|seen| seen.state != JobState::Running);
                seen.map_or(Bytes(0), |seen| memory_of_tasks(seen, nodes, node))
            }
            // It holds memory where it is until it is gone from there.
            Action::MigrateJob { job, nodes } => self.job(job).map_or(Bytes(0), |seen| {
                let held = memory_on(seen, node);
                memory_of_tasks(seen, nodes, node) - held
            }),
            Action::Stop { .. }
            | Action::Sleep { .. }
            | Action::Resume { .. }
            | Action::PauseJob { .. }
            | Action::EndJob { .. }
            | Action::SuspendJob { .. }
            | Action::SetJobCpu { .. } => Bytes(0),
        }
    }

    /// Gives the engine what has been drained.
    pub(super) fn hand_over_drained(&mut self, now: Time) {
        let Some(pool) = self.pool() else { return };
        let counters = self.gateway.fresh_counters(now);
        for action in self.operations.poll_drained(now, counters.as_deref()) {
            self.push(Effect::Act { pool: Arc::clone(&pool), action, job: None });
        }
    }
}

/// Memory that an instance holds on a node of `capacity`.
fn held_by(seen: &InstanceSeen, capacity: Bytes) -> Bytes {
    if seen.state.is_asleep() { asleep_memory(seen.memory_used, seen.memory_limit, capacity) } else { seen.memory_limit }
}

/// Memory of one task of a job, in the stage that it is in.
fn memory_of(job: &JobObservation) -> Bytes {
    let stage = Job::observed(job, |_| None).stages_left().next().map(|(stage, _)| stage);
    stage.or(job.spec.stages.last().copied()).map_or(Bytes(0), |stage| stage.memory)
}

/// Memory that a job's tasks hold on a node.
fn memory_on(job: &JobObservation, node: &NodeName) -> Bytes {
    if job.state == JobState::Running { memory_of_tasks(job, &job.nodes, node) } else { Bytes(0) }
}

/// Memory on `node` of a job whose tasks are on `nodes`.
fn memory_of_tasks(job: &JobObservation, nodes: &[NodeName], node: &NodeName) -> Bytes {
    let tasks = nodes.iter().filter(|at| *at == node).count() as u64;
    if tasks == 0 { Bytes(0) } else { Bytes(memory_of(job).0.saturating_mul(tasks)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weal_model::{Cpu, JobRecord, NodeSpec};
    use weal_protocol::engine::Observation;
    use weal_protocol::gateway::GatewayCounters;

    use super::super::effect::{Config, Start};
    use super::super::queue::Written;
    use super::super::queue::tests::{record, run};
    use super::*;
    use crate::jobs::Costs;

    fn instance(number: u32, state: InstanceState, used: Option<Bytes>) -> InstanceSeen {
        let id = format!("a-{number}");
        InstanceSeen { state, memory_limit: Bytes::mib(100), memory_used: used, ..InstanceSeen::example(&id, "a", "n1") }
    }

    /// The room of a node of 1000 MiB on which these are.
    fn room(instances: Vec<InstanceSeen>) -> Bytes {
        let mut pool = PoolSpec::example();
        pool.nodes = vec![NodeSpec { name: "n1".into(), cpu: Cpu(1.0), memory: Bytes::mib(1000), utilization_limit: 0.9 }];
        let pool = Arc::new(pool);
        let config = Config { generation: 1, pool: Arc::clone(&pool), revisions: BTreeMap::new() };
        let start = Start::first("gw".into(), Some(config), Costs::THESIS);
        let mut state = State::new(Time::ZERO, start);
        state.engine.seen = Some(Arc::new(Observation { instances, ..Observation::default() }));
        state.room(&pool, &"n1".into())
    }

    #[test]
    fn what_cannot_be_begun_is_counted_by_its_reason_and_a_start_is_told_of() {
        let mut pool = PoolSpec::example();
        pool.nodes = vec![NodeSpec { name: "n1".into(), cpu: Cpu(1.0), memory: Bytes::mib(150), utilization_limit: 0.9 }];
        let app = |name: &str| AppSpec { memory: Bytes::mib(100), ..AppSpec::example(name) };
        let needy = AppSpec { needs: ["a".into()].into(), ..app("b") };
        pool.apps = [("a".into(), app("a")), ("b".into(), needy)].into();
        let config = Config { generation: 1, pool: Arc::new(pool), revisions: BTreeMap::new() };
        let mut state = State::new(Time::ZERO, Start::first("gw".into(), Some(config), Costs::THESIS));
        let there = vec![instance(1, InstanceState::Stopping, None)];
        state.engine.seen = Some(Arc::new(Observation { instances: there, ..Observation::default() }));
        let start = |id: &str, app: &str| Action::Start { instance: id.into(), app: app.into(), node: "n1".into() };
        let migrate = Action::MigrateJob { job: "j".into(), nodes: vec!["n1".into()] };
        let stop = Action::Stop { instance: "a-9".into(), app: "a".into() };
        for action in [start("a-2", "a"), start("b-1", "b"), migrate, stop] {
            state.begin(Time::ZERO, action, "a test");
        }
        let counted: Vec<(&str, u64)> = state.counts.put_off.iter().map(|(why, count)| (why.as_str(), *count)).collect();
        assert_eq!(counted, [("no-room", 1), ("need-not-ready", 1), ("not-there", 1), ("cannot-move", 1)]);
        assert_eq!(state.counts.actions, 0);
        let told = state.placing.put_off.reasons();
        assert_eq!(told.keys().map(AppName::as_str).collect::<Vec<_>>(), ["a"], "what it needs is told otherwise");
        state.begin_all(Time::ZERO, Vec::new());
        assert!(state.placing.put_off.reasons().is_empty(), "the next plan does not want it");
    }

    /// Its address for `a` would be another a moment later, and it would be replaced for that.
    #[test]
    fn who_comes_to_need_another_starts_once_the_gateway_has_said_where_calls_go() {
        let mut pool = PoolSpec::example();
        pool.nodes = vec![NodeSpec { name: "n1".into(), cpu: Cpu(1.0), memory: Bytes::mib(1000), utilization_limit: 0.9 }];
        let app = |name: &str| AppSpec { memory: Bytes::mib(100), ..AppSpec::example(name) };
        pool.apps = [("a".into(), app("a"))].into();
        let config =
            |generation, pool: &PoolSpec| Config { generation, pool: Arc::new(pool.clone()), revisions: BTreeMap::new() };
        let mut state = State::new(Time::ZERO, Start::first("gw".into(), Some(config(1, &pool)), Costs::THESIS));
        let there = vec![instance(1, InstanceState::Ready, None)];
        state.engine.seen = Some(Arc::new(Observation { instances: there, ..Observation::default() }));
        let counters = GatewayCounters::none("gw".into(), Time::ZERO, Time::ZERO);
        state.gateway.look.want();
        state.look(Time::ZERO);
        state.gateway.handle_counters(Some(counters.clone()));
        pool.apps.insert("b".into(), AppSpec { needs: ["a".into()].into(), ..app("b") });
        state.put_in_force(config(2, &pool));
        let start = || Action::Start { instance: "b-1".into(), app: "b".into(), node: "n1".into() };
        let why = |state: &State| state.placing.put_off.reasons().get("b").copied();
        state.begin_all(Time::ZERO, vec![(start(), String::new())]);
        assert_eq!(
            (state.counts.actions, why(&state)),
            (0, Some("the gateway has not said yet where calls to what it needs go"))
        );
        let address = ([127, 0, 0, 1], 7).into();
        state.look(Time::ZERO);
        state.gateway.handle_counters(Some(GatewayCounters { inner_addresses: [("a".into(), address)].into(), ..counters }));
        assert!(
            state.gateway.take_said_where_calls_go() && !state.gateway.take_said_where_calls_go(),
            "another plan is made once"
        );
        state.follow_inner_addresses();
        state.begin_all(Time::ZERO, vec![(start(), String::new())]);
        assert_eq!((state.counts.actions, why(&state)), (1, None));
        assert_eq!(state.pool().unwrap().apps["a"].inner, Some(address), "it is told this address at its start");
    }

    #[test]
    fn a_job_that_moves_takes_room_where_it_goes_before_it_is_there() {
        let node = |name: &str| NodeSpec { name: name.into(), cpu: Cpu(1.0), memory: Bytes::mib(1000), utilization_limit: 0.9 };
        let pool = Arc::new(PoolSpec { nodes: vec![node("n1"), node("n2")], ..PoolSpec::example() });
        let config = Config { generation: 1, pool: Arc::clone(&pool), revisions: BTreeMap::new() };
        let mut state = State::new(Time::ZERO, Start::first("gw".into(), Some(config), Costs::THESIS));
        state.queue.enter(JobRecord { begun: true, ..record("j-1", 1, 0) }, Written::Yes);
        let seen = Observation { runs: vec![run("j-1", 1, RunState::Running)], ..Observation::default() };
        state.queue.handle_seen(Time::ZERO, &seen, &state.operations);
        let room = |state: &State| ["n1", "n2"].map(|node| state.room(&pool, &node.into()));
        assert_eq!(room(&state), [Bytes::mib(900), Bytes::mib(1000)]);
        let moves = |nodes: &[&str]| Action::MigrateJob { job: "j-1".into(), nodes: nodes.iter().map(|n| (*n).into()).collect() };
        state.operations.begin(moves(&["n2"]), None);
        assert_eq!(room(&state), [Bytes::mib(900), Bytes::mib(900)]);
        assert_eq!(state.coming(&pool, &"n1".into(), &moves(&["n1"])), Bytes(0), "there it has its memory already");
    }

    #[test]
    fn a_sleeper_holds_what_was_measured_as_plans_count_it() {
        let measured = Some(Bytes::mib(10));
        assert_eq!(room(vec![instance(1, InstanceState::Ready, measured)]), Bytes::mib(900));
        assert_eq!(
            room(vec![instance(1, InstanceState::Suspended, measured), instance(2, InstanceState::Warm, measured)]),
            Bytes::mib(980)
        );
        assert_eq!(room(vec![instance(1, InstanceState::Suspended, None)]), Bytes::mib(900), "nobody has measured it");
        assert_eq!(
            room(vec![instance(1, InstanceState::Suspended, Some(Bytes::gib(9)))]),
            Bytes::mib(900),
            "that is no measurement"
        );
        assert_eq!(room(vec![instance(1, InstanceState::Parked, measured)]), Bytes::mib(1000));
    }
}
