//! `[job.NAME]`.

use std::path::Path;

use toml::de::DeTable;
use weal_model::{ClassName, JobCommand, JobFiles, JobName, Missed, Overlap, Schedule, ScheduleError, ScheduledJob, Work};

use super::app::{read_cwd, read_env, read_run};
use super::paths::below;
use super::pool::read_cpu;
use crate::defaults;
use crate::given::GIVEN_TO_JOBS;
use crate::section::{Reading, Section};

/// Every key of `[job.NAME]`.
const KEYS: [&str; 16] = [
    "schedule",
    "time-zone",
    "run",
    "done-by",
    "class",
    "memory",
    "cpus",
    "work",
    "env",
    "cwd",
    "inputs",
    "outputs",
    "output-to",
    "retries",
    "overlap",
    "missed",
];
/// A goal further off than a month orders nothing.
const LONGEST_GOAL_S: f64 = 31.0 * 86_400.0;
const MOST_RETRIES: u32 = 1000;

/// `None` when it has no dates, of which the findings tell.
pub(super) fn read(reading: &mut Reading, name: &str, table: &DeTable, folder: &Path) -> Option<ScheduledJob> {
    let section = Section::open(reading, &format!("job.{name}"), table, &KEYS);
    let schedule = read_schedule(reading, &section);
    Some(ScheduledJob {
        name: JobName::from(name),
        command: read_command(reading, &section, folder),
        done_within_s: section.span(reading, "done-by", (1.0, LONGEST_GOAL_S)),
        class: section.text(reading, "class").map(ClassName::from),
        memory: section.size(reading, "memory").unwrap_or(defaults::MEMORY),
        cpus: read_cpu(reading, &section, "cpus").unwrap_or(defaults::JOB_CPUS),
        work: section.span(reading, "work", (0.001, LONGEST_GOAL_S * 4096.0)).map(Work),
        retries: section.count(reading, "retries", 0..MOST_RETRIES + 1).unwrap_or(0),
        overlap: section.word(reading, "overlap", Overlap::ALL, Overlap::as_str, "words").unwrap_or_default(),
        missed: section.word(reading, "missed", Missed::ALL, Missed::as_str, "words").unwrap_or_default(),
        // The last, so that one reading finds all mistakes.
        schedule: schedule?,
    })
}

fn read_command(reading: &mut Reading, section: &Section, folder: &Path) -> JobCommand {
    let cwd = section.item("cwd").is_some().then(|| read_cwd(reading, section, folder));
    let run = read_run(reading, section, "run = [\"./program\", \"--all\"]");
    JobCommand { run, env: read_env(reading, section, &GIVEN_TO_JOBS), cwd, files: read_files(reading, section, folder) }
}

fn read_files(reading: &mut Reading, section: &Section, folder: &Path) -> JobFiles {
    let inputs = section.texts(reading, "inputs").unwrap_or_default();
    let outputs = section.texts(reading, "outputs").unwrap_or_default();
    let to = section.text(reading, "output-to").map(|to| below(folder, &to));
    if let Some(outside) = outputs.iter().find(|pattern| !JobFiles::is_inside(pattern)) {
        let text = format!("`{outside}` does not lie in the job's own folder");
        let help = "write a path in that folder, such as `out/*.png`, without `..`";
        reading.findings.error(reading.places.value(&section.at("outputs")), text, help);
    }
    if outputs.is_empty() != to.is_none() {
        let key = if outputs.is_empty() { "output-to" } else { "outputs" };
        let help = "`outputs = [\"out/*.png\"]` and `output-to = \"results\"` belong together";
        reading.findings.error(
            reading.places.value(&section.at(key)),
            "`outputs` need a folder, and a folder needs `outputs`",
            help,
        );
    }
    JobFiles { inputs: inputs.iter().map(|input| below(folder, input)).collect(), outputs, to }
}

fn read_schedule(reading: &mut Reading, section: &Section) -> Option<Schedule> {
    if section.item("schedule").is_none() {
        let help = "add `schedule = \"0 3 * * *\"`, which is 3:00 each day";
        reading.findings.error(reading.places.key(&section.path), format!("`{}` has no `schedule`", section.path), help);
        return None;
    }
    let zone = section.text(reading, "time-zone").unwrap_or_else(|| defaults::TIME_ZONE.to_owned());
    let expression = section.text(reading, "schedule")?;
    let error = Schedule::new(&expression, &zone).map_err(|error| (key_of(&error), help(&error), error));
    match error {
        Ok(schedule) => Some(schedule),
        Err((key, help, error)) => {
            reading.findings.error(reading.places.value(&section.at(key)), error.to_string(), help);
            None
        }
    }
}

fn key_of(error: &ScheduleError) -> &'static str {
    if matches!(error, ScheduleError::TimeZone { .. }) { "time-zone" } else { "schedule" }
}

fn help(error: &ScheduleError) -> &'static str {
    match error {
        ScheduleError::TimeZone { .. } => "write a name such as `Europe/Berlin` or `UTC`",
        ScheduleError::NoDate => "a month has no such day: its jobs would never run",
        ScheduleError::Parts { .. } | ScheduleError::Part { .. } | ScheduleError::Long => {
            "`0 3 * * *` is 3:00 each day, `*/15 9-17 * * mon-fri` each quarter of an hour at work"
        }
    }
}
