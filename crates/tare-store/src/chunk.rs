//! Buffers for direct I/O, without unsafe code: the used bytes start at an aligned address inside a
//! larger allocation that never moves or grows.

use bytes::{Buf, BytesMut};

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
#[derive(Debug, Default)]
pub struct Chunk {
    /// The whole capacity.
    bytes: BytesMut,
    length: usize,
}

impl Chunk {
    /// An empty chunk for at least `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { bytes: aligned(round_up(capacity.max(1))), length: 0 }
    }

    /// So many chunks for reads of [`ALIGNMENT`] bytes, which share an allocation: it is freed with
    /// the last of them.
    pub fn pages(count: usize) -> impl Iterator<Item = Self> {
        let mut bytes = aligned(count * ALIGNMENT);
        (0..count).map(move |_| Self { bytes: bytes.split_to(ALIGNMENT), length: ALIGNMENT })
    }

    /// A chunk of `length` zeros, for a read.
    pub fn zeroed(length: usize) -> Self {
        let mut chunk = Self::new(length);
        chunk.length = length;
        chunk
    }

    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that still fit in.
    pub fn room(&self) -> usize {
        self.capacity() - self.length
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
        let from = self.length;
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
        &self.bytes[..self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

/// Zeros at an aligned address.
fn aligned(length: usize) -> BytesMut {
    let mut bytes = BytesMut::zeroed(length + ALIGNMENT);
    let start = bytes.as_ptr().align_offset(ALIGNMENT);
    assert!(start < ALIGNMENT, "an address can be aligned within {ALIGNMENT} bytes");
    bytes.advance(start);
    bytes.truncate(length);
    bytes
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

    #[test]
    fn pages_are_aligned_and_apart() {
        let mut pages: Vec<Chunk> = Chunk::pages(3).collect();
        for (at, page) in (1..).zip(&mut pages) {
            assert_eq!(page.bytes().as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!((page.len(), page.capacity()), (ALIGNMENT, ALIGNMENT));
            page.bytes_mut().fill(at);
        }
        drop(pages.remove(0));
        assert!(pages[0].bytes().iter().all(|byte| *byte == 2));
        assert!(pages[1].bytes().iter().all(|byte| *byte == 3));
    }
}
