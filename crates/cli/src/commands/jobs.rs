//! `weal jobs`, `weal job`: batch jobs looked at, ordered about, read.

use weal_model::{Bytes, JobChangeCost, JobPhase, JobStatus, Raised, RunEnd, ScheduleStatus, Time};

use super::{json_text, show};
use crate::args::PoolArgs;
use crate::args::jobs::{JobAction, JobLogs, ListJobs, OneJob};
use crate::client::{Client, block_on, escape};
use crate::output::{self, Table, Tone, cell, clock, date, now, span, toned, utility};
use crate::state::StateDir;
use crate::terminal;

/// An end that may be so many times as far away as is expected is shown as a span of time.
const UNCERTAIN: f64 = 1.25;

/// Runs `weal jobs`.
pub fn list(order: &ListJobs, json: bool) -> anyhow::Result<()> {
    let client = Client::new(&StateDir::find(&order.target)?);
    if order.schedules {
        return block_on(show(order.watch, json, async || {
            let schedules: Vec<ScheduleStatus> = client.get("/v1/schedules").await?;
            Ok(if json { json_text(&schedules, order.watch) } else { render_schedules(&schedules) })
        }));
    }
    block_on(show(order.watch, json, async || {
        let jobs: Vec<JobStatus> = client.get(&format!("/v1/jobs?limit={}&all={}", order.limit, order.all)).await?;
        if json {
            return Ok(json_text(&jobs, order.watch));
        }
        let schedules: Vec<ScheduleStatus> = client.get("/v1/schedules").await?;
        let below = if schedules.is_empty() { String::new() } else { format!("\n{}", render_schedules(&schedules)) };
        Ok(render(&jobs) + &below)
    }))
}

fn render_schedules(schedules: &[ScheduleStatus]) -> String {
    if schedules.is_empty() {
        return "no schedules: `[job.NAME]` with `schedule` in weal.toml makes one\n".to_owned();
    }
    let mut table = Table::new(&["SCHEDULE", "CRON", "ZONE", "NEXT", "LAST", "JOB", "WHY"]);
    let moment =
        |time: Option<Time>| cell(time.map_or_else(|| "-".to_owned(), |time| format!("{} ({})", date(time), when(time))));
    for schedule in schedules {
        table.row(vec![
            cell(schedule.name.as_str()),
            cell(&schedule.schedule),
            cell(&schedule.time_zone),
            moment(schedule.next),
            moment(schedule.last),
            cell(schedule.last_job.as_ref().map_or("-", |job| job.as_str())),
            cell(&schedule.detail),
        ]);
    }
    table.render()
}

fn render(jobs: &[JobStatus]) -> String {
    if jobs.is_empty() {
        return "no jobs: weal submit --done-by 30m -- COMMAND submits one\n".to_owned();
    }
    let mut table = Table::new(&["JOB", "STATE", "DONE", "CPU", "GOAL", "EXPECTED", "UTILITY", "NODE", "WHY"]);
    for job in jobs {
        table.row(vec![
            cell(job.id.as_str()),
            toned(job.state.as_str(), phase_tone(job.state)),
            cell(done(job)),
            cell(format!("{:.1} s", job.cpu_used.0)),
            cell(goal_at(job, now())),
            cell(expected(job, now())),
            utility(job.utility),
            cell(job.node.as_ref().map_or("-", |node| node.as_str())),
            cell(&job.detail),
        ]);
    }
    table.render()
}

/// Which part of its work a job has done, as far as that is known: `12%`, `12%, raised` when its work turned out larger than was thought, or `?`.
pub(super) fn done(job: &JobStatus) -> String {
    let is_open = !job.state.is_over();
    let share = if is_open && job.is_guess { "?".to_owned() } else { format!("{:.0}%", job.progress * 100.0) };
    if is_open && job.raised.is_some() { share + ", raised" } else { share }
}

/// When a job is expected to be done: a moment, or between which two where its work may be a quarter more or less.
pub(super) fn expected(job: &JobStatus, now: Time) -> String {
    let Some(end) = job.expected_end else { return "-".to_owned() };
    let seconds = |time: Time| time.since(now).as_secs();
    match job.expected_latest {
        _ if job.state.is_over() => when_at(end, now),
        None if job.is_guess => "unknown".to_owned(),
        Some(latest) if latest.since(now) > end.since(now).mul_f64(UNCERTAIN) => {
            format!("in {} to {}", span(seconds(end)), span(seconds(latest)))
        }
        _ => when_at(end, now),
    }
}

pub(super) fn phase_tone(state: JobPhase) -> Tone {
    match state {
        JobPhase::Done | JobPhase::Running => Tone::Good,
        JobPhase::Failed => Tone::Bad,
        JobPhase::Paused | JobPhase::Suspended | JobPhase::Stopping | JobPhase::Starting | JobPhase::Migrating => Tone::Warn,
        JobPhase::Waiting | JobPhase::Cancelled => Tone::Dim,
    }
}

/// `in 5min`, `3s ago`.
pub(super) fn when(time: Time) -> String {
    when_at(time, now())
}

pub(super) fn when_at(time: Time, now: Time) -> String {
    if time >= now {
        format!("in {}", span(time.since(now).as_secs()))
    } else {
        format!("{} ago", span(now.since(time).as_secs()))
    }
}

/// When a job is to be done, or by how much it has missed that.
pub(super) fn goal_at(job: &JobStatus, now: Time) -> String {
    let until = if job.state.is_over() { job.expected_end.unwrap_or(now) } else { now };
    if until > job.deadline {
        format!("missed by {}", span(until.since(job.deadline).as_secs()))
    } else {
        when_at(job.deadline, now)
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
        output::print(&if json { json_text(&taken.job, false) } else { format!("{} will {verb}\n", one.job) });
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

pub(super) fn one_line(job: &JobStatus) -> String {
    let detail = if job.detail.is_empty() { String::new() } else { format!(": {}", job.detail) };
    format!("{} {}{detail}\n", job.id, job.state.phrase())
}

fn described(job: &JobStatus) -> String {
    described_at(job, now())
}

/// All about a job.
pub(super) fn described_at(job: &JobStatus, now: Time) -> String {
    let command: Vec<String> = job.command.iter().map(|word| terminal::visible(word).into_owned()).collect();
    let mut lines = vec![
        ("command", command.join(" ")),
        ("submitted", job.submitter.iter().fold(clock(job.submitted), |when, token| format!("{when}, by the token {token}"))),
        ("goal", format!("{} ({})", clock(job.deadline), goal_at(job, now))),
        ("run", job.attempt.to_string()),
        ("done", done(job)),
        ("CPU used", format!("{:.1} s of about {:.1} s ({}{})", job.cpu_used.0, job.work.0, job.work_source, range(job))),
        ("CPU given", format!("{} of {}", job.cpu_allocated, job.cpus)),
        ("memory", format!("{} of {}{}", job.memory_used.unwrap_or(Bytes(0)), job.memory_limit, reserved(job))),
    ];
    let raised = |raised: &Raised| ("raised", format!("at {}, from {:.1} s of CPU", clock(raised.time), raised.from.0));
    lines.extend(job.raised.as_ref().map(raised));
    lines.extend((job.stages > 1).then(|| ("stage", format!("{} of {}", job.stage, job.stages))));
    lines.extend(job.class.as_ref().map(|class| ("class", class.to_string())));
    lines.extend((job.priority != 0).then(|| ("priority", job.priority.to_string())));
    lines.extend(
        job.scheduled.as_ref().map(|scheduled| ("schedule", format!("{} of {}", scheduled.schedule, date(scheduled.date)))),
    );
    lines.extend((job.tasks > 1).then(|| ("tasks", job.tasks.to_string())));
    let nodes: Vec<&str> = job.nodes.iter().map(weal_model::NodeName::as_str).collect();
    lines.extend((nodes.len() > 1).then(|| ("nodes", nodes.join(", "))));
    lines.extend(job.node.as_ref().filter(|_| nodes.len() < 2).map(|node| ("node", node.to_string())));
    lines.extend(job.began.map(|began| ("began", clock(began))));
    let ends = if job.state.is_over() { "ended" } else { "expected" };
    lines.extend(job.expected_end.map(|end| (ends, format!("{} ({})", clock(end), expected(job, now)))));
    lines.extend(job.utility.map(|utility| ("utility", utility.to_string())));
    lines.extend(job.changes.iter().map(|cost| ("takes", change(cost))));
    lines.extend(job.end.map(|end| ("ended with", ending(end))));
    let rows = lines.iter().map(|(name, value)| format!("  {name:<10} {value}\n"));
    one_line(job) + &rows.collect::<String>()
}

/// What plans reserve, where that is not the limit.
fn reserved(job: &JobStatus) -> String {
    if !job.memory_is_learnt {
        return String::new();
    }
    format!(" ({} reserved: the most of earlier runs, and a quarter more)", job.memory_reserved)
}

/// What a change takes, and what the thesis' table says of that.
fn change(cost: &JobChangeCost) -> String {
    let JobChangeCost { change, seconds, measured, table_s } = cost;
    match measured {
        0 => format!("{seconds:.2} s to {change} (Carrera Table 5.1: none was measured)"),
        1 => format!("{seconds:.2} s to {change} (measured once; {table_s:.2} s by Carrera Table 5.1)"),
        _ => format!("{seconds:.2} s to {change} (measured {measured} times; {table_s:.2} s by Carrera Table 5.1)"),
    }
}

/// Between what its work lies, where that is not known.
fn range(job: &JobStatus) -> String {
    match job.work_most {
        None if job.is_guess => "; it may be anything".to_owned(),
        Some(most) if most.0 > job.work_least.0 => format!("; {:.1} s to {:.1} s", job.work_least.0, most.0),
        _ => String::new(),
    }
}

fn ending(end: RunEnd) -> String {
    match end {
        RunEnd::Code { code } => format!("status {code}"),
        RunEnd::Signal { signal } => format!("signal {signal}"),
        RunEnd::OutOfMemory => "too little memory".to_owned(),
        RunEnd::NotStarted => "a program that cannot be run".to_owned(),
        RunEnd::NoResults => "results that could not be copied".to_owned(),
        RunEnd::Saved => "its state saved".to_owned(),
        RunEnd::Lost => "no exit status".to_owned(),
    }
}

fn copy_output(order: &JobLogs) -> anyhow::Result<()> {
    let target = PoolArgs { file: order.file.clone(), state: order.state.clone() };
    let client = Client::new(&StateDir::find(&target)?);
    let mut path = format!("/v1/jobs/{}/output?follow={}", escape(&order.job), order.follow);
    for (name, value) in [("tail", order.tail), ("attempt", order.attempt), ("task", order.task)] {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: &str, expected_end_s: Option<u64>) -> JobStatus {
        let json = serde_json::json!({
            "id": "render-7", "state": state, "detail": "", "command": ["povray"], "class": null, "submitted": 0,
            "deadline": 600_000_000_000_u64, "expected_end": expected_end_s.map(|s| s * 1_000_000_000), "utility": null, "began": null,
            "node": null, "attempt": 1, "cpu_used": 0.0, "work": 100.0, "work_source": "as submitted", "progress": 0.0, "cpu_allocated": 0.0,
            "cpus": 1.0, "memory_limit": 1_048_576, "memory_used": null, "end": null
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_goal_that_has_passed_is_missed_and_says_by_how_much() {
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        assert_eq!(goal_at(&job("waiting", Some(900)), at(500)), "in 1m 40s");
        assert_eq!(goal_at(&job("waiting", None), at(14_340)), "missed by 3h 49m");
        assert_eq!(goal_at(&job("done", Some(590)), at(14_340)), "3h 49m ago", "it was met");
        assert_eq!(goal_at(&job("done", Some(660)), at(14_340)), "missed by 1m 0s");
    }

    #[test]
    fn what_is_not_known_is_shown_as_not_known() {
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let known = JobStatus { progress: 0.12, ..job("running", Some(160)) };
        assert_eq!((done(&known), expected(&known, at(100))), ("12%".to_owned(), "in 1m 0s".to_owned()));
        let raised = Some(Raised { time: at(90), from: weal_model::Work(8.0) });
        let wrong = JobStatus { raised, expected_latest: Some(at(170)), ..known.clone() };
        assert_eq!((done(&wrong), expected(&wrong, at(100))), ("12%, raised".to_owned(), "in 1m 0s".to_owned()));
        assert!(described_at(&wrong, at(100)).contains("from 8.0 s of CPU"), "{}", described_at(&wrong, at(100)));
        let guess = JobStatus { is_guess: true, progress: 0.0, expected_latest: Some(at(400)), ..known };
        assert_eq!((done(&guess), expected(&guess, at(100))), ("?".to_owned(), "in 1m 0s to 5m 0s".to_owned()));
        let nothing = JobStatus { expected_latest: None, ..guess };
        assert_eq!(expected(&nothing, at(100)), "unknown");
        assert!(described_at(&nothing, at(100)).contains("it may be anything"));
        assert_eq!(expected(&JobStatus { state: JobPhase::Done, ..nothing }, at(200)), "40s ago");
    }
}
