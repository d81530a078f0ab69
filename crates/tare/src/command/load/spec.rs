//! `tare load spec`: prints a workload like the load of a packet capture, or for a table.

use std::io::Write;
use std::time::Instant;

use tare_load::access::Protocol;

use super::{CONNECT_DEADLINE, output};
use crate::cli::{MakeSpec, TableName};
use crate::exit::{Exit, ExitWith};

pub(super) fn run(options: &MakeSpec, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if let Some(TableName { keyspace, table }) = &options.table {
        let access = options.access.resolve()?;
        if !matches!(access.protocol, Protocol::Cql(_)) {
            let why = "--table reads a table of CQL; leave out --protocol";
            return Err(anyhow::anyhow!(why)).exit_with(Exit::Usage);
        }
        let deadline = Instant::now() + CONNECT_DEADLINE;
        let sampled = tare_trace::sample(&access, keyspace, table, deadline);
        let sampled = sampled.exit_with(Exit::Failure)?;
        match options.json {
            true => output::json(&sampled, out)?,
            false => out.write_all(sampled.workload.as_bytes())?,
        }
        return Ok(Exit::Success);
    }
    // The command line has one of the two.
    let file = options.like.as_deref().unwrap_or("".as_ref());
    let trace = tare_trace::read(file).exit_with(Exit::Input)?;
    match options.json {
        true => output::json(&trace, out)?,
        false => out.write_all(trace.workload.as_bytes())?,
    }
    Ok(Exit::Success)
}
