//! Buffers for direct I/O, without unsafe code: the used bytes start at the first aligned address
//! inside a larger allocation that never moves or grows.

/// Alignment of addresses, offsets and lengths of direct I/O: the largest logical block size in
/// common use.
pub const ALIGNMENT: usize = 4096;

/// A fixed buffer whose start is aligned to [`ALIGNMENT`] and whose capacity is a multiple of it.
///
/// ```
/// use tare_store::chunk::{ALIGNMENT, Chunk};
///
/// let mut chunk = Chunk::new(5000);
/// assert_eq!(chunk.capacity(), 2 * ALIGNMENT);
/// chunk.take(3).copy_from_slice(b"abc");
/// chunk.pad();
/// assert_eq!((chunk.len(), &chunk.bytes()[..4]), (ALIGNMENT, &b"abc\0"[..]));
/// ```
#[derive(Debug)]
pub struct Chunk {
    bytes: Box<[u8]>,
    start: usize,
    capacity: usize,
    length: usize,
}

impl Chunk {
    /// An empty chunk for at least `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        let capacity = round_up(capacity.max(1));
        let bytes = vec![0; capacity + ALIGNMENT].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "an address can be aligned within {ALIGNMENT} bytes");
        Self { bytes, start, capacity, length: 0 }
    }

    /// A chunk of `length` zeros, for a read.
    pub fn zeroed(length: usize) -> Self {
        let mut chunk = Self::new(length);
        chunk.length = length;
        chunk
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that still fit in.
    pub fn room(&self) -> usize {
        self.capacity - self.length
    }

    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Returns the next `length` bytes of the chunk for the caller to fill.
    ///
    /// # Panics
    /// Panics if they do not fit.
    pub fn take(&mut self, length: usize) -> &mut [u8] {
        assert!(length <= self.room(), "{length} bytes do not fit into {}", self.room());
        let from = self.start + self.length;
        self.length += length;
        &mut self.bytes[from..from + length]
    }

    /// Drops everything after `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Fills up with zeros to the next multiple of [`ALIGNMENT`].
    pub fn pad(&mut self) {
        let padding = round_up(self.length) - self.length;
        self.take(padding).fill(0);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// The next multiple of [`ALIGNMENT`].
pub fn round_up(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_is_aligned_and_padded() {
        let mut chunk = Chunk::new(5000);
        assert_eq!(chunk.capacity(), 8192);
        chunk.take(5).copy_from_slice(b"hello");
        assert_eq!(chunk.bytes().as_ptr().align_offset(ALIGNMENT), 0);
        chunk.pad();
        assert_eq!(chunk.len(), 4096);
        assert_eq!(&chunk.bytes()[..6], b"hello\0");
        chunk.clear();
        assert_eq!(chunk.room(), 8192);
    }
}
