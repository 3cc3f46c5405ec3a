//! T1: the worked examples of share exchange (Tsai 5.3.3-5.3.4).

use weal_control::shares::{distribute, even_withhold, excess, redistribute, shortage};

use crate::{Record, Reproduction, Setting, near};

pub(super) fn worked_examples(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "T1",
        "Tsai 5.3.3-5.3.4 (5.2 read with min)",
        "0.4 to spare and 3 upstream tasks: transfers of 0.1, 0.2 retained; 0.3 in the bank for 0.6 lacking: 0.17 gets 0.085",
        "shares 0.5; use 0.1 and 0.67",
    );
    let transfer = distribute(excess(0.5, 0.1), even_withhold(3), 3);
    let lacking = shortage(0.5, 0.67, 1.0);
    for (what, expected, got) in [
        ("transfer to each upstream task", 0.1, transfer.each),
        ("share retained", 0.2, 0.5 - 3.0 * transfer.each),
        ("from the bank", 0.085, redistribute(0.3, &[lacking, 0.6 - lacking], &[0.5, 0.5])[0]),
    ] {
        record.number(what, got).paper(near(expected, 1e-12)).recalculated(near(expected, 1e-12));
    }
    record.done()
}
