//! The virtual clock and its event heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events in order of time; of the same time, in the order in which they were entered, so that runs can be repeated.
#[derive(Debug, Clone)]
pub struct Calendar<E> {
    now_s: f64,
    entered: u64,
    heap: BinaryHeap<Entry<E>>,
}

#[derive(Debug, Clone)]
struct Entry<E> {
    at_s: f64,
    number: u64,
    event: E,
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self { now_s: 0.0, entered: 0, heap: BinaryHeap::new() }
    }
}

impl<E> Calendar<E> {
    /// The virtual time in seconds: that of the last event taken out.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Enters an event. One in the past happens now; one at no time (NaN) or never (infinity) is not entered.
    pub fn enter(&mut self, at_s: f64, event: E) {
        if at_s.is_finite() {
            self.heap.push(Entry { at_s: at_s.max(self.now_s), number: self.entered, event });
            self.entered += 1;
        }
    }

    /// When the next event happens.
    pub fn next_s(&self) -> Option<f64> {
        self.heap.peek().map(|entry| entry.at_s)
    }

    /// Takes the next event out and moves the clock to it.
    pub fn take(&mut self) -> Option<E> {
        let entry = self.heap.pop()?;
        self.now_s = entry.at_s;
        Some(entry.event)
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_s.total_cmp(&self.at_s).then(other.number.cmp(&self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_entry() {
        let mut calendar = Calendar::default();
        for (at, name) in [(2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b"), (f64::NAN, "never"), (f64::INFINITY, "never")] {
            calendar.enter(at, name);
        }
        let order: Vec<&str> = std::iter::from_fn(|| calendar.take()).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
        calendar.enter(0.0, "past");
        assert_eq!((calendar.take(), calendar.now_s()), (Some("past"), 2.0));
    }
}
