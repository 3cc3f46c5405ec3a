//! P1, P2: seats (Pacifici section 3, Tables 1-3, experiment 1).

use weal_control::flow::seats::paper;

use crate::{Record, Reproduction, Setting, near, within};

pub(super) fn frontier(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "P1",
        "Pacifici, Tables 1-3, utilisation limit 1",
        "the frontier of feasible seats of TradeA and TradeB; the database never binds",
        "kappa 125 and 50 MHz (TradeA), 300 and 75 MHz (TradeB); three nodes of 1,490 MHz, one of 8,000",
    );
    let frontier = paper::frontier();
    for pair in [(23, 5), (21, 6), (18, 7), (16, 8), (14, 9)] {
        record.property(&format!("{pair:?} is on the frontier"), frontier.contains(&pair));
    }
    let most = frontier.iter().map(|&(a, b)| 50.0 * f64::from(a) + 75.0 * f64::from(b)).fold(0.0, f64::max);
    record.number("most that the database is asked for, MHz", most).recalculated(within(0.0..=8000.0));
    record.done()
}

pub(super) fn experiment_one(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "P2",
        "Pacifici, experiment 1 (service times of 170 and 340 ms and no think time assumed)",
        "seats follow the load: TradeB has slightly more seats than TradeA first, then as many as before",
        "10+10, then 40+20 sessions of TradeA and TradeB; goals 350 and 1,200 ms",
    );
    record.assume("zero think time is ours: with it each of 10+10 sessions that need not queue would occupy a seat");
    let phases = [((10.0, 10.0), (10.0, 9.0)), ((40.0, 20.0), (21.0, 6.0))];
    let outcomes = phases.map(|((a, b), _)| paper::experiment_1(a, b));
    for (((a, b), recalculated), outcome) in phases.into_iter().zip(&outcomes) {
        let seats = (f64::from(outcome.seats.0), f64::from(outcome.seats.1));
        record.number(&format!("{a}+{b} sessions: seats of TradeA"), seats.0).recalculated(near(recalculated.0, 1.0));
        record.number(&format!("{a}+{b} sessions: seats of TradeB"), seats.1).recalculated(near(recalculated.1, 1.0));
    }
    let [first, second] = outcomes.each_ref().map(|outcome| outcome.seats);
    record.claim(
        "10+10 sessions: TradeB has slightly more seats than TradeA (Figure 5)",
        first.1 > first.0 && first.1 <= first.0 + 2,
    );
    record.claim("40+20 sessions: TradeB has as many seats as before (Figure 5)", first.1 == second.1);
    let [_, loaded] = outcomes;
    record.number("40+20 sessions: utility of TradeA", loaded.utilities.0).recalculated(near(0.075, 5e-4));
    record.number("40+20 sessions: utility of TradeB", loaded.utilities.1).recalculated(near(0.056, 5e-4));
    record.done()
}
