//! Flows over the last few cycles: one cycle of a slow flow holds too few requests to show.

use std::collections::{BTreeMap, VecDeque};

use weal_model::{FlowId, FlowObservation, Snapshot};

/// Seconds that status and metrics look back. Long enough for a stable p95 at a few requests per second, short enough to
/// follow the eye.
const SPAN_S: f64 = 10.0;

/// The last snapshots' flows.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<(f64, Vec<FlowObservation>)>);

/// One flow, over the span.
#[derive(Debug, Clone)]
pub(super) struct RecentFlow {
    pub flow: FlowObservation,
    /// Seconds that it covers.
    pub span_s: f64,
}

impl Recent {
    /// Takes the flows of one more cycle.
    pub fn handle_snapshot(&mut self, snapshot: &Snapshot) {
        if snapshot.flows.is_empty() {
            return;
        }
        self.0.push_back((snapshot.window_s, snapshot.flows.clone()));
        let mut span_s: f64 = self.0.iter().map(|(window_s, _)| window_s).sum();
        while self.0.len() > 1 && span_s - self.0[0].0 >= SPAN_S {
            span_s -= self.0[0].0;
            self.0.pop_front();
        }
    }

    /// Each flow that was seen, over the windows that it was seen in.
    pub fn flows(&self) -> BTreeMap<FlowId, RecentFlow> {
        let mut flows = BTreeMap::<FlowId, RecentFlow>::new();
        for (window_s, seen) in &self.0 {
            for flow in seen {
                flows.entry(flow.id.clone()).or_insert_with(|| RecentFlow::empty(flow.id.clone())).extend(flow, *window_s);
            }
        }
        flows
    }
}

impl RecentFlow {
    pub fn empty(id: FlowId) -> Self {
        Self { flow: FlowObservation::empty(id), span_s: 0.0 }
    }

    fn extend(&mut self, next: &FlowObservation, window_s: f64) {
        self.flow.extend(self.span_s, next, window_s);
        self.span_s += window_s;
    }

    /// A count as a rate per second.
    pub fn per_s(&self, count: u64) -> f64 {
        if self.span_s > 0.0 { count as f64 / self.span_s } else { 0.0 }
    }
}
