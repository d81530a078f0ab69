//! `tare weigh` attached to a Cassandra that a user has started: it has a keyspace of its own for
//! the time of the study.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tare_testkit::cql::Connection;
use tare_testkit::downloads::cassandra;
use tare_testkit::{Need, skipped};

use crate::bed::{Bed, attach, free_port, json, study, weigh};
use crate::common::{stderr, stdout};
use crate::has_doubt;

/// A JVM compiles itself for a minute on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A Cassandra of a user. It ends with the test.
struct Cassandra {
    child: Child,
    port: u16,
}

impl Cassandra {
    fn start(jars: &Path, data: &Path) -> Self {
        let (port, storage) = (free_port(), free_port());
        fs::create_dir_all(data.join("conf")).unwrap();
        fs::create_dir_all(data.join("tmp")).unwrap();
        let at = data.display();
        let configuration = format!(
            "cluster_name: mine\npartitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             num_tokens: 4\ndata_file_directories: [\"{at}/data\"]\n\
             commitlog_directory: \"{at}/commitlog\"\nsaved_caches_directory: \"{at}/caches\"\n\
             hints_directory: \"{at}/hints\"\ncdc_raw_directory: \"{at}/cdc\"\n\
             commitlog_sync: periodic\ncommitlog_sync_period_in_ms: 10000\nseed_provider: \
             [{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, \
             parameters: [{{seeds: \"127.0.0.1:{storage}\"}}]}}]\n\
             listen_address: 127.0.0.1\nstorage_port: {storage}\nrpc_address: 127.0.0.1\n\
             native_transport_port: {port}\nendpoint_snitch: SimpleSnitch\n\
             auto_snapshot: false\n"
        );
        fs::write(data.join("conf/cassandra.yaml"), configuration).unwrap();
        let mut java = Command::new("java");
        java.args(["-Xms384M", "-Xmx384M", "-Xss512k", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"]);
        java.args(["-XX:+PerfDisableSharedMem", "-Djdk.attach.allowAttachSelf=true"]);
        java.args(["-Dio.netty.tryReflectionSetAccessible=true"]);
        java.args(tare_system::jdk_access());
        let agent = fs::read_dir(jars).unwrap().flatten().map(|entry| entry.path());
        let is_agent = |path: &std::path::PathBuf| path.to_string_lossy().contains("/jamm-");
        let agent = agent.into_iter().find(is_agent).unwrap();
        java.arg(format!("-javaagent:{}", agent.display()));
        java.arg(format!("-Dcassandra.config=file://{at}/conf/cassandra.yaml"));
        java.arg(format!("-Dcassandra.storagedir={at}")).arg(format!("-Djava.io.tmpdir={at}/tmp"));
        java.arg(format!("-Djna.tmpdir={at}/tmp"));
        java.args(["-Dcassandra-foreground=yes", "-Dcassandra.ring_delay_ms=100"]);
        java.arg("-Dcassandra.skip_wait_for_gossip_to_settle=0");
        java.arg("-cp").arg(format!("{at}/conf:{}/*", jars.display()));
        java.arg("org.apache.cassandra.service.CassandraDaemon");
        java.env_remove("JAVA_TOOL_OPTIONS").current_dir(data);
        let log = fs::File::create(data.join("log")).unwrap();
        java.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null());
        let mut started = Self { child: java.spawn().unwrap(), port };
        let began = Instant::now();
        while Connection::open((Ipv4Addr::LOCALHOST, port)).is_err() {
            let log = || fs::read_to_string(data.join("log")).unwrap_or_default();
            let ended = started.child.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "{ended:?}: {}", log());
            std::thread::sleep(Duration::from_millis(200));
        }
        started
    }

    fn keyspaces(&self) -> Vec<Vec<u8>> {
        crate::bed::keyspaces(self.port)
    }
}

impl Drop for Cassandra {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn cassandra_has_a_keyspace_of_its_own() {
    let test = "cassandra_has_a_keyspace_of_its_own";
    if skipped(test, &[Need::Root, Need::Program("java"), Need::Program("nft")]) {
        return;
    }
    let Some(jars) = cassandra(test) else { return };
    let bed = Bed::new();
    let cassandra = Cassandra::start(&jars, &bed.path().join("cassandra"));
    let before = cassandra.keyspaces();
    let pid = cassandra.child.id();
    let target = format!("pid = {pid}");
    let text = study("cassandra", &attach("mine", &target, cassandra.port));
    let output = weigh(bed.path(), &text, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stdout(&output));
    let finding = &report["analysis"]["findings"][0];
    assert!(finding["throughput_per_s"]["value"].as_f64() > Some(0.0), "{finding}");
    assert!(!has_doubt(&report, "operation_errors"), "{report}");
    assert_eq!(cassandra.keyspaces(), before);
    let state = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(!state.contains("State:\tT"), "{state}");
}
