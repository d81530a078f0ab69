use super::*;
use crate::frame::{FrameStart, Opcode};
use proptest::prelude::*;

const LIMIT: usize = 1 << 20;
const FRAMINGS: [Framing; 4] = [
    Framing::Plain,
    Framing::Compressed,
    Framing::Segments { lz4: false },
    Framing::Segments { lz4: true },
];

fn frame(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let start = FrameStart::begin(&mut out, Direction::Response, 3, Opcode::Result);
    out.extend_from_slice(body);
    start.finish(&mut out);
    out
}

/// Unpacks everything as a connection would, given the bytes in pieces.
fn unpack_all(framing: Framing, bytes: &[u8], piece: usize) -> Result<Vec<u8>, FramingError> {
    let (mut received, mut pending, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        received.extend_from_slice(piece);
        while let Some(taken) =
            framing.unpack(&received, Direction::Response, LIMIT, &mut pending)?
        {
            received.drain(..taken);
            while let Some((_, length)) = frame::decode(&pending, Direction::Response, LIMIT)? {
                all.extend(pending.drain(..length));
            }
        }
    }
    assert!(received.is_empty() && pending.is_empty());
    Ok(all)
}

#[test]
fn message_of_several_segments_is_reassembled() {
    let body: Vec<u8> = (0..500_000_u32).flat_map(u32::to_be_bytes).take(500_000).collect();
    let frames = [frame(b"before"), frame(&body), frame(b""), frame(b"after")].concat();
    for framing in FRAMINGS {
        let mut packed = Vec::new();
        framing.pack(&frames, &mut packed);
        assert_eq!(unpack_all(framing, &packed, 10_000), Ok(frames.clone()), "{framing:?}");
    }
}

#[test]
fn too_long_body_is_refused_before_unpacking() {
    let mut bytes = frame(&[0, 1, 0, 0, 0xff, 0xff]);
    bytes[1] |= flag::COMPRESSION;
    let error = Framing::Compressed.unpack(&bytes, Direction::Response, 65_535, &mut Vec::new());
    let error = error.unwrap_err();
    assert_eq!(error, FrameError::TooLong { stream: 3, length: 65_536, limit: 65_535 }.into());
    let error = Framing::Compressed.unpack(&bytes, Direction::Response, 65_536, &mut Vec::new());
    assert_eq!(error.unwrap_err(), FramingError::Compression { stream: 3 });
}

#[test]
fn whole_message_inside_another_is_refused() {
    let mut packed = Vec::new();
    segment::encode(&mut packed, &frame(b"late"), true, false);
    let framing = Framing::Segments { lz4: false };
    let mut pending = frame(b"cut")[..5].to_vec();
    let error = framing.unpack(&packed, Direction::Response, LIMIT, &mut pending).unwrap_err();
    assert_eq!(error, SegmentError::Interrupted.into());
}

proptest! {
    #[test]
    fn frames_round_trip_with_every_framing(
        bodies in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..80), 0..2000_usize), 0..6),
        piece in 1..5000_usize,
    ) {
        let frames: Vec<u8> =
            bodies.iter().flat_map(|(pattern, times)| frame(&pattern.repeat(*times))).collect();
        for framing in FRAMINGS {
            let mut packed = Vec::new();
            framing.pack(&frames, &mut packed);
            prop_assert_eq!(unpack_all(framing, &packed, piece), Ok(frames.clone()));
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_make_unpacking_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        flags: u8,
    ) {
        let mut framed = frame(&bytes);
        framed[1] = flags;
        for bytes in [&bytes, &framed] {
            for framing in FRAMINGS {
                let mut frames = Vec::new();
                let _ = framing.unpack(bytes, Direction::Response, 1000, &mut frames);
                prop_assert!(frames.len() <= 200 + 1000 + HEADER_BYTES);
                framing.pack(bytes, &mut frames);
            }
        }
    }
}
