//! Small pools to the end: is there any placement in which everybody has what `u` asks for?
//!
//! Branch and bound on how many instances of each application are on each node, each count between a lowest and a highest. The
//! relaxation puts the highest count everywhere, whatever memory that takes; a maximum flow says whether the loads can be had then. If
//! not, no placement of this branch will do. If so, and the instances that carry those loads keep all rules, they are the answer.
//! Otherwise some count is in the way of a rule, and it is branched on: at most one less, or at least as many.
//!
//! Bisection over `u` gives the highest utility of the worst off, to the tolerance, and with it a bound that is exact. The search is
//! complete; when it uses up its steps, it has said nothing about the utility that it was at, and the bound stays as it was.

use super::candidate::Candidate;
use super::max_flow::FlowNetwork;
use crate::placement::problem::Problem;
use crate::placement::problem::bound::Bound;
use crate::placement::problem::layout::Layout;

/// Pools with more than so many pairs of application and node are left alone: what they need grows exponentially.
pub(super) const PAIRS: usize = 64;

/// Relaxations that may be solved for one utility, and for all; each takes some microseconds. Of the tests' small problems, those with
/// up to 4 nodes and 4 applications need some dozens.
const FOR_ONE: u32 = 400;
const FOR_ALL: u32 = 2_000;

/// Raises the worst off as far as any placement can. Each relaxation takes a step of the budget.
///
/// Postcondition, if the steps suffice: no placement brings the worst off above `bound.utility`, and one that comes within the
/// tolerance was tried.
pub(super) fn raise_the_worst_off(
    problem: &Problem,
    bound: &mut Bound,
    flow: &mut FlowNetwork,
    best: &mut Candidate,
    budget: &mut u32,
) -> bool {
    let own = Counts::of(problem, &best.layout);
    if problem.apps.len() * problem.nodes.len() > PAIRS || own.broken_rule(problem).is_some() {
        return false;
    }
    let reachable = |m: usize| problem.apps[m].utility(bound.reach[m]).min(bound.common);
    let open = |m: &usize| best.utilities[*m] < reachable(*m) - problem.tolerance;
    let lowest = (0..problem.apps.len()).filter(open).map(|m| best.utilities[m]).min_by(f64::total_cmp);
    let Some(mut low) = lowest else { return false };
    let (mut high, mut left, mut raised) = (bound.common, FOR_ALL.min(*budget), false);
    let before = left;
    let mut u = high - 0.5 * problem.tolerance;
    while high - low > problem.tolerance && left > 0 {
        let want: Vec<f64> = problem.apps.iter().zip(&bound.reach).map(|(app, reach)| app.cpu_for(u).min(*reach)).collect();
        let mut search = Search { problem, flow, want, left: FOR_ONE.min(left), base: &best.layout };
        let given = search.left;
        let found = search.find(Range::of(problem, &best.layout));
        left -= given - search.left;
        match found {
            Verdict::Found(layout) => {
                low = u;
                let candidate = Candidate::of(problem, *layout, flow);
                if candidate.beats(best, problem.tolerance) {
                    (*best, raised) = (candidate, true);
                }
            }
            Verdict::None => high = u,
            Verdict::GaveUp => break,
        }
        u = 0.5 * (low + high);
    }
    bound.tighten(high);
    *budget -= before - left;
    raised
}

/// What a search came to.
enum Verdict {
    /// A placement in which everybody has what they want.
    Found(Box<Layout>),
    /// There is none.
    None,
    /// Its steps were used up.
    GaveUp,
}

/// A branch: the fewest and most instances of each application on each node.
#[derive(Clone)]
struct Range {
    least: Counts,
    most: Counts,
}

impl Range {
    // What may not be touched stays as in `layout`.
    fn of(problem: &Problem, layout: &Layout) -> Self {
        let now = Counts::of(problem, layout);
        let (mut least, mut most) = (now.clone(), now);
        for (m, app) in (0u32..).zip(&problem.apps) {
            for n in 0..problem.nodes.len() as u32 {
                let now = least.at(m, n);
                let kept = if app.manual { now } else { if app.pinned { now.min(app.current_on(n)) } else { 0 } };
                least.set(m, n, kept);
                let allowed = app.allows(n) && !app.manual;
                most.set(m, n, if allowed { app.per_node.min(app.instances.1).max(kept) } else { kept });
            }
        }
        Self { least, most }
    }

    // Lowers what is at most to what the rules leave beside what is at least; false when they leave nothing.
    fn narrow(&mut self, problem: &Problem) -> bool {
        for n in 0..problem.nodes.len() as u32 {
            let taken = self.least.memory_on(problem, n);
            let Some(free) = problem.nodes[n as usize].memory.checked_sub(taken) else { return false };
            for (m, app) in (0u32..).zip(&problem.apps) {
                let least = self.least.at(m, n);
                let more = free.checked_div(app.memory).map_or(u32::MAX, |more| more.min(u64::from(u32::MAX)) as u32);
                let crowded_out = app.apart.iter().any(|&other| self.least.at(other, n) > 0);
                let alone = app.together.iter().any(|&other| self.most.at(other, n) == 0);
                let most = if crowded_out || alone { 0 } else { self.most.at(m, n).min(least.saturating_add(more)) };
                if most < least {
                    return false;
                }
                self.most.set(m, n, most);
            }
        }
        (0u32..).zip(&problem.apps).all(|(m, app)| {
            let in_time = self.most.instances(m) >= app.instances.0 && self.most.nodes(m) >= app.nodes.0;
            in_time && self.least.instances(m) <= app.instances.1 && self.least.nodes(m) <= app.nodes.1
        })
    }
}

/// Instances of each application on each node.
#[derive(Clone)]
struct Counts {
    nodes: usize,
    of: Vec<u32>,
}

/// A rule that counts break, by what would have to change: one of these places.
enum Broken {
    /// Too many there.
    TooMany(Vec<(u32, u32)>),
    /// Too few there.
    TooFew(Vec<(u32, u32)>),
}

impl Counts {
    fn of(problem: &Problem, layout: &Layout) -> Self {
        let mut counts = Self { nodes: problem.nodes.len(), of: vec![0; problem.apps.len() * problem.nodes.len()] };
        for m in 0..problem.apps.len() as u32 {
            for &edge in layout.of_app(m) {
                let edge = layout.edge(edge);
                counts.set(m, edge.node, edge.count);
            }
        }
        counts
    }

    fn at(&self, m: u32, n: u32) -> u32 {
        self.of[m as usize * self.nodes + n as usize]
    }

    fn set(&mut self, m: u32, n: u32, count: u32) {
        self.of[m as usize * self.nodes + n as usize] = count;
    }

    fn row(&self, m: u32) -> &[u32] {
        &self.of[m as usize * self.nodes..(m as usize + 1) * self.nodes]
    }

    fn instances(&self, m: u32) -> u32 {
        self.row(m).iter().copied().fold(0, u32::saturating_add)
    }

    fn nodes(&self, m: u32) -> u32 {
        self.row(m).iter().filter(|&&count| count > 0).count() as u32
    }

    fn memory_on(&self, problem: &Problem, n: u32) -> u64 {
        let used = (0u32..).zip(&problem.apps).map(|(m, app)| app.memory.saturating_mul(u64::from(self.at(m, n))));
        used.fold(0, u64::saturating_add)
    }

    // The first rule that they break.
    fn broken_rule(&self, problem: &Problem) -> Option<Broken> {
        let apps = 0..problem.apps.len() as u32;
        for n in 0..self.nodes as u32 {
            if self.memory_on(problem, n) > problem.nodes[n as usize].memory {
                return Some(Broken::TooMany(apps.map(|m| (m, n)).collect()));
            }
        }
        for (m, app) in (0u32..).zip(&problem.apps) {
            let places: Vec<(u32, u32)> = (0..self.nodes as u32).map(|n| (m, n)).collect();
            if self.instances(m) > app.instances.1 || self.nodes(m) > app.nodes.1 {
                return Some(Broken::TooMany(places));
            }
            if self.instances(m) < app.instances.0 || self.nodes(m) < app.nodes.0 {
                return Some(Broken::TooFew(places));
            }
            for (_, n) in places.into_iter().filter(|&(m, n)| self.at(m, n) > 0) {
                if let Some(&other) = app.apart.iter().find(|&&other| self.at(other, n) > 0) {
                    return Some(Broken::TooMany(vec![(m, n), (other, n)]));
                }
                if let Some(&other) = app.together.iter().find(|&&other| self.at(other, n) == 0) {
                    return Some(Broken::TooFew(vec![(other, n)]));
                }
            }
        }
        None
    }
}

struct Search<'a> {
    problem: &'a Problem,
    flow: &'a mut FlowNetwork,
    want: Vec<f64>,
    left: u32,
    /// Where the search comes from: places that it has are filled first.
    base: &'a Layout,
}

impl Search<'_> {
    fn find(&mut self, mut range: Range) -> Verdict {
        if self.left == 0 {
            return Verdict::GaveUp;
        }
        if !range.narrow(self.problem) {
            return Verdict::None;
        }
        self.left -= 1;
        let mut relaxed = self.filled(&range.most);
        let all: Vec<u32> = (0..self.problem.apps.len() as u32).collect();
        if self.flow.saturate(self.problem, &mut relaxed, &self.want, &all) > 0.0 {
            return Verdict::None;
        }
        let counts = self.carrying(&range, &relaxed);
        let open = |&&(m, n): &&(u32, u32)| range.least.at(m, n) < range.most.at(m, n);
        let load = |m: u32, n: u32| relaxed.find(m, n).map_or(0.0, |edge| relaxed.edge(edge).load);
        match counts.broken_rule(self.problem) {
            None => Verdict::Found(Box::new(self.filled(&counts))),
            Some(Broken::TooMany(places)) => {
                // What carries least is the easiest to do without.
                let open = places.iter().filter(open).filter(|&&(m, n)| counts.at(m, n) > range.least.at(m, n));
                let Some(&(m, n)) = open.min_by(|a, b| load(a.0, a.1).total_cmp(&load(b.0, b.1))) else { return Verdict::None };
                self.branch(range, m, n, counts.at(m, n), false)
            }
            Some(Broken::TooFew(places)) => {
                let open = places.iter().filter(open).filter(|&&(m, n)| counts.at(m, n) < range.most.at(m, n));
                let Some(&(m, n)) = open.max_by_key(|&&(m, n)| (self.base.count(m, n), std::cmp::Reverse(n))) else {
                    return Verdict::None;
                };
                self.branch(range, m, n, counts.at(m, n) + 1, true)
            }
        }
    }

    // At least `count` instances of `m` on `n`, or less.
    fn branch(&mut self, range: Range, m: u32, n: u32, count: u32, more_first: bool) -> Verdict {
        let (mut more, mut less) = (range.clone(), range);
        more.least.set(m, n, count);
        less.most.set(m, n, count - 1);
        let (first, second) = if more_first { (more, less) } else { (less, more) };
        match self.find(first) {
            Verdict::None => self.find(second),
            verdict => verdict,
        }
    }

    // Every count as it says, places of the base first, since loads fill an application's places in order.
    fn filled(&self, counts: &Counts) -> Layout {
        let mut layout = Layout::empty(self.problem);
        for m in 0..self.problem.apps.len() as u32 {
            let nodes = 0..self.problem.nodes.len() as u32;
            let (known, new): (Vec<u32>, Vec<u32>) =
                nodes.filter(|&n| counts.at(m, n) > 0).partition(|&n| self.base.count(m, n) > 0);
            for n in known.into_iter().chain(new) {
                for _ in 0..counts.at(m, n) {
                    layout.add(self.problem, m, n);
                }
            }
        }
        layout
    }

    // As many instances as the loads need.
    fn carrying(&self, range: &Range, relaxed: &Layout) -> Counts {
        let (mut counts, eps) = (range.least.clone(), relaxed.epsilon());
        for (m, app) in (0u32..).zip(&self.problem.apps) {
            for &edge in relaxed.of_app(m) {
                let edge = relaxed.edge(edge);
                let needed = if edge.load <= eps { 0.0 } else { ((edge.load - eps) / app.instance_cpu).ceil().max(1.0) };
                counts.set(m, edge.node, (needed as u32).clamp(range.least.at(m, edge.node), range.most.at(m, edge.node)));
            }
        }
        counts
    }
}
