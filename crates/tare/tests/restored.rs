//! Data of third-party systems that is loaded once and restored into every start, through the built
//! program: in a process and in a container, on the file system of the state directory and on
//! another. Later studies take it from a cache of the test's own. The host is unchanged afterwards.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use common::{stderr, stdout, tare};
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
    /// Weighs it with restored data in these environments.
    fn weigh(&self, folder: &Path, cache: &Path, environments: &[&str]) -> Output {
        weigh_alone(folder, cache, &self.study(environments))
    }

    fn study(&self, environments: &[&str]) -> String {
        let Self { driver, system, workload } = self;
        let environments = environments.concat();
        format!(
            "name = \"restored\"\nbaseline = \"native\"\ndriver = \"{driver}\"\n\
             [system]\n{system}\n[schedule]\ndata = \"restored\"\nrounds = 1\nrounds_min = 1\n\
             stop_width_percent = 0\nseed = 7\nwindow = \"800ms\"\nlead_in = \"200ms\"\n\
             {environments}[[workload]]\nname = \"w\"\nlatency_share = 0\n{workload}\n"
        )
    }

    /// Weighs it, checks that every environment has figures without errors, and returns the report
    /// and the kinds of its doubts.
    fn restored(&self, environments: &[&str]) -> (Value, Vec<String>) {
        let cache = tempfile::tempdir().unwrap();
        let (report, doubts, _) = self.restored_with(&cache.path().join("data"), environments);
        (report, doubts)
    }

    /// The same with a cache, and what the study said.
    fn restored_with(&self, cache: &Path, environments: &[&str]) -> (Value, Vec<String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let output = self.weigh(folder.path(), cache, environments);
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
        (serde_json::from_str(&stdout(&output)).unwrap(), doubts, stderr(&output))
    }

    /// Checks that the study ends with this line.
    fn refused(&self, environments: &[&str], expect: &str) {
        let folder = tempfile::tempdir().unwrap();
        let output = self.weigh(folder.path(), &folder.path().join("data"), environments);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(expect), "{said}");
    }
}

/// Weighs a study with a cache while no other test changes the host, and checks that the host is as
/// before.
fn weigh_alone(folder: &Path, cache: &Path, study: &str) -> Output {
    fs::write(folder.join("study.toml"), study).unwrap();
    let mut command = tare();
    command.args(["weigh", "study.toml", "--json", "--state"]).arg(folder.join("state"));
    command.env("TARE_DATA_CACHE", cache).current_dir(folder);
    let _alone = host_state::alone();
    let before = HostState::read();
    let output = command.output().unwrap();
    let left = before.difference(&HostState::read());
    assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
    output
}

fn environment<'r>(report: &'r Value, name: &str) -> &'r Value {
    let environments = report["environments"].as_array().unwrap();
    environments.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Returns how an environment received its data, and where that is from.
fn restored_from<'r>(report: &'r Value, name: &str) -> (&'r str, &'r str) {
    let layers = environment(report, name)["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["layer"] == "data").unwrap();
    let found = layer["found"].as_str().unwrap();
    assert!(found.starts_with("restored in "), "{name}: {found}");
    found.split_once("; ").unwrap()
}

/// Returns the MiB that an environment shares by hard links, and those that it has of its own or
/// shares by reflinks.
fn restored_mib(report: &Value, name: &str) -> (f64, f64) {
    let (found, _) = restored_from(report, name);
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
fn valkey_is_restored_from_its_snapshot() {
    let test = "valkey_is_restored_from_its_snapshot";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("valkey-server")]) {
        return;
    }
    let pair = Pair {
        driver: "tare-load",
        system: "name = \"valkey\"",
        workload: "write_share = 0\nrows = 20_000\nconnections = 4",
    };
    let (report, _) = pair.restored(&[PROCESS, BOX]);
    for name in ["native", "native again", "box"] {
        let (linked, other) = restored_mib(&report, name);
        assert!(linked == 0.0 && other > 5.0, "{name}: {linked} and {other} MiB");
        assert!(counter(&report, name, "system_net_out_bytes") >= 320.0, "{name}");
    }
}

/// Returns what a command prints about a cache.
fn about(cache: &Path, arguments: &[&str]) -> String {
    let state = tempfile::tempdir().unwrap();
    let mut command = tare();
    command.args(arguments).arg("--state").arg(state.path());
    let output = command.env("TARE_DATA_CACHE", cache).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// Returns what a dry run prints about a study of a pair.
fn about_plan(cache: &Path, pair: &Pair<'_>, words: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.toml");
    fs::write(&path, pair.study(&[PROCESS, BOX])).unwrap();
    about(cache, &[&["weigh", path.to_str().unwrap(), "--dry-run"], words].concat())
}

fn plan(cache: &Path, pair: &Pair<'_>) -> Value {
    serde_json::from_str(&about_plan(cache, pair, &["--json"])).unwrap()
}

/// Returns the entries of a cache, the last used first.
fn entries(cache: &Path) -> Vec<Value> {
    let list: Value = serde_json::from_str(&about(cache, &["list", "data", "--json"])).unwrap();
    list["data"].as_array().unwrap().clone()
}

#[test]
fn second_study_takes_its_data_from_the_cache() {
    let test = "second_study_takes_its_data_from_the_cache";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("redis-server")]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let cache = place.path().join("data");
    let redis = |system, workload| Pair { driver: "tare-load", system, workload };
    let pair = redis("name = \"redis\"", "write_share = 0\nrows = 20_000\nconnections = 4");
    assert_eq!(about(&cache, &["list", "data"]), format!("data: 0 MiB in {}\n", cache.display()));
    let empty = plan(&cache, &pair);
    let (report, _, said) = pair.restored_with(&cache, &[PROCESS, BOX]);
    let (_, origin) = restored_from(&report, "box");
    assert!(origin.starts_with("loaded in "), "{origin}");
    assert!(!said.contains("cache"), "{said}");

    // Neither the environments nor the load matter, nor options that no data has.
    let other = redis(
        "name = \"redis\"\nio_threads = 2",
        "write_share = 0.1\nrows = 20_000\nconnections = 2",
    );
    let (report, _, said) = other.restored_with(&cache, &[PROCESS, MEMORY]);
    for name in ["native", "native again", "memory"] {
        let (_, origin) = restored_from(&report, name);
        assert!(origin.starts_with("from the cache: loaded "), "{name}: {origin}");
        // Most reads return a row of 5 x 64 bytes.
        let bytes = counter(&report, name, "system_net_out_bytes");
        assert!(bytes >= 250.0, "{name}: {bytes} bytes per operation");
    }
    assert!(said.contains("data from the cache: loaded "), "{said}");
    assert_eq!(entries(&cache).len(), 1);

    // The plan knows that it needs no load, and which data is another one.
    let planned = plan(&cache, &pair);
    assert!(empty["cached_data"].is_null(), "{empty}");
    assert!(planned["cached_data"]["bytes"].as_u64().unwrap() > 1 << 20, "{planned}");
    let setup = |plan: &Value| plan["time"]["setup_s"].as_f64().unwrap();
    assert!(setup(&planned) < setup(&empty), "{planned}\n{empty}");
    let text = about_plan(&cache, &pair, &[]);
    assert!(text.contains("data") && text.contains(" from the cache, loaded "), "{text}");
    let larger = redis("name = \"redis\"", "write_share = 0\nrows = 30_000\nconnections = 4");
    assert!(plan(&cache, &larger)["cached_data"].is_null());

    // Other rows, and words that may matter, are other data.
    let rows = redis("name = \"redis\"", "write_share = 0\nrows = 10_000\nconnections = 4");
    let words = redis(
        "name = \"redis\"\narguments = \"--rdbcompression no\"",
        "write_share = 0\nrows = 20_000\nconnections = 4",
    );
    for (count, pair) in [(2, &rows), (3, &words)] {
        let (report, ..) = pair.restored_with(&cache, &[PROCESS]);
        assert!(restored_from(&report, "native").1.starts_with("loaded in "));
        assert_eq!(entries(&cache).len(), count);
    }
    let listed = about(&cache, &["list", "data"]);
    assert!(listed.contains("system redis, redis-server sha256 "), "{listed}");
    assert!(listed.contains("rows 10,000, "), "{listed}");

    // A damaged entry is one line, and made again.
    let found = entries(&cache);
    let of_pair = |entry: &&Value| {
        let key = entry["key"].to_string();
        key.contains("\"20,000\"") && !key.contains("rdbcompression")
    };
    let id = found.iter().find(of_pair).unwrap()["id"].as_str().unwrap();
    let rdb = cache.join(id).join("data/dump.rdb");
    fs::write(&rdb, "short").unwrap();
    let (report, _, said) = pair.restored_with(&cache, &[PROCESS]);
    assert!(restored_from(&report, "native").1.starts_with("loaded in "));
    assert!(said.contains("was damaged (dump.rdb has 5 bytes, not "), "{said}");
    assert!(fs::metadata(&rdb).unwrap().len() > 1 << 20);
    assert_eq!(entries(&cache).len(), 3);

    let cleaned = about(&cache, &["clean", "--data"]);
    assert_eq!(cleaned.matches(": removed (redis, ").count(), 3, "{cleaned}");
    assert!(!cache.exists());
}

#[test]
fn cached_tables_are_shared_by_hard_links() {
    let test = "cached_tables_are_shared_by_hard_links";
    if skipped(test, &ALWAYS) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let cache = place.path().join("data");
    let pair = Pair {
        driver: "tare-load",
        system: "name = \"tare-db\"\nmemory_per_cpu = \"64M\"",
        workload: "write_share = 0\nrows = 20_000\nconnections = 4",
    };
    let (first, ..) = pair.restored_with(&cache, &[PROCESS]);
    let (second, ..) = pair.restored_with(&cache, &[PROCESS, BOX]);
    for name in ["native", "box"] {
        let (_, origin) = restored_from(&second, name);
        assert!(origin.starts_with("from the cache: "), "{name}: {origin}");
        assert_eq!(restored_mib(&second, name).0, restored_mib(&first, "native").0);
        assert!(restored_mib(&second, name).0 > 4.0, "{name}");
        assert!(counter(&second, name, "system_net_out_bytes") >= 320.0, "{name}");
    }
}

#[test]
fn study_without_the_cache_leaves_nothing() {
    let test = "study_without_the_cache_leaves_nothing";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("redis-server")]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let cache = place.path().join("data");
    let system = "name = \"redis\"";
    let pair = Pair { driver: "tare-load", system, workload: "rows = 1000" };
    let key = "data = \"restored\"\n";
    let study = pair.study(&[PROCESS]).replace(key, &format!("{key}data_cache = false\n"));
    let output = weigh_alone(place.path(), &cache, &study);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!cache.exists());
}

/// Each of several separate instances starts from the rows that one of them has saved.
#[test]
fn separate_instances_are_restored() {
    let test = "separate_instances_are_restored";
    if skipped(test, &ALWAYS) || skipped(test, &[Need::Program("redis-server")]) {
        return;
    }
    let pair = Pair {
        driver: "tare-load",
        system: "name = \"redis\"\ninstances = 2",
        workload: "write_share = 0\nrows = 20_000\nconnections = 4",
    };
    let one = "[[environment]]\nname = \"one\"\nextends = \"native\"\ninstances = 1\n";
    let (report, _) = pair.restored(&[PROCESS, BOX, one]);
    let mib = |name| restored_mib(&report, name).1;
    for name in ["native", "native again", "box"] {
        assert!((mib(name) - 2.0 * mib("one")).abs() < 0.3, "{name}: {} MiB", mib(name));
    }
    // The instances in the box have a network each, and all of them count.
    for name in ["native", "native again", "box", "one"] {
        let bytes = counter(&report, name, "system_net_out_bytes");
        assert!(bytes >= 320.0, "{name}: {bytes} bytes per operation");
    }
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
    let said = stderr(&pair.weigh(folder.path(), &folder.path().join("data"), &[PROCESS]));
    assert!(said.contains("the system has no data in files"), "{said}");
    assert!(said.contains("data = \"restored\""), "{said}");
}
