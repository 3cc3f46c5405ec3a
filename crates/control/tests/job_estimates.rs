//! The work that a job states is wrong by ten times, either way. The loop notices while the job runs, plans anew, and people are told.
//!
//! Between the loop and two jobs stands an engine that runs them at the speeds that it was told, on one node. A second job beside the one that is
//! wrong shows what plans make of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weal_control::cycle::{Config, Cycle, Done, Effect, Input, Start};
use weal_control::jobs::Costs;
use weal_model::{Action, Bytes, Cpu, JobName, JobPhase, JobStatus, NodeSpec, PoolSpec, RunEnd, Time};
use weal_protocol::controller::JobSubmission;
use weal_protocol::engine::{ActionOutcome, JobOrder, NodeSeen, Observation, RunSeen, RunState};
use weal_protocol::{Capabilities, Refusal};

/// When it begins.
const BEGIN_S: f64 = 1000.0;
/// How often the world moves on.
const STEP_S: f64 = 0.5;
/// Longer than all work takes.
const LONG_S: f64 = 400.0;
/// Part of the node's CPU that plans may fill: the job beside leaves none idle, so that nobody learns what helps a job.
const FULL: f64 = 0.95;

/// A job: what it says of its work, and what is true.
struct Wish {
    name: &'static str,
    stated: Option<f64>,
    truth: f64,
    goal_s: f64,
    cpus: f64,
    tells_progress: bool,
}

/// What was seen of a job at a moment.
#[derive(Debug, Clone)]
struct Seen {
    at_s: f64,
    status: JobStatus,
}

struct World {
    now: Time,
    pool: Arc<PoolSpec>,
    cycle: Cycle,
    wishes: BTreeMap<JobName, Wish>,
    runs: Vec<RunSeen>,
    speeds: BTreeMap<JobName, f64>,
    used: f64,
    plans: Vec<f64>,
    notes: Vec<String>,
    seen: BTreeMap<JobName, Vec<Seen>>,
    /// What each run uses of memory.
    memory_used: Option<Bytes>,
    /// The memory limits of runs that were begun.
    limits: Vec<Bytes>,
}

impl World {
    fn new(wishes: Vec<Wish>) -> Self {
        let now = Time::from_secs_f64(BEGIN_S);
        let mut pool = PoolSpec::example();
        pool.nodes = vec![NodeSpec { name: "n1".into(), cpu: Cpu(1.0), memory: Bytes::gib(1), utilization_limit: FULL }];
        let pool = Arc::new(pool);
        let config = Config { generation: 1, pool: Arc::clone(&pool), revisions: BTreeMap::new() };
        let cycle = Cycle::new(now, Start::first("gw".into(), Some(config), Costs::THESIS));
        let mut world = Self {
            now,
            pool,
            cycle,
            wishes: BTreeMap::new(),
            runs: Vec::new(),
            speeds: BTreeMap::new(),
            used: 0.0,
            plans: Vec::new(),
            notes: Vec::new(),
            seen: BTreeMap::new(),
            memory_used: None,
            limits: Vec::new(),
        };
        // Nothing can be submitted before the first look.
        world.live(5.0);
        for wish in wishes {
            world.submit(wish, Some(Bytes::mib(10)));
        }
        world
    }

    fn submit(&mut self, wish: Wish, memory: Option<Bytes>) -> JobName {
        let submission = JobSubmission {
            run: vec!["work".to_owned()],
            name: Some(wish.name.to_owned()),
            done_within_s: Some(wish.goal_s),
            work_s: wish.stated,
            cpus: Some(wish.cpus),
            memory,
            ..JobSubmission::default()
        };
        let taken = self.cycle.handle_submission(self.now, &submission, None).unwrap();
        self.wishes.insert(taken.job.clone(), wish);
        taken.job
    }

    fn seconds(&self) -> f64 {
        self.now.as_secs_f64() - BEGIN_S
    }

    fn live(&mut self, for_s: f64) {
        let until = self.now + Duration::from_secs_f64(for_s);
        while self.now < until {
            self.carry_out();
            let next = self.cycle.poll_timeout().max(self.now + Duration::from_millis(1));
            let next = next.min(self.now + Duration::from_secs_f64(STEP_S)).min(until);
            self.compute(next.since(self.now).as_secs_f64());
            self.now = next;
            self.cycle.handle_timeout(self.now);
            self.watch();
        }
    }

    /// Runs go on at the speeds that were told.
    fn compute(&mut self, seconds: f64) {
        for run in self.runs.iter_mut().filter(|run| run.state == RunState::Running) {
            let wish = &self.wishes[&run.job];
            let work = self.speeds.get(&run.job).copied().unwrap_or(0.0).min(1.0) * seconds;
            let used = run.cpu_seconds.unwrap_or(0.0) + work;
            self.used += work;
            run.cpu_seconds = Some(used);
            run.memory_used = self.memory_used;
            run.progress = wish.tells_progress.then_some((used / wish.truth).min(1.0));
            if used >= wish.truth {
                (run.state, run.end, run.since) = (RunState::Ended, Some(RunEnd::Code { code: 0 }), self.now);
            }
        }
    }

    fn watch(&mut self) {
        let (at_s, jobs) = (self.seconds(), self.cycle.jobs(10, None));
        for status in jobs {
            self.seen.entry(status.id.clone()).or_default().push(Seen { at_s, status });
        }
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.cycle.poll_effect() {
            if let Some(input) = self.perform(effect) {
                self.cycle.handle(self.now, input);
            }
        }
    }

    fn perform(&mut self, effect: Effect) -> Option<Input> {
        let nobody = || Refusal::failed("there is no gateway");
        Some(match effect {
            Effect::ObserveGateway => Input::Gateway(Err(nobody())),
            Effect::ConfigureGateway(_) => Input::Done(Done::Gateway(Err(nobody()))),
            Effect::ObserveEngine => Input::Engine(Ok(self.observe())),
            Effect::ConfigureNodes(_) => Input::Done(Done::Nodes(Ok(()))),
            Effect::Act { action, job, .. } => {
                self.act(&job.expect("all actions are on jobs here"));
                Input::Done(Done::Acted(ActionOutcome { action, took_s: 0.0, refusal: None }))
            }
            Effect::Update { .. } => Input::Done(Done::Updated(Ok(Vec::new()))),
            Effect::SetCpuShares(_) => Input::Done(Done::CpuShares(Ok(()))),
            Effect::SetReserves(_) => Input::Done(Done::Reserves(Ok(()))),
            Effect::Plan(request) => {
                self.plans.push(self.seconds());
                Input::Done(Done::Planned(Box::new(request.run())))
            }
            Effect::Keep(weal_control::cycle::Kept::Jobs { records, write, .. }) => {
                let jobs = records.iter().map(|record| record.spec.name.clone()).collect();
                Input::Done(Done::JobsKept { jobs, write, result: Ok(()) })
            }
            Effect::Note(note) => {
                self.notes.push(note.text);
                return None;
            }
            Effect::Keep(_) | Effect::Show { .. } => return None,
        })
    }

    fn act(&mut self, order: &JobOrder) {
        match &order.action {
            Action::StartJob { job, .. } => {
                self.runs.push(run(job, order.attempt, self.now));
                self.limits.push(order.memory);
            }
            Action::SetJobCpu { job, cpu } => drop(self.speeds.insert(job.clone(), cpu.0)),
            Action::EndJob { job, attempt } => self.runs.retain(|run| (&run.job, run.attempt) != (job, *attempt)),
            _ => {}
        }
    }

    fn observe(&self) -> Observation {
        Observation {
            began: Time::from_secs_f64(BEGIN_S),
            time: self.now,
            capabilities: Capabilities { moves_jobs: false, ..Capabilities::all("cgroup-v2") },
            nodes: vec![NodeSeen { cpu_seconds: self.used, ..NodeSeen::example(&self.pool.nodes[0]) }],
            runs: self.runs.clone(),
            ..Observation::default()
        }
    }

    /// All that was seen of the job that was submitted first, or of the one beside it.
    fn seen(&self, name: &str) -> &[Seen] {
        let job = self.wishes.iter().find(|(_, wish)| wish.name == name).map(|(job, _)| job);
        &self.seen[job.unwrap()]
    }
}

fn run(job: &JobName, attempt: u32, since: Time) -> RunSeen {
    RunSeen {
        job: job.clone(),
        attempt,
        task: 0,
        node: "n1".into(),
        state: RunState::Running,
        detail: String::new(),
        since,
        cpu_seconds: Some(0.0),
        memory_used: None,
        end: None,
        progress: None,
    }
}

/// A job of 100 CPU-seconds that states `stated`, beside another of 60. Either can use more than half of the node.
fn lived(stated: Option<f64>, goal_s: f64, tells_progress: bool) -> World {
    let wrong = Wish { name: "wrong", stated, truth: 100.0, goal_s, cpus: 0.6, tells_progress };
    lived_by(vec![wrong, beside()])
}

fn beside() -> Wish {
    Wish { name: "beside", stated: Some(60.0), truth: 60.0, goal_s: 600.0, cpus: 0.6, tells_progress: false }
}

fn lived_by(wishes: Vec<Wish>) -> World {
    let mut world = World::new(wishes);
    world.live(LONG_S);
    for (job, seen) in &world.seen {
        assert_eq!(seen.last().unwrap().status.state, JobPhase::Done, "{job}: {:#?}", world.notes);
    }
    let is_wrong = |note: &&String| note.contains("beside") && note.contains("runs on");
    assert_eq!(world.notes.iter().find(is_wrong), None, "it ends with what it stated");
    world
}

/// What must hold of all that people were told of a job of so much work.
fn check_what_was_told(seen: &[Seen], truth: f64) {
    for pair in seen.windows(2) {
        let [before, after] = [&pair[0].status, &pair[1].status];
        assert!(!after.is_guess || after.progress == 0.0, "a guess is no progress: {after:?}");
        if after.progress < before.progress {
            let raised = after.raised.as_ref();
            assert!(raised != before.raised.as_ref() && raised.is_some(), "progress goes back and nobody says why: {after:?}");
            assert!(after.work.0 > before.work.0, "{before:?}, then {after:?}");
        }
        // What is guessed has room for what is true: less can be told before a twentieth of it.
        if after.is_guess && after.cpu_used.0 >= 0.1 * truth {
            let most = after.work_most.map_or(f64::INFINITY, |most| most.0);
            assert!(after.work_least.0 <= truth && truth <= most, "{after:?}");
        }
    }
}

/// CPU of a job shortly before and after its estimate has changed by more than half, and when that was.
fn around_the_change(seen: &[Seen]) -> (f64, f64, f64) {
    let is_change = |pair: &[Seen]| {
        let ratio = pair[1].status.work.0 / pair[0].status.work.0;
        pair[0].status.state == JobPhase::Running && !(0.5..2.0).contains(&ratio)
    };
    let at = seen.windows(2).position(is_change).expect("its estimate changes while it runs");
    let later = seen[at + 1..].iter().find(|later| later.at_s > seen[at].at_s + 4.0).unwrap();
    (seen[at].status.cpu_allocated.0, later.status.cpu_allocated.0, seen[at + 1].at_s)
}

#[test]
fn ten_times_the_stated_work_is_noticed_at_a_twentieth_of_it_and_gets_more_cpu() {
    let world = lived(Some(10.0), 260.0, true);
    let wrong = world.seen("wrong");
    check_what_was_told(wrong, 100.0);
    let (before, after, at_s) = around_the_change(wrong);
    let told = wrong.iter().find(|seen| seen.at_s >= at_s).unwrap();
    assert!(told.status.cpu_used.0 < 7.0 && (told.status.work.0 - 100.0).abs() < 1.0, "{told:?}");
    assert_eq!(told.status.raised.as_ref().map(|raised| raised.from.0), Some(10.0));
    assert!(world.plans.iter().any(|plan_s| (at_s - 1.0..at_s + 1.0).contains(plan_s)), "no plan at {at_s}: {:?}", world.plans);
    assert!(after > 1.5 * before, "{before} cores before, {after} after");
    let text = "job wrong-1 takes about 100.0 s of CPU instead of 10.0 s: this is known from the progress that it writes";
    assert_eq!(world.notes.iter().filter(|note| *note == text).count(), 1, "{:#?}", world.notes);
    let done = wrong.last().unwrap();
    assert!(done.status.utility.unwrap().0 > 0.0, "its goal is met all the same: {done:?}");
}

#[test]
fn a_tenth_of_the_stated_work_is_noticed_at_a_twentieth_of_it_and_gives_cpu_back() {
    let world = lived(Some(1000.0), 3000.0, true);
    let wrong = world.seen("wrong");
    check_what_was_told(wrong, 100.0);
    let (before, after, at_s) = around_the_change(wrong);
    assert!(world.plans.iter().any(|plan_s| (at_s - 1.0..at_s + 1.0).contains(plan_s)), "no plan at {at_s}: {:?}", world.plans);
    assert!(after < 0.9 * before, "{before} cores before, {after} after");
    assert!(wrong.iter().all(|seen| seen.status.raised.is_none()), "less work is no step back");
    let utility = |name: &str| world.seen(name).last().unwrap().status.utility.unwrap().0;
    assert!(utility("wrong") > 0.0 && utility("beside") > 0.0);
}

#[test]
fn a_job_that_outruns_what_it_stated_and_tells_nothing_is_said_to_be_a_guess() {
    let world = lived(Some(10.0), 300.0, false);
    let wrong = world.seen("wrong");
    check_what_was_told(wrong, 100.0);
    let guess = wrong.iter().find(|seen| seen.status.is_guess).expect("it uses more than it stated");
    assert_eq!(guess.status.raised.as_ref().map(|raised| raised.from.0), Some(10.0));
    assert!(world.notes.iter().any(|note| note.contains("has used the 10.0 s of CPU that it was expected to take, and runs on")));
    let expected = guess.status.expected_end.unwrap();
    let latest = guess.status.expected_latest.expect("of twenty such jobs, nineteen are done by then");
    assert!(latest > expected, "{guess:?}");
}

#[test]
fn a_job_that_is_done_at_a_tenth_of_what_it_stated_leaves_its_cpu_at_once() {
    let wrong = Wish { name: "wrong", stated: Some(500.0), truth: 50.0, goal_s: 300.0, cpus: 0.6, tells_progress: false };
    let world = lived_by(vec![wrong, beside()]);
    check_what_was_told(world.seen("wrong"), 50.0);
    let over_s = world.seen("wrong").iter().find(|seen| seen.status.state == JobPhase::Done).unwrap().at_s;
    assert!(world.plans.iter().any(|plan_s| (over_s - 1.0..over_s + 1.0).contains(plan_s)), "{over_s}: {:?}", world.plans);
    let later = world.seen("beside").iter().find(|seen| seen.at_s > over_s + 4.0).unwrap();
    assert!(later.status.cpu_allocated.0 > 0.55, "{later:?}");
}

#[test]
fn a_job_of_which_nothing_is_known_is_a_guess_until_it_tells_how_far_it_is() {
    let world = lived(None, 300.0, true);
    let wrong = world.seen("wrong");
    check_what_was_told(wrong, 100.0);
    let waits = &wrong[0].status;
    assert!(waits.is_guess && waits.work_most.is_none() && waits.expected_latest.is_none(), "{waits:?}");
    assert!(wrong.iter().all(|seen| seen.status.raised.is_none()), "what nobody said is not raised");
}

#[test]
fn the_first_run_of_an_unknown_command_is_the_pilot_of_the_others() {
    let wish = |name: &'static str, tells_progress: bool| Wish {
        name,
        stated: None,
        truth: 100.0,
        goal_s: 400.0,
        cpus: 1.0,
        tells_progress,
    };
    let world = lived_by(vec![wish("part1x", true), wish("part1x2", false)]);
    let other = world.seen("part1x2");
    check_what_was_told(other, 100.0);
    let first = other.iter().find(|seen| !seen.status.is_guess).expect("the first tells it");
    assert_eq!(first.status.work_source, "from the progress of another run of it");
    assert!((first.status.work.0 - 100.0).abs() < 25.0 && first.status.cpu_used.0 < 10.0, "{first:?}");
    let (least, most) = (first.status.work_least.0, first.status.work_most.unwrap().0);
    assert!(least < 60.0 && most > 150.0, "one run tells nothing of how they vary: {first:?}");
    assert!(world.plans.iter().any(|plan_s| (first.at_s - 1.0..first.at_s + 1.0).contains(plan_s)), "{:?}", world.plans);
}

#[test]
fn a_job_that_says_no_memory_has_what_earlier_runs_used_reserved_and_is_not_limited_by_that() {
    let wish = || Wish { name: "render", stated: Some(20.0), truth: 20.0, goal_s: 300.0, cpus: 1.0, tells_progress: false };
    let mut world = World::new(Vec::new());
    world.memory_used = Some(Bytes::mib(40));
    let first = world.submit(wish(), None);
    world.live(40.0);
    let status = |world: &World, job: &JobName| world.seen[job].last().unwrap().status.clone();
    assert_eq!(status(&world, &first).state, JobPhase::Done);
    let second = world.submit(wish(), None);
    world.live(8.0);
    let now = status(&world, &second);
    assert_eq!((now.state, now.memory_is_learnt), (JobPhase::Running, true));
    assert_eq!((now.memory_reserved, now.memory_limit), (Bytes::mib(50), Bytes::mib(256)), "a quarter more is reserved");
    let start = now.changes.iter().find(|cost| cost.change == "start").unwrap();
    assert_eq!((start.seconds, start.table_s), (0.0, 3.6), "it took no time here");
    assert!(start.measured > 0);
    // It needs more than its family ever did.
    world.memory_used = Some(Bytes::mib(90));
    world.live(4.0);
    assert_eq!(status(&world, &second).memory_reserved, Bytes::mib(90));
    world.live(40.0);
    assert_eq!(status(&world, &second).state, JobPhase::Done);
    // What somebody says is believed.
    let third = world.submit(wish(), Some(Bytes::mib(200)));
    world.live(8.0);
    let now = status(&world, &third);
    assert_eq!((now.memory_reserved, now.memory_limit, now.memory_is_learnt), (Bytes::mib(200), Bytes::mib(200), false));
    assert_eq!(world.limits, [256, 256, 200].map(Bytes::mib));
}
