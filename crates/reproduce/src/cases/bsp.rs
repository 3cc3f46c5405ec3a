//! T4: many parallel programs on one cluster (Tsai 5.5.6, Figures 5.9 and 5.10).
//!
//! A program has a task on each of 16 hosts. In an iteration each task needs its own amount of CPU, and the next one begins
//! when all have had theirs. A host gives its CPU to the tasks that are not waiting, in proportion to their shares: the
//! scheduler is work-conserving, unless shares are caps. Between two exchanges tasks run; then shares move (the bank of
//! `control::shares`), and tasks move from hosts that are fully booked.

use rand::RngExt;
use weal_control::shares::{excess, redistribute, shortage};

use crate::{Figure, Record, Reproduction, Setting, mean, near, within};
use weal_rng as random;

const HOSTS: usize = 16;
/// Iterations of each program: enough for shares and places to settle.
const ITERATIONS: u32 = 200;
/// Seconds between two exchanges, as in 5.5.4.
const EXCHANGE_S: f64 = 5.0;

#[derive(Clone, Copy, PartialEq)]
struct Policy {
    exchange: bool,
    migration: bool,
    /// A task never gets more than its share.
    caps: bool,
}

const PLAIN: Policy = Policy { exchange: false, migration: false, caps: false };
const EXCHANGE: Policy = Policy { exchange: true, ..PLAIN };
const MIGRATION: Policy = Policy { migration: true, ..EXCHANGE };

struct Task {
    program: usize,
    host: usize,
    share: f64,
    /// Seconds of CPU per iteration.
    demand_s: f64,
    /// Seconds of CPU until it waits; 0 while it waits.
    left_s: f64,
    /// CPU used since the last exchange.
    used_s: f64,
}

struct Cluster {
    now_s: f64,
    policy: Policy,
    tasks: Vec<Task>,
    /// Tasks that run, and iterations to go, of each program.
    busy: Vec<usize>,
    to_go: Vec<u32>,
    banks: Vec<f64>,
    done_s: Vec<f64>,
}

impl Cluster {
    fn new(demands: &[[f64; HOSTS]], share: f64, policy: Policy) -> Self {
        let tasks = demands.iter().enumerate().flat_map(|(program, demands)| {
            let task =
                move |(host, &demand_s): (usize, &f64)| Task { program, host, share, demand_s, left_s: demand_s, used_s: 0.0 };
            demands.iter().enumerate().map(task)
        });
        let count = demands.len();
        Self {
            now_s: 0.0,
            policy,
            tasks: tasks.collect(),
            busy: vec![HOSTS; count],
            to_go: vec![ITERATIONS; count],
            banks: vec![0.0; count],
            done_s: vec![0.0; count],
        }
    }

    /// The mean response time of the programs.
    fn run(mut self) -> f64 {
        let mut exchange_s = EXCHANGE_S;
        while self.to_go.iter().any(|&left| left > 0) {
            let rates = self.rates();
            let ends = self.tasks.iter().zip(&rates).filter(|(task, _)| task.left_s > 0.0);
            let next_s = ends.map(|(task, rate)| task.left_s / rate).fold(f64::INFINITY, f64::min);
            let step_s = next_s.min(exchange_s - self.now_s);
            self.advance(step_s, &rates);
            if self.now_s >= exchange_s - 1e-9 {
                self.exchange();
                exchange_s += EXCHANGE_S;
            }
        }
        mean(&self.done_s)
    }

    fn rates(&self) -> Vec<f64> {
        let mut wanted = [0.0; HOSTS];
        let running = |task: &&Task| task.left_s > 0.0;
        self.tasks.iter().filter(running).for_each(|task| wanted[task.host] += task.share);
        let rate = |task: &Task| {
            let fair = task.share / wanted[task.host];
            if self.policy.caps { fair.min(task.share) } else { fair.min(1.0) }
        };
        self.tasks.iter().map(|task| if task.left_s > 0.0 { rate(task) } else { 0.0 }).collect()
    }

    fn advance(&mut self, step_s: f64, rates: &[f64]) {
        self.now_s += step_s;
        let mut through = Vec::new();
        for (task, rate) in self.tasks.iter_mut().zip(rates).filter(|(task, _)| task.left_s > 0.0) {
            task.left_s -= rate * step_s;
            task.used_s += rate * step_s;
            if task.left_s < 1e-9 {
                task.left_s = 0.0;
                self.busy[task.program] -= 1;
                if self.busy[task.program] == 0 {
                    through.push(task.program);
                }
            }
        }
        through.into_iter().for_each(|program| self.next_iteration(program));
    }

    fn next_iteration(&mut self, program: usize) {
        self.to_go[program] -= 1;
        if self.to_go[program] == 0 {
            self.done_s[program] = self.now_s;
            return;
        }
        self.busy[program] = HOSTS;
        self.tasks.iter_mut().filter(|task| task.program == program).for_each(|task| task.left_s = task.demand_s);
    }

    fn exchange(&mut self) {
        if self.policy.exchange {
            (0..self.banks.len())
                .filter(|&program| self.to_go[program] > 0)
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|p| self.settle(p));
        }
        if self.policy.migration {
            self.migrate();
        }
        self.tasks.iter_mut().for_each(|task| task.used_s = 0.0);
    }

    /// Shares booked on each host by programs that still run.
    fn booked(&self) -> [f64; HOSTS] {
        let mut booked = [0.0; HOSTS];
        let running = self.tasks.iter().filter(|task| self.to_go[task.program] > 0);
        running.for_each(|task| booked[task.host] += task.share);
        booked
    }

    /// One program's bank-assisted exchange (5.3.4).
    fn settle(&mut self, program: usize) {
        let mut room = self.booked().map(|booked| (1.0 - booked).max(0.0));
        let own: Vec<usize> = (0..self.tasks.len()).filter(|&t| self.tasks[t].program == program).collect();
        let (mut spare, mut lacking) = (0.0, Vec::new());
        for &t in &own {
            let task = &mut self.tasks[t];
            let used = task.used_s / EXCHANGE_S;
            lacking.push(shortage(task.share, used, room[task.host]));
            let excess = excess(task.share, used);
            (task.share, room[task.host]) = (task.share - excess, room[task.host] + excess);
            spare += excess;
        }
        let shares: Vec<f64> = own.iter().map(|&t| self.tasks[t].share).collect();
        let given = redistribute(self.banks[program] + spare, &lacking, &shares);
        self.banks[program] = 0.0;
        for (&t, given) in own.iter().zip(given) {
            let host = self.tasks[t].host;
            let taken = given.min(room[host]);
            self.tasks[t].share += taken;
            room[host] -= taken;
            self.banks[program] += given - taken;
        }
    }

    /// The least-utilized task of each fully booked host goes to the least-utilized host, if it is less used with it than the
    /// other one was (5.2.2).
    fn migrate(&mut self) {
        let mut used = [0.0; HOSTS];
        let running = |task: &Task, to_go: &[u32]| to_go[task.program] > 0;
        self.tasks.iter().filter(|task| running(task, &self.to_go)).for_each(|task| used[task.host] += task.used_s / EXCHANGE_S);
        let booked = self.booked();
        for host in (0..HOSTS).filter(|&host| booked[host] >= 1.0 - 1e-3) {
            let here = (0..self.tasks.len()).filter(|&t| self.tasks[t].host == host && running(&self.tasks[t], &self.to_go));
            let Some(t) = here.min_by(|&a, &b| self.tasks[a].used_s.total_cmp(&self.tasks[b].used_s)) else { continue };
            let target = (0..HOSTS).min_by(|&a, &b| used[a].total_cmp(&used[b])).expect("there are hosts");
            let moved = self.tasks[t].used_s / EXCHANGE_S;
            if used[target] + moved < used[host] {
                (used[target], used[host]) = (used[target] + moved, used[host] - moved);
                self.tasks[t].host = target;
            }
        }
    }
}

/// Each program's demands: uniform from 10 to 100 ms per iteration and task.
fn demands(programs: usize, seed: u64) -> Vec<[f64; HOSTS]> {
    let mut rng = random::stream(seed, "demands");
    (0..programs).map(|_| std::array::from_fn(|_| 0.01 + 0.09 * rng.random::<f64>())).collect()
}

/// The mean response time over that of the same programs each alone on the cluster.
fn slowdown(programs: usize, seed: u64, share: f64, policy: Policy) -> f64 {
    let demands = demands(programs, seed);
    let alone = |demands: &[f64; HOSTS]| f64::from(ITERATIONS) * demands.iter().copied().fold(0.0, f64::max);
    let dedicated: Vec<f64> = demands.iter().map(alone).collect();
    Cluster::new(&demands, share, policy).run() / mean(&dedicated)
}

pub(super) fn programs(setting: &Setting) -> Reproduction {
    let seeds = setting.pick(20, 2);
    let mut record = Record::new(
        "T4",
        "Tsai 5.5.6, Figures 5.9-5.10",
        "17 programs at once take roughly ten times as long as one; share exchange cuts the response time by up to 15% at 10 programs; with all CPU booked it speeds up 3 programs by 34%",
        &format!("16 hosts, programs of 16 tasks, 10-100 ms per iteration and task, share 0.1 each; {seeds} seeds from 1"),
    );
    record.assume("200 iterations; an exchange every 5 s; a migration takes no time; programs that are done leave");
    record.chose_late("the number of iterations");
    record.assume("the scheduler is an ideal work-conserving one: exchange alone gains little there, the gain comes from migration off fully booked hosts");
    let at = |programs: usize, policy: Policy| setting.seeds(seeds, |seed| slowdown(programs, seed, 0.1, policy));
    let row = record.mean("17 programs, no exchange: response time over the dedicated one", &at(17, PLAIN));
    row.recalculated(near(10.5, 0.05 * 10.5));
    let row = record.mean("17 programs, exchange: response time over the dedicated one", &at(17, EXCHANGE));
    row.paper(near(10.0, 0.5));
    let change = |programs: usize, policy: Policy| {
        let (with, without) = (at(programs, policy), at(programs, PLAIN));
        with.iter().zip(without).map(|(with, without)| 100.0 * (with / without - 1.0)).collect::<Vec<f64>>()
    };
    let at_ten = change(10, MIGRATION);
    let row = record.mean("10 programs, exchange with migration: change of the response time, %", &at_ten);
    row.recalculated(within(-100.0..=-12.0));
    let row = record.mean("10 programs, exchange alone: change of the response time, %", &change(10, EXCHANGE));
    row.paper(near(-15.0, 5.0));
    let capped = |policy: Policy| at(10, Policy { caps: true, ..policy });
    let (with, without) = (capped(EXCHANGE), capped(PLAIN));
    let by_caps: Vec<f64> = with.iter().zip(without).map(|(with, without)| 100.0 * (with / without - 1.0)).collect();
    record.mean("10 programs, exchange alone under caps: change, %", &by_caps);
    let counts: Vec<usize> = setting.pick(vec![1, 2, 4, 6, 8, 9, 10, 11, 12, 14, 17, 20], vec![1, 10, 17]);
    let mut overbooked = Figure::new(
        "figure-5.9",
        "response time over the dedicated one, share 0.1 each",
        ["programs", "times"],
        &["no exchange", "exchange", "exchange with migration"],
    );
    for &count in &counts {
        overbooked.row(count as f64, &[PLAIN, EXCHANGE, MIGRATION].map(|policy| mean(&at(count, policy))));
    }
    record.figure(overbooked);
    fully_booked(&mut record, setting, seeds);
    record.done()
}

/// Figure 5.10: however many programs, every CPU is fully booked.
fn fully_booked(record: &mut Record, setting: &Setting, seeds: u64) {
    let counts: Vec<usize> = setting.pick(vec![1, 2, 3, 4, 5, 6, 8, 10, 12], vec![2, 3, 8]);
    let title = "speed-up by exchange with migration, all CPU booked";
    let mut figure = Figure::new("figure-5.10", title, ["programs", "%"], &["work-conserving", "caps"]);
    let gain = |count: usize, caps: bool| {
        let of = |policy| setting.seeds(seeds, |seed| slowdown(count, seed, 1.0 / count as f64, Policy { caps, ..policy }));
        100.0 * (mean(&of(PLAIN)) / mean(&of(MIGRATION)) - 1.0)
    };
    for &count in &counts {
        figure.row(count as f64, &[gain(count, false), gain(count, true)]);
    }
    let best = |curve: usize| {
        figure
            .rows
            .iter()
            .filter_map(|row| Some((row.1[curve]?, row.0)))
            .fold((f64::NEG_INFINITY, 0.0), |a, b| if b.0 > a.0 { b } else { a })
    };
    let (work_conserving, caps) = (best(0), best(1));
    record.number("all booked, work-conserving: programs with the largest speed-up", work_conserving.1).paper(near(3.0, 0.0));
    record.number("all booked, work-conserving: largest speed-up, %", work_conserving.0).paper(near(34.0, 5.0));
    record.number("all booked, caps: programs with the largest speed-up", caps.1);
    record.number("all booked, caps: largest speed-up, %", caps.0);
    record.figure(figure);
}
