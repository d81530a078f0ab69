//! Reads a capture and returns its workload.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::Serialize;
use sha2::{Digest, Sha256};
use tare_load::workload::parse;
use tare_std::units::thousands;

use crate::arrivals::Arrivals;
use crate::build::{self, Pace};
use crate::error::TraceError;
use crate::key_value::Operations as RedisOperations;
use crate::spec::Spec;
use crate::statements::catalog::Catalog;
use crate::statements::operations::Operations;
use crate::tally::{self, Timing};
use crate::walk::{self, REDIS, Walked, walk};

/// What the clients of a trace speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceProtocol {
    Cql,
    Redis,
}

/// The workload of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// The name of the file without its path.
    pub file: String,
    pub sha256: String,
    pub protocol: TraceProtocol,
    /// `keyspace.table`, or `keys and values`.
    pub table: String,
    /// Operations of the workload in the trace.
    pub operations: u64,
    pub queries: Vec<QueryCount>,
    pub rows: u64,
    pub seconds: f64,
    pub rate_per_s: f64,
    pub arrivals: Arrivals,
    pub connections: u32,
    /// The most requests in flight at a time.
    pub in_flight: u32,
    pub left_out: Vec<LeftOut>,
    /// The text of the workload file.
    pub workload: String,
}

/// How often a query was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueryCount {
    pub name: String,
    pub operations: u64,
    /// As `tare load` writes a distribution.
    pub keys: String,
}

/// Operations that are no part of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub operations: u64,
    /// Reads on after "operations".
    pub why: String,
}

/// Reads a capture of CQL or of Redis's protocol and returns the workload that does the same.
///
/// # Errors
/// If the file is no capture, has another protocol, or nothing that a workload can repeat.
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    let file = path.display().to_string();
    let mut catalog = Catalog::default();
    let walked = walk(path, &mut |event| catalog.event(&event))?;
    let has_more_redis = walked.protocols.get(REDIS) > walked.protocols.get(walk::CQL);
    let found = match has_more_redis {
        true => redis(path, &file)?,
        false => cql(path, &file, &mut catalog)?,
    };
    let sha256 = digest(path).map_err(|source| TraceError::Read { file: file.clone(), source })?;
    found.finish(path, &file, sha256, &walked)
}

/// A workload with what is said about it.
struct Found {
    protocol: TraceProtocol,
    spec: Spec,
    timing: Timing,
    errors: u64,
    left_out: tally::LeftOut,
}

fn cql(path: &Path, file: &str, catalog: &mut Catalog) -> Result<Found, TraceError> {
    let Some(id) = catalog.main_table() else {
        let left_out = match catalog.has_unknown() {
            true => {
                ": its statements were prepared before the capture began; capture from the \
                     start of the clients on"
            }
            false => "",
        };
        return Err(TraceError::NoOperations { file: file.into(), left_out: left_out.into() });
    };
    let table = catalog.tables.get(&id).cloned().unwrap_or_default();
    let mut operations = Operations::new(catalog, &id, &table);
    walk(path, &mut |event| operations.event(&event))?;
    let mut left_out = operations.left_out.clone();
    if operations.timing.operations == 0 {
        return Err(no_operations(file, &left_out));
    }
    let spec = build::of_cql(&operations, &id, &table, &mut left_out)
        .map_err(|why| TraceError::Table { table: id.to_string(), why })?;
    if spec.queries.is_empty() {
        return Err(no_operations(file, &left_out));
    }
    let (timing, errors) = (operations.timing, operations.errors);
    Ok(Found { protocol: TraceProtocol::Cql, spec, timing, errors, left_out })
}

fn redis(path: &Path, file: &str) -> Result<Found, TraceError> {
    let mut operations = RedisOperations::default();
    walk(path, &mut |event| operations.event(&event))?;
    if operations.timing.operations == 0 {
        return Err(no_operations(file, &operations.left_out));
    }
    let spec = build::of_redis(&operations);
    let RedisOperations { timing, errors, left_out, .. } = operations;
    Ok(Found { protocol: TraceProtocol::Redis, spec, timing, errors, left_out })
}

fn no_operations(file: &str, left_out: &tally::LeftOut) -> TraceError {
    let all = left_out.sorted();
    let reasons: Vec<String> =
        all.iter().take(3).map(|(why, count)| format!("{} {why}", thousands(*count))).collect();
    let left_out = match reasons.is_empty() {
        true => String::new(),
        false => format!("; it has operations that are left out: {}", reasons.join(", ")),
    };
    TraceError::NoOperations { file: file.into(), left_out }
}

impl Found {
    fn finish(
        self,
        path: &Path,
        file: &str,
        sha256: String,
        walked: &Walked,
    ) -> Result<Trace, TraceError> {
        let Self { protocol, mut spec, timing, errors, left_out } = self;
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let pace = build::pace(&timing);
        let table = match protocol {
            TraceProtocol::Cql => format!("{}.{}", spec.keyspace, spec.table),
            TraceProtocol::Redis => "keys and values".into(),
        };
        spec.title = format!("the load of {name} on {table}");
        let mut head = vec![
            format!("The load of the trace {name} (SHA-256 {sha256})."),
            format!(
                "{} operations on {table} in {:.1} s.",
                thousands(timing.operations),
                timing.seconds()
            ),
        ];
        head.extend(build::pace_notes(&timing, &pace, errors));
        head.append(&mut spec.head);
        head.extend(left_out_notes(&left_out));
        head.extend(damage_notes(walked));
        head.extend([String::new(), command(protocol, &pace), String::new()]);
        spec.head = head;
        let workload = spec.text();
        let parsed = parse(&workload, &format!("the workload of {file}"), "trace");
        if let Err(source) = parsed.map_err(Box::new) {
            return Err(TraceError::Spec { file: file.into(), table, source });
        }
        let queries = spec.queries.iter().map(|query| QueryCount {
            name: query.name.clone(),
            operations: query.operations,
            keys: query.keys.to_string(),
        });
        let left_out = left_out.sorted().into_iter();
        Ok(Trace {
            file: name,
            sha256,
            protocol,
            table,
            operations: timing.operations,
            queries: queries.collect(),
            rows: spec.rows,
            seconds: timing.seconds(),
            rate_per_s: pace.rate_per_s,
            arrivals: pace.dispersion.arrivals,
            connections: pace.connections,
            in_flight: pace.in_flight,
            left_out: left_out.map(|(why, operations)| LeftOut { operations, why }).collect(),
            workload,
        })
    }
}

fn left_out_notes(left_out: &tally::LeftOut) -> Vec<String> {
    let all = left_out.sorted();
    let note =
        |(why, count): &(String, u64)| format!("Left out: {} operations {why}.", thousands(*count));
    all.iter().map(note).collect()
}

/// Says what of the capture could not be read.
fn damage_notes(walked: &Walked) -> Vec<String> {
    let mut notes = Vec::new();
    let count = |number, what: &str| format!("{} {what}", thousands(number));
    if walked.cut > 0 {
        notes.push(count(walked.cut, "packets are cut by the capture (--snapshot-length)."));
    }
    if walked.gaps > 0 {
        notes.push(count(
            walked.gaps,
            "times packets are missing; the requests around are not counted.",
        ));
    }
    if walked.broken > 0 {
        notes.push(count(walked.broken, "connections could not be read to their end."));
    }
    if walked.ends_within_packet {
        notes.push("The file ends within a packet.".into());
    }
    for (name, connections) in &walked.protocols {
        if *name != walk::CQL && *name != REDIS {
            notes.push(format!("{} connections of {name} are left out.", thousands(*connections)));
        }
    }
    notes
}

/// Returns the command that repeats the load.
fn command(protocol: TraceProtocol, pace: &Pace) -> String {
    let protocol = match protocol {
        TraceProtocol::Cql => "",
        TraceProtocol::Redis => " --protocol redis",
    };
    let arrivals = match pace.dispersion.arrivals {
        Arrivals::Even | Arrivals::Unknown => "",
        Arrivals::Poisson | Arrivals::Bursts => " --arrivals poisson",
    };
    format!(
        "Again: tare load HOST{protocol} --workload THIS_FILE --populate --rate {:.0}{arrivals} \
         --connections {}",
        pace.rate_per_s.max(1.0),
        pace.connections
    )
}

fn digest(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => break,
            length => hasher.update(&buffer[..length]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
