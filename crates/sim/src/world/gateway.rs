//! The simulated gateway: for each application the very `Admission` of the real one, configured by the same messages.

use weal_model::InstanceState;
use weal_protocol::gateway::{ClusterConfig, GatewayConfig};

use super::parts::app::fresh;
use super::state::World;

impl World<'_> {
    /// The gateway is told everything that it works by.
    pub fn configure_gateway(&mut self, config: &GatewayConfig) {
        self.gateway_version = config.version;
        for cluster in &config.clusters {
            if let Some(app) = self.apps.iter().position(|app| app.name == cluster.app) {
                self.configure_cluster(app, cluster);
            }
        }
    }

    /// One cluster works by `config` from now on.
    pub fn configure_cluster(&mut self, app: usize, config: &ClusterConfig) {
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
    pub fn restart_gateway(&mut self) {
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
}
