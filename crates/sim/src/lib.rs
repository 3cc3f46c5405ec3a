//! Virtual time: workloads, faults and oracles that run `weal_control` unchanged.

pub mod report;
