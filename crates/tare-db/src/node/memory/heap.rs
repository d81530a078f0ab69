//! Tells the C library's allocator to give large blocks back to the kernel when they are freed.

/// Blocks of so many bytes get a mapping of their own.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 512 << 10;

/// Fixes the size from which a block is mapped by itself. Left alone, glibc raises it up to 32 MiB
/// as such blocks are freed (mallopt(3), M_MMAP_THRESHOLD), and then the holes that a dropped
/// memtable leaves in the heap stay in the resident set. Where the allocator is another, nothing is done.
pub(crate) fn tune() {
    #[cfg(target_env = "gnu")]
    {
        // JUSTIFICATION: mallopt(3) is the only way to say it, but for the environment of the process.
        // SAFETY: it takes two numbers and may be called at any time; what it returns says only
        // whether the parameter is known, and an unknown one changes nothing.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        }
    }
}

/// Has the allocator give back what it keeps of freed memory. It holds all its arenas up meanwhile,
/// for milliseconds.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        // JUSTIFICATION: malloc_trim(3) has no safe interface.
        // SAFETY: it takes a number, locks what it works on, and touches no memory that is in use.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
