//! Kills the database under load repeatedly, on a real disk, and checks that every acknowledged
//! write is still there.
//!
//! The kernel keeps what it has accepted when a process is killed, so `kill -9` tests less than a
//! power loss; `tare-sim` simulates that. This test shows that the real reactor, files and protocol
//! keep what the simulated ones promise.
//!
//! `TARE_KILLS` sets how often each server is killed; `cargo xtask kill --times 100` sets it.

#![expect(clippy::print_stderr, reason = "`cargo xtask kill` shows what each kill left")]
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "kill/client.rs"]
mod client;
mod common;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Writer};
use tare_db::report::{self, Report};
use tare_std::rng::Rng;
use tare_testkit::Reason;

/// Connections that write, each to its own keys.
const WRITERS: u64 = 4;
/// How often each server is killed by default.
const KILLS: u64 = 3;
/// How long a server may take to start, also after a kill.
const START_MAX: Duration = Duration::from_secs(60);

/// A server that ends with the test.
type Server = tare_testkit::database::Server<Report>;

fn start(data: &Path, options: &[&str]) -> Result<Server, String> {
    let mut command: Command = common::tare();
    command.args(["db", "--port", "0", "--smp", "1", "--overprovisioned", "yes", "--data"]);
    command.arg(data).args(options);
    Server::start(command, &data.join(report::FILE), report::read)
}

fn kills() -> u64 {
    std::env::var("TARE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS)
}

/// Kills a server with these options as often as [`kills`] says and verifies it after each kill.
fn check(name: &str, options: &[&str], acknowledged_is_durable: bool) {
    // Not in the default temporary directory, which may be in memory.
    let data = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kept = if acknowledged_is_durable {
        "all are there"
    } else {
        "each key has a version that was sent"
    };
    let mut rng = Rng::new(1);
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    for kill in 0..=kills() {
        let mut server = match start(data.path(), options) {
            Ok(server) => server,
            Err(why) if kill == 0 => {
                return tare_testkit::skip(
                    name,
                    Reason::no_engine(options.last().copied().unwrap_or_default(), &why),
                );
            }
            Err(why) => panic!("{name}: after kill {kill}: {why}"),
        };
        let mut client = Client::start(&server.report);
        client.schema();
        for writer in &mut writers {
            writer.verify(&mut client, acknowledged_is_durable);
        }
        if kill > 0 {
            let (acknowledged, of) = (acknowledged(&writers), kills());
            eprintln!(
                "{name}: kill {kill} of {of}: {acknowledged} acknowledged writes so far, {kept}"
            );
        }
        if kill == kills() {
            break;
        }
        let wanted = 200 + rng.below(3000);
        let after = Duration::from_micros(rng.below(20_000));
        write_and_kill(&mut server, &mut writers, wanted, after);
    }
    let acknowledged = acknowledged(&writers);
    assert!(acknowledged >= 200 * kills(), "{name}: {acknowledged} writes were acknowledged");
}

fn acknowledged(writers: &[Writer]) -> u64 {
    writers.iter().map(Writer::acknowledged).sum()
}

/// Lets all writers write and kills the server `after` the wanted writes have been acknowledged.
fn write_and_kill(server: &mut Server, writers: &mut [Writer], wanted: u64, after: Duration) {
    let count = AtomicU64::new(0);
    let dead = AtomicBool::new(false);
    let mut late = false;
    let report = server.report.clone();
    std::thread::scope(|scope| {
        for writer in writers {
            scope.spawn(|| writer.write_until_it_dies(&report, &count));
        }
        // A client whose connections break in the middle of a frame must not disturb the others.
        scope.spawn(|| client::break_connections(&report, &dead));
        let since = Instant::now();
        while count.load(Ordering::Relaxed) < wanted && since.elapsed() < START_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Asserted after the kill, without which the writers would never return.
        late = count.load(Ordering::Relaxed) < wanted;
        std::thread::sleep(after);
        server.kill();
        dead.store(true, Ordering::Relaxed);
    });
    assert!(!late, "the server acknowledged too few writes");
}

#[test]
fn acknowledged_writes_survive_kills_over_io_uring() {
    let name = "acknowledged_writes_survive_kills_over_io_uring";
    check(name, &["--durability", "sync", "--io", "io_uring"], true);
}

#[test]
fn acknowledged_writes_survive_kills_over_epoll() {
    let name = "acknowledged_writes_survive_kills_over_epoll";
    check(name, &["--durability", "sync", "--io", "epoll"], true);
}

#[test]
fn periodic_durability_loses_only_the_last_writes() {
    let name = "periodic_durability_loses_only_the_last_writes";
    check(name, &["--durability", "periodic=20ms"], false);
}
