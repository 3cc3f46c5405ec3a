//! What differs between the schedules of two configs.

use std::collections::BTreeSet;

use weal_model::written::{show_size, show_span};
use weal_model::{PoolSpec, ScheduledJob, Stage};

use super::change::{ConfigChange, Effect, KeyChange, env_changes, show_argv};

/// Jobs that were submitted run on as they are; what changes holds for the next date.
pub(super) fn diff(before: &PoolSpec, after: &PoolSpec, changes: &mut Vec<ConfigChange>) {
    let names: BTreeSet<_> = before.jobs.keys().chain(after.jobs.keys()).collect();
    for name in names {
        let mut add = |effect, keys, text| changes.push(ConfigChange { subject: format!("job {name}"), keys, effect, text });
        match (before.jobs.get(name), after.jobs.get(name)) {
            (Some(_), None) => {
                add(Effect::Removes, Vec::new(), format!("the schedule {name} goes; its jobs that have begun run on"))
            }
            (None, Some(job)) => add(Effect::Adds, Vec::new(), format!("the schedule {name} comes, {}", dates(job))),
            (Some(was), Some(is)) => {
                for KeyChange { key, text } in fields(was, is) {
                    add(Effect::Live, vec![key], format!("{name}: {text}, from its next date on"));
                }
            }
            (None, None) => {}
        }
    }
}

fn dates(job: &ScheduledJob) -> String {
    format!("`{}` in {}", job.schedule.expression(), job.schedule.time_zone())
}

fn stages(job: &ScheduledJob) -> String {
    let one = |stage: &Stage| format!("{} at {} in {}", show_span(stage.work.0), stage.max_speed, show_size(stage.memory));
    job.stages.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// How a key of a schedule is shown; `None` when it is left out.
type Show = fn(&ScheduledJob) -> Option<String>;

fn fields(was: &ScheduledJob, is: &ScheduledJob) -> Vec<KeyChange> {
    let or = |text: Option<String>, otherwise: &str| text.unwrap_or_else(|| otherwise.to_owned());
    let pairs: [(&str, Show); 18] = [
        ("schedule", |job| Some(dates(job))),
        ("overlap", |job| Some(job.overlap.as_str().to_owned())),
        ("missed", |job| Some(job.missed.as_str().to_owned())),
        ("done-by", |job| job.done_within_s.map(show_span)),
        ("run", |job| Some(show_argv(&job.command.run))),
        ("cwd", |job| job.command.cwd.clone()),
        ("inputs", |job| Some(show_argv(&job.command.files.inputs))),
        ("outputs", |job| Some(show_argv(&job.command.files.outputs))),
        ("output-to", |job| job.command.files.to.clone()),
        ("checkpoint", |job| Some(show_argv(&job.command.checkpoint))),
        ("restore", |job| Some(show_argv(&job.command.restore))),
        ("class", |job| job.class.as_ref().map(ToString::to_string)),
        ("memory", |job| job.memory.map(show_size)),
        ("tasks", |job| Some(job.tasks.to_string())),
        ("cpus", |job| job.cpus.map(|cpus| cpus.0.to_string())),
        ("work", |job| job.work.map(|work| show_span(work.0))),
        ("stages", |job| Some(stages(job)).filter(|stages| !stages.is_empty())),
        ("retries", |job| Some(job.retries.to_string())),
    ];
    let differs = pairs.into_iter().map(|(key, show)| (key, show(was), show(is))).filter(|(_, was, is)| was != is);
    let change = |(key, was, is): (&str, _, _)| {
        let text = format!("{key} = {} becomes {}", or(was, "none"), or(is, "none"));
        KeyChange { key: key.to_owned(), text }
    };
    differs.map(change).chain(env_changes(&was.command.env, &is.command.env)).collect()
}
