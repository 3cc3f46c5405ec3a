//! Plans with jobs: what is decided, and that `check` accepts it.

use weal_model::{Action, Bytes, Cpu, InstanceState, JobName, JobObservation, JobState, PoolSpec, Time, Utility, Work};

use crate::check::check;
use crate::jobs::Costs;
use crate::placement::fixtures::{app, free_policy, job, judged, pool, running, with_jobs, words};
use crate::placement::{Iterations, Policy, plan};
use crate::seeded::Seeded;
use crate::utility::Curve;

#[test]
fn a_job_starts_where_there_is_room_and_gets_its_speed() {
    let pool = pool(2, vec![app("a", 800, 1, 1)]);
    let snapshot = with_jobs(&pool, &[("a-1", 0, InstanceState::Ready)], vec![job("j", 100.0, 1.5, 400, 1000.0)]);
    let (plan, report) = judged(&snapshot, &free_policy(&pool));
    assert_eq!(words(&plan), ["start j on n1", "j gets 1.5"]);
    assert!(report.reasons[0].text.contains("can reach"), "{:?}", report.reasons);
    assert!(report.lowest_utility.unwrap().0 > 0.9);
}

#[test]
fn a_job_that_runs_as_planned_needs_no_step() {
    let pool = pool(1, vec![]);
    let jobs = vec![running(job("j", 100.0, 1.0, 400, 1000.0), &[0], 1.0)];
    assert_eq!(words(&judged(&with_jobs(&pool, &[], jobs), &free_policy(&pool)).0), [""; 0]);
}

#[test]
fn a_gang_starts_on_several_nodes_at_once_or_not_at_all() {
    let pool = pool(2, vec![]);
    let gang = |tasks: u32| {
        let mut gang = job("g", 100.0, 1.0, 600, 1000.0);
        gang.spec.tasks = tasks;
        with_jobs(&pool, &[], vec![gang])
    };
    assert_eq!(words(&judged(&gang(2), &free_policy(&pool)).0), ["start g on n0 n1", "g gets 1.0"]);
    let (plan, report) = judged(&gang(3), &free_policy(&pool));
    assert_eq!(words(&plan), [""; 0]);
    assert!(report.notes.iter().any(|note| note.starts_with("job `g` waits")), "{:?}", report.notes);
}

/// Carrera 5.7.2 (case C12): a job that cannot wait takes the place of one that can, which is resumed when there is room.
#[test]
fn an_urgent_job_suspends_one_that_has_time() {
    let pool = pool(1, vec![]);
    let patient = running(job("patient", 500.0, 2.0, 700, 10_000.0), &[0], 2.0);
    let snapshot = with_jobs(&pool, &[], vec![patient.clone(), job("urgent", 100.0, 2.0, 700, 60.0)]);
    let (plan, report) = judged(&snapshot, &free_policy(&pool));
    assert_eq!(words(&plan), ["suspend patient", "start urgent on n0", "urgent gets 2.0"]);
    assert!(report.reasons[0].text.contains("can still reach"), "{:?}", report.reasons);
    let mut suspended = patient;
    (suspended.state, suspended.cpu) = (JobState::Suspended, None);
    let later = with_jobs(&pool, &[], vec![suspended]);
    assert_eq!(words(&judged(&later, &free_policy(&pool)).0), ["resume patient on n0", "patient gets 2.0"]);
}

/// The same where no image can leave memory.
fn policy_without_swap(pool: &PoolSpec) -> Policy {
    Policy { job_costs: Costs::FREE.where_possible(false, false), ..Policy::new(pool.clone()) }
}

#[test]
fn an_urgent_job_runs_beside_one_that_cannot_leave_memory() {
    let pool = pool(1, vec![]);
    // Both could use twice the node. Alone, the urgent one takes 15 s of its 40; after the patient one, 45.
    let patient = running(job("patient", 60.0, 4.0, 300, 400.0), &[0], 2.0);
    let snapshot = with_jobs(&pool, &[], vec![patient, job("urgent", 30.0, 4.0, 300, 40.0)]);
    let (plan, report) = judged(&snapshot, &policy_without_swap(&pool));
    assert!(words(&plan).contains(&"start urgent on n0".to_owned()), "{:?}", words(&plan));
    assert!(report.lowest_utility.unwrap().0 > 0.3, "{report:?}");
}

#[test]
fn a_job_that_saves_its_state_makes_room_where_no_other_can() {
    let pool = pool(1, vec![]);
    let patient = running(job("patient", 500.0, 2.0, 700, 10_000.0), &[0], 2.0);
    let snapshot = with_jobs(&pool, &[], vec![patient, job("urgent", 100.0, 2.0, 700, 200.0)]);
    let mut policy = policy_without_swap(&pool);
    let starts = |policy: &Policy| words(&judged(&snapshot, policy).0);
    assert_eq!(starts(&policy), [""; 0], "it can only wait");
    policy.saving.insert("patient".into());
    assert_eq!(starts(&policy), ["suspend patient", "start urgent on n0", "urgent gets 2.0"]);
}

/// Carrera 5.7.2 at E: one that uses a part of a machine goes to where another part is free, so that a job gets a whole machine.
#[test]
fn a_job_that_saves_its_state_moves_so_that_another_gets_a_whole_node() {
    let pool = pool(2, vec![]);
    let jobs = || {
        let (left, right) = (job("left", 400.0, 1.0, 300, 1000.0), job("right", 400.0, 1.0, 300, 1000.0));
        vec![running(left, &[0], 1.0), running(right, &[1], 1.0), job("wide", 200.0, 2.0, 300, 150.0)]
    };
    let mut policy = policy_without_swap(&pool);
    let decided = |policy: &Policy| words(&judged(&with_jobs(&pool, &[], jobs()), policy).0);
    assert!(!decided(&policy).iter().any(|word| word.starts_with("suspend")), "nobody can move: {:?}", decided(&policy));
    policy.saving.insert("right".into());
    assert_eq!(decided(&policy), ["suspend right", "start wide on n1", "wide gets 2.0"]);
    let mut saved = jobs();
    (saved[1].state, saved[1].done, saved[1].cpu) = (JobState::Pending, Work(40.0), None);
    saved[1].nodes.clear();
    saved[2] = running(saved[2].clone(), &[1], 2.0);
    let later = words(&judged(&with_jobs(&pool, &[], saved), &policy).0);
    assert_eq!(later, ["start right on n0", "right gets 1.0"]);
}

#[test]
fn no_job_begins_in_memory_that_a_more_urgent_one_would_have_sooner() {
    let pool = pool(1, vec![]);
    let jobs = |behind: JobObservation| {
        let big = running(job("big", 30.0, 0.5, 600, 1000.0), &[0], 0.5);
        with_jobs(&pool, &[], vec![big, job("urgent", 20.0, 0.5, 800, 200.0), behind])
    };
    let long = jobs(job("long", 1000.0, 0.5, 300, 100_000.0));
    assert_eq!(words(&judged(&long, &policy_without_swap(&pool)).0), [""; 0]);
    let short = jobs(job("short", 5.0, 0.5, 300, 100_000.0));
    assert_eq!(
        words(&judged(&short, &policy_without_swap(&pool)).0),
        ["start short on n0", "short gets 0.5"],
        "it is gone by then"
    );
    assert_eq!(words(&judged(&long, &free_policy(&pool)).0), ["start long on n0", "long gets 0.5"], "it can be suspended");
}

#[test]
fn applications_and_jobs_share_cpu_by_one_objective() {
    let pool = pool(1, vec![app("a", 300, 1, 1)]);
    let mut policy = free_policy(&pool);
    let curve = Curve::through([(Cpu(0.0), Utility(-1.0)), (Cpu(2.0), Utility(1.0))]);
    policy.demands.insert("a".into(), curve);
    let instances = [("a-1", 0, InstanceState::Ready)];
    let alone = judged(&with_jobs(&pool, &instances, vec![]), &policy).0;
    assert_eq!(alone.shares[0].cpu, Cpu(2.0));
    // 100 CPU-seconds in 100 seconds need a whole core to be just in time.
    let late = running(job("j", 100.0, 2.0, 300, 100.0), &[0], 0.0);
    let (shared, report) = judged(&with_jobs(&pool, &instances, vec![late]), &policy);
    let Some(Action::SetJobCpu { cpu: job, .. }) = shared.actions.last() else { panic!("{shared:?}") };
    assert!((shared.shares[0].cpu.0 + job.0 - 2.0).abs() < 1e-3, "{shared:?}");
    assert!(job.0 > 0.9 && shared.shares[0].cpu.0 > 0.5, "{shared:?}");
    assert!(report.lowest_utility.unwrap().0 < 0.3);
}

#[test]
fn a_job_that_is_hours_late_leaves_an_application_what_it_needs_and_says_how_late_it_is() {
    let pool = pool(1, vec![app("a", 500, 1, 1)]);
    let mut policy = free_policy(&pool);
    // Even without any CPU it is better off than a job that is late by 150 times its goal.
    let curve = Curve::through([(Cpu(0.0), Utility(-10.0)), (Cpu(1.0), Utility(0.0)), (Cpu(2.0), Utility(1.0))]);
    policy.demands.insert("a".into(), curve);
    // An hour's work was to be done within a minute.
    let late = running(job("j", 3600.0, 2.0, 300, 60.0), &[0], 0.0);
    let mut snapshot = with_jobs(&pool, &[("a-1", 0, InstanceState::Ready)], vec![late]);
    snapshot.time = Time::from_secs_f64(7200.0);
    let (plan, report) = judged(&snapshot, &policy);
    let Some(Action::SetJobCpu { cpu: job, .. }) = plan.actions.last() else { panic!("{plan:?}") };
    assert!(plan.shares[0].cpu.0 > 0.8 && job.0 > 0.5, "both are late, and neither has all: {plan:?}");
    assert!(report.lowest_utility.unwrap().0 < -150.0, "{report:?}");
}

#[test]
fn a_job_moves_to_where_it_gets_more() {
    let pool = pool(2, vec![]);
    let crowd = vec![running(job("j", 300.0, 2.0, 300, 200.0), &[0], 1.0), running(job("k", 300.0, 2.0, 300, 200.0), &[0], 1.0)];
    let got = words(&judged(&with_jobs(&pool, &[], crowd), &free_policy(&pool)).0);
    assert_eq!(got, ["migrate j to n1", "j gets 2.0", "k gets 2.0"]);
}

#[test]
fn suspended_instances_give_their_memory_to_a_job() {
    let pool = pool(1, vec![app("a", 600, 0, 1)]);
    let snapshot = with_jobs(&pool, &[("a-1", 0, InstanceState::Suspended)], vec![job("j", 10.0, 1.0, 600, 100.0)]);
    let got = words(&judged(&snapshot, &free_policy(&pool)).0);
    assert!(got[0].contains("Parked") && got[1] == "start j on n0", "{got:?}");
}

#[test]
fn a_job_that_does_not_say_how_much_it_is_runs_by_what_earlier_ones_were() {
    let pool = pool(1, vec![]);
    let mut policy = free_policy(&pool);
    let unknown = || with_jobs(&pool, &[], vec![job("report-7", 0.0, 2.0, 100, 1000.0)]);
    let lowest = |policy: &Policy| judged(&unknown(), policy).1.lowest_utility.unwrap().0;
    assert!(lowest(&policy) > 0.9, "unknown work counts as little");
    policy.runs.learn(&"report-6".into(), Work(1800.0));
    assert!((lowest(&policy) - 0.1).abs() < 0.02, "{}", lowest(&policy));
}

#[test]
fn jobs_on_a_vanished_node_start_again_elsewhere() {
    let pool = pool(2, vec![]);
    let mut snapshot = with_jobs(&pool, &[], vec![running(job("j", 100.0, 1.0, 300, 1000.0), &[0], 1.0)]);
    snapshot.nodes[0].up = false;
    assert_eq!(words(&judged(&snapshot, &free_policy(&pool)).0), ["start j on n1", "j gets 1.0"]);
}

/// Random pools with applications and jobs in every state and with nonsense in numbers: `check` accepts each plan.
#[test]
fn plans_with_jobs_are_accepted() {
    for seed in 0..400 {
        let mut random = Seeded::new(seed);
        let apps =
            (0..random.below(3)).map(|i| app(&format!("a{i}"), 100 + 100 * random.below(4), random.below(2) as u32, 2)).collect();
        let pool = pool(1 + random.below(4) as usize, apps);
        let jobs = (0..random.below(6)).map(|i| random_job(&mut random, i, pool.nodes.len())).collect();
        let snapshot = with_jobs(&pool, &[], jobs);
        let mut policy =
            Policy { job_costs: if random.chance(0.5) { Costs::FREE } else { Costs::THESIS }, ..Policy::new(pool.clone()) };
        for name in pool.apps.keys() {
            let curve = Curve::through([(Cpu(0.0), Utility(-1.0)), (Cpu(random.between(0.1, 4.0)), Utility(0.8))]);
            policy.demands.insert(name.clone(), curve);
        }
        let (plan, _report) = plan(&snapshot, &policy, Iterations::default());
        assert_eq!(check(&snapshot, &pool, &plan), [], "seed {seed}: {plan:#?}\n{:#?}", snapshot.jobs);
    }
}

fn random_job(random: &mut Seeded, i: u64, nodes: usize) -> JobObservation {
    let mut one = job(
        &format!("j{i}"),
        random.between(0.0, 500.0),
        random.between(0.2, 2.0),
        50 + random.below(500),
        random.between(5.0, 2000.0),
    );
    one.spec.tasks = 1 + random.below(3) as u32;
    if random.chance(0.1) {
        one.spec.stages[0].work = Work(f64::NAN);
    }
    one.done = Work(random.between(0.0, 100.0));
    if random.chance(0.6) {
        // One task a node, and few enough that all fit.
        let first = random.below(nodes as u64) as usize;
        one.spec.tasks = 1;
        one.spec.stages[0].memory = Bytes::mib(50);
        one = running(one, &[first], 0.1);
        if random.chance(0.3) {
            (one.state, one.cpu) = (JobState::Suspended, None);
        }
    }
    one
}

/// Random pools in which much waits: what does not run says why, and what runs does not.
#[test]
fn whatever_waits_says_why_and_nothing_else_does() {
    let (mut waits, mut lacks) = (0, 0);
    for seed in 1000..1300 {
        let mut random = Seeded::new(seed);
        let apps: Vec<_> = (0..random.below(3)).map(|i| app(&format!("a{i}"), 100 + 100 * random.below(4), 1, 2)).collect();
        let pool = pool(1 + random.below(3) as usize, apps);
        let jobs: Vec<JobObservation> = (0..1 + random.below(12)).map(|i| random_job(&mut random, i, pool.nodes.len())).collect();
        let snapshot = with_jobs(&pool, &[], jobs);
        let costs = Costs::THESIS.where_possible(random.chance(0.5), false);
        let policy = Policy { job_costs: costs, ..Policy::new(pool.clone()) };
        let (plan, report) = plan(&snapshot, &policy, Iterations::default());
        for job in &snapshot.jobs {
            let name = &job.spec.name;
            let runs = job.state == JobState::Running && !plan.actions.contains(&Action::SuspendJob { job: name.clone() })
                || plan.actions.iter().any(|action| match action {
                    Action::StartJob { job, .. } | Action::ResumeJob { job, .. } => job == name,
                    _ => false,
                });
            let text = &report.jobs[name].text;
            assert_eq!(text.is_empty(), runs, "seed {seed}, {name}: {text:?} {:?}", words(&plan));
            waits += u32::from(!runs);
            lacks += u32::from(text.contains("of memory"));
        }
    }
    assert!(waits > 100 && lacks > 20, "{waits} waited, {lacks} for memory");
}

#[test]
fn a_job_that_waits_says_which_memory_is_missing_and_who_has_it() {
    let pool = pool(2, vec![]);
    let why = |jobs: Vec<JobObservation>, name: &str| {
        judged(&with_jobs(&pool, &[], jobs), &policy_without_swap(&pool)).1.jobs[&JobName::from(name)].text.clone()
    };
    let gang = |tasks: u32, memory_mib: u64| {
        let mut gang = job("g", 100.0, 1.0, memory_mib, 1000.0);
        gang.spec.tasks = tasks;
        gang
    };
    let big = || running(job("big", 500.0, 1.0, 700, 10_000.0), &[0], 1.0);
    let text = why(vec![gang(3, 600)], "g");
    assert!(text.contains("needs 600MiB of memory for each of 3 tasks at once, and the nodes have room for 2 of them"), "{text}");
    let text = why(vec![gang(2, 600), big()], "g");
    assert!(text.contains("for each of 2 tasks at once, and beside `big` there is room for 1 of them"), "{text}");
    let text = why(vec![job("j", 100.0, 1.0, 2000, 1000.0)], "j");
    assert!(text.contains("needs 2.0GiB of memory on one node, and the nodes have at most 1000MiB"), "{text}");
}

/// Instances that stand by give their memory to a gang as to any other job, and none is started into what they give before it is there.
#[test]
fn standbys_make_room_for_a_gang_and_none_is_started_in_its_place() {
    let pool = pool(2, vec![app("a", 300, 0, 4), app("b", 300, 0, 4)]);
    let mut gang = job("g", 100.0, 1.0, 600, 1000.0);
    gang.spec.tasks = 2;
    let asleep = [
        ("a-1", 0, InstanceState::Suspended),
        ("b-1", 0, InstanceState::Suspended),
        ("a-2", 1, InstanceState::Suspended),
        ("b-2", 1, InstanceState::Suspended),
    ];
    let got = words(&judged(&with_jobs(&pool, &asleep, vec![gang.clone()]), &free_policy(&pool)).0);
    assert!(
        got.contains(&"start g on n0 n1".to_owned()) && got.iter().filter(|word| word.contains("Parked")).count() == 2,
        "{got:?}"
    );
    // Its place is free: nothing comes before it.
    let policy = Policy { rungs: Vec::new(), ..free_policy(&pool) };
    let got = words(&judged(&with_jobs(&pool, &[], vec![gang]), &policy).0);
    assert_eq!(got.first().map(String::as_str), Some("start g on n0 n1"), "{got:?}");
}
