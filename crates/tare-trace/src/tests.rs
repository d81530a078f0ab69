//! Whole captures: made packet by packet, read as workloads, damaged in every way.

use std::path::PathBuf;

use etherparse::PacketBuilder;
use proptest::prelude::*;
use tare_cql::frame::{Head, Version};
use tare_cql::framing::Framing;
use tare_cql::request::{self, Settings};
use tare_cql::response::{self, ColumnSpec, EncodedColumns, RowsWriter};
use tare_cql::types::Type;
use tare_cql::wire::Value;
use tare_load::keys::{Keys, Sampler};
use tare_load::workload::{QueryKind, parse};
use tare_std::rng::Rng;

use crate::{Arrivals, Trace, TraceError, TraceProtocol, read};

/// A capture file that is written packet by packet, of one connection.
struct Capture {
    bytes: Vec<u8>,
    sequences: [u32; 2],
    at_us: u64,
    snap: usize,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Capture {
    /// Begins a pcap file of raw IP packets with the handshake of a connection.
    fn new() -> Self {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        bytes.extend([0; 8]);
        bytes.extend(65_535u32.to_le_bytes());
        bytes.extend(101u32.to_le_bytes());
        let mut capture = Self { bytes, sequences: [1000, 9000], at_us: 0, snap: usize::MAX };
        capture.packet(CLIENT, true, &[]);
        capture.packet(SERVER, true, &[]);
        capture
    }

    fn packet(&mut self, from: usize, opens: bool, data: &[u8]) {
        let ends = [([10, 0, 0, 1], 40_000), ([10, 0, 0, 2], 9042)];
        let ((source, from_port), (target, to_port)) = (ends[from], ends[1 - from]);
        let mut tcp = PacketBuilder::ipv4(source, target, 64).tcp(
            from_port,
            to_port,
            self.sequences[from],
            1 << 12,
        );
        if opens {
            tcp = tcp.syn();
        }
        if !opens || from == SERVER {
            tcp = tcp.ack(self.sequences[1 - from]);
        }
        let mut packet = Vec::new();
        tcp.write(&mut packet, data).unwrap();
        let next = u32::try_from(data.len()).unwrap() + u32::from(opens);
        self.sequences[from] = self.sequences[from].wrapping_add(next);
        let kept = &packet[..packet.len().min(self.snap)];
        let number = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
        self.bytes.extend(u32::try_from(self.at_us / 1_000_000).unwrap().to_le_bytes());
        self.bytes.extend(u32::try_from(self.at_us % 1_000_000).unwrap().to_le_bytes());
        self.bytes.extend(number(kept.len()));
        self.bytes.extend(number(packet.len()));
        self.bytes.extend(kept);
        self.at_us += 1;
    }

    fn send(&mut self, from: usize, data: &[u8]) {
        self.packet(from, false, data);
    }

    fn read(&self) -> Result<Trace, TraceError> {
        let folder = tempfile::tempdir().unwrap();
        let path = self.write(&folder);
        read(&path)
    }

    fn write(&self, folder: &tempfile::TempDir) -> PathBuf {
        let path = folder.path().join("shop.pcap");
        std::fs::write(&path, &self.bytes).unwrap();
        path
    }
}

const INSERT: &str = "INSERT INTO shop.carts (user, at, goods, note) VALUES (?, ?, ?, ?)";
const SELECT: &str = "SELECT goods, note FROM shop.carts WHERE user = ? AND at = ?";

fn columns(of: &[(&str, Type)]) -> EncodedColumns {
    let specs = of.iter().map(|(name, kind)| ColumnSpec { name, kind });
    EncodedColumns::new("shop", "carts", specs)
}

/// The load of a client: two prepared statements, one read to one write, one batch of two writes.
fn conversation(version: Version, operations: u64) -> Capture {
    let head = |stream| Head { version, stream };
    let framing = Framing::after_startup(version, true);
    let mut capture = Capture::new();
    let mut plain = Vec::new();
    request::encode_startup(&mut plain, head(0), &[("COMPRESSION", "lz4")]);
    capture.send(CLIENT, &plain);
    plain.clear();
    response::encode_ready(&mut plain, head(0));
    capture.send(SERVER, &plain);
    let mut packed = Vec::new();
    let mut send = |capture: &mut Capture, from, write: &dyn Fn(&mut Vec<u8>)| {
        plain.clear();
        packed.clear();
        write(&mut plain);
        framing.pack(&plain, &mut packed);
        capture.send(from, &packed);
    };
    let key = [("user", Type::Text), ("at", Type::Timestamp)];
    let values = [("goods", Type::Blob), ("note", Type::Text)];
    let all = columns(&[&key[..], &values[..]].concat());
    let (of_key, of_values) = (columns(&key), columns(&values));
    for (stream, text) in [(1, INSERT), (2, SELECT)] {
        send(&mut capture, CLIENT, &|out| request::encode_prepare(out, head(stream), text));
        let (markers, result) =
            if stream == 1 { (&all, None) } else { (&of_key, Some(&of_values)) };
        send(&mut capture, SERVER, &|out| {
            response::encode_prepared(out, head(stream), text.as_bytes(), markers, &[0], result);
        });
    }
    let sampler = Sampler::new(Keys::Zipfian { exponent: 0.9 }, 2000);
    let mut rng = Rng::new(3);
    let settings = Settings::DEFAULT;
    for index in 0..operations {
        let user = format!("user{:08}", sampler.draw(index, &mut rng, 0));
        let (user, at) = (Value::Bytes(user.as_bytes()), Value::Bytes(&[0; 8]));
        let goods = vec![7; 200];
        let write = [user, at, Value::Bytes(&goods), Value::Bytes(b"secret")];
        let is_read = index % 2 == 0;
        send(&mut capture, CLIENT, &|out| match is_read {
            true => {
                request::encode_execute(out, head(5), SELECT.as_bytes(), &settings, &[user, at]);
            }
            false => request::encode_execute(out, head(5), INSERT.as_bytes(), &settings, &write),
        });
        capture.at_us += 300;
        send(&mut capture, SERVER, &|out| {
            if !is_read {
                return response::encode_void(out, head(5));
            }
            let mut rows = RowsWriter::begin(out, head(5), &of_values, None);
            if index % 10 > 0 {
                rows.cell(Some(&goods));
                rows.cell(Some(b"secret"));
                rows.end_row();
            }
            rows.finish();
        });
        capture.at_us += 699;
    }
    let values = [Value::Bytes(b"user00000001"), Value::Bytes(&[0; 8]), Value::Null, Value::Null];
    let item = (request::BatchStatement::Prepared(INSERT.as_bytes()), &values[..]);
    send(&mut capture, CLIENT, &|out| {
        let kind = request::BatchKind::Unlogged;
        request::encode_batch(out, head(6), kind, &[item, item], &settings);
    });
    send(&mut capture, SERVER, &|out| response::encode_void(out, head(6)));
    capture
}

#[test]
fn cql_of_both_versions_becomes_its_workload() {
    for version in Version::ALL {
        let trace = conversation(version, 4000).read().unwrap();
        let text = &trace.workload;
        assert_eq!(trace.protocol, TraceProtocol::Cql);
        assert_eq!((trace.table.as_str(), trace.operations), ("shop.carts", 4002), "{text}");
        assert_eq!((trace.connections, trace.in_flight), (1, 1));
        assert_eq!(trace.arrivals, Arrivals::Even);
        assert!((990.0..1010.0).contains(&trace.rate_per_s), "{}", trace.rate_per_s);
        assert!(trace.left_out.is_empty(), "{:?}", trace.left_out);
        let workload = parse(text, "trace", "trace").unwrap();
        let [write, read] = workload.queries.as_slice() else { panic!("{text}") };
        assert_eq!((write.kind, read.kind), (QueryKind::Write, QueryKind::Read));
        assert_eq!((write.weight, read.weight), (2002.0, 2000.0));
        assert!((0.19..0.21).contains(&read.misses), "{text}");
        for query in [write, read] {
            let Keys::Zipfian { exponent } = query.keys else { panic!("{text}") };
            assert!((0.8..1.0).contains(&exponent), "{text}");
        }
        assert!((1500..2600).contains(&workload.rows), "{text}");
        for part in [
            "name = \"user\"\ntype = \"text\"\nsize = 12\n",
            "[[clustering]]\nname = \"at\"\ntype = \"timestamp\"\n",
            "size = 200\ncompressed_to = ",
            "# 1 batches are 2 single operations here.",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("secret") && !text.contains("user0"), "{text}");
    }
}

#[test]
fn redis_becomes_its_workload() {
    let mut capture = Capture::new();
    for index in 0..600 {
        let key = format!("session:{}", index % 50);
        let (request, answer) = match index % 3 {
            0 => (
                format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$5\r\nhello\r\n", key.len()),
                "+OK\r\n",
            ),
            1 => (format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()), "$5\r\nhello\r\n"),
            _ => (format!("*2\r\n$4\r\nINCR\r\n${}\r\n{key}\r\n", key.len()), ":1\r\n"),
        };
        capture.send(CLIENT, request.as_bytes());
        capture.send(SERVER, answer.as_bytes());
        capture.at_us += 500;
    }
    let trace = capture.read().unwrap();
    assert_eq!((trace.protocol, trace.operations), (TraceProtocol::Redis, 400));
    assert!((50..=52).contains(&trace.rows), "{}", trace.rows);
    let left_out: Vec<_> =
        trace.left_out.iter().map(|one| (one.operations, one.why.as_str())).collect();
    assert_eq!(left_out, [(200, "of the command INCR")]);
    let text = &trace.workload;
    let workload = parse(text, "trace", "trace").unwrap();
    assert_eq!(workload.query_names(), ["read", "write"], "{text}");
    assert!(text.contains("size = 5\n") && !text.contains("session"), "{text}");
}

#[test]
fn bad_input_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let check = |capture: &Capture, expect: &str| {
        let error = capture.read().unwrap_err().to_string();
        assert!(error.contains(expect) && !error.contains('\n'), "{error}");
    };
    let file = |name: &str, bytes: &[u8], expect: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    file("empty", b"", "is empty");
    file("text", b"[table]\n", "is no packet capture");
    file("packed", &[0x1f, 0x8b, 8, 0, 0], "gunzip");
    file("header", &Capture::new().bytes[..20], "is no packet capture");
    assert!(matches!(read(folder.path()), Err(TraceError::Read { .. })));
    assert!(matches!(read(&folder.path().join("none")), Err(TraceError::Read { .. })));
    let mut capture = Capture::new();
    check(&capture, "has no TCP packets with data");
    capture.send(CLIENT, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    check(&capture, "neither CQL nor Redis's protocol: 1 connections of HTTP");
    let mut capture = Capture::new();
    capture.send(CLIENT, &[0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]);
    capture.send(SERVER, &[0x16, 3, 3, 0, 122, 2, 0, 0, 118, 3, 3]);
    check(&capture, "is encrypted (TLS)");
    let mut capture = Capture::new();
    let mut startup = Vec::new();
    request::encode_startup(&mut startup, 0, &[("COMPRESSION", "snappy")]);
    capture.send(CLIENT, &startup);
    check(&capture, "compressed with snappy");
    let mut capture = Capture::new();
    startup.clear();
    request::encode_startup(&mut startup, 0, &[]);
    capture.send(CLIENT, &startup);
    check(&capture, "no operation that a workload can repeat");
    let mut execute = Vec::new();
    request::encode_execute(&mut execute, 1, b"id", &Settings::DEFAULT, &[]);
    capture.send(CLIENT, &execute);
    check(&capture, "were prepared before the capture began");
    let mut capture = Capture::new();
    capture.snap = 48;
    capture.send(CLIENT, &[7; 500]);
    check(&capture, "the packets of");
    let mut other_link = Capture::new();
    other_link.bytes[20] = 105;
    check(&other_link, "link type 105");
}

#[test]
fn lost_packets_are_counted_and_the_rest_is_read() {
    let whole = conversation(Version::V4, 1000);
    // Without every 97th packet: 24 bytes of header, then packets.
    let mut bytes = whole.bytes[..24].to_vec();
    let (mut at, mut number) = (24, 0);
    while at < whole.bytes.len() {
        let length = u32::from_le_bytes(whole.bytes[at + 8..at + 12].try_into().unwrap());
        let end = at + 16 + usize::try_from(length).unwrap();
        number += 1;
        if number % 97 != 0 {
            bytes.extend(&whole.bytes[at..end]);
        }
        at = end;
    }
    let trace = Capture { bytes, ..whole }.read().unwrap();
    assert!((970..1000).contains(&trace.operations), "{}", trace.operations);
    assert!(trace.workload.contains("times packets are missing"), "{}", trace.workload);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A damaged capture is an error or a workload, never a panic.
    #[test]
    fn damaged_captures_do_not_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        length in any::<prop::sample::Index>(),
        is_cut: bool,
        newer: bool,
    ) {
        let mut capture = conversation(if newer { Version::V5 } else { Version::V4 }, 20);
        for (place, byte) in damage {
            let place = place.index(capture.bytes.len());
            capture.bytes[place] = byte;
        }
        if is_cut {
            let length = length.index(capture.bytes.len());
            capture.bytes.truncate(length);
        }
        if let Ok(trace) = capture.read() {
            prop_assert!(parse(&trace.workload, "trace", "trace").is_ok());
        }
    }
}
