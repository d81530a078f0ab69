//! YCSB as a driver: its core workloads A to F by its Cassandra binding or another one for CQL,
//! closed loop or at a fixed rate. <https://github.com/brianfrankcooper/YCSB>
//!
//! By default it measures from the send. Here it also measures from when an operation was due
//! (`measurement.interval=both`), and logs a histogram of each second, which can be cut at the
//! lines that it prints. It does not create its table, so this driver does.
//!
//! Limits: D and E insert the same rows in each slice, so from the second on they overwrite. A
//! read-modify-write of F counts once in the rate and twice, as its two requests, in the latency.
//! Each slice is a new Java process (see `cassandra_stress`).

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tare_lab::study::{OptionInfo, WorkloadSpec};
use tare_load::Access;

use super::java::{self, Java, JavaHome};
use super::option_reader::{OptionError, OptionReader, option};
use super::scale;
use super::tool::{
    self, CQL_OPTIONS, CommandLine, EdgeSource, Outcome, Progress, SliceRun, Tool, ToolCommand,
    ToolError, ToolInfo, ToolOptions, ToolOutput, ToolReport, ToolTarget, unusable, written,
};
use super::{DriverInfo, Saturation};

mod output;

const NAME: &str = "ycsb";
/// The class of YCSB's own Cassandra binding.
const BINDING: &str = "site.ycsb.db.CassandraCQLClient";
const HOME: JavaHome = JavaHome {
    default: "/opt/ycsb",
    needs: ("lib", "a directory with YCSB's lib"),
    before: &[],
    // The archive of one binding has everything in lib.
    after: &["lib/*", "cassandra-binding/lib/*"],
};

const OPTIONS: &[OptionInfo] = &[
    option("workload", &["a", "b", "c", "d", "e", "f"], "core workload: a, b, c, d, e, f (a)"),
    option(
        "threads",
        &[],
        "operations in flight, each of a thread (32 per CPU of the system, at most 1000)",
    ),
    option("rows", &[], "rows that are there before the load (100000)"),
    option("fields", &[], "fields of a row (10)"),
    option("field_bytes", &[], "bytes of a field (100)"),
    option("consistency", &["ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL"], "(ONE)"),
    option("replication", &[], "copies of each row, in a cluster of as many nodes (1)"),
    option(
        "binding",
        &[],
        "class that sends the requests, in a jar of the distribution (site.ycsb.db.CassandraCQLClient)",
    ),
    option(
        "home",
        &[],
        "directory of the distribution, which has lib and cassandra-binding/lib (/opt/ycsb)",
    ),
    java::HDRHISTOGRAM,
    java::PROGRAM,
];

pub(super) const INFO: DriverInfo = DriverInfo {
    name: NAME,
    help: "YCSB's core workloads A to F by its Cassandra binding, closed loop and fixed rate",
    speaks: &["cql"],
    options: OPTIONS,
    load_options: &["workload", "threads"],
    program: Some(HOME.program(
        "apt-get install default-jre-headless; unpack ycsb-0.17.0.tar.gz (or ycsb-cassandra-binding-0.17.0.tar.gz) of github.com/brianfrankcooper/YCSB/releases and name its directory in the study (home)",
    )),
    check: tool::check::<Ycsb>,
    saturation: Saturation::Option("threads", 32),
    scale: |workload, cpus| scale::threads_in_flight(workload, cpus, 32),
    make: tool::make::<Ycsb>,
    sharing: tool::sharing::<Ycsb>(),
};

/// Time limit for creating the table.
const SCHEMA_LIMIT: Duration = Duration::from_secs(60);

/// A core workload: the shares of its operations, and how keys are drawn.
/// <https://github.com/brianfrankcooper/YCSB/wiki/Core-Workloads>
#[derive(Clone, Copy, Debug)]
struct Mix {
    name: &'static str,
    shares: &'static [(&'static str, &'static str)],
    keys: &'static str,
}

const MIXES: [Mix; 6] = [
    Mix { name: "a", shares: &[("read", "0.5"), ("update", "0.5")], keys: "zipfian" },
    Mix { name: "b", shares: &[("read", "0.95"), ("update", "0.05")], keys: "zipfian" },
    Mix { name: "c", shares: &[("read", "1")], keys: "zipfian" },
    Mix { name: "d", shares: &[("read", "0.95"), ("insert", "0.05")], keys: "latest" },
    Mix { name: "e", shares: &[("scan", "0.95"), ("insert", "0.05")], keys: "zipfian" },
    Mix { name: "f", shares: &[("read", "0.5"), ("readmodifywrite", "0.5")], keys: "zipfian" },
];
/// All kinds of operations with a share, whose defaults are not 0.
const SHARES: [&str; 5] = ["read", "update", "insert", "scan", "readmodifywrite"];

#[derive(Clone, Debug)]
struct Options {
    mix: Mix,
    threads: u64,
    rows: u64,
    fields: u64,
    field_bytes: u64,
    consistency: String,
    replication: u64,
    binding: String,
    java: Java,
}

impl ToolOptions for Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: NAME, workload };
        let name = words.text("workload", "a");
        let mix = MIXES.into_iter().find(|mix| mix.name == name);
        Ok(Self {
            mix: mix.ok_or_else(|| words.bad("workload", "a letter from a to f"))?,
            threads: words.whole("threads", 32, 1..=100_000)?,
            rows: words.whole("rows", 100_000, 1..=i32::MAX as u64)?,
            fields: words.whole("fields", 10, 1..=1_000)?,
            field_bytes: words.whole("field_bytes", 100, 1..=1 << 20)?,
            consistency: words.text("consistency", "ONE"),
            replication: words.whole("replication", 1, 1..=100)?,
            binding: class(words, "binding", BINDING)?,
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
    /// Returns the keyspace; rows of another shape go into another one.
    fn keyspace(&self) -> String {
        format!("ycsb_{}_{}", self.fields, self.field_bytes)
    }

    /// Returns the statements that create keyspace and table, as the binding needs them.
    fn schema(&self) -> [String; 2] {
        let keyspace = self.keyspace();
        let fields = (0..self.fields).map(|field| format!("field{field} varchar, "));
        let fields: String = fields.collect();
        [
            format!(
                "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
                 {{'class': 'SimpleStrategy', 'replication_factor': {}}}",
                self.replication
            ),
            format!(
                "CREATE TABLE IF NOT EXISTS {keyspace}.usertable \
                 (y_id varchar, {fields}PRIMARY KEY (y_id))"
            ),
        ]
    }

    /// Returns more operations than it can do in a slice; without a number, 0.17.0 starts no
    /// thread. A mix with inserts draws from the keys that all those operations would insert, and
    /// again if a key does not exist yet, so its number stays near that of the rows.
    fn operations_most(&self) -> u64 {
        match self.mix.name {
            "e" => (self.rows * 10).clamp(100_000, i32::MAX as u64),
            _ => i32::MAX as u64,
        }
    }

    /// Returns the command line of one phase: `-load`, or `-t`, which runs the mix.
    fn words(&self, address: SocketAddr, phase: &str) -> CommandLine {
        let (host, port) = (address.ip(), address.port());
        let Self { mix, threads, rows, fields, field_bytes, consistency, binding, java, .. } = self;
        let keyspace = self.keyspace();
        let mut words = java
            .words("site.ycsb.Client")
            .args(&format!("{phase} -s -threads {threads} -db {binding}"));
        let share = |kind: &str| {
            let found = mix.shares.iter().find(|(name, _)| *name == kind);
            found.map_or("0", |(_, share)| *share)
        };
        let shares = SHARES.map(|kind| format!("{kind}proportion={}", share(kind)));
        let own = [
            "workload=site.ycsb.workloads.CoreWorkload".into(),
            format!("requestdistribution={}", mix.keys),
            "maxscanlength=100".into(),
            format!("recordcount={rows}"),
            format!("operationcount={}", self.operations_most()),
            format!("fieldcount={fields}"),
            format!("fieldlength={field_bytes}"),
            "status.interval=1".into(),
            "measurementtype=hdrhistogram".into(),
            "measurement.interval=both".into(),
            "hdrhistogram.fileoutput=true".into(),
            format!("hosts={host}"),
            format!("port={port}"),
            format!("cassandra.keyspace={keyspace}"),
            format!("cassandra.readconsistencylevel={consistency}"),
            format!("cassandra.writeconsistencylevel={consistency}"),
        ];
        for property in shares.iter().chain(&own) {
            words = words.arg("-p").arg(property.as_str());
        }
        words
    }
}

/// Reads the name of a Java class.
fn class(words: OptionReader<'_>, key: &'static str, default: &str) -> Result<String, OptionError> {
    let name = words.text(key, default);
    let part = |part: &str| {
        let mut letters = part.chars();
        letters.next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || "_$".contains(letter))
    };
    match name.split('.').all(part) {
        true => Ok(name),
        false => Err(words.bad(key, "the name of a Java class, such as site.ycsb.BasicDB")),
    }
}

/// Creates keyspace and table, from where the client runs.
fn create_schema(at: &ToolTarget<'_>, options: &Options) -> Result<(), ToolError> {
    let deadline = Instant::now() + SCHEMA_LIMIT;
    let statements: Vec<_> =
        ["CREATE KEYSPACE", "CREATE TABLE"].into_iter().zip(options.schema()).collect();
    let access = Access::to(at.address);
    let create = || tare_load::execute(&access, &statements, deadline);
    at.within(create)?.map_err(|source| ToolError::Schema { source: Box::new(source) })
}

#[derive(Clone, Debug, Default)]
struct Ycsb;

impl Tool for Ycsb {
    const INFO: ToolInfo = ToolInfo {
        name: NAME,
        edges: EdgeSource::AtLines,
        greeting: CQL_OPTIONS,
        cuts_latency: true,
        divided: &[tool::load("threads", 32)],
    };

    type Options = Options;

    fn command(&self, options: &Options, run: &SliceRun<'_>) -> ToolCommand {
        // Its time counts from before it connects.
        let seconds =
            tool::seconds(run.order, Duration::from_secs(1)) + run.seen.start.as_secs_f64().ceil();
        let words =
            options.words(run.address, "-t").args(&format!("-p maxexecutiontime={seconds}"));
        let words =
            run.with_rate(words, |rate_per_s| format!("-target {}", rate_per_s.round().max(1.0)));
        ToolCommand { words, operations: None }
    }

    fn populate(&self, at: &mut ToolTarget<'_>, options: &Options) -> Result<(), ToolError> {
        create_schema(at, options)?;
        let read = |printed: &ToolOutput, scratch: &Path| {
            let class = &options.binding;
            // It prints the exception, and goes on without a binding.
            if printed.stderr.contains(&format!("ClassNotFoundException: {class}")) {
                return Err(ToolError::NoBinding { tool: NAME, class: class.clone() });
            }
            output::read(&printed.stdout, &logs(scratch)?, false, None)
                .map_err(unusable(NAME, printed))
        };
        at.fill(&options.words(at.address, "-load"), options.rows, read)
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        output::progress(line)
    }

    fn is_last(&self, line: &str) -> bool {
        line == output::LAST
    }

    fn read(&self, _options: &Options, report: &ToolReport<'_>) -> Result<Outcome, ToolError> {
        let ToolReport { printed, scratch, cut, .. } = report;
        output::read(&printed.stdout, &logs(scratch)?, report.is_open(), Some(cut))
            .map_err(unusable(NAME, printed))
    }
}

/// Returns its logs by name, one for each kind of operation.
fn logs(scratch: &Path) -> Result<Vec<(String, String)>, ToolError> {
    let unread = |source| ToolError::Read { tool: NAME, path: scratch.to_path_buf(), source };
    let mut logs = Vec::new();
    for entry in fs::read_dir(scratch).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(kind) = name.strip_suffix(".hdr") {
            logs.push((kind.to_string(), written(NAME, &path)?));
        }
    }
    Ok(logs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_shares_add_up_to_one() {
        for mix in MIXES {
            let all: f64 = mix.shares.iter().map(|(_, share)| share.parse::<f64>().unwrap()).sum();
            assert!((all - 1.0).abs() < 1e-9, "{mix:?}");
            assert!(mix.shares.iter().all(|(kind, _)| SHARES.contains(kind)), "{mix:?}");
        }
    }
}
