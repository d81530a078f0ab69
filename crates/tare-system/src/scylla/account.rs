//! What a running Scylla says about itself: the times of its reactors from its Prometheus port, and
//! its flushes and compactions from its REST interface.
//!
//! Method: both ports are on the address of the node for other nodes, unique in its network
//! namespace, which the configuration in its data directory names. The host asks there from inside
//! that namespace. Names, types and texts of the metrics are those of `reactor::register_metrics`
//! (src/core/reactor.cc) and `write_text_representation` (src/core/prometheus.cc) in
//! scylladb/seastar, and of transport/server.cc in scylladb/scylladb; the paths of the REST
//! interface those of api/api-doc/compaction_manager.json and column_family.json.
//!
//! `cpu_busy_ms` is the time since the start of a reactor without its idle time, whose clock runs
//! on while the reactor is frozen. It counts as idle or busy once the reactor runs again, so that
//! two readings between a thaw and the next freeze have nothing of it between them.
//!
//! Limits: the counters are in ms. Reading them makes each shard collect all of its metrics.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use tare_lab::environment::Endpoint;
use tare_lab::system::{BackgroundWork, LoopTime, LoopTimes};

use super::ScyllaError;
use crate::client_route::{ClientRoute, SystemConnection};
use crate::http;

/// The configuration in the data directory.
pub(super) const CONFIGURATION_FILE: &str = "conf/scylla.yaml";
/// Its usual port for metrics.
const METRICS_PORT: u16 = 9180;
/// Its default port for the REST interface.
const API_PORT: u16 = 10000;

const BUSY: &str = "scylla_reactor_cpu_busy_ms";
const AWAKE: &str = "scylla_reactor_awake_time_ms_total";
const ASLEEP: &str = "scylla_reactor_sleep_time_ms_total";
const SERVED: &str = "scylla_transport_requests_served";
/// The families of metrics that are asked for, without the prefix: `__name__` selects those that
/// begin with a text if it ends with an asterisk.
const REACTOR_METRICS: &str = "/metrics?__name__=reactor_*";
const TRANSPORT_METRICS: &str = "/metrics?__name__=transport_requests_served";

const RUNNING_COMPACTIONS: &str = "/compaction_manager/compactions";
const PENDING_COMPACTIONS: &str = "/compaction_manager/metrics/pending_tasks";
const ENDED_COMPACTIONS: &str = "/compaction_manager/metrics/completed_tasks";
const RUNNING_FLUSHES: &str = "/column_family/metrics/pending_flushes";
const ENDED_FLUSHES: &str = "/column_family/metrics/memtable_switch_count";

/// The ports of a node that Tare started.
pub(super) struct NodePorts {
    /// The network namespace in which they are.
    inside: PathBuf,
    /// `None` if the study closes it.
    metrics: Option<SocketAddr>,
    api: SocketAddr,
}

impl NodePorts {
    /// Returns the ports of a node.
    ///
    /// # Errors
    /// If the host cannot reach them, as in a virtual machine.
    pub(super) fn of(at: &Endpoint) -> Result<Self, ScyllaError> {
        let (Some(inside), Some(data)) = (at.inside.clone(), &at.data) else {
            return Err(ScyllaError::Hidden);
        };
        let path = data.join(CONFIGURATION_FILE);
        let read = fs::read_to_string(&path);
        let text =
            read.map_err(|source| ScyllaError::Configuration { path: path.clone(), source })?;
        let address: Option<IpAddr> = setting(&text, "prometheus_address");
        let api_address = setting(&text, "api_address");
        let (Some(address), Some(api_address)) = (address, api_address) else {
            return Err(ScyllaError::NoAddress { path });
        };
        let port = setting(&text, "prometheus_port").filter(|port| *port != 0);
        let api_port = setting(&text, "api_port").unwrap_or(API_PORT);
        let metrics = port.map(|port| SocketAddr::new(address, port));
        Ok(Self { inside, metrics, api: SocketAddr::new(api_address, api_port) })
    }

    /// Returns the times of its reactors.
    pub(super) fn loop_times(&self) -> Result<LoopTimes, ScyllaError> {
        let address = self.metrics.ok_or(ScyllaError::NoMetricsPort)?;
        loop_times(|| SystemConnection::plain(Some(&self.inside), address), address)
    }

    fn ask(&self, path: &str) -> Result<String, ScyllaError> {
        Ok(http::get(SystemConnection::plain(Some(&self.inside), self.api)?, path)?)
    }

    fn count(&self, path: &str) -> Result<u64, ScyllaError> {
        let answer = self.ask(path)?;
        let (question, address) = (path.to_string(), self.api);
        answer.trim().parse().map_err(|_| ScyllaError::NoCount { question, address, answer })
    }

    fn compactions(&self) -> Result<Vec<Compaction>, ScyllaError> {
        let answer = self.ask(RUNNING_COMPACTIONS)?;
        let (question, address) = (RUNNING_COMPACTIONS.to_string(), self.api);
        serde_json::from_str(&answer).map_err(|_| ScyllaError::NoCount {
            question,
            address,
            answer,
        })
    }

    /// Describes what flushes and compacts; `None` if nothing does.
    pub(super) fn pending(&self) -> Result<Option<String>, ScyllaError> {
        let compactions = self.compactions()?;
        let mut busy: Vec<String> = compactions.iter().map(Compaction::text).collect();
        for (what, path) in
            [("compactions pending", PENDING_COMPACTIONS), ("flushes", RUNNING_FLUSHES)]
        {
            let count = self.count(path)?;
            busy.extend((count > 0).then(|| format!("{count} {what}")));
        }
        Ok((!busy.is_empty()).then(|| busy.join(", ")))
    }

    /// Returns its flushes and compactions.
    pub(super) fn background(&self) -> Result<Vec<BackgroundWork>, ScyllaError> {
        let work = |name, total, is_running| BackgroundWork { name, total, is_running };
        Ok(vec![
            work("flushes", self.count(ENDED_FLUSHES)?, self.count(RUNNING_FLUSHES)? > 0),
            work("compactions", self.count(ENDED_COMPACTIONS)?, !self.compactions()?.is_empty()),
        ])
    }
}

/// Returns the times of the reactors of a node that runs already, from its usual port for metrics.
pub(crate) fn attached_loop_times(
    client_route: &ClientRoute,
    at: &Endpoint,
) -> Result<LoopTimes, ScyllaError> {
    let address = SocketAddr::new(at.address.ip(), METRICS_PORT);
    let namespace = client_route.namespace.as_deref();
    loop_times(|| SystemConnection::plain(namespace, address), address)
}

fn loop_times(
    connect: impl Fn() -> Result<SystemConnection, crate::ClientRouteError>,
    address: SocketAddr,
) -> Result<LoopTimes, ScyllaError> {
    let reactors = http::get(connect()?, REACTOR_METRICS)?;
    let transport = http::get(connect()?, TRANSPORT_METRICS)?;
    read(&reactors, &transport).map_err(|metric| ScyllaError::NoMetric { address, metric })
}

/// Returns the times in the texts of two answers, or the name of a metric that they lack.
fn read(reactors: &str, transport: &str) -> Result<LoopTimes, &'static str> {
    let busy = by_shard(reactors, BUSY);
    let (awake, asleep) = (by_shard(reactors, AWAKE), by_shard(reactors, ASLEEP));
    let served = by_shard(transport, SERVED);
    for (metric, found) in [(BUSY, &busy), (SERVED, &served)] {
        if found.is_empty() {
            return Err(metric);
        }
    }
    let ms = |all: &BTreeMap<u32, i64>, shard: &u32| all.get(shard).copied().unwrap_or(0);
    let ns = |ms: i64| u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000);
    let loops = busy.iter().map(|(shard, busy)| LoopTime {
        busy_ns: ns(*busy),
        awake_ns: ns(ms(&awake, shard)),
        asleep_ns: ns(ms(&asleep, shard)),
    });
    let requests = served.values().map(|count| u64::try_from(*count).unwrap_or(0)).sum();
    Ok(LoopTimes { loops: loops.collect(), requests })
}

/// Returns the values of a metric, those of one shard added up.
fn by_shard(text: &str, metric: &str) -> BTreeMap<u32, i64> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let labels = line.strip_prefix(metric).and_then(|rest| rest.strip_prefix('{'));
        let Some((labels, value)) = labels.and_then(|rest| rest.split_once("} ")) else { continue };
        let shard = labels.split(',').find_map(|label| label.strip_prefix("shard=\""));
        let shard = shard.and_then(|text| text.strip_suffix('"')?.parse::<u32>().ok());
        if let (Some(shard), Ok(value)) = (shard, value.trim().parse::<i64>()) {
            *found.entry(shard).or_default() += value;
        }
    }
    found
}

/// Returns a setting of the configuration.
fn setting<T: FromStr>(text: &str, name: &str) -> Option<T> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
    line.trim().trim_matches('"').parse().ok()
}

/// A compaction that runs.
#[derive(Debug, Deserialize)]
struct Compaction {
    ks: String,
    cf: String,
    #[serde(default)]
    task_type: String,
}

impl Compaction {
    fn text(&self) -> String {
        let Self { ks, cf, task_type } = self;
        format!("{ks} {cf} {}", task_type.to_ascii_lowercase()).trim_end().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded of ScyllaDB 5 in DataDog/integrations-core,
    /// scylla/tests/fixtures/scylla_5_metrics.txt, here of two of its shards.
    const RECORDED: &str = r#"# HELP scylla_reactor_cpp_exceptions Total number of C++ exceptions
# TYPE scylla_reactor_cpp_exceptions counter
scylla_reactor_cpp_exceptions{shard="0"} 81
scylla_reactor_cpp_exceptions{shard="1"} 3
# HELP scylla_reactor_cpu_busy_ms Total cpu busy time in milliseconds
# TYPE scylla_reactor_cpu_busy_ms counter
scylla_reactor_cpu_busy_ms{shard="0"} 6852
scylla_reactor_cpu_busy_ms{shard="1"} 3923
# HELP scylla_reactor_cpu_steal_time_ms Total steal time, the time in which some other process was running while Seastar was not trying to run (not sleeping).Because this is in userspace, some time that could be legitimally thought as steal time is not accounted as such. For example, if we are sleeping and can wake up but the kernel hasn't woken us up yet.
# TYPE scylla_reactor_cpu_steal_time_ms counter
scylla_reactor_cpu_steal_time_ms{shard="0"} -10180
scylla_reactor_cpu_steal_time_ms{shard="1"} -11004
"#;
    const SERVED_RECORDED: &str = r#"# HELP scylla_transport_requests_served Counts a number of served requests.
# TYPE scylla_transport_requests_served counter
scylla_transport_requests_served{shard="0"} 17
scylla_transport_requests_served{shard="1"} 4
"#;

    fn times(loops: &[(u64, u64, u64)], requests: u64) -> LoopTimes {
        let one = |(busy, awake, asleep): &(u64, u64, u64)| LoopTime {
            busy_ns: busy * 1_000_000,
            awake_ns: awake * 1_000_000,
            asleep_ns: asleep * 1_000_000,
        };
        LoopTimes { loops: loops.iter().map(one).collect(), requests }
    }

    #[test]
    fn recorded_metrics_have_the_times_of_each_reactor() {
        let found = read(RECORDED, SERVED_RECORDED).unwrap();
        assert_eq!(found, times(&[(6852, 0, 0), (3923, 0, 0)], 21));
        // Since 2025.2 (docs.scylladb.com, metrics update between 2025.1 and 2025.2), with the help
        // of src/core/reactor.cc.
        let newer = format!(
            "{RECORDED}# HELP scylla_reactor_awake_time_ms_total Total reactor awake time (wall_clock)\n\
             # TYPE scylla_reactor_awake_time_ms_total counter\n\
             scylla_reactor_awake_time_ms_total{{shard=\"0\"}} 9000\n\
             scylla_reactor_awake_time_ms_total{{shard=\"1\"}} 9001\n\
             # HELP scylla_reactor_sleep_time_ms_total Total reactor sleep time (wall clock)\n\
             # TYPE scylla_reactor_sleep_time_ms_total counter\n\
             scylla_reactor_sleep_time_ms_total{{shard=\"0\"}} 70\n\
             scylla_reactor_sleep_time_ms_total{{shard=\"1\"}} 0\n"
        );
        let found = read(&newer, SERVED_RECORDED).unwrap();
        assert_eq!(found, times(&[(6852, 9000, 70), (3923, 9001, 0)], 21));
    }

    #[test]
    fn labels_of_other_versions_do_not_matter() {
        // With the label `type` until version 4 (scylla_metrics.txt of the same repository), and
        // several lines of one shard.
        let served = "scylla_transport_requests_served{shard=\"0\",type=\"derive\"} 5\n\
                      scylla_transport_requests_served{scheduling_group_name=\"main\",shard=\"0\"} 6\n\
                      scylla_transport_requests_served_other{shard=\"0\"} 900\n";
        assert_eq!(read(RECORDED, served).unwrap().requests, 11);
        assert_eq!(read("", served), Err(BUSY));
        assert_eq!(read(RECORDED, RECORDED), Err(SERVED));
    }

    #[test]
    fn ports_are_those_of_the_configuration() {
        let data = tempfile::tempdir().unwrap();
        fs::create_dir(data.path().join("conf")).unwrap();
        let mut at = crate::tests::at(data.path());
        let error = |at: &Endpoint| NodePorts::of(at).err().unwrap().to_string();
        assert!(error(&at).contains("cannot enter"), "{}", error(&at));
        at.inside = Some("/proc/self/ns/net".into());
        assert!(error(&at).contains("scylla.yaml"), "{}", error(&at));
        let write = |text: &str| fs::write(data.path().join(CONFIGURATION_FILE), text).unwrap();
        write("prometheus_port: 9180\n");
        assert!(error(&at).contains("no address"), "{}", error(&at));
        write("prometheus_address: 127.35.82.1\nprometheus_port: 9180\napi_address: 127.35.82.1\n");
        let ports = NodePorts::of(&at).unwrap();
        assert_eq!(ports.metrics, Some("127.35.82.1:9180".parse().unwrap()));
        assert_eq!(ports.api, "127.35.82.1:10000".parse().unwrap());
        write(
            "prometheus_address: 127.35.82.1\nprometheus_port: 0\napi_address: 10.0.0.1\napi_port: 99\n",
        );
        let ports = NodePorts::of(&at).unwrap();
        assert_eq!(ports.api, "10.0.0.1:99".parse().unwrap());
        let closed = ports.loop_times().unwrap_err().to_string();
        assert!(closed.contains("prometheus_port = 0"), "{closed}");
    }

    #[test]
    fn running_compactions_are_named() {
        // The fields of `summary` in api/api-doc/compaction_manager.json.
        let text = r#"[{"id": "x", "ks": "ycsb", "cf": "usertable", "completed": 3, "total": 10, "task_type": "COMPACTION", "unit": "keys"}]"#;
        let found: Vec<Compaction> = serde_json::from_str(text).unwrap();
        assert_eq!(found[0].text(), "ycsb usertable compaction");
    }
}
