//! Queueing models: what a share of CPU means for response time and throughput.
