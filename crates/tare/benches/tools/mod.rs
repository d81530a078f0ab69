//! Third-party load tools in the benches, run by the drivers that studies use: 100,000 rows of 300
//! bytes, uniformly distributed keys, 64 requests in flight.
//!
//! Each is given as an argument: `latte=PROGRAM` and `scylla-bench=PROGRAM`, which may also be on
//! the PATH, and `cassandra-stress=DIRECTORY` (with tools/lib/stress.jar; and `hdrhistogram=JAR` if
//! its own is too old for the installed Java). A missing tool is skipped with a message.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tare_driver::{self as drivers, Client};
use tare_lab::driver::{Driver, Edge, Pacing, SliceLoad, SliceOrder, TargetId};
use tare_lab::study::{KeyDistribution, WorkloadSpec};
use tare_lab::system::Instances;
use tare_std::cpus::CpuSet;

use crate::Result;

/// Rows that are written before the load.
pub(crate) const ROWS: u64 = 100_000;
/// A Java tool needs at least this long until its code is compiled.
const LEAD_IN: Duration = Duration::from_secs(15);
/// The limit until a server answers.
const OPEN_LIMIT: Duration = Duration::from_secs(20);

/// The names of the tools, which are also those of their drivers.
const NAMES: [&str; 3] = ["latte", "scylla-bench", "cassandra-stress"];

/// An installed tool, connected to the server.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    driver: Box<dyn Driver>,
    target: TargetId,
    /// The driver options of both writes and reads.
    options: Vec<(&'static str, String)>,
    filled: bool,
}

/// Opens the tools that `words` names or the PATH has, on this CPU, against the server at `port`.
pub(crate) fn all(words: &[String], cpu: u32, port: u16, scratch: &Path) -> Result<Vec<Tool>> {
    let named =
        |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let cpus = CpuSet::from_iter([cpu]);
    let mut tools = Vec::new();
    for name in NAMES {
        // cassandra-stress needs its directory, not its script on the PATH.
        let found = tare_host::exec::find(name).filter(|_| name != "cassandra-stress");
        let found = found.map(|path| path.to_string_lossy().into_owned());
        let Some(place) = named(name).map(String::from).or(found) else {
            println!("skipped: {name}: not found; pass {name}=...");
            continue;
        };
        let mut options = match name {
            "latte" => {
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/tools/rows.rn");
                let script = script.to_string_lossy().into_owned();
                let params = format!("rows={ROWS}");
                vec![("script", script), ("params", params), ("concurrency", "64".into())]
            }
            "scylla-bench" => {
                let rows = [("partitions", ROWS.to_string()), ("row_bytes", "300".into())];
                [rows.to_vec(), vec![("concurrency", "64".into())]].concat()
            }
            _ => vec![
                ("rows", ROWS.to_string()),
                ("keys", "uniform".into()),
                ("column_bytes", "60".into()),
                ("threads", "64".into()),
            ],
        };
        options.push((if name == "cassandra-stress" { "home" } else { "program" }, place));
        if let (Some(jar), "cassandra-stress") = (named("hdrhistogram"), name) {
            options.push(("hdrhistogram", jar.into()));
        }
        let info = drivers::ALL.iter().find(|info| info.name == name).ok_or("no such driver")?;
        let client = Client {
            program: Path::new(env!("CARGO_BIN_EXE_tare")),
            cpus: &cpus,
            namespace: None,
            scratch,
            run: "tare-bench",
            speaks: "cql",
            access: &tare_lab::access::ClientAccess::default(),
        };
        let mut driver = bench_error(info.make(&client, Instances::ONE))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let target = bench_error(driver.open(&[address], OPEN_LIMIT))?;
        tools.push(Tool { name, driver, target, options, filled: false });
    }
    Ok(tools)
}

impl Tool {
    /// Loads the server for `window`, and calls `begin` when it starts. The operation is `write` or
    /// `read`.
    pub(crate) fn run(
        &mut self,
        operation: &str,
        pacing: Pacing,
        window: Duration,
        begin: &mut dyn FnMut(),
    ) -> Result<SliceLoad> {
        let verb = match self.name {
            "latte" => "function",
            "scylla-bench" => "mode",
            _ => "command",
        };
        let options = self.options.iter().map(|(name, value)| ((*name).into(), value.clone()));
        let workload = WorkloadSpec {
            name: operation.into(),
            workload: None,
            workload_text: None,
            write_share: 0.0,
            rows: 0,
            columns: 0,
            column_bytes: 0,
            keys: KeyDistribution::Uniform,
            connections: 0,
            in_flight: 0,
            load: tare_lab::study::LoadSize::default(),
            latency_share: 0.0,
            rate_only: false,
            slo: None,
            reads_from_disk: None,
            replicas: tare_lab::study::Replicas::default(),
            connection: tare_lab::study::ClientConnection::default(),
            attached_rows: None,
            rate_per_s: None,
            options: options.chain([(verb.into(), operation.into())]).collect(),
        };
        if !self.filled {
            bench_error(self.driver.populate(self.target, &workload, 1, &mut |_, _| {}))?;
            self.filled = true;
        }
        let order = SliceOrder { workload, pacing, lead_in: LEAD_IN, window, seed: 1 };
        let mut edge = |edge| {
            if edge == Edge::Begin {
                begin();
            }
        };
        bench_error(self.driver.run(self.target, &order, &mut edge))
    }
}

/// Converts the error of a driver to the error type of the benches.
fn bench_error<T>(result: std::result::Result<T, tare_lab::PartError>) -> Result<T> {
    result.map_err(|error| -> Box<dyn std::error::Error> { error })
}
