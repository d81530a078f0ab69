//! redis-benchmark as a driver: a closed loop of one command, for Redis and compatible servers.
//!
//! It takes a number of operations, not a time, so the number follows from earlier throughput. It
//! prints its rate each 250 ms; the edges of the window are at those lines. Its latency cannot be
//! cut and is that of the whole run.

use std::net::SocketAddr;
use std::time::Duration;

use tare_lab::study::{OptionInfo, Study, WorkloadSpec};

use super::option_reader::{OptionError, OptionReader, option};
use super::scale;
use super::tool::{
    self, CommandLine, EdgeSource, FILL_LIMIT, Outcome, Progress, SPARE, SliceRun, Tool,
    ToolCommand, ToolError, ToolInfo, ToolOptions, ToolReport, ToolTarget, closed_loop, unusable,
};
use super::{DriverInfo, Program, Saturation};

mod output;
mod resp;

const NAME: &str = "redis-benchmark";

const OPTIONS: &[OptionInfo] = &[
    option(
        "test",
        &["get", "set", "incr", "hset", "sadd", "ping_mbulk"],
        "command: get, set, incr, hset, sadd, ping_mbulk (get)",
    ),
    option("clients", &[], "connections, each with one request or pipeline in flight (50)"),
    option("pipeline", &[], "requests that are sent together (1)"),
    option("data_size", &[], "bytes of a value (100)"),
    option("keyspace", &[], "keys, all of which are there before the load (100000)"),
    option("threads", &[], "threads of the client (1 per CPU of it)"),
    option("program", &[], "its file, where it is not on PATH"),
];

pub(super) const INFO: DriverInfo = DriverInfo {
    name: NAME,
    help: "Redis's own load tool: closed loop, one command",
    speaks: &["redis"],
    options: OPTIONS,
    load_options: &["clients", "pipeline", "threads"],
    program: Some(Program { name: NAME, home: None, get: "apt-get install redis-tools" }),
    check: tool::check::<RedisBenchmark>,
    saturation: Saturation::Option("clients", CLIENTS),
    scale: |workload, cpus| {
        scale::threads_of_clients(workload, cpus, "threads", CLIENTS);
    },
    make: tool::make::<RedisBenchmark>,
    sharing: tool::sharing::<RedisBenchmark>(),
};

/// Connections of a workload that does not name them.
const CLIENTS: u32 = 50;
/// Extra time beyond lead-in and window.
const TAIL: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    test: String,
    clients: u64,
    pipeline: u64,
    data_size: u64,
    keyspace: u64,
    threads: u64,
    program: String,
}

impl ToolOptions for Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: NAME, workload };
        Ok(Self {
            test: words.text("test", "get"),
            clients: words.whole("clients", CLIENTS.into(), 1..=10_000)?,
            pipeline: words.whole("pipeline", 1, 1..=10_000)?,
            data_size: words.whole("data_size", 100, 1..=1 << 20)?,
            keyspace: words.whole("keyspace", 100_000, 1..=1_000_000_000)?,
            threads: words.whole("threads", 1, 1..=256)?,
            program: words.text("program", NAME),
        })
    }

    fn program(&self) -> &str {
        &self.program
    }
}

impl Options {
    fn words(&self, address: SocketAddr, operations: u64) -> CommandLine {
        let Self { test, clients, pipeline, data_size, keyspace, threads, program } = self;
        let words = CommandLine::new(program.as_str())
            .args(&format!("-h {} -p {} -n {operations} -t {test}", address.ip(), address.port()))
            .args(&format!("-c {clients} -P {pipeline} -d {data_size} -r {keyspace}"));
        // The climb of `load = "saturate"` begins with few clients.
        let threads = threads.min(clients);
        if *threads > 1 { words.args(&format!("--threads {threads}")) } else { words }
    }
}

#[derive(Clone, Debug, Default)]
struct RedisBenchmark;

impl Tool for RedisBenchmark {
    const INFO: ToolInfo = ToolInfo {
        name: NAME,
        edges: EdgeSource::AtLines,
        greeting: &[],
        cuts_latency: false,
        divided: &[tool::load("clients", CLIENTS), tool::each("threads", 1)],
    };

    fn counts_from_due(_options: &Options) -> bool {
        false
    }

    type Options = Options;

    fn check(study: &Study) -> Result<(), ToolError> {
        closed_loop(NAME, &study.workloads)?;
        let options = |workload| Options::read(workload).map(drop);
        Ok(study.workloads.iter().try_for_each(options)?)
    }

    fn command(&self, options: &Options, run: &SliceRun<'_>) -> ToolCommand {
        let time = run.order.lead_in + run.order.window + TAIL;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let needed = (run.seen.rate_per_s * time.as_secs_f64() * SPARE).max(0.0) as u64;
        // Requests that it sends together count together.
        let step = options.clients * options.pipeline;
        let operations = needed.div_ceil(step).max(1) * step;
        ToolCommand { words: options.words(run.address, operations), operations: Some(operations) }
    }

    fn populate(&self, at: &mut ToolTarget<'_>, options: &Options) -> Result<(), ToolError> {
        if matches!(options.test.as_str(), "get" | "set") {
            return resp::fill(at, options.keyspace, options.data_size);
        }
        // With twice as many draws as keys, 86 % of the keys exist.
        let operations = options.keyspace.saturating_mul(2);
        let printed = at.complete(&options.words(at.address, operations), FILL_LIMIT)?;
        output::read(&printed.stdout).map_err(unusable(NAME, &printed))?;
        (at.progress)(options.keyspace, options.keyspace);
        Ok(())
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        output::progress(line)
    }

    fn read(&self, _options: &Options, report: &ToolReport<'_>) -> Result<Outcome, ToolError> {
        output::read(&report.printed.stdout).map_err(unusable(NAME, report.printed))
    }
}
