//! `[job.NAME]` with everything that is in force.

use toml_edit::InlineTable;
use weal_model::written::{show_size, show_span};
use weal_model::{JobFiles, Missed, Overlap, ScheduledJob, Stage};

use crate::defaults;
use crate::page::{Section, lines, number, texts};

pub(super) fn section(spec: &ScheduledJob) -> Section {
    let mut job = Section::default();
    add_dates(&mut job, spec);
    job.add("run", texts(spec.command.run.iter().map(String::as_str)));
    let env: InlineTable = spec.command.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    job.add_marked("env", env, spec.command.env.is_empty());
    match &spec.command.cwd {
        Some(cwd) => job.add("cwd", cwd),
        None => job.add_absent("cwd", "a folder of each job's own"),
    }
    add_files(&mut job, &spec.command.files);
    match &spec.class {
        Some(class) => job.add("class", class.as_str()),
        None => job.add_absent("class", "none, normal importance"),
    }
    job.add_marked("tasks", i64::from(spec.tasks), spec.tasks == 1);
    if spec.stages.is_empty() {
        add_needs(&mut job, spec)
    } else {
        job.add("stages", lines(spec.stages.iter().map(stage)))
    }
    for (key, command) in [("checkpoint", &spec.command.checkpoint), ("restore", &spec.command.restore)] {
        job.add_marked(key, texts(command.iter().map(String::as_str)), command.is_empty());
    }
    job.add_marked("retries", i64::from(spec.retries), spec.retries == 0);
    job
}

fn add_needs(job: &mut Section, spec: &ScheduledJob) {
    match spec.memory {
        Some(memory) => job.add("memory", show_size(memory)),
        None => job.add_absent("memory", &format!("{}, of which plans reserve what is learnt", show_size(defaults::MEMORY))),
    }
    match spec.cpus {
        Some(cpus) => job.add("cpus", number(cpus.0)),
        None => job.add_absent("cpus", "1 for each task"),
    }
    match spec.work {
        Some(work) => job.add("work", show_span(work.0)),
        None => job.add_absent("work", "learnt"),
    }
}

fn stage(stage: &Stage) -> InlineTable {
    let needs = [
        ("work", show_span(stage.work.0).into()),
        ("cpus", number(stage.max_speed.0)),
        ("memory", show_size(stage.memory).into()),
    ];
    needs.into_iter().collect()
}

fn add_files(job: &mut Section, files: &JobFiles) {
    job.add_marked("inputs", texts(files.inputs.iter().map(String::as_str)), files.inputs.is_empty());
    job.add_marked("outputs", texts(files.outputs.iter().map(String::as_str)), files.outputs.is_empty());
    match &files.to {
        Some(to) => job.add("output-to", to),
        None => job.add_absent("output-to", "none"),
    }
}

fn add_dates(job: &mut Section, spec: &ScheduledJob) {
    job.add("schedule", spec.schedule.expression());
    job.add_marked("time-zone", spec.schedule.time_zone(), spec.schedule.time_zone() == defaults::TIME_ZONE);
    job.add_marked("overlap", spec.overlap.as_str(), spec.overlap == Overlap::default());
    job.add_marked("missed", spec.missed.as_str(), spec.missed == Missed::default());
    match spec.done_within_s {
        Some(seconds) => job.add("done-by", show_span(seconds)),
        None => job.add_absent("done-by", "its next date"),
    }
}
