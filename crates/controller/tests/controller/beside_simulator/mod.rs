//! The real controller beside the simulator, on one scenario, step by step.
//!
//! The simulator runs the scenario once and writes down what its loop was told, when, and what it decided. Then the real controller
//! (`run_with`: its store, its API, its task loop, its calls to a gateway over a socket, its planner's thread) runs under a paused clock. At
//! the moment of each step it gets what the simulated loop got: its engine and its gateway answer the calls that it makes with what the
//! simulated ones answered, its timers ring, and orders come in over its API. As long as all decisions so far were the same, these are the
//! answers that the simulated pool would give it; at the first difference the test ends and shows the step.
//!
//! Compared, one by one and in order: each input; each effect of the loop with all that it says (actions, configs of the gateway, shares of
//! CPU, reserves, what plans are made from, what is stored, each event's sentence); each call that the peers get; each answer to an order;
//! at the end what the store has. Times are compared to the nanosecond, counted from the loop's beginning.
//!
//! Not compared: the time of day, which only the real one has, and how long a plan took, which only the real one spends. Real timers ring
//! on whole milliseconds, so the simulated ones do too here. Answers that wait at the same moment are given in the simulator's order: a real
//! pool has no order of its own there.

mod peers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use weal_control::cycle::{AppOrders, Cycle, Done, Effect, Input, Kept, Order, Start, StoredJobs};
use weal_control::jobs::Costs;
use weal_controller::record::{Line, digest};
use weal_controller::store::{Store, StoredConfig};
use weal_controller::{Options, RECORDING};
use weal_model::{Action, Bytes, Rung, Target, Time};
use weal_protocol::controller::{ApiError, AppVerb, ConfigUpdate, JobSubmission, JobVerb};
use weal_scenario::Scenario;
use weal_sim::world::{DecisionStep, Decisions, OrderAnswer, decisions};

use crate::fake::{DEADLINE, local};
use peers::{Asked, AskedEngine, Call, Desk, Revisions, mark, serve_gateway, words};

const CONFIG: &str = include_str!("weal.toml");
const SCENARIO: &str = include_str!("scenario.toml");

#[test]
fn the_controller_and_the_simulator_decide_alike_at_every_step() {
    let simulated = simulated();
    assert_covers(&simulated);
    // One thread for blocking work, so that the test says when a plan is made; see `Hold`.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let mut run = Run::start(&simulated.start).await;
        run.compare_start(&simulated).await;
        for number in 0..simulated.steps.len() {
            run.step(&simulated.steps, number).await;
        }
        run.finish(&simulated).await;
    });
}

fn simulated() -> Decisions {
    let pool = weal_config::parse(CONFIG, "weal.toml", &weal_controller::machine()).unwrap().spec;
    let scenario = Scenario::parse(SCENARIO, weal_scenario::no_files).unwrap().with_pool(pool).unwrap();
    let sleep = |app: &str| Order::Sleep { app: app.into(), rung: None };
    let job = |verb| Order::Job { job: "build-1".into(), verb, by: None };
    // Beside the moments at which timers ring: which of the two comes first is chance in a real pool.
    let orders = [
        (10.3004, sleep("blog")),
        (12.7004, Order::Wake { app: "blog".into() }),
        (20.3004, Order::Submit { submission: Box::new(build()), submitter: None }),
        (27.3004, job(JobVerb::Pause)),
        (29.3004, job(JobVerb::Suspend)),
        (31.3004, job(JobVerb::Resume)),
        (71.5004, sleep("shop")),
        (72.3004, Order::Wake { app: "shop".into() }),
        (95.3004, Order::Sleep { app: "blog".into(), rung: Some(Rung::Suspended) }),
        (110.3004, Order::Wake { app: "blog".into() }),
        (135.3004, Order::App { app: "blog".into(), verb: AppVerb::Stop }),
        (141.3004, Order::App { app: "blog".into(), verb: AppVerb::Start }),
    ];
    decisions(&scenario, &orders).unwrap()
}

/// A job that is small beside the applications.
fn build() -> JobSubmission {
    JobSubmission {
        run: vec!["make".into()],
        name: Some("build".into()),
        memory: Some(Bytes::mib(64)),
        work_s: Some(12.0),
        done_within_s: Some(60.0),
        ..JobSubmission::default()
    }
}

/// What the scenario is for happens in it: a comparison of nothing would hold.
fn assert_covers(simulated: &Decisions) {
    let effects = || simulated.steps.iter().flat_map(|step| &step.effects);
    let acts = |is: fn(&Action) -> bool| effects().filter(|e| matches!(e, Effect::Act { action, .. } if is(action))).count();
    let counts = BTreeMap::from([
        ("steps", simulated.steps.len()),
        ("plans", effects().filter(|effect| matches!(effect, Effect::Plan(_))).count()),
        ("gateway configs", effects().filter(|effect| matches!(effect, Effect::ConfigureGateway(_))).count()),
        ("shares", effects().filter(|effect| matches!(effect, Effect::SetCpuShares(_))).count()),
        ("configs", simulated.steps.iter().filter(|step| matches!(step.input, Input::Config(_))).count()),
        ("starts", acts(|action| matches!(action, Action::Start { .. }))),
        ("stops", acts(|action| matches!(action, Action::Stop { .. }))),
        ("sleeps", acts(|action| matches!(action, Action::Sleep { .. }))),
        ("resumes", acts(|action| matches!(action, Action::Resume { .. }))),
        ("orders to runs of jobs", effects().filter(|effect| matches!(effect, Effect::Act { job: Some(_), .. })).count()),
        ("jobs kept", effects().filter(|effect| matches!(effect, Effect::Keep(Kept::Jobs { .. }))).count()),
        ("answers", simulated.steps.iter().filter(|step| step.answer.is_some()).count()),
    ]);
    let least = [
        ("steps", 500),
        ("plans", 30),
        ("gateway configs", 50),
        ("shares", 20),
        ("configs", 1),
        ("starts", 5),
        ("stops", 2),
        ("sleeps", 5),
        ("resumes", 1),
        ("orders to runs of jobs", 5),
        ("jobs kept", 5),
        ("answers", 8),
    ];
    for (name, least) in least {
        assert!(counts[name] >= least, "{name}: {counts:?}");
    }
}

/// The controller under test, and what has been seen of it.
struct Run {
    folder: tempfile::TempDir,
    desk: Desk,
    revisions: Revisions,
    /// Calls that were asked for by a step and were not answered yet.
    waiting: Vec<Call>,
    recording: Recording,
    hold: Hold,
    stop: tokio::sync::oneshot::Sender<()>,
    controller: JoinHandle<Result<(), weal_controller::Error>>,
    gateway: JoinHandle<()>,
    /// Since the loop's beginning.
    now: Duration,
}

impl Run {
    /// Starts it over a store that has the config.
    async fn start(start: &Start) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["run", "controller"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let (store, ..) = Store::open(&folder.path().join("controller/store.db")).unwrap();
        let config = StoredConfig {
            generation: 1,
            time: Time::ZERO,
            path: "weal.toml".into(),
            text: CONFIG.into(),
            who: None,
            origin: String::new(),
        };
        store.save_config(config).await.unwrap();
        store.finish();
        let desk = Desk::default();
        let hold = Hold::begin();
        let gateway = serve_gateway(desk.clone(), &folder.path().join("run/gateway.sock"));
        let revisions = Arc::new(Mutex::new(start.config.as_ref().unwrap().revisions.clone()));
        let engine = AskedEngine { desk: desk.clone(), revisions: Arc::clone(&revisions) };
        let options = Options {
            state_dir: folder.path().to_owned(),
            api: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
            local: weal_rpc::bind(&folder.path().join("run/controller.sock")).unwrap(),
            api_tls: None,
            operator: rustix::process::geteuid().as_raw(),
            record: true,
        };
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let controller = tokio::spawn(weal_controller::run_with(options, engine, async move {
            // A dropped sender stops it too.
            let _ = stopped.await;
        }));
        let path = folder.path().join("controller").join(RECORDING);
        let begun = Instant::now();
        while !path.exists() {
            assert!(begun.elapsed() < DEADLINE && !controller.is_finished(), "the controller does not start");
            tokio::task::yield_now().await;
        }
        let recording = Recording { file: File::open(path).unwrap(), rest: String::new(), lines: Vec::new(), read: 0 };
        Self { folder, desk, revisions, waiting: Vec::new(), recording, hold, stop, controller, gateway, now: Duration::ZERO }
    }

    /// Both loops begin with the same and ask for the same.
    async fn compare_start(&mut self, simulated: &Decisions) {
        self.until_recorded("the start").await;
        let Some(Line::Start { engine, gateway, config, profiles, resting, noted_until, .. }) = self.recording.next().cloned()
        else {
            panic!("the recording does not begin with a start")
        };
        let config = config.map(|config| *config);
        let real = Start {
            engine,
            gateway,
            config,
            profiles: *profiles,
            resting,
            orders: AppOrders::default(),
            noted_until,
            job_costs: Costs::THESIS,
            jobs: StoredJobs::default(),
        };
        assert_eq!(format!("{real:?}"), format!("{:?}", simulated.start));
        self.compare_effects(&simulated.begins, &[], 0);
        self.collect_calls(&simulated.begins).await;
    }

    /// Lets one thing happen, and compares what follows.
    async fn step(&mut self, steps: &[DecisionStep], number: usize) {
        let step = &steps[number];
        let at = step.at.since(Time::ZERO);
        tokio::time::advance(at - self.now).await;
        self.now = at;
        let answer = self.let_happen(&step.input);
        self.until_recorded(&format!("step {number}, {:?}", step.input)).await;
        self.compare_input(steps, number);
        self.compare_effects(&step.effects, steps, number);
        self.collect_calls(&step.effects).await;
        if let (Some(answer), Some(expected)) = (answer, &step.answer) {
            compare_answer(&answer.await.unwrap(), expected, number);
        }
    }

    /// Answers the call that `input` is the answer of, or does what it says; the result is the answer to an order.
    fn let_happen(&mut self, input: &Input) -> Option<JoinHandle<(u16, String)>> {
        match input {
            // The clock was set to its time.
            Input::Timeout => {}
            Input::Gateway(counters) => {
                let Asked::ObserveGateway(reply) = self.asked("observe the gateway") else { unreachable!() };
                reply.send(counters.clone()).unwrap();
            }
            Input::Engine(observation) => {
                let Asked::ObserveEngine(reply) = self.asked("observe the engine") else { unreachable!() };
                reply.send(observation.clone().unwrap()).unwrap();
            }
            Input::Events(events) => {
                let call =
                    self.desk.take(|call| matches!(call.asked, Asked::Events(_))).expect("the controller waits for events");
                let Asked::Events(reply) = call.asked else { unreachable!() };
                reply.send(events.clone()).unwrap();
            }
            Input::Order(order) => return Some(self.give(order)),
            Input::Done(done) => self.answer(done),
            Input::Config(config) => {
                // What its applications are started from is the engine's to say.
                self.revisions.lock().unwrap().clone_from(&config.revisions);
                return Some(self.deploy(config.generation));
            }
            Input::Store(_) => panic!("the scenario has none: {input:?}"),
        }
        None
    }

    fn answer(&mut self, done: &Done) {
        match done {
            Done::Gateway(version) => {
                let Asked::ConfigureGateway(reply) = self.asked("gateway ") else { unreachable!() };
                reply.send(version.clone()).unwrap();
            }
            Done::Nodes(result) => {
                let Asked::ConfigureNodes(reply) = self.asked("nodes ") else { unreachable!() };
                assert_eq!(*result, Ok(()));
                reply.send(()).unwrap();
            }
            Done::Acted(outcome) => {
                let is_job = matches!(outcome.action.target(), Target::Job { .. });
                let words = if is_job {
                    format!("job JobOrder {{ action: {:?}, ", outcome.action)
                } else {
                    format!("apply ([{:?}], ", outcome.action)
                };
                match self.asked(&words) {
                    Asked::Apply(reply) => reply.send(vec![outcome.clone()]).unwrap(),
                    Asked::ApplyToJob(reply) => reply.send(outcome.clone()).unwrap(),
                    _ => unreachable!(),
                }
            }
            // The store says so by itself.
            Done::JobsKept { .. } => {}
            Done::Updated(outcomes) => {
                let Asked::Apply(reply) = self.asked("apply ") else { unreachable!() };
                reply.send(outcomes.clone().unwrap()).unwrap();
            }
            Done::CpuShares(result) => {
                let Asked::SetCpuShares(reply) = self.asked("shares ") else { unreachable!() };
                assert_eq!(*result, Ok(()));
                reply.send(()).unwrap();
            }
            Done::Reserves(result) => {
                let Asked::SetReserves(reply) = self.asked("reserves ") else { unreachable!() };
                assert_eq!(*result, Ok(()));
                reply.send(()).unwrap();
            }
            Done::Planned(_) => self.hold.let_one_pass(),
        }
    }

    /// The oldest call that waits and begins with these words.
    fn asked(&mut self, words: &str) -> Asked {
        let at = self.waiting.iter().position(|call| call.words.starts_with(words));
        let at = at.unwrap_or_else(|| panic!("the controller has not asked: {words}\nit has asked: {:#?}", self.waiting));
        self.waiting.remove(at).asked
    }

    /// The same applications from other files: the config changes by a comment, so that it is another one.
    fn deploy(&self, generation: u64) -> JoinHandle<(u16, String)> {
        let socket = self.folder.path().join("run/controller.sock");
        let update = ConfigUpdate {
            text: format!("{CONFIG}# {generation}\n"),
            path: "weal.toml".into(),
            dry_run: false,
            refused: String::new(),
            origin: String::new(),
        };
        let body = serde_json::to_string(&update).unwrap();
        tokio::spawn(async move { local(&socket, "PUT", "/v1/config", body).await })
    }

    fn give(&self, order: &Order) -> JoinHandle<(u16, String)> {
        let socket = self.folder.path().join("run/controller.sock");
        let (path, body) = match order {
            Order::Sleep { app, rung } => {
                (format!("/v1/apps/{app}/sleep"), serde_json::to_string(&weal_protocol::controller::SleepOrder { rung: *rung }))
            }
            Order::Submit { submission, .. } => ("/v1/jobs".to_owned(), serde_json::to_string(submission)),
            Order::Job { job, verb, .. } => (format!("/v1/jobs/{job}/{verb:?}").to_lowercase(), Ok(String::new())),
            Order::App { app, verb } => {
                let word = match verb {
                    AppVerb::Stop => "stop",
                    AppVerb::Start => "start",
                    AppVerb::Restart | AppVerb::Scale { .. } | AppVerb::KeepAwake { .. } => {
                        panic!("the scenario has none: {order:?}")
                    }
                };
                (format!("/v1/apps/{app}/{word}"), Ok(String::new()))
            }
            Order::Run { .. } => panic!("the scenario has none: {order:?}"),
            Order::Wake { app } => (format!("/v1/apps/{app}/wake"), Ok(String::new())),
        };
        tokio::spawn(async move { local(&socket, "POST", &path, body.unwrap()).await })
    }

    /// Waits until the recording goes on. All that a step makes the loop do is written at once.
    async fn until_recorded(&mut self, what: &str) {
        let begun = Instant::now();
        while self.recording.peek().is_none() && !self.recording.read_on() {
            let asked = || self.desk.words().into_iter().chain(self.waiting.iter().map(|call| call.words.clone()));
            assert!(
                begun.elapsed() < DEADLINE,
                "the controller never took {what}\nthese calls wait: {:#?}",
                asked().collect::<Vec<_>>()
            );
            tokio::task::yield_now().await;
        }
    }

    fn compare_input(&mut self, steps: &[DecisionStep], number: usize) {
        let step = &steps[number];
        let begun = self.recording.begun();
        let taken = self.recording.next().cloned();
        let same = match &taken {
            Some(Line::Input { at, input }) => at.since(begun) == self.now && without_span(input) == without_span(&step.input),
            _ => false,
        };
        assert!(
            same,
            "step {number} at {:?}: the inputs differ\nsimulated: {:?}\nreal: {taken:?}\nbefore: {}",
            self.now,
            step.input,
            inputs_before(steps, number)
        );
    }

    fn compare_effects(&mut self, effects: &[Effect], steps: &[DecisionStep], number: usize) {
        for (index, effect) in effects.iter().map(Some).chain([None]).enumerate() {
            let real = self.recording.peek().and_then(|line| match line {
                Line::Effect { digest } => Some(*digest),
                _ => None,
            });
            assert!(
                real == effect.map(digest),
                "step {number} at {:?}: effect {index} differs\n{}\nafter: {:.300}\nbefore: {}",
                self.now,
                difference(effect, real.and_then(|_| self.recording.effect_in_full()).as_ref()),
                format!("{:?}", steps.get(number).map(|step| &step.input)),
                inputs_before(steps, number)
            );
            if real.is_some() {
                self.recording.next();
            }
        }
        let more = self.recording.peek();
        // A timer that is due rings by itself, and so does the store say that something is written.
        let comes_by_itself = |input: &Input| matches!(input, Input::Timeout | Input::Done(Done::JobsKept { .. }));
        let is_due = matches!(more, Some(Line::Input { input, .. }) if comes_by_itself(input));
        let before = inputs_before(steps, number);
        assert!(more.is_none() || is_due, "more than step {number} at {:?}: {more:?}\nafter {before}", self.now);
    }

    /// Waits until each of these effects that asks a peer has come to it, with all that it says.
    async fn collect_calls(&mut self, effects: &[Effect]) {
        for expected in effects.iter().filter_map(call_of) {
            let begun = Instant::now();
            let call = loop {
                if let Some(call) = self.desk.take(|call| call.words == expected) {
                    break call;
                }
                assert!(begun.elapsed() < DEADLINE, "never called: {expected}\ncalled: {:#?}", self.desk.words());
                tokio::task::yield_now().await;
            };
            self.waiting.push(call);
        }
    }

    /// Ends it, and compares what its store has.
    async fn finish(self, simulated: &Decisions) {
        let called: Vec<String> = self.desk.words().into_iter().filter(|words| words != "wait for events").collect();
        assert_eq!(called, Vec::<String>::new(), "nobody decided these calls");
        drop((self.stop, self.hold));
        self.controller.await.unwrap().unwrap();
        self.gateway.abort();
        let (_store, saved, _) = Store::open(&self.folder.path().join("controller/store.db")).unwrap();
        let effects = || simulated.begins.iter().chain(simulated.steps.iter().flat_map(|step| &step.effects));
        let mut kept = BTreeMap::new();
        for effect in effects() {
            match effect {
                Effect::Keep(Kept::Profiles(profiles)) => kept.insert("profiles", serde_json::to_string(profiles).unwrap()),
                Effect::Keep(Kept::Resting(resting)) => kept.insert("resting", serde_json::to_string(resting).unwrap()),
                Effect::Keep(Kept::Plan(plan)) => kept.insert("plan", serde_json::to_string(&plan.0).unwrap()),
                _ => None,
            };
        }
        assert_eq!(kept.len(), 3, "the scenario keeps each of them");
        for (key, body) in kept {
            assert_eq!(saved.values.get(key), Some(&body), "{key}");
        }
        let note = |effect: &Effect| match effect {
            Effect::Note(note) => Some(note.text.clone()),
            _ => None,
        };
        let mut expected = vec!["the controller started".to_owned()];
        expected.extend(simulated.begins.iter().filter_map(note));
        for step in &simulated.steps {
            if let Input::Config(config) = &step.input {
                expected.push(format!("config {} is in force; nothing that runs changes", config.generation));
            }
            expected.extend(step.effects.iter().filter_map(note));
        }
        expected.push("the controller stopped".to_owned());
        let noted: Vec<String> = saved.events.into_iter().map(|event| event.text).collect();
        assert_eq!(noted, expected[expected.len().saturating_sub(500)..], "the store gives the newest 500");
    }
}

/// What a peer hears of an effect; `None` when no peer does.
fn call_of(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::ObserveGateway => "observe the gateway".to_owned(),
        Effect::ObserveEngine => "observe the engine".to_owned(),
        Effect::ConfigureGateway(config) => words("gateway", config),
        Effect::ConfigureNodes(nodes) => words("nodes", nodes),
        Effect::Act { job: Some(order), .. } => words("job", &**order),
        Effect::Act { pool, action, job: None } => words("apply", &([action], mark(pool))),
        Effect::Update { pool, starts } => words("apply", &(starts, mark(pool))),
        Effect::SetCpuShares(shares) => words("shares", shares),
        Effect::SetReserves(reserves) => words("reserves", reserves),
        Effect::Plan(_) | Effect::Keep(_) | Effect::Note(_) | Effect::Show { .. } => return None,
    })
}

/// An input without how long a plan took.
fn without_span(input: &Input) -> Input {
    let mut input = input.clone();
    if let Input::Done(Done::Planned(planned)) = &mut input {
        planned.took_ms = 0.0;
    }
    input
}

/// Two effects from a little before the place where they begin to differ.
fn difference(simulated: Option<&Effect>, real: Option<&Effect>) -> String {
    let texts = [simulated, real].map(|effect| effect.map_or("nothing".to_owned(), |effect| format!("{effect:#?}")));
    let same = texts[0].lines().zip(texts[1].lines()).take_while(|(simulated, real)| simulated == real).count();
    let part = |text: &str| text.lines().skip(same.saturating_sub(12)).take(24).collect::<Vec<_>>().join("\n");
    let first = texts[0].lines().next().unwrap_or_default();
    format!("{first} from line {same} on\nsimulated:\n{}\nreal:\n{}", part(&texts[0]), part(&texts[1]))
}

/// The last few inputs before a step, in short.
fn inputs_before(steps: &[DecisionStep], number: usize) -> String {
    let before = &steps[number.saturating_sub(6)..number];
    let short = |step: &DecisionStep| format!("\n  {:?} {:.300}", step.at.since(Time::ZERO), format!("{:?}", step.input));
    before.iter().map(short).collect()
}

fn compare_answer((code, body): &(u16, String), expected: &OrderAnswer, number: usize) {
    let (expected_code, expected_body) = match expected {
        OrderAnswer::Sleep(Ok(taken)) => (200, serde_json::to_string(taken)),
        OrderAnswer::Wake(Ok(taken)) => (200, serde_json::to_string(taken)),
        OrderAnswer::App(Ok(ordered)) => (200, serde_json::to_string(ordered)),
        OrderAnswer::Sleep(Err(refusal)) | OrderAnswer::Wake(Err(refusal)) | OrderAnswer::App(Err(refusal)) => {
            (409, serde_json::to_string(&ApiError { error: refusal.to_string() }))
        }
    };
    assert_eq!((*code, body), (expected_code, &expected_body.unwrap()), "step {number}");
}

/// The recording as it grows.
struct Recording {
    file: File,
    /// A line that is not complete yet.
    rest: String,
    lines: Vec<Line>,
    /// So many lines were compared.
    read: usize,
}

impl Recording {
    /// Reads what has been written since; false when that is nothing.
    fn read_on(&mut self) -> bool {
        self.file.read_to_string(&mut self.rest).unwrap();
        let Some(end) = self.rest.rfind('\n') else { return false };
        let rest = self.rest.split_off(end + 1);
        let complete = std::mem::replace(&mut self.rest, rest);
        self.lines.extend(complete.lines().map(|line| serde_json::from_str::<Line>(line).unwrap()));
        true
    }

    fn peek(&self) -> Option<&Line> {
        self.lines.get(self.read)
    }

    fn next(&mut self) -> Option<&Line> {
        self.read += 1;
        self.lines.get(self.read - 1)
    }

    /// When the loop began.
    fn begun(&self) -> Time {
        match self.lines.first() {
            Some(Line::Start { at, .. }) => *at,
            _ => panic!("the recording does not begin with a start"),
        }
    }

    /// The effect whose digest comes next: the loop is asked again, with all that it was told.
    fn effect_in_full(&self) -> Option<Effect> {
        let Some(Line::Start { at, engine, gateway, config, profiles, resting, noted_until, .. }) = self.lines.first().cloned()
        else {
            return None;
        };
        let (config, profiles) = (config.map(|config| *config), *profiles);
        let mut cycle = Cycle::new(
            at,
            Start {
                engine,
                gateway,
                config,
                profiles,
                resting,
                orders: AppOrders::default(),
                noted_until,
                job_costs: Costs::THESIS,
                jobs: StoredJobs::default(),
            },
        );
        let mut last = None;
        for line in &self.lines[1..=self.read] {
            match line {
                Line::Input { at, input } => cycle.handle(*at, (**input).clone()),
                _ => last = cycle.poll_effect(),
            }
        }
        last
    }
}

/// Occupies the only thread for blocking work. While it does, the paused clock stands still whatever waits, and plans wait for their turn.
struct Hold(mpsc::Sender<()>);

impl Hold {
    fn begin() -> Self {
        let (sender, receiver) = mpsc::channel::<()>();
        // Ends when the sender is dropped.
        tokio::task::spawn_blocking(move || receiver.recv().is_ok());
        Self(sender)
    }

    /// Lets what waits for the thread have it, and takes it again behind that.
    fn let_one_pass(&mut self) {
        let former = std::mem::replace(self, Self::begin());
        drop(former.0);
    }
}
