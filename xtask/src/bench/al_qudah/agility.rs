//! Figure 11: a flash crowd on a pool of a base node and a support node, with each way to bring an instance up.
//!
//! The whole of weal is in it: its gateway is the router, its controller notices and decides, its agent enacts.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weal_model::{Enactment, InstanceState, Rung};
use weal_protocol::node::{Command, InstanceCounters};
use weal_reproduce::{Figure, Record, Reproduction, within};

use super::site::Site;
use crate::bench::real::load::{Answer, Phase, Question, drive};
use crate::bench::real::machine::MemoryGroup;
use crate::bench::real::pool::Pool;

/// Cores of each node. The rest of the machine is the gateway's, the controller's and the clients'.
const CORES: f64 = 0.7;
/// CPU that each request asks for, beside what the server takes for it.
const WORK_MS: u32 = 18;
/// Requests a second before the crowd, and with it: 0.15 and 1.4 times what a node can do with 20 ms each.
const BEFORE_PER_S: f64 = 5.0;
const CROWD_PER_S: f64 = 49.0;
/// When it comes, and how long it is watched.
const CROWD_AT_S: f64 = 50.0;
const CROWD_LASTS_S: f64 = 60.0;
/// An earlier crowd, so that who answers the one that is measured runs compiled code: a JVM compiles for as long as requests come.
const EARLIER_LASTS_S: f64 = 15.0;
/// What the pool is to keep, and what counts as degraded: the paper's base server answers "in less than 200 msec" before the crowd.
const GOAL_MS: f64 = 200.0;
/// So long before the crowd who stands by is told to park. The first purge takes up to 17 s, because it leaves the disk and the cores to others;
/// a crowd that comes meanwhile would find it half in memory.
const PARKED_BEFORE_S: f64 = 30.0;
/// So long before it a second instance is allowed where none stands by.
const ALLOWED_BEFORE_S: f64 = 9.0;
const IDLE: Duration = Duration::from_secs(10);
const TOO_AWAKE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(180);
/// Instances that the pool may name: each has its own folder.
const INSTANCES: usize = 6;

/// How instances are brought up; what the paper says: seconds degraded, the worst response in seconds.
struct Way {
    name: &'static str,
    enactment: Enactment,
    paper: Option<(f64, f64)>,
}

const WAYS: [Way; 4] = [
    Way { name: "regular start", enactment: Enactment::StartStop, paper: Some((100.0, 40.0)) },
    Way { name: "ladder, parked", enactment: Enactment::Ladder, paper: Some((11.0, 5.0)) },
    Way { name: "suspend/resume, evicted", enactment: Enactment::SuspendResume, paper: Some((25.0, 12.0)) },
    Way { name: "run-everywhere", enactment: Enactment::RunEverywhere, paper: None },
];

/// What the clients saw of one way.
struct Seen {
    answers: Vec<Answer>,
    /// Seconds from the crowd until the second instance was ready; `None` when it was all the time.
    ready_s: Option<f64>,
}

impl Seen {
    fn after_crowd(&self) -> impl Iterator<Item = &Answer> {
        self.answers.iter().filter(|answer| answer.due_s >= CROWD_AT_S)
    }

    /// Seconds with the crowd whose mean response is over the goal.
    fn degraded_s(&self) -> f64 {
        let over = |second: &usize| self.mean_s(*second, 1.0).is_some_and(|mean| mean * 1e3 > GOAL_MS);
        (CROWD_AT_S as usize..(CROWD_AT_S + CROWD_LASTS_S) as usize).filter(over).count() as f64
    }

    /// Seconds from the crowd to when the last request was due that took longer than the goal, of those in one go: until there were
    /// two seconds without any.
    fn until_all_within_s(&self) -> f64 {
        let mut last = CROWD_AT_S;
        for answer in self.after_crowd().filter(|answer| answer.took_s * 1e3 > GOAL_MS) {
            if answer.due_s - last > 2.0 {
                break;
            }
            last = answer.due_s;
        }
        last - CROWD_AT_S
    }

    fn worst_s(&self) -> f64 {
        self.after_crowd().map(|answer| answer.took_s).fold(0.0, f64::max)
    }

    /// The mean response of what was due in the bin of this number.
    fn mean_s(&self, bin: usize, width_s: f64) -> Option<f64> {
        let within = |answer: &&Answer| (answer.due_s / width_s) as usize == bin;
        let took: Vec<f64> = self.answers.iter().filter(within).map(|answer| answer.took_s).collect();
        (!took.is_empty()).then(|| took.iter().sum::<f64>() / took.len() as f64)
    }
}

/// Runs each way.
pub fn run(site: &Site) -> Result<Reproduction> {
    let wanted = WAYS.iter().filter(|way| !site.quick || way.enactment != Enactment::RunEverywhere);
    let (mut ways, mut seen, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for way in wanted {
        match play(site, way) {
            Ok(of_way) => {
                ways.push(way);
                seen.push(of_way);
            }
            // What the other ways gave took minutes, and stands without this one.
            Err(error) => failed.push(format!("{} could be played: {error:#}", way.name)),
        }
    }
    ensure!(!ways.is_empty(), "{}", failed.join("; "));
    let mut record = Record::new(
        "figure-11",
        "Al-Qudah et al. 5, Figure 11",
        "a flash crowd is served within the goal again about 100 s after it came when an instance is started, 25 s when one is resumed, 11 s when it is prefetched and resumed",
        &format!(
            "WildFly 35; a base node and a support node of {CORES} cores each; a page that takes {WORK_MS} ms of CPU, 256 KiB of memory and a \
             file of 16 KiB; {BEFORE_PER_S} requests a second at random, from second {CROWD_AT_S} on {CROWD_PER_S}; goal: mean < {GOAL_MS} ms, which is also what \
             degraded means, second by second; on {}",
            site.machine
        ),
    );
    record.assume("the paper gives no rates: the crowd is 1.4 times what one node can do");
    record.assume(&format!(
        "an earlier crowd of {EARLIER_LASTS_S} s was answered by all that stood by then, and they went back to sleep"
    ));
    failed.iter().for_each(|what| record.property(what, false));
    judge(&mut record, &ways, &seen);
    record.figure(figure(
        "figure-11",
        "mean response of what was due, second by second",
        &ways,
        &seen,
        0.0..=CROWD_AT_S + CROWD_LASTS_S,
        1.0,
    ));
    let near = CROWD_AT_S - 1.0..=CROWD_AT_S + 9.0;
    record.figure(figure("figure-11-near", "the same around the crowd, in fifths of a second", &ways, &seen, near, 0.2));
    Ok(record.done())
}

fn judge(record: &mut Record, ways: &[&Way], seen: &[Seen]) {
    for (way, seen) in ways.iter().zip(seen) {
        let name = way.name;
        if let Some((degraded_s, worst_s)) = way.paper {
            record.number(&format!("{name}: seconds degraded"), seen.degraded_s()).paper(within(0.0..=degraded_s));
            record.number(&format!("{name}: worst response, s"), seen.worst_s()).paper(within(0.0..=worst_s));
        } else {
            record.number(&format!("{name}: seconds degraded"), seen.degraded_s());
            record.number(&format!("{name}: worst response, s"), seen.worst_s());
        }
        record.number(&format!("{name}: seconds until the second instance was ready"), seen.ready_s.unwrap_or(0.0));
    }
    let of = |enactment| ways.iter().zip(seen).find(|(way, _)| way.enactment == enactment).map(|(_, seen)| seen);
    if let (Some(start), Some(ladder)) = (of(Enactment::StartStop), of(Enactment::Ladder)) {
        let what = "ladder, parked: seconds until all requests are within the goal again";
        record.number(what, ladder.until_all_within_s()).recalculated(within(0.0..=1.0));
        record.number("regular start: seconds until all requests are within the goal again", start.until_all_within_s());
        let ratio = start.until_all_within_s() / ladder.until_all_within_s().max(0.02);
        let what = "degraded time, from the first request to the last: regular start over ladder";
        record.number(what, ratio).recalculated(within(20.0..=f64::INFINITY));
    }
}

fn figure(name: &str, title: &str, ways: &[&Way], seen: &[Seen], span: std::ops::RangeInclusive<f64>, width_s: f64) -> Figure {
    let names: Vec<&str> = ways.iter().map(|way| way.name).collect();
    let mut figure = Figure::new(name, title, ["time, s", "response, s"], &names);
    for bin in (span.start() / width_s).round() as usize..(span.end() / width_s).round() as usize {
        let values: Vec<f64> = seen.iter().map(|seen| seen.mean_s(bin, width_s).unwrap_or(f64::NAN)).collect();
        figure.row((bin as f64 + 0.5) * width_s, &values);
    }
    figure
}

/// One run with a pool of its own.
fn play(site: &Site, way: &Way) -> Result<Seen> {
    let folder = site.folder.join(way.enactment.as_str());
    // A server that was just started is slow for a while, which would have the second one up long before the crowd.
    let most = if way.enactment.starts_ahead() { 2 } else { 1 };
    // Each instance has a folder of its own, which is made before it is known which there will be.
    for number in 1..=INSTANCES {
        let folder = site.folder.join(format!("bench-{number}"));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        site.server(&format!("bench-{number}"), "/")?;
    }
    let pool = Pool::start(&site.weal(), &folder, &config(site, way.enactment, most)?)?;
    let page = format!("/bench/work.jsp?cpu_ms={WORK_MS}");
    let question = Question { address: pool.listen(), path: page.clone() };
    pool.wait_for_answer(&page)?;
    // A while without requests shows the pool what the server uses by itself; what its start used is more than that.
    std::thread::sleep(IDLE);
    // Compiled code, as a server has that was in use; and the pool learns what a request costs.
    drive(&question, &[1.5, 0.5, 1.0].map(|times| Phase { rate: times * BEFORE_PER_S, lasts_s: 6.0 }))?;
    if way.enactment.starts_ahead() {
        wait_for_standby(&pool, way.enactment, &question)?;
    }
    drive(&question, &[Phase { rate: CROWD_PER_S, lasts_s: EARLIER_LASTS_S }])?;
    if way.enactment.starts_ahead() {
        wait_for_standby(&pool, way.enactment, &question)?;
    }
    let began = Instant::now();
    let asked = question.clone();
    let phases = [Phase { rate: BEFORE_PER_S, lasts_s: CROWD_AT_S }, Phase { rate: CROWD_PER_S, lasts_s: CROWD_LASTS_S }];
    let clients = std::thread::spawn(move || drive(&asked, &phases));
    let before_s = if way.enactment.sleeps() { PARKED_BEFORE_S } else { ALLOWED_BEFORE_S };
    std::thread::sleep(Duration::from_secs_f64(CROWD_AT_S - before_s));
    if way.enactment.sleeps() {
        deepen(&pool, way.enactment)?;
    } else if most < 2 {
        pool.apply(&config(site, way.enactment, 2)?)?;
    }
    let ready_s = watch(&pool, began)?;
    let answers = clients.join().expect("it does not panic")?;
    Ok(Seen { answers, ready_s })
}

/// A pool with at most so many instances of the application.
fn config(site: &Site, enactment: Enactment, most: u32) -> Result<String> {
    let run = site.command("bench-1")?;
    let run: Vec<String> = run.iter().map(|word| format!("{:?}", word.replace("bench-1", "$INSTANCE"))).collect();
    let node = |name: &str| format!("[[node]]\nname = \"{name}\"\ncpu = {CORES}\nmemory = \"3GiB\"\n");
    Ok(format!(
        "enactment = \"{enactment}\"\n\n{}\n{}\n[class.gold]\ngoal = \"mean < {GOAL_MS}ms\"\n\n[app.bench]\nrun = [{}]\n\
         health = {{ http = \"/bench/work.jsp?cpu_ms=1\", start-timeout = \"180s\" }}\nmemory = \"1GiB\"\ninstances = {{ min = 1, max = {most} }}\n\
         per-node = 1\nroutes = [{{ class = \"gold\" }}]\n",
        node("base"),
        node("support"),
        run.join(", "),
        enactment = enactment.as_str(),
    ))
}

/// Waits until a second instance stands by, which takes requests: for who has none, one is enough. What its own start used may have the
/// plan count it as needed, and then it stays awake: it is told to sleep after a while, which the plan leaves as it is.
fn wait_for_standby(pool: &Pool, enactment: Enactment, question: &Question) -> Result<()> {
    let (began, mut is_told) = (Instant::now(), false);
    loop {
        let instances = pool.observe()?.instances;
        let awake: Vec<&InstanceCounters> = instances.iter().filter(|one| one.state == InstanceState::Ready).collect();
        let stands_by = if enactment.sleeps() { instances.iter().any(|one| one.state.is_asleep()) } else { awake.len() > 1 };
        if stands_by {
            return Ok(());
        }
        if let (true, [_, .., last], false) = (began.elapsed() > TOO_AWAKE, &awake[..], is_told) {
            pool.command(Command::Sleep { instance: last.spec.id.clone(), rung: Rung::Suspended })?;
            is_told = true;
        }
        ensure!(began.elapsed() < PATIENCE, "nothing stands by: {:?}", instances.iter().map(|one| one.state).collect::<Vec<_>>());
        drive(question, &[Phase { rate: BEFORE_PER_S, lasts_s: 2.0 }])?;
    }
}

/// Brings the one that stands by to where the paper has it: evicted by memory pressure while it is only suspended, or paged out.
fn deepen(pool: &Pool, enactment: Enactment) -> Result<()> {
    // Whether both are needed is decided anew every now and then, and a few requests that come together by chance may have one woken.
    let deadline = Instant::now() + Duration::from_secs(7);
    let asleep = loop {
        let asleep = pool.observe()?.instances.into_iter().find(|one| one.state.is_asleep());
        let park = |instance| pool.refusal(Command::Sleep { instance, rung: Rung::Parked });
        match asleep {
            Some(asleep) if enactment != Enactment::Ladder => break asleep,
            Some(asleep) => match park(asleep.spec.id)? {
                None => return Ok(()),
                Some(refusal) => ensure!(refusal.is_wanted(), "{refusal}"),
            },
            None => {}
        }
        ensure!(Instant::now() < deadline, "nothing stands by when the crowd is near");
        std::thread::sleep(Duration::from_millis(100));
    };
    let group = MemoryGroup::of(asleep.pid.context("it has a process")?)?;
    group.open_swap()?;
    // As far as it goes: the kernel says so when there is no more.
    for mib in [200, 100, 50, 20, 8] {
        let _ = group.limit(mib << 20);
    }
    group.limit(asleep.spec.memory.0)
}

/// Looks on until the crowd has been there for a while: seconds from its coming until a second instance was ready.
fn watch(pool: &Pool, began: Instant) -> Result<Option<f64>> {
    let end = began + Duration::from_secs_f64(CROWD_AT_S + CROWD_LASTS_S);
    let mut was_waiting = false;
    while Instant::now() < end {
        let ready = pool.observe()?.instances.iter().filter(|one| one.state == InstanceState::Ready).count();
        if ready >= 2 {
            return Ok(was_waiting.then(|| began.elapsed().as_secs_f64() - CROWD_AT_S));
        }
        was_waiting = true;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(Some(f64::INFINITY))
}
