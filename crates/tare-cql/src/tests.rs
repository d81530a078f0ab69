//! Every message round-trips in every version, and no bytes make a decoder panic: neither arbitrary
//! ones nor valid frames that are cut short or have a flipped bit.

use crate::frame::{
    self, BODY_BYTES_MAX, Direction, Frame, FrameError, HEADER_BYTES, Head, Opcode, Version,
};
use crate::request::{self, BatchKind, BatchStatement, Request, Settings};
use crate::response::{
    self, Change, ColumnSpec, EncodedColumns, ErrorKind, Event, Failures, Reply, Response,
    ResultMetadata, RowsWriter, SchemaChange, SchemaTarget, StatusChange, TopologyChange,
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
enum OwnedValue {
    Bytes(Vec<u8>),
    Null,
    Unset,
}

impl OwnedValue {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Null => Value::Null,
            Self::Unset => Value::Unset,
        }
    }
}

fn owned_value() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..100).prop_map(OwnedValue::Bytes),
        1 => Just(OwnedValue::Null),
        1 => Just(OwnedValue::Unset),
    ]
}

#[derive(Debug, Clone)]
struct SettingsCase {
    consistency: Consistency,
    skip_metadata: bool,
    page_size: Option<i32>,
    paging_state: Option<Vec<u8>>,
    serial_consistency: Option<Consistency>,
    timestamp_us: Option<i64>,
    keyspace: Option<String>,
    now_s: Option<i32>,
    result_id: Vec<u8>,
}

impl SettingsCase {
    /// The settings that `version` can express.
    fn settings(&self, version: Version) -> Settings<'_> {
        let newer = version >= Version::V5;
        Settings {
            keyspace: self.keyspace.as_deref().filter(|_| newer),
            now_s: self.now_s.filter(|_| newer),
            result_id: newer.then_some(&self.result_id),
            consistency: self.consistency,
            skip_metadata: self.skip_metadata,
            page_size: self.page_size,
            paging_state: self.paging_state.as_deref(),
            serial_consistency: self.serial_consistency,
            timestamp_us: self.timestamp_us,
        }
    }
}

fn settings_case() -> impl Strategy<Value = SettingsCase> {
    let consistency = || prop::sample::select(Consistency::ALL.to_vec());
    (
        consistency(),
        any::<bool>(),
        any::<Option<i32>>(),
        any::<Option<Vec<u8>>>(),
        prop::option::of(consistency()),
        any::<Option<i64>>(),
        prop::option::of(".{0,10}"),
        any::<Option<i32>>(),
        any::<[u8; 16]>(),
    )
        .prop_map(|case| SettingsCase {
            consistency: case.0,
            skip_metadata: case.1,
            page_size: case.2,
            paging_state: case.3,
            serial_consistency: case.4,
            timestamp_us: case.5,
            keyspace: case.6,
            now_s: case.7,
            result_id: case.8.to_vec(),
        })
}

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(Version::ALL.to_vec())
}

fn cells() -> impl Strategy<Value = Vec<Vec<Option<Vec<u8>>>>> {
    (1..5_usize).prop_flat_map(|columns| {
        let cell = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
        prop::collection::vec(prop::collection::vec(cell, columns), 0..6)
    })
}

fn columns(count: usize) -> EncodedColumns {
    let kind = Type::Map(Box::new(Type::Text), Box::new(Type::Duration));
    EncodedColumns::new("ks", "t", (0..count).map(|_| ColumnSpec { name: "c", kind: &kind }))
}

/// Every error of a server, once.
fn errors(version: Version) -> [ErrorKind<'static>; 21] {
    let consistency = Consistency::Quorum;
    let (received, required, data_present) = (1, 2, true);
    let write_type = "CAS";
    let contentions = (version >= Version::V5).then_some(9);
    let failures = match version {
        Version::V4 => Failures::Count(3),
        Version::V5 => Failures::Reasons(vec![([127, 0, 0, 1].into(), 4)]),
    };
    [
        ErrorKind::Server,
        ErrorKind::Protocol,
        ErrorKind::BadCredentials,
        ErrorKind::Unavailable { consistency, required, alive: 1 },
        ErrorKind::Overloaded,
        ErrorKind::Bootstrapping,
        ErrorKind::Truncate,
        ErrorKind::WriteTimeout { consistency, received, required, write_type, contentions },
        ErrorKind::ReadTimeout { consistency, received, required, data_present },
        ErrorKind::ReadFailure {
            consistency,
            received,
            required,
            failures: failures.clone(),
            data_present,
        },
        ErrorKind::FunctionFailure { keyspace: "ks", function: "f", arguments: vec!["int"] },
        ErrorKind::WriteFailure { consistency, received, required, failures, write_type },
        ErrorKind::CdcWriteFailure,
        ErrorKind::CasWriteUnknown { consistency, received, required },
        ErrorKind::Syntax,
        ErrorKind::Unauthorized,
        ErrorKind::Invalid,
        ErrorKind::Config,
        ErrorKind::AlreadyExists { keyspace: "ks", table: "" },
        ErrorKind::Unprepared { id: b"0123456789abcdef" },
        ErrorKind::Unknown { code: 0x7777 },
    ]
}

/// Every response of a server, once.
fn responses(version: Version) -> Vec<Vec<u8>> {
    let head = Head { version, stream: 7 };
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
        frame(&|out| response::encode_ready(out, head)),
        frame(&|out| response::encode_authenticate(out, head, "Class")),
        frame(&|out| response::encode_auth_challenge(out, head, Some(b"more"))),
        frame(&|out| response::encode_auth_success(out, head, None)),
        frame(&|out| response::encode_supported(out, head, &[("CQL_VERSION", &["3.4.5"])])),
        frame(&|out| response::encode_void(out, head)),
        frame(&|out| response::encode_set_keyspace(out, head, "ks")),
        frame(&|out| {
            response::encode_prepared(out, head, b"id", &columns(3), &[1, 0], Some(&columns(2)));
        }),
        frame(&|out| response::encode_prepared(out, head, b"id", &columns(0), &[], None)),
        frame(&|out| {
            let mut rows = RowsWriter::begin(out, head, &columns(2), Some(b"state"));
            for cell in [Some(&b"a"[..]), None, None, Some(b"")] {
                rows.cell(cell);
            }
            rows.end_row();
            rows.end_row();
            rows.finish();
        }),
    ];
    for error in errors(version) {
        let bytes = frame(&|out| response::encode_error(out, head, &error, "why"));
        let decoded = Response::decode(&one_frame(&bytes, Direction::Response)).unwrap();
        let Response::Error(body) = decoded else { panic!("{decoded:?}") };
        assert_eq!((body.kind, body.message), (error, "why"));
        frames.push(bytes);
    }
    for change in changes {
        let bytes = frame(&|out| response::encode_schema_change(out, head, &change));
        let decoded = Response::decode(&one_frame(&bytes, Direction::Response)).unwrap();
        assert!(matches!(decoded, Response::SchemaChange(decoded) if decoded == change));
        frames.push(bytes);
    }
    for event in events {
        let bytes = frame(&|out| response::encode_event(out, version, &event));
        let decoded = one_frame(&bytes, Direction::Response);
        assert_eq!(decoded.stream, -1);
        let decoded = Response::decode(&decoded).unwrap();
        assert!(matches!(decoded, Response::Event(decoded) if decoded == event));
        frames.push(bytes);
    }
    frames
}

/// Every request of a client, once.
fn requests(version: Version) -> Vec<Vec<u8>> {
    let head = Head { version, stream: 1 };
    let mut frames = vec![Vec::new(); 8];
    let settings = Settings { page_size: Some(5000), ..Settings::default() };
    request::encode_options(&mut frames[0], head);
    request::encode_startup(&mut frames[1], head, &[("CQL_VERSION", "3.0.0")]);
    request::encode_register(&mut frames[2], head, &response::EVENT_TYPES);
    request::encode_auth_response(&mut frames[3], head, Some(b"\0user\0secret"));
    request::encode_prepare(&mut frames[4], head, "SELECT");
    let values = [Value::Bytes(b"x"), Value::Null, Value::Unset];
    request::encode_query(&mut frames[5], head, "SELECT", &settings, &values);
    request::encode_execute(&mut frames[6], head, b"id", &settings, &values);
    let text = (BatchStatement::Text("INSERT"), &values[..]);
    let prepared = (BatchStatement::Prepared(b"id"), &values[..1]);
    let items = [text, prepared];
    request::encode_batch(&mut frames[7], head, BatchKind::Logged, &items, &settings);
    // Values bound by name, which this crate decodes but never sends, and features of version 5
    // only.
    frames.push(match version {
        Version::V4 => {
            b"\x04\0\0\x01\x07\0\0\0\x12\0\0\0\x01S\0\x01\x41\0\x01\0\x01a\0\0\0\x01x".to_vec()
        }
        Version::V5 => b"\x05\0\0\x01\x09\0\0\0\x0d\0\0\0\x01S\0\0\0\x01\0\x02ks".to_vec(),
    });
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
        Request::Batch(batch) => assert_eq!(batch.items().count(), batch.items().len()),
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
fn messages_decode_and_damaged_ones_do_not_panic() {
    for version in Version::ALL {
        for bytes in requests(version) {
            let frame = one_frame(&bytes, Direction::Request);
            assert!(Request::decode(&frame).is_ok(), "{bytes:02x?}");
            damage(&bytes);
        }
        for bytes in responses(version) {
            let frame = one_frame(&bytes, Direction::Response);
            assert!(Response::decode(&frame).is_ok(), "{bytes:02x?}");
            damage(&bytes);
        }
    }
}

fn damage(bytes: &[u8]) {
    for cut in 0..bytes.len() {
        let direction = if bytes[0] & 0x80 == 0 { Direction::Request } else { Direction::Response };
        assert_eq!(frame::decode(&bytes[..cut], direction, BODY_BYTES_MAX), Ok(None));
        // The same cut, with a header that has the right length.
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
fn unknown_versions_are_answered_in_the_nearest_known_one() {
    for version in [1_u8, 2, 3, 6, 65, 66] {
        let stream = if version < 3 { [7, 0x05] } else { [0, 7] };
        let bytes = [version, 0, stream[0], stream[1], 0x05, 0, 0, 0, 0];
        let error = frame::decode(&bytes, Direction::Request, BODY_BYTES_MAX).unwrap_err();
        assert_eq!(error, FrameError::Version { version, stream: 7 });
        let mut out = Vec::new();
        error.answer(Version::V4, &mut out);
        let frame = one_frame(&out, Direction::Response);
        assert_eq!((frame.stream, frame.opcode), (7, Opcode::Error));
        assert_eq!(frame.version, if version < 4 { Version::V4 } else { Version::V5 });
        let Ok(Response::Error(body)) = Response::decode(&frame) else { panic!("no error") };
        assert_eq!(body.kind, ErrorKind::Protocol);
        let message = format!(
            "Invalid or unsupported protocol version ({version}); supported versions are (4/v4, 5/v5)"
        );
        assert_eq!(body.message, message);
    }
}

#[test]
fn warnings_are_put_into_the_last_response() {
    let mut out = Vec::new();
    response::encode_ready(&mut out, 1);
    let offset = out.len();
    response::encode_set_keyspace(&mut out, 2, "ks");
    frame::insert_warnings(&mut out, offset, &[]);
    assert_eq!(out[offset + 1], 0);
    frame::insert_warnings(&mut out, offset, &["slow", "big"]);
    let frame = one_frame(&out[offset..], Direction::Response);
    assert_eq!((frame.stream, frame.flags), (2, frame::flag::WARNING));
    let decoded = Response::decode(&frame).unwrap();
    assert!(matches!(decoded, Response::SetKeyspace { keyspace: "ks" }), "{decoded:?}");
    assert_eq!(frame.warnings().collect::<Vec<_>>(), ["slow", "big"]);
}

#[test]
fn columns_are_described_as_the_client_needs_it() {
    let (two, three) = (columns(2), columns(3));
    let reply = Reply::from(Head { version: Version::V5, stream: 1 });
    let metadata_for = |skip_metadata, result_id| {
        let settings = Settings { skip_metadata, result_id, ..Settings::DEFAULT };
        reply.metadata_for(&settings, &two).columns
    };
    assert_eq!(metadata_for(false, None), ResultMetadata::Full);
    assert_eq!(metadata_for(true, None), ResultMetadata::Omitted);
    assert_eq!(metadata_for(true, Some(two.id())), ResultMetadata::Omitted);
    assert_eq!(metadata_for(true, Some(three.id())), ResultMetadata::Changed);
    let mut out = Vec::new();
    let changed = Reply { columns: ResultMetadata::Changed, ..reply };
    RowsWriter::begin(&mut out, changed, &two, Some(b"state")).finish();
    let decoded = Response::decode(&one_frame(&out, Direction::Response)).unwrap();
    let Response::Rows(rows) = decoded else { panic!("{decoded:?}") };
    assert_eq!(rows.metadata.new_id, Some(two.id()));
    assert_eq!(rows.metadata.columns.map(Iterator::count), Some(2));
}

#[test]
fn duration_has_its_own_code_in_version_5() {
    for (version, bytes) in [(Version::V4, 48), (Version::V5, 2)] {
        let mut out = Vec::new();
        Type::Duration.encode(version, &mut out);
        assert_eq!(out.len(), bytes);
        assert_eq!(Type::decode(&mut crate::wire::Reader::new(&out)), Ok(Type::Duration));
    }
}

#[test]
fn invalid_headers_are_refused_before_their_body() {
    let check = |bytes: &[u8; 9], expected: FrameError| {
        assert_eq!(frame::decode(bytes, Direction::Request, 1000), Err(expected));
    };
    let stream = 3;
    check(
        b"\x04\0\0\x03\x07\0\0\x03\xe9",
        FrameError::TooLong { stream, length: 1001, limit: 1000 },
    );
    check(b"\x04\x01\0\x03\x07\0\0\0\x09", FrameError::Compressed { stream });
    assert!(frame::decode(b"\x05\x01\0\x03\x05\0\0\0\0", Direction::Request, 1000).is_ok());
    check(b"\x04\0\0\x03\x04\0\0\0\x09", FrameError::Opcode { stream, opcode: 4 });
    check(
        b"\x84\0\0\x03\x07\0\0\0\x09",
        FrameError::Direction { stream, expected: Direction::Request },
    );
}

#[test]
fn data_before_a_message_is_skipped() {
    let mut bytes = b"\x84\x0e\0\x01\x02\0\0\0\0".to_vec();
    bytes.extend_from_slice(&[9; 16]);
    bytes.extend_from_slice(b"\0\x01\0\x04warn");
    bytes.extend_from_slice(b"\0\x01\0\x01k\0\0\0\x01v");
    bytes[8] = u8::try_from(bytes.len() - 9).unwrap();
    assert!(one_frame(&bytes, Direction::Response).body.is_empty());
    // A request for tracing adds nothing to the body.
    let frame = one_frame(b"\x04\x02\0\x01\x05\0\0\0\0", Direction::Request);
    assert!(matches!(Request::decode(&frame), Ok(Request::Options)));
}

#[test]
fn rows_without_columns_are_refused() {
    let mut bytes = b"\x84\0\0\x01\x08\0\0\0\x10".to_vec();
    bytes.extend_from_slice(b"\0\0\0\x02\0\0\0\x04\0\0\0\0\x7f\xff\xff\xff");
    let decoded = Response::decode(&one_frame(&bytes, Direction::Response));
    assert_eq!(decoded.unwrap_err(), DecodeError::Length { what: "number of columns", length: 0 });
}

proptest! {
    #[test]
    fn execute_round_trips(
        version in version(),
        stream in any::<i16>(),
        id in prop::collection::vec(any::<u8>(), 0..32),
        case in settings_case(),
        values in prop::collection::vec(owned_value(), 0..12),
    ) {
        let values: Vec<_> = values.iter().map(OwnedValue::value).collect();
        let mut out = b"before".to_vec();
        let settings = case.settings(version);
        request::encode_execute(&mut out, Head { version, stream }, &id, &settings, &values);
        let frame = one_frame(&out[6..], Direction::Request);
        prop_assert_eq!((frame.version, frame.stream), (version, stream));
        match Request::decode(&frame) {
            Ok(Request::Execute { id: decoded, parameters }) => {
                prop_assert_eq!(decoded, &id);
                prop_assert_eq!(parameters.settings, settings);
                prop_assert_eq!(parameters.values.iter().collect::<Vec<_>>(), values);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn batch_round_trips(
        version in version(),
        case in settings_case(),
        items in prop::collection::vec((any::<bool>(), ".{0,9}", prop::collection::vec(owned_value(), 0..4)), 0..5),
    ) {
        let values: Vec<Vec<_>> =
            items.iter().map(|(.., values)| values.iter().map(OwnedValue::value).collect()).collect();
        let items: Vec<_> = items.iter().zip(&values).map(|((prepared, text, _), values)| {
            let statement = match prepared {
                true => BatchStatement::Prepared(text.as_bytes()),
                false => BatchStatement::Text(text),
            };
            (statement, &values[..])
        }).collect();
        let settings = Settings {
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            result_id: None,
            ..case.settings(version)
        };
        let mut out = Vec::new();
        let head = Head { version, stream: 5 };
        request::encode_batch(&mut out, head, BatchKind::Unlogged, &items, &case.settings(version));
        match Request::decode(&one_frame(&out, Direction::Request)) {
            Ok(Request::Batch(batch)) => {
                prop_assert_eq!(batch.kind, BatchKind::Unlogged);
                prop_assert_eq!(batch.settings, settings);
                prop_assert_eq!(batch.items().len(), items.len());
                for (item, (statement, values)) in batch.items().zip(&items) {
                    prop_assert_eq!(item.statement, *statement);
                    prop_assert_eq!(item.values.iter().collect::<Vec<_>>(), *values);
                }
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn query_and_prepare_round_trip(
        version in version(),
        text in ".{0,60}",
        case in settings_case(),
        value in owned_value(),
    ) {
        let head = Head { version, stream: 5 };
        let settings = Settings { result_id: None, ..case.settings(version) };
        let mut out = Vec::new();
        request::encode_query(&mut out, head, &text, &settings, &[value.value()]);
        match Request::decode(&one_frame(&out, Direction::Request)) {
            Ok(Request::Query { statement, parameters }) => {
                prop_assert_eq!(statement, &text);
                prop_assert_eq!(parameters.settings, settings);
                prop_assert_eq!(parameters.values.iter().next(), Some(value.value()));
            }
            other => prop_assert!(false, "{other:?}"),
        }
        let mut out = Vec::new();
        request::encode_prepare(&mut out, head, &text);
        match Request::decode(&one_frame(&out, Direction::Request)) {
            Ok(Request::Prepare { statement, keyspace: None }) => {
                prop_assert_eq!(statement, &text);
            }
            other => prop_assert!(false, "{other:?}"),
        }
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
        version in version(),
        rows in cells(),
        skip_metadata in any::<bool>(),
        state in any::<Option<Vec<u8>>>(),
    ) {
        let width = rows.first().map_or(1, Vec::len);
        let mut out = Vec::new();
        let described = if skip_metadata { ResultMetadata::Omitted } else { ResultMetadata::Full };
        let reply = Reply { head: Head { version, stream: 9 }, columns: described };
        let mut writer = RowsWriter::begin(&mut out, reply, &columns(width), state.as_deref());
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
        version in version(),
        id in prop::collection::vec(any::<u8>(), 0..40),
        markers in 0..4_usize,
        key in prop::collection::vec(any::<u16>(), 0..3),
        result in prop::option::of(1..3_usize),
    ) {
        let mut out = Vec::new();
        let encoded = result.map(columns);
        let head = Head { version, stream: 2 };
        response::encode_prepared(&mut out, head, &id, &columns(markers), &key, encoded.as_ref());
        match Response::decode(&one_frame(&out, Direction::Response)) {
            Ok(Response::Prepared(prepared)) => {
                prop_assert_eq!(prepared.id, id);
                prop_assert_eq!(prepared.result_id.is_some(), version >= Version::V5);
                prop_assert_eq!(prepared.partition_key, key);
                prop_assert_eq!(prepared.markers.columns.map_or(0, Iterator::count), markers);
                prop_assert_eq!(prepared.result.columns.map_or(0, Iterator::count), result.unwrap_or(0));
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_make_a_decoder_panic(
        header in any::<(bool, bool, u8, u16)>(),
        opcode in 0..0x11_u8,
        body in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(4), any::<u8>()], 0..80),
    ) {
        let (response, newer, flags, stream) = header;
        let [high, low] = stream.to_be_bytes();
        let length = u8::try_from(body.len()).unwrap();
        let version = if response { 0x84 } else { 0x04 } | u8::from(newer);
        let mut bytes = vec![version, flags & 0x0e, high, low, opcode, 0, 0, 0, length];
        bytes.extend_from_slice(&body);
        decode_all(&bytes);
        decode_all(&body);
    }
}
