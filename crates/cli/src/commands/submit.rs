//! `weal submit`: a batch job submitted, or what would become of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use weal_model::written::parse_size;
use weal_model::{JobPhase, JobStatus};
use weal_protocol::controller::{ForecastChange, JobForecast, JobSubmission, JobTaken};

use super::jobs::{one_line, when};
use super::{json_text, script, stages};
use crate::args::jobs::{JobOptions, Submit};
use crate::client::{Client, Error, block_on};
use crate::failure::{Exit, Failure};
use crate::output::{self, Table, cell, now, utility};
use crate::state::StateDir;
use crate::values::{self, DoneBy};

/// Between two looks while somebody waits for a job's end.
const AGAIN: Duration = Duration::from_millis(250);

/// Runs `weal submit`.
pub fn submit(order: &Submit, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    let (command, header) = script::read(&order.command)?;
    let submission = submission(order.options.clone().or(header), command)?;
    warn(&hidden(&submission));
    block_on(async {
        if order.dry_run {
            let forecast = client.forecast(&submission).await.map_err(refused)?;
            warn(&forecast.warnings);
            output::print(&if json { json_text(&forecast, false) } else { foretold(&forecast) });
            return Ok(());
        }
        let taken = client.submit(&submission).await.map_err(refused)?;
        warn(&taken.warnings);
        if order.wait {
            return wait(&client, &names(&submission, &taken.job), json).await;
        }
        output::print(&if json { json_text(&taken, false) } else { told(&taken) });
        Ok(())
    })
}

/// Why a submission was not taken. What it asks for stands on the command line or in the script's header, and not in the config.
fn refused(error: Error) -> Failure {
    let failure = error.into_failure();
    if failure.exit == Exit::ConfigInvalid { Failure { exit: Exit::Usage, ..failure } } else { failure }
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        output::complain(&format!("warning: {warning}"));
    }
}

/// Files of the command that the job will not see, since it has a `/tmp` of its own.
fn hidden(submission: &JobSubmission) -> Vec<String> {
    let cwd = submission.cwd.as_ref().map(Path::new);
    let is_hidden = |path: &Path| {
        let is_temporary = ["/tmp", "/var/tmp"].iter().any(|folder| path.starts_with(folder));
        is_temporary && path.exists() && !cwd.is_some_and(|cwd| path.starts_with(cwd))
    };
    let words = submission.run.iter().skip(1).filter(|word| is_hidden(Path::new(word)));
    words
        .map(|word| {
            format!("the job has a /tmp of its own and will not see {word}: put it elsewhere, or name its folder by --cwd")
        })
        .collect()
}

/// The job that was submitted, or all of its array.
fn names(submission: &JobSubmission, first: &JobStatus) -> Vec<String> {
    match (&first.array, submission.array) {
        (Some(part), Some(range)) => range.indices().map(|index| format!("{}.{index}", part.array)).collect(),
        _ => vec![first.id.to_string()],
    }
}

/// Waits for a job, or for all of an array.
async fn wait(client: &Client, jobs: &[String], json: bool) -> anyhow::Result<()> {
    let mut over = Vec::new();
    for job in jobs {
        over.push(until_over(client, job).await?);
    }
    let shown = match over.as_slice() {
        [job] if json => json_text(job, false),
        jobs if json => json_text(&jobs, false),
        jobs => jobs.iter().map(one_line).collect(),
    };
    output::print(&shown);
    match over.iter().find(|job| job.state != JobPhase::Done) {
        Some(job) => Err(Failure::new(Exit::Failed, one_line(job).trim().to_owned()).into()),
        None => Ok(()),
    }
}

fn submission(options: JobOptions, command: Vec<String>) -> anyhow::Result<JobSubmission> {
    let goal = options.done_by.map(|goal| values::done_by(&goal, now(), output::zone())).transpose()?;
    let (done_within_s, done_by) = match goal {
        Some(DoneBy::Within(seconds)) => (Some(seconds), None),
        Some(DoneBy::At(time)) => (None, Some(time)),
        None => (None, None),
    };
    let env: Result<BTreeMap<String, String>, _> =
        options.env.iter().map(|pair| values::halves(pair).map(|(name, value)| (name.to_owned(), value.to_owned()))).collect();
    let absolute = |path: PathBuf| std::path::absolute(path).map(|path| path.display().to_string());
    let cwd = options.cwd.map(absolute).transpose()?;
    let inputs: Result<Vec<String>, _> = options.input.into_iter().map(absolute).collect();
    Ok(JobSubmission {
        run: command,
        name: options.name,
        class: options.class.map(Into::into),
        priority: options.priority,
        done_within_s,
        done_by,
        tasks: options.tasks,
        memory: options.memory.as_deref().map(parse_size).transpose()?,
        cpus: options.cpus,
        work_s: options.work.as_deref().map(values::long_span).transpose()?,
        stages: options.stages.as_deref().map(stages::read).transpose()?.unwrap_or_default(),
        env: env?,
        cwd,
        inputs: inputs?,
        outputs: options.result,
        output_to: options.to.map(absolute).transpose()?,
        checkpoint: options.checkpoint.as_deref().map(words).transpose()?.unwrap_or_default(),
        restore: options.restore.as_deref().map(words).transpose()?.unwrap_or_default(),
        key: options.idempotency_key,
        retries: options.retries.unwrap_or(0),
        after: options.after.iter().map(|job| job.as_str().into()).collect(),
        array: options.array.as_deref().map(values::array).transpose()?,
    })
}

/// A command as its words, quoted as in a shell; nothing in it is filled in.
fn words(command: &str) -> anyhow::Result<Vec<String>> {
    let words = shlex::split(command).filter(|words| !words.is_empty());
    words.with_context(|| format!("`{command}` is no command: it is empty, or a quote in it has no end"))
}

fn told(taken: &JobTaken) -> String {
    let job = &taken.job;
    let was = if taken.is_new { "" } else { " (submitted before with this key)" };
    match &job.array {
        Some(part) => format!("array {}: the goal of its jobs is {}{was}\n", part.array, when(job.deadline)),
        None => format!("{} {}: its goal is {}{was}\n", job.id, job.state.as_str(), when(job.deadline)),
    }
}

fn foretold(forecast: &JobForecast) -> String {
    let mut lines = vec![headline(forecast)];
    if forecast.changes.is_empty() {
        lines.push("no other job or application would lose or gain 0.01 of utility or more\n".to_owned());
    } else {
        lines.push(changes(&forecast.changes));
    }
    lines.extend(forecast.steps.iter().map(|step| format!("would {step}\n")));
    lines.concat()
}

fn headline(forecast: &JobForecast) -> String {
    let job = &forecast.job;
    let begins = match &forecast.node {
        Some(node) => format!("would begin at once on {node}"),
        None if job.detail.is_empty() => "would wait".to_owned(),
        None => format!("would wait ({})", job.detail),
    };
    let end =
        job.expected_end.map_or_else(|| "its end cannot be foretold".to_owned(), |end| format!("it would be done {}", when(end)));
    let worth = job.utility.map_or_else(String::new, |utility| format!(", with a utility of {utility}"));
    format!(
        "the job {begins}; {end}{worth} (its goal is {}; its work is taken for {:.1} s of CPU, {})\n",
        when(job.deadline),
        job.work.0,
        job.work_source
    )
}

fn changes(changes: &[ForecastChange]) -> String {
    let mut table = Table::new(&["OTHERS", "UTILITY NOW", "WITH IT", "END NOW", "WITH IT"]);
    for change in changes {
        let end = |time: Option<weal_model::Time>| cell(time.map_or_else(|| "-".to_owned(), when));
        table.row(vec![
            cell(if change.is_job { format!("job {}", change.name) } else { change.name.clone() }),
            utility(change.before),
            utility(change.after),
            end(change.end_before),
            end(change.end_after),
        ]);
    }
    table.render()
}

async fn until_over(client: &Client, job: &str) -> Result<JobStatus, Failure> {
    loop {
        match client.job(job).await {
            Ok(status) if status.state.is_over() => return Ok(status),
            Ok(_) => {}
            // The controller is being started anew; the job goes on.
            Err(error) if error.is_passing() => {}
            Err(error) => return Err(error.into_failure()),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_its_own_tmp_hides_is_told_of() {
        let folder = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        let script = folder.path().join("job.sh").display().to_string();
        std::fs::write(&script, "").unwrap();
        let submission = |cwd: Option<&str>| JobSubmission {
            run: vec!["sh".to_owned(), script.clone(), "/tmp/none-there".to_owned()],
            cwd: cwd.map(str::to_owned),
            ..JobSubmission::default()
        };
        let told = hidden(&submission(None));
        assert!(told.len() == 1 && told[0].contains(&script), "{told:?}");
        assert_eq!(hidden(&submission(folder.path().to_str())), [""; 0]);
    }
}
