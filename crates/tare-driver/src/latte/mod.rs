//! latte as a driver: CQL from a script of the user, closed loop or at a fixed rate.
//!
//! Its report has a histogram of each sample, which can be cut at the lines that it prints. At a
//! fixed rate scylladb's branch counts a cycle from when it was due. pkolaczk's branch skips starts
//! that it misses, so its latency is service time only.

use std::net::SocketAddr;
use std::path::PathBuf;

use tare_lab::study::{OptionInfo, WorkloadSpec};

use super::option_reader::{OptionError, OptionReader, option};
use super::scale;
use super::tool::{
    self, CQL_OPTIONS, CommandLine, EdgeSource, FILL_LIMIT, Outcome, Progress, SliceRun, Tool,
    ToolCommand, ToolError, ToolInfo, ToolOptions, ToolReport, ToolTarget, unusable, written,
};
use super::{DriverInfo, Program, Saturation};

mod output;

const NAME: &str = "latte";
const SCYLLADB: &str = "scylladb";

const OPTIONS: &[OptionInfo] = &[
    option("script", &[], "absolute path of the workload (.rn); its schema and load are run first"),
    option("function", &[], "function of the script (run)"),
    option("params", &[], "parameters of the script, such as rows=1000,size=64 (none)"),
    option("threads", &[], "threads of the client (1 per CPU of it)"),
    option("concurrency", &[], "requests in flight of each thread (128)"),
    option("connections", &[], "connections to the node or shard (1)"),
    option(
        "consistency",
        &["ONE", "LOCAL_ONE", "QUORUM", "LOCAL_QUORUM", "ALL"],
        "(LOCAL_QUORUM); the script sets the replication",
    ),
    option("branch", &["pkolaczk", SCYLLADB], "branch of latte: pkolaczk, scylladb (pkolaczk)"),
    option("program", &[], "its file, where it is not on PATH"),
];

pub(super) const INFO: DriverInfo = DriverInfo {
    name: NAME,
    help: "latte, on the Rust driver: CQL by a script, closed loop and fixed rate",
    speaks: &["cql"],
    options: OPTIONS,
    load_options: &["function", "threads", "concurrency", "connections"],
    program: Some(Program { name: NAME, home: None, get: "cargo install latte-cli --locked" }),
    check: tool::check::<Latte>,
    saturation: Saturation::Option("concurrency", 128),
    scale: scale::threads,
    make: tool::make::<Latte>,
    sharing: tool::sharing::<Latte>(),
};

/// What `script` must be.
const SCRIPT: &str = "the absolute path of a file";
/// The report in the scratch directory.
const REPORT: &str = "report.json";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    script: String,
    function: String,
    params: Vec<String>,
    threads: u64,
    concurrency: u64,
    connections: u64,
    consistency: String,
    is_scheduled: bool,
    program: String,
}

impl ToolOptions for Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: NAME, workload };
        let script = words.get("script");
        let script = script.ok_or_else(|| words.missing("script", "the statements to run"))?;
        if !PathBuf::from(script).is_absolute() {
            return Err(words.bad("script", SCRIPT));
        }
        let params: Vec<String> = words
            .get("params")
            .into_iter()
            .flat_map(|all| all.split(','))
            .map(String::from)
            .collect();
        if params.iter().any(|one| !one.contains('=')) {
            return Err(words.bad("params", "NAME=VALUE, separated by commas"));
        }
        Ok(Self {
            script: script.into(),
            function: words.text("function", "run"),
            params,
            threads: words.whole("threads", 1, 1..=256)?,
            concurrency: words.whole("concurrency", 128, 1..=1 << 20)?,
            connections: words.whole("connections", 1, 1..=1_024)?,
            consistency: words.text("consistency", "LOCAL_QUORUM"),
            is_scheduled: words.text("branch", "pkolaczk") == SCYLLADB,
            program: words.text("program", NAME),
        })
    }

    fn program(&self) -> &str {
        &self.program
    }

    fn files(&self, words: OptionReader<'_>) -> Vec<(PathBuf, OptionError)> {
        vec![(PathBuf::from(&self.script), words.bad("script", SCRIPT))]
    }

    /// What the load function of the script writes with these parameters.
    fn rows(&self) -> Option<String> {
        Some(format!("{} {}", self.script, self.params.join(",")))
    }
}

impl Options {
    /// Returns the command line of one of its commands on the script.
    fn words(&self, command: &str) -> CommandLine {
        let words = CommandLine::new(self.program.as_str()).arg(command);
        self.params.iter().fold(words, |words, param| words.arg("-P").arg(param.as_str()))
    }

    /// Appends script and address, which come last.
    fn on(&self, words: CommandLine, address: SocketAddr) -> CommandLine {
        words.arg(self.script.as_str()).arg(address.to_string())
    }
}

#[derive(Clone, Debug, Default)]
struct Latte;

impl Tool for Latte {
    const INFO: ToolInfo = ToolInfo {
        name: NAME,
        edges: EdgeSource::AtLines,
        greeting: CQL_OPTIONS,
        cuts_latency: true,
        divided: &[tool::load("threads", 1)],
    };

    fn counts_from_due(options: &Options) -> bool {
        options.is_scheduled
    }

    type Options = Options;

    fn command(&self, options: &Options, run: &SliceRun<'_>) -> ToolCommand {
        let Options { threads, concurrency, connections, consistency, .. } = options;
        let sample = tool::interval(run.order);
        let seconds = tool::seconds(run.order, sample);
        let words = options
            .words("run")
            .args(&format!("-q -w 0 -d {seconds}s -s {}ms -o {REPORT}", sample.as_millis()))
            .args(&format!("-t {threads} -p {concurrency} -c {connections}"))
            .args(&format!("--consistency {consistency}"))
            .arg("-f")
            .arg(options.function.as_str());
        let words = run.with_rate(words, |rate_per_s| format!("-r {}", rate_per_s.round()));
        ToolCommand { words: options.on(words, run.address), operations: None }
    }

    fn populate(&self, at: &mut ToolTarget<'_>, options: &Options) -> Result<(), ToolError> {
        let (schema, load) = (options.words("schema"), options.words("load"));
        (at.progress)(0, 1);
        at.complete(&options.on(schema, at.address), FILL_LIMIT)?;
        at.complete(&options.on(load, at.address), FILL_LIMIT)?;
        (at.progress)(1, 1);
        Ok(())
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        output::progress(line)
    }

    fn read(&self, options: &Options, report: &ToolReport<'_>) -> Result<Outcome, ToolError> {
        let text = written(NAME, &report.scratch.join(REPORT))?;
        output::read(&text, options.is_scheduled, Some(report.cut))
            .map_err(unusable(NAME, report.printed))
    }
}
