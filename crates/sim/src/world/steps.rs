//! Steps of what is under way: waiting, computing, leaving through a link.

use weal_model::InstanceState;
use weal_rng as random;
use weal_scenario::WorkDistribution;

use super::parts::event::{Event, TaskId};
use super::parts::processor;
use super::parts::signal::Signal;
use super::parts::tasks::{Owner, Sender, TaskStep};
use super::state::World;

impl World<'_> {
    /// A step is over: on to the next.
    pub fn step(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.at += 1;
        (task.computes_at, task.leaves_by) = (None, None);
        self.begin_step(id);
    }

    /// Begins the step that a task is at; at the end of its steps it has ended.
    pub fn begin_step(&mut self, id: TaskId) {
        let now_s = self.now_s();
        let Some(task) = self.tasks.get(id) else { return };
        let (home, callee, flow) =
            (task.home, task.callee, if let Owner::Request(request) = task.owner { Some(request.flow) } else { None });
        let (instance, work_s) = match task.steps.get(task.at) {
            None => return self.emit(Signal::Ended(id)),
            Some(&TaskStep::Wait(seconds)) => return self.agenda.enter(now_s + seconds, Event::Waited { task: id }),
            Some(&TaskStep::Send { from, seconds }) => return self.begin_sending(id, from, seconds),
            Some(&TaskStep::Own { work_s, spread }) => {
                // Who goes on after a call does not come in now.
                if let (Some(_), None, Some(cores)) = (flow, callee, &mut self.cores) {
                    cores.handle_arrival();
                }
                let factor = flow.map_or(1.0, |flow| self.flows[flow].factor);
                (Some(home), self.draw_work(flow, self.instances[home].app, work_s * factor, spread))
            }
            Some(&TaskStep::Other { app, work_s, spread }) => {
                let chosen = callee.filter(|&callee| self.is_callee(callee, app)).or_else(|| self.next_callee(app));
                (chosen, self.draw_work(flow, app, work_s, spread))
            }
        };
        let begun = instance.is_some_and(|instance| {
            let node = self.instances[instance].node;
            self.mark_dirty(node);
            self.nodes[node].processor.begin(now_s, instance, id, work_s)
        });
        if !begun {
            return self.emit(Signal::Broken(id));
        }
        if let Some(task) = self.tasks.get_mut(id) {
            task.computes_at = instance;
            task.callee = instance;
        }
    }

    /// Something leaves through a link. What stays on its node passes none.
    fn begin_sending(&mut self, id: TaskId, from: Sender, seconds: f64) {
        let now_s = self.now_s();
        let Some(task) = self.tasks.get(id) else { return };
        let (home, called) = (task.home, task.callee);
        let callee = if let Sender::Caller { app } = from { self.next_callee(app) } else { called };
        let node_of = |instance: usize| self.instances[instance].node;
        let link = match from {
            Sender::Gateway => self.gateway_link(),
            Sender::Callee => callee.map_or(node_of(home), node_of),
            Sender::Caller { .. } | Sender::Home => node_of(home),
        };
        let is_call = matches!(from, Sender::Caller { .. } | Sender::Callee);
        let stays = is_call && callee.is_some_and(|callee| node_of(callee) == node_of(home));
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.callee = callee;
        if stays {
            return self.step(id);
        }
        task.leaves_by = Some(link);
        self.links[link].processor.begin(now_s, processor::EVERYBODY, id, seconds);
        self.enter_link(link);
    }

    fn enter_link(&mut self, link: usize) {
        let entry = &mut self.links[link];
        entry.version += 1;
        let (at_s, version) = (entry.processor.next_s(), entry.version);
        self.agenda.enter(at_s, Event::Link { link, version });
    }

    /// Goes on with what has left through a link.
    pub fn deliver(&mut self, link: usize) {
        let now_s = self.now_s();
        let mut done = std::mem::take(&mut self.done);
        self.links[link].processor.take_done(now_s, &mut done);
        self.enter_link(link);
        done.drain(..).for_each(|task| self.emit(Signal::Stepped(task)));
        self.done = done;
    }

    /// What is on its way through a link is lost.
    pub fn cut(&mut self, link: usize) {
        let lost = self.tasks.iter().filter(|(_, task)| task.leaves_by == Some(link)).map(|(id, _)| id);
        let lost: Vec<TaskId> = lost.collect();
        self.links[link].processor = processor::link();
        self.enter_link(link);
        lost.into_iter().for_each(|id| self.emit(Signal::Broken(id)));
    }

    fn draw_work(&mut self, flow: Option<usize>, app: usize, mean_s: f64, spread: WorkDistribution) -> f64 {
        let Some(flow) = flow else { return mean_s };
        let mean_s = mean_s * self.scenario.behaviours[self.apps[app].name.as_str()].factor_at(self.now_s());
        match spread {
            WorkDistribution::Constant => mean_s,
            WorkDistribution::Exponential => random::exponential(&mut self.flows[flow].work, mean_s),
        }
    }

    fn is_callee(&self, instance: usize, app: usize) -> bool {
        self.instances[instance].app == app && self.instances[instance].state == InstanceState::Ready
    }

    /// The instance of `app` whose turn it is to be called by others.
    fn next_callee(&mut self, app: usize) -> Option<usize> {
        let ready: Vec<usize> = (0..self.instances.len()).filter(|&i| self.is_callee(i, app)).collect();
        let turn = self.apps[app].next_callee;
        self.apps[app].next_callee = turn.wrapping_add(1);
        (!ready.is_empty()).then(|| ready[turn % ready.len()])
    }

    /// Goes on with what is done on a node.
    pub fn collect(&mut self, node: usize) {
        let now_s = self.now_s();
        self.mark_dirty(node);
        let mut done = std::mem::take(&mut self.done);
        self.nodes[node].processor.take_done(now_s, &mut done);
        done.drain(..).for_each(|task| self.emit(Signal::Stepped(task)));
        self.done = done;
    }
}
