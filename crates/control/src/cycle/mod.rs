//! The control loop: observe -> profile -> plan -> check -> apply, as a state machine without I/O.
//!
//! ```text
//! cycle.handle_config(now, config);          // what happened: handle_*
//! while let Some(effect) = cycle.poll_effect() { … }   // what is to be done: carried out beside the loop
//! cycle.poll_timeout()                       // when handle_timeout must be called
//! ```
//!
//! The controller does the I/O around it; the simulator drives it in virtual time; a recorded pool's [`Input`]s replay it. It never waits:
//! a peer that does not answer costs nothing but its own answers, and orders are answered by what is known.
//!
//! | what happens | what follows |
//! | --- | --- |
//! | the flow cycle's timer | observe, learn, new seats and weights, status, one sample of history; a placement plan when a goal is missed |
//! | the placement cycle's timer | a placement plan, checked, applied |
//! | an instance changed its state | seats for one that got ready, endpoints to the gateway at once, then a placement plan |
//! | a new config | endpoints and routes at once, then a placement plan |
//! | an action is done | its outcome is an event, then a placement plan |
//!
//! Three layers, each of which knows only those above it: parts, each with its own state; [`state`], which holds them all; and what the loop
//! does with several of them.
//!
//! | file | part |
//! | --- | --- |
//! | `effect` | what goes in and out |
//! | `peers` | the engine and the gateway: what they said and were told, whether they answer |
//! | `timers` | what is due when |
//! | `observe` | counters -> snapshot |
//! | `learned` | what is known from earlier cycles: profiles, costs of changes, which application was asked for when |
//! | `seats` | seats, weights and CPU in force |
//! | `plans` | what was planned, and what is being planned |
//! | `starts` | failed starts, and numbers of instances |
//! | `operations` | draining, and actions under way |
//! | `rollout` | replacing instances of an old config |
//! | `app_orders` | what people ordered about applications, beside the config |
//! | `tasks` | what runs once per deploy, and what waits for it |
//! | `rest` | which applications were told to sleep, and which were asked for meanwhile |
//! | `queue` | the controller's own jobs: their records and their runs |
//! | `schedules` | the config's schedules: which dates are due |
//! | `gateway` | from what is known to a gateway's config |
//! | `recent` | flows over the last few cycles, for people |
//! | `notes` | events about seats, instances and plans |
//! | `problems` | what is wrong with weal itself |
//! | `status`, `job_status` | what people are shown |
//!
//! | file | what the loop does |
//! | --- | --- |
//! | `seating` | decides seats, and has the engine divide CPU |
//! | `telling` | tells the gateway |
//! | `verbs` | takes orders to restart, stop, start and scale |
//! | `nodes` | makes the engine's nodes those of the config |
//! | `acting` | from an action to an operation |
//! | `job_limits` | how much CPU a job may take beside applications |
//! | `jobs`, `submissions` | takes jobs and orders about them, brings runs to what their records say |
//! | `forecast` | what would become of a job that is not submitted yet |
//! | `scheduling` | submits jobs of schedules at their dates |
//! | `sleep` | takes orders to sleep and to wake, calls sleeps off |
//! | `placing` | from a plan to actions, and what came of them |
//! | `looks` | goes on when a look at a peer has ended |

mod acting;
mod app_orders;
mod awake;
mod between;
mod effect;
mod forecast;
mod gateway;
mod job_files;
mod job_limits;
mod job_status;
mod jobs;
mod keeping_awake;
mod learned;
mod looks;
mod nodes;
mod notes;
mod observe;
mod operations;
mod peers;
mod placing;
mod plans;
mod problems;
mod put_off;
mod queue;
mod quotas;
mod recent;
mod rest;
mod rollout;
mod schedules;
mod scheduling;
mod seating;
mod seats;
mod sleep;
mod starts;
mod state;
mod status;
mod submissions;
mod tasks;
mod telling;
mod timers;
mod verbs;

use std::collections::BTreeMap;
use std::sync::Arc;

use weal_model::{
    AppName, Cpu, HistorySample, InstanceId, InstanceState, JobName, JobRecord, JobSpec, JobStatus, Plan, Report, Rung,
    ScheduleStatus, SeatPlan, Status, Submitter, Time,
};
use weal_protocol::Refusal;
use weal_protocol::controller::{AppOrdered, AppVerb, JobSubmission, JobVerb, SleepTaken, WakeTaken};
use weal_protocol::engine::Observation;
use weal_protocol::gateway::GatewayCounters;
use weal_protocol::node::InstanceEvent;

pub use app_orders::AppOrders;
pub use effect::{Config, Done, Effect, Input, Kept, NotPlanned, Note, Order, PlanRequest, Planned, Start, StoreProblem};
pub use forecast::Rehearsal;
pub use jobs::JobOrdered;
pub use observe::flow_between;
pub use put_off::PutOff;
pub use queue::StoredJobs;
pub use schedules::{Mark, Marks};
pub use state::Counts;
use state::State;

/// The loop.
#[derive(Debug)]
pub struct Cycle(State);

impl Cycle {
    /// A loop that goes on from `start`. It looks at once.
    pub fn new(now: Time, start: Start) -> Self {
        let mut state = State::new(now, start);
        state.begin_flow_cycle(now, false);
        state.timers.schedule_plan(now);
        Self(state)
    }

    /// What is to be done next; `None` when nothing is until something happens.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.0.outbox.pop_front()
    }

    /// When [`Cycle::handle_timeout`] is to be called at the latest.
    pub fn poll_timeout(&self) -> Time {
        let timers = self.0.timers.next(self.0.operations.any_draining(), self.0.waiting.flow_cycle.is_some());
        [self.0.next_date, self.0.next_awake].into_iter().flatten().fold(timers, Time::min)
    }

    /// Any of what may happen; for replays. An order's answer is lost.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Timeout => self.handle_timeout(now),
            Input::Config(config) => self.handle_config(now, config),
            Input::Gateway(answer) => self.handle_gateway(now, answer),
            Input::Engine(answer) => self.handle_engine(now, answer),
            Input::Events(events) => self.handle_events(now, &events),
            Input::Store(answer) => self.handle_store(answer),
            Input::Order(Order::Sleep { app, rung }) => drop(self.handle_sleep(now, &app, rung)),
            Input::Order(Order::Wake { app }) => drop(self.handle_wake(now, &app)),
            Input::Order(Order::App { app, verb }) => drop(self.handle_verb(now, &app, verb)),
            Input::Order(Order::Submit { submission, submitter }) => {
                drop(self.handle_submission(now, &submission, submitter.as_ref()));
            }
            Input::Order(Order::Run { spec }) => drop(self.handle_job(now, *spec)),
            Input::Order(Order::Job { job, verb, by }) => drop(self.handle_job_order(now, &job, verb, by.as_ref())),
            Input::Done(done) => self.handle_done(now, done),
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        let due = self.0.timers.poll_due(now, self.0.operations.any_draining());
        // The last cycle first: its patience is no longer the next one's.
        if due.patience_is_over && self.0.waiting.flow_cycle.is_some() {
            self.0.end_flow_cycle(now);
        }
        if due.flow_cycle {
            self.0.begin_flow_cycle(now, true);
        }
        if due.drains {
            self.0.gateway.look.want();
            // What has drained for as long as it may goes on, whether or not the gateway says anything.
            self.0.on_counters(now);
        }
        if due.placement_cycle {
            self.0.timers.schedule_plan(now);
        }
        if due.plan {
            self.0.begin_plan(now);
        }
        self.0.follow_schedules(now);
        self.0.follow_awake(now);
        self.0.look(now);
    }

    /// Works by `config` from now on.
    pub fn handle_config(&mut self, now: Time, config: Config) {
        self.0.timers.restart(now, Some(&config.pool));
        self.0.put_in_force(config);
        self.0.follow_awake(now);
        self.0.placing.starts.forget();
        self.0.engine.retry_nodes = now;
        self.0.waiting.update = Some(self.0.engine.look.want());
        self.0.push_gateway_config();
        self.0.timers.schedule_plan(now);
        self.0.look(now);
        self.0.show(false);
    }

    /// The gateway's counters, or why there are none.
    pub fn handle_gateway(&mut self, now: Time, answer: Result<GatewayCounters, Refusal>) {
        match &answer {
            Ok(_) => self.0.clear_problem("gateway", "the gateway answers again"),
            Err(error) => self.0.raise_problem("gateway", unanswered("the gateway", error)),
        }
        self.0.gateway.handle_counters(answer.ok());
        self.0.follow_inner_addresses();
        if self.0.gateway.take_said_where_calls_go() {
            // Starts may have waited for that.
            self.0.timers.schedule_plan(now);
        }
        if !self.0.end_flow_cycle_if_seen(now) {
            self.0.on_counters(now);
        }
        self.0.look(now);
    }

    /// What runs, or why nobody says so.
    pub fn handle_engine(&mut self, now: Time, answer: Result<Observation, Refusal>) {
        self.0.engine.look.handle_end();
        match answer {
            Ok(seen) => {
                self.0.clear_problem("agent", &format!("{} answers again", self.0.engine.peer));
                self.0.learned.handle_seen(&seen);
                let surprise = self.0.queue.handle_seen(seen.time, &seen, &self.0.operations);
                self.0.on_surprise(now, surprise);
                self.0.engine.handle_seen(now, seen);
                self.0.settle_jobs(now);
                self.0.follow_schedules(now);
                self.0.follow_awake(now);
                if !self.0.configure_nodes(now) {
                    self.0.serve_waiting(now);
                }
            }
            Err(error) => {
                self.0.engine.is_up = false;
                self.0.raise_problem("agent", unanswered(&self.0.engine.peer, &error));
                self.0.waiting.plan.take_if(|ticket| self.0.engine.look.has_ended(*ticket));
                self.0.end_flow_cycle_if_seen(now);
                self.0.show(false);
            }
        }
        self.0.look(now);
    }

    /// Instances changed their states.
    pub fn handle_events(&mut self, now: Time, events: &[InstanceEvent]) {
        // A new controller is told once more what an earlier one has handled.
        if events.iter().any(|event| event.job.is_some()) {
            self.0.engine.look.want();
        }
        let is_news = |event: &&InstanceEvent| event.job.is_none() && event.time > self.0.noted_until;
        let new: Vec<&InstanceEvent> = events.iter().filter(is_news).collect();
        for event in &new {
            self.0.note(notes::instance(event));
            *self.0.counts.transitions.entry((event.app.clone(), event.state)).or_default() += 1;
        }
        self.0.sleep.handle_events(new.iter().copied());
        self.0.keep_resting();
        let ticket = self.0.engine.look.want();
        let ready: Vec<InstanceEvent> = new.into_iter().filter(|event| event.state == InstanceState::Ready).cloned().collect();
        if !ready.is_empty() {
            let mut waiting = self.0.waiting.ready.take().map_or_else(Vec::new, |(_, waiting)| waiting);
            waiting.extend(ready);
            self.0.waiting.ready = Some((ticket, waiting));
        }
        self.0.timers.schedule_plan(now);
        self.0.look(now);
    }

    /// An effect was carried out, or could not be.
    pub fn handle_done(&mut self, now: Time, done: Done) {
        match done {
            Done::Gateway(result) => self.0.handle_gateway_told(result),
            Done::Nodes(result) => self.0.handle_nodes_configured(now, result),
            Done::Acted(outcome) => self.0.handle_acted(now, outcome),
            Done::Updated(result) => self.0.handle_updated(result),
            Done::CpuShares(result) => self.0.handle_cpu_shares_set(result),
            Done::Reserves(result) => self.0.handle_reserves_set(result),
            Done::JobsKept { jobs, write, result } => self.0.handle_jobs_kept(now, &jobs, write, &result),
            Done::Planned(planned) => self.0.handle_planned(now, *planned),
        }
        self.0.look(now);
    }

    /// Puts an application to sleep until somebody asks for it.
    ///
    /// # Errors
    /// When it cannot sleep.
    pub fn handle_sleep(&mut self, now: Time, app: &AppName, rung: Option<Rung>) -> Result<SleepTaken, Refusal> {
        let taken = self.0.take_sleep(now, app, rung);
        self.0.look(now);
        taken
    }

    /// Wakes the cheapest sleeping instance of an application.
    ///
    /// # Errors
    /// When nothing can be woken now.
    pub fn handle_wake(&mut self, now: Time, app: &AppName) -> Result<WakeTaken, Refusal> {
        let taken = self.0.take_wake(now, app);
        self.0.look(now);
        taken
    }

    /// Restarts, stops, starts or scales an application, or keeps it awake.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn handle_verb(&mut self, now: Time, app: &AppName, verb: AppVerb) -> Result<AppOrdered, Refusal> {
        let taken = self.0.take_verb(now, app, verb);
        self.0.look(now);
        taken
    }

    /// Takes a job in, as far as the submitter's quota allows. Whoever handed it in is told so once [`JobOrdered::write`] has succeeded.
    ///
    /// # Errors
    /// When it cannot be run here.
    pub fn handle_submission(
        &mut self,
        now: Time,
        submission: &JobSubmission,
        submitter: Option<&Submitter>,
    ) -> Result<JobOrdered, Refusal> {
        let taken = self.0.take_submission(now, submission, submitter);
        self.0.look(now);
        taken
    }

    /// Takes in a job that says all of itself.
    ///
    /// # Errors
    /// When one of its name is not over, or the jobs of an earlier controller could not be read.
    pub fn handle_job(&mut self, now: Time, spec: JobSpec) -> Result<JobOrdered, Refusal> {
        let taken = self.0.take_job(spec);
        self.0.look(now);
        taken
    }

    /// Prepares a forecast for a submission: [`Rehearsal::run`] makes it, beside the loop. Nothing is taken in.
    ///
    /// # Errors
    /// When the job could not be run here, or nothing was measured yet.
    pub fn rehearse(&self, now: Time, submission: &JobSubmission) -> Result<Rehearsal, Refusal> {
        self.0.rehearse(now, submission)
    }

    /// Takes an order about a job. Whoever gave it is told so once [`JobOrdered::write`] has succeeded.
    ///
    /// # Errors
    /// When there is no such job, its state allows no such order, or the token `by` does not.
    pub fn handle_job_order(
        &mut self,
        now: Time,
        job: &JobName,
        verb: JobVerb,
        by: Option<&Submitter>,
    ) -> Result<JobOrdered, Refusal> {
        let taken = self.0.take_job_order(now, job, verb, by);
        self.0.look(now);
        taken
    }

    /// One job as people are shown it: one that is not over, or was lately.
    pub fn job(&self, job: &JobName) -> Option<JobStatus> {
        let (queue, planned) = (&self.0.queue, &self.0.placing.report.jobs);
        let over = || queue.over().find(|record| record.spec.name == *job).map(|record| self.over(record));
        let between = |entry: &queue::Entry| self.0.between(entry);
        queue.get(job).map(|entry| job_status::of_open(entry, queue.runs(), planned.get(job), between)).or_else(over)
    }

    /// The jobs that are not over, and the last that are, at most `most`; of those alone that the token `by` may see.
    pub fn jobs(&self, most: usize, by: Option<&Submitter>) -> Vec<JobStatus> {
        let is_shown = |record: &JobRecord| by.is_none_or(|by| by.reaches(record.submitter.as_deref()));
        job_status::jobs(&self.0.queue, &self.0.placing.report.jobs, most, is_shown, |entry| self.0.between(entry))
    }

    /// The config's schedules, as people are shown them.
    pub fn schedules(&self, now: Time) -> Vec<ScheduleStatus> {
        self.0.schedules.statuses(self.0.engine.its_time(now))
    }

    /// The jobs of a status, which needs no token: without their commands, which may hold secrets, and without the tokens that submitted them.
    fn shown_jobs(&self) -> Vec<JobStatus> {
        let mut jobs = self.jobs(JOBS_SHOWN, None);
        for job in &mut jobs {
            (job.command, job.submitter) = (Vec::new(), None);
        }
        jobs
    }

    /// A job that is over as people are shown it.
    pub fn over(&self, record: &JobRecord) -> JobStatus {
        job_status::of_record(record, self.0.queue.runs())
    }

    /// The store writes again, or why it cannot.
    pub fn handle_store(&mut self, answer: Result<(), StoreProblem>) {
        match answer {
            Ok(()) => self.0.clear_problem("store", "the store writes again"),
            Err(problem) => self.0.raise_problem("store", problem.to_string()),
        }
        self.0.show(false);
    }

    /// What a plan would be made from now, to ask why it is as it is; `None` before anything was measured.
    pub fn question(&self, now: Time) -> Option<PlanRequest> {
        let snapshot = self.0.measured.snapshot.as_ref()?;
        let pool = self.0.pool()?;
        Some(self.0.plan_request(now, &pool, snapshot, BTreeMap::new(), Default::default()))
    }

    /// The whole pool, as people are shown it; `None` before the first config.
    pub fn status(&self, now: Time, config_error: Option<&str>) -> Option<Status> {
        let config = self.0.config.as_ref()?;
        let mut report = self.0.placing.report.clone();
        report.flows.clone_from(&self.0.seating.explanations);
        Some(status::status(&status::Inputs {
            pool: &config.pool,
            time: now,
            its_time: self.0.engine.its_time(now),
            config_generation: config.generation,
            config_error,
            problems: self.0.problems.texts(),
            engine: self.0.engine.seen.as_deref(),
            engine_up: self.0.engine.is_up && self.0.engine.look.stuck_for(now).is_none(),
            counters: self.0.gateway.fresh_counters(now).as_deref(),
            snapshot: self.0.measured.snapshot.as_ref(),
            recent: &self.0.measured.recent,
            closed: &self.0.operations.closed(),
            gateway: &self.0.seating.gateway,
            seats: &self.0.seating.plan,
            report: &report,
            work_factors: self.0.learned.work_factors(),
            shares: &status::fitted(&self.0.seating.shares, self.0.engine.seen.as_deref()),
            plan: self.0.placing.summary.as_ref(),
            failures: self.0.placing.starts.failures(),
            put_off: self.0.placing.put_off.reasons(),
            revisions: &config.revisions,
            rollouts: self.0.rollouts(),
            resting: &self.0.sleep.resting,
            jobs: self.shown_jobs(),
        }))
    }

    /// `status` as a sample for the history.
    pub fn sample(&self, status: &Status) -> HistorySample {
        status::sample(status, self.0.timers.flow_cycle().as_secs_f64())
    }

    /// What is wrong with weal itself, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        self.0.problems.texts()
    }

    /// The last plan.
    pub fn plan(&self) -> &Plan {
        &self.0.placing.plan
    }

    /// Why the last plan and the seats in force are as they are.
    pub fn report(&self) -> Report {
        Report { flows: self.0.seating.explanations.clone(), ..self.0.placing.report.clone() }
    }

    /// The seats in force.
    pub fn seats(&self) -> &SeatPlan {
        &self.0.seating.plan
    }

    /// CPU that an instance was given.
    pub fn cpu(&self, instance: &InstanceId) -> Option<Cpu> {
        self.0.seating.shares.cpu(instance)
    }

    /// The gateway's counters, as it said them last.
    pub fn counters(&self) -> Option<Arc<GatewayCounters>> {
        self.0.gateway.counters.clone()
    }

    /// What is counted for the metrics.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }
}

/// Jobs in a status: those beyond are asked for by themselves.
const JOBS_SHOWN: usize = 200;

/// A peer was asked and did not say how things are.
fn unanswered(peer: &str, refusal: &Refusal) -> String {
    match refusal {
        Refusal::Away { .. } => refusal.to_string(),
        _ => format!("{peer} gave no usable answer: {refusal}"),
    }
}
