//! The paper's own example: TradeA and TradeB on three application servers and a database (Pacifici Tables 1-3).
//!
//! Where the paper is silent, `reproductions.md` P2 states an assumption: service times of 170 and 340 ms, no think time,
//! utilisation limit 1. With `C` sessions and `o` seats that stay full, `R(o) = C S / o`.

use weal_model::{Goal, Importance, Utility};

use super::{Appetite, Host, SeatFlow, SeatProblem, solve, whole};

/// A closed flow without think time: `R(o) = C S / max(o, ...)`, at most one seat a session.
#[derive(Debug, Clone, Copy)]
pub struct Sessions {
    /// The goal on the mean.
    pub goal: Goal,
    /// How much a miss matters.
    pub importance: Importance,
    /// `C`.
    pub sessions: f64,
    /// `S`, in seconds.
    pub service_s: f64,
}

impl Appetite for Sessions {
    fn seats_for(&self, utility: Utility) -> f64 {
        let response_s = self.goal.achieved_at(utility, self.importance).max(self.service_s);
        self.sessions * self.service_s / response_s
    }

    fn utility_of(&self, seats: f64) -> Utility {
        let seats = seats.min(self.sessions);
        let response_s = if seats > 0.0 { self.sessions * self.service_s / seats } else { f64::INFINITY };
        self.goal.utility(response_s, self.importance)
    }

    fn best(&self) -> Utility {
        self.utility_of(self.sessions)
    }
}

/// What P2 gives: whole seats of TradeA and TradeB, and their utilities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeatOutcome {
    /// Seats.
    pub seats: (u32, u32),
    /// Utilities at these seats.
    pub utilities: (f64, f64),
}

/// Tables 1-3 with so many sessions of TradeA and TradeB. Clusters A, B, D; nodes df209, df211, df212, dbmac; MHz.
pub fn trade(sessions_a: f64, sessions_b: f64) -> SeatProblem<Sessions> {
    let sessions = |target_s, weight, sessions, service_s| Sessions {
        goal: Goal::Mean { target_s },
        importance: Importance::from_weight(weight).expect("a constant in range"),
        sessions,
        service_s,
    };
    let host = |node| Host { node, limit: f64::INFINITY };
    SeatProblem {
        flows: vec![
            SeatFlow { appetite: sessions(0.35, 1.0, sessions_a, 0.17), loads: vec![(0, 125.0), (2, 50.0)] },
            SeatFlow { appetite: sessions(1.2, 1.0 / 99.0, sessions_b, 0.34), loads: vec![(1, 300.0), (2, 75.0)] },
        ],
        clusters: vec![vec![host(0), host(1)], vec![host(1), host(2)], vec![host(3)]],
        nodes: vec![1490.0, 1490.0, 1490.0, 8000.0],
    }
}

/// P1: every pair of whole seats that is feasible, while one more seat of either flow is not.
pub fn frontier() -> Vec<(u32, u32)> {
    let problem = trade(1e9, 1e9);
    let fits = |a: u32, b: u32| {
        let demands = [125.0 * f64::from(a), 300.0 * f64::from(b), 50.0 * f64::from(a) + 75.0 * f64::from(b)];
        let hosts: Vec<Vec<(usize, f64)>> =
            problem.clusters.iter().map(|hosts| hosts.iter().map(|host| (host.node, host.limit)).collect()).collect();
        let mut graph = super::max_flow::MaxFlow::new(&hosts, &problem.nodes);
        demands.iter().enumerate().for_each(|(d, &demand)| graph.demand(d, demand));
        graph.serve() <= 1e-9
    };
    let most_b = |a| (0..=99).rev().find(|&b| fits(a, b));
    let pairs: Vec<(u32, u32)> = (0..=99).filter_map(|a| most_b(a).map(|b| (a, b))).collect();
    pairs.iter().copied().filter(|&(a, b)| !fits(a + 1, b)).collect()
}

/// P2: the seats for so many sessions of TradeA and TradeB.
pub fn experiment_1(sessions_a: f64, sessions_b: f64) -> SeatOutcome {
    let problem = trade(sessions_a, sessions_b);
    let seats = whole(&problem, &solve(&problem), &[1, 1]);
    let utility = |f: usize| problem.flows[f].appetite.utility_of(f64::from(seats[f])).0;
    SeatOutcome { seats: (seats[0], seats[1]), utilities: (utility(0), utility(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p1_pacifici_tables_1_to_3_give_the_frontier() {
        let frontier = frontier();
        for pair in [(23, 5), (21, 6), (18, 7), (16, 8), (14, 9)] {
            assert!(frontier.contains(&pair), "{pair:?} is missing in {frontier:?}");
        }
    }

    #[test]
    fn p1_the_database_never_binds() {
        for sessions in [5.0, 40.0, 1e6] {
            let solution = solve(&trade(sessions, sessions));
            assert!(solution.bottlenecks.iter().all(|bottleneck| !bottleneck.nodes.contains(&3)));
        }
    }

    #[test]
    fn p2_pacifici_experiment_1_keeps_both_flows_just_under_their_goals() {
        let outcome = experiment_1(40.0, 20.0);
        println!("{outcome:?}");
        assert_eq!(outcome.seats, (21, 6));
        assert!((outcome.utilities.0 - 0.075).abs() < 0.001 && (outcome.utilities.1 - 0.056).abs() < 0.001, "{outcome:?}");
    }

    #[test]
    fn p2_pacifici_experiment_1_first_phase() {
        let (a, b) = experiment_1(10.0, 10.0).seats;
        assert!(a.abs_diff(10) <= 1 && b.abs_diff(9) <= 1, "({a}, {b}) is not (10, 9) within 1 seat");
    }
}
