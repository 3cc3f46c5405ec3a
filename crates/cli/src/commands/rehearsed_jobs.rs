//! The jobs of a scenario, as they are submitted to a pool of real processes.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context, bail};
use toml_edit::{DocumentMut, table, value};
use weal_model::{Importance, JobSpec, Stage};
use weal_protocol::controller::{JobSubmission, StageWish};
use weal_scenario::{JobSource, Scenario};

use crate::failure::{Exit, Failure};

/// A job that is still to come.
pub struct Coming {
    pub spec: JobSpec,
    pub submission: JobSubmission,
}

/// All jobs of a scenario in `folder`, in the order in which they come.
pub fn coming(scenario: &Scenario, folder: &Path) -> anyhow::Result<VecDeque<Coming>> {
    let program = std::env::current_exe().context("cannot find the path of this program")?.display().to_string();
    let of_source = |source: &JobSource| -> Vec<Coming> {
        let specs = source.jobs(scenario.seed, scenario.duration_s);
        specs.into_iter().map(|spec| Coming { submission: submission(source, &spec, &program, folder), spec }).collect()
    };
    let mut all: Vec<Coming> = scenario.jobs.iter().flat_map(of_source).collect();
    all.sort_by_key(|job| job.spec.submitted);
    Ok(all.into())
}

fn submission(source: &JobSource, spec: &JobSpec, program: &str, folder: &Path) -> JobSubmission {
    JobSubmission {
        run: if source.run.is_empty() { stand_in(program, &spec.stages) } else { found_from(folder, &source.run) },
        checkpoint: found_from(folder, &source.checkpoint),
        restore: found_from(folder, &source.restore),
        name: Some(source.name.clone()),
        class: (spec.importance != Importance::NORMAL).then(|| class(&spec.importance.to_string()).into()),
        priority: Some(spec.priority),
        done_within_s: Some(spec.deadline.since(spec.submitted).as_secs_f64()),
        tasks: Some(spec.tasks),
        ..stated(&source.stated(spec))
    }
}

/// A command whose words `./NAME` and `../NAME` are files beside the scenario: a job runs in a folder of its own.
fn found_from(folder: &Path, command: &[String]) -> Vec<String> {
    let found = |word: &String| match word.starts_with("./") || word.starts_with("../") {
        true => folder.join(word).display().to_string(),
        false => word.clone(),
    };
    command.iter().map(found).collect()
}

/// What is said of its needs. A job of whose work nothing is said has no stages.
fn stated(spec: &JobSpec) -> JobSubmission {
    let wishes: Vec<StageWish> = spec.stages.iter().map(|stage| wish(stage, spec.tasks)).collect();
    match wishes[..] {
        [StageWish { work_s, cpus, memory }] if work_s <= 0.0 => JobSubmission { cpus, memory, ..JobSubmission::default() },
        _ => JobSubmission { stages: wishes, ..JobSubmission::default() },
    }
}

/// A scenario says what a task takes, and a submission says what all of them take together.
fn wish(stage: &Stage, tasks: u32) -> StageWish {
    let all = f64::from(tasks);
    StageWish { work_s: stage.work.0 * all, cpus: Some(stage.max_speed.0 * all), memory: Some(stage.memory) }
}

/// A program that takes what the scenario says.
fn stand_in(program: &str, stages: &[Stage]) -> Vec<String> {
    let options = stages.iter().flat_map(|stage| {
        [("--work", stage.work.0.to_string()), ("--cpus", stage.max_speed.0.to_string()), ("--memory", stage.memory.to_string())]
    });
    let words = options.flat_map(|(name, value)| [name.to_owned(), value]);
    [program.to_owned(), "stand-in".to_owned()].into_iter().chain(words).collect()
}

/// A job has the importance of its class: one for each that can be written.
pub fn add_classes(document: &mut DocumentMut) {
    let classes = document.entry("class").or_insert_with(table);
    for (word, _) in Importance::WORDS {
        classes[&class(word)]["importance"] = value(word);
    }
}

fn class(importance: &str) -> String {
    format!("{importance}-importance")
}

/// Refuses what a pool of real processes does not know.
pub fn refuse_what_is_simulated(scenario: &Scenario) -> anyhow::Result<()> {
    for source in &scenario.jobs {
        if source.tells_progress {
            let text = format!("the job `{}` can only be simulated: what it runs tells no progress", source.name);
            bail!(Failure::new(Exit::ConfigInvalid, text));
        }
        let jobs = source.jobs(scenario.seed, scenario.duration_s);
        if jobs.iter().flat_map(|job| &job.stages).any(|stage| stage.min_speed.0 > 0.0) {
            let text = format!("the job `{}` can only be simulated: a pool of real processes knows no `min-cpu`", source.name);
            bail!(Failure::new(Exit::ConfigInvalid, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(jobs: &str) -> Scenario {
        let head = "intent = \"A test.\"\nduration = \"100s\"\nconfig = \"weal.toml\"\n";
        Scenario::parse(&format!("{head}{jobs}"), weal_scenario::no_files).unwrap()
    }

    #[test]
    fn jobs_come_in_order_with_what_the_scenario_says() {
        let read = scenario(
            "[[job]]\nname = \"late\"\nat = \"9s\"\nrun = [\"/bin/late\"]\nwork = \"3s\"\nmemory = \"64MiB\"\ngoal = \"60s\"\n\
             [[job]]\nname = \"early\"\nat = \"2s\"\nwork = \"20s\"\ncpu = 0.5\nmemory = \"300MiB\"\ngoal-factor = 2.0\nimportance = \"high\"\n",
        );
        refuse_what_is_simulated(&read).unwrap();
        let jobs = coming(&read, Path::new("/srv")).unwrap();
        let [early, late] = [&jobs[0], &jobs[1]].map(|job| &job.submission);
        assert_eq!((early.name.as_deref(), late.name.as_deref()), (Some("early"), Some("late")));
        assert_eq!(early.run[1..], ["stand-in", "--work", "20", "--cpus", "0.5", "--memory", "300MiB"]);
        assert_eq!((early.done_within_s, early.stages[0].work_s, early.stages[0].cpus), (Some(80.0), 20.0, Some(0.5)));
        assert_eq!(early.class.as_ref().map(|class| class.as_str()), Some("high-importance"));
        assert_eq!((late.run.as_slice(), &late.class), (&["/bin/late".to_owned()][..], &None));
        let mut document = DocumentMut::new();
        add_classes(&mut document);
        assert_eq!(document["class"]["high-importance"]["importance"].as_str(), Some("high"));
    }

    #[test]
    fn a_gang_is_submitted_with_what_all_of_its_tasks_take() {
        let read = scenario("[[job]]\nname = \"g\"\nwork = \"5s\"\ncpu = 0.5\nmemory = \"10MiB\"\ngoal = \"60s\"\ntasks = 3\n");
        refuse_what_is_simulated(&read).unwrap();
        let job = &coming(&read, Path::new("/srv")).unwrap()[0].submission;
        assert_eq!((job.tasks, job.stages[0].work_s, job.stages[0].cpus), (Some(3), 15.0, Some(1.5)));
        assert_eq!(job.run[2..4], ["--work", "5"], "each process does its part");
    }

    #[test]
    fn what_is_stated_of_a_job_is_handed_in_and_what_is_true_is_run() {
        let handed_in = |factor: &str| {
            let keys = "work = \"20s\"\nmemory = \"64MiB\"\ngoal = \"60s\"";
            let read = scenario(&format!("[[job]]\nname = \"g\"\n{keys}\nstated-factor = {factor}\n"));
            coming(&read, Path::new("/srv")).unwrap().remove(0).unwrap().submission
        };
        let (tenth, nothing) = (handed_in("0.1"), handed_in("0.0"));
        assert_eq!((tenth.stages[0].work_s, tenth.run[3].as_str()), (2.0, "20"));
        assert_eq!((nothing.stages.len(), nothing.work_s, nothing.memory), (0, None, Some(weal_model::Bytes::mib(64))));
    }

    #[test]
    fn files_beside_the_scenario_are_found_from_a_jobs_own_folder() {
        let keys = "work = \"5s\"\nmemory = \"10MiB\"\ngoal = \"60s\"";
        let run = "run = [\"./batch\", \"5\"]\ncheckpoint = [\"./batch\", \"--save\"]\nrestore = [\"/bin/back\"]";
        let read = scenario(&format!("[[job]]\nname = \"g\"\n{keys}\n{run}\n"));
        let job = &coming(&read, Path::new("/srv/scenarios")).unwrap()[0].submission;
        assert_eq!(job.run, ["/srv/scenarios/./batch", "5"]);
        assert_eq!(job.checkpoint, ["/srv/scenarios/./batch", "--save"]);
        assert_eq!(job.restore, ["/bin/back"]);
    }

    #[test]
    fn what_no_pool_runs_is_refused_by_name() {
        let keys = "work = \"1s\"\nmemory = \"1MiB\"\nmin-cpu = 0.5";
        let error = refuse_what_is_simulated(&scenario(&format!("[[job]]\nname = \"model\"\ngoal = \"9s\"\n{keys}\n")));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`model`") && error.contains("no `min-cpu`"), "{error}");
    }
}
