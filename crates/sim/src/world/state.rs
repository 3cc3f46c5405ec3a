//! The world: its parts together, its clock, and what concerns nodes as a whole.

use rand::RngExt;
use weal_model::{Action, Bytes, NodeSpec, SleepCosts, Time};
use weal_protocol::Refusal;
use weal_rng as random;
use weal_scenario::{Fault, FaultKind, Scenario};

use super::parts::app::App;
use super::parts::clients::Clients;
use super::parts::controller::Controller;
use super::parts::cores::Cores;
use super::parts::event::{Event, TaskId};
use super::parts::faults::{Faults, HANGS_S};
use super::parts::flow::RequestFlow;
use super::parts::instance::Instance;
use super::parts::job::Job;
use super::parts::measurements::Measurements;
use super::parts::node::{Link, Node};
use super::parts::oracle::Oracle;
use super::parts::processor::{self, Processor};
use super::parts::recorder::Recorder;
use super::parts::signal::Signal;
use super::parts::tasks::Tasks;
use crate::engine::Agenda;

/// The whole: the scenario, the clock, and every part's state.
pub struct World<'a> {
    pub scenario: &'a Scenario,
    pub agenda: Agenda<Event>,
    pub nodes: Vec<Node>,
    /// Those of the machine whose slices the nodes are, if they are.
    pub cores: Option<Cores>,
    /// One per node, and the gateway's behind them.
    pub links: Vec<Link>,
    /// Nodes whose next change must be entered anew.
    pub dirty: Vec<usize>,
    /// Never shrinks; ended ones are in state `Stopped`.
    pub instances: Vec<Instance>,
    pub apps: Vec<App>,
    /// Those that come in, in no order.
    pub to_come: Vec<Job>,
    /// Those that have come in.
    pub jobs: Vec<Job>,
    /// Tenants that machines have had for tasks of jobs.
    pub tenants: usize,
    pub tasks: Tasks,
    /// One per load, or per page of a load; those of a load follow each other.
    pub flows: Vec<RequestFlow>,
    /// The first flow of each load.
    pub first_flow: Vec<usize>,
    /// One per load.
    pub clients: Vec<Clients>,
    pub gateway_up: bool,
    pub controller: Controller,
    pub measurements: Measurements,
    /// What sleeping has cost each application's instances.
    pub sleep_costs: Vec<SleepCosts>,
    /// The config that the gateway has.
    pub gateway_version: u64,
    pub faults: Faults,
    pub recorder: Recorder,
    pub oracle: Oracle,
    pub events: u64,
    pub done: Vec<TaskId>,
    /// Emitted and not carried yet.
    pub signals: Vec<Signal>,
}

impl<'a> World<'a> {
    pub fn new(scenario: &'a Scenario) -> Self {
        let pool = &scenario.pool;
        let slices_of = scenario.surroundings.slices_of;
        let nodes = pool.nodes.iter().map(|node| Node {
            name: node.name.clone(),
            processor: processor_of(scenario, node),
            up: true,
            reserve: Bytes(0),
            parked_for_reserve: 0,
            version: 0,
            dirty: false,
        });
        let apps: Vec<App> = pool.apps.keys().enumerate().map(|(index, name)| App::new(scenario, index, name)).collect();
        let (mut flows, mut first_flow) = (Vec::new(), Vec::new());
        for (number, load) in scenario.loads.iter().enumerate() {
            first_flow.push(flows.len());
            flows.extend(RequestFlow::of_load(scenario, &apps, number, load));
        }
        Self {
            scenario,
            agenda: Agenda::default(),
            nodes: nodes.collect(),
            cores: (slices_of > 0).then(|| Cores::new(slices_of, machine_seed(scenario))),
            links: (0..=pool.nodes.len()).map(|_| Link { processor: processor::link(), version: 0 }).collect(),
            dirty: Vec::new(),
            instances: Vec::new(),
            to_come: Vec::new(),
            jobs: Vec::new(),
            tenants: 0,
            flows,
            first_flow,
            apps,
            tasks: Tasks::default(),
            clients: scenario.loads.iter().map(|load| Clients::new(scenario, load)).collect(),
            gateway_up: true,
            controller: Controller::new(scenario),
            measurements: Measurements::default(),
            sleep_costs: vec![SleepCosts::default(); pool.apps.len()],
            gateway_version: 0,
            faults: Faults::new(scenario.seed),
            recorder: Recorder::new(scenario),
            oracle: Oracle::default(),
            events: 0,
            done: Vec::new(),
            signals: Vec::new(),
        }
    }

    pub fn now_s(&self) -> f64 {
        self.agenda.now_s()
    }

    pub fn now(&self) -> Time {
        Time::from_secs_f64(self.now_s())
    }

    /// The link of the gateway.
    pub fn gateway_link(&self) -> usize {
        self.nodes.len()
    }

    pub fn mark_dirty(&mut self, node: usize) {
        if !self.nodes[node].dirty {
            self.nodes[node].dirty = true;
            self.dirty.push(node);
        }
    }

    /// Divides the cores of the one machine anew among the nodes, if they are slices of one.
    pub fn share_cores(&mut self) {
        let now_s = self.now_s();
        let Some(cores) = &mut self.cores else { return };
        let before_s = cores.settled_s(now_s);
        let changed = cores.share(now_s, self.nodes.iter_mut().map(|node| &mut node.processor));
        if let Some(at_s) = cores.settled_s(now_s).filter(|_| before_s.is_none()) {
            self.agenda.enter(at_s, Event::Settled);
        }
        for node in changed {
            self.mark_dirty(node);
        }
    }

    /// Enters the next change of each node that something happened to; those entered before do not count any more.
    pub fn enter_nodes(&mut self) {
        if !self.dirty.is_empty() {
            self.share_cores();
        }
        while let Some(node) = self.dirty.pop() {
            let entry = &mut self.nodes[node];
            entry.version += 1;
            entry.dirty = false;
            let (at_s, version) = (entry.processor.next_s(), entry.version);
            self.agenda.enter(at_s, Event::Node { node, version });
        }
    }

    /// An action of the controller is done at once, or refused.
    pub fn answer_at_once(&mut self, action: Action, refusal: Option<Refusal>) {
        self.emit(Signal::Acted { action, took_s: 0.0, refusal });
    }

    /// Another part has to take it up.
    pub fn emit(&mut self, signal: Signal) {
        self.signals.push(signal);
    }

    /// Memory that is free on a node.
    pub fn room(&self, node: usize) -> Bytes {
        self.scenario.pool.nodes[node].memory - self.memory_held(node)
    }

    /// Memory that the instances and jobs of a node hold, by what each may use.
    pub fn memory_held(&self, node: usize) -> Bytes {
        let here = self.instances.iter().filter(|i| i.node == node && i.state.holds_memory());
        let instances: Bytes = here.map(|i| self.scenario.pool.apps[&self.apps[i.app].name].memory).sum();
        instances + self.jobs.iter().map(|job| job.memory_on(node)).sum()
    }

    /// No node holds more memory than it has.
    pub fn oracle_memory(&mut self, node: usize) {
        let (held, capacity) = (self.memory_held(node), self.scenario.pool.nodes[node].memory);
        if held > capacity {
            let text = format!("{} holds {held} of {capacity}", self.nodes[node].name);
            self.oracle.note(self.agenda.now_s(), text);
        }
    }

    /// The time by the clocks of gateway and engine.
    pub fn its_time(&self) -> Time {
        let ahead_s: f64 = self.lasting(FaultKind::ClockJump).map(|fault| fault.amount).sum();
        Time::from_secs_f64(self.now_s() + ahead_s)
    }

    /// The faults of a kind that last now.
    pub fn lasting(&self, kind: FaultKind) -> impl Iterator<Item = &Fault> {
        let now_s = self.now_s();
        self.scenario.faults.iter().filter(move |fault| fault.kind == kind && fault.at_s <= now_s && now_s < fault.until_s)
    }

    /// How long the next action takes that would take `takes_s`, and whether it fails: one that hangs does when its fault is over, or it is given up.
    pub fn draw_failure(&mut self, takes_s: f64) -> (f64, bool) {
        let now_s = self.now_s();
        let lasting: Vec<(FaultKind, f64, f64)> = [FaultKind::ActionFails, FaultKind::ActionHangs]
            .into_iter()
            .flat_map(|kind| self.lasting(kind).map(|fault| (fault.kind, fault.amount, fault.until_s)).collect::<Vec<_>>())
            .collect();
        for (kind, share, until_s) in lasting {
            if self.faults.actions.random::<f64>() < share {
                let hangs_s = (until_s - now_s).clamp(takes_s, takes_s.max(HANGS_S));
                return (if kind == FaultKind::ActionHangs { hangs_s } else { takes_s }, true);
            }
        }
        (takes_s, false)
    }
}

/// A node's CPU: a machine of its own, or a slice of the scenario's one machine.
fn processor_of(scenario: &Scenario, node: &NodeSpec) -> Processor {
    match scenario.surroundings.slices_of {
        0 => Processor::whole(node.cpu.0),
        of => {
            let phases = random::stream(machine_seed(scenario), &format!("periods of {}", node.name));
            Processor::slice(node.cpu.0, of).with_phases(phases)
        }
    }
}

fn machine_seed(scenario: &Scenario) -> u64 {
    scenario.surroundings.machine_seed(scenario.seed)
}
