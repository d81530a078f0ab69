//! Apache Cassandra 4.0 and later, from an installation directory or from the jars that are published
//! (`org.apache.cassandra:cassandra-all` and what it depends on, copied into one directory).
//!
//! Method: the configuration is written new into the data directory, and the study's settings replace
//! lines of it. It listens for clients where the environment says, and for other nodes on a loopback
//! address of its own, so that several fit into one network namespace. There is no JMX: what nodetool
//! would ask (`tpstats`, `compactionstats`) stands in the virtual tables `system_views.thread_pools`
//! and `system_views.sstable_tasks`, without the start of another JVM.
//!
//! Limits: Java 11 or 17, as the version of Cassandra wants it. One node. A JVM is slow until its code
//! is compiled: a study warms it up (`lead_in`), or measures the compiler.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_cql::frame::{self, Direction, HEADER_BYTES};
use tare_cql::request::{self, Settings};
use tare_cql::response::Response;
use tare_host::exec;
use tare_lab::PartError;
use tare_lab::environment::{Endpoint, HostProgram, Launch};
use tare_lab::study::OptionInfo;
use tare_lab::system::{OwnAccount, System};

use super::SystemInfo;
use super::options::Options;
use super::starter::Recipe;
use super::way::{Line, Way, WayError};

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
            help: "size of the heap, all of it at once (default 1G)",
        },
        OptionInfo { name: "jvm", values: &[], help: "more options of the JVM, divided at spaces" },
        OptionInfo {
            name: "settings",
            values: &[],
            help: "lines of cassandra.yaml, such as \"concurrent_writes=64 commitlog_sync=batch\"",
        },
    ],
    takes_device: false,
    make: |spec, way| Ok(Box::new(Cassandra::new(Options::new(spec), way.clone())?)),
};

/// Pinned to few CPUs on a busy machine its start takes half a minute, and more where it is limited.
const READY_LIMIT: Duration = Duration::from_secs(240);

/// Those of its pools that flush and compact.
const POOLS: &[&str] = &[
    "CompactionExecutor",
    "MemtableFlushWriter",
    "MemtablePostFlush",
    "MemtableReclaimMemory",
    "PerDiskMemtableFlushWriter_0",
    "ViewBuildExecutor",
];

/// What may differ from one environment to the next, or changes what an operation costs.
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

/// What Cassandra reaches inside the JDK, as the `jvm11-server.options` and `jvm17-server.options`
/// of its versions list it.
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

/// The configuration, line by line, before the study's settings. Names that every version since 4.0 has.
const CONFIGURATION: &[(&str, &str)] = &[
    ("cluster_name", "tare"),
    ("num_tokens", "16"),
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
        "[{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: \"{loopback}\"}]}]",
    ),
    ("listen_address", "{loopback}"),
    ("rpc_address", "{listen}"),
    ("broadcast_rpc_address", "{advertised}"),
    ("native_transport_port", "{port}"),
    ("endpoint_snitch", "SimpleSnitch"),
];

const LOGGING: &str = "<configuration><appender name=\"OUT\" class=\"ch.qos.logback.core.ConsoleAppender\">\
    <encoder><pattern>%-5level %msg%n</pattern></encoder></appender>\
    <root level=\"WARN\"><appender-ref ref=\"OUT\"/></root></configuration>\n";

/// Why there is no Cassandra.
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
    way: Way,
    jars: PathBuf,
    /// The program itself, not a link to it: the rest of Java lies beside it. A name where the host has
    /// none.
    java: PathBuf,
}

impl Cassandra {
    fn new(options: Options, way: Way) -> Result<Self, PartError> {
        let wanted =
            "an installation of Cassandra, or a directory of its jars (or set CASSANDRA_HOME)";
        let directory = match installation() {
            Some(found) if options.text("directory").is_none() => found,
            _ => PathBuf::from(options.need("directory", wanted)?),
        };
        if let Some(bad) = options.words("settings").iter().find(|text| !text.contains('=')) {
            return Err(options.bad("settings", bad, "words NAME=VALUE").into());
        }
        let jars = jars_of(&directory).ok_or(CassandraError::NoJars { directory })?;
        let name = options.text_or("java", "java").to_string();
        let java = exec::find(&name).and_then(|path| std::fs::canonicalize(path).ok());
        // A root file system may have one where the host has none.
        let java = java.unwrap_or_else(|| name.into());
        let jars = std::path::absolute(jars)?;
        Ok(Self { options, way, jars, java })
    }

    fn configuration(&self) -> String {
        let own = self.options.words("settings");
        let own: Vec<(&str, &str)> = own.iter().filter_map(|text| text.split_once('=')).collect();
        let kept =
            CONFIGURATION.iter().filter(|(name, _)| own.iter().all(|(other, _)| name != other));
        let lines = kept.chain(&own).map(|(name, value)| format!("{name}: {value}\n"));
        lines.collect()
    }

    fn words(&self, cpus: usize) -> Vec<String> {
        let heap = self.options.text_or("heap", "1G");
        let jars = self.jars.display();
        let mut words = vec![
            "{program}".to_string(),
            format!("-Xms{heap}"),
            format!("-Xmx{heap}"),
            // Every environment gets the same threads, so that only the layer differs.
            format!("-XX:ActiveProcessorCount={cpus}"),
            // No file in the host's /tmp.
            "-XX:+PerfDisableSharedMem".into(),
            "-Djava.io.tmpdir={data}/tmp".into(),
            "-Djna.tmpdir={data}/tmp".into(),
            "-XX:+UseG1GC".into(),
            "-Xss512k".into(),
            "-Djdk.attach.allowAttachSelf=true".into(),
            "-Dio.netty.tryReflectionSetAccessible=true".into(),
            "-Djava.net.preferIPv4Stack=true".into(),
        ];
        let access = |option: &'static str| {
            move |name: &&str| [option.to_string(), format!("{name}=ALL-UNNAMED")]
        };
        words.extend(EXPORTS.iter().flat_map(access("--add-exports")));
        words.extend(OPENS.iter().flat_map(access("--add-opens")));
        if let Some(agent) = jar(&self.jars, "jamm") {
            words.push(format!("-javaagent:{}", agent.display()));
        }
        words.extend(self.options.words("jvm"));
        words.extend(
            [
                "-Dcassandra.config=file://{data}/conf/cassandra.yaml",
                "-Dcassandra.storagedir={data}",
                "-Dcassandra-foreground=yes",
                // One node has nobody to wait for.
                "-Dcassandra.skip_wait_for_gossip_to_settle=0",
                "-Dcassandra.ring_delay_ms=100",
                "-cp",
            ]
            .map(String::from),
        );
        words.push(format!("{{data}}/conf:{jars}/*"));
        words.push("org.apache.cassandra.service.CassandraDaemon".into());
        words
    }

    /// The directory of this Java, `bin` being in it.
    fn home(&self) -> &Path {
        self.java.parent().and_then(Path::parent).unwrap_or(&self.java)
    }

    fn session(&self, at: &Endpoint) -> Result<Session, WayError> {
        let mut session = Session { line: self.way.connect(at.address)? };
        session.line.limit(Duration::from_secs(20));
        let mut out = Vec::new();
        request::encode_startup(&mut out, 0, &[("CQL_VERSION", tare_cql::CQL_VERSION)]);
        session
            .ask("STARTUP", &out, |response| matches!(response, Response::Ready).then_some(()))?;
        Ok(session)
    }
}

/// Where Cassandra is, if a study does not say: what its own scripts are told, else where a
/// distribution is unpacked.
fn installation() -> Option<PathBuf> {
    let told = std::env::var_os("CASSANDRA_HOME").map(PathBuf::from);
    let usual = PathBuf::from("/opt/cassandra");
    told.into_iter().chain([usual]).find(|directory| jars_of(directory).is_some())
}

/// Where the jars of an installation, or of a directory of jars, are.
fn jars_of(directory: &Path) -> Option<PathBuf> {
    let mut places = [directory.join("lib"), directory.to_path_buf()].into_iter();
    places.find(|place| {
        jar(place, "cassandra-all").or_else(|| jar(place, "apache-cassandra")).is_some()
    })
}

/// The first jar in a directory whose name begins so.
fn jar(directory: &Path, name: &str) -> Option<PathBuf> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut jars: Vec<PathBuf> = files.map(|file| file.path()).collect();
    jars.sort();
    jars.into_iter().find(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(name) && file.ends_with(".jar")
    })
}

impl System for Cassandra {
    fn name(&self) -> &str {
        INFO.name
    }

    fn launch(&self, cpus: usize) -> Launch {
        let recipe = Recipe {
            files: vec![
                ("conf/cassandra.yaml".into(), self.configuration()),
                ("conf/logback.xml".into(), LOGGING.into()),
                ("tmp/README".into(), "Libraries that Java unpacks.\n".into()),
            ],
            command: self.words(cpus),
            ..Recipe::default()
        };
        // Debian keeps what of Java can be configured in /etc, with links to it.
        let etc =
            std::fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path());
        let named = |path: &PathBuf| {
            path.is_dir()
                && path.file_name().unwrap_or_default().to_string_lossy().starts_with("java-")
        };
        let home = Some(self.home().to_path_buf()).filter(|home| home.is_absolute());
        // The program loads it by name; what the others need is among what it needs.
        let machine = self.home().join("lib/server/libjvm.so");
        let program = HostProgram {
            name: self.java.to_string_lossy().into_owned(),
            files: Some(machine).filter(|file| file.is_file()).into_iter().collect(),
            folders: home.into_iter().chain(etc.filter(named)).collect(),
            named: vec![self.jars.clone()],
        };
        Launch { arguments: recipe.arguments(), program: Some(program), ..Launch::default() }
    }

    fn ready_limit(&self) -> Duration {
        READY_LIMIT
    }

    fn ready(&self, at: &Endpoint) -> Result<(), PartError> {
        Ok(self.session(at).map(drop)?)
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let mut session = self.session(at)?;
        let version = session.query("SELECT release_version FROM system.local")?;
        let version =
            version.into_iter().flatten().map(|cell| ("release_version".into(), text(&cell)));
        let settings = session.query("SELECT name, value FROM system_views.settings")?;
        let pair = |row: &Vec<Vec<u8>>| Some((text(row.first()?), text(row.get(1)?)));
        let settings = settings.iter().filter_map(pair);
        let settings = settings.filter(|(name, _)| SETTINGS.contains(&name.as_str()));
        Ok(version.chain(settings).collect())
    }

    fn pending(&self, at: &Endpoint) -> Result<Option<String>, PartError> {
        let mut session = self.session(at)?;
        let pools = session
            .query("SELECT name, active_tasks, pending_tasks FROM system_views.thread_pools")?;
        let tasks = session
            .query("SELECT keyspace_name, table_name, kind FROM system_views.sstable_tasks")?;
        Ok(busy(&pools, &tasks))
    }

    fn own_account(&self, _data: &Path) -> Result<Option<OwnAccount>, PartError> {
        Ok(None)
    }
}

fn text(cell: &[u8]) -> String {
    String::from_utf8_lossy(cell).into_owned()
}

/// What flushes and compacts: pools with (name, active tasks, pending tasks), and running tasks.
fn busy(pools: &[Vec<Vec<u8>>], tasks: &[Vec<Vec<u8>>]) -> Option<String> {
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

/// A CQL connection of version 4, one question at a time.
struct Session {
    line: Line,
}

impl Session {
    /// Rows of cells; null is empty.
    fn query(&mut self, statement: &str) -> Result<Vec<Vec<Vec<u8>>>, WayError> {
        let mut out = Vec::new();
        // All of it in one page.
        request::encode_query(&mut out, 0, statement, &Settings::DEFAULT, &[]);
        self.ask(statement, &out, |response| match response {
            Response::Rows(rows) => {
                let cells = |row: tare_cql::response::Row<'_>| -> Vec<Vec<u8>> {
                    row.cells().map(|cell| cell.unwrap_or_default().to_vec()).collect()
                };
                Some(rows.iter().map(cells).collect())
            }
            _ => None,
        })
    }

    fn ask<T>(
        &mut self,
        question: &str,
        bytes: &[u8],
        answer: impl FnOnce(&Response<'_>) -> Option<T>,
    ) -> Result<T, WayError> {
        self.line.send(question, bytes)?;
        let mut frame = self.line.bytes(HEADER_BYTES)?;
        let length = [frame[5], frame[6], frame[7], frame[8]];
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        frame.extend(self.line.bytes(length)?);
        let frame = match frame::decode(&frame, Direction::Response, length) {
            Ok(Some((frame, _))) => frame,
            Ok(None) => return Err(self.line.nonsense("half a frame".into())),
            Err(error) => return Err(self.line.nonsense(error.to_string())),
        };
        let response = match Response::decode(&frame) {
            Ok(response) => response,
            Err(error) => return Err(self.line.nonsense(error.to_string())),
        };
        answer(&response).ok_or_else(|| self.line.nonsense(format!("{response:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{recipe_of, try_make};

    #[test]
    fn an_installation_and_a_directory_of_jars_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_string_lossy().into_owned();
        // Any program stands in for Java here.
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
        let recipe = recipe_of(&*try_make("cassandra", &options).unwrap());
        let command = recipe.command.join(" ");
        for part in [
            "-Xms256M -Xmx256M -XX:ActiveProcessorCount=2",
            "lib/jamm-0.4.0.jar",
            "/lib/* org.apache",
        ] {
            assert!(command.contains(part), "{part} in {command}");
        }
        let (_, configuration) = &recipe.files[0];
        assert!(configuration.contains("num_tokens: 1\na: b\n"), "{configuration}");
        assert!(!configuration.contains("num_tokens: 16"), "{configuration}");
        let error = try_make("cassandra", &[]).err().unwrap().to_string();
        assert!(error.contains("needs directory"), "{error}");
    }

    #[test]
    fn pools_that_flush_and_tables_that_compact_are_busy() {
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
