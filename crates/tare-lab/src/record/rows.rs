//! Inserts rows into a record, one function per kind.

use rusqlite::{OptionalExtension, Transaction, params};

use super::opening::Opening;
use super::{EnvironmentRecord, Slice, as_json};
use crate::doubt::Doubt;
use crate::loader::LoaderSlice;

/// Converts to SQLite's signed integers. No time or count reaches 2^63.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn insert_opening(
    transaction: &Transaction<'_>,
    opening: &Opening,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO record VALUES (?, ?, NULL, ?, ?, NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            opening.tare_version,
            signed(opening.started_unix_ms),
            opening.seed.to_string(),
            as_json(&opening.command)?,
            opening.study.name,
            opening.study.baseline,
            opening.study_text,
            as_json(&opening.study)?,
            opening.cpu_plan.all.to_string(),
            opening.cpu_plan.system.to_string(),
            opening.cpu_plan.client.to_string(),
            as_json(&opening.cpu_plan)?,
        ],
    )?;
    let mut insert = transaction.prepare("INSERT INTO host_facts VALUES (?, ?, ?)")?;
    for fact in &opening.host {
        insert.execute(params![fact.section, fact.key, fact.value])?;
    }
    Ok(())
}

pub(super) fn insert_environment(
    transaction: &Transaction<'_>,
    position: u32,
    environment: &EnvironmentRecord,
) -> rusqlite::Result<()> {
    let EnvironmentRecord { spec, control, left_out, layers, settings, config, .. } = environment;
    transaction.execute(
        "INSERT INTO environments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (id) DO UPDATE SET left_out = excluded.left_out, config = excluded.config, \
         ready_ns = excluded.ready_ns, teardown_ns = excluded.teardown_ns",
        params![
            position,
            spec.name,
            spec.runtime.to_string(),
            spec.network.to_string(),
            spec.cpu.to_string(),
            spec.security.to_string(),
            spec.cgroup.to_string(),
            spec.limits.memory_bytes.map(signed),
            spec.optional,
            control,
            left_out,
            config,
            environment.ready_ns.map(signed),
            environment.teardown_ns.map(signed),
            spec.host.to_string(),
            as_json(&spec.storage)?,
            as_json(&spec.vm)?,
            spec.inject.to_string(),
            as_json(&spec.sandbox)?,
            as_json(&spec.rootfs)?,
        ],
    )?;
    transaction.execute("DELETE FROM layers WHERE environment = ?", [position])?;
    transaction.execute("DELETE FROM settings WHERE environment = ?", [position])?;
    for layer in layers {
        transaction.execute(
            "INSERT INTO layers VALUES (?, ?, ?, ?, ?)",
            params![position, layer.layer, layer.wanted, layer.found, layer.in_force],
        )?;
    }
    for (key, value) in settings {
        let sql = "INSERT INTO settings VALUES (?, ?, ?)";
        transaction.execute(sql, params![position, key, value])?;
    }
    Ok(())
}

pub(super) fn environment_id(
    transaction: &Transaction<'_>,
    name: &str,
) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT id FROM environments WHERE name = ?";
    transaction.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()
}

pub(super) fn insert_slice(transaction: &Transaction<'_>, slice: &Slice) -> rusqlite::Result<i64> {
    transaction
        .prepare_cached(
            "INSERT INTO slices VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            slice.round,
            slice.position,
            environment_id(transaction, &slice.environment)?,
            slice.workload,
            slice.phase.name(),
            signed(slice.started_unix_ms),
            signed(slice.window_ns),
            signed(slice.operations),
            signed(slice.unsent),
            slice.rate_per_s,
            signed(slice.system_cpu_ns),
            slice.busy_time.map(|account| signed(account.busy_ns)),
            slice.busy_time.map(|account| signed(account.idle_poll_ns)),
            signed(slice.client_cpu_ns),
            slice.throttled_ns.map(signed),
            slice.void,
            slice.start,
            slice.account_ns.map(signed),
        ])?;
    let id = transaction.last_insert_rowid();
    for (part, ns) in &slice.layer_cpu_ns {
        let sql = "INSERT INTO layer_cpu VALUES (?, ?, ?)";
        transaction.prepare_cached(sql)?.execute(params![id, part, signed(*ns)])?;
    }
    for (kind, count) in &slice.errors {
        let sql = "INSERT INTO errors VALUES (?, ?, ?)";
        transaction.prepare_cached(sql)?.execute(params![id, kind, signed(*count)])?;
    }
    for counter in &slice.counters {
        let sql = "INSERT INTO counters VALUES (?, ?, ?)";
        transaction.prepare_cached(sql)?.execute(params![id, counter.name, counter.value])?;
    }
    for (kind, data) in [("response", &slice.response), ("service", &slice.service)] {
        if !data.is_empty() {
            let sql = "INSERT INTO histograms VALUES (?, ?, ?)";
            transaction.prepare_cached(sql)?.execute(params![id, kind, data])?;
        }
    }
    if !slice.server.is_empty() {
        let sql = "INSERT INTO server_histograms VALUES (?, ?)";
        transaction.prepare_cached(sql)?.execute(params![id, slice.server])?;
    }
    insert_loaders(transaction, id, &slice.loaders)?;
    Ok(id)
}

pub(super) fn insert_doubt(
    transaction: &Transaction<'_>,
    slice: Option<i64>,
    environment: Option<&str>,
    doubt: &Doubt,
) -> rusqlite::Result<()> {
    let environment = match environment {
        Some(name) => environment_id(transaction, name)?,
        None => None,
    };
    let sql = "INSERT INTO doubts VALUES (NULL, ?, ?, ?, ?, ?)";
    transaction.prepare_cached(sql)?.execute(params![
        slice,
        environment,
        doubt.kind(),
        as_json(doubt)?,
        doubt.text()
    ])?;
    Ok(())
}

fn insert_loaders(
    transaction: &Transaction<'_>,
    slice: i64,
    loaders: &[LoaderSlice],
) -> rusqlite::Result<()> {
    for one in loaders {
        let sql = "INSERT INTO slice_loaders VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        transaction.prepare_cached(sql)?.execute(params![
            slice,
            one.loader,
            signed(one.window_ns),
            signed(one.operations),
            signed(one.cpu_ns),
            signed(one.busiest_thread_ns),
            one.waited_ns.map(signed),
            one.begin_offset_ns,
            one.end_offset_ns,
            signed(one.clock_error_ns),
        ])?;
    }
    Ok(())
}
