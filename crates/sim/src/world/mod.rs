//! A whole pool in virtual time: clients, the gateway's queues, nodes, and the controller's cycles.
//!
//! What decides is what decides in `weal up`: [`weal_control::admission`] per request,
//! [`weal_control::profile`] and [`weal_control::flow::controller`] each flow cycle, [`weal_control::placement`] each placement
//! cycle and on events, and [`weal_control::check`] before each plan. Only what surrounds them is simulated:
//!
//! [`World`] owns the parts (`parts/`), each with its own state; none of them knows the world. The other files say what happens between
//! parts. Each calls only files that stand below it here:
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | hands each event to the part that it concerns |
//! | `examine`, `record` | what must hold whatever happens; the run as data, as a rehearsal with real processes gives it |
//! | `faults` | what goes wrong |
//! | `controller` | the controller's loop, and its effects carried out in virtual time |
//! | `observe` | what engine and gateway say of themselves, and what faults do to that |
//! | `route` | carries signals from one part to another |
//! | `gateway` | what the gateway is told |
//! | `traffic` | requests from arrival to answer |
//! | `clients` | when clients ask, and what they make of answers |
//! | `wakes` | what the node agent answers to the gateway |
//! | `instances` | what actions and accidents make of instances |
//! | `jobs` | what actions make of batch jobs |
//! | `steps` | waiting, computing, leaving through a link |
//! | `state` | the world: its parts, its clock, its memory |
//!
//! What a lower file has to say to a higher one it emits as a signal, as real roles send messages: an instance that has gone emits that
//! its requests broke off, and `route` tells the gateway. So no file waits for one above it.

mod clients;
mod controller;
mod examine;
mod faults;
mod gateway;
mod instances;
mod jobs;
mod observe;
mod outcome;
mod parts;
mod record;
mod route;
mod state;
mod steps;
mod traffic;
mod wakes;

#[cfg(test)]
mod tests;

use std::time::Duration;

use weal_control::cycle::{Input, Order};
use weal_scenario::Scenario;

pub use outcome::{Move, Simulated};
pub use parts::decisions::{DecisionStep, Decisions, OrderAnswer};
use parts::event::Event;
use state::World;

/// The grain of a real controller's timers (tokio's): one rings on the first whole millisecond that is not before its time.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

/// Runs a scenario; `progress` is told the virtual time in seconds now and then. Equal scenarios give equal runs.
///
/// # Errors
/// When the scenario has no pool: one that names a `config` gets it by [`Scenario::with_pool`].
pub fn simulate(scenario: &Scenario, progress: &mut dyn FnMut(f64)) -> Result<Simulated, NothingToSimulate> {
    has_pool(scenario)?;
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
    has_pool(scenario)?;
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

/// # Errors
/// There are no nodes, or nothing that runs on them.
fn has_pool(scenario: &Scenario) -> Result<(), NothingToSimulate> {
    let has_work = !scenario.pool.apps.is_empty() || !scenario.jobs.is_empty();
    if scenario.pool.nodes.is_empty() || !has_work { Err(NothingToSimulate) } else { Ok(()) }
}

/// The scenario has no pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has no `[[node]]` and `[app.NAME]` or `[[job]]` tables, and no `config` was read for it")]
pub struct NothingToSimulate;

impl World<'_> {
    /// Brings up what runs from the beginning, and enters what happens by itself.
    fn begin(&mut self) {
        self.bring_up();
        self.carry();
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
        self.agenda.enter(timing.flow_cycle_s, Event::Measurement);
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
            Event::Housekeeping { instance, version } if self.instances[instance].version == version => {
                self.begin_housekeeping(instance)
            }
            Event::Node { .. }
            | Event::Link { .. }
            | Event::Changed { .. }
            | Event::JobChanged { .. }
            | Event::Cycle { .. }
            | Event::Housekeeping { .. } => {}
            Event::Deadline { app } => self.expire(app),
            Event::WakeCheck { app } => self.handle_wake_check(app),
            Event::WakeLate { app, call } => self.wake_late(app, call),
            Event::Submission { job } => self.submit(job),
            Event::Measurement => {
                let measured = self.measure_interval();
                self.record(&measured);
                self.agenda.enter(self.now_s() + self.scenario.pool.timing.flow_cycle_s, Event::Measurement);
            }
            Event::Order { index } => {
                let order = self.controller.orders[index].clone();
                self.controller.hear(Input::Order(order));
            }
            Event::Fault { index, begins } => self.fault(index, begins),
        }
        self.carry();
        self.settle();
        self.enter_nodes();
        self.examine(event);
    }
}
