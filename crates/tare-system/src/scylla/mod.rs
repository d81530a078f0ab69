//! ScyllaDB from an installation directory, as `install.sh` of its relocatable package creates it
//! under `/opt/scylladb` or another prefix.
//!
//! Method: its program is started without the shell script around it, with the library path that
//! the script would set. The flags are those that the entry point of its container image derives
//! from the same options (dist/docker/scyllasetup.py and commandlineparser.py of its sources): it
//! is `--overprovisioned` unless CPUs are named, and in developer mode unless that is set to 0. A
//! node talks to the others, and serves its metrics and its REST interface, on the environment's
//! address for that, so that several fit into one network namespace. The virtual tables
//! `system.cluster_status`, `system.versions` and `system.config` have its state.
//!
//! It polls, so that the CPU time of its process is not its work: `account` reads the busy time of
//! its reactors, and its flushes and compactions.
//!
//! Limits: written from its sources and documentation, and tried against a stand-in that speaks its
//! metrics and its REST interface; the tests never start it. In a virtual machine or a sandbox the
//! host reaches neither, so that it counts as quiet there: give it time (`lead_in`). Its port for
//! shard-aware drivers is closed, because all addresses of a host share one.

mod account;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tare_lab::PartError;
use tare_lab::environment::{DataSnapshot, Endpoint, HostProgram, Launch};
use tare_lab::study::OptionInfo;
use tare_lab::system::{BackgroundWork, Instances, LoopTimes, MemoryNeed, System};
use tare_std::cpus::CpuSet;
use tare_std::error_line;
use tare_std::units::parse_bytes;

use super::client_route::{ClientRoute, ClientRouteError};
use super::cql::{Cells, Session, text};
use super::instances;
use super::options::Options;
use super::saved_data::{self, DataCheck, DataFiles, DataStamp, ProgramVersion};
use super::sstables;
use super::starter::StartPlan;
use super::{SystemInfo, TlsSupport};
use account::{CONFIGURATION_FILE, NodePorts};

pub(crate) use account::attached_loop_times;

pub(super) const INFO: SystemInfo = SystemInfo {
    name: "scylla",
    help: "ScyllaDB, from an installation directory such as /opt/scylladb",
    speaks: |_| "cql".into(),
    found: None,
    options: &[
        OptionInfo {
            name: "directory",
            values: &[],
            help: "the installation (with libexec/scylla and libreloc); it has to be named",
        },
        OptionInfo {
            name: "memory",
            values: &[],
            help: "--memory of a node; it has to be named: without it, it takes nearly all of the host's",
        },
        OptionInfo {
            name: "smp",
            values: &[],
            help: "--smp, its shards (default: the CPUs it has)",
        },
        OptionInfo {
            name: "cpuset",
            values: &[],
            help: "--cpuset, the CPUs of its shards (default: any that the cpu layer leaves it)",
        },
        OptionInfo {
            name: "overprovisioned",
            values: &["0", "1"],
            help: "--overprovisioned (default: 1, or 0 with a cpuset)",
        },
        OptionInfo {
            name: "developer_mode",
            values: &["0", "1"],
            help: "--developer-mode (default 1); 0 needs io_properties",
        },
        OptionInfo {
            name: "io_properties",
            values: &[],
            help: "a file that iotune or tare disk --io-properties wrote; the data directory replaces its mountpoint",
        },
        OptionInfo {
            name: "settings",
            values: &[],
            help: "lines of scylla.yaml, such as \"commitlog_sync=batch num_tokens=16\"",
        },
        OptionInfo {
            name: "arguments",
            values: &[],
            help: "more words of its command line, split at spaces",
        },
        instances::INSTANCES,
        instances::CLUSTER,
    ],
    takes_device: false,
    in_memory: false,
    tls: TlsSupport::No,
    make: |spec, client_route| Ok(Box::new(Scylla::new(Options::new(spec), client_route.clone())?)),
};

const READY_LIMIT: Duration = Duration::from_secs(180);

/// Settings that may differ between environments or change the cost of an operation.
const SETTINGS: &[&str] = &[
    "commitlog_sync",
    "commitlog_sync_period_in_ms",
    "compaction_throughput_mb_per_sec",
    "developer_mode",
    "enable_cache",
    "num_tokens",
    "tablets_mode_for_new_keyspaces",
];

/// The configuration, line by line, before the study's settings. Addresses are flags.
const CONFIGURATION: &[(&str, &str)] = &[
    ("cluster_name", "tare"),
    ("workdir", "\"{data}\""),
    ("native_transport_port", "{port}"),
    ("storage_port", "{node_port}"),
    // Only the one for TLS is set, and TLS is off: then neither is opened
    // (transport/controller.cc).
    ("native_shard_aware_transport_port_ssl", "19142"),
    ("prometheus_address", "{node}"),
    ("prometheus_port", "9180"),
    ("api_address", "{node}"),
    ("endpoint_snitch", "SimpleSnitch"),
    ("auto_snapshot", "false"),
];

/// Lines of its configuration that a data directory keeps from its first start.
const OF_NEW_DATA: &[&str] =
    &["cluster_name", "murmur3_partitioner_ignore_msb_bits", "num_tokens", "partitioner"];
/// On SIGTERM it drains (`storage_service::drain_on_shutdown`, called in main.cc).
static DATA: DataFiles = sstables::data_files(|path| {
    // Each start writes its own configuration.
    sstables::file_use(path, &["conf"], &["-CRC.db"])
});

/// Why Scylla cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScyllaError {
    #[error(
        "there is no Scylla in {}: no libexec/scylla with its loader libreloc/ld.so; name the directory that its install.sh created, such as /opt/scylladb",
        .directory.display()
    )]
    NoProgram { directory: PathBuf },
    #[error(
        "developer_mode = \"0\" of scylla needs io_properties: a file that iotune wrote for the disk of the data"
    )]
    NoIoProperties,
    #[error("cannot read the io_properties {}", .path.display())]
    IoProperties { path: PathBuf, source: std::io::Error },
    #[error(
        "{} has no mountpoint; it is not what iotune writes (--properties-file)", .path.display()
    )]
    NoMountpoint { path: PathBuf },
    #[error("cpuset of scylla is for one instance; the cpu layer divides the CPUs among several")]
    CpusetOfSeveral,
    #[error(
        "the host cannot enter the network of Scylla's process here, so that its metrics cannot be read"
    )]
    Hidden,
    #[error("prometheus_port = 0 in settings closes the port of its metrics")]
    NoMetricsPort,
    #[error("cannot read its configuration {}", .path.display())]
    Configuration { path: PathBuf, source: std::io::Error },
    #[error("{} has no address of its metrics and its REST interface", .path.display())]
    NoAddress { path: PathBuf },
    #[error("its metrics on {address} have no {metric}; this version does not count that")]
    NoMetric { address: SocketAddr, metric: &'static str },
    #[error("it answers {question} on {address} with {answer:?}")]
    NoCount { question: String, address: SocketAddr, answer: String },
    #[error(transparent)]
    Route(#[from] ClientRouteError),
}

/// Scylla with the options of a study.
#[derive(Clone, Debug)]
pub struct Scylla {
    options: Options,
    instances: Instances,
    memory_bytes: u64,
    client_route: ClientRoute,
    directory: PathBuf,
    /// The output of iotune, for the data directory.
    io_properties: Option<String>,
}

impl Scylla {
    fn new(options: Options, client_route: ClientRoute) -> Result<Self, PartError> {
        let directory = options.need("directory", "its installation, such as /opt/scylladb")?;
        let directory = std::path::absolute(directory)?;
        if !directory.join("libexec/scylla").is_file()
            || !directory.join("libreloc/ld.so").is_file()
        {
            return Err(ScyllaError::NoProgram { directory }.into());
        }
        let memory = options.need("memory", "what a node may take, such as \"2G\"")?;
        let memory_bytes = parse_bytes(memory).ok().filter(|bytes| *bytes >= 1 << 20);
        let memory_bytes =
            memory_bytes.ok_or_else(|| options.bad("memory", memory, "a size such as \"2G\""))?;
        options.count("smp", 1)?;
        if let Some(bad) = options.words("settings").iter().find(|text| !text.contains('=')) {
            return Err(options.bad("settings", bad, "words NAME=VALUE").into());
        }
        let instances = instances::read(&options)?;
        if let Some(list) = options.text("cpuset") {
            let wanted = "a list of CPUs such as \"0-3\"";
            CpuSet::parse_list(list).map_err(|_| options.bad("cpuset", list, wanted))?;
            if instances.count > 1 {
                return Err(ScyllaError::CpusetOfSeveral.into());
            }
        }
        let io_properties = match options.text("io_properties") {
            Some(path) => Some(io_properties(Path::new(path))?),
            None if options.text("developer_mode") == Some("0") => {
                return Err(ScyllaError::NoIoProperties.into());
            }
            None => None,
        };
        Ok(Self { options, instances, memory_bytes, client_route, directory, io_properties })
    }

    fn configuration(&self) -> String {
        let own = self.options.words("settings");
        let own: Vec<(&str, &str)> = own.iter().filter_map(|text| text.split_once('=')).collect();
        let kept =
            CONFIGURATION.iter().filter(|(name, _)| own.iter().all(|(other, _)| name != other));
        let lines = kept.chain(&own).map(|(name, value)| format!("{name}: {value}\n"));
        let api = self.directory.join("api/api-doc/");
        let api = format!("api_doc_dir: \"{}\"\n", api.display());
        lines.chain([api]).collect()
    }

    /// Returns the settings that only new data takes.
    fn shape(&self) -> String {
        saved_data::shape_of(&self.options.words("settings"), OF_NEW_DATA)
    }

    fn words(&self, cpus: usize) -> Vec<String> {
        let text = |name| self.options.text(name);
        let program = self.directory.join("libexec/scylla");
        let mut words = vec![program.to_string_lossy().into_owned()];
        let mut add = |flag: &str, value: &str| {
            words.push(flag.into());
            words.extend(Some(value.to_string()).filter(|value| !value.is_empty()));
        };
        add("--log-to-syslog", "0");
        add("--log-to-stdout", "1");
        add("--default-log-level", "info");
        add("--network-stack", "posix");
        if self.io_properties.is_some() {
            add("--io-properties-file", "{data}/conf/io_properties.yaml");
        }
        if let Some(list) = text("cpuset") {
            add("--cpuset", list);
        }
        add("--developer-mode", text("developer_mode").unwrap_or("1"));
        add("--memory", &self.memory_bytes.to_string());
        add("--smp", text("smp").unwrap_or(&cpus.to_string()));
        let default = if text("cpuset").is_some() { "0" } else { "1" };
        if text("overprovisioned").unwrap_or(default) == "1" {
            add("--overprovisioned", "");
        }
        add("--listen-address", "{node}");
        add("--broadcast-address", "{advertised_node}");
        add("--rpc-address", "{listen}");
        let seeds = if self.instances.cluster { "{seeds}" } else { "{node}" };
        add("--seed-provider-parameters", &format!("seeds={seeds}"));
        add("--broadcast-rpc-address", "{advertised}");
        add("--blocked-reactor-notify-ms", "999999999");
        add("--options-file", "{data}/conf/scylla.yaml");
        words.extend(self.options.words("arguments"));
        words
    }
}

/// Returns the output of iotune, with the data directory in place of the mountpoint that it
/// measured.
fn io_properties(path: &Path) -> Result<String, ScyllaError> {
    let read = std::fs::read_to_string(path);
    let path = path.to_path_buf();
    let text = read.map_err(|source| ScyllaError::IoProperties { path: path.clone(), source })?;
    let mut found = false;
    let line = |line: &str| match line.split_once("mountpoint:") {
        Some((before, _)) => {
            found = true;
            format!("{before}mountpoint: \"{{data}}\"\n")
        }
        None => format!("{line}\n"),
    };
    let text: String = text.lines().map(line).collect();
    if found { Ok(text) } else { Err(ScyllaError::NoMountpoint { path }) }
}

/// Returns its version.
fn version(session: &mut Session) -> Result<Option<String>, ClientRouteError> {
    let rows = session.query("SELECT version FROM system.versions")?;
    Ok(rows.into_iter().flatten().next().map(|cell| text(&cell)))
}

/// Returns the version and the settings that may differ between environments.
pub(crate) fn settings(session: &mut Session) -> Result<Vec<(String, String)>, ClientRouteError> {
    let version = version(session)?.map(|version| ("version".into(), version)).into_iter();
    let config = session.query("SELECT name, value FROM system.config")?;
    let pair = |row: &Cells| Some((text(row.first()?), text(row.get(1)?)));
    let config = config.iter().filter_map(pair);
    let config = config.filter(|(name, _)| SETTINGS.contains(&name.as_str()));
    Ok(version.chain(config).collect())
}

impl System for Scylla {
    fn name(&self) -> &str {
        INFO.name
    }

    fn instances(&self) -> Instances {
        self.instances
    }

    fn memory(&self, _cpus: usize) -> Option<MemoryNeed> {
        let what = format!("memory = {} MiB of a node", self.memory_bytes >> 20);
        let bytes = self.memory_bytes;
        Some(MemoryNeed { bytes, limit_bytes: bytes, what })
    }

    fn launch(&self, cpus: usize) -> Launch {
        let io_properties = self.io_properties.iter();
        let files = io_properties.map(|text| ("conf/io_properties.yaml".into(), text.clone()));
        let libraries = self.directory.join("libreloc").to_string_lossy().into_owned();
        let plan = StartPlan {
            files: files.chain([(CONFIGURATION_FILE.into(), self.configuration())]).collect(),
            command: self.words(cpus),
            restored: Some(DataCheck {
                version: ProgramVersion::Printed("--version".into()),
                shape: self.shape(),
            }),
            // The variables that the script bin/scylla of an installation sets.
            variables: vec![
                ("GNUTLS_SYSTEM_PRIORITY_FILE".into(), format!("{libraries}/gnutls.config")),
                ("LD_LIBRARY_PATH".into(), libraries),
                ("SCYLLA_CONF".into(), "{data}/conf".into()),
            ],
            ..StartPlan::default()
        };
        // Its loader and its libraries are next to it; the loader itself needs none.
        let program = HostProgram {
            name: self.directory.join("libreloc/ld.so").to_string_lossy().into_owned(),
            folders: vec![self.directory.clone()],
            ..HostProgram::default()
        };
        Launch { arguments: plan.arguments(), program: Some(program), ..Launch::default() }
    }

    fn ready_limit(&self) -> Duration {
        READY_LIMIT
    }

    fn ready(&self, at: &Endpoint) -> Result<(), PartError> {
        let mut session = Session::open(&self.client_route, at)?;
        if self.instances.cluster {
            let nodes = session.query("SELECT up, status FROM system.cluster_status")?;
            let (seen, count) = (up_and_normal(&nodes), self.instances.count);
            if seen != usize::try_from(count).unwrap_or(usize::MAX) {
                return Err(ClientRouteError::Nodes { address: at.address, seen, count }.into());
            }
        }
        Ok(())
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let mut session = Session::open(&self.client_route, at)?;
        let mut all = settings(&mut session)?;
        // Without an answer it counts as quiet.
        let unseen = NodePorts::of(at).and_then(|ports| ports.pending()).err();
        all.extend(unseen.map(|error| (UNSEEN.into(), error_line(&error))));
        Ok(all)
    }

    fn pending(&self, at: &Endpoint) -> Result<Option<String>, PartError> {
        Ok(NodePorts::of(at).and_then(|ports| ports.pending()).unwrap_or_default())
    }

    fn background(&self, at: &Endpoint) -> Result<Vec<BackgroundWork>, PartError> {
        match NodePorts::of(at) {
            Err(ScyllaError::Hidden) => Ok(Vec::new()),
            ports => Ok(ports?.background()?),
        }
    }

    fn loop_times(&self, at: &Endpoint) -> Result<Option<LoopTimes>, PartError> {
        Ok(Some(NodePorts::of(at)?.loop_times()?))
    }

    fn can_save_data(&self) -> bool {
        true
    }

    fn save_data(
        &self,
        at: &Endpoint,
        processes: &[u32],
        to: &Path,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        let found = DATA.of(at, processes, &self.directory.join("libexec/scylla"));
        let Some(running) = found else { return Ok(None) };
        let version = version(&mut Session::open(&self.client_route, at)?)?;
        let version = version.map(|version| saved_data::series(&version)).unwrap_or_default();
        running.save(DataStamp { system: INFO.name.into(), version, shape: self.shape() }, to)
    }
}

/// Name of the setting that says why its compactions are not seen.
const UNSEEN: &str = "compactions_unseen";

/// Returns how many nodes of `system.cluster_status` are up and in state NORMAL.
fn up_and_normal(nodes: &[Cells]) -> usize {
    let is = |row: &&Cells| {
        let (up, status) = (row.first(), row.get(1));
        up.is_some_and(|up| up == &[1]) && status.is_some_and(|status| text(status) == "NORMAL")
    };
    nodes.iter().filter(is).count()
}

#[cfg(test)]
mod tests;
