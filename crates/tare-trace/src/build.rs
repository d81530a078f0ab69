//! Makes a workload of the operations of a trace.

use std::cmp::Reverse;

use tare_cql::types::Type;
use tare_load::keys::Keys;
use tare_load::value::Distribution;
use tare_load::workload::{QueryKind, is_name};
use tare_std::units::{nanoseconds, significant, thousands};

use crate::arrivals::{self, Arrivals, Dispersion};
use crate::fit::Fit;
use crate::key_value::Operations as Redis;
use crate::sizes::{ColumnSizes, Sizes, whole};
use crate::spec::{self, Column, Key, Query, Spec};
use crate::statements::catalog::Table;
use crate::statements::operations::Operations as Cql;
use crate::statements::shape::TableId;
use crate::tally::{self, LeftOut, Timing};

/// The most rows of a slice or scan.
const LIMIT_MAX: u64 = 10_000;
/// A fit that is further off is called so.
const DISTANCE_MAX: f64 = 0.05;
/// Queries with fewer operations have the keys of all together.
const OPERATIONS_MIN: u64 = 1000;

/// The rate and shape of the load beside its queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) rate_per_s: f64,
    pub(crate) dispersion: Dispersion,
    pub(crate) connections: u32,
    pub(crate) in_flight: u32,
}

/// Returns the pace of a trace.
pub(crate) fn pace(timing: &Timing) -> Pace {
    Pace {
        rate_per_s: timing.rate_per_s(),
        dispersion: arrivals::dispersion(&timing.times_ns),
        connections: u32::try_from(timing.connections.len()).unwrap_or(u32::MAX).clamp(1, 10_000),
        in_flight: u32::try_from(timing.in_flight_most).unwrap_or(u32::MAX).clamp(1, 1_000_000),
    }
}

/// Makes the workload of the operations on a table of CQL; an error is why there is none.
pub(crate) fn of_cql(
    operations: &Cql<'_>,
    id: &TableId,
    table: &Table,
    left_out: &mut LeftOut,
) -> Result<Spec, String> {
    let key = &operations.key;
    if key.partition.is_empty() {
        return Err("the capture does not say which columns are its key".into());
    }
    let names = [&id.keyspace, &id.table].into_iter().chain(&key.partition).chain(&key.clustering);
    if let Some(name) = names.into_iter().find(|name| !is_name(name)) {
        return Err(format!("the name {name:?} has other characters than letters, digits and _"));
    }
    let keys = |names: &[String]| -> Result<Vec<Key>, String> {
        names.iter().map(|name| key_column(operations, table, name)).collect()
    };
    let mut spec = Spec {
        keyspace: id.keyspace.clone(),
        table: id.table.clone(),
        partition: keys(&key.partition)?,
        clustering: keys(&key.clustering)?,
        ..Spec::default()
    };
    spec.columns = columns(operations, table);
    if spec.columns.is_empty() {
        return Err("no operation names a column outside its key that tare load can write".into());
    }
    rows(&mut spec, operations);
    if !table.has_schema() && spec.clustering.is_empty() {
        spec.rows_note +=
            " The capture has no read of the schema: other columns may be in the key.";
    }
    queries(&mut spec, operations, left_out);
    if operations.batches > 0 {
        spec.head.push(format!(
            "{} batches are {} single operations here.",
            thousands(operations.batches),
            thousands(operations.in_batches)
        ));
    }
    Ok(spec)
}

fn key_column(operations: &Cql<'_>, table: &Table, name: &str) -> Result<Key, String> {
    let kind =
        table.types.get(name).ok_or(format!("the type of its key column {name} is unknown"))?;
    if !spec::is_loadable(kind) || *kind == Type::Duration {
        return Err(format!("its key column {name} is a {kind}"));
    }
    let bytes = operations.key_sizes.get(name).map_or(0.0, Sizes::mean);
    Ok(Key { name: name.into(), kind: kind.clone(), bytes })
}

fn columns(operations: &Cql<'_>, table: &Table) -> Vec<Column> {
    let known = operations.columns.iter().filter(|(name, _)| is_name(name)).take(1000);
    let column = |(name, found): (&String, &ColumnSizes)| {
        let (sizes, is_read) = found.known();
        Some(column(name, table.types.get(name)?.clone(), sizes, is_read))
    };
    known.filter_map(column).collect()
}

/// Returns a column with values of these sizes. `is_read`: the values were read, not written.
pub(crate) fn column(name: &str, kind: Type, sizes: &Sizes, is_read: bool) -> Column {
    let (size, note) = match sizes.count() {
        0 => (Distribution::Fixed(64), "No value seen: the default.".into()),
        _ => {
            let source = if is_read { ", as read" } else { "" };
            (sizes.distribution(), format!("{}{source}.", sizes.describe()))
        }
    };
    Column { name: name.into(), kind, size, compressed_to: sizes.compressed_share(), note }
}

/// Finds the number of rows, and of rows in a partition.
fn rows(spec: &mut Spec, operations: &Cql<'_>) {
    let by_row = operations.queries.iter().filter(|((kind, _), _)| !kind.reads_many());
    let of_rows = tally::fit_together(by_row.map(|(_, query)| &query.keys));
    let of_partitions = tally::fit_together(std::iter::once(&operations.partitions));
    let slices = operations.queries.iter().filter(|((kind, _), _)| *kind == QueryKind::Slice);
    let longest = slices.map(|(_, query)| query.rows.most()).max().unwrap_or(1).max(1);
    let partitions = of_partitions.as_ref().map_or(1, |fit| fit.rows);
    let found = of_rows.as_ref().map_or(partitions, |fit| fit.rows);
    spec.rows_per_partition = match spec.clustering.is_empty() {
        true => 1,
        false => whole((found as f64 / partitions as f64).round()).max(longest).max(1),
    };
    spec.rows = found.max(partitions.saturating_mul(spec.rows_per_partition));
    spec.rows_note = match of_rows.as_ref().or(of_partitions.as_ref()) {
        Some(fit) => rows_note(fit),
        None => "The trace does not say how many rows there are.".into(),
    };
    if spec.rows_per_partition > 1 {
        spec.rows_note += " The rows of a partition are estimated from its rows in the trace.";
    }
}

fn rows_note(fit: &Fit) -> String {
    let seen = thousands(fit.seen);
    match fit.is_known {
        true if fit.rows == fit.seen => format!("{seen} different keys were asked for."),
        true => format!(
            "{seen} different keys were asked for; so many rows have as many under the fitted keys."
        ),
        false => format!(
            "At least: {seen} different keys were asked for, too few of them twice to tell."
        ),
    }
}

fn queries(spec: &mut Spec, operations: &Cql<'_>, left_out: &mut LeftOut) {
    let together = tally::fit_together(operations.queries.values().map(|query| &query.keys));
    let all: u64 = operations.queries.values().map(|query| query.operations).sum();
    let mut sorted: Vec<_> = operations.queries.iter().collect();
    sorted.sort_by_key(|((kind, _), query)| (Reverse(query.operations), kind.name()));
    for ((kind, written), found) in sorted {
        if spec.queries.len() == spec::QUERIES_MAX {
            left_out.add("of rarer statements", found.operations);
            continue;
        }
        if let Some(query) = query(spec, *kind, *written, found, together.as_ref(), all) {
            spec.queries.push(query);
        } else {
            left_out.add("of writes of no column that tare load can write", found.operations);
        }
    }
}

/// Returns a query; `None` for a write of no column.
fn query(
    spec: &Spec,
    kind: QueryKind,
    written: usize,
    found: &tally::Query,
    together: Option<&Fit>,
    all: u64,
) -> Option<Query> {
    let writes = matches!(kind, QueryKind::Write | QueryKind::Update);
    let columns = spec.columns.len();
    if writes && written == 0 {
        return None;
    }
    // An INSERT of some columns is an update of them.
    let is_part = kind == QueryKind::Write && written < columns;
    let kind = if is_part { QueryKind::Update } else { kind };
    let share = found.operations as f64 / all.max(1) as f64;
    let statements = match found.statements.len() {
        1 => String::new(),
        many => format!(", {many} statements"),
    };
    let mut notes = vec![format!(
        "{} operations, {} %{statements}.",
        thousands(found.operations),
        significant(share * 100.0, 3)
    )];
    notes.extend(is_part.then(|| format!("An INSERT of {written} columns.")));
    let rows = (!kind.reads_many()).then_some(spec.rows);
    let has_own = found.operations >= OPERATIONS_MIN;
    let own = if has_own { found.keys.fit(rows) } else { None };
    let keys = match own.as_ref().or(together) {
        Some(fit) => {
            notes.extend(keys_notes(fit, own.is_none(), rows.is_none()));
            fit.keys
        }
        None => Keys::Uniform,
    };
    let mut limit = None;
    if kind.reads_many() {
        limit = Some(clamp(found.rows.distribution()));
        notes.push(match found.rows.count() {
            0 => "No answer seen: one row.".into(),
            _ => format!("{:.1} rows in an answer on average.", found.rows.mean()),
        });
    }
    let misses = if kind.reads() && found.answered > 0 {
        (found.empty as f64 / found.answered as f64 * 1000.0).round() / 1000.0
    } else {
        0.0
    };
    let some = kind == QueryKind::Update && written < columns;
    let taken = spec.queries.iter().filter(|query| query.kind == kind).count();
    let name = match taken {
        0 => kind.name().to_string(),
        _ => format!("{}-{}", kind.name(), taken + 1),
    };
    let columns = some.then_some(written);
    let operations = found.operations;
    Some(Query { name, kind, operations, keys, misses, limit, columns, notes })
}

/// Keeps the rows of a slice or scan within those of a workload.
fn clamp(rows: Distribution) -> Distribution {
    let within = |rows: u64| rows.clamp(1, LIMIT_MAX);
    match rows {
        Distribution::Fixed(rows) => Distribution::Fixed(within(rows)),
        Distribution::Uniform(least, most) => Distribution::Uniform(within(least), within(most)),
        Distribution::Gaussian(least, most) => Distribution::Gaussian(within(least), within(most)),
    }
}

/// Says how well the keys fit.
fn keys_notes(fit: &Fit, is_common: bool, is_partition: bool) -> Vec<String> {
    let of = match (is_common, is_partition) {
        (true, _) => " (of all queries together)",
        (_, true) => " (of partitions)",
        _ => "",
    };
    if !fit.is_known {
        return vec![format!("Keys{of}: too few come twice to tell; uniform is assumed.")];
    }
    if fit.keys == Keys::Sequential {
        return vec![
            format!("Keys{of} come in ascending order."),
            "If these are new rows, write kind = \"insert\" without keys.".into(),
        ];
    }
    let percent = |share: f64| significant(share * 100.0, 2);
    let share = |(keys, trace, fitted): &(u64, f64, f64)| {
        format!("{} with {} % ({} %)", thousands(*keys), percent(*trace), percent(*fitted))
    };
    let hottest: Vec<String> = fit.hottest.iter().map(share).collect();
    let line = format!(
        "Hottest keys{of}, their operations, and those of the fit: {}.",
        hottest.join(", ")
    );
    let mut notes = vec![line];
    if fit.distance() > DISTANCE_MAX {
        notes.push(format!(
            "These keys have another distribution: the fit is up to {} points off.",
            percent(fit.distance())
        ));
    }
    notes
}

/// Makes the workload of Redis's keys and values.
pub(crate) fn of_redis(operations: &Redis) -> Spec {
    let all = [(&operations.reads, QueryKind::Read), (&operations.writes, QueryKind::Write)];
    let total = operations.reads.operations + operations.writes.operations;
    let together = tally::fit_together(all.iter().map(|(query, _)| &query.keys));
    let rows = together.as_ref().map_or(1, |fit| fit.rows);
    let (sizes, is_read) = operations.values.known();
    let mut value = column("value", Type::Blob, sizes, is_read);
    // Rows that are values of keys have one size.
    value.size = Distribution::Fixed(whole(sizes.mean().round()).max(1));
    value.note += " Redis's values have one size here: the average.";
    let mut spec = Spec {
        keyspace: "tare".into(),
        table: "trace".into(),
        rows,
        rows_note: together.as_ref().map_or_else(String::new, rows_note),
        rows_per_partition: 1,
        partition: vec![Key { name: "key".into(), kind: Type::Bigint, bytes: 8.0 }],
        columns: vec![value],
        ..Spec::default()
    };
    spec.head.push(format!(
        "Keys have {:.0} bytes on average in the trace, and 17 here.",
        operations.key_sizes.mean()
    ));
    if operations.several > 0 {
        spec.head.push(format!(
            "{} requests for several keys are {} single operations here.",
            thousands(operations.several),
            thousands(operations.in_several)
        ));
    }
    for (found, kind) in all {
        if found.operations > 0 {
            let query = query(&spec, kind, 1, found, together.as_ref(), total);
            spec.queries.extend(query);
        }
    }
    spec
}

/// Returns the comments about the pace.
pub(crate) fn pace_notes(timing: &Timing, pace: &Pace, errors: u64) -> Vec<String> {
    let mut notes = Vec::new();
    let rate = significant(pace.rate_per_s, 3);
    notes.push(match arrivals::per_second(&timing.times_ns) {
        Some((least, most)) => format!(
            "Rate: {rate} operations/s on average, {} to {} in a second.",
            thousands(least),
            thousands(most)
        ),
        None => format!("Rate: {rate} operations/s in less than a second."),
    });
    let Dispersion { arrivals, index, window_ns } = pace.dispersion;
    let index = format!(
        "index of dispersion {} in windows of {}",
        significant(index, 2),
        nanoseconds(window_ns as f64)
    );
    notes.push(match arrivals {
        Arrivals::Even => format!("Arrivals: even ({index})."),
        Arrivals::Poisson => format!("Arrivals: at random, like Poisson's ({index})."),
        Arrivals::Bursts => {
            format!(
                "Arrivals: in bursts ({index}); tare load has nothing more uneven than Poisson."
            )
        }
        Arrivals::Unknown => "Arrivals: the trace is too short to tell.".into(),
    });
    notes.push(format!(
        "In flight: {} on average, {} at most, over {} connections.",
        significant(timing.in_flight_mean(), 2),
        pace.in_flight,
        pace.connections
    ));
    if let Some((median, high)) = timing.latency_ns() {
        let (median, high) = (nanoseconds(median as f64), nanoseconds(high as f64));
        notes.push(format!(
            "Answers came after {median} (median) and {high} (p99), where captured."
        ));
    }
    if errors > 0 {
        notes.push(format!("{} requests were answered with an error.", thousands(errors)));
    }
    notes
}
