//! P1, P2: seats (Pacifici section 3, Tables 1-3, experiment 1).

use weal_control::flow::seats::paper;

use crate::{Record, Reproduction, Setting};

pub(super) fn frontier(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "P1",
        "Pacifici, Tables 1-3, utilisation limit 1",
        "the frontier of feasible seats of TradeA and TradeB; the database never binds",
        "kappa 125 and 50 MHz (TradeA), 300 and 75 MHz (TradeB); three nodes of 1,490 MHz, one of 8,000",
    );
    let frontier = paper::frontier();
    for pair in [(23, 5), (21, 6), (18, 7), (16, 8), (14, 9)] {
        record.same(&format!("{pair:?} is on the frontier"), true, frontier.contains(&pair));
    }
    let most = frontier.iter().map(|&(a, b)| 50.0 * f64::from(a) + 75.0 * f64::from(b)).fold(0.0, f64::max);
    record.within("most that the database is asked for, MHz", 0.0..=8000.0, most);
    record.done()
}

pub(super) fn experiment_one(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "P2",
        "Pacifici, experiment 1 (service times of 170 and 340 ms and no think time assumed)",
        "seats follow the load: (10, 9), then (21, 6), both flows just under their goals",
        "10+10, then 40+20 sessions of TradeA and TradeB; goals 350 and 1,200 ms",
    );
    for ((a, b), expected) in [((10.0, 10.0), (10, 9)), ((40.0, 20.0), (21, 6))] {
        let outcome = paper::experiment_1(a, b);
        record.near(&format!("{a}+{b} sessions: seats of TradeA"), f64::from(expected.0), f64::from(outcome.seats.0), 1.0);
        record.near(&format!("{a}+{b} sessions: seats of TradeB"), f64::from(expected.1), f64::from(outcome.seats.1), 1.0);
    }
    let outcome = paper::experiment_1(40.0, 20.0);
    record.near("utility of TradeA", 0.075, outcome.utilities.0, 5e-4);
    record.near("utility of TradeB", 0.056, outcome.utilities.1, 5e-4);
    record.done()
}
