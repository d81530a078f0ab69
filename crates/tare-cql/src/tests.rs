//! Every message round-trips, and no bytes make a decoder panic: neither arbitrary ones nor valid
//! frames cut short or with a bit flipped.

use crate::frame::{self, BODY_BYTES_MAX, Direction, Frame, FrameError, HEADER_BYTES, Opcode};
use crate::request::{self, Request, Settings};
use crate::response::{
    self, Change, ColumnSpec, EncodedColumns, ErrorKind, Event, Response, RowsWriter, SchemaChange,
    SchemaTarget, StatusChange, TopologyChange,
};
use crate::types::Type;
use crate::wire::{Consistency, DecodeError, Value};
use proptest::prelude::*;

#[track_caller]
fn one_frame(bytes: &[u8], direction: Direction) -> Frame<'_> {
    let (frame, length) = frame::decode(bytes, direction, BODY_BYTES_MAX).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    frame
}

#[derive(Debug, Clone)]
enum Bound {
    Bytes(Vec<u8>),
    Null,
    Unset,
}

impl Bound {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Null => Value::Null,
            Self::Unset => Value::Unset,
        }
    }
}

fn bound() -> impl Strategy<Value = Bound> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..100).prop_map(Bound::Bytes),
        1 => Just(Bound::Null),
        1 => Just(Bound::Unset),
    ]
}

#[derive(Debug, Clone)]
struct Asked {
    consistency: Consistency,
    skip_metadata: bool,
    page_size: Option<i32>,
    paging_state: Option<Vec<u8>>,
    serial_consistency: Option<Consistency>,
    timestamp_us: Option<i64>,
}

impl Asked {
    fn settings(&self) -> Settings<'_> {
        Settings {
            consistency: self.consistency,
            skip_metadata: self.skip_metadata,
            page_size: self.page_size,
            paging_state: self.paging_state.as_deref(),
            serial_consistency: self.serial_consistency,
            timestamp_us: self.timestamp_us,
        }
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    let consistency = || prop::sample::select(Consistency::ALL.to_vec());
    (
        consistency(),
        any::<bool>(),
        any::<Option<i32>>(),
        any::<Option<Vec<u8>>>(),
        prop::option::of(consistency()),
        any::<Option<i64>>(),
    )
        .prop_map(|asked| Asked {
            consistency: asked.0,
            skip_metadata: asked.1,
            page_size: asked.2,
            paging_state: asked.3,
            serial_consistency: asked.4,
            timestamp_us: asked.5,
        })
}

fn cells() -> impl Strategy<Value = Vec<Vec<Option<Vec<u8>>>>> {
    (1..5_usize).prop_flat_map(|columns| {
        let cell = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
        prop::collection::vec(prop::collection::vec(cell, columns), 0..6)
    })
}

fn columns(count: usize) -> EncodedColumns {
    let kind = Type::Map(Box::new(Type::Text), Box::new(Type::Int));
    EncodedColumns::new("ks", "t", (0..count).map(|_| ColumnSpec { name: "c", kind: &kind }))
}

/// Everything that a server may say, once.
fn responses() -> Vec<Vec<u8>> {
    let consistency = Consistency::Quorum;
    let (received, required, failures, data_present) = (1, 2, 3, true);
    let write_type = "SIMPLE";
    let errors = [
        ErrorKind::Server,
        ErrorKind::Protocol,
        ErrorKind::BadCredentials,
        ErrorKind::Unavailable { consistency, required, alive: 1 },
        ErrorKind::Overloaded,
        ErrorKind::Bootstrapping,
        ErrorKind::Truncate,
        ErrorKind::WriteTimeout { consistency, received, required, write_type },
        ErrorKind::ReadTimeout { consistency, received, required, data_present },
        ErrorKind::ReadFailure { consistency, received, required, failures, data_present },
        ErrorKind::FunctionFailure { keyspace: "ks", function: "f", arguments: vec!["int"] },
        ErrorKind::WriteFailure { consistency, received, required, failures, write_type },
        ErrorKind::Syntax,
        ErrorKind::Unauthorized,
        ErrorKind::Invalid,
        ErrorKind::Config,
        ErrorKind::AlreadyExists { keyspace: "ks", table: "" },
        ErrorKind::Unprepared { id: b"0123456789abcdef" },
        ErrorKind::Unknown { code: 0x7777 },
    ];
    let node = "[::1]:9042".parse().unwrap();
    let table = SchemaTarget::Table { keyspace: "ks", table: "t" };
    let changes = [
        SchemaChange { change: Change::Created, target: SchemaTarget::Keyspace { keyspace: "ks" } },
        SchemaChange { change: Change::Dropped, target: table },
        SchemaChange {
            change: Change::Updated,
            target: SchemaTarget::Type { keyspace: "ks", name: "u" },
        },
    ];
    let events = [
        Event::Topology { change: TopologyChange::NewNode, node },
        Event::Status { change: StatusChange::Down, node },
        Event::Schema(changes[0]),
    ];
    let frame = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        out
    };
    let mut frames = vec![
        frame(&|out| response::encode_ready(out, 1)),
        frame(&|out| response::encode_authenticate(out, 1, "Class")),
        frame(&|out| response::encode_auth_success(out, 1, None)),
        frame(&|out| response::encode_supported(out, 1, &[("CQL_VERSION", &["3.4.5"])])),
        frame(&|out| response::encode_void(out, 1)),
        frame(&|out| response::encode_set_keyspace(out, 1, "ks")),
        frame(&|out| {
            response::encode_prepared(out, 1, b"id", &columns(3), &[1, 0], Some(&columns(2)));
        }),
        frame(&|out| response::encode_prepared(out, 1, b"id", &columns(0), &[], None)),
        frame(&|out| {
            let mut rows = RowsWriter::begin(out, 1, &columns(2), false, Some(b"state"));
            for cell in [Some(&b"a"[..]), None, None, Some(b"")] {
                rows.cell(cell);
            }
            rows.end_row();
            rows.end_row();
            rows.finish();
        }),
    ];
    for error in errors {
        let bytes = frame(&|out| response::encode_error(out, 7, &error, "why"));
        let decoded = Response::decode(&one_frame(&bytes, Direction::Response)).unwrap();
        let Response::Error(body) = decoded else { panic!("{decoded:?}") };
        assert_eq!((body.kind, body.message), (error, "why"));
        frames.push(bytes);
    }
    for change in changes {
        let bytes = frame(&|out| response::encode_schema_change(out, 7, &change));
        let decoded = Response::decode(&one_frame(&bytes, Direction::Response)).unwrap();
        assert!(matches!(decoded, Response::SchemaChange(decoded) if decoded == change));
        frames.push(bytes);
    }
    for event in events {
        let bytes = frame(&|out| response::encode_event(out, &event));
        let decoded = one_frame(&bytes, Direction::Response);
        assert_eq!(decoded.stream, -1);
        let decoded = Response::decode(&decoded).unwrap();
        assert!(matches!(decoded, Response::Event(decoded) if decoded == event));
        frames.push(bytes);
    }
    frames
}

/// Everything that a client may say, once.
fn requests() -> Vec<Vec<u8>> {
    let mut frames = vec![Vec::new(); 7];
    let settings = Settings { page_size: Some(5000), ..Settings::default() };
    request::encode_options(&mut frames[0], 1);
    request::encode_startup(&mut frames[1], 1, &[("CQL_VERSION", "3.0.0")]);
    request::encode_register(&mut frames[2], 1, &response::EVENT_TYPES);
    request::encode_auth_response(&mut frames[3], 1, Some(b"\0user\0secret"));
    request::encode_prepare(&mut frames[4], 1, "SELECT");
    let values = [Value::Bytes(b"x"), Value::Null, Value::Unset];
    request::encode_query(&mut frames[5], 1, "SELECT", &settings, &values);
    request::encode_execute(&mut frames[6], 1, b"id", &settings, &values);
    // Values bound by name, and a batch, which this crate decodes but never sends.
    let named = b"\x04\0\0\x01\x07\0\0\0\x12\0\0\0\x01S\0\x01\x41\0\x01\0\x01a\0\0\0\x01x";
    frames.push(named.to_vec());
    frames.push(b"\x04\0\0\x01\x0d\0\0\0\x03\x01\0\x02".to_vec());
    frames
}

fn decode_all(bytes: &[u8]) {
    for direction in [Direction::Request, Direction::Response] {
        let Ok(Some((frame, length))) = frame::decode(bytes, direction, BODY_BYTES_MAX) else {
            continue;
        };
        assert!((HEADER_BYTES..=bytes.len()).contains(&length));
        if let Ok(request) = Request::decode(&frame) {
            use_up_request(&request);
        }
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
        Request::Startup { options } => assert!(options.count() <= 65_535),
        Request::Register { events } => assert!(events.count() <= 65_535),
        _ => {}
    }
}

fn use_up_response(response: Response<'_>) {
    match response {
        Response::Rows(rows) => {
            let width = rows.metadata.column_count;
            assert_eq!(rows.iter().count(), rows.len());
            assert_eq!(rows.cells().count(), rows.len() * width);
            if let Some(columns) = rows.metadata.columns {
                assert_eq!(columns.count(), width);
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

#[test]
fn all_messages_decode_and_no_cut_or_flip_panics() {
    for bytes in requests() {
        assert!(Request::decode(&one_frame(&bytes, Direction::Request)).is_ok(), "{bytes:02x?}");
        damage(&bytes);
    }
    for bytes in responses() {
        assert!(Response::decode(&one_frame(&bytes, Direction::Response)).is_ok(), "{bytes:02x?}");
        damage(&bytes);
    }
}

fn damage(bytes: &[u8]) {
    for cut in 0..bytes.len() {
        let direction = if bytes[0] & 0x80 == 0 { Direction::Request } else { Direction::Response };
        assert_eq!(frame::decode(&bytes[..cut], direction, BODY_BYTES_MAX), Ok(None));
        // The same cut, but with a header that says so.
        if let Some(body) = cut.checked_sub(HEADER_BYTES) {
            let mut short = bytes[..cut].to_vec();
            short[5..9].copy_from_slice(&u32::try_from(body).unwrap().to_be_bytes());
            decode_all(&short);
        }
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        decode_all(&flipped);
    }
}

#[test]
fn newer_versions_are_answered_in_version_4() {
    for version in [1_u8, 2, 3, 5, 6, 65, 66] {
        let stream = if version < 3 { [7, 0x05] } else { [0, 7] };
        let bytes = [version, 0, stream[0], stream[1], 0x05, 0, 0, 0, 0];
        let error = frame::decode(&bytes, Direction::Request, BODY_BYTES_MAX).unwrap_err();
        assert_eq!(error, FrameError::Version { version, stream: 7 });
        let mut out = Vec::new();
        error.answer(&mut out);
        let frame = one_frame(&out, Direction::Response);
        assert_eq!((frame.stream, frame.opcode), (7, Opcode::Error));
        let Ok(Response::Error(body)) = Response::decode(&frame) else { panic!("no error") };
        assert_eq!(body.kind, ErrorKind::Protocol);
        assert!(body.message.contains("unsupported protocol version"), "{}", body.message);
    }
}

#[test]
fn frames_that_cannot_be_are_refused_before_their_body() {
    let check = |bytes: &[u8; 9], expected: FrameError| {
        assert_eq!(frame::decode(bytes, Direction::Request, 1000), Err(expected));
    };
    let stream = 3;
    check(
        b"\x04\0\0\x03\x07\0\0\x03\xe9",
        FrameError::TooLong { stream, length: 1001, limit: 1000 },
    );
    check(b"\x04\x01\0\x03\x07\0\0\0\x09", FrameError::Compressed { stream });
    check(b"\x04\0\0\x03\x04\0\0\0\x09", FrameError::Opcode { stream, opcode: 4 });
    check(
        b"\x84\0\0\x03\x07\0\0\0\x09",
        FrameError::Direction { stream, expected: Direction::Request },
    );
}

#[test]
fn what_stands_before_a_message_is_skipped() {
    let mut bytes = b"\x84\x0e\0\x01\x02\0\0\0\0".to_vec();
    bytes.extend_from_slice(&[9; 16]);
    bytes.extend_from_slice(b"\0\x01\0\x04warn");
    bytes.extend_from_slice(b"\0\x01\0\x01k\0\0\0\x01v");
    bytes[8] = u8::try_from(bytes.len() - 9).unwrap();
    assert!(one_frame(&bytes, Direction::Response).body.is_empty());
    // In a request tracing is only a wish, with nothing in the body.
    let frame = one_frame(b"\x04\x02\0\x01\x05\0\0\0\0", Direction::Request);
    assert!(matches!(Request::decode(&frame), Ok(Request::Options)));
}

#[test]
fn rows_of_nothing_are_refused() {
    let mut bytes = b"\x84\0\0\x01\x08\0\0\0\x10".to_vec();
    bytes.extend_from_slice(b"\0\0\0\x02\0\0\0\x04\0\0\0\0\x7f\xff\xff\xff");
    let decoded = Response::decode(&one_frame(&bytes, Direction::Response));
    assert_eq!(decoded.unwrap_err(), DecodeError::Length { what: "number of columns", length: 0 });
}

proptest! {
    #[test]
    fn execute_round_trips(
        stream in any::<i16>(),
        id in prop::collection::vec(any::<u8>(), 0..32),
        asked in asked(),
        values in prop::collection::vec(bound(), 0..12),
    ) {
        let values: Vec<_> = values.iter().map(Bound::value).collect();
        let mut out = b"before".to_vec();
        request::encode_execute(&mut out, stream, &id, &asked.settings(), &values);
        let frame = one_frame(&out[6..], Direction::Request);
        prop_assert_eq!(frame.stream, stream);
        match Request::decode(&frame) {
            Ok(Request::Execute { id: decoded, parameters }) => {
                prop_assert_eq!(decoded, &id);
                prop_assert_eq!(parameters.settings, asked.settings());
                prop_assert_eq!(parameters.values.iter().collect::<Vec<_>>(), values);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn query_and_prepare_round_trip(text in ".{0,60}", asked in asked(), value in bound()) {
        let mut out = Vec::new();
        request::encode_query(&mut out, 5, &text, &asked.settings(), &[value.value()]);
        match Request::decode(&one_frame(&out, Direction::Request)) {
            Ok(Request::Query { statement, parameters }) => {
                prop_assert_eq!(statement, &text);
                prop_assert_eq!(parameters.settings, asked.settings());
                prop_assert_eq!(parameters.values.iter().next(), Some(value.value()));
            }
            other => prop_assert!(false, "{other:?}"),
        }
        let mut out = Vec::new();
        request::encode_prepare(&mut out, 5, &text);
        let decoded = Request::decode(&one_frame(&out, Direction::Request));
        let same = matches!(decoded, Ok(Request::Prepare { statement }) if statement == text);
        prop_assert!(same);
    }

    #[test]
    fn startup_and_register_round_trip(name in ".{0,20}", value in ".{0,20}") {
        let mut out = Vec::new();
        request::encode_startup(&mut out, 0, &[("CQL_VERSION", "3.0.0"), (&name, &value)]);
        match Request::decode(&one_frame(&out, Direction::Request)) {
            Ok(Request::Startup { options }) => prop_assert_eq!(options.get(&name), Some(&*value)),
            other => prop_assert!(false, "{other:?}"),
        }
        let mut out = Vec::new();
        request::encode_register(&mut out, 0, &[&name, &value]);
        match Request::decode(&one_frame(&out, Direction::Request)) {
            Ok(Request::Register { events }) => {
                prop_assert_eq!(events.collect::<Vec<_>>(), [&name, &value]);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn rows_round_trip(
        rows in cells(),
        skip_metadata in any::<bool>(),
        state in any::<Option<Vec<u8>>>(),
    ) {
        let width = rows.first().map_or(1, Vec::len);
        let mut out = Vec::new();
        let mut writer =
            RowsWriter::begin(&mut out, 9, &columns(width), skip_metadata, state.as_deref());
        for row in &rows {
            for cell in row {
                writer.cell(cell.as_deref());
            }
            writer.end_row();
        }
        let body_bytes = writer.finish();
        prop_assert_eq!(body_bytes + HEADER_BYTES, out.len());
        match Response::decode(&one_frame(&out, Direction::Response)) {
            Ok(Response::Rows(decoded)) => {
                prop_assert_eq!(decoded.metadata.column_count, width);
                prop_assert_eq!(decoded.metadata.paging_state, state.as_deref());
                prop_assert_eq!(decoded.metadata.columns.is_none(), skip_metadata);
                let read: Vec<Vec<_>> =
                    decoded.iter().map(|row| row.cells().map(|c| c.map(<[u8]>::to_vec)).collect()).collect();
                prop_assert_eq!(read, rows);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn prepared_round_trips(
        id in prop::collection::vec(any::<u8>(), 0..40),
        markers in 0..4_usize,
        key in prop::collection::vec(any::<u16>(), 0..3),
        result in prop::option::of(1..3_usize),
    ) {
        let mut out = Vec::new();
        let encoded = result.map(columns);
        response::encode_prepared(&mut out, 2, &id, &columns(markers), &key, encoded.as_ref());
        match Response::decode(&one_frame(&out, Direction::Response)) {
            Ok(Response::Prepared(prepared)) => {
                prop_assert_eq!(prepared.id, id);
                prop_assert_eq!(prepared.partition_key, key);
                prop_assert_eq!(prepared.markers.columns.map_or(0, Iterator::count), markers);
                prop_assert_eq!(prepared.result.columns.map_or(0, Iterator::count), result.unwrap_or(0));
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(
        header in any::<(bool, u8, u16)>(),
        opcode in 0..0x11_u8,
        body in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(4), any::<u8>()], 0..80),
    ) {
        let (response, flags, stream) = header;
        let [high, low] = stream.to_be_bytes();
        let length = u8::try_from(body.len()).unwrap();
        let version = if response { 0x84 } else { 0x04 };
        let mut bytes = vec![version, flags & 0x0e, high, low, opcode, 0, 0, 0, length];
        bytes.extend_from_slice(&body);
        decode_all(&bytes);
        decode_all(&body);
    }
}
