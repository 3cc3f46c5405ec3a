//! What must hold whatever happens (design, "What must always hold"), looked at after every event.
//!
//! | invariant | when it is looked at |
//! | --- | --- |
//! | a request is answered exactly once, and none is forgotten | at each end; the counters of clients and gateway each flow cycle |
//! | no more requests are outstanding than there are seats when one is let through | after each event, for what it touched |
//! | nothing waits beside a free seat and an instance that takes requests | after each event, for what it touched |
//! | no node holds more memory than it has | at each change of an instance |
//! | a job runs as a whole or not at all, what it has done only grows but for what is lost with a node, and it ends no sooner than it can | each flow cycle, and at its end |
//! | no plan is unsound | before each plan is applied |
//! | what is ready runs | each flow cycle |
//! | what clients wait for, instances and gateway agree on | each flow cycle |

use weal_model::InstanceState;

use super::parts::event::Event;
use super::parts::tasks::Owner;
use super::state::World;

impl World<'_> {
    /// Looks at what an event touched; at all, each flow cycle.
    pub fn examine(&mut self, event: Event) {
        let mut touched = std::mem::take(&mut self.oracle.touched);
        touched.sort_unstable();
        touched.dedup();
        for &app in &touched {
            self.examine_queues(app);
        }
        touched.clear();
        self.oracle.touched = touched;
        if event == Event::Measurement {
            self.examine_counters();
            self.examine_instances();
            self.examine_jobs();
        }
    }

    fn examine_queues(&mut self, index: usize) {
        let (now, now_s) = (self.now(), self.now_s());
        let app = &self.apps[index];
        let queued = app.admission.queued();
        if self.gateway_up && app.admission.can_dispatch(now) {
            let text = format!("{queued} requests for {} wait beside a free seat", app.name);
            self.oracle.note(now_s, text);
        }
        if app.waiting.len() != queued as usize && self.gateway_up {
            let text = format!("{} requests wait for {}, its queues hold {queued}", app.waiting.len(), app.name);
            self.oracle.note(now_s, text);
        }
    }

    /// What is ready is not frozen.
    fn examine_instances(&mut self) {
        let now_s = self.now_s();
        for (index, instance) in self.instances.iter().enumerate() {
            if instance.state == InstanceState::Ready && self.nodes[instance.node].processor.is_frozen(index) {
                self.oracle.note(now_s, format!("{} is ready and frozen", instance.id));
            }
        }
    }

    /// The counters of clients, gateway and instances agree.
    fn examine_counters(&mut self) {
        let (now, now_s) = (self.now(), self.now_s());
        let mut open = vec![0u64; self.flows.len()];
        let mut at_instances = vec![0u32; self.instances.len()];
        for (_, task) in self.tasks.iter() {
            let Owner::Request(request) = task.owner else { continue };
            if request.place.is_some() {
                open[request.flow] += 1;
                if request.is_at_instance {
                    at_instances[task.home] += 1;
                }
            }
        }
        for (flow, open) in self.flows.iter().zip(open) {
            let counters = flow.client_counters;
            if counters.sent != counters.answered + counters.rejected + counters.failed + open {
                self.oracle.note(now_s, format!("{}: {counters:?} and {open} under way do not add up", flow.name));
            }
        }
        for (instance, &count) in self.instances.iter().zip(&at_instances) {
            if instance.in_flight != count {
                let text = format!("{} has {count} requests, {} are counted", instance.id, instance.in_flight);
                self.oracle.note(now_s, text);
            }
        }
        for app in self.apps.iter_mut().filter(|_| self.gateway_up) {
            for flow in app.flows(now) {
                let ended = flow.completions + flow.rejections + flow.errors;
                if flow.arrivals != ended + u64::from(flow.queued) + u64::from(flow.in_service) {
                    self.oracle.note(now_s, format!("{}: the gateway's counts do not add up", flow.id));
                }
            }
        }
    }
}
