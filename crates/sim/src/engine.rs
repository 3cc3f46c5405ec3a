//! The engine: a virtual clock and the events to come.
//!
//! Events are kept in a heap of four children a node, which is half as deep as a binary one and reads a cache line a level. Taking the
//! next event leaves its place open, and the next one entered goes there: most events enter exactly one other, which then costs one
//! walk down the heap instead of two.

/// Events in order of time; of the same time, in the order in which they were entered, so that runs can be repeated.
#[derive(Debug, Clone)]
pub struct Agenda<E> {
    now_s: f64,
    entered: u64,
    /// Invariant: no entry comes before its parent, except that the root is void while `open`.
    heap: Vec<Entry<E>>,
    open: bool,
}

/// Children a node of the heap.
const ARITY: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Entry<E> {
    /// The bits of a time that is not negative, which are in its order.
    at: u64,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    /// Both as one number: one comparison without a branch.
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.number)
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { now_s: 0.0, entered: 0, heap: Vec::new(), open: false }
    }
}

impl<E: Copy> Agenda<E> {
    /// The virtual time in seconds: that of the last event taken out.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Enters an event. One in the past happens now; one at no time (NaN) or never (infinity) is not entered.
    pub fn enter(&mut self, at_s: f64, event: E) {
        if !at_s.is_finite() {
            return;
        }
        // Adding zero makes a plus of a minus zero, whose bits would come last.
        let entry = Entry { at: (at_s.max(self.now_s) + 0.0).to_bits(), number: self.entered, event };
        self.entered += 1;
        if self.open {
            self.open = false;
            self.sink(entry);
        } else {
            self.heap.push(entry);
            self.rise(self.heap.len() - 1, entry);
        }
    }

    /// When the next event happens.
    pub fn next_s(&mut self) -> Option<f64> {
        self.close();
        self.heap.first().map(|entry| f64::from_bits(entry.at))
    }

    /// Takes the next event out and moves the clock to it.
    pub fn take(&mut self) -> Option<E> {
        self.close();
        let entry = self.heap.first()?;
        self.now_s = f64::from_bits(entry.at);
        let event = entry.event;
        self.open = true;
        Some(event)
    }

    /// Takes the next event out if it happens by `until_s`.
    pub fn take_until(&mut self, until_s: f64) -> Option<E> {
        self.next_s().filter(|&next| next <= until_s)?;
        self.take()
    }

    /// Events entered so far.
    pub fn entered(&self) -> u64 {
        self.entered
    }

    /// Fills the root's place with the last entry.
    fn close(&mut self) {
        if self.open {
            self.open = false;
            if let Some(last) = self.heap.pop().filter(|_| !self.heap.is_empty()) {
                self.sink(last);
            }
        }
    }

    fn rise(&mut self, mut at: usize, entry: Entry<E>) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent].key() <= entry.key() {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = entry;
    }

    /// Puts `entry` at the root, then down to where it belongs.
    fn sink(&mut self, entry: Entry<E>) {
        let (mut at, key) = (0, entry.key());
        loop {
            let first = at * ARITY + 1;
            if first >= self.heap.len() {
                break;
            }
            let (least, least_key) = match self.heap.get(first..first + ARITY) {
                Some([a, b, c, d]) => least_of_four([a.key(), b.key(), c.key(), d.key()]),
                _ => least_of(self.heap[first..].iter().map(Entry::key)),
            };
            if key <= least_key {
                break;
            }
            self.heap[at] = self.heap[first + least];
            at = first + least;
        }
        self.heap[at] = entry;
    }
}

/// Two rounds without a branch: which child is the least is a coin toss, which no processor predicts.
fn least_of_four(keys: [u128; ARITY]) -> (usize, u128) {
    let first = usize::from(keys[1] < keys[0]);
    let second = 2 + usize::from(keys[3] < keys[2]);
    let least = [first, second][usize::from(keys[second] < keys[first])];
    (least, keys[least])
}

fn least_of(keys: impl Iterator<Item = u128>) -> (usize, u128) {
    keys.enumerate().min_by_key(|&(_, key)| key).unwrap_or((0, u128::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_entry() {
        let mut agenda = Agenda::default();
        for (at, name) in [(2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b"), (f64::NAN, "never"), (f64::INFINITY, "never")] {
            agenda.enter(at, name);
        }
        let order: Vec<&str> = std::iter::from_fn(|| agenda.take()).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
        agenda.enter(0.0, "past");
        assert_eq!(agenda.take_until(1.0), None);
        assert_eq!((agenda.take(), agenda.now_s()), (Some("past"), 2.0));
    }

    proptest! {
        /// `Some` enters an event so much later than now, `None` takes one out; a sorted list does the same.
        #[test]
        fn an_agenda_does_what_a_sorted_list_does(steps in prop::collection::vec(prop::option::weighted(0.6, 0u32..20), 1..400)) {
            let (mut agenda, mut list) = (Agenda::default(), Vec::new());
            for (number, step) in steps.iter().enumerate() {
                match step {
                    Some(later) => {
                        let at_s = agenda.now_s() + f64::from(*later);
                        agenda.enter(at_s, number);
                        list.push((at_s, number));
                        list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                    }
                    None => {
                        let next = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(agenda.next_s(), next.map(|next| next.0));
                        prop_assert_eq!(agenda.take(), next.map(|next| next.1));
                    }
                }
            }
        }
    }
}
