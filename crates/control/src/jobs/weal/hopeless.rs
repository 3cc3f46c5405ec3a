//! Which alternatives cannot win: most do not, and a look at those whom they change tells.

use super::{Changes, MARGIN, Scored, Search, TOLERANCE};
use crate::jobs::hypothetical::Prospect;
use weal_model::JobState;

/// What rounding may make of a utility: a bound that is closer than this to what it excludes does not exclude it.
const ROUNDING: f64 = 1e-9;

impl Search<'_> {
    /// True when `changes` cannot lead to anything better than `base`, even if they held up nobody but the jobs that change. It looks at
    /// those only, and most alternatives end here.
    pub(super) fn cannot_beat(&self, base: &Scored, changes: &Changes) -> bool {
        let jobs = self.situation.jobs;
        // Nobody is held up less than in the base, unless one that it suspends goes on.
        let goes_on = |(m, nodes): &(usize, Vec<usize>)| {
            jobs[*m].state == JobState::Running && base.layout[*m].is_empty() && !nodes.is_empty()
        };
        if changes.iter().any(goes_on) || !self.full_speed_remains(base, changes) {
            return false;
        }
        let speed = |m: usize, nodes: &[usize]| if nodes.is_empty() { 0.0 } else { self.whole_speed(m) };
        let more: f64 = changes.iter().map(|(m, nodes)| speed(*m, nodes) - speed(*m, &base.layout[*m])).sum();
        let before = |(m, _): &(usize, Vec<usize>)| {
            self.ahead().prospect(&jobs[*m], speed(*m, &base.layout[*m]), base.held_s[*m], base.wait_s[*m])
        };
        let before: Vec<Prospect> = changes.iter().map(before).collect();
        let after = |wait_s: &dyn Fn(usize) -> f64| -> Vec<Prospect> {
            let prospect = |(m, nodes): &(usize, Vec<usize>)| {
                let wait_s = if nodes.is_empty() { wait_s(*m) } else { 0.0 };
                self.ahead().prospect(&jobs[*m], speed(*m, nodes), self.held_alone_s(*m, nodes), wait_s)
            };
            changes.iter().map(prospect).collect()
        };
        // The later those go on whom it suspends, the less they ask for, and the less they gain.
        let loses = |latest: &[Prospect], soonest: &[Prospect]| {
            let Some((level, raise)) = base.forecast.ceiling(&before, latest, more) else { return false };
            let lost = changes.iter().map(|(m, _)| base.forecast.utilities[*m]).collect();
            let gained = soonest.iter().map(|prospect| prospect.utility(level + MARGIN)).collect();
            !may_beat(&base.sorted, lost, gained, raise)
        };
        if loses(&after(&|_| f64::INFINITY), &after(&|_| 0.0)) {
            return true;
        }
        if changes.iter().all(|(_, nodes)| !nodes.is_empty()) {
            return false;
        }
        // When they do is foreseen only where that tells nothing: it takes longest.
        let waits = self.waits_at_full_speed(base, changes);
        let wait = |m: usize| waits.iter().find(|(suspended, _)| *suspended == m).map_or(0.0, |(_, seconds)| *seconds);
        let exactly = after(&wait);
        loses(&exactly, &exactly)
    }

    /// How long those whom `changes` suspend wait when everyone else has full speed.
    fn waits_at_full_speed(&self, base: &Scored, changes: &Changes) -> Vec<(usize, f64)> {
        let (layout, speeds) = (base.with(changes.clone()), self.needs.iter().map(|needs| needs.max_speed).collect::<Vec<_>>());
        self.waits_of_suspended(changes, &layout, &speeds, &self.held_s(&layout))
    }

    /// True when everyone has full speed in `base` and with the changes too.
    fn full_speed_remains(&self, base: &Scored, changes: &Changes) -> bool {
        let mut free = base.free.clone();
        let room = |free: &[(f64, u64)]| free.iter().zip(self.situation.nodes).all(|(free, node)| free.0 >= -1e-9 * node.cpu);
        if !self.situation.apps.is_empty() || !room(&free) {
            return false;
        }
        for (m, nodes) in changes {
            self.give_back(&mut free, &base.layout[*m], *m);
            self.take(&mut free, nodes, *m);
        }
        room(&free)
    }
}

/// True unless it is certain that utilities are not better than `sorted` (ascending, [`Scored::better_than`]) when the values `lost`
/// become at most `gained` and the others rise by at most `raise`, which is less than [`TOLERANCE`].
fn may_beat(sorted: &[f64], mut lost: Vec<f64>, mut gained: Vec<f64>, raise: f64) -> bool {
    lost.sort_unstable_by(f64::total_cmp);
    gained.sort_unstable_by(f64::total_cmp);
    // Further down nobody is worse off than before, nor better by what counts.
    let lowest = [&lost, &gained].into_iter().filter_map(|values| values.first()).copied().fold(f64::INFINITY, f64::min);
    let from = &sorted[sorted.partition_point(|utility| *utility < lowest)..];
    let (mut lost, mut gained) = (lost.into_iter().peekable(), gained.into_iter().peekable());
    let mut kept = from.iter().filter(|&utility| lost.next_if_eq(utility).is_none()).map(|utility| utility + raise).peekable();
    let highest = std::iter::from_fn(|| match (kept.peek(), gained.peek()) {
        (Some(own), Some(new)) if new < own => gained.next(),
        (None, _) => gained.next(),
        _ => kept.next(),
    });
    let gains = highest.zip(from).map(|(mine, theirs)| mine - theirs);
    gains
        .map(|gain| (gain, gain.abs() - TOLERANCE))
        .find(|(gain, beyond)| *beyond > ROUNDING * -gain.signum())
        .is_some_and(|(gain, _)| gain > 0.0)
}
