//! What the API asks of the loop. Each is answered at once, by what is known.

use std::sync::Arc;

use tokio::sync::oneshot;
use weal_control::cycle::{self, JobOrdered, Note, StoreProblem};
use weal_engine::Engine;
use weal_model::{AppName, EventKind, JobName, JobRecord, JobStatus, NodeName, Rung, ScheduleStatus, Submitter, WhyNode};
use weal_protocol::Refusal;
use weal_protocol::controller::{
    AppOrdered, AppVerb, Caller, ConfigRefused, ConfigTaken, ConfigUpdate, JobForecast, JobSubmission, JobTaken, JobVerb,
    SleepTaken, WakeTaken,
};

use super::Driver;
use super::kept::{Answer, NotTaken, WaitingOrder};
use crate::desired::{self, Changes, Desired, Refused};

/// What the API asks.
#[derive(Debug)]
pub(crate) enum Order {
    /// Take this config.
    Config { update: ConfigUpdate, who: Caller, reply: oneshot::Sender<Result<ConfigTaken, ConfigRefused>> },
    /// Say why an application is on a node or not.
    WhyNode { app: AppName, node: NodeName, reply: oneshot::Sender<Option<WhyNode>> },
    /// Let this application sleep until somebody asks for it.
    Sleep { app: AppName, rung: Option<Rung>, reply: oneshot::Sender<Result<SleepTaken, Refusal>> },
    /// Run this job.
    Submit { submission: Box<JobSubmission>, submitter: Option<Submitter>, reply: Answer<JobTaken> },
    /// Say what would become of this job.
    Forecast { submission: Box<JobSubmission>, reply: oneshot::Sender<Result<JobForecast, Refusal>> },
    /// Do this to a job.
    Job { job: JobName, verb: JobVerb, by: Option<Submitter>, reply: Answer<JobTaken> },
    /// How this job is; `None` when it is not among those that the loop knows.
    OneJob { job: JobName, reply: oneshot::Sender<Option<JobStatus>> },
    /// How all jobs are that the loop knows and that whoever asks may see.
    Jobs { limit: usize, by: Option<Submitter>, reply: oneshot::Sender<Vec<JobStatus>> },
    /// How the config's schedules are.
    Schedules { reply: oneshot::Sender<Vec<ScheduleStatus>> },
    /// How a job is that is over.
    Over { record: Box<JobRecord>, reply: oneshot::Sender<JobStatus> },
    /// Do this to an application.
    App { app: AppName, verb: AppVerb, reply: oneshot::Sender<Result<AppOrdered, Refusal>> },
    /// Wake it.
    Wake { app: AppName, reply: oneshot::Sender<Result<WakeTaken, Refusal>> },
}

impl<E: Engine> Driver<E> {
    /// Answers, or has it answered. Whoever asked may have gone.
    pub(super) fn handle_order(&mut self, order: Order) {
        let now = self.now();
        match order {
            Order::Config { update, who, reply } => self.take_config(update, who, reply),
            Order::WhyNode { app, node, reply } => self.why_node(app, node, reply),
            Order::Sleep { app, rung, reply } => {
                self.record_order(cycle::Order::Sleep { app: app.clone(), rung });
                let _ = reply.send(self.cycle.handle_sleep(now, &app, rung));
            }
            Order::App { app, verb, reply } => {
                self.record_order(cycle::Order::App { app: app.clone(), verb });
                let ordered = self.cycle.handle_verb(now, &app, verb);
                // Whoever asks how it is once the order is answered sees nothing from before.
                self.carry_out();
                let _ = reply.send(ordered);
            }
            Order::Submit { submission, submitter, reply } => {
                self.record_order(cycle::Order::Submit { submission: submission.clone(), submitter: submitter.clone() });
                let ordered = self.cycle.handle_submission(now, &submission, submitter.as_ref());
                self.answer_when_kept(ordered, reply);
            }
            Order::Forecast { submission, reply } => self.forecast(&submission, reply),
            Order::Job { job, verb, by, reply } => {
                self.record_order(cycle::Order::Job { job: job.clone(), verb, by: by.clone() });
                let ordered = self.cycle.handle_job_order(now, &job, verb, by.as_ref());
                self.answer_when_kept(ordered, reply);
            }
            Order::OneJob { job, reply } => _ = reply.send(self.cycle.job(&job)),
            Order::Jobs { limit, by, reply } => _ = reply.send(self.cycle.jobs(limit, by.as_ref())),
            Order::Schedules { reply } => _ = reply.send(self.cycle.schedules(now)),
            Order::Over { record, reply } => _ = reply.send(self.cycle.over(&record)),
            Order::Wake { app, reply } => {
                self.record_order(cycle::Order::Wake { app: app.clone() });
                let _ = reply.send(self.cycle.handle_wake(now, &app));
            }
        }
    }

    /// Answers an order about a job once its record is on disk.
    fn answer_when_kept(&mut self, ordered: Result<JobOrdered, Refusal>, reply: Answer<JobTaken>) {
        match ordered {
            Err(refusal) => _ = reply.send(Err(NotTaken::Refused(refusal))),
            Ok(ordered) => match ordered.write {
                Some(write) => self.waiting.entry(write).or_default().push(WaitingOrder { ordered, reply }),
                None => self.answer_taken(WaitingOrder { ordered, reply }),
            },
        }
    }

    /// The write with this number is on disk, or could not be made. The loop knows already.
    pub(super) fn handle_kept(&mut self, write: u64, result: &Result<(), StoreProblem>) {
        for waiting in self.waiting.remove(&write).unwrap_or_default() {
            match result {
                Ok(()) => self.answer_taken(waiting),
                Err(problem) => _ = waiting.reply.send(Err(NotTaken::NotKept(problem.clone()))),
            }
        }
    }

    fn answer_taken(&self, waiting: WaitingOrder) {
        let WaitingOrder { ordered: JobOrdered { job, is_new, warnings, .. }, reply } = waiting;
        let job = self.cycle.job(&job).ok_or(NotTaken::Refused(Refusal::NoJob { job }));
        let _ = reply.send(job.map(|job| JobTaken { job, is_new, warnings }));
    }

    fn record_order(&mut self, order: cycle::Order) {
        let now = self.now();
        self.recorder.handle_input(now, &cycle::Input::Order(order));
    }

    /// Takes a config as a whole or not at all. It is in force at once; the answer comes when it is stored, or cannot be.
    fn take_config(&mut self, update: ConfigUpdate, who: Caller, reply: oneshot::Sender<Result<ConfigTaken, ConfigRefused>>) {
        let read = if update.refused.is_empty() {
            desired::read(&update.text, &update.path)
        } else {
            let answer = ConfigRefused { error: update.refused, diagnostics: Vec::new() };
            Err(Refused { outline: answer.error.clone(), answer })
        };
        let (spec, warnings) = match read {
            Ok(read) => read,
            Err(refused) => {
                if !update.dry_run {
                    self.show_refused(&refused.outline);
                }
                let _ = reply.send(Err(refused.answer));
                return;
            }
        };
        let Changes { outlines, texts: changes } = desired::changes(self.desired.as_ref().map(|desired| &*desired.spec), &spec);
        let generation = self.desired.as_ref().map_or(0, |desired| desired.generation);
        let same = self.desired.as_ref().is_some_and(|now| *now.spec == spec && now.text == update.text);
        if update.dry_run || same {
            if !update.dry_run {
                self.config_error = None;
                self.show(false);
            }
            let _ = reply.send(Ok(ConfigTaken { generation, changes, warnings }));
            return;
        }
        self.judge_version(generation);
        let mut origin = update.origin;
        origin.truncate(origin.floor_char_boundary(ConfigUpdate::LONGEST_ORIGIN));
        let (spec, who) = (Arc::new(spec), Some(who));
        let desired = Desired { generation: generation + 1, text: update.text, path: update.path, spec, who, origin };
        self.put_in_force(&desired, &outlines);
        let taken = ConfigTaken { generation: desired.generation, changes, warnings };
        let board = Arc::clone(&self.board);
        tokio::spawn(async move {
            let mut taken = taken;
            if let Err(error) = board.store.save_config(desired.stored()).await {
                taken.warnings.push(format!("the config is in force but not stored yet: {error}"));
            }
            let _ = reply.send(Ok(taken));
        });
    }

    /// Another version takes the place of `generation`: whether that came up is remembered, so that nobody goes back to one that did not.
    fn judge_version(&self, generation: u64) {
        let status = self.board.view().status;
        if let Some(why) = status.failed_deploy().filter(|_| status.config_generation == generation) {
            self.board.fail_version(generation, why);
        }
    }

    fn show_refused(&mut self, error: &str) {
        self.board.note(Note::error(EventKind::Config, format!("weal did not take the config: {error}")));
        self.config_error = Some(error.to_owned());
        self.show(false);
    }

    /// `outlines` says for everybody what changes.
    fn put_in_force(&mut self, desired: &Desired, outlines: &[String]) {
        let generation = desired.generation;
        let text = match outlines {
            [] => format!("config {generation} is in force; nothing that runs changes"),
            [only] => format!("config {generation} is in force: {only}"),
            [first, rest @ ..] => format!("config {generation} is in force: {first}, and {} more changes", rest.len()),
        };
        self.board.note(Note::info(EventKind::Config, text));
        self.desired = Some(desired.clone());
        self.config_error = None;
        let config = self.hands.config(desired);
        self.handle(cycle::Input::Config(config));
    }

    /// Plans with a job and without it, beside the loop.
    fn forecast(&self, submission: &JobSubmission, reply: oneshot::Sender<Result<JobForecast, Refusal>>) {
        match self.cycle.rehearse(self.now(), submission) {
            Err(refusal) => _ = reply.send(Err(refusal)),
            Ok(rehearsal) => self.beside.compute(reply, move || rehearsal.run()),
        }
    }

    /// Asks what a plan would be made from now, beside the loop.
    fn why_node(&self, app: AppName, node: NodeName, reply: oneshot::Sender<Option<WhyNode>>) {
        let request = self.cycle.question(self.now());
        self.beside.compute(reply, move || {
            let known = request.filter(|request| request.policy.pool.apps.contains_key(&app));
            known.map(|request| request.why_node(&app, &node))
        });
    }
}
