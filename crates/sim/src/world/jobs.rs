//! Batch jobs: from when they come until they are done, as actions start, suspend, resume and move them.
//!
//! A task is a tenant of its node's machine, with as many threads as it can use cores. What the last plan gave it is its share: it may use
//! what others leave, and they may what it does not use. A change takes the time that it costs; meanwhile the job makes no progress and holds its memory wherever it is, was, or will be.

use weal_control::jobs::ChangeKind;
use weal_model::{Action, Bytes, Cpu, JobName, JobObservation, JobState, NodeName, Stage};
use weal_protocol::Refusal;

use super::parts::event::{Event, TaskId};
use super::parts::job::{FIRST_TENANT, Job, JobOperation, ROUNDING_S};
use super::parts::signal::Signal;
use super::parts::tasks::{Owner, Task};
use super::state::World;

impl World<'_> {
    /// Enters when each job comes.
    pub fn expect_jobs(&mut self) {
        let scenario = self.scenario;
        for spec in scenario.jobs.iter().flat_map(|source| source.jobs(scenario.seed, scenario.duration_s)) {
            self.agenda.enter(spec.submitted.as_secs_f64(), Event::Submission { job: self.to_come.len() });
            self.to_come.push(spec);
        }
    }

    pub fn submit(&mut self, job: usize) {
        self.jobs.push(Job::new(self.to_come[job].clone()));
        self.emit(Signal::Jobs);
    }

    /// The jobs that are not done, as the controller knows them, sorted by name.
    pub fn observe_jobs(&self) -> Vec<JobObservation> {
        let open = self.jobs.iter().filter(|job| !job.is_done());
        let name = |node: usize| self.nodes[node].name.clone();
        let mut seen: Vec<JobObservation> = open.map(|job| job.observation(self.done_by(job), name)).collect();
        seen.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        seen
    }

    /// Work that each task of a job has done, by the one that got least far.
    fn done_by(&self, job: &Job) -> f64 {
        let processor = |task: usize| &self.nodes[job.nodes[task]].processor;
        let now_s = self.now_s();
        let left =
            |(task, &left): (usize, &f64)| job.tenants.get(task).map_or(left, |&tenant| processor(task).left_of(now_s, tenant));
        let most_left = job.left.iter().enumerate().map(left).fold(0.0, f64::max);
        job.before() + (job.current().work.0 - most_left).max(0.0)
    }

    /// The engine is ordered to do something to a job. What cannot be done is refused at once.
    pub fn act_on_job(&mut self, action: Action) {
        let (name, to, change) = match &action {
            Action::StartJob { job, nodes } => (job, Some(nodes), ChangeKind::Start),
            Action::ResumeJob { job, nodes } => (job, Some(nodes), ChangeKind::Resume),
            Action::MigrateJob { job, nodes } => (job, Some(nodes), ChangeKind::Migrate),
            Action::SuspendJob { job } => (job, None, ChangeKind::Suspend),
            Action::SetJobCpu { job, cpu } => {
                let refusal = (!self.set_job_cpu(job, *cpu)).then(|| not_now(job));
                return self.emit(Signal::Acted { action, took_s: 0.0, refusal });
            }
            // Nobody gives a simulated queue orders.
            Action::PauseJob { job } | Action::EndJob { job, .. } => {
                let refusal = Some(not_now(job));
                return self.emit(Signal::Acted { action, took_s: 0.0, refusal });
            }
            Action::Start { .. } | Action::Stop { .. } | Action::Sleep { .. } | Action::Resume { .. } => return,
        };
        let wanted = match change {
            ChangeKind::Start => JobState::Pending,
            ChangeKind::Resume | ChangeKind::MoveAndResume => JobState::Suspended,
            ChangeKind::Migrate | ChangeKind::Suspend => JobState::Running,
        };
        let can = change != ChangeKind::Suspend || self.scenario.surroundings.has_swap();
        let open = self.open_job(name).filter(|&index| self.jobs[index].state == wanted && self.jobs[index].operation.is_none());
        let open = open.filter(|_| can);
        let to = to.map(|names| names.iter().filter_map(|name| self.node_called(name)).collect::<Vec<usize>>());
        let fits = |index: usize| {
            let enough = |to: &Vec<usize>| to.len() == self.jobs[index].spec.tasks as usize && self.has_room_for(index, to);
            to.as_ref().is_none_or(enough)
        };
        match open.filter(|&index| fits(index)) {
            Some(index) => self.operate_on_job(index, change, to, action),
            None => {
                let refusal = not_now(name);
                self.emit(Signal::Acted { action, took_s: 0.0, refusal: Some(refusal) });
            }
        }
    }

    fn open_job(&self, name: &JobName) -> Option<usize> {
        self.jobs.iter().position(|job| job.spec.name == *name && !job.is_done())
    }

    fn node_called(&self, name: &NodeName) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == *name && node.up)
    }

    /// Who makes room for it may not be done yet.
    fn has_room_for(&self, job: usize, to: &[usize]) -> bool {
        let memory = self.jobs[job].current().memory;
        to.iter().all(|&node| {
            let tasks = to.iter().filter(|&&other| other == node).count() as u64;
            self.room(node) >= Bytes(memory.0.saturating_mul(tasks))
        })
    }

    fn set_job_cpu(&mut self, name: &JobName, cpu: Cpu) -> bool {
        let Some(index) = self.open_job(name).filter(|&index| self.jobs[index].state == JobState::Running) else { return false };
        self.jobs[index].speed = cpu.0;
        self.share_out(index);
        true
    }

    /// Tells the machines the shares of the tasks of a job.
    fn share_out(&mut self, job: usize) {
        let now_s = self.now_s();
        let job = &self.jobs[job];
        let (share, most, places) =
            (job.pace(), job.current().max_speed.0, job.tenants.iter().copied().zip(job.nodes.iter().copied()));
        for (tenant, node) in places.collect::<Vec<_>>() {
            self.nodes[node].processor.set_share(now_s, tenant, share, Some(most));
            self.mark_dirty(node);
        }
    }

    fn operate_on_job(&mut self, index: usize, change: ChangeKind, to: Option<Vec<usize>>, action: Action) {
        let now_s = self.now_s();
        self.halt(index);
        let costs = self.scenario.surroundings.job_costs();
        let entry = &self.jobs[index];
        let moves = change == ChangeKind::Resume && to.as_ref() != Some(&entry.nodes);
        let change = if moves { ChangeKind::MoveAndResume } else { change };
        let takes_s = costs.of(change, entry.current().memory.0);
        let (takes_s, fails) = self.draw_failure(takes_s);
        let entry = &mut self.jobs[index];
        let mut leaves = Vec::new();
        if let Some(to) = to {
            let before = std::mem::replace(&mut entry.nodes, to);
            // Where a suspended one was it holds no memory.
            leaves = if change == ChangeKind::Migrate { before } else { Vec::new() };
            entry.state = JobState::Running;
            if change != ChangeKind::Migrate {
                entry.speed = 0.0;
            }
        }
        entry.version += 1;
        entry.operation = Some(JobOperation { change, leaves, fails, began_s: now_s, ordered: Some(action) });
        let (version, mut on) = (entry.version, entry.nodes.clone());
        on.dedup();
        on.into_iter().for_each(|node| self.oracle_memory(node));
        self.agenda.enter(now_s + takes_s, Event::JobChanged { job: index, version });
    }

    /// What was being done to a job is done, or has failed.
    pub fn job_changed(&mut self, index: usize) {
        let entry = &mut self.jobs[index];
        let Some(JobOperation { change, leaves, fails, began_s, ordered }) = entry.operation.take() else { return };
        match (change, fails) {
            (ChangeKind::Suspend, false) => (entry.state, entry.speed) = (JobState::Suspended, 0.0),
            (ChangeKind::Start, true) => (entry.state, entry.nodes, entry.speed) = (JobState::Pending, Vec::new(), 0.0),
            // Its image may be anywhere, so that it is where it would have been.
            (ChangeKind::Resume | ChangeKind::MoveAndResume, true) => (entry.state, entry.speed) = (JobState::Suspended, 0.0),
            (ChangeKind::Migrate, true) => entry.nodes = leaves,
            _ => {}
        }
        if entry.state == JobState::Running {
            self.compute(index);
        }
        if let Some(action) = ordered {
            let refusal = fails.then(|| Refusal::failed("the simulated machine failed"));
            self.emit(Signal::Acted { action, took_s: self.now_s() - began_s, refusal });
        }
        self.emit(Signal::Jobs);
    }

    /// Puts the tasks of a job on the machines.
    fn compute(&mut self, index: usize) {
        let now_s = self.now_s();
        let threads = self.jobs[index].current().max_speed.0.ceil().max(1.0) as u32;
        let places: Vec<(usize, f64)> =
            self.jobs[index].nodes.iter().copied().zip(self.jobs[index].left.iter().copied()).collect();
        for (task, (node, left)) in places.into_iter().enumerate() {
            let tenant = FIRST_TENANT + self.tenants;
            self.tenants += 1;
            self.nodes[node].processor.add(tenant);
            for _ in 0..threads {
                let id = self.tasks.insert(Task::new(Owner::Job { job: index, task }, [].into(), tenant));
                self.nodes[node].processor.begin(now_s, tenant, id, left / f64::from(threads));
            }
            self.jobs[index].tenants.push(tenant);
            self.jobs[index].threads.push(threads);
        }
        self.share_out(index);
    }

    /// Takes the tasks of a job off the machines; what they still have to do is written down.
    fn halt(&mut self, index: usize) {
        let now_s = self.now_s();
        let (tenants, nodes) = (std::mem::take(&mut self.jobs[index].tenants), self.jobs[index].nodes.clone());
        self.jobs[index].threads.clear();
        for (task, (tenant, node)) in tenants.into_iter().zip(nodes).enumerate() {
            self.jobs[index].left[task] = self.nodes[node].processor.left_of(now_s, tenant);
            for id in self.nodes[node].processor.remove(now_s, tenant) {
                self.tasks.remove(id);
            }
            self.mark_dirty(node);
        }
    }

    /// One of the threads of a task has done its part.
    pub fn thread_is_done(&mut self, id: TaskId, index: usize, task: usize) {
        self.tasks.remove(id);
        let entry = &mut self.jobs[index];
        entry.threads[task] -= 1;
        if entry.threads.iter().any(|&threads| threads > 0) {
            return;
        }
        self.halt(index);
        let now_s = self.now_s();
        let entry = &mut self.jobs[index];
        entry.stage += 1;
        if entry.stage < entry.spec.stages.len() {
            return self.begin_stage(index);
        }
        (entry.state, entry.finished_s, entry.speed) = (JobState::Completed, Some(now_s), 0.0);
        let end = entry.end();
        entry.nodes.clear();
        self.oracle_job_done(index);
        let late = if now_s > end.deadline_s { format!(", {:.0} s late", now_s - end.deadline_s) } else { String::new() };
        self.recorder.note(now_s, false, format!("job {} is done{late}", end.name));
        self.emit(Signal::Jobs);
    }

    /// Goes on with the stage that a job has come to, if there is room for it where it is; else it waits for a plan.
    fn begin_stage(&mut self, index: usize) {
        let job = &self.jobs[index];
        let (stage, before) = (*job.current(), job.spec.stages[job.stage - 1].memory);
        let more = |node: usize| {
            let tasks = job.nodes.iter().filter(|&&at| at == node).count() as u64;
            // What it holds by now is what this stage takes.
            let (taken, had) = (stage.memory.0.saturating_mul(tasks), before.0.saturating_mul(tasks));
            self.memory_held(node) + Bytes(had.saturating_sub(taken)) > self.scenario.pool.nodes[node].memory
        };
        let fits = job.speed >= stage.min_speed.0 && !job.nodes.iter().any(|&node| more(node));
        let entry = &mut self.jobs[index];
        entry.left.fill(stage.work.0);
        if fits {
            self.compute(index);
        } else {
            (entry.state, entry.speed) = (JobState::Suspended, 0.0);
            let text = format!("job {} waits: there is not enough room for its next stage", entry.spec.name);
            self.recorder.note(self.now_s(), false, text);
        }
        self.emit(Signal::Jobs);
    }

    /// Jobs that have something on a node which is gone begin anew.
    pub fn lose_jobs(&mut self, node: usize) {
        for index in 0..self.jobs.len() {
            let entry = &self.jobs[index];
            let leaves = entry.operation.iter().flat_map(|operation| &operation.leaves);
            if entry.is_done() || !entry.nodes.iter().chain(leaves).any(|&at| at == node) {
                continue;
            }
            let done = self.done_by(entry);
            self.halt(index);
            if let Some(action) = self.jobs[index].operation.take().and_then(|operation| operation.ordered) {
                self.emit(Signal::Acted { action, took_s: 0.0, refusal: Some(Refusal::failed("its node is gone")) });
            }
            let entry = &mut self.jobs[index];
            *entry = Job { version: entry.version + 1, ..Job::new(entry.spec.clone()) };
            let text = format!("job {} lost {done:.0} s of work with {} and begins anew", entry.spec.name, self.nodes[node].name);
            self.recorder.note(self.now_s(), false, text);
        }
    }

    /// What must hold of a job that has ended: it was not quicker than it could be.
    fn oracle_job_done(&mut self, index: usize) {
        let now_s = self.now_s();
        let job = &self.jobs[index];
        let best_s: f64 = job.spec.stages.iter().map(Stage::best_s).sum();
        let took_s = now_s - job.spec.submitted.as_secs_f64();
        if took_s < best_s - ROUNDING_S * (1.0 + best_s) {
            let text = format!("job {} was done in {took_s:.3} s, and takes {best_s:.3} s at full speed", job.spec.name);
            self.oracle.note(now_s, text);
        }
    }

    /// What must hold of the jobs that are not done (design, "What must always hold").
    pub fn examine_jobs(&mut self) {
        let mut findings = Vec::new();
        let done: Vec<f64> = self.jobs.iter().map(|job| self.done_by(job)).collect();
        for (job, &done) in self.jobs.iter().zip(&done).filter(|(job, _)| !job.is_done()) {
            let (name, tasks) = (&job.spec.name, job.spec.tasks as usize);
            if job.state == JobState::Running && (job.nodes.len() != tasks || job.nodes.iter().any(|&node| !self.nodes[node].up))
            {
                findings.push(format!("job {name} runs on {} nodes that are up, and has {tasks} tasks", job.nodes.len()));
            }
            if job.computes() != (job.state == JobState::Running && job.operation.is_none()) || job.tenants.len() > tasks {
                findings.push(format!("job {name} is {:?} with {} tasks on the machines", job.state, job.tenants.len()));
            }
            if done < job.seen_done - ROUNDING_S {
                findings.push(format!("job {name} has done {done}, and had done {}", job.seen_done));
            }
            if !(-ROUNDING_S..=job.whole() * (1.0 + 1e-9) + ROUNDING_S).contains(&done) {
                findings.push(format!("job {name} has done {done} of {}", job.whole()));
            }
        }
        self.jobs.iter_mut().zip(done).for_each(|(job, done)| job.seen_done = done);
        findings.into_iter().for_each(|text| self.oracle.note(self.agenda.now_s(), text));
    }
}

fn not_now(job: &JobName) -> Refusal {
    Refusal::failed(format!("{job} is not in a state for it now, or there is no room"))
}
