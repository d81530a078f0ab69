//! The two uses of raw memory: an io_uring whose buffers the kernel reads and writes, and
//! mincore(2), which reports the pages of a file in the page cache.
//!
//! The ring owns one aligned block of memory, cut into slots. A slot belongs to the kernel from
//! `submit` until its completion is reaped; dropping a ring with slots under way leaks the memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use tare_std::rng::Rng;

/// An alignment that satisfies direct I/O on every usual device (open(2), O_DIRECT).
pub(crate) const ALIGN: usize = 4096;

/// The most operations in flight.
pub(crate) const SLOTS_MAX: usize = 512;

pub(crate) struct Ring {
    ring: IoUring,
    memory: Vec<u8>,
    start: usize,
    usable: usize,
    in_flight: usize,
    stamp: u64,
}

impl Ring {
    /// Returns a ring with this many bytes of buffers. They are filled with random bytes, which no
    /// layer below can compress, and each write is stamped, which prevents deduplication.
    pub(crate) fn new(usable: usize, seed: u64) -> io::Result<Self> {
        let ring: IoUring = IoUring::builder().setup_cqsize(2048).build(1024)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::other("this io_uring has no timeouts (needs Linux 5.11)"));
        }
        let mut memory = vec![0; usable + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        let mut rng = Rng::new(seed);
        for word in memory.chunks_exact_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_ne_bytes());
        }
        Ok(Self { ring, memory, start, usable, in_flight: 0, stamp: seed })
    }

    /// Returns how many slots of this size there are.
    pub(crate) fn slots(&self, block: usize) -> usize {
        (self.usable / block).min(SLOTS_MAX)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Queues a read or a write of one slot. Every slot in use at a time has the same `block`, and
    /// the caller uses no slot again before its completion.
    pub(crate) fn queue(
        &mut self,
        file: &File,
        write: bool,
        slot: usize,
        block: usize,
        bytes: u32,
        offset: u64,
    ) {
        assert!(slot < self.slots(block) && bytes as usize <= block, "slot {slot} is outside");
        let from = self.start + slot * block;
        let buffer = &mut self.memory[from..from + bytes as usize];
        if write {
            for page in buffer.chunks_exact_mut(ALIGN) {
                self.stamp = self.stamp.wrapping_add(1);
                page[..8].copy_from_slice(&self.stamp.to_ne_bytes());
            }
        }
        let address = buffer.as_mut_ptr();
        let fd = Fd(file.as_raw_fd());
        let entry = match write {
            true => opcode::Write::new(fd, address, bytes).offset(offset).build(),
            false => opcode::Read::new(fd, address, bytes).offset(offset).build(),
        };
        let entry = entry.user_data(slot as u64);
        loop {
            // JUSTIFICATION: the crate cannot check the lifetime of an entry's memory.
            // SAFETY: the address is inside `memory`, which is neither moved nor freed while
            // operations are in flight (see the head of this file and `drop`).
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                self.in_flight += 1;
                return;
            }
            // The queue is full and is submitted. The next `enter` returns an error again.
            let _ = self.ring.submit();
        }
    }

    /// Submits all queued operations, and waits at most this long for one completion.
    pub(crate) fn enter(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let entered = match wait {
            Some(wait) if self.ring.completion().is_empty() => {
                let wait = Timespec::from(wait);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&wait))
            }
            _ => self.ring.submit(),
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => {
                let temporary = [Errno::INTR, Errno::TIME, Errno::BUSY, Errno::AGAIN];
                match Errno::from_io_error(&error).is_some_and(|e| temporary.contains(&e)) {
                    true => Ok(()),
                    false => Err(error),
                }
            }
        }
    }

    /// Returns a slot whose operation has completed, with the result.
    pub(crate) fn reap(&mut self) -> Option<(usize, io::Result<u32>)> {
        let entry = self.ring.completion().next()?;
        self.in_flight -= 1;
        let slot = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
        let result = u32::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(entry.result().wrapping_neg()));
        Some((slot, result))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // The kernel may still read or write this memory.
            std::mem::forget(std::mem::take(&mut self.memory));
        }
    }
}

/// Returns how many pages of the first `bytes` of a file are in the page cache (mincore(2); since
/// Linux 5.2 it answers only for files that the caller owns or may write).
pub(crate) fn resident_pages(file: &File, bytes: u64) -> io::Result<u64> {
    let length = usize::try_from(bytes).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(0);
    }
    let mut pages = vec![0u8; length.div_ceil(rustix::param::page_size())];
    // JUSTIFICATION: mincore needs a mapping, which no safe interface creates without reading it.
    // SAFETY: a fresh mapping at an address that the kernel chooses, never dereferenced; mincore
    // writes one byte per page of it into `pages`, which has as many; unmapped as it was mapped.
    let status = unsafe {
        let address = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let status = libc::mincore(address, length, pages.as_mut_ptr());
        let error = io::Error::last_os_error();
        libc::munmap(address, length);
        if status == 0 { Ok(()) } else { Err(error) }
    };
    status?;
    Ok(pages.iter().filter(|page| **page & 1 == 1).count() as u64)
}
