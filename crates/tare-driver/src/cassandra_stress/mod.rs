//! cassandra-stress as a driver: Cassandra's own load tool on its standard table, closed loop or at
//! a fixed rate.
//!
//! It logs a histogram for each interval, which can be cut at the lines that it prints. At a fixed
//! rate (`fixed=`) its response time counts from when an operation was due. (`throttle=` has no
//! schedule and is not used.) Each slice is a new Java process, whose code is compiled during its
//! first seconds: the lead-in should be 10 s or more, and the window as long.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_lab::study::{OptionInfo, WorkloadSpec};

use super::java::{self, Java, JavaHome};
use super::option_reader::{OptionError, OptionReader, option};
use super::scale;
use super::tool::{
    self, CQL_OPTIONS, CommandLine, EdgeSource, Outcome, Progress, SliceRun, Tool, ToolCommand,
    ToolError, ToolInfo, ToolOptions, ToolOutput, ToolReport, ToolTarget, unusable, written,
};
use super::{DriverInfo, Saturation};

mod output;

const NAME: &str = "cassandra-stress";
const HOME: JavaHome = JavaHome {
    default: "/opt/cassandra",
    needs: ("tools/lib/stress.jar", "a directory with tools/lib/stress.jar"),
    before: &["conf"],
    after: &["lib/*", "tools/lib/*"],
};

const OPTIONS: &[OptionInfo] = &[
    option("command", &["write", "read", "mixed"], "operations: write, read, mixed (write)"),
    option("ratio", &[], "writes to reads of mixed (1:1)"),
    option(
        "threads",
        &[],
        "operations in flight, each of a thread (50 per CPU of the system, at most 1000)",
    ),
    option(
        "rows",
        &[],
        "rows that are there before the load, and that keys are drawn from (100000)",
    ),
    option("keys", &["uniform", "gaussian"], "how keys are drawn: uniform, gaussian (gaussian)"),
    option("columns", &[], "columns of a row (5)"),
    option("column_bytes", &[], "bytes of a column (34)"),
    option("consistency", &["ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL"], "(LOCAL_ONE)"),
    option("replication", &[], "copies of each row, in a cluster of as many nodes (1)"),
    option(
        "home",
        &[],
        "directory of the distribution, which has lib and tools/lib (/opt/cassandra)",
    ),
    java::HDRHISTOGRAM,
    java::PROGRAM,
];

pub(super) const INFO: DriverInfo = DriverInfo {
    name: NAME,
    help: "Cassandra's own load tool: write, read and mixed on its standard table",
    speaks: &["cql"],
    options: OPTIONS,
    load_options: &["command", "ratio", "threads", "keys"],
    program: Some(HOME.program(
        "apt-get install default-jre-headless; cassandra-stress itself is part of Cassandra's binary distribution, whose directory a study names (home)",
    )),
    check: tool::check::<CassandraStress>,
    saturation: Saturation::Option("threads", 50),
    scale: |workload, cpus| scale::threads_in_flight(workload, cpus, 50),
    make: tool::make::<CassandraStress>,
    sharing: tool::sharing::<CassandraStress>(),
};

/// The log in the scratch directory.
const LOG: &str = "latency.hdr";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    command: String,
    threads: u64,
    rows: u64,
    keys: String,
    columns: u64,
    column_bytes: u64,
    consistency: String,
    replication: u64,
    java: Java,
}

impl ToolOptions for Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: NAME, workload };
        Ok(Self {
            command: command(words)?,
            threads: words.whole("threads", 50, 1..=100_000)?,
            rows: words.whole("rows", 100_000, 1..=1 << 40)?,
            keys: words.text("keys", "gaussian"),
            columns: words.whole("columns", 5, 1..=1_000)?,
            column_bytes: words.whole("column_bytes", 34, 1..=1 << 20)?,
            consistency: words.text("consistency", "LOCAL_ONE"),
            replication: words.whole("replication", 1, 1..=100)?,
            java: HOME.read(words),
        })
    }

    fn program(&self) -> &str {
        self.java.program()
    }

    fn files(&self, words: OptionReader<'_>) -> Vec<(PathBuf, OptionError)> {
        HOME.files(words)
    }
}

impl Options {
    /// Returns the command line that runs and fills share.
    fn words(
        &self,
        address: SocketAddr,
        command: &str,
        rest: &str,
        interval: Duration,
    ) -> CommandLine {
        let Self { columns, column_bytes, threads, consistency, java, .. } = self;
        let (host, port) = (address.ip(), address.port());
        // Rows of another shape go into another table.
        let keyspace = format!("stress_{columns}_{column_bytes}");
        let factor = match self.replication {
            1 => String::new(),
            factor => format!(" replication(factor={factor})"),
        };
        java.words("org.apache.cassandra.stress.Stress")
            .args(&format!("{command} no-warmup cl={consistency} {rest}"))
            .args(&format!("-col n=FIXED({columns}) size=FIXED({column_bytes})"))
            .args(&format!("-schema{factor} keyspace={keyspace} -node {host} -port native={port}"))
            .args(&format!("-log hdrfile={LOG} interval={}ms", interval.as_millis()))
            .args(&format!("-rate threads={threads}"))
    }
}

/// Returns the command, with its ratio.
fn command(words: OptionReader<'_>) -> Result<String, OptionError> {
    let command = words.text("command", "write");
    let ratio = words.text("ratio", "1:1");
    let whole = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
    let ratio = ratio.split_once(':').and_then(|(write, read)| whole(write).zip(whole(read)));
    let (write, read) = ratio.ok_or_else(|| words.bad("ratio", "two whole numbers such as 1:3"))?;
    Ok(match command.as_str() {
        "mixed" => format!("mixed ratio(write={write},read={read})"),
        _ => command,
    })
}

#[derive(Clone, Debug, Default)]
struct CassandraStress;

impl Tool for CassandraStress {
    const INFO: ToolInfo = ToolInfo {
        name: NAME,
        edges: EdgeSource::AtLines,
        greeting: CQL_OPTIONS,
        cuts_latency: true,
        divided: &[tool::load("threads", 50)],
    };

    type Options = Options;

    fn command(&self, options: &Options, run: &SliceRun<'_>) -> ToolCommand {
        let Options { rows, keys, command, .. } = options;
        let interval = tool::interval(run.order);
        let seconds = tool::seconds(run.order, interval);
        let keys = keys.to_uppercase();
        let rest = format!("duration={seconds}s -pop dist={keys}(1..{rows})");
        let words = options.words(run.address, command, &rest, interval);
        let words = run.with_rate(words, |rate_per_s| format!("fixed={}/s", rate_per_s.round()));
        ToolCommand { words, operations: None }
    }

    fn populate(&self, at: &mut ToolTarget<'_>, options: &Options) -> Result<(), ToolError> {
        let asked = options.rows;
        let command = format!("write n={asked}");
        let order = format!("-pop seq=1..{asked}");
        let words = options.words(at.address, &command, &order, Duration::from_secs(1));
        let read = |printed: &ToolOutput, scratch: &Path| {
            let log = written(NAME, &scratch.join(LOG))?;
            output::read(&printed.stdout, &log, None).map_err(unusable(NAME, printed))
        };
        at.fill(&words, asked, read)
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        output::progress(line)
    }

    fn read(&self, _options: &Options, report: &ToolReport<'_>) -> Result<Outcome, ToolError> {
        let ToolReport { printed, scratch, cut, .. } = report;
        let log = written(NAME, &scratch.join(LOG))?;
        output::read(&printed.stdout, &log, Some(cut)).map_err(unusable(NAME, printed))
    }
}
