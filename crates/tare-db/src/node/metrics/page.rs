//! Maps a file as shared atomic words.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Maps `length` bytes of a file, a multiple of the page size, for the life of the process.
pub(super) fn map(file: &File, length: usize) -> io::Result<&'static [AtomicU64]> {
    // JUSTIFICATION: a mapping that readers see as a plain file is the only way to publish a
    // counter at every iteration of the loop without a system call.
    // SAFETY: the kernel chooses the place; the mapping is page aligned, as long as asked, backed
    // by blocks that the caller has written, and never unmapped; others that map or read the
    // file see plain memory, and this process reaches it through atomics only.
    unsafe {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let address = mmap(std::ptr::null_mut(), length, flags, MapFlags::SHARED, file, 0)?;
        Ok(std::slice::from_raw_parts(address.cast::<AtomicU64>(), length / 8))
    }
}
