//! scylla-bench as a driver: Scylla's load tool, closed loop or at a fixed rate.
//!
//! At a fixed rate (`-max-rate`) its "c-o fixed" latency counts from when an operation was due. It tells
//! percentiles of its whole run alone, which cannot be cut. When a replica is gone it sends the same
//! operations again for ever, so the deadlines of a slice end it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tare_lab::driver::{Pacing, SliceOrder};
use tare_lab::study::{OptionInfo, WorkloadSpec};

use super::tool::{
    self, About, Ask, At, CQL_OPTIONS, Cut, Edges, Outcome, Printed, Progress, Seen, Tool,
    ToolDriver, ToolError, Words, unusable,
};
use super::words::{self, OptionError, option};
use super::{DriverInfo, Program};

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
    option("concurrency", &[], "operations in flight (64)"),
    option("connections", &[], "connections (4)"),
    option("consistency", &["one", "quorum", "all"], "one, quorum, all (one)"),
    option("program", &[], "its file, where it is not on PATH"),
];

pub(super) const INFO: DriverInfo = DriverInfo {
    name: NAME,
    help: "Scylla's load tool: rows by key, closed loop and fixed rate",
    speaks: &["cql"],
    options: OPTIONS,
    program: Some(Program {
        name: NAME,
        home: None,
        get: "build it from github.com/scylladb/scylla-bench (go install .)",
    }),
    check: |study| {
        let read = |workload| Options::read(workload).map(drop);
        Ok(study.workloads.iter().try_for_each(read)?)
    },
    make: |client| Ok(Box::new(ToolDriver::new(ScyllaBench, client))),
};

/// For the rows to be written.
const FILL_LIMIT: Duration = Duration::from_secs(4 * 3600);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    mode: String,
    workload: String,
    partitions: u64,
    row_bytes: u64,
    concurrency: u64,
    connections: u64,
    consistency: String,
    program: String,
}

impl Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = words::Options { tool: NAME, workload };
        Ok(Self {
            mode: words.text("mode", "write"),
            workload: words.text("workload", "uniform"),
            partitions: words.whole("partitions", 100_000, 1..=1 << 40)?,
            row_bytes: words.whole("row_bytes", 170, 1..=1 << 20)?,
            concurrency: words.whole("concurrency", 64, 1..=1 << 16)?,
            connections: words.whole("connections", 4, 1..=1 << 16)?,
            consistency: words.text("consistency", "one"),
            program: words.text("program", NAME),
        })
    }

    fn words(&self, address: SocketAddr, mode: &str, workload: &str) -> Words {
        let Self { partitions, row_bytes, concurrency, connections, consistency, .. } = self;
        Words::new(self.program.as_str())
            .and(&format!("-nodes {address} -mode {mode} -workload {workload}"))
            .and(&format!("-partition-count {partitions} -clustering-row-count 1"))
            .and(&format!("-clustering-row-size fixed:{row_bytes} -concurrency {concurrency}"))
            .and(&format!("-connection-count {connections} -consistency-level {consistency}"))
            .and("-replication-factor 1")
    }
}

#[derive(Debug)]
struct ScyllaBench;

impl Tool for ScyllaBench {
    const ABOUT: About =
        About { name: NAME, edges: Edges::AtLines, greeting: CQL_OPTIONS, cuts_latency: false };

    fn ask(
        &self,
        address: SocketAddr,
        order: &SliceOrder,
        _seen: Seen,
        _scratch: &Path,
    ) -> Result<Ask, ToolError> {
        let options = Options::read(&order.workload)?;
        let seconds = tool::seconds(order, Duration::from_secs(1));
        let words = options
            .words(address, &options.mode, &options.workload)
            .and(&format!("-duration {seconds}s -iterations 0"));
        let words = match order.pacing {
            Pacing::Closed => words,
            Pacing::Open { rate_per_s } => words.and(&format!("-max-rate {}", rate_per_s.round())),
        };
        Ok(Ask { words, operations: None })
    }

    fn populate(
        &mut self,
        at: &At<'_>,
        workload: &WorkloadSpec,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ToolError> {
        let options = Options::read(workload)?;
        let asked = options.partitions;
        progress(0, asked);
        let printed = at.complete(&options.words(at.address, "write", "sequential"), FILL_LIMIT)?;
        let outcome = output::read(&printed.stdout, false).map_err(unusable(NAME, &printed))?;
        let done = outcome.total();
        if done != asked {
            return Err(ToolError::Short { tool: NAME, asked, done, said: printed.said() });
        }
        progress(asked, asked);
        Ok(())
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        output::progress(line)
    }

    fn read(
        &self,
        printed: &Printed,
        _scratch: &Path,
        order: &SliceOrder,
        _cut: &Cut,
    ) -> Result<Outcome, ToolError> {
        let is_open = matches!(order.pacing, Pacing::Open { .. });
        output::read(&printed.stdout, is_open).map_err(unusable(NAME, printed))
    }
}
