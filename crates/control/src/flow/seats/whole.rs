//! Whole seats from fractional ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weal_model::Utility;

use super::max_flow::MaxFlow;
use super::{Appetite, SeatProblem, SeatSolution};

/// Rounds a solution: down at first, but never below `fewest[f]`, then greedily up, one seat at a time for the flow with the
/// lowest utility, until each flow has its best or no further seat fits beside the others.
///
/// `fewest` may overload nodes: a flow with a goal keeps its seat even then, because a flow without seats answers nobody.
/// Where that happens, the flows on those nodes get no seat beyond their fewest.
pub fn whole<A: Appetite>(problem: &SeatProblem<A>, solution: &SeatSolution, fewest: &[u32]) -> Vec<u32> {
    let hosts: Vec<Vec<(usize, f64)>> =
        problem.clusters.iter().map(|hosts| hosts.iter().map(|host| (host.node, host.limit)).collect()).collect();
    let mut graph = MaxFlow::new(&hosts, &problem.nodes);
    let mut seats: Vec<u32> = solution.seats.iter().zip(fewest).map(|(&seats, &least)| least.max(rounded_down(seats))).collect();
    begin(problem, solution, &seats, &mut graph);
    if graph.serve() > 1e-6 * problem.nodes.iter().sum::<f64>() {
        trim(problem, &hosts, &mut graph, &mut seats, fewest);
    }
    let mut lowest: BinaryHeap<Reverse<(Ordered, usize)>> = (0..seats.len())
        .filter(|&f| f64::from(seats[f]) < problem.flows[f].appetite.seats_for(Utility::BEST))
        .map(|f| Reverse((Ordered(problem.flows[f].appetite.utility_of(f64::from(seats[f])).0), f)))
        .collect();
    while let Some(Reverse((_, f))) = lowest.pop() {
        let flow = &problem.flows[f];
        if !graph.try_more(&flow.loads) {
            continue;
        }
        seats[f] += 1;
        if f64::from(seats[f]) < flow.appetite.seats_for(Utility::BEST) {
            lowest.push(Reverse((Ordered(flow.appetite.utility_of(f64::from(seats[f])).0), f)));
        }
    }
    seats
}

/// Asks for these seats: first where the fractional solution has its load, because there it fits; the rest is left to be served.
fn begin<A: Appetite>(problem: &SeatProblem<A>, solution: &SeatSolution, seats: &[u32], graph: &mut MaxFlow) {
    let mut demands = vec![0.0; problem.clusters.len()];
    for (flow, &seats) in problem.flows.iter().zip(seats) {
        for &(d, factor) in &flow.loads {
            demands[d] += factor * f64::from(seats);
        }
    }
    for (d, (&demand, loads)) in demands.iter().zip(&solution.loads).enumerate() {
        let loaded: f64 = loads.iter().sum();
        let share = if loaded > demand { demand / loaded } else { 1.0 };
        for (host, &load) in loads.iter().enumerate() {
            graph.carry(d, host, load * share);
        }
        graph.demand(d, (demand - loaded * share).max(0.0));
    }
}

/// A flow with few seats starts one lower: what rounding takes from one flow may be worth more to another.
fn rounded_down(seats: f64) -> u32 {
    let down = (seats + 1e-6) as u32;
    if seats < 30.0 { down.saturating_sub(1) } else { down }
}

/// The fewest seats overload something: start from them alone, and add the rounded shares back, the worst off first, as far
/// as they fit.
fn trim<A: Appetite>(
    problem: &SeatProblem<A>,
    hosts: &[Vec<(usize, f64)>],
    graph: &mut MaxFlow,
    seats: &mut [u32],
    fewest: &[u32],
) {
    *graph = MaxFlow::new(hosts, &problem.nodes);
    for (flow, &least) in problem.flows.iter().zip(fewest) {
        for &(d, factor) in &flow.loads {
            graph.demand(d, factor * f64::from(least));
        }
    }
    graph.serve();
    graph.drop_unserved();
    for f in 0..seats.len() {
        let (wanted, mut got) = (seats[f] - fewest[f], 0);
        let mut step = wanted;
        while step > 0 {
            let more: Vec<(usize, f64)> =
                problem.flows[f].loads.iter().map(|&(d, factor)| (d, factor * f64::from(step))).collect();
            if got + step <= wanted && graph.try_more(&more) {
                got += step;
            } else {
                step /= 2;
            }
        }
        seats[f] = fewest[f] + got;
    }
}

/// A utility in its total order.
#[derive(PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
