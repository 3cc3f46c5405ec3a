//! An application that may run once is started once, however late the engine answers: looks that began before a start show nothing of it, and
//! may be heard after it is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weal_control::cycle::{AppOrders, Config, Cycle, Done, Effect, Input, Kept, Start};
use weal_control::jobs::Costs;
use weal_model::{
    Action, AppSpec, AwakeBy, Bytes, Cpu, InstanceId, InstanceRange, InstanceState, NodeName, NodeSpec, PoolSpec, Time,
};
use weal_protocol::controller::AppVerb;
use weal_protocol::engine::{ActionOutcome, InstanceSeen, NodeSeen, Observation, Revision};
use weal_protocol::gateway::GatewayCounters;
use weal_protocol::{Capabilities, NodeOrigin, Refusal};

/// Seconds after which everything is long over.
const LONG_S: f64 = 60.0;
/// The longest that an answer takes.
const LATE_MS: u64 = 400;
const SEEDS: u64 = 100;

/// What happens at a moment.
enum Happens {
    /// The loop hears something.
    Heard(Box<Input>),
    /// The engine carries something out.
    Carried(Action),
    /// An instance gets ready.
    Ready(InstanceId),
}

struct World {
    now: Time,
    pool: Arc<PoolSpec>,
    cycle: Cycle,
    random: u64,
    instances: Vec<InstanceSeen>,
    agenda: BTreeMap<(Time, usize), Happens>,
    entered: usize,
    starts: usize,
    /// The engine's nodes, and whether it finds them itself.
    nodes: Vec<NodeSpec>,
    origin: NodeOrigin,
    /// How often it was told its nodes.
    configured: usize,
    /// The gateway says what it counts, and takes no config.
    refuses_config: bool,
    notes: Vec<String>,
    /// What people ordered, as it is stored.
    orders: AppOrders,
}

impl World {
    /// `web` runs on `n1`.
    fn new(seed: u64) -> Self {
        let now = Time::from_secs_f64(1000.0);
        let mut pool = PoolSpec::example();
        pool.nodes = vec![node("n1"), node("n2")];
        let spec = AppSpec { instances: InstanceRange { min: 1, max: 1 }, ..AppSpec::example("web") };
        pool.apps = [("web".into(), spec)].into();
        let pool = Arc::new(pool);
        let start = Start::first("gw".into(), Some(config(1, &pool)), Costs::THESIS);
        let mut web = seen(&"web-1".into(), &"n1".into(), now);
        (web.state, web.start_took_s) = (InstanceState::Ready, Some(0.1));
        Self {
            now,
            cycle: Cycle::new(now, start),
            nodes: pool.nodes.clone(),
            origin: NodeOrigin::Configured,
            configured: 0,
            pool,
            random: seed,
            instances: vec![web],
            agenda: BTreeMap::new(),
            entered: 0,
            starts: 0,
            refuses_config: false,
            notes: Vec::new(),
            orders: AppOrders::default(),
        }
    }

    /// `web` needs no instance and has none: one is started ahead, and sleeps.
    fn at_rest() -> Self {
        let mut world = Self::new(1);
        let mut pool = (*world.pool).clone();
        pool.apps.values_mut().for_each(|app| app.instances.min = 0);
        world.pool = Arc::new(pool);
        world.instances.clear();
        world.replace_the_controller();
        world
    }

    /// A new controller goes on with what is stored.
    fn replace_the_controller(&mut self) {
        let start = Start::first("gw".into(), Some(config(1, &self.pool)), Costs::THESIS);
        self.cycle = Cycle::new(self.now, Start { orders: self.orders.clone(), ..start });
        self.agenda.retain(|_, happens| !matches!(happens, Happens::Heard(_)));
    }

    /// What keeps `web` awake, and how many seconds still.
    fn kept_awake(&self) -> Option<(AwakeBy, f64)> {
        let kept = self.cycle.status(self.now, None)?.apps[0].kept_awake?;
        Some((kept.by, kept.until.since(self.now).as_secs_f64().round()))
    }

    /// The next config has no `n1`.
    fn take_the_node_away(&mut self) {
        let mut pool = (*self.pool).clone();
        pool.nodes.retain(|node| node.name.as_str() != "n1");
        self.pool = Arc::new(pool);
        let config = config(2, &self.pool);
        self.cycle.handle(self.now, Input::Config(config));
    }

    /// The engine has found these nodes, and nothing runs on others.
    fn find_nodes(&mut self, names: &[&str]) {
        self.origin = NodeOrigin::Discovered;
        self.nodes = names.iter().map(|name| node(name)).collect();
        self.instances.retain(|seen| names.contains(&seen.node.as_str()));
    }

    fn live(&mut self, for_s: f64) {
        let until = self.now + Duration::from_secs_f64(for_s);
        while self.now < until {
            while let Some(effect) = self.cycle.poll_effect() {
                self.carry_out(effect);
            }
            let next = self.agenda.keys().next().map_or(until, |(at, _)| *at);
            self.now = next.min(self.cycle.poll_timeout()).max(self.now + Duration::from_millis(1)).min(until);
            while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let happens = entry.remove();
                self.happen(happens);
            }
            self.cycle.handle_timeout(self.now);
        }
    }

    fn happen(&mut self, happens: Happens) {
        match happens {
            Happens::Heard(input) => self.cycle.handle(self.now, *input),
            Happens::Carried(Action::Start { instance, node, .. }) => {
                self.starts += 1;
                self.instances.push(seen(&instance, &node, self.now));
                let at = self.late(self.now);
                self.enter(at, Happens::Ready(instance));
            }
            Happens::Carried(Action::Stop { instance, .. }) => self.instances.retain(|seen| seen.id != instance),
            Happens::Carried(Action::Sleep { instance, rung, .. }) => self.become_of(&instance, rung.state()),
            Happens::Carried(Action::Resume { instance, .. }) => self.become_of(&instance, InstanceState::Ready),
            Happens::Carried(_) => {}
            Happens::Ready(id) => self.become_of(&id, InstanceState::Ready),
        }
    }

    fn become_of(&mut self, id: &InstanceId, state: InstanceState) {
        for seen in self.instances.iter_mut().filter(|seen| seen.id == *id) {
            (seen.state, seen.start_took_s, seen.since) = (state, Some(0.1), self.now);
        }
    }

    /// How many instances run, how many sleep, and what keeps `web` awake for how many seconds still.
    fn is_so(&self) -> (usize, usize, Option<(AwakeBy, f64)>) {
        let awake = self.instances.iter().filter(|seen| seen.state == InstanceState::Ready).count();
        (awake, self.instances.len() - awake, self.kept_awake())
    }

    /// Some time from `from` on.
    fn late(&mut self, from: Time) -> Time {
        // Knuth's MMIX; the low bits are not random enough.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + Duration::from_millis((self.random >> 33) % LATE_MS)
    }

    fn enter(&mut self, at: Time, happens: Happens) {
        self.entered += 1;
        self.agenda.insert((at, self.entered), happens);
    }

    fn carry_out(&mut self, effect: Effect) {
        let nobody = || Refusal::failed("there is no gateway");
        let input = match effect {
            Effect::ObserveGateway if self.refuses_config => {
                Input::Gateway(Ok(GatewayCounters::none("gw".into(), Time::from_secs_f64(1000.0), self.now)))
            }
            Effect::ObserveGateway => Input::Gateway(Err(nobody())),
            Effect::ConfigureGateway(_) => Input::Done(Done::Gateway(Err(nobody()))),
            Effect::ObserveEngine => Input::Engine(Ok(self.observe())),
            Effect::ConfigureNodes(nodes) => {
                self.configured += 1;
                self.nodes = nodes;
                Input::Done(Done::Nodes(Ok(())))
            }
            Effect::Act { action, .. } => {
                // It is done before anybody hears of it.
                let carried = self.late(self.now);
                self.enter(carried, Happens::Carried(action.clone()));
                let outcome = ActionOutcome { action, took_s: 0.0, refusal: None };
                let heard = self.late(carried);
                self.enter(heard, Happens::Heard(Box::new(Input::Done(Done::Acted(outcome)))));
                return;
            }
            Effect::Update { .. } => Input::Done(Done::Updated(Ok(Vec::new()))),
            Effect::SetCpuShares(_) => Input::Done(Done::CpuShares(Ok(()))),
            Effect::SetReserves(_) => Input::Done(Done::Reserves(Ok(()))),
            Effect::Plan(request) => Input::Done(Done::Planned(Box::new(request.run()))),
            Effect::Note(note) => return self.notes.push(format!("{:.3} {}", self.now.as_secs_f64(), note.text)),
            Effect::Keep(Kept::Orders(orders)) => return self.orders = orders,
            Effect::Keep(_) | Effect::Show { .. } => return,
        };
        let at = self.late(self.now);
        self.enter(at, Happens::Heard(Box::new(input)));
    }

    fn observe(&self) -> Observation {
        Observation {
            began: Time::from_secs_f64(1000.0),
            time: self.now,
            capabilities: Capabilities { nodes: self.origin, ..Capabilities::all("cgroup-v2") },
            nodes: self.nodes.iter().map(NodeSeen::example).collect(),
            instances: self.instances.clone(),
            ..Observation::default()
        }
    }
}

fn node(name: &str) -> NodeSpec {
    NodeSpec { name: name.into(), cpu: Cpu(1.0), memory: Bytes::gib(1), utilization_limit: 0.9 }
}

fn config(generation: u64, pool: &Arc<PoolSpec>) -> Config {
    Config { generation, pool: Arc::clone(pool), revisions: [("web".into(), revision())].into() }
}

fn revision() -> Revision {
    Revision { start: "1".to_owned(), settings: String::new() }
}

fn seen(id: &InstanceId, node: &NodeName, now: Time) -> InstanceSeen {
    InstanceSeen { revision: revision(), since: now, ..InstanceSeen::example(id.as_str(), "web", node.as_str()) }
}

#[test]
fn a_gateway_that_answers_and_refuses_its_config_is_told_of_once() {
    let mut world = World::new(1);
    world.refuses_config = true;
    world.live(LONG_S);
    let told: Vec<&String> = world.notes.iter().filter(|note| note.contains("the gateway")).collect();
    assert!(told.len() == 1 && told[0].contains("did not take its config"), "{told:?}");
    let problems = world.cycle.status(world.now, None).map(|status| status.problems).unwrap_or_default();
    assert!(problems.iter().any(|problem| problem.contains("did not take its config")), "{problems:?}");
}

#[test]
fn an_application_whose_node_leaves_is_started_once_however_late_the_engine_answers() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.live(2.0 + 0.05 * seed as f64);
        assert_eq!(world.starts, 0, "seed {seed}: it runs as it should");
        world.take_the_node_away();
        world.live(LONG_S);
        let runs: Vec<(&str, &str)> = world.instances.iter().map(|seen| (seen.id.as_str(), seen.node.as_str())).collect();
        assert_eq!(world.starts, 1, "seed {seed}: {runs:?} {:#?}", world.notes);
        assert_eq!(runs.len(), 1, "seed {seed}: {runs:?}");
        assert_eq!(runs[0].1, "n2", "seed {seed}");
    }
}

#[test]
fn nodes_that_an_engine_finds_itself_are_followed_and_never_configured() {
    let mut world = World::new(1);
    world.instances[0].node = "k1".into();
    world.find_nodes(&["k1"]);
    world.live(LONG_S);
    assert_eq!(
        (world.configured, world.starts),
        (0, 0),
        "it runs as it should, on a node that no config names: {:#?}",
        world.notes
    );
    for node in ["k2", "k3"] {
        // The one before leaves with what runs there.
        world.find_nodes(&[node]);
        world.live(LONG_S);
        let runs: Vec<&str> = world.instances.iter().map(|seen| seen.node.as_str()).collect();
        assert_eq!(runs, [node], "{:#?}", world.notes);
    }
    assert_eq!(world.configured, 0, "{:#?}", world.notes);
}

#[test]
fn an_order_keeps_an_application_awake_for_its_time_whichever_controller_runs() {
    let mut world = World::at_rest();
    world.live(LONG_S);
    assert_eq!(world.is_so(), (0, 1, None), "{:#?}", world.notes);
    let order = AppVerb::KeepAwake { for_s: Some(300) };
    world.cycle.handle_verb(world.now, &"web".into(), order).unwrap();
    world.live(LONG_S);
    assert_eq!(world.is_so(), (1, 0, Some((AwakeBy::Order, 240.0))), "{:#?}", world.notes);
    world.replace_the_controller();
    world.live(LONG_S);
    assert_eq!(world.is_so(), (1, 0, Some((AwakeBy::Order, 180.0))), "{:#?}", world.notes);
    assert_eq!(world.starts, 1, "{:#?}", world.notes);
    world.live(1.0);
    let refused = world.cycle.handle_sleep(world.now, &"web".into(), None).unwrap_err();
    assert_eq!(refused.to_string(), "`web` is kept awake by an order for another 3 min");
    world.live(3.0 * LONG_S);
    assert_eq!((world.kept_awake(), &world.orders), (None, &AppOrders::default()), "{:#?}", world.notes);
    assert!(world.notes.iter().any(|note| note.contains("web may sleep again")), "{:#?}", world.notes);
}

#[test]
fn an_order_to_stay_awake_says_why_it_is_refused() {
    let mut world = World::at_rest();
    let order =
        |world: &mut World, for_s| world.cycle.handle_verb(world.now, &"web".into(), AppVerb::KeepAwake { for_s: Some(for_s) });
    assert_eq!(order(&mut world, 60), Err(Refusal::NotObserved));
    world.live(LONG_S);
    assert!(matches!(order(&mut world, 0), Err(Refusal::BadSpan { .. })));
    assert!(matches!(order(&mut world, 8 * 86_400), Err(Refusal::BadSpan { .. })));
    world.cycle.handle_verb(world.now, &"web".into(), AppVerb::Stop).unwrap();
    assert_eq!(order(&mut world, 60), Err(Refusal::Halted { app: "web".into() }));
}
