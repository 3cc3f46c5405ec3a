//! What this process has freed and its allocator keeps.

/// Hands memory that the process has freed back to the machine. An allocator keeps it otherwise, for allocations to come: what ten thousand
/// clients needed for a moment would count as this process' for ever. It takes some milliseconds for each 100 MiB, in which allocations of
/// other threads wait. Does nothing with an allocator that cannot be asked: only that of glibc can.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time and by any thread, and changes nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}
