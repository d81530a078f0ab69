//! `tare load` and the engine below it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{PlainLoad, cpus, workload};
use crate::access::Access;
use crate::error::LoadError;
use crate::pacing::{Arrivals, Pace, Schedule, Step};
use crate::report::LoadReport;
use crate::run::load::{LoadConfig, LoadEvent, run};
use crate::workload::column::{Verdict, row_start};
use tare_testkit::fake_server::{FakeServer, ServerBehaviour};

pub(super) fn config(server: &FakeServer) -> LoadConfig {
    LoadConfig {
        access: Access::to(server.address),
        cpus: cpus(2),
        spec: workload().spec().unwrap(),
        pace: Pace::Closed(Duration::from_millis(200)),
        populate: true,
        lead_in: Duration::from_millis(20),
        seed: 9,
        verify: true,
        hdr_file: None,
        connect_deadline: Duration::from_secs(10),
    }
}

fn open(rate_per_s: f64, length: Duration) -> Pace {
    let steps = vec![Step::steady(rate_per_s, length)];
    Pace::Open(Schedule::new(steps, Arrivals::Constant).unwrap())
}

/// Returns a load that only reads.
fn reading(server: &FakeServer) -> LoadConfig {
    let workload = PlainLoad { write_share: 0.0, ..workload() };
    LoadConfig { spec: workload.spec().unwrap(), ..config(server) }
}

pub(super) fn load(config: &LoadConfig) -> Result<LoadReport, LoadError> {
    run(config, &AtomicBool::new(false), &mut |_| {})
}

pub(super) fn kinds(report: &LoadReport) -> Vec<&str> {
    report.errors.iter().map(|error| error.kind.as_str()).collect()
}

#[test]
fn populate_writes_every_row_once_with_its_bytes() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let config = reading(&server);
    load(&config).unwrap();
    let rows = server.rows();
    assert_eq!(rows.len(), 1_000);
    let columns = &config.spec.workload.table.columns;
    for (key, cells) in rows {
        let start = row_start(9, key);
        assert_eq!(cells.len(), 3);
        let written = Verdict::Right(Some(0));
        let mut all = columns.iter().zip(&cells);
        assert!(all.all(|(column, cell)| column.check(start, cell) == written), "{key}");
    }
    assert!(server.statements()[0].starts_with("CREATE KEYSPACE IF NOT EXISTS tare "));
    assert!(server.statements()[1].starts_with("CREATE TABLE IF NOT EXISTS tare.row3x20 "));
}

#[test]
fn closed_loop_counts_operations() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let report = load(&config(&server)).unwrap();
    assert!(report.operations > 0 && report.errors.is_empty(), "{report:?}");
    assert_eq!(report.service.count, report.operations);
    assert_eq!((report.pacing, report.dropped), ("closed", 0));
    assert!(report.response.is_none() && report.late.is_none());
    assert!(report.client_cpu_us_per_operation.is_some_and(|us| us > 0.0), "{report:?}");
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["service"]["p99_ns"].is_u64(), "{json}");
}

#[test]
fn open_loop_sends_what_is_due_or_counts_it_dropped() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let pace = open(2_000.0, Duration::from_millis(200));
    let report = load(&LoadConfig { pace, ..config(&server) }).unwrap();
    let response = report.response.as_ref().unwrap();
    // 2,000/s for 0.2 s: every operation is answered sooner or later, or counted as dropped.
    assert_eq!(response.count + report.dropped, 400, "{report:?}");
    assert_eq!(response.count, report.service.count);
    assert!(report.errors.is_empty() && response.mean_ns >= report.service.mean_ns, "{report:?}");
    let late_ns = report.late.as_ref().unwrap().mean_ns;
    assert!((response.mean_ns - report.service.mean_ns - late_ns).abs() < 0.01 * response.mean_ns);
}

#[test]
fn times_of_the_kernel_are_within_those_of_the_client() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let closed = config(&server).pace;
    for pace in [open(2_000.0, Duration::from_millis(200)), closed] {
        let mut config = LoadConfig { pace, ..config(&server) };
        config.access.kernel_times = true;
        let report = load(&config).unwrap();
        let times = report.in_kernel.as_ref().expect("they were wanted");
        assert!(times.service.count > 0 && report.errors.is_empty(), "{report:?}");
        assert_eq!(times.service.count + times.missing, report.service.count, "{report:?}");
        // A request leaves after the kernel has taken it, and an answer comes before it is seen.
        if times.missing == 0 {
            assert!(times.service.mean_ns < report.service.mean_ns, "{report:?}");
        }
        assert_eq!(times.response.is_some(), report.response.is_some(), "{report:?}");
    }
    assert!(load(&config(&server)).unwrap().in_kernel.is_none());
}

#[test]
fn bad_servers_are_errors_and_never_hang() {
    let check = |manner, expect: &[&str]| {
        let server = FakeServer::start(manner);
        let mut config = config(&server);
        // The rows were written before the server began to misbehave.
        config.populate = !matches!(manner, ServerBehaviour::Errors);
        let began = Instant::now();
        let report = load(&config);
        assert!(began.elapsed() < Duration::from_secs(60));
        match report {
            Ok(report) => {
                let found = kinds(&report);
                assert!(expect.iter().all(|kind| found.contains(kind)), "{manner:?} {report:?}");
            }
            Err(LoadError::NoConnection { reason, .. }) => {
                assert!(expect.iter().any(|kind| reason.contains(kind)), "{manner:?} {reason}");
            }
            Err(error) => panic!("{manner:?} {error:?}"),
        }
    };
    check(ServerBehaviour::CloseAfter(1_500), &["connection closed"]);
    check(ServerBehaviour::GarbageAfter(1_500), &["garbage on the connection"]);
    check(ServerBehaviour::SilentAfter(1_500), &["no answer"]);
    check(ServerBehaviour::OtherStreams(1_500), &["garbage on the connection"]);
    check(ServerBehaviour::Errors, &["server answered overloaded"]);
    check(ServerBehaviour::Corrupt, &["row differs from what was written"]);
    check(ServerBehaviour::Stale, &["row stale"]);
}

#[test]
fn rows_that_were_never_written_are_missing() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let mut config = reading(&server);
    config.populate = false;
    let report = load(&config).unwrap();
    assert_eq!((kinds(&report), report.operations), (vec!["row missing"], 0), "{report:?}");
}

#[test]
fn populate_reports_failed_writes() {
    let server = FakeServer::start(ServerBehaviour::Refuses);
    let error = load(&config(&server)).unwrap_err();
    assert!(
        error.to_string().ends_with("1000 of the writes failed, the first: overloaded"),
        "{error}"
    );
    let server = FakeServer::start(ServerBehaviour::CloseAfter(10));
    assert!(load(&config(&server)).is_err());
}

#[test]
fn bad_settings_are_refused() {
    let server = FakeServer::start(ServerBehaviour::Login);
    let refused = |change: &dyn Fn(&mut LoadConfig)| {
        let mut config = config(&server);
        config.connect_deadline = Duration::from_millis(50);
        change(&mut config);
        load(&config).unwrap_err().to_string()
    };
    let login = refused(&|_| {});
    assert!(
        login
            .ends_with("asks for a login (PasswordAuthenticator); give --user and --password-file")
    );
    let nobody = refused(&|config| config.access.nodes = vec!["127.0.0.1:1".into()]);
    assert!(nobody.starts_with("127.0.0.1:1 did not answer within 0."), "{nobody}");
    let shape = PlainLoad { columns: 0, ..workload() }.spec().unwrap_err();
    assert_eq!(shape.to_string(), "a row of 0 columns x 20 bytes: give 1 to 1000 columns");
    assert!(refused(&|config| config.cpus = "".parse().unwrap()).contains("no CPU to run on"));
    let server = FakeServer::start(ServerBehaviour::Good);
    let refused = |change: &dyn Fn(&mut PlainLoad)| {
        let mut workload = workload();
        change(&mut workload);
        let spec = workload.spec().unwrap();
        load(&LoadConfig { spec, ..config(&server) }).unwrap_err().to_string()
    };
    assert!(refused(&|workload| workload.rows = 0).contains("number of rows is 0"));
    assert!(refused(&|workload| workload.in_flight = 0).contains("in flight is 0"));
    assert!(refused(&|workload| workload.connections = 0).contains("connections is 0"));
    assert!(
        refused(&|workload| workload.write_share = f64::NAN).contains("weights of queries is NaN")
    );
    let mut config = config(&server);
    config.cpus = "1023".parse().unwrap();
    assert!(load(&config).unwrap_err().to_string().starts_with("cannot run on CPU 1023"));
}

#[test]
fn interrupted_load_is_reported() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let mut config = config(&server);
    config.pace = Pace::Closed(Duration::from_secs(3_600));
    let stop = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let load = scope.spawn(|| run(&config, &stop, &mut |_| {}));
        while server.rows().len() < 1_000 {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap().unwrap()
    });
    assert!(report.operations > 0 && report.window_s < 60.0, "{report:?}");
}

#[test]
fn events_and_log_have_every_second() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&server);
    config.pace = open(500.0, Duration::from_millis(2_500));
    let path = folder.path().join("load.hdr");
    config.hdr_file = Some(path.clone());
    let (mut rows, mut seconds, mut counts) = (Vec::new(), Vec::new(), 0);
    let report = run(&config, &AtomicBool::new(false), &mut |event| match event {
        LoadEvent::Populating { table, done, all } => {
            assert_eq!((*table, *all), ("tare.row3x20", 1_000));
            rows.push(*done);
        }
        LoadEvent::Interval(interval) => {
            seconds.push(interval.end.as_secs_f64().round());
            counts += interval.histogram.len();
            assert_eq!(interval.latency.count, interval.histogram.len());
        }
        LoadEvent::Tried(tried) => panic!("{tried:?}"),
    })
    .unwrap();
    assert_eq!(rows.last(), Some(&1_000));
    assert_eq!(seconds.len(), 3, "{seconds:?}");
    assert_eq!(report.intervals.len(), 3, "{report:?}");
    assert_eq!(counts, report.response.as_ref().unwrap().count);
    let merged = crate::report::log::merge(&[path], &mut Vec::new()).unwrap();
    let tags: Vec<&str> = merged.tags.iter().map(|tag| tag.tag.as_str()).collect();
    assert_eq!(tags, ["read-response", "read-service", "write-response", "write-service"]);
    for operation in &report.by_operation {
        let tag = format!("{}-response", operation.operation);
        let logged = merged.tags.iter().find(|one| one.tag == tag).unwrap();
        assert_eq!(Some(&logged.quantiles), operation.response.as_ref());
    }
}

#[test]
fn stepped_schedule_is_reported_by_step() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let length = Duration::from_millis(300);
    let ramp = Step { from_per_s: 1_000.0, to_per_s: 3_000.0, length };
    let steps = vec![Step::steady(500.0, length), ramp];
    let pace = Pace::Open(Schedule::new(steps, Arrivals::Poisson).unwrap());
    let report = load(&LoadConfig { pace, ..config(&server) }).unwrap();
    assert_eq!((report.arrivals, report.steps.len()), (Some("poisson"), 2));
    assert!((report.rate_per_s.unwrap() - 1_250.0).abs() < 1e-6, "{report:?}");
    let (first, second) = (&report.steps[0], &report.steps[1]);
    assert!(first.response.count < second.response.count, "{report:?}");
    let all = report.response.as_ref().unwrap().count;
    assert_eq!(first.response.count + second.response.count, all);
    // 750 on average; beyond 6 deviations it is not chance.
    assert!((all + report.dropped).abs_diff(750) < 165, "{report:?}");
    assert!(report.steadiness.is_none());
}

#[test]
fn silent_server_counts_as_time_without_service() {
    let server = FakeServer::start(ServerBehaviour::SilentAfter(1_500));
    let mut config = config(&server);
    config.pace = open(1_000.0, Duration::from_millis(1_500));
    let report = load(&config).unwrap();
    // 500 operations are answered, so about 1 s of the window is left without an answer.
    let without = report.without_service;
    assert_eq!(without.count, 1, "{report:?}");
    assert!(without.longest_s > 0.5 && without.longest_s < 1.1, "{without:?}");
    let from_s = without.longest_at_s.unwrap();
    assert!((from_s + without.longest_s - report.window_s).abs() < 0.05, "{without:?}");
    assert!(report.timed_out > 0, "{report:?}");
    let kinds: Vec<&str> = report.doubts.iter().map(|doubt| doubt.kind).collect();
    assert!(
        kinds.contains(&"rate_not_reached") && kinds.contains(&"operation_errors"),
        "{kinds:?}"
    );
}

#[test]
fn full_disk_ends_the_log_but_not_the_load() {
    let server = FakeServer::start(ServerBehaviour::Good);
    let mut config = config(&server);
    config.hdr_file = Some("/dev/full".into());
    let report = load(&config).unwrap();
    assert!(report.operations > 0);
    let error = report.log_error.unwrap();
    assert!(
        error.starts_with("cannot write the histogram log /dev/full: No space left"),
        "{error}"
    );
    config.hdr_file = Some("/nowhere/load.hdr".into());
    let error = load(&config).unwrap_err().to_string();
    assert_eq!(error, "cannot write the histogram log /nowhere/load.hdr");
}
