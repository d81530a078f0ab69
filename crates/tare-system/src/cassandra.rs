//! Apache Cassandra 4.0 and later, from an installation directory or from the jars that are
//! published (`org.apache.cassandra:cassandra-all` and what it depends on, copied into one
//! directory).
//!
//! Method: the configuration is written into the data directory; the study's settings replace lines
//! of it. It listens for clients on the address of the environment, and for other nodes on an
//! address of its own, so that several fit into one network namespace. JMX is off. What nodetool
//! would show (`tpstats`, `compactionstats`) is in the virtual tables `system_views.thread_pools`
//! and `system_views.sstable_tasks`, without starting another JVM. Instead of `status`, a table
//! with two replicas of each row is read from all nodes.
//!
//! All nodes of a cluster are seeds, so they start at the same time. They own equal parts of the
//! ring, the same in every environment: random tokens would be a difference that no layer causes.
//!
//! Limits: it needs Java 11 or 17, depending on its version. A JVM is slow until its code is
//! compiled: a study warms it up (`lead_in`), or measures the compiler.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tare_cql::request::Settings;
use tare_cql::wire::Consistency;
use tare_host::data_cache::text_digest;
use tare_host::exec;
use tare_lab::PartError;
use tare_lab::environment::{DataSnapshot, Endpoint, HostProgram, Launch};
use tare_lab::study::OptionInfo;
use tare_lab::system::{BackgroundWork, Instances, MemoryNeed, System};
use tare_std::units::parse_bytes;

use super::client_route::{ClientRoute, ClientRouteError};
use super::cql::{Cells, Session, text};
use super::instances;
use super::java::GarbageCollections;
use super::options::Options;
use super::saved_data::{self, DataCheck, DataFiles, DataStamp, ProgramVersion};
use super::sstables;
use super::starter::StartPlan;
use super::{SystemInfo, TlsSupport};

pub(super) const INFO: SystemInfo = SystemInfo {
    name: "cassandra",
    help: "Apache Cassandra 4.0 or later, from an installation or a directory of its jars",
    speaks: |_| "cql".into(),
    found: Some(|| {
        let java = exec::find("java").ok_or("apt-get install openjdk-17-jre-headless")?;
        let directory = installation().map_or_else(
            || "a study names the directory of Cassandra".into(),
            |found| found.display().to_string(),
        );
        Ok(format!("{}; {directory}", java.display()))
    }),
    options: &[
        OptionInfo {
            name: "directory",
            values: &[],
            help: "an installation (with lib/), or a directory of jars (default: $CASSANDRA_HOME, /opt/cassandra)",
        },
        OptionInfo {
            name: "java",
            values: &[],
            help: "name on PATH or path of java (default: java)",
        },
        OptionInfo {
            name: "heap",
            values: &[],
            help: "size of the heap, allocated at the start (default 1G)",
        },
        OptionInfo { name: "jvm", values: &[], help: "more options of the JVM, split at spaces" },
        OptionInfo {
            name: "settings",
            values: &[],
            help: "lines of cassandra.yaml, such as \"concurrent_writes=64 commitlog_sync=batch\"",
        },
        instances::INSTANCES,
        instances::CLUSTER,
    ],
    takes_device: false,
    in_memory: false,
    tls: TlsSupport::No,
    make: |spec, client_route| {
        Ok(Box::new(Cassandra::new(Options::new(spec), client_route.clone())?))
    },
};

/// Time limit for its start, which takes half a minute on a few CPUs of a busy machine, and more
/// under limits.
const READY_LIMIT: Duration = Duration::from_secs(240);

/// Lines of its configuration that a data directory keeps from its first start.
const OF_NEW_DATA: &[&str] = &[
    "cluster_name",
    "commitlog_directory",
    "data_file_directories",
    "initial_token",
    "num_tokens",
    "partitioner",
    "storage_compatibility_mode",
];
static DATA: DataFiles = sstables::data_files(|path| {
    // Each start writes its own configuration and log, and saved caches would have rows in memory.
    sstables::file_use(path, &["conf", "tmp", "saved_caches", COLLECTIONS], &[])
});

/// The thread pools that flush and compact.
const POOLS: &[&str] = &[
    "CompactionExecutor",
    "MemtableFlushWriter",
    "MemtablePostFlush",
    "MemtableReclaimMemory",
    "PerDiskMemtableFlushWriter_0",
    "ViewBuildExecutor",
];

/// Flushes of tables that ended.
const FLUSHES: &str =
    "SELECT completed_tasks FROM system_views.thread_pools WHERE name = 'MemtableFlushWriter'";

/// The log of garbage collections, below the data directory.
const COLLECTIONS: &str = "garbage-collections.log";

/// Settings that may differ between environments or change the cost of an operation.
const SETTINGS: &[&str] = &[
    "commitlog_sync",
    "commitlog_disk_access_mode",
    "compaction_throughput",
    "concurrent_compactors",
    "concurrent_reads",
    "concurrent_writes",
    "disk_access_mode",
    "disk_optimization_strategy",
    "memtable_allocation_type",
    "memtable_heap_space",
    "native_transport_max_threads",
    "num_tokens",
];

/// The packages of the JDK that Cassandra uses, as listed in `jvm11-server.options` and
/// `jvm17-server.options` of its versions.
const EXPORTS: &[&str] = &[
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];
const OPENS: &[&str] = &[
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
];

/// Returns the options of a JVM that let Cassandra use these packages.
pub fn jdk_access() -> impl Iterator<Item = String> {
    let access = |option: &'static str| {
        move |name: &&str| [option.to_string(), format!("{name}=ALL-UNNAMED")]
    };
    let exports = EXPORTS.iter().flat_map(access("--add-exports"));
    exports.chain(OPENS.iter().flat_map(access("--add-opens")))
}

/// The memory of a JVM besides its heap: this and a tenth of the heap. Cassandra 5.0.9 under load
/// held 443 MiB besides a heap of 256 MiB, 426 MiB besides 512 MiB, and 584 MiB besides 2 GiB.
const BESIDE_HEAP_BYTES: u64 = 384 << 20;

/// A query of a table with two replicas of each row in every version (`system_traces`:
/// SimpleStrategy, factor 2).
const REPLICATED: &str = "SELECT session_id FROM system_traces.sessions LIMIT 1";
/// Defaults: the tokens of a node, and its heap.
const TOKENS: u32 = 16;
const HEAP: &str = "1G";
/// How long a node waits for the ring before it joins: long enough for the others to answer. A
/// single node need not wait.
const RING_DELAY: Duration = Duration::from_secs(2);
const RING_DELAY_ALONE: Duration = Duration::from_millis(100);

/// The configuration, line by line, before the study's settings. All versions since 4.0 have these
/// names.
const CONFIGURATION: &[(&str, &str)] = &[
    ("cluster_name", "tare"),
    ("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner"),
    ("data_file_directories", "[\"{data}/data\"]"),
    ("commitlog_directory", "\"{data}/commitlog\""),
    ("saved_caches_directory", "\"{data}/saved_caches\""),
    ("hints_directory", "\"{data}/hints\""),
    ("cdc_raw_directory", "\"{data}/cdc_raw\""),
    ("commitlog_sync", "periodic"),
    ("commitlog_sync_period_in_ms", "10000"),
    (
        "seed_provider",
        "[{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: \"{seeds}\"}]}]",
    ),
    ("listen_address", "{node}"),
    ("broadcast_address", "{advertised_node}"),
    ("storage_port", "{node_port}"),
    ("rpc_address", "{listen}"),
    ("broadcast_rpc_address", "{advertised}"),
    ("native_transport_port", "{port}"),
    ("endpoint_snitch", "SimpleSnitch"),
];

const LOGGING: &str = "<configuration><appender name=\"OUT\" class=\"ch.qos.logback.core.ConsoleAppender\">\
    <encoder><pattern>%-5level %msg%n</pattern></encoder></appender>\
    <root level=\"WARN\"><appender-ref ref=\"OUT\"/></root></configuration>\n";

/// Why Cassandra cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CassandraError {
    #[error(
        "there is no jar of Cassandra in {} or its lib/; name an installation, or copy org.apache.cassandra:cassandra-all with its dependencies there",
        .directory.display()
    )]
    NoJars { directory: PathBuf },
}

/// Cassandra with the options of a study.
#[derive(Clone, Debug)]
pub struct Cassandra {
    options: Options,
    instances: Instances,
    heap_bytes: u64,
    client_route: ClientRoute,
    jars: PathBuf,
    /// The resolved path of java, because the rest of Java is next to it; a plain name if the host
    /// has none.
    java: PathBuf,
    collections: GarbageCollections,
}

impl Cassandra {
    fn new(options: Options, client_route: ClientRoute) -> Result<Self, PartError> {
        let wanted =
            "an installation of Cassandra, or a directory of its jars (or set CASSANDRA_HOME)";
        let directory = match installation() {
            Some(found) if options.text("directory").is_none() => found,
            _ => PathBuf::from(options.need("directory", wanted)?),
        };
        if let Some(bad) = options.words("settings").iter().find(|text| !text.contains('=')) {
            return Err(options.bad("settings", bad, "words NAME=VALUE").into());
        }
        let instances = instances::read(&options)?;
        let heap = options.text_or("heap", HEAP);
        let heap_bytes = parse_bytes(heap).ok().filter(|bytes| *bytes >= 1 << 20);
        let heap_bytes =
            heap_bytes.ok_or_else(|| options.bad("heap", heap, "a size such as \"2G\""))?;
        let jars = jars_of(&directory).ok_or(CassandraError::NoJars { directory })?;
        let name = options.text_or("java", "java").to_string();
        let java = exec::find(&name).and_then(|path| std::fs::canonicalize(path).ok());
        // The root file system may have one even if the host has none.
        let java = java.unwrap_or_else(|| name.into());
        let jars = std::path::absolute(jars)?;
        let collections = GarbageCollections::default();
        Ok(Self { options, instances, heap_bytes, client_route, jars, java, collections })
    }

    /// Returns the configuration of a node, counted from 0.
    fn configuration(&self, number: u32) -> String {
        let own = self.options.words("settings");
        let own: Vec<(&str, &str)> = own.iter().filter_map(|text| text.split_once('=')).collect();
        let count = own.iter().find(|(name, _)| *name == "num_tokens");
        let count = count.and_then(|(_, count)| count.parse().ok()).unwrap_or(TOKENS);
        let mut lines: Vec<(&str, String)> =
            CONFIGURATION.iter().map(|(name, value)| (*name, (*value).to_string())).collect();
        lines.push(("num_tokens", count.to_string()));
        if self.instances.cluster {
            lines.push(("initial_token", tokens(number, self.instances.count, count)));
            // There is no data to fetch from other nodes, which may not be up yet.
            lines.push(("auto_bootstrap", "false".into()));
        }
        lines.retain(|(name, _)| own.iter().all(|(other, _)| name != other));
        lines.extend(own.iter().map(|(name, value)| (*name, (*value).to_string())));
        lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    }

    fn words(&self, cpus: usize) -> Vec<String> {
        // Java has no units with an `i` or a fraction.
        let heap = self.heap_bytes;
        let jars = self.jars.display();
        let mut words = vec![
            "{program}".to_string(),
            format!("-Xms{heap}"),
            format!("-Xmx{heap}"),
            // Every environment gets the same threads, so that only the layer differs.
            format!("-XX:ActiveProcessorCount={cpus}"),
            // Creates no file in the host's /tmp.
            "-XX:+PerfDisableSharedMem".into(),
            "-Djava.io.tmpdir={data}/tmp".into(),
            "-Djna.tmpdir={data}/tmp".into(),
            "-XX:+UseG1GC".into(),
            format!("-Xlog:gc:file={{data}}/{COLLECTIONS}:uptime:filecount=0"),
            "-Xss512k".into(),
            "-Djdk.attach.allowAttachSelf=true".into(),
            "-Dio.netty.tryReflectionSetAccessible=true".into(),
            "-Djava.net.preferIPv4Stack=true".into(),
        ];
        words.extend(jdk_access());
        if let Some(agent) = jar(&self.jars, "jamm") {
            words.push(format!("-javaagent:{}", agent.display()));
        }
        words.extend(self.options.words("jvm"));
        words.extend(
            [
                "-Dcassandra.config=file://{data}/conf/cassandra.yaml",
                "-Dcassandra.storagedir={data}",
                "-Dcassandra-foreground=yes",
                // Before anything is measured, each node is checked to see all others.
                "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            ]
            .map(String::from),
        );
        let delay = if self.instances.cluster { RING_DELAY } else { RING_DELAY_ALONE };
        words.push(format!("-Dcassandra.ring_delay_ms={}", delay.as_millis()));
        words.push("-cp".into());
        words.push(format!("{{data}}/conf:{jars}/*"));
        words.push("org.apache.cassandra.service.CassandraDaemon".into());
        words
    }

    /// Returns the version that its jar is named after; empty if it has none.
    fn version(&self) -> String {
        let jars = JARS.iter().find_map(|name| Some((name, jar(&self.jars, name)?)));
        let version = jars.and_then(|(name, jar)| {
            let file = jar.file_stem()?.to_string_lossy().into_owned();
            Some(file.strip_prefix(*name)?.trim_start_matches('-').to_string())
        });
        version.unwrap_or_default()
    }

    /// Returns the settings that only new data takes.
    fn shape(&self) -> String {
        saved_data::shape_of(&self.options.words("settings"), OF_NEW_DATA)
    }

    /// Returns the directory of this Java, the parent of `bin`.
    fn home(&self) -> &Path {
        self.java.parent().and_then(Path::parent).unwrap_or(&self.java)
    }
}

/// Returns the directory of Cassandra if a study names none: the one that its own scripts use, or
/// the usual place of a distribution.
fn installation() -> Option<PathBuf> {
    let configured = std::env::var_os("CASSANDRA_HOME").map(PathBuf::from);
    let usual = PathBuf::from("/opt/cassandra");
    configured.into_iter().chain([usual]).find(|directory| jars_of(directory).is_some())
}

/// The names of the jar with Cassandra, before its version.
const JARS: &[&str] = &["cassandra-all", "apache-cassandra"];

/// Returns the directory of the jars, given an installation or that directory.
fn jars_of(directory: &Path) -> Option<PathBuf> {
    let mut places = [directory.join("lib"), directory.to_path_buf()].into_iter();
    places.find(|place| JARS.iter().any(|name| jar(place, name).is_some()))
}

/// Returns the first jar in a directory whose name starts with `name`.
fn jar(directory: &Path, name: &str) -> Option<PathBuf> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut jars: Vec<PathBuf> = files.map(|file| file.path()).collect();
    jars.sort();
    jars.into_iter().find(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(name) && file.ends_with(".jar")
    })
}

/// Returns the version and the settings that may differ between environments.
pub(crate) fn settings(session: &mut Session) -> Result<Vec<(String, String)>, ClientRouteError> {
    let version = session.query("SELECT release_version FROM system.local")?;
    let version = version.into_iter().flatten().map(|cell| ("release_version".into(), text(&cell)));
    let settings = session.query("SELECT name, value FROM system_views.settings")?;
    let pair = |row: &Vec<Vec<u8>>| Some((text(row.first()?), text(row.get(1)?)));
    let settings = settings.iter().filter_map(pair);
    let settings = settings.filter(|(name, _)| SETTINGS.contains(&name.as_str()));
    Ok(version.chain(settings).collect())
}

impl System for Cassandra {
    fn name(&self) -> &str {
        INFO.name
    }

    fn launch(&self, cpus: usize) -> Launch {
        self.launch_instance(cpus, 0)
    }

    fn instances(&self) -> Instances {
        self.instances
    }

    fn memory(&self, _cpus: usize) -> Option<MemoryNeed> {
        let heap = self.heap_bytes;
        let beside = BESIDE_HEAP_BYTES + heap / 10;
        let what = format!(
            "a heap of {} MiB and {} MiB for the rest of the JVM",
            heap >> 20,
            beside >> 20
        );
        let bytes = heap + beside;
        Some(MemoryNeed { bytes, limit_bytes: bytes, what })
    }

    fn launch_instance(&self, cpus: usize, number: u32) -> Launch {
        let plan = StartPlan {
            files: vec![
                ("conf/cassandra.yaml".into(), self.configuration(number)),
                ("conf/logback.xml".into(), LOGGING.into()),
                ("tmp/README".into(), "Libraries that Java unpacks.\n".into()),
            ],
            command: self.words(cpus),
            restored: Some(DataCheck {
                version: ProgramVersion::Known(self.version()),
                shape: self.shape(),
            }),
            ..StartPlan::default()
        };
        // Debian keeps Java's configuration in /etc, with links to it.
        let etc =
            std::fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path());
        let named = |path: &PathBuf| {
            path.is_dir()
                && path.file_name().unwrap_or_default().to_string_lossy().starts_with("java-")
        };
        let home = Some(self.home().to_path_buf()).filter(|home| home.is_absolute());
        // The program loads it by name; its own needs include those of the others.
        let machine = self.home().join("lib/server/libjvm.so");
        let program = HostProgram {
            name: self.java.to_string_lossy().into_owned(),
            files: Some(machine).filter(|file| file.is_file()).into_iter().collect(),
            folders: home.into_iter().chain(etc.filter(named)).collect(),
            named: vec![self.jars.clone()],
        };
        Launch { arguments: plan.arguments(), program: Some(program), ..Launch::default() }
    }

    fn ready_limit(&self) -> Duration {
        READY_LIMIT
    }

    fn ready(&self, at: &Endpoint) -> Result<(), PartError> {
        let mut session = Session::open(&self.client_route, at)?;
        if self.instances.cluster {
            sees_all(&mut session, at, self.instances.count)?;
        }
        Ok(())
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let mut session = Session::open(&self.client_route, at)?;
        Ok(settings(&mut session)?)
    }

    fn pending(&self, at: &Endpoint) -> Result<Option<String>, PartError> {
        let mut session = Session::open(&self.client_route, at)?;
        let pools = session
            .query("SELECT name, active_tasks, pending_tasks FROM system_views.thread_pools")?;
        let tasks = session
            .query("SELECT keyspace_name, table_name, kind FROM system_views.sstable_tasks")?;
        Ok(busy(&pools, &tasks))
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
        let Some(running) = DATA.of(at, processes, &self.java) else { return Ok(None) };
        let (system, version) = (INFO.name.into(), saved_data::series(&self.version()));
        running.save(DataStamp { system, version, shape: self.shape() }, to)
    }

    fn data_identity(&self, _cpus: usize) -> Option<Vec<(String, String)>> {
        let mut jars: Vec<String> = std::fs::read_dir(&self.jars)
            .ok()?
            .flatten()
            .filter_map(|entry| {
                let (name, about) = (entry.file_name().into_string().ok()?, entry.metadata().ok()?);
                name.ends_with(".jar").then(|| format!("{name} {}", about.len()))
            })
            .collect();
        jars.sort();
        // The heap decides how much of a table is in one file.
        let mut identity: Vec<(String, String)> = vec![
            ("cassandra".into(), self.version()),
            ("jars".into(), text_digest(&jars.join("\n"))),
            ("heap".into(), self.heap_bytes.to_string()),
        ];
        let mut words = self.options.words("settings");
        words.extend(self.options.words("jvm").into_iter().filter(|word| word.starts_with("-D")));
        if !words.is_empty() {
            identity.push(("with".into(), words.join(" ")));
        }
        Some(identity)
    }

    fn open_data(
        &self,
        folder: &Path,
        description: &str,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        DATA.open(folder, description)
    }

    fn background(&self, at: &Endpoint) -> Result<Vec<BackgroundWork>, PartError> {
        let mut session = Session::open(&self.client_route, at)?;
        let ended = |rows: &[Cells]| rows.iter().flatten().map(|cell| bigint(cell)).sum();
        let flushes = session.query(FLUSHES)?;
        let compactions = session.query("SELECT count(*) FROM system.compaction_history")?;
        let running = session.query("SELECT kind FROM system_views.sstable_tasks")?;
        let mut work = vec![
            BackgroundWork::total("flushes", ended(&flushes)),
            BackgroundWork {
                name: "compactions",
                total: ended(&compactions),
                is_running: !running.is_empty(),
            },
        ];
        let file = at.data.as_ref().map(|data| data.join(COLLECTIONS));
        if let Some(ns) = file.and_then(|file| self.collections.paused_ns(&file)) {
            work.push(BackgroundWork::total("garbage_collections_ns", ns));
        }
        Ok(work)
    }
}

/// Returns the evenly spread tokens of a node among `count` with `each` tokens, separated by
/// commas. The tokens of the nodes alternate on the ring.
fn tokens(number: u32, count: u32, each: u32) -> String {
    let all = i128::from(count) * i128::from(each.max(1));
    let token = |turn: u32| {
        let place = i128::from(turn) * i128::from(count) + i128::from(number);
        // Half a step from the end, because the least number is not a token.
        i128::from(i64::MIN) + ((2 * place + 1) << 63) / all
    };
    let tokens: Vec<String> = (0..each.max(1)).map(|turn| token(turn).to_string()).collect();
    tokens.join(",")
}

/// Checks that a node has all others in its ring and considers them alive.
fn sees_all(session: &mut Session, at: &Endpoint, count: u32) -> Result<(), ClientRouteError> {
    let peers = session.query("SELECT peer, tokens FROM system.peers_v2")?;
    let joined = peers.iter().filter(|row| row.get(1).is_some_and(|tokens| !tokens.is_empty()));
    let seen = joined.count() + 1;
    if seen != usize::try_from(count).unwrap_or(usize::MAX) {
        return Err(ClientRouteError::Nodes { address: at.address, seen, count });
    }
    let all = Settings { consistency: Consistency::All, ..Settings::DEFAULT };
    session.query_at(REPLICATED, &all).map(drop)
}

fn bigint(cell: &[u8]) -> u64 {
    cell.try_into().map_or(0, i64::from_be_bytes).try_into().unwrap_or(0)
}

/// Describes what flushes and compacts: pools with (name, active tasks, pending tasks), and running
/// tasks.
fn busy(pools: &[Cells], tasks: &[Cells]) -> Option<String> {
    let count = |cell: Option<&Vec<u8>>| {
        cell.and_then(|cell| cell.as_slice().try_into().ok()).map_or(0, i32::from_be_bytes)
    };
    let of_pools = pools.iter().filter_map(|row| {
        let name = text(row.first()?);
        let (active, pending) = (count(row.get(1)), count(row.get(2)));
        let works = POOLS.contains(&name.as_str()) && active + pending > 0;
        works.then(|| format!("{name}: {active} active, {pending} pending"))
    });
    let of_tasks = tasks.iter().map(|row| {
        let words: Vec<String> = row.iter().map(|cell| text(cell)).collect();
        words.join(" ")
    });
    let busy: Vec<String> = of_pools.chain(of_tasks).collect();
    (!busy.is_empty()).then(|| busy.join(", "))
}

#[cfg(test)]
mod tests {
    use tare_host::tree_copy::FileUse;

    use super::*;
    use crate::tests::{plan_of, try_make};

    #[test]
    fn installation_and_jar_directory_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_string_lossy().into_owned();
        // Any program serves as Java here.
        let options = [
            ("directory", path.as_str()),
            ("java", "sh"),
            ("heap", "256M"),
            ("settings", "num_tokens=1 a=b"),
        ];
        let error = try_make("cassandra", &options).err().unwrap().to_string();
        assert!(error.contains("no jar of Cassandra"), "{error}");
        let lib = directory.path().join("lib");
        std::fs::create_dir(&lib).unwrap();
        for name in ["apache-cassandra-5.0.9.jar", "jamm-0.4.0.jar"] {
            std::fs::write(lib.join(name), "").unwrap();
        }
        let plan = plan_of(&*try_make("cassandra", &options).unwrap());
        let command = plan.command.join(" ");
        for part in [
            "-Xms268435456 -Xmx268435456 -XX:ActiveProcessorCount=2",
            "lib/jamm-0.4.0.jar",
            "/lib/* org.apache",
        ] {
            assert!(command.contains(part), "{part} in {command}");
        }
        let (_, configuration) = &plan.files[0];
        assert!(configuration.contains("num_tokens: 1\na: b\n"), "{configuration}");
        let version = ProgramVersion::Known("5.0.9".into());
        assert_eq!(plan.restored, Some(DataCheck { version, shape: "num_tokens=1".into() }));
        assert!(!configuration.contains("num_tokens: 16"), "{configuration}");
        let error = try_make("cassandra", &[]).err().unwrap().to_string();
        assert!(error.contains("needs directory"), "{error}");
    }

    #[test]
    fn cluster_nodes_own_equal_parts_of_ring() {
        let all = |count: u32, each: u32| -> Vec<i64> {
            let of = |number| tokens(number, count, each);
            let mut all: Vec<i64> = (0..count)
                .flat_map(|number| {
                    of(number).split(',').map(|text| text.parse().unwrap()).collect::<Vec<i64>>()
                })
                .collect();
            all.sort_unstable();
            all
        };
        assert_eq!(all(2, 1), [i64::MIN / 2, i64::MAX / 2 + 1]);
        let ring = all(3, 16);
        let steps = ring.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        let last = ring[0].wrapping_sub(ring[47]);
        let steps: Vec<i64> = steps.chain([last]).collect();
        let (least, most) = (steps.iter().min().unwrap(), steps.iter().max().unwrap());
        assert!(*least > 0 && most - least <= 1, "{steps:?}");
    }

    #[test]
    fn cluster_nodes_differ_only_in_tokens() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("cassandra-all-5.0.9.jar"), "").unwrap();
        let path = directory.path().to_string_lossy().into_owned();
        let options = |more: &[(&'static str, &'static str)]| {
            let mut options = vec![("directory", path.as_str()), ("java", "sh")];
            options.extend(more);
            try_make("cassandra", &options)
        };
        let lines = |system: &dyn System, number| -> Vec<String> {
            let arguments = system.launch_instance(1, number).arguments;
            let plan: StartPlan = serde_json::from_str(arguments.last().unwrap()).unwrap();
            plan.files[0].1.lines().map(String::from).collect()
        };
        let cluster =
            options(&[("instances", "2"), ("cluster", "true"), ("settings", "num_tokens=2")]);
        let cluster = cluster.unwrap();
        assert_eq!(cluster.instances(), Instances { count: 2, cluster: true });
        let (first, second) = (lines(&*cluster, 0), lines(&*cluster, 1));
        let apart: Vec<&String> = second.iter().filter(|line| !first.contains(line)).collect();
        assert_eq!(apart, ["initial_token: -2305843009213693952,6917529027641081856"]);
        assert!(first.contains(&"auto_bootstrap: false".into()), "{first:?}");
        let alone = options(&[("instances", "2")]).unwrap();
        assert_eq!(lines(&*alone, 0), lines(&*alone, 1));
        assert!(!lines(&*alone, 0).iter().any(|line| line.contains("initial_token")));
        let error = options(&[("heap", "lots")]).err().unwrap().to_string();
        assert!(error.contains("heap = \"lots\" is not a size"), "{error}");
    }

    #[test]
    fn only_written_once_components_are_shared() {
        let check =
            |path: &str, expect| assert_eq!((DATA.use_of)(Path::new(path)), expect, "{path}");
        let table = "data/tare/rows-1b/nb-3-big";
        for component in ["Data.db", "Index.db", "CompressionInfo.db", "Digest.crc32"] {
            check(&format!("{table}-{component}"), FileUse::Constant);
        }
        for component in ["Statistics.db", "Summary.db", "Filter.db", "TOC.txt"] {
            check(&format!("{table}-{component}"), FileUse::Changing);
        }
        check("data/tare/rows-1b/da-3-bti-Rows.db", FileUse::Constant);
        check("commitlog/CommitLog-8-1-Data.db", FileUse::Changing);
        for path in ["conf", "tmp", "saved_caches", COLLECTIONS] {
            check(path, FileUse::LeftOut);
        }
    }

    #[test]
    fn jvm_needs_more_than_its_heap() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("cassandra-all-5.0.9.jar"), "").unwrap();
        let path = directory.path().to_string_lossy().into_owned();
        let options = [("directory", path.as_str()), ("java", "sh"), ("heap", "2G")];
        let need = try_make("cassandra", &options).unwrap().memory(1).unwrap();
        assert_eq!(need.what, "a heap of 2048 MiB and 588 MiB for the rest of the JVM");
        assert_eq!(need.bytes >> 20, 2048 + 588);
    }

    #[test]
    fn flushes_and_compactions_are_busy() {
        let number = |n: i32| n.to_be_bytes().to_vec();
        let pool = |name: &str, active, pending| vec![name.into(), number(active), number(pending)];
        let quiet = [pool("CompactionExecutor", 0, 0), pool("Native-Transport-Requests", 1, 3)];
        assert_eq!(busy(&quiet, &[]), None);
        let flushing = [pool("MemtableFlushWriter", 1, 2)];
        let task = vec![b"ks".to_vec(), b"t".to_vec(), b"compaction".to_vec()];
        let expect = "MemtableFlushWriter: 1 active, 2 pending, ks t compaction";
        assert_eq!(busy(&flushing, &[task]).as_deref(), Some(expect));
    }
}
