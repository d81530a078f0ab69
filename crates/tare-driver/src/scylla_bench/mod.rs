//! scylla-bench as a driver: Scylla's load tool, closed loop or at a fixed rate.
//!
//! At a fixed rate (`-max-rate`) its "c-o fixed" latency counts from when an operation was due. It
//! reports only percentiles of its whole run, which cannot be cut. When a replica is gone it
//! repeats the same operations forever, until the deadlines of a slice end it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tare_lab::study::{OptionInfo, WorkloadSpec};

use super::option_reader::{OptionError, OptionReader, option};
use super::scale;
use super::tool::{
    self, CQL_OPTIONS, CommandLine, EdgeSource, Outcome, Progress, SliceRun, Tool, ToolCommand,
    ToolError, ToolInfo, ToolOptions, ToolOutput, ToolReport, ToolTarget, unusable,
};
use super::{DriverInfo, Program, Saturation};

mod output;

const NAME: &str = "scylla-bench";

const OPTIONS: &[OptionInfo] = &[
    option("mode", &["write", "read"], "operations: write, read (write)"),
    option(
        "workload",
        &["uniform", "sequential"],
        "how partitions are drawn: uniform, sequential (uniform)",
    ),
    option("partitions", &[], "partitions of one row, there before the load (100000)"),
    option("row_bytes", &[], "bytes of a row (170)"),
    option("concurrency", &[], "operations in flight (64 per CPU of the system)"),
    option("connections", &[], "connections (4 per CPU of the system)"),
    option("consistency", &["one", "quorum", "all"], "one, quorum, all (one)"),
    option("replication", &[], "copies of each row, in a cluster of as many nodes (1)"),
    option("program", &[], "its file, where it is not on PATH"),
];

pub(super) const INFO: DriverInfo = DriverInfo {
    name: NAME,
    help: "Scylla's load tool: rows by key, closed loop and fixed rate",
    speaks: &["cql"],
    options: OPTIONS,
    load_options: &["mode", "workload", "concurrency", "connections"],
    program: Some(Program {
        name: NAME,
        home: None,
        get: "build it from github.com/scylladb/scylla-bench (go install .)",
    }),
    check: tool::check::<ScyllaBench>,
    saturation: Saturation::Option("concurrency", 64),
    scale: |workload, cpus| {
        scale::per_system_cpu(workload, cpus, "concurrency", 64);
        scale::per_system_cpu(workload, cpus, "connections", 4);
    },
    make: tool::make::<ScyllaBench>,
    sharing: tool::sharing::<ScyllaBench>(),
};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    mode: String,
    workload: String,
    partitions: u64,
    row_bytes: u64,
    concurrency: u64,
    connections: u64,
    consistency: String,
    replication: u64,
    program: String,
}

impl ToolOptions for Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: NAME, workload };
        Ok(Self {
            mode: words.text("mode", "write"),
            workload: words.text("workload", "uniform"),
            partitions: words.whole("partitions", 100_000, 1..=1 << 40)?,
            row_bytes: words.whole("row_bytes", 170, 1..=1 << 20)?,
            concurrency: words.whole("concurrency", 64, 1..=1 << 16)?,
            connections: words.whole("connections", 4, 1..=1 << 16)?,
            consistency: words.text("consistency", "one"),
            replication: words.whole("replication", 1, 1..=100)?,
            program: words.text("program", NAME),
        })
    }

    fn program(&self) -> &str {
        &self.program
    }
}

impl Options {
    fn words(&self, address: SocketAddr, mode: &str, workload: &str) -> CommandLine {
        let Self { partitions, row_bytes, concurrency, connections, consistency, .. } = self;
        CommandLine::new(self.program.as_str())
            .args(&format!("-nodes {address} -mode {mode} -workload {workload}"))
            .args(&format!("-partition-count {partitions} -clustering-row-count 1"))
            .args(&format!("-clustering-row-size fixed:{row_bytes} -concurrency {concurrency}"))
            .args(&format!("-connection-count {connections} -consistency-level {consistency}"))
            .args(&format!("-replication-factor {}", self.replication))
    }
}

#[derive(Clone, Debug, Default)]
struct ScyllaBench;

impl Tool for ScyllaBench {
    const INFO: ToolInfo = ToolInfo {
        name: NAME,
        edges: EdgeSource::AtLines,
        greeting: CQL_OPTIONS,
        cuts_latency: false,
        divided: &[tool::load("concurrency", 64), tool::each("connections", 4)],
    };

    type Options = Options;

    fn command(&self, options: &Options, run: &SliceRun<'_>) -> ToolCommand {
        let seconds = tool::seconds(run.order, Duration::from_secs(1));
        let mut options = options.clone();
        let mut first = 0;
        if options.workload == "sequential" {
            (first, options.partitions) = run.part.range(options.partitions);
            options.partitions = options.partitions.max(1);
        }
        let words = options
            .words(run.address, &options.mode, &options.workload)
            .args(&format!("-partition-offset {first}"))
            .args(&format!("-duration {seconds}s -iterations 0"));
        let words = run.with_rate(words, |rate_per_s| format!("-max-rate {}", rate_per_s.round()));
        ToolCommand { words, operations: None }
    }

    fn populate(&self, at: &mut ToolTarget<'_>, options: &Options) -> Result<(), ToolError> {
        let words = options.words(at.address, "write", "sequential");
        let read = |printed: &ToolOutput, _: &Path| {
            output::read(&printed.stdout, false).map_err(unusable(NAME, printed))
        };
        at.fill(&words, options.partitions, read)
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        output::progress(line)
    }

    fn read(&self, _options: &Options, report: &ToolReport<'_>) -> Result<Outcome, ToolError> {
        output::read(&report.printed.stdout, report.is_open())
            .map_err(unusable(NAME, report.printed))
    }
}
