//! P3: Pacifici's Figures 5 to 13 in the model: seats, queues, use and response, with control and without.
//!
//! With control, the model is that of P2: a flow with `C` sessions and `o` seats answers in `C S / o`, and a seat uses the power
//! `kappa`. Without, everyone is let in, and the machines share their CPU among those they serve: a closed network of four
//! processor-sharing stations and a delay, solved exactly by mean value analysis. A request of a flow visits one of the
//! machines that have its cluster, in turn; it uses `kappa S` of CPU there, and what is left of `S` it waits elsewhere.

use weal_control::flow::seats::paper::{Sessions, trade};
use weal_control::flow::seats::{Appetite, SeatProblem, solve, whole};

use crate::{Figure, Record, Reproduction, Setting, near};

/// Service times that P2 assumes, in seconds, and goals.
const SERVICE_S: [f64; 2] = [0.17, 0.34];
const GOAL_S: [f64; 2] = [0.35, 1.2];
/// Power that a seat uses at its application server and at the database, in MHz.
const KAPPA: [[f64; 2]; 2] = [[125.0, 50.0], [300.0, 75.0]];
const APP_MHZ: f64 = 1490.0;
const DB_MHZ: f64 = 8000.0;
/// Sessions of both phases of experiment 1; those of experiment 2 are not given.
const PHASES: [[u32; 2]; 2] = [[10, 10], [40, 20]];

/// What both flows, TradeA first, get in a steady state.
struct State {
    seats: [f64; 2],
    response_s: [f64; 2],
    utility: [f64; 2],
    /// CPU use of df209, df211, df212, dbmac.
    used: [f64; 4],
    /// Seats of TradeA on df209 and df211, of TradeB on df211 and df212.
    by_machine: [f64; 4],
}

/// The pool of Tables 1-3, df209 up or down.
fn pool(sessions: [u32; 2], df209: bool) -> SeatProblem<Sessions> {
    let mut problem = trade(f64::from(sessions[0]), f64::from(sessions[1]));
    if !df209 {
        problem.clusters[0].retain(|host| host.node != 0);
        problem.nodes[0] = 0.0;
    }
    problem
}

fn utility(problem: &SeatProblem<Sessions>, flow: usize, response_s: f64) -> f64 {
    let appetite = &problem.flows[flow].appetite;
    appetite.goal.utility(response_s, appetite.importance).0
}

fn controlled(sessions: [u32; 2], df209: bool) -> State {
    let problem = pool(sessions, df209);
    let seats = whole(&problem, &solve(&problem), &[1, 1]).iter().map(|&seats| f64::from(seats)).collect::<Vec<f64>>();
    let seats = [seats[0], seats[1]];
    let clients = sessions.map(f64::from);
    let response_s = [0, 1].map(|f| clients[f] * SERVICE_S[f] / seats[f].min(clients[f]));
    let by_machine = placed(seats, df209);
    let app = |a: f64, b: f64| (a * KAPPA[0][0] + b * KAPPA[1][0]) / APP_MHZ;
    let db = (seats[0] * KAPPA[0][1] + seats[1] * KAPPA[1][1]) / DB_MHZ;
    State {
        seats,
        response_s,
        utility: [0, 1].map(|f| problem.flows[f].appetite.utility_of(seats[f]).0),
        used: [app(by_machine[0], 0.0), app(by_machine[1], by_machine[2]), app(0.0, by_machine[3]), db],
        by_machine,
    }
}

/// A seat placement: evenly as far as the machines' power goes, the shared df211 taking what the others cannot.
fn placed(seats: [f64; 2], df209: bool) -> [f64; 4] {
    let own_a = if df209 { APP_MHZ / KAPPA[0][0] } else { 0.0 };
    let own_b = APP_MHZ / KAPPA[1][0];
    let use_of_211 = |a: f64, b: f64| a * KAPPA[0][0] + b * KAPPA[1][0];
    let (mut a, mut b) = (if df209 { 0.5 * seats[0] } else { seats[0] }, 0.5 * seats[1]);
    if use_of_211(a, b) > APP_MHZ {
        (a, b) = ((seats[0] - own_a).max(0.0), (seats[1] - own_b).max(0.0));
        // What is free on df211 beside the least goes to TradeA, up to half of its seats.
        a = (a + (APP_MHZ - use_of_211(a, b)).max(0.0) / KAPPA[0][0]).min(if df209 { 0.5 * seats[0] } else { seats[0] }).max(a);
        b = (b + (APP_MHZ - use_of_211(a, b)).max(0.0) / KAPPA[1][0]).min(0.5 * seats[1]).max(b);
    }
    [seats[0] - a, a, b, seats[1] - b]
}

fn uncontrolled(sessions: [u32; 2], df209: bool) -> State {
    let problem = pool(sessions, df209);
    let turns = if df209 { [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]] } else { [[0.0, 1.0, 0.0], [0.0, 0.5, 0.5]] };
    let demands = [0, 1].map(|f| {
        let app = KAPPA[f][0] * SERVICE_S[f] / APP_MHZ;
        let db = KAPPA[f][1] * SERVICE_S[f] / DB_MHZ;
        [turns[f][0] * app, turns[f][1] * app, turns[f][2] * app, db]
    });
    let delays = [0, 1].map(|f| SERVICE_S[f] - demands[f].iter().sum::<f64>());
    let (rates, _) = mean_values(sessions, demands, delays);
    let response_s = [0, 1].map(|f| f64::from(sessions[f]) / rates[f]);
    State {
        seats: sessions.map(f64::from),
        response_s,
        utility: [0, 1].map(|f| utility(&problem, f, response_s[f])),
        used: std::array::from_fn(|m| rates[0] * demands[0][m] + rates[1] * demands[1][m]),
        by_machine: [0.0; 4],
    }
}

/// Exact mean value analysis of two closed classes without think time (Reiser and Lavenberg 1980): throughputs, and the number
/// at each processor-sharing station.
fn mean_values(sessions: [u32; 2], demands: [[f64; 4]; 2], delays: [f64; 2]) -> ([f64; 2], [f64; 4]) {
    let (most_a, most_b) = (sessions[0] as usize, sessions[1] as usize);
    let mut number = vec![vec![[0.0; 4]; most_b + 1]; most_a + 1];
    let mut rates = [0.0; 2];
    for a in 0..=most_a {
        for b in 0..=most_b {
            let mut here = [0.0; 4];
            for (f, count) in [a, b].into_iter().enumerate().filter(|(_, count)| *count > 0) {
                let others = if f == 0 { number[a - 1][b] } else { number[a][b - 1] };
                let spent: [f64; 4] = std::array::from_fn(|m| demands[f][m] * (1.0 + others[m]));
                rates[f] = count as f64 / (delays[f] + spent.iter().sum::<f64>());
                (0..4).for_each(|m| here[m] += rates[f] * spent[m]);
            }
            number[a][b] = here;
        }
    }
    (rates, number[most_a][most_b])
}

pub(super) fn figures(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "P3",
        "Pacifici, Figures 5-13 (in the model)",
        "control keeps machines from overload and both flows just under their goals; without, the important flow misses its goal, and when a machine dies it loses more",
        "Tables 1-3; 10+10, then 40+20 sessions of TradeA and TradeB; df209 goes down in experiment 2",
    );
    record.assume("service times of 170 and 340 ms, no think time, utilisation limit 1 (P2)");
    record.assume("experiment 2 has the sessions of experiment 1's second phase, which the paper does not say");
    record.assume("without control, requests take turns over the machines of their cluster, which share their CPU evenly");
    let with = PHASES.map(|sessions| controlled(sessions, true));
    let without = PHASES.map(|sessions| uncontrolled(sessions, true));
    let [_, loaded] = &with;
    record
        .claim("phase 2: the seats of TradeB are less than half of TradeA's (Figure 5)", loaded.seats[1] < 0.5 * loaded.seats[0]);
    let more = loaded.seats[1] - with[0].seats[1];
    record.number("seats of TradeB, phase 2 less phase 1: unchanged (Figure 5)", more).paper(near(0.0, 1.0));
    let queued = [0, 1].map(|f| f64::from(PHASES[1][f]) - loaded.seats[f]);
    record.claim("phase 2: both flows queue in the gateway (Figure 6)", queued.iter().all(|&queued| queued > 0.0));
    let change = loaded.used[1] - with[0].used[1];
    record.number("use of df211, phase 2 less phase 1: almost equal (Figure 7)", change).paper(near(0.0, 0.1));
    record.claim("phase 2: no machine is overloaded (Figure 7)", loaded.used.iter().all(|&used| used <= 1.0 + 1e-9));
    let under = |state: &State| (0..2).all(|f| state.response_s[f] < GOAL_S[f] && state.response_s[f] > 0.85 * GOAL_S[f]);
    record.claim("phase 2: both response times are slightly below their goals (Figure 8)", under(loaded));
    let moved = [loaded.by_machine[1] - with[0].by_machine[1], loaded.by_machine[2] - with[0].by_machine[2]];
    record.number("seats on df211, phase 2 less phase 1: TradeA (Figure 9)", moved[0]).paper(near(6.0, 1.0));
    record.number("seats on df211, phase 2 less phase 1: TradeB (Figure 9)", moved[1]).paper(near(-3.0, 1.0));
    let apart = |state: &State| (state.utility[0] - state.utility[1]).abs();
    record.number("phase 2: difference of the utilities (Figure 10)", apart(loaded)).paper(near(0.0, 0.05));
    record.claim("without control, phase 2: TradeA misses its goal (Figures 11, 12)", without[1].utility[0] < 0.0);
    record.claim("without control, phase 2: TradeB is well below its goal (Figures 11, 12)", without[1].utility[1] > 0.2);
    failure(&mut record);
    record.figure(by_phase(
        "figure-5-6",
        "seats and queues with control",
        "requests",
        &with,
        &without,
        |with, _, phase| {
            let queue = |f: usize| f64::from(PHASES[phase][f]) - with.seats[f];
            [with.seats[0], with.seats[1], queue(0), queue(1)]
        },
        &["TradeA seats", "TradeB seats", "TradeA queue", "TradeB queue"],
    ));
    record.figure(by_phase(
        "figure-8-12",
        "response times",
        "ms",
        &with,
        &without,
        |with, without, _| {
            [with.response_s[0], with.response_s[1], without.response_s[0], without.response_s[1]].map(|s| 1000.0 * s)
        },
        &["TradeA, control", "TradeB, control", "TradeA, none", "TradeB, none"],
    ));
    record.figure(by_phase(
        "figure-10-11",
        "utilities",
        "utility",
        &with,
        &without,
        |with, without, _| [with.utility[0], with.utility[1], without.utility[0], without.utility[1]],
        &["TradeA, control", "TradeB, control", "TradeA, none", "TradeB, none"],
    ));
    record.done()
}

/// Figure 13: df209 is down for a while.
fn failure(record: &mut Record) {
    let drop = |solve: &dyn Fn([u32; 2], bool) -> State| {
        let [up, down] = [true, false].map(|df209| solve(PHASES[1], df209));
        (100.0 * (1.0 - up.response_s[0] / down.response_s[0]), down)
    };
    let (controlled_drop, with) = drop(&controlled);
    let (uncontrolled_drop, without) = drop(&uncontrolled);
    record.number("df209 down, control: TradeA's throughput drops by, % (Figure 13)", controlled_drop).paper(near(50.0, 10.0));
    record
        .number("df209 down, no control: TradeA's throughput drops by, % (Figure 13)", uncontrolled_drop)
        .paper(near(70.0, 10.0));
    record.claim("df209 down: TradeA answers sooner with control (Figure 13)", with.response_s[0] < without.response_s[0]);
    let apart = |state: &State| (state.utility[0] - state.utility[1]).abs();
    record.claim("df209 down: utilities are closer together with control (Figure 13)", apart(&with) < apart(&without));
    record.claim(
        "df209 down, control: both flows meet their goals (Figure 13)",
        with.utility.iter().all(|&utility| utility >= 0.0),
    );
    for (f, name) in ["TradeA", "TradeB"].iter().enumerate() {
        record.number(&format!("df209 down, control: utility of {name}"), with.utility[f]);
        record.number(&format!("df209 down, no control: utility of {name}"), without.utility[f]);
    }
}

fn by_phase(
    name: &str,
    title: &str,
    unit: &str,
    with: &[State; 2],
    without: &[State; 2],
    values: impl Fn(&State, &State, usize) -> [f64; 4],
    curves: &[&str],
) -> Figure {
    let mut figure = Figure::new(name, title, ["phase", unit], curves);
    (0..2).for_each(|phase| figure.row(phase as f64 + 1.0, &values(&with[phase], &without[phase], phase)));
    figure.points = true;
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_values_of_one_class_are_those_of_the_textbook() {
        // One station of demand 1, delay 1, two customers: R(1) = 1, R(2) = 1 + 1/2, X(2) = 2 / 2.5.
        let (rates, number) = mean_values([2, 0], [[1.0, 0.0, 0.0, 0.0], [0.0; 4]], [1.0, 1.0]);
        assert!((rates[0] - 0.8).abs() < 1e-12 && (number[0] - 1.2).abs() < 1e-12);
    }
}
