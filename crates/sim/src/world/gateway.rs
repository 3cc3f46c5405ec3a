//! The simulated gateway: for each application the very `Admission` of the real one, configured by the same messages.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use weal_control::admission::Admission;
use weal_control::flow::pipeline::Ticket;
use weal_model::{AppName, InstanceState, Time};
use weal_protocol::gateway::{ClusterConfig, FlowConfig, FlowCounters, GatewayConfig};

use super::wakes::WakeCall;
use super::{Event, GATEWAY, TaskId, World};
use weal_scenario::Scenario;

/// Where all simulated instances listen: nobody connects.
pub(super) const ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9));

/// An application's place in the gateway.
pub(super) struct App {
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
    /// When the next [`Event::Look`] comes; infinite when none is entered.
    looks_at_s: f64,
    /// The requests that wait, by their place in the gateway.
    pub waiting: BTreeMap<Ticket, TaskId>,
    /// Requests in order of arrival with the moment when their time is up; some have ended.
    pub deadlines: VecDeque<(f64, TaskId)>,
    /// A [`Event::Deadline`] is entered.
    pub watched: bool,
    /// Turns among instances for calls from others.
    pub next_callee: usize,
}

impl App {
    /// As it is before anything runs: every class of the application, no instance, no limit.
    pub fn new(scenario: &Scenario, index: usize, name: &AppName) -> Self {
        let spec = &scenario.pool.apps[name];
        let flow = FlowConfig { weight: 1.0, seats: 1, size: 1.0, queue_limit: spec.queue_limit };
        let config = ClusterConfig {
            app: name.clone(),
            routes: spec.routes.clone(),
            seats: None,
            flows: spec.routes.iter().map(|route| (route.class.clone(), flow)).collect(),
            endpoints: Vec::new(),
            request_timeout_s: spec.request_timeout_s,
            standby: None,
            wakeable: None,
        };
        let mut app = Self {
            name: name.clone(),
            admission: fresh(scenario, index, name),
            config,
            behind: BTreeMap::new(),
            wake: None,
            wake_calls: 0,
            looks_at_s: f64::INFINITY,
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
        self.looks_at_s = f64::INFINITY;
    }
}

impl World<'_> {
    /// The gateway is told everything that it works by.
    pub(super) fn configure_gateway(&mut self, config: &GatewayConfig) {
        self.gateway_version = config.version;
        for cluster in &config.clusters {
            if let Some(app) = self.apps.iter().position(|app| app.name == cluster.app) {
                self.configure_cluster(app, cluster);
            }
        }
    }

    /// One cluster works by `config` from now on.
    pub(super) fn configure_cluster(&mut self, app: usize, config: &ClusterConfig) {
        let now = self.now();
        let entry = &mut self.apps[app];
        entry.config.clone_from(config);
        entry.admission.handle_config(now, config);
        let own = self.instances.iter().enumerate().filter(|(_, i)| i.app == app && i.state != InstanceState::Stopped);
        for (instance, index) in own.filter_map(|(number, i)| Some((number, entry.admission.find(&i.id)?))) {
            entry.behind.insert(index.slot(), instance);
        }
        self.dispatch(app);
    }

    /// A new gateway goes on by what the former one was told last.
    pub(super) fn restart_gateway(&mut self) {
        for (index, app) in self.apps.iter_mut().enumerate() {
            app.admission = fresh(self.scenario, index, &app.name);
        }
        for app in 0..self.apps.len() {
            let config = self.apps[app].config.clone();
            self.configure_cluster(app, &config);
        }
        for flow in &mut self.flows {
            flow.index = self.apps[flow.app].admission.class(&flow.class);
        }
    }

    /// Has an instance woken where the gateway needs one, and enters when to look again.
    pub(super) fn look(&mut self, app: usize) {
        if !self.gateway_up {
            return;
        }
        let now = self.now();
        let entry = &mut self.apps[app];
        if let Some(request) = entry.admission.poll_wake(now) {
            return self.call_agent(app, request);
        }
        let Some(at) = entry.admission.poll_wake_timeout(now) else { return };
        // A little later, for the gateway counts in whole nanoseconds.
        let at_s = at.as_secs_f64() + 1e-6;
        if at_s < entry.looks_at_s {
            entry.looks_at_s = at_s;
            self.agenda.enter(at_s, Event::Look { app });
        }
    }

    /// A look that was entered is due, unless an earlier one has taken its place.
    pub(super) fn look_again(&mut self, app: usize) {
        let now_s = self.now_s();
        if now_s >= self.apps[app].looks_at_s {
            self.apps[app].looks_at_s = f64::INFINITY;
            self.look(app);
        }
    }
}

/// What a new gateway knows of an application.
fn fresh(scenario: &Scenario, index: usize, name: &AppName) -> Admission {
    Admission::new(name.clone(), scenario.seed ^ index as u64)
}
