//! Memory that was freed and not given back.

/// Gives memory that this process has freed back to the system. Allocators keep it for later, which after
/// loading a model may be megabytes that never come to use again. Takes milliseconds; does nothing where the
/// allocator knows no such thing.
pub fn release_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function may be called at any time from any thread; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
