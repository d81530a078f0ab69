//! Segments, which carry the messages of version 5 after the answer to STARTUP.
//!
//! A segment is a header with a checksum of its own, up to 128 KiB of messages, and their checksum.
//! It is self-contained if it holds one or more whole messages; a longer message is cut, and none
//! of the segments with its parts is self-contained. With LZ4 the header has both lengths, and the
//! payload may still be uncompressed. All numbers are little-endian, unlike those of the messages.
//! Source: Cassandra's `doc/native_protocol_v5.spec`, section 2, and for the initial values of the
//! checksums its `org.apache.cassandra.net.Crc`.

use lz4_flex::block;

/// The longest payload of a segment in bytes: its length has 17 bits.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 17) - 1;

const LENGTH_BITS: u32 = 17;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const TRAILER_BYTES: usize = 4;
const CRC24_BYTES: usize = 3;

/// Why bytes are no segment. The rest of the connection cannot be trusted, and it has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    #[error("the checksum of a segment's header is wrong: {sent:#08x} sent, {found:#08x} found")]
    Header { sent: u32, found: u32 },
    #[error("the checksum of a segment's payload is wrong: {sent:#010x} sent, {found:#010x} found")]
    Payload { sent: u32, found: u32 },
    #[error("the payload of a segment is no LZ4 block of {bytes} bytes")]
    Compression { bytes: usize },
    #[error("a segment of whole messages came in the middle of a longer one")]
    Interrupted,
}

/// A segment, borrowed from the bytes received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Whether it holds whole messages.
    pub self_contained: bool,
    payload: &'a [u8],
    /// Length of the uncompressed payload; 0 if the payload is not compressed.
    uncompressed_bytes: usize,
}

impl Segment<'_> {
    /// Appends the messages, or the part of one, that the segment holds.
    pub fn append_to(&self, out: &mut Vec<u8>) -> Result<(), SegmentError> {
        if self.uncompressed_bytes == 0 {
            out.extend_from_slice(self.payload);
            return Ok(());
        }
        decompress(self.payload, self.uncompressed_bytes, out)
            .ok_or(SegmentError::Compression { bytes: self.uncompressed_bytes })
    }
}

/// Decodes one segment at the front of `bytes`. Returns it with its length in bytes, or `None`
/// while it is incomplete.
pub fn decode(bytes: &[u8], lz4: bool) -> Result<Option<(Segment<'_>, usize)>, SegmentError> {
    let header_bytes = header_bytes(lz4);
    let Some((header, rest)) = bytes.split_at_checked(header_bytes + CRC24_BYTES) else {
        return Ok(None);
    };
    let (fields, crc) = header.split_at(header_bytes);
    let sent = u32::try_from(little_endian(crc)).unwrap_or(u32::MAX);
    let found = crc24(fields);
    if sent != found {
        return Err(SegmentError::Header { sent, found });
    }
    let fields = little_endian(fields);
    let length = |shift: u32| usize::try_from(fields >> shift & LENGTH_MASK).unwrap_or(0);
    let flag = |shift: u32| fields >> shift & 1 == 1;
    let payload_bytes = length(0);
    let (uncompressed_bytes, self_contained) = match lz4 {
        true => (length(LENGTH_BITS), flag(2 * LENGTH_BITS)),
        false => (0, flag(LENGTH_BITS)),
    };
    let Some((payload, rest)) = rest.split_at_checked(payload_bytes) else { return Ok(None) };
    let Some(trailer) = rest.first_chunk::<TRAILER_BYTES>() else { return Ok(None) };
    let (sent, found) = (u32::from_le_bytes(*trailer), crc32(payload));
    if sent != found {
        return Err(SegmentError::Payload { sent, found });
    }
    let length = header.len() + payload_bytes + TRAILER_BYTES;
    Ok(Some((Segment { self_contained, payload, uncompressed_bytes }, length)))
}

/// Appends one segment with a payload of at most [`PAYLOAD_BYTES_MAX`] bytes.
///
/// # Panics
/// Panics if the payload is longer.
pub fn encode(out: &mut Vec<u8>, payload: &[u8], self_contained: bool, lz4: bool) {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "the caller cuts what is longer");
    let start = out.len();
    let header_bytes = header_bytes(lz4) + CRC24_BYTES;
    out.resize(start + header_bytes, 0);
    let compressed = lz4 && compress(payload, out);
    if !compressed {
        out.extend_from_slice(payload);
    }
    let sent_bytes = out.len() - start - header_bytes;
    let crc = crc32(&out[start + header_bytes..]);
    out.extend_from_slice(&crc.to_le_bytes());
    let uncompressed_bytes = if compressed { payload.len() } else { 0 };
    let fields = match lz4 {
        true => {
            sent_bytes as u64
                | (uncompressed_bytes as u64) << LENGTH_BITS
                | u64::from(self_contained) << (2 * LENGTH_BITS)
        }
        false => sent_bytes as u64 | u64::from(self_contained) << LENGTH_BITS,
    };
    let header = &mut out[start..start + header_bytes];
    let (place, crc_place) = header.split_at_mut(header_bytes - CRC24_BYTES);
    place.copy_from_slice(&fields.to_le_bytes()[..place.len()]);
    crc_place.copy_from_slice(&crc24(place).to_le_bytes()[..CRC24_BYTES]);
}

/// Appends the LZ4 block of `bytes` if that is shorter. Returns whether it is.
pub(crate) fn compress(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.resize(start + block::get_maximum_output_size(bytes.len()), 0);
    // It fails only if the room is too small.
    let length = block::compress_into(bytes, &mut out[start..]).unwrap_or(bytes.len());
    let shorter = length < bytes.len();
    out.truncate(start + if shorter { length } else { 0 });
    shorter
}

/// Appends the content of an LZ4 block of `length` bytes; `None`, and nothing appended, if the
/// block has any other length.
pub(crate) fn decompress(bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    out.resize(start + length, 0);
    let done = block::decompress_into(bytes, &mut out[start..]);
    if done.is_ok_and(|done| done == length) {
        return Some(());
    }
    out.truncate(start);
    None
}

/// Bytes of the header without its checksum.
fn header_bytes(lz4: bool) -> usize {
    if lz4 { 5 } else { 3 }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The checksum of a header: polynomial 0x1974f0b, initial value 0x875060.
fn crc24(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x197_4f0b;
    let mut crc = 0x87_5060;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 1 << 24 != 0 {
                crc ^= POLYNOMIAL;
            }
        }
    }
    crc
}

/// The checksum of a payload: that of zlib, after four fixed bytes.
fn crc32(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[0xfa, 0x2d, 0x55, 0xca]);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The expected bytes come from the Python driver (`cassandra.segment.SegmentCodec`, 3.30).
    #[test]
    fn segments_agree_with_other_implementations() {
        let payload = b"hello segments";
        let check = |self_contained, expect: &[u8]| {
            let mut out = Vec::new();
            encode(&mut out, payload, self_contained, false);
            assert_eq!(out, expect, "{out:02x?}");
        };
        check(true, b"\x0e\x00\x02\xe7\xa7\x4fhello segments\x7b\x0e\xcc\x45");
        check(false, b"\x0e\x00\x00\xfa\x76\xf6hello segments\x7b\x0e\xcc\x45");
    }

    #[test]
    fn damage_is_detected() {
        let mut bytes = Vec::new();
        encode(&mut bytes, &[7; 1000], true, true);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped, true).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length], true), Ok(None));
        }
    }

    proptest! {
        #[test]
        fn segments_round_trip(
            pattern in prop::collection::vec(any::<u8>(), 0..300),
            times in 1..400_usize,
            self_contained: bool,
            lz4: bool,
        ) {
            let payload = pattern.repeat(times);
            let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
            let mut bytes = b"before".to_vec();
            encode(&mut bytes, payload, self_contained, lz4);
            bytes.extend_from_slice(b"after");
            let (segment, length) = decode(&bytes[6..], lz4).unwrap().unwrap();
            prop_assert_eq!(length, bytes.len() - 11);
            prop_assert_eq!(segment.self_contained, self_contained);
            let mut out = Vec::new();
            segment.append_to(&mut out).unwrap();
            prop_assert_eq!(out, payload);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), lz4: bool) {
            if let Ok(Some((segment, _))) = decode(&bytes, lz4) {
                let _ = segment.append_to(&mut Vec::new());
            }
            // The same payload after a valid header.
            let mut whole = Vec::new();
            encode(&mut whole, &bytes, true, false);
            let _ = decode(&whole, true);
            let mut out = Vec::new();
            prop_assert!(decompress(&bytes, 1000, &mut out).is_some() || out.is_empty());
        }
    }
}
