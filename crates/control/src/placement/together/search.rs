//! From a placement to a better one: for each that could be better off, the worst off first, a place or another one, and for those that
//! are in its way another place or none. The first step that is better is taken, and all are tried again until none is.

use std::collections::BTreeSet;

use super::moves::{Move, Party, Place};
use super::pool::{Judged, Placing, Pool, places};

/// In pools with at most so many pairs of node and job or application, two may leave for a third. More take the square of that.
const PAIRS: usize = 64;
/// In larger pools, so many of those that could be better off are helped, the worst off first, and those in their way go to so many other nodes.
const HELPED: usize = 16;
const TARGETS: usize = 3;
/// So many placements are judged at most and at least. One takes some 40 microseconds in the smallest pools, and grows with the square of what
/// there is to place: so a search takes some 20 milliseconds.
const MOST_JUDGED: usize = 600;
const LEAST_JUDGED: usize = 4;
const WORK: usize = 60_000;

/// The best placement that is found from `start`.
pub(super) fn improve(pool: &Pool, start: Judged) -> Judged {
    let size = pool.jobs.len() + pool.problem.apps.len() + pool.problem.nodes.len();
    let pairs = (pool.jobs.len() + pool.problem.apps.len()) * pool.problem.nodes.len();
    let mut search = Search {
        pool,
        is_small: pairs <= PAIRS,
        seen: BTreeSet::from([key(&start.placing)]),
        left: (WORK / (size * size).max(1)).clamp(LEAST_JUDGED, MOST_JUDGED),
        best: start.clone(),
    };
    while let Some(better) = search.first_better() {
        search.best = better;
    }
    // Each step is better than the one before, within the tolerance; only if the last is better than the first is it no walk in a circle.
    if search.best.beats(&start, pool) { search.best } else { start }
}

struct Search<'a> {
    pool: &'a Pool<'a>,
    is_small: bool,
    /// Placements that were judged: none is twice.
    seen: BTreeSet<Vec<u32>>,
    /// How many may still be judged.
    left: usize,
    best: Judged,
}

impl Search<'_> {
    fn first_better(&mut self) -> Option<Judged> {
        let (placing, free) = (self.best.placing.clone(), self.pool.free(&self.best.placing));
        for who in self.needy() {
            for (own, at) in self.pool.openings(&placing, &free, who) {
                for moves in self.steps(&placing, &free, who, own, at) {
                    if self.left == 0 {
                        return None;
                    }
                    if let Some(better) = self.tried(&placing, &free, &moves) {
                        return Some(better);
                    }
                }
            }
        }
        None
    }

    /// What moves lead to, if that is new and better.
    fn tried(&mut self, placing: &Placing, free: &[i128], moves: &[Move]) -> Option<Judged> {
        if !self.pool.may_fit(placing, free, moves) {
            return None;
        }
        let next = self.pool.moved(placing, moves)?;
        if !self.seen.insert(key(&next)) {
            return None;
        }
        self.left -= 1;
        let judged = self.pool.judge(next);
        judged.beats(&self.best, self.pool).then_some(judged)
    }

    /// Those that could be better off, the worst off first. Of jobs that are equally badly off, those of a higher priority come first, then the more urgent.
    fn needy(&self) -> Vec<Party> {
        let (pool, utilities) = (self.pool, &self.best.utilities);
        let jobs = (0..pool.jobs.len()).filter(|&m| pool.may_run(&pool.jobs[m]));
        let jobs = jobs.map(|m| (Party::Job(m), pool.jobs[m].max_utility(pool.now_s), utilities[m], pool.jobs[m].priority));
        let apps = (0u32..).zip(&pool.problem.apps).filter(|(m, app)| !app.manual && pool.measured[*m as usize]);
        let apps = apps.map(|(m, app)| (Party::App(m), app.best(), utilities[pool.jobs.len() + m as usize], 0));
        let could_gain = |one: &(Party, f64, f64, i32)| one.2 < one.1 - pool.problem.tolerance;
        let mut needy: Vec<(Party, f64, f64, i32)> = jobs.chain(apps).filter(could_gain).collect();
        needy.sort_by(|a, b| a.2.total_cmp(&b.2).then(b.3.cmp(&a.3)).then(a.1.total_cmp(&b.1)));
        let most = if self.is_small { usize::MAX } else { HELPED };
        needy.into_iter().take(most).map(|one| one.0).collect()
    }

    /// The steps around one opening, the smallest first: nobody else, one other, as many others as it takes, two others.
    fn steps(&self, placing: &Placing, free: &[i128], who: Party, own: Option<Move>, at: Option<usize>) -> Vec<Vec<Move>> {
        let targets = if self.is_small { usize::MAX } else { TARGETS };
        let departures = self.pool.departures(placing, free, at, who, targets);
        let with = |others: &[Move]| -> Vec<Move> { own.into_iter().chain(others.iter().copied()).collect() };
        let mut steps: Vec<Vec<Move>> = own.iter().map(|one| vec![*one]).collect();
        steps.extend(departures.iter().map(|one| with(&[*one])));
        steps.extend(self.cleared(placing, free, own, &departures));
        if self.is_small {
            let anywhere = self.pool.departures(placing, free, None, who, targets);
            for (i, first) in departures.iter().enumerate() {
                let same = |other: &Move| (other.who, other.from) == (first.who, first.from);
                let known = |other: &Move| {
                    departures[..i].iter().any(|one| (one.who, one.from, one.to) == (other.who, other.from, other.to))
                };
                steps.extend(anywhere.iter().filter(|other| !same(other) && !known(other)).map(|other| with(&[*first, *other])));
            }
        }
        steps
    }

    /// As many leave as it takes to make room, those that are best off first.
    fn cleared(&self, placing: &Placing, free: &[i128], own: Option<Move>, departures: &[Move]) -> Option<Vec<Move>> {
        let own = own?;
        let mut leaving: Vec<Move> = departures.iter().copied().filter(|one| one.to == Place::Nowhere).collect();
        leaving.sort_by(|a, b| self.utility(b.who).total_cmp(&self.utility(a.who)));
        let mut moves = vec![own];
        for one in leaving {
            moves.push(one);
            let has_room = match own.to {
                Place::Gang => self.pool.moved(placing, &moves).is_some(),
                _ => self.pool.may_fit(placing, free, &moves),
            };
            if has_room {
                return (moves.len() > 2).then_some(moves);
            }
        }
        None
    }

    fn utility(&self, who: Party) -> f64 {
        match who {
            Party::Job(m) => self.best.utilities[m],
            Party::App(m) => self.best.utilities[self.pool.jobs.len() + m as usize],
        }
    }
}

/// A placement in numbers.
fn key(placing: &Placing) -> Vec<u32> {
    let instances = places(&placing.layout).into_iter().flat_map(|(m, n, count)| [m, n, count]);
    let runs = placing.runs.iter().flat_map(|nodes| nodes.iter().map(|&n| n as u32).chain([u32::MAX]));
    instances.chain([u32::MAX]).chain(runs).collect()
}
