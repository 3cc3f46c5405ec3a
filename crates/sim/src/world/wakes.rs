//! What the node agent answers to a gateway that has an instance woken, as the real one does (`crates/node/src/wake.rs`).
//!
//! The cheapest instance is named: one that is awake at once, else the lightest sleeper once it has woken, else the first one that gets
//! ready. When a wake fails, the next one is tried within the same call. The agent does not know that an instance drains: it names that
//! too, and the controller calls its sleep off.

use weal_model::{InstanceId, InstanceState};
use weal_protocol::node::WakeRequest;

use super::instances::{Change, Instance};
use super::{Event, World};

/// An instance that was named to the gateway is not put to sleep for so long.
pub(super) const JUST_NAMED_S: f64 = 2.0;

/// A call that is under way.
#[derive(Debug, Clone)]
pub(super) struct WakeCall {
    number: u64,
    /// One of these, and no other; any when empty.
    instances: Vec<InstanceId>,
    /// The instance that it has begun to wake.
    ordered: Option<usize>,
    /// Those that could not be woken.
    failed: Vec<usize>,
}

impl World<'_> {
    /// The gateway asks for an instance.
    pub(super) fn call_agent(&mut self, app: usize, request: WakeRequest) {
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
    pub(super) fn wake_late(&mut self, app: usize, call: u64) {
        if self.apps[app].wake.as_ref().is_some_and(|under_way| under_way.number == call) {
            self.refuse_wake(app);
        }
    }

    /// Goes on with the call for an application, if there is one, as far as its instances allow.
    pub(super) fn go_on_waking(&mut self, app: usize) {
        while let Some(call) = &mut self.apps[app].wake {
            if let Some(instance) = call.ordered {
                let entry = &self.instances[instance];
                if entry.change() == Some(Change::Resume) {
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
            (price(a), a.last_wake_s).partial_cmp(&(price(b), b.last_wake_s)).unwrap_or(std::cmp::Ordering::Equal)
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
        self.operate(instance, Change::Resume, None);
    }

    /// The gateway hears of an instance that is awake, before the controller does.
    fn answer_wake(&mut self, app: usize, instance: usize) {
        let (now, now_s) = (self.now(), self.now_s());
        if self.apps[app].wake.take().is_none() {
            return;
        }
        let id = self.instances[instance].id.clone();
        self.instances[instance].named_s = now_s;
        let woken = self.apps[app].admission.handle_woken(now, &id);
        if let Some(woken) = woken {
            self.apps[app].behind.insert(woken.instance.slot(), instance);
        }
        self.dispatch(app);
    }

    fn refuse_wake(&mut self, app: usize) {
        let now = self.now();
        self.apps[app].wake = None;
        self.apps[app].admission.handle_wake_refused(now);
        self.dispatch(app);
    }
}

/// What the agent can do with an instance.
enum Condition {
    Awake,
    Asleep,
    /// It starts, wakes or falls asleep: to be seen again when that is over.
    Changes,
    Leaves,
}

impl Condition {
    fn of(instance: &Instance) -> Self {
        match (instance.state, instance.change()) {
            (InstanceState::Ready, None) => Self::Awake,
            (state, None) if state.is_asleep() => Self::Asleep,
            (_, Some(Change::Stop)) => Self::Leaves,
            (InstanceState::Starting | InstanceState::Backoff, _) | (_, Some(_)) => Self::Changes,
            _ => Self::Leaves,
        }
    }
}

/// Awake before asleep, light sleep before deep, asleep before starting.
fn price(instance: &Instance) -> u8 {
    match (instance.state, instance.state.rung()) {
        (InstanceState::Ready, _) if matches!(Condition::of(instance), Condition::Awake) => 0,
        (InstanceState::Ready, _) => 1,
        (_, Some(rung)) => 1 + rung as u8,
        (InstanceState::Starting, _) => 10,
        (InstanceState::Backoff, _) => 11,
        _ => 12,
    }
}
