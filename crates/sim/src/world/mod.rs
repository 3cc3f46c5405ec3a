//! A whole pool in virtual time: clients, the gateway's queues, nodes, and the controller's cycles.
//!
//! What decides is what decides in `weal up`: [`weal_control::admission`] per request,
//! [`weal_control::profile`] and [`weal_control::flow::controller`] each flow cycle, [`weal_control::placement`] each placement
//! cycle and on events, and [`weal_control::check`] before each plan. Only what surrounds them is simulated:
//!
//! | file | what |
//! | --- | --- |
//! | `machine` | a node's CPU, shared |
//! | `cores` | a machine's cores, shared by the nodes that are its slices |
//! | `tasks` | requests, starts and housekeeping as steps |
//! | `clients` | sessions and arrivals |
//! | `gateway` | the gateway: one `Admission` per application, and what it is told |
//! | `traffic` | requests from arrival to answer |
//! | `wakes` | what the node agent answers to the gateway |
//! | `instances` | their states, and what actions make of them |
//! | `jobs` | batch jobs, and what actions make of them |
//! | `decisions` | what the loop was told and decided, step by step |
//! | `controller` | the controller's loop, and effects carried out in virtual time |
//! | `observe` | what engine and gateway say, and what faults do to that |
//! | `faults` | what goes wrong |
//! | `oracle` | what must hold whatever happens |
//! | `record` | the run as data, as a rehearsal with real processes gives it |

mod clients;
mod controller;
mod cores;
mod decisions;
mod faults;
mod gateway;
mod instances;
mod jobs;
mod machine;
mod observe;
mod oracle;
mod record;
mod tasks;
mod traffic;
mod wakes;

#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::time::Duration;

use weal_control::cycle::{Input, Order};
use weal_control::flow::pipeline::ClassIndex;
use weal_model::{Action, Bytes, ClassName, JobSpec, NodeName, SleepCosts, Time};

use crate::engine::Agenda;
use clients::{Clients, Told};
use controller::Controller;
use cores::Cores;
pub use decisions::{Answer, Decisions, Step as DecisionStep};
use faults::Faults;
use gateway::App;
use instances::Instance;
use jobs::Job;
use machine::Machine;
use observe::Measurements;
use oracle::Oracle;
use record::Recorder;
use tasks::{Step, Tasks};
use weal_rng::{self as random, Rng};
use weal_scenario::report::Run;
use weal_scenario::workload::Page;
use weal_scenario::{Load, Scenario};

/// A [`tasks::Task`]'s number.
type TaskId = u64;

/// The name of the simulated gateway.
const GATEWAY: &str = "gw";

/// The grain of a real controller's timers (tokio's): one rings on the first whole millisecond that is not before its time.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

/// A simulated run.
#[derive(Debug, Clone)]
pub struct Simulated {
    /// What was measured, in the form that reports show.
    pub run: Run,
    /// The actions that the controller began.
    pub moves: Vec<Move>,
    /// What must hold and did not; empty in a sound run.
    pub findings: Vec<String>,
    /// Events that happened.
    pub events: u64,
    /// Requests that were neither answered nor rejected nor lost when the run ended.
    pub unfinished: usize,
}

/// An action that the controller began.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// When, in seconds since the start.
    pub t_s: f64,
    /// What.
    pub action: Action,
    /// It starts an instance that is to stand by.
    pub is_ahead: bool,
    /// What and why, in a sentence.
    pub text: String,
}

/// Runs a scenario; `progress` is told the virtual time in seconds now and then. Equal scenarios give equal runs.
///
/// # Errors
/// When the scenario has no pool: one that names a `config` gets it by [`Scenario::with_pool`].
pub fn simulate(scenario: &Scenario, progress: &mut dyn FnMut(f64)) -> Result<Simulated, NothingToSimulate> {
    if scenario.pool.nodes.is_empty() || scenario.pool.apps.is_empty() {
        return Err(NothingToSimulate);
    }
    let mut world = World::new(scenario);
    world.begin();
    let mut shown_s = 0.0;
    while let Some(event) = world.agenda.take_until(scenario.duration_s) {
        world.handle(event);
        if world.now_s() >= shown_s {
            progress(shown_s);
            shown_s = world.now_s() + scenario.duration_s / 100.0;
        }
    }
    Ok(world.finish())
}

/// Runs a scenario with one controller from begin to end, which is given `orders`, each at its second. The loop's timers have the grain of
/// a real controller's.
///
/// # Errors
/// When the scenario has no pool.
pub fn decisions(scenario: &Scenario, orders: &[(f64, Order)]) -> Result<Decisions, NothingToSimulate> {
    if scenario.pool.nodes.is_empty() || scenario.pool.apps.is_empty() {
        return Err(NothingToSimulate);
    }
    let mut world = World::new(scenario);
    let start = world.start();
    world.controller.timer_grain = TIMER_GRAIN;
    world.controller.record();
    for (at_s, order) in orders {
        world.agenda.enter(*at_s, Event::Order { index: world.controller.orders.len() });
        world.controller.orders.push(order.clone());
    }
    world.begin();
    while let Some(event) = world.agenda.take_until(scenario.duration_s) {
        world.handle(event);
    }
    let (begins, steps) = world.controller.recorded.take().unwrap_or_default();
    Ok(Decisions { start, begins, steps })
}

/// The scenario has no pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has no `[[node]]` and `[app.NAME]` tables, and no `config` was read for it")]
pub struct NothingToSimulate;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    /// An open load's next request.
    Arrival {
        load: usize,
    },
    /// A session has thought and asks.
    Ask {
        load: usize,
        session: u32,
    },
    /// The number of sessions of a load changes.
    Sessions {
        load: usize,
    },
    /// A step of a task that is not CPU is over.
    Waited {
        task: TaskId,
    },
    /// Something may be done on a node; only the latest of these per node counts.
    Node {
        node: usize,
        version: u64,
    },
    /// Slices may be in each other's way no more.
    Settled,
    /// Something may have gone through a link; only the latest of these per link counts.
    Link {
        link: usize,
        version: u64,
    },
    /// What an action does to an instance is done.
    Changed {
        instance: usize,
        version: u64,
    },
    Housekeeping {
        instance: usize,
        version: u64,
    },
    /// Some request of an application may have been there for too long.
    Deadline {
        app: usize,
    },
    /// The gateway looks at those who wait for an application, although none has come or ended.
    Look {
        app: usize,
    },
    /// A call of the gateway to the node agent has taken as long as it may.
    WakeLate {
        app: usize,
        call: u64,
    },
    /// A job comes in.
    Submission {
        job: usize,
    },
    /// What an action does to a job is done.
    JobChanged {
        job: usize,
        version: u64,
    },
    /// The books are made, once a flow cycle.
    Books,
    /// The controller's loop is called; only the latest of these counts.
    Cycle {
        version: u64,
    },
    /// Somebody gives the controller an order.
    Order {
        index: usize,
    },
    Fault {
        index: usize,
        begins: bool,
    },
}

/// A node.
struct Node {
    name: NodeName,
    machine: Machine,
    up: bool,
    /// Memory that is to be free on it.
    reserve: Bytes,
    /// Counts its [`Event::Node`]s.
    version: u64,
    /// Its next change was not entered yet.
    dirty: bool,
}

/// What requests, calls and answers leave a machine through, if that takes time: its work is seconds at full bandwidth, and its one tenant
/// all that is under way.
struct Link {
    machine: Machine,
    /// Counts its [`Event::Link`]s.
    version: u64,
}

/// The requests of a load, or of one of its pages.
struct Flow {
    /// Its load.
    load: usize,
    app: usize,
    class: ClassName,
    /// Where its class is in the gateway, which may differ from one gateway to the next; `None` when no route leads there.
    index: Option<ClassIndex>,
    /// `app/class`.
    name: String,
    steps: Rc<[Step]>,
    /// CPU time relative to the application's.
    factor: f64,
    work: Rng,
    /// What became of its requests.
    told: Told,
}

struct World<'a> {
    scenario: &'a Scenario,
    agenda: Agenda<Event>,
    nodes: Vec<Node>,
    /// Those of the machine whose slices the nodes are, if they are.
    cores: Option<Cores>,
    /// One per node, and the gateway's behind them.
    links: Vec<Link>,
    /// Nodes whose next change must be entered anew.
    dirty: Vec<usize>,
    /// Never shrinks; ended ones are in state `Stopped`.
    instances: Vec<Instance>,
    apps: Vec<App>,
    /// Those that come in, in no order.
    to_come: Vec<JobSpec>,
    /// Those that have come in.
    jobs: Vec<Job>,
    /// Tenants that machines have had for tasks of jobs.
    tenants: usize,
    tasks: Tasks,
    /// One per load, or per page of a load; those of a load follow each other.
    flows: Vec<Flow>,
    /// The first flow of each load.
    first_flow: Vec<usize>,
    /// One per load.
    clients: Vec<Clients>,
    gateway_up: bool,
    controller: Controller,
    measurements: Measurements,
    /// What sleeping has cost each application's instances.
    sleep_costs: Vec<SleepCosts>,
    /// The config that the gateway has.
    gateway_version: u64,
    faults: Faults,
    recorder: Recorder,
    oracle: Oracle,
    events: u64,
    done: Vec<TaskId>,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let pool = &scenario.pool;
        let slices_of = scenario.surroundings.slices_of;
        let nodes = pool.nodes.iter().map(|node| Node {
            name: node.name.clone(),
            machine: if slices_of == 0 { Machine::whole(node.cpu.0) } else { Machine::slice(node.cpu.0, slices_of) },
            up: true,
            reserve: Bytes(0),
            version: 0,
            dirty: false,
        });
        let apps: Vec<App> = pool.apps.keys().enumerate().map(|(index, name)| App::new(scenario, index, name)).collect();
        let (mut flows, mut first_flow) = (Vec::new(), Vec::new());
        for (number, load) in scenario.loads.iter().enumerate() {
            first_flow.push(flows.len());
            flows.extend(Flow::of_load(scenario, &apps, number, load));
        }
        Self {
            scenario,
            agenda: Agenda::default(),
            nodes: nodes.collect(),
            cores: (slices_of > 0).then(|| Cores::new(slices_of, scenario.seed)),
            links: (0..=pool.nodes.len()).map(|_| Link { machine: machine::link(), version: 0 }).collect(),
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
        }
    }

    /// Brings up what runs from the beginning, and enters what happens by itself.
    fn begin(&mut self) {
        self.bring_up();
        for load in 0..self.scenario.loads.len() {
            for change_s in self.scenario.loads[load].workload.changes() {
                self.agenda.enter(change_s, Event::Sessions { load });
            }
            self.next_arrival(load);
        }
        self.expect_jobs();
        for (index, fault) in self.scenario.faults.iter().enumerate() {
            self.agenda.enter(fault.at_s, Event::Fault { index, begins: true });
            self.agenda.enter(fault.until_s, Event::Fault { index, begins: false });
        }
        let timing = &self.scenario.pool.timing;
        self.agenda.enter(timing.flow_cycle_s, Event::Books);
        self.start_controller();
        self.settle();
        self.enter_nodes();
    }

    fn handle(&mut self, event: Event) {
        self.events += 1;
        match event {
            Event::Arrival { load } => {
                self.arrive(load, None);
                self.next_arrival(load);
            }
            Event::Ask { load, session } => self.arrive(load, Some(session)),
            Event::Sessions { load } => self.adjust_sessions(load),
            Event::Waited { task } => self.step(task),
            Event::Node { node, version } if self.nodes[node].version == version => self.collect(node),
            Event::Settled => self.share_cores(),
            Event::Link { link, version } if self.links[link].version == version => self.deliver(link),
            Event::Changed { instance, version } if self.instances[instance].version == version => self.changed(instance),
            Event::Cycle { version } if self.controller.version == version => self.wake_controller(),
            Event::JobChanged { job, version } if self.jobs[job].version == version => self.job_changed(job),
            Event::Housekeeping { instance, version } if self.instances[instance].version == version => self.keep_house(instance),
            Event::Node { .. }
            | Event::Link { .. }
            | Event::Changed { .. }
            | Event::JobChanged { .. }
            | Event::Cycle { .. }
            | Event::Housekeeping { .. } => {}
            Event::Deadline { app } => self.expire(app),
            Event::Look { app } => self.look_again(app),
            Event::WakeLate { app, call } => self.wake_late(app, call),
            Event::Submission { job } => self.submit(job),
            Event::Books => {
                let books = self.make_books();
                self.record(&books);
                self.agenda.enter(self.now_s() + self.scenario.pool.timing.flow_cycle_s, Event::Books);
            }
            Event::Order { index } => {
                let order = self.controller.orders[index].clone();
                self.controller.hear(Input::Order(order));
            }
            Event::Fault { index, begins } => self.fault(index, begins),
        }
        self.settle();
        self.enter_nodes();
        self.examine(event);
    }

    fn now_s(&self) -> f64 {
        self.agenda.now_s()
    }

    fn now(&self) -> Time {
        Time::from_secs_f64(self.now_s())
    }

    /// The link of the gateway.
    fn gateway_link(&self) -> usize {
        self.nodes.len()
    }

    fn soil(&mut self, node: usize) {
        if !self.nodes[node].dirty {
            self.nodes[node].dirty = true;
            self.dirty.push(node);
        }
    }

    /// Divides the cores of the one machine anew among the nodes, if they are slices of one.
    fn share_cores(&mut self) {
        let now_s = self.now_s();
        let Some(cores) = &mut self.cores else { return };
        let before_s = cores.settled_s(now_s);
        let changed = cores.share(now_s, self.nodes.iter_mut().map(|node| &mut node.machine));
        if let Some(at_s) = cores.settled_s(now_s).filter(|_| before_s.is_none()) {
            self.agenda.enter(at_s, Event::Settled);
        }
        for node in changed {
            self.soil(node);
        }
    }

    /// Enters the next change of each node that something happened to; those entered before do not count any more.
    fn enter_nodes(&mut self) {
        if !self.dirty.is_empty() {
            self.share_cores();
        }
        while let Some(node) = self.dirty.pop() {
            let entry = &mut self.nodes[node];
            entry.version += 1;
            entry.dirty = false;
            let (at_s, version) = (entry.machine.next_s(), entry.version);
            self.agenda.enter(at_s, Event::Node { node, version });
        }
    }
}

impl Flow {
    /// One, or one per page.
    fn of_load(scenario: &Scenario, apps: &[App], number: usize, load: &Load) -> Vec<Self> {
        let flow = |class: &str, factor: f64, stream: String| {
            let app = apps.iter().position(|app| app.name.as_str() == load.app).expect("loads are checked when read");
            let class = ClassName::from(class);
            Self {
                load: number,
                app,
                index: apps[app].admission.class(&class),
                name: format!("{}/{class}", load.app),
                steps: tasks::steps_of_request(scenario, &load.app, class.as_str()),
                class,
                factor,
                work: random::stream(scenario.seed, &stream),
                told: Told::default(),
            }
        };
        if load.pages.is_empty() {
            return vec![flow(&load.class, load.work_factor, format!("{}/work", load.name))];
        }
        let page = |page: &Page| {
            let stream = format!("{}/{}/work", load.name, page.name);
            flow(&page.class, load.work_factor * page.work_factor, stream)
        };
        load.pages.iter().map(page).collect()
    }
}
