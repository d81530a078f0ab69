//! PostgreSQL. Its own `initdb` creates a new cluster in the data directory, from inside, and the
//! server listens on TCP without a password. The clusters of an installation are not touched.
//!
//! Method: it is idle once a checkpoint has completed after the load, no automatic vacuum runs, and
//! none is due soon.
//!
//! Limits: the processes that serve connections have no CPUs of their own. The cost of `fsync`
//! depends on the storage layer; a study sets `synchronous_commit` and `fsync` to separate it.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;
use tare_host::tree_copy::FileUse;
use tare_lab::PartError;
use tare_lab::environment::{DataSnapshot, Endpoint, HostProgram, Launch};
use tare_lab::study::OptionInfo;
use tare_lab::system::{BackgroundWork, Instances, OwnLatency, System};

use super::client_route::{ClientRoute, ClientRouteError, SystemConnection};
use super::instances;
use super::options::Options;
use super::saved_data::{self, DataCheck, DataFiles, DataStamp, ProgramVersion, SavedDataError};
use super::starter::StartPlan;
use super::{SystemInfo, TlsSupport};

pub(super) const INFO: SystemInfo = SystemInfo {
    name: "postgres",
    help: "PostgreSQL of the host (apt-get install postgresql)",
    speaks: |_| "postgres".into(),
    found: Some(|| {
        let directory = newest().ok_or("apt-get install postgresql")?;
        Ok(directory.display().to_string())
    }),
    options: &[
        OptionInfo {
            name: "directory",
            values: &[],
            help: "where initdb and postgres are (default: the newest of /usr/lib/postgresql)",
        },
        OptionInfo { name: "shared_buffers", values: &[], help: "its page cache (default 256MB)" },
        OptionInfo {
            name: "synchronous_commit",
            values: &["on", "off"],
            help: "on: a commit waits for the disk (default)",
        },
        OptionInfo {
            name: "fsync",
            values: &["on", "off"],
            help: "off: nothing waits for the disk",
        },
        OptionInfo {
            name: "max_connections",
            values: &[],
            help: "simultaneous connections (default 200)",
        },
        OptionInfo {
            name: "settings",
            values: &[],
            help: "more settings, such as \"wal_level=minimal max_wal_senders=0\"",
        },
        instances::INSTANCES,
    ],
    takes_device: false,
    in_memory: false,
    tls: TlsSupport::No,
    make: |spec, client_route| {
        let options = Options::new(spec);
        options.count("max_connections", 200)?;
        let setting = |text: &str| text.contains('=');
        if let Some(bad) = options.words("settings").iter().find(|text| !setting(text)) {
            return Err(options.bad("settings", bad, "words NAME=VALUE").into());
        }
        let instances = instances::read(&options)?;
        Ok(Box::new(Postgres { options, instances, client_route: client_route.clone() }))
    },
};

/// Where the Debian family keeps each version's programs.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Where other distributions keep them.
const ELSEWHERE: &[&str] = &["/usr/pgsql/bin", "/usr/local/pgsql/bin", "/usr/bin"];
/// Files that it needs: it reads time zones, and `initdb` looks up its user.
const SYSTEM_FILES: &[&str] = &["/bin/sh", "/etc/passwd", "/etc/group"];
const SYSTEM_FOLDERS: &[&str] = &["/usr/share/zoneinfo"];

/// The major version of a cluster, which alone decides whether a server can use it.
const VERSION_FILE: &str = "cluster/PG_VERSION";
/// Pages change in place, so no file can be shared. A fast shutdown, unlike the one of SIGTERM,
/// does not wait for the clients
/// (<https://www.postgresql.org/docs/current/server-shutdown.html>).
static DATA: DataFiles = DataFiles {
    mark: VERSION_FILE,
    while_running: Some("cluster/postmaster.pid"),
    use_of: |path| match path.to_str() {
        Some("cluster/postmaster.opts") => FileUse::LeftOut,
        _ => FileUse::Changing,
    },
    stop: Signal::INT,
};

/// Time limit for creating a new cluster and starting the server.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Time limit for a checkpoint: everything that was loaded goes to the disk.
const CHECKPOINT_LIMIT: Duration = Duration::from_secs(240);

/// Version 3.0 of the protocol, in the startup message
/// (<https://www.postgresql.org/docs/current/protocol-message-formats.html>).
const PROTOCOL: u32 = 3 << 16;
/// The user and the database that `initdb` creates.
const NAME: &str = "postgres";

/// Settings that may differ between environments or change the cost of a transaction.
const SETTINGS: &str = "SELECT name, current_setting(name) FROM pg_settings WHERE name IN (\
    'server_version', 'shared_buffers', 'fsync', 'synchronous_commit', 'full_page_writes', \
    'wal_sync_method', 'wal_buffers', 'max_wal_size', 'huge_pages', 'huge_pages_status', 'io_method', \
    'effective_io_concurrency', 'max_connections', 'shared_memory_type', 'autovacuum', \
    'checkpoint_timeout') ORDER BY name";
/// Background work that a checkpoint does not end.
const WORKERS: &str = "SELECT backend_type, query FROM pg_stat_activity \
    WHERE backend_type = 'autovacuum worker'";

/// The version since which checkpoints have a view of their own
/// (<https://www.postgresql.org/docs/17/release-17.html>).
const CHECKPOINTER_SINCE: u32 = 170_000;
/// Pages that checkpoints wrote, which rises while one runs.
const CHECKPOINT_WRITES: &str = "SELECT buffers_written FROM pg_stat_checkpointer";
const CHECKPOINT_WRITES_BEFORE: &str = "SELECT buffers_checkpoint FROM pg_stat_bgwriter";
/// Automatic vacuums and analyses that ended, and that run.
const AUTOVACUUMS: &str = "SELECT \
    (SELECT coalesce(sum(autovacuum_count + autoanalyze_count), 0) FROM pg_stat_all_tables), \
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker')";

/// The version since which a database counts the time of its statements
/// (<https://www.postgresql.org/docs/14/release-14.html>).
const ACTIVE_TIME_SINCE: u32 = 140_000;
/// Transactions of all databases, and the time of their statements in ns. It is exact, and needs no
/// extension that would be part of what is measured, as `pg_stat_statements` is. A session adds
/// both at the same time: when it ends, or once a second at most
/// (<https://www.postgresql.org/docs/current/monitoring-stats.html>).
const ACTIVE_TIME: &str = "SELECT coalesce(sum(xact_commit + xact_rollback), 0)::bigint, \
    coalesce(sum(active_time) * 1000000, 0)::bigint FROM pg_stat_database";

/// PostgreSQL with the options of a study.
#[derive(Clone, Debug)]
pub struct Postgres {
    options: Options,
    instances: Instances,
    client_route: ClientRoute,
}

impl Postgres {
    /// Returns the directory of its programs: the study's, or that of the newest version.
    fn directory(&self) -> PathBuf {
        if let Some(directory) = self.options.text("directory") {
            return directory.into();
        }
        // If there is none, the error names the place that Debian's package uses.
        newest().unwrap_or_else(|| Path::new(VERSIONS).join("15/bin"))
    }

    fn session(&self, at: &Endpoint, limit: Duration) -> Result<Session, ClientRouteError> {
        Session::open(self.client_route.connect(at.address)?, limit)
    }
}

/// Returns the directory of the newest installed version.
fn newest() -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let number = |path: &Path| -> Option<u32> { path.file_name()?.to_str()?.parse().ok() };
    let versions = versions.map(|entry| entry.path()).filter(|path| has_server(&path.join("bin")));
    let newest = versions.max_by_key(|path| number(path)).map(|path| path.join("bin"));
    newest.or_else(|| ELSEWHERE.iter().map(PathBuf::from).find(|path| has_server(path)))
}

fn has_server(directory: &Path) -> bool {
    directory.join("postgres").is_file() && directory.join("initdb").is_file()
}

/// Returns the directories that the programs open by name: their own libraries and texts.
fn folders(directory: &Path) -> Vec<PathBuf> {
    let version = directory.parent().unwrap_or(directory);
    let share = version.file_name().map(|name| Path::new("/usr/share/postgresql").join(name));
    let places = [Some(version.join("lib")), Some(version.join("share")), share];
    let known = places
        .into_iter()
        .flatten()
        .filter(|path| path != Path::new("/usr/lib") && path != Path::new("/usr/share"));
    known.chain(SYSTEM_FOLDERS.iter().map(PathBuf::from)).filter(|path| path.is_dir()).collect()
}

impl System for Postgres {
    fn name(&self) -> &str {
        INFO.name
    }

    fn launch(&self, _cpus: usize) -> Launch {
        let directory = self.directory();
        let initdb = directory.join("initdb");
        let words = ["--pgdata={data}/cluster", "--username=postgres", "--auth=trust"];
        let more = ["--no-locale", "--encoding=UTF8", "--no-sync", "--no-instructions"];
        let words = ["{beside}/initdb"].into_iter().chain(words).chain(more);
        let before = words.map(String::from).collect();
        let option = |name: &str, default: &str| {
            let value = self.options.text_or(name, default);
            format!("{name}={value}")
        };
        let mut settings = vec![
            "listen_addresses={listen}".to_string(),
            "port={port}".into(),
            "unix_socket_directories=".into(),
            "hba_file={data}/access".into(),
            // Files in /dev/shm would outlive a killed server.
            "dynamic_shared_memory_type=mmap".into(),
            option("shared_buffers", "256MB"),
            option("synchronous_commit", "on"),
            option("fsync", "on"),
            option("max_connections", "200"),
        ];
        settings.extend(self.options.words("settings"));
        let mut command: Vec<String> =
            ["{program}", "-D", "{data}/cluster"].map(String::from).into();
        command.extend(settings.into_iter().flat_map(|setting| ["-c".into(), setting]));
        let plan = StartPlan {
            // The network belongs to the study alone.
            files: vec![("access".into(), "host all all 0.0.0.0/0 trust\n".into())],
            before: vec![before],
            command,
            variables: vec![("LC_ALL".into(), "C".into())],
            unprivileged: true,
            // A killed server leaves the shared memory segment by which it detects another server.
            own_ipc: true,
            restored: Some(DataCheck {
                version: ProgramVersion::Printed("--version".into()),
                shape: String::new(),
            }),
            ..StartPlan::default()
        };
        let there = SYSTEM_FILES.iter().map(PathBuf::from).filter(|path| path.is_file());
        let program = HostProgram {
            name: directory.join("postgres").to_string_lossy().into_owned(),
            files: there.chain([initdb]).collect(),
            folders: folders(&directory),
            ..HostProgram::default()
        };
        Launch { arguments: plan.arguments(), program: Some(program), ..Launch::default() }
    }

    fn ready_limit(&self) -> Duration {
        READY_LIMIT
    }

    fn instances(&self) -> Instances {
        self.instances
    }

    fn ready(&self, at: &Endpoint) -> Result<(), PartError> {
        Ok(self.session(at, Duration::from_secs(5)).map(drop)?)
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let rows = self.session(at, Duration::from_secs(5))?.query(SETTINGS)?;
        Ok(super::pairs(rows))
    }

    fn pending(&self, at: &Endpoint) -> Result<Option<String>, PartError> {
        let mut session = self.session(at, CHECKPOINT_LIMIT)?;
        session.query("CHECKPOINT")?;
        let workers = session.query(WORKERS)?;
        Ok(workers.first().map(|worker| worker.join(": ")))
    }

    fn can_save_data(&self) -> bool {
        true
    }

    fn save_data(
        &self,
        at: &Endpoint,
        processes: &[u32],
        to: &Path,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        let Some(running) = DATA.of(at, processes, &self.directory().join("postgres")) else {
            return Ok(None);
        };
        let path = running.folder().join(VERSION_FILE);
        let version = std::fs::read_to_string(&path)
            .map_err(|source| SavedDataError::Read { path, source })?;
        let (system, version) = (INFO.name.into(), version.trim().into());
        running.save(DataStamp { system, version, shape: String::new() }, to)
    }

    fn data_identity(&self, _cpus: usize) -> Option<Vec<(String, String)>> {
        // The options with a name change neither the rows nor their files.
        let program = self.directory().join("postgres");
        saved_data::identity(&program, &self.options.words("settings"))
    }

    fn open_data(
        &self,
        folder: &Path,
        description: &str,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        DATA.open(folder, description)
    }

    fn background(&self, at: &Endpoint) -> Result<Vec<BackgroundWork>, PartError> {
        let mut session = self.session(at, Duration::from_secs(5))?;
        let version = numbers(&session.query("SHOW server_version_num")?);
        let has_view = version.first().is_some_and(|version| *version >= CHECKPOINTER_SINCE.into());
        let writes = if has_view { CHECKPOINT_WRITES } else { CHECKPOINT_WRITES_BEFORE };
        let writes = numbers(&session.query(writes)?);
        let mut work: Vec<BackgroundWork> = writes
            .iter()
            .map(|writes| BackgroundWork::total("checkpoint_writes", *writes))
            .collect();
        if let [total, running] = numbers(&session.query(AUTOVACUUMS)?)[..] {
            work.push(BackgroundWork { name: "autovacuums", total, is_running: running > 0 });
        }
        Ok(work)
    }

    fn own_latency(&self, at: &Endpoint) -> Result<Option<OwnLatency>, PartError> {
        let mut session = self.session(at, Duration::from_secs(5))?;
        let version = numbers(&session.query("SHOW server_version_num")?);
        if version.first().is_none_or(|version| *version < ACTIVE_TIME_SINCE.into()) {
            return Ok(None);
        }
        let [requests, sum_ns] = numbers(&session.query(ACTIVE_TIME)?)[..] else { return Ok(None) };
        Ok(Some(OwnLatency { requests, sum_ns, buckets: Vec::new() }))
    }
}

/// Removes a database with all sessions in it, if it is there.
pub(crate) fn drop_database(
    route: &ClientRoute,
    at: &Endpoint,
    name: &str,
) -> Result<(), ClientRouteError> {
    let mut session = Session::open(route.connect(at.address)?, READY_LIMIT)?;
    session.query(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).map(drop)
}

/// Reads the numbers of the first row.
fn numbers(rows: &[Vec<String>]) -> Vec<u64> {
    rows.iter().take(1).flatten().filter_map(|cell| cell.parse().ok()).collect()
}

/// A session with simple queries and answers in text.
struct Session {
    line: SystemConnection,
}

impl Session {
    fn open(mut line: SystemConnection, limit: Duration) -> Result<Self, ClientRouteError> {
        line.limit(limit);
        let mut body = PROTOCOL.to_be_bytes().to_vec();
        for word in ["user", NAME, "database", NAME, "application_name", "tare", ""] {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        line.send("a session", &framed(None, &body))?;
        let mut session = Self { line };
        session.until_ready()?;
        Ok(session)
    }

    /// Runs a statement and returns its rows, NULL as an empty text.
    fn query(&mut self, statement: &str) -> Result<Vec<Vec<String>>, ClientRouteError> {
        let body = [statement.as_bytes(), &[0]].concat();
        self.line.send(statement, &framed(Some(b'Q'), &body))?;
        self.until_ready()
    }

    /// Reads messages until the server waits for the next statement.
    fn until_ready(&mut self) -> Result<Vec<Vec<String>>, ClientRouteError> {
        let mut rows = Vec::new();
        loop {
            let head = self.line.bytes(5)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let length = usize::try_from(length).unwrap_or(0).saturating_sub(4);
            let body = self.line.bytes(length)?;
            match head[0] {
                b'Z' => return Ok(rows),
                b'D' => rows.push(cells(&body)),
                b'E' => return Err(self.line.unexpected_answer(complaint(&body))),
                // Authentication: 0 means done, everything else requests a password.
                b'R' if body != [0; 4] => {
                    return Err(self.line.unexpected_answer("a request for a password".into()));
                }
                // Settings, keys, descriptions of rows, notices, ends of statements.
                b'R' | b'S' | b'K' | b'T' | b'N' | b'C' | b'I' => {}
                other => {
                    let said = format!("a message of kind {:?}", char::from(other));
                    return Err(self.line.unexpected_answer(said));
                }
            }
        }
    }
}

/// Encodes a message: its kind, its length with the length, its body.
fn framed(kind: Option<u8>, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    kind.into_iter().chain(length.to_be_bytes()).chain(body.iter().copied()).collect()
}

/// Reads the cells of a row: a count, and each with its length, which is -1 for NULL.
fn cells(body: &[u8]) -> Vec<String> {
    let mut cells = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let (cell, after) = after.split_at(length.min(after.len()));
        cells.push(String::from_utf8_lossy(cell).into_owned());
        rest = after;
    }
    cells
}

/// Returns the message (field `M`) of an error.
fn complaint(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let mut messages = fields.filter_map(|field| field.strip_prefix(b"M"));
    messages.next().map_or("an error".into(), |text| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{command_of, make, plan_of, try_make};

    #[test]
    fn options_become_server_settings() {
        let system = make("postgres", &[("fsync", "off"), ("settings", "wal_level=minimal a=b")]);
        let command = command_of(&*system);
        assert!(command.starts_with("{program} -D {data}/cluster -c listen_addresses={listen}"));
        assert!(
            command.contains("-c fsync=off -c max_connections=200 -c wal_level=minimal -c a=b")
        );
        assert!(plan_of(&*system).before[0][0].ends_with("/initdb"));
        let error = try_make("postgres", &[("settings", "oops")]).err().unwrap().to_string();
        assert_eq!(error, "[system] of postgres: settings = \"oops\" is not words NAME=VALUE");
    }

    #[test]
    fn messages_encode_and_decode() {
        assert_eq!(framed(Some(b'Q'), b"x\0"), b"Q\0\0\0\x06x\0");
        assert_eq!(framed(None, b"ab"), b"\0\0\0\x06ab");
        let row = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\x01c";
        assert_eq!(cells(row), ["ab", "", "c"]);
        assert_eq!(cells(b"\0\x01\0\0\0\x09ab"), ["ab"], "cut off");
        assert_eq!(complaint(b"SFATAL\0C57P03\0Mit starts up\0\0"), "it starts up");
    }
}
