//! The keys of `[job.NAME]`.

use serde_json::{Value, json};
use weal_model::written::show_size;
use weal_model::{Missed, Overlap};

use super::parts::{SPAN, argv, describe, quoted, size, table};
use crate::defaults;

pub(super) fn keys() -> Vec<(&'static str, Value)> {
    let mut keys = dates();
    keys.extend(needs());
    keys.extend(files());
    keys
}

fn files() -> Vec<(&'static str, Value)> {
    vec![
        (
            "inputs",
            describe(
                texts(),
                "Files and folders that are copied into each job's own folder before it begins, relative to the config's folder.",
                "nothing",
            ),
        ),
        (
            "outputs",
            describe(
                texts(),
                "Patterns of paths in the job's own folder. What they name is copied to `output-to` before a job counts as done.",
                "nothing",
            ),
        ),
        (
            "output-to",
            describe(
                json!({ "type": "string" }),
                "The folder for the results, relative to the config's folder. The jobs' user must be able to write in it.",
                "none",
            ),
        ),
    ]
}

/// The keys of a schedule.
pub(super) fn schedule() -> Vec<(&'static str, Value)> {
    vec![
        (
            "schedule",
            describe(
                json!({ "type": "string" }),
                "Its dates as a cron expression: minute, hour, day of the month, month, day of the week.",
                "",
            ),
        ),
        (
            "time-zone",
            describe(
                json!({ "type": "string" }),
                "The zone in which the schedule is read, such as `Europe/Berlin`.",
                &quoted(defaults::TIME_ZONE),
            ),
        ),
    ]
}

fn dates() -> Vec<(&'static str, Value)> {
    let mut keys = schedule();
    keys.extend([
        (
            "overlap",
            describe(
                json!({ "enum": Overlap::ALL.map(Overlap::as_str) }),
                "What becomes of a date while a job of an earlier one is not over: it is left out (`skip`), both run (`allow`), or the earlier one is cancelled (`replace`).",
                &quoted(Overlap::default().as_str()),
            ),
        ),
        (
            "missed",
            describe(
                json!({ "enum": Missed::ALL.map(Missed::as_str) }),
                "What becomes of dates that passed while weal was down: the last of them is made up for (`run`), or none (`skip`).",
                &quoted(Missed::default().as_str()),
            ),
        ),
        ("done-by", span("The goal: within so long from its date, a job is to be done.", "its next date")),
    ]);
    keys
}

fn needs() -> Vec<(&'static str, Value)> {
    let env = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    vec![
        ("run", describe(argv(), "Program and arguments. Nothing in them is filled in.", "")),
        ("env", describe(env, "Added to the environment.", "nothing")),
        (
            "cwd",
            describe(
                json!({ "type": "string" }),
                "The working directory, relative to the config's folder.",
                "a folder of each job's own",
            ),
        ),
        (
            "class",
            describe(
                json!({ "type": "string" }),
                "A service class, whose importance says how much a late job hurts.",
                "normal importance",
            ),
        ),
        (
            "tasks",
            describe(
                json!({ "type": "integer", "minimum": 1, "maximum": 64 }),
                "Processes of a job that run at once, all or none. `cpus` and `work` are what all of them have, `memory` is what each has.",
                "1",
            ),
        ),
        (
            "memory",
            describe(
                size(),
                "The most memory; a job that takes more is ended. Left out, plans reserve what earlier jobs of it used.",
                &quoted(&show_size(defaults::MEMORY)),
            ),
        ),
        ("cpus", describe(cpus(), "The most CPU that helps a job, in cores.", "1 for each task")),
        ("work", span("CPU time that a job takes.", "learnt from earlier jobs of its name")),
        (
            "stages",
            describe(
                stages(),
                "Its phases in their order, in place of `work`, `cpus` and `memory`: a list of tables with these three keys.",
                "one phase",
            ),
        ),
        (
            "checkpoint",
            describe(
                texts(),
                "Program and arguments that save a job's state in its folder while it runs. weal may then end it, and let it go on later or on another node.",
                "none",
            ),
        ),
        ("restore", describe(texts(), "Program and arguments that go on from the saved state.", "`run`")),
        (
            "retries",
            describe(
                json!({ "type": "integer", "minimum": 0, "maximum": 1000 }),
                "How often a job is run again after it fails by its own fault.",
                "0",
            ),
        ),
    ]
}

fn stages() -> Value {
    let keys = vec![
        ("work", span("CPU time that the stage takes.", "")),
        ("cpus", describe(cpus(), "The most CPU that helps it, in cores.", "1 for each task")),
        ("memory", describe(size(), "The most memory.", &quoted(&show_size(defaults::MEMORY)))),
    ];
    json!({ "type": "array", "minItems": 1, "items": table("One stage.", &["work"], keys) })
}

fn cpus() -> Value {
    json!({ "type": "number", "minimum": 0.01, "maximum": 4096 })
}

fn texts() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

fn span(description: &str, default: &str) -> Value {
    describe(json!({ "type": "string", "pattern": SPAN }), description, default)
}
