//! Puts the segments of one direction of a connection in order.
//!
//! Repeated bytes are dropped. Segments that come early wait for those before them, until the
//! receiver acknowledges bytes that the capture lacks, or too much waits: then there is a gap.

use std::collections::BTreeMap;

/// What may wait for earlier segments.
const WAITING_MAX: usize = 256;
const WAITING_BYTES_MAX: usize = 8 << 20;

/// The next part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Bytes of a segment, with the time at which it was captured.
    Data { at_ns: u64, bytes: &'a [u8] },
    /// Bytes are missing here.
    Gap,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Whether a segment has come.
    begun: bool,
    /// The position of the next byte in the stream; its lower half is the sequence number.
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    waiting_bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    at_ns: u64,
    bytes: Vec<u8>,
    missing: usize,
}

impl Reassembly {
    /// Begins a stream after a SYN with this sequence number.
    pub(crate) fn open(&mut self, sequence: u32) {
        // Not 0, so that earlier bytes have a position too.
        self.next = (1 << 32) + u64::from(sequence) + 1;
        self.begun = true;
    }

    /// Whether any segment of the stream was seen.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Takes a segment whose last `missing` bytes were not captured.
    pub(crate) fn segment(
        &mut self,
        at_ns: u64,
        sequence: u32,
        bytes: &[u8],
        missing: usize,
        take: &mut dyn FnMut(Part<'_>),
    ) {
        if bytes.is_empty() && missing == 0 {
            return;
        }
        if !self.begun {
            self.open(sequence.wrapping_sub(1));
        }
        let position = self.position(sequence);
        if position > self.next {
            let waiting = Waiting { at_ns, bytes: bytes.to_vec(), missing };
            self.waiting_bytes += bytes.len();
            if let Some(known) = self.waiting.insert(position, waiting) {
                self.waiting_bytes -= known.bytes.len();
                self.keep_longer(position, known);
            }
            if self.waiting.len() > WAITING_MAX || self.waiting_bytes > WAITING_BYTES_MAX {
                self.skip_gap(take);
            }
            return;
        }
        self.deliver(position, at_ns, bytes, missing, take);
        self.deliver_waiting(take);
    }

    /// Takes an acknowledgement by the other side: what it has received and the capture lacks will
    /// not come any more.
    pub(crate) fn acknowledge(&mut self, sequence: u32, take: &mut dyn FnMut(Part<'_>)) {
        while let Some((first, _)) = self.waiting.first_key_value()
            && self.begun
            && self.position(sequence) >= *first
        {
            self.skip_gap(take);
        }
    }

    /// Delivers what waits at the end of the capture.
    pub(crate) fn end(&mut self, take: &mut dyn FnMut(Part<'_>)) {
        while !self.waiting.is_empty() {
            self.skip_gap(take);
        }
    }

    /// Returns the position that a sequence number has next to the next byte: within 2 GiB.
    fn position(&self, sequence: u32) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "sequence numbers are the lower half")]
        let distance = sequence.wrapping_sub(self.next as u32).cast_signed();
        self.next.saturating_add_signed(i64::from(distance))
    }

    fn keep_longer(&mut self, position: u64, known: Waiting) {
        if let Some(now) = self.waiting.get_mut(&position)
            && known.bytes.len() > now.bytes.len()
        {
            self.waiting_bytes += known.bytes.len() - now.bytes.len();
            *now = known;
        }
    }

    /// Delivers the part of a segment that is new, which begins at or before the next byte.
    fn deliver(
        &mut self,
        position: u64,
        at_ns: u64,
        bytes: &[u8],
        missing: usize,
        take: &mut dyn FnMut(Part<'_>),
    ) {
        let known = usize::try_from(self.next - position).unwrap_or(usize::MAX);
        if let Some(new) = bytes.get(known..).filter(|new| !new.is_empty()) {
            take(Part::Data { at_ns, bytes: new });
            self.next += new.len() as u64;
        }
        let end = position + (bytes.len() + missing) as u64;
        if missing > 0 && end > self.next {
            take(Part::Gap);
            self.next = end;
        }
    }

    fn deliver_waiting(&mut self, take: &mut dyn FnMut(Part<'_>)) {
        while let Some(entry) = self.waiting.first_entry()
            && *entry.key() <= self.next
        {
            let (position, waiting) = entry.remove_entry();
            self.waiting_bytes -= waiting.bytes.len();
            self.deliver(position, waiting.at_ns, &waiting.bytes, waiting.missing, take);
        }
    }

    fn skip_gap(&mut self, take: &mut dyn FnMut(Part<'_>)) {
        if let Some((first, _)) = self.waiting.first_key_value() {
            self.next = *first;
            take(Part::Gap);
        }
        self.deliver_waiting(take);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs segments of a stream through a reassembly. A gap is `|`.
    fn joined(segments: &[(u32, &[u8], usize)], acknowledged: Option<u32>) -> String {
        let mut stream = Reassembly::default();
        let mut text = String::new();
        let mut take = |part: Part<'_>| match part {
            Part::Data { bytes, .. } => text += &String::from_utf8_lossy(bytes),
            Part::Gap => text.push('|'),
        };
        for (sequence, bytes, missing) in segments {
            stream.segment(0, *sequence, bytes, *missing, &mut take);
        }
        if let Some(sequence) = acknowledged {
            stream.acknowledge(sequence, &mut take);
        }
        text
    }

    #[test]
    fn segments_are_put_in_order() {
        let check = |segments: &[(u32, &[u8], usize)], acknowledged, expect: &str| {
            assert_eq!(joined(segments, acknowledged), expect, "{segments:?}");
        };
        check(&[(10, b"ab", 0), (12, b"cd", 0)], None, "abcd");
        check(&[(10, b"ab", 0), (14, b"ef", 0), (12, b"cd", 0)], None, "abcdef");
        check(&[(10, b"ab", 0), (10, b"ab", 0), (11, b"bcd", 0)], None, "abcd");
        check(&[(10, b"ab", 0), (14, b"ef", 0)], None, "ab");
        check(&[(10, b"ab", 0), (14, b"ef", 0)], Some(16), "ab|ef");
        check(&[(10, b"ab", 0), (14, b"ef", 0)], Some(12), "ab");
        check(&[(10, b"ab", 3), (15, b"fg", 0)], None, "ab|fg");
        check(&[(10, b"ab", 3), (10, b"abcde", 0), (15, b"fg", 0)], None, "ab|fg");
        check(&[(u32::MAX, b"ab", 0), (1, b"cd", 0)], None, "abcd");
        check(&[(10, b"a", 0), (13, b"d", 0), (13, b"def", 0), (11, b"bc", 0)], None, "abcdef");
        check(&[(10, b"", 0)], None, "");
    }

    #[test]
    fn too_much_waiting_is_a_gap() {
        let mut segments: Vec<(u32, &[u8], usize)> = vec![(10, b"a", 0)];
        segments.extend((0..300).map(|one| (20 + one, b"x".as_slice(), 0)));
        assert_eq!(joined(&segments, None), format!("a|{}", "x".repeat(300)));
    }

    proptest! {
        /// Any order and any overlap of the pieces of a stream gives the stream, if its first piece
        /// comes first.
        #[test]
        fn any_order_gives_the_stream(
            cuts in prop::collection::vec((0usize..200, 1usize..40), 1..60),
            first in any::<u32>(),
        ) {
            let stream: Vec<u8> = (0..=255).collect();
            let sequence = |at: usize| first.wrapping_add(u32::try_from(at).unwrap());
            let mut reassembly = Reassembly::default();
            let mut out = Vec::new();
            let mut take = |part: Part<'_>| if let Part::Data { bytes, .. } = part {
                out.extend_from_slice(bytes);
            };
            reassembly.segment(0, sequence(0), &stream[..1], 0, &mut take);
            for (at, length) in &cuts {
                let piece = &stream[*at..(at + length).min(256)];
                reassembly.segment(0, sequence(*at), piece, 0, &mut take);
            }
            reassembly.segment(0, sequence(0), &stream, 0, &mut take);
            prop_assert_eq!(out, stream);
        }
    }
}
