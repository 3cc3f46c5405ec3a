//! How names are made from names: ids of instances and of jobs' runs, and the variables in which an instance finds what it needs. Nothing else
//! makes or takes apart such names.

use crate::{AppName, InstanceId, JobName};

/// The longest name of an application, a class, a node or a job.
pub const LONGEST_NAME: usize = 40;

/// What names have: [`is_name`] for people.
pub const RULE_OF_NAMES: &str = "up to 40 lower-case letters, digits and inner dashes, and begin with a letter";

/// Whether somebody may give this name: up to 40 lower-case letters, digits and inner dashes, the first a letter. Names stand in paths, in
/// variables and in ids.
pub fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=LONGEST_NAME).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(inner)
}

/// The id of an application's instance: `APP-NUMBER`.
pub fn instance_id(app: &AppName, number: u64) -> InstanceId {
    InstanceId::from(format!("{app}-{number}"))
}

/// The application and the number in `APP-NUMBER`; `None` for any other id. An id that another engine made need not have this form: what
/// an instance belongs to stands beside its id, and this only keeps numbers from being used twice.
pub fn parts(instance: &InstanceId) -> Option<(AppName, u64)> {
    let (app, number) = instance.as_str().rsplit_once('-')?;
    Some((AppName::from(app), number.parse().ok()?))
}

/// The name of a job: `NAME-NUMBER`.
pub fn job_name(name: &str, number: u64) -> JobName {
    JobName::from(format!("{name}-{number}"))
}

/// As whose the jobs of one name run and count: `job.NAME` for the job `NAME-NUMBER`.
pub fn job_account(job: &JobName) -> AppName {
    account_in(&job_folder(job))
}

/// The same of a job's folder, `job.NAME-NUMBER`.
pub fn account_in(folder: &str) -> AppName {
    AppName::from(folder.rsplit_once('-').map_or(folder, |(account, _)| account))
}

/// Whether `app` stands for the jobs of one name: no application has a dot in its name.
pub fn is_job_account(app: &AppName) -> bool {
    app.as_str().contains('.')
}

/// The id of a job's run among instances: `job.JOB.ATTEMPT`. No application has a name with a dot in it.
pub fn run_id(job: &JobName, attempt: u32) -> InstanceId {
    InstanceId::from(format!("{}.{attempt}", job_folder(job)))
}

/// The id of one task of a job's run: `job.JOB.ATTEMPT`, and `job.JOB.ATTEMPT.TASK` of those behind the first.
pub fn task_id(job: &JobName, attempt: u32, task: u32) -> InstanceId {
    let run = run_id(job, attempt);
    if task == 0 { run } else { InstanceId::from(format!("{run}.{task}")) }
}

/// The run and the task in the id of a task of `job`: the inverse of [`task_id`].
pub fn task_of(job: &JobName, id: &InstanceId) -> Option<(u32, u32)> {
    let numbers = id.as_str().strip_prefix(&job_folder(job))?.strip_prefix('.')?;
    let (attempt, task) = numbers.split_once('.').unwrap_or((numbers, "0"));
    Some((attempt.parse().ok()?, task.parse().ok()?))
}

/// The folder that all runs of a job share: `job.JOB`.
pub fn job_folder(job: &JobName) -> String {
    format!("job.{job}")
}

/// The variable in which an instance finds a part of where `needed` listens: `my-db` and `ADDR` make `MY_DB_ADDR`.
pub fn variable(needed: &AppName, part: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let prefix: String = needed.as_str().chars().map(upper).collect();
    format!("{prefix}_{part}")
}

/// Whether only weal may set a variable: what it tells its own processes, and how a socket is passed (sd_listen_fds(3)). An application that
/// could be told another socket, or another file to keep it awake, would act on what somebody else made up.
pub fn is_reserved_variable(name: &str) -> bool {
    name.starts_with("WEAL_") || ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_parts_that_it_was_made_from() {
        let id = instance_id(&"my-shop".into(), 12);
        assert_eq!(id.as_str(), "my-shop-12");
        assert_eq!(parts(&id), Some(("my-shop".into(), 12)));
        assert_eq!((parts(&"shop".into()), parts(&"shop-x".into())), (None, None));
    }

    #[test]
    fn a_run_is_told_from_every_instance() {
        let job = JobName::from("render-3");
        assert_eq!((run_id(&job, 2).as_str(), job_folder(&job).as_str()), ("job.render-3.2", "job.render-3"));
        assert!(is_name("render-3") && !is_name(job_folder(&job).as_str()));
        assert_eq!([0, 3].map(|task| task_id(&job, 2, task).to_string()), ["job.render-3.2", "job.render-3.2.3"]);
        assert_eq!([0, 3].map(|task| task_of(&job, &task_id(&job, 2, task))), [Some((2, 0)), Some((2, 3))]);
        assert_eq!(task_of(&"render".into(), &run_id(&job, 2)), None, "that of another job");
    }

    #[test]
    fn jobs_of_one_name_have_one_account_which_is_no_application() {
        let (one, other) = (job_name("my-sort", 3), job_name("my-sort", 12));
        assert_eq!((one.as_str(), job_account(&one).as_str()), ("my-sort-3", "job.my-sort"));
        assert_eq!(job_account(&one), job_account(&other));
        assert_eq!(account_in(&job_folder(&one)), job_account(&one), "whoever sees the folder knows the account");
        assert!(is_job_account(&job_account(&one)) && !is_job_account(&"my-sort".into()));
    }

    #[test]
    fn a_variable_has_only_capitals_digits_and_underscores() {
        assert_eq!(variable(&"my-db.2".into(), "ADDR"), "MY_DB_2_ADDR");
    }

    #[test]
    fn what_weal_tells_its_processes_is_reserved_and_what_programs_are_told_is_not() {
        assert!(["WEAL_KEEP_AWAKE", "WEAL_X", "LISTEN_FDS", "LISTEN_PID"].into_iter().all(is_reserved_variable));
        assert!(!["LISTEN_ADDR", "WEALTH", "PATH"].into_iter().any(is_reserved_variable));
    }
}
