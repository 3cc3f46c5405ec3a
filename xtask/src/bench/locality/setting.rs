//! How large everything is.

/// Servers, as in the thesis.
pub const SERVERS: usize = 4;
/// Files of each server, and the size of one.
pub const FILES: usize = 2000;
pub const FILE_BYTES: usize = 64 << 10;
/// What one server can cache: more than a quarter of all files, less than all.
pub const CACHE_BYTES: u64 = 56 << 20;
/// What one server reads from its disk.
pub const DISK_BYTES_PER_S: u64 = 6 << 20;
