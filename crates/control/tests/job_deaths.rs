//! The controller dies at every point of the life of some jobs, before and after each effect of the loop is carried out, and so do all runs
//! with it: no job that was acknowledged is lost, and none is counted done twice.
//!
//! Between the loop and the disk, the engine and the clients stand fakes that outlive it. Everything is deterministic, so that each death is
//! one run of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use weal_control::cycle::{Config, Cycle, Done, Effect, Input, Kept, Start, StoredJobs};
use weal_control::jobs::{Costs, Runs};
use weal_model::{Action, Bytes, Cpu, JobName, JobOutcome, JobRecord, NodeSpec, PoolSpec, RunEnd, Time};
use weal_protocol::controller::{JobSubmission, JobVerb};
use weal_protocol::engine::{ActionOutcome, JobOrder, NodeSeen, Observation, RunSeen, RunState};
use weal_protocol::{Capabilities, Refusal};

/// Seconds after which everything is long over.
const LONG_S: f64 = 200.0;
/// For so long nothing more may happen once everything is.
const QUIET_S: f64 = 3.0;
/// How long each run takes.
const RUN_S: f64 = 2.0;

/// Who dies, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Death {
    /// At the effect with this number, counted over the whole life.
    at: usize,
    /// The effect is carried out before, though nobody hears of it.
    is_carried_out: bool,
    /// All runs die with the controller, and the engine forgets them.
    takes_runs: bool,
}

/// What somebody wants, by the key that he submits again with until he is told that it is taken.
struct Wish {
    submission: JobSubmission,
    from_s: f64,
    taken: Option<JobName>,
    /// The write that he waits for, in the present controller's life.
    waits_for: Option<(u64, JobName)>,
}

struct World {
    now: Time,
    pool: Arc<PoolSpec>,
    cycle: Cycle,
    disk: BTreeMap<JobName, JobRecord>,
    learned: Runs,
    runs: Vec<RunSeen>,
    began: Time,
    wishes: Vec<Wish>,
    cancels: bool,
    effects: usize,
    death: Option<Death>,
    /// Runs that ended well, each with its attempt.
    ended_well: Vec<(JobName, u32)>,
    /// How often a record was written as done that was not so before.
    done: BTreeMap<JobName, usize>,
}

impl World {
    fn new(death: Option<Death>) -> Self {
        let now = Time::from_secs_f64(1000.0);
        let mut pool = PoolSpec::example();
        pool.nodes.push(NodeSpec { name: "n1".into(), cpu: Cpu(4.0), memory: Bytes::gib(1), utilization_limit: 0.9 });
        let pool = Arc::new(pool);
        let cycle = start(now, &pool, StoredJobs::default());
        Self {
            now,
            pool,
            cycle,
            disk: BTreeMap::new(),
            learned: Runs::default(),
            runs: Vec::new(),
            began: now,
            wishes: wishes(),
            cancels: true,
            effects: 0,
            death,
            ended_well: Vec::new(),
            done: BTreeMap::new(),
        }
    }

    fn live(mut self) -> Self {
        let mut over_s = None;
        while self.seconds() < over_s.map_or(LONG_S, |over_s| over_s + QUIET_S) {
            over_s = over_s.or_else(|| self.is_over().then(|| self.seconds()));
            self.carry_out();
            self.wish();
            self.carry_out();
            let next = self.cycle.poll_timeout().max(self.now + Duration::from_millis(1));
            // Runs end at their own time, and clients ask again each second.
            self.now = next.min(self.now + Duration::from_millis(500));
            self.end_runs();
            self.cycle.handle_timeout(self.now);
        }
        self
    }

    fn is_over(&self) -> bool {
        let is_over = |wish: &Wish| {
            let record = wish.taken.as_ref().and_then(|job| self.disk.get(job));
            record.is_some_and(|record| record.end.is_some())
        };
        self.wishes.iter().all(is_over) && self.runs.is_empty()
    }

    fn seconds(&self) -> f64 {
        self.now.as_secs_f64() - 1000.0
    }

    /// Carries out what the loop wants, until it dies or wants nothing more.
    fn carry_out(&mut self) {
        while let Some(effect) = self.cycle.poll_effect() {
            let dies = self.death.filter(|death| death.at == self.effects);
            self.effects += 1;
            if dies.is_some_and(|death| !death.is_carried_out) {
                return self.die(dies.is_some_and(|death| death.takes_runs));
            }
            let answer = self.perform(effect);
            if let Some(death) = dies {
                return self.die(death.takes_runs);
            }
            if let Some(input) = answer {
                self.hear(&input);
                self.cycle.handle(self.now, input);
            }
        }
    }

    /// Clients are told once what they wait for is on disk.
    fn hear(&mut self, input: &Input) {
        let Input::Done(Done::JobsKept { write, result: Ok(()), .. }) = input else { return };
        for wish in &mut self.wishes {
            if let Some((_, job)) = wish.waits_for.take_if(|(waits, _)| waits == write) {
                wish.taken = Some(job);
            }
        }
    }

    fn die(&mut self, takes_runs: bool) {
        if takes_runs {
            self.runs.clear();
            self.began = self.now;
        }
        for wish in &mut self.wishes {
            wish.waits_for = None;
        }
        let records: Vec<JobRecord> = self.disk.values().cloned().collect();
        let highest = records.iter().map(|record| record.number).max().unwrap_or(0);
        let left = StoredJobs { records, highest, runs: self.learned.clone(), ..StoredJobs::default() };
        self.cycle = start(self.now, &self.pool, left);
    }

    fn perform(&mut self, effect: Effect) -> Option<Input> {
        let nobody = || Refusal::failed("there is no gateway");
        Some(match effect {
            Effect::ObserveGateway => Input::Gateway(Err(nobody())),
            Effect::ConfigureGateway(_) => Input::Done(Done::Gateway(Err(nobody()))),
            Effect::ObserveEngine => Input::Engine(Ok(self.observe())),
            Effect::ConfigureNodes(_) => Input::Done(Done::Nodes(Ok(()))),
            Effect::Act { action, job, .. } => {
                let is_new = self.act(&job.expect("all actions are on jobs here"));
                // Its inputs take longer to copy than anybody waits for an answer.
                let is_slow =
                    |action: &Action| matches!(action, Action::StartJob { job, .. } if job.as_str().starts_with("slow"));
                let away = || Refusal::Away { peer: "the node agent".to_owned(), detail: "no answer within 120 s".to_owned() };
                let refusal = (is_new && is_slow(&action)).then(away);
                Input::Done(Done::Acted(ActionOutcome { action, took_s: 0.0, refusal }))
            }
            Effect::Update { .. } => Input::Done(Done::Updated(Ok(Vec::new()))),
            Effect::SetCpuShares(_) => Input::Done(Done::CpuShares(Ok(()))),
            Effect::SetReserves(_) => Input::Done(Done::Reserves(Ok(()))),
            Effect::Plan(request) => Input::Done(Done::Planned(Box::new(request.run()))),
            Effect::Keep(Kept::Jobs { records, write, .. }) => {
                let jobs = records.iter().map(|record| record.spec.name.clone()).collect();
                records.into_iter().for_each(|record| self.write(record));
                Input::Done(Done::JobsKept { jobs, write, result: Ok(()) })
            }
            Effect::Keep(Kept::Runs(runs)) => {
                self.learned = *runs;
                return None;
            }
            Effect::Keep(_) | Effect::Note(_) | Effect::Show { .. } => return None,
        })
    }

    fn write(&mut self, record: JobRecord) {
        let is_done = |record: &JobRecord| record.end.as_ref().is_some_and(|end| end.outcome == JobOutcome::Done);
        let was_done = self.disk.get(&record.spec.name).is_some_and(is_done);
        if is_done(&record) && !was_done {
            *self.done.entry(record.spec.name.clone()).or_default() += 1;
        }
        self.disk.insert(record.spec.name.clone(), record);
    }

    /// True when a run begins by it.
    fn act(&mut self, order: &JobOrder) -> bool {
        let (job, attempt) = match &order.action {
            Action::StartJob { job, nodes } => {
                let is_known = self.runs.iter().any(|run| run.job == *job && run.attempt == order.attempt);
                if !is_known {
                    let tasks = order.tasks.iter().zip(nodes);
                    self.runs
                        .extend(tasks.map(|(task, node)| RunSeen { task: *task, ..run(job, order.attempt, node, self.now) }));
                }
                return !is_known;
            }
            Action::EndJob { job, attempt } => (job.clone(), *attempt),
            _ => return false,
        };
        self.runs.retain(|run| (&run.job, run.attempt) != (&job, attempt));
        false
    }

    /// Runs whose time is over end: `weak` fails the first time, and of a gang its last task.
    fn end_runs(&mut self) {
        let mut last: BTreeMap<(JobName, u32), u32> = BTreeMap::new();
        for run in &self.runs {
            let last = last.entry((run.job.clone(), run.attempt)).or_default();
            *last = run.task.max(*last);
        }
        for run in self.runs.iter_mut().filter(|run| run.state == RunState::Starting) {
            if self.now.since(run.since) >= Duration::from_secs_f64(RUN_S) {
                (run.state, run.since) = (RunState::Running, self.now);
            }
        }
        for run in self.runs.iter_mut().filter(|run| run.state == RunState::Running) {
            if self.now.since(run.since) < Duration::from_secs_f64(RUN_S) {
                continue;
            }
            let is_last = last.get(&(run.job.clone(), run.attempt)) == Some(&run.task);
            let code = i32::from(is_last && run.job.as_str().starts_with("weak") && run.attempt == 1);
            (run.state, run.end, run.since) = (RunState::Ended, Some(RunEnd::Code { code }), self.now);
            run.cpu_seconds = Some(RUN_S);
            if code == 0 && is_last {
                self.ended_well.push((run.job.clone(), run.attempt));
            }
        }
    }

    fn observe(&self) -> Observation {
        Observation {
            began: self.began,
            time: self.now,
            capabilities: Capabilities { moves_jobs: false, ..Capabilities::all("cgroup-v2") },
            nodes: vec![NodeSeen::example(&self.pool.nodes[0])],
            runs: self.runs.clone(),
            ..Observation::default()
        }
    }

    /// Clients submit what is not taken yet, and one cancels.
    fn wish(&mut self) {
        let (now, seconds) = (self.now, self.seconds());
        for wish in
            self.wishes.iter_mut().filter(|wish| wish.from_s <= seconds && wish.taken.is_none() && wish.waits_for.is_none())
        {
            match self.cycle.handle_submission(now, &wish.submission, None) {
                Ok(ordered) => match ordered.write {
                    Some(write) => wish.waits_for = Some((write, ordered.job)),
                    None => wish.taken = Some(ordered.job),
                },
                Err(refusal) => assert!(seconds < 20.0, "it is not taken: {refusal}"),
            }
        }
        let unwanted = self.wishes.iter().find(|wish| wish.submission.name.as_deref() == Some("unwanted"));
        if let Some(job) = unwanted.and_then(|wish| wish.taken.clone()).filter(|_| self.cancels && seconds > 3.0) {
            // Refused once it is over; asked for again until then.
            self.cancels = self.cycle.handle_job_order(now, &job, JobVerb::Cancel, None).is_ok();
        }
    }

    /// What must hold when everything is over.
    fn check(&self) {
        let keys: BTreeSet<&String> = self.disk.values().filter_map(|record| record.key.as_ref()).collect();
        assert_eq!(keys.len(), self.disk.len(), "{:?}: a job was taken twice: {:?}", self.death, self.disk.keys());
        for wish in &self.wishes {
            let job =
                wish.taken.as_ref().unwrap_or_else(|| panic!("{:?}: {:?} was never taken", self.death, wish.submission.name));
            let record = self.disk.get(job).unwrap_or_else(|| panic!("{:?}: {job} is lost", self.death));
            let outcome = record.end.as_ref().map(|end| end.outcome);
            let may_be_cancelled = job.as_str().starts_with("unwanted") || job.as_str().starts_with("in-vain");
            let may_be = outcome == Some(JobOutcome::Done) || may_be_cancelled && outcome == Some(JobOutcome::Cancelled);
            assert!(may_be, "{:?}: {job} is {outcome:?}: {record:?}", self.death);
            assert!(self.done.get(job).is_none_or(|times| *times == 1), "{:?}: {job} was counted done twice", self.death);
            let well = self.ended_well.iter().filter(|(ended, _)| ended == job).count();
            let takes_runs = self.death.is_some_and(|death| death.takes_runs);
            assert!(takes_runs || well <= 1, "{:?}: {job} ran to its end {well} times", self.death);
        }
        assert!(self.runs.is_empty(), "{:?}: runs are left: {:?}", self.death, self.runs);
    }
}

fn start(now: Time, pool: &Arc<PoolSpec>, jobs: StoredJobs) -> Cycle {
    let config = Config { generation: 1, pool: Arc::clone(pool), revisions: BTreeMap::new() };
    let start = Start { jobs, ..Start::first("gw".into(), Some(config), Costs::THESIS) };
    Cycle::new(now, start)
}

fn run(job: &JobName, attempt: u32, node: &weal_model::NodeName, since: Time) -> RunSeen {
    RunSeen {
        job: job.clone(),
        attempt,
        task: 0,
        node: node.clone(),
        state: if job.as_str().starts_with("slow") { RunState::Starting } else { RunState::Running },
        detail: String::new(),
        since,
        cpu_seconds: Some(0.0),
        memory_used: None,
        end: None,
        progress: None,
    }
}

fn wishes() -> Vec<Wish> {
    let wish = |name: &str, from_s: f64| Wish {
        submission: JobSubmission {
            run: vec!["work".to_owned()],
            name: Some(name.to_owned()),
            done_within_s: Some(600.0),
            memory: Some(Bytes::mib(10)),
            key: Some(name.to_owned()),
            ..JobSubmission::default()
        },
        from_s,
        taken: None,
        waits_for: None,
    };
    let mut all = vec![wish("plain", 1.0), wish("weak", 1.0), wish("unwanted", 2.0), wish("then", 2.0), wish("in-vain", 2.0)];
    all.extend([wish("gang", 2.0), wish("weak-gang", 2.0), wish("slow", 2.0)]);
    (all[5].submission.tasks, all[6].submission.tasks) = (Some(3), Some(2));
    (all[1].submission.retries, all[6].submission.retries) = (1, 1);
    // The first that is taken has the number 1.
    all[3].submission.after = vec!["plain-1".into()];
    all[4].submission.after = vec!["unwanted-3".into()];
    all
}

#[test]
fn no_job_is_lost_or_done_twice_wherever_its_controller_dies() {
    let whole = World::new(None).live();
    whole.check();
    assert_eq!(whole.disk.len(), 8);
    assert_eq!(whole.done.len(), 6, "two were cancelled: {:?}", whole.done);
    let mut deaths = 0;
    for at in 0..whole.effects {
        for (is_carried_out, takes_runs) in [(false, false), (true, false), (false, true), (true, true)] {
            let death = Death { at, is_carried_out, takes_runs };
            World::new(Some(death)).live().check();
            deaths += 1;
        }
    }
    assert!(deaths > 400, "{deaths} deaths");
}
