//! What a request really costs, learnt from snapshots.
