//! What the jobs of one token may be together.
//!
//! A quota counts the jobs that are not over: `used` is the sum over those of the token, `asked` the sum over those that come. They are
//! taken, all or none, where `used + asked <= quota` for each of places, work and memory. Work is what a job says or what earlier runs
//! tell, and is not counted down while the job runs: what a job has done already was granted once and is free when it is over.

use weal_model::written::{show_size, show_span};
use weal_model::{Bytes, JobRecord, JobSpec, QuotaLimit, Submitter};
use weal_protocol::Refusal;

use super::queue;
use super::state::State;
use crate::jobs::Runs;

/// A sum over jobs.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Claim {
    jobs: u32,
    work_s: f64,
    memory: u64,
}

impl Claim {
    fn of<'s>(specs: impl Iterator<Item = &'s JobSpec>, runs: &Runs) -> Self {
        specs.fold(Self::default(), |sum, spec| sum.and(spec, runs))
    }

    fn and(self, spec: &JobSpec, runs: &Runs) -> Self {
        let tasks = spec.tasks.max(1);
        let work_s = runs.estimate(&queue::observation(spec.clone(), 0.0)).work.0;
        let memory = spec.stages.iter().map(|stage| stage.memory.0).max().unwrap_or(0);
        Self {
            jobs: self.jobs.saturating_add(1),
            work_s: self.work_s + work_s * f64::from(tasks),
            memory: self.memory.saturating_add(memory.saturating_mul(u64::from(tasks))),
        }
    }
}

impl State {
    /// Refuses jobs that would take a token beyond its quota.
    pub(super) fn check_quota(&self, submitter: Option<&Submitter>, coming: &[JobRecord]) -> Result<(), Refusal> {
        let Some(submitter) = submitter.filter(|submitter| !submitter.quota.is_open()) else { return Ok(()) };
        let records = self.queue.open().map(|entry| &entry.record);
        let theirs = records.filter(|record| record.submitter.as_ref() == Some(&submitter.token) && record.end.is_none());
        let used = Claim::of(theirs.map(|record| &record.spec), self.queue.runs());
        let asked = Claim::of(coming.iter().map(|record| &record.spec), self.queue.runs());
        check(submitter, used, asked)
    }
}

fn check(submitter: &Submitter, used: Claim, asked: Claim) -> Result<(), Refusal> {
    let quota = &submitter.quota;
    let over = |limit: QuotaLimit, show: &dyn Fn(f64) -> String, most: f64, used: f64, asked: f64| {
        let is_over = used + asked > most;
        let refusal = || Refusal::OverQuota {
            token: submitter.token.as_str().into(),
            limit,
            most: show(most).into(),
            used: show(used).into(),
            asked: show(asked).into(),
        };
        if is_over { Err(refusal()) } else { Ok(()) }
    };
    if let Some(most) = quota.jobs {
        over(QuotaLimit::MaxJobs, &|jobs| jobs.to_string(), f64::from(most), f64::from(used.jobs), f64::from(asked.jobs))?;
    }
    if let Some(most) = quota.work {
        over(QuotaLimit::MaxWork, &|work_s| show_span(work_s), most.0, used.work_s, asked.work_s)?;
    }
    if let Some(most) = quota.memory {
        let size = |bytes: f64| show_size(Bytes(bytes as u64));
        over(QuotaLimit::MaxMemory, &size, most.0 as f64, used.memory as f64, asked.memory as f64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weal_model::{JobQuota, Work};

    use super::*;

    #[test]
    fn each_limit_refuses_by_its_name_and_allows_what_just_fits() {
        let used = Claim { jobs: 2, work_s: 3000.0, memory: 1 << 30 };
        let asked = Claim { jobs: 1, work_s: 600.0, memory: 1 << 30 };
        let with = |quota: JobQuota| {
            let submitter = Submitter { token: "ci".to_owned(), quota, own_jobs_only: true };
            check(&submitter, used, asked).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(with(JobQuota { jobs: Some(3), work: Some(Work(3600.0)), memory: Some(Bytes::gib(2)) }), Ok(()));
        for (quota, said) in [
            (JobQuota { jobs: Some(2), ..JobQuota::default() }, "max-jobs = 2`: its open jobs take 2, and this asks for 1"),
            (
                JobQuota { work: Some(Work(3599.0)), ..JobQuota::default() },
                "max-work = 3599s`: its open jobs take 3000s, and this asks for 600s",
            ),
            (
                JobQuota { memory: Some(Bytes::mib(2047)), ..JobQuota::default() },
                "max-memory = 2047MiB`: its open jobs take 1GiB, and this asks for 1GiB",
            ),
        ] {
            assert_eq!(with(quota), Err(format!("the token `ci` may have `{said}")));
        }
    }
}
