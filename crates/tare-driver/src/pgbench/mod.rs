//! pgbench as a driver: PostgreSQL's own load tool with its built-in scripts or the user's, closed
//! loop or at a fixed rate.
//!
//! It logs the end time of each transaction, so the window is cut exactly. At a fixed rate it draws
//! a schedule (Poisson) and never skips a start: its latency counts from when a transaction was
//! due.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_lab::PartError;
use tare_lab::attach::AttachedRows;
use tare_lab::study::{OptionInfo, Study, WorkloadSpec};

use super::attached::AttachedError;
use super::option_reader::{OptionError, OptionReader, option};
use super::scale;
use super::tool::{
    self, CommandLine, EdgeSource, FILL_LIMIT, Outcome, Progress, SliceRun, Tool, ToolCommand,
    ToolError, ToolInfo, ToolOptions, ToolReport, ToolTarget, unusable, written,
};
use super::{DriverInfo, Program, Saturation};

mod output;

const NAME: &str = "pgbench";

const OPTIONS: &[OptionInfo] = &[
    option(
        "builtin",
        &["tpcb-like", "simple-update", "select-only"],
        "script: tpcb-like, simple-update, select-only (select-only)",
    ),
    option("script", &[], "absolute path of your own script, in place of a built-in one"),
    option("database", &[], "database of your own tables in an attached system (postgres)"),
    option("setup", &[], "absolute path of SQL that psql runs once, in place of pgbench's tables"),
    option(
        "clients",
        &[],
        "sessions, each with one transaction in flight (16, or 4 per CPU of the system, at most 190)",
    ),
    option("jobs", &[], "threads of the client (1 per CPU of it)"),
    option("scale", &[], "100,000 accounts each; the same in all workloads (1)"),
    option(
        "protocol",
        &["simple", "extended", "prepared"],
        "how queries are sent: simple, extended, prepared (prepared)",
    ),
    option("program", &[], "its file, where it is not on PATH"),
];

pub(super) const INFO: DriverInfo = DriverInfo {
    name: NAME,
    help: "PostgreSQL's own load tool: built-in scripts or yours, closed loop and fixed rate",
    speaks: &["postgres"],
    options: OPTIONS,
    load_options: &["builtin", "script", "clients", "jobs", "protocol"],
    program: Some(Program { name: NAME, home: None, get: "apt-get install postgresql" }),
    check: tool::check::<Pgbench>,
    saturation: Saturation::Option("clients", CLIENTS),
    scale: |workload, cpus| {
        scale::sessions(workload, cpus, "clients", CLIENTS_PER_CPU, (CLIENTS, CLIENTS_MAX));
        scale::threads_of_clients(workload, cpus, "jobs", CLIENTS);
    },
    make: tool::make::<Pgbench>,
    sharing: tool::sharing::<Pgbench>(),
};

/// The user and the database of a PostgreSQL that Tare starts.
const USER: &str = "postgres";
/// Sessions of a workload that does not name them. Four for each CPU keep a server of processes
/// busy while some of them wait for the client or for the disk.
const CLIENTS: u32 = 16;
const CLIENTS_PER_CPU: u32 = 4;
/// Below the 200 connections of the PostgreSQL that Tare starts, of which it keeps some for others.
const CLIENTS_MAX: u32 = 190;
/// What `script` and `setup` must be.
const FILE: &str = "the absolute path of a file";
/// Extra time beyond lead-in and window: its first line comes after a second.
const TAIL: Duration = Duration::from_millis(1_500);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    builtin: String,
    script: Option<String>,
    setup: Option<String>,
    /// The database, as pgbench and psql take it.
    database: String,
    /// The database of Tare's own, which is made first in an attached system.
    own_database: Option<String>,
    clients: u64,
    jobs: u64,
    scale: u64,
    protocol: String,
    program: String,
}

impl ToolOptions for Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: NAME, workload };
        let file = |option| match words.get(option) {
            Some(path) if !Path::new(path).is_absolute() => Err(words.bad(option, FILE)),
            path => Ok(path.map(String::from)),
        };
        let [script, setup] = [file("script")?, file("setup")?];
        if script.is_some() && words.get("builtin").is_some() {
            return Err(words.bad("builtin", "left out where there is a script"));
        }
        if setup.is_some() && script.is_none() {
            return Err(words.missing("script", "the built-in ones need pgbench's own tables"));
        }
        let named = words.text("database", USER);
        let (database, own_database) = match &workload.attached_rows {
            Some(AttachedRows::Own(own)) => (own.clone(), Some(own.clone())),
            Some(AttachedRows::Users) => (read_only(&named), None),
            None => (USER.into(), None),
        };
        Ok(Self {
            database,
            own_database,
            builtin: words.text("builtin", "select-only"),
            script,
            setup,
            clients: words.whole("clients", CLIENTS.into(), 1..=10_000)?,
            jobs: words.whole("jobs", 1, 1..=256)?,
            scale: words.whole("scale", 1, 1..=100_000)?,
            protocol: words.text("protocol", "prepared"),
            program: words.text("program", NAME),
        })
    }

    fn program(&self) -> &str {
        &self.program
    }

    /// Its tables, whose scale is that of all workloads; or what the user's SQL makes.
    fn rows(&self) -> Option<String> {
        Some(self.setup.clone().unwrap_or_default())
    }

    fn files(&self, words: OptionReader<'_>) -> Vec<(PathBuf, OptionError)> {
        let files = [("script", &self.script), ("setup", &self.setup)].into_iter();
        let files = files.filter_map(|(option, path)| Some((option, path.as_deref()?)));
        files.map(|(option, path)| (path.into(), words.bad(option, FILE))).collect()
    }
}

impl Options {
    fn words(&self, address: SocketAddr) -> CommandLine {
        let (host, port) = (address.ip(), address.port());
        CommandLine::new(self.program.as_str()).args(&format!("-h {host} -p {port} -U {USER}"))
    }
}

/// Creates a database, unless it is there from another workload.
fn make_database(at: &mut ToolTarget<'_>, name: &str) -> Result<(), ToolError> {
    let count = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
    let ask = psql(at.address, USER).args("-t -A -c").arg(count);
    if at.complete(&ask, FILL_LIMIT)?.stdout.trim() == "0" {
        let make = psql(at.address, USER).arg("-c").arg(format!("CREATE DATABASE {name}"));
        at.complete(&make, FILL_LIMIT)?;
    }
    Ok(())
}

/// Returns a command line of psql that ends at the first error.
fn psql(address: SocketAddr, database: &str) -> CommandLine {
    CommandLine::new("psql")
        .args(&format!("-h {} -p {} -U {USER}", address.ip(), address.port()))
        .args("-X -q -v ON_ERROR_STOP=1 -d")
        .arg(database)
}

/// Returns a connection string of libpq for a database in which the server refuses to write.
fn read_only(database: &str) -> String {
    let quoted = database.replace('\\', r"\\").replace('\'', r"\'");
    format!("dbname='{quoted}' options='-c default_transaction_read_only=on'")
}

/// Refuses a workload that has no place of its own in an attached system.
pub(crate) fn check_attached(workload: &WorkloadSpec, read_only: bool) -> Result<(), PartError> {
    let options = Options::read(workload)?;
    let name = workload.name.clone();
    match (read_only, options.script, options.setup) {
        (true, None, _) | (true, _, Some(_)) => {
            Err(AttachedError::NoScript { workload: name }.into())
        }
        (false, Some(_), None) => Err(AttachedError::NoSetup { workload: name }.into()),
        _ => Ok(()),
    }
}

#[derive(Clone, Debug, Default)]
struct Pgbench;

impl Tool for Pgbench {
    const INFO: ToolInfo = ToolInfo {
        name: NAME,
        edges: EdgeSource::ByTheClock,
        greeting: &[],
        cuts_latency: true,
        divided: &[tool::load("clients", CLIENTS), tool::each("jobs", 1)],
    };

    type Options = Options;

    fn check(study: &Study) -> Result<(), ToolError> {
        let sizes = |options: &Options| [("scale", options.scale)];
        tool::same_tables(NAME, &study.workloads, sizes)
    }

    fn command(&self, options: &Options, run: &SliceRun<'_>) -> ToolCommand {
        let Options { builtin, script, clients, jobs, scale, protocol, .. } = options;
        // It takes whole seconds.
        let seconds = (run.order.lead_in + run.order.window + TAIL).as_secs_f64().ceil();
        let words = options.words(run.address).arg("-n");
        let words = match script {
            Some(script) => words.args(&format!("-s {scale} -f")).arg(script.as_str()),
            None => words.args(&format!("-b {builtin}")),
        };
        let words = words
            .args(&format!("-M {protocol} -c {clients} -j {jobs} -P 1 -T {seconds}"))
            .args(&format!("--random-seed {} --log", run.order.seed & 0xffff_ffff))
            .arg("--log-prefix")
            .arg(run.scratch.join(NAME).to_string_lossy());
        let words = run.with_rate(words, |rate_per_s| format!("-R {rate_per_s}"));
        ToolCommand { words: words.arg(options.database.as_str()), operations: None }
    }

    fn populate(&self, at: &mut ToolTarget<'_>, options: &Options) -> Result<(), ToolError> {
        if let Some(own) = &options.own_database {
            make_database(at, own)?;
        }
        if let Some(setup) = &options.setup {
            (at.progress)(0, 1);
            let words = psql(at.address, &options.database).arg("-f").arg(setup.as_str());
            at.complete(&words, FILL_LIMIT)?;
            (at.progress)(1, 1);
            return Ok(());
        }
        let accounts = options.scale * 100_000;
        (at.progress)(0, accounts);
        let words = options.words(at.address).args(&format!("-i -q -s {}", options.scale));
        at.complete(&words.arg(options.database.as_str()), FILL_LIMIT)?;
        (at.progress)(accounts, accounts);
        Ok(())
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        output::progress(line)
    }

    fn read(&self, _options: &Options, report: &ToolReport<'_>) -> Result<Outcome, ToolError> {
        let ToolReport { printed, scratch, cut, .. } = *report;
        let unread = |source| ToolError::Read { tool: NAME, path: scratch.to_path_buf(), source };
        let mut log = String::new();
        // One for each of its threads.
        for entry in fs::read_dir(scratch).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            log.push_str(&written(NAME, &path)?);
        }
        output::read(&printed.stdout, &log, Some(cut)).map_err(unusable(NAME, printed))
    }
}
