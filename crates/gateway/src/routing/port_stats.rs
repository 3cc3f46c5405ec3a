//! What passes through a cluster's ports, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use weal_protocol::gateway::PortCounters;

/// Counters of one cluster.
#[derive(Debug, Default)]
pub(crate) struct PortStats {
    open: AtomicU64,
    total: AtomicU64,
    refused: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    dropped: AtomicU64,
}

/// Something open, until this is dropped.
#[derive(Debug)]
pub(crate) struct Open<'a>(&'a AtomicU64);

impl PortStats {
    /// A connection or session has reached its instance.
    pub fn open(&self) -> Open<'_> {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(&self.open)
    }

    pub fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_in(&self, bytes: usize) {
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn note_out(&self, bytes: usize) {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// For whoever counts many bytes.
    pub fn bytes_in(&self) -> &AtomicU64 {
        &self.bytes_in
    }

    /// The same for bytes to clients.
    pub fn bytes_out(&self) -> &AtomicU64 {
        &self.bytes_out
    }

    pub fn counters(&self) -> PortCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PortCounters {
            open: read(&self.open),
            total: read(&self.total),
            refused: read(&self.refused),
            bytes_in: read(&self.bytes_in),
            bytes_out: read(&self.bytes_out),
            dropped: read(&self.dropped),
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
