//! How much CPU helps a run, as its own use shows it.
//!
//! A job says how much CPU helps it, and many say nothing or too much: one thread uses one core at most, and what reads a disk uses less
//! (Carrera 5.7 runs Lucene at 0.6 CPU). CPU that a job is given in vain is missing elsewhere, and its end is expected too soon. A share is no
//! limit, so a run uses what it can wherever its nodes have room and no limit holds it back. With `u` the CPU of a task over a span of [`SPAN`]:
//!
//! ```text
//! nothing held it back   usable = MARGIN * the largest u of the last SPANS spans
//! otherwise              usable = max(usable, MARGIN * u)      a full node and a limit tell only what it can use at least
//! ```
//!
//! So too low a value mends itself with the next span. A job of one phase begins with what is known of an earlier run of the same command, and each
//! later phase without any.

use std::collections::VecDeque;
use std::time::Duration;

use weal_model::{Cpu, NodeName, Time};
use weal_protocol::engine::NodeSeen;

/// Over less than this, how a job begins and how it is scheduled tells more than what it can use.
const SPAN: Duration = Duration::from_secs(10);
/// Spans that count: a job that waits for something now and then is not taken for slow.
const SPANS: usize = 3;
/// What a task may use beyond what it was seen to use: enough to show that it can use more.
const MARGIN: f64 = 1.25;
/// The least that a task is taken to use: one that sleeps may wake.
const LEAST: f64 = 0.05;
/// A node that is fuller than this, or a limit of which more is used, may have held somebody back.
const FULL: f64 = 0.9;

/// What is known of a run.
#[derive(Debug, Default, Clone, PartialEq)]
pub(in super::super) struct Usable {
    /// The phase that it is known of.
    stage: usize,
    began: Option<Begun>,
    /// CPU of each of the last spans in which nothing held it back.
    free: VecDeque<f64>,
    /// Cores a task.
    speed: Option<f64>,
}

/// A span that is not over.
#[derive(Debug, Clone, PartialEq)]
struct Begun {
    at: Time,
    used: f64,
    /// CPU-seconds of each of its nodes.
    nodes: Vec<(NodeName, f64)>,
    /// The lowest limit of a task, in cores, that was in force since.
    limit: f64,
}

impl Usable {
    /// The most cores that a task was seen to use, and a quarter more; `None` while nothing shows it.
    pub fn known(&self) -> Option<f64> {
        self.speed
    }

    /// What is known of a task before it runs: what helped an earlier run of the same command.
    pub fn expected(speed: Option<f64>) -> Self {
        Self { speed, ..Self::default() }
    }

    /// The most cores that help a task, of one that says `stated`.
    pub fn of(&self, stated: f64) -> f64 {
        self.speed.map_or(stated, |speed| speed.max(LEAST).min(stated))
    }

    /// A run in phase `stage` on the nodes `at` runs, and each of its tasks has used `used` CPU-seconds, and may use `limit` cores.
    pub fn handle_seen(
        &mut self,
        now: Time,
        (stage, used): (usize, f64),
        limit: Option<Cpu>,
        at: &[NodeName],
        nodes: &[NodeSeen],
    ) {
        if stage != self.stage {
            *self = Self { stage, ..Self::default() };
        }
        let here: Vec<&NodeSeen> = nodes.iter().filter(|node| at.contains(&node.name)).collect();
        let limit = limit.map_or(f64::INFINITY, |limit| limit.0);
        let nodes = || here.iter().map(|node| (node.name.clone(), node.cpu_seconds)).collect();
        let begin = || Begun { at: now, used, nodes: nodes(), limit };
        let begun = self.began.get_or_insert_with(begin);
        begun.limit = begun.limit.min(limit);
        let Some(begun) = begun.clone().over(now) else { return };
        let seconds = now.since(begun.at).as_secs_f64();
        let rate = (used - begun.used).max(0.0) / seconds;
        self.take(rate, rate < FULL * begun.limit && begun.had_room(seconds, &here));
        self.began = Some(begin());
    }

    /// It stands still, or begins: the span that has begun tells nothing.
    pub fn handle_still(&mut self) {
        self.began = None;
    }

    fn take(&mut self, rate: f64, was_free: bool) {
        if !was_free {
            self.speed = self.speed.map(|speed| speed.max(MARGIN * rate));
            return;
        }
        self.free.push_back(rate);
        if self.free.len() > SPANS {
            self.free.pop_front();
        }
        self.speed = self.free.iter().copied().reduce(f64::max).map(|most| MARGIN * most);
    }
}

impl Begun {
    fn over(self, now: Time) -> Option<Self> {
        (now.since(self.at) >= SPAN).then_some(self)
    }

    /// Whether none of the nodes was full; one that cannot be measured may have been.
    fn had_room(&self, seconds: f64, nodes: &[&NodeSeen]) -> bool {
        let has_room = |node: &&NodeSeen| {
            let before = self.nodes.iter().find(|(name, _)| *name == node.name).map_or(f64::NAN, |(_, used)| *used);
            (node.cpu_seconds - before) / seconds < FULL * node.cpu_capacity.0
        };
        !nodes.is_empty() && nodes.iter().all(has_room)
    }
}

#[cfg(test)]
mod tests {
    use weal_model::Bytes;

    use super::*;

    fn after(spans: &[(f64, f64)]) -> Vec<f64> {
        after_limited(None, spans)
    }

    /// What is known after each of some spans, in which a task used so many cores and its node of two cores so many.
    fn after_limited(limit: Option<Cpu>, spans: &[(f64, f64)]) -> Vec<f64> {
        let (mut usable, mut used, mut of_node) = (Usable::default(), 0.0, 100.0);
        let look = |usable: &mut Usable, second: u64, used: f64, of_node: f64| {
            let node = NodeSeen {
                name: "n1".into(),
                up: true,
                cpu_capacity: Cpu(2.0),
                is_slice: false,
                memory_capacity: Bytes::gib(1),
                cpu_seconds: of_node,
                memory_used: Bytes(0),
                cpu_pressure_seconds: None,
                memory_reserve: Bytes(0),
                parked_for_reserve: 0,
            };
            usable.handle_seen(Time(second * 1_000_000_000), (0, used), limit, &["n1".into()], &[node]);
        };
        look(&mut usable, 0, used, of_node);
        let mut known = Vec::new();
        for (span, (task, node)) in (1u64..).zip(spans) {
            (used, of_node) = (used + 10.0 * task, of_node + 10.0 * node);
            look(&mut usable, 10 * span, used, of_node);
            known.push((usable.of(4.0) * 1e6).round() / 1e6);
        }
        known
    }

    #[test]
    fn what_a_task_uses_beside_room_is_all_that_helps_it() {
        assert_eq!(after(&[(0.6, 1.0)]), [0.75], "as Lucene in Carrera's table 5.6");
        assert_eq!(after(&[(0.0, 0.1)]), [0.05], "one that sleeps");
        assert_eq!(after(&[(0.8, 1.0), (0.2, 0.4), (0.2, 0.4), (0.2, 0.4)]), [1.0, 1.0, 1.0, 0.25], "a pause is no slowness");
    }

    #[test]
    fn a_full_node_tells_only_what_can_be_used_at_least() {
        assert_eq!(after(&[(0.3, 2.0)]), [4.0], "others may have held it back");
        assert_eq!(after(&[(0.4, 1.0), (1.2, 2.0), (0.4, 2.0)]), [0.5, 1.5, 1.5], "too low a value mends itself");
    }

    #[test]
    fn a_limit_that_is_used_up_tells_only_what_can_be_used_at_least() {
        let limit = Some(Cpu(0.5));
        assert_eq!(after_limited(limit, &[(0.48, 1.0)]), [4.0], "the limit may have held it back");
        assert_eq!(after_limited(limit, &[(0.3, 1.0)]), [0.375], "it could have used more");
    }

    #[test]
    fn each_phase_begins_anew_and_no_span_goes_over_a_pause() {
        let mut usable = Usable { speed: Some(0.5), ..Usable::default() };
        assert_eq!((usable.of(2.0), usable.of(0.01)), (0.5, 0.01));
        usable.handle_seen(Time(0), (1, 0.0), None, &["n1".into()], &[]);
        assert_eq!(usable.of(2.0), 2.0);
        usable.handle_still();
        assert_eq!(usable.began, None);
    }
}
