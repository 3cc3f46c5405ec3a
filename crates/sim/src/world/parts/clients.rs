//! Who asks: sessions that think, and arrivals that nobody waits for.

use weal_scenario::workload::{Arrivals, Thoughts, Walk};
use weal_scenario::{LoadSource, Scenario};

/// What a client waits at least after a connection that broke, as the load generator does: it would ask without end otherwise.
pub const AFTER_FAILURE_S: f64 = 0.01;

/// The clients of one load.
pub struct Clients {
    pub arrivals: Arrivals,
    pub sessions: Vec<Session>,
}

/// What clients saw.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct ClientCounters {
    pub sent: u64,
    pub answered: u64,
    pub rejected: u64,
    pub failed: u64,
}

/// Somebody who asks, waits for the answer, thinks and asks again.
pub struct Session {
    pub thoughts: Thoughts,
    pub walk: Walk,
    /// It thinks or waits for an answer.
    pub alive: bool,
    /// Its last request was answered. Who is turned away leaves, and comes back as somebody new.
    pub is_under_way: bool,
}

/// How a request ended for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    Served,
    Rejected,
    Failed,
}

impl Clients {
    pub fn new(scenario: &Scenario, load: &LoadSource) -> Self {
        let arrivals = load.workload.arrivals(scenario.seed, &load.name, scenario.duration_s);
        Self { arrivals, sessions: Vec::new() }
    }
}
