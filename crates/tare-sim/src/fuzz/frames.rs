//! Frames of the native protocol and the messages in them: any bytes are read, refused, or said to
//! be incomplete; and a frame that is read is no longer than what was given.

use tare_cql::frame::{self, Direction, Version};
use tare_cql::framing::Framing;
use tare_cql::request::Request;
use tare_cql::response::Response;

/// The longest body that is believed; above it bytes are refused as soon as they say so.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Most that an error's answer takes, in bytes, beside what of the input it repeats.
const ANSWER_BYTES_MAX: usize = 4096;

/// What a server reads.
pub(super) fn requests(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        match frame::decode(rest, Direction::Request, BODY_BYTES_MAX) {
            Ok(None) => return,
            Ok(Some((frame, length))) => {
                assert!(length > 0 && length <= rest.len(), "{length} of {}", rest.len());
                if let Ok(request) = Request::decode(&frame) {
                    use_up_request(&request);
                }
                rest = &rest[length..];
            }
            Err(error) => {
                for version in Version::ALL {
                    let mut answer = Vec::new();
                    error.answer(version, &mut answer);
                    assert!(answer.len() <= ANSWER_BYTES_MAX);
                    let read = frame::decode(&answer, Direction::Response, BODY_BYTES_MAX);
                    assert!(read.is_ok_and(|read| read.is_some()), "clients can read the answer");
                }
                return;
            }
        }
    }
}

/// How messages travel: the first byte says how, the rest is what came. What is unpacked and packed
/// again is unpacked to the same.
pub(super) fn framings(bytes: &[u8]) {
    let Some((how, mut rest)) = bytes.split_first() else { return };
    let framing = match how % 4 {
        0 => Framing::Plain,
        1 => Framing::Compressed,
        2 => Framing::Segments { lz4: false },
        _ => Framing::Segments { lz4: true },
    };
    let mut frames = Vec::new();
    while let Ok(Some(length)) =
        framing.unpack(rest, Direction::Request, BODY_BYTES_MAX, &mut frames)
    {
        assert!(length > 0 && length <= rest.len(), "{length} of {}", rest.len());
        rest = &rest[length..];
        // What is whole is taken, as a session does.
        while let Ok(Some((_, length))) = frame::decode(&frames, Direction::Request, BODY_BYTES_MAX)
        {
            round_trip(framing, &frames[..length]);
            frames.drain(..length);
        }
        if frames.len() > BODY_BYTES_MAX {
            return;
        }
    }
}

fn round_trip(framing: Framing, frame: &[u8]) {
    let mut packed = Vec::new();
    framing.pack(frame, &mut packed);
    let (mut unpacked, mut at) = (Vec::new(), 0);
    while at < packed.len() {
        let rest = &packed[at..];
        let read = framing.unpack(rest, Direction::Request, BODY_BYTES_MAX, &mut unpacked);
        at += read.expect("what was packed is read").expect("what was packed is whole");
    }
    // The flag of compression is the framing's own.
    assert_eq!(unpacked.len(), frame.len());
    assert_eq!(unpacked[2..], frame[2..]);
}

/// What a client reads.
pub(super) fn responses(bytes: &[u8]) {
    if let Ok(Some((frame, length))) = frame::decode(bytes, Direction::Response, BODY_BYTES_MAX) {
        assert!(length <= bytes.len());
        if let Ok(response) = Response::decode(&frame) {
            use_up_response(response);
        }
    }
}

fn use_up_request(request: &Request<'_>) {
    match request {
        Request::Query { parameters, .. } | Request::Execute { parameters, .. } => {
            let values = parameters.values;
            assert_eq!(values.iter().count(), values.len());
            assert_eq!(values.named().count(), if values.is_named() { values.len() } else { 0 });
        }
        Request::Batch(batch) => {
            assert_eq!(batch.items().count(), batch.items().len());
            batch
                .items()
                .for_each(|item| assert_eq!(item.values.iter().count(), item.values.len()));
        }
        Request::Startup { options } => assert!(options.count() <= 65_535),
        Request::Register { events } => assert!(events.count() <= 65_535),
        _ => {}
    }
}

fn use_up_response(response: Response<'_>) {
    match response {
        Response::Rows(rows) => {
            let width = rows.metadata.column_count;
            // Rows of no columns take no bytes, so that any number of them could be promised.
            if width > 0 {
                assert_eq!(rows.cells().count(), rows.len() * width);
            }
        }
        Response::Prepared(prepared) => {
            let columns = prepared.markers.columns.map_or(0, Iterator::count);
            assert_eq!(columns, prepared.markers.column_count);
        }
        Response::Supported { options } => options.for_each(|(_, values)| {
            values.count();
        }),
        _ => {}
    }
}
