//! What the log needs of its files outside the write path: naming, making, reading, cutting.

use std::io;

/// The segments of one shard's log. Implemented on a directory by the server, in memory by tests
/// and the simulator.
pub trait Segments {
    /// The numbers of the segments that exist, ascending.
    fn list(&self) -> io::Result<Vec<u64>>;

    /// Makes a segment and reserves its space, so that a full disk shows here and not at a write
    /// that was already promised. The name must be durable when this returns.
    fn create(&mut self, segment: u64, size_bytes: u64) -> io::Result<()>;

    /// Reads at an offset; fewer bytes than asked for mean the end of the segment.
    fn read_at(&self, segment: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Shortens a segment, durably.
    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()>;

    /// Removes a segment, durably.
    fn remove(&mut self, segment: u64) -> io::Result<()>;

    /// How an error message names the segment.
    fn name(&self, segment: u64) -> String;
}
