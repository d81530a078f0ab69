//! Announces once, at the start, what the server found in its environment and what it chose: as a
//! table in the log and as the report.

use std::io::{self, Write};
use std::net::SocketAddr;

use crate::net::reactor::EngineChoice;
use crate::node::config::Config;
use crate::node::directory::{Directory, DirectoryError};
use crate::node::environment::{self, Environment, Line};
use crate::node::memory::Budget;
use crate::node::placement::Placement;
use crate::node::report::{self, Report};
use crate::server::error::DbError;

/// The facts that a server found and the choices that it made at its start.
pub(crate) struct StartupFacts<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) placement: &'a Placement,
    pub(crate) budget: Budget,
    pub(crate) chosen: &'a EngineChoice,
}

pub(crate) fn report_of(
    config: &Config,
    directory: &Directory,
    found: &StartupFacts<'_>,
    address: SocketAddr,
    replayed: u64,
) -> Report {
    let (durability, period_ms) = Report::durability(config.durability);
    let StartupFacts { placement, chosen, .. } = found;
    let direct = directory.direct_io();
    Report {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        listen: address.ip(),
        port: address.port(),
        shard_aware_port: None,
        passwords: config.users.is_some(),
        tls: config.tls.is_some(),
        tls_optional: config.tls.is_some() && config.tls_optional,
        shards: placement.shards,
        cpus: placement.cpus.clone(),
        pinned: placement.pinned.clone(),
        polling: placement.polling,
        polling_why: placement.why.clone(),
        io_engine: chosen.engine.into(),
        io_engine_why: chosen.why.clone(),
        durability,
        period_ms,
        memory_bytes: 0,
        direct_io: direct.works,
        direct_io_why: direct.why.clone(),
        file_system: direct.file_system.clone(),
        metrics: None,
        environment: Some(found.environment.clone()),
        replayed,
        injected_busy_ns: config.inject.busy_ns,
        injected_filter: config.inject.filter,
    }
}

/// Writes the report, and the same facts as a table into the log.
pub(crate) fn announce(
    directory: &Directory,
    report: &Report,
    found: &StartupFacts<'_>,
    log: &mut dyn Write,
) -> Result<(), DbError> {
    let StartupFacts { environment, placement, budget, .. } = found;
    let direct = match report.direct_io {
        true if report.file_system == "tmpfs" => {
            "yes, but the data is in memory and does not survive the host".to_string()
        }
        true => "yes: files are read and written past the page cache".to_string(),
        false => format!("no: {}; files go through the page cache", report.direct_io_why),
    };
    let mlock = match environment.mlock_bytes {
        None => "without limit".to_string(),
        Some(bytes) => format!("up to {}", environment::Bytes(bytes)),
    };
    let durability = match report.period_ms {
        Some(period) => format!("{}, every {period} ms", report.durability),
        None => report.durability.clone(),
    };
    let replayed = format!("{} log entries replayed", report.replayed);
    let mut lines = Vec::from(placement.lines(environment));
    lines.extend([
        budget.line(report.memory_bytes, environment),
        Line::new("I/O engine", &report.io_engine, &report.io_engine_why),
        Line::new("direct I/O", &report.file_system, direct),
        Line::new("memory lock", mlock, "the server locks no memory; the host decides about swap"),
        Line::new("huge pages", &environment.huge_pages, "the server requests none"),
        Line::new("durability", durability, replayed),
    ]);
    environment::table(&lines).iter().try_for_each(|line| log_line(log, line))?;
    let json = serde_json::to_vec_pretty(report).map_err(io::Error::other);
    let path = directory.file(report::FILE);
    let json = json.map_err(|source| DirectoryError::File { path: path.clone(), source })?;
    directory.write(&path, &json)?;
    if let Some(address) = report.metrics {
        log_line(log, &format!("metrics on http://{address}/metrics"))?;
    }
    let address = SocketAddr::new(report.listen, report.port);
    let aware = report.shard_aware_port;
    let aware = aware.map_or(String::new(), |port| format!(", shard-aware on port {port}"));
    let guard = match (report.passwords, report.tls, report.tls_optional) {
        (true, true, false) => "with passwords and TLS",
        (true, _, true) => "with passwords, with or without TLS",
        (true, false, _) => "with passwords, without TLS",
        (false, true, false) => "with TLS, without passwords",
        (false, _, true) => "with or without TLS, without passwords",
        (false, false, _) => "without passwords, without TLS",
    };
    log_line(log, &format!("listening on {address}{aware}, {guard}"))
}

/// Writes a line to the log.
pub(crate) fn log_line(log: &mut dyn Write, line: &str) -> Result<(), DbError> {
    writeln!(log, "{line}").and_then(|()| log.flush()).map_err(|source| DbError::Log { source })
}
