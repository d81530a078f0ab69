//! Third-party systems, started for real in every environment that starts quickly: each answers,
//! reports its settings, becomes idle, and leaves nothing behind.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tare_env::{EnvironmentFactory, FactoryOptions, runtime};
use tare_host::exec;
use tare_lab::environment::{CpuPlan, Endpoint, EnvironmentSpec};
use tare_lab::study::SystemSpec;
use tare_lab::system::{OwnLatency, System};
use tare_system::ClientRoute;
use tare_testkit::downloads::cassandra;
use tare_testkit::{EnvironmentBuilder, Machine, Reason, skip};

/// The tests run one after another, because they share the host's addresses and few CPUs.
static HOST: Mutex<()> = Mutex::new(());

/// The test's own state directory; cleaned and removed on drop.
struct State(PathBuf);

impl Drop for State {
    fn drop(&mut self) {
        let _ = tare_host::clean::clean(&self.0, tare_env::undo::KINDS);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn environment(runtime: &str, network: &str) -> EnvironmentSpec {
    let security = if runtime == "process" { "none" } else { "default" };
    EnvironmentBuilder::new(runtime)
        .name(format!("{runtime} {network}"))
        .network(network)
        .security(security)
        .build()
}

/// Returns the reason why a test of a system cannot run here, if there is one.
fn missing(program: &str) -> Option<Reason> {
    let needed = ["ip", "nft", "runc"].into_iter().find(|name| exec::find(name).is_none());
    match (rustix::process::geteuid().is_root(), needed) {
        (false, _) => Some(Machine::NotRoot.into()),
        (true, Some(name)) => Some(Reason::not_installed(name)),
        (true, None) if exec::find(program).is_none() => Some(Reason::not_installed(program)),
        _ => None,
    }
}

/// Repeats a check until it succeeds; panics after the limit.
fn until<T>(limit: Duration, mut check: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(error) => assert!(began.elapsed() < limit, "{error}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Starts a system in each environment, waits until it is ready and idle, and passes its settings
/// and the client's network namespace to `judge`.
fn assert_runs(
    test: &str,
    program: &str,
    (name, options): (&str, &[(&str, &str)]),
    judge: impl Fn(&dyn System, &Endpoint, &[(String, String)], &Path),
) {
    if let Some(reason) = missing(program) {
        return skip(test, reason);
    }
    let _one = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    let path = std::env::temp_dir().join(format!("tare-test-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let state = State(path);
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let cpus = CpuPlan { all: all.clone(), system: all.clone(), client: all, ..CpuPlan::default() };
    let program = PathBuf::from(env!("CARGO_BIN_EXE_tare"));
    let options_of_factory =
        FactoryOptions { state: state.0.clone(), program, cpus, destroy: Vec::new(), reach: None };
    let factory = EnvironmentFactory::open(options_of_factory).unwrap();
    let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let spec = SystemSpec { name: name.into(), options };
    let route = ClientRoute {
        namespace: Some(factory.client_namespace().into()),
        ..ClientRoute::default()
    };
    let system = tare_system::find(name).unwrap().make(&spec, &route).unwrap();
    let runtimes = [("process", "host"), ("oci:runc", "bridge"), ("oci:crun", "host")];
    for (runtime, network) in runtimes {
        if runtime.ends_with("crun") && exec::find("crun").is_none() {
            skip(&format!("{test} in {runtime}"), Reason::not_installed("crun"));
            continue;
        }
        let spec = environment(runtime, network);
        runtime::check(&spec).unwrap();
        let mut environment = factory.environment(&spec).unwrap();
        let at = environment.start(&system.launch(1)).unwrap();
        let limit = system.ready_limit();
        let ready = || {
            let tail = environment.log_tail();
            system
                .ready(&at)
                .map_err(|error| format!("{runtime}: {error}; its log ends with {tail}"))
        };
        until(limit, ready);
        let settings = system.settings(&at).unwrap();
        let quiet = || match system.pending(&at).map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(pending) => Err(pending),
        };
        until(limit, quiet);
        judge(&*system, &at, &settings, factory.client_namespace());
        let lost: Vec<_> = environment.read_back().unwrap();
        let lost: Vec<_> = lost.into_iter().filter(|layer| !layer.in_force).collect();
        assert!(lost.is_empty(), "{runtime}: {lost:?}");
        environment.freeze().unwrap();
        environment.thaw().unwrap();
        assert!(system.pending(&at).is_ok(), "{runtime}: it does not answer after the thaw");
        environment.stop().unwrap();
        assert!(system.ready(&at).is_err(), "{runtime}: it still answers after the stop");
    }
    let left = factory.close();
    assert!(left.is_empty(), "{left:?}");
}

/// Reads the background work of a system and returns the total of one kind.
fn work(system: &dyn System, at: &Endpoint, name: &str) -> u64 {
    let found = system.background(at).unwrap();
    let one = found.iter().find(|one| one.name == name);
    one.map(|one| one.total).unwrap_or_else(|| panic!("no {name} in {found:?}"))
}

/// Reads the latency inside a system until it has answered more than `before` requests.
fn answered(system: &dyn System, at: &Endpoint, before: &OwnLatency) -> OwnLatency {
    let began = Instant::now();
    loop {
        let found = system.own_latency(at).unwrap().unwrap().since(before);
        if found.requests > 0 {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "nothing is counted: {found:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Runs a client of the host in the client's network, and returns whether it succeeded.
fn in_network(client: &Path, words: &[&str]) {
    let namespace = format!("--net={}", client.display());
    let told = std::process::Command::new("nsenter").arg(namespace).args(words).output().unwrap();
    assert!(told.status.success(), "{words:?}: {told:?}");
}

fn value<'s>(settings: &'s [(String, String)], name: &str) -> &'s str {
    let found = settings.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("no {name} in {settings:?}"))
}

/// Redis or Valkey, whose `INFO` names its version so.
fn redis_runs(test: &str, program: &str, name: &str, version: &str) {
    let options = (name, &[("appendonly", "everysec")][..]);
    assert_runs(test, program, options, |system, at, settings, client| {
        assert_eq!((work(system, at, "saves"), work(system, at, "evictions")), (0, 0));
        let before = system.own_latency(at).unwrap().unwrap();
        let again = system.own_latency(at).unwrap().unwrap();
        assert_eq!(again.since(&before).requests, 0, "questions of Tare count");
        let (host, port) = (at.address.ip().to_string(), at.address.port().to_string());
        let words = ["redis-benchmark", "-h", &host, "-p", &port, "-n", "500", "-t", "set,get"];
        in_network(client, &words);
        let found = answered(system, at, &before);
        assert_eq!(found.requests, 1_000);
        assert!(found.sum_ns > 0, "{found:?}");
        let version = value(settings, version);
        // Older versions than 7 tell the sum alone.
        if !version.starts_with(['5', '6']) {
            assert_eq!(found.buckets.iter().map(|(_, count)| count).sum::<u64>(), 1_000);
        }
        assert!(version.contains('.'));
        assert_eq!(value(settings, "aof_enabled"), "1");
        assert_eq!(value(settings, "multiplexing_api"), "epoll");
    });
}

#[test]
fn redis_runs_and_leaves_nothing() {
    let test = "redis_runs_and_leaves_nothing";
    redis_runs(test, "redis-server", "redis", "redis_version");
}

#[test]
fn valkey_runs_and_leaves_nothing() {
    let test = "valkey_runs_and_leaves_nothing";
    redis_runs(test, "valkey-server", "valkey", "valkey_version");
}

#[test]
fn memcached_runs_and_leaves_nothing() {
    let test = "memcached_runs_and_leaves_nothing";
    assert_runs(
        test,
        "memcached",
        ("memcached", &[("memory_mb", "64")]),
        |system, at, settings, _| {
            assert_eq!((work(system, at, "evictions"), work(system, at, "slab_moves")), (0, 0));
            assert_eq!(value(settings, "threads"), "1");
            assert_eq!(value(settings, "limit_maxbytes"), (64 << 20).to_string());
        },
    );
}

#[test]
fn a_command_runs_and_leaves_nothing() {
    let test = "a_command_runs_and_leaves_nothing";
    let command = "redis-server --bind {listen} --port {port} --dir {data} --protected-mode no";
    let options = [("command", command), ("ready_send", "PING\r\n"), ("ready_expect", "PONG")];
    assert_runs(test, "redis-server", ("command", &options), |_, _, settings, _| {
        assert!(settings.is_empty());
    });
}

/// Counts the segments of System V shared memory on the host.
fn segments() -> usize {
    std::fs::read_to_string("/proc/sysvipc/shm").unwrap().lines().count()
}

#[test]
fn postgres_runs_and_leaves_nothing() {
    let test = "postgres_runs_and_leaves_nothing";
    let versions = Path::new("/usr/lib/postgresql");
    let program = match std::fs::read_dir(versions).into_iter().flatten().flatten().next() {
        Some(version) => version.path().join("bin/postgres"),
        None => PathBuf::from("postgres"),
    };
    let before = segments();
    let options = [("shared_buffers", "32MB"), ("synchronous_commit", "off")];
    assert_runs(
        test,
        &program.to_string_lossy(),
        ("postgres", &options),
        |system, at, settings, client| {
            let psql = |statement: &str| {
                let (host, port) = (at.address.ip().to_string(), at.address.port().to_string());
                let server = ["psql", "--host", &host, "--port", &port, "--username", "postgres"];
                let rest = ["--dbname", "postgres", "--command", statement];
                in_network(client, &[&server[..], &rest].concat());
            };
            let before = system.own_latency(at).unwrap().unwrap();
            psql("SELECT pg_sleep(0.2)");
            let limit = Instant::now() + Duration::from_secs(30);
            while system.own_latency(at).unwrap().unwrap().since(&before).sum_ns < 200_000_000 {
                assert!(Instant::now() < limit, "the time of a statement is not counted");
                thread::sleep(Duration::from_millis(100));
            }
            let before = work(system, at, "checkpoint_writes");
            psql("CREATE TABLE rows AS SELECT generate_series(1, 10000)");
            psql("CHECKPOINT");
            // The checkpointer tells its figures a moment after the end of the checkpoint.
            let wrote = || match work(system, at, "checkpoint_writes") {
                now if now > before => Ok(()),
                now => Err(format!("a checkpoint wrote {now} pages, as before")),
            };
            until(Duration::from_secs(20), wrote);
            work(system, at, "autovacuums");
            assert_eq!(value(settings, "synchronous_commit"), "off");
            assert_eq!(value(settings, "shared_buffers"), "32MB");
            assert!(value(settings, "server_version").contains('.'));
        },
    );
    assert_eq!(segments(), before, "a killed server left shared memory");
}

/// By both of its names; the second has a page cache of its default size.
/// Runs statements by the client of MariaDB.
fn mariadb(client: &Path, at: &Endpoint, statements: &str) {
    let (host, port) = (at.address.ip().to_string(), at.address.port().to_string());
    let server = ["mariadb", "--no-defaults", "--host", &host, "--port", &port, "--user", "root"];
    in_network(client, &[&server[..], &["--execute", statements]].concat());
}

#[test]
fn mariadb_tells_the_time_of_statements() {
    let test = "mariadb_tells_the_time_of_statements";
    let options = [("innodb_buffer_pool_size", "64M"), ("performance_schema", "on")];
    assert_runs(test, "mariadbd", ("mariadb", &options), |system, at, settings, client| {
        assert_eq!(value(settings, "performance_schema"), "ON");
        let before = system.own_latency(at).unwrap().unwrap();
        mariadb(client, at, "SELECT SLEEP(0.2)");
        let found = answered(system, at, &before);
        assert!(found.requests < 10 && found.sum_ns >= 200_000_000, "{found:?}");
    });
}

#[test]
fn mariadb_runs_and_leaves_nothing() {
    let test = "mariadb_runs_and_leaves_nothing";
    let options = [
        ("innodb_buffer_pool_size", "64M"),
        ("innodb_flush_log_at_trx_commit", "2"),
        ("settings", "innodb_io_capacity=500"),
    ];
    assert_runs(test, "mariadbd", ("mariadb", &options), |system, at, settings, client| {
        let statements =
            "USE sbtest; CREATE TABLE a (i INT PRIMARY KEY); INSERT INTO a VALUES (1), (2)";
        mariadb(client, at, statements);
        // Without the performance schema nothing is known.
        assert_eq!(system.own_latency(at).unwrap(), None);
        let before = work(system, at, "page_writes");
        // The checkpoint of this question writes the pages of the new table.
        assert_eq!(system.pending(at).unwrap(), None);
        assert!(work(system, at, "page_writes") > before);
        assert_eq!(work(system, at, "free_page_waits"), 0);
        assert_eq!(value(settings, "innodb_buffer_pool_size"), (64 << 20).to_string());
        assert_eq!(value(settings, "innodb_flush_log_at_trx_commit"), "2");
        assert_eq!(value(settings, "innodb_io_capacity"), "500");
        assert_eq!(value(settings, "performance_schema"), "OFF");
        assert!(value(settings, "version").contains("MariaDB"));
        let Some(data) = &at.data else { return };
        let files = [data.clone(), data.join("server")].map(|folder| fs::read_dir(folder).unwrap());
        let mut files = files.into_iter().flatten().map(|entry| entry.unwrap());
        let socket = files.find(|entry| entry.file_type().unwrap().is_socket());
        assert!(socket.is_none(), "{socket:?}");
    });
    assert_runs(test, "mysqld", ("mysql", &[]), |system, _, settings, _| {
        assert_eq!(system.name(), "mysql");
        assert_eq!(value(settings, "innodb_flush_log_at_trx_commit"), "1");
    });
}

#[test]
fn cassandra_runs_and_leaves_nothing() {
    let test = "cassandra_runs_and_leaves_nothing";
    let Some(directory) = cassandra(test) else { return };
    let directory = directory.to_string_lossy();
    let options =
        [("directory", &*directory), ("heap", "512M"), ("settings", "concurrent_writes=16")];
    assert_runs(test, "java", ("cassandra", &options), |system, at, settings, _| {
        // It writes its own tables at its start.
        assert!(work(system, at, "flushes") > 0);
        assert!(work(system, at, "garbage_collections_ns") > 0);
        work(system, at, "compactions");
        assert!(value(settings, "release_version").contains('.'));
        assert_eq!(value(settings, "concurrent_writes"), "16");
    });
}
