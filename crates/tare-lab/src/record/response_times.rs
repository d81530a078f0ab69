//! The response times of a finished run, in tables of their own. Records without them have only
//! histograms.

use rusqlite::{Connection, Row, Transaction, params};
use tare_stats::Interval;

use super::columns::{has_table, rows, unsigned};
use super::rows::signed;
use crate::response_time::{Latency, OverBaseline, Percentile, ResponseTime};

/// Added without a new version: a reader that does not know the tables needs nothing of them.
pub(super) const TABLES: &str = include_str!("response_times.sql");

const INSERT: &str = "INSERT INTO response_times VALUES \
    (?1, (SELECT id FROM environments WHERE name = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const INSERT_PERCENTILE: &str = "INSERT INTO percentiles VALUES \
    (?1, (SELECT id FROM environments WHERE name = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, \
    ?13, ?14, ?15)";
const SELECT: &str = "SELECT r.workload, e.name, mean_ns, p50_ns, p95_ns, p99_ns, p999_ns, max_ns, \
    operations FROM response_times r JOIN environments e ON e.id = r.environment ORDER BY r.rowid";
const SELECT_PERCENTILES: &str = "SELECT p.workload, e.name, percent, beyond, ns, ns_low, ns_high, \
    blocks, ratio, ratio_low, ratio_high, ratio_blocks, difference_ns, difference_low, \
    difference_high FROM percentiles p JOIN environments e ON e.id = p.environment \
    ORDER BY p.rowid";

/// Removes those of a run that goes on.
pub(super) fn clear(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch("DELETE FROM response_times; DELETE FROM percentiles")
}

pub(super) fn put(transaction: &Transaction<'_>, all: &[ResponseTime]) -> rusqlite::Result<()> {
    clear(transaction)?;
    for ResponseTime { workload, environment, latency } in all {
        let Latency { mean_ns, p50_ns, p95_ns, p99_ns, p999_ns, max_ns, count, .. } = latency;
        let [p50, p95, p99, p999, max, count] =
            [p50_ns, p95_ns, p99_ns, p999_ns, max_ns, count].map(|value| signed(*value));
        transaction.execute(
            INSERT,
            params![workload, environment, mean_ns, p50, p95, p99, p999, max, count],
        )?;
        for one in &latency.percentiles {
            let (ns, over) = (one.ns.as_ref(), one.over_baseline.as_ref());
            let (ratio, by) = (over.map(|over| &over.ratio), over.map(|over| &over.difference_ns));
            let bound = |of: Option<&Interval>, which: fn(&Interval) -> f64| {
                of.map(which).filter(|bound| bound.is_finite())
            };
            transaction.execute(
                INSERT_PERCENTILE,
                params![
                    workload,
                    environment,
                    one.percent,
                    signed(one.beyond),
                    bound(ns, |of| of.value),
                    bound(ns, |of| of.low),
                    bound(ns, |of| of.high),
                    ns.map(|of| of.rounds),
                    bound(ratio, |of| of.value),
                    bound(ratio, |of| of.low),
                    bound(ratio, |of| of.high),
                    bound(by, |of| of.value),
                    bound(by, |of| of.low),
                    bound(by, |of| of.high),
                    ratio.map(|of| of.rounds),
                ],
            )?;
        }
    }
    Ok(())
}

/// Returns the response times of a record; empty if it has none.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<ResponseTime>> {
    if !has_table(connection, "percentiles")? {
        return Ok(Vec::new());
    }
    let mut all = rows(connection, SELECT, |row| {
        let latency = Latency {
            mean_ns: row.get(2)?,
            p50_ns: unsigned(row, 3)?,
            p95_ns: unsigned(row, 4)?,
            p99_ns: unsigned(row, 5)?,
            p999_ns: unsigned(row, 6)?,
            max_ns: unsigned(row, 7)?,
            count: unsigned(row, 8)?,
            percentiles: Vec::new(),
        };
        Ok(ResponseTime { workload: row.get(0)?, environment: row.get(1)?, latency })
    })?;
    let mut statement = connection.prepare(SELECT_PERCENTILES)?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let (workload, environment): (String, String) = (row.get(0)?, row.get(1)?);
        let of = all.iter_mut().find(|one: &&mut ResponseTime| {
            one.workload == workload && one.environment == environment
        });
        if let Some(of) = of {
            of.latency.percentiles.push(percentile(row)?);
        }
    }
    Ok(all)
}

fn percentile(row: &Row<'_>) -> rusqlite::Result<Percentile> {
    let ratio = interval(row, [8, 9, 10], 11)?;
    let over_baseline = match (ratio, interval(row, [12, 13, 14], 11)?) {
        (Some(ratio), Some(difference_ns)) => {
            let found = ratio.low > 1.0 || ratio.high < 1.0;
            Some(OverBaseline { ratio, difference_ns, found })
        }
        _ => None,
    };
    Ok(Percentile {
        percent: row.get(2)?,
        beyond: unsigned(row, 3)?,
        ns: interval(row, [4, 5, 6], 7)?,
        over_baseline,
    })
}

/// The interval in three columns, with its rounds in another; `None` without a value.
fn interval(
    row: &Row<'_>,
    columns: [usize; 3],
    rounds: usize,
) -> rusqlite::Result<Option<Interval>> {
    let [value, low, high] = columns.map(|column| row.get::<_, Option<f64>>(column));
    let Some(value) = value? else { return Ok(None) };
    let (low, high) = (low?.unwrap_or(f64::NEG_INFINITY), high?.unwrap_or(f64::INFINITY));
    let rounds = row.get::<_, Option<u32>>(rounds)?.unwrap_or(0);
    Ok(Some(Interval { value, low, high, rounds }))
}
