//! What is done about servers that forget, drop, close and answer in any order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::load::{config, kinds, load};
use super::{PlainLoad, workload};
use crate::access::Recovery;
use crate::pacing::Pace;
use crate::report::LoadReport;
use crate::run::load::{LoadConfig, LoadEvent, run};
use tare_testkit::fake_server::{FakeServer, ServerBehaviour};

/// Time limit for a replacement of a connection, on a busy host.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a load of 300 ms that only writes, all of it measured.
fn writing(server: &FakeServer, recovery: Recovery) -> LoadConfig {
    let mut config = config(server);
    config.populate = false;
    let workload = PlainLoad { write_share: 1.0, ..workload() };
    config.spec = workload.spec().unwrap();
    config.lead_in = Duration::ZERO;
    config.pace = Pace::Closed(Duration::from_millis(300));
    config.access.recovery = recovery;
    config
}

/// Such a load of a server of this manner.
fn recovered(manner: ServerBehaviour, recovery: Recovery) -> LoadReport {
    let server = FakeServer::start(manner);
    load(&writing(&server, recovery)).unwrap()
}

#[test]
fn answers_may_come_in_any_order() {
    let report = recovered(ServerBehaviour::Reversed, Recovery::default());
    assert!(report.operations > 0 && report.errors.is_empty(), "{report:?}");
}

#[test]
fn forgotten_statements_are_prepared_again() {
    let report = recovered(ServerBehaviour::Forgets, Recovery::default());
    assert!(report.operations > 0 && report.errors.is_empty(), "{report:?}");
    assert!(report.recovery.reprepared > 0, "{report:?}");
}

#[test]
fn unanswered_attempts_are_retried_if_requested() {
    let timeout = Some(Duration::from_millis(20));
    let report = recovered(ServerBehaviour::Drops, Recovery { timeout, ..Recovery::default() });
    assert_eq!(kinds(&report), ["timed out"], "{report:?}");
    assert_eq!(report.recovery.retries, 0);
    assert!(report.operations > 0 && report.recovery.timeouts > 0, "{report:?}");
    let report =
        recovered(ServerBehaviour::Drops, Recovery { timeout, retries: 9, ..Recovery::default() });
    assert!(report.recovery.retries > 0, "{report:?}");
    // What was under way at the end is not sent again.
    let failed: u64 = report.errors.iter().map(|error| error.count).sum();
    assert!(failed <= 32, "{report:?}");
}

#[test]
fn second_attempt_can_be_answered_instead_of_the_first() {
    let speculative = Some(Duration::from_millis(5));
    let report = recovered(ServerBehaviour::Drops, Recovery { speculative, ..Recovery::default() });
    let recovery = report.recovery;
    assert!(recovery.speculative > 0 && recovery.speculative_won > 0, "{report:?}");
    assert!(recovery.speculative_won <= recovery.speculative, "{report:?}");
    assert!(report.operations > 0, "{report:?}");
}

/// A load of a server that closes one connection with a request on it unanswered, in the second
/// second of the window. It ends once a connection that was made afterwards serves.
fn reconnected(recovery: Recovery) -> LoadReport {
    let server = FakeServer::start(ServerBehaviour::Good);
    let mut config = writing(&server, recovery);
    config.pace = Pace::Closed(PATIENCE);
    let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !server.has_recovered() && !ended.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut has_closed = false;
        let report = run(&config, &stop, &mut |event| {
            if matches!(event, LoadEvent::Interval(_)) && !has_closed {
                has_closed = true;
                server.close_next();
            }
        });
        ended.store(true, Ordering::Relaxed);
        assert!(server.has_recovered(), "no connection was made again: {report:?}");
        report.unwrap()
    })
}

#[test]
fn broken_connections_are_replaced() {
    let recovery = Recovery { reconnect: true, ..Recovery::default() };
    let report = reconnected(recovery);
    assert_eq!(kinds(&report), ["connection closed"], "{report:?}");
    assert_eq!(report.recovery.reconnects, 1, "{report:?}");
    let retried = Recovery { retries: 1, ..recovery };
    let report = reconnected(retried);
    assert!(report.errors.is_empty() && report.recovery.retries > 0, "{report:?}");
}
