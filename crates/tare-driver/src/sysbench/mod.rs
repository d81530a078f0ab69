//! sysbench as a driver: its bundled OLTP tests in a closed loop, for servers with MySQL's
//! protocol. <https://github.com/akopytov/sysbench>
//!
//! It prints its rate each second; the edges of the window are at those lines. Its histogram cannot
//! be cut, but a checkpoint (`--report-checkpoints`) begins a new one. That is where the window
//! begins, so it has the transactions from there to the tool's end, a second after the window.
//!
//! Fixed rates are refused. With `--rate` its threads take transactions from a queue and, when that
//! is empty, sleep for half the mean time between two transactions of a thread (`sb_more_events`),
//! which its latency contains: 4 threads at 500/s have a p99 of 3.7 ms where it is 0.3 ms.

use std::net::SocketAddr;
use std::time::Duration;

use tare_lab::study::{OptionInfo, Study, WorkloadSpec};

use super::option_reader::{OptionError, OptionReader, option};
use super::scale;
use super::tool::{
    self, CommandLine, EdgeSource, FILL_LIMIT, Outcome, Progress, SliceRun, Tool, ToolCommand,
    ToolError, ToolInfo, ToolOptions, ToolReport, ToolTarget, closed_loop, unusable,
};
use super::{DriverInfo, Program, Saturation};

mod output;

const NAME: &str = "sysbench";

const OPTIONS: &[OptionInfo] = &[
    option(
        "test",
        &[
            "oltp_point_select",
            "oltp_read_only",
            "oltp_read_write",
            "oltp_write_only",
            "oltp_update_index",
            "oltp_update_non_index",
            "oltp_insert",
            "select_random_points",
            "select_random_ranges",
        ],
        "one of its tests: oltp_point_select, oltp_read_write, oltp_update_index ... (oltp_point_select)",
    ),
    option(
        "threads",
        &[],
        "sessions, each with one transaction in flight (16, or 4 per CPU of the system, at most 190)",
    ),
    option("tables", &[], "tables; the same in all workloads (1)"),
    option("table_size", &[], "rows of each; the same in all workloads (100000)"),
    option(
        "rand_type",
        &["special", "uniform", "gaussian", "pareto", "zipfian"],
        "how rows are drawn: special (a few of them mostly), uniform, gaussian, pareto, zipfian (special)",
    ),
    option("program", &[], "its file, where it is not on PATH"),
];

pub(super) const INFO: DriverInfo = DriverInfo {
    name: NAME,
    help: "sysbench's OLTP tests for MySQL and MariaDB: closed loop",
    speaks: &["mysql"],
    options: OPTIONS,
    load_options: &["threads", "rand_type"],
    program: Some(Program { name: NAME, home: None, get: "apt-get install sysbench" }),
    check: tool::check::<Sysbench>,
    saturation: Saturation::Option("threads", THREADS),
    scale: |workload, cpus| {
        scale::sessions(workload, cpus, "threads", THREADS_PER_CPU, (THREADS, THREADS_MAX));
    },
    make: tool::make::<Sysbench>,
    sharing: tool::sharing::<Sysbench>(),
};

/// The user and the database of a server that Tare starts.
const USER: &str = "root";
const DATABASE: &str = "sbtest";
/// Sessions of a workload that does not name them, as for pgbench.
const THREADS: u32 = 16;
const THREADS_PER_CPU: u32 = 4;
/// Below the 200 connections of the server that Tare starts, of which Tare needs some.
const THREADS_MAX: u32 = 190;
/// The most threads that write rows: each writes whole tables.
const FILL_THREADS_MAX: u64 = 8;
/// Errors after which it repeats the transaction: a deadlock, and a row that another one changed
/// (`ER_LOCK_DEADLOCK`, `ER_CHECKREAD`). Any other error ends it; by default it would also repeat
/// what waited 50 s for a lock.
const REPEATED: &str = "1213,1020";
/// How late its lines may be.
const LATE: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    test: String,
    threads: u64,
    tables: u64,
    table_size: u64,
    rand_type: String,
    program: String,
}

impl ToolOptions for Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: NAME, workload };
        Ok(Self {
            test: words.text("test", "oltp_point_select"),
            threads: words.whole("threads", THREADS.into(), 1..=10_000)?,
            tables: words.whole("tables", 1, 1..=10_000)?,
            table_size: words.whole("table_size", 100_000, 1..=1_000_000_000)?,
            rand_type: words.text("rand_type", "special"),
            program: words.text("program", NAME),
        })
    }

    fn program(&self) -> &str {
        &self.program
    }

    /// Its tables, which are those of all workloads.
    fn rows(&self) -> Option<String> {
        Some(String::new())
    }
}

impl Options {
    fn words(&self, address: SocketAddr) -> CommandLine {
        let Self { tables, table_size, .. } = self;
        let (host, port) = (address.ip(), address.port());
        CommandLine::new(self.program.as_str())
            .args(&format!("--db-driver=mysql --mysql-host={host} --mysql-port={port}"))
            .args(&format!("--mysql-user={USER} --mysql-db={DATABASE}"))
            .args(&format!("--tables={tables} --table-size={table_size}"))
    }
}

/// The length of a run, in its whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Length {
    /// When the window begins: at the first line after the lead-in, which begins with its first.
    begin_s: u64,
    all_s: u64,
}

impl Length {
    fn of(run: &SliceRun<'_>) -> Self {
        let whole = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let begin_s = 1 + whole(run.order.lead_in + LATE);
        // It may end without the line of its last second. On loaders the window does not begin at a
        // line, and ends before one.
        let tail_s = if run.part.count > 1 { 2 } else { 1 };
        Self { begin_s, all_s: begin_s + whole(run.order.window) + tail_s }
    }
}

#[derive(Clone, Debug, Default)]
struct Sysbench;

impl Tool for Sysbench {
    const INFO: ToolInfo = ToolInfo {
        name: NAME,
        edges: EdgeSource::AtLines,
        greeting: &[],
        cuts_latency: false,
        divided: &[tool::load("threads", THREADS)],
    };

    type Options = Options;

    fn counts_from_due(_options: &Options) -> bool {
        false
    }

    fn check(study: &Study) -> Result<(), ToolError> {
        closed_loop(NAME, &study.workloads)?;
        let sizes =
            |options: &Options| [("tables", options.tables), ("table_size", options.table_size)];
        tool::same_tables(NAME, &study.workloads, sizes)
    }

    fn command(&self, options: &Options, run: &SliceRun<'_>) -> ToolCommand {
        let Options { test, threads, rand_type, .. } = options;
        let Length { begin_s, all_s } = Length::of(run);
        // 0 would mean the time.
        let seed = (run.order.seed & 0x7fff_ffff).max(1);
        let words = options
            .words(run.address)
            .args(&format!("--threads={threads} --rand-type={rand_type} --rand-seed={seed}"))
            .args(&format!("--time={all_s} --report-interval=1 --report-checkpoints={begin_s}"))
            .args(&format!("--mysql-ignore-errors={REPEATED}"))
            .args(&format!("--histogram --percentile=99 {test} run"));
        ToolCommand { words, operations: None }
    }

    fn populate(&self, at: &mut ToolTarget<'_>, options: &Options) -> Result<(), ToolError> {
        let rows = options.tables.saturating_mul(options.table_size);
        (at.progress)(0, rows);
        let threads = options.tables.min(FILL_THREADS_MAX);
        let words = options.words(at.address);
        let words = words.args(&format!("--threads={threads} {} prepare", options.test));
        let printed = at.complete(&words, FILL_LIMIT)?;
        output::filled(&printed, options.tables)?;
        (at.progress)(rows, rows);
        Ok(())
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        output::progress(line)
    }

    fn read(&self, _options: &Options, report: &ToolReport<'_>) -> Result<Outcome, ToolError> {
        output::read(&report.printed.stdout).map_err(unusable(NAME, report.printed))
    }
}

#[cfg(test)]
mod tests {
    use tare_lab::driver::{Pacing, SliceOrder};

    use super::*;
    use crate::agent::protocol::LoaderPart;
    use crate::tests::workload;
    use crate::tool::ObservedTool;

    #[test]
    fn run_covers_lead_in_and_window() {
        let length = |lead_in, window, count| {
            let [lead_in, window] = [lead_in, window].map(Duration::from_millis);
            let workload = workload();
            let order = SliceOrder { workload, pacing: Pacing::Closed, lead_in, window, seed: 0 };
            let scratch = std::path::Path::new("/");
            let address = ([127, 0, 0, 1], 1).into();
            let part = LoaderPart { index: 0, count };
            let seen = ObservedTool { rate_per_s: 1.0, start: Duration::ZERO };
            let run = SliceRun { address, order: &order, seen, scratch, part };
            let Length { begin_s, all_s } = Length::of(&run);
            (begin_s, all_s)
        };
        assert_eq!(length(600, 900, 1), (2, 4));
        assert_eq!(length(1_000, 1_000, 1), (3, 5), "a line may come after the lead-in by a hair");
        assert_eq!(length(200, 10_000, 2), (2, 14));
    }
}
