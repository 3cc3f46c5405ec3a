//! The memory that this process' allocator keeps beyond what is in use.

/// Lets all threads of this process allocate from one heap. glibc gives each new thread a heap of its own otherwise, up to eight for each core.
/// Each of them grows to the most that a thread ever needed at a time, and work that goes from thread to thread makes all of them grow. Their
/// threads wait for each other instead: for a process that allocates a lot at a time, such as a gateway, that costs more than the memory.
///
/// A heap that a thread has already stays its own, so call it before there is a second thread. Does nothing with another allocator than glibc's.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time and by any thread, and changes nothing that is allocated.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

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

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use std::ffi::CStr;
    use std::sync::Barrier;

    use super::*;

    /// More than there are heaps by default on two cores.
    const THREADS: usize = 40;

    /// How many heaps there are, as the allocator tells.
    fn heaps() -> usize {
        let (mut text, mut length) = (std::ptr::null_mut(), 0);
        // SAFETY: the stream writes to `text` and `length`, which outlive it. Closed, it leaves a string that is freed once.
        unsafe {
            let stream = libc::open_memstream(&raw mut text, &raw mut length);
            assert!(!stream.is_null());
            assert_eq!(libc::malloc_info(0, stream), 0);
            assert_eq!(libc::fclose(stream), 0);
            let count = CStr::from_ptr(text).to_str().unwrap().matches("<heap nr=").count();
            libc::free(text.cast());
            count
        }
    }

    #[test]
    fn threads_that_allocate_at_a_time_get_no_heaps_of_their_own() {
        share_heap();
        let (before, all_have) = (heaps(), Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let allocated = vec![0u8; 4096];
                    all_have.wait();
                    drop(allocated);
                });
            }
        });
        assert_eq!(heaps(), before);
    }
}
