//! What goes wrong in the pool itself; what goes wrong with measurements is `observe`'s.

use rand::RngExt;
use weal_model::InstanceState;
use weal_scenario::{Fault, FaultKind};

use super::parts::app::App;
use super::parts::clients::RequestEnd;
use super::parts::event::TaskId;
use super::parts::node::Node;
use super::parts::tasks::Owner;
use super::state::World;

impl World<'_> {
    pub fn fault(&mut self, index: usize, begins: bool) {
        let scenario = self.scenario;
        let fault = &scenario.faults[index];
        let now_s = self.now_s();
        let hit = |node: &Node| Some(node.name.as_str()) == fault.node.as_deref();
        let node = self.nodes.iter().position(hit);
        match (fault.kind, node) {
            (FaultKind::NodeDown, Some(node)) => {
                self.set_node_up(node, !begins && self.lasting(FaultKind::NodeDown).all(|f| f.node != fault.node))
            }
            (FaultKind::SlowNode, Some(node)) => {
                let speed =
                    self.lasting(FaultKind::SlowNode).filter(|f| f.node == fault.node).map(|f| f.amount.max(0.0)).product();
                self.nodes[node].processor.set_speed(now_s, speed);
                self.mark_dirty(node);
            }
            (FaultKind::InstanceDown, _) if begins => self.crash_one(fault),
            (FaultKind::Deploy, _) if begins => self.deploy(fault, false),
            (FaultKind::BadDeploy, _) if begins => self.deploy(fault, true),
            (FaultKind::BadDeploy, _) => self.roll_back(fault),
            (FaultKind::ControllerDown, _) if begins => self.lose_controller(),
            (FaultKind::GatewayDown, _) if begins => self.lose_gateway(),
            // Faults of a kind may overlap: the last one to end counts.
            (FaultKind::ControllerDown, _) if self.lasting(fault.kind).next().is_none() => self.start_controller(),
            (FaultKind::GatewayDown, _) if self.lasting(fault.kind).next().is_none() => self.gateway_back(),
            _ => {}
        }
        let what = format!("{:?} {}", fault.kind, if begins { "begins" } else { "is over" });
        let whom = fault.node.as_ref().or(fault.app.as_ref()).map_or(String::new(), |whom| format!(" ({whom})"));
        self.recorder.note(now_s, false, what + &whom);
    }

    fn set_node_up(&mut self, node: usize, up: bool) {
        self.nodes[node].up = up;
        if !up {
            let here = (0..self.instances.len()).filter(|&i| self.instances[i].node == node);
            for instance in here.collect::<Vec<_>>() {
                self.lose(instance);
                self.carry();
            }
            self.lose_jobs(node);
            self.cut(node);
            self.carry();
            self.mark_dirty(node);
        }
    }

    fn crash_one(&mut self, fault: &Fault) {
        let ready = |i: &usize| {
            let instance = &self.instances[*i];
            Some(self.apps[instance.app].name.as_str()) == fault.app.as_deref()
                && instance.state == InstanceState::Ready
                && instance.operation.is_none()
        };
        let ready: Vec<usize> = (0..self.instances.len()).filter(ready).collect();
        if !ready.is_empty() {
            let victim = ready[self.faults.victims.random_range(0..ready.len())];
            self.crash(victim);
        }
    }

    /// Somebody deploys another version of an application.
    fn deploy(&mut self, fault: &Fault, is_bad: bool) {
        if let Some(app) = &fault.app {
            self.controller.deploy(&app.as_str().into(), is_bad);
        }
    }

    /// Somebody deploys the version before again.
    fn roll_back(&mut self, fault: &Fault) {
        if let Some(app) = &fault.app {
            self.controller.roll_back(&app.as_str().into());
        }
    }

    /// Its requests break off; what instances do for them goes on for nobody.
    fn lose_gateway(&mut self) {
        self.gateway_up = false;
        let is_request = |owner| matches!(owner, Owner::Request(_));
        let requests: Vec<TaskId> = self.tasks.iter().filter(|(_, task)| is_request(task.owner)).map(|(id, _)| id).collect();
        for id in requests {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            let home = task.home;
            let Owner::Request(request) = &mut task.owner else { continue };
            if request.place.take().is_none() {
                continue;
            }
            let request = *request;
            if request.is_at_instance {
                self.instances[home].in_flight -= 1;
            } else {
                self.tasks.remove(id);
            }
            self.answer_client(request.flow, request.session, RequestEnd::Failed);
        }
        self.apps.iter_mut().for_each(App::lose_gateway);
        self.cut(self.gateway_link());
    }

    /// A new one, which goes on by the config that was in force last.
    fn gateway_back(&mut self) {
        self.gateway_up = true;
        self.restart_gateway();
        self.forget_counters();
    }
}
