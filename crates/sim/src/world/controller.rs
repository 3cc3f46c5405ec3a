//! The controller: the very [`Cycle`] of `weal up`, with the simulated gateway and engine around it.
//!
//! What the real controller does over sockets happens here at once, in virtual time: an effect is carried out as soon as the loop asks for
//! it, and its answer is the loop's next input.

use std::sync::Arc;

use weal_control::cycle::{Cycle, Done, Effect, Input, Kept, Note, Start};
use weal_control::flow::controller::demand_curves;
use weal_control::placement::{self, Iterations, Policy};
use weal_control::profile::Profiles;
use weal_model::{Action, CpuShare, EventKind, InstanceId, InstanceState, NodeReserve};
use weal_protocol::engine::ActionOutcome;
use weal_protocol::node;

use super::parts::absence::gateway_away;
use super::parts::decisions::{self, DecisionStep};
use super::parts::event::{Event, GATEWAY};
use super::parts::job::Job;
use super::state::World;

impl World<'_> {
    /// What runs before anybody asks: as many instances as must, ready; as after `weal up --detach`.
    pub fn bring_up(&mut self) {
        for app in 0..self.apps.len() {
            for name in self.scenario.behaviours[self.apps[app].name.as_str()].initially.clone() {
                let node = self.nodes.iter().position(|node| node.name.as_str() == name).expect("checked when read");
                let id = self.controller.next_id(&self.apps[app].name);
                self.stand_up(app, node, id);
            }
        }
        // Each round brings up what needs nothing else, or what the round before has brought up; a pool has few such floors.
        for _ in 0..self.apps.len() {
            let mut begun = false;
            for action in self.first_plan() {
                let Action::Start { instance, app, node } = action else { continue };
                let app = self.apps.iter().position(|entry| entry.name == app);
                let node = self.nodes.iter().position(|entry| entry.name == node);
                if let (Some(app), Some(node)) = (app, node) {
                    self.stand_up(app, node, instance);
                    begun = true;
                }
            }
            if !begun {
                break;
            }
        }
    }

    /// What a plan of a pool that nobody has asked anything says.
    fn first_plan(&mut self) -> Vec<Action> {
        let snapshot = self.truth();
        let pool = Arc::clone(&self.controller.config.pool);
        let mut policy = Policy::new(Arc::clone(&pool));
        policy.demands = demand_curves(&snapshot, &pool, &Profiles::default());
        policy.idle_s = policy.demands.keys().map(|app| (app.clone(), 0.0)).collect();
        policy.next_instance = self.controller.numbers.iter().map(|(app, highest)| (app.clone(), highest + 1)).collect();
        policy.job_costs = self.scenario.surroundings.job_costs();
        let (plan, _) = placement::plan(&snapshot, &policy, Iterations::default());
        plan.actions
    }

    /// An instance that was started before the run begins, and what that took.
    fn stand_up(&mut self, app: usize, node: usize, id: InstanceId) {
        self.controller.handle_id(&self.apps[app].name, &id);
        let start_s = self.scenario.behaviours[self.apps[app].name.as_str()].changes.start_s;
        let instance = self.add_instance(app, node, id);
        self.instances[instance].start_took_s = Some(start_s);
        self.set_state(instance, InstanceState::Ready);
    }

    /// A controller begins, with what the former one has stored.
    pub fn start_controller(&mut self) {
        self.controller.cycle = Some(Cycle::new(self.now(), self.start()));
        self.submit_again();
    }

    /// What a controller that begins now goes on from.
    pub fn start(&self) -> Start {
        Start {
            engine: node::PEER.to_owned(),
            gateway: GATEWAY.into(),
            config: Some(self.controller.config.clone()),
            profiles: self.controller.profiles.clone(),
            resting: self.controller.resting.clone(),
            orders: self.controller.orders_kept.clone(),
            noted_until: self.controller.noted_until,
            job_costs: self.scenario.surroundings.job_costs(),
            jobs: self.controller.stored_jobs(),
        }
    }

    /// The controller is gone with all that it has not stored. What the engine was told goes on.
    pub fn lose_controller(&mut self) {
        self.controller.cycle = None;
        self.controller.inbox.clear();
        self.controller.wakes_at = None;
        for instance in &mut self.instances {
            // Nobody waits for what becomes of it.
            if let Some(operation) = &mut instance.operation {
                operation.ordered = None;
            }
        }
        self.jobs.iter_mut().for_each(Job::forget_order);
    }

    /// The controller's time has come, if nothing has moved it.
    pub fn wake_controller(&mut self) {
        self.controller.wakes_at = None;
        if self.controller.timer_grain.is_zero() {
            self.controller.hear(Input::Timeout);
        }
    }

    /// Hands the controller what has happened, and carries out what it asks for, until there is nothing left of either.
    pub fn settle(&mut self) {
        loop {
            let now = self.now();
            let Some(cycle) = &mut self.controller.cycle else { return };
            if let Some(effect) = cycle.poll_effect() {
                self.controller.record_effect(&effect);
                self.perform(effect);
            } else if let Some(input) = self.controller.next_input(now) {
                let Some(cycle) = &mut self.controller.cycle else { return };
                let told = self.controller.recorded.is_some().then(|| input.clone());
                let answer = decisions::hand(cycle, now, input);
                if let (Some((_, steps)), Some(input)) = (&mut self.controller.recorded, told) {
                    steps.push(DecisionStep { at: now, input, answer, effects: Vec::new() });
                }
            } else {
                break;
            }
        }
        let Some(cycle) = &self.controller.cycle else { return };
        let at = cycle.poll_timeout();
        if self.controller.wakes_at != Some(at) {
            self.controller.wakes_at = Some(at);
            self.controller.version += 1;
            let version = self.controller.version;
            // A little later, for the loop counts in whole nanoseconds.
            let rings_at_s = self.controller.rings_at(at).as_secs_f64() + 1e-9;
            self.agenda.enter(rings_at_s, Event::Cycle { version });
        }
    }

    /// Carries out one effect. Its answer is there at once, but for actions, which take their time.
    fn perform(&mut self, effect: Effect) {
        let answer = match effect {
            Effect::ObserveGateway => Input::Gateway(self.counters()),
            Effect::ObserveEngine => Input::Engine(Ok(self.observation())),
            Effect::ConfigureGateway(config) => {
                let version = config.version;
                if self.gateway_up {
                    self.configure_gateway(&config);
                }
                Input::Done(Done::Gateway(self.gateway_up.then_some(version).ok_or_else(gateway_away)))
            }
            Effect::ConfigureNodes(_) => Input::Done(Done::Nodes(Ok(()))),
            Effect::Act { action, job, .. } => {
                match job {
                    Some(order) => self.act_on_job(&order),
                    None => self.act(action),
                }
                return self.carry();
            }
            Effect::Update { starts, .. } => Input::Done(Done::Updated(Ok(starts.into_iter().map(done).collect()))),
            Effect::SetCpuShares(shares) => {
                self.set_cpu_shares(&shares);
                Input::Done(Done::CpuShares(Ok(())))
            }
            Effect::SetReserves(reserves) => {
                self.set_reserves(&reserves);
                Input::Done(Done::Reserves(Ok(())))
            }
            Effect::Plan(request) => {
                let planned = request.run();
                match &planned.result {
                    Ok((plan, _)) => self.recorder.handle_plan(plan),
                    Err(findings) => self.oracle.note(self.agenda.now_s(), format!("a plan is unsound: {findings}")),
                }
                Input::Done(Done::Planned(Box::new(planned)))
            }
            Effect::Keep(Kept::Profiles(profiles)) => return self.controller.profiles = *profiles,
            Effect::Keep(Kept::Resting(resting)) => return self.controller.resting = resting,
            Effect::Keep(Kept::Orders(orders)) => return self.controller.orders_kept = orders,
            Effect::Note(Note { kind, action, text, .. }) => {
                let now_s = self.agenda.now_s();
                if let Some(action) = action {
                    self.recorder.begin(now_s, action, text.clone());
                }
                // Instances' states are drawn; what was done to them, and why, is told.
                if kind != EventKind::Instance {
                    self.recorder.note(now_s, kind == EventKind::Plan, text);
                }
                return;
            }
            Effect::Keep(Kept::Runs(runs)) => return self.controller.runs = *runs,
            Effect::Keep(Kept::Schedules(marks)) => return self.controller.schedules = *marks,
            Effect::Keep(Kept::Jobs { records, write, .. }) => {
                let jobs = records.iter().map(|record| record.spec.name.clone()).collect();
                self.controller.keep_jobs(records);
                return self.controller.hear_store(Done::JobsKept { jobs, write, result: Ok(()) });
            }
            Effect::Keep(Kept::Plan(_)) | Effect::Show { .. } => return,
        };
        self.carry();
        self.controller.hear(answer);
    }

    /// Shares and limits to the nodes.
    fn set_cpu_shares(&mut self, shares: &[CpuShare]) {
        let now_s = self.now_s();
        for share in shares {
            let there = self.instances.iter().rposition(|i| i.id == share.instance && i.state != InstanceState::Stopped);
            let Some(index) = there else { continue };
            let node = self.instances[index].node;
            self.nodes[node].processor.set_share(now_s, index, share.cpu.0, share.limit.map(|limit| limit.0));
            self.mark_dirty(node);
        }
    }

    fn set_reserves(&mut self, reserves: &[NodeReserve]) {
        for node in &mut self.nodes {
            let wanted = reserves.iter().find(|reserve| reserve.node == node.name);
            node.reserve = wanted.map_or(weal_model::Bytes(0), |reserve| reserve.memory);
        }
        (0..self.nodes.len()).for_each(|node| self.uphold_reserve(node));
    }
}

fn done(action: Action) -> ActionOutcome {
    ActionOutcome { action, took_s: 0.0, refusal: None }
}
