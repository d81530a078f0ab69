//! Makes the C library's allocator return large freed blocks to the kernel.

/// Blocks of at least this size get a mapping of their own.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 512 << 10;

/// Fixes the size from which a block has its own mapping. By default glibc raises it up to 32 MiB
/// as such blocks are freed (mallopt(3), M_MMAP_THRESHOLD), and then the holes that a dropped
/// memtable leaves in the heap stay resident. With another allocator this does nothing.
pub(crate) fn tune() {
    #[cfg(target_env = "gnu")]
    {
        // JUSTIFICATION: apart from environment variables, mallopt(3) is the only way to set it.
        // SAFETY: it takes two numbers and may be called at any time; what it returns says only
        // whether the parameter is known, and an unknown one changes nothing.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        }
    }
}

/// Makes the allocator return its free memory. This blocks all its arenas for milliseconds.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    {
        // JUSTIFICATION: malloc_trim(3) has no safe interface.
        // SAFETY: it takes a number, locks what it works on, and touches no memory that is in use.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
