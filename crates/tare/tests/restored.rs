//! Data of third-party systems that is loaded once and restored into every start, through the built
//! program: in a process and in a container, on the file system of the state directory and on
//! another. The host is unchanged afterwards.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use common::{run_in, stderr, stdout};
use serde_json::Value;
use tare_testkit::downloads::cassandra;
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped};

const ALWAYS: [Need; 4] =
    [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];

/// The baseline, a container, and another file system.
const PROCESS: &str = "[[environment]]\nname = \"native\"\nruntime = \"process\"\n";
const BOX: &str = "[[environment]]\nname = \"box\"\nruntime = \"oci:runc\"\n";
const MEMORY: &str = "[[environment]]\nname = \"memory\"\nextends = \"native\"\n\
                      storage = { kind = \"tmpfs\", size = \"512M\" }\n";

/// A system with its driver, as a study has them.
struct Pair<'a> {
    driver: &'a str,
    system: &'a str,
    workload: &'a str,
}

impl Pair<'_> {
    /// Weighs it with restored data in these environments, alone, and checks that the host is as
    /// before.
    fn weigh_alone(&self, folder: &Path, environments: &[&str]) -> Output {
        let _alone = host_state::alone();
        let before = HostState::read();
        let output = self.weigh(folder, environments);
        let left = before.difference(&HostState::read());
        assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
        output
    }

    fn weigh(&self, folder: &Path, environments: &[&str]) -> Output {
        let Self { driver, system, workload } = self;
        let environments = environments.concat();
        let study = format!(
            "name = \"restored\"\nbaseline = \"native\"\ndriver = \"{driver}\"\n\
             [system]\n{system}\n[schedule]\ndata = \"restored\"\nrounds = 1\nrounds_min = 1\n\
             stop_width_percent = 0\nseed = 7\nwindow = \"800ms\"\nlead_in = \"200ms\"\n\
             {environments}[[workload]]\nname = \"w\"\nlatency_share = 0\n{workload}\n"
        );
        fs::write(folder.join("study.toml"), study).unwrap();
        let state = folder.join("state");
        run_in(folder, ["weigh", "study.toml", "--json", "--state", state.to_str().unwrap()])
    }

    /// Weighs it, checks that every environment has figures without errors, and returns the report
    /// and the kinds of its doubts.
    fn restored(&self, environments: &[&str]) -> (Value, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let output = self.weigh_alone(folder.path(), environments);
        assert!(output.status.success(), "{}", stderr(&output));
        let record = rusqlite::Connection::open(folder.path().join("restored.tare")).unwrap();
        let texts = |query: &str| -> Vec<String> {
            let mut rows = record.prepare(query).unwrap();
            let rows = rows.query_map([], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let voids = texts("SELECT void FROM slices WHERE void IS NOT NULL");
        assert!(voids.is_empty(), "{voids:?}");
        let doubts = texts("SELECT kind FROM doubts");
        assert!(!doubts.contains(&"operation_errors".into()), "{doubts:?}");
        (serde_json::from_str(&stdout(&output)).unwrap(), doubts)
    }

    /// Checks that the study ends with this line.
    fn refused(&self, environments: &[&str], expect: &str) {
        let folder = tempfile::tempdir().unwrap();
        let output = self.weigh_alone(folder.path(), environments);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(expect), "{said}");
    }
}

fn environment<'r>(report: &'r Value, name: &str) -> &'r Value {
    let environments = report["environments"].as_array().unwrap();
    environments.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Returns the MiB that an environment shares by hard links, and those that it has of its own or
/// shares by reflinks.
fn restored_mib(report: &Value, name: &str) -> (f64, f64) {
    let layers = environment(report, name)["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["layer"] == "data").unwrap();
    let found = layer["found"].as_str().unwrap();
    assert!(found.starts_with("restored in "), "{name}: {found}");
    let (_, sizes) = found.split_once(" ms: ").unwrap();
    let mib = |part: &str| part.split(' ').next().unwrap().parse::<f64>().unwrap();
    let mut parts = sizes.split(", ").map(mib);
    (parts.next().unwrap(), parts.sum())
}

/// Returns a counter of an environment per operation.
fn counter(report: &Value, name: &str, counter: &str) -> f64 {
    let counters = environment(report, name)["counters"].as_array().unwrap();
    let found = counters.iter().find(|one| one["name"] == counter);
    found.unwrap_or_else(|| panic!("{name} has no {counter}"))["value"]["value"].as_f64().unwrap()
}

#[test]
fn postgres_is_restored_from_a_copy() {
    let test = "postgres_is_restored_from_a_copy";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("pgbench")]) {
        return;
    }
    let pair = Pair {
        driver: "pgbench",
        system: "name = \"postgres\"\nshared_buffers = \"32MB\"\nsynchronous_commit = \"off\"",
        workload: "pgbench = { clients = 2 }",
    };
    let (report, _) = pair.restored(&[PROCESS, BOX, MEMORY]);
    for name in ["native", "native again", "box", "memory"] {
        let (linked, other) = restored_mib(&report, name);
        // A page changes in place. A new cluster has 38 MiB, and pgbench's rows 15 MiB.
        assert!(linked == 0.0 && other > 40.0, "{name}: {linked} and {other} MiB");
    }
    let small = MEMORY.replace("512M", "16M");
    pair.refused(&[PROCESS, &small], "there is no space for a copy of ");
}

/// The program of another version is Tare's own, which prints its version as PostgreSQL does.
#[test]
fn postgres_of_another_version_is_refused() {
    let test = "postgres_of_another_version_is_refused";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("pgbench")]) {
        return;
    }
    let programs = tempfile::tempdir().unwrap();
    fs::set_permissions(programs.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["postgres", "initdb"] {
        fs::copy(env!("CARGO_BIN_EXE_tare"), programs.path().join(name)).unwrap();
    }
    let pair = Pair {
        driver: "pgbench",
        system: "name = \"postgres\"\nsynchronous_commit = \"off\"",
        workload: "pgbench = { clients = 2 }",
    };
    let other = format!(
        "[[environment]]\nname = \"other\"\nextends = \"native\"\n\
         system = {{ directory = {:?} }}\n",
        programs.path()
    );
    let own = env!("CARGO_PKG_VERSION");
    let expect = format!("and the program here is {own}; set data = \"loaded\" in [schedule]");
    pair.refused(&[PROCESS, &other], &expect);
}

#[test]
fn redis_is_restored_from_its_snapshot() {
    let test = "redis_is_restored_from_its_snapshot";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("redis-server")]) {
        return;
    }
    // It reads a log in place of the snapshot.
    let log = "[[environment]]\nname = \"log\"\nextends = \"native\"\n\
               system = { appendonly = \"everysec\" }\n";
    let pair = Pair {
        driver: "tare-load",
        system: "name = \"redis\"",
        workload: "write_share = 0\nrows = 20_000\nconnections = 4",
    };
    let (report, _) = pair.restored(&[PROCESS, BOX, MEMORY, log]);
    for name in ["native", "native again", "box", "memory", "log"] {
        let (linked, other) = restored_mib(&report, name);
        assert!(linked == 0.0 && other > 5.0, "{name}: {linked} and {other} MiB");
        // Every read returns a row of 5 x 64 bytes.
        let bytes = counter(&report, name, "system_net_out_bytes");
        assert!(bytes >= 320.0, "{name}: {bytes} bytes per operation");
    }
    // From the log of a baseline that has one.
    let logged = Pair { system: "name = \"redis\"\nappendonly = \"everysec\"", ..pair };
    let plain = "[[environment]]\nname = \"plain\"\nextends = \"native\"\n\
                 system = { appendonly = \"no\" }\n";
    let (report, _) = logged.restored(&[PROCESS, plain]);
    for name in ["native", "plain"] {
        restored_mib(&report, name);
        assert!(counter(&report, name, "system_net_out_bytes") >= 320.0, "{name}");
    }
    let elsewhere = "[[environment]]\nname = \"elsewhere\"\nextends = \"native\"\n\
                     system = { arguments = \"--dbfilename other.rdb\" }\n";
    logged.refused(&[PROCESS, elsewhere], "this environment has \"--dbfilename other.rdb\"");
}

#[test]
fn mariadb_is_restored_from_a_copy() {
    let test = "mariadb_is_restored_from_a_copy";
    let own = [Need::Program("mariadbd"), Need::Program("sysbench")];
    if skipped(test, &ALWAYS) || skipped(test, &own) {
        return;
    }
    let pair = Pair {
        driver: "sysbench",
        system: "name = \"mariadb\"\ninnodb_buffer_pool_size = \"64M\"\n\
                 settings = \"innodb_log_file_size=16M\"",
        workload: "sysbench = { test = \"oltp_read_only\", threads = 2, tables = 2, \
                   table_size = 2000 }",
    };
    let (report, doubts) = pair.restored(&[PROCESS, BOX, MEMORY]);
    for name in ["native", "native again", "box", "memory"] {
        let (linked, other) = restored_mib(&report, name);
        assert!(linked == 0.0 && other > 20.0, "{name}: {linked} and {other} MiB");
    }
    // The tool knows the rows that it has not written, and what it cannot tell about them.
    assert!(doubts.contains(&"latency_beyond_window".into()), "{doubts:?}");
    let pages = "[[environment]]\nname = \"pages\"\nextends = \"native\"\n\
                 system = { settings = \"innodb_page_size=8K\" }\n";
    pair.refused(&[PROCESS, pages], "this environment has \"innodb_page_size=8K\"");
}

#[test]
fn cassandra_is_restored_with_shared_tables() {
    let test = "cassandra_is_restored_with_shared_tables";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("java")]) {
        return;
    }
    let Some(directory) = cassandra(test) else { return };
    let system = format!(
        "name = \"cassandra\"\ndirectory = {directory:?}\nheap = \"384M\"\n\
         jvm = \"-XX:TieredStopAtLevel=1\""
    );
    let pair = Pair {
        driver: "tare-load",
        system: &system,
        workload: "write_share = 0\nrows = 20_000\nconnections = 4",
    };
    let (report, _) = pair.restored(&[PROCESS, BOX]);
    for name in ["native", "native again", "box"] {
        let (linked, other) = restored_mib(&report, name);
        assert!(linked > 4.0, "{name}: {linked} MiB shared, {other} MiB not");
        let bytes = counter(&report, name, "system_net_out_bytes");
        assert!(bytes >= 320.0, "{name}: {bytes} bytes per operation");
    }
}

#[test]
fn memcached_has_no_data_to_restore() {
    let folder = tempfile::tempdir().unwrap();
    let pair = Pair { driver: "tare-load", system: "name = \"memcached\"", workload: "rows = 100" };
    let said = stderr(&pair.weigh(folder.path(), &[PROCESS]));
    assert!(said.contains("the system has no data in files"), "{said}");
    assert!(said.contains("data = \"restored\""), "{said}");
}
