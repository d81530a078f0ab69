//! Frames of the native protocol and their messages: any bytes are decoded, refused, or reported as
//! incomplete; and a decoded frame is no longer than the input.

use tare_cql::frame::{self, Direction, Version};
use tare_cql::framing::Framing;
use tare_cql::request::Request;
use tare_cql::response::Response;

/// The longest allowed body. Longer ones are refused as soon as the header is there.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Length that an error's answer may have, in bytes, in addition to parts of the input that it
/// repeats.
const ANSWER_BYTES_MAX: usize = 4096;

/// Decodes the bytes as a server does.
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

/// Unpacks bytes: the first byte chooses the framing, the rest is the input. Unpacked frames are
/// packed and unpacked again, with the same result.
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
        // Take whole frames, as a session does.
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
    // The compression flag belongs to the framing.
    assert_eq!(unpacked.len(), frame.len());
    assert_eq!(unpacked[2..], frame[2..]);
}

/// Decodes the bytes as a client does.
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
            // Rows without columns take no bytes, so the count of rows could be any number.
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
