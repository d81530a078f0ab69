//! Reads a record of a finished, running or crashed study.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, OpenFlags, Row};

use super::columns::{by_owner, has_table, optional, rows, unsigned};
use super::error::RecordError;
use super::{
    APPLICATION_ID, SCHEMA_VERSION, VERSION_WITH_CPU_PLAN, VERSION_WITH_HOST, VERSION_WITH_ROOTFS,
    VERSION_WITH_SANDBOX, VERSION_WITH_STARTS, VERSION_WITH_STORAGE, phase_of,
};
use super::{DoubtRecord, EnvironmentRecord, Header, HostFact, Record, Slice};
use super::{paths, response_times, seconds};
use crate::environment::{CpuPlan, EnvironmentSpec, LayerState, Limits};
use crate::layer::{BadLayerValue, Confinement, Inject, Sidecar};
use crate::loader::{Loader, LoaderSlice};
use crate::probe::Counter;
use crate::response_time::ResponseTime;
use crate::study::Study;
use crate::system::BusyTime;

impl Record {
    /// Reads a record. If a study is still writing it, the result is the current state.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        read_from(&open_read_only(path)?, path)
    }

    /// Reads what the analysis of costs needs ([`crate::analysis::analyse_with`]), in a fraction of
    /// the time: without counters, failed operations by kind, histograms and runtime
    /// configurations. The response times are those that the study wrote at its end: none if it is
    /// not finished, and in records of versions that did not write them.
    pub fn read_costs(path: &Path) -> Result<(Self, Vec<ResponseTime>), RecordError> {
        let connection = open_read_only(path)?;
        let record = read_parts(&connection, path, Parts::Costs)?;
        let times = response_times::read(&connection)
            .map_err(|error| RecordError::sqlite("read", path, error))?;
        Ok((record, times))
    }
}

/// What is read of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    All,
    /// Without counters, failed operations by kind, histograms and runtime configurations.
    Costs,
}

/// Opens a record of this version or an older one.
pub(super) fn open_read_only(path: &Path) -> Result<Connection, RecordError> {
    if !path.exists() {
        return Err(RecordError::Missing { path: path.to_path_buf() });
    }
    let sqlite = |error| RecordError::sqlite("open", path, error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sqlite)?;
    connection.busy_timeout(std::time::Duration::from_secs(5)).map_err(sqlite)?;
    check_header(&connection, path)?;
    Ok(connection)
}

/// Refuses a file that is no record, and a record of a newer version.
fn check_header(connection: &Connection, path: &Path) -> Result<(), RecordError> {
    let sqlite = |error| RecordError::sqlite("read", path, error);
    let pragma = |name: &str| -> Result<i64, RecordError> {
        connection.pragma_query_value(None, name, |row| row.get(0)).map_err(sqlite)
    };
    if pragma("application_id")? != i64::from(APPLICATION_ID) {
        return Err(RecordError::NoRecord { path: path.to_path_buf() });
    }
    let found = pragma("user_version")?;
    if found > i64::from(SCHEMA_VERSION) {
        let known = i64::from(SCHEMA_VERSION);
        return Err(RecordError::Newer { path: path.to_path_buf(), found, known });
    }
    Ok(())
}

/// Reads everything inside one transaction, so that no writer changes it meanwhile.
pub(super) fn read_from(connection: &Connection, path: &Path) -> Result<Record, RecordError> {
    read_parts(connection, path, Parts::All)
}

fn read_parts(connection: &Connection, path: &Path, parts: Parts) -> Result<Record, RecordError> {
    let sqlite = |error| RecordError::sqlite("read", path, error);
    check_header(connection, path)?;
    let transaction = connection.unchecked_transaction().map_err(sqlite)?;
    let record = read_all(&transaction, parts).map_err(|error| match error {
        // A column with a value that this version never writes.
        rusqlite::Error::FromSqlConversionFailure(_, _, source) => {
            RecordError::Damaged { path: path.to_path_buf(), what: source.to_string() }
        }
        rusqlite::Error::QueryReturnedNoRows => RecordError::Damaged {
            path: path.to_path_buf(),
            what: "it ends before its header".into(),
        },
        error => sqlite(error),
    })?;
    transaction.finish().map_err(sqlite)?;
    Ok(record)
}

fn parsed<T>(row: &Row<'_>, index: usize) -> rusqlite::Result<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get::<_, String>(index)?.parse().map_err(|error: T::Err| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
    })
}

/// Parses a column as JSON. Returns the default if it is NULL, as in records without the column.
fn json_or_default<T: serde::de::DeserializeOwned + Default>(
    row: &Row<'_>,
    index: usize,
) -> rusqlite::Result<T> {
    match row.get_ref(index)? {
        ValueRef::Null => Ok(T::default()),
        _ => json(row, index),
    }
}

/// Parses a layer's value, which is stored as text.
fn layer<T: FromStr<Err = BadLayerValue>>(row: &Row<'_>, index: usize) -> rusqlite::Result<T> {
    row.get::<_, String>(index)?.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
    })
}

fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, index: usize) -> rusqlite::Result<T> {
    serde_json::from_str(&row.get::<_, String>(index)?).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
    })
}

fn read_all(connection: &Connection, parts: Parts) -> rusqlite::Result<Record> {
    let rates = rows(connection, "SELECT workload, rate_per_s FROM rates ORDER BY rowid", |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let whole_plan = if version < VERSION_WITH_CPU_PLAN { "NULL" } else { "cpu_plan" };
    let sql = format!(
        "SELECT tare_version, started_unix_ms, ended_unix_ms, seed, command, ending, \
         study, study_text, cpus_all, cpus_system, cpus_client, {whole_plan} FROM record"
    );
    let (header, study, study_text, cpu_plan): (_, Study, _, _) =
        connection.query_row(&sql, [], |row| {
            let header = Header {
                tare_version: row.get(0)?,
                started_unix_ms: unsigned(row, 1)?,
                ended_unix_ms: optional(row, 2)?,
                seed: parsed(row, 3)?,
                command: json(row, 4)?,
                ending: row.get(5)?,
                rates,
            };
            let cpus = match row.get::<_, Option<String>>(11)? {
                Some(_) => json(row, 11)?,
                None => CpuPlan {
                    all: parsed(row, 8)?,
                    system: parsed(row, 9)?,
                    client: parsed(row, 10)?,
                    ..CpuPlan::default()
                },
            };
            Ok((header, json(row, 6)?, row.get(7)?, cpus))
        })?;
    let host =
        rows(connection, "SELECT section, key, value FROM host_facts ORDER BY rowid", |row| {
            Ok(HostFact { section: row.get(0)?, key: row.get(1)?, value: row.get(2)? })
        })?;
    let doubts = rows(
        connection,
        "SELECT d.slice, e.name, d.detail FROM doubts d \
         LEFT JOIN environments e ON e.id = d.environment ORDER BY d.id",
        |row| {
            Ok(DoubtRecord { slice: row.get(0)?, environment: row.get(1)?, doubt: json(row, 2)? })
        },
    )?;
    let mut environments = environments(connection)?;
    copy_from_study(&study, &mut environments);
    if parts == Parts::Costs {
        environments.iter_mut().for_each(|one| one.config = None);
    }
    Ok(Record {
        header,
        study,
        study_text,
        cpu_plan,
        host,
        environments,
        slices: slices(connection, parts)?,
        loaders: read_loaders(connection)?,
        paths: paths::read(connection)?,
        doubts,
    })
}

/// Copies the attached system, the options of the system, the number of its instances, the limits
/// other than memory, the confinement, the neighbours and the sidecar from the environments of the
/// study, which alone holds them.
fn copy_from_study(study: &Study, environments: &mut [EnvironmentRecord]) {
    for one in environments {
        let name = if one.control { &study.baseline } else { &one.spec.name };
        if let Some(spec) = study.environments.iter().find(|spec| spec.name == *name) {
            one.spec.attach.clone_from(&spec.attach);
            one.spec.system.clone_from(&spec.system);
            one.spec.confinement = spec.confinement;
            one.spec.instances = spec.instances;
            one.spec.limits = Limits { memory_bytes: one.spec.limits.memory_bytes, ..spec.limits };
            one.spec.neighbours.clone_from(&spec.neighbours);
            one.spec.sidecar = spec.sidecar;
        }
    }
}

fn environments(connection: &Connection) -> rusqlite::Result<Vec<EnvironmentRecord>> {
    let sql = "SELECT environment, layer, wanted, found, in_force FROM layers ORDER BY rowid";
    let mut layers = by_owner(connection, sql, |row| {
        Ok(LayerState {
            layer: row.get(1)?,
            wanted: row.get(2)?,
            found: row.get(3)?,
            in_force: row.get(4)?,
        })
    })?;
    let sql = "SELECT environment, key, value FROM settings ORDER BY rowid";
    let mut settings = by_owner(connection, sql, |row| Ok((row.get(1)?, row.get(2)?)))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let host = if version < VERSION_WITH_HOST { "'as-is'" } else { "host" };
    let more =
        if version < VERSION_WITH_STORAGE { "NULL, NULL, NULL" } else { "storage, vm, inject" };
    let sandbox = if version < VERSION_WITH_SANDBOX { "NULL" } else { "sandbox" };
    let rootfs = if version < VERSION_WITH_ROOTFS { "NULL" } else { "rootfs" };
    let sql = format!(
        "SELECT id, name, runtime, network, cpu, security, cgroup, memory_bytes, optional, \
         control, left_out, config, ready_ns, teardown_ns, {host}, {more}, {sandbox}, {rootfs} \
         FROM environments ORDER BY id"
    );
    rows(connection, &sql, |row| {
        let id: i64 = row.get(0)?;
        Ok(EnvironmentRecord {
            spec: EnvironmentSpec {
                name: row.get(1)?,
                runtime: row.get::<_, String>(2)?.into(),
                attach: None,
                network: layer(row, 3)?,
                cpu: layer(row, 4)?,
                security: layer(row, 5)?,
                // `copy_from_study` reads these from the study.
                confinement: Confinement::default(),
                cgroup: layer(row, 6)?,
                host: layer(row, 14)?,
                storage: json_or_default(row, 15)?,
                vm: json_or_default(row, 16)?,
                sandbox: json_or_default(row, 18)?,
                rootfs: json_or_default(row, 19)?,
                // `copy_from_study` reads these from the study.
                system: Vec::new(),
                instances: None,
                inject: match row.get_ref(17)? {
                    ValueRef::Null => Inject::default(),
                    _ => layer(row, 17)?,
                },
                // `copy_from_study` reads the others from the study.
                limits: Limits { memory_bytes: optional(row, 7)?, ..Limits::default() },
                neighbours: Vec::new(),
                sidecar: Sidecar::None,
                optional: row.get(8)?,
            },
            control: row.get(9)?,
            left_out: row.get(10)?,
            layers: layers.remove(&id).unwrap_or_default(),
            settings: settings.remove(&id).unwrap_or_default(),
            config: row.get(11)?,
            ready_ns: optional(row, 12)?,
            teardown_ns: optional(row, 13)?,
        })
    })
}

/// Returns the latencies inside the system by slice. Records that were written before this table
/// have none.
fn server_histograms(connection: &Connection) -> rusqlite::Result<HashMap<i64, Vec<u8>>> {
    if !has_table(connection, "server_histograms")? {
        return Ok(HashMap::new());
    }
    let mut rows = connection.prepare("SELECT slice, data FROM server_histograms")?;
    rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn slices(connection: &Connection, parts: Parts) -> rusqlite::Result<Vec<Slice>> {
    let sql = "SELECT slice, part, ns FROM layer_cpu ORDER BY rowid";
    let mut layer_cpu = by_owner(connection, sql, |row| Ok((row.get(1)?, unsigned(row, 2)?)))?;
    // Reads no row of a part that is left out.
    let only = if parts == Parts::Costs { "LIMIT 0" } else { "" };
    let sql = format!("SELECT slice, kind, count FROM errors ORDER BY rowid {only}");
    let mut errors = by_owner(connection, &sql, |row| Ok((row.get(1)?, unsigned(row, 2)?)))?;
    let sql = format!("SELECT slice, name, value FROM counters ORDER BY rowid {only}");
    let mut counters =
        by_owner(connection, &sql, |row| Ok(Counter { name: row.get(1)?, value: row.get(2)? }))?;
    let histograms = |kind: &str| -> rusqlite::Result<HashMap<i64, Vec<u8>>> {
        let sql = format!("SELECT slice, data FROM histograms WHERE kind = '{kind}' {only}");
        let owners = by_owner(connection, &sql, |row| row.get::<_, Vec<u8>>(1))?;
        let first = |(id, mut all): (i64, Vec<Vec<u8>>)| (id, all.pop().unwrap_or_default());
        Ok(owners.into_iter().map(first).collect())
    };
    let (mut response, mut service) = (histograms("response")?, histograms("service")?);
    let mut server = server_histograms(connection)?;
    let mut loaders = match parts {
        Parts::All => slice_loaders(connection)?,
        Parts::Costs => HashMap::new(),
    };
    let mut seconds = match parts {
        Parts::All => seconds::read(connection)?,
        Parts::Costs => HashMap::new(),
    };
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let starts = if version < VERSION_WITH_STARTS { "0, NULL" } else { "s.start, s.account_ns" };
    let sql = format!(
        "SELECT s.id, s.block, s.position, e.name, s.workload, s.phase, s.started_unix_ms, \
               s.window_ns, s.operations, s.unsent, s.rate_per_s, s.system_cpu_ns, s.busy_ns, \
               s.idle_poll_ns, s.client_cpu_ns, s.throttled_ns, s.void, {starts} \
               FROM slices s JOIN environments e ON e.id = s.environment ORDER BY s.id"
    );
    rows(connection, &sql, |row| {
        let id: i64 = row.get(0)?;
        let account = |busy_ns, idle_poll_ns| BusyTime { busy_ns, idle_poll_ns };
        Ok(Slice {
            id,
            round: row.get(1)?,
            position: row.get(2)?,
            environment: row.get(3)?,
            workload: row.get(4)?,
            phase: phase_of(&row.get::<_, String>(5)?),
            started_unix_ms: unsigned(row, 6)?,
            window_ns: unsigned(row, 7)?,
            operations: unsigned(row, 8)?,
            errors: errors.remove(&id).unwrap_or_default(),
            unsent: unsigned(row, 9)?,
            rate_per_s: row.get(10)?,
            system_cpu_ns: unsigned(row, 11)?,
            layer_cpu_ns: layer_cpu.remove(&id).unwrap_or_default(),
            busy_time: optional(row, 12)?.zip(optional(row, 13)?).map(|(b, i)| account(b, i)),
            client_cpu_ns: unsigned(row, 14)?,
            throttled_ns: optional(row, 15)?,
            response: response.remove(&id).unwrap_or_default(),
            service: service.remove(&id).unwrap_or_default(),
            counters: counters.remove(&id).unwrap_or_default(),
            void: row.get(16)?,
            start: row.get(17)?,
            account_ns: optional(row, 18)?,
            server: server.remove(&id).unwrap_or_default(),
            loaders: loaders.remove(&id).unwrap_or_default(),
            seconds: seconds.remove(&id).unwrap_or_default(),
        })
    })
}

/// Returns the loaders of the run.
fn read_loaders(connection: &Connection) -> rusqlite::Result<Vec<Loader>> {
    if !has_table(connection, "slice_loaders")? {
        return Ok(Vec::new());
    }
    let sql = "SELECT host, cpus, kernel, architecture FROM loaders ORDER BY id";
    rows(connection, sql, |row| {
        Ok(Loader {
            host: row.get(0)?,
            cpus: parsed(row, 1)?,
            kernel: row.get(2)?,
            architecture: row.get(3)?,
        })
    })
}

/// Returns what each loader did, by slice.
fn slice_loaders(connection: &Connection) -> rusqlite::Result<HashMap<i64, Vec<LoaderSlice>>> {
    if !has_table(connection, "slice_loaders")? {
        return Ok(HashMap::new());
    }
    let sql = "SELECT slice, loader, window_ns, operations, cpu_ns, busiest_thread_ns, waited_ns, \
               begin_offset_ns, end_offset_ns, clock_error_ns FROM slice_loaders \
               ORDER BY slice, loader";
    by_owner(connection, sql, |row| {
        Ok(LoaderSlice {
            loader: row.get(1)?,
            window_ns: unsigned(row, 2)?,
            operations: unsigned(row, 3)?,
            cpu_ns: unsigned(row, 4)?,
            busiest_thread_ns: unsigned(row, 5)?,
            waited_ns: optional(row, 6)?,
            begin_offset_ns: row.get(7)?,
            end_offset_ns: row.get(8)?,
            clock_error_ns: unsigned(row, 9)?,
        })
    })
}
