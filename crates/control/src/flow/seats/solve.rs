//! The exact fractional answer.

use weal_model::Utility;

use super::max_flow::MaxFlow;
use super::{Appetite, SeatProblem};

/// Below this utility nobody can tell the difference; levels are searched from here up.
const HOPELESS: f64 = -1e6;
/// A cut that is exceeded by less than this share counts as met: it is above rounding and below anything measurable.
const SLACK: f64 = 1e-9;

/// Fractional seats and what binds them.
#[derive(Debug, Clone, PartialEq)]
pub struct SeatSolution {
    /// `o_f`.
    pub seats: Vec<f64>,
    /// `U_f(o_f)`.
    pub utilities: Vec<Utility>,
    /// What each flow is stuck at, as an index into `bottlenecks`; `None` when it has its best.
    pub stuck: Vec<Option<usize>>,
    /// In the order in which they bound: the lowest level first.
    pub bottlenecks: Vec<Bottleneck>,
    /// `L_dm` for each host of each cluster.
    pub loads: Vec<Vec<f64>>,
}

/// Clusters that together use all that their nodes have.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// The utility at which it stops its flows.
    pub level: Utility,
    /// The clusters.
    pub clusters: Vec<usize>,
    /// The nodes that are full. Empty when it is the clusters' own instances that cannot use more.
    pub nodes: Vec<usize>,
    /// Seats' power over all of them, equal to the clusters' demand.
    pub power: f64,
}

/// Solves the problem exactly, up to rounding. Empty problems and zero capacities are fine.
pub fn solve<A: Appetite>(problem: &SeatProblem<A>) -> SeatSolution {
    let mut state = Rising::new(problem);
    while state.rise() {}
    let utilities = problem.flows.iter().zip(&state.seats).zip(&state.stuck).map(|((flow, &seats), stuck)| match stuck {
        Some(at) => Utility(state.bottlenecks[*at].level.0.min(flow.appetite.best().0)),
        None => flow.appetite.utility_of(seats),
    });
    let utilities = utilities.collect();
    SeatSolution { seats: state.seats, utilities, stuck: state.stuck, bottlenecks: state.bottlenecks, loads: state.loads }
}

struct Rising<'a, A> {
    problem: &'a SeatProblem<A>,
    /// Flows that still rise.
    active: Vec<bool>,
    seats: Vec<f64>,
    stuck: Vec<Option<usize>>,
    bottlenecks: Vec<Bottleneck>,
    loads: Vec<Vec<f64>>,
    /// Clusters that are not part of a bottleneck yet.
    open: Vec<bool>,
    /// What bottlenecks left of each node.
    capacity: Vec<f64>,
    /// Flows that load each cluster: (flow, factor).
    loaders: Vec<Vec<(usize, f64)>>,
}

impl<'a, A: Appetite> Rising<'a, A> {
    fn new(problem: &'a SeatProblem<A>) -> Self {
        let mut loaders = vec![Vec::new(); problem.clusters.len()];
        for (f, flow) in problem.flows.iter().enumerate() {
            for &(d, factor) in flow.loads.iter().filter(|load| load.1 > 0.0) {
                loaders[d].push((f, factor));
            }
        }
        Self {
            problem,
            active: vec![true; problem.flows.len()],
            seats: vec![0.0; problem.flows.len()],
            stuck: vec![None; problem.flows.len()],
            bottlenecks: Vec::new(),
            loads: problem.clusters.iter().map(|hosts| vec![0.0; hosts.len()]).collect(),
            open: vec![true; problem.clusters.len()],
            capacity: problem.nodes.iter().map(|&power| if power.is_finite() { power.max(0.0) } else { 0.0 }).collect(),
            loaders,
        }
    }

    /// Raises the active flows until something is tight and takes that out; false when nothing is, and all have their best.
    fn rise(&mut self) -> bool {
        let mut graph = self.graph();
        let mut level = self.highest();
        let mut tight = None;
        loop {
            let demands = self.demands(level);
            graph.restart();
            for (d, &demand) in demands.iter().enumerate() {
                graph.demand(d, demand);
            }
            if graph.serve() <= SLACK * demands.iter().sum::<f64>() || level <= HOPELESS {
                break;
            }
            let short = graph.short();
            let power = self.cut(&short);
            level = self.level_of(&short, power, level);
            tight = Some((short, power));
        }
        match tight {
            Some((short, power)) => self.freeze(level, &short, power, &graph),
            None => self.finish(&graph),
        }
    }

    /// The clusters that are left with what is left of the nodes.
    fn graph(&self) -> MaxFlow {
        let hosts: Vec<Vec<(usize, f64)>> = (self.problem.clusters.iter().zip(&self.open))
            .map(|(hosts, &open)| if open { hosts.iter().map(|host| (host.node, host.limit)).collect() } else { Vec::new() })
            .collect();
        MaxFlow::new(&hosts, &self.capacity)
    }

    /// The level at which every active flow has its best.
    fn highest(&self) -> f64 {
        let best =
            self.problem.flows.iter().zip(&self.active).filter(|(_, active)| **active).map(|(flow, _)| flow.appetite.best().0);
        best.fold(HOPELESS, f64::max)
    }

    /// `o_f(u)`; what it was stuck with for a flow that does not rise any more.
    fn seats_at(&self, f: usize, level: f64) -> f64 {
        if !self.active[f] {
            return self.seats[f];
        }
        let appetite = &self.problem.flows[f].appetite;
        appetite.seats_for(Utility(level.min(appetite.best().0))).max(0.0)
    }

    /// `D_d(u)` of the clusters that are left.
    fn demands(&self, level: f64) -> Vec<f64> {
        let mut demands = vec![0.0; self.open.len()];
        for (f, flow) in self.problem.flows.iter().enumerate() {
            let seats = self.seats_at(f, level);
            for &(d, factor) in flow.loads.iter().filter(|load| self.open[load.0]) {
                demands[d] += factor * seats;
            }
        }
        demands
    }

    /// The power that the clusters of a cut can have at most.
    fn cut(&self, (clusters, nodes): &(Vec<bool>, Vec<bool>)) -> f64 {
        let full: f64 = self.capacity.iter().zip(nodes).filter(|(_, inside)| **inside).map(|(power, _)| power).sum();
        let limited: f64 = (self.problem.clusters.iter().zip(clusters).filter(|(_, inside)| **inside))
            .flat_map(|(hosts, _)| hosts.iter().filter(|host| !nodes[host.node]).map(|host| host.limit))
            .sum();
        full + limited
    }

    /// The highest level below `above` at which the clusters of a cut ask for no more than `power`.
    ///
    /// False position with halving (Illinois), and a bisection every third step so that flat stretches and steps of a
    /// utility cannot stall it.
    fn level_of(&self, (clusters, _): &(Vec<bool>, Vec<bool>), power: f64, above: f64) -> f64 {
        let mut rising = Vec::new();
        let mut fixed = 0.0;
        for (f, flow) in self.problem.flows.iter().enumerate() {
            let factor: f64 = flow.loads.iter().filter(|load| clusters[load.0]).map(|load| load.1).sum();
            if factor > 0.0 && self.active[f] {
                rising.push((f, factor));
            } else if factor > 0.0 {
                fixed += factor * self.seats[f];
            }
        }
        let excess = |level: f64| fixed - power + rising.iter().map(|&(f, factor)| factor * self.seats_at(f, level)).sum::<f64>();
        let (mut high, mut above_by) = (above, excess(above));
        let mut step = 0.25;
        let mut low = (above - step).max(HOPELESS);
        let mut below_by = excess(low);
        while below_by > 0.0 && low > HOPELESS {
            (high, above_by) = (low, below_by);
            step *= 4.0;
            low = (above - step).max(HOPELESS);
            below_by = excess(low);
        }
        for round in 0..200 {
            if below_by >= -1e-11 * power || high - low <= 1e-14 * low.abs().max(1.0) {
                break;
            }
            let share = if round % 3 == 2 { 0.5 } else { (below_by / (below_by - above_by)).clamp(0.001, 0.999) };
            let middle = low + (high - low) * share;
            let by = excess(middle);
            if by > 0.0 {
                (high, above_by) = (middle, by);
                below_by *= if round % 3 == 0 { 0.5 } else { 1.0 };
            } else {
                (low, below_by) = (middle, by);
            }
        }
        low
    }

    /// Takes a tight set out, with the flows that load it; true while something is left.
    fn freeze(&mut self, level: f64, short: &(Vec<bool>, Vec<bool>), power: f64, graph: &MaxFlow) -> bool {
        let (clusters, nodes) = short;
        let index = self.bottlenecks.len();
        for d in (0..clusters.len()).filter(|&d| clusters[d]) {
            for &(f, _) in &self.loaders[d] {
                if self.active[f] {
                    self.seats[f] = self.seats_at(f, level);
                    self.active[f] = false;
                    self.stuck[f] = (level < self.problem.flows[f].appetite.best().0).then_some(index);
                }
            }
            for (host, at) in self.problem.clusters[d].iter().enumerate() {
                self.loads[d][host] = graph.load(d, host);
                if !nodes[at.node] {
                    self.capacity[at.node] = (self.capacity[at.node] - at.limit).max(0.0);
                }
            }
            self.open[d] = false;
        }
        for (m, _) in nodes.iter().enumerate().filter(|(_, inside)| **inside) {
            self.capacity[m] = 0.0;
        }
        self.bottlenecks.push(Bottleneck { level: Utility(level), clusters: indices(clusters), nodes: indices(nodes), power });
        self.open.contains(&true) || self.active.contains(&true)
    }

    /// All that still rise have their best.
    fn finish(&mut self, graph: &MaxFlow) -> bool {
        for f in 0..self.active.len() {
            self.seats[f] = self.seats_at(f, f64::INFINITY);
            self.active[f] = false;
        }
        for d in (0..self.open.len()).filter(|&d| self.open[d]) {
            for host in 0..self.loads[d].len() {
                self.loads[d][host] = graph.load(d, host);
            }
        }
        false
    }
}

fn indices(flags: &[bool]) -> Vec<usize> {
    flags.iter().enumerate().filter(|(_, flag)| **flag).map(|(index, _)| index).collect()
}
