//! An independent judge of plans: capacity, memory, constraints, starvation, churn. It shares no code with the planners.
//!
//! [`check`] replays a plan's actions, one after the other, on the snapshot it was made for, and reports what would break.
//! It is asked in tests, in simulations, and before a plan is applied in a running pool. What was broken before and is not
//! made worse is no finding: a pool that somebody over-committed by hand must still be able to heal.
//!
//! [`dense`] judges the planner's own arrays in the same spirit, for property tests on tens of thousands of problems.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{
    Action, AppName, AppSpec, Bytes, Cpu, InstanceId, InstanceState, JobName, JobState, NodeName, NodeObservation, Plan,
    PoolSpec, Rung, Snapshot,
};

pub mod dense;
mod finding;
mod jobs;

pub use finding::{BadShare, Finding, Impossible};
use jobs::HeldJob;

/// What is wrong with `plan`; empty when it can be applied to `snapshot` under `pool`.
pub fn check(snapshot: &Snapshot, pool: &PoolSpec, plan: &Plan) -> Vec<Finding> {
    let mut replay = Replay::of(snapshot, pool);
    if plan.generation != snapshot.generation {
        replay.findings.push(Finding::Generation { plan: plan.generation, snapshot: snapshot.generation });
    }
    for action in &plan.actions {
        replay.apply(action);
    }
    replay.judge_bounds();
    replay.judge_neighbours();
    replay.judge_starvation(plan);
    replay.judge_shares(plan);
    replay.judge_placement(plan);
    replay.findings
}

/// A plan for a snapshot that an earlier plan led to, with nothing changed since, must be empty.
pub fn check_stable(plan: &Plan) -> Vec<Finding> {
    if plan.actions.is_empty() { Vec::new() } else { vec![Finding::Churn { actions: plan.actions.len() }] }
}

#[derive(Debug, Clone)]
struct Held {
    app: AppName,
    node: NodeName,
    state: InstanceState,
    memory: Bytes,
    /// The plan brought it here or woke it.
    new: bool,
}

struct Replay<'a> {
    pool: &'a PoolSpec,
    nodes: BTreeMap<&'a NodeName, &'a NodeObservation>,
    held: BTreeMap<InstanceId, Held>,
    /// What the plan ends: it is there until that is done.
    ending: Vec<Held>,
    jobs: BTreeMap<JobName, HeldJob>,
    /// Applications that lost an instance.
    shrunk: BTreeSet<AppName>,
    findings: Vec<Finding>,
}

impl<'a> Replay<'a> {
    fn of(snapshot: &'a Snapshot, pool: &'a PoolSpec) -> Self {
        let held = snapshot.instances.iter().map(|instance| {
            let spec = pool.apps.get(&instance.app).map_or(Bytes(0), |spec| spec.memory);
            let asleep = instance.state.is_asleep();
            let node = snapshot.nodes.iter().find(|node| node.name == instance.node);
            // More than the node has is no measurement.
            let measured = instance.memory_used.filter(|used| node.is_none_or(|node| *used <= node.memory_capacity));
            let memory = if asleep { measured.unwrap_or(spec) } else { spec };
            let held = Held { app: instance.app.clone(), node: instance.node.clone(), state: instance.state, memory, new: false };
            (instance.id.clone(), held)
        });
        Self {
            pool,
            nodes: snapshot.nodes.iter().map(|node| (&node.name, node)).collect(),
            held: held.collect(),
            ending: Vec::new(),
            jobs: HeldJob::all(snapshot),
            shrunk: BTreeSet::new(),
            findings: Vec::new(),
        }
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::Start { instance, app, node } => self.start(action, instance, app, node),
            Action::Stop { instance, .. } => self.change(action, instance, |_| true, None),
            Action::Sleep { instance, rung, .. } => self.sleep(action, instance, *rung),
            Action::Resume { instance, .. } => self.resume(action, instance),
            Action::StartJob { job, nodes } => self.bring_job(action, job, JobState::Pending, nodes),
            Action::ResumeJob { job, nodes } => self.bring_job(action, job, JobState::Suspended, nodes),
            Action::MigrateJob { job, nodes } => self.bring_job(action, job, JobState::Running, nodes),
            Action::PauseJob { .. } | Action::EndJob { .. } => self.impossible(action, Impossible::NotAPlans),
            Action::SuspendJob { job } => _ = self.change_job(action, job, HeldJob::suspend),
            Action::SetJobCpu { job, cpu } => _ = self.change_job(action, job, |held| held.set_cpu(*cpu)),
        }
    }

    fn change_job(
        &mut self,
        action: &Action,
        job: &JobName,
        change: impl FnOnce(&mut HeldJob) -> Result<(), Impossible>,
    ) -> bool {
        let done = self.jobs.get_mut(job).map_or(Err(Impossible::Missing), change);
        done.map_err(|why| self.impossible(action, why)).is_ok()
    }

    fn bring_job(&mut self, action: &Action, job: &JobName, from: JobState, nodes: &[NodeName]) {
        let up: BTreeSet<NodeName> = self.nodes.values().filter(|node| node.up).map(|node| node.name.clone()).collect();
        if !self.change_job(action, job, |held| held.bring(from, nodes, |node| up.contains(node))) {
            return;
        }
        for node in nodes.iter().collect::<BTreeSet<_>>() {
            let (used, capacity) = (self.memory_used(node), self.nodes.get(node).map_or(Bytes(0), |node| node.memory_capacity));
            if used > capacity {
                self.findings.push(Finding::JobMemory { node: node.clone(), job: job.clone(), used, capacity });
            }
        }
    }

    fn memory_used(&self, node: &NodeName) -> Bytes {
        // One that waits to be started again will want its memory back.
        let holds = |state: InstanceState| state.holds_memory() || state.is_active();
        let instances: Bytes = self.on_node(node).filter(|held| holds(held.state)).map(|held| held.memory).sum();
        instances + self.jobs.values().map(|job| job.memory_on(node)).sum()
    }

    fn impossible(&mut self, action: &Action, why: Impossible) {
        self.findings.push(Finding::Impossible { action: action.clone(), why });
    }

    fn answers(&self, node: &NodeName) -> Result<(), Impossible> {
        let is_up = self.nodes.get(node).is_some_and(|node| node.up);
        is_up.then_some(()).ok_or_else(|| Impossible::NodeDown { node: node.clone() })
    }

    fn start(&mut self, action: &Action, instance: &InstanceId, app: &AppName, node: &NodeName) {
        match self.try_start(instance, app, node) {
            Ok(()) => self.judge_memory(instance, node),
            Err(why) => self.impossible(action, why),
        }
    }

    fn try_start(&mut self, instance: &InstanceId, app: &AppName, node: &NodeName) -> Result<(), Impossible> {
        let spec = self.pool.apps.get(app).ok_or_else(|| Impossible::NoApplication { app: app.clone() })?;
        if self.held.contains_key(instance) {
            return Err(Impossible::Exists);
        }
        self.answers(node)?;
        let held = Held { app: app.clone(), node: node.clone(), state: InstanceState::Starting, memory: spec.memory, new: true };
        self.held.insert(instance.clone(), held);
        Ok(())
    }

    fn change(
        &mut self,
        action: &Action,
        instance: &InstanceId,
        allowed: impl Fn(InstanceState) -> bool,
        to: Option<InstanceState>,
    ) {
        let Some(held) = self.held.get_mut(instance) else { return self.impossible(action, Impossible::Missing) };
        let (state, app) = (held.state, held.app.clone());
        if !allowed(state) {
            return self.impossible(action, Impossible::InstanceState { state });
        }
        if state.is_active() {
            self.judge_removal(instance, &app);
        }
        match to {
            Some(to) => self.held.get_mut(instance).expect("it was found above").state = to,
            None => self.ending.extend(self.held.remove(instance)),
        }
    }

    fn judge_removal(&mut self, instance: &InstanceId, app: &AppName) {
        let Some(spec) = self.pool.apps.get(app) else { return };
        if spec.pinned || spec.manual {
            let how = if spec.pinned { "pinned" } else { "in manual mode" };
            self.findings.push(Finding::Constraint { app: app.clone(), what: format!("is {how} and would lose `{instance}`") });
        }
        self.shrunk.insert(app.clone());
    }

    /// A ready instance goes to sleep, or one that sleeps changes its rung; a lighter one takes its memory back.
    fn sleep(&mut self, action: &Action, instance: &InstanceId, rung: Rung) {
        let before = self.held.get(instance).map(|held| (held.state.rung(), held.node.clone()));
        let may = |state: InstanceState| state == InstanceState::Ready || state.is_asleep() && state != rung.state();
        self.change(action, instance, may, Some(rung.state()));
        if let Some((Some(Rung::Parked), node)) = before
            && rung != Rung::Parked
        {
            self.judge_memory(instance, &node);
        }
    }

    fn resume(&mut self, action: &Action, instance: &InstanceId) {
        let Some(held) = self.held.get_mut(instance) else { return self.impossible(action, Impossible::Missing) };
        if !held.state.is_asleep() {
            let state = held.state;
            return self.impossible(action, Impossible::InstanceState { state });
        }
        let was_paged_out = held.state != InstanceState::Suspended;
        (held.state, held.new) = (InstanceState::Ready, true);
        if was_paged_out {
            held.memory = self.pool.apps.get(&held.app).map_or(held.memory, |spec| spec.memory);
        }
        let node = held.node.clone();
        if let Err(why) = self.answers(&node) {
            return self.impossible(action, why);
        }
        if was_paged_out {
            self.judge_memory(instance, &node);
        }
    }

    fn judge_memory(&mut self, instance: &InstanceId, node: &NodeName) {
        let used = self.memory_used(node);
        let capacity = self.nodes.get(node).map_or(Bytes(0), |node| node.memory_capacity);
        if used > capacity {
            self.findings.push(Finding::Memory { node: node.clone(), instance: instance.clone(), used, capacity });
        }
    }

    fn on_node<'b>(&'b self, node: &'b NodeName) -> impl Iterator<Item = &'b Held> {
        self.held.values().filter(move |held| held.node == *node)
    }

    fn running<'b>(&'b self, app: &'b AppName) -> impl Iterator<Item = &'b Held> {
        let up = |held: &&Held| self.nodes.get(&held.node).is_some_and(|node| node.up);
        self.held.values().filter(move |held| held.app == *app && held.state.is_active()).filter(up)
    }

    fn constraint(&mut self, app: &AppName, what: String) {
        self.findings.push(Finding::Constraint { app: app.clone(), what });
    }

    // Bounds on instances, in all and per node.
    fn judge_bounds(&mut self) {
        for spec in self.pool.apps.values() {
            let total = self.running(&spec.name).count() as u32;
            let grew = self.running(&spec.name).any(|held| held.new);
            if grew && total > spec.instances.max {
                self.constraint(&spec.name, format!("would have {total} instances of at most {}", spec.instances.max));
            }
            if self.shrunk.contains(&spec.name) && total < spec.instances.min {
                self.constraint(&spec.name, format!("would be left with {total} instances of at least {}", spec.instances.min));
            }
            let mut on_node: BTreeMap<NodeName, (u32, bool)> = BTreeMap::new();
            for held in self.running(&spec.name) {
                let entry = on_node.entry(held.node.clone()).or_default();
                *entry = (entry.0 + 1, entry.1 || held.new);
            }
            for (node, (count, new)) in on_node {
                if new && count > spec.per_node.max(1) {
                    self.constraint(&spec.name, format!("would have {count} instances on `{node}`, at most {}", spec.per_node));
                }
                if new && spec.nodes.as_ref().is_some_and(|nodes| !nodes.contains(&node)) {
                    self.constraint(&spec.name, format!("may not be on `{node}`"));
                }
            }
        }
    }

    // Together and apart, where the plan put something.
    fn judge_neighbours(&mut self) {
        let mut found = Vec::new();
        for held in self.held.values().filter(|held| held.new && held.state.is_active()) {
            let Some(spec) = self.pool.apps.get(&held.app) else { continue };
            let is_there = |app: &AppName| self.on_node(&held.node).any(|other| other.app == *app && other.state.is_active());
            for other in spec.together.iter().filter(|other| self.pool.apps.contains_key(*other) && !is_there(other)) {
                found.push((held.app.clone(), format!("must be together with `{other}`, which is not on `{}`", held.node)));
            }
            let excluded = |other: &&AppSpec| spec.apart.contains(&other.name) || other.apart.contains(&spec.name);
            for other in self.pool.apps.values().filter(excluded).filter(|other| other.name != spec.name && is_there(&other.name))
            {
                found.push((held.app.clone(), format!("must be apart from `{}`, which is on `{}`", other.name, held.node)));
            }
        }
        for (app, what) in found {
            self.constraint(&app, what);
        }
    }

    // An application without any instance although it should have one and there is a place for it.
    fn judge_starvation(&mut self, plan: &Plan) {
        let mut found = Vec::new();
        for spec in self.pool.apps.values().filter(|spec| spec.instances.min > 0) {
            let any = self.held.values().any(|held| held.app == spec.name && !held.state.is_asleep());
            if any {
                continue;
            }
            if let Some(node) = self.nodes.values().find(|node| self.has_place(spec, node)) {
                found.push((spec.name.clone(), format!("nothing of it runs, and `{}` has the room", node.name)));
            }
        }
        let given: BTreeMap<&InstanceId, Cpu> = plan.shares.iter().map(|share| (&share.instance, share.cpu)).collect();
        for (id, held) in self.held.iter().filter(|(_, held)| held.state.is_active()) {
            let Some(node) = self.nodes.get(&held.node).filter(|node| node.up && node.cpu_capacity.0 > 0.0) else { continue };
            if self.pool.apps.contains_key(&held.app) && self.known(&node.name) && !given.contains_key(id) {
                found.push((held.app.clone(), format!("`{id}` is given no CPU on `{}`", held.node)));
            }
        }
        self.findings.extend(found.into_iter().map(|(app, what)| Finding::Starved { app, what }));
    }

    fn known(&self, node: &NodeName) -> bool {
        self.pool.nodes.iter().any(|spec| spec.name == *node)
    }

    fn has_place(&self, spec: &AppSpec, node: &NodeObservation) -> bool {
        let used = self.memory_used(&node.name);
        let excluded = |held: &Held| {
            spec.apart.contains(&held.app) || self.pool.apps.get(&held.app).is_some_and(|other| other.apart.contains(&spec.name))
        };
        node.up
            && self.known(&node.name)
            && used + spec.memory <= node.memory_capacity
            && spec.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node.name))
            && spec.together.is_empty()
            && !self.on_node(&node.name).any(excluded)
            // Who must not be beside it has to be gone first: it comes with the next plan.
            && !self.ending.iter().filter(|held| held.node == node.name).any(excluded)
    }

    fn judge_shares(&mut self, plan: &Plan) {
        let mut given: BTreeMap<&NodeName, f64> = BTreeMap::new();
        for share in &plan.shares {
            let bad = |why| Finding::Share { instance: share.instance.clone(), cpu: share.cpu, why };
            let Some(held) = self.held.get(&share.instance) else {
                self.findings.push(bad(BadShare::Nobody));
                continue;
            };
            let limit = self.pool.apps.get(&held.app).and_then(|spec| spec.cpu_limit).map_or(f64::INFINITY, |limit| limit.0);
            if !(0.0..f64::INFINITY).contains(&share.cpu.0) {
                self.findings.push(bad(BadShare::NoCpu));
            } else if share.cpu.0 > limit * (1.0 + 1e-6) && limit > 0.0 {
                self.findings.push(bad(BadShare::TooMuch));
            }
            if let Some((node, _)) = self.nodes.get_key_value(&held.node) {
                *given.entry(node).or_default() += share.cpu.0;
            }
        }
        for spec in &self.pool.nodes {
            let Some(node) = self.nodes.get(&spec.name) else { continue };
            let measured = node.cpu_capacity.0;
            let capacity = if measured.is_finite() && measured >= 0.0 { measured } else { spec.cpu.0 };
            let jobs: f64 = self.jobs.values().map(|job| job.cpu_on(&spec.name)).sum();
            let given = given.get(&spec.name).copied().unwrap_or(0.0) + jobs;
            if given > capacity * (1.0 + 1e-6) + 1e-9 {
                self.findings.push(Finding::Cpu { node: spec.name.clone(), given: Cpu(given), capacity: Cpu(capacity) });
            }
        }
    }

    fn judge_placement(&mut self, plan: &Plan) {
        for entry in &plan.placement.entries {
            let found = self.running(&entry.app).filter(|held| held.node == entry.node).count() as u32;
            if found != entry.ready {
                let (app, node) = (entry.app.clone(), entry.node.clone());
                self.findings.push(Finding::Inconsistent { app, node, planned: entry.ready, found });
            }
        }
    }
}

#[cfg(test)]
mod tests;
