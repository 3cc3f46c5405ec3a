//! An application's place in the simulated gateway: the very `Admission` of the real one.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use weal_control::admission::Admission;
use weal_control::flow::pipeline::Ticket;
use weal_model::{AppName, Time};
use weal_protocol::gateway::{ClusterConfig, FlowConfig, FlowCounters};

use super::event::{GATEWAY, TaskId};
use super::wake::WakeCall;
use weal_scenario::Scenario;

/// Where all simulated instances listen: nobody connects.
pub const ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9));

/// An application's place in the gateway.
pub struct App {
    pub name: AppName,
    pub admission: Admission,
    /// What the gateway works by, and begins with when it is started again.
    pub config: ClusterConfig,
    /// The instance at each of the admission's indices.
    pub behind: BTreeMap<usize, usize>,
    /// What the gateway has asked the node agent for.
    pub wake: Option<WakeCall>,
    /// Calls to the node agent so far.
    pub wake_calls: u64,
    /// When the next [`Event::WakeCheck`](super::event::Event::WakeCheck) comes; infinite when none is entered.
    pub wake_check_s: f64,
    /// The requests that wait, by their place in the gateway.
    pub waiting: BTreeMap<Ticket, TaskId>,
    /// Requests in order of arrival with the moment when their time is up; some have ended.
    pub deadlines: VecDeque<(f64, TaskId)>,
    /// A [`Event::Deadline`](super::event::Event::Deadline) is entered.
    pub watched: bool,
    /// Turns among instances for calls from others.
    pub next_callee: usize,
}

impl App {
    /// As it is before anything runs: every class of the application, no instance, no limit.
    pub fn new(scenario: &Scenario, index: usize, name: &AppName) -> Self {
        let spec = &scenario.pool.apps[name];
        let flow = FlowConfig { weight: 1.0, seats: 1, queue_limit: spec.queue_limit, ..FlowConfig::default() };
        let config = ClusterConfig {
            app: name.clone(),
            routes: spec.routes.clone(),
            seats: None,
            flows: spec.routes.iter().map(|route| (route.class.clone(), flow.clone())).collect(),
            endpoints: Vec::new(),
            request_timeout_s: spec.request_timeout_s,
            standby: None,
            wakeable: None,
            http: spec.http.clone(),
            unavailable: None,
            inner: None,
            calls: false,
        };
        let mut app = Self {
            name: name.clone(),
            admission: fresh(scenario, index, name),
            config,
            behind: BTreeMap::new(),
            wake: None,
            wake_calls: 0,
            wake_check_s: f64::INFINITY,
            waiting: BTreeMap::new(),
            deadlines: VecDeque::new(),
            watched: false,
            next_callee: 0,
        };
        app.admission.handle_config(Time::ZERO, &app.config);
        app
    }

    /// What the gateway has counted.
    pub fn flows(&mut self, now: Time) -> Vec<FlowCounters> {
        let (mut flows, mut instances) = (Vec::new(), Vec::new());
        self.admission.observe(now, &GATEWAY.into(), &mut flows, &mut instances);
        flows
    }

    /// The gateway is gone, with all that it knew but its config.
    pub fn lose_gateway(&mut self) {
        self.waiting.clear();
        self.behind.clear();
        self.deadlines.clear();
        self.wake = None;
        self.wake_check_s = f64::INFINITY;
    }
}

/// What a new gateway knows of an application.
pub fn fresh(scenario: &Scenario, index: usize, name: &AppName) -> Admission {
    Admission::new(name.clone(), scenario.seed ^ index as u64)
}
