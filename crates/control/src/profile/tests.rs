//! Profiles from snapshots: what must be learnt, and what must not.

use std::time::Duration;

use weal_model::{
    AppName, AppSpec, Bytes, Cpu, FlowId, FlowObservation, Importance, InstanceObservation, InstanceState, LatencyHistogram,
    NodeObservation, PoolSpec, SeatPlan, ServiceClass, Snapshot, Time, Work,
};

use super::*;
use crate::flow::controller::{demand_doubts, plan_seats};
use crate::placement::fixtures;
use crate::seeded::Seeded;

/// Flow, requests per second, and what a request costs in each application, in CPU-seconds.
type Load = (FlowId, f64, Vec<(AppName, f64)>);

/// A pool on one node of two cores, whose true costs the test knows.
struct World {
    spec: PoolSpec,
    flows: Vec<Load>,
    random: Seeded,
    generation: u64,
    /// Relative noise of CPU measurements.
    noise: f64,
}

fn flow(gateway: &str, app: &str, class: &str) -> FlowId {
    FlowId { gateway: gateway.into(), app: app.into(), class: class.into() }
}

impl World {
    fn new(apps: &[(&str, &[&str])]) -> Self {
        let apps = apps
            .iter()
            .map(|(name, needs)| AppSpec { needs: needs.iter().map(|&need| need.into()).collect(), ..AppSpec::example(name) });
        Self { spec: fixtures::pool(1, apps.collect()), flows: Vec::new(), random: Seeded::new(7), generation: 0, noise: 0.02 }
    }

    fn with_flow(mut self, id: FlowId, rate: f64, costs: &[(&str, f64)]) -> Self {
        self.flows.push((id, rate, costs.iter().map(|&(app, cost)| (app.into(), cost)).collect()));
        self
    }

    /// One cycle of ten seconds. Rates vary by a quarter, each flow's by itself.
    fn cycle(&mut self) -> Snapshot {
        let rates: Vec<f64> = (0..self.flows.len()).map(|f| self.flows[f].1 * self.random.between(0.75, 1.25)).collect();
        self.cycle_with(&rates)
    }

    fn cycle_with(&mut self, rates: &[f64]) -> Snapshot {
        self.generation += 1;
        let window_s = 10.0;
        let done: Vec<u64> = rates.iter().map(|rate| (rate * window_s).round() as u64).collect();
        let mut used: BTreeMap<AppName, f64> = self.spec.apps.keys().map(|app| (app.clone(), 0.0)).collect();
        for ((_, _, costs), &done) in self.flows.iter().zip(&done) {
            for (app, cost) in costs {
                *used.get_mut(app).unwrap() += cost * done as f64 / window_s;
            }
        }
        let instances = used
            .iter()
            .map(|(app, cpu)| InstanceObservation {
                id: format!("{app}-1").into(),
                app: app.clone(),
                node: fixtures::node_name(0),
                state: InstanceState::Ready,
                cpu_used: Some(Cpu(cpu * (1.0 + self.random.between(-self.noise, self.noise)))),
                memory_used: Some(Bytes::mib(50)),
                disk_bytes_per_s: Some(0.0),
                network_bytes_per_s: Some(0.0),
                in_flight: 1,
                since: Time::ZERO,
            })
            .collect();
        let total: f64 = used.values().sum();
        let node = NodeObservation { cpu_used: Cpu(total.min(2.0)), ..fixtures::snapshot(&self.spec, &[]).nodes[0].clone() };
        let flows = (self.flows.iter().zip(&done)).map(|((id, ..), &done)| observed(id, done, window_s)).collect();
        Snapshot { generation: self.generation, window_s, nodes: vec![node], instances, flows, ..Snapshot::default() }
    }
}

fn observed(id: &FlowId, done: u64, window_s: f64) -> FlowObservation {
    let mut times = LatencyHistogram::default();
    times.record_n(Duration::from_millis(100), done);
    FlowObservation {
        id: id.clone(),
        arrivals: done,
        completions: done,
        rejections: 0,
        errors: 0,
        response_time: times.clone(),
        service_time: times,
        queue_mean: 0.0,
        in_service_mean: 0.1 * done as f64 / window_s,
        seats: 8.0,
        hanging: 0,
        at_clients: 0,
        oldest_wait_s: 0.0,
    }
}

fn near(got: Option<Work>, truth: f64, share: f64) -> bool {
    got.is_some_and(|got| (got.0 - truth).abs() <= share * truth)
}

/// A shop with a cheap and a dear class of requests.
fn shop_of_two_classes() -> (World, FlowId, FlowId) {
    let (gold, basic) = (flow("g", "shop", "gold"), flow("g", "shop", "basic"));
    let world = World::new(&[("shop", &[])]).with_flow(gold.clone(), 40.0, &[("shop", 0.010)]).with_flow(
        basic.clone(),
        20.0,
        &[("shop", 0.030)],
    );
    (world, gold, basic)
}

#[test]
fn a_cost_that_doubles_is_learnt_within_five_cycles() {
    let (mut world, gold, basic) = shop_of_two_classes();
    let mut profiles = Profiles::default();
    for _ in 0..20 {
        profiles.update(&world.cycle(), &world.spec);
    }
    assert!(near(profiles.work(&gold, &"shop".into()), 0.010, 0.05) && near(profiles.work(&basic, &"shop".into()), 0.030, 0.05));
    for (_, _, costs) in &mut world.flows {
        costs[0].1 *= 2.0;
    }
    for _ in 0..5 {
        profiles.update(&world.cycle(), &world.spec);
    }
    // What both use together is right at once, and so is each.
    let cost = |id: &FlowId| profiles.work(id, &"shop".into()).unwrap().0;
    let together = 40.0 * cost(&gold) + 20.0 * cost(&basic);
    assert!((together - 2.0).abs() < 0.1, "{:?}", profiles.work_factors());
    for (factor, truth) in profiles.work_factors().iter().zip([0.060, 0.020]) {
        assert!((factor.work.0 - truth).abs() <= factor.plus_minus.0.min(0.2 * truth), "{factor:?} is {truth}");
    }
}

#[test]
fn flows_that_always_move_together_are_reported_as_such() {
    let (mut world, gold, basic) = shop_of_two_classes();
    let mut profiles = Profiles::default();
    for _ in 0..20 {
        let rate = world.random.between(20.0, 40.0);
        let snapshot = world.cycle_with(&[rate, rate]);
        profiles.update(&snapshot, &world.spec);
    }
    let factors = profiles.work_factors();
    let of = |id: &FlowId| factors.iter().find(|factor| factor.flow == *id).unwrap();
    assert_eq!((&of(&gold).tied_with, &of(&basic).tied_with), (&vec![basic.clone()], &vec![gold.clone()]));
    assert!((of(&gold).work.0 + of(&basic).work.0 - 0.040).abs() < 0.002, "{factors:?}");
    for _ in 0..15 {
        profiles.update(&world.cycle(), &world.spec);
    }
    let factors = profiles.work_factors();
    assert!(factors.iter().all(|factor| factor.tied_with.is_empty()), "{factors:?}");
    assert!(near(profiles.work(&basic, &"shop".into()), 0.030, 0.15), "{factors:?}");
}

#[test]
fn each_tier_has_its_own_factor_for_each_flow() {
    let (shop, admin) = (flow("g", "shop", "gold"), flow("g", "admin", "gold"));
    let mut world = World::new(&[("shop", &["db"]), ("admin", &["db"]), ("db", &[])])
        .with_flow(shop.clone(), 40.0, &[("shop", 0.010), ("db", 0.004)])
        .with_flow(admin.clone(), 10.0, &[("admin", 0.020), ("db", 0.030)]);
    let mut profiles = Profiles::default();
    for _ in 0..40 {
        profiles.update(&world.cycle(), &world.spec);
    }
    assert!(near(profiles.work(&shop, &"db".into()), 0.004, 0.15), "{:?}", profiles.work_factors());
    assert!(near(profiles.work(&admin, &"db".into()), 0.030, 0.10), "{:?}", profiles.work_factors());
    assert!(near(profiles.total_work(&admin), 0.050, 0.10));
    assert_eq!(profiles.work(&shop, &"admin".into()), None, "the shop never calls it");
}

#[test]
fn several_gateways_share_a_cluster_and_each_flow_has_its_cost() {
    let (near_flow, far) = (flow("near", "shop", "gold"), flow("far", "shop", "gold"));
    let mut world = World::new(&[("shop", &[])]).with_flow(near_flow.clone(), 40.0, &[("shop", 0.010)]).with_flow(
        far.clone(),
        15.0,
        &[("shop", 0.010)],
    );
    let mut profiles = Profiles::default();
    for _ in 0..30 {
        profiles.update(&world.cycle(), &world.spec);
    }
    for id in [&near_flow, &far] {
        assert!(near(profiles.work(id, &"shop".into()), 0.010, 0.1), "{:?}", profiles.work_factors());
    }
}

/// Pacifici section 3: a flow is (gateway, cluster, class), and seats are a matter of the pool and not of a gateway.
#[test]
fn gateways_that_share_a_pool_are_given_seats_for_equal_utility() {
    let gold = ServiceClass::new("gold".into(), "mean < 100ms".parse().ok(), Importance::NORMAL);
    let (here, there) = (flow("here", "shop", "gold"), flow("there", "shop", "gold"));
    let mut world = World::new(&[("shop", &[])]).with_flow(here.clone(), 150.0, &[("shop", 0.010)]).with_flow(
        there.clone(),
        50.0,
        &[("shop", 0.010)],
    );
    world.spec.classes.insert(gold.name.clone(), gold);
    let (mut profiles, mut plan) = (Profiles::default(), SeatPlan::default());
    for _ in 0..40 {
        let mut snapshot = world.cycle();
        // Of 60 requests that are outstanding on two cores, three in four came in here.
        for (flow, outstanding) in snapshot.flows.iter_mut().zip([45.0, 15.0]) {
            (flow.in_service_mean, flow.queue_mean) = (0.2 * outstanding, 0.8 * outstanding);
        }
        profiles.update(&snapshot, &world.spec);
        plan = plan_seats(&snapshot, &world.spec, &mut profiles, &plan).plan;
    }
    let [a, b] = &plan.flows[..] else { panic!("{plan:#?}") };
    assert_eq!((&a.id, &b.id), (&here, &there));
    assert!((a.predicted.0 - b.predicted.0).abs() < 0.05, "{plan:#?}");
    assert!(a.allocation.0 + b.allocation.0 <= 2.0 + 1e-6 && a.allocation > b.allocation, "{plan:#?}");
}

/// What a placement may take for noise: the flows' errors are independent, so that an application with several is known better.
#[test]
fn demand_is_doubted_by_as_much_as_its_flows_waver() {
    let doubt = |wavers: bool| {
        let (mut world, gold, basic) = shop_of_two_classes();
        let mut profiles = Profiles::default();
        let mut last = Snapshot::default();
        for _ in 0..30 {
            last = if wavers { world.cycle() } else { world.cycle_with(&[20.0, 10.0]) };
            profiles.update(&last, &world.spec);
        }
        let of_flows = [&gold, &basic].map(|id| profiles.flow(id).unwrap().doubt());
        let of_app = demand_doubts(&last, &world.spec, &profiles)[&gold.app];
        (of_flows, of_app)
    };
    let ((steady, calm), (wavering, doubtful)) = (doubt(false), doubt(true));
    assert!(steady.iter().all(|doubt| *doubt < 1e-6) && calm < 1e-6, "{steady:?} {calm}");
    assert!(wavering.iter().all(|doubt| (0.03..0.6).contains(doubt)), "{wavering:?}");
    assert!(doubtful > 0.02 && doubtful < wavering[0].max(wavering[1]), "{wavering:?} {doubtful}");
}

#[test]
fn nonsense_and_jumping_clocks_change_nothing() {
    let gold = flow("g", "shop", "gold");
    let mut world = World::new(&[("shop", &[])]).with_flow(gold.clone(), 40.0, &[("shop", 0.010)]);
    let mut profiles = Profiles::default();
    for _ in 0..20 {
        profiles.update(&world.cycle(), &world.spec);
    }
    let known = profiles.work(&gold, &"shop".into()).unwrap();
    for window_s in [f64::NAN, -1.0, 0.0, 1e9, f64::INFINITY] {
        let before = profiles.clone();
        profiles.update(&Snapshot { window_s, ..world.cycle() }, &world.spec);
        assert_eq!(profiles, before, "a window of {window_s} s");
    }
    for cpu in [Some(Cpu(f64::NAN)), Some(Cpu(-3.0)), Some(Cpu(f64::INFINITY)), Some(Cpu(1e12)), None] {
        let mut snapshot = world.cycle();
        snapshot.instances[0].cpu_used = cpu;
        snapshot.nodes[0].cpu_used = Cpu(f64::NAN);
        snapshot.flows[0].queue_mean = f64::NAN;
        snapshot.flows[0].in_service_mean = f64::NAN;
        profiles.update(&snapshot, &world.spec);
        assert_eq!(profiles.work(&gold, &"shop".into()), Some(known), "after {cpu:?}");
    }
    let same = world.cycle();
    profiles.update(&same, &world.spec);
    let once = profiles.clone();
    profiles.update(&same, &world.spec);
    assert_eq!(profiles, once, "a snapshot counts once");
}

/// Requests take four times as long as before, and some wait.
fn hold_up(snapshot: &mut Snapshot) {
    for flow in &mut snapshot.flows {
        let mut slow = LatencyHistogram::default();
        slow.record_n(Duration::from_millis(400), flow.completions);
        (flow.service_time, flow.response_time) = (slow.clone(), slow);
        (flow.in_service_mean, flow.queue_mean) = (76.0, 3.0);
    }
}

#[test]
fn what_a_cluster_runs_out_of_is_named() {
    let bytes_per_s = 80e6;
    type Strain<'a> = &'a dyn Fn(&mut Snapshot);
    let strains: [(Resource, Strain<'_>); 4] = [
        (Resource::Cpu, &|seen| seen.nodes[0].cpu_used = Cpu(1.95)),
        (Resource::Disk, &|seen| seen.instances[0].disk_bytes_per_s = Some(bytes_per_s)),
        (Resource::Network, &|seen| seen.instances[0].network_bytes_per_s = Some(bytes_per_s)),
        (Resource::Concurrency, &|_| {}),
    ];
    for (resource, strain) in strains {
        let mut world = World::new(&[("shop", &[])]).with_flow(flow("g", "shop", "gold"), 38.0, &[("shop", 0.010)]);
        let mut profiles = Profiles::default();
        for _ in 0..15 {
            profiles.update(&world.cycle(), &world.spec);
        }
        assert_eq!(profiles.bottleneck(&"shop".into()), None, "before {resource}");
        for _ in 0..5 {
            let mut snapshot = world.cycle();
            hold_up(&mut snapshot);
            strain(&mut snapshot);
            profiles.update(&snapshot, &world.spec);
        }
        assert_eq!(profiles.bottleneck(&"shop".into()), Some(resource));
    }
}

/// The stand-in for memory bandwidth: the same requests cost more CPU-seconds beside busy neighbours. Without neighbours it is a
/// matter of the application itself.
#[test]
fn requests_that_grow_dear_beside_neighbours_run_out_of_memory_bandwidth() {
    for (neighbour, expected) in [(20.0, Resource::MemoryBandwidth), (1.0, Resource::Cpu)] {
        let mut world = World::new(&[("shop", &[]), ("batch", &[])])
            .with_flow(flow("g", "shop", "gold"), 20.0, &[("shop", 0.010)])
            .with_flow(flow("g", "shop", "basic"), 10.0, &[("shop", 0.020)])
            .with_flow(flow("g", "batch", "basic"), 2.0, &[("batch", 0.050)]);
        let mut profiles = Profiles::default();
        for _ in 0..25 {
            profiles.update(&world.cycle(), &world.spec);
        }
        let dearer = if neighbour > 10.0 { 2.8 } else { 5.0 };
        world.flows[..2].iter_mut().for_each(|(_, _, costs)| costs[0].1 *= dearer);
        world.flows[2].1 = neighbour;
        for _ in 0..10 {
            let rates: Vec<f64> = world.flows.iter().map(|(_, rate, _)| *rate).collect();
            let mut snapshot = world.cycle_with(&rates);
            hold_up(&mut snapshot);
            profiles.update(&snapshot, &world.spec);
        }
        assert_eq!(profiles.bottleneck(&"shop".into()), Some(expected), "{:?}", profiles.cluster(&"shop".into()));
    }
}

/// What a request reads, writes, receives and sends is learnt like its CPU.
#[test]
fn requests_have_a_cost_in_every_resource_that_is_measured() {
    let gold = flow("g", "shop", "gold");
    let mut world = World::new(&[("shop", &[])]).with_flow(gold.clone(), 40.0, &[("shop", 0.010)]);
    let mut profiles = Profiles::default();
    for _ in 0..20 {
        let mut snapshot = world.cycle();
        let rate = snapshot.flows[0].completions as f64 / snapshot.window_s;
        snapshot.instances[0].disk_bytes_per_s = Some(rate * 30e3);
        snapshot.instances[0].network_bytes_per_s = Some(rate * 70e3);
        profiles.update(&snapshot, &world.spec);
    }
    let cost = |resource| profiles.cluster(&"shop".into()).unwrap().cost(resource, &gold).unwrap().value;
    for (resource, truth) in [(Resource::Cpu, 0.010), (Resource::Disk, 30e3), (Resource::Network, 70e3)] {
        assert!((cost(resource) / truth - 1.0).abs() < 0.05, "{resource}: {} of {truth}", cost(resource));
    }
}

#[test]
fn what_a_start_uses_is_neither_for_requests_nor_for_an_idle_instance() {
    let (mut world, gold, basic) = shop_of_two_classes();
    let mut profiles = Profiles::default();
    for cycle in 0..20 {
        let mut snapshot = world.cycle();
        snapshot.time = Time::from_secs_f64(1000.0 + 10.0 * f64::from(cycle));
        // One starts all the time, and every third time another got ready in the middle of the window.
        let ready = (InstanceState::Ready, 4.0);
        for (state, ago_s) in [(InstanceState::Starting, 5.0)].into_iter().chain((cycle % 3 == 0).then_some(ready)) {
            let mut beside = snapshot.instances[0].clone();
            let id = format!("shop-{}", 100 + cycle);
            (beside.id, beside.state, beside.cpu_used) = (id.as_str().into(), state, Some(Cpu(1.5)));
            beside.since = Time::from_secs_f64(snapshot.time.as_secs_f64() - ago_s);
            snapshot.instances.push(beside);
        }
        profiles.update(&snapshot, &world.spec);
    }
    let shop = AppName::from("shop");
    assert!(near(profiles.work(&gold, &shop), 0.010, 0.1), "{:?}", profiles.work(&gold, &shop));
    assert!(near(profiles.work(&basic, &shop), 0.030, 0.1), "{:?}", profiles.work(&basic, &shop));
    assert!(profiles.idle_cpu(&shop).0 < 0.05, "{:?}", profiles.idle_cpu(&shop));
}

#[test]
fn an_instance_whose_health_comes_and_goes_is_measured_all_the_same() {
    let (mut world, gold, basic) = shop_of_two_classes();
    let mut profiles = Profiles::default();
    for cycle in 0..20 {
        let mut snapshot = world.cycle();
        snapshot.time = Time::from_secs_f64(1000.0 + 10.0 * f64::from(cycle));
        for instance in &mut snapshot.instances {
            instance.state = if cycle % 2 == 0 { InstanceState::Ready } else { InstanceState::Unhealthy };
            instance.since = Time::from_secs_f64(snapshot.time.as_secs_f64() - 3.0);
        }
        profiles.update(&snapshot, &world.spec);
    }
    let shop = AppName::from("shop");
    assert!(near(profiles.work(&gold, &shop), 0.010, 0.1), "{:?}", profiles.work(&gold, &shop));
    assert!(near(profiles.work(&basic, &shop), 0.030, 0.1), "{:?}", profiles.work(&basic, &shop));
}
