//! `[job.NAME]`.

use std::path::Path;

use toml::de::{DeTable, DeValue};
use weal_model::{ClassName, Cpu, JobCommand, JobFiles, JobName, Missed, Overlap, ScheduledJob, Stage, Work};

use super::app::{read_cwd, read_env, read_run};
use super::paths::below;
use super::pool::read_cpu;
use super::schedule;
use crate::defaults;
use crate::given::GIVEN_TO_JOBS;
use crate::section::{Item, Reading, Section};

/// Every key of `[job.NAME]`.
const KEYS: [&str; 20] = [
    "schedule",
    "time-zone",
    "run",
    "done-by",
    "class",
    "memory",
    "cpus",
    "work",
    "stages",
    "tasks",
    "env",
    "cwd",
    "inputs",
    "outputs",
    "output-to",
    "checkpoint",
    "restore",
    "retries",
    "overlap",
    "missed",
];
/// A goal further off than a month orders nothing.
const LONGEST_GOAL_S: f64 = 31.0 * 86_400.0;
const MOST_RETRIES: u32 = 1000;
const MOST_TASKS: u32 = 64;
const MOST_STAGES: usize = 100;
/// Every key of one entry of `stages`.
const STAGE_KEYS: [&str; 3] = ["work", "cpus", "memory"];

/// `None` when it has no dates, of which the findings tell.
pub(super) fn read(reading: &mut Reading, name: &str, table: &DeTable, folder: &Path) -> Option<ScheduledJob> {
    let section = Section::open(reading, &format!("job.{name}"), table, &KEYS);
    let schedule = schedule::read(reading, &section);
    let tasks = section.count(reading, "tasks", 1..MOST_TASKS + 1).unwrap_or(1);
    Some(ScheduledJob {
        name: JobName::from(name),
        command: read_command(reading, &section, folder),
        done_within_s: section.span(reading, "done-by", (1.0, LONGEST_GOAL_S)),
        class: section.text(reading, "class").map(ClassName::from),
        memory: section.size(reading, "memory"),
        cpus: read_cpu(reading, &section, "cpus"),
        work: section.span(reading, "work", (0.001, LONGEST_GOAL_S * 4096.0)).map(Work),
        stages: read_stages(reading, &section, tasks),
        tasks,
        retries: section.count(reading, "retries", 0..MOST_RETRIES + 1).unwrap_or(0),
        overlap: section.word(reading, "overlap", Overlap::ALL, Overlap::as_str, "words").unwrap_or_default(),
        missed: section.word(reading, "missed", Missed::ALL, Missed::as_str, "words").unwrap_or_default(),
        // The last, so that one reading finds all mistakes.
        schedule: schedule?,
    })
}

/// `stages = [{ work = "20s", cpus = 2, memory = "1GiB" }]`.
fn read_stages(reading: &mut Reading, section: &Section, tasks: u32) -> Vec<Stage> {
    let Some(item) = section.item("stages") else { return Vec::new() };
    let entries = item.list(reading).unwrap_or_default();
    let also = STAGE_KEYS.into_iter().find(|key| section.item(key).is_some());
    if let Some(key) = also {
        let text = format!("`{key}` and `stages` exclude each other");
        reading.findings.error(reading.places.key(&section.at(key)), text, format!("say `{key}` of each stage"));
    }
    if entries.is_empty() || entries.len() > MOST_STAGES {
        let help = format!("write 1 to {MOST_STAGES} stages: `stages = [{{ work = \"20s\", memory = \"1GiB\" }}]`");
        reading.findings.error(item.span, format!("`stages` has {} entries", entries.len()), help);
    }
    entries.iter().filter_map(|entry| read_stage(reading, entry, tasks)).collect()
}

fn read_stage(reading: &mut Reading, entry: &Item, tasks: u32) -> Option<Stage> {
    let DeValue::Table(table) = entry.value else {
        return entry.wrong_type(reading, "a list of tables", "write `{ work = \"20s\", cpus = 2, memory = \"1GiB\" }`");
    };
    let stage = Section::open(reading, &entry.path, table, &STAGE_KEYS);
    if stage.item("work").is_none() {
        reading.findings.error(entry.span.clone(), "a stage has no `work`", "add `work = \"20s\"`: the CPU time that it takes");
    }
    Some(Stage {
        max_speed: read_cpu(reading, &stage, "cpus").unwrap_or(Cpu(defaults::JOB_CPUS.0 * f64::from(tasks))),
        min_speed: Cpu(0.0),
        memory: stage.size(reading, "memory").unwrap_or(defaults::MEMORY),
        work: Work(stage.span(reading, "work", (0.001, LONGEST_GOAL_S * 4096.0))?),
    })
}

fn read_command(reading: &mut Reading, section: &Section, folder: &Path) -> JobCommand {
    let cwd = section.item("cwd").is_some().then(|| read_cwd(reading, section, folder));
    let run = read_run(reading, section, "run = [\"./program\", \"--all\"]");
    let (env, files) = (read_env(reading, section, &GIVEN_TO_JOBS), read_files(reading, section, folder));
    let checkpoint = section.texts(reading, "checkpoint").unwrap_or_default();
    let restore = section.texts(reading, "restore").unwrap_or_default();
    if checkpoint.is_empty() && !restore.is_empty() {
        let help = "add `checkpoint = [\"./save\"]`, which saves the state of a job while it runs";
        reading.findings.error(reading.places.key(&section.at("restore")), "`restore` needs a `checkpoint`", help);
    }
    JobCommand { run, env, cwd, files, checkpoint, restore }
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
