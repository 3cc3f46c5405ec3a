//! T2: share exchange in a resource-competing cluster, as a fluid (Tsai 5.5.4, Figures 5.7 and 5.8).
//!
//! Four nodes, half of each taken by work that never blocks. A task with the share `w_i` competes with it under a
//! work-conserving proportional scheduler, so it runs at `w_i / (w_i + 0.5)` while it has something to do. All tasks end an
//! iteration together: it takes `T = max_i a_i / rate_i`, and task `i` uses `u_i = a_i / T`.

use weal_control::shares::{distribute, even_withhold, excess, redistribute, shortage};

use crate::{Figure, Record, Reproduction, Setting, near};

/// Work of an iteration on each node, in seconds of a whole CPU: 1/i.
const WORK: [f64; 4] = [1.0, 1.0 / 2.0, 1.0 / 3.0, 1.0 / 4.0];
/// The share of each node that is booked for others.
const BOOKED: f64 = 0.5;
/// Exchanges after which shares are looked at as settled.
const SETTLED: usize = 100;
const SHARES: [f64; 9] = [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5];

#[derive(Clone, Copy, PartialEq)]
enum Strategy {
    Fixed,
    Distributed,
    Bank,
}

struct Program {
    shares: [f64; 4],
    bank: f64,
}

impl Program {
    /// Seconds of an iteration.
    fn iteration_s(&self) -> f64 {
        let each = WORK.iter().zip(&self.shares).map(|(work, share)| work * (share + BOOKED) / share);
        each.fold(0.0, f64::max)
    }

    fn exchange(&mut self, strategy: Strategy) {
        let span_s = self.iteration_s();
        let used = WORK.map(|work| work / span_s);
        let spare: Vec<f64> = (0..4).map(|i| excess(self.shares[i], used[i])).collect();
        match strategy {
            Strategy::Fixed => {}
            Strategy::Bank => self.through_the_bank(&used, &spare),
            Strategy::Distributed => self.along_the_line(&spare),
        }
    }

    fn through_the_bank(&mut self, used: &[f64; 4], spare: &[f64]) {
        let lacking: Vec<f64> = (0..4).map(|i| shortage(self.shares[i], used[i], 1.0 - BOOKED - self.shares[i])).collect();
        (0..4).for_each(|i| self.shares[i] -= spare[i]);
        let given = redistribute(self.bank + spare.iter().sum::<f64>(), &lacking, &self.shares);
        self.bank = 0.0;
        for (share, given) in self.shares.iter_mut().zip(given) {
            // A fully booked node takes no more: the rest stays in the bank.
            let taken = given.min(1.0 - BOOKED - *share);
            *share += taken;
            self.bank += given - taken;
        }
    }

    /// The packet that lets task i go on comes from its slower neighbour, task i - 1: its one upstream task. That one takes shares even where
    /// it has an excess itself, as 5.3.3 says of all upstream tasks: only so does the excess of task 4 reach task 1, in three exchanges.
    fn along_the_line(&mut self, spare: &[f64]) {
        for (i, &spare) in spare.iter().enumerate().skip(1) {
            let transfer = distribute(spare, even_withhold(1), 1).each;
            let taken = transfer.min(1.0 - BOOKED - self.shares[i - 1]).max(0.0);
            self.shares[i] -= taken;
            self.shares[i - 1] += taken;
        }
    }
}

/// Iteration times before each of the exchanges, and the shares.
fn trace(share: f64, strategy: Strategy) -> Vec<(f64, [f64; 4])> {
    let mut program = Program { shares: [share; 4], bank: 0.0 };
    let mut seen = Vec::new();
    for _ in 0..=SETTLED {
        seen.push((program.iteration_s(), program.shares));
        program.exchange(strategy);
    }
    seen
}

fn settled_s(share: f64, strategy: Strategy) -> f64 {
    trace(share, strategy)[SETTLED].0
}

/// Exchanges until an iteration takes at most 5% longer than in the end.
fn exchanges_to_settle(trace: &[(f64, [f64; 4])]) -> usize {
    trace.iter().position(|(span_s, _)| *span_s <= 1.05 * trace[SETTLED].0).unwrap_or(SETTLED)
}

/// Exchanges after which node 1 has more because node 4 had more to begin with.
fn exchanges_to_reach(share: f64, strategy: Strategy) -> u32 {
    let mut program = Program { shares: [share; 4], bank: 0.0 };
    let mut richer = Program { shares: [share, share, share, share + 0.01], bank: 0.0 };
    let mut exchanges = 0;
    while richer.shares[0] - program.shares[0] < 1e-9 && exchanges < SETTLED as u32 {
        program.exchange(strategy);
        richer.exchange(strategy);
        exchanges += 1;
    }
    exchanges
}

pub(super) fn competing(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "T2",
        "Tsai 5.5.4, Figures 5.7-5.8 (fluid)",
        "bank-assisted exchange cuts the response time by nearly 38%; a budget of 1.2 CPUs with it is very close to one of 2.0 without; the distributed exchange matches the load in 3 cycles",
        "4 nodes in a line, work 1/i, half of each node booked by others, shares of 0.1 to 0.5",
    );
    record.assume("response times once shares have settled, without the network's latency and the exchanges before");
    record.assume("5.2 takes the minimum; a task's upstream is the neighbour that it waits for");
    record.assume("an upstream task that has an excess itself takes transfers too, as 5.3.3 says of all upstream tasks");
    record.chose_late("which of the section's claims are compared");
    let change = |share, strategy| 100.0 * (settled_s(share, strategy) / settled_s(share, Strategy::Fixed) - 1.0);
    let (bank, distributed) = (change(0.1, Strategy::Bank), change(0.1, Strategy::Distributed));
    let row = record.number("share 0.1, bank: change of the response time, %", bank);
    row.paper(near(-38.0, 3.0)).recalculated(near(-39.9, 3.0));
    let (with, without) = (settled_s(0.3, Strategy::Bank), settled_s(0.5, Strategy::Fixed));
    let row = record.number("budget of 1.2 CPUs with the bank over 2.0 without", with / without);
    row.paper(near(1.0, 0.03)).recalculated(near(1.0, 0.03));
    let row = record.number("share 0.5: nothing is left to exchange, change in %", change(0.5, Strategy::Bank));
    row.recalculated(near(0.0, 1e-9));
    record.claim("share 0.1: the bank cuts more than the distributed exchange", bank < distributed);
    record.number("share 0.1, distributed: change of the response time, %", distributed);
    let slow = trace(0.2, Strategy::Distributed);
    let settled = exchanges_to_settle(&slow) as f64;
    let row = record.number("share 0.2, distributed: exchanges until within 5% of the settled response", settled);
    row.paper(near(3.0, 0.0));
    for (who, strategy, printed) in [("distributed", Strategy::Distributed, 3.0), ("bank", Strategy::Bank, 1.0)] {
        let what = format!("share 0.2, {who}: exchanges until node 1 has of node 4's excess");
        record.number(&what, f64::from(exchanges_to_reach(0.2, strategy))).paper(near(printed, 0.0));
    }
    let mut by_share = Figure::new(
        "figure-5.7",
        "response time by initial share, relative to a whole CPU on each node",
        ["share", "response time"],
        &["fixed", "distributed", "bank"],
    );
    for share in SHARES {
        by_share.row(share, &[Strategy::Fixed, Strategy::Distributed, Strategy::Bank].map(|strategy| settled_s(share, strategy)));
    }
    record.figure(by_share);
    let nodes = ["node 1", "node 2", "node 3", "node 4"];
    let mut over_time = Figure::new("figure-5.8", "shares at 0.2, distributed", ["exchanges", "share"], &nodes);
    for (exchanges, (_, shares)) in slow.iter().take(12).enumerate() {
        over_time.row(exchanges as f64, shares);
    }
    record.figure(over_time);
    record.done()
}
