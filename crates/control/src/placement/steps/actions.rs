//! From a solved problem to ordered actions on named instances.
//!
//! An action frees memory before another takes it. An instance that moves is started at its new place first and removed a
//! cycle later, when the new one is ready, wherever memory allows: an application's last ready instance never goes in the
//! plan that starts its replacement. Where its bound on instances leaves no room for that, as for an application that may run only
//! once, it goes first.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{
    Action, AppName, Cpu, CpuShare, InstanceId, InstanceObservation, InstanceState, Placement, PlacementEntry, Reason, Rung,
    Snapshot,
};

use super::names::{Names, number};
use crate::placement::policy::Policy;
use crate::placement::problem::translate::Translation;
use crate::placement::solve::Solution;
use crate::placement::standby::{self, Place};

/// What is done, and where each instance will be.
#[derive(Debug, Default)]
pub(in crate::placement) struct Steps {
    /// The actions with their reasons, in order.
    pub reasons: Vec<Reason>,
    /// Running instances afterwards, by application, then node.
    running: BTreeMap<(u32, u32), Vec<InstanceId>>,
    /// Standby instances afterwards, by application, then node, those included that only come up to stand by.
    standing_by: BTreeMap<(u32, u32), u32>,
    /// Instances that come up to stand by and are not asleep yet, by application, then node.
    rising: BTreeMap<(u32, u32), Vec<InstanceId>>,
    /// Memory that is really free per node as the actions go on, in bytes.
    pub free: Vec<u64>,
    /// Memory per node that is held beyond what the node has, in bytes: it must be given back before anything is free.
    owed: Vec<u64>,
    /// Suspended instances that may be paged out or stopped for memory, oldest first, per node.
    reclaimable: Vec<Vec<Reclaimable>>,
    /// Applications that wait until one is gone from where they go that must not be beside them.
    put_off: BTreeSet<u32>,
    /// Those for which one waits so that runs nowhere.
    blocking: BTreeSet<u32>,
}

/// A suspended instance whose memory can be had.
#[derive(Debug, Clone)]
struct Reclaimable {
    id: InstanceId,
    app: u32,
    memory: u64,
}

impl Steps {
    /// What holds memory now, and the end of what the config does not have any more.
    pub(super) fn begin(translation: &Translation, snapshot: &Snapshot) -> Self {
        let mut steps = Self::default();
        steps.count_memory(translation, snapshot);
        for orphan in &translation.orphans {
            steps.stop_orphan(orphan);
        }
        steps
    }

    /// Takes off what the solution has no more. Returns (application, node, instances) to bring up.
    pub(super) fn take_off(&mut self, translation: &Translation, policy: &Policy, solution: &Solution) -> Vec<(u32, u32, u32)> {
        (0..translation.apps.len() as u32).flat_map(|m| self.shrink(translation, policy, solution, m)).collect()
    }

    /// Brings up what [`Steps::take_off`] has returned, where its memory is free.
    pub(super) fn bring_up(
        &mut self,
        translation: &Translation,
        policy: &Policy,
        solution: &Solution,
        names: &mut Names,
        wanted: Vec<(u32, u32, u32)>,
    ) {
        for (m, n, count) in wanted {
            for _ in 0..count {
                self.grow(translation, policy, solution, names, m, n);
            }
        }
    }

    fn count_memory(&mut self, translation: &Translation, snapshot: &Snapshot) {
        let problem = &translation.problem;
        self.free = problem.nodes.iter().map(|node| node.memory).collect();
        self.owed = vec![0; problem.nodes.len()];
        for (n, &held) in (0u32..).zip(&translation.standby_memory) {
            self.take_memory(n, held);
        }
        for (&(m, n), instances) in &translation.active {
            let used = translation.apps[m as usize].memory.0.saturating_mul(instances.len() as u64);
            self.take_memory(n, used);
            self.running.insert((m, n), instances.iter().map(|instance| instance.id.clone()).collect());
        }
        for resident in &problem.apps[translation.apps.len()..] {
            for &(n, count) in &resident.current {
                self.take_memory(n, resident.memory.saturating_mul(u64::from(count)));
            }
        }
        self.reclaimable = vec![Vec::new(); problem.nodes.len()];
        for (&(m, n), instances) in &translation.standby {
            self.standing_by.insert((m, n), instances.len() as u32);
            let suspended = instances.iter().filter(|instance| instance.state.is_asleep() && instance.state.holds_memory());
            let memory = translation.apps[m as usize].memory;
            self.reclaimable[n as usize].extend(suspended.map(|instance| Reclaimable {
                id: instance.id.clone(),
                app: m,
                memory: translation.asleep_memory(n, instance, memory.0),
            }));
        }
        for (&(m, n), instances) in &translation.rising {
            *self.standing_by.entry((m, n)).or_default() += instances.len() as u32;
            self.rising.insert((m, n), instances.iter().map(|instance| instance.id.clone()).collect());
            let memory = translation.apps[m as usize].memory.0;
            self.reclaimable[n as usize].extend(instances.iter().map(|i| Reclaimable { id: i.id.clone(), app: m, memory }));
        }
        let since: BTreeMap<&InstanceId, _> = snapshot.instances.iter().map(|instance| (&instance.id, instance.since)).collect();
        for list in &mut self.reclaimable {
            list.sort_by_key(|entry| (since.get(&entry.id).copied(), entry.id.clone()));
        }
    }

    fn push(&mut self, action: Action, text: String) {
        self.reasons.push(Reason { action, text });
    }

    fn stop_orphan(&mut self, orphan: &InstanceObservation) {
        if matches!(orphan.state, InstanceState::Draining | InstanceState::Stopping) {
            return;
        }
        let text = format!("`{}` on node `{}` is no longer in the config", orphan.app, orphan.node);
        self.push(Action::Stop { instance: orphan.id.clone(), app: orphan.app.clone() }, text);
    }

    // Takes off what the solution no longer has, unless it is the last one that answers while a replacement comes up.
    // Returns (application, node, instances) to add.
    fn shrink(&mut self, translation: &Translation, policy: &Policy, solution: &Solution, m: u32) -> Vec<(u32, u32, u32)> {
        let app = &translation.problem.apps[m as usize];
        let mut adds = Vec::new();
        for &edge in solution.layout.of_app(m) {
            let edge = solution.layout.edge(edge);
            let more = edge.count.saturating_sub(app.current_on(edge.node));
            if more > 0 {
                adds.push((m, edge.node, more));
            }
        }
        adds.sort_unstable();
        let mut leaving: Vec<(&InstanceObservation, u32)> = Vec::new();
        for &(n, count) in &app.current {
            let excess = count.saturating_sub(solution.layout.count(m, n)) as usize;
            let mut candidates = translation.active[&(m, n)].clone();
            candidates.sort_by_key(|instance| {
                (instance.state == InstanceState::Ready, instance.in_flight, std::cmp::Reverse(number(&instance.id)))
            });
            leaving.extend(candidates.into_iter().take(excess).map(|instance| (instance, n)));
        }
        // Who must not be beside it may still be there: then it stays where it is until that one is gone.
        let is_there = |other: u32, n: u32| translation.active.get(&(other, n)).is_some_and(|list| !list.is_empty());
        let taken = |n: u32| app.apart.iter().any(|&other| is_there(other, n));
        let put_off: u32 = adds.iter().filter(|add| taken(add.1)).map(|add| add.2).sum();
        if put_off > 0 {
            self.put_off.insert(m);
        }
        if app.current.is_empty() {
            let blocking = adds.iter().flat_map(|add| app.apart.iter().filter(|&&other| is_there(other, add.1)));
            self.blocking.extend(blocking);
        }
        adds.retain(|add| !taken(add.1));
        leaving.truncate(leaving.len().saturating_sub(put_off as usize));
        let running: u32 = app.current.iter().map(|entry| entry.1).sum();
        if keep_until_replaced(translation, m, &mut leaving) {
            // No more than may run: what there is no room for comes with a later plan.
            adds = first(adds, app.instances.1.saturating_sub(running - leaving.len() as u32));
        }
        let ready = translation
            .active
            .range((m, 0)..=(m, u32::MAX))
            .flat_map(|(_, list)| list)
            .filter(|i| i.state == InstanceState::Ready);
        let ready_left = ready.count() - leaving.iter().filter(|(instance, _)| instance.state == InstanceState::Ready).count();
        let fits_first = adds.iter().all(|&(m, n, count)| {
            self.free[n as usize] + self.reclaimable[n as usize].iter().map(|entry| entry.memory).sum::<u64>()
                >= translation.apps[m as usize].memory.0.saturating_mul(u64::from(count))
        });
        if ready_left == 0 && !adds.is_empty() && fits_first {
            let room = app.instances.1.saturating_sub(running);
            if room > 0 {
                return first(adds, room);
            }
            // As many as may run do: all but one give way now, and the last when one of those that come is ready.
            let last = leaving.iter().rposition(|(instance, _)| instance.state == InstanceState::Ready);
            if let Some(last) = last.filter(|_| leaving.len() > 1) {
                leaving.remove(last);
                // More than may run, as when a lost node is back, leave more than come.
                adds = first(adds, app.instances.1.saturating_sub(running - leaving.len() as u32));
            }
        }
        for (instance, n) in leaving {
            self.remove(translation, policy, solution, m, n, instance);
        }
        adds
    }

    fn remove(
        &mut self,
        translation: &Translation,
        policy: &Policy,
        solution: &Solution,
        m: u32,
        n: u32,
        instance: &InstanceObservation,
    ) {
        let spec = translation.apps[m as usize];
        let standing_by = self.standing_by.get(&(m, n)).copied().unwrap_or(0);
        let place = match instance.state {
            InstanceState::Ready => standby::place_for(translation, policy, m, n, standing_by),
            _ => Place::Ended,
        };
        let why = if !translation.problem.apps[m as usize].allows(n) {
            format!("`{}` may not be on node `{}`", spec.name, instance.node)
        } else if solution.layout.instances(m) < spec.instances.min.max(1) && solution.layout.given(m) <= 0.0 {
            match policy.idle_s.get(&spec.name) {
                _ if policy.resting.contains_key(&spec.name) => format!("`{}` sleeps by an order", spec.name),
                Some(idle_s) => format!("`{}` has had no request for {idle_s:.0} s", spec.name),
                None => format!("`{}` gets no requests", spec.name),
            }
        } else {
            format!(
                "`{}` gets {:.2} of the {:.2} CPU that it could use from {} instances elsewhere; others gain more from its place on `{}`",
                spec.name,
                solution.layout.given(m),
                translation.problem.apps[m as usize].demand(),
                solution.layout.instances(m),
                instance.node
            )
        };
        if let Some(running) = self.running.get_mut(&(m, n)) {
            running.retain(|id| *id != instance.id);
        }
        if let Place::Asleep(rung) = place {
            *self.standing_by.entry((m, n)).or_default() += 1;
            if rung == Rung::Parked {
                self.free_memory(n, spec.memory.0);
            } else {
                self.reclaimable[n as usize].push(Reclaimable { id: instance.id.clone(), app: m, memory: spec.memory.0 });
            }
            self.push(Action::Sleep { instance: instance.id.clone(), app: instance.app.clone(), rung }, why);
        } else {
            self.free_memory(n, spec.memory.0);
            self.push(Action::Stop { instance: instance.id.clone(), app: instance.app.clone() }, why);
        }
    }

    fn grow(&mut self, translation: &Translation, policy: &Policy, solution: &Solution, names: &mut Names, m: u32, n: u32) {
        let spec = translation.apps[m as usize];
        let node = &translation.nodes[n as usize];
        let why = why_more(translation, solution, m);
        if let Some(id) = self.rising.get_mut(&(m, n)).and_then(Vec::pop) {
            // It is on its way: it stays instead of going to sleep.
            *self.standing_by.entry((m, n)).or_default() -= 1;
            self.reclaimable[n as usize].retain(|entry| entry.id != id);
            self.running.entry((m, n)).or_default().push(id);
            return;
        }
        self.make_way(translation, m, n);
        let resumable =
            translation.standby.get(&(m, n)).into_iter().flatten().find(|instance| !self.is_running(m, n, &instance.id));
        let resumable = resumable.filter(|instance| !self.is_gone(&instance.id));
        let needs = match resumable.map(|instance| instance.state) {
            Some(InstanceState::Suspended) => 0,
            _ => spec.memory.0,
        };
        let keep = resumable.map(|instance| &instance.id);
        self.make_memory(translation, policy, n, needs, keep);
        if self.free[n as usize] < needs {
            // What holds it is still there because its own replacement is not ready yet: a later plan goes on.
            return;
        }
        let id = match resumable {
            Some(instance) => {
                *self.standing_by.entry((m, n)).or_default() -= 1;
                self.reclaimable[n as usize].retain(|entry| entry.id != instance.id);
                self.push(
                    Action::Resume { instance: instance.id.clone(), app: instance.app.clone() },
                    format!("{why}; an instance stands by on `{node}`"),
                );
                instance.id.clone()
            }
            None => {
                let id = names.next(&spec.name);
                let action = Action::Start { instance: id.clone(), app: spec.name.clone(), node: node.clone() };
                self.push(action, format!("{why}; `{node}` has room for one"));
                id
            }
        };
        self.take_memory(n, needs);
        self.running.entry((m, n)).or_default().push(id);
    }

    // What came up only to stand by is awake until it sleeps: it ends where the rules would not have it awake beside one more instance of
    // `m` on `n`.
    fn make_way(&mut self, translation: &Translation, m: u32, n: u32) {
        let (app, spec) = (&translation.problem.apps[m as usize], translation.apps[m as usize]);
        loop {
            let rises = |place: &(u32, u32)| self.rising.get(place).is_some_and(|rising| !rising.is_empty());
            let own: Vec<(u32, u32)> = self.rising.range((m, 0)..=(m, u32::MAX)).map(|(&place, _)| place).filter(rises).collect();
            let awake: usize = own.iter().map(|place| self.rising[place].len()).sum();
            let too_many = self.instances_of(m).0 + awake as u32 >= spec.instances.max;
            let mut apart = app.apart.iter().map(|&other| (other, n)).filter(rises);
            let Some(place) = own.first().copied().filter(|_| too_many).or_else(|| apart.next()) else { return };
            let Some(id) = self.rising.get_mut(&place).and_then(Vec::pop) else { return };
            self.free_memory(place.1, translation.apps[place.0 as usize].memory.0);
            let why = format!(
                "it was started to stand by, and `{}` now needs an instance on `{}`",
                spec.name, translation.nodes[n as usize]
            );
            self.end_standby(translation, place.0, place.1, &id, why);
        }
    }

    fn is_running(&self, m: u32, n: u32, id: &InstanceId) -> bool {
        self.running.get(&(m, n)).is_some_and(|running| running.contains(id))
    }

    fn is_gone(&self, id: &InstanceId) -> bool {
        self.reasons.iter().any(|reason| matches!(&reason.action, Action::Stop { instance, .. } if instance == id))
    }

    /// Pages suspended instances of a node out (or stops them where that cannot be) until `bytes` are free there.
    pub fn make_memory(&mut self, translation: &Translation, policy: &Policy, n: u32, bytes: u64, keep: Option<&InstanceId>) {
        while self.free[n as usize] < bytes {
            let list = &mut self.reclaimable[n as usize];
            let Some(at) = list.iter().position(|entry| Some(&entry.id) != keep) else { return };
            let Reclaimable { id, app, memory } = list.remove(at);
            self.free_memory(n, memory);
            let text = format!("{} of memory must be free on `{}`", weal_model::Bytes(bytes), translation.nodes[n as usize]);
            let (rises, name) = (self.forget_rising(app, n, &id), translation.apps[app as usize].name.clone());
            if policy.has(Rung::Parked) && !rises {
                self.push(Action::Sleep { instance: id, app: name, rung: Rung::Parked }, text);
            } else {
                *self.standing_by.entry((app, n)).or_default() -= 1;
                self.push(Action::Stop { instance: id, app: name }, text);
            }
        }
    }

    /// A step about a job.
    pub fn job_step(&mut self, action: Action, text: String) {
        self.push(action, text);
    }

    /// Memory of a node that is free or that suspended instances would give back, less what must be given back before anything is free.
    pub fn available(&self, n: u32) -> u64 {
        let reclaimable = self.reclaimable[n as usize].iter().map(|entry| entry.memory);
        reclaimable.fold(self.free[n as usize], u64::saturating_add).saturating_sub(self.owed[n as usize])
    }

    /// Memory of a node is free from here on.
    pub fn free_memory(&mut self, n: u32, bytes: u64) {
        let paid = bytes.min(self.owed[n as usize]);
        self.owed[n as usize] -= paid;
        self.free[n as usize] = self.free[n as usize].saturating_add(bytes - paid);
    }

    /// Memory of a node is taken from here on.
    pub fn take_memory(&mut self, n: u32, bytes: u64) {
        let there = bytes.min(self.free[n as usize]);
        self.free[n as usize] -= there;
        self.owed[n as usize] = self.owed[n as usize].saturating_add(bytes - there);
    }

    /// Puts one that stands by, or was started to, to sleep on `rung`.
    pub fn put_to_sleep(&mut self, translation: &Translation, m: u32, n: u32, id: &InstanceId, rung: Rung, why: String) {
        self.forget_rising(m, n, id);
        let list = &mut self.reclaimable[n as usize];
        if let Some(at) = list.iter().position(|entry| entry.id == *id && rung == Rung::Parked) {
            let memory = list.remove(at).memory;
            self.free_memory(n, memory);
        }
        let app = translation.apps[m as usize].name.clone();
        self.push(Action::Sleep { instance: id.clone(), app, rung }, why);
    }

    /// Says whether it came up to stand by; it does no more.
    fn forget_rising(&mut self, m: u32, n: u32, id: &InstanceId) -> bool {
        let Some(rising) = self.rising.get_mut(&(m, n)) else { return false };
        let before = rising.len();
        rising.retain(|other| other != id);
        rising.len() < before
    }

    /// Ends one that stands by.
    pub fn end_standby(&mut self, translation: &Translation, m: u32, n: u32, id: &InstanceId, why: String) {
        *self.standing_by.entry((m, n)).or_default() -= 1;
        self.reclaimable[n as usize].retain(|entry| entry.id != *id);
        let app = translation.apps[m as usize].name.clone();
        self.push(Action::Stop { instance: id.clone(), app }, why);
    }

    /// Starts an instance that will stand by.
    pub(super) fn start_ahead(
        &mut self,
        translation: &Translation,
        policy: &Policy,
        names: &mut Names,
        m: u32,
        n: u32,
        why: String,
    ) {
        let (spec, node) = (translation.apps[m as usize], &translation.nodes[n as usize]);
        let id = names.next(&spec.name);
        self.push(Action::Start { instance: id.clone(), app: spec.name.clone(), node: node.clone() }, why);
        self.take_memory(n, spec.memory.0);
        if policy.pool.enactment.sleeps() {
            *self.standing_by.entry((m, n)).or_default() += 1;
            self.rising.entry((m, n)).or_default().push(id);
        } else {
            self.running.entry((m, n)).or_default().push(id);
        }
    }

    /// Whether a sleeper is left asleep on its rung by what is planned so far.
    pub fn stands_by(&self, m: u32, n: u32, id: &InstanceId) -> bool {
        let concerns = |reason: &Reason| match &reason.action {
            Action::Stop { instance, .. } | Action::Sleep { instance, .. } | Action::Resume { instance, .. } => instance == id,
            _ => false,
        };
        !self.is_running(m, n, id) && !self.reasons.iter().any(concerns)
    }

    /// Whether an instance still comes up only to stand by.
    pub fn is_ahead(&self, id: &InstanceId) -> bool {
        self.rising.values().flatten().any(|other| other == id)
    }

    /// Running and standby instances of an application, afterwards.
    pub fn instances_of(&self, m: u32) -> (u32, u32) {
        let running: usize = self.running.range((m, 0)..=(m, u32::MAX)).map(|(_, list)| list.len()).sum();
        let standing_by: u32 = self.standing_by.range((m, 0)..=(m, u32::MAX)).map(|(_, count)| *count).sum();
        (running as u32, standing_by)
    }

    /// Applications that lose an instance and are left with less than their fewest.
    pub fn bereft(&self, translation: &Translation) -> Vec<AppName> {
        let loses = |m: u32| {
            let mut active = translation.active.range((m, 0)..=(m, u32::MAX));
            active.any(|(&(_, n), list)| list.iter().any(|instance| !self.is_running(m, n, &instance.id)))
        };
        let apps = (0u32..).zip(&translation.apps);
        apps.filter(|&(m, spec)| self.instances_of(m).0 < spec.instances.min && loses(m))
            .map(|(_, spec)| spec.name.clone())
            .collect()
    }

    /// Applications that have nothing running, and do not get anything although they must have it.
    pub fn without_any(&self, translation: &Translation) -> usize {
        let none = |&m: &u32| translation.problem.apps[m as usize].instances.0 > 0 && self.instances_of(m).0 == 0;
        (0..translation.apps.len() as u32).filter(none).count()
    }

    /// Applications that run and wait for another one to go, or for which one waits that runs nowhere.
    pub fn in_the_way(&self, translation: &Translation) -> Vec<AppName> {
        let waiting = self.put_off.union(&self.blocking).filter(|&&m| self.instances_of(m).0 > 0);
        waiting.map(|&m| translation.apps[m as usize].name.clone()).collect()
    }

    /// Instances of an application on a node, afterwards, asleep or awake.
    pub fn on(&self, m: u32, n: u32) -> u32 {
        let running = self.running.get(&(m, n)).map_or(0, |list| list.len() as u32);
        running + self.standing_by.get(&(m, n)).copied().unwrap_or(0)
    }

    /// [`Plan::ahead`](weal_model::Plan::ahead).
    pub fn ahead(&self) -> Vec<InstanceId> {
        let mut ahead: Vec<InstanceId> = self.rising.values().flatten().cloned().collect();
        ahead.sort();
        ahead
    }

    /// Where everything will be.
    pub fn placement(&self, translation: &Translation, solution: &Solution) -> Placement {
        let places: BTreeSet<(u32, u32)> = self.running.keys().chain(self.standing_by.keys()).copied().collect();
        let mut entries = Vec::new();
        for (m, n) in places {
            let rising = self.rising.get(&(m, n)).map_or(0, |list| list.len() as u32);
            let ready = self.running.get(&(m, n)).map_or(0, |list| list.len() as u32) + rising;
            let standby = self.standing_by.get(&(m, n)).copied().unwrap_or(0) - rising;
            if ready == 0 && standby == 0 {
                continue;
            }
            let load = solution.layout.find(m, n).map_or(0.0, |edge| solution.layout.edge(edge).load);
            entries.push(PlacementEntry {
                app: translation.apps[m as usize].name.clone(),
                node: translation.nodes[n as usize].clone(),
                ready,
                standby,
                load: Cpu(load),
            });
        }
        Placement { entries }
    }

    /// What each running instance gets: its load, and an equal part of what its node has left, since a share is what its
    /// neighbours leave it and never less.
    pub fn shares(&self, translation: &Translation, solution: &Solution) -> Vec<CpuShare> {
        let mut on_node = vec![0u32; translation.nodes.len()];
        for (&(_, n), running) in self.running.iter().chain(&self.rising) {
            on_node[n as usize] += running.len() as u32;
        }
        let mut shares = Vec::new();
        for (&(m, n), rising) in &self.rising {
            let left = solution.layout.spare(n).max(0.0) / f64::from(on_node[n as usize].max(1));
            let cpu = left.min(translation.problem.apps[m as usize].instance_cpu);
            shares.extend(rising.iter().map(|id| CpuShare { instance: id.clone(), cpu: Cpu(cpu), limit: None }));
        }
        for (&(m, n), running) in &self.running {
            let load = solution.layout.find(m, n).map_or(0.0, |edge| solution.layout.edge(edge).load);
            let left = solution.layout.spare(n).max(0.0) / f64::from(on_node[n as usize].max(1));
            let cpu = (load / running.len().max(1) as f64 + left).min(translation.problem.apps[m as usize].instance_cpu);
            shares.extend(running.iter().map(|id| CpuShare { instance: id.clone(), cpu: Cpu(cpu), limit: None }));
        }
        sorted(shares)
    }
}

// Who answers stays while all that would stay in its stead are still coming up. True when one stays that was to leave.
fn keep_until_replaced(translation: &Translation, m: u32, leaving: &mut Vec<(&InstanceObservation, u32)>) -> bool {
    let leaves = |instance: &InstanceObservation| leaving.iter().any(|(other, _)| other.id == instance.id);
    let active = translation.active.range((m, 0)..=(m, u32::MAX)).flat_map(|(_, list)| list);
    let staying: Vec<InstanceState> = active.filter(|instance| !leaves(instance)).map(|instance| instance.state).collect();
    if !staying.contains(&InstanceState::Starting) || staying.contains(&InstanceState::Ready) {
        return false;
    }
    let before = leaving.len();
    leaving.retain(|(instance, _)| instance.state != InstanceState::Ready);
    leaving.len() < before
}

// The first `most` of the instances to add.
fn first(adds: Vec<(u32, u32, u32)>, most: u32) -> Vec<(u32, u32, u32)> {
    let mut left = most;
    let mut taken = adds;
    for add in &mut taken {
        add.2 = add.2.min(left);
        left -= add.2;
    }
    taken.retain(|add| add.2 > 0);
    taken
}

// The number that makes one more instance worth it.
fn why_more(translation: &Translation, solution: &Solution, m: u32) -> String {
    let (app, spec) = (&translation.problem.apps[m as usize], translation.apps[m as usize]);
    let now: u32 = app.current.iter().map(|entry| entry.1).sum();
    if now < app.instances.0 {
        return format!("`{}` runs {now} of at least {} instances", spec.name, app.instances.0);
    }
    format!(
        "`{}` could use {:.2} CPU and gets {:.2} with {} instances, for a utility of {:+.2}",
        spec.name,
        app.demand(),
        solution.layout.given(m),
        solution.layout.instances(m),
        solution.utilities[m as usize]
    )
}

// Sorted by instance, the order in which plans keep them.
fn sorted(mut shares: Vec<CpuShare>) -> Vec<CpuShare> {
    shares.sort_by(|a, b| a.instance.cmp(&b.instance));
    shares
}
