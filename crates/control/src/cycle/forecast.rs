//! What would become of a job, and of everybody else, if it were submitted now: two plans from one snapshot, with the job and without it.

use std::collections::BTreeSet;

use weal_model::{Action, JobName, Plan, Report, Snapshot, Target, Time, Utility};
use weal_protocol::Refusal;
use weal_protocol::controller::{ForecastChange, JobForecast, JobSubmission};

use super::effect::PlanRequest;
use super::job_status;
use super::observe::{Known, present};
use super::queue::{self, Entry};
use super::state::State;
use crate::jobs::Job;

/// A change of utility that is worth telling: what two plans of one pool differ by anyway is less.
const NOTICEABLE: f64 = 0.01;

/// All that a forecast is made from; making it takes as long as two plans.
#[derive(Debug)]
pub struct Rehearsal {
    request: PlanRequest,
    entry: Box<Entry>,
    warnings: Vec<String>,
}

impl State {
    /// Prepares a forecast for a submission. Nothing is taken in.
    pub(super) fn rehearse(&self, now: Time, submission: &JobSubmission) -> Result<Rehearsal, Refusal> {
        let (record, mut warnings) = self.record_of(now, submission)?;
        let (Some(pool), Some(measured), Some(seen)) = (self.pool(), &self.measured.snapshot, &self.engine.seen) else {
            return Err(Refusal::NotObserved);
        };
        let closed = self.operations.closed();
        let known = Known { closed: &closed, seats: &self.seating.plan, jobs: self.queue.planned() };
        // As of the submission: a plan looks at no job before it is submitted.
        let snapshot = Snapshot { time: record.spec.submitted, ..present(measured, seen, &known) };
        if !record.after.is_empty() {
            let first: Vec<&str> = record.after.iter().map(JobName::as_str).collect();
            warnings.push(format!("it waits for {}: this is how it would be if they were done now", first.join(", ")));
        }
        let request = self.plan_request(now, &pool, &snapshot, Default::default(), Default::default());
        Ok(Rehearsal { request, entry: Box::new(Entry::new(record)), warnings })
    }
}

impl Rehearsal {
    /// Plans twice and compares.
    ///
    /// # Errors
    /// When no sound plan can be made.
    pub fn run(self) -> Result<JobForecast, Refusal> {
        let mut with = self.request.clone();
        with.snapshot.jobs.push(queue::observation(self.entry.record.spec.clone(), 0.0));
        let (_, without) = planned(&self.request)?;
        let (plan, report) = planned(&with)?;
        let name = &self.entry.record.spec.name;
        let job = job_status::of_open(&self.entry, &self.request.policy.runs, report.jobs.get(name), |_| String::new());
        let mut changes = apps(&without, &report);
        changes.extend(self.jobs(&without, &report));
        changes.sort_by(|a, b| a.lost().total_cmp(&b.lost()).reverse().then_with(|| a.name.cmp(&b.name)));
        Ok(JobForecast {
            node: begins_on(&plan, name),
            changes,
            steps: steps(&plan, &report, &without, name),
            job,
            warnings: self.warnings,
        })
    }

    fn jobs(&self, before: &Report, after: &Report) -> Vec<ForecastChange> {
        let observed = |name: &JobName| self.request.snapshot.jobs.iter().find(|job| job.spec.name == *name);
        let change = |(name, explanation): (&JobName, &weal_model::JobExplanation)| {
            let (was, is) = (before.jobs.get(name)?.utility, explanation.utility);
            // Most have the same, and what is below costs a look at each job.
            if (was.0 - is.0).abs() < NOTICEABLE {
                return None;
            }
            let job = Job::observed(&self.request.policy.runs.profiled(observed(name)?), |_| Some(0));
            let end = |utility: Utility| job_status::expected_end(&job, utility);
            let ends = (end(was), end(is));
            noticed(ForecastChange {
                name: name.to_string(),
                is_job: true,
                before: Some(was),
                after: Some(is),
                end_before: ends.0,
                end_after: ends.1,
            })
        };
        after.jobs.iter().filter_map(change).collect()
    }
}

fn planned(request: &PlanRequest) -> Result<(Plan, Report), Refusal> {
    request.run().result.map_err(|why| Refusal::BadJob { detail: format!("no forecast can be made: {why}") })
}

fn apps(before: &Report, after: &Report) -> Vec<ForecastChange> {
    let change = |(name, explanation): (&weal_model::AppName, &weal_model::AppExplanation)| {
        let was = before.apps.get(name)?.utility;
        noticed(ForecastChange {
            name: name.to_string(),
            is_job: false,
            before: was,
            after: explanation.utility,
            end_before: None,
            end_after: None,
        })
    };
    after.apps.iter().filter_map(change).collect()
}

fn noticed(change: ForecastChange) -> Option<ForecastChange> {
    (change.lost().abs() >= NOTICEABLE).then_some(change)
}

fn begins_on(plan: &Plan, job: &JobName) -> Option<weal_model::NodeName> {
    plan.actions.iter().find_map(|action| match action {
        Action::StartJob { job: started, nodes } if started == job => nodes.first().cloned(),
        _ => None,
    })
}

/// What would be done to others at once because of the job, in words. New speeds are not told: they show as utilities.
fn steps(plan: &Plan, report: &Report, without: &Report, job: &JobName) -> Vec<String> {
    let target = Target::Job { job: job.clone() };
    let anyway: BTreeSet<String> = without.reasons.iter().map(|reason| told(&reason.action)).collect();
    let is_told = |action: &&Action| {
        action.target() != target && !matches!(action, Action::SetJobCpu { .. }) && !anyway.contains(&told(action))
    };
    let reason =
        |action: &Action| report.reasons.iter().find(|reason| reason.action == *action).map_or("", |reason| reason.text.as_str());
    plan.actions.iter().filter(is_told).map(|action| format!("{}: {}", told(action), reason(action))).collect()
}

fn told(action: &Action) -> String {
    format!("{} {}", action.verb(), action.target())
}
