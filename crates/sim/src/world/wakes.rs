//! What the node agent answers to a gateway that has an instance woken, as the real one does (`crates/node/src/wake.rs`).
//!
//! The cheapest instance is named: one that is awake at once, else the lightest sleeper once it has woken, else the first one that gets
//! ready. When a wake fails, the next one is tried within the same call. The agent does not know that an instance drains: it names that
//! too, and the controller calls its sleep off.

use weal_model::InstanceState;
use weal_protocol::node::WakeRequest;

use super::parts::event::Event;
use super::parts::instance::{Instance, OperationKind};
use super::parts::signal::Signal;
use super::parts::wake::{Condition, WakeCall, rank};
use super::state::World;

impl World<'_> {
    /// The gateway asks for an instance.
    pub fn call_agent(&mut self, app: usize, request: WakeRequest) {
        let now_s = self.now_s();
        let entry = &mut self.apps[app];
        entry.wake_calls += 1;
        let number = entry.wake_calls;
        let instances = request.instances;
        entry.wake = Some(WakeCall { number, instances, ordered: None, failed: Vec::new() });
        self.go_on_waking(app);
        if self.apps[app].wake.as_ref().is_some_and(|call| call.number == number) {
            self.agenda.enter(now_s + request.wait_s, Event::WakeLate { app, call: number });
        }
    }

    /// A call has taken as long as it may. What it has begun goes on.
    pub fn wake_late(&mut self, app: usize, call: u64) {
        if self.apps[app].wake.as_ref().is_some_and(|under_way| under_way.number == call) {
            self.refuse_wake(app);
        }
    }

    /// Goes on with the call for an application, if there is one, as far as its instances allow.
    pub fn go_on_waking(&mut self, app: usize) {
        while let Some(call) = &mut self.apps[app].wake {
            if let Some(instance) = call.ordered {
                let entry = &self.instances[instance];
                if entry.change() == Some(OperationKind::Resume) {
                    return;
                }
                if entry.state == InstanceState::Ready {
                    return self.answer_wake(app, instance);
                }
                call.ordered = None;
                call.failed.push(instance);
            }
            let Some(instance) = self.cheapest(app) else { return self.refuse_wake(app) };
            match Condition::of(&self.instances[instance]) {
                Condition::Awake => return self.answer_wake(app, instance),
                Condition::Asleep => self.order_wake(app, instance),
                Condition::Changes => return,
                Condition::Leaves => self.apps[app].wake.as_mut().expect("the call is under way").failed.push(instance),
            }
        }
    }

    /// The instance that is named or woken first, of those that the call allows and that have not failed it.
    fn cheapest(&self, app: usize) -> Option<usize> {
        let call = self.apps[app].wake.as_ref()?;
        let allowed = |instance: &Instance| call.instances.is_empty() || call.instances.contains(&instance.id);
        let own = self.instances.iter().enumerate().filter(|(_, i)| i.app == app && i.state != InstanceState::Stopped);
        let candidates = own.filter(|(index, instance)| allowed(instance) && !call.failed.contains(index));
        let (index, _) = candidates.min_by(|(_, a), (_, b)| {
            (rank(a), a.last_wake_s).partial_cmp(&(rank(b), b.last_wake_s)).unwrap_or(std::cmp::Ordering::Equal)
        })?;
        Some(index)
    }

    fn order_wake(&mut self, app: usize, instance: usize) {
        let call = self.apps[app].wake.as_mut().expect("the call is under way");
        call.ordered = Some(instance);
        let entry = &self.instances[instance];
        let needs_room = !entry.state.holds_memory();
        if needs_room && self.room(entry.node) < self.scenario.pool.apps[&self.apps[app].name].memory {
            // The call goes on without it.
            return;
        }
        self.operate(instance, OperationKind::Resume, None);
    }

    fn answer_wake(&mut self, app: usize, instance: usize) {
        if self.apps[app].wake.take().is_some() {
            self.instances[instance].named_s = self.now_s();
            self.emit(Signal::Woken { app, instance });
        }
    }

    fn refuse_wake(&mut self, app: usize) {
        self.apps[app].wake = None;
        self.emit(Signal::WakeRefused { app });
    }
}
