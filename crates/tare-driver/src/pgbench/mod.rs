//! pgbench as a driver: PostgreSQL's own load tool with its built-in scripts, closed loop or at a
//! fixed rate.
//!
//! It logs the end time of each transaction, so the window is cut exactly. At a fixed rate it draws
//! a schedule (Poisson) and never skips a start: its latency counts from when a transaction was
//! due.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use tare_lab::study::{OptionInfo, Study, WorkloadSpec};

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
    help: "PostgreSQL's own load tool: built-in scripts, closed loop and fixed rate",
    speaks: &["postgres"],
    options: OPTIONS,
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
/// Extra time beyond lead-in and window: its first line comes after a second.
const TAIL: Duration = Duration::from_millis(1_500);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    builtin: String,
    clients: u64,
    jobs: u64,
    scale: u64,
    protocol: String,
    program: String,
}

impl ToolOptions for Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: NAME, workload };
        Ok(Self {
            builtin: words.text("builtin", "select-only"),
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

    /// Its tables, whose scale is that of all workloads.
    fn rows(&self) -> Option<String> {
        Some(String::new())
    }
}

impl Options {
    fn words(&self, address: SocketAddr) -> CommandLine {
        let (host, port) = (address.ip(), address.port());
        CommandLine::new(self.program.as_str()).args(&format!("-h {host} -p {port} -U {USER}"))
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
        let Options { builtin, clients, jobs, protocol, .. } = options;
        // It takes whole seconds.
        let seconds = (run.order.lead_in + run.order.window + TAIL).as_secs_f64().ceil();
        let words = options
            .words(run.address)
            .args(&format!(
                "-n -b {builtin} -M {protocol} -c {clients} -j {jobs} -P 1 -T {seconds}"
            ))
            .args(&format!("--random-seed {} --log", run.order.seed & 0xffff_ffff))
            .arg("--log-prefix")
            .arg(run.scratch.join(NAME).to_string_lossy());
        let words = run.with_rate(words, |rate_per_s| format!("-R {rate_per_s}"));
        ToolCommand { words: words.arg(USER), operations: None }
    }

    fn populate(&self, at: &mut ToolTarget<'_>, options: &Options) -> Result<(), ToolError> {
        let accounts = options.scale * 100_000;
        (at.progress)(0, accounts);
        let words = options.words(at.address).args(&format!("-i -q -s {}", options.scale));
        at.complete(&words.arg(USER), FILL_LIMIT)?;
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
