//! `weal submit`, `weal jobs`, `weal job`: batch jobs handed in, looked at, ordered about, read.

use std::collections::BTreeMap;
use std::time::Duration;

use weal_model::written::parse_size;
use weal_model::{Bytes, JobPhase, JobStatus, RunEnd, Time};
use weal_protocol::controller::{JobSubmission, JobTaken};

use super::{json_text, show};
use crate::args::Target;
use crate::args::jobs::{JobAction, JobLogs, ListJobs, OneJob, Submit};
use crate::client::{Client, block_on, escape};
use crate::failure::{Exit, Failure};
use crate::output::{self, Table, Tone, cell, clock, now, span, toned, utility};
use crate::state::StateDir;
use crate::terminal;
use crate::values;

/// Between two looks while somebody waits for a job's end.
const AGAIN: Duration = Duration::from_millis(250);

/// Runs `weal submit`.
pub fn submit(order: &Submit, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    let submission = submission(order)?;
    block_on(async {
        let taken = client.submit(&submission).await.map_err(|error| error.into_failure())?;
        for warning in &taken.warnings {
            output::complain(&format!("warning: {warning}"));
        }
        if !order.wait {
            output::print(&if json { json_text(&taken, false) } else { told(&taken) });
            return Ok(());
        }
        let job = until_over(&client, taken.job.id.as_str()).await?;
        output::print(&if json { json_text(&job, false) } else { one_line(&job) });
        if job.state == JobPhase::Done {
            Ok(())
        } else {
            Err(Failure::new(Exit::Failed, one_line(&job).trim().to_owned()).into())
        }
    })
}

fn submission(order: &Submit) -> anyhow::Result<JobSubmission> {
    let (done_within_s, done_by) = match &order.done_by {
        Some(goal) => values::goal(goal, now())?,
        None => (None, None),
    };
    let env: Result<BTreeMap<String, String>, _> =
        order.env.iter().map(|pair| values::halves(pair).map(|(name, value)| (name.to_owned(), value.to_owned()))).collect();
    let cwd = order.cwd.as_ref().map(std::path::absolute).transpose()?.map(|path| path.display().to_string());
    Ok(JobSubmission {
        run: order.command.clone(),
        name: order.name.clone(),
        class: order.class.as_deref().map(Into::into),
        done_within_s,
        done_by,
        memory: order.memory.as_deref().map(parse_size).transpose()?,
        cpus: order.cpus,
        work_s: order.work.as_deref().map(values::long_span).transpose()?,
        env: env?,
        cwd,
        key: order.idempotency_key.clone(),
        retries: order.retries,
        after: order.after.iter().map(|job| job.as_str().into()).collect(),
    })
}

fn told(taken: &JobTaken) -> String {
    let job = &taken.job;
    let was = if taken.is_new { "" } else { " (handed in before with this key)" };
    format!("{} {}: it is to be done {}{was}\n", job.id, job.state.as_str(), when(job.deadline))
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

/// Runs `weal jobs`.
pub fn list(order: &ListJobs, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    block_on(show(order.watch, json, async || {
        let jobs: Vec<JobStatus> = client.get(&format!("/v1/jobs?limit={}&all={}", order.limit, order.all)).await?;
        Ok(if json { json_text(&jobs, order.watch) } else { render(&jobs) })
    }))
}

fn render(jobs: &[JobStatus]) -> String {
    if jobs.is_empty() {
        return "no jobs: weal submit --done-by 30m -- COMMAND hands one in\n".to_owned();
    }
    let mut table = Table::new(&["JOB", "STATE", "DONE", "CPU", "GOAL", "EXPECTED", "UTILITY", "NODE", "WHY"]);
    for job in jobs {
        table.row(vec![
            cell(job.id.as_str()),
            toned(job.state.as_str(), tone(job.state)),
            cell(format!("{:.0}%", job.progress * 100.0)),
            cell(format!("{:.1} s", job.cpu_used.0)),
            cell(when(job.deadline)),
            cell(job.expected_end.map_or_else(|| "-".to_owned(), when)),
            utility(job.utility),
            cell(job.node.as_ref().map_or("-", |node| node.as_str())),
            cell(&job.detail),
        ]);
    }
    table.render()
}

fn tone(state: JobPhase) -> Tone {
    match state {
        JobPhase::Done | JobPhase::Running => Tone::Good,
        JobPhase::Failed => Tone::Bad,
        JobPhase::Paused | JobPhase::Suspended | JobPhase::Stopping | JobPhase::Starting => Tone::Warn,
        JobPhase::Waiting | JobPhase::Cancelled => Tone::Dim,
    }
}

/// `in 5min`, `3s ago`.
fn when(time: Time) -> String {
    let now = now();
    if time >= now {
        format!("in {}", span(time.since(now).as_secs()))
    } else {
        format!("{} ago", span(now.since(time).as_secs()))
    }
}

/// Runs `weal job`.
pub fn job(order: &JobAction, json: bool) -> anyhow::Result<()> {
    match order {
        JobAction::Show(one) => show_one(one, json),
        JobAction::Logs(logs) => copy_output(logs),
        JobAction::Cancel(one) => give(one, "cancel", json),
        JobAction::Pause(one) => give(one, "pause", json),
        JobAction::Suspend(one) => give(one, "suspend", json),
        JobAction::Resume(one) => give(one, "resume", json),
        JobAction::Requeue(one) => give(one, "requeue", json),
    }
}

fn give(one: &OneJob, verb: &str, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&one.target)?);
    block_on(async {
        let taken = client.order_job(&one.job, verb).await.map_err(|error| error.into_failure())?;
        output::print(&if json { json_text(&taken.job, false) } else { format!("{} will {verb}\n", taken.job.id) });
        Ok(())
    })
}

fn show_one(one: &OneJob, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&one.target)?);
    block_on(async {
        let job = client.job(&one.job).await.map_err(|error| error.into_failure())?;
        output::print(&if json { json_text(&job, false) } else { described(&job) });
        Ok(())
    })
}

fn one_line(job: &JobStatus) -> String {
    let detail = if job.detail.is_empty() { String::new() } else { format!(": {}", job.detail) };
    format!("{} is {}{detail}\n", job.id, job.state.as_str())
}

fn described(job: &JobStatus) -> String {
    let command: Vec<String> = job.command.iter().map(|word| terminal::visible(word).into_owned()).collect();
    let mut lines = vec![
        ("command", command.join(" ")),
        ("handed in", clock(job.submitted)),
        ("goal", format!("{} ({})", clock(job.deadline), when(job.deadline))),
        ("run", job.attempt.to_string()),
        ("CPU used", format!("{:.1} s of about {:.1} s ({})", job.cpu_used.0, job.work.0, job.work_source)),
        ("CPU given", format!("{} of {}", job.cpu_allocated, job.cpus)),
        ("memory", format!("{} of {}", job.memory_used.unwrap_or(Bytes(0)), job.memory_limit)),
    ];
    lines.extend(job.class.as_ref().map(|class| ("class", class.to_string())));
    lines.extend(job.node.as_ref().map(|node| ("node", node.to_string())));
    lines.extend(job.began.map(|began| ("began", clock(began))));
    let expected = if job.state.is_over() { "ended" } else { "expected" };
    lines.extend(job.expected_end.map(|end| (expected, format!("{} ({})", clock(end), when(end)))));
    lines.extend(job.utility.map(|utility| ("utility", utility.to_string())));
    lines.extend(job.end.map(|end| ("ended with", ending(end))));
    let rows = lines.iter().map(|(name, value)| format!("  {name:<10} {value}\n"));
    one_line(job) + &rows.collect::<String>()
}

fn ending(end: RunEnd) -> String {
    match end {
        RunEnd::Code { code } => format!("status {code}"),
        RunEnd::Signal { signal } => format!("signal {signal}"),
        RunEnd::OutOfMemory => "too little memory".to_owned(),
        RunEnd::NotStarted => "a program that cannot be run".to_owned(),
        RunEnd::Lost => "nobody can say".to_owned(),
    }
}

fn copy_output(order: &JobLogs) -> anyhow::Result<()> {
    let target = Target { file: order.file.clone(), state: order.state.clone() };
    let client = Client::new(&StateDir::find(&target)?);
    let mut path = format!("/v1/jobs/{}/output?follow={}", escape(&order.job), order.follow);
    for (name, value) in [("tail", order.tail), ("attempt", order.attempt)] {
        path.extend(value.map(|value| format!("&{name}={value}")));
    }
    let shows = output::is_terminal(output::Stream::Out);
    // A person's terminal is sent nothing that would command it; a file or another program gets the bytes as they are.
    let each = |piece: &[u8]| {
        if shows {
            for line in String::from_utf8_lossy(piece).lines() {
                output::line(&terminal::visible(line));
            }
        } else {
            output::write(piece);
        }
    };
    block_on(async { client.stream(&path, each).await.map_err(|error| error.into_failure().into()) })
}
