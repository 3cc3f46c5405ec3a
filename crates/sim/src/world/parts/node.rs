//! Nodes, and the links that requests leave them through.

use weal_model::{Bytes, NodeName};

use super::processor::Processor;

/// A node.
pub struct Node {
    pub name: NodeName,
    pub processor: Processor,
    pub up: bool,
    /// Memory that is to be free on it.
    pub reserve: Bytes,
    /// Instances that were parked for it.
    pub parked_for_reserve: u64,
    /// Counts its [`Event::Node`]s.
    pub version: u64,
    /// Its next change was not entered yet.
    pub dirty: bool,
}

/// What requests, calls and answers leave a machine through, if that takes time: its work is seconds at full bandwidth, and its one tenant
/// all that is under way.
pub struct Link {
    pub processor: Processor,
    /// Counts its [`Event::Link`]s.
    pub version: u64,
}
