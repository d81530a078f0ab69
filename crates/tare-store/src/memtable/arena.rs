//! Memory that is allocated piece by piece and freed as a whole: byte strings in chunks of 1 MiB
//! ([`Arena`]) and records of one size ([`Slab`]). Nothing ever moves, so growing copies nothing;
//! dropping a memtable frees its chunks and visits no row.
//!
//! Both count the bytes that they have allocated. The rest of the last chunk has not been touched,
//! and untouched memory takes no page of the process.

/// Size of a chunk; a longer byte string gets one of its own.
const CHUNK_BYTES: usize = 1 << 20;
/// Byte strings start at multiples of this.
const UNIT_BYTES: usize = 8;
/// Bits of the position in a chunk, in units: the low bits of a handle.
const UNIT_BITS: u32 = 17;
const LENGTH_BYTES: usize = 4;
/// Chunks that an arena may have, 16 GiB: a handle has 31 bits.
const CHUNKS_MAX: usize = 1 << 14;
/// Records in a chunk of a slab.
const SLAB_BITS: u32 = 10;

/// The position of a byte string in an [`Arena`]: 31 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(pub(super) u32);

/// Byte strings, each preceded by its length.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Vec<Box<[u8]>>,
    /// The chunk that is being filled, and its length so far.
    current: usize,
    filled: usize,
    bytes: usize,
}

impl Arena {
    /// Stores a byte string.
    ///
    /// # Panics
    /// Panics beyond 16 GiB; memtables are flushed long before.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) -> Handle {
        let length = u32::try_from(bytes.len()).expect("a byte string is shorter than 4 GiB");
        let wanted = occupied(bytes.len());
        let (chunk, at) = self.room(wanted);
        let to = &mut self.chunks[chunk][at..at + LENGTH_BYTES + bytes.len()];
        to[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        to[LENGTH_BYTES..].copy_from_slice(bytes);
        self.bytes += wanted;
        let handle = (chunk << UNIT_BITS) | (at / UNIT_BYTES);
        Handle(u32::try_from(handle).expect("chunks are limited to 14 bits"))
    }

    #[inline]
    pub(super) fn get(&self, handle: Handle) -> &[u8] {
        let (chunk, at) = position(handle);
        let (length, rest) = self.chunks[chunk][at..]
            .split_first_chunk::<LENGTH_BYTES>()
            .expect("a byte string follows its length");
        &rest[..u32::from_le_bytes(*length) as usize]
    }

    /// Overwrites a byte string. If the new one does not fit, it goes to another place, and the old
    /// place is lost until the arena is dropped.
    #[inline]
    pub(super) fn replace(&mut self, handle: Handle, bytes: &[u8]) -> Handle {
        let old = self.get(handle).len();
        if occupied(bytes.len()) > occupied(old) {
            return self.put(bytes);
        }
        let (chunk, at) = position(handle);
        let to = &mut self.chunks[chunk][at..at + LENGTH_BYTES + bytes.len()];
        let length = u32::try_from(bytes.len()).expect("it is no longer than what was there");
        to[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        to[LENGTH_BYTES..].copy_from_slice(bytes);
        handle
    }

    /// Allocated bytes, including those that are not reachable any more.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Chunk and offset of so many free bytes.
    fn room(&mut self, wanted: usize) -> (usize, usize) {
        let is_first = self.chunks.is_empty();
        if wanted > CHUNK_BYTES {
            self.add_chunk(wanted);
            let own = self.chunks.len() - 1;
            if is_first {
                self.filled = CHUNK_BYTES;
            }
            return (own, 0);
        }
        if is_first || self.filled + wanted > CHUNK_BYTES {
            self.add_chunk(CHUNK_BYTES);
            self.current = self.chunks.len() - 1;
            self.filled = 0;
        }
        let at = self.filled;
        self.filled += wanted;
        (self.current, at)
    }

    fn add_chunk(&mut self, bytes: usize) {
        assert!(self.chunks.len() < CHUNKS_MAX, "a memtable is flushed before it has 16 GiB");
        self.chunks.push(vec![0; bytes].into_boxed_slice());
    }
}

#[inline]
fn occupied(length: usize) -> usize {
    (LENGTH_BYTES + length).next_multiple_of(UNIT_BYTES)
}

#[inline]
fn position(handle: Handle) -> (usize, usize) {
    let handle = handle.0 as usize;
    (handle >> UNIT_BITS, (handle & ((1 << UNIT_BITS) - 1)) * UNIT_BYTES)
}

/// Records of one size, found by number.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    length: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), length: 0 }
    }
}

impl<T: Copy> Slab<T> {
    /// Adds a record and returns its number.
    pub(super) fn push(&mut self, record: T) -> u32 {
        if self.length == self.chunks.len() << SLAB_BITS {
            self.chunks.push(Vec::with_capacity(1 << SLAB_BITS));
        }
        let number = u32::try_from(self.length).expect("a memtable has at most 4 G records");
        self.chunks[self.length >> SLAB_BITS].push(record);
        self.length += 1;
        number
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &T {
        let number = number as usize;
        &self.chunks[number >> SLAB_BITS][number & ((1 << SLAB_BITS) - 1)]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> &mut T {
        let number = number as usize;
        &mut self.chunks[number >> SLAB_BITS][number & ((1 << SLAB_BITS) - 1)]
    }

    /// Bytes of all records.
    pub(super) fn bytes(&self) -> usize {
        self.length * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_do_not_move_and_are_counted() {
        let mut arena = Arena::default();
        let lengths = [0, 1, 4, 5, 300, CHUNK_BYTES, CHUNK_BYTES - LENGTH_BYTES, 70_000, 3];
        let string = |at: usize| vec![u8::try_from(at).unwrap(); lengths[at]];
        let handles: Vec<_> = (0..lengths.len()).map(|at| arena.put(&string(at))).collect();
        for (at, handle) in handles.iter().enumerate() {
            assert_eq!(arena.get(*handle), string(at));
        }
        let expect: usize = lengths.iter().map(|length| occupied(*length)).sum();
        assert_eq!(arena.bytes(), expect);
        assert_eq!(arena.replace(handles[4], &[9; 299]), handles[4]);
        assert_eq!((arena.get(handles[4]), arena.bytes()), (&[9; 299][..], expect));
        let moved = arena.replace(handles[4], &[8; 400]);
        assert_eq!((arena.get(moved), arena.bytes()), (&[8; 400][..], expect + occupied(400)));
    }

    #[test]
    fn long_string_first_keeps_later_strings_intact() {
        let mut arena = Arena::default();
        let long = arena.put(&[1; 2 * CHUNK_BYTES]);
        let short = arena.put(b"short");
        assert_eq!((arena.get(long).len(), arena.get(short)), (2 * CHUNK_BYTES, &b"short"[..]));
    }
}
