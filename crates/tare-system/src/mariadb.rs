//! MariaDB, also by the name of the server that it replaces. A new data directory is created from
//! inside, by the server itself (`--bootstrap`) with the files that `mariadb-install-db` gives it,
//! because that script needs a shell and more tools than an environment has. No file of the
//! installation's configuration is read.
//!
//! Method: it is idle once the changes of committed transactions are purged, up to one batch, and
//! all pages are written: a checkpoint as mariadb-backup requests it (MDEV-30000).
//!
//! Limits: other servers with this protocol prepare their data differently and are refused. The
//! cost of a commit depends on the storage layer; `innodb_flush_log_at_trx_commit` separates it.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;
use tare_host::exec;
use tare_host::tree_copy::FileUse;
use tare_lab::PartError;
use tare_lab::environment::{DataSnapshot, Endpoint, HostProgram, Launch};
use tare_lab::study::{OptionInfo, SystemSpec};
use tare_lab::system::{BackgroundWork, Instances, OwnLatency, System};

use super::client_route::{ClientRoute, ClientRouteError};
use super::mysql::Session;
use super::options::{OptionError, Options};
use super::saved_data::{self, DataCheck, DataFiles, DataStamp, ProgramVersion};
use super::starter::StartPlan;
use super::{SystemInfo, TlsSupport, instances};

pub(super) const MARIADB: SystemInfo = SystemInfo {
    name: "mariadb",
    help: "MariaDB of the host (apt-get install mariadb-server)",
    speaks: |_| "mysql".into(),
    found: Some(|| found(MARIADB_PROGRAMS)),
    options: OPTIONS,
    takes_device: false,
    in_memory: false,
    tls: TlsSupport::No,
    make: |spec, client_route| make("mariadb", MARIADB_PROGRAMS, spec, client_route),
};

pub(super) const MYSQL: SystemInfo = SystemInfo {
    name: "mysql",
    help: "the host's mysqld, where that is MariaDB",
    found: Some(|| found(MYSQL_PROGRAMS)),
    make: |spec, client_route| make("mysql", MYSQL_PROGRAMS, spec, client_route),
    ..MARIADB
};

const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "program",
        values: &[],
        help: "name on PATH or path of the server (default: mariadbd or mysqld, by the system's name first)",
    },
    OptionInfo {
        name: "innodb_buffer_pool_size",
        values: &[],
        help: "its page cache (default 256M)",
    },
    OptionInfo {
        name: "innodb_flush_log_at_trx_commit",
        values: &["0", "1", "2"],
        help: "1: a commit waits for the disk (default); 2: for the kernel; 0: for neither",
    },
    OptionInfo {
        name: "performance_schema",
        values: &["off", "on"],
        help: "on: it counts what its threads do, which costs CPU time (default off)",
    },
    OptionInfo {
        name: "max_connections",
        values: &[],
        help: "simultaneous connections (default 200)",
    },
    OptionInfo {
        name: "settings",
        values: &[],
        help: "more variables of the server, such as \"innodb_io_capacity=2000 sync_binlog=1\"",
    },
    instances::INSTANCES,
];

const MARIADB_PROGRAMS: &[&str] = &["mariadbd", "mysqld"];
const MYSQL_PROGRAMS: &[&str] = &["mysqld", "mariadbd"];
/// Where they are, if not on PATH.
const PLACES: &[&str] = &["/usr/sbin", "/usr/libexec", "/usr/local/mysql/bin", "/usr/bin"];
const REMEDY: &str = "apt-get install mariadb-server";

/// Where a server has its messages, its character sets and the statements for a new data directory.
const SHARES: &[&str] = &["/usr/share/mysql", "/usr/share/mariadb", "/usr/local/mysql/share"];
/// Those statements, in the order of `mariadb-install-db`, by their old and their new name.
const STATEMENTS: &[[&str; 2]] = &[
    ["mysql_system_tables.sql", "mariadb_system_tables.sql"],
    ["mysql_performance_tables.sql", "mariadb_performance_tables.sql"],
    ["mysql_system_tables_data.sql", "mariadb_system_tables_data.sql"],
    ["maria_add_gis_sp_bootstrap.sql", "maria_add_gis_sp_bootstrap.sql"],
];

/// The user that Tare creates, without a password: the network belongs to the study alone.
const USER: &str = "root";
/// Run by the server at each start, before it listens. The database is that of sysbench.
const INIT: &str = "CREATE USER IF NOT EXISTS root@'%' IDENTIFIED BY '';\n\
    GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n\
    CREATE DATABASE IF NOT EXISTS sbtest;\n";
const CREATE: &str = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\n";

/// Variables that a data directory keeps from its first start
/// (<https://mariadb.com/docs/server/server-usage/storage-engines/innodb/innodb-system-variables>).
const OF_NEW_DATA: &[&str] = &[
    "innodb_page_size",
    "innodb_data_file_path",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "innodb_undo_directory",
    "innodb_undo_tablespaces",
    "innodb_checksum_algorithm",
    "aria_log_dir_path",
    "datadir",
    "lower_case_table_names",
];
/// Pages change in place, so no file can be shared. The list of the pages that were in memory would
/// have them read in the background of the first slices.
static DATA: DataFiles = DataFiles {
    mark: "server/ibdata1",
    while_running: Some("server.pid"),
    use_of: |path| match path.to_str() {
        Some("server/ib_buffer_pool" | "server/ibtmp1") => FileUse::LeftOut,
        _ => FileUse::Changing,
    },
    stop: Signal::TERM,
};

/// Time limit for a new data directory and the start of the server.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Time limit for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for a checkpoint: everything that was loaded goes to the disk.
const CHECKPOINT_LIMIT: Duration = Duration::from_secs(240);

/// Settings that may differ between environments or change the cost of a transaction.
const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', \
    'version_comment', 'innodb_buffer_pool_size', 'innodb_flush_log_at_trx_commit', \
    'innodb_flush_method', 'innodb_log_file_size', 'innodb_use_native_aio', \
    'innodb_doublewrite', 'innodb_io_capacity', 'innodb_read_io_threads', \
    'innodb_write_io_threads', 'innodb_adaptive_hash_index', 'log_bin', 'sync_binlog', \
    'max_connections', 'open_files_limit', 'thread_handling', 'large_pages', \
    'performance_schema')";
/// Undo logs of committed transactions that are to be purged, and how many one batch takes.
const PURGE: &str = "SELECT VARIABLE_VALUE, @@innodb_purge_batch_size \
    FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Innodb_history_list_length'";
/// Pages that were written, by the page cleaner or for want of a free page, and how often a session
/// had to wait for a free page.
const BACKGROUND: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN \
    ('Innodb_buffer_pool_pages_flushed', 'Innodb_buffer_pool_wait_free')";
/// Statements of all sessions, but those of Tare, and the sum of their times, from ps to ns
/// (the performance schema of MariaDB, `events_statements_summary_global_by_event_name`).
const STATEMENTS_TIMED: &str = "SELECT COALESCE(SUM(COUNT_STAR), 0), \
    COALESCE(SUM(SUM_TIMER_WAIT), 0) DIV 1000 \
    FROM performance_schema.events_statements_summary_global_by_event_name \
    WHERE EVENT_NAME LIKE 'statement/%' AND EVENT_NAME NOT IN \
    ('statement/sql/show_status', 'statement/com/Quit', 'statement/com/Ping')";
const CHECKPOINT: &str = "SET GLOBAL innodb_log_checkpoint_now = ON";

/// MariaDB with the options of a study.
#[derive(Clone, Debug)]
pub struct MariaDb {
    name: &'static str,
    options: Options,
    /// Its path on this host, or its name where the host has none.
    program: PathBuf,
    /// The files for a new data directory.
    statements: Vec<PathBuf>,
    instances: Instances,
    client_route: ClientRoute,
}

/// Why a server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum MariaDbError {
    #[error(
        "{system}: {} has no {} in {}; is it another server than MariaDB?",
        .program.display(), STATEMENTS[0][0], SHARES.join(", ")
    )]
    NotMariaDb { system: &'static str, program: PathBuf },
}

fn make(
    name: &'static str,
    programs: &[&'static str],
    spec: &SystemSpec,
    client_route: &ClientRoute,
) -> Result<Box<dyn System>, PartError> {
    let options = Options::new(spec);
    options.count("max_connections", 200)?;
    if let Some(bad) = options.words("settings").iter().find(|text| !text.contains('=')) {
        return Err(options.bad("settings", bad, "words NAME=VALUE").into());
    }
    pool_size(&options)?;
    let found = match options.text("program") {
        Some(program) => exec::find(program),
        None => programs.iter().find_map(|name| find(name)),
    };
    let default = || options.text_or("program", programs[0]).into();
    let statements = match (&found, statements(Path::is_file)) {
        (_, Some(statements)) => statements,
        (Some(program), None) => {
            let program = program.clone();
            return Err(MariaDbError::NotMariaDb { system: name, program }.into());
        }
        // An environment's own root file system may have the program, as Debian installs it.
        (None, None) => statements(|path| path.starts_with(SHARES[0])).unwrap_or_default(),
    };
    let program = found.unwrap_or_else(default);
    let instances = instances::read(&options)?;
    let client_route = client_route.clone();
    Ok(Box::new(MariaDb { name, options, program, statements, instances, client_route }))
}

/// Returns the size of the buffer pool: a number with a suffix or without.
fn pool_size(options: &Options) -> Result<&str, OptionError> {
    let size = options.text_or("innodb_buffer_pool_size", "256M");
    let digits = size.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']);
    match digits.parse::<u64>() {
        Ok(_) if size.len() <= digits.len() + 1 => Ok(size),
        _ => Err(options.bad("innodb_buffer_pool_size", size, "a size such as \"256M\"")),
    }
}

/// Returns the path of a program, without its links: one server has two names.
fn find(name: &str) -> Option<PathBuf> {
    let elsewhere = || PLACES.iter().map(|place| Path::new(place).join(name)).find(|p| p.is_file());
    let path = exec::find(name).or_else(elsewhere)?;
    Some(path.canonicalize().unwrap_or(path))
}

/// Returns the path of the first of these programs, or how to install it.
fn found(programs: &[&str]) -> Result<String, &'static str> {
    let path = programs.iter().find_map(|name| find(name)).ok_or(REMEDY)?;
    match statements(Path::is_file) {
        Some(_) => Ok(path.display().to_string()),
        None => Err("the host's mysqld is not MariaDB: apt-get install mariadb-server"),
    }
}

/// Returns the files for a new data directory, if a directory has all of them.
fn statements(exists: impl Fn(&Path) -> bool) -> Option<Vec<PathBuf>> {
    SHARES.iter().find_map(|share| {
        let path = |name: &str| Some(Path::new(share).join(name)).filter(|path| exists(path));
        STATEMENTS.iter().map(|[old, new]| path(old).or_else(|| path(new))).collect()
    })
}

impl MariaDb {
    fn session(&self, at: &Endpoint, limit: Duration) -> Result<Session, ClientRouteError> {
        Session::open(self.client_route.connect(at.address)?, USER, limit)
    }

    /// Returns the settings that only new data takes.
    fn shape(&self) -> String {
        saved_data::shape_of(&self.options.words("settings"), OF_NEW_DATA)
    }

    /// Returns the options of every start of the server.
    fn settings_of_start(&self) -> Vec<String> {
        let option = |name: &str, default: &str| {
            format!("--{}={}", name.replace('_', "-"), self.options.text_or(name, default))
        };
        let fixed = [
            "--datadir={data}/server",
            // Its temporary tables stay on the data's storage, and no socket or file elsewhere.
            "--tmpdir={data}",
            "--socket=",
            "--pid-file={data}/server.pid",
            "--init-file={data}/server/init.sql",
            "--bind-address={listen}",
            "--port={port}",
            // An environment may have no resolver.
            "--skip-name-resolve",
        ];
        let mut words: Vec<String> = fixed.map(String::from).into();
        words.push(option("innodb_buffer_pool_size", "256M"));
        words.push(option("innodb_flush_log_at_trx_commit", "1"));
        words.push(option("performance_schema", "off"));
        words.push(option("max_connections", "200"));
        words.extend(self.options.words("settings").iter().map(|setting| format!("--{setting}")));
        words
    }
}

impl System for MariaDb {
    fn name(&self) -> &str {
        self.name
    }

    fn launch(&self, _cpus: usize) -> Launch {
        // The first argument by which no configuration of the host is read.
        let program = || ["{program}", "--no-defaults"].map(String::from).into_iter();
        let bootstrap = [
            "--bootstrap",
            "--datadir={data}/server",
            "--tmpdir={data}",
            "--skip-networking",
            "--socket=",
            "--log-warnings=0",
        ];
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let input = ["{data}/server/create.sql".to_string()].into_iter();
        let plan = StartPlan {
            files: vec![
                ("server/create.sql".into(), CREATE.into()),
                ("server/init.sql".into(), INIT.into()),
            ],
            before: vec![program().chain(bootstrap.map(String::from)).collect()],
            input: input.chain(self.statements.iter().map(path)).collect(),
            command: program().chain(self.settings_of_start()).collect(),
            variables: vec![("LC_ALL".into(), "C".into())],
            unprivileged: true,
            restored: Some(DataCheck {
                version: ProgramVersion::Printed("--version".into()),
                shape: self.shape(),
            }),
            ..StartPlan::default()
        };
        let share = self.statements.first().and_then(|file| file.parent());
        let folders = share.filter(|path| path.is_dir()).map(PathBuf::from);
        let program = HostProgram {
            name: path(&self.program),
            folders: folders.into_iter().collect(),
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
        Ok(self.session(at, ANSWER_LIMIT).map(drop)?)
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let rows = self.session(at, ANSWER_LIMIT)?.query(SETTINGS)?;
        Ok(super::pairs(rows))
    }

    fn pending(&self, at: &Endpoint) -> Result<Option<String>, PartError> {
        let mut session = self.session(at, CHECKPOINT_LIMIT)?;
        // A purge makes pages dirty, so it ends first.
        let purge = session.query(PURGE)?;
        let numbers = purge.first().into_iter().flatten().map(|cell| cell.parse::<u64>());
        if let [Ok(waiting), Ok(batch)] = numbers.collect::<Vec<_>>()[..]
            && waiting > batch
        {
            return Ok(Some(format!("purge: {waiting} undo logs wait, a batch is {batch}")));
        }
        session.query(CHECKPOINT)?;
        Ok(None)
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
        let Some(running) = DATA.of(at, processes, &self.program) else { return Ok(None) };
        let version = self.session(at, ANSWER_LIMIT)?.query("SELECT VERSION()")?;
        let version =
            version.first().and_then(|row| row.first()).map(|text| saved_data::series(text));
        let (system, version) = (self.name.into(), version.unwrap_or_default());
        running.save(DataStamp { system, version, shape: self.shape() }, to)
    }

    fn data_identity(&self, _cpus: usize) -> Option<Vec<(String, String)>> {
        // The options with a name change neither the rows nor their files.
        saved_data::identity(&self.program, &self.options.words("settings"))
    }

    fn open_data(
        &self,
        folder: &Path,
        description: &str,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        DATA.open(folder, description)
    }

    fn background(&self, at: &Endpoint) -> Result<Vec<BackgroundWork>, PartError> {
        let rows = self.session(at, ANSWER_LIMIT)?.query(BACKGROUND)?;
        let work = |row: &Vec<String>| {
            let [variable, value] = row.as_slice() else { return None };
            let name = match variable.ends_with("_wait_free") {
                true => "free_page_waits",
                false => "page_writes",
            };
            Some(BackgroundWork::total(name, value.parse().ok()?))
        };
        Ok(rows.iter().filter_map(work).collect())
    }

    fn own_latency(&self, at: &Endpoint) -> Result<Option<OwnLatency>, PartError> {
        let mut session = self.session(at, ANSWER_LIMIT)?;
        let is_on = session.query("SELECT @@performance_schema")?;
        if is_on != [["1"]] {
            return Ok(None);
        }
        let rows = session.query(STATEMENTS_TIMED)?;
        let mut numbers = rows.iter().flatten().filter_map(|cell| cell.parse().ok());
        let latency = numbers.next().zip(numbers.next());
        Ok(latency.map(|(requests, sum_ns)| OwnLatency { requests, sum_ns, buckets: Vec::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{command_of, make, plan_of, try_make};

    #[test]
    fn options_become_variables_of_the_server() {
        let options = [("innodb_flush_log_at_trx_commit", "2"), ("settings", "sync_binlog=1 a=b")];
        let system = make("mariadb", &options);
        let command = command_of(&*system);
        assert!(
            command.starts_with("{program} --no-defaults --datadir={data}/server"),
            "{command}"
        );
        assert!(command.ends_with(
            "--innodb-buffer-pool-size=256M --innodb-flush-log-at-trx-commit=2 \
             --performance-schema=off --max-connections=200 --sync_binlog=1 --a=b"
        ));
        let plan = plan_of(&*system);
        assert_eq!(plan.before[0][..3], ["{program}", "--no-defaults", "--bootstrap"]);
        assert_eq!(plan.input[0], "{data}/server/create.sql");
        assert!(plan.input[1].ends_with("_system_tables.sql"), "{:?}", plan.input);
        assert_eq!(make("mysql", &[]).name(), "mysql");
        let pages = [("settings", "innodb_page_size=8K sync_binlog=1")];
        let restored = plan_of(&*make("mariadb", &pages)).restored.unwrap();
        assert_eq!(restored.shape, "innodb_page_size=8K");
    }

    #[test]
    fn bad_options_are_one_line() {
        let refused = |option| try_make("mariadb", &[option]).err().unwrap().to_string();
        assert_eq!(
            refused(("settings", "oops")),
            "[system] of mariadb: settings = \"oops\" is not words NAME=VALUE"
        );
        for size in ["much", "1.5G", "M", "1MG"] {
            let error = refused(("innodb_buffer_pool_size", size));
            assert!(error.ends_with("is not a size such as \"256M\""), "{error}");
        }
        let error = refused(("max_connections", "0"));
        assert!(error.contains("max_connections"), "{error}");
    }

    #[test]
    fn statements_are_found_by_either_name() {
        let new = |path: &Path| {
            path.starts_with("/usr/share/mariadb") && !path.to_string_lossy().contains("/mysql_")
        };
        let found = statements(new).unwrap();
        assert_eq!(found[0], Path::new("/usr/share/mariadb/mariadb_system_tables.sql"));
        assert_eq!(found.len(), STATEMENTS.len());
        assert_eq!(statements(|_| false), None);
        let part = |path: &Path| path.ends_with("mysql_system_tables.sql");
        assert_eq!(statements(part), None, "another server has some of them");
    }
}
