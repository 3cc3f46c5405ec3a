//! Batch jobs: what actions make of their runs, and what the engine tells of these. What is to become of a job is the business of the controller's
//! queue, as in `weal up`.
//!
//! A task is a tenant of its node's machine, with as many threads as it can use cores. What the last plan gave it is its share: it may use
//! what others leave, and they may what it does not use. A change takes the time that it costs; meanwhile the job makes no progress and holds its memory wherever it is, was, or will be.

use weal_control::cycle::{Input, Order};
use weal_control::jobs::ChangeKind;
use weal_model::{Action, Bytes, Cpu, JobName, JobState, NodeName, RunEnd, Stage};
use weal_protocol::Refusal;
use weal_protocol::engine::{JobOrder, RunSeen};

use super::parts::event::{Event, TaskId};
use super::parts::job::{FIRST_TENANT, Job, JobOperation, ROUNDING_S};
use super::parts::signal::Signal;
use super::parts::tasks::{Owner, Task};
use super::state::World;

impl World<'_> {
    /// Enters when each job comes.
    pub fn expect_jobs(&mut self) {
        let scenario = self.scenario;
        for source in &scenario.jobs {
            for spec in source.jobs(scenario.seed, scenario.duration_s) {
                self.agenda.enter(spec.submitted.as_secs_f64(), Event::Submission { job: self.to_come.len() });
                let (stated, tells_progress) = (source.stated(&spec), source.tells_progress);
                self.to_come.push(Job { stated, tells_progress, ..Job::new(spec) });
            }
        }
    }

    /// A client submits a job.
    pub fn submit(&mut self, job: usize) {
        let job = self.to_come[job].clone();
        self.controller.hear(Input::Order(Order::Run { spec: Box::new(job.stated.clone()) }));
        self.jobs.push(job);
    }

    /// A client that found no controller, or had no answer from one, submits the job again.
    pub fn submit_again(&mut self) {
        let is_kept = |job: &&Job| self.controller.records.contains_key(&job.spec.name);
        let not_taken: Vec<_> = self.jobs.iter().filter(|job| !is_kept(job)).map(|job| Box::new(job.stated.clone())).collect();
        not_taken.into_iter().for_each(|spec| self.controller.hear(Input::Order(Order::Run { spec })));
    }

    /// The runs that there are, a task each, as the engine tells of them.
    pub fn runs(&self) -> Vec<RunSeen> {
        let have_run = self.jobs.iter().filter(|job| job.attempt > 0);
        have_run.flat_map(|job| (0..job.nodes.len()).map(|task| self.run_seen(job, task))).collect()
    }

    fn run_seen(&self, job: &Job, task: usize) -> RunSeen {
        let holds_memory = job.state == JobState::Running;
        RunSeen {
            job: job.spec.name.clone(),
            attempt: job.attempt,
            task: task as u32,
            node: self.nodes[job.nodes[task]].name.clone(),
            state: job.run_state(),
            detail: String::new(),
            since: job.since,
            cpu_seconds: Some(self.done_by_task(job, task)),
            memory_used: holds_memory.then_some(job.current().memory),
            end: job.is_done().then_some(RunEnd::Code { code: 0 }),
            progress: job.tells_progress.then(|| (self.done_by_task(job, task) / job.whole()).clamp(0.0, 1.0)),
        }
    }

    /// Work that each task of a job has done, by the one that got least far.
    fn done_by(&self, job: &Job) -> f64 {
        (0..job.left.len()).map(|task| self.done_by_task(job, task)).fold(f64::INFINITY, f64::min)
    }

    fn done_by_task(&self, job: &Job, task: usize) -> f64 {
        let on_machine = |&tenant: &usize| self.nodes[job.nodes[task]].processor.left_of(self.now_s(), tenant);
        let left = job.tenants.get(task).map_or(job.left[task], on_machine);
        job.before() + (job.current().work.0 - left).max(0.0)
    }

    /// The engine is ordered to do something to a job. What cannot be done is refused at once.
    pub fn act_on_job(&mut self, order: &JobOrder) {
        let action = order.action.clone();
        let (name, to, change) = match &action {
            Action::StartJob { job, nodes } => (job, Some(nodes), ChangeKind::Start),
            Action::ResumeJob { job, .. } if self.unpause_job(job) => return self.answer_at_once(action, None),
            Action::ResumeJob { job, nodes } => (job, Some(nodes), ChangeKind::Resume),
            Action::MigrateJob { job, nodes } => (job, Some(nodes), ChangeKind::Migrate),
            Action::SuspendJob { job } => (job, None, ChangeKind::Suspend),
            Action::SetJobCpu { job, cpu } => {
                let refusal = (!self.set_job_cpu(job, *cpu, order.limit)).then(|| not_now(job));
                return self.answer_at_once(action, refusal);
            }
            Action::PauseJob { job } => {
                let refusal = (!self.pause_job(job)).then(|| not_now(job));
                return self.answer_at_once(action, refusal);
            }
            Action::EndJob { job, attempt } => {
                self.end_run(job, *attempt);
                return self.answer_at_once(action, None);
            }
            Action::Start { .. } | Action::Stop { .. } | Action::Sleep { .. } | Action::Resume { .. } => return,
        };
        let wanted = match change {
            ChangeKind::Start => JobState::Pending,
            ChangeKind::Resume | ChangeKind::MoveAndResume => JobState::Suspended,
            ChangeKind::Migrate | ChangeKind::Suspend => JobState::Running,
        };
        let can = change != ChangeKind::Suspend || self.scenario.surroundings.has_swap();
        if let Some(refusal) = self.unknown_work(name) {
            return self.answer_at_once(action, Some(refusal));
        }
        // What stands still in memory can still leave it.
        let may = |job: &Job| change == ChangeKind::Suspend || !job.paused;
        let is_free = |job: &Job| job.state == wanted && job.operation.is_none() && may(job);
        let open = self.open_job(name).filter(|&index| can && is_free(&self.jobs[index]));
        let to = to.map(|names| names.iter().filter_map(|name| self.node_called(name)).collect::<Vec<usize>>());
        let fits = |index: usize| {
            let enough = |to: &Vec<usize>| to.len() == self.jobs[index].spec.tasks as usize && self.has_room_for(index, to);
            to.as_ref().is_none_or(enough)
        };
        match open.filter(|&index| fits(index)) {
            Some(index) => {
                self.jobs[index].attempt = order.attempt;
                self.operate_on_job(index, change, to, action);
            }
            None => {
                let refusal = not_now(name);
                self.answer_at_once(action, Some(refusal));
            }
        }
    }

    /// Knows a job of which only the controller knew until now, as one of a schedule. Why it cannot run, where nothing says how much work it is.
    fn unknown_work(&mut self, name: &JobName) -> Option<Refusal> {
        if self.jobs.iter().any(|job| job.spec.name == *name) {
            return None;
        }
        let spec = self.controller.records.get(name).map(|record| &record.spec);
        match spec.filter(|spec| spec.stages.iter().all(|stage| stage.work.0 > 0.0)) {
            Some(spec) => self.jobs.push(Job::new(spec.clone())),
            None => {
                let detail = format!("nothing says how much work {name} is, so it cannot be simulated: give it `work`");
                return Some(Refusal::StartFailed { detail });
            }
        }
        None
    }

    /// Ends a run, and takes away what is left of it.
    fn end_run(&mut self, name: &JobName, attempt: u32) {
        let Some(index) = self.jobs.iter().position(|job| job.spec.name == *name && job.attempt == attempt) else { return };
        self.halt(index);
        let entry = &mut self.jobs[index];
        if entry.is_done() {
            (entry.attempt, entry.nodes) = (0, Vec::new());
        } else {
            *entry = entry.anew();
        }
    }

    fn pause_job(&mut self, name: &JobName) -> bool {
        let runs = |job: &Job| job.state == JobState::Running && job.operation.is_none();
        let Some(index) = self.open_job(name).filter(|&index| runs(&self.jobs[index])) else { return false };
        self.halt(index);
        (self.jobs[index].paused, self.jobs[index].since) = (true, self.its_time());
        self.emit(Signal::Job { job: index });
        true
    }

    fn unpause_job(&mut self, name: &JobName) -> bool {
        let Some(index) = self.open_job(name).filter(|&index| self.jobs[index].paused) else { return false };
        (self.jobs[index].paused, self.jobs[index].since) = (false, self.its_time());
        self.compute(index);
        self.emit(Signal::Job { job: index });
        true
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

    fn set_job_cpu(&mut self, name: &JobName, cpu: Cpu, limit: Option<Cpu>) -> bool {
        let Some(index) = self.open_job(name).filter(|&index| self.jobs[index].state == JobState::Running) else { return false };
        (self.jobs[index].speed, self.jobs[index].limit) = (cpu.0, limit.map_or(f64::INFINITY, |limit| limit.0));
        self.share_out(index);
        true
    }

    /// Tells the machines the shares of the tasks of a job.
    fn share_out(&mut self, job: usize) {
        let now_s = self.now_s();
        let job = &self.jobs[job];
        let (share, most, places) =
            (job.pace(), job.current().max_speed.0.min(job.limit), job.tenants.iter().copied().zip(job.nodes.iter().copied()));
        for (tenant, node) in places.collect::<Vec<_>>() {
            self.nodes[node].processor.set_share(now_s, tenant, share, Some(most));
            self.mark_dirty(node);
        }
    }

    fn operate_on_job(&mut self, index: usize, change: ChangeKind, to: Option<Vec<usize>>, action: Action) {
        let (now_s, since) = (self.now_s(), self.its_time());
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
        (entry.since, entry.paused) = (since, false);
        entry.operation = Some(JobOperation { change, leaves, fails, began_s: now_s, ordered: Some(action) });
        let (version, mut on) = (entry.version, entry.nodes.clone());
        on.dedup();
        on.into_iter().for_each(|node| self.oracle_memory(node));
        self.agenda.enter(now_s + takes_s, Event::JobChanged { job: index, version });
    }

    /// What was being done to a job is done, or has failed.
    pub fn job_changed(&mut self, index: usize) {
        let since = self.its_time();
        let entry = &mut self.jobs[index];
        let Some(JobOperation { change, leaves, fails, began_s, ordered }) = entry.operation.take() else { return };
        entry.since = since;
        match (change, fails) {
            (ChangeKind::Suspend, false) => (entry.state, entry.speed) = (JobState::Suspended, 0.0),
            (ChangeKind::Start, true) => {
                (entry.state, entry.attempt, entry.nodes, entry.speed) = (JobState::Pending, 0, Vec::new(), 0.0);
            }
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
        self.emit(Signal::Job { job: index });
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
        let (now_s, since) = (self.now_s(), self.its_time());
        let entry = &mut self.jobs[index];
        entry.stage += 1;
        if entry.stage < entry.spec.stages.len() {
            return self.begin_stage(index);
        }
        (entry.state, entry.since, entry.finished_s, entry.speed) = (JobState::Completed, since, Some(now_s), 0.0);
        let end = entry.end();
        self.oracle_job_done(index);
        let late = if now_s > end.deadline_s { format!(", {:.0} s late", now_s - end.deadline_s) } else { String::new() };
        self.recorder.note(now_s, false, format!("job {} is done{late}", end.name));
        self.emit(Signal::Job { job: index });
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
        self.emit(Signal::Job { job: index });
    }

    /// The runs of jobs that have something on a node which is gone are lost, and so is how they ended where no controller has written that down.
    pub fn lose_jobs(&mut self, node: usize) {
        for index in 0..self.jobs.len() {
            let entry = &self.jobs[index];
            let leaves = entry.operation.iter().flat_map(|operation| &operation.leaves);
            if entry.attempt == 0 || !entry.nodes.iter().chain(leaves).any(|&at| at == node) {
                continue;
            }
            let done = self.done_by(entry);
            self.halt(index);
            if let Some(action) = self.jobs[index].operation.take().and_then(|operation| operation.ordered) {
                self.answer_at_once(action, Some(Refusal::failed("its node is gone")));
            }
            let entry = &mut self.jobs[index];
            *entry = entry.anew();
            let text = format!("job {} lost {done:.0} s of work with {} and begins anew", entry.spec.name, self.nodes[node].name);
            self.recorder.note(self.now_s(), false, text);
            self.emit(Signal::Job { job: index });
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
            let is_to_compute = job.state == JobState::Running && job.operation.is_none() && !job.paused;
            if job.computes() != is_to_compute || job.tenants.len() > tasks {
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
